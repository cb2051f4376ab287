//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/internal/devcert"
	"github.com/fitzwire/fitz/internal/devtoken"
)

// asked runs fitz with an environment, and checks the exit code and a part of what it says.
func asked(t *testing.T, environ map[string]string, code int, says string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	var list []string
	for name, value := range environ {
		t.Setenv(name, value) // the flags read the environment of the process
		list = append(list, name+"="+value)
	}
	got := run(t.Context(), stdio{args, list, os.Stdin, &stdout, &stderr})
	for name := range environ {
		_ = os.Unsetenv(name) // what was before comes back when the test ends
	}
	if said := stdout.String() + stderr.String(); got != code || !strings.Contains(said, says) || code != exitOK && strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("%v: exit code %d, want %d: %s", args, got, code, said)
	}
	return stderr.String()
}

func file(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// startTokenBroker runs a broker that asks for tokens, and returns one.
func startTokenBroker(t *testing.T) (b *broker.Broker, token string) {
	t.Helper()
	b = startBroker(t, "--auth", "token", "--family", settings.DevelopmentFamilyDev+"=1",
		"--hmac-secret-file", file(t, "secret", []byte(settings.DevelopmentHMACSecret)))
	token, err := devtoken.Mint([]byte(settings.DevelopmentHMACSecret), devtoken.Claims{
		Subject: settings.DevelopmentSubject, Audience: []string{settings.DevelopmentAudience}, Expires: time.Now().Add(time.Hour),
		Family: settings.DevelopmentFamilyDev, Permissions: []string{"lease://**#*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, token
}

// The token comes from a file or from the environment, and is never shown. What was asked for and is not there is wrong usage.
func TestTokenOfTheCommandLine(t *testing.T) {
	b, token := startTokenBroker(t)
	good, bad := file(t, "token", []byte(token+"\n")), token[:len(token)-4]+"AAAA"
	type env = map[string]string
	for url, why := range map[string]string{tcpURL(b): "it refuses the token, or expects TLS", webSocketURL(b): "connect failed: "} {
		query := []string{"lease", "query", leased, "--url", url}
		with := func(more ...string) []string { return append(query[:len(query):len(query)], more...) }
		asked(t, nil, exitOK, "free", with("--token-file", good)...)
		asked(t, env{fitz.EnvToken: token}, exitOK, "free", query...)
		asked(t, env{fitz.EnvTokenFile: good}, exitOK, "free", query...)
		asked(t, env{fitz.EnvToken: bad}, exitOK, "free", with("--token-file", good)...)
		asked(t, env{fitz.EnvTokenFile: good, fitz.EnvToken: ""}, exitOK, "free", query...)
		asked(t, nil, exitUnavailable, "auth.rejected", query...)
		asked(t, nil, exitUnavailable, why, query...)
		if said := asked(t, env{fitz.EnvToken: bad}, exitUnavailable, "auth.rejected", query...); strings.Contains(said, bad[:10]) {
			t.Errorf("the token is shown: %s", said)
		}
		asked(t, nil, exitUnavailable, "no token in it", with("--token-file", file(t, "empty", nil))...)
		asked(t, nil, exitUsage, good+".gone", with("--token-file", good+".gone")...)
		asked(t, nil, exitUsage, "--token-file is empty", with("--token-file", "")...)
		asked(t, env{fitz.EnvToken: token, fitz.EnvTokenFile: good}, exitUsage, "are both set", query...)
		asked(t, nil, exitUsage, "unknown flag --token", with("--token", token)...)
	}
	asked(t, env{fitz.EnvToken: token}, exitOK, "released", "lease", "acquire", leased, "--url", tcpURL(b), "--ttl", "30s", "--json", "--", "true")
}

// Whom to trust and what to show comes from files; what is missing or wrong is told in one line, before anything is sent.
func TestTLSOfTheCommandLine(t *testing.T) {
	authority, err := devcert.New("test")
	if err != nil {
		t.Fatal(err)
	}
	issue := func(leaf devcert.Leaf) (cert, key string) {
		pair, err := authority.Issue(leaf)
		if err != nil {
			t.Fatal(err)
		}
		return file(t, "cert.pem", pair.Cert), file(t, "key.pem", pair.Key)
	}
	ca := file(t, "ca.pem", authority.PEM())
	cert, key := issue(devcert.Leaf{Name: "broker", Hosts: []string{"broker.test"}})
	client, clientKey := issue(devcert.Leaf{Name: "client", Client: true})
	_, otherKey := issue(devcert.Leaf{Name: "other", Client: true})
	b := startBroker(t, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca, "--tls-client-auth", "required")
	for _, url := range []string{"fitzs://" + b.Addresses()["tcp"], "wss://" + b.Addresses()["http"]} {
		query := []string{"lease", "query", leased, "--url", url}
		all := map[string]string{"--ca-file": ca, "--server-name": "broker.test", "--client-cert": client, "--client-key": clientKey}
		with := func(change map[string]string) []string {
			args := query[:len(query):len(query)]
			for _, name := range []string{"--ca-file", "--server-name", "--client-cert", "--client-key"} {
				value, changed := change[name]
				if !changed {
					value = all[name]
				}
				if value != "" {
					args = append(args, name, value)
				}
			}
			return args
		}
		type change = map[string]string
		asked(t, nil, exitOK, "free", with(nil)...)
		asked(t, map[string]string{
			fitz.EnvAuthorityFile: ca, fitz.EnvServerName: "broker.test", fitz.EnvClientCert: client, fitz.EnvClientKey: clientKey,
		}, exitOK, "free", query...)
		asked(t, nil, exitUnavailable, "unknown authority", with(change{"--ca-file": ""})...)
		asked(t, nil, exitUnavailable, "certificate", with(change{"--server-name": ""})...)
		asked(t, nil, exitUnavailable, "certificate required", with(change{"--client-cert": "", "--client-key": ""})...)
		asked(t, nil, exitUsage, "--client-cert needs --client-key", with(change{"--client-key": ""})...)
		asked(t, nil, exitUsage, "--client-key needs --client-cert", with(change{"--client-cert": ""})...)
		asked(t, nil, exitUsage, otherKey, with(change{"--client-key": otherKey})...)
		asked(t, nil, exitUsage, ca+".gone", with(change{"--ca-file": ca + ".gone"})...)
		asked(t, nil, exitUsage, key, with(change{"--ca-file": key})...)
		asked(t, nil, exitUsage, "without", append(with(nil), "--url", "fitz://"+b.Addresses()["tcp"])...)
	}
}
