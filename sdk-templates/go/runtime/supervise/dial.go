package supervise

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// refusals is what is known of tokens that the peer refused. It belongs to whoever opens sessions, one goroutine at a time.
type refusals struct {
	last  [sha256.Size]byte // of the token that was refused last
	any   bool
	why   error // what the peer said, without the token
	again bool  // since the last session the source was asked once more because of a refusal
}

func (r *refusals) note(token string, why error) {
	r.last, r.any, r.why = sha256.Sum256([]byte(token)), true, why
}

func (r *refusals) has(token string) bool {
	return r.any && r.last == sha256.Sum256([]byte(token)) && !mutant.On("sdk.refused-token-sent-again")
}

// final is the refusal after which there is no other token. It tells what the peer said of the one that it refused.
func (r *refusals) final() error {
	e := &link.Error{Kind: link.Rejected, Reason: "there is no other token"}
	var said *link.Error
	if errors.As(r.why, &said) {
		e.Reason, e.Err = said.Reason+"; "+e.Reason, said.Err
	}
	return e
}

// dial opens a session. A token that the peer refused is not sent again: after a refusal the source is asked once more, at once, and another
// token is tried after a delay. Anything else ends the client.
func (c *Core) dial(ctx context.Context) (*Session, error) {
	refused := false
	for {
		token, err := c.token(ctx)
		if err != nil {
			return nil, err
		}
		if c.refusals.has(token) {
			if c.refusals.again {
				return nil, c.refusals.final()
			}
			c.refusals.again = true
			continue
		}
		if refused {
			if err := port.Sleep(ctx, c.options.Clock, c.options.Backoff.Delay(0, c.options.Rand())); err != nil {
				return nil, err
			}
		}
		s, err := c.attempt(ctx, token)
		if err == nil {
			c.refusals.again = false
		}
		if !link.IsKind(err, link.Rejected) {
			return s, err
		}
		c.refusals.note(token, err)
		if c.refusals.again {
			return nil, err
		}
		c.refusals.again, refused = true, true
	}
}

// errSlow is why a token source is not waited for any longer.
var errSlow = errors.New("no token within the connect timeout")

// token asks the source, at most for the connect timeout. One that does not return by then is left alone, and is not asked again before it
// has returned: it never runs twice at a time.
func (c *Core) token(ctx context.Context) (string, error) {
	if c.options.Token == nil {
		return "", nil
	}
	if c.cached != nil && mutant.On("sdk.token-asked-once") {
		return *c.cached, nil
	}
	timed, cancel := port.WithTimeout(ctx, c.options.Clock, c.limits.Connect, errSlow)
	defer cancel()
	select {
	case c.asking <- struct{}{}:
	case <-timed.Done():
		return "", c.noToken(ctx, errSlow)
	}
	type answer struct {
		token string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() { <-c.asking }()
		token, err := c.options.Token(timed)
		answers <- answer{token, err}
	}()
	select {
	case a := <-answers:
		if a.err != nil && timed.Err() != nil {
			a.err = errSlow
		}
		if a.err != nil {
			return "", c.noToken(ctx, a.err)
		}
		c.cached = &a.token
		return a.token, nil
	case <-timed.Done():
		return "", c.noToken(ctx, errSlow)
	}
}

// noToken is why there is no token: the error of ctx, or one that can pass.
func (c *Core) noToken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	known := ""
	if c.cached != nil {
		known = *c.cached
	}
	return &link.Error{Kind: link.Refused, Reason: "token source", Err: link.HideToken(err, known)}
}

// linkClock is the clock of a client as its sessions use it.
type linkClock struct{ port.Clock }

func (c linkClock) AfterFunc(d time.Duration, f func()) func() bool {
	return c.Clock.AfterFunc(d, f).Stop
}

// attempt opens one session.
func (c *Core) attempt(ctx context.Context, token string) (*Session, error) {
	c.mu.Lock()
	generation := c.status.Generation + 1
	c.mu.Unlock()
	s := &Session{
		core: c, generation: generation, leaving: make(chan Push, 1), texts: map[text]*registration{}, ids: map[id]*registration{},
	}
	conn, err := link.Dial(ctx, c.options.Address, c.options.Protocol, link.Options{
		Token: token, Limits: c.limits, OnPush: s.push, Dial: c.options.Dial, TLS: c.options.TLS, Greeting: c.options.Greeting,
		Clock: linkClock{c.options.Clock},
	})
	if err != nil {
		return nil, err
	}
	s.conn = conn
	return s, nil
}

// redial opens the next session, however long it takes. The error says why there will be none.
func (c *Core) redial(attempt *int) (*Session, error) {
	for {
		if err := port.Sleep(c.life, c.options.Clock, c.options.Backoff.Delay(*attempt, c.options.Rand())); err != nil {
			return nil, errClosed()
		}
		*attempt++
		s, err := c.dial(c.life)
		switch {
		case err == nil:
			return s, nil
		case c.life.Err() != nil:
			return nil, errClosed()
		case link.IsKind(err, link.Rejected) && !mutant.On("sdk.refusal-retried"):
			return nil, err
		}
		c.options.Hooks.Tell(port.Event{Name: c.options.Names.Failed, Err: err, Count: uint64(*attempt)})
		c.mu.Lock()
		status := c.status
		status.Reason = err
		c.setStatus(status)
		c.mu.Unlock()
	}
}
