package engine

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/trace"
	"github.com/fitzwire/fitz/conformance/vectors"
)

// codec is the interpreter of the specification with what the engine asks it for.
type codec = *oracle.Spec

// decoded is the fields of a record as matchers want them. Numbers that have a name, as values of enumerations and error codes have,
// get it.
func decoded(spec codec, dir oracle.Direction, r oracle.Record) map[string]any {
	if r.Value == nil {
		return nil
	}
	fields, _ := plain(r.Value).(map[string]any)
	for _, span := range spec.Annotate(dir, r.Bytes) {
		digits, name, named := strings.Cut(span.Text, " ")
		number, err := strconv.ParseUint(digits, 10, 64)
		if !named || err != nil || strings.ContainsAny(span.Path, "[]") {
			continue
		}
		give(fields, strings.Split(span.Path, "."), number, name)
	}
	if number, ok := scenario.Int(fields["code"]); ok {
		if row, known := spec.Error(uint64(number)); known {
			fields["code"] = scenario.Named{Number: uint64(number), Name: row.Name}
		}
	}
	return fields
}

// give puts a name beside the number at a path, when that number is there.
func give(fields map[string]any, path []string, number uint64, name string) {
	for len(path) > 1 {
		inner, ok := fields[path[0]].(map[string]any)
		if !ok {
			return
		}
		fields, path = inner, path[1:]
	}
	if have, ok := fields[path[0]].(uint64); ok && have == number {
		fields[path[0]] = scenario.Named{Number: number, Name: name}
	}
}

// plain makes plain maps of the values of the oracle.
func plain(v any) any {
	switch v := v.(type) {
	case oracle.Value:
		m := make(map[string]any, len(v))
		for key, member := range v {
			m[key] = plain(member)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, member := range v {
			list[i] = plain(member)
		}
		return list
	}
	return v
}

// wire makes a value of the oracle of a mapping of a scenario.
func wire(m map[string]any) oracle.Value {
	v := make(oracle.Value, len(m))
	for key, member := range m {
		v[key] = wireAny(member)
	}
	return v
}

func wireAny(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return wire(v)
	case []any:
		list := make([]any, len(v))
		for i, member := range v {
			list[i] = wireAny(member)
		}
		return list
	case scenario.Named:
		return v.Number
	}
	return v
}

// told makes arguments for a driver: numbers larger than JSON readers keep become text, bytes base64.
func told(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, member := range v {
			m[key] = told(member)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, member := range v {
			list[i] = told(member)
		}
		return list
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case scenario.Named:
		return v.Name
	case uint64:
		return strconv.FormatUint(v, 10)
	case int64:
		if v > 1<<53 || v < -(1<<53) {
			return strconv.FormatInt(v, 10)
		}
	}
	return v
}

// outcome is how a command ended, in the words of matchers.
type outcome struct {
	ok        map[string]any
	err       map[string]any
	cancelled bool
}

// String is the outcome for a message.
func (o outcome) String() string {
	switch {
	case o.cancelled:
		return "cancelled"
	case o.err != nil:
		return "err " + scenario.Show(o.err)
	}
	return "ok " + scenario.Show(o.ok)
}

// replied is the outcome of a reply on the wire.
func replied(spec codec, r oracle.Record) outcome {
	fields := decoded(spec, oracle.Down, r)
	if r.Form != oracle.Refusal {
		return outcome{ok: fields}
	}
	failure := map[string]any{"wire": true, "text": fields["message"], "envelope": fields["envelope"]}
	if number, ok := scenario.Int(fields["code"]); ok {
		failure["number"] = number
		if row, known := spec.Error(uint64(number)); known {
			describe(failure, row)
		}
	}
	return outcome{err: failure}
}

func describe(failure map[string]any, row oracle.ErrorRow) {
	for key, v := range map[string]string{"name": row.Name, "code": row.Text, "class": row.Class, "retry": row.Retry, "outcome": row.Outcome} {
		if _, given := failure[key]; !given && v != "" {
			failure[key] = v
		}
	}
}

// named completes a failure that a driver reports by the name of its code, found by its number or its text, and by nothing else: what the
// driver does not say stays unsaid.
func named(spec codec, failure map[string]any) map[string]any {
	if number, ok := scenario.Int(failure["number"]); ok {
		if row, known := spec.Error(uint64(number)); known {
			failure["name"] = row.Name
			return failure
		}
	}
	if text, ok := failure["code"].(string); ok {
		if row, known := spec.Error(strings.ToUpper(strings.ReplaceAll(text, ".", "_"))); known && row.Text == text {
			failure["name"] = row.Name
		}
	}
	return failure
}

// wanted makes the matcher for a failure: a text is a code in either spelling, and so is a key code.
func wanted(expect any) (map[string]any, error) {
	switch e := expect.(type) {
	case string:
		return map[string]any{spelling(e): e}, nil
	case map[string]any:
		out := make(map[string]any, len(e))
		for key, v := range e {
			if code, ok := v.(string); ok && key == "code" {
				key = spelling(code)
			}
			out[key] = v
		}
		return out, nil
	}
	return nil, fmt.Errorf("%s is no code and no matcher", scenario.Show(expect))
}

// spelling is the key under which a code stands: LEASE_HELD is a name, lease.held a code.
func spelling(code string) string {
	if strings.ToUpper(code) == code {
		return "name"
	}
	return "code"
}

// fields is the fields of a frame of a trace; a control frame of a WebSocket has a payload.
func fields(spec codec, e trace.Entry) map[string]any {
	if e.Kind == trace.Control {
		return map[string]any{"payload": e.Bytes}
	}
	return decoded(spec, e.Dir, oracle.Record{Message: e.Message, Form: e.Form, Value: e.Value(), Bytes: e.Record})
}

// asAnswer is the result of vector.decode.
func asAnswer(ok map[string]any) (vectors.Answer, error) {
	var a vectors.Answer
	text, err := json.Marshal(ok)
	if err != nil {
		return a, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return a, d.Decode(&a)
}

// asBytes is the result of vector.encode.
func asBytes(ok map[string]any) ([]byte, error) {
	digits, isText := ok["bytes"].(string)
	if !isText {
		return nil, errors.New("the result has no bytes")
	}
	return hex.DecodeString(digits)
}

// encodable tells whether a codec can be asked to make the bytes of a vector: it is accepted, one record, and the canonical form.
func encodable(v *vectors.Vector) bool {
	return v.Verdict == "accept" && v.Canonical && len(v.Records) == 0
}
