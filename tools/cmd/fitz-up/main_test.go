//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// session is a running fitz-up.
type session struct {
	t      *testing.T
	cmd    *exec.Cmd
	output *bufio.Scanner
	stderr bytes.Buffer
}

// bin holds the programs.
var bin string

func TestMain(m *testing.M) { os.Exit(inScratch(m.Run)) }

// inScratch runs tests with a directory for the programs.
func inScratch(run func() int) int {
	var err error
	if bin, err = os.MkdirTemp("", "fitz-up-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	return run()
}

// build builds the programs once.
var build = sync.OnceValue(func() error {
	text, err := exec.Command("go", "build", "-o", bin+"/", "github.com/fitzwire/fitz/broker/cmd/fitzd", "github.com/fitzwire/fitz/tools/cmd/fitz", "github.com/fitzwire/fitz/tools/cmd/fitz-up").CombinedOutput()
	if err != nil {
		return fmt.Errorf("build: %w: %s", err, text)
	}
	return nil
})

// startUp starts fitz-up beside the other programs.
func startUp(t *testing.T) *session {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, cmd: exec.Command(filepath.Join(bin, "fitz-up"), "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0")}
	s.cmd.Stderr = &s.stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.output = bufio.NewScanner(out)
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil {
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // it ends what it started
			_ = s.cmd.Wait()
		}
	})
	return s
}

// find reads up to a line that matches and returns its last group.
func (s *session) find(pattern string) string { s.t.Helper(); return s.findAll(pattern)[0] }

// findAll reads until every pattern was matched by some line, in any order, and returns their last groups.
func (s *session) findAll(patterns ...string) []string {
	s.t.Helper()
	found, missing := make([]string, len(patterns)), map[int]*regexp.Regexp{}
	for i, pattern := range patterns {
		missing[i] = regexp.MustCompile(pattern)
	}
	for len(missing) > 0 && s.output.Scan() {
		for i, expression := range missing {
			if match := expression.FindStringSubmatch(s.output.Text()); match != nil {
				found[i] = match[len(match)-1]
				delete(missing, i)
			}
		}
	}
	if len(missing) > 0 {
		s.t.Fatalf("the output ended before %v: %s", missing, s.stderr.String())
	}
	return found
}

func (s *session) signal(pid string, signal syscall.Signal) {
	s.t.Helper()
	number, err := strconv.Atoi(pid)
	if err != nil || number <= 1 {
		s.t.Fatalf("process %q", pid)
	}
	if err := syscall.Kill(number, signal); err != nil {
		s.t.Fatal(err)
	}
}

// settled is the line of a fleet that is balanced; how many workers there are changes all the time.
const settled = `^spread \d workers, 60 of 60 held.* settled$`

// end interrupts fitz-up and expects that it ends everything.
func (s *session) end() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		s.t.Fatal(err)
	}
	s.find("^stopping$")
	for s.output.Scan() {
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("%v: %s", err, s.stderr.String())
	}
}

// The fleet survives kill -9 of a worker, which is told and stays away, and of the broker, which comes back at the same address; everything ends at
// an interrupt.
func TestUp(t *testing.T) {
	t.Parallel()
	s := startUp(t)
	address := s.find(`TCP +(fitz://\S+)`)
	worker := s.find(`^  ada +process (\d+)$`)
	broker := s.find(`kill -9 (\d+) .*broker dies`)
	s.find(`^joined +ada$`) // a fleet can be settled before its last worker has come
	s.find(settled)
	s.signal(worker, syscall.SIGKILL)
	s.findAll(`^up     worker ada ended \(signal: killed\); start another one: .* demo --worker --name ada$`, `^left +ada$`)
	s.find(settled)
	s.signal(broker, syscall.SIGKILL)
	again := s.findAll(`^up     the broker runs again, process (\d+)$`, `^fresh$`)[0] // the demo may be back before fitz-up says so
	s.find(settled)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) { // a worker that leaves now frees it for a moment
		query := exec.Command(filepath.Join(filepath.Dir(s.cmd.Path), "fitz"), "lease", "query", "lease://demo/fleet/00", "--url", address)
		text, err := query.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if strings.Contains(string(text), "held by") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody holds it: %s", text)
		}
	}
	s.end()
	if number, err := strconv.Atoi(again); err != nil || syscall.Kill(number, 0) == nil {
		t.Errorf("the broker runs on (%v)", err)
	}
}

// A worker that is stopped for longer than the ttl is left out, and has its share again when it goes on.
func TestUpStoppedWorker(t *testing.T) {
	t.Parallel()
	s := startUp(t)
	worker := s.find(`^  grace +process (\d+)$`)
	s.find(`^joined +grace$`)
	s.find(settled)
	s.signal(worker, syscall.SIGSTOP)
	s.find(`^left +grace$`)
	s.find(settled)
	s.signal(worker, syscall.SIGCONT)
	s.find(`^joined +grace$`)
	s.find(settled)
	s.end()
	if number, err := strconv.Atoi(worker); err != nil || syscall.Kill(number, 0) == nil {
		t.Errorf("the worker runs on (%v)", err)
	}
}
