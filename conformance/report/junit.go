package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/fitzwire/fitz/conformance/engine"
)

// The parts of a JUnit file that the readers of the wide-spread servers agree about.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class      string          `xml:"classname,attr"`
		Name       string          `xml:"name,attr"`
		Time       string          `xml:"time,attr"`
		File       string          `xml:"file,attr,omitempty"`
		Line       int             `xml:"line,attr,omitempty"`
		Properties []junitProperty `xml:"properties>property"`
		Failure    *junitOutcome   `xml:"failure"`
		Error      *junitOutcome   `xml:"error"`
		Skipped    *junitOutcome   `xml:"skipped"`
	}
	junitOutcome struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",cdata"`
	}
)

// framesJUnit is how many of the last frames the text of a failure has.
const framesJUnit = 20

// WriteJUnit writes the document as JUnit XML: a suite for each folder of scenarios and one, named run, for everything else that makes a run
// fail. Whoever reads only this file comes to the verdict of the run: what fails is a failure; what could not run or is unsupported is an
// error, since most servers take skipped cases for harmless; only a known failure, which does not fail the run either, is skipped.
func (d *Document) WriteJUnit(w io.Writer) error {
	all := junitSuites{Name: "fitz conformance", Time: seconds(d.Duration)}
	for _, folder := range d.folders() {
		s := d.junitSuite(folder)
		var took time.Duration
		for i := range d.Cases {
			if c := &d.Cases[i]; c.Folder == folder {
				s.add(d.junitCase(c))
				took += c.Duration
			}
		}
		s.Time = seconds(took)
		all.add(s)
	}
	all.add(d.junitRun())
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

func (s *junitSuites) add(one junitSuite) {
	s.Tests += one.Tests
	s.Failures += one.Failures
	s.Errors += one.Errors
	s.Skipped += one.Skipped
	s.Suites = append(s.Suites, one)
}

func (s *junitSuite) add(c junitCase) {
	s.Tests++
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

func (d *Document) junitSuite(name string) junitSuite {
	return junitSuite{
		Name: name, Time: seconds(0), Timestamp: d.Started.UTC().Format("2006-01-02T15:04:05"),
		Properties: properties("seed", strconv.FormatUint(d.Seed, 10), "subject", subject(d.Subject), "broker", subject(d.Broker)),
	}
}

// properties makes a list of names and values, without those that have no value.
func properties(pairs ...string) []junitProperty {
	var out []junitProperty
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, junitProperty{pairs[i], line(pairs[i+1])})
		}
	}
	return out
}

// subject is a subject or a broker in one line.
func subject(i engine.Info) string {
	text := strings.TrimSpace(i.Name + " " + i.Version)
	switch {
	case text == "":
		return i.Command
	case i.Command == "":
		return text
	}
	return text + " (" + i.Command + ")"
}

func (d *Document) junitCase(c *Case) junitCase {
	out := junitCase{
		Class: c.Folder + "." + c.ID, Name: c.Name, Time: seconds(c.Duration), File: "conformance/scenarios/" + c.File,
		Properties: properties("title", c.Title, "subject", c.Subject, "transport", c.Transport, "labels", c.Labels, "auth", c.Auth, "clock", c.Time,
			"proves", strings.Join(c.Proves, " "), "refuses", strings.Join(c.Refuses, " "), "codes", strings.Join(c.Codes, " "),
			"verdict", string(c.Verdict), "step", c.Step, "replay", c.Replay),
	}
	if c.Pos != nil {
		out.Line = c.Pos.Line
	}
	o := &junitOutcome{Message: headline(c), Type: line(c.Reason), Text: d.describe(c, framesJUnit)}
	switch {
	case c.Status == StatusKnown:
		out.Skipped = &junitOutcome{Message: line("known failure: " + c.Known), Text: o.Text}
	case c.Verdict == engine.Pass:
	case c.Verdict == engine.Fail:
		out.Failure = o
	default:
		o.Message = string(c.Verdict) + ": " + o.Message
		out.Error = o
	}
	return out
}

// headline is the first line of what a case says of itself.
func headline(c *Case) string {
	first, _, _ := strings.Cut(strings.TrimSpace(c.Message), "\n")
	if first == "" {
		return line(c.Reason)
	}
	return line(cut(first, 2*textMax))
}

// junitRun is the suite of everything that is no case.
func (d *Document) junitRun() junitSuite {
	s := d.junitSuite("run")
	s.Time = seconds(d.Duration)
	test := func(name string, took time.Duration, fails bool, kind, message string) {
		c := junitCase{Class: "run", Name: name, Time: seconds(took)}
		if fails {
			c.Failure = &junitOutcome{Message: headline(&Case{Case: engine.Case{Message: message}}), Type: kind, Text: visible(message)}
		}
		s.add(c)
	}
	if len(d.Cases) == 0 && d.Vectors == nil {
		test("cases", 0, true, "empty", "no case was chosen")
	}
	if v := d.Vectors; v != nil {
		c := junitCase{Class: "run", Name: "golden vectors", Time: seconds(v.Duration)}
		o := &junitOutcome{Message: line(v.Reason), Type: "vectors", Text: visible(strings.Join(v.Wrong, "\n"))}
		switch v.Verdict {
		case engine.Pass:
		case engine.Fail:
			c.Failure = o
		default:
			o.Message = string(v.Verdict) + ": " + o.Message
			c.Error = o
		}
		s.add(c)
	}
	for _, b := range d.Budgets {
		test("budget "+line(b.Name), b.Took, b.Exceeded(), "budget", fmt.Sprintf("%s of %s, more than half over it", round(b.Took), round(b.Limit)))
	}
	for _, k := range d.Known {
		if k.State != engine.KnownFails {
			test("known failure "+line(k.Case), 0, true, "known."+k.State, knownText(k))
		}
	}
	test("nothing is left behind", 0, len(d.Left) > 0, "left", strings.Join(d.Left, "\n"))
	return s
}

// knownText says what is wrong with an entry of the list of known failures.
func knownText(k engine.KnownState) string {
	return map[string]string{
		engine.KnownPasses: "it passes; take it off the list", engine.KnownDiffers: "it fails in another way than the list says",
		engine.KnownStale: "there is no such case; take it off the list",
	}[k.State]
}
