package watch

import (
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/display"
)

// Screen is what a table has to fit into.
type Screen struct {
	Width, Height int // 0: no bound
}

// View is what a running watch shows.
type View struct {
	Items  iter.Seq[fitz.LeaseEntry] // in segment order
	Len    int                       // number of items
	Synced bool                      // the view was complete at least once
	Stale  fitz.StaleReason          // why the view may be wrong; empty when it is current as far as known
}

// ViewOf returns what an observer sees now.
func ViewOf(o *fitz.InventoryObserver) View {
	inventory, synced := o.Snapshot()
	if !synced {
		return View{}
	}
	v := View{Items: inventory.All(), Len: inventory.Len(), Synced: true}
	if inventory.Stale {
		v.Stale = o.Status().Reason
	}
	return v
}

// column is one column of a table.
type column struct {
	head string
	cell func(fitz.LeaseEntry) string
}

// Table draws items as a table with a head line. Text of other people is escaped (L-10). now is the wall clock, against which times of
// acquisition are shown.
func Table(items []fitz.LeaseEntry, now time.Time) []string {
	return draw(items, 0, 0, append(columns(now),
		column{"EXPIRES IN", func(e fitz.LeaseEntry) string { return e.Remaining.String() }},
		column{"RENEWALS", func(e fitz.LeaseEntry) string { return fmt.Sprint(e.Renewals) }},
	))
}

// columns are the columns of every table.
func columns(now time.Time) []column {
	return []column{
		{"ROUTE", func(e fitz.LeaseEntry) string { return display.Text(e.Route) }},
		{"OWNER", func(e fitz.LeaseEntry) string { return display.Text(e.OwnerID) }},
		{"SESSION", func(e fitz.LeaseEntry) string { return display.Text(string(e.HolderIncarnation)) }},
		{"HELD FOR", func(e fitz.LeaseEntry) string { return max(now.Sub(e.AcquiredAt).Truncate(time.Second), 0).String() }},
	}
}

// draw draws rows, and how many more there are.
func draw(shown []fitz.LeaseEntry, more, width int, columns []column) []string {
	rows := make([][]string, len(shown)+1)
	for _, c := range columns {
		rows[0] = append(rows[0], c.head)
		for i, entry := range shown {
			rows[i+1] = append(rows[i+1], c.cell(entry))
		}
	}
	lines := align(rows, width)
	if more > 0 {
		lines = append(lines, cut(fmt.Sprintf("… and %d more", more), width))
	}
	return lines
}

// Live draws the whole screen of a running watch. It does not show what renewals change: they are not notified (L-72), so a view that is
// kept does not know it.
func Live(selector string, v View, now time.Time, screen Screen) []string {
	state := fmt.Sprintf("%d held", v.Len)
	switch {
	case !v.Synced:
		state = "connecting"
	case v.Stale != "":
		state = fmt.Sprintf("%d held, stale: %s", v.Len, v.Stale)
	}
	head := cut(display.Text(selector)+"  "+state, screen.Width)
	if !v.Synced {
		return []string{head}
	}
	shown := first(v.Items, rowsOf(v.Len, screen.Height))
	return append([]string{head, ""}, draw(shown, v.Len-len(shown), screen.Width, columns(now))...)
}

// rowsOf is how many of so many items fit below two lines and the head of the table. One row is given up to say that there are more.
func rowsOf(items, height int) int {
	const above = 3
	if height <= 0 || items <= height-above {
		return items
	}
	return max(height-above-1, 0)
}

func first(items iter.Seq[fitz.LeaseEntry], n int) []fitz.LeaseEntry {
	out := make([]fitz.LeaseEntry, 0, n)
	for entry := range items {
		if len(out) == n {
			break
		}
		out = append(out, entry)
	}
	return out
}

// align pads the cells of each column to the same width and cuts lines that are too long.
func align(rows [][]string, width int) []string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		var b strings.Builder
		for column, cell := range row {
			b.WriteString(cell)
			if column < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[column]-utf8.RuneCountInString(cell)+2))
			}
		}
		lines[i] = cut(b.String(), width)
	}
	return lines
}

// cut shortens a line to the width of the screen.
func cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	runes := []rune(line)
	return string(runes[:width-1]) + "…"
}

// timeFormat is RFC 3339 with milliseconds, as the broker writes times.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// Line shows a change as one line.
func Line(c fitz.InventoryChange) string {
	word := fmt.Sprintf("%-8s", c.Kind)
	switch c.Kind {
	case fitz.InventoryAdded:
		return word + holder(c.After) + "  " + c.After.AcquiredAt.Format(timeFormat)
	case fitz.InventoryChanged:
		return word + holder(c.After) + "  " + c.After.AcquiredAt.Format(timeFormat) + "  (was " + display.Text(c.Before.OwnerID) + ")"
	case fitz.InventoryRemoved:
		return word + holder(c.Before)
	case fitz.InventoryStale:
		return word + string(c.Reason)
	}
	return string(c.Kind)
}

func holder(e fitz.LeaseEntry) string { return display.Text(e.Route) + "  " + display.Text(e.OwnerID) }

// JSONItem is a held lease for programs. Text is exact (L-10).
type JSONItem struct {
	Route             string `json:"route"`
	OwnerID           string `json:"owner_id"`
	HolderIncarnation string `json:"holder_incarnation"` // opaque, can only be compared for equality (L-13)
	AcquiredAt        string `json:"acquired_at"`
	ExpiresInSecs     uint64 `json:"expires_in_secs"`
	Renewals          uint32 `json:"renewals"`
}

// ItemForJSON converts an item.
func ItemForJSON(e fitz.LeaseEntry) JSONItem {
	return JSONItem{
		e.Route, e.OwnerID, string(e.HolderIncarnation), e.AcquiredAt.Format(timeFormat), uint64(e.Remaining / time.Second), e.Renewals,
	}
}

// JSONChange is a change for programs.
type JSONChange struct {
	Event  fitz.ChangeKind  `json:"event"`
	Item   *JSONItem        `json:"item,omitempty"`   // what is held now; for removed what was
	Before *JSONItem        `json:"before,omitempty"` // of changed
	Reason fitz.StaleReason `json:"reason,omitempty"` // of stale
}

// ChangeForJSON converts a change.
func ChangeForJSON(c fitz.InventoryChange) JSONChange {
	out := JSONChange{Event: c.Kind, Reason: c.Reason}
	before, after := ItemForJSON(c.Before), ItemForJSON(c.After)
	switch c.Kind {
	case fitz.InventoryAdded:
		out.Item = &after
	case fitz.InventoryChanged:
		out.Item, out.Before = &after, &before
	case fitz.InventoryRemoved:
		out.Item = &before
	}
	return out
}
