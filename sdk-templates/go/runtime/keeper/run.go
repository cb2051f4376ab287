package keeper

import (
	"context"
	"errors"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// Run calls body with a context that ends when the Lease does, and releases the Lease when body has returned (L-105). It returns the
// error of body, unless that is nothing but the end of the context because the Lease was lost; else how the Lease was lost, if it was; else
// nil (L-106). A failed RELEASE goes to the hooks.
func (l *Lease) Run(ctx context.Context, body func(context.Context) error) error {
	defer func() { _ = l.Release(context.WithoutCancel(ctx)) }() // also when body panics; told to the hooks
	bodyCtx, cancel := l.Context(ctx)
	defer cancel()
	if mutant.On("sdk.scoped-releases-early") {
		context.AfterFunc(ctx, func() { _ = l.Release(context.WithoutCancel(ctx)) })
	}
	err := body(bodyCtx)
	over := l.Err()
	if over != nil && errors.Is(over, l.keeper.options.Released) { // by body itself
		return err
	}
	if over != nil && (err == nil || l.onlyCancelled(bodyCtx, err, over)) {
		return over
	}
	return err
}

// onlyCancelled reports whether an error of body says no more than that its context has ended because the Lease was lost.
func (l *Lease) onlyCancelled(ctx context.Context, err, over error) bool {
	if !errors.Is(context.Cause(ctx), over) {
		return false
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, over)
}

// Context returns a context that ends with parent, with the Lease, or by cancel. Its cause is how the Lease ended.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := l.Watch(func(err error) { cancel(err) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}
