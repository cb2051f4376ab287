package fitztest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/reference"
)

const coalesce = bounds.ObsCoalesceMs * time.Millisecond

// Scenarios of observer.md section 8 about the steady state (OB-20 to OB-28, OB-40 to OB-46).
func TestObserverSteadyState(t *testing.T) {
	obs(t, "OBS-020", setup{}, func(w *world) {
		o := w.observe(nil).ready().forget()
		w.take("a")
		w.rest(coalesce)
		o.told("added(a)")
		e := o.changes[0].After
		if e.Route != at("a") || e.OwnerID != "w" || e.HolderIncarnation == "" || e.AcquiredAt.IsZero() || e.Remaining <= 0 || e.Renewals != 0 {
			w.Errorf("%+v", e)
		}
	})
	obs(t, "OBS-021", setup{}, func(w *world) {
		w.take("a", "b")
		o := w.observe(nil).ready().forget()
		w.free("a")
		w.rest(coalesce)
		o.told("removed(a)")
		o.agrees()
	})
	obs(t, "OBS-022", setup{}, func(w *world) {
		w.takeAs(w.holder, "a", 2)
		o := w.observe(nil).ready().forget()
		w.rest(2*time.Second - time.Millisecond)
		o.told("")
		w.rest(time.Millisecond + bounds.LeaseExpiryLagMs*time.Millisecond + coalesce)
		o.told("removed(a)")
	})
	obs(t, "OBS-023", setup{}, func(w *world) {
		other := w.broker.Holder()
		for _, name := range []string{"d", "b", "e", "a", "c"} {
			w.takeAs(other, name, 3600)
		}
		o := w.observe(nil).ready().forget()
		_ = other.Close()
		w.rest(coalesce)
		o.told("removed(a) removed(b) removed(c) removed(d) removed(e)")
	})
	obs(t, "OBS-024", setup{}, func(w *world) {
		w.take("a")
		other := w.broker.Holder()
		go func() {
			_, err := other.LeaseAcquire(context.Background(), &wire.LeaseAcquireRequest{Route: at("a"), OwnerID: "next", TTL: 3600, Wait: bounds.LeaseWaitSecsMax})
			if err != nil {
				w.Errorf("waiter: %v", err)
			}
		}()
		o := w.observe(nil).ready().forget()
		w.free("a")
		w.rest(coalesce)
		o.told("changed(a)")
		if c := o.changes[0]; c.Before.OwnerID != "w" || c.After.OwnerID != "next" || c.Before.HolderIncarnation == c.After.HolderIncarnation {
			w.Errorf("%+v", c)
		}
		w.rest(5 * time.Minute)
		o.told("changed(a)")
	})
	for _, include := range []bool{false, true} {
		obs(t, fmt.Sprintf("OBS-025/include_renewals=%v", include), setup{}, func(w *world) {
			w.take("a")
			o := w.observe(&fitz.ObserveOptions{IncludeRenewals: include}).ready().forget()
			before, _ := o.Snapshot()
			for range 3 {
				w.renew("a")
			}
			w.rest(time.Second)
			if w.lists() != 1 {
				w.Errorf("%d LIST after renewals", w.lists())
			}
			w.rest(time.Minute)
			after, _ := o.Snapshot()
			e, _ := after.Get(at("a"))
			if e.Renewals != 3 || after.Version != before.Version+1 || o.Status().DriftFound != 0 {
				w.Errorf("%+v, version %d after %d", e, after.Version, before.Version)
			}
			o.told(map[bool]string{true: "changed(a)"}[include])
		})
	}
	obs(t, "OBS-026", setup{}, func(w *world) {
		o := w.observe(nil).ready().forget()
		rule := w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
		w.take("x")
		_ = rule.Await(w.Context(), 1)
		w.free("x")
		w.rest(time.Second)
		if s := o.Status(); s.Repairs != 0 || w.lists() != 2 {
			w.Errorf("OB-22: %d LIST, %+v", w.lists(), s)
		}
		rule.Remove()
		w.rest(coalesce)
		if s := o.Status(); s.Repairs != 2 {
			w.Errorf("%+v", s)
		}
		o.told("added(x) removed(x)")
		o.agrees()
	})
	obs(t, "OBS-027", setup{}, func(w *world) {
		o := w.observe(nil).ready().forget()
		for i := range 10 {
			if i%2 == 0 {
				w.take("x")
			} else {
				w.free("x")
			}
			time.Sleep(2 * time.Millisecond)
		}
		w.rest(coalesce)
		if s := o.Status(); s.Repairs != 1 || s.Notifications != 10 {
			w.Errorf("%+v", s)
		}
		o.told("")
		o.agrees()
	})
	obs(t, "OBS-028", setup{}, func(w *world) {
		all, one := w.observeAt("lease://acme/**", nil).ready(), w.observe(nil).ready()
		w.take("a")
		w.rest(coalesce)
		all.shows("a")
		one.shows("a")
		_ = one.Close()
		w.take("b")
		w.rest(coalesce)
		all.shows("a b")
		one.shows("a")
	})
	obs(t, "OBS-030", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		w.net.Drop(once(toClient(wire.TypeLeaseNotify)))
		w.take("b")
		w.rest(59 * time.Second)
		o.told("")
		w.rest(time.Second)
		o.told("added(b)")
		if s := o.is(fitz.ObserverReady, ""); s.DriftFound != 1 || s.Passes != 2 {
			w.Errorf("OB-26: %+v", s)
		}
		w.take("c") // notified, so that the next pass finds no drift
		w.rest(2 * time.Minute)
		if s := o.Status(); s.DriftFound != 1 || s.Passes != 4 {
			w.Errorf("OB-26: %+v", s)
		}
		w.net.Drop(once(toClient(wire.TypeLeaseNotify)))
		w.free("c") // notified once, but that was before the last pass
		w.rest(time.Minute)
		if s := o.Status(); s.DriftFound != 2 {
			w.Errorf("OB-26: %+v", s)
		}
	})
	obs(t, "OBS-033", setup{}, func(w *world) {
		o := w.observe(nil).ready().forget()
		w.net.Edit(once(toClient(wire.TypeLeaseList)), refusal(wire.CodeLeaseQueueFull))
		begin := time.Now()
		w.take("x")
		w.rest(coalesce + 100*time.Millisecond)
		if s := o.is(fitz.ObserverReady, ""); !isCode(s.LastError, fitz.CodeLeaseQueueFull) || s.Repairs != 0 {
			w.Errorf("%+v", s)
		}
		w.rest(time.Second)
		o.told("added(x)")
		if d := o.times[0].Sub(begin); d != coalesce+187500*time.Microsecond {
			w.Errorf("OB-43: repaired after %v", d)
		}
	})
	obs(t, "OBS-064", setup{tcp: true, broker: []fitztest.Option{fitztest.WithLimits(func(l *bounds.Limits) {
		l.SessionNotifyFramesMax, l.SessionNotifyBytesMax = 1<<20, 1<<30
	})}}, func(w *world) {
		o := w.observe(&fitz.ObserveOptions{Coalesce: time.Second}).ready().forget()
		before := w.lists()
		for i := range bounds.ObsDirtyMax + 10 {
			w.take(fmt.Sprintf("r%05d", i))
		}
		w.rest(time.Second)
		if s := o.is(fitz.ObserverReady, ""); s.Repairs != 0 || s.Passes != 2 || s.Generation != 1 {
			w.Errorf("OB-24: %+v", s)
		}
		if pages := (bounds.ObsDirtyMax+10)/bounds.LeaseListPageDefault + 1; w.lists()-before != pages {
			w.Errorf("%d LIST, want %d pages", w.lists()-before, pages)
		}
		o.agrees()
	})
	obs(t, "OB-25", setup{labels: true}, func(w *world) {
		// While a periodic pass is being read, changes are repaired against the view.
		w.take("a", "b", "c")
		o := w.observe(&fitz.ObserveOptions{PageSize: 1}).ready().forget()
		rule := w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
		go func() { _ = o.Refresh(context.Background()) }()
		_ = rule.Await(w.Context(), 1)
		w.take("d")
		w.free("a")
		w.rest(coalesce)
		o.told("removed(a) added(d)")
		if s := o.is(fitz.ObserverReady, ""); s.Passes != 1 || s.Repairs != 2 {
			w.Errorf("%+v", s)
		}
		rule.Remove()
		w.rest(time.Second)
		o.told("removed(a) added(d)") // the older snapshot changes nothing of it (OB-28)
		if s := o.Status(); s.Passes != 2 {
			w.Errorf("%+v", s)
		}
		o.agrees()
	})
	obs(t, "OB-27", setup{labels: true}, func(w *world) {
		// A repair that is in flight at the freeze was sent after the snapshot: the installation waits for it, and repairs of what is
		// notified meanwhile wait for the installation (OB-15).
		w.take("a")
		o := w.observe(nil).ready().forget()
		page, repair := w.net.HoldAlone(once(toClient(wire.TypeLeaseList))), w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
		go func() { _ = o.Refresh(context.Background()) }()
		_ = page.Await(w.Context(), 1)
		w.take("x")
		_ = repair.Await(w.Context(), 1)
		page.Remove()
		synctest.Wait()
		w.take("y")
		lists := w.lists()
		w.rest(time.Second)
		if s := o.Status(); s.Passes != 1 || w.lists() != lists {
			w.Errorf("installed before the repair was answered, or repaired on: %d LIST, %+v", w.lists()-lists, s)
		}
		o.told("")
		repair.Remove()
		o.told("added(x)")
		w.rest(coalesce)
		o.told("added(x) added(y)")
		o.agrees()
	})
	obs(t, "OB-28", setup{labels: true}, func(w *world) {
		// The answer to a repair that was sent before a pass comes after its installation: the pass knows better.
		o := w.observe(nil).ready().forget()
		repair := w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
		w.take("x")
		_ = repair.Await(w.Context(), 1)
		w.free("x")
		w.rest(2 * time.Millisecond) // so that the next acquisition has another time
		w.take("x")
		synctest.Wait() // the pass begins after the notification, so that it does not wait for the repair
		begin := time.Now()
		if err := o.Refresh(w.Context()); err != nil || !time.Now().Equal(begin) {
			w.Errorf("refresh: %v after %v", err, time.Since(begin))
		}
		o.told("added(x)")
		repair.Remove()
		w.rest(time.Second)
		o.told("added(x)")
		o.agrees()
	})
	obs(t, "OB-52", setup{}, func(w *world) {
		w.takeAs(w.holder, "a", 100)
		o := w.observe(nil).ready()
		w.rest(10 * time.Second)
		w.take("b")
		w.rest(coalesce)
		s, _ := o.Snapshot()
		if e, _ := s.Get(at("a")); e.Remaining > 90*time.Second || e.Remaining < 88*time.Second {
			w.Errorf("remaining %v at %v", e.Remaining, s.TakenAt)
		}
	})
}

// OBS-031: the rows of section 6. The time between two full passes is within the range that the document gives, at both ends of the jitter.
func TestObserverIntervals(t *testing.T) {
	rows := reference.Rows(t, intervals)
	if len(rows) < 8 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, row := range rows {
		for _, end := range []struct {
			random float64
			want   time.Duration
		}{{0, row.Earliest}, {0.5, row.Interval}, {1 - 1e-12, row.Latest}} {
			t.Run(fmt.Sprintf("OBS-031/%v_%v_%v/%v", row.ExpectedTTL, row.Min, row.Max, end.random), func(t *testing.T) {
				s := setup{client: []fitz.Option{fitz.WithRandom(func() float64 { return end.random })}}
				inWorld(t, s, true, func(w *world) {
					o := w.observe(&fitz.ObserveOptions{ExpectedTTL: row.ExpectedTTL, ReconcileMin: row.Min, ReconcileMax: row.Max}).ready()
					begin := time.Now()
					if err := w.net.Await(w.Context(), fitztest.ToBroker, wire.TypeLeaseList, 2); err != nil {
						w.Fatal(err)
					}
					synctest.Wait()
					if d := time.Since(begin); d < end.want-time.Millisecond || d > end.want+time.Millisecond || o.Status().Passes != 2 {
						w.Errorf("OB-40, OB-41: next pass after %v, want %v", d, end.want)
					}
				})
			})
		}
	}
}

// OBS-094: steps of the time of day change nothing.
func TestObserverIgnoresWallClock(t *testing.T) {
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t, fitztest.WithManualClock(start))
		c := b.Connect()
		o, err := c.Lease().Observe(selector, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, step := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
			b.SetWall(start.Add(step))
			b.Advance(time.Second)
			synctest.Wait()
		}
		if s := o.Status(); s.State != fitz.ObserverReady || s.Passes != 1 {
			t.Errorf("%+v", s)
		}
		b.Advance(2 * time.Minute) // the clock of deadlines does
		synctest.Wait()
		if s := o.Status(); s.Passes != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Cost follows changes: many watchers of a large inventory under many changes ask for what has changed, and list everything at the
// reconcile interval only.
func TestObserverCost(t *testing.T) {
	const (
		watchers  = 50
		leases    = 10_000
		perSecond = 1000
		seconds   = 1
		routes    = 250 // that change
	)
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		w := &world{T: t, broker: b, net: b.Network(), tokens: map[string]uint64{}}
		for block := range leases / 1000 {
			w.holder = b.Holder()
			for i := range 1000 {
				w.take(fmt.Sprintf("r%05d", block*1000+i))
			}
		}
		var observers []*fitz.InventoryObserver
		for i := range watchers {
			if i%5 == 0 { // several on one client share a registration (OB-18)
				w.client = b.Connect()
			}
			o, err := w.client.Lease().Observe(selector, &fitz.ObserveOptions{PageSize: bounds.LeaseListPageMax})
			if err != nil {
				t.Fatal(err)
			}
			observers = append(observers, o)
		}
		for _, o := range observers {
			if err := o.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		pages := leases / bounds.LeaseListPageMax
		if n := w.lists(); n > watchers*(pages+1) {
			t.Fatalf("%d LIST to bootstrap %d watchers of %d pages", n, watchers, pages)
		}
		before := w.lists()
		base := leases - routes
		for i := range perSecond * seconds {
			name := fmt.Sprintf("r%05d", base+i/2%routes)
			if i%2 == 0 {
				w.free(name)
			} else {
				w.take(name)
			}
			time.Sleep(time.Second / perSecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		passes, repairs := uint64(0), uint64(0)
		for _, o := range observers {
			s := o.Status()
			passes, repairs = passes+s.Passes, repairs+s.Repairs
			if snapshot, _ := o.Snapshot(); s.State != fitz.ObserverReady || snapshot.Len() != leases {
				t.Errorf("%d leases, %+v", snapshot.Len(), s)
			}
		}
		asked := w.lists() - before
		if changes := perSecond * seconds; asked > watchers*changes {
			t.Errorf("%d LIST for %d changes seen by %d watchers", asked, changes, watchers)
		}
		if passes != watchers {
			t.Errorf("%d full passes within one reconcile interval, want the %d of the bootstrap", passes, watchers)
		}
		if uint64(asked) != repairs {
			t.Errorf("%d LIST, but %d repairs", asked, repairs)
		}
		before = w.lists()
		time.Sleep(74 * time.Second) // one interval with the longest jitter, and less than two with the shortest
		synctest.Wait()
		again := uint64(0)
		for _, o := range observers {
			again += o.Status().Passes
		}
		if again != 2*watchers || w.lists()-before > watchers*(pages+1) {
			t.Errorf("at rest for one reconcile interval: %d full passes and %d LIST, want %d passes of %d pages", again-passes, w.lists()-before, watchers, pages)
		}
		t.Logf("%d watchers, %d changes: %d exact LISTs, %d full passes", watchers, perSecond*seconds, asked, passes)
	})
}
