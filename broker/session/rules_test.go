package session_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Every rule of wire.md that ends a session, in a session that said nothing, that connected, or that negotiated.
func TestClosingRules(t *testing.T) {
	u64 := func(n uint64) []byte { return codec.AppendU64(nil, n) }
	empty := func(typ wire.MessageType) []byte { return rawclient.Record(typ, nil) }
	cases := []struct {
		clause, name string
		state        int // 0 nothing sent, 1 connected, 2 negotiated
		payload      func(t testing.TB) []byte
		want         wire.CloseReason
	}{
		{"W-01", "escaped small type", 1, hexed("ff00f0 0000"), wire.CloseBadRecord},
		{"W-01", "escaped small type behind a good record", 1, func(t testing.TB) []byte {
			return append(query(t), rawclient.Bytes(t, "ff00f0 0000")...)
		}, wire.CloseBadRecord},
		{"W-03", "cut header", 1, hexed("ff01"), wire.CloseBadFrame},
		{"W-03", "cut value", 1, hexed("f1 0008 00"), wire.CloseBadFrame},
		{"W-03", "too many records", 1, func(t testing.TB) []byte {
			return bytes.Join(repeat(query(t), bounds.RecordsPerFrameMax+1), nil)
		}, wire.CloseBadFrame},
		{"W-05", "unassigned type 0", 1, hexed("00 0000"), wire.CloseUnsupportedMessageType},
		{"W-05", "V-14: unassigned type 255", 1, hexed("ff00ff 0000"), wire.CloseUnsupportedMessageType},
		{"W-05", "reserved type", 1, hexed("fa 0000"), wire.CloseUnsupportedMessageType},
		{"W-05", "reserved type of a capability", 2, hexed("ff01e0 0000"), wire.CloseUnsupportedMessageType},
		{"W-05", "push sent by a client", 1, func(testing.TB) []byte { return empty(wire.TypeLeaseNotify) }, wire.CloseUnsupportedMessageType},
		{"W-05", "CORRELATED sent by a client", 1, func(testing.TB) []byte { return rawclient.Record(wire.TypeCorrelated, u64(1)) }, wire.CloseUnsupportedMessageType},
		{"W-05", "SERVER_HELLO sent by a client", 1, func(testing.TB) []byte { return empty(wire.TypeServerHello) }, wire.CloseUnsupportedMessageType},
		{"W-05", "GOAWAY sent by a client", 2, func(testing.TB) []byte { return empty(wire.TypeGoaway) }, wire.CloseUnsupportedMessageType},
		{"W-05", "SUB_ENDED sent by a client", 2, func(testing.TB) []byte { return empty(wire.TypeSubEnded) }, wire.CloseUnsupportedMessageType},
		{"W-05", "CANCELLED sent by a client", 2, func(testing.TB) []byte { return empty(wire.TypeCancelled) }, wire.CloseUnsupportedMessageType},
		{"W-05", "metadata before the hello", 0, func(t testing.TB) []byte {
			return rawclient.Encode(t, wire.TypeSessionMetadata, &wire.SessionMetadata{ServiceName: "x"})
		}, wire.CloseUnsupportedMessageType},
		{"W-05", "labelled unknown type", 1, func(t testing.TB) []byte {
			return rawclient.Labelled(1, rawclient.Record(999, nil))
		}, wire.CloseUnsupportedMessageType},
		{"W-07", "malformed PING", 2, func(testing.TB) []byte { return rawclient.Record(wire.TypePing, u64(1)[:7]) }, wire.CloseBadControlRecord},
		{"W-07", "malformed PONG", 2, func(testing.TB) []byte { return rawclient.Record(wire.TypePong, append(u64(1), 0)) }, wire.CloseBadControlRecord},
		{"W-07", "malformed CANCEL", 2, func(testing.TB) []byte { return empty(wire.TypeCancel) }, wire.CloseBadControlRecord},
		{"W-07", "malformed CLIENT_HELLO", 1, func(testing.TB) []byte { return rawclient.Record(wire.TypeClientHello, make([]byte, 3)) }, wire.CloseBadControlRecord},
		{"W-07", "SDK name too long", 1, func(t testing.TB) []byte {
			value := codec.AppendString(codec.AppendU32(nil, uint32(wire.CapLifecycle)), string(bytes.Repeat([]byte("x"), bounds.SDKNameMax+1)))
			return rawclient.Record(wire.TypeClientHello, codec.AppendU64(codec.AppendString(value, "1"), 0))
		}, wire.CloseBadControlRecord},
		{"W-07", "token that is not UTF-8", 0, hexed("01 0001 ff"), wire.CloseBadControlRecord},
		{"W-32", "second CONNECT", 1, func(testing.TB) []byte { return empty(wire.TypeConnect) }, wire.CloseUnexpectedConnect},
		{"W-32", "CONNECT behind a request", 0, func(t testing.TB) []byte { return append(query(t), empty(wire.TypeConnect)...) }, wire.CloseUnexpectedConnect},
		{"W-50", "CORRELATE before the hello", 0, func(t testing.TB) []byte { return rawclient.Labelled(1, query(t)) }, wire.CloseBadControlRecord},
		{"W-50", "zero id", 1, func(t testing.TB) []byte { return rawclient.Labelled(0, query(t)) }, wire.CloseBadControlRecord},
		{"W-50", "wrong length", 1, func(t testing.TB) []byte {
			return append(rawclient.Record(wire.TypeCorrelate, u64(1)[:4]), query(t)...)
		}, wire.CloseBadControlRecord},
		{"W-50", "CORRELATE before CORRELATE", 1, func(t testing.TB) []byte { return rawclient.Labelled(1, rawclient.Labelled(2, query(t))) }, wire.CloseBadControlRecord},
		{"W-50", "CORRELATE at the end", 1, func(testing.TB) []byte { return rawclient.Labelled(1, nil) }, wire.CloseBadControlRecord},
		{"W-60", "CLIENT_HELLO before the hello", 0, clientHello(uint32(wire.CapLifecycle)), wire.CloseBadControlRecord},
		{"W-60", "CLIENT_HELLO twice", 2, clientHello(uint32(wire.CapLifecycle)), wire.CloseBadControlRecord},
		{"W-62", "PING before negotiation", 1, func(testing.TB) []byte { return rawclient.Record(wire.TypePing, u64(1)) }, wire.CloseBadControlRecord},
		{"W-62", "PONG before negotiation", 1, func(testing.TB) []byte { return rawclient.Record(wire.TypePong, u64(1)) }, wire.CloseBadControlRecord},
		{"W-62", "CANCEL before negotiation", 1, func(testing.TB) []byte { return rawclient.Record(wire.TypeCancel, u64(1)) }, wire.CloseBadControlRecord},
	}
	for _, c := range cases {
		t.Run(c.clause+" "+c.name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
				client := dial()
				if c.state > 0 {
					client.Connect()
				}
				if c.state > 1 {
					client.Negotiate()
				}
				client.Send(c.payload(t))
				expectCloseAfterReplies(t, client, c.want)
				synctest.Wait()
				if n := w.domain.closedSessions(); n != 1 {
					t.Errorf("CloseSession was called %d times", n)
				}
				if n := testutil.ToFloat64(w.metrics.ClosesTotal.WithLabelValues(c.want.Name)); n != 1 {
					t.Errorf("closes of %s: %v", c.want.Name, n)
				}
			})
		})
	}
}

// expectCloseAfterReplies skips replies of requests that were executed before.
func expectCloseAfterReplies(t *testing.T, client *rawclient.Client, want wire.CloseReason) {
	t.Helper()
	for {
		payload, err := client.Read()
		if err == nil && len(payload) > 0 {
			continue
		}
		client.Check(err, want)
		return
	}
}

func hexed(text string) func(testing.TB) []byte {
	return func(t testing.TB) []byte { return rawclient.Bytes(t, text) }
}

func clientHello(capabilities uint32) func(testing.TB) []byte {
	return func(t testing.TB) []byte {
		return rawclient.Encode(t, wire.TypeClientHello, &wire.ClientHello{Capabilities: wire.Capabilities(capabilities), SDKName: "go", SDKVersion: "1.0.0"})
	}
}

// W-03: nothing of a message is executed when its boundaries are wrong.
func TestBoundariesAreCheckedFirst(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Send(query(t), []byte{0xf1, 0, 9, 1})
		client.ExpectClose(wire.CloseBadFrame)
		synctest.Wait()
		if w.domain.calls != 0 {
			t.Errorf("%d requests were executed", w.domain.calls)
		}
	})
}

// W-03, W-04, C-11: as many records as allowed, of one type, in one message; W-12: each reply alone in its message.
func TestSeveralRecordsInOneMessage(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		go client.Send(repeat(query(t), bounds.RecordsPerFrameMax)...)
		for range bounds.RecordsPerFrameMax {
			client.Expect(0, wire.TypeLeaseQuery)
		}
	})
}

// W-06: a malformed request is answered, the session goes on, and the last allowed one closes it.
func TestMalformedRequests(t *testing.T) {
	const most = 3
	run(t, func(l *bounds.Limits) { l.SessionMalformedMax = most }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		for range most - 1 {
			client.Send(rawclient.Record(wire.TypeLeaseQuery, []byte{1}))
			client.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest)
			client.Send(query(t))
			client.Expect(0, wire.TypeLeaseQuery)
		}
		client.Send(rawclient.Labelled(9, rawclient.Record(wire.TypeLeaseQuery, []byte{1})))
		client.ExpectRefusal(9, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest)
		client.ExpectClose(wire.CloseTooManyMalformedRequests)
		if n := testutil.ToFloat64(w.metrics.MalformedRequestsTotal); n != most {
			t.Errorf("malformed requests: %v", n)
		}
	})
}

// D-3: a bound that is broken is refused and does not count for W-06.
func TestBoundMistakesDoNotCount(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.SessionMalformedMax = 1 }, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		value := codec.AppendString(codec.AppendString(nil, "lease://r/a/k"), "w1")
		client.Send(rawclient.Record(wire.TypeLeaseAcquire, codec.AppendU64(value, 0))) // ttl 0
		client.ExpectRefusal(0, wire.TypeLeaseAcquire, wire.CodeLeaseBadRequest)
		client.Send(query(t))
		client.Expect(0, wire.TypeLeaseQuery)
	})
}

// W-07: a bad SESSION_METADATA is dropped and counted; a good one is not.
func TestSessionMetadata(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		long := string(bytes.Repeat([]byte("n"), bounds.ServiceNameMax))
		for _, name := range []string{"svc", "  padded  ", long} {
			client.Send(rawclient.Record(wire.TypeSessionMetadata, codec.AppendString(nil, name)))
		}
		for _, value := range [][]byte{nil, {1}, codec.AppendString(nil, ""), codec.AppendString(nil, "  "), codec.AppendString(nil, "a\x01b"),
			codec.AppendString(nil, long+"n"), append(codec.AppendString(nil, "x"), 0)} {
			client.Send(rawclient.Record(wire.TypeSessionMetadata, value))
		}
		client.Send(query(t))
		client.Expect(0, wire.TypeLeaseQuery)
		if n := testutil.ToFloat64(w.metrics.DroppedRecordsTotal); n != 7 {
			t.Errorf("dropped %v records, want 7", n)
		}
	})
}

// W-30: silence closes with `connect timeout`, also when a first message was begun.
func TestConnectTimeout(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		start := time.Now()
		client := dial()
		client.Raw(client.Framed(query(t))[:3])
		client.ExpectClose(wire.CloseConnectTimeout)
		if d := time.Since(start); d < time.Duration(w.limits.ConnectWaitMs)*time.Millisecond || d > time.Duration(w.limits.ConnectWaitMs)*time.Millisecond+time.Second {
			t.Errorf("closed after %v", d)
		}
	})
}

// W-30: a message that is not complete in time closes with `idle`; one that comes slowly but in time does not.
func TestReadTimeout(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		timeout := time.Duration(w.limits.SessionReadTimeoutMs) * time.Millisecond
		client := dial()
		client.Connect()
		time.Sleep(10 * timeout) // nothing negotiated: silence is fine (W-66)
		frame := client.Framed(query(t))
		for _, b := range frame {
			time.Sleep(timeout / time.Duration(len(frame)+1))
			client.Raw([]byte{b})
		}
		client.Expect(0, wire.TypeLeaseQuery)

		client.Raw(frame[:1])
		start := time.Now()
		client.ExpectClose(wire.CloseIdle)
		if d := time.Since(start); d < timeout || d > timeout+time.Second {
			t.Errorf("closed after %v, want %v", d, timeout)
		}
	})
}

// W-66: a negotiated session that is silent for session_idle_ms is closed; anything received counts.
func TestIdleTimeout(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		idle := time.Duration(w.limits.SessionIdleMs) * time.Millisecond
		client := dial()
		client.Connect()
		time.Sleep(10 * idle) // nothing runs in a session that is not negotiated
		client.Negotiate()
		for n := range uint64(5) {
			time.Sleep(idle - time.Millisecond)
			client.Sync(n)
		}
		start := time.Now()
		client.ExpectClose(wire.CloseIdle)
		if d := time.Since(start); d < idle || d > idle+time.Second {
			t.Errorf("closed after %v, want %v", d, idle)
		}
	})
}

// W-33, W-60 and compat.md section 2: the three forms of the hello.
func TestHelloModes(t *testing.T) {
	t.Run("delayed until another frame", func(t *testing.T) {
		run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
			w.hello = session.Hello{Mode: session.HelloDelayed, Delay: 150 * time.Millisecond}
			client := dial()
			client.Send(rawclient.Record(wire.TypeConnect, nil), query(t))
			client.Expect(0, wire.TypeServerHello)
			client.Expect(0, wire.TypeLeaseQuery)
			client.Send(rawclient.Labelled(5, query(t)))
			client.Expect(5, wire.TypeLeaseQuery)
		})
	})
	t.Run("delayed until its time", func(t *testing.T) {
		run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
			w.hello = session.Hello{Mode: session.HelloDelayed, Delay: 150 * time.Millisecond}
			client := dial()
			client.Send(rawclient.Record(wire.TypeConnect, nil))
			start := time.Now()
			client.Expect(0, wire.TypeServerHello)
			if d := time.Since(start); d < 150*time.Millisecond || d > 160*time.Millisecond {
				t.Errorf("hello after %v", d)
			}
		})
	})
	t.Run("delayed announces nothing before", func(t *testing.T) {
		run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
			w.hello = session.Hello{Mode: session.HelloDelayed, Delay: time.Second}
			client := dial()
			client.Send(rawclient.Record(wire.TypeConnect, nil))
			client.Send(rawclient.Labelled(5, query(t)))
			client.ExpectClose(wire.CloseBadControlRecord)
		})
	})
	t.Run("off", func(t *testing.T) {
		run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
			w.hello = session.Hello{Mode: session.HelloOff}
			client := dial()
			client.Send(rawclient.Record(wire.TypeConnect, nil))
			client.Send(query(t))
			client.Expect(0, wire.TypeLeaseQuery)
			client.Send(rawclient.Labelled(5, query(t)))
			client.ExpectClose(wire.CloseBadControlRecord)
		})
	})
	t.Run("none without CONNECT, C-10", func(t *testing.T) {
		run(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
			client := dial()
			client.Send(query(t))
			client.Expect(0, wire.TypeLeaseQuery)
			client.Send(clientHello(uint32(wire.CapLifecycle))(t))
			client.ExpectClose(wire.CloseBadControlRecord)
		})
	})
}

// W-61: a CLIENT_HELLO without the lifecycle bit changes nothing, and unknown bits are ignored.
func TestClientHelloWithoutLifecycle(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Send(clientHello(uint32(wire.CapLeaseExt) | 1<<30)(t))
		client.Send(rawclient.Record(wire.TypePing, codec.AppendU64(nil, 1)))
		client.ExpectClose(wire.CloseBadControlRecord)
	})
}

// Section 5: the fields of the hello.
func TestHelloFields(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		hello := dial().Connect()
		other := dial().Connect()
		if hello.Version != wire.HelloVersion || hello.Capabilities != wire.AnnouncedCapabilities {
			t.Errorf("hello %+v", hello)
		}
		l := hello.Lifecycle
		if l.BrokerLifetimeID != [16]byte{1, 2, 3} || l.MaxFrameBytes != bounds.FrameRecvMax || l.HeartbeatMs != bounds.HeartbeatMs || l.SpecFingerprint != wire.SpecFingerprint {
			t.Errorf("lifecycle %+v", l)
		}
		// L-13
		if l.SessionIncarnation == 0 || l.SessionIncarnation == other.Lifecycle.SessionIncarnation {
			t.Errorf("incarnations %x and %x", l.SessionIncarnation, other.Lifecycle.SessionIncarnation)
		}
		w.hub.Each(func(s *session.Session) {
			if n := s.Incarnation(); n != l.SessionIncarnation && n != other.Lifecycle.SessionIncarnation {
				t.Errorf("session with incarnation %x told its client another", n)
			}
		})
	})
}

// W-65: PONG carries the nonce, in receive order, and a PONG of the client is ignored.
func TestPing(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Negotiate()
		ping := func(n uint64) []byte { return rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: n}) }
		client.Send(rawclient.Encode(t, wire.TypePong, &wire.Pong{Nonce: 77}), ping(1), query(t), ping(2))
		client.ExpectHex("f2 0008 0000000000000001")
		client.Expect(0, wire.TypeLeaseQuery)
		client.ExpectHex("f2 0008 0000000000000002")
	})
}

// W-52: a label on a control record is dropped, and never in flight.
func TestLabelOnControlRecord(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Negotiate()
		client.Send(rawclient.Labelled(3, rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: 1})))
		client.Expect(0, wire.TypePong)
		client.Send(rawclient.Labelled(3, acquire(t, "wait")))
		client.Expect(3, wire.TypeLeaseAcquire)
	})
}

// W-51, W-54, W-55: a label is in flight until its last reply, and may be used again afterwards.
func TestLabelsInFlight(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		for range 3 {
			client.Send(rawclient.Labelled(7, query(t)), rawclient.Labelled(7, query(t)))
			client.Expect(7, wire.TypeLeaseQuery)
			client.Expect(7, wire.TypeLeaseQuery)
		}
		client.Send(rawclient.Labelled(7, acquire(t, "wait")))
		client.Expect(7, wire.TypeLeaseAcquire)
		waiting := w.domain.waiting[0]
		go w.domain.settle(waiting.session, waiting.call)
		client.Expect(7, wire.TypeLeaseAcquire)

		client.Send(rawclient.Labelled(7, acquire(t, "wait")))
		client.Expect(7, wire.TypeLeaseAcquire)
		client.Send(rawclient.Labelled(7, query(t)))
		client.ExpectClose(wire.CloseDuplicateCorrelationID)
	})
}

// W-56: as many labels in flight as the table holds, and one more.
func TestTooManyLabels(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.CorrelationTableMax = 2 }, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		for label := range uint64(2) {
			client.Send(rawclient.Labelled(label+1, acquire(t, "wait")))
			client.Expect(label+1, wire.TypeLeaseAcquire)
		}
		client.Send(query(t)) // unlabelled ones need no place
		client.Expect(0, wire.TypeLeaseQuery)
		client.Send(rawclient.Labelled(3, query(t)))
		client.ExpectClose(wire.CloseTooManyLabels)
	})
}

// W-42: an unlabelled waiting request is answered twice without a label.
func TestUnlabelledWaiting(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Send(acquire(t, "wait"))
		client.Expect(0, wire.TypeLeaseAcquire)
		waiting := w.domain.waiting[0]
		go w.domain.settle(waiting.session, waiting.call)
		client.Expect(0, wire.TypeLeaseAcquire)
	})
}

func cancel(t testing.TB, label uint64) []byte {
	return rawclient.Encode(t, wire.TypeCancel, &wire.Cancel{CorrelationID: label})
}

func expectCancelled(t testing.TB, client *rawclient.Client, label uint64, outcome wire.CancelOutcome) {
	t.Helper()
	var message wire.Cancelled
	if err := message.DecodeValue(client.Expect(0, wire.TypeCancelled)); err != nil || message.CorrelationID != label || message.Outcome != outcome {
		t.Fatalf("CANCELLED %+v (%v), want %d %v", message, err, label, outcome)
	}
}

// W-71, W-77: a waiting request ends with 9001 and CANCELLED 0, and its label is free.
func TestCancelWaiting(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Negotiate()
		for range 3 {
			client.Send(rawclient.Labelled(7, acquire(t, "wait")))
			client.Expect(7, wire.TypeLeaseAcquire)
			client.Send(cancel(t, 7))
			if text := client.ExpectRefusal(7, wire.TypeLeaseAcquire, wire.CodeRequestCancelled); text != wire.TextCancelled {
				t.Errorf("text %q", text)
			}
			client.ExpectHex("f6 0009 0000000000000007 00") // V-08
		}
	})
}

// W-74, W-75, W-79: what is completed is remembered, only for types that wait, and only the last ones.
// Clauses: W-73.
func TestCancelCompleted(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.CancelMemoryMax = 2 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Negotiate()
		client.Send(cancel(t, 1))
		expectCancelled(t, client, 1, wire.CancelOutcomeUnknown)

		client.Send(rawclient.Labelled(1, query(t)), cancel(t, 1))
		client.Expect(1, wire.TypeLeaseQuery)
		expectCancelled(t, client, 1, wire.CancelOutcomeUnknown)

		client.Send(rawclient.Labelled(1, acquire(t, "wait")))
		client.Expect(1, wire.TypeLeaseAcquire)
		waiting := w.domain.waiting[0]
		go w.domain.settle(waiting.session, waiting.call)
		client.Expect(1, wire.TypeLeaseAcquire)
		client.Send(cancel(t, 1))
		expectCancelled(t, client, 1, wire.CancelOutcomeAlreadyCompleted)

		client.Send(rawclient.Labelled(2, acquire(t, "now")), rawclient.Labelled(3, acquire(t, "now")))
		client.Expect(2, wire.TypeLeaseAcquire)
		client.Expect(3, wire.TypeLeaseAcquire)
		go client.Send(cancel(t, 1), cancel(t, 2), cancel(t, 3))
		expectCancelled(t, client, 1, wire.CancelOutcomeUnknown) // forgotten
		expectCancelled(t, client, 2, wire.CancelOutcomeAlreadyCompleted)
		expectCancelled(t, client, 3, wire.CancelOutcomeAlreadyCompleted)
	})
}

// W-76, W-78: a grant that wins against the CANCEL is enqueued before CANCELLED 1.
// Clauses: W-73.
func TestCancelLosesAgainstGrant(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Negotiate()
		client.Send(rawclient.Labelled(7, acquire(t, "wait")))
		client.Expect(7, wire.TypeLeaseAcquire)
		waiting := w.domain.waiting[0]
		w.domain.onQuery = func(peer.Session, peer.Call) { w.domain.settle(waiting.session, waiting.call) }
		go client.Send(query(t), cancel(t, 7))
		client.Expect(7, wire.TypeLeaseAcquire)
		client.Expect(0, wire.TypeLeaseQuery)
		expectCancelled(t, client, 7, wire.CancelOutcomeAlreadyCompleted)
	})
}

// A-03, C-12: any token opens an anonymous session; the length of the record is bounded all the same.
func TestAnonymousToken(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.TokenBytesMax = 16 }, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Send(rawclient.Record(wire.TypeConnect, []byte("any token at all")))
		client.Expect(0, wire.TypeServerHello)
		client = dial()
		client.Send(rawclient.Record(wire.TypeConnect, []byte("any token at all!")))
		reason := wire.CloseConnectFailed
		reason.Text += "token too long"
		client.ExpectClose(reason)
	})
}

// L-81: once a session ends, replies are not enqueued, and the domains are told after that.
func TestReplyWhileClosing(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		w.domain.onQuery = func(s peer.Session, _ peer.Call) { s.Close(wire.CloseSlowConsumer) }
		client.Send(query(t))
		client.ExpectClose(wire.CloseSlowConsumer)
		synctest.Wait()
		if len(w.domain.refusals) != 1 || w.domain.refusals[0] {
			t.Errorf("reply while closing: %v", w.domain.refusals)
		}
		s := w.domain.closed[0]
		call := peer.Call{Type: wire.TypeLeaseAcquire, Label: 1}
		if s.Reply(call, []byte{0}) || s.Settle(call, []byte{0}) || s.Refuse(call, wire.CodeLeaseHeld, "x") || s.Wait(call) ||
			s.Notify(wire.TypeLeaseNotify, nil) != peer.Closing {
			t.Error("something was enqueued after the end")
		}
	})
}

// The first reason counts.
func TestFirstCloseReasonCounts(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		w.domain.onQuery = func(s peer.Session, _ peer.Call) {
			s.Close(wire.CloseGoingAway)
			s.Close(wire.CloseSlowConsumer)
		}
		client.Send(query(t))
		client.ExpectClose(wire.CloseGoingAway)
	})
}

// W-37: GOAWAY to negotiated sessions, also those that negotiate later, then `going away` when the grace is over.
func TestDrain(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		grace := time.Duration(w.limits.DrainGraceMs) * time.Millisecond
		negotiated, plain, late := dial(), dial(), dial()
		for _, c := range []*rawclient.Client{negotiated, plain, late} {
			c.Connect()
		}
		negotiated.Negotiate()
		negotiated.Sync(1)
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.hub.Drain(t.Context(), session.Shutdown)
			w.hub.Close()
		}()
		var message wire.Goaway
		if err := message.DecodeValue(negotiated.Expect(0, wire.TypeGoaway)); err != nil || message.Code != wire.CodeGoawayShutdown || int64(message.GraceMs) != w.limits.DrainGraceMs {
			t.Errorf("GOAWAY %+v, %v", message, err)
		}
		time.Sleep(grace / 5)
		late.Negotiate()
		if err := message.DecodeValue(late.Expect(0, wire.TypeGoaway)); err != nil || int64(message.GraceMs) != w.limits.DrainGraceMs*4/5 {
			t.Errorf("late GOAWAY %+v, %v", message, err)
		}
		for _, c := range []*rawclient.Client{negotiated, plain, late} {
			c.Send(query(t)) // the session keeps working (W-67)
			c.Expect(0, wire.TypeLeaseQuery)
		}
		for _, c := range []*rawclient.Client{negotiated, plain, late} {
			go c.ExpectClose(wire.CloseGoingAway)
		}
		<-done
		if d := time.Since(start); d < grace || d > grace+2*time.Second {
			t.Errorf("drained after %v", d)
		}
	})
}

// W-37: a drain for a replacement says 9202, also to a session that negotiates while it lasts.
func TestDrainForReplacement(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		negotiated, late := dial(), dial()
		late.Connect()
		negotiated.Connect()
		negotiated.Negotiate()
		negotiated.Sync(1)
		ctx, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.hub.Drain(ctx, session.Replacement)
		}()
		for _, c := range []*rawclient.Client{negotiated, late} {
			if c == late {
				late.Negotiate()
			}
			var message wire.Goaway
			if err := message.DecodeValue(c.Expect(0, wire.TypeGoaway)); err != nil || message.Code != wire.CodeGoawayDrain {
				t.Errorf("GOAWAY %+v, %v", message, err)
			}
		}
		end()
		<-done
	})
}

// W-37: the grace ends when nobody is left, or at once when it is told to.
func TestDrainEndsEarly(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			_ = client.Conn.Close()
		}()
		w.hub.Drain(t.Context(), session.Shutdown)
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Errorf("drained after %v", d)
		}
	})
}

// W-81: whatever ends a session, its receive buffer is given back to the budget of all sessions: also when it is the message in the
// buffer that ends it, and bytes stand behind it.
func TestReceiveBufferIsGivenBack(t *testing.T) {
	connect := rawclient.Record(wire.TypeConnect, make([]byte, 3000))
	for name, do := range map[string]func(c *rawclient.Client){
		"a record": func(c *rawclient.Client) { c.Send(connect, connect) },
		"a record, and more": func(c *rawclient.Client) {
			_ = c.TryRaw(append(c.Framed(bytes.Join([][]byte{connect, connect}, nil)), c.Framed(connect)...))
		},
		"half a message":         func(c *rawclient.Client) { c.Raw(c.Framed(connect)[:2000]); _ = c.Conn.Close() },
		"a message and its peer": func(c *rawclient.Client) { c.Send(connect); _ = c.Conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
				w.hello.Mode = session.HelloOff
				client := dial()
				do(client)
				_ = client.Conn.Close()
				w.hubEmpty(t)
				if used := w.inbound.Used(); used != 0 {
					t.Errorf("%d bytes are held", used)
				}
			})
		})
	}
}
