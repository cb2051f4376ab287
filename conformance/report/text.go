package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// visible is a text of a subject, a broker or a file as it can be shown: what does not print, as control characters, invalid UTF-8 and
// characters that turn the direction of text, is written with its number, so that it acts on no terminal, page or file. Line ends stay.
func visible(text string) string {
	if plain(text) {
		return text
	}
	var b strings.Builder
	for at := 0; at < len(text); {
		r, n := utf8.DecodeRuneInString(text[at:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, text[at])
		case r == '\n' || strconv.IsPrint(r):
			b.WriteString(text[at : at+n])
		case r == '\t':
			b.WriteString("    ")
		case r == '\r' && strings.HasPrefix(text[at+n:], "\n"):
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
		at += n
	}
	return b.String()
}

func plain(text string) bool {
	for _, b := range []byte(text) {
		if (b < ' ' || b > '~') && b != '\n' {
			return false
		}
	}
	return true
}

// line is a visible text without line ends.
func line(text string) string { return strings.ReplaceAll(visible(text), "\n", `\n`) }

// round is a duration as people read it.
func round(d time.Duration) string {
	switch {
	case d >= time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d >= time.Millisecond:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	}
	return strconv.FormatInt(d.Microseconds(), 10) + " µs"
}

// plural is a number with a noun.
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// name is the name of an entry with its form: lease.acquire request.
func (e *Entry) name() string {
	name := e.Message
	if e.Kind == trace.Frame && name == "" && e.Type != nil {
		name = fmt.Sprintf("type %d", *e.Type)
	}
	if name == "" || e.Kind != trace.Frame && e.Kind != trace.Event {
		name = strings.TrimSpace(string(e.Kind) + " " + name)
	}
	return strings.TrimSpace(name + " " + string(e.Form))
}

// fate says in words what became of an entry, "" when it simply arrived.
func (e *Entry) fate() string {
	var words []string
	if e.Inserted {
		words = append(words, "inserted")
	}
	if e.Fate != "" && e.Fate != trace.Delivered {
		words = append(words, string(e.Fate))
	}
	if e.Sent != "" {
		words = append(words, "changed")
	}
	if e.Rule != "" {
		words = append(words, "by "+e.Rule)
	}
	return strings.Join(words, " ")
}

// textMax is how much of a value a line shows.
const textMax = 160

// line is one moment of a case in one line: 12.345 ms c1 -> lease.query request #1 label 3: route="…".
func (m moment) line() string {
	e := m.entry
	arrow := map[oracle.Direction]string{oracle.Up: "->", oracle.Down: "<-", "": "--"}[e.Dir]
	out := fmt.Sprintf("%10.3f ms %-4s %s %s", float64(m.at.Microseconds())/1000, m.link.Name, arrow, e.name())
	if e.Label != "" {
		out += " label " + e.Label
	}
	if m.late {
		return line(out + " [now delivered, by " + e.Rule + "]")
	}
	if fate := e.fate(); fate != "" {
		out += " [" + fate + "]"
	}
	if e.Text != "" {
		out += ": " + cut(e.Text, textMax)
	}
	if e.Fault != "" {
		out += " !" + e.Fault
	}
	return line(out)
}

// lines is the last moments of a case, a line each.
func (d *Document) lines(c *Case, most int) []string {
	moments := d.moments(c)
	var out []string
	if more := len(moments) - most; more > 0 {
		out = append(out, fmt.Sprintf("(%d before)", more))
	}
	for _, m := range tail(moments, most) {
		out = append(out, m.line())
	}
	return out
}

// Describe is everything that a person needs of a case that did not pass, in some lines.
func (d *Document) Describe(c *Case) string { return d.describe(c, framesTerminal) }

// describe is everything that a person needs of a case that did not pass: where, why, the last frames, and how to run it again. Indented
// parts are those of a case that the first line names.
func (d *Document) describe(c *Case, frames int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s: %s\n", c.Name, c.Status, line(c.Reason))
	fmt.Fprintf(&b, "  %s\n", line(c.Title))
	if c.Pos != nil {
		fmt.Fprintf(&b, "  at conformance/scenarios/%s, step %s (%s)\n", c.Pos, c.Step, line(c.StepText))
	}
	if c.Message != "" {
		fmt.Fprintf(&b, "  %s\n", strings.ReplaceAll(visible(strings.TrimSpace(c.Message)), "\n", "\n  "))
	}
	if c.Known != "" {
		fmt.Fprintf(&b, "  known: %s\n", line(c.Known))
	}
	for _, l := range d.lines(c, frames) {
		fmt.Fprintf(&b, "    %s\n", l)
	}
	fmt.Fprintf(&b, "  again: %s\n", line(c.Replay))
	return b.String()
}
