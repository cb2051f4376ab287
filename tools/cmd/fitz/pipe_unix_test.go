//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What fitz has to say about a lease is for people. When nobody can read it any more, the lease is held as before, and when it is lost,
// the whole group of the command still ends.
func TestAcquireWithoutReaderOfErrors(t *testing.T) {
	t.Parallel() // it mostly waits: for as long as the command has to say that it got the first signal
	b := startBroker(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	cmd := exec.Command(os.Args[0], command(tcpURL(b), "--ttl", "1h", "--kill-after", "5s")...)
	cmd.Env, cmd.Stderr = fitzEnv("stubborn"), w
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	f := &process{t: t, cmd: cmd, stdout: bufio.NewScanner(out), stderr: &strings.Builder{}}
	group, err := strconv.Atoi(strings.TrimPrefix(f.line("ready "), "ready "))
	if err != nil {
		t.Fatal(err)
	}
	f.line("listening")
	f.line("listening") // the child of the command, too

	b.Close() // it is announced, which is the first thing that nobody reads
	state, err := cmd.Process.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if state.ExitCode() != exitLost {
		_ = unix.Kill(-group, unix.SIGKILL) // fitz did not; the child would never end
		t.Fatalf("fitz: %v", state)
	}
	got := strings.Join(f.rest(), "\n") // the output ends when every process of the group is gone
	if strings.Count(got, "got 15") != 2 {
		t.Errorf("the group printed %q", got)
	}
}
