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

// Drain begins nothing new, loses no reply of what is running, gives the leases back and closes.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		c := b.Connect()
		lease, err := c.Lease().Acquire(t.Context(), statsRoute, time.Minute, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Network().Freeze(true)
		results := make(chan error, 2)
		go func() {
			_, err := c.Lease().Query(t.Context(), statsRoute)
			results <- err
		}()
		synctest.Wait()
		drained := make(chan error, 1)
		go func() { drained <- c.Drain(t.Context()) }()
		synctest.Wait()
		if s := c.Status(); s.State != fitz.ConnDraining {
			t.Errorf("state %s", s.State)
		}
		if _, err := c.Lease().Query(t.Context(), statsRoute); !errors.Is(err, fitz.ErrConnClosed) {
			t.Errorf("a new call: %v", err)
		}
		if err := lease.Err(); err != nil {
			t.Errorf("the lease ended before the calls did: %v", err)
		}
		b.Network().Freeze(false)
		if err := <-results; err != nil {
			t.Errorf("a call that was running: %v", err)
		}
		if err := <-drained; err != nil {
			t.Error(err)
		}
		if held := b.Held(statsRoute); len(held) != 0 || c.Status().State != fitz.ConnClosed {
			t.Errorf("%d leases are left, state %s", len(held), c.Status().State)
		}
	})
}

// A Drain whose context ends gives up what is running, and the client is closed all the same.
func TestDrainIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		c := b.Connect()
		b.Network().BlackHole(true)
		results := make(chan error, 1)
		go func() {
			_, err := c.Lease().Query(t.Context(), statsRoute)
			results <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-results; !errors.Is(err, fitz.ErrConnClosed) {
			t.Error(err)
		}
		if err := c.Drain(t.Context()); err != nil || c.Status().State != fitz.ConnClosed {
			t.Errorf("again: %v, %s", err, c.Status().State)
		}
	})
}
