// Package decode names every byte of a record or of a transport message.
package decode

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/client"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Side is who sent a message.
type Side string

// The sides.
const (
	Either     Side = ""
	FromClient Side = "client"
	FromBroker Side = "broker"
)

// Span is a stretch of bytes that means one thing.
type Span struct {
	Offset int    `json:"offset"`
	Hex    string `json:"hex"`
	Name   string `json:"name"`
	Type   string `json:"type"`
	Value  string `json:"value"`
	Doc    string `json:"doc,omitempty"`
}

// Problem is the first mistake of a message.
type Problem struct {
	Offset int       `json:"offset"`
	Code   wire.Code `json:"code,omitempty"`   // that answers it
	Name   string    `json:"name,omitempty"`   // of the code
	Effect string    `json:"effect,omitempty"` // what happens where no code answers
	Text   string    `json:"text"`
	Clause string    `json:"clause,omitempty"`
}

// Report is everything that could be said.
type Report struct {
	From    Side     `json:"from,omitempty"` // who must have sent it; empty: either could have
	Spans   []Span   `json:"spans"`          // in order, each byte once, up to the problem
	Problem *Problem `json:"problem,omitempty"`
}

const prefixBytes = 4

// Message names the bytes of a record, of several, or of a TCP message with its length in front. from says who sent it; Either tries
// both. No message has the number 0, so a first byte of 0 begins a length.
func Message(data []byte, from Side) Report {
	if from != Either {
		return read(data, from)
	}
	fromClient, fromBroker := read(data, FromClient), read(data, FromBroker)
	if fromClient.Problem == nil && fromBroker.Problem == nil {
		fromClient.From = Either
		return fromClient
	}
	if better(fromClient.Problem, fromBroker.Problem) {
		return fromClient
	}
	return fromBroker
}

// better reports whether a reading with the mistake a says more than one with b: no mistake is best, a later one is better.
func better(a, b *Problem) bool {
	if a == nil || b == nil {
		return a == nil
	}
	return a.Offset >= b.Offset
}

// reader walks over the bytes.
type reader struct {
	data   []byte
	report Report
	from   Side
}

func read(data []byte, from Side) Report {
	r := reader{data: data, from: from, report: Report{From: from, Spans: []Span{}}}
	offset := r.prefix()
	for count := 0; r.report.Problem == nil; count++ {
		if count == bounds.RecordsPerFrameMax {
			r.fail(&Problem{Offset: offset, Effect: wire.CloseBadFrame.Text, Text: "too many records", Clause: "W-03"})
			break
		}
		offset = r.record(offset)
		if offset == len(data) {
			break
		}
	}
	return r.report
}

func (r *reader) fail(p *Problem) {
	if p.Code != 0 {
		p.Name = p.Code.String()
	}
	r.report.Problem = p
}

func (r *reader) add(offset, length int, name, typ, value, doc string) {
	if length > 0 {
		r.report.Spans = append(r.report.Spans, Span{offset, fmt.Sprintf("%x", r.data[offset:offset+length]), name, typ, value, doc})
	}
}

// prefix names the length in front of a TCP message and returns where the records begin.
func (r *reader) prefix() int {
	if len(r.data) < prefixBytes || r.data[0] != 0 {
		return 0
	}
	declared, follow := binary.BigEndian.Uint32(r.data), len(r.data)-prefixBytes
	r.add(0, prefixBytes, "message length", codec.TypeU32.String(), strconv.FormatUint(uint64(declared), 10)+" bytes", "Length of the transport message on TCP.")
	switch {
	case declared == 0:
		r.fail(&Problem{Offset: 0, Effect: wire.CloseBadFrame.Text, Text: "the transport message is empty", Clause: "W-10"})
	case int64(declared) > bounds.FrameRecvMax:
		r.fail(&Problem{Offset: 0, Effect: wire.CloseFrameTooLarge.Text, Text: "the transport message is larger than frame_recv_max", Clause: "W-10"})
	case int64(declared) != int64(follow):
		r.fail(&Problem{Offset: 0, Text: fmt.Sprintf("the length says %d bytes, %d follow", declared, follow), Clause: "W-10"})
	}
	return prefixBytes
}

// record names one record and returns where the next one begins.
func (r *reader) record(offset int) int {
	record, rest, err := codec.NextRecord(r.data[offset:])
	if err != nil {
		r.badRecord(offset, err)
		return offset
	}
	typ := wire.MessageType(record.Type)
	start := len(r.data) - len(rest) - len(record.Value)
	typeSize := start - offset - codec.RecordHeaderSize(0) + 1
	r.add(offset, typeSize, "record type", typeName(typeSize), fmt.Sprintf("%d %s", record.Type, typ), "Number of the message.")
	r.add(offset+typeSize, start-offset-typeSize, "record length", codec.TypeU16.String(), fmt.Sprintf("%d bytes", len(record.Value)), "Length of the value.")
	r.value(offset, start, typ, record.Value)
	return start + len(record.Value)
}

func typeName(size int) string {
	if size == 1 {
		return codec.TypeU8.String()
	}
	return codec.TypeU8.String() + " " + codec.TypeU16.String()
}

func (r *reader) badRecord(offset int, err error) {
	reason, text, clause := wire.CloseBadFrame, "the record is cut off", "W-03"
	if errors.Is(err, codec.ErrBadRecord) {
		reason, text, clause = wire.CloseBadRecord, "the type is written in the long form although it is small", "W-01"
	}
	if offset == len(r.data) {
		text = "there is no record"
	}
	r.fail(&Problem{Offset: offset, Effect: reason.Text, Text: text, Clause: clause})
}

// value names the bytes of a record value.
func (r *reader) value(record, start int, typ wire.MessageType, value []byte) {
	info, known := wire.LookupMessage(typ)
	if !known || info.Reserved {
		r.add(start, len(value), "value", codec.TypeBytes.String(), fmt.Sprintf("%x", value), "")
		r.fail(&Problem{Offset: record, Effect: wire.CloseUnsupportedMessageType.Text, Text: typ.String() + " is no message of the protocol", Clause: "W-05"})
		return
	}
	if !info.ToBroker && r.from == FromClient || !info.ToClient && r.from == FromBroker {
		r.add(start, len(value), "value", codec.TypeBytes.String(), fmt.Sprintf("%x", value), "")
		r.fail(&Problem{Offset: record, Effect: wire.CloseUnsupportedMessageType.Text, Text: fmt.Sprintf("a %s never sends %s", r.from, typ), Clause: "W-05"})
		return
	}
	if info.Class == wire.Request && r.from == FromBroker && r.refusal(start, value) {
		return
	}
	layout, ok := wire.FindLayout(typ, part(info, r.from))
	if !ok { // a message whose success is not answered
		r.add(start, len(value), "value", codec.TypeBytes.String(), fmt.Sprintf("%x", value), "")
		r.fail(&Problem{Offset: start, Effect: client.NameProtocolViolation, Text: "this message has no such value"})
		return
	}
	spans, mistake := codec.Annotate(layout.Layout, value)
	for _, s := range spans {
		r.add(start+s.Offset, s.Len, s.Name, s.Type, s.Value, s.Text)
	}
	structural := mistake != nil && (r.from == FromBroker || codec.Malformed(mistake))
	if !structural && r.routes(start, info, layout.Layout, value, spans) {
		return // the grammar decides before bounds do (D-9)
	}
	if mistake != nil {
		r.mistake(start, info, mistake)
	}
}

// part says which value of a message number a side sends.
func part(info wire.MessageInfo, from Side) wire.Part {
	switch {
	case info.Class != wire.Request:
		return wire.Alone
	case from == FromBroker:
		return wire.Success
	}
	return wire.Ask
}

func (r *reader) mistake(start int, info wire.MessageInfo, mistake *codec.Error) {
	p := &Problem{Offset: start + mistake.Offset, Code: wire.Code(mistake.Code()), Text: mistake.Text(), Clause: mistake.Field.Clause}
	switch {
	case r.from == FromBroker:
		p.Code, p.Effect = 0, client.NameProtocolViolation
	case p.Code == 0:
		p.Effect = wire.CloseBadControlRecord.Text
	}
	r.fail(p)
}

// routes checks routes and selectors against the grammar of their domain, which decoders leave to dispatch. It reports whether one is
// against it.
func (r *reader) routes(start int, info wire.MessageInfo, layout *codec.Layout, value []byte, spans []codec.Span) (wrong bool) {
	grammar := route.ByScheme[info.Domain]
	if grammar == nil {
		return false
	}
	for _, f := range layout.Fields {
		i := slices.IndexFunc(spans, func(s codec.Span) bool { return s.Name == f.Name })
		if i < 0 || f.Type != codec.TypeRoute && f.Type != codec.TypeSelector {
			continue
		}
		s := spans[i]
		if err := parse(grammar, f.Type, string(value[s.Offset:s.Offset+s.Len])); err != nil {
			p := &Problem{Offset: start + s.Offset + err.Offset, Code: wire.Code(f.Field.Code), Text: f.Field.Name + ": " + err.Error(), Clause: f.Field.Clause}
			if r.from == FromBroker {
				p.Code, p.Effect = 0, client.NameProtocolViolation
			}
			r.fail(p)
			return true
		}
	}
	return false
}

func parse(grammar *pattern.Grammar, typ codec.Type, text string) *pattern.Error {
	var err error
	if typ == codec.TypeRoute {
		_, err = grammar.ParseRoute(text)
	} else {
		_, err = grammar.ParseSelector(text)
	}
	var mistake *pattern.Error
	errors.As(err, &mistake)
	return mistake
}

// refusal names the bytes of an error reply (E-02).
func (r *reader) refusal(start int, value []byte) bool {
	refusal, ok := wire.DecodeRefusal(value)
	if !ok {
		return false
	}
	r.add(start, 1, "status", codec.TypeU8.String(), strconv.Itoa(int(value[0]))+" refused", "A refusal follows.")
	at := 1
	if refusal.HasCode {
		r.add(start+at, prefixBytes, "code", codec.TypeU32.String(), fmt.Sprintf("%d %s", refusal.Code, refusal.Code), "Number of the refusal.")
		at += prefixBytes
	}
	r.add(start+at, prefixBytes, "message length", codec.TypeU32.String(), strconv.Itoa(len(value)-at-prefixBytes), "Bytes of message.")
	at += prefixBytes
	r.add(start+at, len(value)-at, "message", codec.TypeString.String(), strconv.Quote(string(value[at:])), "Text for people.")
	return true
}

// Hex reads hexadecimal digits. White space, and a leading 0x, mean nothing.
func Hex(text string) ([]byte, error) {
	var data []byte
	high := -1
	digits := strings.TrimLeft(text, " \t\r\n")
	base := len(text) - len(digits)
	if rest, ok := strings.CutPrefix(digits, "0x"); ok {
		digits, base = rest, base+len("0x")
	}
	for i := range len(digits) {
		digit := strings.IndexByte("0123456789abcdef", digits[i]|0x20)
		switch {
		case strings.IndexByte(" \t\r\n", digits[i]) >= 0:
			continue
		case digit < 0 || digits[i] < '0':
			return nil, fmt.Errorf("character %d is no hexadecimal digit: %q", base+i+1, digits[i])
		case high < 0:
			high = digit
		default:
			data = append(data, byte(high<<4|digit))
			high = -1
		}
	}
	if high >= 0 {
		return nil, errors.New("an odd number of hexadecimal digits")
	}
	if len(data) == 0 {
		return nil, errors.New("no hexadecimal digits")
	}
	return data, nil
}

// bytesPerLine is how many bytes stand in one line.
const bytesPerLine = 8

// Lines shows a report to people: offset, bytes, name, type and value.
func (r Report) Lines() []string {
	nameWidth, typeWidth := 0, 0
	for _, s := range r.Spans {
		nameWidth, typeWidth = max(nameWidth, len(s.Name)), max(typeWidth, len(s.Type))
	}
	var lines []string
	for _, s := range r.Spans {
		lines = append(lines, s.lines(nameWidth, typeWidth)...)
	}
	if r.Problem != nil {
		lines = append(lines, r.Problem.line())
	}
	return append(lines, "from "+cmp.Or(string(r.From), "client or broker"))
}

func (s Span) lines(nameWidth, typeWidth int) []string {
	var lines []string
	for from := 0; from < len(s.Hex); from += 2 * bytesPerLine {
		var pairs []string
		for i := from; i < min(from+2*bytesPerLine, len(s.Hex)); i += 2 {
			pairs = append(pairs, s.Hex[i:i+2])
		}
		line := fmt.Sprintf("%04x  %-*s", s.Offset+from/2, 3*bytesPerLine-1, strings.Join(pairs, " "))
		if from == 0 {
			line = fmt.Sprintf("%s  %-*s  %-*s  %s", line, nameWidth, s.Name, typeWidth, s.Type, s.Value)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}

func (p *Problem) line() string {
	line := fmt.Sprintf("%04x  %s", p.Offset, p.Text)
	if p.Code != 0 {
		line += fmt.Sprintf(" -> %d %s", p.Code, p.Name)
	}
	if p.Effect != "" {
		line += " -> " + p.Effect
	}
	if p.Clause != "" {
		line += " (" + p.Clause + ")"
	}
	return line
}
