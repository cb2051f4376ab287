package lease

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

const key = "r/a/k"

// ACQUIRE, L-20 to L-26.
// AC-I04.
func TestAcquireTable(t *testing.T) {
	t.Run("L-20 granted and notified, reply first", func(t *testing.T) {
		h := newHarness(t)
		a := h.session("a")
		a.subscribe(key)
		a.acquire(key, "w1", 30, 0)
		h.expect("a: 407 id 1", "a: 400 kind 0 token 1", "a: 409 1 r/a/k")
		reply, _ := a.page(key, 0, nil)
		want := wire.LeaseItem{
			Route: "lease://r/a/k", OwnerID: "w1", HolderIncarnation: a.Incarnation(),
			AcquiredAt: "2030-01-02T03:04:05.678Z", ExpiresIn: 30,
		}
		if len(reply.Items) != 1 || reply.Items[0] != want {
			t.Errorf("item %+v, want %+v", reply.Items, want)
		}
		h.family(1).verify(t)
	})
	t.Run("L-21 a bound reached", func(t *testing.T) {
		h := newHarness(t, func(l *bounds.Limits) { l.LeasesPerSessionMax = 1 })
		a := h.session("a")
		a.subscribe("**")
		a.acquire("r/a/1", "w1", 30, 0)
		h.drain()
		a.acquire("r/a/2", "w1", 30, 0)
		h.expect("a: 400 5007 lease limit")
		a.query("r/a/2")
		h.expect("a: 403 free, 0 waiting")
	})
	t.Run("L-22 already held", func(t *testing.T) {
		h := newHarness(t)
		a := h.session("a")
		a.subscribe("**")
		a.acquire(key, "w1", 30, 0)
		h.drain()
		h.pass(10 * time.Second)
		a.acquire(key, "w1", 3000, 5)
		h.expect("a: 400 kind 1 token 1") // no NOTIFY
		a.query(key)
		h.expect(`a: 403 held by "w1" for 20, 0 waiting`) // ttl not touched
	})
	t.Run("L-23 other owner, no wait", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		h.drain()
		b.acquire(key, "w1", 30, 0)                                            // L-11: the same text on another session is another owner
		a.acquire(key, "w2", 30, 0)                                            // and so is another text on the same session
		h.expect("b: 400 5001 HeldByOther: w1", "a: 400 5001 HeldByOther: w1") // L-12: the logical owner
	})
	t.Run("L-24 joins its waiter", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 10, 5)
		h.drain()
		h.pass(2 * time.Second)
		b.acquire(key, "w2", 99, 30) // its deadline and ttl stay
		h.expect("b: 400 kind 3 token 2")
		b.query(key)
		h.expect(`b: 403 held by "w1" for 28, 1 waiting`)
		a.release(key, "w1", 1)
		h.expect("a: 402 ok", "b: 400* kind 0 token 2")
		b.query(key)
		h.expect(`b: 403 held by "w2" for 10, 0 waiting`)
		b.acquire("r/a/z", "x", 1, 0)
		h.expect("b: 400 kind 0 token 3") // L-49: joining takes no token
	})
	t.Run("L-24 the deadline stays", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 300, 0)
		b.acquire(key, "w2", 10, 5)
		b.acquire(key, "w2", 10, 30)
		h.drain()
		h.pass(5*time.Second + tick)
		h.expect("b: 400* 5006 Timeout") // once, unlabelled (L-33)
	})
	t.Run("L-24 too many labels", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		for label := range uint64(bounds.LeaseWaiterLabelsMax) {
			b.acquire(key, "w2", 10, 5, label+1)
		}
		h.drain()
		b.acquire(key, "w2", 10, 5, 99)
		h.expect("b: 400 5008 too many requests joined this waiter #99")
		b.acquire(key, "w2", 10, 5) // one for all unlabelled requests, however many
		b.acquire(key, "w2", 10, 5)
		h.expect("b: 400 kind 3 token 2", "b: 400 kind 3 token 2")
		h.family(1).verify(t)
	})
	t.Run("L-25 a waiter bound reached", func(t *testing.T) {
		h := newHarness(t, func(l *bounds.Limits) { l.LeaseWaitersPerKeyMax = 2 })
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "x1", 30, 5)
		b.acquire(key, "x2", 30, 5)
		h.drain()
		b.acquire(key, "x3", 30, 5)
		h.expect("b: 400 5007 QueueFull: 2 pending")
	})
	t.Run("L-26 queued", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.subscribe("**")
		a.acquire(key, "w1", 30, 0)
		h.drain()
		b.acquire(key, "w2", 30, 5)
		h.expect("b: 400 kind 2 token 2") // L-34: no NOTIFY
	})
}

// Steps 1 to 6 are decided before the domain: by the generated dispatch with the bounds in force.
// AC-P02.
func TestAcquireChecksBeforeTheDomain(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.LeaseTTLSecsMax = 60 })
	a := h.session("a")
	a.acquire(key, "held", 30, 0)
	h.drain()
	send := func(req wire.LeaseAcquireRequest) string {
		limits := bounds.Default()
		encoded, err := req.AppendValueWithin(nil, &limits)
		if err != nil {
			// The encoder refuses what the test wants to send: build it by hand.
			encoded = nil
			for _, text := range []string{req.Route, req.OwnerID} {
				encoded = append(encoded, 0, 0, byte(len(text)>>8), byte(len(text)))
				encoded = append(encoded, text...)
			}
			encoded = append(encoded, 0, 0, 0, 0, 0, 0, byte(req.TTL>>8), byte(req.TTL), 0, 0, 0, byte(req.Wait))
		}
		a.raw(wire.TypeLeaseAcquire, 0, encoded)
		return strings.Join(h.drain(), "; ")
	}
	long := strings.Repeat("o", bounds.LeaseOwnerBytesMax+1)
	for _, c := range []struct {
		req  wire.LeaseAcquireRequest
		want string
	}{
		{wire.LeaseAcquireRequest{Route: "lease://r/a/*", OwnerID: long}, "a: 400 5008 wildcard_not_allowed"},
		{wire.LeaseAcquireRequest{Route: "lease://r/a/n", OwnerID: long, Wait: 31}, "a: 400 5008 owner id too long"},
		{wire.LeaseAcquireRequest{Route: "lease://r/a/n", OwnerID: "w", TTL: 0, Wait: 31}, "a: 400 5008 ttl out of range"},
		{wire.LeaseAcquireRequest{Route: "lease://r/a/n", OwnerID: "w", TTL: 61}, "a: 400 5008 ttl out of range"},
		{wire.LeaseAcquireRequest{Route: "lease://r/a/n", OwnerID: "w", TTL: 1, Wait: 31}, "a: 400 5008 wait out of range"},
		{wire.LeaseAcquireRequest{Route: "lease://r/a/n", OwnerID: long[1:], TTL: 60, Wait: 30}, "a: 400 kind 0 token 2"},
		{wire.LeaseAcquireRequest{Route: "lease://r/a/m", OwnerID: "", TTL: 1}, "a: 400 kind 0 token 3"}, // L-10: may be empty
	} {
		if got := send(c.req); !strings.HasPrefix(got, c.want) {
			t.Errorf("%.40s…: %s, want %s", c.req.Route, got, c.want)
		}
	}
}

// Step 7: waiters come before the newcomer, and what is applied on the way comes before the reply (W-45).
func TestAcquireAppliesWhatIsDueFirst(t *testing.T) {
	h := newHarness(t)
	a, b, c := h.session("a"), h.session("b"), h.session("c")
	c.subscribe("**")
	a.acquire(key, "w1", 2, 0)
	b.acquire(key, "w2", 30, 10)
	h.drain()
	h.clock.Advance(2 * time.Second) // nothing was swept
	c.acquire(key, "w3", 30, 0)
	h.expect(
		"c: 409 1 r/a/k",              // the expiry
		"b: 400* kind 0 token 2",      // the deferred grant it triggers
		"c: 409 1 r/a/k",              // and its NOTIFY
		"c: 400 5001 HeldByOther: w2", // then the reply
	)
	h.family(1).verify(t)
}

// Waiters and deferred replies, L-30 to L-36.
// Clauses: W-42.
func TestWaitersAreServedInOrder(t *testing.T) { // L-30
	h := newHarness(t)
	a := h.session("a")
	a.acquire(key, "w0", 30, 0)
	for i := range 5 {
		a.acquire(key, fmt.Sprintf("w%d", i+1), 30, 30)
	}
	a.query(key)
	h.expect("a: 400 kind 0 token 1", "a: 400 kind 2 token 2", "a: 400 kind 2 token 3", "a: 400 kind 2 token 4",
		"a: 400 kind 2 token 5", "a: 400 kind 2 token 6", `a: 403 held by "w0" for 30, 5 waiting`) // L-35
	for i := range 5 {
		a.release(key, fmt.Sprintf("w%d", i), uint64(i+1))
		h.expect("a: 402 ok", fmt.Sprintf("a: 400* kind 0 token %d", i+2)) // the token of kind 2
	}
	a.release(key, "w5", 6)
	a.query(key)
	h.expect("a: 402 ok", "a: 403 free, 0 waiting")
	h.family(1).verify(t)
}

// L-31: every fate of a waiter at the moment the key becomes free.
func TestAdvance(t *testing.T) {
	t.Run("skips waiters of closed sessions", func(t *testing.T) {
		h := newHarness(t)
		a, b, c := h.session("a"), h.session("b"), h.session("c")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 30, 30)
		c.acquire(key, "w3", 30, 30)
		b.close()
		h.drain()
		a.release(key, "w1", 1)
		h.expect("a: 402 ok", "c: 400* kind 0 token 3")
		h.family(1).verify(t)
	})
	t.Run("a deadline that has passed is answered 5006", func(t *testing.T) {
		h := newHarness(t)
		a, b, c := h.session("a"), h.session("b"), h.session("c")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 30, 2)
		c.acquire(key, "w3", 30, 20)
		h.drain()
		h.clock.Advance(3 * time.Second)
		a.release(key, "w1", 1)
		h.expect("b: 400* 5006 Timeout", "a: 402 ok", "c: 400* kind 0 token 3")
		h.family(1).verify(t)
	})
	t.Run("L-36 at exactly the deadline it has timed out", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 5, 0)
		b.acquire(key, "w2", 30, 5)
		h.drain()
		h.clock.Advance(5*time.Second - 1)
		b.query(key)
		h.expect(`b: 403 held by "w1" for 0, 1 waiting`) // L-19: a held lease may show 0
		h.pass(1)
		h.expect("b: 400* 5006 Timeout")
		b.query(key)
		h.expect("b: 403 free, 0 waiting")
	})
	t.Run("one nanosecond before its deadline it is granted", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 30, 5)
		h.drain()
		h.clock.Advance(5*time.Second - 1)
		a.release(key, "w1", 1)
		h.expect("a: 402 ok", "b: 400* kind 0 token 2")
		b.query(key)
		h.expect(`b: 403 held by "w2" for 30, 0 waiting`) // expiry now + its ttl
	})
	t.Run("a session at its lease bound is answered 5007", func(t *testing.T) {
		h := newHarness(t, func(l *bounds.Limits) { l.LeasesPerSessionMax = 1 })
		a, b, c := h.session("a"), h.session("b"), h.session("c")
		a.acquire(key, "w1", 30, 0)
		b.acquire("r/a/other", "w2", 30, 0)
		b.acquire(key, "w2", 30, 5)
		c.acquire(key, "w3", 30, 5)
		h.drain()
		a.release(key, "w1", 1)
		h.expect("a: 402 ok", "b: 400* 5007 lease limit", "c: 400* kind 0 token 4")
		h.family(1).verify(t)
	})
	t.Run("a session at its byte bound is answered 5007", func(t *testing.T) {
		h := newHarness(t, func(l *bounds.Limits) { l.LeaseSessionBytesMax = 1400 })
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire("r/a/2", strings.Repeat("y", 40), 30, 0)
		b.acquire("r/a/3", strings.Repeat("y", 40), 30, 0)
		b.acquire(key, strings.Repeat("x", 400), 30, 5) // fits as a waiter, not as a lease
		h.expect("a: 400 kind 0 token 1", "b: 400 kind 0 token 2", "b: 400 kind 0 token 3", "b: 400 kind 2 token 4")
		a.release(key, "w1", 1)
		h.expect("a: 402 ok", "b: 400* 5007 lease limit")
		h.family(1).verify(t)
	})
	t.Run("stops at the first grant", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 30, 5)
		b.acquire(key, "w3", 30, 5)
		h.drain()
		a.release(key, "w1", 1)
		h.expect("a: 402 ok", "b: 400* kind 0 token 2")
		b.query(key)
		h.expect(`b: 403 held by "w2" for 30, 1 waiting`)
	})
	t.Run("acquired_at is the moment of the grant", func(t *testing.T) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 30, 5)
		h.pass(3 * time.Second)
		a.release(key, "w1", 1)
		reply, _ := b.page(key, 0, nil)
		if got := reply.Items[0]; got.AcquiredAt != "2030-01-02T03:04:08.678Z" || got.Renewals != 0 || got.HolderIncarnation != b.Incarnation() {
			t.Errorf("item %+v", got)
		}
	})
}

// L-32, L-33: one deferred reply per joined labelled request with its label, and one unlabelled if any was unlabelled.
// Clauses: W-51.
func TestDeferredRepliesPerLabel(t *testing.T) {
	setup := func() (*harness, *fakeSession, *fakeSession) {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 30, 0)
		b.acquire(key, "w2", 30, 5, 7)
		b.acquire(key, "w2", 30, 5)
		b.acquire(key, "w2", 30, 5, 9)
		b.acquire(key, "w2", 30, 5)
		h.expect("a: 400 kind 0 token 1", "b: 400 kind 2 token 2 #7", "b: 400 kind 3 token 2",
			"b: 400 kind 3 token 2 #9", "b: 400 kind 3 token 2")
		return h, a, b
	}
	h, a, _ := setup()
	a.release(key, "w1", 1)
	h.expect("a: 402 ok", "b: 400* kind 0 token 2 #7", "b: 400* kind 0 token 2 #9", "b: 400* kind 0 token 2")
	h.family(1).verify(t)

	h, _, _ = setup()
	h.pass(5*time.Second + tick)
	h.expect("b: 400* 5006 Timeout #7", "b: 400* 5006 Timeout #9", "b: 400* 5006 Timeout")
	h.family(1).verify(t)
}

// L-34: creation, joining, removal and timeout of waiters cause no NOTIFY and never appear in LIST.
// AC-I02, AC-S03.
func TestWaitersAreInvisible(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.acquire(key, "w1", 300, 0)
	a.subscribe("**")
	h.drain()
	b.acquire(key, "w2", 30, 5, 1)
	b.acquire(key, "w2", 30, 5, 2)
	b.acquire(key, "w3", 30, 5)
	b.acquire(key, "w4", 30, 5, 3)
	if !b.cancel(3) {
		t.Error("not cancelled")
	}
	if got := b.collect("**", 0); len(got) != 1 {
		t.Errorf("LIST shows %v", got)
	}
	h.pass(6 * time.Second)
	b.close()
	for _, f := range h.drain() {
		if strings.HasPrefix(f, "a: ") {
			t.Errorf("a was told: %s", f)
		}
	}
}

// RENEW, RELEASE and QUERY, L-40 to L-44, as a table: rows are states, columns the requests of the owner or of somebody else.
func TestRenewReleaseQueryTable(t *testing.T) {
	type state struct {
		name  string
		setup func(h *harness, a *fakeSession)
		by    string // who asks: a holds as w1 with token 1
		owner string
		token uint64

		renew, release, query []string
	}
	hold := func(h *harness, a *fakeSession) { a.acquire(key, "w1", 30, 0) }
	expired := func(h *harness, a *fakeSession) {
		a.acquire(key, "w1", 2, 0)
		h.clock.Advance(2 * time.Second)
	}
	notify := "s: 409 1 r/a/k"
	for _, c := range []state{
		{name: "L-40 not held", setup: func(*harness, *fakeSession) {}, by: "a", owner: "w1", token: 1,
			renew: []string{"a: 401 5004 NotHeld"}, release: []string{"a: 402 ok"}, query: []string{"a: 403 free, 0 waiting"}},
		{name: "L-41 expired, asked by its owner", setup: expired, by: "a", owner: "w1", token: 1,
			renew: []string{notify, "a: 401 5003 Expired"}, release: []string{notify, "a: 402 ok"}, query: []string{notify, "a: 403 free, 0 waiting"}},
		{name: "L-41 expired, asked by anyone", setup: expired, by: "b", owner: "x", token: 99,
			renew: []string{notify, "b: 401 5003 Expired"}, release: []string{notify, "b: 402 ok"}, query: []string{notify, "b: 403 free, 0 waiting"}},
		{name: "L-42 other session", setup: hold, by: "b", owner: "w1", token: 1,
			renew: []string{"b: 401 5004 NotHeld"}, release: []string{"b: 402 5004 NotHeld"}, query: []string{`b: 403 held by "w1" for 30, 0 waiting`}},
		{name: "L-42 other owner of the session", setup: hold, by: "a", owner: "w2", token: 1,
			renew: []string{"a: 401 5004 NotHeld"}, release: []string{"a: 402 5004 NotHeld"}, query: []string{`a: 403 held by "w1" for 30, 0 waiting`}},
		{name: "L-43 wrong token", setup: hold, by: "a", owner: "w1", token: 2,
			renew: []string{"a: 401 5002 Fenced"}, release: []string{"a: 402 5002 Fenced"}, query: []string{`a: 403 held by "w1" for 30, 0 waiting`}},
		{name: "L-44 owner", setup: hold, by: "a", owner: "w1", token: 1,
			renew: []string{"a: 401 token 1"}, release: []string{"a: 402 ok", notify}, query: []string{`a: 403 held by "w1" for 30, 0 waiting`}},
	} {
		for _, column := range []struct {
			name string
			ask  func(*fakeSession)
			want []string
		}{
			{"RENEW", func(s *fakeSession) { s.renew(key, c.owner, c.token, 60) }, c.renew},
			{"RELEASE", func(s *fakeSession) { s.release(key, c.owner, c.token) }, c.release},
			{"QUERY", func(s *fakeSession) { s.query(key) }, c.query},
		} {
			t.Run(c.name+" "+column.name, func(t *testing.T) {
				h := newHarness(t)
				by := map[string]*fakeSession{"a": h.session("a"), "b": h.session("b")}
				h.session("s").subscribe("**")
				c.setup(h, by["a"])
				h.drain()
				column.ask(by[c.by])
				h.expect(column.want...)
				h.family(1).verify(t)
			})
		}
	}
}

// L-41 with a waiter: the new state is that of the waiter's grant.
func TestExpiredUnsweptWithWaiter(t *testing.T) {
	for name, ask := range map[string]func(*fakeSession){
		"a: 401 5003 Expired":                  func(a *fakeSession) { a.renew(key, "w1", 1, 30) },
		"a: 402 ok":                            func(a *fakeSession) { a.release(key, "w1", 1) },
		`a: 403 held by "w2" for 9, 0 waiting`: func(a *fakeSession) { a.query(key) },
	} {
		h := newHarness(t)
		a, b := h.session("a"), h.session("b")
		a.acquire(key, "w1", 2, 0)
		b.acquire(key, "w2", 9, 30)
		h.drain()
		h.clock.Advance(2 * time.Second)
		ask(a)
		h.expect("b: 400* kind 0 token 2", name)
	}
}

// L-44: the deadline is replaced and may shorten; renewals count and stay at their largest value; the token stays (L-46).
// AC-S04.
func TestRenewReplacesTheDeadline(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.subscribe("**")
	a.acquire(key, "w1", 30, 0)
	a.renew(key, "w1", 1, 3600)
	a.query(key)
	a.renew(key, "w1", 1, 2)
	a.query(key)
	h.expect("a: 407 id 1", "a: 400 kind 0 token 1", "a: 409 1 r/a/k", "a: 401 token 1", `a: 403 held by "w1" for 3600, 0 waiting`,
		"a: 401 token 1", `a: 403 held by "w1" for 2, 0 waiting`)
	h.pass(2*time.Second + tick)
	h.expect("a: 409 1 r/a/k")

	a.acquire(key, "w1", 30, 0)
	l := h.family(1).leases["lease://"+key]
	l.renewals.Store(^uint32(0) - 1)
	for range 3 {
		a.renew(key, "w1", 2, 30)
	}
	if reply, _ := a.page(key, 0, nil); reply.Items[0].Renewals != ^uint32(0) {
		t.Errorf("renewals %d", reply.Items[0].Renewals)
	}
}

// L-15, L-17, L-45: expiry at the deadline, never earlier, within the lag, with NOTIFY and advance; L-14: the wall clock plays no
// part.
func TestExpiry(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	b.subscribe("r/a/*")
	a.acquire(key, "w1", 3, 0)
	b.acquire(key, "w2", 7, 30)
	h.drain()
	h.clock.SetWall(wallStart.Add(24 * time.Hour))
	h.pass(3*time.Second - 1)
	h.expect()
	h.clock.SetWall(wallStart.Add(-24 * time.Hour))
	h.pass(bounds.LeaseExpiryLagMs * time.Millisecond)
	h.expect("b: 409 1 r/a/k", "b: 400* kind 0 token 2", "b: 409 1 r/a/k")
	h.pass(8 * time.Second)
	h.expect("b: 409 1 r/a/k")
	if got := testutil.ToFloat64(h.metrics.ExpiredTotal); got != 2 {
		t.Errorf("%v expired", got)
	}
	if got := testutil.ToFloat64(h.metrics.Held); got != 0 {
		t.Errorf("%v held", got)
	}
	h.family(1).verify(t)
}

// L-16: no command treats an expired lease as held, swept or not.
// AC-I02.
func TestNothingTreatsAnExpiredLeaseAsHeld(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.acquire(key, "w1", 1, 0)
	a.acquire("r/a/2", "w1", 1, 0)
	a.acquire("r/a/3", "w1", 1, 0)
	h.clock.Advance(time.Second)
	h.drain()
	if got := b.collect("**", 0); len(got) != 0 {
		t.Errorf("LIST shows %v", got)
	}
	b.list("r/a/2", 0)
	b.query("r/a/2")
	b.acquire(key, "w2", 30, 0)
	a.acquire("r/a/3", "w1", 30, 0) // not kind 1
	h.expect("b: 410 ", "b: 403 free, 0 waiting", "b: 400 kind 0 token 4", "a: 400 kind 0 token 5")
}

// L-49: one counter for all keys and families, reserved tokens included; exhaustion is refused.
func TestTokens(t *testing.T) {
	h := newHarness(t)
	a, b, other := h.session("a"), h.session("b"), h.sessionIn("o", 2)
	a.acquire(key, "w1", 30, 0)
	other.acquire(key, "w1", 30, 0) // L-02: another universe
	b.acquire(key, "w2", 30, 5)
	a.acquire("r/a/2", "w1", 30, 0)
	h.expect("a: 400 kind 0 token 1", "o: 400 kind 0 token 2", "b: 400 kind 2 token 3", "a: 400 kind 0 token 4")
	h.domain.tokens.Store(^uint64(0) - 1)
	a.acquire("r/a/3", "w1", 30, 0)
	a.acquire("r/a/4", "w1", 30, 0)
	a.acquire(key, "w9", 30, 5)
	h.expect(fmt.Sprintf("a: 400 kind 0 token %d", ^uint64(0)), "a: 400 5007 lease limit", "a: 400 5007 lease limit")
	h.family(1).verify(t)
}

// W-45: reply, NOTIFY frames of the change, deferred grants it triggers, their NOTIFY frames.
func TestOrderOfFrames(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.subscribe("**")
	a.subscribe(key)
	a.acquire(key, "w1", 30, 0)
	a.acquire(key, "w2", 30, 5)
	h.drain()
	a.release(key, "w1", 1)
	h.expect("a: 402 ok", "a: 409 1 r/a/k", "a: 409 2 r/a/k", "a: 400* kind 0 token 2", "a: 409 1 r/a/k", "a: 409 2 r/a/k")
	a.acquire(key, "w3", 30, 5)
	a.renew(key, "w2", 2, 1)
	h.drain()
	h.clock.Advance(time.Second)
	a.query(key)
	h.expect("a: 409 1 r/a/k", "a: 409 2 r/a/k", "a: 400* kind 0 token 3", "a: 409 1 r/a/k", "a: 409 2 r/a/k",
		`a: 403 held by "w3" for 30, 0 waiting`)
}

// L-80: everything of a session ends at once; then NOTIFY and advance per lease in segment order.
// Clauses: W-35, W-36.
// AC-S02.
func TestCloseSession(t *testing.T) {
	h := newHarness(t)
	a, b, s := h.session("a"), h.session("b"), h.session("s")
	for _, path := range []string{"b/a/k", "a.b/a/k", "a/b/k", "a/a/z", "a/a/b"} {
		a.acquire(path, "w", 30, 0)
	}
	a.subscribe("**")
	s.subscribe("**")
	b.acquire("a/a/z", "x", 30, 5)
	b.acquire("q/a/k", "x", 30, 0)
	a.acquire("q/a/k", "w", 30, 5, 4)
	h.drain()
	a.close()
	h.expect(
		"s: 409 2 a/a/b",
		"s: 409 2 a/a/z", "b: 400* kind 0 token 6", "s: 409 2 a/a/z",
		"s: 409 2 a/b/k",
		"s: 409 2 a.b/a/k", // tuple order: "a" before "a.b"
		"s: 409 2 b/a/k",
	)
	b.query("q/a/k")
	h.expect(`b: 403 held by "x" for 30, 0 waiting`)
	if h.family(1).sessions[a.number] != nil {
		t.Error("the session is remembered")
	}
	h.family(1).verify(t)
}

// L-80: the leases of a closed session are free in one step, also while telling about them goes on in slices.
func TestCloseSessionInSlices(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.LeaseExpirySliceMax = 4 })
	a, b, s := h.session("a"), h.session("b"), h.session("s")
	for i := range 10 {
		a.acquire(fmt.Sprintf("r/a/%d", i), "w", 30, 0)
	}
	b.acquire("r/a/8", "x", 30, 5)
	h.drain()
	first, _ := b.page("**", 2, nil)
	box := h.domain.mailbox(1)
	doomed := box.family.closeSession(a.number)
	inSegmentOrder(doomed)
	if box.family.held != 0 || len(doomed) != 10 {
		t.Fatalf("%d held, %d doomed", box.family.held, len(doomed))
	}
	// Between two slices every command sees the leases gone (L-16), and their waiters come first (L-31).
	at := moment{h.clock.Now(), h.clock.Wall()}
	doomed = box.family.bury(doomed, 4, at)
	if got := s.collect("**", 0); len(got) != 0 {
		t.Errorf("LIST shows %v", got)
	}
	s.query("r/a/9")
	s.renew("r/a/5", "w", 6, 30) // L-40, not L-41: it did not expire
	s.release("r/a/6", "x", 1)
	s.acquire("r/a/8", "y", 30, 0)
	s.acquire("r/a/7", "y", 30, 0)
	h.expect("s: 403 free, 0 waiting", "s: 401 5004 NotHeld", "s: 402 ok",
		"b: 400* kind 0 token 11", "s: 400 5001 HeldByOther: x", "s: 400 kind 0 token 12")
	for len(doomed) > 0 {
		doomed = box.family.bury(doomed, 4, at)
	}
	box.family.verify(t)
	// L-53: a listing that began before the close still shows all of them, with nothing left.
	rest, refused := b.page("**", 0, &first)
	if refused != "" || len(rest.Items) != 8 || rest.Items[0].ExpiresIn != 0 {
		t.Errorf("page %v %s", rest.Items, refused)
	}

	// The same through the domain, with more leases than a slice.
	c := h.session("c")
	for i := range 10 {
		c.acquire(fmt.Sprintf("c/a/%d", i), "w", 30, 0)
	}
	s.subscribe("c/**")
	h.drain()
	c.close()
	if got := h.drain(); len(got) != 10 || got[0] != "s: 409 1 c/a/0" || got[9] != "s: 409 1 c/a/9" {
		t.Errorf("told %v", got)
	}
	box.family.verify(t)
}

// L-81: an immediate grant whose reply cannot be enqueued is removed at once: two changes, two NOTIFY.
func TestUndeliverableImmediateGrant(t *testing.T) {
	h := newHarness(t)
	a, s := h.session("a"), h.session("s")
	s.subscribe("**")
	h.drain()
	a.room = 0
	before := h.family(1).sequence
	a.acquire(key, "w1", 30, 0)
	h.expect("s: 409 1 r/a/k", "s: 409 1 r/a/k")
	if got := h.family(1).sequence - before; got != 2 {
		t.Errorf("%d changes", got)
	}
	s.query(key)
	h.expect("s: 403 free, 0 waiting")
	if h.family(1).sessions[a.number] != nil {
		t.Error("the session is remembered")
	}
	h.family(1).verify(t)
}

// L-81: the loop over waiters ends with the first grant that is enqueued.
// AC-S02.
func TestUndeliverableGrantToWaiters(t *testing.T) {
	h := newHarness(t)
	a, b, c, d, s := h.session("a"), h.session("b"), h.session("c"), h.session("d"), h.session("s")
	s.subscribe("**")
	a.acquire(key, "w1", 30, 0)
	b.acquire(key, "w2", 30, 5)
	c.acquire(key, "w3", 30, 5, 5)
	d.acquire(key, "w4", 30, 5)
	d.acquire(key, "w5", 30, 5)
	h.drain()
	b.room, c.room = 0, 0
	before := h.family(1).sequence
	a.release(key, "w1", 1)
	n := "s: 409 1 r/a/k"
	h.expect("a: 402 ok", n, n, n, n, n, "d: 400* kind 0 token 4", n)
	if got := h.family(1).sequence - before; got != 6 {
		t.Errorf("%d changes", got)
	}
	d.query(key)
	h.expect(`d: 403 held by "w4" for 30, 1 waiting`)
	h.family(1).verify(t)

	// And with an empty queue: the key is free.
	d.room = 0
	d.release(key, "w4", 4) // the reply is lost, the release is not
	h.expect(n, n, n)
	s.query(key)
	h.expect("s: 403 free, 0 waiting")
	h.family(1).verify(t)
}

// L-82: a queued reply that cannot be enqueued removes the waiter; so does a label that cannot wait (W-56). A SUBSCRIBE reply
// that cannot be enqueued removes the registration.
func TestUndeliverableQueuedAndSubscribe(t *testing.T) {
	h := newHarness(t)
	a, b, c, d := h.session("a"), h.session("b"), h.session("c"), h.session("d")
	a.acquire(key, "w1", 30, 0)
	b.room = 0
	b.acquire(key, "w2", 30, 5)
	c.labels = 0
	c.acquire(key, "w3", 30, 5, 8)
	d.room = 1
	d.acquire(key, "w4", 30, 5, 1)
	d.acquire(key, "w4", 30, 5, 2) // the joining request cannot be answered
	h.expect("a: 400 kind 0 token 1", "d: 400 kind 2 token 4 #1")
	e := h.session("e")
	e.room = 0
	e.subscribe("**")
	a.query(key)
	a.release(key, "w1", 1)
	h.expect(`a: 403 held by "w1" for 30, 0 waiting`, "a: 402 ok")
	if n := h.family(1).index.Len(); n != 0 {
		t.Errorf("%d registrations", n)
	}
	if n := len(h.family(1).sessions); n != 1 {
		t.Errorf("%d sessions are remembered", n)
	}
	h.family(1).verify(t)
}

// D-8: nothing that is kept aliases the receive buffer. The harness overwrites every buffer when the handler returns; here every
// kept text is read afterwards.
func TestNothingAliasesTheReceiveBuffer(t *testing.T) {
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	a.acquire(key, "holder", 30, 0)
	b.acquire(key, "waiter", 30, 5, 3)
	b.subscribe("r/a/*")
	for i := range 3 {
		a.acquire(fmt.Sprintf("p/a/%d", i), "holder", 30, 0)
	}
	h.drain()
	first, _ := b.page("p/*/*", 1, nil)
	b.subscribe("r/a/*") // found again by its text
	b.acquire(key, "waiter", 30, 5)
	b.query(key)
	h.expect("b: 407 id 1", "b: 400 kind 3 token 2", `b: 403 held by "holder" for 30, 1 waiting`)
	second, refused := b.page("p/*/*", 1, &first) // the selector text and masks of the snapshot
	if refused != "" || len(second.Items) != 1 || second.Items[0].Route != "lease://p/a/1" || second.Items[0].OwnerID != "holder" {
		t.Errorf("page %+v %s", second, refused)
	}
	a.release(key, "holder", 1)
	h.expect("a: 402 ok", "b: 409 1 r/a/k", "b: 400* kind 0 token 2 #3", "b: 400* kind 0 token 2", "b: 409 1 r/a/k")
	b.query(key)
	b.unsubscribe("r/a/*")
	b.release(key, "waiter", 2)
	h.expect(`b: 403 held by "waiter" for 30, 0 waiting`, "b: 408 ok", "b: 402 ok")
}

// L-72: no NOTIFY for anything that does not change the held set.
// AC-S03.
func TestNoNotifyWithoutChange(t *testing.T) {
	h := newHarness(t)
	a, b, s := h.session("a"), h.session("b"), h.session("s")
	s.subscribe("**")
	a.acquire(key, "w1", 30, 0)
	h.drain()
	a.renew(key, "w1", 1, 30)
	a.acquire(key, "w1", 30, 0)
	b.acquire(key, "w2", 30, 5)
	b.acquire(key, "w2", 30, 5)
	b.acquire(key, "w3", 30, 0)
	a.renew(key, "w1", 9, 30)
	a.release(key, "w1", 9)
	b.release("r/a/none", "w1", 9)
	b.query(key)
	h.pass(6 * time.Second)
	for _, f := range h.drain() {
		if strings.HasPrefix(f, "s: ") {
			t.Errorf("told without a change: %s", f)
		}
	}
	// A release followed by a waiter grant is two changes.
	b.acquire(key, "w2", 30, 5)
	h.drain()
	a.release(key, "w1", 1)
	if got := strings.Count(strings.Join(h.drain(), "\n"), "s: 409"); got != 2 {
		t.Errorf("%d NOTIFY", got)
	}
}
