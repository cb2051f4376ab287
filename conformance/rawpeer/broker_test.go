package rawpeer_test

import (
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/internal/wiretest"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/rawpeer"
	"github.com/fitzwire/fitz/conformance/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIndependence(t *testing.T) {
	wiretest.Independent(t, "github.com/fitzwire/fitz/conformance/rawpeer")
}

type value = oracle.Value

func dial(t *testing.T, transport string, address func(string) string, o rawpeer.Options) *rawpeer.Peer {
	t.Helper()
	o.Transport, o.Address = transport, address(transport)
	p, err := rawpeer.Dial(wiretest.Context(t), wiretest.Spec(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// A peer judges the broker of this project: the beginning, requests with and without labels, a deferred reply, a push, CANCEL and the end.
func TestBroker(t *testing.T) {
	address := wiretest.Broker(t)
	wiretest.Transports(t, func(t *testing.T, transport string) {
		for _, labels := range []bool{true, false} {
			holder := dial(t, transport, address, rawpeer.Options{Name: "holder", Labels: labels})
			waiter := dial(t, transport, address, rawpeer.Options{Name: "waiter", Labels: labels, Negotiate: true, AutoPong: true})
			ctx := wiretest.Context(t)
			route := "lease://" + transport + "/a/b"

			hello, ok := waiter.Hello()
			if lifecycle, _ := hello.Value["lifecycle"].(value); !ok || lifecycle == nil {
				t.Fatalf("hello %v", hello)
			}
			if got := do(t, waiter, "lease.subscribe", value{"selector": route}); got.Form != oracle.Reply || got.Value["subscription_id"] == uint64(0) {
				t.Fatalf("SUBSCRIBE: %v", got)
			}
			held := do(t, holder, "lease.acquire", value{"route": route, "owner_id": "h", "ttl": 30})
			if held.Value["kind"] != uint64(0) {
				t.Fatalf("ACQUIRE: %v", held)
			}
			// W-46, L-71: the push is taken by nobody's call.
			push, err := waiter.Next(ctx, rawpeer.Filter{Message: "lease.notify", Form: oracle.Push})
			if err != nil || push.Record.Value["route"] != route {
				t.Fatalf("NOTIFY: %v %v", push.Record, err)
			}
			// L-26: queued, then the grant.
			call, err := waiter.Start(ctx, "lease.acquire", value{"route": route, "owner_id": "w", "ttl": 30, "wait": 20})
			if err != nil {
				t.Fatal(err)
			}
			queued, err := call.Reply(ctx)
			if err != nil || queued.Value["kind"] != uint64(2) || !call.Pending() {
				t.Fatalf("queued: %v %v", queued, err)
			}
			refused := do(t, waiter, "lease.release", value{"route": route, "owner_id": "w", "fencing_token": uint64(7)})
			if row, _ := wiretest.Spec(t).Error("LEASE_NOT_FOUND"); refused.Form != oracle.Refusal || refused.Value["code"] != uint64(row.Number) {
				t.Fatalf("RELEASE of another: %v", refused)
			}
			do(t, holder, "lease.release", value{"route": route, "owner_id": "h", "fencing_token": held.Value["fencing_token"]})
			granted, err := call.Reply(ctx)
			if err != nil || granted.Value["kind"] != uint64(0) || granted.Value["fencing_token"] != queued.Value["fencing_token"] {
				t.Fatalf("granted: %v %v", granted, err)
			}
			if (granted.Label != 0) != labels {
				t.Fatalf("label %d", granted.Label)
			}
			if _, err := call.Reply(ctx); err == nil || call.Pending() {
				t.Fatal("a third reply is waited for")
			}
			// W-65.
			if err := waiter.Send(ctx, oracle.Record{Message: "session.ping", Form: oracle.Control, Value: value{"nonce": 77}}); err != nil {
				t.Fatal(err)
			}
			if pong, err := waiter.Next(ctx, rawpeer.Filter{Message: "session.pong"}); err != nil || pong.Record.Value["nonce"] != uint64(77) {
				t.Fatalf("PONG: %v %v", pong.Record, err)
			}
			do(t, waiter, "lease.release", value{"route": route, "owner_id": "w", "fencing_token": granted.Value["fencing_token"]})
			for _, r := range waiter.Untaken() {
				if r.Message != "lease.notify" {
					t.Errorf("nobody took %v", r.Entry)
				}
			}
		}
	})
}

func do(t *testing.T, p *rawpeer.Peer, message string, v value) oracle.Record {
	t.Helper()
	rec, err := p.Do(wiretest.Context(t), message, v)
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	return rec
}

// What is wrong on purpose reaches the broker: each of these makes it close the session for the reason that the reference names.
func TestWrong(t *testing.T) {
	address := wiretest.Broker(t)
	query := func(t *testing.T) []byte {
		record, err := wiretest.Spec(t).Encode("lease.query", oracle.Request, value{"route": "lease://r/a/k"})
		if err != nil {
			t.Fatal(err)
		}
		return record
	}
	tests := []struct {
		name    string
		options rawpeer.Options
		do      func(t *testing.T, p *rawpeer.Peer) error
		code    uint16 // of the close on WebSocket; 0: FIN
	}{
		{name: "W-03 empty message", do: func(t *testing.T, p *rawpeer.Peer) error { return p.SendMessage(wiretest.Context(t), nil) }, code: 1002},
		{name: "W-03 half a record", do: func(t *testing.T, p *rawpeer.Peer) error {
			record := query(t)
			return p.SendMessage(wiretest.Context(t), record[:len(record)-1])
		}, code: 1002},
		{name: "W-10, W-23 larger than frame_recv_max", do: func(t *testing.T, p *rawpeer.Peer) error {
			return p.SendMessage(wiretest.Context(t), make([]byte, wiretest.Spec(t).Bound("frame_recv_max")+1))
		}, code: 1009},
		{name: "W-32 second CONNECT", do: func(t *testing.T, p *rawpeer.Peer) error {
			return p.Send(wiretest.Context(t), oracle.Record{Message: "session.connect", Form: oracle.Control, Value: value{"token": ""}})
		}, code: 1008},
		{name: "W-60 second CLIENT_HELLO", options: rawpeer.Options{Negotiate: true}, do: func(t *testing.T, p *rawpeer.Peer) error {
			return p.Send(wiretest.Context(t), oracle.Record{Message: "session.client_hello", Form: oracle.Control,
				Value: value{"capabilities": 0, "sdk_name": "x", "sdk_version": "1", "spec_fingerprint": 0}})
		}, code: 1002},
		{name: "W-05 unknown type", do: func(t *testing.T, p *rawpeer.Peer) error {
			return p.Send(wiretest.Context(t), oracle.Record{Bytes: []byte{0xC9, 0, 0}})
		}, code: 1002},
		{name: "W-55 label in flight", options: rawpeer.Options{Labels: true}, do: func(t *testing.T, p *rawpeer.Peer) error {
			holder, err := p.StartLabelled(wiretest.Context(t), "lease.acquire", value{"route": "lease://dup/a/k", "owner_id": "a", "ttl": 30}, 5)
			if err != nil {
				return err
			}
			if _, err := holder.Reply(wiretest.Context(t)); err != nil {
				return err
			}
			for range 2 {
				if _, err := p.StartLabelled(wiretest.Context(t), "lease.acquire", value{"route": "lease://dup/a/k", "owner_id": "b", "ttl": 30, "wait": 30}, 9); err != nil {
					return err
				}
			}
			return nil
		}, code: 1002},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wiretest.Transports(t, func(t *testing.T, transport string) {
				p := dial(t, transport, address, test.options)
				if err := test.do(t, p); err != nil {
					t.Fatal(err)
				}
				end, err := p.AwaitClose(wiretest.Context(t))
				if err != nil {
					t.Fatal(err)
				}
				if transport == rawpeer.WebSocket && (end.How != rawpeer.WS || end.Code != test.code) || transport == rawpeer.TCP && end.How == rawpeer.WS {
					t.Errorf("closed as %+v", end)
				}
			})
		})
	}
}

// W-10: on TCP the length alone is enough.
func TestGiantLength(t *testing.T) {
	p := dial(t, rawpeer.TCP, wiretest.Broker(t), rawpeer.Options{})
	if err := p.SendDeclared(wiretest.Context(t), []byte{1}, 1<<31); err != nil {
		t.Fatal(err)
	}
	if end, err := p.AwaitClose(wiretest.Context(t)); err != nil || end.How == rawpeer.Local {
		t.Errorf("closed as %+v, %v", end, err)
	}
}

// W-22, W-23: frames that only a WebSocket has.
func TestWrongFrames(t *testing.T) {
	address := wiretest.Broker(t)
	for name, test := range map[string]struct {
		frame rawpeer.WebSocketFrame
		code  uint16
	}{
		"text":         {rawpeer.WebSocketFrame{Opcode: 1, Masked: true, Payload: []byte("x")}, 1003},
		"unmasked":     {rawpeer.WebSocketFrame{Opcode: 2, Payload: []byte{1, 0, 0}}, 1002},
		"reserved bit": {rawpeer.WebSocketFrame{Opcode: 2, Masked: true, Reserved: 0x40, Payload: []byte{1, 0, 0}}, 1002},
		"continuation": {rawpeer.WebSocketFrame{Opcode: 0, Masked: true, Payload: []byte{1, 0, 0}}, 1002},
		"long ping":    {rawpeer.WebSocketFrame{Opcode: 9, Masked: true, Payload: make([]byte, 126)}, 1002},
	} {
		t.Run(name, func(t *testing.T) {
			p := dial(t, rawpeer.WebSocket, address, rawpeer.Options{})
			if err := p.SendFrame(wiretest.Context(t), test.frame); err != nil {
				t.Fatal(err)
			}
			if end, err := p.AwaitClose(wiretest.Context(t)); err != nil || end.Code != test.code {
				t.Errorf("closed as %+v, %v", end, err)
			}
		})
	}
	p := dial(t, rawpeer.TCP, address, rawpeer.Options{})
	if err := p.SendFrame(wiretest.Context(t), rawpeer.WebSocketFrame{Opcode: 1}); err == nil {
		t.Error("TCP took a WebSocket frame")
	}
}

// Half a message waits for its rest; however it is cut the broker answers once it is whole.
func TestByteByByte(t *testing.T) {
	address := wiretest.Broker(t)
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, address, rawpeer.Options{})
		record, err := wiretest.Spec(t).Encode("lease.query", oracle.Request, value{"route": "lease://r/a/k"})
		if err != nil {
			t.Fatal(err)
		}
		wire := p.Wire(record)
		if err := p.Write(wiretest.Context(t), wire[:len(wire)-3], 1); err != nil {
			t.Fatal(err)
		}
		if err := p.Write(wiretest.Context(t), wire[len(wire)-3:], 1); err != nil {
			t.Fatal(err)
		}
		if r, err := p.Next(wiretest.Context(t), rawpeer.Filter{Message: "lease.query", Form: oracle.Reply}); err != nil || r.Record.Value["held"] != false {
			t.Errorf("%v, %v", r.Record, err)
		}
		p.CloseWrite()
		if end, err := p.AwaitClose(wiretest.Context(t)); err != nil || end.How == rawpeer.RST {
			t.Errorf("closed as %+v, %v", end, err)
		}
	})
}

// A wait ends with the connection, and says how that ended.
func TestEndOfWait(t *testing.T) {
	address := wiretest.Broker(t)
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, address, rawpeer.Options{})
		p.Close()
		var end *rawpeer.Close
		if _, err := p.Next(wiretest.Context(t), rawpeer.Filter{Message: "lease.notify"}); !errors.As(err, &end) || end.How != rawpeer.Local {
			t.Errorf("%v", err)
		}
	})
	if _, err := rawpeer.Dial(wiretest.Context(t), wiretest.Spec(t), rawpeer.Options{Transport: rawpeer.WebSocket, Address: address(rawpeer.TCP)}); err == nil {
		t.Error("TCP took an upgrade")
	}
	var refused *rawpeer.UpgradeError
	_, err := rawpeer.Dial(wiretest.Context(t), wiretest.Spec(t), rawpeer.Options{
		Transport: rawpeer.WebSocket, Address: address(rawpeer.WebSocket), Header: []string{"Origin: http://elsewhere.example"},
	})
	if !errors.As(err, &refused) || refused.Status != 403 {
		t.Errorf("W-24: %v", err)
	}
	if _, err := rawpeer.Dial(wiretest.Context(t), wiretest.Spec(t), rawpeer.Options{Transport: "udp"}); err == nil {
		t.Error("a transport that does not exist")
	}
}

// The trace has every frame of both directions with its label, and hides the token.
func TestTrace(t *testing.T) {
	address := wiretest.Broker(t)
	wiretest.Transports(t, func(t *testing.T, transport string) {
		p := dial(t, transport, address, rawpeer.Options{Labels: true, Token: ""})
		do(t, p, "lease.query", value{"route": "lease://r/a/k"})
		for _, f := range []trace.Filter{
			{Dir: oracle.Up, Message: "session.connect"},
			{Dir: oracle.Down, Message: "session.server_hello"},
			{Dir: oracle.Up, Message: "lease.query", Form: oracle.Request, Where: func(e trace.Entry) bool { return e.Label == 1 }},
			{Dir: oracle.Down, Message: "lease.query", Form: oracle.Reply, Where: func(e trace.Entry) bool { return e.Label == 1 }},
		} {
			if n, err := p.Trace().Count(f); err != nil || n != 1 {
				t.Errorf("%s: %d, %v", f, n, err)
			}
		}
	})
}
