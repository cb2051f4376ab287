package lease

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every bound of leases and waiters, at its value and one above it (lease.md section 15).
// AC-X01.
func TestLeaseAndWaiterBounds(t *testing.T) {
	lease := newHarness(t)
	lease.session("a").acquire("r/a/0", "w", 30, 0)
	leaseCharge := lease.family(1).bytes
	waiterCharge := int64(len("w") + itemOverhead)
	const full = "400 5007 lease limit"

	for _, c := range []struct {
		name    string
		limits  func(*bounds.Limits)
		within  func(h *harness, a, b *fakeSession)
		beyond  func(h *harness, a, b *fakeSession)
		refused string
	}{
		{"leases_per_session_max", func(l *bounds.Limits) { l.LeasesPerSessionMax = 2 },
			func(_ *harness, a, b *fakeSession) {
				a.acquire("r/a/1", "w", 30, 0)
				a.acquire("r/a/2", "w", 30, 0)
				b.acquire("r/a/3", "w", 30, 0)
			},
			func(_ *harness, a, _ *fakeSession) { a.acquire("r/a/4", "w", 30, 0) }, "a: " + full},
		{"leases_per_family_max", func(l *bounds.Limits) { l.LeasesPerFamilyMax = 2 },
			func(h *harness, a, b *fakeSession) {
				a.acquire("r/a/1", "w", 30, 0)
				b.acquire("r/a/2", "w", 30, 0)
				h.sessionIn("o", 2).acquire("r/a/3", "w", 30, 0)
			},
			func(_ *harness, a, _ *fakeSession) { a.acquire("r/a/4", "w", 30, 0) }, "a: " + full},
		{"lease_session_bytes_max", func(l *bounds.Limits) { l.LeaseSessionBytesMax = 2 * leaseCharge },
			func(_ *harness, a, b *fakeSession) {
				a.acquire("r/a/1", "w", 30, 0)
				a.acquire("r/a/2", "w", 30, 0)
				b.acquire("r/a/3", "w", 30, 0)
			},
			func(_ *harness, a, _ *fakeSession) { a.acquire("r/a/4", "w", 30, 0) }, "a: " + full},
		{"lease_session_bytes_max, one byte less", func(l *bounds.Limits) { l.LeaseSessionBytesMax = 2*leaseCharge - 1 },
			func(_ *harness, a, _ *fakeSession) { a.acquire("r/a/1", "w", 30, 0) },
			func(_ *harness, a, _ *fakeSession) { a.acquire("r/a/2", "w", 30, 0) }, "a: " + full},
		{"lease_family_bytes_max", func(l *bounds.Limits) { l.LeaseFamilyBytesMax = 2 * leaseCharge },
			func(_ *harness, a, b *fakeSession) { a.acquire("r/a/1", "w", 30, 0); b.acquire("r/a/2", "w", 30, 0) },
			func(_ *harness, a, _ *fakeSession) { a.acquire("r/a/3", "w", 30, 0) }, "a: " + full},
		{"lease_family_bytes_max, one byte less", func(l *bounds.Limits) { l.LeaseFamilyBytesMax = 2*leaseCharge - 1 },
			func(_ *harness, a, _ *fakeSession) { a.acquire("r/a/1", "w", 30, 0) },
			func(_ *harness, _, b *fakeSession) { b.acquire("r/a/2", "w", 30, 0) }, "b: " + full},
		{"lease_waiters_per_key_max", func(l *bounds.Limits) { l.LeaseWaitersPerKeyMax = 2 },
			func(_ *harness, a, b *fakeSession) {
				a.acquire(key, "h", 30, 0)
				b.acquire(key, "1", 30, 5)
				b.acquire(key, "2", 30, 5)
			},
			func(_ *harness, _, b *fakeSession) { b.acquire(key, "3", 30, 5) }, "b: 400 5007 QueueFull: 2 pending"},
		{"lease_waiters_per_session_max", func(l *bounds.Limits) { l.LeaseWaitersPerSessionMax = 2 },
			func(_ *harness, a, b *fakeSession) {
				a.acquire(key, "h", 30, 0)
				a.acquire("r/a/2", "h", 30, 0)
				a.acquire("r/a/3", "h", 30, 0)
				b.acquire(key, "1", 30, 5)
				b.acquire("r/a/2", "1", 30, 5)
			},
			func(_ *harness, _, b *fakeSession) { b.acquire("r/a/3", "1", 30, 5) }, "b: 400 5007 QueueFull: 0 pending"},
		{"lease_waiters_per_family_max", func(l *bounds.Limits) { l.LeaseWaitersPerFamilyMax = 2 },
			func(_ *harness, a, b *fakeSession) {
				a.acquire(key, "h", 30, 0)
				a.acquire(key, "1", 30, 5)
				b.acquire(key, "2", 30, 5)
			},
			func(_ *harness, _, b *fakeSession) { b.acquire(key, "3", 30, 5) }, "b: 400 5007 QueueFull: 2 pending"},
		{"lease_session_bytes_max for waiters", func(l *bounds.Limits) { l.LeaseSessionBytesMax = max(2*waiterCharge, leaseCharge) },
			func(_ *harness, a, b *fakeSession) {
				a.acquire(key, "h", 30, 0)
				b.acquire(key, "1", 30, 5)
				b.acquire(key, "2", 30, 5)
			},
			func(_ *harness, _, b *fakeSession) { b.acquire(key, "3", 30, 5) }, "b: 400 5007 QueueFull: 2 pending"},
		{"lease_session_bytes_max for waiters, one byte less", func(l *bounds.Limits) { l.LeaseSessionBytesMax = 2*waiterCharge - 1 },
			func(_ *harness, a, b *fakeSession) { a.acquire(key, "h", 30, 0); b.acquire(key, "1", 30, 5) },
			func(_ *harness, _, b *fakeSession) { b.acquire(key, "2", 30, 5) }, "b: 400 5007 QueueFull: 1 pending"},
		{"lease_family_bytes_max for waiters", func(l *bounds.Limits) { l.LeaseFamilyBytesMax = leaseCharge + 2*waiterCharge - 1 },
			func(_ *harness, a, b *fakeSession) { a.acquire("r/a/k", "h", 30, 0); b.acquire(key, "1", 30, 5) },
			func(_ *harness, _, b *fakeSession) { b.acquire(key, "2", 30, 5) }, "b: 400 5007 QueueFull: 1 pending"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, c.limits)
			a, b := h.session("a"), h.session("b")
			c.within(h, a, b)
			if got := strings.Join(h.drain(), "\n"); strings.Contains(got, "5007") {
				t.Fatalf("refused within the bound:\n%s", got)
			}
			sequence := h.family(1).sequence
			c.beyond(h, a, b)
			h.expect(c.refused)
			if h.family(1).sequence != sequence {
				t.Error("a refused request changed something")
			}
			h.family(1).verify(t)
			// What ends makes room again.
			a.close()
			b.close()
			if f := h.family(1); f.bytes != 0 || f.held != 0 || f.waiting != 0 || len(f.sessions) != 0 {
				t.Errorf("%d bytes, %d leases, %d waiters, %d sessions are left", f.bytes, f.held, f.waiting, len(f.sessions))
			}
		})
	}
}

// lease_expiry_slice_max and L-18: one turn handles no more deadlines, then yields; another turn is asked for.
func TestExpirySlices(t *testing.T) {
	for _, n := range []int{4, 5} {
		h := newHarness(t, func(l *bounds.Limits) { l.LeaseExpirySliceMax = 4 })
		a := h.session("a")
		for i := range n {
			a.acquire(fmt.Sprintf("r/a/%d", i), "w", 1, 0)
		}
		// The first looks spread the slot of the second over the level below.
		h.pass(time.Second - 1)
		h.clock.Advance(tick)
		turns := 0
		for h.domain.serveTurn() {
			turns++
			if left := len(h.family(1).leases); turns == 1 && left != n-4 {
				t.Errorf("%d leases are left after one turn, want %d", left, n-4)
			}
		}
		if left := len(h.family(1).leases); left != 0 || turns > 2 {
			t.Errorf("%d leases are left after %d turns", left, turns)
		}
	}
}

// L-17: an idle family never wakes, and a lease of a year wakes it a few times at most.
func TestIdleFamilyNeverWakes(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.acquire(key, "w", 30, 0)
	a.release(key, "w", 1)
	h.pass(time.Hour)
	box := h.domain.mailbox(1)
	before := box.turns
	h.pass(1000 * time.Hour)
	if box.turns != before {
		t.Errorf("%d turns of an idle family", box.turns-before)
	}
	a.acquire(key, "w", bounds.LeaseTTLSecsMax, 0)
	h.pass(seconds(bounds.LeaseTTLSecsMax) - time.Second)
	if n := box.turns - before; n > wheelLevels {
		t.Errorf("%d turns for a lease of a year", n)
	}
	a.query(key)
	h.drain()
	h.pass(2 * time.Second)
	if len(box.family.leases) != 0 {
		t.Error("the lease of a year did not expire")
	}
}

// block takes the lock of a family, starts a command that has to wait for it, and returns when it waits.
func (h *harness) block(box *mailbox, command func()) (unblock func()) {
	box.mu.Lock()
	before := box.waiting.Load()
	done := make(chan struct{})
	go func() {
		defer close(done)
		command()
	}()
	for box.waiting.Load() == before {
		select {
		case <-done:
			h.Fatal("the command did not wait")
		default:
		}
	}
	return func() {
		box.mu.Unlock()
		<-done
	}
}

// E-10: a command whose deadline passes before it starts is not executed and answered 5007; at exactly the deadline it starts.
func TestCommandDeadline(t *testing.T) {
	deadline := bounds.CommandDeadlineControlMs * time.Millisecond
	for wait, want := range map[time.Duration]string{
		deadline:     "a: 400 kind 0 token 1",
		deadline + 1: "a: 400 5007 the lease domain is busy",
	} {
		h := newHarness(t)
		a := h.session("a")
		unblock := h.block(h.domain.mailbox(1), func() { a.acquire(key, "w", 30, 0) })
		h.clock.Advance(wait)
		unblock()
		h.expect(want)
		if n := h.domain.mailbox(1).waiting.Load(); n != 0 {
			t.Errorf("%d commands wait", n)
		}
	}
}

// domain_mailbox_max and domain_mailbox_bytes_max: at the bound a command waits, above it it is refused at once with 5007, for LIST
// too (lease.md section 8.5).
// AC-I09.
func TestMailboxBounds(t *testing.T) {
	size := int64(len("lease://r/a/k")) + commandOverhead
	for name, change := range map[string]func(*bounds.Limits){
		"commands": func(l *bounds.Limits) { l.DomainMailboxMax = 1 },
		"bytes":    func(l *bounds.Limits) { l.DomainMailboxBytesMax = 2*size - 1 },
	} {
		h := newHarness(t, change)
		a, b := h.session("a"), h.session("b")
		unblock := h.block(h.domain.mailbox(1), func() { a.query(key) })
		b.query(key)
		b.list("r/a/*", 0)
		h.expect("b: 403 5007 the lease domain is busy", "b: 410 5007 the lease domain is busy")
		unblock()
		h.expect("a: 403 free, 0 waiting")
		if got := testutil.ToFloat64(h.metrics.FailuresTotal.WithLabelValues("list", "LEASE_QUEUE_FULL")); got != 1 {
			t.Errorf("%s: metric %v", name, got)
		}
	}
}

// lease_fanout_jobs_max and L-92: beyond it the family takes no further command until below; expiry pauses too; a command that
// waits too long is answered 5007 (E-10); Cancel and the end of a session are not held up.
func TestPausedFamily(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.FanoutSliceMax, l.LeaseFanoutJobsMax = 1, 2 })
	a, b, c := h.session("a"), h.session("b"), h.session("c")
	a.acquire("r/z/short", "w", 1, 0)
	a.acquire("r/z/held", "w", 30, 0)
	b.acquire("r/z/held", "x", 30, 5, 9)
	c.acquire("r/z/c", "w", 30, 0)
	for i := range 3 {
		h.session(fmt.Sprint(i)).subscribe("r/a/*")
	}
	h.drain()
	a.acquire("r/a/1", "w", 30, 0)
	a.acquire("r/a/2", "w", 30, 0)
	box := h.domain.mailbox(1)
	if box.family.paused() {
		t.Fatal("paused at the bound")
	}
	a.acquire("r/a/3", "w", 30, 0)
	if !box.family.paused() {
		t.Fatal("not paused beyond the bound")
	}
	h.drain()

	// A command waits; nothing but its own deadline moves.
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.query(key)
	}()
	for ok := false; !ok; {
		box.mu.Lock()
		ok = box.waiting.Load() == 1 && h.clock.Pending() > 1 // it set a timer: it waits on the condition
		box.mu.Unlock()
	}
	if !b.cancel(9) {
		t.Error("CANCEL is held up")
	}
	at := moment{h.clock.Now().Add(2 * time.Second), h.clock.Wall()}
	budget := 10
	box.mu.Lock()
	box.family.expire(at, &budget)
	left := len(box.family.leases)
	box.mu.Unlock()
	if left != 6 || budget != 10 {
		t.Errorf("expiry went on: %d leases left", left)
	}
	h.clock.Advance(bounds.CommandDeadlineControlMs*time.Millisecond + 1)
	<-done
	h.expect("b: 400* 9001 cancelled #9", "b: 246 9 outcome 0", "b: 403 5007 the lease domain is busy")

	// A command that waits goes on as soon as the family is below the bound; so does the end of a session.
	var wait sync.WaitGroup
	wait.Add(2)
	go func() { defer wait.Done(); b.query(key) }()
	go func() { defer wait.Done(); c.close() }()
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- h.domain.Run(ctx) }()
	wait.Wait()
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	h.serve()
	got := strings.Join(h.drain(), "\n")
	if !strings.Contains(got, "b: 403 free, 0 waiting") || strings.Count(got, ": 409") != 3*3-1 {
		t.Errorf("after the pause:\n%s", got)
	}
	box.family.verify(t)
}

// E-12: a stopped domain answers LIST with 5006 and everything else with 5007; waiting requests are answered, registrations told.
// AC-I09.
func TestStop(t *testing.T) {
	h := newHarness(t)
	a, b, p := h.session("a"), h.session("b"), h.session("p")
	p.negotiated = false
	a.subscribe("**")
	a.subscribe("r/a/*")
	p.subscribe("**")
	a.acquire(key, "w", 30, 0)
	b.acquire(key, "x", 30, 5, 3)
	a.fill(2)
	first, _ := a.page("**", 1, nil)
	h.drain()
	unblock := h.block(h.domain.mailbox(1), func() { p.query(key) })
	stopped := make(chan struct{})
	go func() { h.domain.Stop(); close(stopped) }()
	for !h.domain.stopped.Load() {
	}
	unblock()
	<-stopped
	h.domain.Stop()
	var frames []string
	for _, f := range h.drain() {
		if !strings.HasPrefix(f, "p: 403") { // it ran before Stop or was refused; the order is open
			frames = append(frames, f)
		}
	}
	if want := []string{"a: 244 4 1 9102 dropped 0 the lease domain was stopped", "a: 244 4 2 9102 dropped 0 the lease domain was stopped",
		"b: 400* 5007 the lease domain was stopped #3"}; strings.Join(frames, "|") != strings.Join(want, "|") {
		t.Errorf("told %v", frames)
	}
	a.acquire(key, "w", 30, 0)
	a.renew(key, "w", 1, 30)
	a.release(key, "w", 1)
	a.query(key)
	a.subscribe("**")
	a.unsubscribe("**")
	a.list("**", 0)
	a.list(key, 0)
	a.listFrom("**", 0, first.Next)
	o := h.sessionIn("o", 5) // a family that appears later
	o.query(key)
	o.list("**", 0)
	const refused = " 5007 the lease domain was stopped"
	h.expect("a: 400"+refused, "a: 401"+refused, "a: 402"+refused, "a: 403"+refused, "a: 407"+refused, "a: 408"+refused,
		"a: 410 5006 inventory unavailable", "a: 410 5006 inventory unavailable", "a: 410 5006 inventory unavailable",
		"o: 403"+refused, "o: 410 5006 inventory unavailable")
	if b.cancel(3) {
		t.Error("cancelled in a stopped domain")
	}
	a.close()
	if h.clock.Pending() != 0 {
		t.Errorf("%d timers are left", h.clock.Pending())
	}
	if got := testutil.ToFloat64(h.metrics.Held); got != 0 {
		t.Errorf("%v held", got)
	}
}

// Run serves deadlines and fan-outs until its context ends and leaves no goroutine (TestMain).
func TestRun(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.FanoutSliceMax = 2 })
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- h.domain.Run(ctx) }()
	told := make(chan string, 64)
	for i := range 5 {
		s := h.session(fmt.Sprint(i))
		s.subscribe("**")
		s.observe = func(text string) { told <- text }
	}
	h.session("a").acquire(key, "w", 1, 0)
	for range 5 {
		<-told
	}
	h.clock.Advance(time.Second + tick)
	for range 5 {
		<-told
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// Invariant 12: after 1,000 calls of a session that uses none of the features, their tables have no memory.
func TestUnusedFeaturesHaveNoState(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.negotiated = false
	for i := range 1000 {
		switch i % 5 {
		case 0:
			a.acquire(key, "w", 30, 0)
		case 1:
			a.query(key)
		case 2:
			a.list("**", 0)
		case 3:
			a.list(key, 0)
		case 4:
			a.release(key, "w", uint64(i/5+1))
		}
	}
	if c := h.domain.Capacities(1, a.number); c != (Capacities{}) {
		t.Errorf("capacities %+v", c)
	}
	f := h.family(1)
	if f.index != nil || f.timeouts != nil || f.fanout.pending != nil || h.domain.snapshots.ended != nil || h.domain.snapshots.sweeper != nil {
		t.Error("a table exists that nobody uses")
	}
	// And the counters see what is used.
	b := h.session("b")
	a.fill(2)
	b.acquire("r0/a0/k0", "x", 30, 5, 4)
	b.page("**", 1, nil)
	if c := h.domain.Capacities(1, b.number); c.Labels != 1 || c.Waiters != 1 || c.Snapshots == 0 {
		t.Errorf("capacities %+v", c)
	}
}

// Invariant 12: a renewal and a query allocate nothing, from the received value to the enqueued reply.
func TestHotPathAllocations(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.acquire(key, "w", 30, 0)
	s := &silent{a}
	renew, err := (&wire.LeaseRenewRequest{Route: "lease://" + key, OwnerID: "w", FencingToken: 1, TTL: 30}).AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	query, err := (&wire.LeaseQueryRequest{Route: "lease://" + key}).AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, request := range map[string]func() dispatch.Outcome{
		"renewal": func() dispatch.Outcome { return h.table.Dispatch(s, renewCall, renew) },
		"query":   func() dispatch.Outcome { return h.table.Dispatch(s, peer.Call{Type: wire.TypeLeaseQuery}, query) },
	} {
		n := testing.AllocsPerRun(200, func() {
			if request() != dispatch.Done {
				t.Fatal(name)
			}
		})
		if n != 0 {
			t.Errorf("%v allocations per %s", n, name)
		}
	}
}
