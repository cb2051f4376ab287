package fleet

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/balance"
)

// Kind is what an Event tells.
type Kind string

// The kinds of events.
const (
	Joined Kind = "joined" // To is there
	Left   Kind = "left"   // From is gone
	Taken  Kind = "taken"  // To holds Route, which nobody held before or To itself did
	Moved  Kind = "moved"  // To holds Route, which From held before
	Freed  Kind = "freed"  // From does not hold Route any more
	Stale  Kind = "stale"  // the view is not current, because of Reason
	Fresh  Kind = "fresh"  // the view is current again
)

// Event is one thing that happened in a fleet.
type Event struct {
	Kind   Kind   `json:"event"`
	Route  string `json:"route,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Board is a view of a fleet from outside: who holds what, and how it came to that.
type Board struct {
	catalogue map[string]bool
	workers   map[string]bool
	holders   map[string]string
	loads     map[string]int    // how much everybody holds
	last      map[string]string // who held a route last
	stale     bool
	moves     int // since the board began
	atChange  int // moves when the fleet was settled last
}

// NewBoard returns the view of a fleet that nothing is known of.
func NewBoard(catalogue []string) *Board {
	b := &Board{catalogue: map[string]bool{}, workers: map[string]bool{}, holders: map[string]string{}, loads: map[string]int{}, last: map[string]string{}}
	for _, route := range catalogue {
		b.catalogue[route] = true
	}
	return b
}

// Apply takes a change of the inventory of Selector and returns what happened.
func (b *Board) Apply(c fitz.InventoryChange) []Event {
	if b.Spread().Settled {
		b.atChange = b.moves
	}
	switch c.Kind {
	case fitz.InventoryReset:
		return b.reset(c.Inventory)
	case fitz.InventoryAdded:
		return b.add(c.After)
	case fitz.InventoryRemoved:
		return b.remove(c.Before.Route, c.Before.OwnerID)
	case fitz.InventoryChanged:
		if c.Before.OwnerID == c.After.OwnerID {
			return nil // another session of the same worker
		}
		return append(b.remove(c.Before.Route, c.Before.OwnerID), b.add(c.After)...)
	case fitz.InventoryStale:
		b.stale = true
		return []Event{{Kind: Stale, Reason: string(c.Reason)}}
	case fitz.InventoryFresh:
		b.stale = false
		return []Event{{Kind: Fresh}}
	}
	return nil
}

// reset finds what differs from an inventory.
func (b *Board) reset(inventory *fitz.Inventory) []Event {
	b.stale = inventory.Stale
	var events []Event
	for _, route := range slices.Sorted(maps.Keys(b.holders)) {
		if entry, held := inventory.Get(route); !held || entry.OwnerID != b.holders[route] {
			events = append(events, b.remove(route, b.holders[route])...)
		}
	}
	for _, id := range b.Workers() {
		if _, there := inventory.Get(PresenceRoute(id)); !there {
			events = append(events, b.remove(PresenceRoute(id), id)...)
		}
	}
	for entry := range inventory.All() {
		if b.workers[entry.OwnerID] && entry.Route == PresenceRoute(entry.OwnerID) || b.holders[entry.Route] == entry.OwnerID {
			continue
		}
		events = append(events, b.add(entry)...)
	}
	return events
}

func (b *Board) add(entry fitz.LeaseEntry) []Event {
	route, owner := entry.Route, entry.OwnerID
	if route == PresenceRoute(owner) {
		b.workers[owner] = true
		return []Event{{Kind: Joined, To: owner}}
	}
	if !b.catalogue[route] {
		return nil
	}
	before, known := b.last[route]
	b.holders[route], b.last[route] = owner, owner
	b.loads[owner]++
	if !known || before == owner {
		return []Event{{Kind: Taken, Route: route, To: owner}}
	}
	b.moves++
	return []Event{{Kind: Moved, Route: route, From: before, To: owner}}
}

func (b *Board) remove(route, owner string) []Event {
	if route == PresenceRoute(owner) {
		delete(b.workers, owner)
		return []Event{{Kind: Left, From: owner}}
	}
	if !b.catalogue[route] {
		return nil
	}
	delete(b.holders, route)
	if b.loads[owner]--; b.loads[owner] == 0 {
		delete(b.loads, owner)
	}
	return []Event{{Kind: Freed, Route: route, From: owner}}
}

// Workers returns the names of the workers that are present, in order.
func (b *Board) Workers() []string { return slices.Sorted(maps.Keys(b.workers)) }

// HeldBy returns what somebody holds, in order.
func (b *Board) HeldBy(owner string) []string {
	var out []string
	for route, holder := range b.holders {
		if holder == owner {
			out = append(out, route)
		}
	}
	slices.Sort(out)
	return out
}

// Free returns the routes that nobody holds, in order.
func (b *Board) Free() []string {
	var out []string
	for route := range b.catalogue {
		if _, held := b.holders[route]; !held {
			out = append(out, route)
		}
	}
	slices.Sort(out)
	return out
}

// Spread is how evenly the resources are shared.
type Spread struct {
	Workers   int     `json:"workers"`
	Resources int     `json:"resources"` // that the workers share: free, or held by one of them
	Held      int     `json:"held"`      // by workers
	Least     int     `json:"least"`     // that a worker holds
	Most      int     `json:"most"`      // that a worker holds
	MaxToMean float64 `json:"max_to_mean"`
	Moves     int     `json:"moves"` // from one worker to another since the fleet was settled before
	Settled   bool    `json:"settled"`
	Stale     bool    `json:"stale,omitempty"`
}

// Spread returns how evenly the resources are shared now. They are settled when all are held and every worker holds what counts as
// balanced: within DefaultBandPercent of the mean, or the mean rounded down or up.
func (b *Board) Spread() Spread {
	s := Spread{Workers: len(b.workers), Resources: len(b.catalogue), Moves: b.moves - b.atChange, Stale: b.stale}
	for holder, load := range b.loads {
		if !b.workers[holder] {
			s.Resources -= load // of somebody who does not take part
		}
	}
	if s.Workers == 0 {
		return s
	}
	s.Least = s.Resources
	for id := range b.workers {
		load := b.loads[id]
		s.Held += load
		s.Least, s.Most = min(s.Least, load), max(s.Most, load)
	}
	if s.Resources > 0 {
		s.MaxToMean = float64(s.Most) * float64(s.Workers) / float64(s.Resources)
	}
	least, most := balance.Rules{BandPercent: DefaultBandPercent}.Bounds(s.Workers, s.Resources)
	s.Settled = !s.Stale && s.Held == s.Resources && s.Least >= least && s.Most <= most
	return s
}

// String describes the spread in one line.
func (s Spread) String() string {
	text := fmt.Sprintf("%d workers, %d of %d held, %d to %d each, max/mean %.2f, %d moves", s.Workers, s.Held, s.Resources, s.Least, s.Most, s.MaxToMean, s.Moves)
	switch {
	case s.Stale:
		return text + ", stale"
	case s.Settled:
		return text + ", settled"
	}
	return text
}
