package port

import (
	"sync/atomic"
	"time"
)

// Counted is a clock that knows how many of its calls are pending.
type Counted struct {
	Clock
	pending atomic.Int64
}

// NewCounted returns a clock that counts what is asked of another one.
func NewCounted(c Clock) *Counted { return &Counted{Clock: c} }

// AfterFunc implements Clock.
func (c *Counted) AfterFunc(d time.Duration, f func()) Timer {
	c.pending.Add(1)
	return countedTimer{c, c.Clock.AfterFunc(d, func() {
		c.pending.Add(-1)
		f()
	})}
}

// Pending returns the number of calls that have neither begun nor been stopped.
func (c *Counted) Pending() int { return int(c.pending.Load()) }

type countedTimer struct {
	clock *Counted
	timer Timer
}

func (t countedTimer) Stop() bool {
	stopped := t.timer.Stop()
	if stopped {
		t.clock.pending.Add(-1)
	}
	return stopped
}
