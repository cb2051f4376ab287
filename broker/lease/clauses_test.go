package lease

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// L-01, L-02: a lease is one route in one family; routes that differ in any segment and equal routes of two families are unrelated.
// AC-P05, AC-B07.
func TestIdentityOfALease(t *testing.T) {
	h := newHarness(t)
	a, b, other := h.session("a"), h.session("b"), h.sessionIn("o", 2)
	for _, path := range []string{"r/a/k", "R/a/k", "r/A/k", "r/a/K", "ra/a/k", "r/aa/k"} {
		b.acquire(path, "w", 30, 0)
	}
	for i := range 6 {
		h.expectFirst(fmt.Sprintf("b: 400 kind 0 token %d", i+1))
	}
	a.acquire("r/a/k", "w", 30, 0)
	h.expect("a: 400 5001 HeldByOther: w")
	other.query("r/a/k")
	other.acquire("r/a/k", "w", 30, 0)
	other.release("r/a/k", "w", 7)
	a.query("r/a/k")
	h.expect("o: 403 free, 0 waiting", "o: 400 kind 0 token 7", "o: 402 ok", `a: 403 held by "w" for 30, 0 waiting`)
}

// expectFirst compares the first frame that was enqueued and forgets it.
func (h *harness) expectFirst(want string) {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.log) == 0 {
		h.Fatalf("nothing was enqueued, want %s", want)
	}
	if got := h.log[0].to.name + ": " + h.log[0].text; got != want {
		h.Fatalf("enqueued %s, want %s", got, want)
	}
	h.log = h.log[1:]
}

// L-04: no route that nobody holds is ever listed, although it was asked for, is subscribed to, was held, or could not be granted.
// AC-I03.
func TestListOnlyHeld(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.LeasesPerSessionMax = 1 })
	a := h.session("a")
	a.subscribe("r/a/subscribed")
	a.query("r/a/queried")
	a.acquire("r/a/released", "w", 30, 0)
	a.release("r/a/released", "w", 1)
	a.acquire("r/a/held", "w", 30, 0)
	a.acquire("r/a/refused", "w", 30, 0)
	h.drain()
	for _, selector := range []string{"**", "r/*/*", "*/a/*"} {
		if got := a.collect(selector, 1); !slices.Equal(got, []string{"r/a/held"}) {
			t.Errorf("LIST %s shows %v", selector, got)
		}
	}
	for _, path := range []string{"subscribed", "queried", "released", "refused"} {
		a.list("r/a/"+path, 0)
		h.expect("a: 410 ")
	}
}

// L-05: observing, whether by LIST, QUERY or SUBSCRIBE, by the admin listing or with what they show, changes no lease.
// AC-I06.
func TestObservationChangesNothing(t *testing.T) {
	h := newHarness(t)
	a, s := h.session("a"), h.session("s")
	a.fill(2)
	f := h.family(1)
	l := f.leases["lease://r0/a0/k0"]
	sequence, deadline, token := f.sequence, l.expiry(), h.domain.tokens.Load()
	s.subscribe("**")
	s.collect("**", 1)
	s.list("r0/a0/k0", 0)
	s.query("r0/a0/k0")
	s.unsubscribe("**")
	if err := h.domain.Inventory(context.Background(), 1, mustSelector(t, "lease://**"), func(Item) bool { return true }); err != nil {
		t.Fatal(err)
	}
	h.drain()
	// The identity that an observer saw does not help it (L-11, L-42), nor does the owner without the token (L-43).
	s.renew("r0/a0/k0", "w", l.token, 1)
	s.release("r0/a0/k0", "w", l.token)
	a.renew("r0/a0/k0", "w", l.token+1, 1)
	a.release("r0/a0/k0", "w", 0)
	h.expect("s: 401 5004 NotHeld", "s: 402 5004 NotHeld", "a: 401 5002 Fenced", "a: 402 5002 Fenced")
	if f.sequence != sequence || l.expiry() != deadline || f.leases[l.text] != l || h.domain.tokens.Load() != token {
		t.Error("observation changed the lease")
	}
}

// L-06: a command of a family waits for the one before it, which is not over before its frames are enqueued; another family goes on.
func TestOneCommandAtATime(t *testing.T) {
	h := newHarness(t)
	a, b, other := h.session("a"), h.session("b"), h.sessionIn("o", 2)
	box := h.domain.mailbox(1)
	a.observe = func(string) {
		if box.mu.TryLock() {
			t.Error("a frame was enqueued outside the turn of its command")
			box.mu.Unlock()
		}
	}
	a.subscribe("**")
	a.acquire(key, "w", 30, 0)
	unblock := h.block(box, func() { b.query(key) })
	other.query(key)
	h.expect("o: 403 free, 0 waiting")
	unblock()
	h.expect(`b: 403 held by "w" for 30, 0 waiting`)
}

// L-12, lease.md section 13: replies show the logical owner exactly as it was sent, and no metric label holds an owner, a route or a
// number of a session.
// AC-I04.
func TestLogicalOwnerOnly(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := newHarness(t)
	h.domain = New(Options{Limits: bounds.Default(), Clock: h.clock, Lifetime: lifetime, Metrics: metrics.NewLease(registry)})
	h.table = dispatch.New(bounds.Default(), h.domain)
	h.serial = 7_777_777
	a, b := h.session("a"), h.session("b")
	const owner, path = "öwner\x00:\u202e 1", "realm-x/area-x/key-x"
	a.acquire(path, owner, 30, 0)
	b.acquire(path, owner, 30, 0)
	b.query(path)
	b.subscribe("realm-x/**")
	b.acquire(path, owner, 30, 5, 9)
	h.expect("a: 400 kind 0 token 1", "b: 400 5001 HeldByOther: "+owner, fmt.Sprintf("b: 403 held by %q for 30, 0 waiting", owner),
		"b: 407 id 1", "b: 400 kind 2 token 2 #9")
	if reply, _ := b.page("**", 0, nil); len(reply.Items) != 1 || reply.Items[0].OwnerID != owner {
		t.Errorf("items %+v", reply.Items)
	}
	b.cancel(9)
	a.release(path, owner, 1)
	families, err := registry.Gather()
	if err != nil || len(families) == 0 {
		t.Fatalf("%d metrics, %v", len(families), err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if v := label.GetValue(); strings.Contains(v, "wner") || strings.Contains(v, "-x") || strings.Contains(v, "777") {
					t.Errorf("%s has the label %s=%q", family.GetName(), label.GetName(), v)
				}
			}
		}
	}
}

// L-14: a step of the wall clock shows in acquired_at of later grants and in nothing else.
func TestWallClockSteps(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	for i, step := range []time.Duration{0, 24 * time.Hour, -48 * time.Hour} {
		path := fmt.Sprintf("r/a/%d", i)
		h.clock.SetWall(wallStart.Add(step))
		a.acquire(path, "w", 30, 0)
		a.acquire(path, "x", 30, 20)
		h.drain()
		a.query(path)
		h.expect(`a: 403 held by "w" for 30, 1 waiting`)
		reply, _ := a.page(path, 0, nil)
		if got, want := reply.Items[0].AcquiredAt, wallStart.Add(step).Format("2006-01-02T15:04:05.000Z"); got != want {
			t.Errorf("acquired at %s, want %s", got, want)
		}
	}
	h.pass(20*time.Second - 1)
	h.expect()
	h.pass(bounds.LeaseExpiryLagMs * time.Millisecond)
	for range 3 {
		h.expectFirst("a: 400* 5006 Timeout")
	}
	if n := len(h.family(1).leases); n != 3 {
		t.Errorf("%d leases", n)
	}
	h.pass(10 * time.Second)
	if n := len(h.family(1).leases); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}

// L-35: pending_waiters counts the waiters of the key, not the requests that joined them, those of other keys or those of a free one.
func TestPendingWaitersOfTheKey(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	for i, waiters := range []int{0, 1, 3} {
		path := fmt.Sprintf("r/a/%d", i)
		a.acquire(path, "h", 30, 0)
		for w := range waiters {
			b.acquire(path, fmt.Sprint(w), 30, 5)
			b.acquire(path, fmt.Sprint(w), 30, 5, uint64(10*i+w+1))
		}
	}
	h.drain()
	for i, want := range []int{0, 1, 3} {
		b.query(fmt.Sprintf("r/a/%d", i))
		h.expect(fmt.Sprintf(`b: 403 held by "h" for 30, %d waiting`, want))
	}
	b.query("r/a/free")
	h.expect("b: 403 free, 0 waiting")
}

// LC-04, LC-05: another family learns nothing of a snapshot, live or ended for whatever reason; another session of the family only that
// it is not its own.
func TestEndedSnapshotsOfOthers(t *testing.T) {
	for name, end := range map[string]func(h *harness, a *fakeSession, first *wire.LeaseListReply){
		"live":     func(*harness, *fakeSession, *wire.LeaseListReply) {},
		"finished": func(_ *harness, a *fakeSession, first *wire.LeaseListReply) { a.page("**", 500, first) },
		"evicted":  func(_ *harness, a *fakeSession, _ *wire.LeaseListReply) { a.page("**", 1, nil) },
		"expired": func(h *harness, _ *fakeSession, _ *wire.LeaseListReply) {
			h.clock.Advance(bounds.LeaseSnapshotIdleMs*time.Millisecond + 1)
		},
		"closed": func(_ *harness, a *fakeSession, _ *wire.LeaseListReply) { a.close() },
	} {
		h := newHarness(t, func(l *bounds.Limits) { l.LeaseSnapshotsPerSessionMax = 1 })
		a, b, o := h.session("a"), h.session("b"), h.sessionIn("o", 2)
		a.fill(2)
		first, _ := a.page("**", 1, nil)
		end(h, a, &first)
		h.drain()
		for _, selector := range []string{"**", "other/**"} {
			o.listFrom(selector, 1, first.Next)
			b.listFrom(selector, 1, first.Next)
			if got, want := h.drain(), []string{"o: 410 5011 InvalidListCursor: unknown snapshot", "b: 410 5011 InvalidListCursor: other session"}; !slices.Equal(got, want) {
				t.Errorf("%s, %s: %v", name, selector, got)
			}
		}
	}
}

// L-18: one turn ends no more waiters than lease_expiry_slice_max, however many share a line and a deadline, and in their order.
func TestWaiterTimeoutSlices(t *testing.T) {
	const slice = 4
	for _, c := range []struct {
		n     int
		start time.Duration // decides how often the wheel refiles them, which turns their order in it round each time
	}{{slice, 0}, {slice + 1, 0}, {3*slice + 1, 0}, {slice + 1, 40 * time.Second}, {3*slice + 1, 40 * time.Second}} {
		n := c.n
		h := newHarness(t, func(l *bounds.Limits) { l.LeaseExpirySliceMax = slice })
		a, b := h.session("a"), h.session("b")
		h.pass(c.start)
		a.acquire(key, "h", 300, 0)
		for i := range n {
			b.acquire(key, fmt.Sprint(i), 30, 5, uint64(i+1))
		}
		h.pass(5*time.Second - 1)
		h.drain()
		h.clock.Advance(tick)
		label := 0
		for turns := 0; h.domain.serveTurn(); turns++ {
			frames := h.drain()
			if len(frames) > slice || turns > n {
				t.Fatalf("%d waiters of %d ended in turn %d", len(frames), n, turns)
			}
			for _, got := range frames {
				label++
				if want := fmt.Sprintf("b: 400* 5006 Timeout #%d", label); got != want {
					t.Fatalf("%s, want %s", got, want)
				}
			}
			h.family(1).verify(t)
		}
		if label != n {
			t.Errorf("%d of %d waiters ended", label, n)
		}
	}
}

// L-18: waiters that end together with the lease they wait for count for the slice as well.
func TestExpirySliceCountsWaiters(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.LeaseExpirySliceMax = 4 })
	a, b := h.session("a"), h.session("b")
	for i := range 3 {
		path := fmt.Sprintf("r/a/%d", i)
		a.acquire(path, "h", 1, 0)
		for w := range 6 {
			b.acquire(path, fmt.Sprint(w), 30, 1)
		}
	}
	h.pass(time.Second - 1)
	h.drain()
	h.clock.Advance(tick)
	f := h.family(1)
	for left := 2; left >= 0; left-- {
		before := len(f.leases)
		for len(f.leases) == before && h.domain.serveTurn() {
		}
		if len(f.leases) != left {
			t.Errorf("%d leases are left after a turn, want %d", len(f.leases), left)
		}
		f.verify(t)
	}
	h.serve()
	if got := len(h.drain()); got != 3*6 {
		t.Errorf("%d waiters were told", got)
	}
}

// L-47: Fenced carries no number, whatever the token. L-48: QUERY never answers 5003, and agrees with LIST.
func TestFencedAndQueryTexts(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.acquire(key, "w", 2, 0)
	h.drain()
	for _, token := range []uint64{0, 2, 41, ^uint64(0)} {
		a.renew(key, "w", token, 30)
		a.release(key, "w", token)
		h.expect("a: 401 5002 Fenced", "a: 402 5002 Fenced")
	}
	for _, wait := range []time.Duration{2*time.Second - 1, 1} {
		h.clock.Advance(wait)
		a.list(key, 0)
		a.query(key)
	}
	h.expect("a: 410 r/a/k", `a: 403 held by "w" for 0, 0 waiting`, "a: 410 ", "a: 403 free, 0 waiting")
}

// denying is a session that lost a permission.
type denying struct {
	*fakeSession
	denied bool
}

func (s *denying) Authorize(wire.AccessLevel, pattern.Selector) bool { return !s.denied }

// L-68, lease.md section 8.5: every page is authorized again, before its cursor is looked at and before anything is examined; the
// snapshot stays.
// AC-I08.
func TestEveryPageIsAuthorized(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.fill(2)
	first, _ := a.page("**", 3, nil)
	s := &denying{fakeSession: a, denied: true}
	ask := func(c wire.LeaseCursor, has bool) {
		encoded, err := (&wire.LeaseListRequest{Selector: "lease://**", Limit: 3, Cursor: c, HasCursor: has}).AppendValue(nil)
		if err != nil {
			t.Fatal(err)
		}
		h.table.Dispatch(s, peer.Call{Type: wire.TypeLeaseList}, encoded)
	}
	examined := h.examined()
	ask(first.Next, true)
	ask(wire.LeaseCursor{SnapshotID: 1}, true) // not 5011
	ask(wire.LeaseCursor{}, false)
	const denied = "a: 410 5009 " + wire.TextPermissionDenied
	h.expect(denied, denied, denied)
	if h.examined() != examined {
		t.Error("a denied page examined something")
	}
	s.denied = false
	ask(first.Next, true)
	h.expectFirst("a: 410 r0/a1/k1,r1/a0/k0,r1/a0/k1 next abcdef0000000001/6")
}

// L-58: lease_list_slice_ms is the time of one page, first and later ones, as the domain is configured.
func TestListSliceOfTheDomain(t *testing.T) {
	for _, ms := range []int64{5, 7} {
		h := newHarness(t)
		limits := bounds.Default()
		limits.LeaseListSliceMs = ms
		slow := &slowClock{h.clock, 0}
		h.domain = New(Options{Limits: limits, Clock: slow, Lifetime: lifetime, Metrics: h.metrics})
		h.table = dispatch.New(limits, h.domain)
		a := h.session("a")
		for i := range 4 * sliceEvery {
			a.acquire(fmt.Sprintf("r/a/%04d", i), "w", 3600, 0)
		}
		slow.step = 6 * time.Millisecond
		want := sliceEvery // 6 ms have passed at the first look
		if ms == 7 {
			want = bounds.LeaseListPageMax // it comes before the second look
		}
		first, _ := a.page("**", bounds.LeaseListPageMax, nil)
		second, refused := a.page("**", bounds.LeaseListPageMax, &first)
		if len(first.Items) != want || len(second.Items) != want || refused != "" {
			t.Errorf("%d ms: pages of %d and %d items, want %d; %s", ms, len(first.Items), len(second.Items), want, refused)
		}
	}
}

// L-93: pages are read from a kept snapshot while the family changes: with the race detector this fails as soon as a page reads what
// a command writes.
func TestPagesWhileTheFamilyChanges(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.fill(5)
	want := b.collect("**", 500)
	first, _ := b.page("**", 3, nil)
	var stop, done sync.WaitGroup
	stop.Add(1)
	done.Add(1)
	quit := make(chan struct{})
	go func() {
		defer done.Done()
		s := &silent{a}
		f := h.family(1)
		box := h.domain.mailbox(1)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			default:
			}
			box.mu.Lock()
			at := moment{h.clock.Now(), wallStart}
			l := f.leases["lease://"+want[i%len(want)]]
			f.renew(s, renewCall, mustRoute(t, l.text), []byte("w"), l.token, 3600, at)
			f.release(s, peer.Call{Type: wire.TypeLeaseRelease}, mustRoute(t, l.text), []byte("w"), l.token, at)
			f.acquire(s, peer.Call{Type: wire.TypeLeaseAcquire}, mustRoute(t, l.text), []byte("w"), 3600, 0, at)
			box.mu.Unlock()
			if i == 10 {
				stop.Done()
			}
		}
	}()
	stop.Wait()
	got := routesOf(first)
	for last := first; last.HasNext; {
		next, refused := b.page("**", 3, &last)
		if refused != "" {
			t.Error(refused)
			break
		}
		got = append(got, routesOf(next)...)
		last = next
	}
	close(quit)
	done.Wait()
	if !slices.Equal(got, want) {
		t.Errorf("pages show %v, want %v", got, want)
	}
}

func routesOf(reply wire.LeaseListReply) (routes []string) {
	for _, item := range reply.Items {
		routes = append(routes, strings.TrimPrefix(item.Route, "lease://"))
	}
	return routes
}

// L-53: an item whose lease was released after the capture shows 0, however much time it had left, and its last count; L-80: the leases of
// a closed session are gone at the instant of the close, before the first of them is removed, and only for listings captured after it.
func TestItemsThatEndedAfterTheCapture(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.fill(2)
	first, _ := b.page("r1/**", 1, nil)
	released, _ := b.page("r1/a1/*", 1, nil)
	a.renew("r1/a1/k1", "w", 8, 3600)
	a.release("r1/a1/k1", "w", 8)
	if rest, refused := b.page("r1/a1/*", 1, &released); refused != "" || len(rest.Items) != 1 || rest.Items[0].ExpiresIn != 0 || rest.Items[0].Renewals != 1 {
		t.Errorf("released lease: %+v %s", rest.Items, refused)
	}
	box := h.domain.mailbox(1)
	before, _ := b.page("**", 1, nil)
	doomed := box.family.closeSession(a.number)
	if got := b.collect("**", 0); len(got) != 0 {
		t.Errorf("a listing after the close shows %v", got)
	}
	b.list("r0/a0/k0", 0)
	b.query("r0/a0/k0")
	h.drain()
	rest, _ := b.page("r1/**", 0, &first)
	for _, item := range rest.Items {
		want := wire.LeaseItem{Route: item.Route, OwnerID: "w", HolderIncarnation: a.Incarnation(), AcquiredAt: item.AcquiredAt}
		if item.Route == "lease://r1/a1/k1" {
			want.Renewals = 1
		}
		if item != want {
			t.Errorf("item %+v, want %+v", item, want)
		}
	}
	if len(rest.Items) != 3 {
		t.Errorf("%d items", len(rest.Items))
	}
	if rest, _ = b.page("**", 0, &before); len(rest.Items) != 6 {
		t.Errorf("the listing before the close shows %d more items", len(rest.Items))
	}
	for len(doomed) > 0 {
		doomed = box.family.bury(doomed, 1, moment{h.clock.Now(), wallStart})
	}
	box.family.verify(t)
}

// AC-P01, AC-P02: LIST, SUBSCRIBE and UNSUBSCRIBE accept the same selectors and refuse the others with the same reason, each under its
// own code, before there is state or work. AC-P03: the exact operations refuse every wildcard.
func TestOneGrammar(t *testing.T) {
	requests := map[wire.MessageType]func(text string) value{
		wire.TypeLeaseList:        func(text string) value { return &wire.LeaseListRequest{Selector: text} },
		wire.TypeLeaseSubscribe:   func(text string) value { return &wire.LeaseSubscribeRequest{Selector: text} },
		wire.TypeLeaseUnsubscribe: func(text string) value { return &wire.LeaseUnsubscribeRequest{Selector: text} },
		wire.TypeLeaseAcquire:     func(text string) value { return &wire.LeaseAcquireRequest{Route: text, OwnerID: "w", TTL: 30, Wait: 5} },
		wire.TypeLeaseRenew:       func(text string) value { return &wire.LeaseRenewRequest{Route: text, OwnerID: "w", TTL: 30} },
		wire.TypeLeaseRelease:     func(text string) value { return &wire.LeaseReleaseRequest{Route: text, OwnerID: "w"} },
		wire.TypeLeaseQuery:       func(text string) value { return &wire.LeaseQueryRequest{Route: text} },
	}
	pattern := []wire.MessageType{wire.TypeLeaseList, wire.TypeLeaseSubscribe, wire.TypeLeaseUnsubscribe}
	exact := []wire.MessageType{wire.TypeLeaseAcquire, wire.TypeLeaseRenew, wire.TypeLeaseRelease, wire.TypeLeaseQuery}
	codes := map[wire.MessageType]wire.Code{
		wire.TypeLeaseList: wire.CodeLeaseInvalidListPattern, wire.TypeLeaseSubscribe: wire.CodeLeaseInvalidSubscriptionRoute,
		wire.TypeLeaseUnsubscribe: wire.CodeLeaseInvalidSubscriptionRoute,
	}
	h := newHarness(t)
	a := h.session("a")
	ask := func(typ wire.MessageType, text string) string {
		t.Helper()
		a.do(typ, 0, requests[typ](text))
		frames := h.drain()
		if len(frames) != 1 {
			t.Fatalf("%s %s: %v", typ, text, frames)
		}
		return frames[0]
	}
	for _, c := range []struct{ text, selector, route string }{ // reasons, "" = accepted
		{"lease://*/a/k", "", "wildcard_not_allowed"}, {"lease://r/*/k", "", "wildcard_not_allowed"}, {"lease://r/a/*", "", "wildcard_not_allowed"},
		{"lease://**", "", "wildcard_not_allowed"}, {"lease://r/a/k/**", "", "wildcard_not_allowed"},
		{"kv://r/a/k", "wrong_scheme", "wrong_scheme"}, {"lease://r/a", "depth", "depth"}, {"lease://r/a/k/x", "depth", "depth"},
		{"lease://r//k", "empty_segment", "empty_segment"},
	} {
		for _, typ := range pattern {
			got, want := ask(typ, c.text), fmt.Sprintf("a: %d %d %s:", typ, codes[typ], c.selector)
			if refused := strings.Contains(got, fmt.Sprintf(" %d ", codes[typ])); refused != (c.selector != "") || refused && !strings.HasPrefix(got, want) {
				t.Errorf("%s %s: %s, want reason %q", typ, c.text, got, c.selector)
			}
		}
		for _, typ := range exact {
			if got, want := ask(typ, c.text), fmt.Sprintf("a: %d %d %s:", typ, wire.CodeLeaseBadRequest, c.route); !strings.HasPrefix(got, want) {
				t.Errorf("%s %s: %s, want %s", typ, c.text, got, want)
			}
		}
		if f := h.family(1); len(f.leases) != 0 || len(f.sessions) > 1 || f.index != nil && f.index.Len() != 0 || h.domain.tokens.Load() != 0 {
			t.Fatalf("%s left something behind", c.text)
		}
	}
}
