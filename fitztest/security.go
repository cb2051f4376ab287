package fitztest

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/internal/devcert"
	"github.com/fitzwire/fitz/internal/devtoken"
)

// WithTokens makes a broker with two more listeners, which ask for tokens: those of TokenURL and TokenWebSocketURL. Tokens come from Broker.Token
// and Broker.Mint. The listener of URL stays and takes anybody.
func WithTokens() Option {
	return func(o *options) { o.tokens = true }
}

// families is the highest number of a family.
const families = 2

// authority is what tokens are checked with.
func (o *options) authority() auth.Config {
	if !o.tokens {
		return auth.Config{}
	}
	return auth.Config{HMACSecret: []byte(settings.DevelopmentHMACSecret), Families: families, FamilyMap: settings.DevelopmentFamilies()}
}

// TokenURL is the address of the listener over TCP that asks for a token.
func (b *Broker) TokenURL() string { return b.tokenURL(nameToken) }

// TokenWebSocketURL is the address of the listener for WebSocket that asks for a token.
func (b *Broker) TokenWebSocketURL() string { return b.tokenURL(nameTokenWebSocket) }

func (b *Broker) tokenURL(name string) string {
	b.tb.Helper()
	url, ok := b.named(name)
	if !ok {
		b.tb.Fatal("fitztest: a listener that asks for tokens needs WithTokens")
	}
	return url
}

// Families that tokens may name. Those of FamilyDev see what clients without a token see; nobody sees anything of another family.
const (
	FamilyDev = settings.DevelopmentFamilyDev
	FamilyOps = settings.DevelopmentFamilyOps
)

// tokenLifetime is how long a token is good that does not say otherwise.
const tokenLifetime = time.Hour

// Claims are what a token says.
type Claims struct {
	Subject string        // default: that of development
	Family  string        // FamilyDev or FamilyOps; default FamilyDev
	Expires time.Duration // from now on the clock of the broker, negative for a token that has expired; default an hour
	// Permissions are entries such as "lease://acme/**#read"; nil: everything in every domain.
	Permissions []string
}

// Token returns a token of FamilyDev that is good for an hour on the clock of the broker, with permissions, or with all of them when none is
// given.
func (b *Broker) Token(permissions ...string) string {
	b.tb.Helper()
	return b.Mint(Claims{Permissions: permissions})
}

// Mint returns a token.
func (b *Broker) Mint(c Claims) string {
	b.tb.Helper()
	if c.Subject == "" {
		c.Subject = settings.DevelopmentSubject
	}
	if c.Family == "" {
		c.Family = FamilyDev
	}
	if c.Expires == 0 {
		c.Expires = tokenLifetime
	}
	if len(c.Permissions) == 0 {
		for scheme := range route.ByScheme {
			c.Permissions = append(c.Permissions, scheme+"://**#*")
		}
	}
	token, err := devtoken.Mint([]byte(settings.DevelopmentHMACSecret), devtoken.Claims{
		Issuer: settings.DevelopmentIssuer, Subject: c.Subject, Audience: []string{settings.DevelopmentAudience},
		Expires: b.clock.Wall().Add(c.Expires), Family: c.Family, Permissions: c.Permissions,
	})
	if err != nil {
		b.tb.Fatalf("fitztest: %v", err)
	}
	return token
}

// WithTLS makes a broker whose addresses are ones with TLS, with a certificate of an authority that lives as long as the broker. Options trusts
// it; CAFile names it for clients that are made otherwise. Frames cannot be seen on such connections, so that faults of single frames do not
// apply to them.
func WithTLS() Option {
	return func(o *options) {
		if o.secure == nil {
			o.secure = &secure{}
		}
	}
}

// WithClientCertificates is WithTLS by a broker that takes only clients with a certificate of Broker.ClientCertificate.
func WithClientCertificates() Option {
	return func(o *options) { o.secure = &secure{clients: true} }
}

// secure is the TLS of a broker.
type secure struct {
	clients   bool // must show a certificate
	dir       string
	authority *devcert.Authority
	caFile    string
}

// open makes the certificates and gives them to the doors.
func (s *secure) open(tb testing.TB, doors []door) {
	tb.Helper()
	s.dir = tb.TempDir()
	var err error
	if s.authority, err = devcert.New("fitztest"); err != nil {
		tb.Fatalf("fitztest: %v", err)
	}
	if s.caFile, err = s.authority.Write(s.dir); err != nil {
		tb.Fatalf("fitztest: %v", err)
	}
	cert, key := s.issue(tb, "broker", devcert.Leaf{Name: hostName, Hosts: []string{hostName}})
	t := &config.TLS{CertFile: cert, KeyFile: key, ClientAuth: config.ClientAuthNone, MinVersion: config.TLS12}
	if s.clients {
		t.ClientCAFile, t.ClientAuth = s.caFile, config.ClientAuthRequired
	}
	for i := range doors {
		if doors[i].carries == carriesSecrets {
			doors[i].config.TLS = t
		}
	}
}

// issue writes a certificate and its key.
func (s *secure) issue(tb testing.TB, name string, leaf devcert.Leaf) (certFile, keyFile string) {
	tb.Helper()
	pair, err := s.authority.Issue(leaf)
	if err != nil {
		tb.Fatalf("fitztest: %v", err)
	}
	certFile, keyFile = filepath.Join(s.dir, name+".crt"), filepath.Join(s.dir, name+".key")
	for file, content := range map[string][]byte{certFile: pair.Cert, keyFile: pair.Key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			tb.Fatalf("fitztest: %v", err)
		}
	}
	return certFile, keyFile
}

// client is the configuration of a client that trusts the broker.
func (s *secure) client() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.authority.PEM())
	return &tls.Config{RootCAs: pool}
}

func (b *Broker) secure() *secure {
	b.tb.Helper()
	if b.options.secure == nil {
		b.tb.Fatal("fitztest: certificates need WithTLS or WithClientCertificates")
	}
	return b.options.secure
}

// CAFile is the file with the certificate of the authority of a broker WithTLS, in PEM, for fitz.WithCAFile.
func (b *Broker) CAFile() string { return b.secure().caFile }

// ClientCertificate makes a certificate with a common name that a broker WithClientCertificates takes, for fitz.WithClientCertificate. Of one name
// there is one pair of files, which a further call replaces.
func (b *Broker) ClientCertificate(name string) (certFile, keyFile string) {
	b.tb.Helper()
	return b.secure().issue(b.tb, "client-"+name, devcert.Leaf{Name: name, Client: true})
}
