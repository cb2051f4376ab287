package fakebroker_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/internal/wiretest"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/rawpeer"
	"github.com/fitzwire/fitz/conformance/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIndependence(t *testing.T) {
	wiretest.Independent(t, "github.com/fitzwire/fitz/conformance/fakebroker")
}

type value = oracle.Value

func read(t *testing.T, text string) fakebroker.Script {
	t.Helper()
	var s fakebroker.Script
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t *testing.T, script string) *fakebroker.Broker {
	t.Helper()
	b, err := fakebroker.Start(wiretest.Spec(t), read(t, script), fakebroker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func dial(t *testing.T, b *fakebroker.Broker, transport string, o rawpeer.Options) *rawpeer.Peer {
	t.Helper()
	o.Transport, o.Address = transport, b.Address(transport)
	p, err := rawpeer.Dial(wiretest.Context(t), wiretest.Spec(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Answers that no good broker gives, each as data. The peer tells what it got: "message form label value-or-fault".
func TestBadAnswers(t *testing.T) {
	const list = "lease.list"
	tests := []struct {
		name   string
		script string // of the rule for the request
		ask    string
		args   value
		want   []string // what comes, in order
		closes rawpeer.How
	}{
		{name: "unknown error code", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, value: {code: 4999, message: what}}}]`, want: []string{"lease.query refusal 1 code=4999"}},
		{name: "error code by name", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, value: {code: LEASE_HELD, message: who}}}]`, want: []string{"lease.query refusal 1 code=5001"}},
		{name: "code of a push by name", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{send: {message: session.goaway, value: {grace_ms: 1, code: GOAWAY_DRAIN, reason: x}}}]`, want: []string{"session.goaway control 0 code=9202"}},
		{name: "D-6 unknown grant kind", ask: "lease.acquire", args: value{"route": "lease://r/a/k", "owner_id": "o", "ttl": 9},
			script: `[{reply: {message: lease.acquire, value: {kind: 9, fencing_token: 1}}}]`, want: []string{"lease.acquire reply 1 bad_enum"}},
		{name: "OBS-010 empty page with more", ask: list, args: value{"selector": "lease://r/a/*", "limit": 0},
			script: `[{reply: {message: lease.list, value: {items: [], next: {snapshot_id: 3, offset: 1}}}}]`, want: []string{"lease.list reply 1 items=[] next=map[offset:1 snapshot_id:3]"}},
		{name: "OBS-047 NOTIFY with a payload", ask: "lease.subscribe", args: value{"selector": "lease://r/a/*"},
			script: `[{reply: {message: lease.subscribe, value: {subscription_id: 5}}}, {send: {message: lease.notify, value: {subscription_id: 5, route: "$request.selector", payload_length: 1}, append: "00", fit: true}}]`,
			want:   []string{"lease.subscribe reply 1 subscription_id=5", "lease.notify push 0 bad_constant"}},
		{name: "OBS-051 NOTIFY for an id that nobody has", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{send: {message: lease.notify, value: {subscription_id: 77, route: "$request.route"}}}]`, want: []string{"lease.notify push 0 route=lease://r/a/k subscription_id=77"}},
		{name: "W-58 reply to a label never sent", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, label: 404, value: {held: false, pending_waiters: 0}}}]`, want: []string{"lease.query reply 404 held=false pending_waiters=0"}},
		{name: "reply twice", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, value: {held: false, pending_waiters: 0}}, times: 2}]`,
			want:   []string{"lease.query reply 1 held=false pending_waiters=0", "lease.query reply 1 held=false pending_waiters=0"}},
		{name: "reply without its label", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, no_label: true, value: {held: false, pending_waiters: 0}}}]`, want: []string{"lease.query reply 0 held=false pending_waiters=0"}},
		{name: "reply of another message", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.release, value: {}}}]`, want: []string{"lease.release reply 1"}},
		{name: "bad UTF-8", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, value: {held: true, owner_id: x, ttl_remaining: 1, pending_waiters: 0}, set: {11: ff}}}]`, want: []string{"lease.query reply 1 bad_utf8"}},
		{name: "D-1 cut off value", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, value: {held: false, pending_waiters: 0}, cut: 1, fit: true}}]`, want: []string{"lease.query reply 1 truncated"}},
		{name: "D-4 later bytes", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, value: {held: false, pending_waiters: 0}, append: 00 01, fit: true}}]`, want: []string{"lease.query reply 1 trailing"}},
		{name: "W-03 cut off record", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{reply: {message: lease.query, value: {held: false, pending_waiters: 0}, cut: 1}}]`, want: []string{"bytes bad_frame"}},
		{name: "second hello", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{send_hello: {capabilities: []}}]`, want: []string{"session.server_hello control 0 capabilities=0 version=1"}},
		{name: "W-14 several records in one message", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{together: [{message: lease.query, value: {held: false, pending_waiters: 0}}, {message: session.ping, no_label: true, value: {nonce: 8}}]}]`,
			want:   []string{"lease.query reply 1 held=false pending_waiters=0", "session.ping control 0 nonce=8"}},
		{name: "record as bytes", ask: "lease.query", args: value{"route": "lease://r/a/k"}, script: `[{send: {hex: c9 0001 07}}]`, want: []string{"type 201 0"}},
		{name: "message as bytes", ask: "lease.query", args: value{"route": "lease://r/a/k"}, script: `[{message: "f20008 0000000000000001"}]`, want: []string{"session.pong control 0 nonce=1"}},
		{name: "W-03 empty message", ask: "lease.query", args: value{"route": "lease://r/a/k"}, script: `[{message: ""}]`, want: []string{"bytes bad_frame"}},
		{name: "stream of junk", ask: "lease.query", args: value{"route": "lease://r/a/k"}, script: `[{raw: "ffffffffffffffffffffffffffffffff", chunk: 16}]`, want: []string{"bytes"}},
		{name: "giant length", ask: "lease.query", args: value{"route": "lease://r/a/k"},
			script: `[{declare: {size: 4000000000, record: {message: lease.query, value: {held: false, pending_waiters: 0}}}}]`, want: []string{"bytes"}},
		{name: "close", ask: "lease.query", args: value{"route": "lease://r/a/k"}, script: `[{close: {code: 1013, text: slow consumer}}]`, closes: rawpeer.WS},
		{name: "end without a close frame", ask: "lease.query", args: value{"route": "lease://r/a/k"}, script: `[{close: {}}]`, closes: rawpeer.FIN},
		{name: "reset", ask: "lease.query", args: value{"route": "lease://r/a/k"}, script: `[{reset: true}]`, closes: rawpeer.RST},
		{name: "no answer, then an end", ask: "lease.query", args: value{"route": "lease://r/a/k"}, script: `[]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wiretest.Transports(t, func(t *testing.T, transport string) {
				b := start(t, "rules: [{name: r, on: {message: "+test.ask+"}, do: "+test.script+"}]")
				p := dial(t, b, transport, rawpeer.Options{})
				ctx := wiretest.Context(t)
				if err := p.Send(ctx, oracle.Record{Message: test.ask, Form: oracle.Request, Value: test.args, Label: 1}); err != nil {
					t.Fatal(err)
				}
				for _, want := range test.want {
					got, err := p.First(ctx)
					if err != nil || show(got) != want {
						t.Fatalf("%q instead of %q, %v", show(got), want, err)
					}
				}
				if err := b.AwaitHits(ctx, "r", 1); err != nil || b.Hits("r") != 1 {
					t.Fatal(err)
				}
				how := test.closes
				if how == "" {
					// Nothing else came before the end.
					if err := b.Do(ctx, 0, fakebroker.Action{Reset: true}); err != nil {
						t.Fatal(err)
					}
					how = rawpeer.RST
				}
				if how == rawpeer.WS && transport == rawpeer.TCP {
					how = rawpeer.FIN
				}
				end, err := p.AwaitClose(ctx)
				if err != nil || end.How != how || how == rawpeer.WS && (end.Code != 1013 || end.Text != "slow consumer") {
					t.Errorf("closed as %+v instead of %s, %v", end, how, err)
				}
				if left := p.Untaken(); len(left) > 0 {
					t.Errorf("more came: %s", show(left[0]))
				}
				if err := b.Err(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func show(r rawpeer.Received) string {
	if r.Kind != trace.Frame {
		if r.Fault == nil {
			return string(r.Kind)
		}
		return string(r.Kind) + " " + string(r.Fault.Class)
	}
	if r.Message == "" {
		return fmt.Sprintf("type %d %d", r.Entry.Type, r.Label)
	}
	out := fmt.Sprintf("%s %s %d", r.Message, r.Form, r.Label)
	if r.Fault != nil {
		return out + " " + string(r.Fault.Class)
	}
	if code, refused := r.Record.Value["code"]; refused {
		return out + fmt.Sprintf(" code=%v", code)
	}
	for _, name := range []string{"capabilities", "held", "items", "kind", "next", "nonce", "pending_waiters", "route", "subscription_id", "version"} {
		if v, ok := r.Record.Value[name]; ok {
			if inner, deep := v.(value); deep {
				v = map[string]any(inner)
			}
			out += fmt.Sprintf(" %s=%v", name, v)
		}
	}
	return out
}

// Rules are asked in order, by message, fields, connection and number.
func TestRules(t *testing.T) {
	wiretest.Transports(t, func(t *testing.T, transport string) {
		b := start(t, `
hello: {capabilities: [correlation], version: 7}
rules:
  - {name: second, on: {message: lease.query, nth: 2, count: 1}, do: [{reply: {message: lease.query, value: {held: false, pending_waiters: 2}}}]}
  - {name: where, on: {message: lease.query, where: {route: "lease://r/a/w"}}, do: [{reply: {message: lease.query, value: {held: false, pending_waiters: 77}}}]}
  - {name: other, on: {message: lease.query, conn: 2}, do: [{reply: {message: lease.query, value: {held: false, pending_waiters: 20}}}]}
  - {name: rest, on: {message: lease.query}, do: [{reply: {message: lease.query, value: {held: false, pending_waiters: 1}}}]}
`)
		p := dial(t, b, transport, rawpeer.Options{Labels: true})
		if hello, _ := p.Hello(); hello.Value["version"] != uint64(7) || hello.Value["lifecycle"] != nil {
			t.Errorf("hello %v", hello.Value)
		}
		ask := func(p *rawpeer.Peer, route string, want uint64) {
			t.Helper()
			rec, err := p.Do(wiretest.Context(t), "lease.query", value{"route": route})
			if err != nil || rec.Value["pending_waiters"] != want {
				t.Errorf("%s: %v, %v", route, rec, err)
			}
		}
		ask(p, "lease://r/a/k", 1)
		ask(p, "lease://r/a/k", 2)
		ask(p, "lease://r/a/k", 1)
		ask(p, "lease://r/a/w", 77)
		ask(dial(t, b, transport, rawpeer.Options{}), "lease://r/a/k", 20)
		for name, want := range map[string]int{"second": 1, "where": 1, "other": 1, "rest": 2} {
			if b.Hits(name) != want {
				t.Errorf("rule %s was followed %d times", name, b.Hits(name))
			}
		}
		if err := b.AwaitConnections(wiretest.Context(t), 2); err != nil || len(b.Open()) != 2 {
			t.Error(err, b.Open())
		}
	})
}

// A rule that waits lets others go on, and goes on when it is released; at the end of the broker nothing of it is left.
func TestWait(t *testing.T) {
	wiretest.Transports(t, func(t *testing.T, transport string) {
		b := start(t, `
rules:
  - {on: {message: lease.list}, do: [{wait: g}, {reply: {message: lease.list, value: {items: []}}}, {send: {message: session.ping, value: {nonce: 1}}}]}
  - {on: {message: lease.query}, do: [{reply: {message: lease.query, value: {held: false, pending_waiters: 0}}}]}
  - {on: {message: lease.release}, do: [{wait: never}]}
`)
		p := dial(t, b, transport, rawpeer.Options{Labels: true})
		ctx := wiretest.Context(t)
		call, err := p.Start(ctx, "lease.list", value{"selector": "lease://r/a/*", "limit": 0})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.AwaitWaiting(ctx, "g", 1); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Do(ctx, "lease.query", value{"route": "lease://r/a/k"}); err != nil || !call.Pending() {
			t.Fatal(err)
		}
		b.Release("g")
		if _, err := call.Reply(ctx); err != nil {
			t.Fatal(err)
		}
		if got, err := p.Next(ctx, rawpeer.Filter{Message: "session.ping"}); err != nil || got.Record.Value["nonce"] != uint64(1) {
			t.Fatal(err)
		}
		if _, err := p.Do(ctx, "lease.list", value{"selector": "lease://r/a/*", "limit": 0}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Start(ctx, "lease.release", value{"route": "lease://r/a/k", "owner_id": "o", "fencing_token": 1}); err != nil {
			t.Fatal(err)
		}
		if err := b.AwaitWaiting(ctx, "never", 1); err != nil {
			t.Fatal(err)
		}
	})
}

// By itself a broker answers CONNECT and PING, unless it is told not to; a rule may speak first.
func TestByItself(t *testing.T) {
	wiretest.Transports(t, func(t *testing.T, transport string) {
		ctx := wiretest.Context(t)
		send := func(p *rawpeer.Peer) {
			t.Helper()
			if err := p.Send(ctx, oracle.Record{Message: "session.ping", Form: oracle.Control, Value: value{"nonce": 6}}); err != nil {
				t.Fatal(err)
			}
		}
		p := dial(t, start(t, "{}"), transport, rawpeer.Options{Negotiate: true, Want: []string{"lifecycle"}, AutoPong: true})
		send(p)
		if got, err := p.Next(ctx, rawpeer.Filter{Message: "session.pong"}); err != nil || got.Record.Value["nonce"] != uint64(6) {
			t.Fatal(got, err)
		}
		quiet := start(t, `
hello: {off: true}
mute: true
rules: [{on: {opened: true}, do: [{send: {message: session.ping, value: {nonce: 1}}}]}]
`)
		p = dial(t, quiet, transport, rawpeer.Options{NoHello: true, AutoPong: true})
		send(p)
		if _, err := quiet.Next(ctx, fakebroker.Filter{Conn: 1, Message: "session.pong", Match: func(r fakebroker.Received) bool { return r.Record.Value["nonce"] == uint64(1) }}); err != nil {
			t.Fatal(err)
		}
		if transport == rawpeer.WebSocket {
			if err := quiet.SendFrame(ctx, 0, fakebroker.WebSocketFrame{Opcode: 9, Payload: []byte("p")}); err != nil {
				t.Fatal(err)
			}
			if got, err := quiet.Next(ctx, fakebroker.Filter{Kind: trace.Control}); err != nil || string(got.Bytes) != "p" {
				t.Fatal(got, err)
			}
		}
		if _, err := quiet.Next(ctx, fakebroker.Filter{Message: "session.ping"}); err != nil {
			t.Fatal(err)
		}
		if err := quiet.Do(ctx, 1, fakebroker.Action{Reset: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.AwaitClose(ctx); err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Untaken() {
			t.Errorf("an answer: %s", show(r))
		}
	})
}

// What cannot be done is a problem that Err reports.
func TestProblems(t *testing.T) {
	b := start(t, `rules: [{on: {message: lease.query}, do: [{reply: {message: lease.query, value: {held: "$request.nothing"}}}]}]`)
	p := dial(t, b, rawpeer.TCP, rawpeer.Options{})
	ctx := wiretest.Context(t)
	if err := p.Send(ctx, oracle.Record{Message: "lease.query", Form: oracle.Request, Value: value{"route": "lease://r/a/k"}},
		oracle.Record{Message: "session.ping", Form: oracle.Control, Value: value{"nonce": 1}}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(ctx, rawpeer.Filter{Message: "session.pong"}); err != nil || b.Err() == nil {
		t.Errorf("%v, %v", err, b.Err())
	}
	if err := b.Do(ctx, 9, fakebroker.Action{Reset: true}); err == nil {
		t.Error("an action on a connection that is not there")
	}
	if err := b.Do(ctx, 0, fakebroker.Action{}); err == nil {
		t.Error("an action that does nothing")
	}
	for range 200 {
		if err := p.SendMessage(ctx, make([]byte, 60_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Send(ctx, oracle.Record{Message: "session.ping", Form: oracle.Control, Value: value{"nonce": 2}}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Next(ctx, rawpeer.Filter{Message: "session.pong"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Next(ctx, fakebroker.Filter{}); !errors.Is(err, fakebroker.ErrInbox) {
		t.Errorf("%v", err)
	}
}

func TestCheck(t *testing.T) {
	for text, want := range map[string]string{
		`hello: {capabilities: [nonsense]}`:                                                                      "nonsense",
		`hello: {lifetime: xx}`:                                                                                  "lifetime",
		`hello: {hex: x}`:                                                                                        "hello",
		`rules: [{name: a, on: {}, do: []}]`:                                                                     "exactly one",
		`rules: [{on: {message: lease.nonsense}, do: []}]`:                                                       "lease.nonsense",
		`rules: [{on: {message: lease.notify}, do: []}]`:                                                         "lease.notify",
		`rules: [{on: {opened: true}, do: [{}]}]`:                                                                "0 things",
		`rules: [{on: {opened: true}, do: [{wait: a, reset: true}]}]`:                                            "2 things",
		`rules: [{on: {opened: true}, do: [{send: {message: nonsense}}]}]`:                                       "nonsense",
		`rules: [{on: {opened: true}, do: [{send: {message: session.ping}}]}]`:                                   "nonce",
		`rules: [{on: {opened: true}, do: [{reply: {message: lease.query, value: {code: NONSENSE}}}]}]`:          "NONSENSE",
		`rules: [{on: {opened: true}, do: [{together: [{hex: "0"}]}]}]`:                                          "hex",
		`rules: [{on: {opened: true}, do: [{raw: zz}]}]`:                                                         "hex",
		`rules: [{on: {opened: true}, do: [{message: "1"}]}]`:                                                    "hex",
		`rules: [{on: {opened: true}, do: [{send_hello: {capabilities: [nonsense]}}]}]`:                          "nonsense",
		`rules: [{on: {opened: true}, do: [{send: {hex: "00", cut: 2}}]}]`:                                       "cut",
		`rules: [{on: {opened: true}, do: [{send: {hex: "00", set: {1: "00"}}}]}]`:                               "set",
		`rules: [{on: {opened: true}, do: [{send: {hex: "00", append: x}}]}]`:                                    "append",
		`rules: [{on: {opened: true}, do: [{declare: {size: 1, record: {message: nonsense}}}]}]`:                 "nonsense",
		`rules: [{on: {message: lease.query}, do: [{send: {message: nonsense, value: {a: "$request.route"}}}]}]`: "nonsense",
	} {
		script := read(t, text)
		if err := script.Check(wiretest.Spec(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if _, err := fakebroker.Start(wiretest.Spec(t), script, fakebroker.Options{}); err == nil {
			t.Errorf("%s: started", text)
		}
	}
}

// A script is data: it is the same after a trip through JSON.
func TestData(t *testing.T) {
	script := read(t, `
hello: {bits: 65537, lifetime: "`+hex.EncodeToString([]byte("sixteen bytes 16"))+`", incarnation: 4, max_frame_bytes: 9, heartbeat_ms: 5, spec_fingerprint: 3}
mute: true
rules:
  - {name: a, on: {message: lease.query, where: {route: x}, nth: 2, count: 3, conn: 1}, do: [{reply: {message: lease.query, form: refusal, value: {code: 5001, message: m}, label: 4, cut: 1, append: "00", fit: true}, times: 2}]}
`)
	raw, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	var again fakebroker.Script
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	second, err := json.Marshal(again)
	if err != nil || string(second) != string(raw) {
		t.Errorf("%s became %s, %v", raw, second, err)
	}
	if !reflect.DeepEqual(script.Hello, again.Hello) {
		t.Errorf("%+v", again.Hello)
	}
}
