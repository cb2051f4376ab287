package main

import (
	"os"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

// security is how a command proves who it is and what it trusts.
type security struct {
	TokenFile  string `name:"token-file" env:"${env_token_file}" placeholder:"FILE" completes:"files" help:"File with the token that the broker asks for, read before every attempt to connect. The token itself can stand in the environment variable ${env_token}; no flag takes it, because others on the machine see flags."`
	CAFile     string `name:"ca-file" env:"${env_ca_file}" placeholder:"FILE" completes:"files" help:"Certificates in PEM that are trusted instead of those of the machine. Addresses with TLS are fitzs://, tls:// and wss://."`
	ServerName string `name:"server-name" env:"${env_server_name}" placeholder:"NAME" help:"Name that the certificate of the broker must have, instead of the host of the address."`
	ClientCert string `name:"client-cert" env:"${env_client_cert}" placeholder:"FILE" completes:"files" help:"Certificate in PEM that is shown to the broker."`
	ClientKey  string `name:"client-key" env:"${env_client_key}" placeholder:"FILE" completes:"files" help:"Key of the certificate in PEM."`

	given map[string]bool // flags of the command line
}

// securityVars are the names that the help text needs.
func securityVars() kong.Vars {
	return kong.Vars{
		"env_token": fitz.EnvToken, "env_token_file": fitz.EnvTokenFile, "env_ca_file": fitz.EnvAuthorityFile, "env_server_name": fitz.EnvServerName,
		"env_client_cert": fitz.EnvClientCert, "env_client_key": fitz.EnvClientKey,
	}
}

// note keeps which flags stand on the command line: they beat the environment.
func (s *security) note(path []*kong.Path) {
	s.given = map[string]bool{}
	for _, p := range path {
		if p.Flag != nil {
			s.given[p.Flag.Name] = true
		}
	}
}

// options are those of every client of a command. What was asked for and cannot be is wrong usage: nothing is connected without it.
func (a *app) options() ([]fitz.Option, error) {
	s := &a.security
	for _, flag := range []struct{ name, value string }{
		{"token-file", s.TokenFile}, {"ca-file", s.CAFile}, {"server-name", s.ServerName}, {"client-cert", s.ClientCert}, {"client-key", s.ClientKey},
	} {
		if flag.value == "" && s.given[flag.name] {
			return nil, usage("--%s is empty", flag.name)
		}
	}
	var options []fitz.Option
	token, err := a.tokenOption()
	if err != nil {
		return nil, err
	}
	if token != nil {
		options = append(options, token)
	}
	if s.CAFile != "" {
		options = append(options, fitz.WithCAFile(s.CAFile))
	}
	if s.ServerName != "" {
		options = append(options, fitz.WithServerName(s.ServerName))
	}
	switch {
	case s.ClientCert != "" && s.ClientKey != "":
		options = append(options, fitz.WithClientCertificate(s.ClientCert, s.ClientKey))
	case s.ClientCert != "":
		return nil, usage("--client-cert needs --client-key")
	case s.ClientKey != "":
		return nil, usage("--client-key needs --client-cert")
	}
	return options, nil
}

// tokenOption is where the token comes from, nil without one.
func (a *app) tokenOption() (fitz.Option, error) {
	file, token := a.security.TokenFile, a.variable(fitz.EnvToken)
	switch {
	case file == "" && token == "":
		return nil, nil
	case file == "":
		return fitz.WithToken(token), nil
	case token != "" && !a.security.given["token-file"]:
		return nil, usage("%s and %s are both set", fitz.EnvToken, fitz.EnvTokenFile)
	}
	f, err := os.Open(file) // one that is not there now is a mistake; later on it may be away for a moment
	if err != nil {
		return nil, usage("--token-file: %w", err)
	}
	_ = f.Close() // nothing was read
	return fitz.WithTokenFile(file), nil
}

// variable is the value of an environment variable, empty when it is not set.
func (a *app) variable(name string) string {
	for i := len(a.environ) - 1; i >= 0; i-- { // the last one counts, as for programs that are started with it
		if value, found := strings.CutPrefix(a.environ[i], name+"="); found {
			return value
		}
	}
	return ""
}
