package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/broker/internal/program"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/internal/devcert"
)

// written writes a file into a folder of the test.
func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pairs writes two certificates with their keys.
func pairs(t *testing.T) (cert, key, otherKey string) {
	t.Helper()
	a, err := devcert.New("test authority")
	if err != nil {
		t.Fatal(err)
	}
	var keys [2]string
	for i := range keys {
		pair, err := a.Issue(devcert.Leaf{})
		if err != nil {
			t.Fatal(err)
		}
		if cert, keys[i], err = pair.Write(t.TempDir()); err != nil {
			t.Fatal(err)
		}
	}
	return cert, keys[1], keys[0]
}

// A mistake of an operator is one line that names the place, and the program ends with 2 before it serves anybody. Mistakes in files that
// the configuration names are found without listening too.
func TestMistakesNameTheirPlace(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	cert, key, otherKey := pairs(t)
	tokens := []string{"--auth", "token", "--family", "dev=1"}
	gone := filepath.Join(t.TempDir(), "gone")
	in := func(text string) (args []string, path string) {
		path = written(t, "fitzd.yaml", text)
		return []string{"--config", path}, path
	}
	type mistake struct {
		name  string
		args  []string
		want  string // the beginning of the line, behind the name of the program
		check bool   // --check-config finds it
	}
	var all []mistake
	file := func(name, text, want string, check bool) {
		args, path := in(text)
		all = append(all, mistake{name, args, path + want, check})
	}
	file("unknown key", "tcp: localhost:0\nlimit: {}\n", ":2: unknown key limit", true)
	file("wrong type", "http: localhost:0\nfamilies: many\n", ":2: families must be a whole number", true)
	file("taken port in the file", fmt.Sprintf("http: off\nadmin: off\ntcp: %q\n", taken.Addr()), fmt.Sprintf(":3: address %s is in use", taken.Addr()), false)
	file("taken port of the list", fmt.Sprintf("tcp: off\nhttp: off\nadmin: off\nlisteners:\n  - {transport: tcp, address: %q}\n", taken.Addr()), fmt.Sprintf(":5: address %s is in use", taken.Addr()), false)
	file("secret that is gone", fmt.Sprintf("auth: token\nfamily_map: {dev: 1}\nhmac_secret_file: %q\n", gone), ":3: hmac_secret_file: ", true)
	file("keys that are gone", fmt.Sprintf("auth: token\nfamily_map: {dev: 1}\njwks: {issuer: %q}\n", gone), ":3: jwks of issuer \"issuer\": ", true)
	file("certificate that is gone", fmt.Sprintf("tls_key: %q\ntls_cert: %q\n", key, gone), ":2: ", true)
	file("certificate of one listener that is gone", fmt.Sprintf("listeners:\n  - transport: tcp\n    address: localhost:0\n    tls:\n      key: %q\n      cert: %q\n", key, gone), ":6: ", true)
	all = append(all,
		mistake{"missing file", []string{"--config", gone}, gone + ": cannot be read: ", true},
		mistake{"taken port", []string{"--tcp", "localhost:0", "--admin", "off", "--http", taken.Addr().String()}, fmt.Sprintf("--http: address %s is in use", taken.Addr()), false},
		mistake{"key that does not fit", []string{"--tls-cert", cert, "--tls-key", otherKey}, "--tls-cert: " + cert + " with " + otherKey + ": ", true},
		mistake{"client authority that is gone", []string{"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", gone, "--tls-client-auth", "required"}, "--tls-client-ca: ", true},
		mistake{"client authority that is none", []string{"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", key, "--tls-client-auth", "required"}, "--tls-client-ca: " + key + ": block 1 is no certificate", true},
		mistake{"empty secret", append(tokens, "--hmac-secret-file", written(t, "secret", "\n")), "--hmac-secret-file: hmac_secret_file: ", true},
		mistake{"admin token that cannot be sent", []string{"--admin-token-file", written(t, "token", "two words")}, "--admin-token-file: ", true},
		mistake{"admin token that is gone", []string{"--admin-token-file", gone}, "--admin-token-file: ", true},
	)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			modes := [][]string{nil}
			if m.check {
				modes = append(modes, []string{"--check-config"})
			}
			for _, mode := range modes {
				code, stdout, stderr := command(t, append(mode, m.args...)...)
				if code != program.ExitConfig || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "fitzd: "+m.want) {
					t.Errorf("%v: exit %d: %s%s\nwant one line with %q", mode, code, stdout, stderr, m.want)
				}
			}
		})
	}
}

// What is right passes the check with all files, and the secret is in nothing that is printed.
func TestCheckOpensFiles(t *testing.T) {
	cert, key, _ := pairs(t)
	args := []string{"--auth", "token", "--family", settings.DevelopmentFamilyDev + "=1", "--tls-cert", cert, "--tls-key", key,
		"--hmac-secret-file", written(t, "secret", "hush-hush-hush\n"), "--admin-token-file", written(t, "token", "quiet-quiet\n")}
	for _, mode := range []string{"--check-config", "--print-config"} {
		code, stdout, stderr := command(t, append(args, mode)...)
		if code != program.ExitDone || strings.Contains(stdout+stderr, "hush") || strings.Contains(stdout+stderr, "quiet-quiet") {
			t.Errorf("%s: exit %d: %s%s", mode, code, stdout, stderr)
		}
	}
}
