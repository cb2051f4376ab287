package fitztest_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/client"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, b *fitztest.Broker, o client.Options) *client.Client {
	t.Helper()
	o.Dial = b.Dial
	c, err := client.Dial(t.Context(), b.URL(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func acquire(t *testing.T, c *client.Client, route string, ttl uint64) wire.LeaseAcquireReply {
	t.Helper()
	reply, err := c.LeaseAcquire(t.Context(), &wire.LeaseAcquireRequest{Route: route, OwnerID: "w", TTL: ttl})
	if err != nil {
		t.Fatalf("acquire %s: %v", route, err)
	}
	return reply
}

// over runs a test in a bubble, over both transports.
func over(t *testing.T, test func(t *testing.T, transport ...fitztest.Option)) {
	t.Run("tcp", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t) })
	})
	t.Run("websocket", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, fitztest.WithWebSocket()) })
	})
}

// A lease of an hour expires in the time of the bubble, with a broker, connections and clients inside it.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		c := dial(t, b, client.Options{})
		acquire(t, c, "lease://a/b/c", 3600)
		time.Sleep(time.Hour - time.Second)
		if held := b.Held("lease://a/b/*"); len(held) != 1 || held[0].ExpiresIn != 0 && held[0].ExpiresIn != 1 {
			t.Errorf("a second before the end: %+v", held)
		}
		time.Sleep(time.Second)
		if held := b.Held("lease://a/b/*"); len(held) != 0 {
			t.Errorf("at the end: %+v", held)
		}
	})
}

// Outside of a bubble the clock of the broker moves when the test says so.
func TestManualClock(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	b := fitztest.Start(t, fitztest.WithManualClock(start))
	c := dial(t, b, client.Options{})
	acquire(t, c, "lease://a/b/c", 60)
	held := b.Held("lease://a/b/c")
	if len(held) != 1 || held[0].AcquiredAt != "2030-01-02T03:04:05.000Z" {
		t.Fatalf("held %+v", held)
	}
	b.SetWall(start.Add(24 * time.Hour))
	b.Advance(59 * time.Second)
	if len(b.Held("lease://a/b/c")) != 1 {
		t.Error("a step of the time of day, or 59 s, ended a lease of 60 s")
	}
	b.Advance(time.Second)
	if len(b.Held("lease://a/b/c")) != 0 {
		t.Error("the lease outlived its ttl")
	}
}

// Without a hello a client has no capabilities, and everything works without labels.
func TestWithoutHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t, fitztest.WithoutHello())
		c := dial(t, b, client.Options{})
		if _, ok := c.ServerHello(); ok {
			t.Error("a hello came")
		}
		acquire(t, c, "lease://a/b/c", 60)
		if b.Network().Passed(fitztest.ToBroker, wire.TypeClientHello) != 0 {
			t.Error("CLIENT_HELLO was sent")
		}
	})
}

// Stop and Restart end what was held; the address stays.
func TestRestart(t *testing.T) {
	over(t, func(t *testing.T, transport ...fitztest.Option) {
		b := fitztest.Start(t, transport...)
		c := dial(t, b, client.Options{})
		acquire(t, c, "lease://a/b/c", 60)
		before, _ := c.ServerHello()
		b.Stop()
		<-c.Done()
		if _, err := client.Dial(t.Context(), b.URL(), client.Options{Dial: b.Dial}); !client.Is(err, client.NameConnRefused) {
			t.Errorf("dial a stopped broker: %v", err)
		}
		b.Restart()
		again := dial(t, b, client.Options{})
		after, _ := again.ServerHello()
		if before.Lifecycle.BrokerLifetimeID == after.Lifecycle.BrokerLifetimeID {
			t.Error("the lifetime is the same")
		}
		if len(b.Held("lease://**")) != 0 {
			t.Error("a lease survived")
		}
	})
}

func TestCut(t *testing.T) {
	over(t, func(t *testing.T, transport ...fitztest.Option) {
		b := fitztest.Start(t, transport...)
		c, holder := dial(t, b, client.Options{}), b.Holder()
		acquire(t, c, "lease://a/b/c", 60)
		b.Network().Cut()
		<-c.Done()
		synctest.Wait()
		if len(b.Held("lease://a/b/c")) != 0 {
			t.Error("the broker did not notice")
		}
		acquire(t, holder, "lease://a/b/c", 60) // no fault reaches it
		b.Network().Refuse(true)
		if _, err := client.Dial(t.Context(), b.URL(), client.Options{Dial: b.Dial}); err == nil {
			t.Error("connected to a network that refuses")
		}
		b.Network().Refuse(false)
		dial(t, b, client.Options{})
	})
}

// A black hole is noticed by the client after the peer timeout only (W-66).
func TestBlackHole(t *testing.T) {
	over(t, func(t *testing.T, transport ...fitztest.Option) {
		b := fitztest.Start(t, transport...)
		c := dial(t, b, client.Options{})
		b.Network().BlackHole(true)
		start := time.Now()
		<-c.Done()
		if d := time.Since(start); d < bounds.SDKPeerTimeoutMs*time.Millisecond || d > 2*bounds.SDKPeerTimeoutMs*time.Millisecond {
			t.Errorf("noticed after %v", d)
		}
		b.Network().BlackHole(false)
	})
}

// A frozen client makes the broker end its registrations when the NOTIFY share is full (W-83), and gets everything once it reads again.
func TestFreeze(t *testing.T) {
	over(t, func(t *testing.T, transport ...fitztest.Option) {
		b := fitztest.Start(t, append(transport, fitztest.WithLimits(func(l *bounds.Limits) { l.SessionNotifyFramesMax = 4 }))...)
		ended := make(chan wire.SubEnded, 1)
		c := dial(t, b, client.Options{OnSubEnded: func(m wire.SubEnded) { ended <- m }})
		if _, err := c.LeaseSubscribe(t.Context(), &wire.LeaseSubscribeRequest{Selector: "lease://a/b/*"}); err != nil {
			t.Fatal(err)
		}
		holder := b.Holder()
		b.Network().Freeze(true)
		long := make([]byte, 200)
		for i := range long {
			long[i] = 'x'
		}
		for i := range 600 { // more than the connection and the share hold
			acquire(t, holder, "lease://a/b/"+string(long)+string(rune('a'+i%26))+string(rune('a'+i/26)), 60)
		}
		b.Network().Freeze(false)
		if m := <-ended; m.Code != wire.CodeSubSlowConsumer || m.Dropped == 0 {
			t.Errorf("ended with %+v", m)
		}
	})
}

// Held frames hold up what is behind them; held alone they are overtaken.
func TestHold(t *testing.T) {
	over(t, func(t *testing.T, transport ...fitztest.Option) {
		b := fitztest.Start(t, transport...)
		notified := make(chan string, 10)
		c := dial(t, b, client.Options{OnLeaseNotify: func(m wire.LeaseNotify) { notified <- m.Route }})
		if _, err := c.LeaseSubscribe(t.Context(), &wire.LeaseSubscribeRequest{Selector: "lease://a/b/*"}); err != nil {
			t.Fatal(err)
		}
		holder := b.Holder()
		for _, alone := range []bool{false, true} {
			hold := b.Network().Hold
			if alone {
				hold = b.Network().HoldAlone
			}
			rule := hold(fitztest.Filter{Direction: fitztest.ToClient, Type: wire.TypeLeaseQuery})
			answered := make(chan error, 1)
			go func() {
				_, err := c.LeaseQuery(context.Background(), &wire.LeaseQueryRequest{Route: "lease://a/b/q"})
				answered <- err
			}()
			if err := rule.Await(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			reply := acquire(t, holder, "lease://a/b/c", 60)
			if _, err := holder.LeaseRelease(t.Context(), &wire.LeaseReleaseRequest{Route: "lease://a/b/c", OwnerID: "w", FencingToken: reply.FencingToken}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := len(notified); alone != (got == 2) {
				t.Errorf("alone %v: %d notifications overtook", alone, got)
			}
			rule.Remove()
			if err := <-answered; err != nil {
				t.Error(err)
			}
			for range 2 {
				<-notified
			}
		}
	})
}

func TestDropRepeatEdit(t *testing.T) {
	over(t, func(t *testing.T, transport ...fitztest.Option) {
		b := fitztest.Start(t, transport...)
		var routes []string
		c := dial(t, b, client.Options{OnLeaseNotify: func(m wire.LeaseNotify) { routes = append(routes, m.Route) }})
		if _, err := c.LeaseSubscribe(t.Context(), &wire.LeaseSubscribeRequest{Selector: "lease://a/b/*"}); err != nil {
			t.Fatal(err)
		}
		notify := fitztest.Filter{Direction: fitztest.ToClient, Type: wire.TypeLeaseNotify, Count: 1}
		n := b.Network()
		drop := n.Drop(notify)
		second := n.Repeat(notify)
		n.Edit(notify, func(value []byte) []byte {
			var m wire.LeaseNotify
			if err := m.DecodeValue(value); err != nil {
				t.Error(err)
			}
			m.Route = "lease://a/b/edited"
			value, _ = m.AppendValue(nil)
			return value
		})
		holder := b.Holder()
		for _, r := range []string{"1", "2", "3", "4"} {
			acquire(t, holder, "lease://a/b/"+r, 60)
		}
		synctest.Wait()
		want := []string{"lease://a/b/2", "lease://a/b/2", "lease://a/b/edited", "lease://a/b/4"}
		if len(routes) != len(want) {
			t.Fatalf("notified of %q", routes)
		}
		for i := range want {
			if routes[i] != want[i] {
				t.Errorf("notified of %q", routes)
			}
		}
		if drop.Hits() != 1 || second.Hits() != 1 || n.Passed(fitztest.ToClient, wire.TypeLeaseNotify) != 4 {
			t.Errorf("counted %d, %d, %d", drop.Hits(), second.Hits(), n.Passed(fitztest.ToClient, wire.TypeLeaseNotify))
		}
	})
}

// The connections keep the contract of net.Conn as far as the broker and clients use it.
func TestConnDeadlinesAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		c, err := b.Dial(t.Context(), "tcp", "any")
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
		start := time.Now()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("read: %v after %v", err, time.Since(start))
		}
		_ = c.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		if _, err := c.Write([]byte{1}); err == nil {
			t.Error("wrote after close")
		}
		if _, err := c.Write([]byte{0xff, 0xff, 0xff, 0xff}); err == nil {
			t.Error("wrote after close")
		}
	})
}

// A length that no end accepts goes through to the broker, which refuses it; the network keeps nothing of it.
func TestHostileLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		c, err := b.Dial(t.Context(), "tcp", "any")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := c.Write([]byte{0xff, 0xff, 0xff, 0xff, 1}); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Errorf("read %d bytes", n)
		}
	})
}

// An observer over WebSocket, through a lost connection and a black hole.
func TestWebSocket(t *testing.T) {
	inWorld(t, setup{broker: []fitztest.Option{fitztest.WithWebSocket()}}, true, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready()
		w.take("b")
		w.rest(coalesce)
		w.net.Refuse(true)
		w.net.Cut()
		w.rest(time.Second)
		w.free("a")
		w.net.Refuse(false)
		w.rest(10 * time.Second)
		o.told("reset(1) added(b) stale(disconnected) removed(a) fresh")
		o.agrees()
		w.net.BlackHole(true)
		w.rest(2 * bounds.SDKPeerTimeoutMs * time.Millisecond)
		if s := o.Status(); s.State != fitz.ObserverStale {
			t.Errorf("a frozen connection looks alive: %+v", s)
		}
		w.net.BlackHole(false)
		w.rest(time.Minute)
		o.agrees()
	})
}
