package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fitzwire/fitz/tools/internal/pty"
)

// terminal is a pseudo terminal whose output a test reads.
type terminal struct {
	t      *testing.T
	master *os.File
	shown  bytes.Buffer
}

// onTerminal runs fitz as the leader of a session on a terminal of its own.
func onTerminal(t *testing.T, role string, args ...string) (*exec.Cmd, *terminal) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Resize(slave, 60, 6); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = fitzEnv(role)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = master.Close()
	})
	return cmd, &terminal{t: t, master: master}
}

// until reads what is shown until it contains the text, and forgets everything up to it.
func (v *terminal) until(text string) string {
	v.t.Helper()
	buffer := make([]byte, 4096)
	for !strings.Contains(v.shown.String(), text) {
		n, err := v.master.Read(buffer)
		v.shown.Write(buffer[:n])
		if err != nil {
			v.t.Fatalf("%v before %q was shown: %q", err, text, v.shown.String())
		}
	}
	before, after, _ := strings.Cut(v.shown.String(), text)
	v.shown.Reset()
	v.shown.WriteString(after)
	return before + text
}

func (v *terminal) write(text string) {
	v.t.Helper()
	if _, err := v.master.WriteString(text); err != nil {
		v.t.Fatal(err)
	}
}

// On a terminal the view is a table that fits it and follows the broker; the interrupt key ends it and shows the cursor again.
func TestWatchOnATerminal(t *testing.T) {
	url := tcpURL(startBroker(t))
	c := other(t, url)
	cmd, v := onTerminal(t, "", "lease", "watch", "lease://r/**", "--url", url)
	v.until(hideCursor)
	v.until("0 held")
	taken := take(t, c, leased, "me")
	v.until("1 held")
	v.until(leased + "  me")
	for _, name := range []string{"lease://r/a/x", "lease://r/a/y", "lease://r/a/z"} {
		take(t, c, name, "me")
	}
	v.until("… and 2 more") // six rows
	give(t, taken)
	v.until("3 held")
	v.write("\x03")
	v.until(showCursor)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// A command that reads the terminal works, the interrupt key reaches it, and its status is that of fitz.
func TestCommandOnATerminal(t *testing.T) {
	url := tcpURL(startBroker(t))
	cmd, v := onTerminal(t, "echo", command(url, "--ttl", "30s")...)
	v.until("ready")
	v.write("hello\n")
	v.until(`read "hello\n"`)
	v.write("\x03")
	v.until("got 2")
	v.write("end\n")
	v.until(`read "end\n"`)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// On a terminal the demo is a table that is redrawn; the interrupt key ends it and shows the cursor again.
func TestDemoOnATerminal(t *testing.T) {
	cmd, v := onTerminal(t, "", "demo", "--url", tcpURL(startBroker(t)), "--round", "100ms", "--workers", "1", "--resources", "3", "--churn", "0")
	v.until(hideCursor)
	v.until("1 workers, 3 of 3 held, 3 to 3 each")
	v.until("RESOURCES")
	v.until("3  0 1 2")
	v.write("\x03")
	v.until(showCursor)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// Lines are cleared to their end and nothing scrolls.
func TestFrame(t *testing.T) {
	if got := frame([]string{"a", "b"}); got != "\x1b[Ha\x1b[K\r\nb\x1b[K\x1b[J" {
		t.Fatalf("%q", got)
	}
}
