package transport

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/reload"
)

// tlsFileMax bounds the files of a listener with TLS, in bytes. An operator writes them.
const tlsFileMax = 1 << 20

// rsaBitsMin is the smallest RSA key of a listener. Smaller ones can be broken.
const rsaBitsMin = 2048

// cipherSuites are what TLS 1.2 may use: forward secrecy and authenticated encryption only. Those of TLS 1.3 are all like this, and the
// library does not let anybody choose among them.
var cipherSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// protocolHTTP is what a listener for WebSockets says that it speaks (RFC 7301): the upgrade is one of HTTP/1.1 (W-20).
const protocolHTTP = "http/1.1"

// beginsTLS reports whether bytes begin like a handshake of TLS (RFC 8446 section 5.1). Neither a transport message nor a request begins
// like this.
func beginsTLS(begin []byte) bool {
	const handshake, major = 22, 3
	return begin[0] == handshake && (len(begin) < 2 || begin[1] == major)
}

// Reasons for which a handshake of TLS fails.
const (
	HandshakeCertificate = "certificate" // one of the sides does not take that of the other
	HandshakeProtocol    = "protocol"    // what came is no TLS, or none that the listener speaks
	HandshakeTimeout     = "timeout"     // it did not end in time, or gave way to newer connections
	HandshakeClosed      = "closed"      // the peer went away
	HandshakeOther       = "other"
)

// HandshakeReasons are all of them.
var HandshakeReasons = []string{HandshakeCertificate, HandshakeProtocol, HandshakeTimeout, HandshakeClosed, HandshakeOther}

// TLSOptions are what the TLS of a listener needs. The files of the certificate, Min, Clock and Reload are required.
type TLSOptions struct {
	// CertFile is a chain and KeyFile its key, as PEM.
	CertFile, KeyFile string
	// ClientCAFile holds the certificates that sign those of clients, as PEM. Empty: clients are not asked for one.
	ClientCAFile string
	// RequireClient refuses clients that show none. Without it one that is shown must still be right.
	RequireClient bool
	// Min is the oldest version, tls.VersionTLS12 or later.
	Min uint16
	// HTTP says that the listener speaks HTTP/1.1.
	HTTP  bool
	Clock clock.Clock
	// Reload tells how files of a kind are kept in step (package reload).
	Reload func(kind string) reload.Options
	Log    *slog.Logger
	// Done and Failed, when set, are told how handshakes end.
	Done   func()
	Failed func(reason string)
	// Loaded, when set, is told when each certificate that is taken into service ends.
	Loaded func(until time.Time)
}

// TLS secures the connections of a listener.
type TLS struct {
	options     TLSOptions
	base        *tls.Config // without client certificates
	config      *tls.Config // of new connections
	certificate *reload.Source[*tls.Certificate]
}

// ClientCAError is an error about the file that holds the certificates that sign those of clients.
type ClientCAError struct{ Err error }

func (e *ClientCAError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with the file.
func (e *ClientCAError) Unwrap() error { return e.Err }

// OpenTLS reads the files. Its error names the file that is wrong.
func OpenTLS(o TLSOptions) (*TLS, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	t := &TLS{options: o}
	var err error
	if t.certificate, err = reload.Open(o.Reload(reload.KindCertificate), t.parseCertificate, tlsFileMax, o.CertFile, o.KeyFile); err != nil {
		return nil, err
	}
	t.base = &tls.Config{
		MinVersion:   o.Min,
		CipherSuites: cipherSuites,
		Time:         o.Clock.Wall,
		// A frame that fits into a record comes in one (W-11).
		DynamicRecordSizingDisabled: true,
		GetCertificate:              func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return t.certificate.Get(), nil },
	}
	if o.HTTP {
		t.base.NextProtos = []string{protocolHTTP}
	}
	t.config = t.base
	if o.ClientCAFile == "" {
		return t, nil
	}
	clients, err := reload.Open(o.Reload(reload.KindClientCA), t.parseClientCA, tlsFileMax, o.ClientCAFile)
	if err != nil {
		return nil, &ClientCAError{err}
	}
	t.config = &tls.Config{MinVersion: o.Min, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return clients.Get(), nil }}
	return t, nil
}

func (t *TLS) parseCertificate(content [][]byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(content[0], content[1])
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", t.options.CertFile, t.options.KeyFile, err)
	}
	if public, ok := pair.Leaf.PublicKey.(*rsa.PublicKey); ok && public.N.BitLen() < rsaBitsMin {
		return nil, fmt.Errorf("%s: an RSA key of %d bits; %d are needed", t.options.CertFile, public.N.BitLen(), rsaBitsMin)
	}
	if now := t.options.Clock.Wall(); now.After(pair.Leaf.NotAfter) || now.Before(pair.Leaf.NotBefore) {
		t.options.Log.Warn("the certificate is not valid now", "file", t.options.CertFile, "from", pair.Leaf.NotBefore, "until", pair.Leaf.NotAfter)
	}
	if t.options.Loaded != nil {
		t.options.Loaded(pair.Leaf.NotAfter)
	}
	return &pair, nil
}

// parseClientCA makes a configuration of the certificates that sign those of clients. Sessions of TLS are not resumed with it: one that
// is resumed would keep a client in that the certificates no longer vouch for.
func (t *TLS) parseClientCA(content [][]byte) (*tls.Config, error) {
	pool, err := parsePool(content[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.options.ClientCAFile, err)
	}
	config := t.base.Clone()
	config.ClientCAs, config.ClientAuth, config.SessionTicketsDisabled = pool, tls.VerifyClientCertIfGiven, true
	if t.options.RequireClient {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

func parsePool(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	found := 0
	for rest := text; ; found++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return nil, fmt.Errorf("block %d is no certificate", found+1)
		}
		pool.AddCert(certificate)
	}
	if found == 0 {
		return nil, errors.New("it holds no certificate as PEM")
	}
	return pool, nil
}

// done notes a handshake that was completed.
func (t *TLS) done() {
	if t.options.Done != nil {
		t.options.Done()
	}
}

// failed notes one that was not. Nothing of what the peer sent stands in the log but what the library says about it.
func (t *TLS) failed(remote net.Addr, err error) {
	reason := handshakeReason(err)
	t.options.Log.Debug("TLS handshake failed", "reason", reason, "error", err, "remote", remote)
	if t.options.Failed != nil {
		t.options.Failed(reason)
	}
}

func handshakeReason(err error) string {
	var notTLS tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
		return HandshakeTimeout
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return HandshakeClosed
	case errors.As(err, &certificate), strings.Contains(err.Error(), "certificate"): // the library has no type for what peers say
		return HandshakeCertificate
	case errors.As(err, &notTLS), strings.Contains(err.Error(), "tls: "):
		return HandshakeProtocol
	default:
		return HandshakeOther
	}
}
