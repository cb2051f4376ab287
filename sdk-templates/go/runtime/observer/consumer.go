package observer

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// Kind is what an event tells (OB-53).
type Kind uint8

// The kinds of events.
const (
	Reset       Kind = iota // the view is this snapshot, whatever was told before
	Added                   // After is held now
	Changed                 // Before is held by After now: another holder or another acquisition
	Removed                 // Before is not held any more
	BecameStale             // the view is kept, but it may be wrong from now on
	BecameFresh             // the view is current again as far as known
)

// Event is one step of a view. Applying all events since a reset to its snapshot gives the current view, apart from renewals (OB-54).
type Event[T any] struct {
	Kind          Kind
	Snapshot      *Snapshot[T] // Reset
	Before, After T            // Added, Changed, Removed
	Reason        Reason       // BecameStale
}

// Snapshot is an immutable view in segment order (OB-50).
type Snapshot[T any] struct {
	Version  uint64    // grows by 1 with every installation that changes an item (OB-51)
	Lifetime string    // of the broker; empty when it announces none
	TakenAt  time.Time // of the installation, wall clock
	Stale    bool

	view *view[T]
	at   time.Duration
	aged func(T, time.Duration) T
}

// Len returns the number of items.
func (s *Snapshot[T]) Len() int { return s.view.count }

// All yields the items in segment order. Remaining times are those at TakenAt (OB-52).
func (s *Snapshot[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		s.view.each(func(e *entry[T]) bool { return yield(s.aged(e.item, s.at-e.read)) })
	}
}

// Get returns the item of a route, false when there is none.
func (s *Snapshot[T]) Get(route string) (item T, ok bool) {
	e := s.view.get(route)
	if e == nil {
		return item, false
	}
	return s.aged(e.item, s.at-e.read), true
}

// Status is what an observer says about itself (OB-60).
type Status struct {
	State         State
	Reason        Reason
	Synced        bool // sticky
	Refreshing    bool // a pass or a repair runs
	Generation    uint64
	Lifetime      string
	LastSyncAt    time.Time // of the last completed full pass, wall clock
	LastError     error
	Passes        uint64 // completed full passes
	Repairs       uint64 // completed exact LISTs
	DriftFound    uint64
	Notifications uint64
	Dropped       uint64 // events that consumers lost, and notifications that the broker did not enqueue
}

// published is what readers see of the state of the task. It is replaced as a whole and never changed.
type published[T any] struct {
	sequence uint64       // of what was told to consumers
	snapshot *Snapshot[T] // nil before the first installation
	status   Status
	cause    error // of failed and closed
}

// publish lets readers see the state of the task.
func (o *Observer[T]) publish() {
	p := &published[T]{sequence: o.sequence, cause: o.cause, status: Status{
		State: o.state, Reason: o.reason, Synced: o.synced,
		Refreshing: o.pass != nil || o.rounds > 0 || len(o.failed) > 0,
		Generation: o.generation, Lifetime: o.lifetimeNow(),
		LastSyncAt: o.lastSync, LastError: o.lastError,
		Passes: o.passes, Repairs: o.repairs, DriftFound: o.drift,
	}}
	old := o.published.Load()
	if o.synced {
		p.snapshot = &Snapshot[T]{
			Version: o.version, Lifetime: o.lifetime, TakenAt: o.takenAt, Stale: o.flagged,
			view: o.view, at: o.takenTime, aged: o.items.Aged}
	}
	if old != nil && old.snapshot != nil && p.snapshot != nil && old.snapshot.view == o.view &&
		old.snapshot.Stale == o.flagged && old.snapshot.at == o.takenTime {
		p.snapshot = old.snapshot
	}
	o.published.Store(p)
}

// tell gives events to every consumer, after readers can see what they lead to.
func (o *Observer[T]) tell(events ...Event[T]) {
	o.sequence++
	o.publish()
	o.dropped.Add(o.consumers.tell(o.sequence, events))
}

// ErrConsumers says that an observer has as many consumers as it may have.
var ErrConsumers = errors.New("too many consumers of one observer")

// consumers are the readers of events.
type consumers[T any] struct {
	mu    sync.Mutex
	limit int
	all   map[*Consumer[T]]struct{}
	over  bool
	cause error
}

func (s *consumers[T]) tell(sequence uint64, events []Event[T]) (lost uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		lost += c.put(sequence, events)
	}
	return lost
}

// end ends every consumer, and those that come later. What they have not read can still be read.
func (s *consumers[T]) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.cause = true, cause
	for c := range s.all {
		c.finish(cause)
	}
}

// Consumer reads the events of an observer. It must be closed. Its methods are for one goroutine.
type Consumer[T any] struct {
	observer *Observer[T]
	wake     chan struct{}

	mu    sync.Mutex
	queue []Event[T]
	next  int // of queue
	// behind says that the queue is worth nothing: the next read gets a reset with the then current snapshot. It is so at the beginning and
	// after an overflow (OB-55, OB-56).
	behind   bool
	overflow bool
	seen     uint64 // sequence of the published state that the last reset stood for
	over     bool
	cause    error
}

// Consume adds a consumer. The error is ErrConsumers.
func (o *Observer[T]) Consume() (*Consumer[T], error) {
	c := &Consumer[T]{observer: o, wake: make(chan struct{}, 1), behind: true}
	s := &o.consumers
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		c.over, c.cause = true, s.cause
		return c, nil
	}
	if len(s.all) >= s.limit {
		return nil, ErrConsumers
	}
	if s.all == nil {
		s.all = map[*Consumer[T]]struct{}{}
	}
	s.all[c] = struct{}{}
	return c, nil
}

// Close removes the consumer.
func (c *Consumer[T]) Close() {
	s := &c.observer.consumers
	s.mu.Lock()
	delete(s.all, c)
	s.mu.Unlock()
	c.finish(nil)
}

func (c *Consumer[T]) finish(cause error) {
	c.mu.Lock()
	if !c.over {
		c.over, c.cause = true, cause
	}
	c.mu.Unlock()
	signal(c.wake)
}

// put queues events that lead to the published state with that sequence. It returns how many were lost.
func (c *Consumer[T]) put(sequence uint64, events []Event[T]) (lost uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer signal(c.wake)
	switch {
	case sequence <= c.seen: // part of the last reset
		return 0
	case c.behind && !c.overflow:
		return 0 // it has not begun
	case c.behind:
		return uint64(len(events))
	case len(c.queue)-c.next+len(events) <= c.observer.options.ChangeBuffer:
		c.queue = append(c.queue, events...)
		return 0
	}
	lost = uint64(len(c.queue) - c.next + len(events))
	if mutant.On("observer.overflow-silent") {
		return 0
	}
	c.queue, c.next = nil, 0
	c.behind, c.overflow = true, true
	return lost
}

// Next waits for the next event. ok is false at the end: err is then the error of ctx, or why the observer ended, nil when the
// application closed it. A wait that ctx ends consumes nothing.
func (c *Consumer[T]) Next(ctx context.Context) (event Event[T], ok bool, err error) {
	for {
		if event, ok := c.take(); ok {
			return event, true, nil
		}
		c.mu.Lock()
		over, cause := c.over, c.cause
		c.mu.Unlock()
		if over {
			if event, ok := c.take(); ok { // it was told just before the end
				return event, true, nil
			}
			return event, false, cause
		}
		select {
		case <-c.wake:
		case <-ctx.Done():
			return event, false, context.Cause(ctx)
		}
	}
}

// take returns the next event if there is one.
func (c *Consumer[T]) take() (event Event[T], ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.behind {
		c.catchUp()
	}
	if c.next == len(c.queue) {
		return event, false
	}
	event = c.queue[c.next]
	c.queue[c.next] = Event[T]{}
	if c.next++; c.next == len(c.queue) {
		c.queue, c.next = c.queue[:0], 0
	}
	return event, true
}

// catchUp replaces what was lost by a reset, preceded by stale after an overflow of a stale view.
func (c *Consumer[T]) catchUp() {
	now := c.observer.published.Load()
	if now.snapshot == nil {
		return
	}
	if c.overflow && now.snapshot.Stale {
		c.queue = append(c.queue, Event[T]{Kind: BecameStale, Reason: now.status.Reason})
	}
	c.queue = append(c.queue, Event[T]{Kind: Reset, Snapshot: now.snapshot})
	c.seen = now.sequence
	c.behind, c.overflow = false, false
}

// Buffered returns how many events consumers have not read yet.
func (o *Observer[T]) Buffered() int {
	s := &o.consumers
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.all {
		n += c.buffered()
	}
	return n
}

func (c *Consumer[T]) buffered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) - c.next
}
