package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// shapes are selectors of all eight mask shapes over the routes of fill.
var shapes = []string{"r1/a1/k1", "r1/a1/*", "r1/*/*", "*/*/*", "*/a1/k1", "*/a1/*", "*/*/k1", "r1/*/k1"}

// fill makes the session hold n*n*n routes r0…/a0…/k0….
func (s *fakeSession) fill(n int) {
	for r := range n {
		for a := range n {
			for k := range n {
				s.acquire(fmt.Sprintf("r%d/a%d/k%d", r, a, k), "w", 3600, 0)
			}
		}
	}
	s.h.drain()
}

func (h *harness) examined() int {
	return int(testutil.ToFloat64(h.metrics.ListIdentitiesExaminedTotal))
}

func (h *harness) items() int { return int(testutil.ToFloat64(h.metrics.ListItemsTotal)) }

// L-50, L-51, L-57: every shape finds every match and nothing else, in pages of every size, and examines what it returns.
// AC-P06, AC-I01, AC-I07.
func TestListShapes(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(5)
	for _, shape := range shapes {
		sel := mustSelector(t, "lease://"+shape)
		var want []string
		for text := range h.family(1).leases {
			r, err := route.Lease.ParseRoute(text)
			if err != nil {
				t.Fatal(err)
			}
			if sel.Matches(r) {
				want = append(want, strings.TrimPrefix(text, "lease://"))
			}
		}
		slices.Sort(want)
		var order []string
		for _, limit := range []uint32{0, 1, 2, 7, 500} {
			examined, items := h.examined(), h.items()
			got := a.collect(shape, limit)
			if examined, items = h.examined()-examined, h.items()-items; examined != items || items != len(want) {
				t.Errorf("%s by %d: %d examined, %d returned, %d match", shape, limit, examined, items, len(want))
			}
			if order == nil {
				order = slices.Clone(got)
			} else if !slices.Equal(order, got) {
				t.Errorf("%s by %d: another order", shape, limit)
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("%s by %d: %v, want %v", shape, limit, got, want)
			}
		}
	}
	if n := len(h.domain.snapshots.kept); n != 0 {
		t.Errorf("%d snapshots are left (L-64)", n)
	}
}

// A selector of several masks returns each lease once; the ones that an earlier mask has count as examined.
func TestListSeveralMasks(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	for _, path := range []string{"x/x/x", "x/x/y", "x/y/z", "y/x/y", "y/y/x", "y/y/y"} {
		a.acquire(path, "w", 3600, 0)
	}
	h.drain()
	want := []string{"x/x/x", "x/x/y", "x/y/z", "y/x/y", "y/y/x"}
	for limit := range uint32(4) {
		before := h.examined()
		got := a.collect("**/x/**", limit)
		if !slices.Equal(got, want) {
			t.Errorf("by %d: %v, want %v", limit, got, want)
		}
		if n := h.examined() - before; n != 3+3+2 { // x/*/*, */x/*, */*/x
			t.Errorf("by %d: %d examined", limit, n)
		}
	}
}

// L-59: a page may be empty with has_next 1; the offset grows nevertheless (L-63).
// AC-I07.
func TestListEmptyPageWithNext(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.LeaseListExaminedMax = 2 })
	a := h.session("a")
	for i := range 6 {
		a.acquire(fmt.Sprintf("x/x/%d", i), "w", 3600, 0)
	}
	var sizes []int
	var last *wire.LeaseListReply
	for {
		reply, refused := a.page("**/x/**", 0, last)
		if refused != "" {
			t.Fatal(refused)
		}
		sizes = append(sizes, len(reply.Items))
		if !reply.HasNext {
			break
		}
		if last != nil && reply.Next.Offset != last.Next.Offset+2 {
			t.Errorf("offset %d after %d", reply.Next.Offset, last.Next.Offset)
		}
		last = &reply
	}
	if !slices.Equal(sizes, []int{2, 2, 2, 0, 0, 0}) {
		t.Errorf("pages of %v items", sizes)
	}
	if got := testutil.ToFloat64(h.metrics.ListBudgetExhaustedTotal.WithLabelValues(boundExamined)); got != 5 {
		t.Errorf("%v pages ended at the bound", got)
	}
}

// L-53: reported iff the deadline is after the capture instant, swept or not; remaining time and renewals are those of the page.
// AC-I02, AC-S04.
func TestListDeadlineFilterAndLateFields(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	for i := range 6 {
		a.acquire(fmt.Sprintf("r/a/%d", i), "w", uint64(10+i), 0)
	}
	h.clock.Advance(11 * time.Second) // 0 and 1 are due, 1 exactly now; nothing was swept
	first, _ := b.page("**", 1, nil)
	if len(first.Items) != 1 || first.Items[0].Route != "lease://r/a/2" || first.Items[0].ExpiresIn != 1 {
		t.Fatalf("first page %+v", first)
	}
	h.drain()
	// After the capture: 3 is renewed and shortened, 4 released, 5 expires, 6 is new, 2 too.
	a.renew("r/a/3", "w", 4, 600)
	a.renew("r/a/3", "w", 4, 100)
	a.release("r/a/4", "w", 5)
	h.pass(5 * time.Second)
	a.acquire("r/a/6", "w", 100, 0)
	rest, _ := b.page("**", 0, &first)
	var got []string
	for _, item := range rest.Items {
		got = append(got, fmt.Sprintf("%s %d %d", item.Route[len("lease://r/a/"):], item.ExpiresIn, item.Renewals))
	}
	if want := []string{"3 95 2", "4 0 0", "5 0 0"}; !slices.Equal(got, want) {
		t.Errorf("rest %v, want %v", got, want)
	}
	if got := b.collect("**", 0); !slices.Equal(got, []string{"r/a/3", "r/a/6"}) {
		t.Errorf("a new listing shows %v", got)
	}
}

// L-53 at the instant of the capture: what ends then was held, what ended before was not.
func TestListCaptureInstant(t *testing.T) {
	h := newHarness(t)
	a, b, c := h.session("a"), h.session("b"), h.session("c")
	for i := range 3 {
		a.acquire(fmt.Sprintf("r/a/%d", i), "w", 100, 0)
		c.acquire(fmt.Sprintf("r/c/%d", i), "w", 100, 0)
	}
	first, _ := b.page("**", 1, nil)
	a.close() // no time passes
	before, _ := b.page("**", 1, nil)
	c.renew("r/c/1", "w", 4, 1)
	rest, _ := b.page("**", 0, &first)
	if len(rest.Items) != 5 {
		t.Errorf("%d items of the snapshot before the close", len(rest.Items))
	}
	if rest, _ = b.page("**", 0, &before); len(rest.Items) != 2 {
		t.Errorf("%d items of the snapshot after the close", len(rest.Items))
	}
}

// L-54: a NOTIFY for a change applied before the capture is enqueued before the first page.
func TestListComesAfterTheNotifications(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	b.subscribe("**")
	a.acquire(key, "w", 30, 0)
	b.list("**", 0)
	a.release(key, "w", 1)
	b.list("**", 0)
	h.expect("b: 407 id 1", "a: 400 kind 0 token 1", "b: 409 1 r/a/k", "b: 410 r/a/k", "a: 402 ok", "b: 409 1 r/a/k", "b: 410 ")
}

// L-55: a point selector is a keyed lookup: 0 or 1 item, has_next 0, no snapshot.
// AC-I01.
func TestListPoint(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.acquire(key, "w", 30, 0)
	h.drain()
	a.list(key, 0)
	a.list("r/a/k/**", 0)
	a.list("**/r/a/k", 1)
	a.list("r/a/none", 0)
	h.expect("a: 410 r/a/k", "a: 410 r/a/k", "a: 410 r/a/k", "a: 410 ")
	if c := h.domain.Capacities(1, a.number); c != (Capacities{}) {
		t.Errorf("capacities %+v", c)
	}
}

// L-56: 0 means the default, more than the maximum means the maximum.
func TestListLimit(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(9)
	for _, c := range []struct {
		limit uint32
		want  int
	}{
		{0, bounds.LeaseListPageDefault}, {1, 1}, {bounds.LeaseListPageMax, bounds.LeaseListPageMax},
		{bounds.LeaseListPageMax + 1, bounds.LeaseListPageMax}, {^uint32(0), bounds.LeaseListPageMax},
	} {
		if reply, _ := a.page("**", c.limit, nil); len(reply.Items) != c.want || !reply.HasNext {
			t.Errorf("limit %d: %d items, next %v", c.limit, len(reply.Items), reply.HasNext)
		}
	}
	// L-59: has_next is 0 when exactly the limit was left.
	if reply, _ := a.page("r1/*/*", 81, nil); len(reply.Items) != 81 || reply.HasNext {
		t.Errorf("%d items, next %v", len(reply.Items), reply.HasNext)
	}
	if reply, _ := a.page("r1/*/*", 80, nil); len(reply.Items) != 80 || !reply.HasNext {
		t.Errorf("%d items, next %v", len(reply.Items), reply.HasNext)
	}
}

// L-58: the bytes of a page, at the bound and one above it; one item always fits; an item that did not fit is on the next page.
// L-90.
func TestListPageBytes(t *testing.T) {
	const count = 120
	size := func(owner int) int { // L-60
		return 4 + len("lease://r/a/000") + 4 + owner + 8 + 4 + 24 + 8 + 4
	}
	owner := bounds.LeaseListPageBytesMax/count - size(0)
	if size(owner)*count != bounds.LeaseListPageBytesMax {
		t.Fatalf("%d items of %d bytes do not fill a page", count, size(owner))
	}
	for _, extra := range []int{0, 1} {
		h := newHarness(t)
		a := h.session("a")
		for i := range count {
			n := owner
			if i == 0 {
				n += extra
			}
			a.acquire(fmt.Sprintf("r/a/%03d", i), strings.Repeat("o", n), 3600, 0)
		}
		if l := h.family(1).leases["lease://r/a/000"]; l.itemBytes() != size(owner+extra) {
			t.Fatalf("item of %d bytes, want %d", l.itemBytes(), size(owner+extra))
		}
		first, _ := a.page("**", 500, nil)
		if len(first.Items) != count-extra || first.HasNext != (extra == 1) {
			t.Errorf("%d bytes above the bound: %d items, next %v", extra, len(first.Items), first.HasNext)
		}
		if extra == 1 {
			rest, _ := a.page("**", 500, &first)
			if len(rest.Items) != 1 || rest.Items[0].Route != "lease://r/a/119" || first.Next.Offset != count-1 {
				t.Errorf("rest %v, offset %d", rest.Items, first.Next.Offset)
			}
			if got := testutil.ToFloat64(h.metrics.ListBudgetExhaustedTotal.WithLabelValues(boundPageBytes)); got != 1 {
				t.Errorf("%v pages ended at the bound", got)
			}
		}
	}
}

// The largest possible page fits into a reply (W-13).
func TestListLargestItemsFitIntoReplies(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	for i := range 30 {
		path := fmt.Sprintf("r/a/%02d", i)
		a.acquire(path+strings.Repeat("x", bounds.RouteBytesMax-len("lease://"+path)), strings.Repeat("o", bounds.LeaseOwnerBytesMax), 3600, 0)
	}
	catch := &pageCatcher{fakeSession: a}
	encoded, err := (&wire.LeaseListRequest{Selector: "lease://**", Limit: 500}).AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	h.table.Dispatch(catch, peer.Call{Type: wire.TypeLeaseList}, encoded)
	if n := len(catch.value); n > bounds.ReplyValueMax || n < bounds.LeaseListPageBytesMax-5000 {
		t.Errorf("page of %d bytes", n)
	}
	if got := a.collect("**", 500); len(got) != 30 {
		t.Errorf("%d items", len(got))
	}
}

// L-58: identities examined, at the bound and one above it.
// L-90.
func TestListExaminedBound(t *testing.T) {
	for _, n := range []int{20, 21} {
		h := newHarness(t, func(l *bounds.Limits) { l.LeaseListExaminedMax = 20 })
		a := h.session("a")
		for i := range n {
			a.acquire(fmt.Sprintf("r/a/%02d", i), "w", 3600, 0)
		}
		if reply, _ := a.page("**", 500, nil); len(reply.Items) != 20 || reply.HasNext != (n > 20) {
			t.Errorf("%d identities: %d items, next %v", n, len(reply.Items), reply.HasNext)
		}
	}
}

// slowClock moves on by step each time it is read.
type slowClock struct {
	*clock.Manual
	step time.Duration
}

func (c slowClock) Now() clock.Instant {
	c.Advance(c.step)
	return c.Manual.Now()
}

// L-58: the slice is looked at every 256 identities, so at least 256 are examined.
func TestListSlice(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(9)
	for _, c := range []struct {
		step time.Duration
		want int
	}{{time.Second, sliceEvery}, {bounds.LeaseListSliceMs * time.Millisecond / 2, 2 * sliceEvery}, {0, bounds.LeaseListPageMax}} {
		p := page{clock: slowClock{h.clock, c.step}, builtAt: h.clock.Now(), limit: 10_000, most: 10_000, slice: bounds.LeaseListSliceMs * time.Millisecond}
		if c.step == 0 {
			p.limit = bounds.LeaseListPageMax
		}
		p.begin(nil)
		f := h.family(1)
		g := listing{trees: f.tree, masks: mustSelector(t, "lease://**").Masks(), captured: p.builtAt, sequence: f.sequence}
		if more := g.fill(&p); !more || p.examined != c.want {
			t.Errorf("%v per look: %d examined, more %v", c.step, p.examined, more)
		}
		if c.step > 0 && p.endedBy != boundSlice {
			t.Errorf("ended by %q", p.endedBy)
		}
	}
}

// L-61: the item is encoded once; pages and notifications carry the same bytes.
func TestItemIsEncodedOnce(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.acquire(key, "w", 30, 0)
	l := h.family(1).leases["lease://"+key]
	catch := &pageCatcher{fakeSession: a}
	encoded, err := (&wire.LeaseListRequest{Selector: "lease://**"}).AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	h.table.Dispatch(catch, peer.Call{Type: wire.TypeLeaseList}, encoded)
	if !strings.Contains(string(catch.value), string(l.early)) {
		t.Error("the page does not hold the bytes of the lease")
	}
	if l.owner() != "w" || string(l.encodedRoute()) != "\x00\x00\x00\rlease://r/a/k" || l.segments() != [3]string{"r", "a", "k"} {
		t.Errorf("owner %q, route %q, segments %q", l.owner(), l.encodedRoute(), l.segments())
	}
}

// L-62, L-63: the form of a cursor.
// AC-I08.
func TestCursorForm(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(3)
	for i := range uint64(3) {
		first, _ := a.page("**", 5, nil)
		if want := (wire.LeaseCursor{SnapshotID: 0xabcdef<<40 | (i + 1), Offset: 5}); first.Next != want {
			t.Errorf("cursor %x, want %x", first.Next, want)
		}
	}
}

// L-93: pages of a kept snapshot are built outside the lock of the family.
func TestLaterPagesDoNotTakeTheLock(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(3)
	first, _ := a.page("**", 5, nil)
	box := h.domain.mailbox(1)
	box.mu.Lock()
	second, refused := a.page("**", 5, &first)
	box.mu.Unlock()
	if refused != "" || len(second.Items) != 5 {
		t.Errorf("page %v %s", second, refused)
	}
}

// L-68: a mismatch does not consume the snapshot.
func TestMismatchKeepsTheSnapshot(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.fill(3)
	first, _ := a.page("r1/**", 5, nil)
	b.listFrom("r1/**", 5, first.Next)
	a.listFrom("r1/*/*", 5, first.Next)
	a.listFrom("r1/**", 5, wire.LeaseCursor{SnapshotID: first.Next.SnapshotID, Offset: 4})
	h.expect("b: 410 5011 InvalidListCursor: other session", "a: 410 5011 InvalidListCursor: other selector",
		"a: 410 5011 InvalidListCursor: offset too low")
	if rest, refused := a.page("r1/**", 0, &first); refused != "" || len(rest.Items) != 4 || rest.HasNext {
		t.Errorf("rest %v %s", rest, refused)
	}
}

// A page that cannot be enqueued keeps no snapshot.
func TestUndeliverablePageDropsTheSnapshot(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.fill(3)
	b.room = 0
	b.list("**", 5)
	first, _ := a.page("**", 5, nil)
	a.room = 0
	a.listFrom("**", 5, first.Next)
	if n := len(h.domain.snapshots.kept); n != 0 {
		t.Errorf("%d snapshots are kept", n)
	}
}

// The admin listing: one instant, every match once, in any shape; it stops when asked, reports the end of its context, and tells a
// stopped domain from an empty one.
func TestInventory(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(7)
	ctx, cancel := context.WithCancel(context.Background())
	for _, shape := range append(shapes, "**/r1/**/k1/**") {
		want := a.collect(shape, 0)
		var got []string
		if err := h.domain.Inventory(ctx, 1, mustSelector(t, "lease://"+shape), func(i Item) bool {
			got = append(got, strings.TrimPrefix(i.Route, "lease://"))
			if i.OwnerID != "w" || i.Incarnation != a.Incarnation() || i.ExpiresIn != 3600 {
				t.Errorf("item %+v", i)
			}
			a.release("r0/a0/k0", "w", 1) // the lock is free
			return true
		}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", shape, got, want)
		}
	}
	n := 0
	if err := h.domain.Inventory(ctx, 1, mustSelector(t, "lease://**"), func(Item) bool { n++; return n < 3 }); err != nil || n != 3 {
		t.Errorf("%d items, %v", n, err)
	}
	if err := h.domain.Inventory(ctx, 9, mustSelector(t, "lease://**"), func(Item) bool { n++; return true }); err != nil || n != 3 {
		t.Errorf("unknown family: %d items, %v", n, err)
	}
	err := h.domain.Inventory(ctx, 1, mustSelector(t, "lease://**"), func(Item) bool { cancel(); return true })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
	h.domain.Stop()
	if err := h.domain.Inventory(context.Background(), 1, mustSelector(t, "lease://**"), func(Item) bool { return true }); !errors.Is(err, ErrStopped) {
		t.Errorf("after Stop: %v", err)
	}
}
