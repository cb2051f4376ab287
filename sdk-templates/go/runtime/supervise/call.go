package supervise

import (
	"context"
	"errors"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// Call sends a request in the current session, or in the next one when there is none or when the current one ended before the request was
// sent. It waits for a session at most for the request timeout and within the bounds of the queue. The errors are those of
// link.Conn.Call and ErrAway.
func (c *Core) Call(ctx context.Context, request link.Request) ([]byte, error) {
	for {
		s, err := c.SessionFor(ctx, len(request.Value))
		if err != nil {
			if request.Late != nil && ctx.Err() != nil {
				request.Late(nil) // as link.Conn.Call does
			}
			return nil, err
		}
		reply, err := s.Call(ctx, request)
		if !Unsent(err) {
			return reply, err
		}
	}
}

// Unsent reports whether a request failed because its session ended before it was sent, so that it can be sent in the next one.
func Unsent(err error) bool {
	if errors.Is(err, ErrStale) {
		return true
	}
	var e *link.Error
	return errors.As(err, &e) && e.Kind == link.Lost && (!e.Sent || mutant.On("sdk.unknown-outcome-sent-again"))
}

// Session returns the current session, or waits for the next one as Call does.
func (c *Core) Session(ctx context.Context) (*Session, error) { return c.SessionFor(ctx, 0) }

// SessionFor is Session for a request of that many bytes, which count while it waits.
func (c *Core) SessionFor(ctx context.Context, bytes int) (*Session, error) {
	size := int64(bytes)
	c.mu.Lock()
	if s, err := c.usable(); s != nil || err != nil {
		c.mu.Unlock()
		return s, err
	}
	if c.waiting >= c.limits.Queue || c.waitingBytes+size > c.limits.QueueBytes {
		c.mu.Unlock()
		return nil, &link.Error{Kind: link.Overload}
	}
	c.waiting++
	c.waitingBytes += size
	defer func() { // c.mu is held
		c.waiting--
		c.waitingBytes -= size
		c.mu.Unlock()
	}()
	late := make(chan struct{})
	timer := c.options.Clock.AfterFunc(c.limits.Request, func() { close(late) })
	defer timer.Stop()
	for {
		changed := c.changed
		c.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-late:
			err = ErrAway
		}
		c.mu.Lock()
		if err != nil {
			return nil, err
		}
		if s, err := c.usable(); s != nil || err != nil {
			return s, err
		}
	}
}

// usable returns the session for new calls, or why there never will be one. c.mu is held.
func (c *Core) usable() (*Session, error) {
	if c.closed != nil {
		return nil, c.closed
	}
	if c.current == nil || c.current.isOver() {
		return nil, nil
	}
	return c.current, nil
}
