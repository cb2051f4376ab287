package broker_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/devcert"
	"github.com/fitzwire/fitz/internal/devtoken"
)

// authority signs the certificates of all tests; another one is somebody that nobody knows.
var authority = sync.OnceValue(func() *devcert.Authority { return newAuthority("test authority") })

func newAuthority(name string) *devcert.Authority {
	a, err := devcert.New(name)
	if err != nil {
		panic(err)
	}
	return a
}

func issue(tb testing.TB, a *devcert.Authority, l devcert.Leaf) devcert.Pair {
	tb.Helper()
	pair, err := a.Issue(l)
	if err != nil {
		tb.Fatal(err)
	}
	return pair
}

// secured is a broker with TLS on all listeners, whose time and files a test moves.
type secured struct {
	*broker.Broker
	tb    testing.TB
	clock *clock.Manual
	log   *logged
	dir   string
	stamp time.Time // of the newest file
}

// logged is a log that a test reads while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Files of a secured broker.
const (
	certPEM   = devcert.CertFile
	keyPEM    = devcert.KeyFile
	caPEM     = devcert.CAFile
	tlsConfig = "fitzd.yaml"
	tokenFile = "token"
)

// secure starts a broker with TLS on its three listeners. more are further lines of the file, and the keys of tls beside the files.
func secure(tb testing.TB, tlsKeys string, more ...string) *secured {
	tb.Helper()
	s := &secured{tb: tb, clock: clock.NewManual(time.Unix(1_700_000_000, 0)), log: &logged{}, dir: tb.TempDir(), stamp: time.Unix(1_600_000_000, 0)}
	pair := issue(tb, authority(), devcert.Leaf{Name: "first"})
	s.write(certPEM, pair.Cert)
	s.write(keyPEM, pair.Key)
	s.write(caPEM, authority().PEM())
	s.write(tokenFile, []byte("first-token\n"))
	text := strings.ReplaceAll(strings.Join(append(more, "tcp: off", "http: off", "admin: off", "listeners:"), "\n"), "TOKEN_FILE", s.path(tokenFile))
	for _, transport := range []string{"tcp", "websocket", "admin"} {
		text += fmt.Sprintf("\n  - {transport: %s, address: \"127.0.0.1:0\", tls: {cert: %q, key: %q%s}}", transport, s.path(certPEM), s.path(keyPEM), strings.ReplaceAll(tlsKeys, caPEM, s.path(caPEM)))
	}
	s.write(tlsConfig, []byte(text))
	b, err := broker.Start(context.Background(), load(tb, "--config", s.path(tlsConfig)), broker.WithClock(s.clock),
		broker.WithLog(slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	s.Broker = b
	return s
}

func (s *secured) path(name string) string { return filepath.Join(s.dir, name) }

// write gives a file a content and a modification time of its own.
func (s *secured) write(name string, content []byte) {
	s.tb.Helper()
	s.stamp = s.stamp.Add(time.Second)
	if err := errors.Join(os.WriteFile(s.path(name), content, 0o600), os.Chtimes(s.path(name), s.stamp, s.stamp)); err != nil {
		s.tb.Fatal(err)
	}
}

// recheck lets the files be looked at again.
func (s *secured) recheck() { s.clock.Advance(settings.FileCheckMs * time.Millisecond) }

// at is the address of the listener for a transport.
func (s *secured) at(transport string) string {
	index := map[string]int{rawclient.TCP: 0, rawclient.WebSocket: 1, "admin": 2}[transport]
	return s.Addresses()[fmt.Sprintf("listeners[%d]", index)]
}

// trusting is the configuration of a client that knows the authority.
func trusting(change ...func(*tls.Config)) *tls.Config {
	c := &tls.Config{RootCAs: authority().Pool(), ServerName: "localhost"}
	for _, f := range change {
		f(c)
	}
	return c
}

// patience ends a test that hangs. It is far more than a busy machine needs.
const patience = 2 * time.Minute

// plain opens a connection without TLS.
func (s *secured) plain(transport string) net.Conn {
	s.tb.Helper()
	nc, err := net.DialTimeout("tcp", s.at(transport), patience)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		s.tb.Fatal(err)
	}
	return nc
}

// try completes a handshake and asks for a byte, because a server of TLS 1.3 refuses a client after the client has finished.
func (s *secured) try(transport string, c *tls.Config) error {
	nc := tls.Client(s.plain(transport), c)
	if err := nc.Handshake(); err != nil {
		return err
	}
	defer func() { _ = nc.Close() }()
	ask := "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
	if transport == rawclient.TCP {
		ask = string(rawclient.New(s.tb, nc).Framed(rawclient.Record(wire.TypeConnect, nil)))
	}
	if _, err := io.WriteString(nc, ask); err != nil {
		return err
	}
	_, err := io.ReadFull(nc, make([]byte, 1))
	return err
}

// dial makes a client over TLS and returns what was agreed on.
func (s *secured) dial(transport string, c *tls.Config) (*rawclient.Client, tls.ConnectionState) {
	s.tb.Helper()
	nc := tls.Client(s.plain(transport), c)
	if err := nc.Handshake(); err != nil {
		s.tb.Fatal(err)
	}
	if transport == rawclient.WebSocket {
		return rawclient.Upgrade(s.tb, nc), nc.ConnectionState()
	}
	return rawclient.New(s.tb, nc), nc.ConnectionState()
}

// metric returns the sum of a metric over all label values that are not named.
func metric(tb testing.TB, b *broker.Broker, name string, labels ...string) float64 {
	tb.Helper()
	families, err := b.Registry().Gather()
	if err != nil {
		tb.Fatal(err)
	}
	total := 0.0
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
	series:
		for _, m := range family.GetMetric() {
			for i, label := range labels {
				if m.GetLabel()[i].GetValue() != label {
					continue series
				}
			}
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return total
}

// eventually waits until something is so.
func eventually(tb testing.TB, what string, is func() bool) {
	tb.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatal(what)
		}
	}
}

// The protocol works the same inside TLS, with the newest version unless the client has an older one, and the admin pages are there.
func TestTLS(t *testing.T) {
	s := secure(t, "")
	for _, kind := range rawclient.Transports {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			t.Run(kind+"/"+tls.VersionName(version), func(t *testing.T) {
				c, agreed := s.dial(kind, trusting(func(c *tls.Config) { c.MaxVersion = version }))
				if agreed.Version != version {
					t.Errorf("agreed on %s", tls.VersionName(agreed.Version))
				}
				c.Connect()
				c.Negotiate()
				c.Request(1, wire.TypeLeaseAcquire, acquire("w", 0))
				expectGrant(t, c, 1, wire.LeaseGrantKindAcquired)
				c.Send(bytes.Repeat(rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: 7}), 100))
				for range 100 {
					c.Expect(0, wire.TypePong)
				}
				_ = c.Conn.Close() // the lease is free for the next one
				eventually(t, "the session stays", func() bool { load := s.Load(); return load.Session.Sessions == 0 && load.Lease.Leases == 0 })
			})
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(), DisableKeepAlives: true}}
	response, err := client.Get("https://" + s.at("admin") + settings.AdminPathReadyz)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "ready\n" || response.TLS == nil || response.Body.Close() != nil {
		t.Errorf("%q, %v", body, err)
	}
	if n := metric(t, s.Broker, "fitz_tls_handshakes_total"); n != 5 {
		t.Errorf("%v handshakes were counted, not 5", n)
	}
	if until := metric(t, s.Broker, "fitz_tls_certificate_expiry_timestamp_seconds", "listeners[0]"); until != float64(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix()) {
		t.Errorf("the certificate ends at %v", until)
	}
}

// What is weaker than TLS 1.2 with forward secrecy and authenticated encryption is refused, and so is HTTP/2, which no WebSocket comes over.
func TestTLSFloor(t *testing.T) {
	usual, newest := secure(t, ""), secure(t, `, min_version: "1.3"`)
	weak := []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA}
	for _, c := range []struct {
		name   string
		broker *secured
		kind   string
		change func(*tls.Config)
		right  bool
	}{
		{"version 1.1", usual, rawclient.TCP, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, false},
		{"weak suites", usual, rawclient.TCP, func(c *tls.Config) { c.MaxVersion, c.CipherSuites = tls.VersionTLS12, weak }, false},
		{"strong suite", usual, rawclient.TCP, func(c *tls.Config) {
			c.MaxVersion, c.CipherSuites = tls.VersionTLS12, append(weak, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256)
		}, true},
		{"version 1.2 where 1.3 is wanted", newest, rawclient.TCP, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, false},
		{"version 1.3 where it is wanted", newest, rawclient.WebSocket, func(*tls.Config) {}, true},
		{"HTTP/2 alone", usual, rawclient.WebSocket, func(c *tls.Config) { c.NextProtos = []string{"h2"} }, false},
		{"HTTP/2 and HTTP/1.1", usual, rawclient.WebSocket, func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }, true},
		{"any protocol over TCP", usual, rawclient.TCP, func(c *tls.Config) { c.NextProtos = []string{"fitz"} }, true},
		{"unknown authority", usual, rawclient.TCP, func(c *tls.Config) { c.RootCAs = newAuthority("other").Pool() }, false},
		{"other name", usual, rawclient.TCP, func(c *tls.Config) { c.ServerName = "broker.example" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.broker.try(c.kind, trusting(c.change)); (err == nil) != c.right {
				t.Errorf("accepted %v: %v", err == nil, err)
			}
		})
	}
	_, agreed := usual.dial(rawclient.WebSocket, trusting(func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }))
	if agreed.NegotiatedProtocol != "http/1.1" {
		t.Errorf("agreed on %q", agreed.NegotiatedProtocol)
	}
}

func TestTLSClientCertificates(t *testing.T) {
	shown := func(tb testing.TB, a *devcert.Authority, l devcert.Leaf) func(*tls.Config) {
		certificate, err := issue(tb, a, l).TLS()
		if err != nil {
			tb.Fatal(err)
		}
		return func(c *tls.Config) {
			// It is shown whatever the broker asks for, as a hostile client would.
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
		}
	}
	long := time.Unix(1_700_000_000, 0)
	clients := []struct {
		name     string
		change   func(*tls.Config)
		optional bool // is accepted where certificates are optional
		required bool
	}{
		{"none", func(*tls.Config) {}, true, false},
		{"right", shown(t, authority(), devcert.Leaf{Name: "worker", Client: true}), true, true},
		{"of another authority", shown(t, newAuthority("other"), devcert.Leaf{Name: "worker", Client: true}), false, false},
		{"of a server", shown(t, authority(), devcert.Leaf{Name: "worker"}), false, false},
		{"expired", shown(t, authority(), devcert.Leaf{Name: "worker", Client: true, Until: long.Add(-time.Hour)}), false, false},
	}
	none := secure(t, "")
	optional, required := secure(t, ", client_ca: "+caPEM+", client_auth: optional"), secure(t, ", client_ca: "+caPEM+", client_auth: required")
	for _, kind := range rawclient.Transports {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			for _, c := range clients {
				t.Run(kind+"/"+tls.VersionName(version)+"/"+c.name, func(t *testing.T) {
					config := trusting(c.change, func(c *tls.Config) { c.MaxVersion = version })
					for _, b := range []struct {
						name   string
						broker *secured
						right  bool
					}{{"none", none, true}, {"optional", optional, c.optional}, {"required", required, c.required}} {
						if err := b.broker.try(kind, config); (err == nil) != b.right {
							t.Errorf("%s: accepted %v: %v", b.name, err == nil, err)
						}
					}
				})
			}
		}
	}
	eventually(t, "no refused certificate was counted", func() bool {
		return metric(t, required.Broker, "fitz_tls_handshake_failures_total", transport.HandshakeCertificate) > 0
	})
}

// A certificate is replaced without a restart; one that does not fit its key leaves the previous one in service, once in the log and in
// the metrics. Connections go on.
func TestTLSReload(t *testing.T) {
	s := secure(t, "")
	serves := func() string {
		t.Helper()
		_, agreed := s.dial(rawclient.TCP, trusting())
		return agreed.PeerCertificates[0].Subject.CommonName
	}
	old, _ := s.dial(rawclient.WebSocket, trusting())
	old.Connect()
	old.Negotiate()
	if name := serves(); name != "first" {
		t.Fatalf("serves %q", name)
	}
	second := issue(t, authority(), devcert.Leaf{Name: "second"})
	s.write(certPEM, second.Cert) // the key comes later, as with every tool that writes two files
	if name := serves(); name != "first" {
		t.Errorf("serves %q before the time for a look", name)
	}
	s.recheck()
	for range 3 {
		if name := serves(); name != "first" {
			t.Errorf("serves %q with a certificate that does not fit", name)
		}
	}
	failures := metric(t, s.Broker, "fitz_reload_failures_total", "certificate")
	if failures < 1 || int(failures) != strings.Count(s.log.String(), "file not reloaded") {
		t.Errorf("%v failures were counted, and the log says:\n%s", failures, s.log)
	}
	s.write(keyPEM, second.Key)
	s.recheck()
	if name := serves(); name != "second" {
		t.Errorf("serves %q after the change", name)
	}
	old.Sync(3)
	if log := s.log.String(); strings.Contains(log, "PRIVATE KEY") || strings.Contains(log, "BEGIN") {
		t.Errorf("the log shows a key:\n%s", log)
	}
}

// Clients of an authority that is no longer trusted stay out, those of the new one come in, and nobody comes in by a session of TLS that
// began before.
func TestTLSReloadOfClientCA(t *testing.T) {
	s := secure(t, ", client_ca: "+caPEM+", client_auth: required")
	client := func(a *devcert.Authority) *tls.Config {
		certificate, err := issue(t, a, devcert.Leaf{Name: "worker", Client: true}).TLS()
		if err != nil {
			t.Fatal(err)
		}
		return trusting(func(c *tls.Config) {
			c.Certificates, c.ClientSessionCache = []tls.Certificate{certificate}, tls.NewLRUClientSessionCache(4)
		})
	}
	other := newAuthority("other")
	before, after := client(authority()), client(other)
	if one, two := s.try(rawclient.TCP, before), s.try(rawclient.TCP, after); one != nil || two == nil {
		t.Fatalf("%v, %v", one, two)
	}
	s.write(caPEM, []byte("broken"))
	s.recheck()
	if err := s.try(rawclient.TCP, before); err != nil {
		t.Errorf("a broken file takes the authority out of service: %v", err)
	}
	s.write(caPEM, other.PEM())
	s.recheck()
	if one, two := s.try(rawclient.TCP, before), s.try(rawclient.TCP, client(other)); one == nil || two != nil {
		t.Errorf("after the change: %v, %v", one, two)
	}
}

// Sessions of TLS are resumed where no client certificate is asked for, and nowhere else.
func TestTLSResumption(t *testing.T) {
	for keys, want := range map[string]bool{"": true, ", client_ca: " + caPEM + ", client_auth: optional": false} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			s := secure(t, keys)
			config := trusting(func(c *tls.Config) {
				c.MaxVersion, c.ClientSessionCache = version, tls.NewLRUClientSessionCache(4)
			})
			if err := s.try(rawclient.TCP, config); err != nil { // reads, and so gets the ticket
				t.Fatal(err)
			}
			if _, agreed := s.dial(rawclient.TCP, config); agreed.DidResume != want {
				t.Errorf("%s%s: resumed %v", tls.VersionName(version), keys, agreed.DidResume)
			}
		}
	}
}

// W-30, W-38: a peer that never finishes its handshake counts as a connection without a first record, holds nobody up, and is closed when
// connect_wait_ms is over.
func TestTLSHandshakeThatNeverEnds(t *testing.T) {
	for _, kind := range rawclient.Transports {
		t.Run(kind, func(t *testing.T) {
			s := secure(t, "")
			half := map[string]net.Conn{}
			for _, begin := range []string{"", "\x16", "\x16\x03\x01\x02\x00", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"} {
				half[begin] = s.plain(kind)
				if _, err := io.WriteString(half[begin], begin); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "they do not count", func() bool { return s.Load().Preauth == len(half) })
			good, _ := s.dial(kind, trusting())
			good.Connect()
			good.Negotiate()
			s.clock.Advance(10*time.Second - time.Millisecond)
			good.Sync(1)
			if n := s.Load().Preauth; n != len(half) {
				t.Errorf("%d connections without a first record before the time", n)
			}
			s.clock.Advance(time.Millisecond)
			for begin, nc := range half {
				if n, err := io.Copy(io.Discard, nc); err != nil && !isReset(err) {
					t.Errorf("%x: %d bytes, %v", begin, n, err)
				}
			}
			eventually(t, "they stay", func() bool { return s.Load().Preauth == 0 })
			good.Sync(2)
			eventually(t, "the timeouts were not counted", func() bool {
				return metric(t, s.Broker, "fitz_tls_handshake_failures_total", transport.HandshakeTimeout) == float64(len(half))
			})
			if kind == rawclient.TCP {
				eventually(t, "the reason was not counted", func() bool {
					return metric(t, s.Broker, "fitz_session_closes_total", wire.CloseConnectTimeout.Name) == float64(len(half))
				})
			}
		})
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// W-38: of too many handshakes that have begun the oldest gives way.
func TestTLSHandshakesGiveWay(t *testing.T) {
	for _, kind := range rawclient.Transports {
		t.Run(kind, func(t *testing.T) {
			s := secure(t, "", "limits: {preauth_sessions_max: 2}")
			first := s.plain(kind)
			eventually(t, "it does not count", func() bool { return s.Load().Preauth == 1 })
			second := s.plain(kind)
			eventually(t, "it does not count", func() bool { return s.Load().Preauth == 2 })
			good, _ := s.dial(kind, trusting())
			if _, err := io.Copy(io.Discard, first); err != nil && !isReset(err) {
				t.Errorf("the oldest: %v", err)
			}
			good.Connect()
			if err := tls.Client(second, trusting()).Handshake(); err != nil {
				t.Errorf("the other one: %v", err)
			}
		})
	}
}

// a refused token ends the connection in order, inside TLS too, whatever the client has sent behind it.
func TestTLSRefusalIsOrderly(t *testing.T) {
	s := secure(t, "", "auth: token", "hmac_secret: "+settings.DevelopmentHMACSecret, "family_map: {dev: 1}")
	good := func() []byte {
		token, err := devtoken.Mint([]byte(settings.DevelopmentHMACSecret), devtoken.Claims{
			Subject: settings.DevelopmentSubject, Audience: []string{settings.DevelopmentAudience}, Expires: s.clock.Wall().Add(time.Hour),
			Family: settings.DevelopmentFamilyDev, Permissions: []string{"lease://**#*"}})
		if err != nil {
			t.Fatal(err)
		}
		return []byte(token)
	}
	for _, kind := range rawclient.Transports {
		t.Run(kind, func(t *testing.T) {
			c, _ := s.dial(kind, trusting())
			c.Send(rawclient.Record(wire.TypeConnect, good()))
			c.Expect(0, wire.TypeServerHello)
			c.Request(1, wire.TypeLeaseAcquire, acquire("w", 0))
			expectGrant(t, c, 1, wire.LeaseGrantKindAcquired)
			_ = c.Conn.Close()
			for _, behind := range []int{0, 1, 1 << 16} {
				c, _ := s.dial(kind, trusting())
				message := c.Framed(rawclient.Record(wire.TypeConnect, []byte("hush.hush.hush")))
				c.Raw(append(message, make([]byte, behind)...))
				payload, err := c.Read()
				var closed *rawclient.ErrClosed
				if !errors.As(err, &closed) || kind == rawclient.WebSocket && closed.Code != uint16(wire.CloseConnectFailed.WebSocket) {
					t.Errorf("%d bytes behind: %x, %v", behind, payload, err)
				}
				_ = c.Conn.Close()
			}
		})
	}
	if log := s.log.String(); strings.Contains(log, "hush") || strings.Contains(log, settings.DevelopmentHMACSecret) {
		t.Errorf("the log shows a token or the secret:\n%s", log)
	}
}

// Plain bytes on a port with TLS, and TLS on a plain one, end at once, and the log says why. Over TCP that was a session, over WebSocket it
// was none yet.
func TestPlainAndTLSMixed(t *testing.T) {
	s := secure(t, "")
	for _, kind := range rawclient.Transports {
		nc := s.plain(kind)
		text := "GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n"
		if kind == rawclient.TCP {
			text = string(rawclient.New(t, nc).Framed(rawclient.Record(wire.TypeConnect, nil)))
		}
		if _, err := io.WriteString(nc, text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, nc); err != nil && !isReset(err) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	eventually(t, "the log does not say why", func() bool { return strings.Count(s.log.String(), "does not look like a TLS handshake") == 2 })
	if n := metric(t, s.Broker, "fitz_tls_handshake_failures_total", transport.HandshakeProtocol); n != 2 {
		t.Errorf("%v failures were counted", n)
	}
	eventually(t, "the end of the session", func() bool { return strings.Contains(s.log.String(), "session ended") })
	s.Close()
	lines := regexp.MustCompile(`(?m)^.*msg="session ended".*$`).FindAllString(s.log.String(), -1)
	if len(lines) != 1 || !strings.Contains(lines[0], "reason=connection_lost ") || !strings.Contains(lines[0], "transport=tcp") || !strings.Contains(lines[0], "records=0 ") {
		t.Errorf("ends of sessions: %q", lines)
	}
	log := &logged{}
	plain, err := broker.Start(context.Background(), load(t, "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "off"),
		broker.WithLog(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	for _, kind := range rawclient.Transports {
		nc, err := net.DialTimeout("tcp", address(plain, kind), patience)
		if err != nil {
			t.Fatal(err)
		}
		client := tls.Client(nc, trusting())
		if err := errors.Join(nc.SetDeadline(time.Now().Add(patience)), client.Handshake()); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", kind, err)
		}
		_ = nc.Close()
	}
	eventually(t, "the log does not say why", func() bool { return strings.Count(log.String(), "a peer speaks TLS to a plain listener") == 2 })
}

// A drain tells sessions over TLS, and ends them in order.
func TestTLSDrain(t *testing.T) {
	s := secure(t, "")
	var clients []*rawclient.Client
	for _, kind := range rawclient.Transports {
		c, _ := s.dial(kind, trusting())
		c.Connect()
		c.Negotiate()
		c.Sync(1)
		clients = append(clients, c)
	}
	half := []net.Conn{s.plain(rawclient.TCP), s.plain(rawclient.WebSocket)} // of handshakes that do not end
	eventually(t, "they do not count", func() bool { return s.Load().Preauth == len(half) })
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Shutdown(ctx)
	}()
	for _, c := range clients {
		c.Expect(0, wire.TypeGoaway)
	}
	end()
	for _, c := range clients {
		c.ExpectClose(wire.CloseGoingAway)
	}
	<-done
	for _, nc := range half {
		if _, err := io.Copy(io.Discard, nc); err != nil && !isReset(err) {
			t.Error(err)
		}
	}
}

// The admin interface asks for the token of its file, and for the next one without a restart. Health is open.
func TestAdminToken(t *testing.T) {
	s := secure(t, "", `admin_token_file: "TOKEN_FILE"`)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(), DisableKeepAlives: true}}
	status := func(path, token string) int {
		t.Helper()
		request, err := http.NewRequest(http.MethodGet, "https://"+s.at("admin")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil || response.Body.Close() != nil {
			t.Fatal(err)
		}
		return response.StatusCode
	}
	want := func(path, token string, code int) {
		t.Helper()
		if got := status(path, token); got != code {
			t.Errorf("%s with %q: %d, want %d", path, token, got, code)
		}
	}
	want(settings.AdminPathMetrics, "", http.StatusUnauthorized)
	want(settings.AdminPathMetrics, "first-token", http.StatusOK)
	want(settings.AdminPathHealthz, "", http.StatusOK)
	s.write(tokenFile, []byte("not a token"))
	s.recheck()
	want(settings.AdminPathMetrics, "first-token", http.StatusOK)
	s.write(tokenFile, []byte("second-token"))
	s.recheck()
	want(settings.AdminPathMetrics, "first-token", http.StatusUnauthorized)
	want(settings.AdminPathMetrics, "second-token", http.StatusOK)
	if failures := metric(t, s.Broker, "fitz_reload_failures_total", "admin_token"); failures != 1 {
		t.Errorf("%v failures were counted", failures)
	}
	if log := s.log.String(); strings.Contains(log, "-token") || strings.Contains(log, "not a token") {
		t.Errorf("the log shows a token:\n%s", log)
	}
}

// Off loopback the admin interface is there under names that it does not know, with the token only; the log warns of listeners that tokens
// reach in clear text.
func TestAdminOffLoopback(t *testing.T) {
	log := &logged{}
	c := load(t, "--tcp", "127.0.0.1:0", "--http", "0.0.0.0:0", "--admin", "0.0.0.0:0", "--admin-token-file", tokenIn(t, "right"),
		"--auth", "token", "--family", "dev=1", "--hmac-secret-file", tokenIn(t, "a secret that is longer than thirty-two bytes"))
	b, err := broker.Start(context.Background(), c, broker.WithLog(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	_, port, err := net.SplitHostPort(b.Addresses()[settings.ListenerAdmin.Name])
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{"right": http.StatusOK, "wrong": http.StatusUnauthorized} {
		request, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+port+settings.AdminPathMetrics, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "broker.example"
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != want || response.Body.Close() != nil {
			t.Errorf("%q: %d, want %d", token, response.StatusCode, want)
		}
	}
	if text := log.String(); !strings.Contains(text, "the admin token crosses the network in clear text") ||
		!strings.Contains(text, "speaks TLS\" listener=http\n") || strings.Count(text, "level=WARN") != 2 || strings.Contains(text, "=right") {
		t.Errorf("the log says:\n%s", text)
	}
}

// tokenIn writes a token into a file.
func tokenIn(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), tokenFile)
	if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Sessions over TLS that have connected and say nothing more, as the attacks of the hostile client.
func init() {
	for _, what := range []string{"idle", "websocket-idle"} {
		begin := attacks[what]
		attacks["tls-"+what] = func(nc net.Conn) error {
			// The certificate is that of the parent process.
			return begin(tls.Client(nc, &tls.Config{InsecureSkipVerify: true}))
		}
	}
}

// BenchmarkIdleTLSSession is BenchmarkIdleSession over TLS.
func BenchmarkIdleTLSSession(b *testing.B) {
	pair := issue(b, authority(), devcert.Leaf{})
	cert, key, err := pair.Write(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct{ transport, what string }{{rawclient.TCP, "tls-idle"}, {rawclient.WebSocket, "tls-websocket-idle"}} {
		b.Run(c.transport, func(b *testing.B) {
			for b.Loop() {
				broker := start(b, append(enough, "--tls-cert", cert, "--tls-key", key)...)
				cost := attack(b, broker, c.transport, c.what, func() int { return sessions(b, broker) })
				b.ReportMetric(float64(cost)/hostilePeers, "B/session")
				broker.Close()
			}
		})
	}
}
