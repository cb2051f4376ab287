package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/generated/go/bounds"
)

// L-70, W-91, W-93: 128 wildcard, then 1,024 in total, duplicates first; exact ones do not count for the first.
// Clauses: R-17.
// AC-S05, AC-S06.
func TestRegistrationCaps(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	for i := range bounds.WildcardSubsPerSessionMax {
		a.subscribe(fmt.Sprintf("r/a%d/*", i))
	}
	h.drain()
	a.subscribe("r/b/*")
	h.expect("a: 407 5008 wildcard subscription limit exceeded (128 per session)")
	a.subscribe("r/a5/*") // a duplicate is found before every cap
	h.expect("a: 407 id 6")
	for i := range bounds.SubsPerSessionMax - bounds.WildcardSubsPerSessionMax {
		a.subscribe(fmt.Sprintf("r/a/k%d", i))
	}
	if got := h.drain(); strings.Contains(strings.Join(got, "\n"), "5008") {
		t.Fatalf("refused below the cap: %v", got[len(got)-1])
	}
	a.subscribe("r/a/more")
	h.expect("a: 407 5008 total subscription limit exceeded (1024 per session)")
	a.subscribe("r/b/*") // the wildcard cap comes first
	h.expect("a: 407 5008 wildcard subscription limit exceeded (128 per session)")
	a.unsubscribe("r/a0/*")
	a.subscribe("r/b/*")
	h.expect("a: 408 ok", "a: 407 id 1025") // W-92: ids are never used again
	h.family(1).verify(t)
}

// L-70: the bytes of a session are refused as 5008, those of a family and its number of registrations as 5007.
// Clauses: W-92, W-93.
func TestRegistrationBounds(t *testing.T) {
	charge := registrationCharge(mustSelector(t, "lease://r/a/1"))
	t.Run("session bytes", func(t *testing.T) {
		for _, extra := range []int64{0, -1} {
			h := newHarness(t, func(l *bounds.Limits) { l.LeaseSessionBytesMax = 2*charge + extra })
			a := h.session("a")
			a.subscribe("r/a/1")
			a.subscribe("r/a/2")
			want := "a: 407 id 2"
			if extra < 0 {
				want = "a: 407 5008 subscription memory limit exceeded"
			}
			h.expect("a: 407 id 1", want)
			h.family(1).verify(t)
		}
	})
	t.Run("family bytes", func(t *testing.T) {
		for _, extra := range []int64{0, -1} {
			h := newHarness(t, func(l *bounds.Limits) { l.LeaseFamilyBytesMax = 2*charge + extra })
			h.session("a").subscribe("r/a/1")
			h.session("b").subscribe("r/a/2")
			want := "b: 407 id 2"
			if extra < 0 {
				want = "b: 407 5007 registration limit of the family"
			}
			h.expect("a: 407 id 1", want)
			h.family(1).verify(t)
		}
	})
	t.Run("family count", func(t *testing.T) {
		h := newHarness(t, func(l *bounds.Limits) { l.SubsPerFamilyMax = 2 })
		h.session("a").subscribe("r/a/1")
		h.session("b").subscribe("r/a/1")
		h.session("c").subscribe("r/a/1")
		h.sessionIn("d", 2).subscribe("r/a/1") // another family
		h.expect("a: 407 id 1", "b: 407 id 2", "c: 407 5007 registration limit of the family", "d: 407 id 3")
		h.family(1).verify(t)
	})
}

// L-71: every cause of a change is told, once per matching registration; L-74: the payload is always empty, which the codec checks.
// Clauses: W-94.
// AC-S01, AC-S02.
func TestEveryCauseNotifies(t *testing.T) {
	h := newHarness(t)
	a, b, s := h.session("a"), h.session("b"), h.session("s")
	s.subscribe("r/a/*")
	s.subscribe("**")
	h.drain()
	both := []string{"s: 409 1 r/a/k", "s: 409 2 r/a/k"}
	told := func(cause string, want int, act func()) {
		act()
		var got []string
		for _, f := range h.drain() {
			if strings.HasPrefix(f, "s: ") {
				got = append(got, f)
			}
		}
		if !slices.Equal(got, slices.Repeat(both, want)) {
			t.Errorf("%s: told %v", cause, got)
		}
	}
	told("immediate grant", 1, func() { a.acquire(key, "w1", 30, 0) })
	told("release", 1, func() { a.release(key, "w1", 1) })
	a.acquire(key, "w1", 30, 0)
	b.acquire(key, "w2", 2, 5)
	h.drain()
	told("release and waiter grant", 2, func() { a.release(key, "w1", 2) })
	told("expiry", 1, func() { h.pass(3 * time.Second) })
	b.acquire(key, "w2", 30, 0)
	h.drain()
	told("session close", 1, func() { b.close() })
	a.room = 0
	told("grant that could not be delivered", 2, func() { a.acquire(key, "w1", 30, 0) })
}

// W-91, W-95: identity is the original text; removing one registration leaves the others; unknown ones count as removed.
// AC-S05, AC-S07.
func TestUnsubscribe(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.subscribe("r/a/*")
	a.subscribe("r/a/**") // the same match set, another registration
	a.subscribe("r/a/*")
	h.expect("a: 407 id 1", "a: 407 id 2", "a: 407 id 1")
	a.unsubscribe("r/a/*")
	a.acquire(key, "w", 30, 0)
	h.expect("a: 408 ok", "a: 400 kind 0 token 1", "a: 409 2 r/a/k")
	a.unsubscribe("r/a/*")
	a.unsubscribe("*/*/*")
	a.unsubscribe("r/a/**")
	a.release(key, "w", 1)
	h.expect("a: 408 ok", "a: 408 ok", "a: 408 ok", "a: 402 ok")
	b := h.session("b")
	b.unsubscribe("**") // a session without state
	h.expect("b: 408 ok")
	if n := len(h.family(1).sessions); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

// W-90, R-36: a registration belongs to its session and family.
// Clauses: W-35.
// AC-P05, AC-S07.
func TestRegistrationsEndWithTheSession(t *testing.T) {
	h := newHarness(t)
	a, b, other := h.session("a"), h.session("b"), h.sessionIn("o", 2)
	a.subscribe("**")
	b.subscribe("**")
	other.subscribe("**")
	a.close()
	h.drain()
	b.acquire(key, "w", 30, 0)
	h.expect("b: 400 kind 0 token 1", "b: 409 2 r/a/k")
	if got := testutil.ToFloat64(h.metrics.Subscriptions.WithLabelValues("wildcard")); got != 2 {
		t.Errorf("gauge %v", got)
	}
}

// W-94: one NOTIFY per matching registration, also through several masks; R-35: in order of the ids.
// AC-S01, AC-S05.
func TestOverlappingRegistrations(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.subscribe("**/x/**")
	b.subscribe("x/*/*")
	a.subscribe("x/x/x")
	b.subscribe("y/**")
	h.drain()
	a.acquire("x/x/x", "w", 30, 0)
	h.expect("a: 400 kind 0 token 1", "a: 409 1 x/x/x", "b: 409 2 x/x/x", "a: 409 3 x/x/x")
}

// W-83: a NOTIFY that does not fit ends the registration of a negotiated session, and the session otherwise.
// Clauses: W-92, W-97.
func TestSlowConsumer(t *testing.T) {
	t.Run("negotiated", func(t *testing.T) {
		h := newHarness(t)
		a, s := h.session("a"), h.session("s")
		s.subscribe("r/**")
		s.subscribe("r/a/*")
		a.subscribe("**")
		h.drain()
		s.notifies = 1
		a.acquire(key, "w", 30, 0)
		h.expect("a: 400 kind 0 token 1", "s: 409 1 r/a/k", "s: 244 4 2 9101 dropped 1 slow consumer", "a: 409 3 r/a/k")
		s.notifies = -1
		a.release(key, "w", 1)
		h.expect("a: 402 ok", "s: 409 1 r/a/k", "a: 409 3 r/a/k")
		s.unsubscribe("r/a/*") // W-68: succeeds
		s.subscribe("r/a/*")   // the id is never used again
		h.expect("s: 408 ok", "s: 407 id 4")
		h.family(1).verify(t)
		if got := testutil.ToFloat64(h.metrics.SubEndedTotal); got != 1 {
			t.Errorf("%v ended", got)
		}
	})
	t.Run("not negotiated", func(t *testing.T) {
		h := newHarness(t)
		a, s := h.session("a"), h.session("s")
		s.negotiated = false
		s.subscribe("r/**")
		s.subscribe("r/a/*")
		h.drain()
		s.notifies = 0
		a.acquire(key, "w", 30, 0)
		h.expect("a: 400 kind 0 token 1")
		if len(s.closed) == 0 || s.closed[0] != "slow consumer" {
			t.Errorf("closed %v", s.closed)
		}
		s.close()
		h.family(1).verify(t)
		if got := testutil.ToFloat64(h.metrics.NotifyDroppedTotal); got != 2 {
			t.Errorf("%v dropped", got)
		}
	})
}

// L-92: a fan-out above fanout_slice_max is served in slices with other commands in between; a registration removed meanwhile is
// skipped, one made later is not told; the order of the changes holds for every registration (W-45).
// Clauses: W-95.
// AC-S08.
func TestSlicedFanout(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.FanoutSliceMax = 4 })
	a := h.session("a")
	var targets []*fakeSession
	for i := range 10 {
		s := h.session(fmt.Sprintf("s%d", i))
		s.subscribe("**")
		targets = append(targets, s)
	}
	h.drain()
	a.acquire(key, "w", 30, 0)
	h.expect("a: 400 kind 0 token 1", "s0: 409 1 r/a/k", "s1: 409 2 r/a/k", "s2: 409 3 r/a/k", "s3: 409 4 r/a/k")
	targets[5].unsubscribe("**")
	late := h.session("late")
	late.subscribe("**")
	a.acquire("r/a/2", "w", 30, 0) // lines up behind the first
	h.expect("s5: 408 ok", "late: 407 id 11", "a: 400 kind 0 token 2")
	h.domain.serveTurn()
	h.expect("s4: 409 5 r/a/k", "s6: 409 7 r/a/k", "s7: 409 8 r/a/k", "s8: 409 9 r/a/k")
	h.domain.serveTurn() // one slice over two changes
	h.expect("s9: 409 10 r/a/k", "s0: 409 1 r/a/2", "s1: 409 2 r/a/2", "s2: 409 3 r/a/2")
	targets[9].close()
	h.serve()
	h.expect("s3: 409 4 r/a/2", "s4: 409 5 r/a/2", "s6: 409 7 r/a/2", "s7: 409 8 r/a/2", "s8: 409 9 r/a/2", "late: 409 11 r/a/2")
	a.release(key, "w", 1) // nothing is pending: at once again
	if got := h.drain(); len(got) != 5 || got[1] != "s0: 409 1 r/a/k" {
		t.Errorf("%v", got)
	}
	h.serve()
	h.drain()
}

// A fan-out of exactly fanout_slice_max is not sliced; of one more it is.
// Clauses: W-96.
// L-90.
func TestFanoutSliceBound(t *testing.T) {
	for _, n := range []int{bounds.FanoutSliceMax, bounds.FanoutSliceMax + 1} {
		h := newHarness(t)
		for i := range n {
			h.session(fmt.Sprint(i)).subscribe("**")
		}
		h.drain()
		h.session("a").acquire(key, "w", 30, 0)
		if got, want := len(h.drain()), 1+min(n, bounds.FanoutSliceMax); got != want {
			t.Errorf("%d targets: %d frames at once, want %d", n, got, want)
		}
		if got := h.family(1).fanout.len(); got != n-bounds.FanoutSliceMax {
			t.Errorf("%d targets: %d unfinished", n, got)
		}
		h.serve()
		if got := len(h.drain()); got != n-bounds.FanoutSliceMax {
			t.Errorf("%d targets: %d frames later", n, got)
		}
	}
}

// R-34, L-92: at most 8 probes for one change, whatever the number of registrations.
// Clauses: W-96.
// AC-S08.
func TestProbesPerChange(t *testing.T) {
	for _, n := range []int{10, 1000} {
		h := newHarness(t)
		for i := range n {
			s := h.session(fmt.Sprint(i))
			for _, shape := range []string{"r/a/x%d", "r/a%d/*", "r/*/x%d", "*/a/x%d", "x%d/*/*", "*/a%d/*", "*/*/x%d"} {
				s.subscribe(fmt.Sprintf(shape, i))
			}
		}
		h.session("all").subscribe("**")
		h.drain()
		f := h.family(1)
		before := f.index.Work()
		h.session("a").acquire(key, "w", 30, 0)
		after := f.index.Work()
		if probes, examined := after.Probes-before.Probes, after.Examined-before.Examined; probes > 8 || examined != 1 {
			t.Errorf("%d registrations: %d probes, %d examined", 7*n, probes, examined)
		}
		if got := testutil.ToFloat64(h.metrics.MatchPatternsExaminedTotal); got != 9 {
			t.Errorf("metric %v", got)
		}
	}
}
