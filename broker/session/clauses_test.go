package session_test

import (
	"bytes"
	"fmt"
	"math"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// accepted are the numbers that wire.md section 11 lets a client send to a broker of the domains that are built.
var accepted = []wire.MessageType{1, 2, 5, 240, 241, 242, 245, 400, 401, 402, 403, 407, 408, 410}

// W-05: every other number ends the session, whether it is unassigned, reserved, of a domain that is not built, of an extension
// that was not announced, or goes the other way. W-01: the numbers around the escape are among them.
func TestEveryOtherTypeCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.close()
		closed := 0
		numbers := []wire.MessageType{4096, 0x7fff, 0x8000, math.MaxUint16}
		for n := range wire.MessageType(1024) {
			numbers = append(numbers, n)
		}
		for _, n := range numbers {
			if slices.Contains(accepted, n) {
				continue
			}
			client := w.dial(rawclient.TCP)
			client.Connect()
			client.Negotiate()
			client.Send(rawclient.Record(n, nil), query(t))
			client.ExpectClose(wire.CloseUnsupportedMessageType)
			synctest.Wait()
			closed++
			if got := testutil.ToFloat64(w.metrics.ClosesTotal.WithLabelValues(wire.CloseUnsupportedMessageType.Name)); got != float64(closed) {
				t.Fatalf("type %d: %v closes, want %d", n, got, closed)
			}
		}
		if w.domain.calls != 0 {
			t.Errorf("%d requests behind such a record were executed", w.domain.calls)
		}
	})
}

// W-05, W-33, W-50, W-60, W-62 and compat.md section 2: without a hello, or before it, no feature of a capability may be used.
func TestFeaturesNeedTheHello(t *testing.T) {
	features := []struct {
		typ    wire.MessageType
		record func(t testing.TB) []byte
		want   wire.CloseReason
	}{
		{wire.TypeCorrelate, func(t testing.TB) []byte { return rawclient.Labelled(1, query(t)) }, wire.CloseBadControlRecord},
		{wire.TypeSessionMetadata, func(t testing.TB) []byte {
			return rawclient.Encode(t, wire.TypeSessionMetadata, &wire.SessionMetadata{ServiceName: "x"})
		}, wire.CloseUnsupportedMessageType},
		{wire.TypeClientHello, clientHello(uint32(wire.CapLifecycle)), wire.CloseBadControlRecord},
		{wire.TypePing, func(t testing.TB) []byte { return rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: 1}) }, wire.CloseBadControlRecord},
		{wire.TypePong, func(t testing.TB) []byte { return rawclient.Encode(t, wire.TypePong, &wire.Pong{Nonce: 1}) }, wire.CloseBadControlRecord},
		{wire.TypeGoaway, func(t testing.TB) []byte { return rawclient.Encode(t, wire.TypeGoaway, &wire.Goaway{}) }, wire.CloseUnsupportedMessageType},
		{wire.TypeSubEnded, func(t testing.TB) []byte { return rawclient.Encode(t, wire.TypeSubEnded, &wire.SubEnded{Domain: 4}) }, wire.CloseUnsupportedMessageType},
		{wire.TypeCancel, func(t testing.TB) []byte { return cancel(t, 1) }, wire.CloseBadControlRecord},
		{wire.TypeCancelled, func(t testing.TB) []byte { return rawclient.Encode(t, wire.TypeCancelled, &wire.Cancelled{}) }, wire.CloseUnsupportedMessageType},
	}
	for _, state := range []struct {
		name    string
		hello   session.Hello
		connect bool
	}{
		{"off", session.Hello{Mode: session.HelloOff}, true},
		{"delayed and not sent yet", session.Hello{Mode: session.HelloDelayed, Delay: time.Second}, true},
		{"without CONNECT", session.Hello{}, false},
	} {
		for _, f := range features {
			t.Run(fmt.Sprintf("%s/%d", state.name, f.typ), func(t *testing.T) {
				run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
					w.hello = state.hello
					client := dial()
					first := query(t)
					if state.connect {
						first = rawclient.Record(wire.TypeConnect, nil)
					}
					client.Send(first, f.record(t))
					if !state.connect {
						client.Expect(0, wire.TypeLeaseQuery)
					}
					client.ExpectClose(f.want)
					synctest.Wait()
					if n := testutil.ToFloat64(w.metrics.ClosesTotal.WithLabelValues(f.want.Name)); n != 1 {
						t.Errorf("closes of %s: %v", f.want.Name, n)
					}
				})
			})
		}
	}
}

// W-06 and errors.md section 5: each operation answers a malformed value with its code and goes on, nothing of the value is applied
// (D-5), and the hundredth of them, counted over all operations, closes.
func TestMalformedValueOfEveryOperation(t *testing.T) {
	codes := map[wire.MessageType]wire.Code{
		wire.TypeLeaseAcquire: wire.CodeLeaseBadRequest, wire.TypeLeaseRenew: wire.CodeLeaseBadRequest,
		wire.TypeLeaseRelease: wire.CodeLeaseBadRequest, wire.TypeLeaseQuery: wire.CodeLeaseBadRequest,
		wire.TypeLeaseSubscribe: wire.CodeLeaseInvalidSubscriptionRoute, wire.TypeLeaseUnsubscribe: wire.CodeLeaseInvalidSubscriptionRoute,
		wire.TypeLeaseList: wire.CodeLeaseBadRequest,
	}
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		sent := 0
		for {
			for typ, code := range codes {
				label := uint64(sent % 2 * (sent + 1))
				record := rawclient.Record(typ, []byte{0, 0, 0, 9, 'x'})
				if label != 0 {
					record = rawclient.Labelled(label, record)
				}
				client.Send(record)
				client.ExpectRefusal(label, typ, code)
				if sent++; sent == 100 {
					client.ExpectClose(wire.CloseTooManyMalformedRequests)
					if w.domain.calls != 0 {
						t.Errorf("%d malformed requests were executed", w.domain.calls)
					}
					return
				}
			}
		}
	})
}

// D-4, D-5: an ACQUIRE that is whole but for a byte behind its last field takes no lease.
func TestMalformedIsNotPartlyApplied(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		good := acquire(t, "w1")[5:]
		client.Send(rawclient.Record(wire.TypeLeaseAcquire, append(bytes.Clone(good), 0)))
		client.ExpectRefusal(0, wire.TypeLeaseAcquire, wire.CodeLeaseBadRequest)
		if w.domain.calls != 0 {
			t.Error("it was executed")
		}
		client.Send(rawclient.Record(wire.TypeLeaseAcquire, good))
		client.Expect(0, wire.TypeLeaseAcquire)
	})
}

// W-51: every refusal that is made before the domain carries the label too.
func TestRefusalsBeforeTheDomainAreLabelled(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		str := func(texts ...string) (value []byte) {
			for _, text := range texts {
				value = codec.AppendString(value, text)
			}
			return value
		}
		for i, c := range []struct {
			typ   wire.MessageType
			value []byte
			code  wire.Code
		}{
			{wire.TypeLeaseQuery, []byte{1}, wire.CodeLeaseBadRequest},                                                      // malformed
			{wire.TypeLeaseQuery, str("lease://r/a"), wire.CodeLeaseBadRequest},                                             // grammar of a route
			{wire.TypeLeaseSubscribe, str("lease://r/a"), wire.CodeLeaseInvalidSubscriptionRoute},                           // of a selector
			{wire.TypeLeaseAcquire, codec.AppendU64(str("lease://r/a/k", "w1"), 0), wire.CodeLeaseBadRequest},               // a bound
			{wire.TypeLeaseList, codec.AppendU32(append(str("lease://r/a"), 0), 0), wire.CodeLeaseInvalidListPattern},       // a code of its own
			{wire.TypeLeaseRenew, codec.AppendU64(codec.AppendU64(str("kv://r/a/k", "w"), 1), 1), wire.CodeLeaseBadRequest},
		} {
			label := uint64(i + 1)
			client.Send(rawclient.Labelled(label, rawclient.Record(c.typ, c.value)))
			client.ExpectRefusal(label, c.typ, c.code)
		}
		if w.domain.calls != 0 {
			t.Errorf("%d of them were executed", w.domain.calls)
		}
	})
}

// W-52, W-54: a label on a control record is dropped: it is not in flight afterwards, and it is no second use of one that is.
func TestLabelsOnControlRecordsAreDropped(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Send(rawclient.Labelled(7, acquire(t, "wait")))
		client.Expect(7, wire.TypeLeaseAcquire)
		client.Send(
			rawclient.Labelled(7, rawclient.Encode(t, wire.TypeSessionMetadata, &wire.SessionMetadata{ServiceName: "x"})),
			rawclient.Labelled(7, clientHello(uint32(wire.CapLifecycle))(t)),
			rawclient.Labelled(7, rawclient.Encode(t, wire.TypePong, &wire.Pong{Nonce: 1})),
			rawclient.Labelled(7, rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: 2})),
		)
		client.Expect(0, wire.TypePong)
		client.Send(rawclient.Labelled(7, cancel(t, 7))) // W-79: CANCEL is never labelled
		client.ExpectRefusal(7, wire.TypeLeaseAcquire, wire.CodeRequestCancelled)
		expectCancelled(t, client, 7, wire.CancelOutcomeCancelled)
		client.Send(rawclient.Labelled(7, query(t))) // W-77
		client.Expect(7, wire.TypeLeaseQuery)
	})
}

// W-31, C-10: on an anonymous listener each request may be the first record.
func TestAnyRequestMayComeFirst(t *testing.T) {
	for _, c := range []struct {
		typ     wire.MessageType
		request rawclient.Encoder
	}{
		{wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/k", OwnerID: "w1", TTL: 30}},
		{wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: "lease://r/a/k", OwnerID: "w1", FencingToken: 1}},
		{wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/a/k"}},
		{wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://**"}},
		{wire.TypeLeaseUnsubscribe, &wire.LeaseUnsubscribeRequest{Selector: "lease://**"}},
		{wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://**"}},
	} {
		run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
			client := dial()
			client.Request(0, c.typ, c.request)
			client.Expect(0, c.typ)
			if family := only(t, w).Family(); family != 1 {
				t.Errorf("family %d", family)
			}
		})
	}
}

// halfClosing is the end of a pipe that tells when its sending side is ended, as TCP does with a FIN.
type halfClosing struct {
	net.Conn
	ended chan time.Time
}

func (h halfClosing) CloseWrite() error {
	h.ended <- time.Now()
	return nil
}

// W-34, A-06: a CONNECT that is refused ends the connection at once, in order and without a frame of the session, also when more
// stands behind it.
func TestRefusedConnectClosesAtOnce(t *testing.T) {
	const most = 50 * time.Millisecond
	reason := wire.CloseConnectFailed
	reason.Text += "token too long"
	run(t, func(l *bounds.Limits) { l.TokenBytesMax = 16 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Send(rawclient.Record(wire.TypeConnect, make([]byte, 17)), query(t))
		client.ExpectClose(reason)
		synctest.Wait()
		if w.domain.calls != 0 {
			t.Error("the request behind it was executed")
		}
	})
	synctest.Test(t, func(t *testing.T) { // a pipe has no FIN, so that TCP is looked at from the other side
		w := newWorld(t, func(l *bounds.Limits) { l.TokenBytesMax = 16 })
		defer w.close()
		near, far := pair()
		defer func() { _ = near.Close() }()
		half := halfClosing{far, make(chan time.Time, 1)}
		entry := w.preauth.Add(far.RemoteAddr(), func() {})
		w.group.Go(w.hub.Open(transport.NewTCP(half, int(w.limits.FrameRecvMax), w.inbound), entry, session.Door{}).Run)
		start := time.Now()
		client := rawclient.New(t, near)
		client.Send(rawclient.Record(wire.TypeConnect, make([]byte, 17)))
		if d := (<-half.ended).Sub(start); d > most {
			t.Errorf("ended after %v", d)
		}
		client.ExpectClose(reason)
	})
}

// W-36: requests that stand behind the one at which the session ends are discarded.
func TestRequestsBehindTheEndAreDiscarded(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		w.domain.onQuery = func(s peer.Session, _ peer.Call) { s.Close(wire.CloseGoingAway) }
		client.Send(repeat(query(t), 20)...)
		client.ExpectClose(wire.CloseGoingAway)
		w.hubEmpty(t)
		if w.domain.calls != 1 || w.domain.closedSessions() != 1 {
			t.Errorf("%d requests were executed, %d ends told", w.domain.calls, w.domain.closedSessions())
		}
	})
}

// W-60: CLIENT_HELLO takes effect for the records behind it, also in the same transport message.
func TestClientHelloTakesEffectBehindIt(t *testing.T) {
	ping := func(t testing.TB) []byte { return rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: 3}) }
	run(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Send(query(t), clientHello(uint32(wire.CapLifecycle))(t), ping(t))
		client.Expect(0, wire.TypeLeaseQuery)
		client.Expect(0, wire.TypePong)
		early := dial()
		early.Connect()
		early.Send(ping(t), clientHello(uint32(wire.CapLifecycle))(t))
		early.ExpectClose(wire.CloseBadControlRecord)
	})
}

// W-61, W-64 and section 7: bits that were not announced, odd names and later bytes change nothing of a CLIENT_HELLO.
func TestClientHelloForms(t *testing.T) {
	longest := func(n int) string { return string(bytes.Repeat([]byte("n"), n)) }
	run(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		for _, hello := range []wire.ClientHello{
			{Capabilities: math.MaxUint32, SDKName: "go", SDKVersion: "1"},
			{Capabilities: wire.CapLifecycle},
			{Capabilities: wire.CapLifecycle | wire.CapLeaseExt, SDKName: "a\x00b\n", SDKVersion: "日本", SpecFingerprint: math.MaxUint64},
			{Capabilities: wire.CapLifecycle, SDKName: longest(bounds.SDKNameMax), SDKVersion: longest(bounds.SDKVersionMax)},
		} {
			value, err := hello.AppendValue(nil)
			if err != nil {
				t.Fatal(err)
			}
			client := dial()
			client.Connect()
			client.Send(rawclient.Record(wire.TypeClientHello, append(value, 1, 2, 3)))
			client.Sync(1)
			client.Send(rawclient.Record(481, nil)) // W-61: the extension was not announced
			client.ExpectClose(wire.CloseUnsupportedMessageType)
		}
	})
}

// W-63: an error of the domain has the coded form in a session that is negotiated and, for these operations, in every other.
func TestErrorsAreCoded(t *testing.T) {
	run(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		renew := &wire.LeaseRenewRequest{Route: "lease://r/a/k", OwnerID: "w1", FencingToken: 1, TTL: 30}
		client := dial()
		client.Connect()
		for range 2 {
			for label := range uint64(2) {
				client.Request(label, wire.TypeLeaseRenew, renew)
				value := client.Expect(label, wire.TypeLeaseRenew)
				if want := wire.AppendCoded(nil, wire.CodeLeaseNotFound, wire.TextNotHeld); !bytes.Equal(value, want) {
					t.Errorf("error %x, want %x", value, want)
				}
			}
			if label := uint64(9); renew.TTL == 30 { // once more, negotiated
				client.Negotiate()
				client.Sync(label)
			}
			renew.TTL++
		}
	})
}

// W-11: prefix and payload of a message reach the socket in one write call, whatever their size. A pipe gives one write call to one
// read that has room for it.
func TestMessagesAreWrittenWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.close()
		client := w.dial(rawclient.TCP)
		buf := make([]byte, 2*bounds.FrameSendMax)
		for _, size := range []int{1, 100, 4096, 40_000, bounds.ReplyValueMax} {
			w.domain.mu.Lock()
			w.domain.reply = make([]byte, size)
			w.domain.mu.Unlock()
			client.Send(query(t))
			n, err := client.Conn.Read(buf)
			if want := 4 + codec.RecordHeaderSize(uint16(wire.TypeLeaseQuery)) + size; err != nil || n != want {
				t.Errorf("the first write call of a reply of %d bytes has %d, %v; want %d", size, n, err, want)
			}
		}
	})
}

// W-79: exactly the last cancel_memory_max completed labels of waiting types are remembered, however many came before.
func TestCancelMemoryIsARing(t *testing.T) {
	const memory, completed = 3, 11
	run(t, func(l *bounds.Limits) { l.CancelMemoryMax = memory }, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Negotiate()
		for label := range uint64(completed) {
			client.Send(rawclient.Labelled(label+1, acquire(t, "now")))
			client.Expect(label+1, wire.TypeLeaseAcquire)
		}
		for label := uint64(1); label <= completed; label++ {
			want := wire.CancelOutcomeUnknown
			if label > completed-memory {
				want = wire.CancelOutcomeAlreadyCompleted
			}
			client.Send(cancel(t, label))
			expectCancelled(t, client, label, want)
		}
	})
}

// W-30: the time of a message begins with its first byte; bytes that trickle in do not begin it again.
func TestTricklingMessageIsClosed(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		timeout := seconds(w.limits.SessionReadTimeoutMs)
		client := dial()
		client.Connect()
		start := time.Now()
		trickled := make(chan struct{})
		go func() {
			defer close(trickled)
			for _, b := range client.Framed(query(t)) {
				if client.TryRaw([]byte{b}) != nil {
					return
				}
				time.Sleep(timeout / 4)
			}
		}()
		defer func() { <-trickled }()
		client.ExpectClose(wire.CloseIdle)
		if d := time.Since(start); d < timeout || d > timeout+time.Second {
			t.Errorf("closed after %v, want %v", d, timeout)
		}
	})
}

// W-30, W-81: the time in which the broker does not read a begun message, because the receive buffers of all sessions are at their
// bound, does not count for the message.
func TestPausedTimeDoesNotCountForAMessage(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.FrameRecvMax, l.InboundTotalBytesMax = 64<<10, 160<<10 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		timeout := seconds(w.limits.SessionReadTimeoutMs)
		message := rawclient.Record(wire.TypeLeaseQuery, make([]byte, 60_000))
		const part = 50_000
		holder, waiting := dial(), dial()
		for _, client := range []*rawclient.Client{holder, waiting} {
			client.Connect()
		}
		holder.Raw(holder.Framed(message)[:part])
		time.Sleep(timeout / 2)
		if n := testutil.ToFloat64(w.metrics.ReadPausesTotal); n != 0 {
			t.Fatalf("%v pauses before the bound", n)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			waiting.Raw(waiting.Framed(message)[:part])
		}()
		synctest.Wait()
		if n := testutil.ToFloat64(w.metrics.ReadPausesTotal); n != 1 {
			t.Fatalf("%v pauses at the bound", n)
		}
		holder.ExpectClose(wire.CloseIdle) // half of the time of the other has passed, and none of it counts
		<-sent
		time.Sleep(timeout * 3 / 4)
		waiting.Raw(waiting.Framed(message)[part:])
		waiting.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest)
	})
}
