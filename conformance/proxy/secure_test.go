package proxy_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/fitzwire/fitz/conformance/proxy"
	"github.com/fitzwire/fitz/conformance/trace"
	"github.com/fitzwire/fitz/internal/devcert"
)

// secured opens TLS in front of the proxy of a rig and returns its address and what a client needs to trust it.
func secured(t *testing.T, r *rig) (string, *tls.Config) {
	t.Helper()
	authority, err := devcert.New("test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(devcert.Leaf{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	address, err := r.proxy.Secure(r.transport, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	return address, &tls.Config{RootCAs: authority.Pool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
}

// bound ends every wait for a connection with the context of the test.
func bound(t *testing.T, r *rig, c net.Conn) {
	t.Helper()
	deadline, _ := r.ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
}

// Behind TLS a connection is one of the proxy: its frames are seen.
func TestSecure(t *testing.T) {
	r := newRig(t, proxy.TCP, proxy.Options{})
	address, config := secured(t, r)
	dialer := tls.Dialer{Config: config}
	before := r.proxy.Connections()
	c, err := dialer.DialContext(r.ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	bound(t, r, c)
	if _, err := c.Write([]byte{0, 0, 0, 3, 1, 0, 0}); err != nil { // CONNECT
		t.Fatal(err)
	}
	hello := make([]byte, 4)
	if _, err := io.ReadFull(c, hello); err != nil {
		t.Fatal(err)
	}
	if got := r.proxy.Connections(); got != before+1 {
		t.Errorf("%d connections", got-before)
	}
	if _, err := r.proxy.Trace().Await(r.ctx, trace.Filter{Message: "session.connect"}, 1); err != nil {
		t.Error(err)
	}
}

// A cut is an orderly end and a reset is a reset, by TLS too.
func TestSecureEnds(t *testing.T) {
	for name, end := range map[string]func(*proxy.Proxy) *proxy.Fault{"cut": (*proxy.Proxy).Cut, "reset": (*proxy.Proxy).Reset} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, proxy.TCP, proxy.Options{})
			address, config := secured(t, r)
			dialer := tls.Dialer{Config: config}
			c, err := dialer.DialContext(r.ctx, "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			bound(t, r, c)
			if err := r.proxy.AwaitConnections(r.ctx, 1); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write([]byte{0, 0, 0, 3, 1, 0, 0}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil { // both sides of the connection are there
				t.Fatal(err)
			}
			end(r.proxy)
			_, err = io.Copy(io.Discard, c)
			if reset := errors.Is(err, syscall.ECONNRESET); reset != (name == "reset") || !reset && err != nil {
				t.Errorf("the end is %v", err)
			}
		})
	}
}

// A client that does not trust the certificate never becomes a connection of the proxy.
func TestSecureRefused(t *testing.T) {
	r := newRig(t, proxy.TCP, proxy.Options{})
	address, config := secured(t, r)
	before := r.proxy.Connections()
	config.ServerName = "other.example"
	dialer := tls.Dialer{Config: config}
	var mismatch *tls.CertificateVerificationError
	if c, err := dialer.DialContext(r.ctx, "tcp", address); !errors.As(err, &mismatch) {
		t.Errorf("%v %v", c, err)
	}
	if err := r.proxy.Close(); err != nil {
		t.Error(err)
	}
	if got := r.proxy.Connections(); got != before {
		t.Errorf("%d connections", got-before)
	}
	if _, err := r.proxy.Secure("udp", nil); err == nil {
		t.Error("a transport that is none was taken")
	}
}
