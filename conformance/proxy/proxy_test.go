package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/internal/wiretest"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/proxy"
	"github.com/fitzwire/fitz/conformance/rawpeer"
	"github.com/fitzwire/fitz/conformance/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIndependence(t *testing.T) {
	wiretest.Independent(t, "github.com/fitzwire/fitz/conformance/proxy")
}

type value = oracle.Value

// rig is a client, a proxy and a scripted broker that answers QUERY with the route as the owner, and SUBSCRIBE with id 5 and a NOTIFY.
type rig struct {
	t         *testing.T
	transport string
	ctx       context.Context
	spec      *oracle.Spec
	fake      *fakebroker.Broker
	proxy     *proxy.Proxy
	peer      *rawpeer.Peer
}

var script = fakebroker.Script{Rules: []fakebroker.Rule{
	{On: fakebroker.On{Message: "lease.query"}, Do: []fakebroker.Action{{Reply: &fakebroker.Record{Message: "lease.query",
		Value: map[string]any{"held": true, "owner_id": "$request.route", "ttl_remaining": 9, "pending_waiters": 0}}}}},
	{On: fakebroker.On{Message: "lease.subscribe"}, Do: []fakebroker.Action{
		{Reply: &fakebroker.Record{Message: "lease.subscribe", Value: map[string]any{"subscription_id": 5}}},
		{Send: &fakebroker.Record{Message: "lease.notify", Value: map[string]any{"subscription_id": 5, "route": "$request.selector"}}},
	}},
}}

func newRig(t *testing.T, transport string, o proxy.Options) *rig {
	t.Helper()
	r := &rig{t: t, transport: transport, ctx: wiretest.Context(t), spec: wiretest.Spec(t)}
	fake, err := fakebroker.Start(r.spec, script, fakebroker.Options{Name: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	r.fake = fake
	if r.proxy, err = proxy.Start(r.spec, fake.Address, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.proxy.Close() })
	return r
}

// each runs a test over both transports, with a session that is open.
func each(t *testing.T, o proxy.Options, f func(t *testing.T, r *rig)) {
	wiretest.Transports(t, func(t *testing.T, transport string) {
		r := newRig(t, transport, o)
		r.peer = r.dial()
		f(t, r)
		if err := r.proxy.Err(); err != nil {
			t.Error(err)
		}
		if err := r.fake.Err(); err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) options() rawpeer.Options {
	return rawpeer.Options{Transport: r.transport, Address: r.proxy.Address(r.transport), Labels: true}
}

func (r *rig) dial() *rawpeer.Peer {
	r.t.Helper()
	p, err := rawpeer.Dial(r.ctx, r.spec, r.options())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Close)
	return p
}

// ask sends a QUERY of lease://r/a/ and a name.
func (r *rig) ask(name string) *rawpeer.Call {
	r.t.Helper()
	c, err := r.peer.Start(r.ctx, "lease.query", value{"route": "lease://r/a/" + name})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// answered waits for the reply to a QUERY and checks whose it is.
func (r *rig) answered(c *rawpeer.Call, name string) {
	r.t.Helper()
	rec, err := c.Reply(r.ctx)
	if err != nil || rec.Value["owner_id"] != "lease://r/a/"+name {
		r.t.Fatalf("reply to %s: %v, %v", name, rec, err)
	}
}

// alive asks and waits for the answer.
func (r *rig) alive() {
	r.t.Helper()
	r.answered(r.ask("alive"), "alive")
}

func (r *rig) await(f proxy.Filter, n int) {
	r.t.Helper()
	if err := r.proxy.Await(r.ctx, f, n); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) hits(rule *proxy.Rule, n int) {
	r.t.Helper()
	if err := rule.Await(r.ctx, n); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) count(f proxy.Filter, want int) {
	r.t.Helper()
	if n, err := r.proxy.Counts(f); err != nil || n != want {
		r.t.Errorf("%s: %d instead of %d, %v", f, n, want, err)
	}
}

// entry returns the nth frame that was read, from 1.
func (r *rig) entry(f trace.Filter, n int) trace.Entry {
	r.t.Helper()
	f.At = trace.Read
	e, err := r.proxy.Trace().Await(r.ctx, f, n)
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

func (r *rig) ended(p *rawpeer.Peer, how rawpeer.How) rawpeer.Close {
	r.t.Helper()
	end, err := p.AwaitClose(r.ctx)
	if err != nil || end.How != how {
		r.t.Fatalf("closed as %+v instead of %s, %v", end, how, err)
	}
	return end
}

var (
	queryReply     = proxy.Filter{Dir: oracle.Down, Message: "lease.query", Form: oracle.Reply}
	query          = proxy.Filter{Dir: oracle.Up, Message: "lease.query", Form: oracle.Request}
	subscribeReply = proxy.Filter{Dir: oracle.Down, Message: "lease.subscribe", Form: oracle.Reply}
	notify         = proxy.Filter{Dir: oracle.Down, Message: "lease.notify", Form: oracle.Push}
)

func nth(f proxy.Filter, n int) proxy.Filter { f.Nth, f.Count = n, 1; return f }

// What no rule touches goes on as it came: several records in one message stay together, and every frame is in the trace with both moments.
func TestPassing(t *testing.T) {
	each(t, proxy.Options{Name: "c1"}, func(t *testing.T, r *rig) {
		rec := func(name string, label uint64) oracle.Record {
			return oracle.Record{Message: "lease.query", Form: oracle.Request, Value: value{"route": "lease://r/a/" + name}, Label: label}
		}
		if err := r.peer.Send(r.ctx, rec("a", 70), rec("b", 71), rec("c", 0)); err != nil {
			t.Fatal(err)
		}
		r.await(queryReply, 3)
		r.count(query, 3)
		read, err := r.fake.Trace().Find(trace.Filter{Dir: oracle.Up, Message: "lease.query"})
		if err != nil || len(read) != 3 || read[0].Group != read[2].Group {
			t.Errorf("the broker got %v, %v", read, err)
		}
		if e := r.entry(trace.Filter{Dir: oracle.Up, Message: "lease.query"}, 2); e.Label != 71 || e.Fate != trace.Delivered || e.Delivered < e.At || e.Sent != nil {
			t.Errorf("%+v", e)
		}
		if r.proxy.Connections() != 1 || len(r.proxy.Open()) != 1 {
			t.Errorf("%d connections, open %v", r.proxy.Connections(), r.proxy.Open())
		}
		r.peer.Close()
		if err := r.proxy.AwaitClosed(r.ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestHold(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		rule := r.proxy.Hold(proxy.Filter{Name: "h1", Dir: oracle.Down, Message: "lease.query", Form: oracle.Reply, Count: 1})
		a := r.ask("a")
		r.hits(rule, 1)
		b := r.ask("b")
		// The reply to b is read behind the one that is held, and waits.
		if e := r.entry(trace.Filter{Dir: oracle.Down, Message: "lease.query"}, 2); e.Fate != trace.Waiting {
			t.Errorf("behind: %v", e)
		}
		if e := r.entry(trace.Filter{Dir: oracle.Down, Message: "lease.query"}, 1); e.Fate != trace.Held || e.Rule != "hold h1" {
			t.Errorf("held: %+v", e)
		}
		if err := r.proxy.Settle(r.ctx); err != nil {
			t.Fatal(err)
		}
		r.count(queryReply, 0)
		if !a.Pending() || !b.Pending() || rule.Held() != 1 {
			t.Errorf("pending %v %v, held %d", a.Pending(), b.Pending(), rule.Held())
		}
		rule.Release()
		r.answered(a, "a")
		r.answered(b, "b")
		got, err := r.peer.Trace().Find(trace.Filter{Dir: oracle.Down, Message: "lease.query"})
		if err != nil || len(got) != 2 || got[0].Label != a.Label() {
			t.Errorf("order: %v, %v", got, err)
		}
		if rule.Held() != 0 || rule.Hits() != 1 {
			t.Errorf("held %d, hits %d", rule.Held(), rule.Hits())
		}
	})
}

// Requests can be held too, one by one, and a rule that is lifted lets go of everything.
func TestHoldUp(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		rule := r.proxy.HoldAlone(query)
		a, b, c := r.ask("a"), r.ask("b"), r.ask("c")
		r.hits(rule, 3)
		rule.ReleaseFirst(1)
		r.answered(a, "a")
		if !b.Pending() || rule.Held() != 2 {
			t.Errorf("held %d", rule.Held())
		}
		rule.Lift()
		r.answered(b, "b")
		r.answered(c, "c")
		r.alive()
	})
}

func TestHoldAlone(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		rule := r.proxy.HoldAlone(nth(queryReply, 1))
		a := r.ask("a")
		r.hits(rule, 1)
		r.answered(r.ask("b"), "b")
		if !a.Pending() {
			t.Error("a was answered")
		}
		rule.Release()
		r.answered(a, "a")
	})
}

// What is held when its connection ends is lost, and the trace says so.
func TestHeldAtTheEnd(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		rule := r.proxy.Hold(queryReply)
		r.ask("a")
		r.hits(rule, 1)
		r.proxy.Cut()
		r.ended(r.peer, rawpeer.FIN)
		if e := r.entry(trace.Filter{Dir: oracle.Down, Message: "lease.query"}, 1); e.Fate != trace.Lost {
			t.Errorf("%v", e)
		}
		if rule.Held() != 0 {
			t.Errorf("held %d", rule.Held())
		}
		rule.Release()
		rule.Lift()
		r.peer = r.dial()
		r.alive()
	})
}

func TestReorder(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		rule := r.proxy.Reorder(subscribeReply)
		if rec, err := r.peer.Do(r.ctx, "lease.subscribe", value{"selector": "lease://r/a/*"}); err != nil || rec.Value["subscription_id"] != uint64(5) {
			t.Fatal(rec, err)
		}
		r.hits(rule, 1)
		got, err := r.proxy.Trace().Find(trace.Filter{Dir: oracle.Down})
		if err != nil || len(got) != 3 || got[1].Message != "lease.notify" || got[2].Message != "lease.subscribe" {
			t.Errorf("order: %v, %v", got, err)
		}
	})
}

// Delay is a hold that a timer ends.
func TestDelay(t *testing.T) {
	type timer struct {
		d time.Duration
		f func()
	}
	wiretest.Transports(t, func(t *testing.T, transport string) {
		var mu sync.Mutex
		var timers []timer
		stopped := 0
		o := proxy.Options{AfterFunc: func(d time.Duration, f func()) func() bool {
			mu.Lock()
			defer mu.Unlock()
			timers = append(timers, timer{d, f})
			return func() bool { mu.Lock(); defer mu.Unlock(); stopped++; return true }
		}}
		r := newRig(t, transport, o)
		r.peer = r.dial()
		rule := r.proxy.Delay(nth(queryReply, 1), 70*time.Millisecond)
		a := r.ask("a")
		r.hits(rule, 1)
		b := r.ask("b")
		r.entry(trace.Filter{Dir: oracle.Down, Message: "lease.query"}, 2)
		if !a.Pending() || !b.Pending() {
			t.Error("not delayed")
		}
		mu.Lock()
		due := timers
		mu.Unlock()
		if len(due) != 1 || due[0].d != 70*time.Millisecond {
			t.Fatalf("timers %v", due)
		}
		due[0].f()
		r.answered(a, "a")
		r.answered(b, "b")
		due[0].f()
		r.alive()
		r.proxy.Delay(queryReply, time.Hour)
		r.ask("c")
		if _, err := r.proxy.Trace().Await(r.ctx, trace.Filter{Dir: oracle.Down, Message: "lease.query", At: trace.Read}, 4); err != nil {
			t.Fatal(err)
		}
		_ = r.proxy.Close()
		mu.Lock()
		defer mu.Unlock()
		if len(timers) != 2 || stopped == 0 {
			t.Errorf("%d timers, %d stopped", len(timers), stopped)
		}
	})
}

func TestDrop(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		rule := r.proxy.Drop(nth(queryReply, 2))
		r.answered(r.ask("a"), "a")
		b := r.ask("b")
		r.answered(r.ask("c"), "c")
		if !b.Pending() || rule.Hits() != 1 {
			t.Errorf("hits %d", rule.Hits())
		}
		if e := r.entry(trace.Filter{Dir: oracle.Down, Message: "lease.query"}, 2); e.Fate != trace.Dropped {
			t.Errorf("%v", e)
		}
		r.count(queryReply, 2)
	})
}

func TestDuplicate(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		r.proxy.Duplicate(nth(queryReply, 1))
		a := r.ask("a")
		r.answered(a, "a")
		second, err := r.peer.Next(r.ctx, rawpeer.Filter{Message: "lease.query"})
		if err != nil || second.Label != a.Label() {
			t.Fatal(second, err)
		}
		r.count(queryReply, 2)
		if n, err := r.proxy.Trace().Count(trace.Filter{Dir: oracle.Down, Message: "lease.query", At: trace.Read}); err != nil || n != 1 {
			t.Errorf("read %d, %v", n, err)
		}
		r.alive()
	})
}

func TestCorrupt(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		// The last byte of pending_waiters, and the status.
		r.proxy.Corrupt(nth(queryReply, 1), -1, 0x41)
		rec, err := r.ask("a").Reply(r.ctx)
		if err != nil || rec.Value["pending_waiters"] != uint64(0x41) {
			t.Fatal(rec, err)
		}
		e := r.entry(trace.Filter{Dir: oracle.Down, Message: "lease.query"}, 1)
		if !bytes.Equal(e.Sent[:len(e.Sent)-1], e.Bytes[:len(e.Bytes)-1]) || e.Sent[len(e.Sent)-1] != 0x41 {
			t.Errorf("%x became %x", e.Bytes, e.Sent)
		}
		const status = 5
		r.proxy.Corrupt(nth(queryReply, 1), status, 0xFF)
		got, err := r.ask("b").Received(r.ctx)
		if err != nil || got.Fault == nil {
			t.Fatal(got.Entry, err)
		}
	})
}

func TestEdit(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		edit := r.proxy.Edit(queryReply, func(v oracle.Value) oracle.Value { v["owner_id"] = "someone"; return v })
		rec, err := r.ask("a").Reply(r.ctx)
		if err != nil || rec.Value["owner_id"] != "someone" || rec.Label == 0 {
			t.Fatal(rec, err)
		}
		edit.Lift()
		// Up too, and together with a hold: rules add up.
		r.proxy.Edit(nth(query, 1), func(v oracle.Value) oracle.Value { v["route"] = "lease://r/a/other"; return v })
		hold := r.proxy.Hold(nth(query, 1))
		call := r.ask("b")
		r.hits(hold, 1)
		hold.Release()
		r.answered(call, "other")
		if e := r.entry(trace.Filter{Dir: oracle.Up, Message: "lease.query"}, 2); e.Rule != "edit, hold" || e.Sent == nil {
			t.Errorf("%+v", e)
		}
		// A reply becomes a refusal, with another label if wanted.
		row, _ := r.spec.Error("LEASE_QUEUE_FULL")
		r.proxy.Replace(nth(queryReply, 1), func(rec oracle.Record) oracle.Record {
			return oracle.Record{Message: rec.Message, Form: oracle.Refusal, Label: rec.Label, Value: value{"code": row.Number, "message": "no"}}
		})
		if rec, err := r.ask("c").Reply(r.ctx); err != nil || rec.Form != oracle.Refusal || rec.Value["code"] != uint64(row.Number) {
			t.Fatal(rec, err)
		}
		r.proxy.EditBytes(nth(queryReply, 1), func(b []byte) []byte { return append(b[:3:3], 0, 1, 9) })
		if got, err := r.ask("d").Received(r.ctx); err != nil || len(got.Entry.Record) != 6 || got.Fault == nil {
			t.Fatal(got.Entry, err)
		}
		r.alive()
	})
}

// An edit that cannot be done is no silent pass.
func TestEditProblem(t *testing.T) {
	wiretest.Transports(t, func(t *testing.T, transport string) {
		r := newRig(t, transport, proxy.Options{})
		r.peer = r.dial()
		r.proxy.Edit(nth(queryReply, 1), func(v oracle.Value) oracle.Value { v["nonsense"] = 1; return v })
		r.alive()
		if r.proxy.Err() == nil {
			t.Error("no problem")
		}
		r.proxy.Corrupt(nth(queryReply, 1), 1000, 1)
		r.alive()
	})
	if _, err := proxy.Start(wiretest.Spec(t), nil, proxy.Options{HideCapabilities: []string{"nonsense"}}); err == nil {
		t.Error("no such capability")
	}
}

func TestAnswer(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		row, _ := r.spec.Error("LEASE_QUEUE_FULL")
		r.proxy.Answer(nth(query, 1), func(request oracle.Record) []oracle.Record {
			return []oracle.Record{{Message: request.Message, Form: oracle.Refusal, Value: value{"code": row.Number, "message": request.Value["route"]}}}
		})
		rec, err := r.ask("a").Reply(r.ctx)
		if err != nil || rec.Form != oracle.Refusal || rec.Value["message"] != "lease://r/a/a" {
			t.Fatal(rec, err)
		}
		r.alive()
		if n, err := r.fake.Trace().Count(trace.Filter{Dir: oracle.Up, Message: "lease.query"}); err != nil || n != 1 {
			t.Errorf("the broker got %d, %v", n, err)
		}
		if e := r.entry(trace.Filter{Dir: oracle.Up, Message: "lease.query"}, 1); e.Fate != trace.Answered {
			t.Errorf("%v", e)
		}
	})
}

func TestSplit(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		up, down := r.proxy.Split(query), r.proxy.Split(queryReply)
		r.alive()
		r.alive()
		if up.Hits() != 2 || down.Hits() != 2 {
			t.Errorf("%d, %d", up.Hits(), down.Hits())
		}
	})
}

func TestCoalesceAndJoin(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		groups := func() (first, second int) {
			a, b := r.ask("a"), r.ask("b")
			one, err := a.Received(r.ctx)
			if err != nil {
				t.Fatal(err)
			}
			two, err := b.Received(r.ctx)
			if err != nil {
				t.Fatal(err)
			}
			return one.Group, two.Group
		}
		rule := r.proxy.Coalesce(nth(queryReply, 1), 2)
		if one, two := groups(); one == two {
			t.Error("coalesced messages are one message")
		}
		rule.Lift()
		r.proxy.Join(nth(queryReply, 1), 2)
		if one, two := groups(); one != two {
			t.Errorf("W-14: joined frames are in messages %d and %d", one, two)
		}
		// What waits for company goes when it is told to, and when the stream ends.
		rule = r.proxy.Join(nth(queryReply, 1), 3)
		a := r.ask("a")
		r.hits(rule, 1)
		rule.Release()
		r.answered(a, "a")
		r.proxy.Coalesce(nth(queryReply, 1), 3)
		a = r.ask("a")
		r.entry(trace.Filter{Dir: oracle.Down, Message: "lease.query"}, 6)
		if err := r.fake.Do(r.ctx, 0, fakebroker.Action{Close: &fakebroker.Closing{Code: 1001}}); err != nil {
			t.Fatal(err)
		}
		r.answered(a, "a")
	})
}

func TestOversize(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		r.proxy.Oversize(nth(queryReply, 1), 0)
		r.ask("a")
		got, err := r.peer.Next(r.ctx, rawpeer.Filter{Kind: trace.Bytes})
		if err != nil || len(got.Bytes) == 0 {
			t.Fatal(got, err)
		}
	})
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		r.proxy.Oversize(nth(query, 1), 0)
		r.ask("a")
		if _, err := r.fake.Next(r.ctx, fakebroker.Filter{Kind: trace.Bytes}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestReframe(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		r.proxy.Reframe(nth(query, 1), proxy.WebSocketFrame{Fragment: 3})
		r.proxy.Reframe(nth(queryReply, 1), proxy.WebSocketFrame{Fragment: 1})
		r.alive()
	})
	for name, w := range map[string]proxy.WebSocketFrame{
		"W-22 text": {Text: true}, "W-23 mask": {WrongMask: true}, "W-23 reserved": {Reserved: 0x20},
	} {
		t.Run(name, func(t *testing.T) {
			for _, f := range []proxy.Filter{query, queryReply} {
				r := newRig(t, rawpeer.WebSocket, proxy.Options{})
				r.peer = r.dial()
				r.proxy.Reframe(f, w)
				r.ask("a")
				var err error
				if f.Dir == oracle.Up {
					_, err = r.fake.Next(r.ctx, fakebroker.Filter{Kind: trace.Bytes})
				} else {
					_, err = r.peer.Next(r.ctx, rawpeer.Filter{Kind: trace.Bytes})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	r := newRig(t, rawpeer.WebSocket, proxy.Options{})
	r.peer = r.dial()
	r.proxy.Reframe(nth(queryReply, 1), proxy.WebSocketFrame{Unended: true})
	a := r.ask("a")
	r.await(queryReply, 1)
	r.proxy.Cut()
	r.ended(r.peer, rawpeer.FIN)
	if !a.Pending() {
		t.Error("a message that has not ended was taken")
	}
}

func TestInject(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		push := oracle.Record{Message: "lease.notify", Form: oracle.Push, Value: value{"subscription_id": 99, "route": "lease://r/a/x"}}
		if err := r.proxy.Inject(0, oracle.Down, push, push); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := r.peer.Next(r.ctx, rawpeer.Filter{Message: "lease.notify"}); err != nil || got.Record.Value["subscription_id"] != uint64(99) {
				t.Fatal(got, err)
			}
		}
		r.count(notify, 2)
		if err := r.proxy.Inject(1, oracle.Up, oracle.Record{Message: "session.ping", Form: oracle.Control, Value: value{"nonce": 3}}); err != nil {
			t.Fatal(err)
		}
		if got, err := r.peer.Next(r.ctx, rawpeer.Filter{Message: "session.pong"}); err != nil || got.Record.Value["nonce"] != uint64(3) {
			t.Fatal(got, err)
		}
		if err := r.proxy.InjectBytes(0, oracle.Down, bytes.Repeat([]byte{0xFF}, 14)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.peer.Next(r.ctx, rawpeer.Filter{Kind: trace.Bytes}); err != nil {
			t.Fatal(err)
		}
		if r.proxy.Inject(7, oracle.Down, push) == nil {
			t.Error("injected into a connection that is not there")
		}
		if r.proxy.Inject(0, oracle.Down, oracle.Record{Message: "nonsense"}) == nil {
			t.Error("injected nonsense")
		}
	})
}

func TestCut(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		if f := r.proxy.Cut(); f.Hits() != 1 {
			t.Errorf("hits %d", f.Hits())
		}
		r.ended(r.peer, rawpeer.FIN)
		r.peer.Close()
		if err := r.proxy.AwaitClosed(r.ctx); err != nil {
			t.Error(err)
		}
		address := r.proxy.Address(r.transport)
		r.peer = r.dial()
		r.alive()
		if r.proxy.Address(r.transport) != address || r.proxy.Connections() != 2 {
			t.Error("another address, or connections lost")
		}
		if n, err := r.fake.Trace().Count(trace.Filter{Kind: trace.Event, Dir: oracle.Up, Message: "FIN"}); err != nil || n != 1 {
			t.Errorf("the broker saw %d ends, %v", n, err)
		}
	})
}

func TestReset(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		r.proxy.Reset()
		r.ended(r.peer, rawpeer.RST)
		if _, err := r.fake.Trace().Await(r.ctx, trace.Filter{Kind: trace.Event, Dir: oracle.Up, Message: "RST"}, 1); err != nil {
			t.Error(err)
		}
		r.peer = r.dial()
		r.alive()
	})
}

// The end of one side reaches the other as what it was.
func TestEndsPass(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		if err := r.fake.Do(r.ctx, 0, fakebroker.Action{Reset: true}); err != nil {
			t.Fatal(err)
		}
		r.ended(r.peer, rawpeer.RST)
		r.peer = r.dial()
		if err := r.fake.Do(r.ctx, 0, fakebroker.Action{Close: &fakebroker.Closing{Code: 1013, Text: "slow consumer"}}); err != nil {
			t.Fatal(err)
		}
		if r.transport == rawpeer.TCP {
			r.ended(r.peer, rawpeer.FIN)
		} else if end := r.ended(r.peer, rawpeer.WS); end.Code != 1013 || end.Text != "slow consumer" {
			t.Errorf("%+v", end)
		}
		r.peer = r.dial()
		r.alive()
		r.peer.Reset()
		if _, err := r.fake.Trace().Await(r.ctx, trace.Filter{Kind: trace.Event, Dir: oracle.Up, Conn: 3, Message: "RST"}, 1); err != nil {
			t.Error(err)
		}
		r.peer = r.dial()
		r.fake.Close()
		if end, err := r.peer.AwaitClose(r.ctx); err != nil || end.How == rawpeer.Local {
			t.Errorf("%+v, %v", end, err)
		}
		// With no broker behind it, a connection is reset.
		_, err := rawpeer.Dial(r.ctx, r.spec, r.options())
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial without a broker: %v", err)
		}
	})
}

// Half a message, and what is no message, go through as they are.
func TestForeign(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		if err := r.peer.Write(r.ctx, []byte{0x82}, 0); err != nil {
			t.Fatal(err)
		}
		r.peer.CloseWrite()
		got, err := r.fake.Trace().Await(r.ctx, trace.Filter{Kind: trace.Bytes, Dir: oracle.Up}, 1)
		if err != nil || !bytes.Equal(got.Bytes, []byte{0x82}) {
			t.Errorf("%v, %v", got, err)
		}
		r.peer.Close()
		r.peer = r.dial()
		junk := bytes.Repeat([]byte{0xEE}, 100)
		if err := r.peer.Write(r.ctx, junk, 0); err != nil {
			t.Fatal(err)
		}
		if got, err = r.fake.Trace().Await(r.ctx, trace.Filter{Kind: trace.Bytes, Dir: oracle.Up}, 2); err != nil || !bytes.Equal(got.Bytes, junk) {
			t.Errorf("%v, %v", got, err)
		}
		// A message whose records do not fit is passed on and recorded as bytes with what is wrong.
		r.peer.Close()
		r.peer = r.dial()
		if err := r.peer.SendMessage(r.ctx, []byte{5, 0, 9, 1}); err != nil {
			t.Fatal(err)
		}
		if got, err = r.proxy.Trace().Await(r.ctx, trace.Filter{Kind: trace.Bytes, Dir: oracle.Up}, 3); err != nil || got.Fault == nil {
			t.Errorf("%v, %v", got, err)
		}
		r.alive()
	})
}

func TestWSClose(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		if f := r.proxy.WSClose(1012, "service restart"); f.Hits() != 1 {
			t.Errorf("hits %d", f.Hits())
		}
		if r.transport == rawpeer.TCP {
			r.ended(r.peer, rawpeer.FIN)
			return
		}
		if end := r.ended(r.peer, rawpeer.WS); end.Code != 1012 || end.Text != "service restart" {
			t.Errorf("%+v", end)
		}
	})
}

func TestBlackHole(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		hole := r.proxy.BlackHole()
		lost := r.ask("lost")
		swallowed := trace.Filter{Dir: oracle.Up, Message: "lease.query"}
		r.entry(swallowed, 1)
		if err := r.proxy.Settle(r.ctx); err != nil {
			t.Fatal(err)
		}
		if e := r.entry(swallowed, 1); e.Fate != trace.Swallowed {
			t.Errorf("%v", e)
		}
		// The end of the broker is not told while the hole is there.
		if err := r.fake.Do(r.ctx, 0, fakebroker.Action{Close: &fakebroker.Closing{}}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.proxy.Trace().Await(r.ctx, trace.Filter{Kind: trace.Event, Dir: oracle.Down, Message: "FIN", At: trace.Read}, 1); err != nil {
			t.Fatal(err)
		}
		// A new connection is accepted, and nothing comes back.
		ctx, cancel := context.WithCancel(r.ctx)
		done := make(chan error, 1)
		go func() {
			_, err := rawpeer.Dial(ctx, r.spec, r.options())
			done <- err
		}()
		if err := r.proxy.AwaitConnections(r.ctx, 2); err != nil {
			t.Fatal(err)
		}
		if _, err := r.proxy.Trace().Await(r.ctx, trace.Filter{Conn: 2, Dir: oracle.Up, At: trace.Read,
			Kind: map[string]trace.Kind{rawpeer.TCP: trace.Frame, rawpeer.WebSocket: trace.Head}[r.transport]}, 1); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("dial in a black hole: %v", err)
		}
		if !lost.Pending() {
			t.Error("something came through")
		}
		hole.Lift()
		hole.Lift()
		r.ended(r.peer, rawpeer.FIN)
		r.peer = r.dial()
		r.alive()
	})
}

func TestFreeze(t *testing.T) {
	for _, dir := range []oracle.Direction{oracle.Up, oracle.Down} {
		each(t, proxy.Options{}, func(t *testing.T, r *rig) {
			r.alive()
			frozen := r.proxy.Freeze(dir)
			a := r.ask("a")
			if dir == oracle.Down {
				if _, err := r.fake.Trace().Await(r.ctx, trace.Filter{Dir: oracle.Down, Message: "lease.query"}, 2); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.proxy.Settle(r.ctx); err != nil {
				t.Fatal(err)
			}
			r.count(queryReply, 1)
			if !a.Pending() {
				t.Error("not frozen")
			}
			frozen.Lift()
			r.answered(a, "a")
		})
	}
}

func TestRefuse(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		f := r.proxy.Refuse(2)
		for range 2 {
			if p, err := rawpeer.Dial(r.ctx, r.spec, r.options()); err == nil {
				p.Close()
				t.Fatal("not refused")
			}
		}
		if err := f.Await(r.ctx, 2); err != nil {
			t.Error(err)
		}
		r.dial()
		lasting := r.proxy.Refuse(0)
		for range 3 {
			if p, err := rawpeer.Dial(r.ctx, r.spec, r.options()); err == nil {
				p.Close()
				t.Fatal("not refused")
			}
		}
		lasting.Lift()
		r.dial()
		if f.Hits() != 2 || lasting.Hits() != 3 {
			t.Errorf("%d, %d", f.Hits(), lasting.Hits())
		}
		r.alive()
	})
}

func TestShut(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		for range 3 {
			f := r.proxy.Shut()
			if _, err := net.Dial("tcp", r.proxy.Address(r.transport)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Fatalf("dial: %v", err)
			}
			if l, err := net.Listen("tcp", r.proxy.Address(r.transport)); err == nil {
				_ = l.Close()
				t.Fatal("somebody else can have the port")
			}
			f.Lift()
			r.dial()
		}
		r.alive()
		r.proxy.Shut()
	})
}

// W-34: the broker sees neither the token nor the connection as a session.
func TestAuthReject(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		f := r.proxy.AuthReject(1)
		_, err := rawpeer.Dial(r.ctx, r.spec, r.options())
		var end *rawpeer.Close
		if !errors.As(err, &end) || r.transport == rawpeer.WebSocket && (end.How != rawpeer.WS || end.Code != 1008) || r.transport == rawpeer.TCP && end.How != rawpeer.FIN {
			t.Fatalf("%v", err)
		}
		if f.Hits() != 1 {
			t.Errorf("hits %d", f.Hits())
		}
		if n, err := r.fake.Trace().Count(trace.Filter{Conn: 2}); err != nil || n != 0 {
			t.Errorf("the broker got %d frames, %v", n, err)
		}
		r.dial()
		r.alive()
	})
}

func TestMutePing(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		send := func(nonce int) {
			if err := r.peer.Send(r.ctx, oracle.Record{Message: "session.ping", Form: oracle.Control, Value: value{"nonce": nonce}}); err != nil {
				t.Fatal(err)
			}
			if r.transport == rawpeer.WebSocket {
				if err := r.peer.SendFrame(r.ctx, rawpeer.WebSocketFrame{Opcode: 9, Masked: true, Payload: []byte{byte(nonce)}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		muted := r.proxy.MutePing()
		send(1)
		r.alive()
		muted.Lift()
		send(2)
		if got, err := r.peer.Next(r.ctx, rawpeer.Filter{Message: "session.pong"}); err != nil || got.Record.Value["nonce"] != uint64(2) {
			t.Fatal(got, err)
		}
		if r.transport == rawpeer.WebSocket {
			if got, err := r.peer.Next(r.ctx, rawpeer.Filter{Kind: trace.Control}); err != nil || !bytes.Equal(got.Bytes, []byte{2}) {
				t.Fatal(got, err)
			}
		}
	})
}

func TestSwapBroker(t *testing.T) {
	each(t, proxy.Options{}, func(t *testing.T, r *rig) {
		other, err := fakebroker.Start(r.spec, script, fakebroker.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(other.Close)
		r.proxy.SwapBroker(other.Address)
		r.alive()
		r.proxy.Cut()
		r.ended(r.peer, rawpeer.FIN)
		r.peer = r.dial()
		r.alive()
		if n, err := other.Trace().Count(trace.Filter{Dir: oracle.Up, Message: "lease.query"}); err != nil || n != 1 {
			t.Errorf("the other broker got %d, %v", n, err)
		}
	})
}

// compat.md C-60, C-61: what a client that sees less of the hello falls back to.
func TestHide(t *testing.T) {
	for _, test := range []struct {
		hide      []string
		lifecycle bool
	}{
		{[]string{"correlation"}, true},
		{[]string{"lifecycle"}, false},
		{[]string{"correlation", "session_metadata", "lifecycle"}, false},
	} {
		wiretest.Transports(t, func(t *testing.T, transport string) {
			r := newRig(t, transport, proxy.Options{HideCapabilities: test.hide})
			o := r.options()
			o.Labels = false
			p, err := rawpeer.Dial(r.ctx, r.spec, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			hello, _ := p.Hello()
			for _, name := range []string{"correlation", "session_metadata", "lifecycle"} {
				bit, _ := r.spec.Capability(name)
				hidden := false
				for _, other := range test.hide {
					hidden = hidden || other == name
				}
				if bits, _ := hello.Value["capabilities"].(uint64); (bits&bit == 0) != hidden {
					t.Errorf("%v hidden: bits %x", test.hide, bits)
				}
			}
			if _, has := hello.Value["lifecycle"]; has != test.lifecycle {
				t.Errorf("%v hidden: lifecycle %v", test.hide, has)
			}
			o.Labels = true
			if test.hide[0] == "correlation" {
				if _, err := rawpeer.Dial(r.ctx, r.spec, o); err == nil {
					t.Error("labels without correlation")
				}
			}
		})
	}
	wiretest.Transports(t, func(t *testing.T, transport string) {
		r := newRig(t, transport, proxy.Options{HideHello: true})
		o := r.options()
		o.NoHello, o.Labels = true, false
		p, err := rawpeer.Dial(r.ctx, r.spec, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		r.peer = p
		r.alive()
		if _, ok := p.Hello(); ok {
			t.Error("a hello came")
		}
	})
}

// The proxy in front of the broker of this project, and the deadline of a wait.
func TestBroker(t *testing.T) {
	address := wiretest.Broker(t)
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p, err := proxy.Start(wiretest.Spec(t), address, proxy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		ctx := wiretest.Context(t)
		peer, err := rawpeer.Dial(ctx, wiretest.Spec(t), rawpeer.Options{Transport: transport, Address: p.Address(transport), Labels: true, Negotiate: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(peer.Close)
		// W-46: the reply is before the push; held back, so is the push behind it.
		rule := p.Hold(nth(subscribeReply, 1))
		route := "lease://" + transport + "/p/k"
		call, err := peer.Start(ctx, "lease.subscribe", value{"selector": route})
		if err != nil {
			t.Fatal(err)
		}
		if err := rule.Await(ctx, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Start(ctx, "lease.acquire", value{"route": route, "owner_id": "o", "ttl": 30}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Trace().Await(ctx, trace.Filter{Dir: oracle.Down, Message: "lease.notify", At: trace.Read}, 1); err != nil {
			t.Fatal(err)
		}
		if n, err := p.Counts(notify); err != nil || n != 0 || !call.Pending() {
			t.Errorf("%d pushes, %v", n, err)
		}
		rule.Release()
		if err := p.Await(ctx, notify, 1); err != nil {
			t.Error(err)
		}
		short, cancel := context.WithCancelCause(ctx)
		cancel(os.ErrDeadlineExceeded)
		if err := p.Await(short, notify, 2); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if err := rule.Await(short, 2); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
