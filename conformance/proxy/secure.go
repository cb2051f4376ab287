package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/fitzwire/fitz/conformance/internal/stream"
)

// handshakeTimeout bounds the handshake of a client that does not go on with it, in real time.
const handshakeTimeout = 10 * time.Second

// Secure opens a loopback port in front of the proxy at which a transport is served by TLS, until Close, and returns its address. TLS ends
// there: behind it a connection is one of the proxy like any other. A client whose handshake fails never becomes one.
func (p *Proxy) Secure(transport string, config *tls.Config) (string, error) {
	inside := p.Address(transport)
	if inside == "" {
		return "", fmt.Errorf("proxy: no transport %q", transport)
	}
	var listening net.ListenConfig
	l, err := listening.Listen(p.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("proxy: %w", err)
	}
	context.AfterFunc(p.ctx, func() { _ = l.Close() })
	p.done.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			p.done.Go(func() { p.terminate(near.(*net.TCPConn), inside, config) })
		}
	})
	return l.Addr().String(), nil
}

// SecureURL is the address of Secure as clients take it: fitzs://127.0.0.1:port or wss://127.0.0.1:port/ws.
func SecureURL(transport, address string) string {
	if stream.Transport(transport) == stream.WebSocket {
		return "wss://" + address + stream.Path
	}
	return "fitzs://" + address
}

// terminate takes TLS off a connection. Its ends go through: an orderly one as an orderly one, a reset as a reset.
func (p *Proxy) terminate(near *net.TCPConn, inside string, config *tls.Config) {
	defer func() { _ = near.Close() }()
	secured := tls.Server(near, config)
	shaking, cancel := context.WithTimeout(p.ctx, handshakeTimeout)
	err := secured.HandshakeContext(shaking)
	cancel()
	if err != nil {
		return // the client has been told by an alert
	}
	var dialer net.Dialer
	nc, err := dialer.DialContext(p.ctx, "tcp", inside)
	if err != nil {
		reset(near)
		return
	}
	plain := nc.(*net.TCPConn)
	defer func() { _ = plain.Close() }()
	defer context.AfterFunc(p.ctx, func() {
		_ = near.Close()
		_ = plain.Close()
	})()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := io.Copy(plain, secured); isReset(err) {
			reset(plain)
			return
		}
		_ = plain.CloseWrite()
	}()
	if _, err := io.Copy(secured, plain); isReset(err) {
		reset(near)
	} else {
		_ = secured.CloseWrite()
		_ = near.CloseWrite()
	}
	<-done
}

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }
