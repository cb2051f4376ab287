package clientcheck

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/generated/go/client"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const route = "lease://r/a/k"

// broker is the other end of a session, driven by a test.
type broker struct {
	t    *testing.T
	conn net.Conn
}

type encoder interface {
	AppendValue([]byte) ([]byte, error)
}

func record(t *testing.T, typ wire.MessageType, m encoder) []byte {
	t.Helper()
	value, err := m.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	return codec.AppendRecord(nil, uint16(typ), value)
}

func (b *broker) send(records ...[]byte) {
	b.t.Helper()
	var payload []byte
	for _, r := range records {
		payload = append(payload, r...)
	}
	if _, err := b.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)); err != nil {
		b.t.Fatal(err)
	}
}

// reply sends a labelled reply.
func (b *broker) reply(label uint64, typ wire.MessageType, value []byte) {
	b.t.Helper()
	b.send(record(b.t, wire.TypeCorrelated, &wire.Correlated{ID: label}), codec.AppendRecord(nil, uint16(typ), value))
}

func (b *broker) success(label uint64, typ wire.MessageType, m encoder) {
	b.t.Helper()
	value, err := m.AppendValue(nil)
	if err != nil {
		b.t.Fatal(err)
	}
	b.reply(label, typ, value)
}

// receive reads one transport message and returns the label and the last record.
func (b *broker) receive() (uint64, codec.Record) {
	b.t.Helper()
	var prefix [4]byte
	if _, err := io.ReadFull(b.conn, prefix[:]); err != nil {
		b.t.Fatal(err)
	}
	payload := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	if _, err := io.ReadFull(b.conn, payload); err != nil {
		b.t.Fatal(err)
	}
	var label uint64
	for {
		r, rest, err := codec.NextRecord(payload)
		if err != nil {
			b.t.Fatal(err)
		}
		if wire.MessageType(r.Type) != wire.TypeCorrelate {
			return label, r
		}
		var m wire.Correlate
		if err := m.DecodeValue(r.Value); err != nil {
			b.t.Fatal(err)
		}
		label, payload = m.ID, rest
	}
}

func (b *broker) expect(typ wire.MessageType) (uint64, []byte) {
	b.t.Helper()
	label, r := b.receive()
	if wire.MessageType(r.Type) != typ {
		b.t.Fatalf("got %v, want %v", wire.MessageType(r.Type), typ)
	}
	return label, r.Value
}

func hello() *wire.ServerHello {
	return &wire.ServerHello{
		Version: wire.HelloVersion, Capabilities: wire.AnnouncedCapabilities,
		Lifecycle: wire.LifecycleHello{SessionIncarnation: 7, MaxFrameBytes: 1 << 20, HeartbeatMs: 10000, BrokerLifetimeID: [16]byte{1}},
	}
}

// open opens a session over a pipe, on virtual time.
func open(t *testing.T, o client.Options) (*client.Client, *broker) {
	t.Helper()
	near, far := net.Pipe()
	b := &broker{t, far}
	o.Dial = func(context.Context, string, string) (net.Conn, error) { return near, nil }
	type dialled struct {
		c   *client.Client
		err error
	}
	result := make(chan dialled, 1)
	go func() {
		c, err := client.Dial(t.Context(), client.DefaultURL, o)
		result <- dialled{c, err}
	}()
	if _, value := b.expect(wire.TypeConnect); string(value) != o.Token {
		t.Fatalf("token %q", value)
	}
	b.send(record(t, wire.TypeServerHello, hello()))
	_, value := b.expect(wire.TypeClientHello)
	var m wire.ClientHello
	if err := m.DecodeValue(value); err != nil || m.Capabilities != wire.CapLifecycle || m.SpecFingerprint != wire.SpecFingerprint {
		t.Fatalf("client hello %+v, %v", m, err)
	}
	d := <-result
	if d.err != nil {
		t.Fatal(d.err)
	}
	t.Cleanup(func() {
		_ = d.c.Close()
		_ = far.Close()
	})
	return d.c, b
}

func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// start calls an operation in a goroutine.
func start[R any](call func() (R, error)) func() (R, error) {
	type result struct {
		reply R
		err   error
	}
	done := make(chan result, 1)
	go func() {
		reply, err := call()
		done <- result{reply, err}
	}()
	return func() (R, error) {
		r := <-done
		return r.reply, r.err
	}
}

func TestServerHello(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := open(t, client.Options{Token: "secret"})
		if got, ok := c.ServerHello(); !ok || got != *hello() {
			t.Fatalf("%+v, %v", got, ok)
		}
	})
}

// E-02 to E-05: every form of a refusal is read; unknown codes are kept, and none is guessed from a text.
func TestRefusals(t *testing.T) {
	unknown := wire.Code(5999)
	for name, test := range map[string]struct {
		value []byte
		want  client.Error
	}{
		"coded": {wire.AppendCoded(nil, wire.CodeLeaseHeld, wire.TextHeldByOther("x")), client.Error{
			Code: wire.CodeLeaseHeld, Name: "lease.held", Retry: wire.RetryBackoff, Outcome: wire.OutcomeRejected, Message: "HeldByOther: x"}},
		"plain": {wire.AppendPlain(nil, wire.TextHeldByOther("x")), client.Error{
			Name: "lease", Retry: wire.RetryNever, Outcome: wire.OutcomeRejected, Message: "HeldByOther: x"}},
		"stream-coded": {wire.AppendStreamCoded(nil, wire.CodeLeaseQueueFull, "y"), client.Error{
			Code: wire.CodeLeaseQueueFull, Name: "lease.queue_full", Retry: wire.RetryBackoff, Outcome: wire.OutcomeRejected, Message: "y"}},
		"unknown code": {wire.AppendCoded(nil, unknown, "z"), client.Error{
			Code: unknown, Name: unknown.String(), Retry: wire.RetryNever, Outcome: wire.OutcomeUnknown, Message: "z"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c, b := open(t, client.Options{})
				call := start(func() (wire.LeaseQueryReply, error) {
					return c.LeaseQuery(t.Context(), &wire.LeaseQueryRequest{Route: route})
				})
				label, _ := b.expect(wire.TypeLeaseQuery)
				b.reply(label, wire.TypeLeaseQuery, test.value)
				_, err := call()
				var got *client.Error
				test.want.FromBroker = true
				if !errors.As(err, &got) || *got != test.want {
					t.Fatalf("got %+v, want %+v", got, test.want)
				}
				if c.Err() != nil {
					t.Fatalf("the session ended: %v", c.Err())
				}
			})
		})
	}
}

func TestSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, b := open(t, client.Options{})
		want := wire.LeaseQueryReply{Held: true, OwnerID: "o", TTLRemaining: 5, PendingWaiters: 1}
		call := start(func() (wire.LeaseQueryReply, error) {
			return c.LeaseQuery(t.Context(), &wire.LeaseQueryRequest{Route: route})
		})
		label, value := b.expect(wire.TypeLeaseQuery)
		var request wire.LeaseQueryRequest
		if err := request.DecodeValue(value); err != nil || request.Route != route {
			t.Fatalf("%+v, %v", request, err)
		}
		b.success(label, wire.TypeLeaseQuery, &want)
		if got, err := call(); err != nil || got != want {
			t.Fatalf("%+v, %v", got, err)
		}
	})
}

// A reply that is neither a success nor a refusal is a violation and ends the session.
func TestMalformedReply(t *testing.T) {
	for name, value := range map[string][]byte{"empty": {}, "cut off": {0, 1}, "later bytes": {0, 0, 0, 0, 0, 0, 9}, "unknown status": {9}, "cut-off refusal": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c, b := open(t, client.Options{})
				call := start(func() (wire.LeaseQueryReply, error) {
					return c.LeaseQuery(t.Context(), &wire.LeaseQueryRequest{Route: route})
				})
				label, _ := b.expect(wire.TypeLeaseQuery)
				b.reply(label, wire.TypeLeaseQuery, value)
				_, err := call()
				var e *client.Error
				if !errors.As(err, &e) || e.Name != client.NameProtocolViolation || e.Outcome != wire.OutcomeUnknown {
					t.Fatalf("got %v", err)
				}
				<-c.Done()
				if !client.Is(c.Err(), client.NameProtocolViolation) {
					t.Fatalf("session ended with %v", c.Err())
				}
			})
		})
	}
}

// Routes, selectors and numbers are checked before anything is sent; the message begins with the reason word.
func TestInvalidRequestsAreNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, b := open(t, client.Options{})
		ctx := t.Context()
		for want, call := range map[string]func() error{
			"wildcard_not_allowed: ": func() error {
				_, err := c.LeaseAcquire(ctx, &wire.LeaseAcquireRequest{Route: "lease://r/a/*", OwnerID: "o", TTL: 1})
				return err
			},
			"wrong_scheme: ": func() error { _, err := c.LeaseQuery(ctx, &wire.LeaseQueryRequest{Route: "queue://r/a/k"}); return err },
			"depth: ": func() error {
				_, err := c.LeaseSubscribe(ctx, &wire.LeaseSubscribeRequest{Selector: "lease://r"})
				return err
			},
			"adjacent ** segments are not allowed": func() error {
				_, err := c.LeaseList(ctx, &wire.LeaseListRequest{Selector: "lease://**/**"})
				return err
			},
			"lease.acquire.ttl": func() error {
				_, err := c.LeaseAcquire(ctx, &wire.LeaseAcquireRequest{Route: route, OwnerID: "o"})
				return err
			},
			"lease.renew.owner_id": func() error {
				_, err := c.LeaseRenew(ctx, &wire.LeaseRenewRequest{Route: route, OwnerID: strings.Repeat("x", 513), TTL: 1})
				return err
			},
		} {
			var e *client.Error
			if err := call(); !errors.As(err, &e) || e.Name != client.NameConfigInvalid || e.Outcome != wire.OutcomeRejected || !strings.HasPrefix(e.Message, want) {
				t.Errorf("%s: got %v", want, err)
			}
		}
		call := start(func() (wire.LeaseQueryReply, error) { return c.LeaseQuery(ctx, &wire.LeaseQueryRequest{Route: route}) })
		if label, _ := b.expect(wire.TypeLeaseQuery); label != 1 {
			t.Errorf("%d requests were sent before", label-1)
		}
		_ = c.Close()
		if _, err := call(); !client.Is(err, client.NameConnClosed) {
			t.Errorf("got %v", err)
		}
	})
}

// L-26, L-32: a request that waits gets its second reply; the first one is told.
func TestWaitingAcquire(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, b := open(t, client.Options{})
		var first wire.LeaseAcquireReply
		call := start(func() (wire.LeaseAcquireReply, error) {
			return c.LeaseAcquireWaiting(t.Context(), &wire.LeaseAcquireRequest{Route: route, OwnerID: "o", TTL: 30, Wait: 30},
				func(r wire.LeaseAcquireReply) { first = r })
		})
		label, _ := b.expect(wire.TypeLeaseAcquire)
		b.success(label, wire.TypeLeaseAcquire, &wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindQueued, FencingToken: 9})
		began := time.Now()
		for range 2 { // a heartbeat each time; longer than the request timeout
			_, value := b.expect(wire.TypePing)
			b.send(codec.AppendRecord(nil, uint16(wire.TypePong), value))
		}
		if time.Since(began) <= client.RequestTimeout {
			t.Fatalf("only %v passed", time.Since(began))
		}
		b.success(label, wire.TypeLeaseAcquire, &wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindAcquired, FencingToken: 9})
		if reply, err := call(); err != nil || reply.Kind != wire.LeaseGrantKindAcquired || first.Kind != wire.LeaseGrantKindQueued || first.FencingToken != 9 {
			t.Fatalf("%+v, %v; first %+v", reply, err, first)
		}
	})
}

// W-71, W-78, L-73: a cancelled acquire tells the broker; a grant that crossed it is handed on for its release.
func TestCancelledAcquire(t *testing.T) {
	for name, granted := range map[string]bool{"cancelled in time": false, "granted before": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var late []wire.LeaseAcquireReply
				c, b := open(t, client.Options{OnLateLeaseAcquire: func(request wire.LeaseAcquireRequest, reply wire.LeaseAcquireReply) {
					if request.Route != route {
						t.Errorf("%+v", request)
					}
					late = append(late, reply)
				}})
				ctx, cancel := context.WithCancel(t.Context())
				call := start(func() (wire.LeaseAcquireReply, error) {
					return c.LeaseAcquire(ctx, &wire.LeaseAcquireRequest{Route: route, OwnerID: "o", TTL: 30, Wait: 30})
				})
				label, _ := b.expect(wire.TypeLeaseAcquire)
				b.success(label, wire.TypeLeaseAcquire, &wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindQueued, FencingToken: 9})
				synctest.Wait()
				cancel()
				_, value := b.expect(wire.TypeCancel)
				var asked wire.Cancel
				if err := asked.DecodeValue(value); err != nil || asked.CorrelationID != label {
					t.Fatalf("%+v, %v", asked, err)
				}
				outcome := wire.CancelOutcomeCancelled
				if granted {
					outcome = wire.CancelOutcomeAlreadyCompleted
					b.success(label, wire.TypeLeaseAcquire, &wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindAcquired, FencingToken: 9})
				} else {
					b.reply(label, wire.TypeLeaseAcquire, wire.AppendCoded(nil, wire.CodeRequestCancelled, wire.TextCancelled))
				}
				b.send(record(t, wire.TypeCancelled, &wire.Cancelled{CorrelationID: label, Outcome: outcome}))
				if _, err := call(); !errors.Is(err, context.Canceled) {
					t.Fatalf("got %v", err)
				}
				if granted != (len(late) == 1) {
					t.Fatalf("late %+v", late)
				}
			})
		})
	}
}

// What the broker sends by itself reaches its callback, decoded; something malformed ends the session (W-58, W-67, W-68, L-74).
func TestPushes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var notified wire.LeaseNotify
		var ended wire.SubEnded
		var goaway wire.Goaway
		c, b := open(t, client.Options{
			OnLeaseNotify: func(m wire.LeaseNotify) { notified = m },
			OnSubEnded:    func(m wire.SubEnded) { ended = m },
			OnGoaway:      func(m wire.Goaway) { goaway = m },
		})
		b.send(record(t, wire.TypeLeaseNotify, &wire.LeaseNotify{SubscriptionID: 5, Route: route}))
		b.send(record(t, wire.TypeSubEnded, &wire.SubEnded{Domain: 4, SubscriptionID: 5, Code: wire.CodeSubSlowConsumer, Dropped: 3}))
		b.send(record(t, wire.TypeGoaway, &wire.Goaway{GraceMs: 9, Code: wire.CodeGoawayShutdown, Reason: "stop"}))
		b.send(codec.AppendRecord(nil, 999, nil)) // unknown types are ignored (W-05)
		synctest.Wait()
		if notified.Route != route || ended.Dropped != 3 || goaway.Reason != "stop" || c.Err() != nil {
			t.Fatalf("%+v, %+v, %+v, %v", notified, ended, goaway, c.Err())
		}
		b.send(codec.AppendRecord(nil, uint16(wire.TypeLeaseNotify), []byte{1}))
		<-c.Done()
		if !client.Is(c.Err(), client.NameProtocolViolation) {
			t.Fatalf("ended with %v", c.Err())
		}
	})
}

// The outcome of a lost request is unknown once it was sent.
func TestLostConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, b := open(t, client.Options{})
		call := start(func() (wire.LeaseQueryReply, error) {
			return c.LeaseQuery(t.Context(), &wire.LeaseQueryRequest{Route: route})
		})
		b.expect(wire.TypeLeaseQuery)
		_ = b.conn.Close()
		_, err := call()
		var e *client.Error
		if !errors.As(err, &e) || e.Name != client.NameConnLost || e.Outcome != wire.OutcomeUnknown || e.Retry != wire.RetryReconnect {
			t.Fatalf("got %+v", e)
		}
		if _, err = c.LeaseQuery(t.Context(), &wire.LeaseQueryRequest{Route: route}); !errors.As(err, &e) || e.Outcome != wire.OutcomeRejected {
			t.Fatalf("got %+v", e)
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, good := range []string{client.DefaultURL, "fitz://h", "tcp://h:1", "ws://h/ws", "ws://[::1]:80", "fitzs://h", "tls://h:1", "wss://h/ws"} {
		if err := client.CheckAddress(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "http://h", "fitz://h/x", "tls://h/x", "https://h"} {
		if err := client.CheckAddress(bad); !client.Is(err, client.NameConfigInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
