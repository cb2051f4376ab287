package subscription

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
)

func mustSelector(t testing.TB, text string) pattern.Selector {
	s, err := route.Lease.ParseSelector(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func mustRoute(t testing.TB, text string) pattern.Route {
	r, err := route.Lease.ParseRoute(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func segmentsOf(r pattern.Route) []string {
	segments := make([]string, r.Len())
	for i := range segments {
		segments[i] = r.Segment(i)
	}
	return segments
}

const all = ^uint64(0)

func idsOf[T any](x *Index[T], r pattern.Route, after, upTo uint64) []uint64 {
	var m Matches[T]
	ids := []uint64{}
	x.Match(&m, segmentsOf(r), after, upTo)
	for reg := m.Next(); reg != nil; reg = m.Next() {
		ids = append(ids, reg.ID)
	}
	return ids
}

// check verifies what must hold after every change: sorted buckets that end with a live entry and are at most half dead, tables
// that are neither too full nor too empty, and counters that agree.
func (x *Index[T]) check(t testing.TB) {
	t.Helper()
	buckets := 0
	for i := range x.shards {
		s := &x.shards[i]
		found := 0
		for at := range s.slots {
			b := s.slots[at].bucket
			if b == nil {
				continue
			}
			found++
			if len(b.entries) == 0 || b.entries[len(b.entries)-1].registration == nil || 2*b.dead > len(b.entries) {
				t.Fatalf("bucket of %d entries, %d dead", len(b.entries), b.dead)
			}
			if !slices.IsSortedFunc(b.entries, func(a, c entry[T]) int { return compareID(a, c.id) }) {
				t.Fatal("bucket out of order")
			}
			if live := len(b.entries) - b.dead; cap(b.entries) > 8*live {
				t.Fatalf("bucket keeps room for %d, %d live", cap(b.entries), live)
			}
		}
		if found != s.count || 8*s.count > 5*len(s.slots) || len(s.slots) > max(slotsMin, 8*s.count) {
			t.Fatalf("shard with %d buckets counts %d in %d slots", found, s.count, len(s.slots))
		}
		buckets += found
	}
	if buckets != x.Buckets() {
		t.Fatalf("%d buckets, counted %d", buckets, x.Buckets())
	}
}

// RM-07, W-94: a selector that matches through several masks is reported once. R-35: in order of the ids.
func TestMatchYieldsEachRegistrationOnceInOrder(t *testing.T) {
	x := New[string]()
	for i, text := range []string{
		"lease://**/renderers/**", "lease://renderers/renderers/renderers", "lease://renderers/*/*",
		"lease://**", "lease://**/renderers/**", "lease://other/**", "lease://*/renderers/renderers",
	} {
		x.Add(&Registration[string]{ID: uint64(i + 1), Selector: mustSelector(t, text), Value: text})
	}
	r := mustRoute(t, "lease://renderers/renderers/renderers")
	if got := idsOf(x, r, 0, all); !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 7}) {
		t.Errorf("ids %v", got)
	}
	for _, c := range []struct {
		after, upTo uint64
		want        []uint64
	}{
		{2, all, []uint64{3, 4, 5, 7}},
		{3, 5, []uint64{4, 5}},
		{0, 0, nil},
		{6, 6, nil},
		{7, all, nil},
		{5, 7, []uint64{7}},
	} {
		if got := idsOf(x, r, c.after, c.upTo); !slices.Equal(got, c.want) {
			t.Errorf("after %d up to %d: ids %v, want %v", c.after, c.upTo, got, c.want)
		}
	}
}

// at most 8 lookups per change, none for shapes that nobody uses, whatever the number of registrations.
// AC-S08.
func TestProbesDoNotGrowWithRegistrations(t *testing.T) {
	r := mustRoute(t, "lease://r/a/k")
	for _, n := range []int{1, 100, 10_000} {
		x := New[int]()
		add := func(id int, text string) {
			x.Add(&Registration[int]{ID: uint64(id), Selector: mustSelector(t, text)})
		}
		for i := range n {
			add(i+1, fmt.Sprintf("lease://r/a/k%d", i))
		}
		idsOf(x, r, 0, all)
		if got := x.Work(); got != (Work{Probes: 1}) {
			t.Errorf("%d exact registrations, none matches: %+v", n, got)
		}
		shapes := []string{"*/a/x", "r/*/x", "r/b/*", "*/*/x", "*/b/*", "q/*/*", "*/*/*"}
		for i, shape := range shapes {
			add(n+i+1, "lease://"+shape)
		}
		before := x.Work()
		if got := idsOf(x, r, 0, all); !slices.Equal(got, []uint64{uint64(n + len(shapes))}) {
			t.Errorf("ids %v", got)
		}
		if got := x.Work(); got.Probes-before.Probes != 8 || got.Examined-before.Examined != 1 {
			t.Errorf("%d registrations: %d probes, %d examined", n, got.Probes-before.Probes, got.Examined-before.Examined)
		}
	}
}

// L-92: a walk that goes on behind an id neither skips nor repeats, and does not read what was visited again.
func TestMatchGoesOnBehindAnID(t *testing.T) {
	x := New[int]()
	const n = 5000
	for i := range n {
		x.Add(&Registration[int]{ID: uint64(i + 1), Selector: mustSelector(t, "lease://r/a/*")})
	}
	r := mustRoute(t, "lease://r/a/k")
	var m Matches[int]
	last := uint64(0)
	for last < n {
		before := x.Work().Examined
		x.Match(&m, segmentsOf(r), last, all)
		for range 512 {
			reg := m.Next()
			if reg == nil {
				break
			}
			if reg.ID != last+1 {
				t.Fatalf("id %d after %d", reg.ID, last)
			}
			last = reg.ID
		}
		if got := x.Work().Examined - before; got > 513 {
			t.Fatalf("%d entries examined for 512 targets", got)
		}
	}
}

func TestRemoveForgetsEverything(t *testing.T) {
	x := New[int]()
	var regs []*Registration[int]
	for i := range 3000 {
		text := fmt.Sprintf("lease://**/s%d/**", i%1000)
		regs = append(regs, &Registration[int]{ID: uint64(i + 1), Selector: mustSelector(t, text)})
		x.Add(regs[i])
	}
	x.check(t)
	if x.Len() != 3000 || x.Buckets() != 3000 {
		t.Fatalf("%d registrations in %d buckets", x.Len(), x.Buckets())
	}
	stranger := &Registration[int]{ID: 7, Selector: regs[6].Selector}
	if x.Remove(stranger) {
		t.Error("removed a registration that was never added")
	}
	for i, reg := range regs {
		if !x.Remove(reg) || x.Remove(reg) {
			t.Fatalf("registration %d", i)
		}
		if i%100 == 0 {
			x.check(t)
		}
	}
	if x.Len() != 0 || x.Buckets() != 0 || x.live != 0 {
		t.Errorf("%d registrations, %d buckets, shapes %b", x.Len(), x.Buckets(), x.live)
	}
	for i := range x.shards {
		if x.shards[i].slots != nil {
			t.Errorf("shard %d keeps %d slots", i, len(x.shards[i].slots))
		}
	}
}

// A registration that Next returned may be removed when the walk starts again behind its id.
func TestRemoveDuringAWalk(t *testing.T) {
	x := New[int]()
	for i := range 100 {
		x.Add(&Registration[int]{ID: uint64(i + 1), Selector: mustSelector(t, "lease://**/a/**")})
	}
	r := mustRoute(t, "lease://a/a/a")
	var m Matches[int]
	var got []uint64
	x.Match(&m, segmentsOf(r), 0, all)
	for reg := m.Next(); reg != nil; reg = m.Next() {
		got = append(got, reg.ID)
		if reg.ID%3 != 0 {
			x.Remove(reg)
			x.Match(&m, segmentsOf(r), reg.ID, all)
		}
	}
	if len(got) != 100 || !slices.IsSorted(got) {
		t.Errorf("visited %d: %v", len(got), got)
	}
	if left := idsOf(x, r, 0, all); len(left) != 33 {
		t.Errorf("%d left", len(left))
	}
	x.check(t)
}

func TestAddAcceptsIdsOutOfOrder(t *testing.T) {
	x := New[int]()
	for _, id := range []uint64{5, 2, 9, 1} {
		x.Add(&Registration[int]{ID: id, Selector: mustSelector(t, "lease://r/*/k")})
	}
	if got := idsOf(x, mustRoute(t, "lease://r/a/k"), 0, all); !slices.Equal(got, []uint64{1, 2, 5, 9}) {
		t.Errorf("ids %v", got)
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	x := New[int]()
	for i, text := range []string{"lease://r/a/k", "lease://r/a/*", "lease://**/a/**", "lease://**", "lease://*/*/k"} {
		x.Add(&Registration[int]{ID: uint64(i + 1), Selector: mustSelector(t, text)})
	}
	segments := segmentsOf(mustRoute(t, "lease://r/a/k"))
	if n := testing.AllocsPerRun(100, func() {
		var m Matches[int]
		x.Match(&m, segments, 0, all)
		for m.Next() != nil {
		}
	}); n != 0 {
		t.Errorf("%v allocations per match", n)
	}
}

// The index agrees with the naive definition under every sequence of additions and removals, also when all hashes collide.
// Clauses: R-34.
func TestIndexAgreesWithNaiveMatching(t *testing.T) {
	words := []string{"a", "b", "c"}
	selectorText := rapid.Custom(func(t *rapid.T) string {
		for {
			n := rapid.IntRange(1, 5).Draw(t, "segments")
			parts := make([]string, n)
			for i := range parts {
				parts[i] = rapid.SampledFrom(append(words, "*", "**")).Draw(t, "segment")
			}
			text := "lease://" + strings.Join(parts, "/")
			if _, err := route.Lease.ParseSelector(text); err == nil {
				return text
			}
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		x := New[int]()
		if rapid.Bool().Draw(rt, "collide") {
			x.fold = 3
		}
		var live []*Registration[int]
		next := uint64(0)
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				x.check(t)
				if x.Len() != len(live) {
					rt.Fatalf("%d registrations, want %d", x.Len(), len(live))
				}
			},
			"add": func(rt *rapid.T) {
				next++
				sel, err := route.Lease.ParseSelector(selectorText.Draw(rt, "selector"))
				if err != nil {
					rt.Fatal(err)
				}
				reg := &Registration[int]{ID: next, Selector: sel}
				x.Add(reg)
				live = append(live, reg)
			},
			"remove": func(rt *rapid.T) {
				if len(live) == 0 {
					return
				}
				i := rapid.IntRange(0, len(live)-1).Draw(rt, "index")
				if !x.Remove(live[i]) || x.Remove(live[i]) {
					rt.Fatalf("registration %d", live[i].ID)
				}
				live = slices.Delete(live, i, i+1)
			},
			"match": func(rt *rapid.T) {
				path := make([]string, 3)
				for i := range path {
					path[i] = rapid.SampledFrom(words).Draw(rt, "segment")
				}
				r, err := route.Lease.ParseRoute("lease://" + strings.Join(path, "/"))
				if err != nil {
					rt.Fatal(err)
				}
				after := rapid.Uint64Range(0, next).Draw(rt, "after")
				upTo := rapid.Uint64Range(0, next+1).Draw(rt, "upTo")
				want := []uint64{}
				for _, reg := range live {
					if reg.ID > after && reg.ID <= upTo && reg.Selector.Matches(r) {
						want = append(want, reg.ID)
					}
				}
				before := x.Work().Probes
				if got := idsOf(x, r, after, upTo); !slices.Equal(got, want) {
					rt.Fatalf("%s after %d up to %d: ids %v, want %v", r, after, upTo, got, want)
				}
				if probes := x.Work().Probes - before; probes > 8 {
					rt.Fatalf("%d probes", probes)
				}
			},
		})
	})
}
