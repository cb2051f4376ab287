package devcert_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fitzwire/fitz/internal/devcert"
)

func authority(t *testing.T) *devcert.Authority {
	t.Helper()
	a, err := devcert.New("test authority")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func issue(t *testing.T, a *devcert.Authority, l devcert.Leaf) (devcert.Pair, tls.Certificate) {
	t.Helper()
	pair, err := a.Issue(l)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := pair.TLS()
	if err != nil {
		t.Fatal(err)
	}
	return pair, certificate
}

// Both sides of a handshake believe each other, and only when the same authority signed.
func TestHandshake(t *testing.T) {
	a := authority(t)
	_, server := issue(t, a, devcert.Leaf{Name: "broker"})
	_, client := issue(t, a, devcert.Leaf{Name: "worker", Client: true})
	_, stranger := issue(t, authority(t), devcert.Leaf{Name: "worker", Client: true})
	for name, c := range map[string]struct {
		shown tls.Certificate
		host  string
		right bool
	}{
		"name":            {client, "localhost", true},
		"address":         {client, "127.0.0.1", true},
		"other name":      {client, "example.com", false},
		"other authority": {stranger, "localhost", false},
		"server as proof": {server, "localhost", false},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			served := make(chan error, 1)
			go func() {
				conn := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{server}, ClientCAs: a.Pool(), ClientAuth: tls.RequireAndVerifyClientCert})
				err := conn.Handshake()
				_ = far.Close() // no close_notify: nobody may be reading
				served <- err
			}()
			// The client offers its certificate whatever the server asks for.
			conn := tls.Client(near, &tls.Config{RootCAs: a.Pool(), ServerName: c.host,
				GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c.shown, nil }})
			err := conn.Handshake()
			_, _ = io.Copy(io.Discard, near) // what the server still says
			_ = near.Close()
			if right := err == nil && <-served == nil; right != c.right {
				t.Errorf("accepted %v: %v", right, err)
			}
		})
	}
}

func TestValidity(t *testing.T) {
	a := authority(t)
	until := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	_, short := issue(t, a, devcert.Leaf{Hosts: []string{"a.example"}, From: until.Add(-time.Hour), Until: until})
	leaf, err := x509.ParseCertificate(short.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for at, valid := range map[time.Time]bool{until.Add(-2 * time.Hour): false, until.Add(-time.Minute): true, until.Add(time.Minute): false} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: a.Pool(), CurrentTime: at, DNSName: "a.example"})
		if (err == nil) != valid {
			t.Errorf("at %v: %v", at, err)
		}
	}
}

func TestFiles(t *testing.T) {
	a, dir := authority(t), t.TempDir()
	pair, _ := issue(t, a, devcert.Leaf{})
	cert, key, err := pair.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		t.Error(err)
	}
	ca, err := a.Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, devcert.CAFile))
	if err != nil || ca != filepath.Join(dir, devcert.CAFile) || !x509.NewCertPool().AppendCertsFromPEM(text) {
		t.Errorf("%s: %v", ca, err)
	}
}
