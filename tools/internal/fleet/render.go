package fleet

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fitzwire/fitz/tools/internal/display"
)

// Line shows an event as one line. Names that other people chose are escaped (L-10).
func Line(e Event) string {
	word := fmt.Sprintf("%-7s", e.Kind)
	route, from, to := display.Text(Resource(e.Route)), display.Owner(e.From), display.Owner(e.To)
	switch e.Kind {
	case Joined:
		return word + to
	case Left:
		return word + from
	case Taken:
		return word + route + "  " + to
	case Moved:
		return word + route + "  " + from + " -> " + to
	case Freed:
		return word + route + "  " + from
	case Stale:
		return word + display.Text(e.Reason)
	}
	return string(e.Kind)
}

// Live draws the whole screen: the spread, what each worker holds, and the latest events, newest first. width and height of 0 are no bound.
func (b *Board) Live(latest []string, width, height int) []string {
	rows := [][3]string{{"WORKER", "HOLDS", "RESOURCES"}}
	for _, id := range b.Workers() {
		rows = append(rows, row(display.Owner(id), b.HeldBy(id)))
	}
	if free := b.Free(); len(free) > 0 {
		rows = append(rows, row("(free)", free))
	}
	first := 0
	for _, r := range rows {
		first = max(first, utf8.RuneCountInString(r[0]))
	}
	lines := []string{b.Spread().String(), ""}
	for _, r := range rows {
		lines = append(lines, r[0]+strings.Repeat(" ", first-utf8.RuneCountInString(r[0]))+fmt.Sprintf("  %5s  %s", r[1], r[2]))
	}
	lines = append(lines, "")
	lines = append(lines, latest...)
	if height > 0 && len(lines) > height {
		lines = lines[:height]
	}
	for i := range lines {
		lines[i] = cut(lines[i], width)
	}
	return lines
}

func row(name string, routes []string) [3]string {
	names := make([]string, len(routes))
	for i, route := range routes {
		names[i] = display.Text(Resource(route))
	}
	return [3]string{name, fmt.Sprint(len(routes)), strings.Join(names, " ")}
}

// cut shortens a line to a width.
func cut(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}
