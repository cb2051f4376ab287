package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// awaitState waits until every thread of a process is in a state of proc(5).
func awaitState(t *testing.T, pid int, state byte) {
	t.Helper()
	for deadline := time.Now().Add(soon); !allIn(t, pid, state); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d was never in state %c", pid, state)
		}
	}
}

func allIn(t *testing.T, pid int, state byte) bool {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads of process %d: %v", pid, err)
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if os.IsNotExist(err) || err != nil && bytes.Contains([]byte(err.Error()), []byte("no such process")) {
			continue // the thread has ended
		}
		_, rest, ok := bytes.Cut(stat, []byte(") ")) // behind the name
		if err != nil || !ok || rest[0] != state {
			return false
		}
	}
	return true
}

// runningSignals runs a fitz whose command prints the signals that it gets.
func runningSignals(t *testing.T, url string) (f *process, pid int) {
	t.Helper()
	f = runFitz(t, "signals", command(url, "--ttl", "2s")...)
	_, _ = fmt.Sscanf(f.line("ready"), "ready %d", &pid)
	f.line("listening")
	return f, pid
}

func send(t *testing.T, pid int, s unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, s); err != nil {
		t.Fatal(err)
	}
}

// When the command is stopped together with fitz, as a frozen container or a paused debugger does, and fitz is continued after the
// deadline, the command never runs again: a signal that waits for it is not delivered.
func TestStoppedWithItsCommand(t *testing.T) {
	t.Parallel() // it mostly waits
	url := tcpURL(startBroker(t))
	c := other(t, url)
	f, pid := runningSignals(t, url)
	send(t, -pid, unix.SIGSTOP)
	awaitState(t, pid, 'T')
	f.signal(unix.SIGSTOP)
	awaitState(t, f.cmd.Process.Pid, 'T')
	send(t, pid, unix.SIGUSR1)
	take(t, c, leased, "next")
	f.signal(unix.SIGCONT)
	if rest := f.rest(); len(rest) > 0 {
		t.Errorf("the command wrote %q", rest)
	}
	f.expectExit(exitLost)
	if got := f.errors(); got != "fitz: lost "+leased+": expired\n" {
		t.Errorf("stderr %q", got)
	}
}

// A command that has ended while fitz was stopped beyond the deadline may have run without the lease, so its status does not count (L-106).
func TestEndedWhileStopped(t *testing.T) {
	t.Parallel() // it mostly waits
	url := tcpURL(startBroker(t))
	f, pid := runningSignals(t, url)
	f.signal(unix.SIGSTOP)
	awaitState(t, f.cmd.Process.Pid, 'T')
	take(t, other(t, url), leased, "next")
	send(t, pid, unix.SIGKILL)
	awaitState(t, pid, 'Z')
	f.signal(unix.SIGCONT)
	f.expectExit(exitLost)
	if got := f.errors(); got != "fitz: lost "+leased+": expired\n" {
		t.Errorf("stderr %q", got)
	}
}
