package trace

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fitzwire/fitz/conformance/oracle"
)

// hidden is the text of a span whose bytes must not be shown: the token of CONNECT.
const hidden = "(not shown)"

// Spans names every byte of the entry as it was read: of a frame by the specification, of anything else with one span.
func (e Entry) Spans() []oracle.Span {
	if e.Kind != Frame || e.codec == nil {
		return nil
	}
	return e.annotate(e.Bytes)
}

// SentSpans names every byte of a frame as it was delivered, when that differs from what was read.
func (e Entry) SentSpans() []oracle.Span {
	if e.Kind != Frame || e.codec == nil || e.Sent == nil {
		return nil
	}
	return e.annotate(e.Sent)
}

// annotate names the bytes of all records in b.
func (e Entry) annotate(b []byte) []oracle.Span {
	var spans []oracle.Span
	at := 0
	for _, part := range e.parts(b) {
		for _, s := range e.codec.Annotate(e.Dir, part) {
			s.Offset += at
			spans = append(spans, s)
		}
		at += len(part)
	}
	return spans
}

// parts cuts b into the label record and the rest.
func (e Entry) parts(b []byte) [][]byte {
	front := 0
	if e.Label != 0 && len(e.Bytes) > len(e.Record) {
		front = min(labelSize(b), len(b))
	}
	if front == 0 {
		return [][]byte{b}
	}
	return [][]byte{b[:front], b[front:]}
}

// Text is the decoded value in one line: route="lease://a/b/c" ttl=30.
func (e Entry) Text() string {
	if e.Kind != Frame {
		return e.Note
	}
	var b strings.Builder
	for _, s := range e.Spans() {
		if s.Path == "type" || s.Path == "length" || strings.HasSuffix(s.Path, " length") || s.Offset < len(e.Bytes)-len(e.Record) {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(s.Path + "=" + s.Text)
	}
	return b.String()
}

// Hex is bytes in hexadecimal digits, with xx for each byte that must not be shown.
func Hex(b []byte, spans []oracle.Span) string {
	digits := []byte(hex.EncodeToString(b))
	for _, s := range spans {
		if s.Text != hidden {
			continue
		}
		for i := 2 * s.Offset; i < 2*(s.Offset+s.Len) && i < len(digits); i++ {
			digits[i] = 'x'
		}
	}
	return string(digits)
}

// jsonSpan is a span in JSON.
type jsonSpan struct {
	Offset int    `json:"offset"`
	Len    int    `json:"len"`
	Path   string `json:"path"`
	Type   string `json:"type,omitempty"`
	Text   string `json:"text,omitempty"`
}

// jsonEntry is an entry in JSON. Moments are microseconds since the start of the log; labels are decimal strings.
type jsonEntry struct {
	Seq       int              `json:"n"`
	At        int64            `json:"at_us"`
	Delivered *int64           `json:"delivered_us,omitempty"`
	Conn      int              `json:"conn"`
	Kind      Kind             `json:"kind"`
	Dir       oracle.Direction `json:"dir,omitempty"`
	Message   string           `json:"message,omitempty"`
	Form      oracle.Form      `json:"form,omitempty"`
	Type      *uint16          `json:"type,omitempty"`
	Label     string           `json:"label,omitempty"`
	Text      string           `json:"text,omitempty"`
	Bytes     string           `json:"bytes,omitempty"`
	Spans     []jsonSpan       `json:"spans,omitempty"`
	Sent      string           `json:"sent,omitempty"`
	SentSpans []jsonSpan       `json:"sent_spans,omitempty"`
	Fault     string           `json:"fault,omitempty"`
	Group     int              `json:"group,omitempty"`
	Inserted  bool             `json:"inserted,omitempty"`
	Rule      string           `json:"rule,omitempty"`
	Note      string           `json:"note,omitempty"`
	Fate      Fate             `json:"fate,omitempty"`
}

// MarshalJSON writes the entry with its bytes in hexadecimal and the meaning of each of them.
func (e Entry) MarshalJSON() ([]byte, error) {
	spans, sent := e.Spans(), e.SentSpans()
	out := jsonEntry{
		Seq: e.Seq, At: e.At.Microseconds(), Conn: e.Conn, Kind: e.Kind, Dir: e.Dir, Message: e.Message, Form: e.Form,
		Text: e.Text(), Bytes: Hex(e.Bytes, spans), Spans: inJSON(spans), Sent: Hex(e.Sent, sent), SentSpans: inJSON(sent),
		Group: e.Group, Inserted: e.Inserted, Rule: e.Rule, Note: e.Note, Fate: e.Fate,
	}
	if e.Kind == Frame {
		out.Type = &e.Type
	}
	if e.Label != 0 {
		out.Label = strconv.FormatUint(e.Label, 10)
	}
	if e.Fate == Delivered {
		us := e.Delivered.Microseconds()
		out.Delivered = &us
	}
	if e.Fault != nil {
		out.Fault = e.Fault.Error()
	}
	return json.Marshal(out)
}

func inJSON(spans []oracle.Span) []jsonSpan {
	out := make([]jsonSpan, 0, len(spans))
	for _, s := range spans {
		out = append(out, jsonSpan{s.Offset, s.Len, s.Path, s.Type, s.Text})
	}
	return out
}

// Dump is a log as reports store it.
type Dump struct {
	Name    string    `json:"name"`
	Started time.Time `json:"started"`
	Entries []Entry   `json:"entries"`
	LeftOut *LeftOut  `json:"left_out,omitempty"`
}

// Dump returns what the log has now.
func (l *Log) Dump() Dump {
	d := Dump{Name: l.name, Started: l.start, Entries: l.Entries()}
	if left := l.Left(); left.Entries > 0 {
		d.LeftOut = &left
	}
	return d
}

// MarshalJSON writes what the log has now.
func (l *Log) MarshalJSON() ([]byte, error) { return json.Marshal(l.Dump()) }

// String is the entry in one line, for terminals: moment, connection, direction, message, label, fate and value.
func (e Entry) String() string {
	arrow := map[oracle.Direction]string{oracle.Up: "->", oracle.Down: "<-", "": "--"}[e.Dir]
	name := e.Message
	if e.Kind == Frame && name == "" {
		name = fmt.Sprintf("type %d", e.Type)
	}
	out := fmt.Sprintf("%10.3fms #%d %s %s", float64(e.At.Microseconds())/1000, e.Conn, arrow, e.Kind)
	for _, word := range []string{name, string(e.Form)} {
		if word != "" {
			out += " " + word
		}
	}
	if e.Label != 0 {
		out += fmt.Sprintf(" label %d", e.Label)
	}
	if e.Fate != "" && e.Fate != Delivered {
		out += " [" + string(e.Fate) + "]"
	}
	if e.Rule != "" {
		out += " (" + e.Rule + ")"
	}
	if text := e.Text(); text != "" {
		out += ": " + text
	}
	if e.Fault != nil {
		out += " !" + e.Fault.Error()
	}
	return out
}
