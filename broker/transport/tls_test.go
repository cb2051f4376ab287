package transport

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/reload"
	"github.com/fitzwire/fitz/internal/devcert"
)

// The suites of TLS 1.2 are those of the library that have forward secrecy and authenticated encryption, all of them and no other. Those
// of TLS 1.3 cannot be chosen.
func TestCipherSuites(t *testing.T) {
	var strong []uint16
	for _, s := range tls.CipherSuites() {
		if slices.Contains(s.SupportedVersions, tls.VersionTLS12) && strings.Contains(s.Name, "_ECDHE_") && (strings.Contains(s.Name, "_GCM_") || strings.Contains(s.Name, "_POLY1305_")) {
			strong = append(strong, s.ID)
		}
	}
	chosen := slices.Clone(cipherSuites)
	slices.Sort(chosen)
	slices.Sort(strong)
	if !slices.Equal(chosen, strong) || len(strong) != 6 {
		t.Errorf("%#x, want %#x", chosen, strong)
	}
}

// files writes a pair and the certificate of its authority, and returns options for a listener with them.
func files(tb testing.TB) (o TLSOptions, a *devcert.Authority, dir string) {
	tb.Helper()
	dir = tb.TempDir()
	a, err := devcert.New("test authority")
	if err != nil {
		tb.Fatal(err)
	}
	pair, err := a.Issue(devcert.Leaf{Name: "broker"})
	if err != nil {
		tb.Fatal(err)
	}
	o = TLSOptions{Min: tls.VersionTLS12, Clock: clock.System()}
	o.Reload = func(kind string) reload.Options { return reload.Options{Clock: o.Clock, Every: time.Hour, Kind: kind} }
	if o.CertFile, o.KeyFile, err = pair.Write(dir); err != nil {
		tb.Fatal(err)
	}
	if _, err := a.Write(dir); err != nil {
		tb.Fatal(err)
	}
	return o, a, dir
}

// Files that no listener can start with, each with an error that names the file and shows nothing of it.
func TestTLSFiles(t *testing.T) {
	o, a, dir := files(t)
	other, err := a.Issue(devcert.Leaf{Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := filepath.Join(dir, devcert.CAFile)
	weakCert, weakKey := weakPair(t)
	for _, c := range []struct {
		name   string
		change func(o *TLSOptions)
		want   string
	}{
		{"no certificate", func(o *TLSOptions) { o.CertFile = filepath.Join(dir, "none") }, "none"},
		{"folder", func(o *TLSOptions) { o.CertFile = dir }, dir},
		{"no PEM", func(o *TLSOptions) { o.CertFile = write("text", []byte("secret words")) }, "text"},
		{"key of another certificate", func(o *TLSOptions) { o.KeyFile = write("other", other.Key) }, "does not match"},
		{"files swapped", func(o *TLSOptions) { o.CertFile, o.KeyFile = o.KeyFile, o.CertFile }, devcert.KeyFile},
		{"too large", func(o *TLSOptions) { o.KeyFile = write("large", make([]byte, tlsFileMax+1)) }, "larger than"},
		{"weak key", func(o *TLSOptions) { o.CertFile, o.KeyFile = write("weak.pem", weakCert), write("weak.key", weakKey) }, "an RSA key of 1024 bits"},
		{"no authority", func(o *TLSOptions) { o.ClientCAFile = filepath.Join(dir, "none") }, "none"},
		{"authority without a certificate", func(o *TLSOptions) { o.ClientCAFile = write("empty", nil) }, "empty: it holds no certificate"},
		{"authority with a key in it", func(o *TLSOptions) { o.ClientCAFile = write("both", append(a.PEM(), other.Key...)) }, "both: block 2 is no certificate"},
		{"right", func(o *TLSOptions) { o.ClientCAFile = ca }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := o
			c.change(&changed)
			_, err := OpenTLS(changed)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Fatalf("%v, want an error with %q", err, c.want)
			}
			var clients *ClientCAError
			if errors.As(err, &clients) != (changed.ClientCAFile != "") {
				t.Errorf("%v is about the wrong file", err)
			}
		})
	}
}

// weakPair is a certificate with a key that is too small.
func weakPair(t *testing.T) (cert, key []byte) {
	t.Helper()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "weak"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, small.Public(), small)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(small)})
}

func TestHandshakeReasons(t *testing.T) {
	for want, all := range map[string][]error{
		HandshakeTimeout:     {os.ErrDeadlineExceeded, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, net.ErrClosed},
		HandshakeClosed:      {io.EOF, io.ErrUnexpectedEOF, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, syscall.EPIPE},
		HandshakeCertificate: {&tls.CertificateVerificationError{Err: errors.New("expired")}, errors.New("remote error: tls: bad certificate")},
		HandshakeProtocol:    {tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}, errors.New("tls: no cipher suite supported by both client and server")},
		HandshakeOther:       {errors.New("something else")},
	} {
		for _, err := range all {
			if got := handshakeReason(fmt.Errorf("wrapped: %w", err)); got != want {
				t.Errorf("%v: %s, want %s", err, got, want)
			}
		}
		if !slices.Contains(HandshakeReasons, want) {
			t.Errorf("%s is not listed", want)
		}
	}
}

// joined returns both ends of a connection over TLS whose handshake is complete: that of the broker, and that of a client.
func joined(tb testing.TB, o TLSOptions, a *devcert.Authority, broker, client net.Conn, change ...func(*tls.Config)) (*tlsConn, *tls.Conn) {
	tb.Helper()
	secure, err := OpenTLS(o)
	if err != nil {
		tb.Fatal(err)
	}
	config := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"}
	for _, f := range change {
		f(config)
	}
	near, far := secure.secure(broker), tls.Client(client, config)
	shaken := make(chan error, 1)
	go func() { shaken <- near.handshake() }()
	// A client of TLS 1.3 is done before the tickets have come; they must be taken from a connection without a buffer.
	if err := far.Handshake(); err != nil {
		tb.Fatal(err)
	}
	if config.SessionTicketsDisabled {
		tb.Fatal("no tickets")
	}
	one := make(chan error, 1)
	go func() {
		_, err := far.Read(make([]byte, 1))
		one <- err
	}()
	if err := <-shaken; err != nil {
		tb.Fatal(err)
	}
	if _, err := near.Write([]byte{0}); err != nil {
		tb.Fatal(err)
	}
	if err := <-one; err != nil {
		tb.Fatal(err)
	}
	return near, far
}

// W-82: whatever deadlines a write meets, the bytes arrive complete and in order as long as the writer goes on with those that were not
// counted, and nothing but them is kept.
func TestWritesOverTLSGoOnAfterDeadlines(t *testing.T) {
	o, a, _ := files(t)
	type pair struct {
		near *tlsConn
		far  *tls.Conn
	}
	pairs := map[uint16]pair{}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		broker, client := net.Pipe()
		near, far := joined(t, o, a, broker, client, func(c *tls.Config) { c.MaxVersion = version })
		pairs[version] = pair{near, far}
		t.Cleanup(func() { _, _ = broker.Close(), client.Close() })
	}
	rapid.Check(t, func(rt *rapid.T) {
		version := rapid.SampledFrom([]uint16{tls.VersionTLS12, tls.VersionTLS13}).Draw(rt, "version")
		near, far := pairs[version].near, pairs[version].far
		conn := &socket{nc: near}
		sent := make([]byte, rapid.IntRange(1, 5*recordMax).Draw(rt, "bytes"))
		for i := range sent {
			sent[i] = byte(i ^ i>>8)
		}
		steps := rapid.SliceOfN(rapid.IntRange(1, 3*recordMax), 1, 8).Draw(rt, "reads")
		received := make(chan []byte, 1)
		readAll := make(chan struct{})
		go func() {
			defer close(readAll)
			var all []byte
			for i := 0; len(all) < len(sent); i++ {
				conn.ExpireWrite() // the write in progress, or the one that is about to begin
				part := make([]byte, min(steps[i%len(steps)], len(sent)-len(all)))
				n, err := io.ReadFull(far, part)
				all = append(all, part[:n]...)
				if err != nil {
					break
				}
			}
			received <- all
		}()
		size := rapid.IntRange(1, 2*recordMax).Draw(rt, "write")
		for rest := sent; len(rest) > 0; {
			n, err := conn.Write(rest[:min(size, len(rest))], time.Millisecond)
			if err != nil && err != ErrTimeout {
				rt.Fatal(err)
			}
			rest = rest[n:]
			select {
			case <-readAll: // whatever it was that the reader took
				if len(rest) > 0 && n == 0 {
					rt.Fatalf("%d bytes are left when everything was read", len(rest))
				}
			default:
			}
			if kept := len(near.sealed); kept > recordMax+1024 {
				rt.Fatalf("%d bytes are kept", kept)
			}
		}
		if got := <-received; !bytes.Equal(got, sent) {
			rt.Fatalf("received %d bytes that differ from the %d that were sent", len(got), len(sent))
		}
		if near.sealed != nil {
			rt.Fatal("a buffer is kept")
		}
	})
}

// A peer that makes the broker answer inside TLS and reads nothing meets a bound, and the reader does not wait for it.
func TestAnswersInsideTLSAreBounded(t *testing.T) {
	o, a, _ := files(t)
	broker, client := net.Pipe()
	defer func() { _, _ = broker.Close(), client.Close() }()
	near, _ := joined(t, o, a, broker, client)
	answer := make([]byte, 1000)
	for n := 0; ; n += len(answer) {
		_, err := sink{near}.Write(answer)
		if len(near.sealed) > sealedMax {
			t.Fatalf("%d bytes are kept", len(near.sealed))
		}
		if err != nil {
			if n+len(answer) <= sealedMax {
				t.Fatalf("refused after %d bytes", n)
			}
			return
		}
	}
}

// tap keeps what a client receives. The library takes an end without an alert for an end in order, other ones do not.
type tap struct {
	net.Conn
	received []byte
}

func (c *tap) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received = append(c.received, p[:n]...)
	return n, err
}

// alerted reports whether the last record that came is an alert. Version 1.2 shows that outside of what is encrypted.
func (c *tap) alerted() bool {
	const head, alert = 5, 21
	last := byte(0)
	for rest := c.received; len(rest) >= head; {
		last = rest[0]
		size := head + int(binary.BigEndian.Uint16(rest[3:]))
		rest = rest[min(size, len(rest)):]
	}
	return last == alert
}

// the end of the sending side is one that the peer can tell from a cut, also behind bytes that a deadline held up; before the end of
// the handshake there is none.
func TestEndOfSendingOverTLS(t *testing.T) {
	o, a, _ := files(t)
	pair := func(o TLSOptions) (*tlsConn, *tls.Conn, *tap) {
		broker, client := socketPair(t)
		tapped := &tap{Conn: client}
		near, far := joined(t, o, a, broker, tapped, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })
		return near, far, tapped
	}
	near, far, tapped := pair(o)
	if err := near.SetWriteDeadline(longAgo); err != nil {
		t.Fatal(err)
	}
	if n, err := near.Write([]byte("held up")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d, %v", n, err)
	}
	if err := near.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(far); err != nil || string(text) != "held up" || !tapped.alerted() {
		t.Errorf("%q, %v, alert %v", text, err, tapped.alerted())
	}
	if _, err := far.Write([]byte("still read")); err != nil {
		t.Error(err)
	}
	if err := far.Close(); err != nil {
		t.Error(err)
	}
	if text, err := io.ReadAll(near); err != nil || string(text) != "still read" {
		t.Errorf("%q, %v", text, err)
	}
	_ = near.Close()

	// Abort is a cut, unless the connection speaks HTTP, whose answers have no other end at times.
	for _, speaksHTTP := range []bool{false, true} {
		o.HTTP = speaksHTTP
		near, far, tapped = pair(o)
		_ = near.Close()
		if text, _ := io.ReadAll(far); len(text) != 0 || tapped.alerted() != speaksHTTP {
			t.Errorf("HTTP %v: %q, alert %v", speaksHTTP, text, tapped.alerted())
		}
	}
	early, err := OpenTLS(o)
	if err != nil {
		t.Fatal(err)
	}
	broker, _ := socketPair(t)
	if c := early.secure(broker); c.CloseWrite() == nil || c.Close() != nil {
		t.Error("a connection ends in order before its handshake")
	}
}

// socketPair returns both ends of a TCP connection on loopback.
func socketPair(tb testing.TB) (broker, client net.Conn) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		tb.Fatal(err)
	}
	if broker, err = listener.Accept(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = broker.Close(), client.Close() })
	for _, nc := range []net.Conn{broker, client} {
		if err := nc.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			tb.Fatal(err)
		}
	}
	return broker, client
}

// Bytes that are no TLS end the connection with an error and nothing worse.
func FuzzTLSBegin(f *testing.F) {
	o, _, _ := files(f)
	secure, err := OpenTLS(o)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"))
	f.Add([]byte("\x00\x00\x00\x05\x00\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, begin []byte) {
		broker, client := net.Pipe()
		var peer sync.WaitGroup
		peer.Go(func() { _, _ = io.Copy(io.Discard, client) }) // a pipe has no buffer: what nobody reads, nobody can write
		peer.Go(func() {
			_, _ = client.Write(begin)
			_ = client.Close()
		})
		defer peer.Wait()
		c := secure.secure(broker)
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
		_ = c.Close()
	})
}

// BenchmarkIdleTLS measures what an idle connection over TLS holds on the side of the broker, beside the socket: after the handshake and a
// small message, and after a message that filled a record.
func BenchmarkIdleTLS(b *testing.B) {
	o, a, _ := files(b)
	for name, size := range map[string]int{"after a small message": 64, "after a full record": recordMax} {
		b.Run(name, func(b *testing.B) {
			secure, err := OpenTLS(o)
			if err != nil {
				b.Fatal(err)
			}
			const peers = 200
			config := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"}
			message, in := make([]byte, size), make([]byte, size)
			for b.Loop() {
				var kept []*tlsConn
				var held []net.Conn
				before := heap()
				for range peers {
					broker, client := socketPair(b)
					near := secure.secure(broker)
					done := make(chan error, 1)
					go func() {
						_, err := io.ReadFull(near, in)
						done <- err
					}()
					far := tls.Client(client, config)
					if err := far.HandshakeContext(context.Background()); err != nil {
						b.Fatal(err)
					}
					if _, err := far.Write(message); err != nil {
						b.Fatal(err)
					}
					if err := <-done; err != nil {
						b.Fatal(err)
					}
					kept, held = append(kept, near), append(held, client)
				}
				b.ReportMetric(float64(heap()-before)/peers, "B/peer")
				for i := range kept {
					_, _ = kept[i].Close(), held[i].Close()
				}
			}
		})
	}
}

// heap is the size of what is in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
