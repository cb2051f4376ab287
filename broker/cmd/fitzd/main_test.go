package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker/internal/program"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// asProgram is the environment name that makes the test binary fitzd itself, for tests that need a process.
const asProgram = "FITZD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

func noEnvironment(string) string { return "" }

// output is a buffer that several goroutines write to.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// command runs fitzd to its end.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs output
	code = run(args, noEnvironment, &out, &errs, nil)
	return code, out.String(), errs.String()
}

func TestCommandsThatDoNotListen(t *testing.T) {
	fingerprint := fmt.Sprintf("%016x", wire.SpecFingerprint)
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{"version"}, program.ExitDone, fingerprint, ""},
		{[]string{"--version"}, program.ExitDone, "commit ", ""},
		{[]string{"--help"}, program.ExitDone, "--addresses-file", ""},
		{[]string{"--check-config"}, program.ExitDone, "", ""},
		{[]string{"--print-config", "--tcp", "127.0.0.1:7"}, program.ExitDone, `tcp: "127.0.0.1:7"`, ""},
		{[]string{"--check-config", "--tcp", "0.0.0.0:7"}, program.ExitConfig, "", "fitzd: --tcp: anonymous listener"},
		{[]string{"--nothing"}, program.ExitConfig, "", "fitzd: unknown flag --nothing"},
	} {
		code, stdout, stderr := command(t, c.args...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
			t.Errorf("%v: exit %d\nstdout %s\nstderr %s", c.args, code, stdout, stderr)
		}
	}
}

// Each mistake is one line, and the program ends with 2.
func TestMistakesAreOneLineEach(t *testing.T) {
	code, _, stderr := command(t, "--tcp", "x", "--http", "y", "--hello", "z")
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if code != program.ExitConfig || len(lines) != 3 {
		t.Errorf("exit %d: %q", code, lines)
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "fitzd: --") {
			t.Errorf("line %q", line)
		}
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	code, _, stderr := command(t, "--log-level", "error", "--tcp", "127.0.0.1:0", "--http", taken.Addr().String(), "--admin", "off")
	if code != program.ExitConfig || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "in use") || !strings.Contains(stderr, "--http") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// serving runs fitzd with free ports and returns its addresses.
func serving(t *testing.T, stderr *output, signals chan os.Signal, args ...string) (addresses map[string]string, ended <-chan int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "addresses.json")
	done := make(chan int, 1)
	go func() {
		var stdout output
		done <- run(append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--addresses-file", path}, args...),
			noEnvironment, &stdout, stderr, signals)
	}()
	return published(t, path, stderr), done
}

// published waits until fitzd has written its addresses and returns them.
func published(t *testing.T, path string, stderr *output) (addresses map[string]string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // not there yet
		}
		if err := json.Unmarshal(text, &addresses); err != nil {
			t.Fatalf("the addresses file was seen incomplete: %q", text)
		}
		return addresses
	}
	t.Fatalf("no addresses: %s", stderr.String())
	return nil
}

// W-37: the first signal drains, the second one ends the grace at once; the log has one line for each session and names no owner
// and no route.
func TestSignals(t *testing.T) {
	var stderr output
	signals := make(chan os.Signal, 2)
	addresses, ended := serving(t, &stderr, signals)
	c := rawclient.Dial(t, rawclient.TCP, addresses["tcp"])
	c.Connect()
	c.Negotiate()
	c.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://secret/a/k", OwnerID: "hidden", TTL: 30})
	c.Expect(1, wire.TypeLeaseAcquire)
	signals <- syscall.SIGTERM
	c.Expect(0, wire.TypeGoaway)
	signals <- syscall.SIGTERM
	c.ExpectClose(wire.CloseGoingAway)
	if code := <-ended; code != program.ExitDone {
		t.Errorf("exit %d", code)
	}
	log := stderr.String()
	if n := strings.Count(log, "session ended"); n != 1 || !strings.Contains(log, "reason=going_away") {
		t.Errorf("%d lines about ended sessions:\n%s", n, log)
	}
	if strings.Contains(log, "hidden") || strings.Contains(log, "secret") {
		t.Errorf("the log shows an owner or a route:\n%s", log)
	}
}

// Without sessions one signal ends the program at once.
func TestOneSignalWithoutSessions(t *testing.T) {
	var stderr output
	signals := make(chan os.Signal, 2)
	_, ended := serving(t, &stderr, signals, "--log-format", "json")
	signals <- os.Interrupt
	if code := <-ended; code != program.ExitDone {
		t.Errorf("exit %d", code)
	}
	for line := range strings.Lines(stderr.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line %q is not JSON", line)
		}
	}
}
