package fleet_test

import (
	"slices"
	"testing"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/fleet"
)

func added(route, owner string) fitz.InventoryChange {
	return fitz.InventoryChange{Kind: fitz.InventoryAdded, After: fitz.LeaseEntry{Route: route, OwnerID: owner}}
}

func removed(route, owner string) fitz.InventoryChange {
	return fitz.InventoryChange{Kind: fitz.InventoryRemoved, Before: fitz.LeaseEntry{Route: route, OwnerID: owner}}
}

// The board tells each step once, knows a hand-over from a first take, and shows text of others escaped (L-10).
func TestBoard(t *testing.T) {
	catalogue := fleet.Catalogue(2)
	b := fleet.NewBoard(catalogue)
	for _, step := range []struct {
		change  fitz.InventoryChange
		lines   []string
		settled bool
	}{
		{added(fleet.PresenceRoute("a"), "a"), []string{"joined a"}, false},
		{added(fleet.PresenceRoute("a"), "b"), nil, false}, // that is not b
		{added(catalogue[0], "a"), []string{"taken  0  a"}, false},
		{added(catalogue[1], "a"), []string{"taken  1  a"}, true},
		{added("lease://demo/fleet/x", "a"), nil, true},
		{added(fleet.PresenceRoute("b\x1b"), "b\x1b"), []string{`joined b\u001b`}, false},
		{removed(catalogue[1], "a"), []string{"freed  1  a"}, false},
		{added(catalogue[1], "a"), []string{"taken  1  a"}, false},
		{fitz.InventoryChange{Kind: fitz.InventoryChanged, Before: fitz.LeaseEntry{Route: catalogue[1], OwnerID: "a"},
			After: fitz.LeaseEntry{Route: catalogue[1], OwnerID: "a"}}, nil, false},
		{fitz.InventoryChange{Kind: fitz.InventoryChanged, Before: fitz.LeaseEntry{Route: catalogue[1], OwnerID: "a"},
			After: fitz.LeaseEntry{Route: catalogue[1], OwnerID: "b\x1b"}}, []string{"freed  1  a", `moved  1  a -> b\u001b`}, true},
		{fitz.InventoryChange{Kind: fitz.InventoryStale, Reason: fitz.StaleDisconnected}, []string{"stale  disconnected"}, false},
		{fitz.InventoryChange{Kind: fitz.InventoryFresh}, []string{"fresh"}, true},
		{removed(fleet.PresenceRoute("a"), "a"), []string{"left   a"}, true}, // what it holds is nobody's to share
		{removed(catalogue[0], "a"), []string{"freed  0  a"}, false},
	} {
		var lines []string
		for _, event := range b.Apply(step.change) {
			lines = append(lines, fleet.Line(event))
		}
		if !slices.Equal(lines, step.lines) {
			t.Errorf("%+v: %q, want %q", step.change, lines, step.lines)
		}
		if got := b.Spread(); got.Settled != step.settled {
			t.Errorf("after %q: %v", step.lines, got)
		}
	}
}

func TestSpread(t *testing.T) {
	b := fleet.NewBoard(fleet.Catalogue(3))
	if got := b.Spread().String(); got != "0 workers, 0 of 3 held, 0 to 0 each, max/mean 0.00, 0 moves" {
		t.Error(got)
	}
	for _, id := range []string{"a", "b"} {
		b.Apply(added(fleet.PresenceRoute(id), id))
	}
	for i, owner := range []string{"a", "a", "b"} {
		b.Apply(added(fleet.Catalogue(3)[i], owner))
	}
	if got := b.Spread().String(); got != "2 workers, 3 of 3 held, 1 to 2 each, max/mean 1.33, 0 moves, settled" {
		t.Error(got)
	}
}

// The screen shows the workers, also those that hold nothing, what is free, and as much of the rest as fits.
func TestLive(t *testing.T) {
	catalogue := fleet.Catalogue(3)
	b := fleet.NewBoard(catalogue)
	for _, change := range []fitz.InventoryChange{added(fleet.PresenceRoute("ada"), "ada"), added(fleet.PresenceRoute("b"), "b"), added(catalogue[0], "ada"), added(catalogue[2], "ada")} {
		b.Apply(change)
	}
	want := []string{
		"2 workers, 2 of 3 held, 0 to 2 each, max/mean 1.33, 0 moves", "",
		"WORKER  HOLDS  RESOURCES",
		"ada         2  0 2",
		"b           0  ",
		"(free)      1  1", "",
		"newest", "oldest",
	}
	if got := b.Live([]string{"newest", "oldest"}, 0, 0); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := b.Live([]string{"newest", "oldest"}, 10, 8); len(got) != 8 || got[2] != "WORKER  H…" || got[7] != "newest" {
		t.Errorf("%q", got)
	}
}

func TestCatalogue(t *testing.T) {
	if got := fleet.Catalogue(11); len(got) != 11 || got[0] != "lease://demo/fleet/00" || got[10] != "lease://demo/fleet/10" || fleet.Resource(got[3]) != "03" {
		t.Errorf("%q", got)
	}
}
