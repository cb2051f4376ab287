package fitztest_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

// securely runs a test in a bubble against a broker with TLS, over both transports, with the address that asks for a token.
func securely(t *testing.T, secure fitztest.Option, test func(t *testing.T, b *fitztest.Broker, url, tokenURL string)) {
	for _, ws := range []bool{false, true} {
		name := "tcp"
		options := []fitztest.Option{secure, fitztest.WithTokens()}
		if ws {
			name = "websocket"
			options = append(options, fitztest.WithWebSocket())
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fitztest.Start(t, options...)
				tokenURL := b.TokenURL()
				if ws {
					tokenURL = b.TokenWebSocketURL()
				}
				test(t, b, b.URL(), tokenURL)
			})
		})
	}
}

// Clients hold leases over TLS, come back after a cut, and a token that is refused is refused.
func TestTLS(t *testing.T) {
	securely(t, fitztest.WithTLS(), func(t *testing.T, b *fitztest.Broker, url, tokenURL string) {
		if !strings.HasPrefix(url, "fitzs://") && !strings.HasPrefix(url, "wss://") {
			t.Errorf("%s is without TLS", url)
		}
		plain := []fitz.Option{fitz.WithDialer(b.Dial), fitz.WithClock(b.Clock())}
		for name, options := range map[string][]fitz.Option{
			"as the broker says": b.Options(), "CA file": append(plain, fitz.WithCAFile(b.CAFile())),
		} {
			c, err := fitz.Connect(t.Context(), url, options...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			lease, err := c.Lease().Acquire(t.Context(), at("a"), time.Minute, nil)
			if err != nil || len(b.Held(selector)) != 1 {
				t.Fatalf("%s: %v, %v", name, err, b.Held(selector))
			}
			b.Network().Cut()
			<-lease.Done()
			if _, err := c.Lease().Acquire(t.Context(), at("a"), time.Minute, nil); err != nil {
				t.Errorf("%s: after a cut: %v", name, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		for name, options := range map[string][]fitz.Option{
			"authorities of the machine": plain,
			"another name":               append(b.Options(), fitz.WithServerName("elsewhere.test")),
		} {
			_, err := fitz.Connect(t.Context(), url, options...)
			if !errors.Is(err, fitz.ErrConnRefused) || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if c := b.ConnectTo(tokenURL, fitz.WithToken(b.Token())); c.Status().State != fitz.ConnReady {
			t.Errorf("with a token: %+v", c.Status())
		}
		if _, err := fitz.Connect(t.Context(), tokenURL, append(b.Options(), fitz.WithToken("nonsense"))...); !errors.Is(err, fitz.ErrAuthRejected) {
			t.Errorf("a bad token: %v", err)
		}
		_, err := fitz.Connect(t.Context(), "fitz://broker.test:9", append(plain, fitz.WithCAFile(b.CAFile()))...)
		if !errors.Is(err, fitz.ErrConfigInvalid) {
			t.Errorf("options of TLS and an address without: %v", err)
		}
	})
}

// A broker that wants certificates takes only clients that show one, and a client whose files are replaced shows the new ones when it comes back.
func TestClientCertificates(t *testing.T) {
	securely(t, fitztest.WithClientCertificates(), func(t *testing.T, b *fitztest.Broker, url, _ string) {
		_, err := fitz.Connect(t.Context(), url, b.Options()...)
		if !errors.Is(err, fitz.ErrConnRefused) || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("without a certificate: %v", err)
		}
		cert, key := b.ClientCertificate("worker")
		c := b.Connect(fitz.WithClientCertificate(cert, key))
		b.ClientCertificate("worker")
		b.Network().Cut()
		if _, err := c.Lease().Query(t.Context(), at("a")); err != nil || c.Status().Sessions != 2 {
			t.Errorf("%v, %+v", err, c.Status())
		}
		other, otherKey := b.ClientCertificate("other")
		for name, option := range map[string]fitz.Option{
			"no certificate file": fitz.WithClientCertificate(cert+".gone", key),
			"another key":         fitz.WithClientCertificate(other, key),
			"no key":              fitz.WithClientCertificate(other, ""),
			"a key as CA file":    fitz.WithCAFile(otherKey),
			"no CA file":          fitz.WithCAFile(""),
			"no name":             fitz.WithServerName(""),
		} {
			if _, err := fitz.Connect(t.Context(), url, append(b.Options(), option)...); !errors.Is(err, fitz.ErrConfigInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Files that are bad when a client comes back are an attempt that has failed, until they are good.
func TestBadFilesAtReconnect(t *testing.T) {
	securely(t, fitztest.WithClientCertificates(), func(t *testing.T, b *fitztest.Broker, _, _ string) {
		cert, key := b.ClientCertificate("worker")
		c := b.Connect(fitz.WithClientCertificate(cert, key))
		if err := os.Remove(cert); err != nil {
			t.Fatal(err)
		}
		b.Network().Cut()
		time.Sleep(10 * time.Second)
		if st := c.Status(); st.State != fitz.ConnReconnecting || !errors.Is(st.Reason, fitz.ErrConfigInvalid) || !strings.Contains(st.Reason.Error(), cert) {
			t.Errorf("%+v", st)
		}
		b.ClientCertificate("worker")
		if _, err := c.Lease().Query(t.Context(), at("a")); err != nil {
			t.Error(err)
		}
	})
}
