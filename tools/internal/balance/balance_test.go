package balance_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/tools/internal/balance"
)

const stranger = "stranger" // holds something and is not present

// world is a fleet without a network: what the broker knows, and rounds.
type world struct {
	rules     balance.Rules
	workers   []string
	catalogue []string
	holders   map[string]string
	since     map[string]int // round in which a route was taken
	round     int
	releases  int
	moved     map[string]int // how often a route was taken in this round
}

func drawWorld(t *rapid.T) *world {
	w := &world{holders: map[string]string{}, since: map[string]int{}}
	w.rules.BandPercent = rapid.SampledFrom([]int{0, 0, 10, 10, 25, 99}).Draw(t, "band")
	for i := range rapid.IntRange(1, 12).Draw(t, "workers") {
		w.workers = append(w.workers, fmt.Sprintf("w%02d", i))
	}
	owners := append(slices.Clone(w.workers), "", "", stranger)
	favourite := rapid.SampledFrom(owners).Draw(t, "favourite") // many starts are far from balanced
	for i := range rapid.IntRange(0, 120).Draw(t, "resources") {
		route := fmt.Sprintf("lease://demo/fleet/%03d", i)
		w.catalogue = append(w.catalogue, route)
		owner := rapid.SampledFrom(append(slices.Clone(owners), favourite, favourite, favourite)).Draw(t, "owner")
		if owner != "" {
			w.holders[route] = owner
		}
	}
	return w
}

func (w *world) view(self string, holders map[string]string) balance.View {
	keep := map[string]bool{}
	for route, since := range w.since {
		keep[route] = since == w.round
	}
	return balance.View{Self: self, Workers: w.workers, Catalogue: w.catalogue, Holders: holders, Keep: keep}
}

func (w *world) release(t rapid.TB, self string, plan balance.Plan) {
	for _, route := range plan.Release {
		if w.holders[route] != self {
			t.Fatalf("%s releases %s of %q", self, route, w.holders[route])
		}
		delete(w.holders, route)
		w.releases++
	}
}

// acquire takes what is still free, as a broker grants it.
func (w *world) acquire(t rapid.TB, self string, plan balance.Plan) {
	for _, route := range plan.Acquire {
		if _, held := w.holders[route]; held {
			continue
		}
		w.holders[route] = self
		w.since[route] = w.round
		if w.moved[route]++; w.moved[route] > 1 {
			t.Fatalf("%s moved twice in round %d", route, w.round)
		}
	}
}

// runRound lets every worker act once, in that order, and take what is free whenever something was released.
func (w *world) runRound(t rapid.TB, order []string, together bool) {
	w.round++
	w.moved = map[string]int{}
	seen := maps.Clone(w.holders)
	for _, self := range order {
		view := w.view(self, w.holders)
		if together {
			view = w.view(self, seen)
		}
		w.release(t, self, w.rules.Decide(view))
		if !together {
			w.takeFree(t, order)
		}
	}
	w.takeFree(t, order)
}

func (w *world) takeFree(t rapid.TB, order []string) {
	seen := maps.Clone(w.holders) // all see the same, and nobody wants what another one takes
	wanted := map[string]string{}
	for _, self := range order {
		plan := w.rules.Decide(w.view(self, seen))
		for _, route := range plan.Acquire {
			if other, ok := wanted[route]; ok {
				t.Fatalf("%s and %s both want %s", self, other, route)
			}
			wanted[route] = self
		}
		w.acquire(t, self, plan)
	}
}

// loads returns how much every worker holds, and how much there is to share.
func (w *world) loads() (loads map[string]int, total int) {
	loads = map[string]int{}
	for _, self := range w.workers {
		loads[self] = 0
	}
	for _, route := range w.catalogue {
		holder, held := w.holders[route]
		if _, present := loads[holder]; present {
			loads[holder]++
		}
		if holder != stranger || !held {
			total++
		}
	}
	return loads, total
}

// fewest is a lower bound of the releases that lead to a balance: what is above the greatest load has to go, and what is missing below the
// least load has to come from somebody unless it is free.
func (w *world) fewest() int {
	loads, total := w.loads()
	least, greatest := w.rules.Bounds(len(w.workers), total)
	held := 0
	above, below := 0, 0
	for _, load := range loads {
		held += load
		above += max(0, load-greatest)
		below += max(0, least-load)
	}
	return max(above, below-(total-held))
}

func (w *world) balanced(t rapid.TB) {
	loads, total := w.loads()
	held := 0
	for _, load := range loads {
		held += load
	}
	if held != total {
		t.Fatalf("%d of %d resources are held", held, total)
	}
	least, greatest := slices.Min(slices.Collect(maps.Values(loads))), slices.Max(slices.Collect(maps.Values(loads)))
	mean := float64(total) / float64(len(w.workers))
	if float64(greatest) > mean*(1+float64(w.rules.BandPercent)/100) && float64(greatest) >= mean+1 {
		t.Fatalf("loads %v, mean %.2f", loads, mean)
	}
	if float64(least) < mean*(1-float64(w.rules.BandPercent)/100) && float64(least) <= mean-1 {
		t.Fatalf("loads %v, mean %.2f", loads, mean)
	}
}

// From any start a fleet settles within three rounds, with the fewest hand-overs, no route taken twice in a round, and then nothing moves.
// Workers act one after the other and see what the others did, or all together out of the same view.
func TestSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		together := rapid.Bool().Draw(t, "together")
		fewest := w.fewest()
		for range 3 {
			w.runRound(t, rapid.Permutation(w.workers).Draw(t, "order"), together)
		}
		w.balanced(t)
		if w.releases != fewest {
			t.Fatalf("%d releases, %d are enough", w.releases, fewest)
		}
		for _, self := range w.workers {
			w.round++ // nothing is kept back any more
			if plan := w.rules.Decide(w.view(self, w.holders)); len(plan.Release)+len(plan.Acquire) > 0 {
				t.Fatalf("%s still plans %+v", self, plan)
			}
		}
	})
}

// Workers come, go and lose everything, one change after the other: the fleet settles within three rounds of each.
func TestSettlesAfterEveryChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for change := range rapid.IntRange(1, 6).Draw(t, "changes") {
			if len(w.workers) > 1 && rapid.Bool().Draw(t, "leaves") {
				gone := rapid.SampledFrom(w.workers).Draw(t, "gone")
				w.workers = slices.DeleteFunc(w.workers, func(id string) bool { return id == gone })
				maps.DeleteFunc(w.holders, func(_, holder string) bool { return holder == gone })
			} else {
				w.workers = append(w.workers, fmt.Sprintf("n%02d", change))
			}
			w.releases = 0
			fewest := w.fewest()
			for range 3 {
				w.runRound(t, rapid.Permutation(w.workers).Draw(t, "order"), rapid.Bool().Draw(t, "together"))
			}
			w.balanced(t)
			if w.releases != fewest {
				t.Fatalf("%d releases, %d are enough", w.releases, fewest)
			}
		}
	})
}

func routes(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("r%02d", i))
	}
	return out
}

func heldBy(owner string, routes []string) map[string]string {
	out := map[string]string{}
	for _, route := range routes {
		out[route] = owner
	}
	return out
}

func TestDecide(t *testing.T) {
	all := routes(10)
	for _, c := range []struct {
		name             string
		rules            balance.Rules
		view             balance.View
		release, acquire int
	}{
		{"alone, all free", balance.Rules{}, balance.View{Self: "a", Workers: []string{"a"}}, 0, 10},
		{"not present", balance.Rules{}, balance.View{Self: "b", Workers: []string{"a"}, Holders: heldBy("b", all)}, 0, 0},
		{"nobody present", balance.Rules{}, balance.View{Self: "a"}, 0, 0},
		{"shared with one that has nothing", balance.Rules{}, balance.View{Self: "a", Workers: []string{"b", "a"}, Holders: heldBy("a", all)}, 5, 0},
		{"a worker that is named twice counts once", balance.Rules{}, balance.View{Self: "a", Workers: []string{"b", "a", "b"}, Holders: heldBy("a", all)}, 5, 0},
		{"nothing is taken from a holder", balance.Rules{}, balance.View{Self: "b", Workers: []string{"b", "a"}, Holders: heldBy("a", all)}, 0, 0},
		{"the cap", balance.Rules{MovesMax: 2}, balance.View{Self: "a", Workers: []string{"b", "a"}, Holders: heldBy("a", all)}, 2, 0},
		{"the cap that is the default", balance.Rules{}, balance.View{Self: "a", Workers: []string{"a", "b", "c", "d", "e"}, Holders: heldBy("a", all)}, 5, 0},
		{"what is kept", balance.Rules{}, balance.View{Self: "a", Workers: []string{"b", "a"}, Holders: heldBy("a", all),
			Keep: map[string]bool{"r00": true, "r01": true, "r02": true, "r03": true, "r04": true, "r05": true, "r06": true}}, 3, 0},
		{"a stranger's leases do not count", balance.Rules{}, balance.View{Self: "a", Workers: []string{"a", "b"}, Holders: heldBy("x", all[:8])}, 0, 1},
		{"within the band", balance.Rules{BandPercent: 20}, balance.View{Self: "a", Workers: []string{"a", "b"}, Holders: merge(heldBy("a", all[:6]), heldBy("b", all[6:]))}, 0, 0},
		{"outside of the band", balance.Rules{BandPercent: 10}, balance.View{Self: "a", Workers: []string{"a", "b"}, Holders: merge(heldBy("a", all[:6]), heldBy("b", all[6:]))}, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.view.Catalogue = all
			plan := c.rules.Decide(c.view)
			if len(plan.Release) != c.release || len(plan.Acquire) != c.acquire {
				t.Errorf("release %v, acquire %v", plan.Release, plan.Acquire)
			}
			for _, route := range plan.Release {
				if c.view.Keep[route] {
					t.Errorf("releases %s", route)
				}
			}
		})
	}
}

func merge(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

// A catalogue that names a route twice is as one that names it once.
func TestRepeatedRoute(t *testing.T) {
	plan := balance.Rules{}.Decide(balance.View{Self: "a", Workers: []string{"a"}, Catalogue: []string{"r", "r", "s"}})
	if !slices.Equal(plan.Acquire, []string{"r", "s"}) {
		t.Errorf("%v", plan.Acquire)
	}
}

func TestBounds(t *testing.T) {
	for _, c := range []struct{ band, workers, resources, least, greatest int }{
		{0, 5, 20, 4, 4}, {0, 6, 20, 3, 4}, {10, 5, 20, 4, 4}, {10, 5, 500, 90, 110}, {10, 7, 3, 0, 1}, {10, 0, 3, 0, 0}, {99, 1, 100, 1, 199},
	} {
		if least, greatest := (balance.Rules{BandPercent: c.band}).Bounds(c.workers, c.resources); least != c.least || greatest != c.greatest {
			t.Errorf("%+v: %d to %d", c, least, greatest)
		}
	}
}

// A fleet of 100 workers that share 2,000 resources settles after a tenth of it is gone and after a tenth is added, by the fewest moves.
func TestSettlesAtScale(t *testing.T) {
	w := &world{holders: map[string]string{}, since: map[string]int{}, rules: balance.Rules{BandPercent: 5}}
	for i := range 2_000 {
		w.catalogue = append(w.catalogue, fmt.Sprintf("lease://demo/fleet/%04d", i))
	}
	for i := range 100 {
		w.workers = append(w.workers, fmt.Sprintf("w%03d", i))
	}
	settles := func(change string) {
		w.releases = 0
		fewest := w.fewest()
		for range 3 {
			w.runRound(t, w.workers, true)
		}
		w.balanced(t)
		if w.releases != fewest {
			t.Errorf("%s: %d releases, %d are enough", change, w.releases, fewest)
		}
	}
	settles("all are free")
	gone := w.workers[:10]
	w.workers = w.workers[10:]
	maps.DeleteFunc(w.holders, func(_, holder string) bool { return slices.Contains(gone, holder) })
	settles("10 are gone")
	for i := range 10 {
		w.workers = append(w.workers, fmt.Sprintf("n%03d", i))
	}
	settles("10 come")
}
