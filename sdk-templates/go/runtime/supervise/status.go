package supervise

import (
	"context"
	"iter"
)

// State is what the connection of a client looks like from the outside.
type State uint8

// The states.
const (
	Connecting   State = iota // the first session is being opened
	Ready                     // there is a session
	Reconnecting              // there is none, another one is being opened
	Draining                  // the peer has announced the end of the session, which still works, or Drain was called
	Closed                    // there never will be one again
)

// Status is the state of a client at one moment.
type Status struct {
	State      State
	Reason     error  // why, nil when Connecting or Ready
	Generation uint64 // number of sessions so far, the current one included
	Lifetime   Lifetime
	Known      bool   // the peer has said its Lifetime
	Missed     uint64 // how many changes the reader has missed before this one, because it was behind
}

// statusReader is one reader of the status stream. It keeps the newest changes and counts the others.
type statusReader struct {
	queue  []Status
	missed uint64
	wake   chan struct{}
}

// Status returns the current state.
func (c *Core) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// StatusChanges yields the current state and then every change, until ctx ends or the state is Closed. A reader that falls behind misses
// the oldest changes and is told how many.
func (c *Core) StatusChanges(ctx context.Context) iter.Seq[Status] {
	return func(yield func(Status) bool) {
		r := &statusReader{wake: make(chan struct{}, 1)}
		c.mu.Lock()
		r.queue = append(r.queue, c.status)
		c.readers[r] = struct{}{}
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			delete(c.readers, r)
			c.mu.Unlock()
		}()
		for {
			s, ok := c.nextStatus(ctx, r)
			if !ok || !yield(s) || s.State == Closed {
				return
			}
		}
	}
}

func (c *Core) nextStatus(ctx context.Context, r *statusReader) (Status, bool) {
	for {
		c.mu.Lock()
		if len(r.queue) > 0 {
			s := r.queue[0]
			r.queue = r.queue[1:]
			s.Missed, r.missed = r.missed, 0
			c.mu.Unlock()
			return s, true
		}
		c.mu.Unlock()
		select {
		case <-r.wake:
		case <-ctx.Done():
			return Status{}, false
		}
	}
}

// setStatus changes the state and tells every reader. c.mu is held.
func (c *Core) setStatus(s Status) {
	c.status = s
	for r := range c.readers {
		if len(r.queue) >= c.options.StatusEvents {
			r.queue = r.queue[1:]
			r.missed++
		}
		r.queue = append(r.queue, s)
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}
