package keeper

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

type leaseState uint8

const (
	holding leaseState = iota
	released
	lost
)

// ended is how a Lease ended.
type ended struct {
	state  leaseState
	reason Reason
	cause  error
}

// Lease is something that is held. It is renewed until it is released or lost. All methods may be called from any goroutine, and every one
// of them looks at the clock and at the session before it answers or sends (L-104).
type Lease struct {
	keeper  *Keeper
	session Session
	key     Key
	manual  bool
	done    chan struct{}
	life    context.Context // of renewals
	cancel  context.CancelFunc
	turn    chan struct{} // held by the one RENEW or RELEASE that is on its way
	gone    atomic.Bool   // state is no longer holding

	mu       sync.Mutex
	state    leaseState
	err      error
	token    uint64
	ttl      time.Duration
	deadline time.Duration
	renewAt  time.Duration
	failures int
	missed   bool // a renewal was due while the turn was taken
	unsure   bool // a RENEW whose outcome is not known may have replaced the deadline of the peer
	timer    port.Timer
	watchers map[*watcher]struct{} // called when the Lease ends
}

type watcher struct{ f func(error) }

// hold makes a Lease, unless it would be over already.
func (a *acquire) hold(s Session, token uint64, sent time.Duration) (*Lease, error) {
	k, o := a.Keeper, &a.options
	if mutant.On("sdk.deadline-from-answer") {
		sent = o.Clock.Now()
	}
	l := &Lease{
		keeper: k, session: s, key: a.terms.Key, manual: a.terms.Manual, done: make(chan struct{}), turn: make(chan struct{}, 1),
		token: token, ttl: a.terms.TTL, deadline: o.deadline(sent, a.terms.TTL), watchers: map[*watcher]struct{}{},
	}
	l.renewAt = o.renewal(sent, l.ttl)
	if o.Clock.Now() >= l.deadline {
		return nil, o.Lost(l.key, Expired, nil)
	}
	l.life, l.cancel = context.WithCancel(k.life)
	if !k.begin(l) {
		l.cancel()
		return nil, o.Closed()
	}
	if l.sessionOver() { // it may have ended before it could tell
		l.lose(Disconnected, nil)
	}
	return l, nil
}

// begin makes a Lease known and starts its timer. False: the keeper is closed.
func (k *Keeper) begin(l *Lease) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.held[l] = struct{}{}
	l.arm()
	return true
}

func (l *Lease) sessionOver() bool {
	select {
	case <-l.session.Done():
		return !mutant.On("sdk.lease-survives-session")
	default:
		return false
	}
}

// Key returns what is held.
func (l *Lease) Key() Key { return l.key }

// Token returns the token of the last grant or renewal (L-46).
func (l *Lease) Token() uint64 {
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Deadline returns the instant on the clock from which on the Lease counts as expired.
func (l *Lease) Deadline() time.Duration {
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline
}

// Done returns a channel that is closed when the Lease is released or lost.
func (l *Lease) Done() <-chan struct{} {
	l.look()
	return l.done
}

// Err returns nil while the Lease is held, then how it ended.
func (l *Lease) Err() error {
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Gone reports whether the end of the Lease has been noticed. It looks neither at the clock nor at the session, so that it may be called
// from a finalizer.
func (l *Lease) Gone() bool { return l.gone.Load() }

// Watch calls f once, when the Lease ends, with how it ended; at once when it has. f must return at once. stop makes that unlikely; f may
// be running already.
func (l *Lease) Watch(f func(error)) (stop func()) {
	l.look()
	w := &watcher{f}
	l.mu.Lock()
	if err := l.err; err != nil {
		l.mu.Unlock()
		f(err)
		return func() {}
	}
	l.watchers[w] = struct{}{}
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		delete(l.watchers, w)
		l.mu.Unlock()
	}
}

// look ends the Lease if it is over already and no timer has come yet.
func (l *Lease) look() {
	l.mu.Lock()
	over := l.state == holding && l.keeper.options.Clock.Now() >= l.deadline && !l.awaited()
	l.mu.Unlock()
	switch {
	case over:
		l.lose(Expired, nil)
	case l.sessionOver():
		l.lose(Disconnected, nil)
	case l.doubtful():
		l.mu.Lock()
		l.unsure = true // the peer may keep it all the same
		l.mu.Unlock()
		l.lose(Disconnected, errUnheard)
	}
}

// errUnheard is why something is lost in a session that has not ended here.
var errUnheard = &link.Error{Kind: link.Lost, Sent: true, Reason: "the peer has answered nothing for so long that it may have ended the session"}

// doubtful reports whether the peer may have ended the session, in which case others can have what was taken in it, however much of the ttl
// is left.
func (l *Lease) doubtful() bool {
	left, bounded := l.session.KeptFor()
	return bounded && left <= 0
}

// awaited is the fault that the end of the Lease waits for the request that is on its way.
func (l *Lease) awaited() bool { return mutant.On("sdk.lost-signal-waits") && len(l.turn) > 0 }

// arm sets the timer to what is due next. l.mu is held.
func (l *Lease) arm() {
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.awaited() {
		return
	}
	at := l.deadline
	if !l.manual && !mutant.On("sdk.no-renewal") {
		at = min(at, l.renewAt)
	}
	wait := at - l.keeper.options.Clock.Now()
	if left, bounded := l.session.KeptFor(); bounded {
		wait = min(wait, left)
	}
	l.timer = l.keeper.options.Clock.AfterFunc(max(wait, 0), l.tick)
}

// tick does what is due. It never waits.
func (l *Lease) tick() {
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != holding {
		return
	}
	if !l.manual && l.keeper.options.Clock.Now() >= l.renewAt {
		l.renewAt = l.deadline // until it is known how this one ends
		l.missed = !l.startRenewal()
	}
	l.arm()
}

// startRenewal renews in the background. False: the turn is taken, and endTurn comes back to it. l.mu is held.
func (l *Lease) startRenewal() bool {
	select {
	case l.turn <- struct{}{}:
	default:
		return false
	}
	begun := l.keeper.task(func() {
		defer l.endTurn()
		_ = l.renew(l.life, l.currentTTL()) // a failure is retried until the deadline
	})
	if !begun {
		<-l.turn
	}
	return true
}

// endTurn gives the turn back, and sees to a renewal that became due meanwhile: that of an answer which took longer than the interval of
// renewals is due at once.
func (l *Lease) endTurn() {
	<-l.turn
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.missed {
		return
	}
	l.missed = false
	if l.state == holding {
		l.renewAt = l.keeper.options.Clock.Now()
		l.arm()
	}
}

func (l *Lease) currentTTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

// Extend replaces the ttl, from now on and for the renewals that follow. When its outcome is unknown the Lease keeps what is surely left
// (L-97): a shorter ttl counts as soon as it was sent.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return l.Err()
	}
	defer l.endTurn()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := l.Watch(func(err error) { cancel(err) })
	defer stop()
	err := l.renew(ctx, ttl)
	if over := l.Err(); over != nil {
		return over
	}
	return err
}

// renew sends one RENEW and acts on its result. The turn is held.
func (l *Lease) renew(ctx context.Context, ttl time.Duration) error {
	o := &l.keeper.options
	sent := o.Clock.Now()
	l.mu.Lock()
	if l.state != holding {
		defer l.mu.Unlock()
		return l.err
	}
	token, before, wasUnsure := l.token, l.deadline, l.unsure
	l.unsure = true
	l.deadline = min(before, o.deadline(sent, ttl))
	if l.deadline < before {
		l.arm()
	}
	l.mu.Unlock()

	renewed, err := l.session.Renew(ctx, l.key, token, ttl)
	if err != nil {
		l.renewalFailed(err, before, wasUnsure)
		return err
	}
	l.mu.Lock()
	if !mutant.On("sdk.renewed-token-ignored") {
		l.token = renewed // also for the RELEASE that waits for this (L-46)
	}
	if l.state == holding && o.Clock.Now() < l.deadline {
		l.ttl, l.failures, l.unsure = ttl, 0, false
		if mutant.On("sdk.renewed-from-answer") {
			sent = o.Clock.Now()
		}
		l.deadline, l.renewAt = o.deadline(sent, ttl), o.renewal(sent, ttl)
		l.arm()
	}
	l.mu.Unlock()
	l.look() // a reply that came after the deadline changes nothing
	o.Hooks.Tell(port.Event{Name: o.Names.Renewed, Route: l.key.Route})
	return l.Err()
}

// renewalFailed acts on a failed RENEW. A failure does not lose the Lease, the deadline does, unless the peer says that it is gone (L-97,
// L-98).
func (l *Lease) renewalFailed(err error, before time.Duration, wasUnsure bool) {
	o := &l.keeper.options
	verdict := o.Verdict(err)
	switch {
	case mutant.On("sdk.loss-ignored"):
		verdict = Other
	case mutant.On("sdk.unknown-outcome-loses") && verdict == Other:
		verdict = IsGone
	}
	switch verdict {
	case IsFenced:
		l.sure()
		l.lose(Fenced, err)
		return
	case IsGone:
		l.sure()
		l.lose(Expired, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != holding {
		return
	}
	o.Hooks.Tell(port.Event{Name: o.Names.RenewFailed, Route: l.key.Route, Err: err})
	if verdict == Rejected || verdict == Unsent { // the peer has not changed its deadline
		l.deadline, l.unsure = before, wasUnsure
	}
	l.renewAt = o.Clock.Now() + o.Retry.Delay(l.failures, o.Rand())
	l.failures++
	l.arm()
}

// Release ends the Lease and tells the peer. The end is local and at once; the error says how the RELEASE went, which goes on when ctx
// ends. A Lease that is released or lost already needs nothing and gives no error (L-107).
func (l *Lease) Release(ctx context.Context) error {
	l.look()
	if !l.end(ended{state: released}) {
		if mutant.On("sdk.release-of-ended-sends") {
			return l.session.Release(ctx, l.key, l.Token())
		}
		return nil
	}
	result := make(chan error, 1)
	begun := l.keeper.task(func() {
		err := l.sendRelease(l.keeper.life)
		l.keeper.leave(l.key)
		if err != nil {
			l.keeper.options.Hooks.Tell(port.Event{Name: l.keeper.options.Names.ReleaseFailed, Route: l.key.Route, Err: err})
		}
		result <- err
	})
	if !begun { // the client is being closed, which ends the session
		l.cancel()
		l.keeper.leave(l.key)
		return nil
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sendRelease sends RELEASE after the RENEW that may be on its way, within the release timeout and what is left of the ttl.
func (l *Lease) sendRelease(ctx context.Context) error {
	defer l.cancel()
	o := &l.keeper.options
	l.mu.Lock()
	left := l.deadline - o.Clock.Now()
	l.mu.Unlock()
	return l.tellRelease(ctx, min(o.ReleaseTimeout, left))
}

// tellRelease sends one RELEASE, after the RENEW that may be on its way and with the token that it brings (L-46).
func (l *Lease) tellRelease(ctx context.Context, timeout time.Duration) error {
	o := &l.keeper.options
	ctx, cancel := port.WithTimeout(ctx, o.Clock, timeout, context.DeadlineExceeded)
	defer cancel()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return o.Late(l.key)
	}
	defer l.endTurn()
	l.mu.Lock()
	token := l.token
	l.mu.Unlock()
	err := l.session.Release(ctx, l.key, token)
	if err != nil && ctx.Err() != nil { // by the timeout, which is none of the caller
		return o.Late(l.key)
	}
	return err
}

// sure notes that the peer has said that nothing is held for this Lease.
func (l *Lease) sure() {
	l.mu.Lock()
	l.unsure = false
	l.mu.Unlock()
}

// lose ends the Lease, if it is held, because somebody else may hold it from now on. The peer may think otherwise: a RENEW whose reply did
// not come in time may have given it a whole ttl, for which everybody would wait. It is then told, once, and the place is given on after
// that, so that what comes next is not released by mistake (L-73, L-99).
func (l *Lease) lose(reason Reason, cause error) {
	if !l.end(ended{lost, reason, cause}) {
		return
	}
	l.mu.Lock()
	unsure := l.unsure
	l.mu.Unlock()
	if unsure && !l.sessionOver() && l.keeper.task(l.releaseLost) {
		return
	}
	l.keeper.leave(l.key)
}

// releaseLost sends the RELEASE of a Lease that is lost.
func (l *Lease) releaseLost() {
	defer l.keeper.leave(l.key)
	o := &l.keeper.options
	err := l.tellRelease(l.keeper.life, o.ReleaseTimeout)
	if err == nil {
		return
	}
	if verdict := o.Verdict(err); verdict != IsGone && verdict != IsFenced {
		o.Hooks.Tell(port.Event{Name: o.Names.ReleaseFailed, Route: l.key.Route, Err: err})
	}
}

// end ends the Lease once and tells everybody. Whoever gets true gives the place on.
func (l *Lease) end(e ended) bool {
	o := &l.keeper.options
	l.mu.Lock()
	if l.state != holding {
		l.mu.Unlock()
		return false
	}
	l.gone.Store(true)
	l.state, l.err = e.state, o.Released
	if e.state == lost {
		l.err = o.Lost(l.key, e.reason, e.cause)
	}
	err := l.err
	close(l.done)
	l.timer.Stop()
	watchers := l.watchers
	l.watchers = nil
	l.mu.Unlock()
	for w := range watchers {
		w.f(err)
	}
	if e.state == lost {
		l.cancel() // a RELEASE does it otherwise
	}
	l.keeper.mu.Lock()
	delete(l.keeper.held, l)
	l.keeper.mu.Unlock()
	if e.state == lost {
		o.Hooks.Tell(port.Event{Name: o.Names.Lost, Route: l.key.Route, Err: err})
	}
	return true
}
