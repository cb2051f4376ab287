package broker

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/reload"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// keys are what the broker proves itself and others with. All of it is read before the first address is bound.
type keys struct {
	authority *auth.Authority // nil: no listener asks for tokens
	// adminToken returns what the admin interface asks for; nil: nothing.
	adminToken func() string
	secure     map[config.Listener]*transport.TLS // of listeners with TLS
}

// Check reads every file that the broker would need, without listening anywhere. The error says where the first one that is wrong was
// given.
func Check(c *config.Config, options ...Option) error {
	return prepare(c, options).openKeys()
}

// openKeys reads the files and fetches the key sets.
func (b *Broker) openKeys() error {
	b.keys.secure = map[config.Listener]*transport.TLS{}
	listeners := b.config.Listeners
	for _, d := range b.doors {
		listeners = append(listeners[:len(listeners):len(listeners)], d.config)
	}
	for _, l := range listeners {
		if l.TLS != nil {
			if err := b.openTLS(l); err != nil {
				return err
			}
		}
	}
	if err := b.openAdminToken(); err != nil {
		return err
	}
	for _, l := range listeners {
		if l.Auth == config.AuthToken {
			return b.openAuthority()
		}
	}
	return nil
}

func (b *Broker) openAuthority() error {
	authority, err := auth.New(auth.Options{
		Config: b.config.Auth, Limits: b.config.Limits, Clock: b.clock, Log: b.log, Metrics: b.observed.auth, Reload: b.observed.reload})
	if err != nil {
		return placed(b.config.AuthFrom, err)
	}
	b.keys.authority = authority
	return nil
}

// placed puts the place before an error; an empty place is one that nobody gave.
func placed(from string, err error) error {
	if from == "" {
		return err
	}
	return fmt.Errorf("%s: %w", from, err)
}

// tlsVersions are the oldest versions that a listener can be told.
var tlsVersions = map[string]uint16{config.TLS12: tls.VersionTLS12, config.TLS13: tls.VersionTLS13}

func (b *Broker) openTLS(l config.Listener) error {
	m := b.observed.tls
	for _, reason := range transport.HandshakeReasons {
		m.HandshakeFailuresTotal.WithLabelValues(reason)
	}
	expiry := m.CertificateExpiryTimestampSeconds.WithLabelValues(l.Name)
	log := b.log.With("listener", l.Name)
	opened, err := transport.OpenTLS(transport.TLSOptions{
		CertFile: l.TLS.CertFile, KeyFile: l.TLS.KeyFile, ClientCAFile: l.TLS.ClientCAFile,
		RequireClient: l.TLS.ClientAuth == config.ClientAuthRequired, Min: tlsVersions[l.TLS.MinVersion],
		HTTP: l.Transport != config.TransportTCP, Clock: b.clock, Reload: b.reloading, Log: log,
		Done:   m.HandshakesTotal.WithLabelValues(l.Name).Inc,
		Failed: func(reason string) { m.HandshakeFailuresTotal.WithLabelValues(reason).Inc() },
		Loaded: func(until time.Time) { expiry.Set(float64(until.Unix())) },
	})
	if err != nil {
		var clients *transport.ClientCAError
		if errors.As(err, &clients) {
			return placed(l.TLS.ClientCAFrom, err)
		}
		return placed(l.TLS.From, err)
	}
	b.keys.secure[l] = opened
	return nil
}

// guard gives a listener its TLS, or a warning about what it lacks and an ear for peers that think it has one.
func (b *Broker) guard(listener *transport.Listener, l config.Listener) {
	b.warnOfClearTokens(l)
	listener.Secure(b.keys.secure[l])
	log := b.log.With("listener", l.Name)
	listener.Mistaken = func(remote net.Addr) { log.Debug("a peer speaks TLS to a plain listener", "remote", remote) }
}

// openAdminToken finds out what the admin interface asks for.
func (b *Broker) openAdminToken() error {
	c := b.config
	if token := c.AdminToken; token != "" {
		b.keys.adminToken = func() string { return token }
	}
	if c.AdminTokenFile == "" {
		return nil
	}
	source, err := reload.Open(b.reloading(reload.KindAdminToken), func(content [][]byte) (string, error) {
		token := string(bytes.TrimRight(content[0], "\r\n"))
		if err := config.CheckAdminToken(token); err != nil {
			return "", fmt.Errorf("%s: %w", c.AdminTokenFile, err)
		}
		return token, nil
	}, config.AdminTokenMax+2, c.AdminTokenFile)
	if err != nil {
		return placed(c.AdminTokenFrom, err)
	}
	b.keys.adminToken = source.Get
	return nil
}

// reloading tells how files of a kind are kept in step.
func (b *Broker) reloading(kind string) reload.Options {
	return reload.Options{Clock: b.clock, Every: settings.FileCheckMs * time.Millisecond, Log: b.log, Kind: kind}.Counted(b.observed.reload)
}

// warnOfClearTokens says that tokens cross a network where others can read them.
func (b *Broker) warnOfClearTokens(l config.Listener) {
	switch {
	case l.Loopback() || l.TLS != nil:
	case l.Transport == config.TransportAdmin && b.keys.adminToken != nil:
		b.log.Warn("the admin token crosses the network in clear text: give the listener TLS or a loopback address", "listener", l.Name)
	case l.Auth == config.AuthToken:
		b.log.Warn("tokens cross the network in clear text unless something in front of this listener speaks TLS", "listener", l.Name)
	}
}
