package rawpeer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/internal/wiretest"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/rawpeer"
	"github.com/fitzwire/fitz/conformance/trace"
)

func fake(t *testing.T, script fakebroker.Script) *fakebroker.Broker {
	t.Helper()
	b, err := fakebroker.Start(wiretest.Spec(t), script, fakebroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func acquired(kind string, token int, label *uint64) fakebroker.Action {
	return fakebroker.Action{Send: &fakebroker.Record{Message: "lease.acquire", Label: label, Value: map[string]any{"kind": kind, "fencing_token": token}}}
}

func tokens(t *testing.T, c *rawpeer.Call, want ...uint64) {
	t.Helper()
	for _, token := range want {
		rec, err := c.Reply(wiretest.Context(t))
		if err != nil || rec.Value["fencing_token"] != token {
			t.Errorf("%v instead of token %d, %v", rec.Value, token, err)
		}
	}
}

func start(t *testing.T, p *rawpeer.Peer, owner string) *rawpeer.Call {
	t.Helper()
	c, err := p.Start(wiretest.Context(t), "lease.acquire", value{"route": "lease://r/a/k", "owner_id": owner, "ttl": 9, "wait": 9})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// W-41, W-42: without labels a reply belongs to the oldest request that has none, a further one to the oldest that waits.
func TestMatchingByOrder(t *testing.T) {
	b := fake(t, fakebroker.Script{})
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, b.Address, rawpeer.Options{})
		ctx := wiretest.Context(t)
		one, two, three := start(t, p, "1"), start(t, p, "2"), start(t, p, "3")
		err := b.Do(ctx, 0, acquired("queued", 1, nil), acquired("acquired", 2, nil), acquired("already_queued", 3, nil),
			acquired("acquired", 10, nil), acquired("acquired", 30, nil), acquired("acquired", 99, nil))
		if err != nil {
			t.Fatal(err)
		}
		tokens(t, one, 1, 10)
		tokens(t, two, 2)
		tokens(t, three, 3, 30)
		for _, c := range []*rawpeer.Call{one, two, three} {
			if _, err := c.Reply(ctx); err == nil || c.Pending() {
				t.Error("a request that was answered for good waits")
			}
		}
		if stray, err := p.Next(ctx, rawpeer.Filter{Message: "lease.acquire"}); err != nil || stray.Record.Value["fencing_token"] != uint64(99) {
			t.Errorf("%v, %v", stray, err)
		}
	})
}

// W-44, W-51: with labels only the label counts; a frame of a label that is not in flight, or of another message, is nobody's.
func TestMatchingByLabel(t *testing.T) {
	b := fake(t, fakebroker.Script{})
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, b.Address, rawpeer.Options{Labels: true})
		ctx := wiretest.Context(t)
		one, two := start(t, p, "1"), start(t, p, "2")
		l1, l2 := one.Label(), two.Label()
		if l1 == 0 || l1 == l2 {
			t.Fatalf("labels %d and %d", l1, l2)
		}
		other := fakebroker.Action{Send: &fakebroker.Record{Message: "lease.release", Label: &l1}}
		err := b.Do(ctx, 0, other, acquired("acquired", 20, &l2), acquired("queued", 10, &l1), acquired("acquired", 21, &l2), acquired("acquired", 5, nil), acquired("acquired", 11, &l1))
		if err != nil {
			t.Fatal(err)
		}
		tokens(t, one, 10, 11)
		tokens(t, two, 20)
		for _, want := range []string{"lease.release", "lease.acquire", "lease.acquire"} {
			if r, err := p.First(ctx); err != nil || r.Message != want {
				t.Errorf("%v, %v", r, err)
			}
		}
		if left := p.Untaken(); len(left) > 0 {
			t.Errorf("%v", left)
		}
	})
}

// A wait ends when its context does, and the request goes on.
func TestWaitEnds(t *testing.T) {
	b := fake(t, fakebroker.Script{})
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, b.Address, rawpeer.Options{})
		call := start(t, p, "1")
		ctx, cancel := context.WithCancelCause(wiretest.Context(t))
		why := errors.New("no longer")
		cancel(why)
		if _, err := call.Reply(ctx); !errors.Is(err, why) || !strings.Contains(err.Error(), "lease.acquire") {
			t.Errorf("%v", err)
		}
		if _, err := p.AwaitClose(ctx); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
		if err := p.Send(ctx, oracle.Record{Message: "session.ping", Form: oracle.Control, Value: value{"nonce": 1}}); !errors.Is(err, why) {
			t.Errorf("%v", err)
		}
		if err := b.Do(wiretest.Context(t), 0, acquired("acquired", 4, nil)); err != nil {
			t.Fatal(err)
		}
		tokens(t, call, 4)
	})
}

// W-67: GOAWAY is told with the end of the connection.
func TestGoAway(t *testing.T) {
	b := fake(t, fakebroker.Script{})
	row, _ := wiretest.Spec(t).Error("GOAWAY_DRAIN")
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, b.Address, rawpeer.Options{})
		ctx := wiretest.Context(t)
		err := b.Do(ctx, 0,
			fakebroker.Action{Send: &fakebroker.Record{Message: "session.goaway", Value: map[string]any{"grace_ms": 7, "code": row.Number, "reason": "drain"}}},
			fakebroker.Action{Close: &fakebroker.Closing{Code: 1001, Text: "going away"}})
		if err != nil {
			t.Fatal(err)
		}
		end, err := p.AwaitClose(ctx)
		if err != nil || end.GoAway == nil || end.GoAway.Value["code"] != uint64(row.Number) {
			t.Fatalf("%+v, %v", end, err)
		}
		if _, err := p.Next(ctx, rawpeer.Filter{Message: "session.goaway"}); err != nil {
			t.Error(err)
		}
	})
}

// What nobody looks at is bounded.
func TestInbox(t *testing.T) {
	b := fake(t, fakebroker.Script{})
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, b.Address, rawpeer.Options{})
		flood := fakebroker.Action{Send: &fakebroker.Record{Message: "lease.notify", Value: map[string]any{"subscription_id": 1, "route": "lease://r/a/" + strings.Repeat("k", 4000)}}, Times: 2000}
		_ = b.Do(wiretest.Context(t), 0, flood) // ends with the connection
		if _, err := p.AwaitClose(wiretest.Context(t)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Next(wiretest.Context(t), rawpeer.Filter{Message: "lease.query"}); !errors.Is(err, rawpeer.ErrInbox) {
			t.Errorf("%v", err)
		}
	})
}

// A peer that pauses does not read: the broker is held up once the buffers are full, and nothing is lost.
func TestPause(t *testing.T) {
	b := fake(t, fakebroker.Script{})
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, b.Address, rawpeer.Options{ReadBuffer: 4096})
		ctx := wiretest.Context(t)
		ping := fakebroker.Action{Send: &fakebroker.Record{Message: "session.ping", Value: map[string]any{"nonce": 1}}}
		p.Pause()
		// The read that is under way may still bring the first ping.
		if err := b.Do(ctx, 0, ping); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Next(ctx, rawpeer.Filter{Message: "session.ping"}); err != nil {
			t.Fatal(err)
		}
		ping.Send.Value["nonce"] = 2
		if err := b.Do(ctx, 0, ping); err != nil {
			t.Fatal(err)
		}
		if len(p.Untaken()) != 0 {
			t.Error("a paused peer reads")
		}
		p.Resume()
		if r, err := p.Next(ctx, rawpeer.Filter{Message: "session.ping"}); err != nil || r.Record.Value["nonce"] != uint64(2) {
			t.Errorf("%v, %v", r, err)
		}
		p.Pause()
	})
}

// A token goes to the broker and not into the trace.
func TestToken(t *testing.T) {
	b := fake(t, fakebroker.Script{})
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, b.Address, rawpeer.Options{Token: "a.b.c"})
		got, err := b.Next(wiretest.Context(t), fakebroker.Filter{Message: "session.connect"})
		if err != nil || got.Record.Value["token"] != "a.b.c" {
			t.Fatal(got, err)
		}
		for _, log := range []*trace.Log{p.Trace(), b.Trace()} {
			raw, err := log.MarshalJSON()
			if err != nil || strings.Contains(string(raw), "a.b.c") || strings.Contains(string(raw), "612e622e63") {
				t.Errorf("%s, %v", raw, err)
			}
		}
	})
}

// Close and Reset end a peer that waits, pauses, or has ended already.
func TestLeaving(t *testing.T) {
	b := fake(t, fakebroker.Script{})
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, b.Address, rawpeer.Options{})
		done := make(chan error, 1)
		go func() {
			_, err := p.First(wiretest.Context(t))
			done <- err
		}()
		p.Pause()
		p.Reset()
		var end *rawpeer.Close
		if err := <-done; !errors.As(err, &end) {
			t.Errorf("%v", err)
		}
		p.Close()
		if err := p.Send(wiretest.Context(t), oracle.Record{Message: "session.ping", Form: oracle.Control, Value: value{"nonce": 1}}); err == nil {
			t.Error("sent on a closed connection")
		}
	})
}
