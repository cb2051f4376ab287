package lease

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// W-70: other requests, labelled or not, share the waiter: this one is detached, the waiter stays.
func TestCancelOneOfSeveral(t *testing.T) {
	for _, other := range []uint64{0, 8} {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 30, 5, 7)
		b.acquire(key, "w2", 30, 5, other)
		h.drain()
		if !b.cancel(7) {
			t.Fatal("not cancelled")
		}
		h.expect("b: 400* 9001 cancelled #7", "b: 246 7 outcome 0")
		if b.cancel(7) { // W-77: no frame labelled 7 is sent afterwards
			t.Error("cancelled twice")
		}
		b.query(key)
		h.expect(`b: 403 held by "w1" for 30, 1 waiting`)
		h.family(1).verify(t)
		a.release(key, "w1", 1)
		want := "b: 400* kind 0 token 2"
		if other != 0 {
			want += " #8"
		}
		h.expect("a: 402 ok", want)
	}
}

// W-71: the last one attached: the waiter is removed and can never be granted (W-76), its token is discarded, no NOTIFY.
func TestCancelTheLast(t *testing.T) {
	h := newHarness(t)
	a, b, s := h.session("a"), h.session("b"), h.session("s")
	s.subscribe("**")
	a.acquire(key, "w1", 30, 0)
	b.acquire(key, "w2", 30, 5, 7)
	b.acquire(key, "w3", 30, 5, 8)
	h.drain()
	if !b.cancel(7) {
		t.Fatal("not cancelled")
	}
	h.expect("b: 400* 9001 cancelled #7", "b: 246 7 outcome 0")
	h.family(1).verify(t)
	a.release(key, "w1", 1)
	h.expect("a: 402 ok", "s: 409 1 r/a/k", "b: 400* kind 0 token 3 #8", "s: 409 1 r/a/k")
	if got := testutil.ToFloat64(h.metrics.CancelledTotal); got != 1 {
		t.Errorf("%v cancelled", got)
	}
	// W-71: the label may be used again.
	b.acquire(key, "w2", 30, 5, 7)
	h.expect("b: 400 kind 2 token 4 #7")
}

// W-73 to W-75: the domain reports that a request does not wait; the session layer answers 1 or 2 from what it remembers.
func TestCancelOfWhatDoesNotWait(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	if a.cancel(1) {
		t.Error("cancelled before the family exists")
	}
	a.acquire(key, "w1", 30, 0, 5) // granted at once
	b.acquire(key, "w2", 30, 5, 6)
	if a.cancel(5) || a.cancel(6) || b.cancel(7) || b.cancel(0) {
		t.Error("cancelled something that does not wait in this session")
	}
	a.release(key, "w1", 1)
	if b.cancel(6) {
		t.Error("cancelled a request that was granted")
	}
	h.expect("a: 400 kind 0 token 1 #5", "b: 400 kind 2 token 2 #6", "a: 402 ok", "b: 400* kind 0 token 2 #6")
}

// W-76, W-78: a request is either granted or cancelled: what is due before the CANCEL is decided first, and its reply is enqueued
// when the domain reports that the request waits no more.
func TestCancelComesAfterWhatIsDue(t *testing.T) {
	t.Run("grant", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 1, 0)
		b.acquire(key, "w2", 30, 5, 6)
		h.drain()
		h.clock.Advance(time.Second)
		if b.cancel(6) {
			t.Error("cancelled")
		}
		h.expect("b: 400* kind 0 token 2 #6")
		h.family(1).verify(t)
	})
	t.Run("timeout", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 30, 5, 6)
		h.drain()
		h.clock.Advance(5 * time.Second)
		if b.cancel(6) {
			t.Error("cancelled")
		}
		h.expect("b: 400* 5006 Timeout #6")
		h.family(1).verify(t)
	})
}
