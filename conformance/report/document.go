// Package report makes reports of one run of the conformance suite: text for terminals while it runs and at its end, JSON, JUnit XML for
// continuous integration, and one HTML page that shows every failure with its frames. All of them show one Document, which is the JSON
// report; README.md beside this file describes its keys.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Format is the version of the JSON report. It grows when a key changes its meaning or goes; new keys alone do not change it.
const Format = 1

// StatusKnown is the status of a case that fails as the list of known failures says. Every other status is a verdict.
const StatusKnown = "known"

// statuses is every status, worst first: the order of all reports.
var statuses = []string{string(engine.Fail), string(engine.CouldNotRun), string(engine.Unsupported), StatusKnown, string(engine.Pass)}

// Document is everything that one run found out, as JSON has it. Its keys are those of engine.Run and some that are derived.
type Document struct {
	Format     int                 `json:"format"`
	OK         bool                `json:"ok"`                   // exit code 0 of the run
	Complaints []string            `json:"complaints,omitempty"` // a line each why it is not
	Counts     map[string]int      `json:"counts"`               // cases by status
	Started    time.Time           `json:"started"`
	Duration   time.Duration       `json:"duration_ns"`
	Seed       uint64              `json:"seed,string"`
	Slots      int                 `json:"slots"`
	Filtered   bool                `json:"filtered"`
	Subject    engine.Info         `json:"subject"`
	Broker     engine.Info         `json:"broker"`
	Cases      []Case              `json:"cases"`
	Vectors    *engine.Vectors     `json:"vectors,omitempty"`
	Budgets    []engine.Budget     `json:"budgets,omitempty"`
	Known      []engine.KnownState `json:"known_failures,omitempty"`
	Left       []string            `json:"left,omitempty"`
	Clauses    map[string]string   `json:"clauses,omitempty"` // text of every clause that a case names
}

// Case is what became of one cell of the matrix.
type Case struct {
	engine.Case
	Folder string `json:"folder"` // of the scenario: lease
	Status string `json:"status"` // verdict, or StatusKnown
	Links  []Link `json:"links,omitempty"`
}

// Where is the cell without its scenario: tcp/on/anonymous.
func (c *Case) Where() string { return path.Join(c.Transport, c.Labels, c.Auth) }

// start is when the case began.
func (d *Document) start(c *Case) time.Time { return d.Started.Add(c.Case.Started) }

// Link is what passed one link: that of a client, a raw peer or a scripted broker.
type Link struct {
	Name    string         `json:"name"`
	Started time.Time      `json:"started"`
	Entries []Entry        `json:"entries"`
	LeftOut *trace.LeftOut `json:"left_out,omitempty"` // entries that the link had and the report has not
}

// Entry is one thing that passed a link. Moments are microseconds since the start of the link.
type Entry struct {
	Seq       int              `json:"n"`
	At        int64            `json:"at_us"` // read from its sender
	Delivered *int64           `json:"delivered_us,omitempty"`
	Conn      int              `json:"conn"`
	Kind      trace.Kind       `json:"kind"`
	Dir       oracle.Direction `json:"dir,omitempty"`
	Message   string           `json:"message,omitempty"`
	Form      oracle.Form      `json:"form,omitempty"`
	Type      *uint16          `json:"type,omitempty"`
	Label     string           `json:"label,omitempty"`
	Text      string           `json:"text,omitempty"`  // decoded value
	Bytes     string           `json:"bytes,omitempty"` // as read, hexadecimal, xx for bytes that must not be shown
	Spans     []Span           `json:"spans,omitempty"` // meaning of every byte of Bytes
	Size      int              `json:"size,omitempty"`  // number of bytes as read, when Bytes has not all of them
	Sent      string           `json:"sent,omitempty"`  // as delivered, when that differs
	SentSpans []Span           `json:"sent_spans,omitempty"`
	SentSize  int              `json:"sent_size,omitempty"`
	Fault     string           `json:"fault,omitempty"`
	Group     int              `json:"group,omitempty"` // frames of one transport message share it
	Inserted  bool             `json:"inserted,omitempty"`
	Rule      string           `json:"rule,omitempty"` // what touched it on its way
	Note      string           `json:"note,omitempty"`
	Fate      trace.Fate       `json:"fate,omitempty"`
}

// Span is some bytes of a frame and what they say.
type Span struct {
	Offset int    `json:"offset"`
	Len    int    `json:"len"`
	Path   string `json:"path"`
	Type   string `json:"type,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Limits bound what a document keeps of one case.
type Limits struct {
	Entries int // of a link: the first quarter and the last three
	Bytes   int // of an entry, as read and as delivered
	Text    int // bytes of every other text
	Events  int // events and steps, each: the last ones
}

// The limits of the JSON report.
var (
	DefaultLimits = Limits{Entries: 4096, Bytes: 16 << 10, Text: 64 << 10, Events: 4096}
	PassedLimits  = Limits{Entries: 200, Bytes: 1024, Text: 4096, Events: 400} // of cases that passed and whose traces were kept
)

// New makes the document of a run. Clauses is the text of clauses by id, nil when there is none to show.
func New(run *engine.Run, clauses map[string]string) *Document {
	complaints := run.Complaints()
	d := &Document{
		Format: Format, OK: len(complaints) == 0, Complaints: complaints, Counts: map[string]int{}, Started: run.Started, Duration: run.Duration,
		Seed: run.Seed, Slots: run.Slots, Filtered: run.Filtered, Subject: run.Subject, Broker: run.Broker, Cases: make([]Case, len(run.Cases)),
		Vectors: run.Vectors, Budgets: run.Budgets, Known: run.Known, Left: run.Left, Clauses: map[string]string{},
	}
	for i := range run.Cases {
		c := &d.Cases[i]
		limits := DefaultLimits
		if run.Cases[i].Verdict == engine.Pass {
			limits = PassedLimits
		}
		*c = newCase(run.Cases[i], limits)
		d.Counts[c.Status]++
		for _, id := range slices.Concat(c.Proves, c.Refuses) {
			if text := clauses[id]; text != "" {
				d.Clauses[id] = text
			}
		}
	}
	return d
}

func newCase(c engine.Case, limits Limits) Case {
	out := Case{Case: c, Folder: path.Dir(c.File), Status: string(c.Verdict)}
	if c.Known != "" {
		out.Status = StatusKnown
	}
	for _, dump := range c.Links {
		out.Links = append(out.Links, newLink(dump, limits))
	}
	out.Case.Links = nil
	out.Message, out.Stderr, out.BrokerLog = cut(c.Message, limits.Text), last(c.Stderr, limits.Text), last(c.BrokerLog, limits.Text)
	out.Events, out.Steps = tail(c.Events, limits.Events), tail(c.Steps, limits.Events)
	return out
}

// tail is the last n members of a list.
func tail[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

// ends is the first quarter of n members of a list and the last three quarters, and what is between them.
func ends[T any](list []T, n int) (kept, gone []T) {
	if len(list) <= n {
		return list, nil
	}
	head := n / 4
	rest := len(list) - (n - head)
	return slices.Concat(list[:head], list[rest:]), list[head:rest]
}

// joined is what was left out before and now.
func joined(before *trace.LeftOut, now trace.LeftOut) *trace.LeftOut {
	if before != nil {
		now.Entries += before.Entries
		now.Bytes += before.Bytes
		now.After = min(now.After, before.After)
	}
	return &now
}

func newLink(d trace.Dump, limits Limits) Link {
	l := Link{Name: d.Name, Started: d.Started, LeftOut: d.LeftOut}
	kept, gone := ends(d.Entries, limits.Entries)
	if len(gone) > 0 {
		left := trace.LeftOut{Entries: len(gone), After: gone[0].Seq - 1}
		for _, e := range gone {
			left.Bytes += len(e.Bytes) + len(e.Sent)
		}
		l.LeftOut = joined(l.LeftOut, left)
	}
	l.Entries = make([]Entry, len(kept))
	for i, e := range kept {
		l.Entries[i] = newEntry(e, limits)
	}
	return l
}

func newEntry(e trace.Entry, limits Limits) Entry {
	out := Entry{
		Seq: e.Seq, At: e.At.Microseconds(), Conn: e.Conn, Kind: e.Kind, Dir: e.Dir, Message: e.Message, Form: e.Form,
		Text: cut(e.Text(), limits.Text), Group: e.Group, Inserted: e.Inserted, Rule: e.Rule, Note: e.Note, Fate: e.Fate,
	}
	out.Bytes, out.Spans, out.Size = annotated(e.Bytes, e.Spans(), limits)
	out.Sent, out.SentSpans, out.SentSize = annotated(e.Sent, e.SentSpans(), limits)
	if e.Kind == trace.Frame {
		out.Type = &e.Type
	}
	if e.Label != 0 {
		out.Label = strconv.FormatUint(e.Label, 10)
	}
	if e.Fate == trace.Delivered {
		us := e.Delivered.Microseconds()
		out.Delivered = &us
	}
	if e.Fault != nil {
		out.Fault = e.Fault.Error()
	}
	return out
}

// annotated is as many bytes as the limits allow in hexadecimal digits, what they say, and their number when there are more.
func annotated(b []byte, spans []oracle.Span, limits Limits) (text string, kept []Span, size int) {
	if len(b) > limits.Bytes {
		size, b = len(b), b[:limits.Bytes]
	}
	for _, s := range spans {
		if s.Offset >= len(b) {
			break
		}
		kept = append(kept, Span{s.Offset, min(s.Len, len(b)-s.Offset), s.Path, s.Type, cut(s.Text, limits.Text)})
	}
	return trace.Hex(b, spans), kept, size
}

// cut is the beginning of a text, with the number of bytes that it leaves out.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d more bytes)", text[:n], len(text)-n)
}

// last is the end of a text, with the number of bytes that it leaves out.
func last(text string, n int) string {
	if len(text) <= n {
		return text
	}
	at := len(text) - n
	for at < len(text) && !utf8.RuneStart(text[at]) {
		at++
	}
	return fmt.Sprintf("(%d bytes before) …%s", at, text[at:])
}

// WriteJSON writes the document in one line: indented it would be three times as large.
func (d *Document) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(d) }

// Read reads a document that WriteJSON has written. It refuses other formats.
func Read(r io.Reader) (*Document, error) {
	d := &Document{}
	if err := json.NewDecoder(r).Decode(d); err != nil {
		return nil, fmt.Errorf("no report of a conformance run: %w", err)
	}
	if d.Format != Format {
		return nil, fmt.Errorf("the report has format %d; this version reads %d", d.Format, Format)
	}
	return d, nil
}

// byStatus returns the cases with a status, in their order.
func (d *Document) byStatus(status string) []*Case {
	var out []*Case
	for i := range d.Cases {
		if d.Cases[i].Status == status {
			out = append(out, &d.Cases[i])
		}
	}
	return out
}

// folders returns the folders of the cases, sorted.
func (d *Document) folders() []string {
	var out []string
	for i := range d.Cases {
		out = append(out, d.Cases[i].Folder)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// moment is one thing that happened in a case.
type moment struct {
	at    time.Duration // since the start of the case
	link  *Link
	entry *Entry
	late  bool // the delivery of the entry, some time after it was read
}

// moments is what passed the links of a case in the order of time. An entry that a rule kept for a while is there twice.
func (d *Document) moments(c *Case) []moment {
	start := d.start(c)
	var out []moment
	for i := range c.Links {
		l := &c.Links[i]
		offset := l.Started.Sub(start)
		for j := range l.Entries {
			e := &l.Entries[j]
			out = append(out, moment{at: offset + time.Duration(e.At)*time.Microsecond, link: l, entry: e})
			if e.Rule != "" && e.Delivered != nil && *e.Delivered-e.At > lateAfter.Microseconds() {
				out = append(out, moment{offset + time.Duration(*e.Delivered)*time.Microsecond, l, e, true})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b moment) int { return int(a.at - b.at) })
	return out
}

// lateAfter is how long after it was read a delivery is shown by itself.
const lateAfter = time.Millisecond
