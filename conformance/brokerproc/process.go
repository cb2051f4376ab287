package brokerproc

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// process is a running command and its process group.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the command has ended
	err  error         // how it ended; valid once done is closed
}

// drainTime is how long the output of a process is waited for that has ended, while others hold its pipes.
const drainTime = 200 * time.Millisecond

// run starts a command in a process group of its own.
func run(cmd *exec.Cmd) (*process, error) {
	separate(cmd)
	cmd.WaitDelay = drainTime
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
		killGroup(cmd) // what the command has started and left
	}()
	return p, nil
}

// awaitEnd waits for the end. False: it has not ended in that time, or before ctx.
func (p *process) awaitEnd(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	}
}

// kill ends the whole process group and waits until the command has ended.
func (p *process) kill() {
	select {
	case <-p.done:
	default:
		killGroup(p.cmd)
		<-p.done
	}
}

// tail keeps the last bytes that were written to it. It is safe for concurrent use.
type tail struct {
	mu      sync.Mutex
	max     int
	kept    []byte
	dropped int64
}

func newTail(max int) *tail { return &tail{max: max} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.max; over > 0 {
		t.dropped += int64(over)
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped > 0 {
		return fmt.Sprintf("[%d bytes before]\n%s", t.dropped, t.kept)
	}
	return string(t.kept)
}
