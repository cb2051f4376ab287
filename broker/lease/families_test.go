package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/generated/go/bounds"
)

// A-24, families_max: in as many families as a broker may have, each with the same routes, owners, waiters, registrations and listings,
// nothing of one shows in another, and the books of every one of them are in order, also while half of them end.
func TestMostFamilies(t *testing.T) {
	h := newHarness(t)
	most := uint32(bounds.FamiliesMax)
	type side struct{ holder, waiter *fakeSession }
	sides := map[uint32]side{}
	for n := uint32(1); n <= most; n++ {
		s := side{h.sessionIn(fmt.Sprint("h", n), n), h.sessionIn(fmt.Sprint("w", n), n)}
		sides[n] = s
		s.waiter.subscribe("**")
		s.holder.acquire("r/a/1", "o", 3600, 0)
		s.holder.acquire("r/a/2", "o", 3600, 0)
		s.waiter.acquire("r/a/1", "o", 3600, 30)
	}
	h.drain()
	// Every family sees its two leases and no others.
	for n, s := range sides {
		if got := s.waiter.collect("**", 1); !slices.Equal(got, []string{"r/a/1", "r/a/2"}) {
			t.Fatalf("family %d: %v", n, got)
		}
		h.family(n).verify(t)
	}
	if got := testutil.ToFloat64(h.metrics.Held); got != float64(2*most) {
		t.Errorf("gauge of leases %v", got)
	}
	// The holders of every other family leave: their waiters are granted and told, nobody else hears of it.
	for n := uint32(1); n <= most; n += 2 {
		sides[n].holder.close()
		h.serve()
		me := sides[n].waiter.name
		for _, frame := range h.drain() {
			if len(frame) < len(me) || frame[:len(me)] != me {
				t.Fatalf("the end of a session of family %d: %s", n, frame)
			}
		}
	}
	for n, s := range sides {
		want := []string{"r/a/1", "r/a/2"}
		if n%2 == 1 {
			want = want[:1]
		}
		if got := s.waiter.collect("**", 500); !slices.Equal(got, want) {
			t.Fatalf("family %d afterwards: %v", n, got)
		}
		h.family(n).verify(t)
	}
}

// Bounds of a family are its own: one that is full takes nothing from another.
func TestBoundsAreThoseOfOneFamily(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) {
		l.LeasesPerFamilyMax, l.LeaseWaitersPerFamilyMax, l.SubsPerFamilyMax = 2, 1, 1
	})
	for n := uint32(1); n <= 3; n++ {
		a, b := h.sessionIn("a", n), h.sessionIn("b", n)
		a.acquire("r/a/1", "o", 3600, 0)
		a.acquire("r/a/2", "o", 3600, 0)
		a.subscribe("r/**")
		b.acquire("r/a/1", "w", 3600, 30)
		full := h.drain()
		for _, frame := range full {
			if len(frame) > 12 && frame[3:11] == "400 5007" {
				t.Fatalf("family %d: %s", n, frame)
			}
		}
		a.acquire("r/a/3", "o", 3600, 0)
		b.acquire("r/a/2", "w", 3600, 30)
		b.subscribe("r/**")
		refused := h.drain()
		if len(refused) != 3 {
			t.Fatalf("family %d: %v", n, refused)
		}
		for i, start := range []string{"a: 400 5007", "b: 400 5007", "b: 407 5007"} {
			if len(refused[i]) < len(start) || refused[i][:len(start)] != start {
				t.Errorf("family %d: %s, want %s", n, refused[i], start)
			}
		}
		h.family(n).verify(t)
	}
}

// A mailbox belongs to its family: a command that waits, or a family that is paused, holds up no other.
func TestExpiryOfFamiliesIsIndependent(t *testing.T) {
	h := newHarness(t)
	a, b := h.sessionIn("a", 1), h.sessionIn("b", 2)
	a.acquire("r/a/1", "o", 5, 0)
	b.acquire("r/a/1", "o", 10, 0)
	h.drain()
	h.pass(5*time.Second + tick)
	a.query("r/a/1")
	b.query("r/a/1")
	h.expect("a: 403 free, 0 waiting", `b: 403 held by "o" for 4, 0 waiting`)
}
