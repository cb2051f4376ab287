package fitztest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Scenarios of observer.md section 8 about bootstrap (OB-10 to OB-17). A subtest has the name of its row.
func TestObserverBootstrap(t *testing.T) {
	obs(t, "OBS-001", setup{}, func(w *world) {
		w.take("c", "a", "b")
		o := w.observe(nil).ready()
		o.shows("a b c")
		s := o.is(fitz.ObserverReady, "")
		if w.subscribes() != 1 || w.lists() != 1 || s.Passes != 1 || s.Repairs != 0 {
			w.Errorf("%d SUBSCRIBE, %d LIST, %+v", w.subscribes(), w.lists(), s)
		}
		o.told("reset(3)")
		snapshot, _ := o.Snapshot()
		if snapshot.Stale || snapshot.Version != 1 || w.labels == (snapshot.BrokerLifetime == "") {
			w.Errorf("%+v", snapshot)
		}
	})
	obs(t, "OBS-002", setup{}, func(w *world) {
		rule := w.net.Hold(toClient(wire.TypeLeaseSubscribe))
		o := w.observe(nil)
		w.rest(3 * time.Second)
		o.is(fitz.ObserverStarting, "")
		if _, ok := o.Snapshot(); ok || w.lists() != 0 {
			w.Errorf("snapshot %v, %d LIST before the success", ok, w.lists())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := o.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			w.Errorf("ready: %v", err)
		}
		rule.Remove()
		o.ready()
	})
	obs(t, "OBS-003", setup{}, func(w *world) {
		rule := w.net.Hold(toClient(wire.TypeLeaseSubscribe))
		o := w.observe(nil)
		_ = rule.Await(w.Context(), 1)
		w.take("x")
		rule.Remove()
		o.ready().shows("x")
		o.told("reset(1)")
	})
	obs(t, "OBS-004", setup{}, func(w *world) {
		rule := w.net.Hold(toBroker(wire.TypeLeaseList))
		o := w.observe(nil)
		_ = rule.Await(w.Context(), 1)
		w.take("x")
		synctest.Wait()
		rule.Remove()
		o.ready().shows("x")
		if s := o.Status(); s.Repairs > 1 {
			w.Errorf("%d repairs", s.Repairs)
		}
	})
	// A change while the request for page 2 is held: its notification comes before the last page.
	secondPage := func(change func(w *world), want string) func(w *world) {
		return func(w *world) {
			w.take("a", "b", "c", "d", "e")
			rule := w.net.HoldAlone(skip(1, toBroker(wire.TypeLeaseList)))
			o := w.observe(&fitz.ObserveOptions{PageSize: 2})
			_ = rule.Await(w.Context(), 1)
			change(w)
			w.rest(time.Second)
			o.is(fitz.ObserverSyncing, "")
			if o.Status().Notifications != 1 {
				w.Errorf("%+v", o.Status())
			}
			rule.Remove()
			o.ready().shows(want)
			if s := o.Status(); s.Repairs != 1 || s.Passes != 1 {
				w.Errorf("%+v", s)
			}
			o.told(fmt.Sprintf("reset(%d)", len(strings.Fields(want))))
		}
	}
	obs(t, "OBS-005", setup{}, secondPage(func(w *world) { w.free("a") }, "b c d e"))
	obs(t, "OBS-006", setup{}, secondPage(func(w *world) { w.take("bb") }, "a b bb c d e"))
	obs(t, "OBS-007", setup{}, secondPage(func(w *world) { w.free("e") }, "a b c d"))
	obs(t, "OBS-008", setup{}, func(w *world) {
		o := w.observe(nil).ready().forget()
		rule := w.net.Hold(toClient(wire.TypeLeaseList))
		begin := time.Now()
		w.take("z")
		_ = rule.Await(w.Context(), 1)
		if d := time.Since(begin); d != bounds.ObsCoalesceMs*time.Millisecond {
			w.Errorf("OB-44: repaired after %v", d)
		}
		if s := o.is(fitz.ObserverReady, ""); !s.Refreshing {
			w.Errorf("%+v", s)
		}
		rule.Remove()
		o.told("added(z)")
		if s := o.is(fitz.ObserverReady, ""); s.Refreshing || s.Repairs != 1 {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OBS-009", setup{}, func(w *world) {
		o := w.observe(nil).ready()
		o.shows("")
		o.told("reset(0)")
	})
	obs(t, "OBS-010", setup{}, func(w *world) {
		w.take("a", "b")
		w.net.Edit(once(toClient(wire.TypeLeaseList)), editList(w.T, func(m *wire.LeaseListReply) {
			*m = wire.LeaseListReply{HasNext: true, Next: wire.LeaseCursor{SnapshotID: 7, Offset: 1}}
		}))
		w.net.Edit(once(skip(1, toBroker(wire.TypeLeaseList))), func(value []byte) []byte { // the broker knows no such cursor
			var m wire.LeaseListRequest
			if err := m.DecodeValue(value); err != nil || !m.HasCursor || m.Cursor.SnapshotID != 7 {
				w.Errorf("asked for %+v, %v", m, err)
			}
			m.HasCursor = false
			value, _ = m.AppendValue(nil)
			return value
		})
		w.observe(nil).ready().shows("a b")
		if w.lists() != 2 {
			w.Errorf("%d LIST", w.lists())
		}
	})
	obs(t, "OBS-011", setup{}, func(w *world) {
		o := w.observeAt(at("a"), nil).ready()
		o.shows("")
		if w.subscribes() != 1 || w.lists() != 1 {
			w.Errorf("%d SUBSCRIBE, %d LIST", w.subscribes(), w.lists())
		}
		w.take("a", "b")
		w.rest(time.Second)
		o.shows("a")
		w.free("a")
		w.rest(time.Second)
		o.shows("")
		o.told("reset(0) added(a) removed(a)")
	})
	obs(t, "OBS-012", setup{tcp: true}, func(w *world) {
		begin := time.Now()
		o := w.observe(nil)
		readyAfter := make(chan time.Duration, 1)
		go func() {
			if err := o.Ready(context.Background()); err != nil {
				w.Errorf("ready: %v", err)
			}
			readyAfter <- time.Since(begin)
		}()
		held := map[int]bool{}
		changes := 10_000
		for i := range changes {
			n := i * 7919 % 200
			name := fmt.Sprintf("r%03d", n)
			if held[n] {
				w.free(name)
			} else {
				w.take(name)
			}
			held[n] = !held[n]
			time.Sleep(time.Millisecond)
		}
		if d := <-readyAfter; d > 5*time.Second {
			w.Errorf("OB-14: ready after %v", d)
		}
		w.rest(3 * time.Second)
		o.agrees()
		if s := o.Status(); w.lists() > changes+int(s.Passes)*10+100 {
			w.Errorf("%d LIST for %d changes, %+v", w.lists(), changes, s)
		}
	})
	obs(t, "OBS-013", setup{}, func(w *world) {
		// Every listing is outrun by more changes than one round repairs.
		outrun := bounds.ObsRepairLimit + 6
		held := false
		var pauses []time.Duration
		var last time.Time
		o := (*watched)(nil)
		for pass := range 4 {
			rule := w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
			if pass == 0 {
				o = w.observe(nil)
			}
			_ = rule.Await(w.Context(), 1)
			if pass > 0 {
				pauses = append(pauses, time.Since(last))
			}
			for i := range outrun {
				name := fmt.Sprintf("r%03d", i)
				if held {
					w.free(name)
				} else {
					w.take(name)
				}
			}
			held = !held
			synctest.Wait()
			last = time.Now()
			before := w.lists()
			rule.Remove()
			if pass == 3 {
				synctest.Wait()
				if got := w.lists() - before; got != outrun {
					w.Errorf("OB-14: %d LIST after the third repetition, want a repair of each of %d routes", got, outrun)
				}
			}
		}
		o.ready()
		for i, want := range []time.Duration{37500, 75000, 150000} { // 50, 100, 200 ms, three quarters of each with this random source
			if pauses[i] != want*time.Microsecond {
				w.Errorf("OB-42: pauses %v", pauses)
			}
		}
		if s := o.Status(); s.Passes != 1 || s.Repairs != uint64(outrun) {
			w.Errorf("%+v", s)
		}
		o.agrees()
	})
	obs(t, "OBS-014", setup{}, func(w *world) {
		w.take("a", "b", "c")
		w.net.Edit(once(skip(1, toBroker(wire.TypeLeaseList))), func(value []byte) []byte {
			var m wire.LeaseListRequest
			_ = m.DecodeValue(value)
			m.Cursor.SnapshotID++
			value, _ = m.AppendValue(nil)
			return value
		})
		begin := time.Now()
		o := w.observe(&fitz.ObserveOptions{PageSize: 2}).ready()
		o.shows("a b c")
		if s := o.is(fitz.ObserverReady, ""); !isCode(s.LastError, fitz.CodeLeaseInvalidListCursor) || s.Generation != 1 || !time.Now().Equal(begin) {
			w.Errorf("after %v: %+v", time.Since(begin), s)
		}
	})
	obs(t, "OBS-015", setup{}, func(w *world) {
		w.take("a", "b", "c", "d", "e")
		w.net.Edit(once(skip(1, toClient(wire.TypeLeaseList))), editList(w.T, func(m *wire.LeaseListReply) { m.Next.SnapshotID++ }))
		o := w.observe(&fitz.ObserveOptions{PageSize: 2}).ready()
		o.shows("a b c d e")
		if s := o.Status(); !isCode(s.LastError, fitz.CodeProtocolViolation) || s.Passes != 1 {
			w.Errorf("%+v", s)
		}
		// A restart between two pages.
		rule := w.net.Hold(once(skip(1, toBroker(wire.TypeLeaseList))))
		go func() { _ = o.Refresh(context.Background()) }()
		_ = rule.Await(w.Context(), 1)
		w.broker.Restart()
		rule.Remove()
		w.rest(time.Minute)
		o.shows("")
	})
	obs(t, "OBS-016", setup{}, func(w *world) {
		w.take("a", "b", "c", "d", "e")
		var first wire.LeaseCursor
		rule := w.net.Edit(toClient(wire.TypeLeaseList), editList(w.T, func(m *wire.LeaseListReply) {
			if first.Offset == 0 {
				first = m.Next
			}
			if m.HasNext {
				m.Next = first
			}
		}))
		o := w.observe(&fitz.ObserveOptions{PageSize: 2})
		w.rest(100 * time.Millisecond)
		if s := o.is(fitz.ObserverSyncing, ""); !isCode(s.LastError, fitz.CodeProtocolViolation) || w.lists() != 2 {
			w.Errorf("%d LIST, %+v", w.lists(), s)
		}
		rule.Remove()
		o.ready().shows("a b c d e")
	})
	obs(t, "OB-16/long_list_timeout", setup{labels: true}, func(w *world) {
		// list_timeout may be longer than the request timeout of the client.
		rule := w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
		o := w.observe(&fitz.ObserveOptions{ListTimeout: time.Minute})
		w.rest(50 * time.Second)
		rule.Remove()
		o.ready()
		if s := o.Status(); s.LastError != nil || w.lists() != 1 {
			w.Errorf("%d LIST, %+v", w.lists(), s)
		}
	})
	obs(t, "OBS-017", setup{}, func(w *world) {
		rule := w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
		begin := time.Now()
		o := w.observe(&fitz.ObserveOptions{ListTimeout: 2 * time.Second})
		_ = rule.Await(w.Context(), 1)
		w.rest(2*time.Second + 100*time.Millisecond - time.Since(begin))
		if w.lists() != 1 || o.Status().LastError == nil {
			w.Errorf("%d LIST before the delay, %+v", w.lists(), o.Status())
		}
		rule.Remove() // the late answer means nothing; without labels it makes room for the next request
		o.ready()
		if d := time.Since(begin) - 2*time.Second; d != 187500*time.Microsecond {
			w.Errorf("OB-43: again after %v", d)
		}
	})
}

// OB-29: listings of one client wait for each other, first in first out, pagers included.
func TestListingsWaitForEachOther(t *testing.T) {
	obs(t, "OB-29", setup{labels: true}, func(w *world) {
		w.take("a", "b", "c")
		rule := w.net.HoldAlone(fitztest.Filter{Direction: fitztest.ToClient, Type: wire.TypeLeaseList, Count: bounds.SDKListParallelMax})
		var observers []*watched
		for range bounds.SDKListParallelMax {
			observers = append(observers, w.observe(nil))
		}
		_ = rule.Await(w.Context(), bounds.SDKListParallelMax)
		late := w.observe(nil)
		exact := w.observeAt(at("a"), nil)
		exact.ready() // it has no second page and waits for nobody
		w.rest(time.Second)
		late.is(fitz.ObserverSyncing, "")
		listed := make(chan int)
		go func() {
			n := 0
			for _, err := range w.client.Lease().List(selector, nil).All(context.Background()) {
				if err != nil {
					w.Error(err)
				}
				n++
			}
			listed <- n
		}()
		w.rest(time.Second)
		if w.lists() != bounds.SDKListParallelMax+1 {
			w.Errorf("%d LIST", w.lists())
		}
		rule.Remove()
		for _, o := range append(observers, late) {
			o.ready().shows("a b c")
		}
		if n := <-listed; n != 3 {
			w.Errorf("listed %d", n)
		}
	})
}
