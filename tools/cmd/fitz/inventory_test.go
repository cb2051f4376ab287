//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/version"
	"github.com/fitzwire/fitz/tools/internal/watch"
)

// inProcess runs fitz without a process of its own.
func inProcess(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), stdio{args: args, stdout: &out, stderr: &errs})
	return code, out.String(), errs.String()
}

// Every page is shown, in order, as a table or as one object on each line.
func TestLs(t *testing.T) {
	eachTransport(t, func(t *testing.T, url string) {
		c := other(t, url)
		const n = 250 // several pages
		for i := range n {
			take(t, c, fmt.Sprintf("lease://r/a/%03d", i), "o\u202e\n")
		}
		take(t, c, "lease://r/other/x", "o")
		code, out, errs := inProcess("lease", "ls", "lease://r/a/*", "--url", url)
		lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		if code != 0 || errs != "" || len(lines) != n+1 || !strings.HasPrefix(lines[0], "ROUTE") {
			t.Fatalf("code %d, %d lines, stderr %q", code, len(lines), errs)
		}
		if !strings.HasPrefix(lines[n], `lease://r/a/249  o\u202e\u000a  `) {
			t.Errorf("last line %q", lines[n])
		}
		code, out, _ = inProcess("lease", "ls", "lease://r/a/*", "--url", url, "--json")
		lines = strings.Split(strings.TrimSuffix(out, "\n"), "\n")
		var last watch.JSONItem
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); code != 0 || err != nil || len(lines) != n || last.OwnerID != "o\u202e\n" || last.Route != "lease://r/a/249" {
			t.Fatalf("code %d, %d lines, %+v, %v", code, len(lines), last, err)
		}
		if code, out, _ := inProcess("lease", "ls", "lease://nobody/**", "--url", url, "--json"); code != 0 || out != "" {
			t.Errorf("code %d, output %q", code, out)
		}
	})
}

func TestQuery(t *testing.T) {
	eachTransport(t, func(t *testing.T, url string) {
		if code, out, _ := inProcess("lease", "query", leased, "--url", url); code != 0 || out != leased+"  free, 0 waiting\n" {
			t.Fatalf("code %d, output %q", code, out)
		}
		take(t, other(t, url), leased, "me")
		if code, out, _ := inProcess("lease", "query", leased, "--url", url); code != 0 || !strings.HasPrefix(out, leased+"  held by me for ") {
			t.Fatalf("code %d, output %q", code, out)
		}
		code, out, _ := inProcess("lease", "query", leased, "--url", url, "--json")
		var got jsonQuery
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || !got.Held || *got.OwnerID != "me" || *got.TTLRemainingSecs == 0 {
			t.Fatalf("code %d, %s, %v", code, out, err)
		}
	})
}

// Behind a pipe each change is one line, written at once.
func TestWatchLines(t *testing.T) {
	eachTransport(t, func(t *testing.T, url string) {
		c := other(t, url)
		take(t, c, "lease://r/a/1", "first")
		f := runFitz(t, "", "lease", "watch", "lease://r/*/*", "--url", url)
		f.line("added   lease://r/a/1  first")
		f.line("fresh")
		second := take(t, c, "lease://r/b/2", "second")
		f.line("added   lease://r/b/2  second")
		give(t, second)
		f.line("removed lease://r/b/2  second")
		f.signal(unix.SIGINT)
		f.expectExit(0)
	})
}

// A waiter that takes over is a change of the holder, and never the old one again.
func TestWatchJSON(t *testing.T) {
	url := tcpURL(startBroker(t))
	a, b := other(t, url), other(t, url)
	taken := take(t, a, leased, "a")
	f := runFitz(t, "", "--json", "lease", "watch", "lease://**", "--url", url)
	f.line(`{"event":"fresh"}`)
	granted := make(chan error, 1)
	go func() {
		_, err := b.Acquire(context.Background(), leased, time.Minute, &fitz.AcquireOptions{OwnerID: "b"})
		granted <- err
	}()
	awaitWaiters(t, a, 1)
	give(t, taken)
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	holder := "a"
	for holder != "b" { // one change, or removed and added when both looks fell between the two
		var change watch.JSONChange
		if err := json.Unmarshal([]byte(f.line("{")), &change); err != nil {
			t.Fatal(err)
		}
		switch change.Event {
		case fitz.InventoryChanged, fitz.InventoryAdded:
			holder = change.Item.OwnerID
		case fitz.InventoryRemoved:
			holder = ""
		default:
			t.Fatalf("%+v", change)
		}
	}
}

// A cut connection and a broker that restarts with nothing make the view stale; afterwards it is right again.
func TestWatchAfterAGap(t *testing.T) {
	b := startBroker(t)
	p := startProxy(t, b.Addresses()["tcp"])
	c := other(t, tcpURL(b))
	take(t, c, "lease://r/a/1", "first")
	f := runFitz(t, "", "lease", "watch", "lease://**", "--url", p.url())
	f.line("fresh")
	p.cut()
	f.line("stale   disconnected")
	take(t, c, "lease://r/a/2", "second")
	f.line("added   lease://r/a/2")
	f.line("fresh")
	restarted := startBroker(t)
	p.retarget(restarted.Addresses()["tcp"])
	p.cut()
	f.line("stale   disconnected")
	f.line("removed lease://r/a/1")
	f.line("removed lease://r/a/2")
	f.line("fresh")
	f.signal(unix.SIGTERM)
	f.expectExit(0)
}

// A reader that falls behind by more than the pipe and the observer keep still learns of everything, each once (OB-56).
func TestWatchReaderIsSlow(t *testing.T) {
	url := tcpURL(startBroker(t))
	c := other(t, url)
	f := runFitz(t, "", "lease", "watch", "lease://r/*/*", "--url", url)
	f.line("fresh")
	const n = 3000 // their lines are longer than a pipe holds
	owner := strings.Repeat("o", 100)
	for i := range n {
		take(t, c, fmt.Sprintf("lease://r/a/%d", i), owner)
	}
	timer := time.AfterFunc(soon, func() { _ = f.cmd.Process.Kill() })
	defer timer.Stop()
	added := map[string]bool{} // in no order: while a listing runs, routes are read one by one
	for len(added) < n {
		route, _, _ := strings.Cut(strings.TrimPrefix(f.line("added "), "added   "), " ")
		if added[route] {
			t.Fatalf("%s was added again", route)
		}
		added[route] = true
	}
	f.signal(unix.SIGINT)
	f.expectExit(0)
}

// Whoever stops reading ends the command, and nothing is printed about it.
func TestClosedPipe(t *testing.T) {
	url := tcpURL(startBroker(t))
	c := other(t, url)
	take(t, c, leased, "o")
	for _, args := range [][]string{{"lease", "watch", "lease://**"}, {"lease", "ls", "lease://**"}, {"version"}, {"decode", "ff0193"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		cmd := exec.Command(os.Args[0], append(args, "--url", url)...)
		var errs bytes.Buffer
		cmd.Env, cmd.Stdout, cmd.Stderr = fitzEnv(""), w, &errs
		err = cmd.Run()
		_ = w.Close()
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		quiet := status.Exited() && (status.ExitStatus() == 0 || status.ExitStatus() == exitFindings) || status.Signal() == unix.SIGPIPE
		if errs.String() != "" || !quiet {
			t.Errorf("%v: %v, stderr %q", args, err, errs.String())
		}
	}
}

// Inside one process the same is an error of the writer.
func TestClosedWriter(t *testing.T) {
	url := tcpURL(startBroker(t))
	take(t, other(t, url), leased, "o")
	for _, args := range [][]string{{"lease", "watch", "lease://**"}, {"lease", "ls", "lease://**"}, {"--json", "lease", "watch", "lease://**"}} {
		var errs bytes.Buffer
		code := run(t.Context(), stdio{args: append(args, "--url", url), stdout: brokenPipe{}, stderr: &errs})
		if code != 0 || errs.String() != "" {
			t.Errorf("%v: code %d, stderr %q", args, code, errs.String())
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "|1", Err: unix.EPIPE}
}

func TestDecode(t *testing.T) {
	const good = "ff0193 0011 0000000d 6c656173653a2f2f722f612f6b"
	code, out, errs := inProcess("decode", good)
	if code != 0 || errs != "" || !strings.Contains(out, `"lease://r/a/k"`) || !strings.HasSuffix(out, "from client\n") {
		t.Fatalf("code %d, stdout %q, stderr %q", code, out, errs)
	}
	if code, again, _ := inProcess(append([]string{"decode"}, strings.Fields(good)...)...); code != 0 || again != out {
		t.Errorf("several arguments: code %d, %q", code, again)
	}
	code, out, errs = inProcess("decode", "ff0193 0001 00", "--from", "client")
	if code != exitFindings || errs != "" || !strings.Contains(out, "LEASE_BAD_REQUEST") {
		t.Errorf("code %d, stdout %q, stderr %q", code, out, errs)
	}
	code, out, _ = inProcess("decode", "--json", "ff0193 0001 00", "--from", "client")
	var report struct {
		Problem struct{ Offset, Code int }
		Spans   []any
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exitFindings || report.Problem.Offset != 5 || report.Problem.Code != int(wire.CodeLeaseBadRequest) {
		t.Errorf("code %d, %s, %v", code, out, err)
	}
	if code, _, _ := inProcess("decode", "ff0192 0001 00", "--from", "client"); code != exitFindings {
		t.Errorf("code %d", code)
	}
	if code, out, _ := inProcess("decode", "ff0192 0001 00"); code != 0 || !strings.HasSuffix(out, "from broker\n") {
		t.Errorf("code %d, %q", code, out)
	}
}

func TestDecodeStandardInput(t *testing.T) {
	cmd := exec.Command(os.Args[0], "decode", "-")
	cmd.Env, cmd.Stdin = fitzEnv(""), strings.NewReader("0xf1 0008\n0000000000000001\n")
	out, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(out), "from client or broker\n") {
		t.Fatalf("%q, %v", out, err)
	}
}

func TestVersion(t *testing.T) {
	code, out, _ := inProcess("version", "--json")
	var info version.Info
	if err := json.Unmarshal([]byte(out), &info); code != 0 || err != nil || info.Program != "fitz" || info.Version != wire.SpecVersion {
		t.Fatalf("code %d, %q, %v", code, out, err)
	}
	if code, out, _ := inProcess("version"); code != 0 || !strings.HasPrefix(out, "fitz "+wire.SpecVersion) {
		t.Fatalf("code %d, %q", code, out)
	}
}

// The help names every exit code.
func TestHelp(t *testing.T) {
	code, out, errs := inProcess("--help")
	if code != 0 || errs != "" {
		t.Fatalf("code %d, stderr %q", code, errs)
	}
	words := strings.FieldsFunc(out, func(r rune) bool { return !strings.ContainsRune("0123456789+N", r) })
	for _, want := range []string{"0", "1", "2", "69", "75", "100", "126", "127", "128+N"} {
		if !slices.Contains(words, want) {
			t.Errorf("exit code %s is not documented", want)
		}
	}
	if code, out, _ := inProcess("lease", "acquire", "--help"); code != 0 || !strings.Contains(out, "fitz itself is killed") {
		t.Errorf("code %d, %q", code, out)
	}
}
