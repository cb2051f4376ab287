// Package devcert makes certificates for development and tests: what a certificate authority does in production. The broker does not use
// it. All keys are ECDSA P-256.
package devcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Names of the files that Write makes, and of the certificate of an authority beside them.
const (
	CertFile = "cert.pem"
	KeyFile  = "key.pem"
	CAFile   = "ca.pem"
)

// Certificates are valid for a century unless told otherwise, because tests move the clocks of what they test.
var (
	validFrom  = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	validUntil = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Authority signs certificates. It is safe for concurrent use.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// New returns an authority with a fresh key and that common name.
func New(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	number, err := serial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: name}, NotBefore: validFrom, NotAfter: validUntil,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{certificate, key}, nil
}

// PEM returns the certificate of the authority.
func (a *Authority) PEM() []byte { return block("CERTIFICATE", a.certificate.Raw) }

// Pool returns a set that holds the certificate of the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Write writes the certificate of the authority as CAFile into a folder and returns the path.
func (a *Authority) Write(dir string) (string, error) {
	path := filepath.Join(dir, CAFile)
	return path, os.WriteFile(path, a.PEM(), 0o600)
}

// Leaf is what a certificate says.
type Leaf struct {
	// Name is the common name.
	Name string
	// Hosts are the names and addresses that it is for; empty for localhost, 127.0.0.1 and ::1.
	Hosts []string
	// Client makes it one that a client shows instead of one of a server.
	Client bool
	// From and Until are when it is valid; zero values for a century.
	From, Until time.Time
}

// Pair is a certificate with its key, both as PEM.
type Pair struct{ Cert, Key []byte }

// Issue signs a certificate with a fresh key.
func (a *Authority) Issue(l Leaf) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template, err := l.template()
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return Pair{}, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: block("CERTIFICATE", der), Key: block("PRIVATE KEY", secret)}, nil
}

func (l Leaf) template() (*x509.Certificate, error) {
	number, err := serial()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: number, Subject: pkix.Name{CommonName: l.Name}, NotBefore: l.From, NotAfter: l.Until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if t.NotBefore.IsZero() {
		t.NotBefore = validFrom
	}
	if t.NotAfter.IsZero() {
		t.NotAfter = validUntil
	}
	if l.Client {
		t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		return t, nil
	}
	hosts := l.Hosts
	if len(hosts) == 0 {
		hosts = []string{"localhost", "127.0.0.1", "::1"}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	return t, nil
}

// TLS returns the pair in the form that crypto/tls uses.
func (p Pair) TLS() (tls.Certificate, error) { return tls.X509KeyPair(p.Cert, p.Key) }

// Write writes the pair as CertFile and KeyFile into a folder and returns both paths.
func (p Pair) Write(dir string) (cert, key string, err error) {
	cert, key = filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile)
	return cert, key, errors.Join(os.WriteFile(cert, p.Cert, 0o600), os.WriteFile(key, p.Key, 0o600))
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// serial returns a serial number that no other certificate has.
func serial() (*big.Int, error) {
	number, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("serial number: %w", err)
	}
	return number.Add(number, big.NewInt(1)), nil
}
