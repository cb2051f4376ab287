package engine

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fitzwire/fitz/conformance/proxy"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/internal/devcert"
)

// authorities are those that sign the certificates of links with TLS, and the certificates.
type authorities struct {
	file, other string // certificates of the authority and of one that signs nothing that a link shows by default
	configs     map[string]*tls.Config
}

// Kinds of certificates of links (`tls` of the step link).
const (
	tlsGood      = "good"            // for 127.0.0.1 and localhost, signed by the authority of $CA
	tlsOtherName = "other_name"      // for other.example
	tlsOtherCA   = "other_authority" // signed by the authority of $OTHER_CA
	tlsExpired   = "expired"
	tlsOld       = "old_version" // good, but nothing newer than TLS 1.1 is spoken
)

// otherHost is the name in the certificate of other_name.
const otherHost = "other.example"

func makeAuthorities(folder string) (*authorities, error) {
	a := &authorities{configs: map[string]*tls.Config{}}
	ours, err1 := devcert.New("fitz conformance")
	theirs, err2 := devcert.New("another authority")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	a.file, a.other = filepath.Join(folder, "ca.pem"), filepath.Join(folder, "other-ca.pem")
	if err := errors.Join(os.WriteFile(a.file, ours.PEM(), 0o600), os.WriteFile(a.other, theirs.PEM(), 0o600)); err != nil {
		return nil, err
	}
	past := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, kind := range []struct {
		name   string
		signer *devcert.Authority
		leaf   devcert.Leaf
		newest uint16
	}{
		{tlsGood, ours, devcert.Leaf{Name: "good"}, 0},
		{tlsOtherName, ours, devcert.Leaf{Name: otherHost, Hosts: []string{otherHost}}, 0},
		{tlsOtherCA, theirs, devcert.Leaf{Name: "good"}, 0},
		{tlsExpired, ours, devcert.Leaf{Name: "old", From: past, Until: past.AddDate(1, 0, 0)}, 0},
		{tlsOld, ours, devcert.Leaf{Name: "good"}, tls.VersionTLS11},
	} {
		pair, err := kind.signer.Issue(kind.leaf)
		if err != nil {
			return nil, err
		}
		certificate, err := pair.TLS()
		if err != nil {
			return nil, err
		}
		config := &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, MaxVersion: kind.newest}
		if kind.newest != 0 {
			config.MinVersion = tls.VersionTLS10
		}
		a.configs[kind.name] = config
	}
	return a, nil
}

// secure puts TLS in front of a link.
func (x *exec) secure(l *link, kind string) error {
	if kind == "" {
		return nil
	}
	m, err := x.engine.material()
	if err != nil {
		return err
	}
	address, err := l.Secure(x.cell.Transport, m.secure.configs[kind])
	if err != nil {
		return err
	}
	l.url = proxy.SecureURL(x.cell.Transport, address)
	return nil
}

// file is the value of a variable that names a file of the run. It is looked up when it is used, so that only those who use it make keys.
func (x *exec) file(name string) (any, bool) {
	m, err := x.engine.material()
	switch {
	case err != nil:
		return nil, false
	case name == scenario.VarCA:
		return m.secure.file, true
	}
	return m.secure.other, true
}
