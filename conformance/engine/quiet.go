package engine

import (
	"context"
	"errors"
	"time"

	"github.com/fitzwire/fitz/conformance/scenario"
)

// quietSpan is the real time without any movement after which the watcher looks whether a step waits in vain.
const quietSpan = 500 * time.Millisecond

// askingMax is the real time that everybody has to say that nothing is left to do. A case in which somebody does not is left to its budget.
const askingMax = 5 * time.Second

// errMissing is the cause of the context of a case that waits for what cannot come any more.
var errMissing = errors.New("nothing moves any more, and everybody answers that nothing is left to do")

// waits are the actions that wait for driver, broker or peers.
var waits = map[string]bool{
	"do": true, "join": true, "connect": true, "await": true, "event": true, "expect": true, "closed": true, "followed": true,
}

// watchQuiet returns a context that ends with errMissing as soon as a step waits for something that does not come: time is virtual and
// stands, nothing has moved for a while, and driver, links and brokers answer that they have no work left. Only then it is known that
// something is missing; whoever hangs does not answer and costs the budget. stop ends the watcher.
func (x *exec) watchQuiet(ctx context.Context) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(ctx)
	if !x.virtual() {
		return watched, func() { cancel(nil) }
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if x.awaitQuiet(watched) {
			cancel(errMissing)
		}
	}()
	return watched, func() {
		cancel(nil)
		<-ended
	}
}

// stand is where a case is: nothing has moved while it is equal.
type stand struct {
	step  *scenario.Step
	ticks uint64
}

func (x *exec) stand() stand {
	ticks := x.ticks()
	x.mu.Lock()
	defer x.mu.Unlock()
	return stand{x.current, ticks}
}

// awaitQuiet returns true when a step waits in vain, and false when ctx ends.
func (x *exec) awaitQuiet(ctx context.Context) bool {
	ticker := time.NewTicker(quietSpan)
	defer ticker.Stop()
	for last := x.stand(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
		now := x.stand()
		if now == last && x.inVain(ctx, now) {
			return true
		}
		last = now
	}
}

// inVain asks everybody whether there is anything left to do.
func (x *exec) inVain(ctx context.Context, at stand) bool {
	if at.step == nil || !waits[at.step.Action] || x.inBackground() {
		return false
	}
	asking, cancel := context.WithTimeout(ctx, askingMax)
	defer cancel()
	return x.settle(asking, "all") == nil && x.stand() == at
}

// besides counts the backgrounds that run.
func (x *exec) besides(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.beside += n
}

// inBackground tells whether steps run beside the one that waits: they take real time.
func (x *exec) inBackground() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.beside > 0
}
