// Package balance decides which leases a worker of a fleet gives up and which free ones it takes, so that the fleet settles although
// nobody leads it.
//
// Every worker decides for itself, out of what it sees. The decisions fit together because they follow from the view alone: workers that
// see the same decide for the same hand-overs, and a worker that sees some of them done already decides for the rest. No lease is ever
// taken from anybody: its holder releases it, and then the worker that has least takes it.
package balance

import (
	"slices"
	"sort"
)

// Rules bounds what is decided. The zero value moves until nobody has more than one resource more than another.
type Rules struct {
	// BandPercent is the dead band: loads that differ from the mean by so many percent count as balanced, 0 to 99.
	BandPercent int
	// MovesMax bounds how many leases one worker releases in a round. 0: half of the catalogue, which settles every fleet in two rounds.
	MovesMax int
}

// View is what a worker knows.
type View struct {
	Self      string            // the worker that decides
	Workers   []string          // the workers that are present, in any order
	Catalogue []string          // the routes of all resources, in an order that all workers share
	Holders   map[string]string // who holds a route; what is absent is free
	Keep      map[string]bool   // routes that Self does not release now, because it has not had them for long
}

// Plan is what a worker does next.
type Plan struct {
	Release []string // routes that Self holds
	Acquire []string // free routes
}

// Decide returns what the worker does next. A worker that is not present does nothing, and what somebody holds who is not present is left
// out of the sums. Releases are for a round; a worker that acts within a round looks at Acquire alone.
func (r Rules) Decide(v View) Plan {
	f := v.fleet()
	if f.self < 0 {
		return Plan{}
	}
	return Plan{Release: r.release(v, f), Acquire: f.acquire()}
}

// fleet is a view in numbers.
type fleet struct {
	self  int      // place of the worker that decides, -1: it is not present
	loads []int    // how much each worker holds, in the order of their names
	own   []string // what the worker holds that decides
	free  []string
	total int // held by workers that are present, and free
}

func (v View) fleet() fleet {
	workers := slices.Clone(v.Workers)
	slices.Sort(workers)
	workers = slices.Compact(workers)
	f := fleet{self: -1, loads: make([]int, len(workers))}
	if i, ok := slices.BinarySearch(workers, v.Self); ok {
		f.self = i
	}
	seen := make(map[string]bool, len(v.Catalogue))
	for _, route := range v.Catalogue {
		if seen[route] {
			continue
		}
		seen[route] = true
		holder, held := v.Holders[route]
		if !held {
			f.free = append(f.free, route)
			f.total++
			continue
		}
		i, ok := slices.BinarySearch(workers, holder)
		if !ok {
			continue
		}
		f.loads[i]++
		f.total++
		if i == f.self {
			f.own = append(f.own, route)
		}
	}
	return f
}

// Bounds returns the least and the greatest load that count as balanced when so many workers share so many resources. They include the
// mean rounded down and up, so that every number of resources can be balanced.
func (r Rules) Bounds(workers, resources int) (least, greatest int) {
	if workers == 0 {
		return 0, 0
	}
	roundUp := func(a, b int) int { return (a + b - 1) / b }
	least = min(resources/workers, roundUp(resources*(100-r.BandPercent), 100*workers))
	greatest = max(roundUp(resources, workers), resources*(100+r.BandPercent)/(100*workers))
	return least, greatest
}

// surplus returns how many leases the whole fleet has to release: those above the greatest load, and as many as the workers below the
// least load need beyond what is free. That is the smallest number with which a balance can be reached.
func (r Rules) surplus(f fleet) int {
	least, greatest := r.Bounds(len(f.loads), f.total)
	above, missing := 0, 0
	for _, load := range f.loads {
		above += max(0, load-greatest)
		missing += max(0, least-load)
	}
	return max(above, missing-len(f.free))
}

// release returns what the worker gives up. The fleet levels its loads from the top: the surplus is taken one by one from whoever has
// most, and among equals from the first by name. A hand-over that is done already takes its step out of that sequence and leaves the others
// as they are, so workers with different views of the same round do not release too much together.
func (r Rules) release(v View, f fleet) []string {
	count := steps(f.loads, f.self, r.surplus(f))
	limit := r.MovesMax
	if limit <= 0 {
		limit = (len(v.Catalogue) + 1) / 2
	}
	count = min(count, limit)
	var out []string
	for _, route := range slices.Backward(f.own) {
		if len(out) == count {
			break
		}
		if !v.Keep[route] {
			out = append(out, route)
		}
	}
	return out
}

// steps returns how many of the first count steps of levelling from the top a worker takes.
func steps(loads []int, self, count int) int {
	if count <= 0 {
		return 0
	}
	above := func(level int) (sum int) {
		for _, load := range loads {
			sum += max(0, load-level)
		}
		return sum
	}
	// The lowest level down to which all can be levelled.
	level := sort.Search(slices.Max(loads), func(level int) bool { return above(level) <= count })
	mine, rest := max(0, loads[self]-level), count-above(level)
	for i := 0; i <= self && rest > 0; i++ { // the rest goes one below the level, by name
		if loads[i] < level || level == 0 {
			continue
		}
		rest--
		if i == self {
			mine++
		}
	}
	return mine
}

// acquire returns what the worker takes: the free resources in their order go one by one to whoever has least, and among equals to the
// first by name.
func (f fleet) acquire() []string {
	var out []string
	for load := f.loads[f.self]; ; load++ {
		before := 0 // resources that are given away before this worker gets the next one
		for i, other := range f.loads {
			before += max(0, load-other)
			if i < f.self && other <= load {
				before++
			}
		}
		if before >= len(f.free) {
			return out
		}
		out = append(out, f.free[before])
	}
}
