// Command fitz-up runs a broker with something to look at: fitzd and the fleet of the demo, in the foreground.
//
// Its arguments go to fitzd. It ends everything that it started when it is interrupted, and when the broker ends by itself. A broker that
// is killed is started again at the same addresses, so that the fleet can be seen to come back.
//
// A worker that ends is told of, together with the command that starts another one, and not started again: what there is to see is that the
// others take over what it held. Whoever kills one worker after the other is left with those of the demo itself, and the fleet shares everything
// among them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// demoWorkers are the workers of the fleet that are processes of their own, to be killed.
var demoWorkers = []string{"ada", "grace", "linus"}

// demoArgs are the arguments of the demo that shows the fleet, and adds to it workers that come, go and are killed.
var demoArgs = []string{"demo", "--workers", "2", "--churn", "20s"}

// Times of the start and of an orderly end.
const (
	startTimeout = 15 * time.Second
	pollInterval = 20 * time.Millisecond
	drainTimeout = 2 * time.Second // then the broker is asked a second time, which ends its grace (W-37)
	killTimeout  = 5 * time.Second
)

// addresses is what fitzd writes once all its listeners accept.
type addresses struct {
	TCP   string `json:"tcp"`
	HTTP  string `json:"http"`
	Admin string `json:"admin"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
	}
	os.Exit(code)
}

// run returns the exit code of the command: that of fitzd when it ends by itself, 0 after an interrupt.
func run(ctx context.Context, brokerArgs []string, out io.Writer) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	bin := filepath.Dir(self)
	scratch, err := os.MkdirTemp("", "fitz-up-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(scratch)
	up := &stack{bin: bin, out: out, addressFile: filepath.Join(scratch, "addresses.json"), brokerArgs: brokerArgs}
	defer up.end()
	return up.run(ctx)
}

// stack is what runs.
type stack struct {
	bin, addressFile string
	out              io.Writer
	brokerArgs       []string
	at               addresses
	broker, demo     *process
	workers          []*process
}

// end ends everything, the broker last.
func (s *stack) end() {
	var ending sync.WaitGroup
	for _, p := range append(s.workers, s.demo) {
		if p != nil {
			ending.Go(p.end)
		}
	}
	ending.Wait()
	if s.broker != nil {
		s.broker.end()
	}
}

func (s *stack) run(ctx context.Context) (int, error) {
	if err := s.startBroker(ctx); err != nil {
		return s.broker.exitCode(1), err
	}
	for _, name := range demoWorkers {
		s.workers = append(s.workers, start(s.fitz("demo", "--worker", "--name", name, "--url", "fitz://"+s.at.TCP)))
	}
	s.describe()
	show := s.fitz(append(demoArgs[:len(demoArgs):len(demoArgs)], "--url", "fitz://"+s.at.TCP)...)
	show.Stdout = struct{ io.Writer }{s.out} // not a terminal, so that it prints lines below the description
	s.demo = start(show)
	return s.watch(ctx)
}

func (s *stack) fitz(args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(s.bin, "fitz"), args...)
}

// startBroker starts the broker, at the addresses that it had before, and waits until it accepts.
func (s *stack) startBroker(ctx context.Context) error {
	if err := os.Remove(s.addressFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	args := append([]string{"--addresses-file", s.addressFile}, s.brokerArgs...)
	for flag, address := range map[string]string{"--tcp": s.at.TCP, "--http": s.at.HTTP, "--admin": s.at.Admin} {
		if address != "" {
			args = append(args, flag, address)
		}
	}
	broker := exec.Command(filepath.Join(s.bin, "fitzd"), args...)
	broker.Stdout = os.Stderr
	s.broker = start(broker)
	at, err := waitForAddresses(ctx, s.addressFile, s.broker)
	if err != nil {
		return err
	}
	s.at = at
	return nil
}

// watch waits for an interrupt or for the end of the broker or of the demo, tells when a worker ends, and starts a broker again that was
// killed.
func (s *stack) watch(ctx context.Context) (int, error) {
	ended := make(chan int)
	var waiters sync.WaitGroup
	done := make(chan struct{})
	defer waiters.Wait()
	defer close(done)
	for i, worker := range s.workers {
		waiters.Go(func() {
			select {
			case <-worker.done:
			case <-done:
				return
			}
			select {
			case ended <- i:
			case <-done:
			}
		})
	}
	for {
		select {
		case <-ctx.Done():
			fmt.Fprintln(s.out, "stopping")
			return 0, nil
		case <-s.demo.done:
			return s.demo.exitCode(1), fmt.Errorf("the demo ended (%v)", s.demo.state())
		case i := <-ended:
			fmt.Fprintf(s.out, "up     worker %s ended (%v); start another one: %s demo --worker --name %s\n", demoWorkers[i], s.workers[i].state(), s.fitzName(), demoWorkers[i])
		case <-s.broker.done:
			if !s.broker.killed() {
				return s.broker.exitCode(1), errors.New("the broker ended")
			}
			fmt.Fprintf(s.out, "up     the broker ended (%v) and is started again\n", s.broker.state())
			if err := s.startBroker(ctx); err != nil {
				return s.broker.exitCode(1), err
			}
			fmt.Fprintf(s.out, "up     the broker runs again, process %d\n", s.broker.pid())
		}
	}
}

func waitForAddresses(ctx context.Context, file string, broker *process) (addresses, error) {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return addresses{}, errors.New("interrupted before the broker was ready")
		case <-broker.done:
			return addresses{}, errors.New("the broker did not start; its ports can be changed: ./task up -- --tcp localhost:5191 --http localhost:5190 --admin localhost:5192")
		case <-timeout.C:
			return addresses{}, fmt.Errorf("the broker was not ready within %v", startTimeout)
		case <-poll.C:
		}
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return addresses{}, err
		}
		var at addresses
		if err := json.Unmarshal(text, &at); err != nil {
			return addresses{}, fmt.Errorf("addresses of the broker: %w", err)
		}
		return at, nil
	}
}

// fitzName is the command line tool as people call it here.
func (s *stack) fitzName() string { return filepath.Join(filepath.Base(s.bin), "fitz") }

func (s *stack) describe() {
	fmt.Fprintf(s.out, `
The broker runs.
  TCP        fitz://%s
  WebSocket  ws://%s/ws
  admin      http://%s   (/healthz /readyz /metrics /v1/leases?family=1&selector=lease://**)

A fleet shares the leases lease://demo/fleet/... These of its workers are processes of their own:
`, s.at.TCP, s.at.HTTP, s.at.Admin)
	for i, name := range demoWorkers {
		fmt.Fprintf(s.out, "  %-6s process %d\n", name, s.workers[i].pid())
	}
	fmt.Fprintf(s.out, `
Look at it from another terminal:
  export FITZ_URL=fitz://%[1]s
  %[2]s demo --workers 0      # the fleet as a table
  %[2]s demo --worker         # one more worker
  %[2]s lease watch 'lease://**'
  %[2]s lease acquire lease://acme/renderers/1 -- sleep 5
  kill -9 %[3]d          # a worker dies and stays away; the others take what it held
  kill -9 %[4]d          # the broker dies and is started again; the fleet comes back

Ctrl-C stops everything. What happens in the fleet:
`, s.at.TCP, s.fitzName(), s.workers[0].pid(), s.broker.pid())
}

// process is one child in its own process group, so that a terminal's interrupt reaches only this command, which then ends them in order.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it ended or could not be started
	err  error         // valid after done
}

func start(cmd *exec.Cmd) *process {
	p := &process{cmd: cmd, done: make(chan struct{})}
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = ownGroup()
	if err := p.cmd.Start(); err != nil {
		p.err = err
		fmt.Fprintln(os.Stderr, "up:", err)
		close(p.done)
		return p
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p
}

func (p *process) pid() int {
	if p.cmd.Process == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// state describes an ended process.
func (p *process) state() string {
	if p.cmd.ProcessState == nil {
		return p.err.Error()
	}
	return p.cmd.ProcessState.String()
}

// killed reports whether a signal ended the process that it did not handle.
func (p *process) killed() bool {
	return p.cmd.ProcessState != nil && p.cmd.ProcessState.ExitCode() == -1
}

// exitCode is the exit code of an ended process, or other when it still runs, never ran or died of a signal.
func (p *process) exitCode(other int) int {
	select {
	case <-p.done:
	default:
		return other
	}
	if p.cmd.ProcessState == nil || p.cmd.ProcessState.ExitCode() <= 0 {
		return other
	}
	return p.cmd.ProcessState.ExitCode()
}

// end asks the process to end, asks again, and kills it; it returns when the process is gone.
func (p *process) end() {
	if p.cmd.Process == nil {
		return
	}
	steps := []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, drainTimeout}, {syscall.SIGTERM, killTimeout}, {syscall.SIGKILL, killTimeout}}
	for _, step := range steps {
		if p.exited(0) {
			return
		}
		_ = p.cmd.Process.Signal(step.signal) // it may have ended meanwhile
		if p.exited(step.wait) {
			return
		}
	}
}

func (p *process) exited(within time.Duration) bool {
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	default:
	}
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}
