package job

import (
	"bufio"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fitzwire/fitz/tools/internal/pty"
)

// onTerminal runs a role as the leader of a session on a terminal of its own.
func onTerminal(t *testing.T, role string) (*exec.Cmd, *os.File, *bufio.Scanner) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = master.Close()
		_ = slave.Close()
	})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	p := exec.Command(os.Args[0])
	p.Env, p.Stdin, p.Stdout, p.Stderr = environ(role), slave, w, os.Stderr
	p.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p, master, bufio.NewScanner(r)
}

// The command can read from the terminal although it has a process group of its own, and the terminal comes back afterwards.
func TestCommandReadsTheTerminal(t *testing.T) {
	_, master, lines := onTerminal(t, "terminal")
	if _, err := master.WriteString("first\nsecond\n"); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, `read "first\n" <nil>`)
	expect(t, lines, `status 0, then "second\n" <nil>`)
}

// The stop key stops the command and this process, as a shell expects; continued in the foreground, the command reads on.
func TestStopAndContinueFromTheTerminal(t *testing.T) {
	_, master, lines := onTerminal(t, "shell")
	expect(t, lines, "reading")
	if _, err := master.WriteString("\x1a"); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, "stopped, terminal back: true")
	if _, err := master.WriteString("first\nsecond\n"); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, `read "first\n" <nil>`)
	expect(t, lines, `status 0, then "second\n" <nil>`)
}
