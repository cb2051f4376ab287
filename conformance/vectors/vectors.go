// Package vectors reads the golden vectors of generated/vectors and checks the answers of a codec in any language against them. The oracle makes
// the vectors; this package knows their form only.
package vectors

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fitzwire/fitz/conformance/oracle"
)

// Vector is one golden vector with everything that is folded in the file written out.
type Vector struct {
	oracle.Vector
	File string // name of the file that it stands in
}

// routesFile holds the vectors of the route grammar, which have another form.
const routesFile = "routes.json"

// All returns the vectors of every file of a folder, in the order of the names of the files and of the vectors in them.
func All(fsys fs.FS) ([]Vector, error) {
	names, err := fs.Glob(fsys, "*.json")
	if err != nil {
		return nil, err
	}
	var out []Vector
	seen := map[string]bool{}
	for _, name := range names {
		if path.Base(name) == routesFile {
			continue
		}
		var file oracle.VectorFile
		if err := read(fsys, name, &file); err != nil {
			return nil, err
		}
		for _, v := range file.Vectors {
			if err := unfoldVector(&v); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", name, v.ID, err)
			}
			if seen[v.ID] {
				return nil, fmt.Errorf("%s: %s stands there twice", name, v.ID)
			}
			seen[v.ID] = true
			out = append(out, Vector{v, name})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("there are no vectors")
	}
	return out, nil
}

// Routes returns the vectors of the route grammar.
func Routes(fsys fs.FS) (oracle.RouteFile, error) {
	var file oracle.RouteFile
	err := read(fsys, routesFile, &file)
	if err == nil && (len(file.Texts) == 0 || len(file.Matches) == 0 || len(file.Containment) == 0) {
		err = errors.New("there are no vectors of routes")
	}
	return file, err
}

// read reads one file strictly: a key that this package does not know would be a check that nobody makes.
func read(fsys fs.FS, name string, into any) error {
	content, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// unfoldVector writes out what is folded in the values of a vector.
func unfoldVector(v *oracle.Vector) (err error) {
	if v.Value, err = unfoldObject(v.Value); err != nil {
		return err
	}
	for i := range v.Records {
		if v.Records[i].Value, err = unfoldObject(v.Records[i].Value); err != nil {
			return err
		}
	}
	return nil
}

func unfoldObject(v map[string]any) (map[string]any, error) {
	out, err := unfold(v)
	object, _ := out.(map[string]any)
	return object, err
}

// mostUnfolded is more than any vector holds.
const mostUnfolded = 1 << 20

// unfold replaces {"$parts": …} by text or base64 and {"$items": …} by a list.
func unfold(v any) (any, error) {
	switch inner := v.(type) {
	case []any:
		out := make([]any, len(inner))
		for i, item := range inner {
			unfolded, err := unfold(item)
			if err != nil {
				return nil, err
			}
			out[i] = unfolded
		}
		return out, nil
	case map[string]any:
		if parts, ok := inner["$parts"].([]any); ok {
			return unfoldParts(parts)
		}
		if items, ok := inner["$items"].([]any); ok {
			return unfoldItems(items)
		}
		if inner == nil {
			return inner, nil
		}
		out := map[string]any{}
		for key, member := range inner {
			unfolded, err := unfold(member)
			if err != nil {
				return nil, err
			}
			out[key] = unfolded
		}
		return out, nil
	}
	return v, nil
}

// times is how often something that is folded stands there.
func times(part map[string]any) (int, error) {
	number, _ := part["times"].(json.Number)
	n, err := strconv.Atoi(string(number))
	if err != nil || n < 1 || n > mostUnfolded {
		return 0, fmt.Errorf("times is %q", number)
	}
	return n, nil
}

func unfoldParts(parts []any) (any, error) {
	var text strings.Builder
	var raw []byte
	isRaw := false
	for _, p := range parts {
		part, _ := p.(map[string]any)
		n, err := times(part)
		if err != nil {
			return nil, err
		}
		if encoded, ok := part["base64"].(string); ok {
			unit, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil || len(unit)*n > mostUnfolded {
				return nil, fmt.Errorf("base64 of %d bytes, %d times: %w", len(unit), n, errors.Join(err))
			}
			raw, isRaw = append(raw, bytes.Repeat(unit, n)...), true
			continue
		}
		unit, ok := part["text"].(string)
		if !ok || len(unit)*n > mostUnfolded {
			return nil, errors.New("a part without text, or with too much")
		}
		text.WriteString(strings.Repeat(unit, n))
	}
	if isRaw {
		return base64.StdEncoding.EncodeToString(raw), nil
	}
	return text.String(), nil
}

func unfoldItems(items []any) (any, error) {
	out := []any{}
	for _, p := range items {
		part, _ := p.(map[string]any)
		n, err := times(part)
		if err != nil {
			return nil, err
		}
		item, err := unfold(part["item"])
		if err != nil {
			return nil, err
		}
		out = append(out, slices.Repeat([]any{item}, n)...)
	}
	return out, nil
}

// Answer is what a codec says about the bytes of a vector: the result of the driver command vector.decode.
type Answer struct {
	Verdict string         `json:"verdict"`           // accept or reject
	Ignored bool           `json:"ignored,omitempty"` // accepted, but of no message that the codec knows (W-05)
	Value   map[string]any `json:"value,omitempty"`   // of an accepted record, in the form that the vectors have
	Records []Answered     `json:"records,omitempty"` // of an accepted transport message

	Class  oracle.Class `json:"class,omitempty"`  // of a rejected one
	Offset *int         `json:"offset,omitempty"` // bytes from the first of the vector
	Code   *uint32      `json:"code,omitempty"`   // that would be answered; a client has none
	Reason string       `json:"reason,omitempty"` // of a bad route
}

// Answered is one record of a transport message as a codec reads it.
type Answered struct {
	Message string         `json:"message"`
	Form    oracle.Form    `json:"form"`
	Label   string         `json:"label,omitempty"`
	Value   map[string]any `json:"value"`
}

// DecodeArgs are the arguments of the driver command vector.decode for a vector: dir, unit, message, form and bytes in hex.
func (v Vector) DecodeArgs() map[string]any {
	return map[string]any{"dir": string(v.Dir), "unit": v.Unit, "message": v.Message, "form": string(v.Form), "bytes": hex.EncodeToString(v.Bytes)}
}

// EncodeArgs are the arguments of the driver command vector.encode for an accepted record: message, form and value.
func (v Vector) EncodeArgs() map[string]any {
	return map[string]any{"message": v.Message, "form": string(v.Form), "value": v.Value}
}

// Check compares the answer of a decoder with a vector: the verdict always; of what is accepted every field; of what is rejected class, offset,
// the code where one is answered, and the reason word of a bad route. A field that is not on the wire may be missing, null or its default.
func Check(v Vector, a Answer) error {
	switch {
	case a.Verdict != v.Verdict:
		return fmt.Errorf("%s: %s, want %s%s", v.ID, verdictOf(a), v.Verdict, wanted(v))
	case v.Verdict == oracle.Reject:
		return checkReject(v, a)
	case v.Unit == "message":
		return checkRecords(v, a)
	case a.Ignored:
		return fmt.Errorf("%s: ignored, although it is %s", v.ID, v.Message)
	}
	if err := equal("", any(v.Value), any(a.Value)); err != nil {
		return fmt.Errorf("%s: %w", v.ID, err)
	}
	return nil
}

func verdictOf(a Answer) string {
	if a.Verdict == "" {
		return "no verdict"
	}
	if a.Class != "" {
		return a.Verdict + " " + string(a.Class)
	}
	return a.Verdict
}

func wanted(v Vector) string {
	if v.Class == "" {
		return ""
	}
	return fmt.Sprintf(" (%s at byte %d)", v.Class, *v.Offset)
}

func checkReject(v Vector, a Answer) error {
	switch {
	case a.Class != v.Class:
		return fmt.Errorf("%s: class %q, want %q", v.ID, a.Class, v.Class)
	case a.Offset == nil || *a.Offset != *v.Offset:
		return fmt.Errorf("%s: offset %s, want %d", v.ID, shown(a.Offset), *v.Offset)
	case v.Code != 0 && (a.Code == nil || *a.Code != v.Code):
		return fmt.Errorf("%s: code %s, want %d", v.ID, shown(a.Code), v.Code)
	case v.Reason != "" && a.Reason != v.Reason:
		return fmt.Errorf("%s: reason %q, want %q", v.ID, a.Reason, v.Reason)
	}
	return nil
}

func shown[T any](p *T) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprint(*p)
}

func checkRecords(v Vector, a Answer) error {
	got := slices.DeleteFunc(slices.Clone(a.Records), func(r Answered) bool { return r.Message == "" })
	want := slices.DeleteFunc(slices.Clone(v.Records), func(r oracle.RecordJSON) bool { return r.Message == "" })
	if len(got) != len(want) {
		return fmt.Errorf("%s: %d records, want %d", v.ID, len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g.Message != w.Message || g.Form != w.Form || g.Label != w.Label {
			return fmt.Errorf("%s: record %d is %s %s with label %q, want %s %s %q", v.ID, i, g.Message, g.Form, g.Label, w.Message, w.Form, w.Label)
		}
		if err := equal("", any(w.Value), any(g.Value)); err != nil {
			return fmt.Errorf("%s: record %d: %w", v.ID, i, err)
		}
	}
	return nil
}

// CheckBytes compares what an encoder made of the value of a canonical vector with its bytes.
func CheckBytes(v Vector, encoded []byte) error {
	if !v.Canonical || v.Unit != "record" {
		return fmt.Errorf("%s is not a vector for encoders", v.ID)
	}
	if bytes.Equal(encoded, v.Bytes) {
		return nil
	}
	at := 0
	for at < len(encoded) && at < len(v.Bytes) && encoded[at] == v.Bytes[at] {
		at++
	}
	return fmt.Errorf("%s: %d bytes, want %d; they differ from byte %d", v.ID, len(encoded), len(v.Bytes), at)
}

// equal compares two JSON values. Numbers may be text.
func equal(at string, want, got any) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is %T, not an object", name(at), got)
		}
		return equalObjects(at, w, g)
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s has not %d members", name(at), len(w))
		}
		for i := range w {
			if err := equal(fmt.Sprintf("%s[%d]", at, i), w[i], g[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if text(want) != text(got) {
		return fmt.Errorf("%s is %.80s, want %.80s", name(at), text(got), text(want))
	}
	return nil
}

func equalObjects(at string, want, got map[string]any) error {
	for key, w := range want {
		g, ok := got[key]
		if !ok {
			return fmt.Errorf("%s is missing", name(at+"."+key))
		}
		if err := equal(at+"."+key, w, g); err != nil {
			return err
		}
	}
	for key, g := range got {
		if _, ok := want[key]; !ok && !empty(g) {
			return fmt.Errorf("%s is %.80s, want nothing", name(at+"."+key), text(g))
		}
	}
	return nil
}

// empty reports whether a value is what languages without optional fields have in the place of one that is absent.
func empty(v any) bool {
	switch inner := v.(type) {
	case nil:
		return true
	case map[string]any:
		for _, member := range inner {
			if !empty(member) {
				return false
			}
		}
		return true
	case []any:
		return len(inner) == 0
	}
	return slices.Contains([]string{"", "0", "false"}, text(v))
}

func name(at string) string {
	if at == "" {
		return "the value"
	}
	return strings.TrimPrefix(at, ".")
}

// text is a scalar of any type as text.
func text(v any) string {
	switch inner := v.(type) {
	case string:
		return inner
	case json.Number:
		return inner.String()
	case float64:
		return strconv.FormatFloat(inner, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
