package watch

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

// told is what somebody knows who has read every line.
type told struct {
	held   map[string]fitz.LeaseEntry
	states []fitz.ChangeKind // stale and fresh
}

func (k *told) read(t *rapid.T, changes []fitz.InventoryChange) {
	for _, c := range changes {
		switch c.Kind {
		case fitz.InventoryAdded:
			if _, held := k.held[c.After.Route]; held {
				t.Fatalf("added again: %+v", c)
			}
			k.held[c.After.Route] = c.After
		case fitz.InventoryChanged:
			if k.held[c.After.Route] != c.Before {
				t.Fatalf("changed from what was not told: %+v", c)
			}
			k.held[c.After.Route] = c.After
		case fitz.InventoryRemoved:
			if k.held[c.Before.Route] != c.Before {
				t.Fatalf("removed what was not told: %+v", c)
			}
			delete(k.held, c.Before.Route)
		case fitz.InventoryStale, fitz.InventoryFresh:
			k.states = append(k.states, c.Kind)
		default:
			t.Fatalf("told %s", c.Kind)
		}
	}
}

func inventoryOf(t *rapid.T) map[string]fitz.LeaseEntry {
	out := map[string]fitz.LeaseEntry{}
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, 9), 0, 10).Draw(t, "held") {
		r := fmt.Sprintf("lease://a/b/%d", i)
		out[r] = fitz.LeaseEntry{Route: r, OwnerID: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "owner")}
	}
	return out
}

// OB-54, OB-56: whatever resets come, applying the lines one after the other gives the inventory, nothing is told twice, and stale and fresh
// alternate.
func TestShownAfterResets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shown, known := NewShown(), &told{held: map[string]fitz.LeaseEntry{}}
		for range rapid.IntRange(1, 6).Draw(t, "resets") {
			inventory, stale := inventoryOf(t), rapid.Bool().Draw(t, "stale")
			known.read(t, shown.reset(maps.Values(inventory), stale, fitz.StaleDisconnected))
			if !maps.Equal(known.held, inventory) {
				t.Fatalf("told %v, held %v", known.held, inventory)
			}
			if state := known.states[len(known.states)-1]; (state == fitz.InventoryStale) != stale {
				t.Fatalf("the last state is %s", state)
			}
		}
		if len(slices.Compact(slices.Clone(known.states))) != len(known.states) {
			t.Fatalf("states %v", known.states)
		}
	})
}

// Changes go through as they are and count for the next reset; a renewal is none (OB-53).
func TestShownBetweenResets(t *testing.T) {
	a, b := fitz.LeaseEntry{Route: "lease://a/b/1", OwnerID: "a"}, fitz.LeaseEntry{Route: "lease://a/b/2", OwnerID: "b"}
	shown := NewShown()
	shown.reset(slices.Values([]fitz.LeaseEntry{a}), false, "")
	for _, c := range []fitz.InventoryChange{
		{Kind: fitz.InventoryAdded, After: b}, {Kind: fitz.InventoryRemoved, Before: a}, {Kind: fitz.InventoryStale, Reason: fitz.StaleDisconnected},
	} {
		if got := shown.Apply(c); len(got) != 1 || got[0] != c {
			t.Errorf("%+v became %+v", c, got)
		}
	}
	renewed := b
	renewed.Renewals, renewed.Remaining = 3, time.Second
	got := shown.reset(slices.Values([]fitz.LeaseEntry{renewed}), false, "")
	if len(got) != 1 || got[0].Kind != fitz.InventoryFresh {
		t.Errorf("%+v", got)
	}
	if shown.Apply(fitz.InventoryChange{Kind: fitz.InventoryStale}); len(shown.reset(slices.Values([]fitz.LeaseEntry{renewed}), true, "")) != 0 {
		t.Error("stale twice")
	}
}
