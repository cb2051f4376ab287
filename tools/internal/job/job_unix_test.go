//go:build unix

package job

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is its own helper: with this variable set it plays a role instead of running tests.
const roleEnv = "FITZ_JOB_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		play(role)
		return
	}
	os.Exit(m.Run())
}

// play is what the helper does. It announces on stdout that it is ready.
func play(role string) {
	word, arg, _ := strings.Cut(role, ":")
	switch word {
	case "exit":
		code, _ := strconv.Atoi(arg)
		os.Exit(code)
	case "signals": // prints the signals that it gets, until stdin ends
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, Forwarded...)
		fmt.Println("ready")
		for s := range signals {
			fmt.Println(SignalNumber(s.(unix.Signal)))
		}
	case "stubborn": // ignores everything that can be ignored
		signal.Ignore(unix.SIGTERM, unix.SIGINT)
		fmt.Println("ready")
		forever()
	case "family": // starts a child in its group and ends or waits
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), roleEnv+"=stubborn")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			os.Exit(1)
		}
		if arg == "wait" {
			forever()
		}
	case "parent": // runs a command with this package and waits
		mustStart("stubborn", os.Stdout)
		forever()
	case "read": // reads a line from the terminal
		fmt.Println("reading")
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("read %q %v\n", line, err)
	case "shell":
		playShell()
	case "terminal": // runs a reader with this package on the terminal, then reads itself
		j := mustStart("read", os.Stdout)
		status := j.Wait()
		line, err := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("status %d, then %q %v\n", status.ExitCode(), line, err)
	}
}

// forever blocks. An empty select would not do: a process whose goroutines all wait for each other is ended by the runtime, so the
// tests would see a helper die by itself that they believe to have killed.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// playShell does for the role "terminal" what a shell does when a job is stopped and continued from the terminal.
func playShell() {
	signal.Ignore(unix.SIGTTOU)
	job := exec.Command(os.Args[0])
	job.Env, job.Stdin, job.Stdout, job.Stderr = environ("terminal"), os.Stdin, os.Stdout, os.Stderr
	job.SysProcAttr = &unix.SysProcAttr{Foreground: true, Ctty: 0}
	if err := job.Start(); err != nil {
		fmt.Println("start:", err)
		return
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(job.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
		fmt.Println("not stopped", status, err)
		return
	}
	group, _ := foreground(0)
	fmt.Println("stopped, terminal back:", group == job.Process.Pid)
	_ = setForeground(0, job.Process.Pid)
	_ = unix.Kill(-job.Process.Pid, unix.SIGCONT)
	_ = job.Wait()
}

// environ is the environment of a process that plays a role, without the pause of the race detector before every exit.
func environ(role string) []string {
	return append(os.Environ(), "GORACE=atexit_sleep_ms=0", roleEnv+"="+role)
}

func mustStart(role string, stdout *os.File) *Job {
	j, err := Start(Options{Argv: []string{os.Args[0]}, Env: environ(role), Stdin: os.Stdin, Stdout: stdout, Stderr: os.Stderr})
	if err != nil {
		panic(err)
	}
	return j
}

// start runs a role and returns its output.
func start(t *testing.T, role string) (*Job, *bufio.Scanner) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	j, err := Start(Options{Argv: []string{os.Args[0]}, Env: environ(role), Stdout: w, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	t.Cleanup(func() {
		_ = j.Kill()
		j.Wait()
		_ = r.Close()
	})
	return j, bufio.NewScanner(r)
}

func expect(t *testing.T, lines *bufio.Scanner, want string) string {
	t.Helper()
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), want) {
			return lines.Text()
		}
	}
	t.Fatalf("output ended before %q", want)
	return ""
}

func TestExitStatus(t *testing.T) {
	for _, code := range []int{0, 1, 42, 255} {
		j, _ := start(t, "exit:"+strconv.Itoa(code))
		if got := j.Wait(); got.ExitCode() != code || got.Signal != nil {
			t.Errorf("got %+v, want %d", got, code)
		}
		j.Wait() // again
	}
}

func TestEndBySignal(t *testing.T) {
	j, lines := start(t, "stubborn")
	expect(t, lines, "ready")
	if err := j.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := j.Wait(); got.Signal != unix.SIGKILL || got.ExitCode() != 137 {
		t.Fatalf("got %+v", got)
	}
	if err := j.Signal(unix.SIGTERM); err != nil {
		t.Fatalf("signal to a group that ended: %v", err)
	}
}

func TestStartFails(t *testing.T) {
	if _, err := Start(Options{Argv: []string{"/nonexistent/command"}}); err == nil {
		t.Fatal("started")
	}
}

func TestEverySignalArrives(t *testing.T) {
	j, lines := start(t, "signals")
	expect(t, lines, "ready")
	for _, s := range Forwarded {
		if err := j.Signal(s); err != nil {
			t.Fatal(err)
		}
		expect(t, lines, strconv.Itoa(SignalNumber(s)))
	}
}

// A signal reaches everything that the command started, also when the command itself has ended already.
func TestGroupIsKilled(t *testing.T) {
	for _, role := range []string{"family:wait", "family:end"} {
		j, lines := start(t, role)
		expect(t, lines, "ready") // says the child
		if role == "family:end" {
			<-j.Exited()
		}
		if err := j.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // the output ends when the last process that has it open is gone
		}
		j.Wait()
	}
}

// A stopped command gets its SIGTERM, too.
func TestTerminateContinues(t *testing.T) {
	j, lines := start(t, "signals")
	expect(t, lines, "ready")
	if err := j.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := j.Terminate(); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, strconv.Itoa(int(unix.SIGTERM)))
}

// parent starts the helper that runs a command, outside this package's control, and returns what both print.
func parent(t *testing.T) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := exec.Command(os.Args[0])
	p.Env, p.Stdout, p.Stderr = environ("parent"), w, os.Stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	t.Cleanup(func() { _ = r.Close() })
	return p, bufio.NewScanner(r)
}

// On Linux the command dies with this process, even if that is killed with SIGKILL.
func TestCommandDiesWithItsParent(t *testing.T) {
	if !KilledWithParent {
		t.Log("this platform has no death signal; the command survives, which the help says")
		return
	}
	p, lines := parent(t)
	expect(t, lines, "ready") // says the command
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	ended := make(chan struct{})
	go func() { // the output ends when the command is gone
		for lines.Scan() {
		}
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("the command survived")
	}
}
