package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// L-02, L-03, L-13, L-49, AC-B07, AC-B09: another broker, be it a second one or the same one after a restart, is another universe: no
// lease, waiter, registration or snapshot of the first, tokens and registration ids from 1, another lifetime and other incarnations.
func TestRestartIsAnEmptyUniverse(t *testing.T) {
	for _, transport := range rawclient.Transports {
		t.Run(transport, func(t *testing.T) {
			const held = 3
			first := start(t)
			a := rawclient.Dial(t, transport, address(first, transport))
			hello := a.Connect()
			for i := range held {
				a.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://r/a/k%d", i), OwnerID: "w1", TTL: 600})
				expectGrant(t, a, 1, wire.LeaseGrantKindAcquired)
			}
			a.Request(2, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/k0", OwnerID: "w2", TTL: 600, Wait: 30})
			expectGrant(t, a, 2, wire.LeaseGrantKindQueued)
			a.Request(3, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://**"})
			a.Expect(3, wire.TypeLeaseSubscribe)
			page := list(t, a, wire.LeaseListRequest{Selector: "lease://**", Limit: 1})
			if !page.HasNext {
				t.Fatal("no second page")
			}
			// Every lease of a session shows the incarnation that its hello tells (L-13).
			if got := page.Items[0].HolderIncarnation; got != hello.Lifecycle.SessionIncarnation {
				t.Errorf("item of %x, session %x", got, hello.Lifecycle.SessionIncarnation)
			}

			second := start(t)
			b := rawclient.Dial(t, transport, address(second, transport))
			after := b.Connect()
			if after.Lifecycle.BrokerLifetimeID == hello.Lifecycle.BrokerLifetimeID || after.Lifecycle.SessionIncarnation == hello.Lifecycle.SessionIncarnation {
				t.Errorf("hello %+v after %+v", after.Lifecycle, hello.Lifecycle)
			}
			if empty := list(t, b, wire.LeaseListRequest{Selector: "lease://**"}); len(empty.Items) != 0 || empty.HasNext {
				t.Errorf("listing %+v", empty)
			}
			b.Request(1, wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://**", Limit: 1, Cursor: page.Next, HasCursor: true})
			if text := b.ExpectRefusal(1, wire.TypeLeaseList, wire.CodeLeaseInvalidListCursor); text != wire.TextInvalidListCursor(wire.LeaseCursorMisuseBrokerLifetime.String()) {
				t.Errorf("cursor of the other broker: %s", text)
			}
			b.Request(1, wire.TypeLeaseRenew, &wire.LeaseRenewRequest{Route: "lease://r/a/k1", OwnerID: "w1", FencingToken: 2, TTL: 600})
			b.ExpectRefusal(1, wire.TypeLeaseRenew, wire.CodeLeaseNotFound)
			b.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/k0", OwnerID: "w9", TTL: 600})
			if granted := expectGrant(t, b, 1, wire.LeaseGrantKindAcquired); granted.FencingToken != 1 {
				t.Errorf("first token %d", granted.FencingToken)
			}
			var registered wire.LeaseSubscribeReply
			b.Request(1, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://**"})
			if err := registered.DecodeValue(b.Expect(1, wire.TypeLeaseSubscribe)); err != nil || registered.SubscriptionID != 1 {
				t.Errorf("registration %+v, %v", registered, err)
			}
			// The first one was not touched: its next frame is the reply to its own request.
			if still := list(t, a, wire.LeaseListRequest{Selector: "lease://**"}); len(still.Items) != held {
				t.Errorf("the first broker holds %d leases", len(still.Items))
			}
		})
	}
}

func list(t *testing.T, c *rawclient.Client, request wire.LeaseListRequest) (reply wire.LeaseListReply) {
	t.Helper()
	c.Request(8, wire.TypeLeaseList, &request)
	if err := reply.DecodeValue(c.Expect(8, wire.TypeLeaseList)); err != nil {
		t.Fatal(err)
	}
	return reply
}

// L-80, W-36: at the end of a session over a real socket its waiters, registrations and leases are gone, and what waited for it is
// granted; a session that reconnects has another incarnation (L-13).
func TestSessionEndsWithEverything(t *testing.T) {
	each(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		doomed, other := dial(), dial()
		before := doomed.Connect()
		other.Connect()
		other.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/kept", OwnerID: "o", TTL: 600})
		expectGrant(t, other, 1, wire.LeaseGrantKindAcquired)
		doomed.Request(1, wire.TypeLeaseAcquire, acquire("w1", 0))
		held := expectGrant(t, doomed, 1, wire.LeaseGrantKindAcquired)
		doomed.Request(2, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/kept", OwnerID: "w1", TTL: 600, Wait: 30})
		expectGrant(t, doomed, 2, wire.LeaseGrantKindQueued)
		other.Request(2, wire.TypeLeaseAcquire, acquire("o", 30))
		expectGrant(t, other, 2, wire.LeaseGrantKindQueued)
		_ = doomed.Conn.Close()
		expectGrant(t, other, 2, wire.LeaseGrantKindAcquired)
		var state wire.LeaseQueryReply
		other.Request(3, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/a/kept"})
		if err := state.DecodeValue(other.Expect(3, wire.TypeLeaseQuery)); err != nil || state.PendingWaiters != 0 || state.OwnerID != "o" {
			t.Errorf("state %+v, %v", state, err)
		}
		again := dial()
		if after := again.Connect(); after.Lifecycle.SessionIncarnation == before.Lifecycle.SessionIncarnation || after.Lifecycle.BrokerLifetimeID != before.Lifecycle.BrokerLifetimeID {
			t.Errorf("hello %+v after %+v", after.Lifecycle, before.Lifecycle)
		}
		// The owner and token of before do not help the new session (L-11).
		again.Request(1, wire.TypeLeaseRenew, &wire.LeaseRenewRequest{Route: route, OwnerID: "w1", FencingToken: held.FencingToken, TTL: 30})
		again.ExpectRefusal(1, wire.TypeLeaseRenew, wire.CodeLeaseNotFound)
	})
}

// L-83, L-91: a session that does not take its notifications does not hold up the command that causes them; it is closed at its
// outbound limit, all of its leases with it, and what waited for them is granted.
func TestOutboundLimitEndsEverything(t *testing.T) {
	const registrations = 100
	each(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		slow, other := dial(), dial()
		slow.Request(0, wire.TypeLeaseAcquire, acquire("slow", 0)) // never negotiates, so that it cannot be told (W-83)
		expectGrant(t, slow, 0, wire.LeaseGrantKindAcquired)
		for i := range registrations {
			selector := "lease://" + strings.Repeat("**/", i/10) + "r/*/k" + strings.Repeat("/**", i%10)
			slow.Request(0, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: selector})
			slow.Expect(0, wire.TypeLeaseSubscribe)
		}
		other.Connect()
		other.Request(1, wire.TypeLeaseAcquire, acquire("other", 30))
		expectGrant(t, other, 1, wire.LeaseGrantKindQueued)
		other.Request(2, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/b/k", OwnerID: "other", TTL: 30})
		expectGrant(t, other, 2, wire.LeaseGrantKindAcquired)
		expectGrant(t, other, 1, wire.LeaseGrantKindAcquired)
		for {
			_, err := slow.Read()
			if err == nil {
				continue // what was enqueued before
			}
			slow.Check(err, wire.CloseSlowConsumer)
			break
		}
	}, "--limit", "session_notify_frames_max=1")
}
