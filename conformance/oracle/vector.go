package oracle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
)

// VectorFile is one file of golden vectors: all of one domain, or of transport messages.
type VectorFile struct {
	Comment     string   `json:"comment"`
	Version     string   `json:"spec_version"`
	Fingerprint string   `json:"spec_fingerprint"` // of the specification, 16 hex digits
	Domain      string   `json:"domain"`           // name of the domain, or "frames"
	Vectors     []Vector `json:"vectors"`          // sorted by message number, form and in the order of the fields
}

// The verdicts.
const (
	Accept = "accept"
	Reject = "reject"
)

// Vector is bytes together with what a receiver makes of them.
type Vector struct {
	ID      string    `json:"id"`      // lease.acquire.request/truncated-owner_id; stable
	Message string    `json:"message"` // lease.acquire; "" for transport messages and for numbers without a message
	Form    Form      `json:"form,omitempty"`
	Dir     Direction `json:"dir"`
	Unit    string    `json:"unit"` // record: header and value of one record; message: a transport message without the length that TCP puts in front
	Bytes   Bytes     `json:"bytes"`

	Verdict string   `json:"verdict"`
	Clauses []string `json:"clauses"` // rules that the vector shows

	// Of accepted vectors.
	Value     map[string]any `json:"value,omitempty"`     // of a record by field names, see docs/guides/use-the-vectors.md
	Records   []RecordJSON   `json:"records,omitempty"`   // of a transport message
	Canonical bool           `json:"canonical,omitempty"` // encoding the value gives these bytes; otherwise they are one of several ways to say it

	// Of rejected vectors.
	Class    Class    `json:"class,omitempty"`
	Offset   *int     `json:"offset,omitempty"` // from the first byte of Bytes, see Class
	Field    string   `json:"field,omitempty"`
	Reaction Reaction `json:"reaction,omitempty"`
	Code     uint32   `json:"code,omitempty"`
	Name     string   `json:"name,omitempty"` // of the code, of the close reason, or protocol.violation
	Reason   string   `json:"reason,omitempty"`
	Text     string   `json:"text,omitempty"`
}

// RecordJSON is one record of a transport message.
type RecordJSON struct {
	Message string         `json:"message"`
	Form    Form           `json:"form"`
	Label   string         `json:"label,omitempty"` // decimal
	Value   map[string]any `json:"value"`
}

// Bytes are bytes in hex. Long ones are a list of parts, each hex and how many times it stands there, so that a value of sixty thousand bytes
// takes one line.
type Bytes []byte

// Part is some bytes and how many times they stand there.
type Part struct {
	Hex   string `json:"hex"`
	Times int    `json:"times"`
}

// Sizes from which repeated bytes, text and list members are folded.
const (
	foldBytes  = 96
	foldPeriod = 256
	foldItems  = 8
)

// MarshalJSON writes a string of hex digits, or parts.
func (b Bytes) MarshalJSON() ([]byte, error) {
	parts := fold(b)
	if len(parts) == 1 && parts[0].Times == 1 || len(b) == 0 {
		return json.Marshal(hex.EncodeToString(b))
	}
	return json.Marshal(parts)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *Bytes) UnmarshalJSON(data []byte) error {
	var parts []Part
	if len(data) > 0 && data[0] == '"' {
		parts = []Part{{Times: 1}}
		if err := json.Unmarshal(data, &parts[0].Hex); err != nil {
			return err
		}
	} else if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	*b = Bytes{}
	for _, p := range parts {
		unit, err := hex.DecodeString(p.Hex)
		if err != nil {
			return err
		}
		if p.Times < 0 || p.Times > 1<<20 || len(unit)*p.Times > 1<<24 {
			return strconv.ErrRange
		}
		*b = append(*b, bytes.Repeat(unit, p.Times)...)
	}
	return nil
}

// fold writes bytes as parts.
func fold(data []byte) []Part {
	var parts []Part
	plain := 0
	flush := func(to int) {
		if to > plain {
			parts = append(parts, Part{hex.EncodeToString(data[plain:to]), 1})
		}
	}
	for at := 0; at < len(data); {
		period, times := repetition(data[at:])
		if times == 0 {
			at++
			continue
		}
		flush(at)
		parts = append(parts, Part{hex.EncodeToString(data[at : at+period]), times})
		at += period * times
		plain = at
	}
	flush(len(data))
	return parts
}

// repetition finds the shortest unit with which data begins many times over.
func repetition(data []byte) (period, times int) {
	for period = 1; period <= foldPeriod && 2*period <= len(data); period++ {
		same := 0
		for period+same < len(data) && data[same] == data[period+same] {
			same++
		}
		times = same/period + 1
		if times >= 4 && times*period >= foldBytes {
			return period, times
		}
	}
	return 0, 0
}

// valueJSON writes a value for people and for any language:
//
//	u64                     decimal text, because many languages have no whole numbers of that size
//	u8, u16, u32            number
//	bool                    true or false
//	string, route, selector text; {"$parts": [{"text": "x", "times": 4000}]} for a long one
//	bytes, uuid             base64; {"$parts": [{"base64": "eA==", "times": 4000}]} for long ones
//	list                    list; {"$items": [{"item": …, "times": 500}]} for one with many equal members
//	struct, union           object; the variant of a union stands under "$variant"
//
// A field that is not on the wire has no key.
func (s *Spec) valueJSON(l *layout, v Value) map[string]any {
	out := map[string]any{}
	for name, inner := range v {
		at := slices.IndexFunc(l.fields, func(f *field) bool { return f.name == name })
		if at < 0 {
			out[name] = inner // the variant of a union, the envelope of a refusal
			continue
		}
		out[name] = s.fieldJSON(l.fields[at], inner)
	}
	return out
}

func (s *Spec) fieldJSON(f *field, v any) any {
	switch inner := v.(type) {
	case uint64:
		if f.width == 8 {
			return strconv.FormatUint(inner, 10)
		}
		return inner
	case string:
		return partsJSON([]byte(inner), "text", func(b []byte) string { return string(b) })
	case []byte:
		return partsJSON(inner, "base64", base64.StdEncoding.EncodeToString)
	case []any:
		return s.listJSON(f.elem, inner)
	case Value:
		if f.kind == partKind {
			return s.valueJSON(f.part, inner)
		}
		for _, variant := range f.union.variants {
			if variant.name == inner[Variant] {
				return s.valueJSON(variant.layout, inner)
			}
		}
	}
	return v
}

func partsJSON(data []byte, key string, text func([]byte) string) any {
	parts := fold(data)
	if len(parts) < 2 && (len(parts) == 0 || parts[0].Times == 1) {
		return text(data)
	}
	var out []any
	for _, p := range parts {
		unit, _ := hex.DecodeString(p.Hex)
		out = append(out, map[string]any{key: text(unit), "times": p.Times})
	}
	return map[string]any{"$parts": out}
}

func (s *Spec) listJSON(elem *field, items []any) any {
	out := make([]any, 0, len(items))
	var folded []any
	last, times := "", 0
	for _, item := range items {
		value := s.fieldJSON(elem, item)
		out = append(out, value)
		text, _ := json.Marshal(value)
		if string(text) == last {
			times++
			folded[len(folded)-1].(map[string]any)["times"] = times
			continue
		}
		last, times = string(text), 1
		folded = append(folded, map[string]any{"item": value, "times": 1})
	}
	if len(items) < foldItems {
		return out
	}
	return map[string]any{"$items": folded}
}

// layoutOf is the layout of a record that was decoded.
func (s *Spec) layoutOf(rec Record) *layout {
	if rec.Form == Refusal {
		for _, e := range s.wire.envelopes {
			if e.name == rec.Value[Envelope] {
				return e.layout
			}
		}
	}
	if m := s.named(rec.Message, rec.Form); m != nil {
		return m.layout
	}
	return &layout{}
}

// RecordValue is the value of a decoded record in the form that vectors have.
func (s *Spec) RecordValue(rec Record) map[string]any {
	if rec.Value == nil {
		return nil
	}
	return s.valueJSON(s.layoutOf(rec), rec.Value)
}

// writeJSON writes a file as people can read it: keys sorted, two spaces, a line break at the end.
func writeJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(v)
	return out.Bytes(), err
}
