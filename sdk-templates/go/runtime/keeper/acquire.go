package keeper

import (
	"context"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// Acquire takes the key, or waits for it. Within one client a key has at most one live Lease or one acquire under way; others wait in a
// local line, or fail at once when they may not wait (L-99). An acquire whose ctx ends leaves nothing behind: what the peer grants all the
// same is released, and until that is sent the key counts as being acquired (L-73).
func (k *Keeper) Acquire(ctx context.Context, terms Terms) (*Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	began := k.options.Clock.Now()
	if err := k.enter(ctx, terms.Key, terms.Wait); err != nil {
		return nil, err
	}
	a := acquire{Keeper: k, terms: terms, began: began}
	l, err := a.run(ctx)
	if l == nil && !a.kept {
		k.leave(terms.Key)
	}
	return l, err
}

// acquire is one acquire that has the place of its key.
type acquire struct {
	*Keeper
	terms  Terms
	began  time.Duration
	waited time.Duration // whole seconds
	kept   bool          // somebody else gives the place on
}

// run asks until there is an answer. A wait that is longer than one request may ask for is served by asking again, which means to join the
// tail of the line (L-101).
func (a *acquire) run(ctx context.Context) (*Lease, error) {
	for {
		s, err := a.options.Session(ctx)
		if err != nil {
			return nil, err
		}
		a.account(0)
		turn := min(max(a.terms.Wait-a.waited, 0), a.options.WaitMax)
		sent := a.options.Clock.Now()
		grant, given, err := s.Acquire(ctx, a.terms, turn, func(g Grant, ok bool) { a.late(s, g, ok) })
		if given {
			a.kept = true
			return nil, err
		}
		if err == nil {
			return a.granted(ctx, s, grant, sent)
		}
		switch a.options.Verdict(err) {
		case Unsent: // ask the next session
			continue
		case TimedOut:
			a.account(turn)
			if a.waited < a.terms.Wait && !mutant.On("sdk.long-wait-not-repeated") {
				continue
			}
		case Taken:
			if a.terms.Wait > 0 && turn == 0 { // the wait was used up in the local line
				err = a.options.WaitOver(a.terms.Key)
			}
		}
		return nil, err
	}
}

// account adds to the time waited: what the peer made us wait, and never less than what has passed.
func (a *acquire) account(turn time.Duration) {
	passed := (a.options.Clock.Now() - a.began).Truncate(time.Second)
	a.waited = max(a.waited+turn, min(passed, a.terms.Wait))
}

// granted makes a Lease of a grant.
func (a *acquire) granted(ctx context.Context, s Session, grant Grant, sent time.Duration) (*Lease, error) {
	token := grant.Token
	if grant.Unsure && !mutant.On("sdk.unsure-grant-not-confirmed") {
		sent = a.options.Clock.Now()
		renewed, err := s.Renew(ctx, a.terms.Key, token, a.terms.TTL)
		if err != nil {
			a.giveBack(s, token)
			return nil, err
		}
		token = renewed
	}
	if err := ctx.Err(); err != nil {
		a.giveBack(s, token)
		return nil, err
	}
	l, err := a.hold(s, token, sent)
	if err != nil {
		a.giveBack(s, token)
	}
	return l, err
}

// giveBack releases a grant that nobody will hold, and gives the place on when the RELEASE is done.
func (a *acquire) giveBack(s Session, token uint64) {
	a.kept = a.task(func() {
		a.releaseUnwanted(s, token)
		a.leave(a.terms.Key)
	})
}

// late acts on the last reply of an acquire that was given up. It must not wait.
func (a *acquire) late(s Session, grant Grant, ok bool) {
	if !ok || mutant.On("sdk.late-grant-kept") {
		a.leave(a.terms.Key)
		return
	}
	a.options.Hooks.Tell(port.Event{Name: a.options.Names.LateGrant, Route: a.terms.Route})
	begun := a.task(func() {
		a.releaseUnwanted(s, grant.Token)
		a.leave(a.terms.Key)
	})
	if !begun { // the end of the session, which is near, frees it
		a.leave(a.terms.Key)
	}
}

// releaseUnwanted sends RELEASE. When it fails, the end of the session or of the ttl frees the key.
func (a *acquire) releaseUnwanted(s Session, token uint64) {
	ctx, cancel := port.WithTimeout(a.life, a.options.Clock, a.options.ReleaseTimeout, context.DeadlineExceeded)
	defer cancel()
	if err := s.Release(ctx, a.terms.Key, token); err != nil {
		a.options.Hooks.Tell(port.Event{Name: a.options.Names.ReleaseFailed, Route: a.terms.Route, Err: err})
	}
}
