package lease

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/reference"
)

// Every row of the LC table (lease.md section 8.4), with its text out of the reference.
// AC-P05, AC-I08, AC-X01.
func TestCursorMisuseTable(t *testing.T) {
	type scene struct {
		h       *harness
		a, b, o *fakeSession // two of one family, one of another
		first   wire.LeaseListReply
	}
	// provoke returns who asks, with which selector and which cursor.
	provoke := map[string]func(*scene) (*fakeSession, string, wire.LeaseCursor){
		"LC-01": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			// Of another lifetime as well: LC-01 is checked first.
			return s.a, "r1/a1/k1", wire.LeaseCursor{SnapshotID: 1, Offset: 5}
		},
		"LC-02": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			return s.o, "**", wire.LeaseCursor{SnapshotID: s.first.Next.SnapshotID ^ 1<<40, Offset: 5}
		},
		"LC-03": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			return s.a, "**", wire.LeaseCursor{SnapshotID: s.first.Next.SnapshotID + 1, Offset: 5}
		},
		"LC-04": func(s *scene) (*fakeSession, string, wire.LeaseCursor) { return s.o, "other/**", s.first.Next },
		"LC-05": func(s *scene) (*fakeSession, string, wire.LeaseCursor) { return s.b, "other/**", s.first.Next },
		"LC-06": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			s.a.page("**", 500, &s.first)
			return s.a, "other/**", s.first.Next
		},
		"LC-07": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			for range bounds.LeaseSnapshotsPerSessionMax {
				s.a.page("**", 5, nil)
			}
			return s.a, "other/**", s.first.Next
		},
		"LC-08": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			s.h.clock.Advance(bounds.LeaseSnapshotIdleMs*time.Millisecond + 1)
			return s.a, "other/**", s.first.Next
		},
		"LC-09": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			// an equal match set, another text; the offset is wrong as well.
			return s.a, "*/**", wire.LeaseCursor{SnapshotID: s.first.Next.SnapshotID, Offset: 4}
		},
		"LC-10": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			return s.a, "**", wire.LeaseCursor{SnapshotID: s.first.Next.SnapshotID, Offset: 4}
		},
		"LC-11": func(s *scene) (*fakeSession, string, wire.LeaseCursor) {
			return s.a, "**", wire.LeaseCursor{SnapshotID: s.first.Next.SnapshotID, Offset: 6}
		},
	}
	rows := reference.Rows(t, (*reference.Docs).CursorMisuses)
	if len(rows) != len(provoke) {
		t.Fatalf("%d rows in the reference, %d here", len(rows), len(provoke))
	}
	for _, row := range rows {
		t.Run(row.ID, func(t *testing.T) {
			h := newHarness(t)
			s := &scene{h: h, a: h.session("a"), b: h.session("b"), o: h.sessionIn("o", 2)}
			s.a.fill(3)
			s.first, _ = s.a.page("**", 5, nil)
			who, selector, cursor := provoke[row.ID](s)
			h.drain()
			who.listFrom(selector, 5, cursor)
			h.expect(fmt.Sprintf("%s: 410 5011 InvalidListCursor: %s", who.name, row.Reason))
			if got := testutil.ToFloat64(h.metrics.ListCursorMismatchesTotal.WithLabelValues(row.Reason)); got != 1 {
				t.Errorf("metric %v", got)
			}
		})
	}
}

// LC-03: an ending that was forgotten is unknown; lease_cursor_memory_max at the bound and one above it.
func TestCursorMemory(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.LeaseCursorMemoryMax = 3 })
	a := h.session("a")
	a.fill(2)
	var ended []wire.LeaseListReply
	for range 4 {
		first, _ := a.page("**", 5, nil)
		a.page("**", 500, &first)
		ended = append(ended, first)
	}
	for i, want := range []string{"unknown snapshot", "finished", "finished", "finished"} {
		if _, refused := a.page("**", 5, &ended[i]); refused != "5011 InvalidListCursor: "+want {
			t.Errorf("ending %d: %s, want %s", i, refused, want)
		}
	}
	if n := len(h.domain.snapshots.ended); n != 3 {
		t.Errorf("%d endings are remembered", n)
	}
}

// LC-04, LC-05: the reason of an ending is told to its session only.
func TestCursorEndingIsPrivate(t *testing.T) {
	h := newHarness(t)
	a, b, o := h.session("a"), h.session("b"), h.sessionIn("o", 2)
	a.fill(2)
	first, _ := a.page("**", 5, nil)
	a.page("**", 500, &first)
	for s, want := range map[*fakeSession]string{a: "finished", b: "other session", o: "unknown snapshot"} {
		if _, refused := s.page("**", 5, &first); refused != "5011 InvalidListCursor: "+want {
			t.Errorf("%s is told %q, want %q", s.name, refused, want)
		}
	}
}

// LC-05: a snapshot of a session that was closed is remembered as that of another session.
// Clauses: W-35.
func TestCursorOfAClosedSession(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.fill(2)
	first, _ := a.page("**", 5, nil)
	a.close()
	if _, refused := b.page("**", 5, &first); refused != "5011 InvalidListCursor: other session" {
		t.Error(refused)
	}
	if n := len(h.domain.snapshots.kept); n != 0 {
		t.Errorf("L-65: %d snapshots are kept", n)
	}
}

// L-65: idle and age, at the bound and one above it, when the cursor is used and when nobody uses it.
func TestSnapshotIdleAndAge(t *testing.T) {
	idle, age := bounds.LeaseSnapshotIdleMs*time.Millisecond, bounds.LeaseSnapshotAgeMs*time.Millisecond
	use := func(waits ...time.Duration) string {
		h := newHarness(t)
		a := h.session("a")
		a.fill(3)
		last, _ := a.page("**", 1, nil)
		for _, wait := range waits {
			h.clock.Advance(wait)
			next, refused := a.page("**", 1, &last)
			if refused != "" {
				return refused
			}
			last = next
		}
		return ""
	}
	const expired = "5011 InvalidListCursor: expired"
	for _, c := range []struct {
		name  string
		waits []time.Duration
		want  string
	}{
		{"idle at the bound", []time.Duration{idle}, ""},
		{"idle above it", []time.Duration{idle + 1}, expired},
		{"age at the bound", []time.Duration{age / 3, age / 3, age / 3}, ""},
		{"age above it", []time.Duration{age / 3, age / 3, age/3 + 1}, expired},
	} {
		if got := use(c.waits...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}

	h := newHarness(t)
	a := h.session("a")
	a.fill(3)
	a.page("**", 1, nil)
	h.clock.Advance(idle / 2)
	a.page("**", 1, nil)
	for _, c := range []struct {
		wait time.Duration
		want int
	}{{idle / 2, 2}, {1, 1}, {idle/2 - 1, 1}, {1, 0}} {
		h.clock.Advance(c.wait)
		if got := len(h.domain.snapshots.kept); got != c.want {
			t.Errorf("%d snapshots are kept, want %d", got, c.want)
		}
	}
	if _, ok := h.clock.Next(); ok && h.domain.snapshots.armed {
		t.Error("the sweeper is armed without a snapshot")
	}
}

// kept returns the counters of the ids of the kept snapshots.
func (h *harness) kept() []uint64 {
	var ids []uint64
	for _, s := range h.domain.snapshots.kept {
		ids = append(ids, s.id&(1<<counterBits-1))
	}
	return ids
}

// L-67: a session above its number of snapshots loses its oldest; others lose nothing.
func TestSnapshotsPerSession(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.LeaseSnapshotsPerSessionMax = 2 })
	a, b := h.session("a"), h.session("b")
	a.fill(2)
	b.page("**", 1, nil)
	for range 2 {
		a.page("**", 1, nil)
	}
	if got := h.kept(); !slices.Equal(got, []uint64{1, 2, 3}) {
		t.Errorf("at the bound: %v", got)
	}
	a.page("**", 1, nil)
	if got := h.kept(); !slices.Equal(got, []uint64{1, 3, 4}) {
		t.Errorf("above it: %v", got)
	}
	if got := testutil.ToFloat64(h.metrics.ListEvictionsTotal); got != 1 {
		t.Errorf("%v evictions", got)
	}
}

// L-67: above the number of the broker, the least recently used of the session that keeps most goes.
func TestSnapshotsOfTheBroker(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.LeaseSnapshotsMax = 4 })
	a, b, c := h.session("a"), h.session("b"), h.session("c")
	a.fill(2)
	b.page("**", 1, nil) // 1
	h.clock.Advance(1)
	oldest, _ := a.page("**", 1, nil) // 2
	h.clock.Advance(1)
	a.page("**", 1, nil) // 3
	h.clock.Advance(1)
	a.page("**", 1, nil) // 4
	h.clock.Advance(1)
	a.page("**", 1, &oldest) // used again
	if got := h.kept(); !slices.Equal(got, []uint64{1, 2, 3, 4}) {
		t.Errorf("at the bound: %v", got)
	}
	c.page("**", 1, nil) // 5
	if got := h.kept(); !slices.Equal(got, []uint64{1, 2, 4, 5}) {
		t.Errorf("above it: %v", got)
	}
	if got := testutil.ToFloat64(h.metrics.ListSnapshots); got != 4 {
		t.Errorf("gauge %v", got)
	}
}

// change is what one grant or removal of that lease pins (L-66).
func (h *harness) change(path string) int64 {
	return int64(h.family(1).leases["lease://"+path].itemBytes()) + bounds.LeaseSnapshotChangeOverhead
}

// L-66: pinned bytes are counted by churn; renewals pin nothing. L-67: a session above its bytes loses its oldest, at the bound and
// one byte above it.
func TestSnapshotSessionBytes(t *testing.T) {
	probe := newHarness(t)
	probe.session("a").acquire("r0/a0/k0", "w", 3600, 0)
	one := probe.change("r0/a0/k0")
	for _, extra := range []int64{0, -1} {
		h := newHarness(t, func(l *bounds.Limits) { l.LeaseSnapshotSessionBytesMax = 4*one + extra })
		a, b := h.session("a"), h.session("b")
		a.fill(2)
		b.page("**", 1, nil) // 1
		for i := range 2 {   // 4 changes
			a.release(fmt.Sprintf("r1/a1/k%d", i), "w", uint64(7+i))
			a.acquire(fmt.Sprintf("r1/a1/k%d", i), "w", 3600, 0)
			if i == 0 {
				b.page("**", 1, nil) // 2
			}
		}
		for range 100 {
			a.renew("r0/a0/k0", "w", 1, 3600)
		}
		want := []uint64{1, 2}
		if extra < 0 {
			want = []uint64{2}
		}
		if got := h.kept(); !slices.Equal(got, want) {
			t.Errorf("%+d bytes: kept %v, want %v", extra, got, want)
		}
	}
}

// L-66, L-67: the bytes of the broker are the sum over families of the oldest snapshot; the oldest of the broker goes.
func TestSnapshotTotalBytes(t *testing.T) {
	probe := newHarness(t)
	probe.session("a").acquire("r0/a0/k0", "w", 3600, 0)
	one := probe.change("r0/a0/k0")
	for _, extra := range []int64{0, -1} {
		h := newHarness(t, func(l *bounds.Limits) { l.LeaseSnapshotTotalBytesMax = 6*one + extra })
		a, b, o := h.session("a"), h.session("b"), h.sessionIn("o", 2)
		a.fill(2)
		o.fill(2)
		o.page("**", 1, nil) // 1
		a.page("**", 1, nil) // 2
		b.page("**", 1, nil) // 3: of the same family, counts nothing
		cycle := func(s *fakeSession, token uint64) {
			s.release("r1/a1/k1", "w", token)
			s.acquire("r1/a1/k1", "w", 3600, 0)
		}
		cycle(a, 8)
		cycle(a, h.family(1).leases["lease://r1/a1/k1"].token)
		if got := h.kept(); !slices.Equal(got, []uint64{1, 2, 3}) {
			t.Fatalf("below the bound: %v", got)
		}
		cycle(o, 16)
		want := []uint64{1, 2, 3}
		if extra < 0 {
			want = []uint64{2, 3}
		}
		if got := h.kept(); !slices.Equal(got, want) {
			t.Errorf("%+d bytes: kept %v, want %v", extra, got, want)
		}
	}
}

// A family without snapshots pays nothing for their accounting (invariant 12).
func TestNoAlarmWithoutSnapshots(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(2)
	if h.family(1).churn.alarm.Load() != noAlarm {
		t.Error("an alarm is set before the first snapshot")
	}
	first, _ := a.page("**", 1, nil)
	if h.family(1).churn.alarm.Load() == noAlarm {
		t.Error("no alarm with a snapshot")
	}
	a.page("**", 500, &first)
	if h.family(1).churn.alarm.Load() != noAlarm {
		t.Error("an alarm is left")
	}
}

// L-66, L-67: families that change all at once, while snapshots come and go, never keep more pinned than the broker may have, but for
// the one change of each that is about to make room.
func TestSnapshotBytesOfManyFamilies(t *testing.T) {
	const families, rounds, change = 8, 3000, 1000
	const budget = 20*change + 3
	limits := bounds.Default()
	limits.LeaseSnapshotTotalBytesMax = budget
	k := newSnapshots(&limits, clock.NewManual(wallStart), newInstruments(metrics.NewLease(nil)), lifetime)
	var group sync.WaitGroup
	for i := range families {
		group.Go(func() {
			c := &churn{rang: k.changed}
			c.alarm.Store(noAlarm)
			for round := range rounds {
				if round%7 == i%7 {
					k.keep(&snapshot{family: uint32(i), session: uint64(i + 1), churn: c}, 0)
				}
				c.add(change)
				k.mu.Lock()
				pinned := k.pinnedTotal()
				k.mu.Unlock()
				if pinned > budget+(families-1)*change {
					t.Errorf("%d bytes are pinned, at most %d", pinned, budget)
				}
			}
		})
	}
	group.Wait()
	if pinned := k.pinnedTotal(); pinned > budget {
		t.Errorf("%d bytes are pinned at rest, at most %d", pinned, budget)
	}
	k.stop()
}

// stopping is a session whose domain is stopped when it is asked for its number, which is when a cursor is looked up.
type stopping struct{ pageCatcher }

func (s *stopping) Number() uint64 {
	s.h.domain.Stop()
	return s.fakeSession.Number()
}

// E-12: a listing that goes on while the domain is stopped learns that the inventory is unavailable, and not that its cursor was bad.
func TestStopBesideAPage(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(2)
	first, _ := a.page("**", 1, nil)
	s := &stopping{pageCatcher{fakeSession: a}}
	h.table.Dispatch(s, peer.Call{Type: wire.TypeLeaseList}, encode(t, &wire.LeaseListRequest{Selector: "lease://**", Limit: 1, Cursor: first.Next, HasCursor: true}))
	if want := "5006 " + wire.TextInventoryUnavailable; s.refused != want {
		t.Errorf("refused with %q, want %q", s.refused, want)
	}
}
