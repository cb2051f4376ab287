package observer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// passRepeats is how many full passes in a row may end with more dirty routes than one repair round takes before these are repaired in
// rounds (OB-14), and how often in a row a lost cursor starts a pass again without delay (OB-16).
const passRepeats = 3

// stalePasses is how many reconcile intervals without a completed pass make a view stale (OB-36).
const stalePasses = 3

// Observer keeps one view. Its task runs from New until Close.
type Observer[T any] struct {
	ports   Ports
	items   Items[T]
	options Options
	limits  Limits

	box       mailbox
	inbox     *inbox
	consumers consumers[T]
	published atomic.Pointer[published[T]] // what readers see
	dropped   atomic.Uint64                // OB-60
	firstSync chan struct{}                // closed by the first installation
	ended     chan struct{}                // closed by failed and closed
	done      chan struct{}                // closed when the task has ended

	// Everything below belongs to the task.
	state      State
	reason     Reason
	synced     bool  // sticky
	flagged    bool  // the view is stale, and consumers were told
	cause      error // why the observer has failed or was closed
	lastError  error
	generation uint64
	scope      context.Context // of the requests of this generation
	cancel     context.CancelFunc
	requests   int // I/O goroutines that have not reported

	session      Session[T]   // nil while there is none
	known        string       // lifetime of the last session that announced one
	registration Registration // nil: none, or it is being asked for
	subscribing  bool
	leave        []Registration // to be left before the next SUBSCRIBE
	gapsInVain   int            // gaps of a living session since the last installation

	order     uint64 // send order of the last LIST (OB-28)
	view      *view[T]
	version   uint64
	lifetime  string // of the session in which the last pass was made
	lastSync  time.Time
	takenAt   time.Time
	takenTime time.Duration
	sequence  uint64

	pass           *pass[T]
	begun          uint64 // passes whose first LIST was sent
	passes         uint64
	drift          uint64
	repeats        int // passes in a row that ended with too many dirty routes
	hadStorm       bool
	stormEnd       time.Duration // when the last pass of OB-23 was installed
	cursorsLost    int           // in a row
	passFailures   int           // in a row
	waiters        []refreshWaiter
	subscribeTries int // failed, in a row

	repairs        uint64
	inFlight       map[string]*repair[T]
	jobs           []*repair[T] // to be sent
	rounds         int          // not installed
	failed         map[string]struct{}
	repairFailures int  // in a row
	postponed      bool // a round waits for room

	coalesce    alarm // first dirty route, OB-44
	periodic    alarm // OB-41
	staleAfter  alarm // OB-36
	passRetry   alarm // a pass that waits for its start
	repairRetry alarm
	subRetry    alarm
}

// New starts an observer in state starting, without waiting for anything (OB-01). The options are complete.
func New[T any](ports Ports, items Items[T], options Options, limits Limits) *Observer[T] {
	o := &Observer[T]{
		ports: ports, items: items, options: options, limits: limits,
		box:        mailbox{wake: make(chan struct{}, 1)},
		inbox:      newInbox(limits.Dirty, options.MaxItems),
		firstSync:  make(chan struct{}),
		ended:      make(chan struct{}),
		done:       make(chan struct{}),
		generation: 1,
		inFlight:   map[string]*repair[T]{},
		failed:     map[string]struct{}{},
	}
	o.consumers.limit = limits.Consumers
	o.scope, o.cancel = context.WithCancel(context.Background())
	o.publish()
	go o.run()
	return o
}

// mailbox holds what the task has to do, in order. It grows with what is outstanding: requests, timers, calls of the API and sessions; a
// registration posts at most once.
type mailbox struct {
	mu    sync.Mutex
	queue []func()
	wake  chan struct{}
}

func (b *mailbox) post(f func()) {
	b.mu.Lock()
	b.queue = append(b.queue, f)
	b.mu.Unlock()
	signal(b.wake)
}

func (b *mailbox) take() []func() {
	b.mu.Lock()
	defer b.mu.Unlock()
	queue := b.queue
	b.queue = nil
	return queue
}

// run is the task.
func (o *Observer[T]) run() {
	defer close(o.done)
	for o.state != Closed || o.requests > 0 {
		select {
		case <-o.box.wake:
			for _, f := range o.box.take() {
				f()
			}
		case <-o.inbox.wake:
			o.noticed()
		}
		o.publish()
	}
}

// fire takes the transition for an event, if there is one.
func (o *Observer[T]) fire(on event, reason Reason, err error) {
	t, ok := find(o.state, on, o.synced, o.reason)
	if !ok {
		return
	}
	if err != nil {
		o.lastError = err
	}
	was, why := o.state, o.reason
	o.state = t.to
	defer func() {
		if o.ports.Moved != nil && (o.state != was || o.reason != why) {
			o.ports.Moved(o.state, o.reason, err)
		}
	}()
	switch t.do {
	case beginPass:
		if o.synced && mutant.On("observer.old-view-reused") {
			o.fire(installed, NoReason, nil)
			return
		}
		delay := time.Duration(0)
		if o.synced && mutant.On("observer.recovery-waits") {
			delay = o.options.Interval()
		}
		o.requestPass(delay)
	case settle:
		o.reason, o.flagged = NoReason, false
	case renew, renewStale:
		o.reason = reason
		o.flag(t.do == renewStale)
		o.renew(reason)
	case retry:
		o.nextGeneration()
		o.subscribeLater()
	case tellStale:
		o.reason = reason
		o.flag(true)
		o.requestPass(0)
	case fail:
		o.fail(err)
	case end:
		o.end(err)
	}
}

// flag marks the view as stale and tells consumers, once until it is fresh again.
func (o *Observer[T]) flag(tell bool) {
	if !o.synced || o.flagged {
		return
	}
	o.flagged = true
	if tell {
		o.tell(Event[T]{Kind: BecameStale, Reason: o.reason})
	}
}

// following reports whether the view is kept current: the registration is the one from which it was made.
func (o *Observer[T]) following() bool {
	return o.state == Ready || o.state == Stale && o.reason == NoRecentPass
}

// nextGeneration drops everything of the current generation: requests, candidate, dirty routes and timers (OB-30, OB-31).
func (o *Observer[T]) nextGeneration() {
	if mutant.On("observer.generation-survives-gap") {
		return
	}
	o.cancel()
	o.generation++
	o.scope, o.cancel = context.WithCancel(context.Background())
	o.inbox.renew(o.generation)
	o.dropPass()
	o.subscribing = false
	o.jobs, o.rounds, o.postponed = nil, 0, false
	clear(o.inFlight)
	clear(o.failed)
	for _, a := range []*alarm{&o.coalesce, &o.periodic, &o.staleAfter, &o.passRetry, &o.repairRetry, &o.subRetry} {
		a.disarm()
	}
	o.repeats, o.cursorsLost, o.passFailures, o.repairFailures = 0, 0, 0, 0
}

// lifetimeNow is the lifetime of the current session, or of the last one.
func (o *Observer[T]) lifetimeNow() string {
	if o.session == nil {
		return o.known
	}
	return o.session.Lifetime()
}

// call runs one request in a goroutine of its own. What it returns is run by the task, with stale true when the generation has moved on
// meanwhile (OB-31).
func (o *Observer[T]) call(request func(ctx context.Context) func(stale bool)) {
	ctx, generation := o.scope, o.generation
	o.requests++
	go func() {
		done := request(ctx)
		o.box.post(func() {
			o.requests--
			done(generation != o.generation)
		})
	}()
}

// errListTimeout is the cause of the context of a LIST that took longer than list_timeout.
var errListTimeout = errors.New("no answer within list_timeout")

// timed runs a LIST under list_timeout.
func (o *Observer[T]) timed(ctx context.Context, list func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := o.ports.After(o.options.ListTimeout, func() { cancel(errListTimeout) })
	defer stop()
	err := list(ctx)
	if err != nil && context.Cause(ctx) == errListTimeout {
		return errListTimeout
	}
	return err
}

// class is what the error of a request means.
func (o *Observer[T]) class(op Operation, err error) Class {
	if err == errListTimeout {
		return Again
	}
	return o.ports.Class(op, err)
}

// alarm is one timer of the task.
type alarm struct {
	set    bool
	serial uint64
	stop   func() bool
}

// arm sets a timer, in place of an earlier setting. f is run by the task.
func (o *Observer[T]) arm(a *alarm, d time.Duration, f func()) {
	a.disarm()
	a.set = true
	serial := a.serial
	a.stop = o.ports.After(d, func() {
		o.box.post(func() {
			if a.set && a.serial == serial {
				a.disarm()
				f()
			}
		})
	})
}

// disarm stops the timer. A call that is on its way is ignored.
func (a *alarm) disarm() {
	if a.set {
		a.stop()
	}
	a.set = false
	a.serial++
}
