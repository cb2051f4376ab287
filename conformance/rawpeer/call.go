package rawpeer

import (
	"context"
	"fmt"
	"slices"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Call is a request and the replies to it.
type Call struct {
	peer     *Peer
	message  string
	label    uint64 // 0: matched by order
	replies  []Received
	answered bool // a first reply came
	ended    bool // the last reply came
}

// callsMax bounds the calls of a peer whose last reply is outstanding.
const callsMax = "correlation_table_max"

// Start sends a request, labelled when Options.Labels says so.
func (p *Peer) Start(ctx context.Context, message string, v oracle.Value) (*Call, error) {
	label := uint64(0)
	if p.options.Labels {
		p.mu.Lock()
		p.label++
		label = p.label
		p.mu.Unlock()
	}
	return p.StartLabelled(ctx, message, v, label)
}

// StartLabelled sends a request with a label; 0 sends none, and its replies are matched by order (W-41, W-42): a reply belongs to the oldest request of
// its message that has none, else to the oldest that was answered as queued.
func (p *Peer) StartLabelled(ctx context.Context, message string, v oracle.Value, label uint64) (*Call, error) {
	if v == nil {
		v = oracle.Value{}
	}
	c := &Call{peer: p, message: message, label: label}
	p.mu.Lock()
	if int64(len(p.calls)) >= p.codec.Bound(callsMax) {
		p.mu.Unlock()
		return nil, fmt.Errorf("rawpeer: %d calls are not answered", len(p.calls))
	}
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	if err := p.Send(ctx, oracle.Record{Message: message, Form: oracle.Request, Value: v, Label: label}); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls = slices.DeleteFunc(p.calls, func(other *Call) bool { return other == c })
		return nil, err
	}
	return c, nil
}

// Do sends a request and waits for its first reply, which may be a refusal.
func (p *Peer) Do(ctx context.Context, message string, v oracle.Value) (oracle.Record, error) {
	c, err := p.Start(ctx, message, v)
	if err != nil {
		return oracle.Record{}, err
	}
	return c.Reply(ctx)
}

// Label returns the label of the request, 0 for none.
func (c *Call) Label() uint64 { return c.label }

// Reply waits for the next reply of the request and takes it. A request that was answered for good has no more: that is an error at once.
func (c *Call) Reply(ctx context.Context) (oracle.Record, error) {
	r, err := c.Received(ctx)
	return r.Record, err
}

// Received is Reply with the bytes and the moment of the reply, and with the fault of one that does not decode.
func (c *Call) Received(ctx context.Context) (Received, error) {
	var next Received
	spent := false
	err := c.peer.wait(ctx, "a reply to "+c.message, func() bool {
		if len(c.replies) > 0 {
			next, c.replies = c.replies[0], c.replies[1:]
			return true
		}
		spent = c.ended
		return spent
	})
	if err == nil && spent {
		err = fmt.Errorf("rawpeer: %s was answered for good", c.message)
	}
	return next, err
}

// Pending reports whether the request has no reply that was not taken, and may still get one.
func (c *Call) Pending() bool {
	c.peer.mu.Lock()
	defer c.peer.mu.Unlock()
	return len(c.replies) == 0 && !c.ended
}

// callOf finds the request that a frame answers. The lock is held.
func (p *Peer) callOf(r Received) *Call {
	if r.Form != oracle.Reply && r.Form != oracle.Refusal {
		return nil
	}
	find := func(chosen func(*Call) bool) *Call {
		if at := slices.IndexFunc(p.calls, chosen); at >= 0 {
			return p.calls[at]
		}
		return nil
	}
	if r.Label != 0 {
		return find(func(c *Call) bool { return c.label == r.Label && c.message == r.Message })
	}
	same := func(c *Call) bool { return c.label == 0 && c.message == r.Message }
	if c := find(func(c *Call) bool { return same(c) && !c.answered }); c != nil {
		return c
	}
	return find(same)
}

// defers reports whether a second reply follows (L-26).
func (p *Peer) defers(rec oracle.Record) bool {
	kind, ok := rec.Value["kind"].(uint64)
	return ok && rec.Form == oracle.Reply && slices.Contains(p.deferred[rec.Message], kind)
}

// Filter chooses what a peer received. What is zero is not looked at, except that the zero Kind is trace.Frame.
type Filter struct {
	Kind    trace.Kind
	Message string
	Form    oracle.Form
	Match   func(Received) bool
}

func (f Filter) chooses(r Received) bool {
	kind := f.Kind
	if kind == "" {
		kind = trace.Frame
	}
	return r.Kind == kind && (f.Message == "" || f.Message == r.Message) && (f.Form == "" || f.Form == r.Form) && (f.Match == nil || f.Match(r))
}

// String describes the filter.
func (f Filter) String() string {
	return trace.Filter{Kind: f.Kind, Message: f.Message, Form: f.Form}.String()
}

// Next waits for something that the filter chooses among what no call has taken, such as a push, and takes it. What came before it stays. The functions
// of the filter must not call the peer.
func (p *Peer) Next(ctx context.Context, f Filter) (Received, error) {
	var next Received
	err := p.wait(ctx, f.String(), func() bool {
		at := slices.IndexFunc(p.inbox, f.chooses)
		if at < 0 {
			return false
		}
		next = p.inbox[at]
		p.inbox = slices.Delete(p.inbox, at, at+1)
		p.size -= len(next.Bytes)
		return true
	})
	return next, err
}

// First waits for the oldest of all that no call has taken, whatever it is, and takes it.
func (p *Peer) First(ctx context.Context) (Received, error) {
	var next Received
	err := p.wait(ctx, "anything", func() bool {
		if len(p.inbox) == 0 {
			return false
		}
		next, p.inbox = p.inbox[0], p.inbox[1:]
		p.size -= len(next.Bytes)
		return true
	})
	return next, err
}

// Untaken returns what came and nobody took.
func (p *Peer) Untaken() []Received {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.inbox)
}
