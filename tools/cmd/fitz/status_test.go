//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// fitzHere runs a command in this process.
func fitzHere(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	code = run(t.Context(), stdio{args: args, environ: environ, stdin: os.Stdin, stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

func adminURL(address string) string { return "http://" + address }

func TestStatus(t *testing.T) {
	b := startBroker(t)
	at := adminURL(b.Addresses()["admin"])
	take(t, other(t, tcpURL(b)), "lease://r/a/k", "w")
	code, out, errs := fitzHere(t, nil, "status", "--admin", at)
	for _, part := range []string{"ready for ", "1 tcp, 0 websocket", "1 held", "LISTENER", b.Addresses()["tcp"], "connections_max"} {
		if code != exitOK || !strings.Contains(out, part) {
			t.Errorf("exit %d without %q: %s%s", code, part, out, errs)
		}
	}
	code, out, errs = fitzHere(t, nil, "--json", "status", "--admin", at+"/")
	var s adminapi.Status
	if err := json.Unmarshal([]byte(out), &s); code != exitOK || err != nil || s.Leases.Held != 1 || strings.Count(out, "\n") != 1 {
		t.Errorf("exit %d: %s%s, %v", code, out, errs, err)
	}
}

// A broker that drains is shown and is no success.
func TestStatusWhileDraining(t *testing.T) {
	b := startBroker(t)
	stays, err := net.Dial("tcp", b.Addresses()["tcp"]) // a client would move on when it is told to
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stays.Close() }()
	if _, err := stays.Write([]byte{0, 0, 0, 3, 1, 0, 0}); err != nil { // CONNECT
		t.Fatal(err)
	}
	if _, err := stays.Read(make([]byte, 1)); err != nil { // SERVER_HELLO: the session is there
		t.Fatal(err)
	}
	ctx, hurry := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { b.Shutdown(ctx) })
	defer ended.Wait()
	defer hurry()
	for { // Shutdown says nothing when it begins
		code, out, errs := fitzHere(t, nil, "status", "--admin", adminURL(b.Addresses()["admin"]))
		if code == exitOK {
			continue
		}
		if code != exitFailure || !strings.Contains(out, "draining for ") || errs != "" {
			t.Errorf("exit %d: %s%s", code, out, errs)
		}
		return
	}
}

func TestStatusToken(t *testing.T) {
	b := startBroker(t, "--admin-token-file", fileWith(t, "right\n"))
	at := adminURL(b.Addresses()["admin"])
	inEnvironment := []string{settings.SettingAdminToken.Env + "=right"}
	for name, c := range map[string]struct {
		environ []string
		args    []string
		want    int
		errs    string
	}{
		"none":          {nil, nil, exitUnavailable, "token"},
		"environment":   {inEnvironment, nil, exitOK, ""},
		"file":          {nil, []string{"--admin-token-file", fileWith(t, "right")}, exitOK, ""},
		"wrong file":    {inEnvironment, []string{"--admin-token-file", fileWith(t, "wrong")}, exitUnavailable, "token"},
		"empty file":    {inEnvironment, []string{"--admin-token-file", fileWith(t, "\n")}, exitUsage, "does not hold one token"},
		"two lines":     {nil, []string{"--admin-token-file", fileWith(t, "a\nb\n")}, exitUsage, "does not hold one token"},
		"large file":    {nil, []string{"--admin-token-file", fileWith(t, strings.Repeat("x", adminTokenMax+1))}, exitUsage, "larger"},
		"missing file":  {inEnvironment, []string{"--admin-token-file", filepath.Join(t.TempDir(), "none")}, exitUsage, "no such file"},
		"missing admin": {nil, []string{"--admin", "http://127.0.0.1:1"}, exitUnavailable, "cannot be reached"},
		"no address":    {nil, []string{"--admin", "localhost:4192"}, exitUsage, "is no address"},
		"with a path":   {nil, []string{"--admin", at + "/v1"}, exitUsage, "only scheme, host and port"},
		"with a user":   {nil, []string{"--admin", strings.Replace(at, "//", "//u:zq@", 1)}, exitUsage, "only scheme, host and port"},
		"short watch":   {nil, []string{"--watch", "1ms"}, exitUsage, "less than"},
	} {
		code, out, errs := fitzHere(t, c.environ, append([]string{"status", "--admin", at}, c.args...)...)
		if code != c.want || !strings.Contains(errs, c.errs) || (code == exitOK) != (out != "") || strings.Count(errs, "\n") > 1 || strings.Contains(out+errs, "zq") {
			t.Errorf("%s: exit %d, want %d: %s%s", name, code, c.want, out, errs)
		}
	}
}

// What answers something else is no broker, and gets the token once.
func TestStatusOfSomethingElse(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		want   int
		errs   string
	}{
		"text":     {func(w http.ResponseWriter) { _, _ = w.Write([]byte("hello")) }, exitFailure, "does not answer with the state"},
		"no state": {func(w http.ResponseWriter) { _, _ = w.Write([]byte("{}")) }, exitFailure, "does not answer with the state"},
		"endless":  {func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, statusBytesMax+9)) }, exitFailure, "does not answer with the state"},
		"missing":  {func(w http.ResponseWriter) { http.Error(w, "no", http.StatusNotFound) }, exitFailure, "404"},
		"refusal": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(adminapi.Failure{Error: adminapi.FailureDetail{Message: "not\x1b you"}})
		}, exitFailure, `not\u001b you`},
		"cut off":   {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "9"); _, _ = w.Write([]byte("x")) }, exitUnavailable, "not complete"},
		"elsewhere": {func(w http.ResponseWriter) { w.Header().Set("Location", "/other"); w.WriteHeader(http.StatusFound) }, exitFailure, "302"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked++
				c.answer(w)
			}))
			defer server.Close()
			code, out, errs := fitzHere(t, []string{settings.SettingAdminToken.Env + "=zqtoken"}, "status", "--admin", server.URL)
			if code != c.want || out != "" || !strings.Contains(errs, c.errs) || asked != 1 || strings.Contains(errs, "zqtoken") {
				t.Errorf("exit %d after %d requests: %s%s", code, asked, out, errs)
			}
		})
	}
}

// A watch shows the state until it is interrupted.
func TestStatusWatch(t *testing.T) {
	b := startBroker(t)
	p := runFitz(t, "", "--json", "status", "--watch", "100ms", "--admin", adminURL(b.Addresses()["admin"]))
	for range 3 {
		p.line(`{"program":"fitzd"`)
	}
	p.signal(os.Interrupt)
	p.expectExit(exitOK)
}

func fileWith(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
