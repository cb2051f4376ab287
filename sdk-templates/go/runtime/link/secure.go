package link

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// TLS says how connections to addresses with TLS are secured. The zero value trusts what the machine trusts. Files are read anew for every
// connection, so that a certificate can be replaced while a client runs.
type TLS struct {
	Config     *tls.Config      // what the fields below leave open; it is not changed
	CAFile     string           // certificates in PEM that are trusted instead of those of the machine
	ServerName string           // that the certificate of the peer must have, instead of the host of the address
	CertFile   string           // own certificate in PEM, with what the peer needs to verify it; with KeyFile
	KeyFile    string           // in PEM
	Wall       func() time.Time // when a certificate counts as valid; nil means now
}

// tlsMin is the oldest version that is spoken.
const tlsMin = tls.VersionTLS12

// pemBytesMax is the longest file of certificates or keys that is read.
const pemBytesMax = 4 << 20

// given reports whether anything was asked for that only TLS can do.
func (t *TLS) given() bool {
	return t.Config != nil || t.CAFile != "" || t.ServerName != "" || t.CertFile != "" || t.KeyFile != ""
}

// webSocketProtocol is what a WebSocket begins with, whatever else the configuration offers.
const webSocketProtocol = "http/1.1"

// config makes the configuration of one connection. The error is an *Error of kind Invalid.
func (t *TLS) config(to target) (*tls.Config, error) {
	config := &tls.Config{}
	if t.Config != nil {
		config = t.Config.Clone()
	}
	if config.MinVersion == 0 {
		config.MinVersion = tlsMin
	}
	if config.MinVersion < tlsMin || config.MaxVersion != 0 && config.MaxVersion < tlsMin {
		return nil, invalid("TLS: versions before 1.2 are not spoken")
	}
	if config.Time == nil {
		config.Time = t.Wall
	}
	if t.ServerName != "" {
		config.ServerName = t.ServerName
	}
	if config.ServerName == "" {
		config.ServerName = to.host
	}
	if to.websocket {
		config.NextProtos = []string{webSocketProtocol}
	}
	if err := t.addFiles(config); err != nil {
		return nil, &Error{Kind: Invalid, Reason: "TLS", Err: err}
	}
	return config, nil
}

// addFiles reads the certificates.
func (t *TLS) addFiles(config *tls.Config) error {
	if t.CAFile != "" {
		pem, err := readBounded(t.CAFile)
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("CA file %s: no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return nil
	}
	if t.CertFile == "" || t.KeyFile == "" {
		return errors.New("a client certificate needs two files, of the certificate and of its key")
	}
	pair, err := readPair(t.CertFile, t.KeyFile)
	if err != nil {
		return err
	}
	config.Certificates = []tls.Certificate{pair}
	return nil
}

func readPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := readBounded(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readBounded(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
	}
	return pair, nil
}

// readBounded reads a file that is not longer than pemBytesMax.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content, err := io.ReadAll(io.LimitReader(f, pemBytesMax+1))
	if err == nil && len(content) > pemBytesMax {
		err = fmt.Errorf("%s: longer than %d bytes", name, pemBytesMax)
	}
	return content, err
}

// dialling is the opening of one connection. The HTTP client may go on with it after it was given up.
type dialling struct {
	conn   *Conn
	secure *tls.Config // nil: without TLS

	mu   sync.Mutex
	raw  net.Conn // below TLS
	over bool     // nobody wants it any more
}

// open is a DialFunc. The handshake of TLS ends with ctx, or when the connection is given up.
func (d *dialling) open(ctx context.Context, network, address string) (net.Conn, error) {
	dial := d.conn.options.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	raw := &meteredConn{Conn: conn, received: d.conn.received, clock: d.conn.clock}
	if !d.keep(raw) {
		_ = raw.Close()
		return nil, net.ErrClosed
	}
	if d.secure == nil {
		return raw, nil
	}
	secured := tls.Client(raw, d.secure)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return &explainedConn{secured}, nil
}

// explainedConn says why nothing can be written: since TLS 1.3 a peer finds out after the handshake of a client that it does not take its
// certificate, says so and closes the connection.
type explainedConn struct{ *tls.Conn }

func (c *explainedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err == nil {
		return n, nil
	}
	var alert *net.OpError // of the peer; it is not forgotten by later reads
	if _, said := c.Read(make([]byte, 1)); errors.As(said, &alert) && alert.Op == remoteError {
		err = said
	}
	return n, err
}

// remoteError is the operation of an error that a peer has told with TLS.
const remoteError = "remote error"

func (d *dialling) keep(raw net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.raw = raw
	return !d.over
}

// giveUp closes the connection, also one that is opened later.
func (d *dialling) giveUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.raw != nil {
		_ = d.raw.Close()
	}
}

// lowest is the connection below TLS.
func (d *dialling) lowest() net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.raw
}
