package tests

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

// L-20, L-44, L-94, L-107: the life of a lease, over both transports, with and without labels.
func TestLeaseLife(t *testing.T) {
	each(t, func(t *testing.T, at *fitztest.Broker) {
		a, b := connect(t, at), connect(t, at)
		lease := acquire(t, a, route, 30*time.Second)
		if lease.Route() != route || lease.FencingToken() == 0 || lease.Err() != nil {
			t.Fatalf("%+v", lease)
		}
		if left := time.Until(lease.Deadline()); left <= 26*time.Second || left > 27*time.Second {
			t.Errorf("deadline in %v, want a margin of a tenth (L-95)", left)
		}
		info, err := b.Lease().Query(t.Context(), route)
		if err != nil || !info.Held || info.OwnerID != lease.OwnerID() {
			t.Errorf("%+v, %v", info, err)
		}
		if _, ok, err := b.Lease().TryAcquire(t.Context(), route, time.Second, nil); ok || err != nil {
			t.Errorf("acquired what another client holds: %v, %v", ok, err)
		}
		if err := lease.Extend(t.Context(), 60*time.Second); err != nil {
			t.Error(err)
		}
		if left := time.Until(lease.Deadline()); left <= 54*time.Second || left > 55*time.Second {
			t.Errorf("deadline in %v after Extend", left)
		}
		ctx, cancel := lease.Context(t.Context())
		defer cancel()
		for range 2 {
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		<-lease.Done()
		if !errors.Is(lease.Err(), fitz.ErrReleased) || !errors.Is(context.Cause(ctx), fitz.ErrReleased) {
			t.Errorf("%v, %v", lease.Err(), context.Cause(ctx))
		}
		if err := lease.Extend(t.Context(), time.Second); !errors.Is(err, fitz.ErrReleased) {
			t.Errorf("extended a released lease: %v", err)
		}
		if info, err := b.Lease().Query(t.Context(), route); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// L-99: one client holds a route once; others wait in its line.
func TestOneHolderPerClient(t *testing.T) {
	each(t, func(t *testing.T, at *fitztest.Broker) {
		c := connect(t, at)
		lease := acquire(t, c, route, 30*time.Second)
		if _, ok, err := c.Lease().TryAcquire(t.Context(), route, time.Second, nil); ok || err != nil {
			t.Errorf("held twice: %v, %v", ok, err)
		}
		second := make(chan *fitz.Lease)
		go func() {
			l, err := c.Lease().Acquire(context.Background(), route, 30*time.Second, nil)
			if err != nil {
				t.Error(err)
			}
			second <- l
		}()
		select {
		case <-second:
			t.Fatal("held twice")
		default:
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := <-second; l.FencingToken() <= lease.FencingToken() {
			t.Errorf("token %d after %d", l.FencingToken(), lease.FencingToken())
		}
	})
}

// L-95, L-101: a grant out of the line of the broker is confirmed, and Run releases at its end (L-105).
func TestWaitInLine(t *testing.T) {
	each(t, func(t *testing.T, at *fitztest.Broker) {
		a, b := connect(t, at), connect(t, at)
		lease := acquire(t, a, route, 30*time.Second)
		var order []string
		ran := make(chan error)
		go func() {
			ran <- b.Lease().Run(context.Background(), route, 30*time.Second, nil, func(ctx context.Context, l *fitz.Lease) error {
				order = append(order, "run")
				return ctx.Err()
			})
		}()
		for info := (fitz.LeaseInfo{}); info.PendingWaiters == 0; {
			var err error
			if info, err = a.Lease().Query(t.Context(), route); err != nil {
				t.Fatal(err)
			}
		}
		order = append(order, "release")
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-ran; err != nil || fmt.Sprint(order) != "[release run]" {
			t.Fatalf("%v, %v", err, order)
		}
		if info, err := a.Lease().Query(t.Context(), route); err != nil || info.Held {
			t.Errorf("Run left %+v, %v", info, err)
		}
	})
}

// L-73, C-63: an acquire that is given up while it waits leaves nothing behind.
func TestCancelledWhileWaiting(t *testing.T) {
	each(t, func(t *testing.T, at *fitztest.Broker) {
		a, b := connect(t, at), connect(t, at)
		lease := acquire(t, a, route, 30*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			_, err := b.Lease().Acquire(ctx, route, 30*time.Second, nil)
			result <- err
		}()
		for info := (fitz.LeaseInfo{}); info.PendingWaiters == 0; {
			var err error
			if info, err = a.Lease().Query(t.Context(), route); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		if err := <-result; err != context.Canceled {
			t.Fatalf("%v, want the error of the context itself", err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for held := true; held; {
			info, err := a.Lease().Query(t.Context(), route)
			if err != nil {
				t.Fatal(err)
			}
			held = info.Held
		}
	})
}

// L-75, W-45: a raw subscription sees the changes of others and ends with the session.
func TestSubscribe(t *testing.T) {
	each(t, func(t *testing.T, at *fitztest.Broker) {
		a, b := connect(t, at, fitz.WithDialer(at.DialDirect)), connect(t, at)
		s, err := b.Lease().Subscribe(t.Context(), "lease://r/a/*", nil)
		if err != nil {
			t.Fatal(err)
		}
		lease := acquire(t, a, route, 30*time.Second)
		if change, err := s.Next(t.Context()); err != nil || change.Route != route {
			t.Fatalf("%+v, %v", change, err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if change, err := s.Next(t.Context()); err != nil || change.Route != route {
			t.Fatalf("%+v, %v", change, err)
		}
		at.Network().Cut()
		_, err = s.Next(t.Context())
		var lost *fitz.SubscriptionLost
		if !errors.As(err, &lost) || lost.Reason != fitz.SubscriptionLostDisconnected || !errors.Is(err, fitz.ErrSubLost) {
			t.Fatalf("%v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := b.Lease().Query(t.Context(), route); err != nil { // the client is connected again
			t.Error(err)
		}
	})
}

// L-75: a reader that is too slow gets what was kept and then the end with a count.
func TestSubscribeOverflow(t *testing.T) {
	each(t, func(t *testing.T, at *fitztest.Broker) {
		a, b := connect(t, at), connect(t, at)
		s, err := b.Lease().Subscribe(t.Context(), "lease://r/a/*", &fitz.SubscribeOptions{Buffer: 4})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			acquire(t, a, fmt.Sprintf("lease://r/a/%d", i), 30*time.Second)
		}
		if _, err := b.Lease().Query(t.Context(), route); err != nil { // the reader has passed all of them (W-45)
			t.Fatal(err)
		}
		for i := range 4 {
			if change, err := s.Next(t.Context()); err != nil || change.Route != fmt.Sprintf("lease://r/a/%d", i) {
				t.Fatalf("%+v, %v", change, err)
			}
		}
		_, err = s.Next(t.Context())
		var lost *fitz.SubscriptionLost
		if !errors.As(err, &lost) || lost.Reason != fitz.SubscriptionLostOverflow || lost.Dropped == 0 {
			t.Fatalf("%v", err)
		}
	})
}

// W-35, L-98: the end of the session loses its leases at once, and the client opens another session.
func TestReconnect(t *testing.T) {
	each(t, func(t *testing.T, at *fitztest.Broker) {
		c := connect(t, at)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		states := make(chan fitz.ConnState, 16)
		var watching sync.WaitGroup
		watching.Go(func() {
			for s := range c.StatusChanges(ctx) {
				states <- s.State
			}
		})
		lease := acquire(t, c, route, 30*time.Second)
		at.Network().Cut()
		<-lease.Done()
		var lost *fitz.LeaseLost
		if !errors.As(lease.Err(), &lost) || lost.Reason != fitz.LeaseLostDisconnected || !errors.Is(lost, fitz.ErrLeaseLost) {
			t.Errorf("%v", lease.Err())
		}
		again := acquire(t, c, route, 30*time.Second)
		if again.FencingToken() <= lease.FencingToken() {
			t.Errorf("token %d after %d", again.FencingToken(), lease.FencingToken())
		}
		for _, want := range []fitz.ConnState{fitz.ConnReady, fitz.ConnReconnecting, fitz.ConnReady} {
			if got := <-states; got != want {
				t.Errorf("state %v, want %v", got, want)
			}
		}
		cancel()
		watching.Wait()
	})
}

// Close loses leases with a reason of its own, releases them, and is idempotent; afterwards everything fails with conn.closed.
func TestClose(t *testing.T) {
	each(t, func(t *testing.T, at *fitztest.Broker) {
		a, b := connect(t, at), connect(t, at)
		lease := acquire(t, a, route, 30*time.Second)
		for range 2 {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var lost *fitz.LeaseLost
		if !errors.As(lease.Err(), &lost) || lost.Reason != fitz.LeaseLostClientClosed {
			t.Errorf("%v", lease.Err())
		}
		if info, err := b.Lease().Query(t.Context(), route); err != nil || info.Held {
			t.Errorf("Close left %+v, %v", info, err)
		}
		_, err := a.Lease().Query(t.Context(), route)
		wantCode(t, err, fitz.ErrConnClosed)
		_, err = a.Lease().Acquire(t.Context(), route, time.Second, nil)
		wantCode(t, err, fitz.ErrConnClosed)
		if s := a.Status(); s.State != fitz.ConnClosed || fitz.CodeOf(s.Reason) != fitz.CodeConnClosed {
			t.Errorf("%+v", s)
		}
	})
}

// L-102, C-40, OB-04: what can be found before sending is.
func TestInvalid(t *testing.T) {
	b := fitztest.Start(t)
	c := connect(t, b)
	ctx := t.Context()
	checks := map[string]error{}
	note := func(name string, err error) { checks[name] = err }
	l := c.Lease()
	for name, ttl := range map[string]time.Duration{"fraction": 1500 * time.Millisecond, "zero": 0, "negative": -time.Second, "long": 366 * 24 * time.Hour} {
		_, err := l.Acquire(ctx, route, ttl, nil)
		note("ttl "+name, err)
	}
	for name, o := range map[string]fitz.AcquireOptions{
		"wait fraction": {Wait: time.Millisecond}, "wait negative": {Wait: -time.Second}, "owner": {OwnerID: "session:1:a"},
		"owner long": {OwnerID: strings.Repeat("a", 513)}, "owner bytes": {OwnerID: "\xff"},
	} {
		_, err := l.Acquire(ctx, route, time.Second, &o)
		note(name, err)
	}
	for _, bad := range []string{"", "lease://r/a", "lease://r/a/*", "kv://r/a/k"} {
		_, err := l.Acquire(ctx, bad, time.Second, nil)
		note("acquire "+bad, err)
		_, err = l.Query(ctx, bad)
		note("query "+bad, err)
	}
	_, err := l.Subscribe(ctx, "lease://r", nil)
	note("selector", err)
	_, err = l.Subscribe(ctx, "lease://r/**", &fitz.SubscribeOptions{Buffer: -1})
	note("buffer", err)
	for name, option := range map[string]fitz.Option{"empty owner": fitz.WithOwnerID(""), "limit": fitz.WithLimits(fitz.Limits{Queue: -1})} {
		_, err := fitz.Connect(ctx, b.URL(), option)
		note(name, err)
	}
	_, err = fitz.Connect(ctx, "http://localhost")
	note("scheme", err)
	for name, err := range checks {
		var e *fitz.Error
		if !errors.As(err, &e) || e.Code != fitz.CodeConfigInvalid || e.Outcome != fitz.OutcomeRejected || e.FromBroker() {
			t.Errorf("%s: %v", name, err)
		}
	}
}
