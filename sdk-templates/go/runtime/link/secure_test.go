package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// authority signs the certificates of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
	dir  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var der []byte
	a.key, der = a.sign(template, template, nil)
	a.cert, _ = x509.ParseCertificate(der)
	a.file = a.write("ca.pem", pemOf("CERTIFICATE", der))
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, der
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *authority) write(name string, content []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// issue writes a certificate for a name, and its key.
func (a *authority) issue(file, name string) (certFile, keyFile string) {
	a.t.Helper()
	key, der := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(file+".crt", pemOf("CERTIFICATE", der)), a.write(file+".key", pemOf("PRIVATE KEY", encoded))
}

func (a *authority) server() *tls.Config {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.issue("server", "localhost"))
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool}
}

// securePeer serves connections over TLS. Each gets the hello after its first message, unless refuse is set, and an answer for each request.
type securePeer struct {
	t      *testing.T
	refuse bool
	tasks  sync.WaitGroup
	names  chan string // of the certificates of clients
	ends   chan error  // how the reading of a connection ended
}

func newSecurePeer(t *testing.T) *securePeer {
	return &securePeer{t: t, names: make(chan string, 16), ends: make(chan error, 16)}
}

func (p *securePeer) tcp(config *tls.Config) string {
	p.t.Helper()
	listener, err := tls.Listen("tcp", "localhost:0", config)
	if err != nil {
		p.t.Fatal(err)
	}
	p.tasks.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			p.tasks.Go(func() { p.serveTCP(conn.(*tls.Conn)) })
		}
	})
	p.t.Cleanup(func() {
		_ = listener.Close()
		p.tasks.Wait()
	})
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return "toys://localhost:" + port
}

func (p *securePeer) note(state tls.ConnectionState) {
	name := ""
	if len(state.PeerCertificates) > 0 {
		name = state.PeerCertificates[0].Subject.CommonName
	}
	p.names <- name
}

func (p *securePeer) serveTCP(conn *tls.Conn) {
	defer func() { _ = conn.Close() }()
	r := newMessageReader(conn, 1<<20)
	if _, err := r.next(); err != nil { // the handshake failed
		p.ends <- err
		return
	}
	p.note(conn.ConnectionState())
	if p.refuse {
		return
	}
	writer := newRemote(p.t, conn)
	writer.send(rec(toyHello, toyHelloValue(bitLabels, 0, 0)))
	for {
		message, err := r.next()
		if err != nil {
			p.ends <- err
			return
		}
		writer.send(append([]byte{byte(toyLabelled)}, message[1:11]...), text(toyEcho, "A"))
	}
}

func (p *securePeer) webSocket(config *tls.Config) string {
	p.t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.tasks.Add(1)
		defer p.tasks.Done()
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			p.t.Errorf("accept: %v", err)
			return
		}
		defer func() { _ = conn.CloseNow() }()
		p.note(*r.TLS)
		p.serveWebSocket(r.Context(), conn)
	}))
	server.Config.ErrorLog = discardLog()
	server.TLS = config
	server.StartTLS()
	p.t.Cleanup(func() {
		server.Close()
		p.tasks.Wait()
	})
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	return "wss://localhost:" + port
}

func (p *securePeer) serveWebSocket(ctx context.Context, conn *websocket.Conn) {
	if _, _, err := conn.Read(ctx); err != nil {
		return
	}
	if p.refuse {
		_ = conn.Close(websocket.StatusPolicyViolation, "connect failed: x")
		return
	}
	sendHello(ctx, conn)
	for {
		_, message, err := conn.Read(ctx)
		if err != nil {
			if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
				err = io.EOF
			}
			p.ends <- err
			return
		}
		reply := append([]byte{byte(toyLabelled)}, message[1:11]...)
		_ = conn.Write(ctx, websocket.MessageBinary, append(reply, text(toyEcho, "A")...))
	}
}

func (p *securePeer) serve(transport string, config *tls.Config) string {
	if transport == "tcp" {
		return p.tcp(config)
	}
	return p.webSocket(config)
}

var secureTransports = []string{"tcp", "websocket"}

// dialSecure opens a session, makes one call and closes it.
func dialSecure(t *testing.T, address string, options TLS) error {
	t.Helper()
	c, err := Dial(t.Context(), address, toyProtocol(), Options{TLS: options})
	if err != nil {
		return err
	}
	if reply, err := c.Call(t.Context(), echo("a")); err != nil || string(reply) != "A" {
		t.Errorf("%q, %v", reply, err)
	}
	return c.Close()
}

// A session over TLS works and says its end; the certificate is verified with the CA file or what the configuration trusts, for the host of the
// address or another name.
func TestTLSSession(t *testing.T) {
	a := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	for _, transport := range secureTransports {
		for name, options := range map[string]TLS{
			"CA file":       {CAFile: a.file},
			"configuration": {Config: &tls.Config{RootCAs: pool}},
			"TLS 1.2":       {Config: &tls.Config{MaxVersion: tls.VersionTLS12}, CAFile: a.file},
			"HTTP/2 too":    {Config: &tls.Config{RootCAs: pool, NextProtos: []string{"h2", "http/1.1"}}},
			"server name":   {CAFile: a.file, ServerName: "localhost"},
		} {
			t.Run(transport+" "+name, func(t *testing.T) {
				p := newSecurePeer(t)
				address := p.serve(transport, a.server())
				if name == "server name" {
					address = strings.Replace(address, "localhost", "127.0.0.1", 1)
				}
				if err := dialSecure(t, address, options); err != nil {
					t.Fatal(err)
				}
				if err := <-p.ends; !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("the end of the session: %v", err)
				}
			})
		}
	}
}

// A-06 behind TLS: a refusal is one, on both transports.
func TestTLSRefusal(t *testing.T) {
	a := newAuthority(t)
	for _, transport := range secureTransports {
		p := newSecurePeer(t)
		p.refuse = true
		if err := dialSecure(t, p.serve(transport, a.server()), TLS{CAFile: a.file}); !IsKind(err, Rejected) {
			t.Errorf("%s: %v", transport, err)
		}
	}
}

// A certificate that does not verify, a version that is too old and a peer without TLS are no session, with a text that says why; they are not
// refusals of the token.
func TestTLSNotAgreed(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	late := func() time.Time { return time.Now().Add(24 * time.Hour) }
	old := a.server()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	required := a.server()
	required.ClientAuth = tls.RequireAndVerifyClientCert
	cert, key := other.issue("client", "worker")
	for name, test := range map[string]struct {
		server  *tls.Config
		options TLS
		text    string
	}{
		"another authority":          {a.server(), TLS{CAFile: other.file}, "unknown authority"},
		"authorities of the machine": {a.server(), TLS{}, "unknown authority"},
		"another name":               {a.server(), TLS{CAFile: a.file, ServerName: "elsewhere.test"}, "elsewhere.test"},
		"expired":                    {a.server(), TLS{CAFile: a.file, Wall: late}, "expired"},
		"old version":                {old, TLS{CAFile: a.file}, "protocol version"},
		"no client certificate":      {required, TLS{CAFile: a.file}, "certificate required"},
		"unknown client certificate": {required, TLS{CAFile: a.file, CertFile: cert, KeyFile: key}, "certificate"},
	} {
		for _, transport := range secureTransports {
			t.Run(transport+" "+name, func(t *testing.T) {
				err := dialSecure(t, newSecurePeer(t).serve(transport, test.server), test.options)
				if !IsKind(err, Refused) || !strings.Contains(err.Error(), test.text) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for _, scheme := range []string{"toys", "tls", "wss"} {
		err := dialSecure(t, scheme+strings.TrimPrefix(plain.URL, "http"), TLS{CAFile: a.file})
		if !IsKind(err, Refused) || !strings.Contains(err.Error(), "TLS") {
			t.Errorf("a peer without TLS: %v", err)
		}
	}
}

// Certificates are read anew for every connection.
func TestTLSFilesAreReadAnew(t *testing.T) {
	a := newAuthority(t)
	config := a.server()
	config.ClientAuth = tls.RequireAndVerifyClientCert
	for _, transport := range secureTransports {
		p := newSecurePeer(t)
		address := p.serve(transport, config)
		cert, key := a.issue("client", "first")
		options := TLS{CAFile: a.file, CertFile: cert, KeyFile: key}
		for _, name := range []string{"first", "second"} {
			a.issue("client", name)
			if err := dialSecure(t, address, options); err != nil {
				t.Fatal(err)
			}
			if got := <-p.names; got != name {
				t.Errorf("%s: the peer saw %q, want %q", transport, got, name)
			}
		}
	}
}

// What is wrong with options and files is found before anything is dialled, and named.
func TestTLSOptions(t *testing.T) {
	a := newAuthority(t)
	cert, key := a.issue("client", "worker")
	_, otherKey := a.issue("other", "other")
	empty, long := a.write("empty.pem", nil), a.write("long.pem", make([]byte, pemBytesMax+1))
	dial := func(context.Context, string, string) (net.Conn, error) {
		t.Error("something was dialled")
		return nil, errToy
	}
	missing := filepath.Join(a.dir, "missing.pem")
	for name, test := range map[string]struct {
		address string
		options TLS
		text    string
	}{
		"no CA file":           {"toys://h", TLS{CAFile: missing}, missing},
		"no certificate in it": {"wss://h", TLS{CAFile: empty}, empty},
		"a long CA file":       {"toys://h", TLS{CAFile: long}, long},
		"no certificate file":  {"toys://h", TLS{CertFile: missing, KeyFile: key}, missing},
		"no key file":          {"toys://h", TLS{CertFile: cert, KeyFile: missing}, missing},
		"another key":          {"toys://h", TLS{CertFile: cert, KeyFile: otherKey}, otherKey},
		"no name of the key":   {"toys://h", TLS{CertFile: cert}, "two files"},
		"an old version":       {"toys://h", TLS{Config: &tls.Config{MinVersion: tls.VersionTLS10}}, "1.2"},
		"only old versions":    {"toys://h", TLS{Config: &tls.Config{MaxVersion: tls.VersionTLS11}}, "1.2"},
		"an address without":   {"toy://h", TLS{CAFile: a.file}, "toy://h"},
		"another one":          {"ws://h", TLS{ServerName: "h"}, "ws://h"},
	} {
		_, err := Dial(t.Context(), test.address, toyProtocol(), Options{Dial: dial, TLS: test.options})
		if !IsKind(err, Invalid) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A handshake that never ends does so with the connect timeout, and leaves nothing.
func TestTLSHandshakeTimeout(t *testing.T) {
	for _, address := range []string{"toys://host", "wss://host"} {
		bubble(t, func(t *testing.T) {
			near, far := net.Pipe()
			newRemote(t, far).drain()
			began := time.Now()
			_, err := Dial(t.Context(), address, toyProtocol(), Options{Dial: pipe(near)})
			if !IsKind(err, Refused) || time.Since(began) != 10*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the connection is left open: %v", err)
			}
			_ = far.Close()
		})
	}
}

// brokenWrites is a connection to which nothing can be written from some time on.
type brokenWrites struct {
	net.Conn
	broken bool
}

func (c *brokenWrites) Write(p []byte) (int, error) {
	if c.broken {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(p)
}

// A peer that takes no client without a certificate says so after the handshake of the client is over; the write that fails because the peer has
// closed the connection tells what it said.
func TestTLSWriteIsExplained(t *testing.T) {
	a := newAuthority(t)
	config := a.server()
	config.ClientAuth = tls.RequireAndVerifyClientCert
	options := TLS{CAFile: a.file}
	own, err := options.config(target{host: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []bool{true, false} {
		near, far := net.Pipe()
		server := make(chan error, 1)
		go func() {
			peer := tls.Server(far, config)
			if !says {
				config := config.Clone()
				config.ClientAuth = tls.NoClientCert
				peer = tls.Server(far, config)
			}
			server <- peer.Handshake()
			_ = far.Close()
		}()
		raw := &brokenWrites{Conn: near}
		conn := explainedConn{tls.Client(raw, own)}
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		raw.broken = true
		_, err := conn.Write([]byte("x"))
		if says != strings.Contains(err.Error(), "certificate required") || says == errors.Is(err, syscall.EPIPE) {
			t.Errorf("says %v: %v", says, err)
		}
		_ = near.Close()
		if err := <-server; (err != nil) != says {
			t.Errorf("says %v: the peer got %v", says, err)
		}
	}
}
