package emit

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

// example is a value that shows every field of a record once. It is made from the specification alone; the tests of the generated codec prove
// that the codec makes the same bytes of it.
type example struct {
	p      *protocol
	pieces []piece
	taken  map[*field]int // lengths and numbers of fields, for bounds and presence that depend on them
}

// piece is a stretch of an example that belongs to one field.
type piece struct {
	path string
	text string // what it says
	raw  []byte
}

// examplePieces makes the example of a record.
func (p *protocol) examplePieces(r *record) []piece {
	e := &example{p: p, taken: map[*field]int{}}
	if r.part == replyPart {
		e.add("status", "0", []byte{statusOf(p, "success")})
	}
	e.record(r, "")
	return e.pieces
}

// exampleBytes is the whole example.
func exampleBytes(pieces []piece) []byte {
	var out []byte
	for _, piece := range pieces {
		out = append(out, piece.raw...)
	}
	return out
}

func statusOf(p *protocol, envelope string) uint8 {
	if e := p.Envelope(envelope); e != nil {
		return e.Status
	}
	return 0
}

func (e *example) add(path, text string, raw []byte) {
	e.pieces = append(e.pieces, piece{path, text, raw})
}

func (e *example) record(r *record, prefix string) {
	for _, f := range r.fields {
		path := prefix + f.Name
		switch f.Presence.Kind {
		case model.Flagged, model.TailFlagged:
			e.add(path+" present", "yes", []byte{1})
		case model.PresentWhen:
			if !e.present(f) {
				continue
			}
		}
		e.field(f, path)
	}
}

// present tells whether the field that decides says so; its example does.
func (e *example) present(f *field) bool {
	if f.bit == nil {
		return e.taken[f.when] != 0
	}
	return e.taken[f.when]&(1<<f.bit.Bit) != 0
}

func (e *example) field(f *field, path string) {
	switch f.kind {
	case structure:
		e.part(f, path)
	case choice:
		form := f.record.forms[0]
		e.add(path+" kind", f.record.union.Variants[0].Name, number64(f.record.union.Variants[0].Value, widths[f.record.union.Tag]))
		e.record(form, path+".")
	case list:
		e.list(f, path)
	case number, enumeration, boolean:
		n, text := e.number(f)
		e.taken[f] = int(n)
		e.add(path, text, number64(n, max(f.bits, 8)))
	case uuid:
		raw := []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f")
		e.add(path, hex.EncodeToString(raw), raw)
	default:
		raw := e.text(f)
		if f.Presence.Kind != model.Rest {
			e.add(path+" length", fmt.Sprint(len(raw)), number64(uint64(len(raw)), 32))
		}
		e.add(path, fmt.Sprintf("%q", raw), raw)
	}
}

// part makes a struct, with its length in front when it has one.
func (e *example) part(f *field, path string) {
	if f.Length == "" {
		e.record(f.record, path+".")
		return
	}
	at := len(e.pieces)
	e.add(path+" length", "", nil)
	e.record(f.record, path+".")
	size := len(exampleBytes(e.pieces[at+1:]))
	e.pieces[at] = piece{path + " length", fmt.Sprint(size), number64(uint64(size), widths[f.Length])}
}

// list makes a list of one element.
func (e *example) list(f *field, path string) {
	switch f.Form {
	case "flagged":
		e.add(path+" more", "yes", []byte{1})
		e.field(f.elem, path+"[0]")
		e.add(path+" more", "no", []byte{0})
		return
	case "counted":
		e.add(path+" count", "1", number64(1, f.frame()*8))
	}
	e.field(f.elem, path+"[0]")
}

func number64(n uint64, bits int) []byte {
	return binary.BigEndian.AppendUint64(nil, n)[8-bits/8:]
}

// number chooses a number that the field may hold.
func (e *example) number(f *field) (uint64, string) {
	switch {
	case f.Const != nil:
		n := e.p.limit(f.Const).value
		return n, fmt.Sprint(n)
	case f.kind == boolean:
		return 1, "true"
	case f.kind == enumeration:
		v := f.enum.Values[0]
		if f.Presence.Kind == model.Tail && v.Value == 0 && len(f.enum.Values) > 1 {
			v = f.enum.Values[1]
		}
		return v.Value, v.Name
	case f.Format == "capabilities":
		return e.capabilities()
	case f.Format == "error_code":
		return e.code(f)
	case f.Format == "domain_number":
		d := e.p.Domains[len(e.p.Domains)-1]
		return uint64(d.Number), d.Name
	}
	n := uint64(5)
	if f.Unit == "s" || f.Unit == "ms" || f.Unit == "bytes" {
		n = map[string]uint64{"s": 30, "ms": 10000, "bytes": 1 << 20}[f.Unit]
	}
	if f.highest != nil {
		n = min(n, f.highest.value)
	}
	if f.least != nil {
		n = max(n, f.least.value)
	}
	return n, strings.TrimSpace(fmt.Sprint(n, " ", f.Unit))
}

// capabilities are the bits that are announced.
func (e *example) capabilities() (uint64, string) {
	var bits uint64
	var names []string
	for _, c := range e.p.Wire.Capabilities {
		if c.Announced {
			bits |= 1 << c.Bit
			names = append(names, c.Name)
		}
	}
	return bits, strings.Join(names, ", ")
}

// code is the first code that the message carries.
func (e *example) code(f *field) (uint64, string) {
	for _, c := range e.p.Errors {
		if f.owner.message != nil && strings.EqualFold(c.CarriedBy, f.owner.name) {
			return uint64(c.Code), c.Name
		}
	}
	c := e.p.Errors[0]
	return uint64(c.Code), c.Name
}

// text chooses text that the field may hold.
func (e *example) text(f *field) []byte {
	switch {
	case f.kind == route:
		return []byte(e.routeText(f))
	case f.Format == "rfc3339_ms":
		return []byte("2030-01-02T03:04:05.678Z")
	case f.kind == blob:
		return []byte("\x01\x02\x03")
	case f.Role == "secret":
		return nil
	case strings.HasSuffix(f.Name, "version"):
		return []byte("1.0.0")
	}
	word := strings.ReplaceAll(f.Name, "_", "-")
	if f.most != nil {
		word = word[:min(len(word), int(f.most.Default))]
	}
	return []byte(word)
}

// routeText is a route of the domain, or a selector whose last segment is a wildcard.
func (e *example) routeText(f *field) string {
	scheme := f.owner.domain.Scheme
	segments := []string{"realm", "area", "resource"}
	if s := e.p.Scheme(scheme); s != nil && len(s.Segments) > 0 {
		segments = append([]string{}, s.Segments...)
	}
	if f.Type == "selector" {
		segments[len(segments)-1] = e.p.Routes.One
	}
	return scheme + e.p.Routes.Separator + strings.Join(segments, e.p.Routes.SegmentSeparator)
}
