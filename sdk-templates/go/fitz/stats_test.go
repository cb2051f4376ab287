package fitz_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

const (
	statsRoute = "lease://acme/renderers/a"
	statsView  = "lease://acme/renderers/*"
)

// Everything that a client is at work on is counted while it is, and nothing is left after Close.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		c := b.Connect()
		synctest.Wait()
		if s := c.Stats(); s.Sockets != 1 || s.Sessions != 1 || s.Timers == 0 || s.Pending+s.Queued+s.Leases+s.Acquiring+s.Buffered != 0 {
			t.Errorf("at the beginning: %+v", s)
		}
		sub, err := c.Lease().Subscribe(t.Context(), statsView, nil)
		if err != nil {
			t.Fatal(err)
		}
		observer, err := c.Lease().Observe(statsView, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := observer.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease, err := c.Lease().Acquire(t.Context(), statsRoute, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := c.Stats(); s.Leases != 1 || s.Subscriptions != 1 || s.Observers != 1 || s.Registrations != 1 || s.Buffered != 1 || s.Acquiring != 0 {
			t.Errorf("with a lease: %+v", s)
		}

		waiting := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := c.Lease().Acquire(ctx, statsRoute, time.Minute, nil) // in the line of the client (L-99)
			waiting <- err
		}()
		synctest.Wait()
		if s := c.Stats(); s.Acquiring != 1 || s.Leases != 1 {
			t.Errorf("with an acquire in line: %+v", s)
		}
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}

		b.Network().Freeze(true)
		ctx, cancel = context.WithCancel(t.Context())
		go func() {
			_, err := c.Lease().Query(ctx, statsRoute)
			waiting <- err
		}()
		synctest.Wait()
		if s := c.Stats(); s.Pending != 1 || s.GivenUp != 0 {
			t.Errorf("with a request: %+v", s)
		}
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if s := c.Stats(); s.Pending != 1 || s.GivenUp != 1 {
			t.Errorf("with a request that was given up: %+v", s)
		}
		b.Network().Freeze(false)
		synctest.Wait()
		if s := c.Stats(); s.Pending != 0 || s.GivenUp != 0 || s.LateReplies != 1 {
			t.Errorf("after the late reply: %+v", s)
		}

		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // took and gave back
			if _, err := sub.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s := c.Stats(); s.Leases != 0 || s.Buffered != 0 {
			t.Errorf("after the release: %+v", s)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := c.Stats(); s != (fitz.ClientStats{Sessions: 1, LateReplies: 1}) {
			t.Errorf("after Close: %+v", s)
		}
	})
}

// What ends by itself is not counted any more, and calls without a session count as queued.
func TestStatsOfWhatEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		c := b.Connect()
		overflows, err := c.Lease().Subscribe(t.Context(), statsView, &fitz.SubscribeOptions{Buffer: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Lease().Subscribe(t.Context(), statsRoute, nil); err != nil {
			t.Fatal(err)
		}
		lease, err := c.Lease().Acquire(t.Context(), statsRoute, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := c.Stats(); s.Subscriptions != 1 || s.Registrations != 1 {
			t.Errorf("after an overflow: %+v", s)
		}
		if _, err := overflows.Next(t.Context()); err != nil {
			t.Error(err)
		}
		b.Network().Refuse(true)
		b.Network().Cut()
		synctest.Wait()
		results := make(chan error, 1)
		go func() {
			_, err := c.Lease().Query(t.Context(), statsRoute)
			results <- err
		}()
		synctest.Wait()
		if s := c.Stats(); s.Sockets != 0 || s.Subscriptions != 0 || s.Registrations != 0 || s.Queued != 1 || s.Buffered != 0 {
			t.Errorf("without a session: %+v", s)
		}
		b.Network().Refuse(false)
		if err := <-results; err != nil {
			t.Error(err)
		}
		if s := c.Stats(); s.Sockets != 1 || s.Sessions != 2 || s.Queued != 0 {
			t.Errorf("in the second session: %+v", s)
		}
	})
}
