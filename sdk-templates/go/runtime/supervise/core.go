package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// Core is one client. All methods may be called from any goroutine.
type Core struct {
	options Options
	limits  link.Limits

	closing chan struct{} // Close was called, or no session can be opened any more
	once    sync.Once
	ended   chan struct{}      // the supervisor has ended
	tasks   sync.WaitGroup     // background
	life    context.Context    // of everything in the background
	stop    context.CancelFunc // ends life

	refusals refusals      // of whoever opens sessions
	cached   *string       // the last token, of whoever opens sessions; nil before the first
	asking   chan struct{} // holds something while the token source runs

	mu           sync.Mutex
	status       Status
	readers      map[*statusReader]struct{}
	current      *Session // for new calls; nil while there is none
	changed      chan struct{}
	closed       error // why nothing will ever work again
	waiting      int   // calls without a session
	waitingBytes int64
	stopped      bool       // no background task may begin
	latest       *Session   // that is open, also when it takes no new calls
	past         link.Stats // counters of the sessions before

	eventMu   sync.Mutex // orders events with the coming of listeners
	listeners []*listener
	opened    *SessionEvent // of the current session
}

type listener struct{ f func(SessionEvent) }

// SessionEvent says that a session was opened or lost.
type SessionEvent struct {
	Opened     bool
	Session    *Session
	Generation uint64 // number of the session, counted from 1
	Lifetime   Lifetime
	Known      bool // the peer has said its Lifetime
	// Restarted says of an opened session that the peer may be another process than that of the session before: it has another lifetime,
	// or does not say (C-61). False for the first session.
	Restarted bool
	Reason    error // of a lost session
}

// Connect opens the first session and supervises from then on. The error is that of ctx, or an *link.Error: as of link.Dial, or Refused when
// Options.Token has failed.
func Connect(ctx context.Context, o Options) (*Core, error) {
	c := &Core{
		options: o, limits: o.Limits.WithDefaults(o.Protocol.Limits), closing: make(chan struct{}), ended: make(chan struct{}), changed: make(chan struct{}),
		readers: map[*statusReader]struct{}{}, asking: make(chan struct{}, 1),
	}
	c.life, c.stop = context.WithCancel(context.Background())
	c.limits.CloseTimeout /= 4 // of the session; as much again is for the tasks, and half is for what must be told to the peer before
	first, err := c.dial(ctx)
	if err != nil {
		c.stop()
		return nil, err
	}
	c.open(first, nil)
	go c.run(first)
	return c, nil
}

// run keeps a session until Close, or until no new one can be opened.
func (c *Core) run(s *Session) {
	defer close(c.ended)
	attempt := 0
	for {
		since := c.options.Clock.Now()
		reason := c.watch(s)
		if c.options.Clock.Now()-since >= c.options.ResetAfter {
			attempt = 0
		}
		c.lose(s, reason)  // before anything that may take its time
		_ = s.conn.Close() // why it ended is known
		next, err := c.redial(&attempt)
		if err != nil {
			c.end(err)
			return
		}
		c.open(next, s)
		s = next
	}
}

// watch waits until the session has ended or should end, and returns why.
func (c *Core) watch(s *Session) error {
	var leave error
	select {
	case <-s.Done():
	case <-c.closing:
		leave = errClosed()
	case p := <-s.leaving:
		leave = c.drain(s, p)
	}
	if leave == nil {
		leave = s.conn.Err()
	}
	return leave
}

// drain finishes what is running and leaves after a random part of the first half of the grace, so that not all clients come at once
// (W-67). Nil: the session has ended by itself.
func (c *Core) drain(s *Session, p Push) error {
	reason := &link.Error{Kind: link.Lost, Reason: "the peer is leaving: " + p.Reason}
	c.mu.Lock()
	status := c.status
	status.State, status.Reason = Draining, reason
	c.setStatus(status)
	c.mu.Unlock()

	passed := make(chan struct{})
	timer := c.options.Clock.AfterFunc(time.Duration(c.options.Rand()*float64(p.Grace)/2), func() { close(passed) })
	defer timer.Stop()
	select {
	case <-passed:
	case <-s.Done():
		return nil
	case <-c.closing:
		return errClosed()
	}
	c.retire()
	select {
	case <-s.quiet():
		return reason
	case <-s.Done():
		return nil
	case <-c.closing:
		return errClosed()
	}
}

// retire gives the current session no new calls.
func (c *Core) retire() {
	c.mu.Lock()
	c.current = nil
	c.mu.Unlock()
}

// lose tells everybody that the session has ended.
func (c *Core) lose(s *Session, reason error) {
	c.mu.Lock()
	c.current = nil
	c.retireStats(s)
	if !link.IsKind(reason, link.Closed) {
		c.setStatus(Status{State: Reconnecting, Reason: reason, Generation: s.generation})
	}
	c.mu.Unlock()
	e := End{Reason: EndDisconnected, Err: reason}
	if link.IsKind(reason, link.Closed) {
		e.Reason = EndClosed
	}
	s.endAll(e)
	c.tell(SessionEvent{Session: s, Generation: s.generation, Reason: reason})
	c.options.Hooks.Tell(port.Event{Name: c.options.Names.Lost, Err: reason})
}

// open makes a session the current one and tells everybody.
func (c *Core) open(s, before *Session) {
	lifetime, known := c.lifetime(s)
	e := SessionEvent{Opened: true, Session: s, Generation: s.generation, Lifetime: lifetime, Known: known}
	if before != nil {
		earlier, knew := c.lifetime(before)
		e.Restarted = !known || !knew || earlier.ID != lifetime.ID
	}
	c.mu.Lock()
	c.current, c.latest = s, s
	c.setStatus(Status{State: Ready, Generation: s.generation, Lifetime: lifetime, Known: known})
	c.wake()
	c.mu.Unlock()
	c.tell(e)
	c.options.Hooks.Tell(port.Event{Name: c.options.Names.Connected, Count: s.generation})
}

func (c *Core) lifetime(s *Session) (Lifetime, bool) {
	hello, ok := s.Hello()
	if !ok {
		return Lifetime{}, false
	}
	return c.options.Lifetime(hello)
}

// wake lets calls that wait for a session look again. c.mu is held.
func (c *Core) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// OnSession calls f for the current session, if there is one, and then for every session that is opened or lost, one call at a time. f must
// return at once and must not call stop. After stop has returned f is not called any more.
func (c *Core) OnSession(f func(SessionEvent)) (stop func()) {
	l := &listener{f}
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	c.listeners = append(c.listeners, l)
	if c.opened != nil {
		e := *c.opened
		e.Restarted = false // f knows of no session before
		f(e)
	}
	return func() {
		c.eventMu.Lock()
		defer c.eventMu.Unlock()
		kept := make([]*listener, 0, len(c.listeners))
		for _, other := range c.listeners {
			if other != l {
				kept = append(kept, other)
			}
		}
		c.listeners = kept
	}
}

// tell calls every listener in the order in which they came.
func (c *Core) tell(e SessionEvent) {
	c.eventMu.Lock()
	defer c.eventMu.Unlock()
	c.opened = nil
	if e.Opened {
		c.opened = &e
	}
	for _, l := range c.listeners {
		l.f(e)
	}
}

// Background runs a task that Close cancels and waits for, within the request timeout. It never waits.
func (c *Core) Background(f func(context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.tasks.Go(func() {
		ctx, cancel := port.WithTimeout(c.life, c.options.Clock, c.limits.Request, context.DeadlineExceeded)
		defer cancel()
		f(ctx)
	})
}

// end makes the client one that never works again.
func (c *Core) end(reason error) {
	c.mu.Lock()
	if c.closed == nil {
		c.closed = reason
	}
	c.setStatus(Status{State: Closed, Reason: c.closed, Generation: c.status.Generation})
	c.wake()
	c.stopped = true
	c.mu.Unlock()
	c.stop()
}

// Done returns a channel that is closed when the client has ended, by Close or because the peer refuses its token.
func (c *Core) Done() <-chan struct{} { return c.ended }

// Err returns why nothing will work any more, nil while it may.
func (c *Core) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Drain lets no new call begin and waits until the running ones have ended, at most until ctx ends, whose error it then returns. What belongs to
// the session goes on until Close. Calls that wait for a session fail as after Close.
func (c *Core) Drain(ctx context.Context) error {
	c.mu.Lock()
	s := c.current
	if c.closed == nil {
		c.closed = errClosed()
		status := c.status
		status.State = Draining
		c.setStatus(status)
	}
	c.wake()
	c.mu.Unlock()
	if s == nil {
		return nil
	}
	select {
	case <-s.quiet():
		return nil
	case <-s.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the session and everything in the background, within the close timeout. It is idempotent; calls that are running fail.
func (c *Core) Close() error {
	c.mu.Lock()
	if c.closed == nil {
		c.closed = errClosed()
	}
	c.mu.Unlock()
	c.once.Do(func() { close(c.closing) })
	c.stop()
	finished := make(chan struct{})
	go func() {
		<-c.ended
		c.tasks.Wait()
		close(finished)
	}()
	late := make(chan struct{})
	timer := c.options.Clock.AfterFunc(2*c.limits.CloseTimeout, func() { close(late) })
	defer timer.Stop()
	select {
	case <-finished:
		return nil
	case <-late:
		return &link.Error{Kind: link.Timeout, Reason: "the client did not end in time"}
	}
}
