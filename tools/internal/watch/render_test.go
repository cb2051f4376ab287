package watch

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

var renderNow = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

var renderItems = []fitz.LeaseEntry{
	{Route: "lease://acme/renderers/document-123", OwnerID: "worker", HolderIncarnation: "1122334455667788", AcquiredAt: renderNow.Add(-65 * time.Second), Remaining: 29 * time.Second, Renewals: 6},
	{Route: "lease://acme/x/\u202ey", OwnerID: "evil\x1b[2J", HolderIncarnation: "0000000000000001", AcquiredAt: renderNow},
	{Route: "lease://acme/x/z", OwnerID: "c", HolderIncarnation: "0000000000000002", AcquiredAt: renderNow.AddDate(1, 0, 0), Remaining: 90 * time.Second},
}

func viewOf(items []fitz.LeaseEntry) View {
	return View{Items: slices.Values(items), Len: len(items), Synced: true}
}

func golden(t *testing.T, got []string, want string) {
	t.Helper()
	if text := strings.Join(got, "\n"); text != strings.TrimPrefix(want, "\n") {
		t.Errorf("got\n%s\nwant%s", text, want)
	}
}

func TestTable(t *testing.T) {
	golden(t, Table(renderItems, renderNow), `
ROUTE                                OWNER          SESSION           HELD FOR  EXPIRES IN  RENEWALS
lease://acme/renderers/document-123  worker         1122334455667788  1m5s      29s         6
lease://acme/x/\u202ey               evil\u001b[2J  0000000000000001  0s        0s          0
lease://acme/x/z                     c              0000000000000002  0s        1m30s       0`)
	golden(t, Table(nil, renderNow), `
ROUTE  OWNER  SESSION  HELD FOR  EXPIRES IN  RENEWALS`)
}

func TestLive(t *testing.T) {
	v := viewOf(renderItems)
	golden(t, Live("lease://acme/**", v, renderNow, Screen{}), `
lease://acme/**  3 held

ROUTE                                OWNER          SESSION           HELD FOR
lease://acme/renderers/document-123  worker         1122334455667788  1m5s
lease://acme/x/\u202ey               evil\u001b[2J  0000000000000001  0s
lease://acme/x/z                     c              0000000000000002  0s`)
	v.Stale = fitz.StaleDisconnected
	golden(t, Live("lease://acme/**", v, renderNow, Screen{Width: 40, Height: 5}), `
lease://acme/**  3 held, stale: disconn…

ROUTE                                OW…
lease://acme/renderers/document-123  wo…
… and 2 more`)
	golden(t, Live("lease://acme/**", View{}, renderNow, Screen{}), `
lease://acme/**  connecting`)
}

// Whatever is shown and however small the screen is, nothing leaves it.
func TestLiveFitsTheScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := make([]fitz.LeaseEntry, rapid.IntRange(0, 20).Draw(t, "items"))
		for i := range items {
			items[i] = fitz.LeaseEntry{Route: rapid.String().Draw(t, "route"), OwnerID: rapid.String().Draw(t, "owner")}
		}
		screen := Screen{Width: rapid.IntRange(1, 100).Draw(t, "width"), Height: rapid.IntRange(4, 30).Draw(t, "height")}
		lines := Live("lease://a/**", viewOf(items), renderNow, screen)
		if len(lines) > screen.Height {
			t.Fatalf("%d lines on %d", len(lines), screen.Height)
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > screen.Width || strings.ContainsAny(line, "\n\r\x1b") {
				t.Fatalf("line %q on width %d", line, screen.Width)
			}
		}
	})
}

func TestLines(t *testing.T) {
	a, b := renderItems[0], renderItems[1]
	b.Route = a.Route
	var lines []string
	for _, c := range []fitz.InventoryChange{
		{Kind: fitz.InventoryAdded, After: a}, {Kind: fitz.InventoryChanged, Before: a, After: b}, {Kind: fitz.InventoryRemoved, Before: b},
		{Kind: fitz.InventoryStale, Reason: fitz.StaleDisconnected}, {Kind: fitz.InventoryFresh},
	} {
		lines = append(lines, Line(c))
	}
	golden(t, lines, `
added   lease://acme/renderers/document-123  worker  2030-01-02T03:03:00.000Z
changed lease://acme/renderers/document-123  evil\u001b[2J  2030-01-02T03:04:05.000Z  (was worker)
removed lease://acme/renderers/document-123  evil\u001b[2J
stale   disconnected
fresh`)
}

// L-10: JSON keeps text exact.
func TestChangeForJSON(t *testing.T) {
	b, err := json.Marshal(ChangeForJSON(fitz.InventoryChange{Kind: fitz.InventoryChanged, Before: renderItems[0], After: renderItems[1]}))
	if err != nil {
		t.Fatal(err)
	}
	var back JSONChange
	if err := json.Unmarshal(b, &back); err != nil || back.Item.OwnerID != renderItems[1].OwnerID || back.Item.Route != renderItems[1].Route ||
		back.Before.OwnerID != renderItems[0].OwnerID || back.Item.HolderIncarnation != "0000000000000001" {
		t.Fatalf("%s, %v", b, err)
	}
	for change, want := range map[fitz.InventoryChange]string{
		{Kind: fitz.InventoryStale, Reason: fitz.StaleDisconnected}: `{"event":"stale","reason":"disconnected"}`,
		{Kind: fitz.InventoryFresh}:                                 `{"event":"fresh"}`,
	} {
		if b, _ := json.Marshal(ChangeForJSON(change)); string(b) != want {
			t.Errorf("got %s, want %s", b, want)
		}
	}
}
