package observer

import "context"

// Ready waits for the first installation. It fails with the cause of failed or closed; the end of ctx ends only the wait (OB-01).
func (o *Observer[T]) Ready(ctx context.Context) error {
	select { // an observer that has ended is not ready, whatever it was before
	case <-o.ended:
		return o.endCause()
	default:
	}
	select {
	case <-o.firstSync:
		return nil
	case <-o.ended:
		return o.endCause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// endCause is why the observer has ended.
func (o *Observer[T]) endCause() error {
	if cause := o.published.Load().cause; cause != nil {
		return cause
	}
	return o.items.Closed
}

// Snapshot returns the current view, nil before the first installation (OB-17).
func (o *Observer[T]) Snapshot() *Snapshot[T] { return o.published.Load().snapshot }

// Status returns the current status.
func (o *Observer[T]) Status() Status {
	s := o.published.Load().status
	s.Notifications, s.Dropped = o.inbox.count(), o.dropped.Load()
	return s
}

// Refresh asks for a full pass and waits for the installation that follows it (OB-62).
func (o *Observer[T]) Refresh(ctx context.Context) error {
	w := refreshWaiter{done: make(chan struct{})}
	o.box.post(func() { o.refresh(w) })
	select {
	case <-w.done:
		return nil
	case <-o.ended:
		return o.endCause()
	case <-ctx.Done():
		o.box.post(func() { o.forgetRefresh(w) })
		return context.Cause(ctx)
	}
}

// Close ends the observer and waits for its task, at most for the close timeout; I/O that does not end by then is abandoned (OB-66). It is
// idempotent.
func (o *Observer[T]) Close() {
	o.box.post(func() { o.fire(closing, HasClosed, nil) })
	late := make(chan struct{})
	stop := o.ports.After(o.limits.CloseTimeout, func() { close(late) })
	defer stop()
	select {
	case <-o.done:
	case <-late:
	}
}

// Done returns a channel that is closed when the task has ended.
func (o *Observer[T]) Done() <-chan struct{} { return o.done }
