package observer

import (
	"context"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// SessionOpened tells that a session is open from now on. It returns at once.
func (o *Observer[T]) SessionOpened(s Session[T]) {
	o.box.post(func() { o.sessionOpened(s) })
}

// SessionLost tells that the session is gone. It returns at once.
func (o *Observer[T]) SessionLost(err error) {
	o.box.post(func() { o.sessionLost(err) })
}

// End tells that the client has ended and why: an error of class never or reauth that is not its own closing fails the observer, anything
// else closes it (OB-37, OB-67). It returns at once.
func (o *Observer[T]) End(err error, failed bool) {
	o.box.post(func() {
		o.session = nil
		o.registration = nil
		if failed {
			o.fire(fatal, HasFailed, err)
			return
		}
		o.fire(closing, HasClosed, err)
	})
}

func (o *Observer[T]) sessionOpened(next Session[T]) {
	if o.terminal() {
		return
	}
	if o.session != nil { // its end was not told
		o.sessionLost(nil)
	}
	o.session = next
	lifetime := next.Lifetime()
	other := o.known != "" && lifetime != "" && lifetime != o.known
	if o.reason == Disconnected && other && !mutant.On("observer.restart-unnoticed") {
		o.reason = BrokerRestarted // the same gap (OB-30)
	}
	if lifetime != "" {
		o.known = lifetime
	}
	o.subscribe()
}

func (o *Observer[T]) sessionLost(err error) {
	if o.terminal() || o.session == nil {
		return
	}
	o.session = nil
	o.registration = nil
	o.leave = nil
	if mutant.On("observer.disconnect-unnoticed") {
		return
	}
	o.fire(gap, Disconnected, err)
}

// renew is OB-30 for the registration: leave it if it still exists, and subscribe anew as soon as a session is open (OB-33). Gaps of one
// session that follow each other without an installation are spaced like failures.
func (o *Observer[T]) renew(reason Reason) {
	if o.registration != nil && reason == DecodeError {
		o.leave = append(o.leave, o.registration)
	}
	o.registration = nil
	o.nextGeneration()
	if o.session == nil {
		return
	}
	o.gapsInVain++
	if o.gapsInVain == 1 {
		o.subscribe()
		return
	}
	o.arm(&o.subRetry, o.ports.FailureDelay(o.gapsInVain-2, o.ports.Random()), o.subscribe)
}

// subscribeLater is OB-34.
func (o *Observer[T]) subscribeLater() {
	delay := o.ports.FailureDelay(o.subscribeTries, o.ports.Random())
	o.subscribeTries++
	o.arm(&o.subRetry, delay, o.subscribe)
}

// subscribe sends the one SUBSCRIBE of the generation (OB-10). Registrations that the observer still has are left before.
func (o *Observer[T]) subscribe() {
	if o.session == nil || o.subscribing || o.registration != nil || o.terminal() {
		return
	}
	o.subRetry.disarm()
	o.subscribing = true
	leave := o.leave
	o.leave = nil
	session := o.session
	sink := &sink[T]{observer: o, generation: o.generation}
	if mutant.On("observer.list-before-subscribe") {
		o.fire(acknowledged, NoReason, nil)
	}
	o.call(func(ctx context.Context) func(bool) {
		for _, r := range leave {
			_ = r.Leave(ctx) // one that stays has no sink any more; the new SUBSCRIBE decides
		}
		r, err := session.Subscribe(ctx, sink)
		return func(stale bool) {
			if !stale {
				o.subscribed(r, err)
			} else if err == nil {
				o.farewell(r)
			}
		}
	})
}

func (o *Observer[T]) subscribed(r Registration, err error) {
	o.subscribing = false
	if err == nil {
		o.registration = r
		o.subscribeTries = 0
		o.fire(acknowledged, NoReason, nil)
		return
	}
	class := o.class(Subscribe, err)
	if mutant.On("observer.fatal-retried") {
		class = Again
	}
	switch class {
	case Never:
		o.fire(fatal, HasFailed, err)
	case SessionGone: // its own event starts the new generation; this is for the case that it was told before
		o.lastError = err
		o.subscribeLater()
	default:
		o.fire(refused, NoReason, err)
	}
}

// farewell leaves a registration that nothing waits for, at most for the close timeout.
func (o *Observer[T]) farewell(r Registration) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := o.ports.After(o.limits.CloseTimeout, cancel)
	o.call(func(context.Context) func(bool) {
		_ = r.Leave(ctx) // best effort
		stop()
		cancel()
		return func(bool) {}
	})
}

// fail ends everything but keeps the view, flagged (OB-37).
func (o *Observer[T]) fail(err error) {
	o.reason = HasFailed
	o.flag(true)
	o.stop(err)
	o.consumers.end(err)
}

// end is OB-66. I/O is cancelled before anything else.
func (o *Observer[T]) end(err error) {
	already := o.reason == HasFailed
	o.reason = HasClosed
	o.flagged = o.synced
	if already {
		return // everything has ended, and the cause stays
	}
	o.stop(err)
	o.consumers.end(err)
}

// stop cancels timers and I/O, sends UNSUBSCRIBE if a registration exists, and tells whoever waits.
func (o *Observer[T]) stop(cause error) {
	r := o.registration
	o.registration = nil
	o.nextGeneration()
	o.cancel()
	o.cause = cause
	if r != nil && o.session != nil && !mutant.On("observer.close-keeps-registration") {
		o.farewell(r)
	}
	o.waiters = nil
	o.publish()
	close(o.ended)
}

// terminal reports whether the observer has failed or was closed.
func (o *Observer[T]) terminal() bool { return o.state == Failed || o.state == Closed }

// sink is what a registration reports to.
type sink[T any] struct {
	observer   *Observer[T]
	generation uint64
	over       bool // of the reading goroutine
}

// Notify is part of Sink.
func (s *sink[T]) Notify(route string) {
	switch {
	case s.over:
	case s.observer.items.Matches(route):
		s.observer.inbox.mark(s.generation, route)
	default:
		s.Malformed(s.observer.items.Violation("a notification outside the selector", nil))
	}
}

// Malformed is part of Sink.
func (s *sink[T]) Malformed(err error) { s.gap(DecodeError, 0, err) }

// Ended is part of Sink.
func (s *sink[T]) Ended(dropped uint64, err error) { s.gap(SubscriptionEnded, dropped, err) }

// gap reports the end of the generation, once.
func (s *sink[T]) gap(reason Reason, dropped uint64, err error) {
	unnoticed := reason == SubscriptionEnded && mutant.On("observer.end-unnoticed") || reason == DecodeError && mutant.On("observer.malformed-unnoticed")
	if s.over || unnoticed {
		return
	}
	s.over = true
	o := s.observer
	o.dropped.Add(dropped)
	o.box.post(func() {
		if s.generation != o.generation || o.terminal() {
			return
		}
		if reason == SubscriptionEnded {
			o.registration = nil
		}
		o.fire(gap, reason, err)
	})
}
