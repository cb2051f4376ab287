package link

import (
	"context"
	"time"
)

// Clock is the source of time of a session. Its methods may be called from any goroutine.
type Clock interface {
	// Now returns the time since some fixed instant. Only differences mean something.
	Now() time.Duration
	// AfterFunc calls f once when d has passed, in a goroutine of the clock; f returns at once. The function that it returns prevents the call;
	// false means that the call has begun or was prevented before.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// machine is the clock of the Go runtime.
type machine struct{}

// machineStart is where the clock of the Go runtime begins.
var machineStart = time.Now()

func (machine) Now() time.Duration { return time.Since(machineStart) }

func (machine) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// alarm is a timer that can be set again. It belongs to one goroutine.
type alarm struct {
	clock Clock
	rings chan struct{} // receives when the time has passed
	stop  func() bool
}

func newAlarm(clock Clock, d time.Duration) *alarm {
	a := &alarm{clock: clock}
	a.set(d)
	return a
}

// set makes the alarm ring in d, and not when it was to ring before.
func (a *alarm) set(d time.Duration) {
	if a.stop != nil {
		a.stop()
	}
	rings := make(chan struct{}, 1)
	a.rings = rings
	a.stop = a.clock.AfterFunc(d, func() { rings <- struct{}{} }) // one call, one place
}

// withTimeout is context.WithTimeout on the clock, with errTimeout as the cause.
func withTimeout(parent context.Context, clock Clock, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := clock.AfterFunc(d, func() { cancel(errTimeout) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
