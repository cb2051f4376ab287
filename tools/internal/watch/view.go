// Package watch shows the leases that an inventory observer sees: as a table, as lines of changes, and as JSON. What it shows is advisory
// and can be stale at any time; only the broker decides who holds what.
package watch

import (
	"iter"
	"maps"
	"slices"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

// Shown is what a reader of changes has been told. It turns the reset with which the changes of an observer begin, and the one after a
// reader has fallen behind, into the differences to what was told before, so that a list of changes is complete from the first line on.
type Shown struct {
	held   map[string]fitz.LeaseEntry // by route
	synced bool                       // something was told
	stale  bool
}

// NewShown returns what a reader has been told at the beginning: nothing.
func NewShown() *Shown { return &Shown{held: map[string]fitz.LeaseEntry{}} }

// Apply returns what to tell of a change: added, changed, removed, stale or fresh, never a reset. The reason of a reset to a stale
// inventory is that of the status of its observer.
func (s *Shown) Apply(c fitz.InventoryChange) []fitz.InventoryChange {
	switch c.Kind {
	case fitz.InventoryReset:
		return s.reset(c.Inventory.All(), c.Inventory.Stale, c.Reason)
	case fitz.InventoryAdded, fitz.InventoryChanged:
		s.held[c.After.Route] = c.After
	case fitz.InventoryRemoved:
		delete(s.held, c.Before.Route)
	case fitz.InventoryStale:
		s.stale = true
	case fitz.InventoryFresh:
		s.stale = false
	}
	return []fitz.InventoryChange{c}
}

func (s *Shown) reset(inventory iter.Seq[fitz.LeaseEntry], stale bool, reason fitz.StaleReason) []fitz.InventoryChange {
	next := map[string]fitz.LeaseEntry{}
	var added, removed []fitz.InventoryChange
	for entry := range inventory {
		next[entry.Route] = entry
		before, held := s.held[entry.Route]
		switch {
		case !held:
			added = append(added, fitz.InventoryChange{Kind: fitz.InventoryAdded, After: entry})
		case !sameHolding(before, entry):
			added = append(added, fitz.InventoryChange{Kind: fitz.InventoryChanged, Before: before, After: entry})
		}
	}
	for _, route := range slices.Sorted(maps.Keys(s.held)) {
		if _, held := next[route]; !held {
			removed = append(removed, fitz.InventoryChange{Kind: fitz.InventoryRemoved, Before: s.held[route]})
		}
	}
	changes := append(removed, added...)
	switch {
	case stale && !s.stale:
		changes = append(changes, fitz.InventoryChange{Kind: fitz.InventoryStale, Reason: reason})
	case !stale && (s.stale || !s.synced):
		changes = append(changes, fitz.InventoryChange{Kind: fitz.InventoryFresh})
	}
	s.held, s.synced, s.stale = next, true, stale
	return changes
}

// sameHolding reports whether two entries are the same acquisition: what a renewal changes does not count (OB-53).
func sameHolding(a, b fitz.LeaseEntry) bool {
	return a.HolderIncarnation == b.HolderIncarnation && a.OwnerID == b.OwnerID && a.AcquiredAt.Equal(b.AcquiredAt)
}
