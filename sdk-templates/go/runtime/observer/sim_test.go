package observer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/observer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fold applies every event of a consumer (OB-54).
type fold struct {
	mu     sync.Mutex
	begun  bool
	view   map[string]item
	stale  bool
	events []observer.Kind
	resets int
}

func (f *fold) apply(t rapidOrTest, e observer.Event[item]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e.Kind)
	if !f.begun && e.Kind != observer.Reset {
		t.Errorf("OB-55: the first event is %v", e.Kind)
	}
	_, held := f.view[e.After.Route]
	before, had := f.view[e.Before.Route]
	switch e.Kind {
	case observer.Reset:
		f.begun = true
		f.resets++
		f.view = map[string]item{}
		for i := range e.Snapshot.All() {
			f.view[i.Route] = i
		}
		f.stale = e.Snapshot.Stale
	case observer.Added:
		if held {
			t.Errorf("added %s, which is held", e.After.Route)
		}
		f.view[e.After.Route] = e.After
	case observer.Changed:
		if !had || before.Holder != e.Before.Holder {
			t.Errorf("changed from %+v, but it was %+v", e.Before, before)
		}
		f.view[e.After.Route] = e.After
	case observer.Removed:
		if !had || before.Holder != e.Before.Holder {
			t.Errorf("removed %+v, but it was %+v", e.Before, before)
		}
		delete(f.view, e.Before.Route)
	case observer.BecameStale:
		if f.stale && f.events[len(f.events)-1] != observer.BecameStale {
			t.Errorf("a second stale event")
		}
		f.stale = true
	case observer.BecameFresh:
		if !f.stale {
			t.Errorf("fresh without stale")
		}
		f.stale = false
	}
}

type rapidOrTest interface {
	Errorf(string, ...any)
}

// consume reads events until the observer ends.
func consume(t rapidOrTest, o *observer.Observer[item], f *fold) (wait func()) {
	var group sync.WaitGroup
	c, err := o.Consume()
	if err != nil {
		t.Errorf("consume: %v", err)
		return func() {}
	}
	group.Go(func() {
		defer c.Close()
		for {
			e, ok, _ := c.Next(context.Background())
			if !ok {
				return
			}
			f.apply(t, e)
		}
	})
	return group.Wait
}

// listOf is a snapshot without what ages.
func listOf(s *observer.Snapshot[item]) []item {
	var all []item
	if s == nil {
		return all
	}
	for i := range s.All() {
		i.Left, i.Renewals = 0, 0
		all = append(all, i)
	}
	return all
}

func (p *peer) held() []item {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.sorted()
	for i := range all {
		all[i].Left, all[i].Renewals = 0, 0
	}
	return all
}

func (f *fold) list() []item {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []item
	for _, i := range f.view {
		i.Left, i.Renewals = 0, 0
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b item) int { return observer.Compare(a.Route, b.Route) })
	return all
}

// The simulation: whatever happens between an observer and its broker, at rest its view is the inventory, its events lead to that view, it
// was never ready with anything else at rest, and its requests are bounded (OB-13, OB-17, OB-22, OB-28, OB-31, OB-33, OB-54).
func TestSimulation(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		seed := rapid.Int64().Draw(r, "seed")
		steps := rapid.SliceOfN(rapid.IntRange(0, 1<<20), 10, 120).Draw(r, "steps")
		small := rapid.Bool().Draw(r, "small bounds")
		reorder := rapid.IntRange(0, 20).Draw(r, "reorder")
		serially := rapid.IntRange(0, 3).Draw(r, "without labels") == 0
		synctest.Test(t, func(t *testing.T) {
			simulate(r, t, seed, steps, small, serially, time.Duration(reorder)*time.Millisecond)
		})
	})
}

func simulate(r *rapid.T, t *testing.T, seed int64, steps []int, small, serially bool, reorder time.Duration) {
	p := newPeer(seed)
	p.up, p.down, p.reorder, p.serially = 5*time.Millisecond, 5*time.Millisecond, reorder, serially
	o := observe(t, p, func(o *observer.Options) {
		if small {
			o.RepairLimit, o.ChangeBuffer = 3, 4
		}
	})
	defer p.finish()
	var f fold
	defer consume(r, o, &f)()
	defer o.Close()
	p.open()
	faults := 0 // since the last look, that may leave the view behind for an interval
	for _, step := range steps {
		route := fmt.Sprintf("x://a/%d/%d", step>>4%3, step>>6%9)
		switch kind := step % 16; {
		case kind < 6:
			p.change(route, step>>10%3 > 0)
		case kind == 6:
			p.renew(route)
		case kind == 7 && p.session() != nil:
			p.cut()
		case kind == 8 && p.session() == nil:
			p.open()
		case kind == 9:
			p.endRegistration(uint64(step >> 10 % 5))
		case kind == 10:
			p.loseCursors()
		case kind == 11:
			p.with(func() { p.fail = append(p.fail, errAgain) })
		case kind == 12:
			p.with(func() { p.malformed = step >> 10 % 2 })
		case kind == 13:
			p.with(func() { p.dropNotify = step >> 10 % 2 })
			faults++
		case kind == 14 && step>>10%4 == 0:
			p.restart()
			p.open()
		default:
			time.Sleep(time.Duration(step>>8%3000) * time.Millisecond)
		}
		if step>>14%4 == 0 {
			time.Sleep(time.Duration(step >> 12 % 30))
		}
		if step>>13%8 != 0 || faults > 0 {
			continue
		}
		time.Sleep(2 * time.Second) // at rest: coalescing, travel and every repair are over
		synctest.Wait()
		if s := o.Status(); s.State == observer.Ready && !s.Refreshing && !slices.Equal(listOf(o.Snapshot()), p.held()) {
			r.Fatalf("ready with %v, held %v (%+v)", listOf(o.Snapshot()), p.held(), s)
		}
	}
	p.with(func() { p.fail, p.malformed, p.dropNotify = nil, 0, 0 })
	if p.session() == nil {
		p.open()
	}
	time.Sleep(5 * time.Minute) // a few intervals
	synctest.Wait()
	s := o.Status()
	if s.State != observer.Ready || o.Snapshot() == nil || o.Snapshot().Stale {
		r.Fatalf("at rest %+v", s)
	}
	if got, want := listOf(o.Snapshot()), p.held(); !slices.Equal(got, want) {
		r.Fatalf("view %v, held %v (%+v)", got, want, s)
	}
	if got, want := f.list(), p.held(); !slices.Equal(got, want) {
		r.Fatalf("events lead to %v, held %v", got, want)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.askingMost > 1 || p.pagingMost > 1 {
		r.Errorf("OB-33: %d SUBSCRIBE and %d pages in flight", p.askingMost, p.pagingMost)
	}
	if uint64(p.subscribes) > s.Generation {
		r.Errorf("OB-10: %d SUBSCRIBE in %d generations", p.subscribes, s.Generation)
	}
	if p.routeMost > 1 {
		r.Errorf("OB-22: %d repairs of one route in flight", p.routeMost)
	}
	limit := 64
	switch {
	case serially:
		limit = 1
	case small:
		limit = 3
	}
	if p.exactMost > limit {
		r.Errorf("OB-21: %d repairs in flight", p.exactMost)
	}
	if most := 2*p.notified + len(steps); p.exact > most {
		r.Errorf("%d exact LISTs for %d notifications", p.exact, p.notified)
	}
}
