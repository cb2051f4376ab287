package report

import (
	"crypto/sha256"
	_ "embed" // parts of the page
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

var (
	//go:embed page.html.tmpl
	pageTemplate string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string

	page = template.Must(template.New("page").Parse(pageTemplate))
)

// PageBytes is about how large the frames of a page may become. A run with more frames than that shows fewer of each case.
const PageBytes = 16 << 20

// pageLimits are what a page shows of each case, tried in this order until all of it is small enough; the last one is taken anyway. What
// passed gives way first.
var pageLimits = []struct{ failed, passed Limits }{
	{Limits{Entries: 400, Bytes: 1024, Text: 4096, Events: 400}, Limits{Entries: 100, Bytes: 256, Text: 2048, Events: 100}},
	{Limits{Entries: 400, Bytes: 1024, Text: 4096, Events: 400}, Limits{Entries: 20, Bytes: 64, Text: 512, Events: 20}},
	{Limits{Entries: 120, Bytes: 256, Text: 2048, Events: 120}, Limits{}},
	{Limits{Entries: 40, Bytes: 128, Text: 1024, Events: 40}, Limits{}},
	{Limits{Entries: 12, Bytes: 64, Text: 512, Events: 12}, Limits{}},
}

// WriteHTML writes the document as one page that needs nothing else: no network, no server, no other file. Everything that came from a
// subject, a broker or a scenario is text, and what does not print in it is shown with its number.
func (d *Document) WriteHTML(w io.Writer) error { return d.writePage(w, PageBytes) }

func (d *Document) writePage(w io.Writer, most int) error {
	cases, note, err := d.pageCases(most)
	if err != nil {
		return err
	}
	clauses, err := json.Marshal(visibleMap(d.Clauses))
	if err != nil {
		return err
	}
	v := pageView{
		OK: d.OK, Started: d.Started.UTC().Format("2006-01-02 15:04:05 UTC"), Duration: round(d.Duration), Seed: d.Seed, Slots: d.Slots, Filtered: d.Filtered,
		Subject: line(subject(d.Subject)), Broker: line(subject(d.Broker)), All: len(d.Cases), Note: note, Vectors: d.vectorsView(),
		Table: d.tableView(), Sections: sections(cases), Clauses: template.JS(clauses), // JSON of encoding/json, which escapes < > &
		Style: template.CSS(pageStyle), Script: template.JS(pageScript), Policy: policy(), // parts of this package
	}
	for _, text := range d.others() {
		v.Complaints = append(v.Complaints, line(text))
	}
	for _, status := range statuses {
		if n := d.Counts[status]; n > 0 {
			v.Counts = append(v.Counts, countView{status, words[status], n})
		}
	}
	for _, b := range d.Budgets {
		state, _ := budgetState(b)
		v.Budgets = append(v.Budgets, budgetView{
			Name: line(b.Name), Took: round(b.Took), Limit: round(b.Limit), State: state, Bad: b.Exceeded(), Over: b.Took > b.Limit,
			Value: fmt.Sprintf("%.3f", min(b.Took.Seconds()/max(b.Limit.Seconds(), 1e-9), 1.5)),
		})
	}
	for _, k := range d.Known {
		text := knownText(k)
		v.Known = append(v.Known, knownView{line(k.Case), line(k.Reason), line(k.Message), line(k.Why), line(k.Owner), text})
	}
	v.choices(d)
	return page.Execute(w, v)
}

// words are the statuses as headings.
var words = map[string]string{
	string(engine.Fail): "Failed", string(engine.CouldNotRun): "Could not run", string(engine.Unsupported): "Unsupported",
	StatusKnown: "Known failures", string(engine.Pass): "Passed",
}

// policy lets a page run nothing but its own script and load nothing at all.
func policy() string {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; script-src " + hash(pageScript) + "; style-src " + hash(pageStyle) + "; base-uri 'none'; form-action 'none'"
}

func visibleMap(m map[string]string) map[string]string {
	out := maps.Clone(m)
	for key, text := range out {
		out[key] = line(text)
	}
	return out
}

// What the template shows. Every text in it is visible.
type (
	pageView struct {
		OK, Filtered                     bool
		Started, Duration                string
		Seed                             uint64
		Slots, All                       int
		Subject, Broker                  string
		Note                             string // what was left out of all cases
		Complaints                       []string
		Counts                           []countView
		Budgets                          []budgetView
		Vectors                          *vectorsView
		Known                            []knownView
		Table                            tableView
		Folders, Transports              []string
		LabelModes, AuthModes, ClauseIDs []string
		Sections                         []section
		Clauses                          template.JS
		Style                            template.CSS
		Script                           template.JS
		Policy                           string
	}
	countView struct {
		Status, Word string
		N            int
	}
	budgetView struct {
		Name, Took, Limit, State, Value string
		Bad, Over                       bool
	}
	vectorsView struct {
		Status, Reason, Took string
		Checked, WrongAll    int
		Wrong                []string
		More                 int
	}
	knownView struct{ Case, Reason, Message, Why, Owner, Wrong string }
	tableView struct {
		Columns []column
		Rows    []rowView
	}
	rowView struct {
		Name  string
		All   bool
		Cells []cellView
	}
	cellView struct {
		Folder, Transport, Labels, Auth string
		Text, Worst, Long               string
	}
	section struct {
		Status, Word string
		Cases        []pageCase
	}
	ruleView struct{ ID, Kind string }
	pageCase struct {
		N                                                               int
		Name, ID, Title, Folder, Transport, Labels, Auth, Clock, Status string
		Subject, Reason, Message, Step, StepText, Pos, Known, Took      string
		Replay, Stderr, BrokerLog, Search                               string
		Rules                                                           []ruleView
		Codes                                                           []string
		Clauses                                                         string // ids with a space around each
		Data                                                            template.JS
	}
)

func (v *pageView) choices(d *Document) {
	v.Folders = d.folders()
	var transports, labels, auths, clauses []string
	for i := range d.Cases {
		c := &d.Cases[i]
		transports, labels, auths = append(transports, c.Transport), append(labels, c.Labels), append(auths, c.Auth)
		clauses = append(clauses, slices.Concat(c.Proves, c.Refuses, c.Codes)...)
	}
	for _, list := range []*[]string{&transports, &labels, &auths, &clauses} {
		for i := range *list {
			(*list)[i] = line((*list)[i])
		}
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	v.Transports, v.LabelModes, v.AuthModes, v.ClauseIDs = transports, labels, auths, clauses
}

func (d *Document) vectorsView() *vectorsView {
	v := d.Vectors
	if v == nil {
		return nil
	}
	out := &vectorsView{Status: string(v.Verdict), Reason: line(v.Reason), Took: round(v.Duration), Checked: v.Checked, WrongAll: v.WrongAll}
	for _, wrong := range v.Wrong {
		out.Wrong = append(out.Wrong, line(wrong))
	}
	out.More = v.WrongAll - len(v.Wrong)
	return out
}

func (d *Document) tableView() tableView {
	t := d.table()
	out := tableView{Columns: t.columns}
	for _, r := range t.rows {
		// The last row is the sum of all folders when there are several.
		row := rowView{Name: line(r.name), All: len(t.rows) > 1 && len(out.Rows) == len(t.rows)-1}
		folder := r.name
		if row.All {
			folder = ""
		}
		for i, c := range r.cells {
			row.Cells = append(row.Cells, cellOf(folder, t.columns[i], c))
		}
		row.Cells = append(row.Cells, cellOf(folder, column{}, r.sum))
		out.Rows = append(out.Rows, row)
	}
	return out
}

func cellOf(folder string, at column, c tally) cellView {
	v := cellView{Folder: folder, Transport: at.Transport, Labels: at.Labels, Auth: at.Auth, Text: c.String(), Worst: c.worst()}
	var long []string
	for _, m := range marks {
		if n := c[m.status]; n > 0 {
			long = append(long, fmt.Sprintf("%d %s", n, strings.ToLower(words[m.status])))
		}
	}
	v.Long = strings.Join(long, ", ")
	return v
}

func sections(cases []pageCase) []section {
	var out []section
	for _, status := range statuses {
		s := section{Status: status, Word: words[status]}
		for _, c := range cases {
			if c.Status == status {
				s.Cases = append(s.Cases, c)
			}
		}
		if len(s.Cases) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// pageCases makes the cases with as many frames as fit.
func (d *Document) pageCases(most int) ([]pageCase, string, error) {
	var cases []pageCase
	note := ""
	for i, level := range pageLimits {
		cases = make([]pageCase, len(d.Cases))
		size := 0
		for n := range d.Cases {
			limits := level.failed
			if d.Cases[n].Status == string(engine.Pass) {
				limits = level.passed
			}
			c := d.Cases[n].within(limits)
			if err := d.pageCase(&cases[n], &c); err != nil {
				return nil, "", err
			}
			cases[n].N = n + 1
			size += len(cases[n].Data) + len(cases[n].Message) + len(cases[n].Stderr) + len(cases[n].BrokerLog)
		}
		if i > 0 {
			note = fmt.Sprintf("So that this page stays small it shows at most %d entries of each link and %d bytes of each frame, and of cases that passed %d and %d. "+
				"The JSON report has more.", level.failed.Entries, level.failed.Bytes, level.passed.Entries, level.passed.Bytes)
		}
		if size <= most {
			break
		}
	}
	slices.SortStableFunc(cases, func(a, b pageCase) int { return strings.Compare(a.Folder+"/"+a.Name, b.Folder+"/"+b.Name) })
	return cases, note, nil
}

// within is a case within narrower limits.
func (c Case) within(limits Limits) Case {
	c.Message, c.Stderr, c.BrokerLog = cut(c.Message, limits.Text), last(c.Stderr, limits.Text), last(c.BrokerLog, limits.Text)
	c.Events, c.Steps = tail(c.Events, limits.Events), tail(c.Steps, limits.Events)
	c.Links = slices.Clone(c.Links)
	for i := range c.Links {
		c.Links[i] = c.Links[i].within(limits)
	}
	return c
}

func (l Link) within(limits Limits) Link {
	kept, gone := ends(l.Entries, limits.Entries)
	if len(gone) > 0 {
		left := trace.LeftOut{Entries: len(gone), After: gone[0].Seq - 1}
		for _, e := range gone {
			left.Bytes += max(e.Size, len(e.Bytes)/2) + max(e.SentSize, len(e.Sent)/2)
		}
		l.LeftOut = joined(l.LeftOut, left)
	}
	l.Entries = slices.Clone(kept)
	for i := range l.Entries {
		e := &l.Entries[i]
		e.Text = cut(e.Text, limits.Text)
		e.Bytes, e.Spans, e.Size = narrowed(e.Bytes, e.Spans, e.Size, limits)
		e.Sent, e.SentSpans, e.SentSize = narrowed(e.Sent, e.SentSpans, e.SentSize, limits)
	}
	return l
}

func narrowed(digits string, spans []Span, size int, limits Limits) (string, []Span, int) {
	if len(digits) > 2*limits.Bytes {
		digits, size = digits[:2*limits.Bytes], max(size, len(digits)/2)
	}
	var kept []Span
	for _, s := range spans {
		if s.Offset >= len(digits)/2 {
			break
		}
		s.Len, s.Text = min(s.Len, len(digits)/2-s.Offset), cut(s.Text, limits.Text)
		kept = append(kept, s)
	}
	return digits, kept, size
}

func (d *Document) pageCase(out *pageCase, c *Case) error {
	*out = pageCase{
		Name: line(c.Name), ID: line(c.ID), Title: line(c.Title), Folder: c.Folder, Transport: c.Transport, Labels: c.Labels, Auth: c.Auth,
		Clock: c.Time, Status: c.Status, Subject: c.Subject, Reason: line(c.Reason), Message: visible(strings.TrimSpace(c.Message)), Step: c.Step,
		StepText: line(c.StepText), Known: line(c.Known), Took: round(c.Duration), Replay: line(c.Replay), Stderr: visible(c.Stderr),
		BrokerLog: visible(c.BrokerLog), Rules: rules(c), Codes: c.Codes,
		Clauses: " " + strings.Join(slices.Concat(c.Proves, c.Refuses, c.Codes), " ") + " ",
	}
	if c.Pos != nil {
		out.Pos = line("conformance/scenarios/" + c.Pos.String())
	}
	out.Search = strings.ToLower(strings.Join([]string{c.Name, out.Title, c.Folder, c.Subject, c.Time, out.Reason, cut(out.Message, 1024), out.StepText, out.Known, out.Clauses}, "\n"))
	data := d.timeline(c)
	if len(data.Rows) == 0 {
		return nil
	}
	text, err := json.Marshal(data)
	out.Data = template.JS(text) // JSON of encoding/json, which escapes < > &
	return err
}

// rules is the clauses of a case, each once.
func rules(c *Case) []ruleView {
	var out []ruleView
	for _, id := range c.Proves {
		kind := "holds"
		if slices.Contains(c.Refuses, id) {
			kind = "both ways"
		}
		out = append(out, ruleView{id, kind})
	}
	for _, id := range c.Refuses {
		if !slices.Contains(c.Proves, id) {
			out = append(out, ruleView{id, "refuses"})
		}
	}
	return out
}

// timeline is what happened in a case, as the script of the page shows it. Times are microseconds since the start of the case.
type timeline struct {
	Links []string `json:"links"`
	Rows  []shown  `json:"rows"`
}

// Kinds of rows.
const (
	rowEntry = "f" // something on a link
	rowLate  = "l" // the delivery of an entry that was kept
	rowStep  = "s"
	rowEvent = "e" // an event of the driver
	rowGap   = "g" // something is left out
)

// shown is one row. Keys are short because there are many.
type shown struct {
	Kind    string   `json:"k"`
	At      int64    `json:"t"`
	Link    int      `json:"l"`
	Seq     int      `json:"n,omitempty"`
	Conn    int      `json:"c,omitempty"`
	Group   int      `json:"g,omitempty"`
	What    string   `json:"w,omitempty"` // kind of the entry when it is no frame
	Dir     string   `json:"d,omitempty"`
	Name    string   `json:"m,omitempty"`
	Form    string   `json:"f,omitempty"`
	Label   string   `json:"lb,omitempty"`
	Text    string   `json:"v,omitempty"`
	Fate    string   `json:"ft,omitempty"`
	Rule    string   `json:"ru,omitempty"`
	Note    string   `json:"no,omitempty"`
	Fault   string   `json:"x,omitempty"`
	Took    int64    `json:"tk,omitempty"`
	Late    *int64   `json:"dl,omitempty"` // moment of its delivery
	Failed  bool     `json:"bad,omitempty"`
	Made    bool     `json:"in,omitempty"`
	Bytes   []string `json:"b,omitempty"` // as read, and as delivered when that differs
	Sizes   []int    `json:"z,omitempty"` // all of them, when not all are shown
	Meaning [][]part `json:"p,omitempty"`
}

// part is a span: offset, length, path, type, text.
type part [5]any

func (d *Document) timeline(c *Case) timeline {
	start := d.start(c)
	var t timeline
	for i := range c.Links {
		l := &c.Links[i]
		t.Links = append(t.Links, line(l.Name))
		offset := l.Started.Sub(start).Microseconds()
		for j := range l.Entries {
			e := &l.Entries[j]
			if left := l.LeftOut; left != nil && left.Entries > 0 && e.Seq > left.After && (j == 0 || l.Entries[j-1].Seq <= left.After) {
				t.Rows = append(t.Rows, shown{Kind: rowGap, At: offset + e.At, Link: i, Text: fmt.Sprintf("%d entries of %s with %s left out here",
					left.Entries, line(l.Name), plural(left.Bytes, "byte"))})
			}
			row := entryRow(e, i, offset)
			t.Rows = append(t.Rows, row)
			if row.Late != nil && e.Rule != "" && *row.Late-row.At > lateAfter.Microseconds() {
				t.Rows = append(t.Rows, shown{Kind: rowLate, At: *row.Late, Link: i, Seq: e.Seq, Dir: row.Dir, Name: row.Name, Form: row.Form, Label: row.Label, Rule: row.Rule})
			}
		}
	}
	for i, s := range c.Steps {
		t.Rows = append(t.Rows, shown{
			Kind: rowStep, At: s.At.Microseconds(), Link: -1, Name: s.Step, Text: line(s.Text), Took: s.Took.Microseconds(),
			Failed: c.Step == s.Step && !slices.ContainsFunc(c.Steps[i+1:], func(o engine.StepLog) bool { return o.Step == s.Step }),
		})
	}
	for _, e := range c.Events {
		t.Rows = append(t.Rows, shown{Kind: rowEvent, At: e.At.Sub(start).Microseconds(), Link: -2, Name: line(e.Kind), Label: line(handlePrefix.ReplaceAllString(e.Of, "")), Text: fields(e)})
	}
	slices.SortStableFunc(t.Rows, func(a, b shown) int { return int(a.At - b.At) })
	return t
}

// handlePrefix is what the engine puts in front of the handles of a case.
var handlePrefix = regexp.MustCompile(`^k[0-9]+_`)

// fields is what an event says, without what every event says.
func fields(e driver.Event) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(e.Fields)) {
		if key == "ev" || key == "of" || key == "n" {
			continue
		}
		value, err := json.Marshal(e.Fields[key])
		if err != nil {
			value = []byte("?")
		}
		words = append(words, key+"="+string(value))
	}
	return line(cut(strings.Join(words, " "), 4096))
}

func entryRow(e *Entry, link int, offset int64) shown {
	row := shown{
		Kind: rowEntry, At: offset + e.At, Link: link, Seq: e.Seq, Conn: e.Conn, Group: e.Group, Name: line(e.Message), Form: string(e.Form),
		Label: e.Label, Text: line(e.Text), Rule: line(e.Rule), Note: line(e.Note), Fault: line(e.Fault), Made: e.Inserted,
	}
	if e.Kind != trace.Frame {
		row.What = string(e.Kind)
	} else if e.Message == "" && e.Type != nil {
		row.Name = fmt.Sprintf("type %d", *e.Type)
	}
	if e.Text == e.Note {
		row.Note = ""
	}
	switch e.Dir {
	case oracle.Up:
		row.Dir = "up"
	case oracle.Down:
		row.Dir = "down"
	}
	if e.Fate != trace.Delivered {
		row.Fate = string(e.Fate)
	}
	if e.Delivered != nil {
		at := offset + *e.Delivered
		row.Late = &at
	}
	row.addBytes(e.Bytes, e.Spans, e.Size)
	if e.Sent != "" {
		row.addBytes(e.Sent, e.SentSpans, e.SentSize)
	}
	return row
}

func (r *shown) addBytes(digits string, spans []Span, size int) {
	if digits == "" {
		return
	}
	parts := make([]part, len(spans))
	for i, s := range spans {
		parts[i] = part{s.Offset, s.Len, line(s.Path), s.Type, line(s.Text)}
	}
	r.Bytes, r.Sizes, r.Meaning = append(r.Bytes, digits), append(r.Sizes, max(size, len(digits)/2)), append(r.Meaning, parts)
}
