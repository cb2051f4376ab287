package report

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fitzwire/fitz/conformance/engine"
)

// Style says how text is written to an output.
type Style struct {
	Live   bool // a terminal: progress is one line that is written over and over
	Colour bool
	Width  int // of the terminal in columns; 0: not known
}

// StyleOf looks at an output: only a terminal is live and has colours, and those not when the environment has NO_COLOR or says that the
// terminal is dumb.
func StyleOf(w io.Writer, env func(string) string) Style {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || env("TERM") == "dumb" {
		return Style{}
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width = 0
	}
	return Style{Live: true, Colour: env("NO_COLOR") == "", Width: width}
}

// Codes of colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

// colours of the statuses.
var colours = map[string]string{
	string(engine.Pass): green, string(engine.Fail): red, string(engine.Unsupported): yellow, string(engine.CouldNotRun): yellow, StatusKnown: yellow,
}

func (s Style) paint(code, text string) string {
	if !s.Colour || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Progress writes what happens while cases run. Its methods are not for concurrent use.
type Progress struct {
	w      io.Writer
	style  Style
	quiet  bool
	counts map[string]int
	shown  bool // a live line stands at the cursor
}

// NewProgress returns the progress of one run. Quiet leaves out what is a pass.
func NewProgress(w io.Writer, style Style, quiet bool) *Progress {
	return &Progress{w: w, style: style, quiet: quiet, counts: map[string]int{}}
}

// Case tells that a case has ended: engine.Config.Progress. On a terminal a pass only moves the live line; everything else stays.
func (p *Progress) Case(done, all int, c *engine.Case) {
	status := string(c.Verdict)
	p.counts[status]++
	passed := c.Verdict == engine.Pass
	if !passed || !p.style.Live && !p.quiet {
		p.clear()
		text := fmt.Sprintf("[%d/%d] %s %s (%s)", done, all, p.style.paint(colours[status], fmt.Sprintf("%-13s", status)), c.Name, round(c.Duration))
		if !passed {
			text += " " + line(c.Reason) + ": " + headline(&Case{Case: *c})
		}
		fmt.Fprintln(p.w, text)
	}
	if p.style.Live && !p.quiet {
		p.live(done, all, c)
	}
}

// live writes the line that is written over. It is never wider than the terminal, since only one line of it can be taken back.
func (p *Progress) live(done, all int, c *engine.Case) {
	text := fmt.Sprintf("%s %d of %d", bar(done, all), done, all)
	for _, status := range statuses {
		if n := p.counts[status]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, status)
		}
	}
	text += "  " + c.Name
	if runes := []rune(text); p.style.Width > 1 && len(runes) >= p.style.Width {
		text = string(runes[:p.style.Width-1])
	}
	fmt.Fprint(p.w, "\r\x1b[K"+text)
	p.shown = true
}

// bar is a bar of twenty characters.
func bar(done, all int) string {
	const width = 20
	full := width * done / max(all, 1)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

func (p *Progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// End takes the live line back.
func (p *Progress) End() { p.clear() }

// Bounds of the text at the end of a run.
const (
	framesTerminal   = 8  // last frames of a failure
	failuresTerminal = 40 // failures with everything; of the rest the names
	wrongTerminal    = 20 // wrong answers to vectors
)

// WriteText writes the end of a run for people: everything about each failure, what could not run, what is unsupported and what is known
// apart from that, and last the matrix, the budgets and the verdict, so that those stand where the eye is.
func (d *Document) WriteText(w io.Writer, style Style) error {
	t := &text{d: d, style: style}
	t.failures()
	t.apart(string(engine.CouldNotRun), "could not run, which is no pass")
	t.apart(string(engine.Unsupported), "unsupported, which is no pass")
	t.known()
	t.vectors()
	t.matrix()
	t.times()
	t.verdict()
	_, err := io.WriteString(w, t.String())
	return err
}

type text struct {
	strings.Builder
	d     *Document
	style Style
}

func (t *text) printf(format string, args ...any) { fmt.Fprintf(t, format, args...) }

// heading begins a part.
func (t *text) heading(code, format string, args ...any) {
	if t.Len() > 0 {
		t.printf("\n")
	}
	t.printf("%s\n", t.style.paint(code, fmt.Sprintf(format, args...)))
}

func (t *text) failures() {
	failed := t.d.byStatus(string(engine.Fail))
	if len(failed) == 0 {
		return
	}
	t.heading(red, "%s", plural(len(failed), "failure"))
	for i, c := range failed {
		if i == failuresTerminal {
			t.printf("\nand %d more, which the JSON and HTML reports have:\n", len(failed)-i)
		}
		if i >= failuresTerminal {
			t.printf("  %s: %s\n", c.Name, line(c.Reason))
			continue
		}
		first, rest, _ := strings.Cut(t.d.describe(c, framesTerminal), "\n")
		t.printf("\n%s\n%s", t.style.paint(bold, first), rest)
	}
}

// apart lists the cases with a status by what they say, since they mostly say the same.
func (t *text) apart(status, what string) {
	cases := t.d.byStatus(status)
	if len(cases) == 0 {
		return
	}
	why := map[string][]string{}
	for _, c := range cases {
		key := line(c.Reason) + ": " + headline(c)
		why[key] = append(why[key], c.Name)
	}
	t.heading(yellow, "%s %s", plural(len(cases), "case"), what)
	keys := make([]string, 0, len(why))
	for key := range why {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(len(why[b])-len(why[a]), cmp.Compare(a, b))
	})
	const names = 6
	for _, key := range keys {
		list := why[key]
		t.printf("  %d × %s\n    %s", len(list), key, strings.Join(list[:min(len(list), names)], ", "))
		if more := len(list) - names; more > 0 {
			t.printf(" and %d more", more)
		}
		t.printf("\n")
	}
}

func (t *text) known() {
	if len(t.d.Known) == 0 {
		return
	}
	t.heading(yellow, "%s listed, none of them a pass", plural(len(t.d.Known), "known failure"))
	for _, k := range t.d.Known {
		state := "fails as listed"
		if k.State != engine.KnownFails {
			state = t.style.paint(red, knownText(k))
		}
		t.printf("  %s: %s\n    %s: %s; %s (%s)\n", line(k.Case), state, line(k.Reason), line(k.Message), line(k.Why), line(k.Owner))
	}
}

func (t *text) vectors() {
	v := t.d.Vectors
	if v == nil || v.Verdict == engine.Pass {
		return
	}
	t.heading(colours[string(v.Verdict)], "golden vectors: %s: %s", v.Verdict, line(v.Reason))
	for _, wrong := range v.Wrong[:min(len(v.Wrong), wrongTerminal)] {
		t.printf("  %s\n", line(wrong))
	}
	if more := v.WrongAll - wrongTerminal; more > 0 {
		t.printf("  and %d more\n", more)
	}
}

// tally is how many cases of one cell of a table have each status.
type tally map[string]int

// marks are the signs of the statuses in tables, in the order in which they are shown.
var marks = []struct{ status, mark string }{
	{string(engine.Fail), "✗"}, {string(engine.CouldNotRun), "?"}, {string(engine.Unsupported), "–"}, {StatusKnown, "~"}, {string(engine.Pass), "✓"},
}

// String is 3✗ 12✓, and a dot when there is nothing.
func (c tally) String() string {
	var parts []string
	for _, m := range marks {
		if n := c[m.status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d%s", n, m.mark))
		}
	}
	if len(parts) == 0 {
		return "·"
	}
	return strings.Join(parts, " ")
}

// worst is the worst status of a cell, "" when there is none.
func (c tally) worst() string {
	for _, status := range statuses {
		if c[status] > 0 {
			return status
		}
	}
	return ""
}

// table is the matrix: a row for each folder, a column for each transport with and without labels and tokens, and sums.
type table struct {
	columns []column
	rows    []row
}

// column is a column of the table: a cell of the matrix for every scenario.
type column struct{ Transport, Labels, Auth string }

// String is tcp/on/token, the end of the names of its cases.
func (c column) String() string { return c.Transport + "/" + c.Labels + "/" + c.Auth }

type row struct {
	name  string
	cells []tally // one for each column
	sum   tally
}

func (d *Document) table() table {
	var t table
	for i := range d.Cases {
		t.columns = append(t.columns, column{d.Cases[i].Transport, d.Cases[i].Labels, d.Cases[i].Auth})
	}
	slices.SortFunc(t.columns, func(a, b column) int {
		return cmp.Or(cmp.Compare(a.Auth, b.Auth), cmp.Compare(a.Transport, b.Transport), -cmp.Compare(a.Labels, b.Labels))
	})
	t.columns = slices.Compact(t.columns)
	all := t.row("all")
	for _, folder := range d.folders() {
		r := t.row(folder)
		for i := range d.Cases {
			c := &d.Cases[i]
			if c.Folder != folder {
				continue
			}
			at := slices.Index(t.columns, column{c.Transport, c.Labels, c.Auth})
			for _, cell := range []tally{r.cells[at], r.sum, all.cells[at], all.sum} {
				cell[c.Status]++
			}
		}
		t.rows = append(t.rows, r)
	}
	if len(t.rows) > 1 {
		t.rows = append(t.rows, all)
	}
	return t
}

func (t *table) row(name string) row {
	r := row{name: name, sum: tally{}, cells: make([]tally, len(t.columns))}
	for i := range r.cells {
		r.cells[i] = tally{}
	}
	return r
}

func (t *text) matrix() {
	if len(t.d.Cases) == 0 {
		return
	}
	table := t.d.table()
	lines := [][]string{{"folder"}}
	colour := [][]string{{""}}
	for _, c := range table.columns {
		lines[0], colour[0] = append(lines[0], c.String()), append(colour[0], "")
	}
	lines[0], colour[0] = append(lines[0], "all"), append(colour[0], "")
	for _, r := range table.rows {
		cells, codes := []string{line(r.name)}, []string{""}
		for _, c := range append(slices.Clone(r.cells), r.sum) {
			cells, codes = append(cells, c.String()), append(codes, colours[c.worst()])
		}
		lines, colour = append(lines, cells), append(colour, codes)
	}
	widths := make([]int, len(lines[0]))
	for _, l := range lines {
		for i, cell := range l {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	t.heading(bold, "matrix (✓ pass, ✗ fail, ? could not run, – unsupported, ~ known failure, · none)")
	for n, l := range lines {
		out := ""
		for i, cell := range l {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == len(l)-1 {
				space = ""
			}
			out += "  " + t.style.paint(colour[n][i], cell) + space
		}
		t.printf("%s\n", out)
	}
}

func (t *text) times() {
	t.heading(bold, "times")
	if v := t.d.Vectors; v != nil {
		t.printf("  golden vectors: %s, %d answers, %d wrong\n", v.Verdict, v.Checked, v.WrongAll)
	}
	for _, b := range t.d.Budgets {
		state, code := budgetState(b)
		t.printf("  budget %s: %s of %s, %s\n", line(b.Name), round(b.Took), round(b.Limit), t.style.paint(code, state))
	}
	slow := slices.Clone(t.d.Cases)
	slices.SortStableFunc(slow, func(a, b Case) int { return cmp.Compare(b.Duration, a.Duration) })
	var names []string
	for _, c := range slow[:min(len(slow), 3)] {
		names = append(names, c.Name+" "+round(c.Duration))
	}
	if len(names) > 0 {
		t.printf("  slowest: %s\n", strings.Join(names, ", "))
	}
}

// budgetState says what a time is against its budget.
func budgetState(b engine.Budget) (state, colour string) {
	switch {
	case b.Exceeded():
		return "exceeded by more than half, which fails the run", red
	case b.Took > b.Limit:
		return "exceeded", yellow
	}
	return "kept", green
}

func (t *text) verdict() {
	d := t.d
	t.printf("\n%s: %d pass, %d fail, %d unsupported, %d could not run", plural(len(d.Cases), "case"), d.Counts[string(engine.Pass)],
		d.Counts[string(engine.Fail)], d.Counts[string(engine.Unsupported)], d.Counts[string(engine.CouldNotRun)])
	if n := d.Counts[StatusKnown]; n > 0 {
		t.printf(", %s", plural(n, "known failure"))
	}
	t.printf("; seed %d, %s, %s at a time\n", d.Seed, round(d.Duration), plural(d.Slots, "case"))
	if d.Filtered {
		t.printf("a part of the matrix was left out on purpose\n")
	}
	for _, complaint := range d.others() {
		t.printf("not right: %s\n", line(complaint))
	}
	if d.OK {
		t.printf("%s\n", t.style.paint(green, "PASSED"))
		return
	}
	t.printf("%s\n", t.style.paint(red, "FAILED"))
}

// others is the complaints that are about no case.
func (d *Document) others() []string {
	own := map[string]bool{}
	for i := range d.Cases {
		c := &d.Cases[i]
		own[c.Name+": "+string(c.Verdict)+": "+c.Reason] = true
	}
	return slices.DeleteFunc(slices.Clone(d.Complaints), func(text string) bool { return own[text] })
}
