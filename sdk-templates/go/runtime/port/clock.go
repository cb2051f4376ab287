package port

import (
	"context"
	"time"
)

// Clock is the source of time of an engine. It is monotonic and runs on while the machine is suspended, where the platform can tell
// (L-103). Its methods may be called from any goroutine.
type Clock interface {
	// Now returns the time since some fixed instant. Only differences mean something.
	Now() time.Duration
	// AfterFunc calls f once when d has passed, in a goroutine of the clock; f must return at once. The call may come late, for example
	// after the process was stopped, but not early.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call of Clock.AfterFunc.
type Timer interface {
	// Stop prevents the call. False means that the call has begun or was stopped before.
	Stop() bool
}

// Sleep waits until d has passed on the clock and returns nil, or returns the error of ctx when that ends first.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	passed := make(chan struct{})
	timer := c.AfterFunc(d, func() { close(passed) })
	defer timer.Stop()
	select {
	case <-passed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WithTimeout is context.WithTimeoutCause on another clock.
func WithTimeout(parent context.Context, c Clock, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	timer := c.AfterFunc(d, func() { cancel(cause) })
	return ctx, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}
