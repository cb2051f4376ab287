package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/generated/go/settings"
)

// What a listener with TLS wants of client certificates.
const (
	ClientAuthNone     = "none"
	ClientAuthOptional = "optional"
	ClientAuthRequired = "required"
)

// Versions of TLS.
const (
	TLS12 = "1.2"
	TLS13 = "1.3"
)

// TLS is how a listener protects its connections. The files are read again when they change.
type TLS struct {
	// CertFile is a certificate chain and KeyFile its private key, both as PEM.
	CertFile, KeyFile string
	// ClientCAFile holds the certificates that sign those of clients, as PEM; empty: none is asked for.
	ClientCAFile string
	// ClientAuth is none, optional or required.
	ClientAuth string
	// MinVersion is 1.2 or 1.3.
	MinVersion string
	// From is where the certificate was given, and ClientCAFrom where the other file was.
	From, ClientCAFrom string
}

// tlsOff is the word that switches TLS off for one listener of the file.
const tlsOff = "off"

// tlsSettings are the settings of the default TLS, in the order in which the parts stand in tlsParts.
var tlsSettings = []settings.Setting{
	settings.SettingTlsCert, settings.SettingTlsKey, settings.SettingTlsClientCa, settings.SettingTlsClientAuth, settings.SettingTlsMinVersion,
}

// tlsPrefix is what the names of these settings have before the names of the keys of a listener.
const tlsPrefix = "tls_"

// tlsParts are the parts of a TLS as they were given. The zero value of a part is one that was not.
type tlsParts struct{ cert, key, clientCA, clientAuth, minVersion given }

func (p *tlsParts) all() []*given {
	return []*given{&p.cert, &p.key, &p.clientCA, &p.clientAuth, &p.minVersion}
}

// given returns the index of the first part that somebody gave and that is not its default, -1 when there is none.
func (p *tlsParts) given() int {
	for i, v := range p.all() {
		if v.from != "" && v.text != tlsSettings[i].Default {
			return i
		}
	}
	return -1
}

// part returns the part with the name of a key in the file, nil when there is none.
func (p *tlsParts) part(key string) *given {
	i := slices.IndexFunc(tlsSettings, func(s settings.Setting) bool { return s.Name == tlsPrefix+key })
	if i < 0 {
		return nil
	}
	return p.all()[i]
}

// defaultTLS is the TLS of listeners that do not say otherwise.
func (b *builder) defaultTLS() *TLS {
	var parts tlsParts
	for i, s := range tlsSettings {
		b.config.values[s.Name] = s.Default
		if v, ok := b.lookup(s); ok {
			*parts.all()[i] = v
			b.config.values[s.Name] = v.text
		}
	}
	return b.tls(parts, "", tlsPrefix)
}

// tls checks the parts and puts them together; nil when TLS is not asked for. where is the place of the mapping that they stand in,
// empty for the default, and prefix stands before their names.
func (b *builder) tls(p tlsParts, where, prefix string) *TLS {
	given := p.given()
	switch {
	case given < 0 && where == "":
		return nil
	case p.cert.text == "" || p.key.text == "":
		at := where
		if given >= 0 {
			at = p.all()[given].from
		}
		b.problem(at, "TLS needs both %scert and %skey", prefix, prefix)
		return nil
	}
	t := &TLS{CertFile: p.cert.text, KeyFile: p.key.text, ClientCAFile: p.clientCA.text, From: p.cert.from, ClientCAFrom: p.clientCA.from}
	t.ClientAuth = b.oneOf(settings.SettingTlsClientAuth, prefix+"client_auth", p.clientAuth)
	t.MinVersion = b.oneOf(settings.SettingTlsMinVersion, prefix+"min_version", p.minVersion)
	switch {
	case t.ClientAuth != ClientAuthNone && t.ClientCAFile == "":
		b.problem(p.clientAuth.from, "%sclient_auth %s needs %sclient_ca", prefix, t.ClientAuth, prefix)
	case t.ClientAuth == ClientAuthNone && t.ClientCAFile != "":
		b.problem(p.clientCA.from, "%sclient_ca has no effect while %sclient_auth is %s; use %s or %s",
			prefix, prefix, ClientAuthNone, ClientAuthOptional, ClientAuthRequired)
	}
	return t
}

// oneOf returns the value of an enumeration that may not have been given.
func (b *builder) oneOf(s settings.Setting, name string, v given) string {
	if v.from == "" {
		return s.Default
	}
	if !slices.Contains(s.Values, v.text) {
		b.problem(v.from, "%s %q is not one of %s", name, v.text, strings.Join(s.Values, ", "))
		return s.Default
	}
	return v.text
}

// listenerTLS is the TLS of a listener of the file.
func (b *builder) listenerTLS(l fileListener, standard *TLS) *TLS {
	switch {
	case l.tls.from == "" && l.Transport.text == TransportAdmin:
		return nil
	case l.tls.from == "":
		return standard
	case l.tls.off:
		return nil
	default:
		return b.tls(l.tls.parts, l.tls.from, "")
	}
}

// text is a TLS as a YAML mapping in one line.
func (t *TLS) text() string {
	if t == nil {
		return tlsOff
	}
	text := fmt.Sprintf("{cert: %q, key: %q", t.CertFile, t.KeyFile)
	if t.ClientCAFile != "" {
		text += fmt.Sprintf(", client_ca: %q", t.ClientCAFile)
	}
	return text + fmt.Sprintf(", client_auth: %s, min_version: %q}", t.ClientAuth, t.MinVersion)
}
