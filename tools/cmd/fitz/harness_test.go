//go:build unix

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/job"
)

// The test binary is fitz itself, or a command that fitz runs, when one of these is set.
const (
	mainEnv = "FITZ_TEST_MAIN"
	roleEnv = "FITZ_TEST_ROLE"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" && os.Getenv(mainEnv) == "" {
		play(role)
		return
	}
	if os.Getenv(mainEnv) != "" {
		_ = os.Unsetenv(mainEnv) // the command that fitz runs is not fitz
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// play is what a command does that fitz runs. Each announces on stdout that it runs.
func play(role string) {
	word, arg, _ := strings.Cut(role, ":")
	fmt.Println("ready", os.Getpid())
	switch word {
	case "exit":
		code, _ := strconv.Atoi(arg)
		os.Exit(code)
	case "env":
		for _, name := range []string{"FITZ_ROUTE", "FITZ_FENCING_TOKEN", "FITZ_OWNER_ID"} {
			fmt.Println(name, os.Getenv(name))
		}
	case "signals": // prints the signals that it gets
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, job.Forwarded...)
		fmt.Println("listening")
		for s := range signals {
			fmt.Println("got", job.SignalNumber(s))
		}
	case "stubborn": // prints the signals that it gets, too, and has a child that does the same
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), roleEnv+"=signals")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			os.Exit(1)
		}
		play("signals")
	case "echo": // reads lines from the terminal
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, os.Interrupt)
		go func() {
			for s := range signals {
				fmt.Println("got", job.SignalNumber(s))
			}
		}()
		for lines, line := bufio.NewReader(os.Stdin), ""; line != "end\n"; {
			line, _ = lines.ReadString('\n')
			fmt.Printf("read %q\n", line)
		}
	case "wait": // an empty select would be ended by the runtime, which sees that nothing can wake it
		for {
			time.Sleep(time.Hour)
		}
	}
}

// fitzEnv is the environment of a fitz that a test starts, with a role for the command that it may run.
func fitzEnv(role string) []string {
	const noPause = "GORACE=atexit_sleep_ms=0" // of the race detector, before every exit
	return append(os.Environ(), noPause, mainEnv+"=1", roleEnv+"="+role)
}

// startBroker runs a broker on free ports until the test ends.
func startBroker(t *testing.T, args ...string) *broker.Broker {
	t.Helper()
	args = append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)
	c, _, err := config.Load(args, func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func tcpURL(b *broker.Broker) string       { return "fitz://" + b.Addresses()["tcp"] }
func webSocketURL(b *broker.Broker) string { return "ws://" + b.Addresses()["http"] + "/ws" }

// eachTransport runs a test with a broker over TCP and WebSocket.
func eachTransport(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("tcp", func(t *testing.T) { test(t, tcpURL(startBroker(t))) })
	t.Run("websocket", func(t *testing.T) { test(t, webSocketURL(startBroker(t))) })
}

// other is another client of the same broker.
func other(t *testing.T, url string) *fitz.LeaseClient {
	t.Helper()
	c, err := fitz.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.Lease()
}

// take acquires a lease, and waits for it if it must.
func take(t *testing.T, c *fitz.LeaseClient, route, owner string) *fitz.Lease {
	t.Helper()
	lease, err := c.Acquire(t.Context(), route, time.Minute, &fitz.AcquireOptions{OwnerID: owner})
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func give(t *testing.T, lease *fitz.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func query(t *testing.T, c *fitz.LeaseClient, route string) fitz.LeaseInfo {
	t.Helper()
	info, err := c.Query(t.Context(), route)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// process is a running fitz.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Scanner
	stderr *strings.Builder
	closed sync.WaitGroup
	ended  bool
}

// runFitz starts fitz with a role for the command that it may run.
func runFitz(t *testing.T, role string, args ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = fitzEnv(role)
	return startProcess(t, cmd)
}

func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, stderr: &strings.Builder{}}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errPipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewScanner(out)
	p.closed.Go(func() { _, _ = io.Copy(p.stderr, errPipe) })
	t.Cleanup(func() {
		if !p.ended {
			_ = cmd.Process.Kill()
			p.wait()
		}
	})
	return p
}

// line reads the standard output up to a line with that beginning.
func (p *process) line(prefix string) string {
	p.t.Helper()
	for p.stdout.Scan() {
		if strings.HasPrefix(p.stdout.Text(), prefix) {
			return p.stdout.Text()
		}
	}
	p.t.Fatalf("output ended before %q; stderr: %s", prefix, p.errors())
	return ""
}

func (p *process) errors() string {
	p.closed.Wait()
	return p.stderr.String()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// rest reads the output to its end.
func (p *process) rest() []string {
	var lines []string
	for p.stdout.Scan() {
		lines = append(lines, p.stdout.Text())
	}
	return lines
}

// wait reads the output to its end and returns the exit code, -1 when a signal ended the process.
func (p *process) wait() int {
	p.rest()
	p.closed.Wait()
	_ = p.cmd.Wait()
	p.ended = true
	return p.cmd.ProcessState.ExitCode()
}

// expectExit waits for the process.
func (p *process) expectExit(code int) {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Fatalf("exit code %d, want %d; stderr: %s", got, code, p.stderr)
	}
}

// proxy stands between fitz and a broker.
type proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu       sync.Mutex
	conns    []net.Conn
	accepted int
	frozen   chan struct{} // closed: nothing is passed on any more
	thawed   chan struct{}
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target, frozen: make(chan struct{}), thawed: make(chan struct{})}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		close(p.thawed)
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) url() string { return "fitz://" + p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		far, err := net.Dial("tcp", target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.accepted++
		p.conns = append(p.conns, near, far)
		p.mu.Unlock()
		p.running.Go(func() { p.copy(near, far) })
		p.running.Go(func() { p.copy(far, near) })
	}
}

func (p *proxy) copy(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		select {
		case <-p.frozen:
			<-p.thawed
			return
		default:
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// freeze stops passing anything on; the connections stay open.
func (p *proxy) freeze() { close(p.frozen) }

// cut closes every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// soon fails a test that hangs. It is far more than a busy machine needs.
const soon = 2 * time.Minute

// retarget sends later connections to another broker.
func (p *proxy) retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}
