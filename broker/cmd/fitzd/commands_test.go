package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/fitzwire/fitz/broker/internal/program"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
)

var fitzdCommands = []string{"completion", "healthcheck", "man", "serve", "version"}

// everyFlag are the flags of the settings and the few others, from the tables that the command line is made of.
func everyFlag() []string {
	flags := []string{"--help", "--check-config", "--print-config", "--version"}
	for _, l := range settings.Listeners {
		flags = append(flags, "--"+l.Flag)
	}
	for _, s := range settings.All {
		if s.Flag != "" {
			flags = append(flags, "--"+s.Flag)
		}
	}
	slices.Sort(flags)
	return flags
}

// Every flag and command stands in each completion script and in the manual.
func TestEveryFlagIsCompletedAndDescribed(t *testing.T) {
	for _, args := range [][]string{{"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"}, {"man"}} {
		code, stdout, stderr := command(t, args...)
		if code != program.ExitDone || stderr != "" {
			t.Fatalf("%v: exit %d: %s", args, code, stderr)
		}
		for _, flag := range everyFlag() {
			written := flag
			switch args[len(args)-1] {
			case "fish":
				written = "-l " + strings.TrimPrefix(flag, "--")
			case "man":
				written = strings.ReplaceAll(flag, "-", `\-`)
			}
			if !strings.Contains(stdout, written) {
				t.Errorf("%v does not name %s", args, flag)
			}
		}
		for _, name := range fitzdCommands {
			if !strings.Contains(stdout, name) {
				t.Errorf("%v does not name %s", args, name)
			}
		}
	}
}

// The page of the configuration file names every key that the file can have.
func TestManualOfTheConfigurationFile(t *testing.T) {
	code, page, _ := command(t, "man", "5")
	if code != program.ExitDone {
		t.Fatalf("exit %d", code)
	}
	var keys []string
	for _, l := range settings.Listeners {
		keys = append(keys, l.Name)
	}
	for _, s := range settings.All {
		if s.Name != settings.SettingConfig.Name {
			keys = append(keys, s.Name)
		}
	}
	for _, b := range bounds.All {
		if b.OperatorMayChange {
			keys = append(keys, b.Name)
		}
	}
	for _, key := range keys {
		if !strings.Contains(page, `\fB`+key+`\fR`) {
			t.Errorf("the page does not describe %s", key)
		}
	}
}

// The example on that page is a right configuration.
func TestExampleOfTheManual(t *testing.T) {
	_, page, _ := command(t, "man", "5")
	_, example, found := strings.Cut(page, ".nf\nlisteners:")
	example, _, ended := strings.Cut(example, ".fi\n")
	if !found || !ended {
		t.Fatalf("no example:\n%s", page)
	}
	path := filepath.Join(t.TempDir(), "fitzd.yaml")
	if err := os.WriteFile(path, []byte("listeners:"+strings.ReplaceAll(example, `\-`, "-")), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command(t, "--config", path, "--print-config")
	if code != program.ExitDone || !strings.Contains(stdout, "delayed(150)") || !strings.Contains(stdout, "localhost:4193") {
		t.Errorf("exit %d: %s%s", code, stderr, stdout)
	}
}

// bash completes the program from its own script.
func TestBashCompletesFitzd(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed: its completion is not run here")
	}
	_, script, _ := command(t, "completion", "bash")
	path := filepath.Join(t.TempDir(), "fitzd.bash")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
		"fitzd ''":                fitzdCommands,
		"fitzd --log-level ''":    {"debug", "error", "info", "warn"},
		"fitzd completion ''":     {"bash", "fish", "zsh"},
		"fitzd man --log-fo":      {"--log-format"},
		"fitzd --tcp off --confi": {"--config"},
	} {
		ask := `source "$1"; COMP_WORDS=(` + line + `); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _fitzd; printf '%s\n' "${COMPREPLY[@]}"`
		out, err := exec.CommandContext(t.Context(), bash, "--norc", "-c", ask, "bash", path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := strings.Fields(string(out))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// healthcheck is asked with the same flags as the broker.
func TestHealthcheck(t *testing.T) {
	var stderr output
	signals := make(chan os.Signal, 2)
	addresses, ended := serving(t, &stderr, signals)
	flags := []string{"--admin", "127.0.0.1:0", "--addresses-file", file(t, addresses)}
	if code, _, stderr := command(t, append(flags, "healthcheck")...); code != program.ExitDone || stderr != "" {
		t.Errorf("with a broker: exit %d: %s", code, stderr)
	}
	if code, _, stderr := command(t, "healthcheck", "--admin", addresses["admin"]); code != program.ExitDone || stderr != "" {
		t.Errorf("with a broker at a port: exit %d: %s", code, stderr)
	}
	signals <- syscall.SIGTERM
	<-ended
	if code, _, stderr := command(t, append(flags, "healthcheck")...); code != program.ExitFailed || !strings.Contains(stderr, "fitzd: ") {
		t.Errorf("after its end: exit %d: %s", code, stderr)
	}
}

// What is no healthy broker is not taken for one.
func TestHealthcheckOfSomethingElse(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer other.Close()
	if code, _, stderr := command(t, "healthcheck", "--admin", other.Listener.Addr().String()); code != program.ExitFailed || !strings.Contains(stderr, "503") {
		t.Errorf("exit %d: %s", code, stderr)
	}
	for want, args := range map[string][]string{
		"is off":            {"--admin", "off"},
		"--addresses-file":  {"--admin", "localhost:0"},
		"does not name it":  {"--admin", "localhost:0", "--addresses-file", file(t, map[string]string{"tcp": "127.0.0.1:1"})},
		"cannot unmarshal":  {"--admin", "localhost:0", "--addresses-file", file(t, "text")},
		"no such file":      {"--admin", "localhost:0", "--addresses-file", filepath.Join(t.TempDir(), "none")},
		"not HOST:PORT":     {"--admin", "localhost"},
		"unexpected argume": {"again"},
	} {
		if code, _, stderr := command(t, append([]string{"healthcheck"}, args...)...); code == program.ExitDone || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d: %s", args, code, stderr)
		}
	}
}

// file is a file with a value as JSON.
func file(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "addresses.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An admin listener with TLS is asked where there is no other, whatever its certificate says.
func TestHealthcheckWithTLS(t *testing.T) {
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	other.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer other.Close()
	path := filepath.Join(t.TempDir(), "fitzd.yaml")
	text := fmt.Sprintf("admin: \"off\"\nlisteners:\n  - {transport: admin, address: %q, tls: {cert: c, key: k}}\n", other.Listener.Addr())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := command(t, "healthcheck", "--config", path); code != program.ExitDone {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// The service manager is told when sessions are taken and when the end begins.
func TestServiceManagerIsTold(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there are no datagram sockets in the file system")
	}
	dir, err := os.MkdirTemp("", "fitz") // a short name, which is what such an address needs
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	socket := filepath.Join(dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	env := func(name string) string { return map[string]string{"NOTIFY_SOCKET": socket}[name] }
	signals, ended := make(chan os.Signal, 1), make(chan int, 1)
	signals <- syscall.SIGTERM // it ends as soon as it has started
	var stdout, stderr output
	go func() {
		ended <- run([]string{"--tcp", "127.0.0.1:0", "--http", "off", "--admin", "off"}, env, &stdout, &stderr, signals)
		if conn, err := net.Dial("unixgram", socket); err == nil { // so that nobody waits for what it did not tell
			_, _ = conn.Write([]byte("ended"))
			_ = conn.Close()
		}
	}()
	told := make([]byte, 100)
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		n, err := manager.Read(told)
		if err != nil || string(told[:n]) != want {
			t.Fatalf("%q, %v; want %s", told[:n], err, want)
		}
	}
	if code := <-ended; code != program.ExitDone || strings.Contains(stderr.String(), "service manager") {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
}

// A broker on all interfaces is asked at loopback.
func TestHealthcheckOfAllInterfaces(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer other.Close()
	_, port, err := net.SplitHostPort(other.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	path := file(t, map[string]string{"admin": net.JoinHostPort("0.0.0.0", port)})
	if code, _, stderr := command(t, "healthcheck", "--admin", "localhost:0", "--addresses-file", path); code != program.ExitDone {
		t.Errorf("exit %d: %s", code, stderr)
	}
}
