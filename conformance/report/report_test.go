package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/internal/wiretest"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/trace"
)

var update = flag.Bool("update", false, "write the golden files")

var begin = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// golden compares a text with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is otherwise (go test -update writes it):\n%s", name, got)
	}
}

// link makes the log of a link whose clock moves 2 ms with each look: a query that was held and changed, a lost notice, a token, and more queries.
func link(t *testing.T, name, text string, queries int) trace.Dump {
	t.Helper()
	spec := wiretest.Spec(t)
	now := begin.Add(20 * time.Millisecond)
	l := trace.New(name, spec, trace.DefaultLimits, func() time.Time { now = now.Add(2 * time.Millisecond); return now })
	l.Add(trace.Entry{Kind: trace.Event, Conn: 1, Message: "opened tcp", Fate: trace.Delivered, Note: text})
	add := func(dir oracle.Direction, rec oracle.Record, fate trace.Fate) trace.Ref {
		b, err := trace.Encode(spec, dir, rec)
		if err != nil {
			t.Fatal(err)
		}
		e := trace.Split(spec, dir, b)[0]
		e.Conn, e.Group, e.Fate = 1, l.Group(), fate
		return l.Add(e)
	}
	query := func(route string) oracle.Record {
		return oracle.Record{Message: "lease.query", Form: oracle.Request, Value: oracle.Value{"route": route}, Label: 7}
	}
	add(oracle.Up, oracle.Record{Message: "session.connect", Form: oracle.Control, Value: oracle.Value{"token": "hush"}}, trace.Delivered)
	held := add(oracle.Up, query("lease://r/a/k"), trace.Waiting)
	l.Settle(held, trace.Held, "hold h1")
	dropped := add(oracle.Down, oracle.Record{Message: "lease.notify", Form: oracle.Push, Value: oracle.Value{"subscription_id": 1, "route": "lease://r/a/k"}}, trace.Waiting)
	l.Settle(dropped, trace.Dropped, "drop d1")
	other, err := trace.Encode(spec, oracle.Up, query("lease://r/a/z"))
	if err != nil {
		t.Fatal(err)
	}
	l.Deliver(held, other)
	for i := range queries {
		add(oracle.Up, query(fmt.Sprintf("lease://r/a/q%d", i)), trace.Delivered)
	}
	return l.Dump()
}

func failed(t *testing.T, id, text string, queries int) engine.Case {
	t.Helper()
	return engine.Case{
		Name: id + "/tcp/on/anonymous", ID: id, Title: "title " + text, File: "lease/" + id + ".yaml", Subject: "client", Transport: "tcp", Labels: "on",
		Auth: "anonymous", Time: "virtual", Proves: []string{"L-20"}, Refuses: []string{"L-20", "L-21"}, Codes: []string{"LEASE_HELD"}, Seed: 11,
		Verdict: engine.Fail, Reason: engine.ReasonExpectation, Message: "held: expected true, got false\nin " + text, Step: "2.1", StepText: "do lease.query " + text,
		Pos: &scenario.Pos{File: "lease/" + id + ".yaml", Line: 9, Col: 5}, Started: 5 * time.Millisecond, Duration: 150 * time.Millisecond,
		Links: []trace.Dump{link(t, "c1", text, queries)},
		Steps: []engine.StepLog{{Step: "1", Text: "connect c1", At: 14 * time.Millisecond, Took: time.Millisecond}, {Step: "2.1", Text: "do lease.query " + text, At: 18 * time.Millisecond}},
		Events: []driver.Event{{Kind: "client.state", Of: "k1_c1", N: 1, Seq: 1, At: begin.Add(23 * time.Millisecond),
			Fields: map[string]any{"ev": "client.state", "of": "k1_c1", "n": 1, "state": text}}},
		Stderr: "panic: " + text, BrokerLog: "level=INFO msg=" + text,
		Replay: "fitz-conformance run --scenario " + id + " --transport tcp --labels on --auth anonymous --seed 5",
	}
}

// simple is a case without frames.
func simple(folder, id, transport, labels string, v engine.Verdict, reason, message string) engine.Case {
	return engine.Case{
		Name: id + "/" + transport + "/" + labels + "/anonymous", ID: id, Title: "title of " + id, File: folder + "/" + id + ".yaml", Subject: "broker",
		Transport: transport, Labels: labels, Auth: "anonymous", Time: "real", Proves: []string{"W-05"}, Verdict: v, Reason: reason, Message: message,
		Duration: 3 * time.Millisecond, Replay: "fitz-conformance run --scenario " + id + " --seed 5",
	}
}

// sample is a run with a case of every status and everything else that can be wrong.
func sample(t *testing.T) *engine.Run {
	t.Helper()
	known := simple("wire", "W-3", "tcp", "on", engine.Fail, engine.ReasonExpectation, "as ever")
	known.Known = "the broker is not mended yet (owner)"
	return &engine.Run{
		Started: begin, Duration: 100 * time.Second, Seed: 5, Slots: 4, Subject: engine.Info{Command: "./driver", Name: "fitz-x", Version: "1.2"}, Broker: engine.Info{Command: "fitzd"},
		Cases: []engine.Case{
			failed(t, "LEASE-1", "x", 12),
			simple("lease", "LEASE-2", "tcp", "off", engine.Pass, "", ""),
			simple("lease", "LEASE-2", "ws", "on", engine.Pass, "", ""),
			simple("wire", "W-1", "ws", "on", engine.CouldNotRun, engine.ReasonNoVirtual, "the broker has no virtual clock"),
			simple("wire", "W-2", "tcp", "on", engine.Unsupported, engine.ReasonFeature, `the driver lacks the feature "obs"`),
			known,
		},
		Vectors: &engine.Vectors{Verdict: engine.Fail, Reason: "2 of 9 answers are wrong", Checked: 9, Wrong: []string{"decode a: no", "decode b: no"}, WrongAll: 2, Duration: time.Second},
		Budgets: []engine.Budget{{Name: "vectors", Limit: 15 * time.Second, Took: time.Second}, {Name: "scenarios", Limit: 60 * time.Second, Took: 99 * time.Second}},
		Known: []engine.KnownState{
			{Known: engine.Known{Case: known.Name, Reason: "expectation", Message: "as ever", Why: "the broker is not mended yet", Owner: "owner"}, State: engine.KnownFails},
			{Known: engine.Known{Case: "GONE/tcp/on/anonymous", Reason: "expectation", Message: "m", Why: "w", Owner: "o"}, State: engine.KnownStale},
		},
		Left: []string{"process 77 sleep"},
	}
}

var clauses = map[string]string{"L-20": "nobody holds", "L-21": "a bound is reached", "X-1": "of no case"}

func TestText(t *testing.T) {
	d := New(sample(t), clauses)
	var b bytes.Buffer
	if err := d.WriteText(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	golden(t, "terminal.txt", b.Bytes())
	var coloured bytes.Buffer
	if err := d.WriteText(&coloured, Style{Colour: true}); err != nil {
		t.Fatal(err)
	}
	if plain := regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(coloured.String(), ""); plain != b.String() || coloured.Len() == b.Len() {
		t.Error("colours change the text")
	}
}

func TestTextOfSuccess(t *testing.T) {
	run := &engine.Run{Started: begin, Slots: 1, Filtered: true, Cases: []engine.Case{simple("lease", "LEASE-2", "tcp", "off", engine.Pass, "", "")}}
	var b bytes.Buffer
	if err := New(run, nil).WriteText(&b, Style{}); err != nil || !strings.HasSuffix(b.String(), "\nPASSED\n") || !strings.Contains(b.String(), "left out on purpose") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// Many failures do not flood a terminal; each is named all the same.
func TestTextIsBounded(t *testing.T) {
	run := &engine.Run{Started: begin}
	for i := range 3 * failuresTerminal {
		run.Cases = append(run.Cases, simple("a", fmt.Sprintf("A-%d", i), "tcp", "on", engine.Fail, "expectation", "m"))
	}
	var b bytes.Buffer
	if err := New(run, nil).WriteText(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "again: "); n != failuresTerminal {
		t.Errorf("%d failures in full", n)
	}
	for i := range run.Cases {
		if !strings.Contains(b.String(), run.Cases[i].Name+": ") {
			t.Errorf("%s is not named", run.Cases[i].Name)
		}
	}
}

func TestProgress(t *testing.T) {
	pass, fail := simple("a", "A-1", "tcp", "on", engine.Pass, "", ""), simple("a", "A-2", "tcp", "on", engine.Fail, "expectation", "first\nsecond")
	for name, test := range map[string]struct {
		style Style
		quiet bool
		want  string
	}{
		"plain": {Style{}, false, "[1/2] pass          A-1/tcp/on/anonymous (3 ms)\n[2/2] fail          A-2/tcp/on/anonymous (3 ms) expectation: first\n"},
		"quiet": {Style{}, true, "[2/2] fail          A-2/tcp/on/anonymous (3 ms) expectation: first\n"},
		"live": {Style{Live: true, Width: 60}, false, "\r\x1b[K[##########..........] 1 of 2, 1 pass  A-1/tcp/on/anonymous" +
			"\r\x1b[K[2/2] fail          A-2/tcp/on/anonymous (3 ms) expectation: first\n" +
			"\r\x1b[K[####################] 2 of 2, 1 fail, 1 pass  A-2/tcp/on/a\r\x1b[K"},
	} {
		var b bytes.Buffer
		p := NewProgress(&b, test.style, test.quiet)
		p.Case(1, 2, &pass)
		p.Case(2, 2, &fail)
		p.End()
		if b.String() != test.want {
			t.Errorf("%s: %q", name, b.String())
		}
	}
}

func TestStyle(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, w := range []io.Writer{file, &bytes.Buffer{}} {
		if s := StyleOf(w, os.Getenv); s != (Style{}) {
			t.Errorf("%T: %+v", w, s)
		}
	}
}

func junit(t *testing.T, d *Document) (text []byte, all junitSuites) {
	t.Helper()
	var b bytes.Buffer
	if err := d.WriteJUnit(&b); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(b.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), all
}

func TestJUnit(t *testing.T) {
	d := New(sample(t), clauses)
	text, all := junit(t, d)
	golden(t, "junit.xml", text)
	tests := 0
	for _, s := range all.Suites {
		tests += len(s.Cases)
		for _, c := range s.Cases {
			green := c.Failure == nil && c.Error == nil && c.Skipped == nil
			if i := slices.IndexFunc(d.Cases, func(o Case) bool { return o.Name == c.Name }); i >= 0 && green != (d.Cases[i].Verdict == engine.Pass) {
				t.Errorf("%s counts as a pass: %v", c.Name, green)
			}
		}
	}
	if all.Tests != tests || all.Errors != 2 || all.Skipped != 1 || all.Failures != 5 {
		t.Errorf("%d tests, %d failures, %d errors, %d skipped", all.Tests, all.Failures, all.Errors, all.Skipped)
	}
}

// The verdict of the JUnit file is the one of the run, whatever is wrong.
func TestJUnitAgrees(t *testing.T) {
	for name, change := range map[string]func(*engine.Run){
		"nothing":       func(*engine.Run) {},
		"fail":          func(r *engine.Run) { r.Cases[0].Verdict = engine.Fail },
		"could-not-run": func(r *engine.Run) { r.Cases[0].Verdict = engine.CouldNotRun },
		"unsupported":   func(r *engine.Run) { r.Cases[0].Verdict = engine.Unsupported },
		"known":         func(r *engine.Run) { r.Cases[0].Verdict, r.Cases[0].Known = engine.Fail, "why" },
		"no case":       func(r *engine.Run) { r.Cases = nil },
		"vectors":       func(r *engine.Run) { r.Vectors = &engine.Vectors{Verdict: engine.Fail} },
		"no vectors":    func(r *engine.Run) { r.Vectors = &engine.Vectors{Verdict: engine.Unsupported} },
		"slow":          func(r *engine.Run) { r.Budgets = []engine.Budget{{Limit: 10, Took: 15}} },
		"too slow":      func(r *engine.Run) { r.Budgets = []engine.Budget{{Limit: 10, Took: 16}} },
		"stale":         func(r *engine.Run) { r.Known = []engine.KnownState{{State: engine.KnownStale}} },
		"as listed":     func(r *engine.Run) { r.Known = []engine.KnownState{{State: engine.KnownFails}} },
		"left":          func(r *engine.Run) { r.Left = []string{"process"} },
	} {
		run := &engine.Run{Started: begin, Cases: []engine.Case{simple("lease", "A-1", "tcp", "on", engine.Pass, "", "")}}
		change(run)
		d := New(run, nil)
		if _, all := junit(t, d); d.OK != run.OK() || (all.Failures+all.Errors == 0) != run.OK() {
			t.Errorf("%s: the run is %v, the document %v, JUnit has %d failures and %d errors", name, run.OK(), d.OK, all.Failures, all.Errors)
		}
	}
}

func TestJSON(t *testing.T) {
	d := New(sample(t), clauses)
	var first, second bytes.Buffer
	if err := d.WriteJSON(&first); err != nil {
		t.Fatal(err)
	}
	if text := first.String(); strings.Contains(text, "hush") || strings.Contains(text, "68757368") {
		t.Error("A-03: the token is shown")
	}
	again, err := Read(bytes.NewReader(first.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.WriteJSON(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("%v: what was read is written otherwise:\n%s\n%s", err, first.Bytes(), second.Bytes())
	}
	if _, err := Read(strings.NewReader(`{"format":2}`)); err == nil {
		t.Error("another format is read")
	}
	if _, err := Read(strings.NewReader(`[]`)); err == nil {
		t.Error("something else is read")
	}
	// Reports of what was read are those of what was written.
	for name, write := range map[string]func(*Document, io.Writer) error{
		"terminal": func(d *Document, w io.Writer) error { return d.WriteText(w, Style{}) }, "junit": (*Document).WriteJUnit, "html": (*Document).WriteHTML,
	} {
		var one, other bytes.Buffer
		if err := errors.Join(write(d, &one), write(again, &other)); err != nil || !bytes.Equal(one.Bytes(), other.Bytes()) {
			t.Errorf("%s: %v: the report of the file is another one", name, err)
		}
	}
}

// The document has every key of the model, and its entries are those of the traces.
func TestModel(t *testing.T) {
	keys := func(v any) []string {
		var out []string
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag != "" {
				out = append(out, tag)
			}
		}
		return out
	}
	document := keys(Document{})
	for _, key := range keys(engine.Run{}) {
		if !slices.Contains(document, key) {
			t.Errorf("the report has no %s", key)
		}
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Concat(document, keys(Case{}), keys(Entry{}), keys(engine.Vectors{}), keys(engine.Budget{}), keys(Link{}), keys(Span{})) {
		if !bytes.Contains(text, []byte("`"+key+"`")) {
			t.Errorf("README.md does not describe %s", key)
		}
	}
	for _, e := range link(t, "c1", "x", 2).Entries {
		var want, got any
		a, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(newEntry(e, DefaultLimits))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(json.Unmarshal(a, &want), json.Unmarshal(b, &got)); err != nil || !reflect.DeepEqual(want, got) {
			t.Errorf("%v\n%s\n%s", err, a, b)
		}
	}
}

func html(t *testing.T, d *Document, most int) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.writePage(&b, most); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// rows returns the timelines of a page in the order of its cases.
func rows(t *testing.T, text string) []timeline {
	t.Helper()
	var out []timeline
	for _, m := range regexp.MustCompile(`(?s)<script type="application/json" id="data-[0-9]+">(.*?)</script>`).FindAllStringSubmatch(text, -1) {
		var one timeline
		if err := json.Unmarshal([]byte(m[1]), &one); err != nil {
			t.Fatal(err)
		}
		out = append(out, one)
	}
	return out
}

func count(rows []shown, chosen func(shown) bool) int {
	n := 0
	for _, r := range rows {
		if chosen(r) {
			n++
		}
	}
	return n
}

func TestPageShowsFailures(t *testing.T) {
	run := sample(t)
	run.Cases = append(run.Cases, failed(t, "LEASE-9", "y", 3))
	text := html(t, New(run, clauses), PageBytes)
	timelines := rows(t, text)
	if len(timelines) != 2 {
		t.Fatalf("%d timelines", len(timelines))
	}
	for i, tl := range timelines {
		c := []engine.Case{run.Cases[0], run.Cases[6]}[i]
		if !strings.Contains(text, "<code>"+c.Replay+"</code>") {
			t.Errorf("%s: no replay command", c.Name)
		}
		if n := count(tl.Rows, func(r shown) bool { return r.Kind == rowEntry }); n != len(c.Links[0].Entries) {
			t.Errorf("%s: %d of %d entries", c.Name, n, len(c.Links[0].Entries))
		}
		for what, chosen := range map[string]func(shown) bool{
			"every byte has a meaning": func(r shown) bool {
				return len(r.Meaning) == 2 && len(r.Meaning[0]) > 3 && r.Bytes[0] != r.Bytes[1] && strings.Contains(r.Text, `route="lease://r/a/k"`)
			},
			"held":            func(r shown) bool { return r.Kind == rowEntry && r.Rule == "hold h1" && *r.Late > r.At },
			"delivered later": func(r shown) bool { return r.Kind == rowLate && r.Name == "lease.query" && r.Label == "7" },
			"dropped":         func(r shown) bool { return r.Fate == "dropped" && r.Dir == "down" && r.Name == "lease.notify" },
			"failed step":     func(r shown) bool { return r.Kind == rowStep && r.Failed && r.Name == "2.1" },
			"driver event": func(r shown) bool {
				return r.Kind == rowEvent && r.Name == "client.state" && r.Label == "c1" && r.At == 18000
			},
		} {
			if n := count(tl.Rows, chosen); n != 1 {
				t.Errorf("%s: %s: %d rows", c.Name, what, n)
			}
		}
		if !slices.IsSortedFunc(tl.Rows, func(a, b shown) int { return int(a.At - b.At) }) {
			t.Errorf("%s: not in the order of time", c.Name)
		}
	}
	if strings.Contains(text, "hush") || strings.Contains(text, "68757368") || !strings.Contains(text, "xxxxxxxx") {
		t.Error("A-03: the token is shown, or its place is not")
	}
	for _, want := range []string{"Could not run", "Unsupported", "Known failures", "no_virtual_time", "left behind: process 77 sleep", "exceeded by more than half", "decode a: no",
		`{"L-20":"nobody holds","L-21":"a bound is reached"}`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// Nothing that a subject says becomes markup, script or control of the text direction, and the page refers to nothing outside of it.
func TestPageEscapes(t *testing.T) {
	const hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'`${x}{{.}}<!--\u202egnp\u2066\u200b\u2028\x00\x1b[31m\x7f\xff"
	run := sample(t)
	run.Cases[0] = failed(t, "LEASE-1", hostile, 2)
	run.Cases[1].Message, run.Cases[1].Verdict, run.Cases[1].Reason, run.Cases[1].Replay = hostile, engine.Fail, hostile, hostile
	run.Subject.Name, run.Broker.Command, run.Left, run.Vectors.Wrong, run.Vectors.Reason = hostile, hostile, []string{hostile}, []string{hostile}, hostile
	run.Known[1].Case, run.Known[1].Why, run.Budgets[0].Name, run.Cases[2].Known = hostile, hostile, hostile, hostile
	d := New(run, map[string]string{"L-20": hostile})
	text := html(t, d, PageBytes)
	if len(rows(t, text)) != 1 {
		t.Error("the timeline is lost")
	}
	for _, bad := range []string{"<img", "<script>alert", "<!--", "\u202e", "\u2066", "\u200b", "\u2028", "\x00", "\x1b", "\x7f", "\xff"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if n := strings.Count(text, "<script"); n != 3 {
		t.Errorf("%d scripts", n)
	}
	if !strings.Contains(text, `\u{202e}gnp`) || !strings.Contains(text, `\\u{202e}gnp`) {
		t.Error("what does not print is not shown with its number")
	}
	// The same texts neither steer a terminal nor break XML.
	var b bytes.Buffer
	if err := d.WriteText(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	p := NewProgress(&b, Style{}, false)
	p.Case(1, 1, &run.Cases[1])
	xmlText, _ := junit(t, d)
	for _, bad := range []string{"\u202e", "\u2066", "\u200b", "\x00", "\x1b", "\x7f", "\xff"} {
		if strings.Contains(b.String(), bad) || bytes.Contains(xmlText, []byte(bad)) {
			t.Errorf("terminal or JUnit has %q", bad)
		}
	}
}

func TestPageIsAlone(t *testing.T) {
	text := html(t, New(sample(t), clauses), PageBytes)
	if m := regexp.MustCompile(`(?i)\b(https?:|//[a-z0-9.-]+\.[a-z]{2,}/)[^"' ]*|\bsrc=|<link|@import|url\(|\bstyle="|\son[a-z]+="`).FindString(strings.ReplaceAll(text, "lease://", "")); m != "" {
		t.Errorf("the page refers to %q", m)
	}
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(text)
	if policy == nil || !strings.HasPrefix(policy[1], "default-src &#39;none&#39;; script-src &#39;sha256-") {
		t.Fatalf("policy %q", policy)
	}
	// The policy admits exactly the style and the script that the page has.
	for _, part := range []string{"style", "script"} {
		all := regexp.MustCompile(`(?s)<`+part+`>(.*?)</`+part+`>`).FindAllStringSubmatch(text, -1)
		if len(all) != 1 {
			t.Fatalf("%d of <%s>", len(all), part)
		}
		sum := sha256.Sum256([]byte(all[0][1]))
		hash := strings.ReplaceAll(base64.StdEncoding.EncodeToString(sum[:]), "+", "&#43;")
		if !strings.Contains(policy[1], hash) {
			t.Errorf("the policy does not admit the %s of the page", part)
		}
	}
}

// A run with more frames than fit shows the ends of each failure and says what it leaves out.
func TestPageIsBounded(t *testing.T) {
	run := &engine.Run{Started: begin}
	for i := range 10 {
		run.Cases = append(run.Cases, failed(t, fmt.Sprintf("LEASE-%d", i), strings.Repeat("long ", 2000), 500))
	}
	passed := failed(t, "LEASE-P", "x", 50)
	passed.Verdict, passed.Reason = engine.Pass, ""
	run.Cases = append(run.Cases, passed)
	d := New(run, nil)
	whole, small := html(t, d, 1<<40), html(t, d, 200_000)
	if strings.Contains(whole, "stays small") || !strings.Contains(small, "stays small") || len(small) > 800_000 || len(whole) < 2*len(small) {
		t.Errorf("%d bytes, bounded %d", len(whole), len(small))
	}
	timelines := rows(t, small)
	if len(timelines) < 10 {
		t.Fatalf("%d timelines", len(timelines))
	}
	for _, tl := range timelines[:10] {
		entries := count(tl.Rows, func(r shown) bool { return r.Kind == rowEntry })
		gaps := count(tl.Rows, func(r shown) bool { return r.Kind == rowGap && strings.Contains(r.Text, "492 entries") })
		if entries != 12 || gaps != 1 {
			t.Errorf("%d entries, %d gaps", entries, gaps)
		}
	}
}

func TestLimits(t *testing.T) {
	limits := Limits{Entries: 8, Bytes: 20, Text: 10, Events: 1}
	c := newCase(failed(t, "LEASE-1", "äöüäöüäöü", 100), limits)
	l := c.Links[0]
	if len(l.Entries) != 8 || l.LeftOut.Entries != 96 || l.LeftOut.After != 2 || l.Entries[2].Seq != 99 || l.LeftOut.Bytes == 0 {
		t.Errorf("%d entries, left out %+v", len(l.Entries), l.LeftOut)
	}
	e := l.Entries[7]
	at := 0
	for _, s := range e.Spans {
		at += s.Len
	}
	if len(e.Bytes) != 40 || e.Size <= 20 || at != 20 || !strings.Contains(e.Text, "more bytes") || len(c.Events) != 1 || len(c.Steps) != 1 {
		t.Errorf("%+v", e)
	}
	// Narrowing what was narrowed counts everything that is missing.
	narrower := c.within(Limits{Entries: 4, Bytes: 4, Text: 10, Events: 1}).Links[0]
	if n := narrower.Entries[3]; len(narrower.Entries) != 4 || narrower.LeftOut.Entries != 100 || narrower.LeftOut.After != 1 || n.Size != e.Size || len(n.Bytes) != 8 {
		t.Errorf("%+v", narrower)
	}
	if empty := c.within(Limits{}); len(empty.Links[0].Entries) != 0 || empty.Links[0].LeftOut.Entries != 104 {
		t.Errorf("%+v", empty.Links[0])
	}
}

func TestClauses(t *testing.T) {
	all, err := LoadClauses(os.DirFS("../../docs/protocol"))
	if err != nil {
		t.Fatal(err)
	}
	for id, part := range map[string]string{"L-20": "nobody holds", "W-50": "CORRELATE stands immediately", "OB-10": "", "E-01": "", "D-10": "where a mistake is", "RI-25": ""} {
		if text := all[id]; text == "" || !strings.Contains(text, part) {
			t.Errorf("%s: %q", id, text)
		}
	}
}

// Whatever a text holds, what is shown of it prints.
func TestVisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		got := visible(text)
		for _, r := range got {
			if r != '\n' && (r < ' ' || r == 0x7f || r == '\u202e' || r == '\u2066') {
				t.Fatalf("%q became %q", text, got)
			}
		}
		if cutText := cut(got, 5); len(got) > 5 && !strings.Contains(cutText, "more bytes") {
			t.Fatalf("%q", cutText)
		}
	})
	for text, want := range map[string]string{"plain": "plain", "ä✓": "ä✓", "a\tb\r\nc\rd": "a    b\nc\\u{d}d", "\u202e\xff": `\u{202e}\xff`, "\u00a0": `\u{a0}`} {
		if got := visible(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
