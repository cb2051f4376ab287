package fitztest_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// seen are the frames of one message that a client sent, each with the time of the bubble.
type seen struct {
	mu     sync.Mutex
	times  []time.Time
	values [][]byte
}

// watch notes every frame of a message, from now on. Rules that are made later do their work as ever.
func (w *world) watch(typ wire.MessageType) *seen {
	s := &seen{}
	f := toBroker(typ)
	f.Match = func(f fitztest.Frame) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.times = append(s.times, time.Now())
		s.values = append(s.values, slices.Clone(f.Value))
		return false
	}
	w.net.Drop(f)
	return s
}

// gaps returns the times between frames and forgets the frames.
func (s *seen) gaps() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var gaps []time.Duration
	for i := 1; i < len(s.times); i++ {
		gaps = append(gaps, s.times[i].Sub(s.times[i-1]))
	}
	s.times, s.values = nil, nil
	return gaps
}

// lists returns the requests of LIST that were seen.
func (s *seen) lists(w *world) []wire.LeaseListRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := make([]wire.LeaseListRequest, len(s.values))
	for i, value := range s.values {
		if err := requests[i].DecodeValue(value); err != nil {
			w.Error(err)
		}
	}
	return requests
}

// Rules of observer.md that no row of its section 8 shows.
func TestObserverRules(t *testing.T) {
	obs(t, "OB-11/right_behind_the_success", setup{}, func(w *world) {
		// A notification that arrives together with the success counts, before the first LIST is sent.
		rule := w.net.Hold(toClient(wire.TypeLeaseSubscribe))
		o := w.observe(nil)
		_ = rule.Await(w.Context(), 1)
		w.take("x", "y")
		rule.Remove()
		if s := o.ready().Status(); s.Notifications != 2 {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OB-11/before_the_page", setup{}, func(w *world) {
		// Notification and last page arrive in one go: the route is dirty before the page is looked at.
		w.take("a", "b", "c")
		request := w.net.HoldAlone(skip(1, toBroker(wire.TypeLeaseList)))
		o := w.observe(&fitz.ObserveOptions{PageSize: 2})
		_ = request.Await(w.Context(), 1)
		notify := w.net.Hold(toClient(wire.TypeLeaseNotify))
		w.free("c")
		_ = notify.Await(w.Context(), 1)
		request.Remove()
		synctest.Wait()
		notify.Remove()
		o.ready().shows("a b")
		if s := o.Status(); s.Repairs != 1 || s.Passes != 1 {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OB-13/repair_is_held", setup{}, func(w *world) {
		// Everything is listed, but a route of D is not repaired yet: nothing is installed (OB-17).
		w.take("a", "b", "c")
		request := w.net.HoldAlone(once(skip(1, toBroker(wire.TypeLeaseList))))
		o := w.observe(&fitz.ObserveOptions{PageSize: 2})
		_ = request.Await(w.Context(), 1)
		w.free("a")
		w.rest(time.Second)
		repair := w.net.HoldAlone(once(skip(1, toClient(wire.TypeLeaseList))))
		request.Remove()
		_ = repair.Await(w.Context(), 1)
		w.rest(time.Second)
		o.is(fitz.ObserverSyncing, "")
		o.shows("absent")
		o.told("")
		repair.Remove()
		o.ready().shows("b c")
	})
	for name, change := range map[string]func(*wire.LeaseListReply){
		"outside_the_selector": func(m *wire.LeaseListReply) { m.Items[1].Route = "lease://acme/other/b" },
		"repeated_item":        func(m *wire.LeaseListReply) { m.Items[1].Route = m.Items[0].Route },
		"repeated_cursor":      func(m *wire.LeaseListReply) { m.HasNext, m.Next.SnapshotID = true, 0 },
	} {
		obs(t, "OB-16/"+name, setup{}, func(w *world) {
			w.take("a", "b")
			w.net.Edit(once(toClient(wire.TypeLeaseList)), editList(w.T, change))
			begin := time.Now()
			o := w.observe(nil).ready()
			if s := o.is(fitz.ObserverReady, ""); !isCode(s.LastError, fitz.CodeProtocolViolation) || s.Passes != 1 || s.Generation != 1 {
				w.Errorf("%+v", s)
			}
			if d := time.Since(begin); d != firstFailure && !(!w.labels && d == firstFailure+settle) {
				w.Errorf("OB-43: again after %v", d)
			}
			o.agrees()
		})
	}
	obs(t, "OB-16/lost_cursors", setup{}, func(w *world) {
		// A lost cursor starts the pass again at once three times in a row, and then with backoff.
		w.take("a")
		lists := w.watch(wire.TypeLeaseList)
		w.net.Edit(fitztest.Filter{Direction: fitztest.ToClient, Type: wire.TypeLeaseList, Count: 5}, refusal(wire.CodeLeaseInvalidListCursor))
		w.observe(nil).ready().shows("a")
		if got, want := lists.gaps(), []time.Duration{0, 0, 0, firstFailure, 2 * firstFailure}; !slices.Equal(got, want) {
			w.Errorf("%v between passes, want %v", got, want)
		}
	})
	for name, change := range map[string]func(*wire.LeaseListReply){
		"another_route": func(m *wire.LeaseListReply) { m.Items[0].Route = at("y") },
		"two_items":     func(m *wire.LeaseListReply) { m.Items = append(m.Items, m.Items[0]) },
		"more_to_come":  func(m *wire.LeaseListReply) { m.HasNext, m.Next = true, wire.LeaseCursor{SnapshotID: 1, Offset: 1} },
	} {
		obs(t, "OB-20/"+name, setup{}, func(w *world) {
			o := w.observe(nil).ready().forget()
			w.net.Edit(once(toClient(wire.TypeLeaseList)), editList(w.T, change))
			begin := time.Now()
			w.take("x")
			w.rest(time.Second)
			if s := o.is(fitz.ObserverReady, ""); !isCode(s.LastError, fitz.CodeProtocolViolation) || s.Repairs != 1 {
				w.Errorf("%+v", s)
			}
			o.told("added(x)")
			if d := o.times[0].Sub(begin); d != coalesce+firstFailure {
				w.Errorf("OB-43: repaired after %v", d)
			}
		})
	}
	obs(t, "OB-20/request", setup{}, func(w *world) {
		o := w.observe(nil).ready()
		lists := w.watch(wire.TypeLeaseList)
		w.take("x")
		w.rest(coalesce)
		o.shows("x")
		if got := lists.lists(w); len(got) != 1 || got[0].Selector != at("x") || got[0].Limit != 1 || got[0].HasCursor {
			w.Errorf("%+v", got)
		}
	})
	obs(t, "OB-21", setup{}, func(w *world) {
		// Repairs are pipelined with labels, and follow each other without.
		o := w.observe(&fitz.ObserveOptions{RepairLimit: 3}).ready()
		rule := w.net.HoldAlone(fitztest.Filter{Direction: fitztest.ToClient, Type: wire.TypeLeaseList, Count: 3})
		lists := w.lists()
		w.take("a", "b", "c")
		w.rest(time.Second)
		want := 1
		if w.labels {
			want = 3
		}
		if n := w.lists() - lists; n != want {
			w.Errorf("%d repairs in flight, want %d", n, want)
		}
		w.take("d", "e") // with labels there is no room for them
		w.rest(time.Second)
		if n := w.lists() - lists; n != want {
			w.Errorf("%d repairs in flight, limit 3", n)
		}
		rule.Remove()
		w.rest(time.Second)
		o.shows("a b c d e")
		if s := o.Status(); s.Repairs != 5 || s.Passes != 1 {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OB-23", setup{}, func(w *world) {
		// More dirty routes than one round repairs make a full pass, and the next such pass keeps its distance.
		o := w.observe(&fitz.ObserveOptions{RepairLimit: 2}).ready().forget()
		lists := w.watch(wire.TypeLeaseList)
		w.take("a", "b", "c")
		w.rest(coalesce)
		if s := o.is(fitz.ObserverReady, ""); s.Passes != 2 || s.Repairs != 0 {
			w.Errorf("%+v", s)
		}
		w.free("a", "b", "c")
		w.rest(time.Second)
		if s := o.is(fitz.ObserverReady, ""); s.Passes != 3 || s.Repairs != 0 {
			w.Errorf("%+v", s)
		}
		if got, want := lists.gaps(), []time.Duration{firstRepeat}; !slices.Equal(got, want) {
			w.Errorf("OB-42: %v between such passes, want %v", got, want)
		}
		o.told("added(a) added(b) added(c) removed(a) removed(b) removed(c)")
	})
	obs(t, "OB-31/repair", setup{labels: true}, func(w *world) {
		// A repair that a gap has overtaken means nothing any more: it does not fail, it is not repeated, and its late answer is not counted.
		o := w.observe(nil).ready().forget()
		repair := w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
		w.take("x")
		_ = repair.Await(w.Context(), 1)
		w.net.Edit(once(toClient(wire.TypeLeaseNotify)), malformed)
		w.take("y")
		w.rest(10 * time.Second)
		repair.Remove()
		w.rest(10 * time.Second)
		o.told("stale(decode_error) added(x) added(y) fresh")
		if s := o.is(fitz.ObserverReady, ""); !isCode(s.LastError, fitz.CodeProtocolViolation) || s.Repairs != 0 || s.Passes != 2 || w.net.Written(fitztest.ToBroker, wire.TypeLeaseList) != 3 {
			w.Errorf("%d LIST, %+v", w.net.Written(fitztest.ToBroker, wire.TypeLeaseList), s)
		}
	})
	obs(t, "OB-34/one_at_a_time", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready()
		rule := w.net.Edit(toClient(wire.TypeLeaseSubscribe), refusal(wire.CodeLeaseQueueFull))
		w.net.Cut()
		_ = rule.Await(w.Context(), 1)
		synctest.Wait()
		subscribes := w.subscribes()
		for range 5 {
			go func() { _ = o.Refresh(context.Background()) }()
		}
		synctest.Wait()
		if w.subscribes() != subscribes {
			w.Errorf("refresh sent %d SUBSCRIBE while one waits for its next attempt", w.subscribes()-subscribes)
		}
		rule.Remove()
		w.rest(5 * time.Second)
		o.is(fitz.ObserverReady, "")
		o.agrees()
	})
	obs(t, "OB-43", setup{}, func(w *world) {
		// 250 ms doubling to 5 s, three quarters of each with this random source, and from the beginning after a success of the same kind.
		delays := []time.Duration{firstFailure, 2 * firstFailure, 4 * firstFailure, 8 * firstFailure, 16 * firstFailure, lastFailure, lastFailure}
		failing := func(typ wire.MessageType) *fitztest.Rule {
			f := toClient(typ)
			f.Count = len(delays)
			return w.net.Edit(f, refusal(wire.CodeLeaseQueueFull))
		}
		subscribes, lists := w.watch(wire.TypeLeaseSubscribe), w.watch(wire.TypeLeaseList)
		check := func(what string, s *seen) {
			w.Helper()
			if got := s.gaps(); !slices.Equal(got, delays) {
				w.Errorf("%s: %v between attempts, want %v", what, got, delays)
			}
		}
		one, two := failing(wire.TypeLeaseSubscribe), failing(wire.TypeLeaseList)
		o := w.observe(nil).ready()
		check("SUBSCRIBE", subscribes)
		check("passes", lists)
		one.Remove()
		two.Remove()
		rule := failing(wire.TypeLeaseList)
		w.take("x")
		w.rest(30 * time.Second)
		o.shows("x")
		check("repairs", lists)
		rule.Remove()
		rule = failing(wire.TypeLeaseList)
		if err := o.Refresh(w.Context()); err != nil {
			w.Error(err)
		}
		check("passes after a success", lists)
		rule.Remove()
	})
	obs(t, "OB-44", setup{}, func(w *world) {
		// Later routes do not extend the wait of the first one.
		o := w.observe(nil).ready().forget()
		begin := time.Now()
		for _, name := range []string{"a", "b", "c"} {
			w.take(name)
			time.Sleep(10 * time.Millisecond)
		}
		w.rest(time.Second)
		o.told("added(a) added(b) added(c)")
		if d := o.times[2].Sub(begin); d != coalesce {
			w.Errorf("repaired after %v", d)
		}
	})
	obs(t, "OB-51", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready()
		version := func() uint64 { s, _ := o.Snapshot(); return s.Version }
		if err := o.Refresh(w.Context()); err != nil || version() != 1 {
			w.Errorf("version %d after a pass that found nothing new, %v", version(), err)
		}
		w.take("b", "c") // one round
		w.rest(coalesce)
		if version() != 2 {
			w.Errorf("version %d after a round", version())
		}
		w.net.Drop(once(toClient(wire.TypeLeaseNotify)))
		w.take("d")
		if err := o.Refresh(w.Context()); err != nil || version() != 3 {
			w.Errorf("version %d after a pass that found one", version())
		}
	})
	obs(t, "OB-50", setup{}, func(w *world) {
		// A snapshot stays what it was, and is in the order of segments, which is not that of texts.
		w.take("a", "a-b")
		o := w.observeAt("lease://acme/**", nil).ready()
		if _, err := w.holder.LeaseAcquire(w.Context(), &wire.LeaseAcquireRequest{Route: "lease://acme/renderers-2/a", OwnerID: "w", TTL: 3600}); err != nil {
			w.Fatal(err)
		}
		w.rest(coalesce)
		old, _ := o.Snapshot()
		routes := func(s *fitz.Inventory) string {
			var all []string
			for e := range s.All() {
				all = append(all, strings.TrimPrefix(e.Route, "lease://acme/"))
			}
			return strings.Join(all, " ")
		}
		const want = "renderers/a renderers/a-b renderers-2/a"
		if got := routes(old); got != want {
			w.Errorf("%q", got)
		}
		taken := time.Now()
		w.rest(time.Minute)
		w.free("a")
		w.rest(coalesce)
		if got := routes(old); got != want || !old.TakenAt.Equal(taken) || old.Len() != 3 {
			w.Errorf("%q, taken at %v, want %v", got, old.TakenAt, taken)
		}
		if s, _ := o.Snapshot(); s.Len() != 2 || s.Stale || (s.BrokerLifetime != "") != w.labels {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OB-60", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready()
		synced := time.Now()
		w.take("b")
		w.rest(10 * time.Second)
		if s := o.Status(); !s.LastSyncAt.Equal(synced) || s.Repairs != 1 || s.Notifications != 1 || s.Generation != 1 || (s.BrokerLifetime != "") != w.labels {
			w.Errorf("OB-61: synced at %v, %+v", synced, s)
		}
		if err := o.Refresh(w.Context()); err != nil {
			w.Error(err)
		}
		if s := o.Status(); !s.LastSyncAt.Equal(time.Now()) || s.Passes != 2 {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OB-63", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready()
		w.net.Edit(toClient(wire.TypeLeaseList), refusal(wire.CodeLeaseTimeout))
		w.take("b")
		w.rest(time.Hour)
		o.shows("a")
		if s := o.is(fitz.ObserverStale, fitz.StaleNoRecentPass); !isCode(s.LastError, fitz.CodeLeaseTimeout) || !s.Synced {
			w.Errorf("%+v", s)
		}
		if s, _ := o.Snapshot(); !s.Stale {
			w.Error("the view is not flagged")
		}
	})
	obs(t, "OB-01/ready_ends_with_the_observer", setup{}, func(w *world) {
		w.net.Hold(toClient(wire.TypeLeaseSubscribe))
		o := w.observe(nil)
		result := make(chan error)
		go func() { result <- o.Ready(context.Background()) }()
		o.is(fitz.ObserverStarting, "")
		go func() { _ = o.Close() }()
		if err := <-result; !isCode(err, fitz.CodeConnClosed) {
			w.Errorf("ready: %v", err)
		}
	})
	obs(t, "C-67/backoff", setup{}, func(w *world) {
		// 5008 on LIST is a failure like others: the observer says so, waits and asks again.
		lists := w.watch(wire.TypeLeaseList)
		w.net.Edit(fitztest.Filter{Direction: fitztest.ToClient, Type: wire.TypeLeaseList, Count: 3}, refusal(wire.CodeLeaseBadRequest))
		o := w.observe(nil)
		w.rest(firstFailure / 2)
		if s := o.is(fitz.ObserverSyncing, ""); !isCode(s.LastError, fitz.CodeLeaseBadRequest) {
			w.Errorf("%+v", s)
		}
		o.ready()
		if got, want := lists.gaps(), []time.Duration{firstFailure, 2 * firstFailure, 4 * firstFailure}; !slices.Equal(got, want) {
			w.Errorf("%v between attempts, want %v", got, want)
		}
	})
}

// Delays of OB-42 and OB-43 with a random source of 0.5: three quarters of the nominal ones.
const (
	firstRepeat  = 37500 * time.Microsecond
	firstFailure = 187500 * time.Microsecond
	lastFailure  = 3750 * time.Millisecond
	settle       = bounds.SDKSettleMs * time.Millisecond
)

// OB-41: the wait is drawn anew after every full pass, whatever made it.
func TestObserverDrawsEveryInterval(t *testing.T) {
	var random atomic.Int64 // tenths
	random.Store(5)
	s := setup{client: []fitz.Option{fitz.WithRandom(func() float64 { return float64(random.Load()) / 10 })}}
	inWorld(t, s, true, func(w *world) {
		o := w.observe(nil).ready()
		lists := w.watch(wire.TypeLeaseList)
		begin := time.Now()
		w.rest(30 * time.Second)
		random.Store(0)
		if err := o.Refresh(w.Context()); err != nil { // the next wait is 48 s from here
			w.Error(err)
		}
		w.rest(47 * time.Second)
		random.Store(9) // 69.6 s
		w.rest(2 * time.Second)
		random.Store(5) // 60 s
		w.rest(70 * time.Second)
		if len(lists.times) != 3 {
			w.Fatalf("%d passes at %v after %v", len(lists.times), lists.times, begin)
		}
		for i, want := range []time.Duration{30 * time.Second, 78 * time.Second, 147600 * time.Millisecond} {
			if d := lists.times[i].Sub(begin); d != want {
				w.Errorf("pass %d after %v, want %v", i, d, want)
			}
		}
	})
}

// OB-02: an observer has six members besides what describes it, and none of its types shows a subscription, a cursor, a snapshot, a token or a
// session.
func TestObserverSurface(t *testing.T) {
	members := []string{"Changes", "Close", "Ready", "Refresh", "Snapshot", "Status"}
	describing := []string{"LogValue", "Selector", "String"}
	typ := reflect.TypeFor[*fitz.InventoryObserver]()
	var got []string
	for i := range typ.NumMethod() {
		m := typ.Method(i)
		if !slices.Contains(describing, m.Name) {
			got = append(got, m.Name)
		} else if m.Type.NumIn() != 1 || m.Type.NumOut() != 1 { // it asks for nothing, so that it cannot send or wait
			t.Errorf("%s is %v", m.Name, m.Type)
		}
	}
	if !slices.Equal(got, members) {
		t.Errorf("members %v, want %v", got, members)
	}
	for _, typ := range []reflect.Type{reflect.TypeFor[fitz.ObserverStatus](), reflect.TypeFor[fitz.InventoryChange](), reflect.TypeFor[fitz.Inventory](), reflect.TypeFor[fitz.LeaseEntry]()} {
		for i := range typ.NumField() {
			name := typ.Field(i).Name
			if !typ.Field(i).IsExported() {
				continue
			}
			for _, hidden := range []string{"Subscription", "Cursor", "SnapshotID", "Token", "Session"} {
				if strings.Contains(name, hidden) {
					t.Errorf("%v.%s", typ, name)
				}
			}
		}
	}
	if typ := reflect.TypeFor[fitz.HolderIncarnation](); !typ.Comparable() || typ.NumMethod() > 0 {
		t.Errorf("%v is comparable %v, with %d methods", typ, typ.Comparable(), typ.NumMethod())
	}
}

// L-94: nothing but an acquisition gives a handle, and what listings, queries and notifications give has no way to one.
func TestHandlesComeFromAcquisitions(t *testing.T) {
	handle := reflect.TypeFor[*fitz.Lease]()
	var gives []string
	for _, typ := range []reflect.Type{reflect.TypeFor[*fitz.Client](), reflect.TypeFor[*fitz.LeaseClient](), reflect.TypeFor[*fitz.InventoryObserver](),
		reflect.TypeFor[*fitz.Pager[fitz.LeaseEntry]](), reflect.TypeFor[fitz.LeaseEntry](), reflect.TypeFor[fitz.LeaseInfo](), reflect.TypeFor[fitz.LeaseChange](),
		reflect.TypeFor[*fitz.Inventory](), reflect.TypeFor[fitz.InventoryChange](), reflect.TypeFor[*fitz.Subscription[fitz.LeaseChange]]()} {
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			for j := range m.Type.NumOut() {
				if m.Type.Out(j) == handle {
					gives = append(gives, m.Name)
				}
			}
		}
	}
	if got := fmt.Sprint(gives); got != "[Acquire TryAcquire]" {
		t.Errorf("handles come from %s", got)
	}
	for i := range handle.Elem().NumField() {
		if f := handle.Elem().Field(i); f.IsExported() {
			t.Errorf("a handle can be made with its field %s", f.Name)
		}
	}
}
