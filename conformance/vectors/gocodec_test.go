package vectors

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// classes are the classes of the mistakes that the Go codec tells apart.
var classes = map[codec.Kind]oracle.Class{
	codec.Truncated: oracle.Truncated, codec.Trailing: oracle.Trailing, codec.BadFlag: oracle.BadFlag, codec.BadUTF8: oracle.BadUTF8,
	codec.BadEnum: oracle.BadEnum, codec.BadCount: oracle.BadCount, codec.BadConst: oracle.BadConstant, codec.Zero: oracle.Zero,
	codec.OverBound: oracle.OverBound, codec.OutOfRange: oracle.OutOfRange, codec.RouteText: oracle.BadRoute,
}

func rejected(class oracle.Class, offset int) Answer {
	return Answer{Verdict: oracle.Reject, Class: class, Offset: &offset}
}

// goRecord reads one record with the generated Go codec, with what its users in broker and SDK do around it: the registry, the refusals and the
// grammar of routes.
func goRecord(t testing.TB, dir oracle.Direction, record []byte) (Answer, Answered) {
	rec, rest, err := codec.NextRecord(record)
	switch {
	case err == codec.ErrBadRecord:
		return rejected(oracle.BadRecord, 0), Answered{}
	case err != nil || len(rest) > 0:
		return rejected(oracle.BadFrame, 0), Answered{}
	}
	typ, header := wire.MessageType(rec.Type), codec.RecordHeaderSize(rec.Type)
	info, known := wire.LookupMessage(typ)
	layout, found := goLayout(typ, dir)
	refusal, isRefusal := wire.DecodeRefusal(rec.Value)
	refuses := dir == oracle.Down && (!found || layout.Part == wire.Success) && known && !info.Reserved && info.Class == wire.Request
	switch {
	case refuses && isRefusal:
		return goRefusal(t, typ, rec.Value, refusal)
	case refuses && !found:
		return rejected(oracle.BadEnvelope, header), Answered{}
	case !found && dir == oracle.Down:
		return Answer{Verdict: oracle.Accept, Ignored: true}, Answered{}
	case !found:
		return rejected(oracle.UnknownType, 0), Answered{}
	}
	a := goValue(t, layout, info, rec.Value, header)
	form := map[wire.Part]oracle.Form{wire.Ask: oracle.Request, wire.Success: oracle.Reply}[layout.Part]
	if form == "" {
		form = oracle.Form(info.Class.String())
	}
	return a, Answered{Message: info.Name, Form: form, Value: a.Value}
}

// goLayout is the layout of a number in a direction.
func goLayout(typ wire.MessageType, dir oracle.Direction) (wire.MessageLayout, bool) {
	at := slices.IndexFunc(wire.Messages, func(m wire.MessageLayout) bool {
		return m.Type == typ && (dir == oracle.Up && m.ToBroker || dir == oracle.Down && m.ToClient)
	})
	if at < 0 {
		return wire.MessageLayout{}, false
	}
	return wire.Messages[at], true
}

// goRefusal is the answer for a refusal, and the check that its writers write the same bytes.
func goRefusal(t testing.TB, typ wire.MessageType, value []byte, r wire.Refusal) (Answer, Answered) {
	v := map[string]any{"message": r.Message, oracle.Envelope: "plain"}
	again := wire.AppendPlain(nil, r.Message)
	if r.HasCode {
		v["code"] = uint64(r.Code)
		v[oracle.Envelope] = map[byte]string{1: "coded", 2: "stream_coded"}[value[0]]
		again = wire.AppendCoded(nil, r.Code, r.Message)
		if value[0] == 2 {
			again = wire.AppendStreamCoded(nil, r.Code, r.Message)
		}
	}
	if len(value) <= bounds.ErrorMessageMax && string(again) != string(value) {
		t.Errorf("a refusal of %s became %x from %x", typ, again, value)
	}
	return Answer{Verdict: oracle.Accept, Value: v}, Answered{typ.String(), oracle.Refusal, "", v}
}

// goValue reads a value with every decoder that there is for it: they must agree.
func goValue(t testing.TB, m wire.MessageLayout, info wire.MessageInfo, value []byte, header int) Answer {
	view, owned := m.NewView(), m.New()
	err := codec.AsError(view.DecodeValue(value))
	if copied := codec.AsError(owned.DecodeValue(value)); !reflect.DeepEqual(err, copied) {
		t.Errorf("%s: view %v, copy %v of %x", m.Name, err, copied, value)
	}
	if len(value) > allPrefixes && err != nil {
		// naming thousands of members again for every cut would take most of the time
	} else if _, named := codec.Annotate(m.Layout, value); named == nil != (err == nil) || err != nil && (named.Kind != err.Kind || named.Offset != err.Offset || named.Code() != err.Code()) {
		t.Errorf("%s: decoder %v, annotation %v of %x", m.Name, err, named, value)
	}
	if err != nil && err.Kind.Malformed() {
		return goMistake(m, err, header, "")
	}
	if m.Part == wire.Ask {
		if a, bad := goRoutes(m, info, view, value, header); bad {
			return a
		}
	}
	if err != nil {
		reason := ""
		if err.Kind == codec.RouteText {
			reason = textReason(value[err.Offset:])
		}
		return goMistake(m, err, header, reason)
	}
	return Answer{Verdict: oracle.Accept, Value: goObject(m.Layout, reflect.ValueOf(owned).Elem())}
}

func goMistake(m wire.MessageLayout, err *codec.Error, header int, reason string) Answer {
	class := classes[err.Kind]
	if m.Part == wire.Success && err.Kind == codec.BadConst && err.Offset == 0 {
		class = oracle.BadEnvelope
	}
	a := rejected(class, header+err.Offset)
	code := err.Code()
	a.Code, a.Reason = &code, reason
	return a
}

// textReason is what is wrong with the text of a route that was not parsed.
func textReason(field []byte) string {
	if n := int(field[2])<<8 | int(field[3]); n > bounds.RouteBytesMax {
		return pattern.TooLong.String()
	}
	return pattern.InvalidUTF8.String()
}

// goRoutes parses the routes and selectors of a request, as dispatch does before it looks at mistakes of size.
func goRoutes(m wire.MessageLayout, info wire.MessageInfo, view wire.View, value []byte, header int) (Answer, bool) {
	grammar := route.ByScheme[info.Domain]
	fields := reflect.ValueOf(view).Elem()
	for i := range m.Layout.Fields {
		f := &m.Layout.Fields[i]
		if f.Type != codec.TypeRoute && f.Type != codec.TypeSelector {
			continue
		}
		text := goField(fields, f.Name).Bytes()
		var err error
		if f.Type == codec.TypeRoute {
			_, err = grammar.ParseRoute(string(text))
		} else {
			_, err = grammar.ParseSelector(string(text))
		}
		if err != nil {
			a := rejected(oracle.BadRoute, header+offsetOf(m.Layout, value, f.Name))
			a.Reason, _, _ = strings.Cut(err.Error(), ":")
			if reason, ok := err.(*pattern.Error); ok {
				a.Reason = reason.Reason.String()
			}
			return a, true
		}
	}
	return Answer{}, false
}

// offsetOf is where a field of a value begins.
func offsetOf(l *codec.Layout, value []byte, field string) int {
	spans, _ := codec.Annotate(l, value)
	for _, s := range spans {
		if s.Name == field+" length" || s.Name == field {
			return s.Offset
		}
	}
	return -1
}

// goField is the field of a Go struct that has a name of the specification.
func goField(v reflect.Value, name string) reflect.Value {
	plain := strings.ReplaceAll(name, "_", "")
	return v.FieldByNameFunc(func(n string) bool { return strings.EqualFold(n, plain) })
}

// goObject writes a decoded struct in the form that vectors have, by its layout.
func goObject(l *codec.Layout, v reflect.Value) map[string]any {
	out := map[string]any{}
	for i := range l.Fields {
		f := &l.Fields[i]
		inner := goField(v, f.Name)
		has := goField(v, "has_"+f.Name)
		switch {
		case has.IsValid() && !has.Bool():
		case f.Fixed && !inner.IsValid():
			if f.Name != "status" {
				out[f.Name] = scalar(f, f.Const)
			}
		case f.Presence == codec.PresentWhen && !decided(l, f, v):
		default:
			out[f.Name] = goJSON(f, inner)
		}
	}
	return out
}

// decided tells whether an earlier field says that this one is there.
func decided(l *codec.Layout, f *codec.LayoutField, v reflect.Value) bool {
	decider := goField(v, l.Fields[f.When].Name)
	if decider.Kind() == reflect.Bool {
		return decider.Bool()
	}
	n := decider.Uint()
	return f.Bits == 0 && n != 0 || f.Bits != 0 && n&f.Bits == f.Bits
}

func scalar(f *codec.LayoutField, n uint64) any {
	if f.Type == codec.TypeU64 {
		return strconv.FormatUint(n, 10)
	}
	return n
}

func goJSON(f *codec.LayoutField, v reflect.Value) any {
	switch f.Type {
	case codec.TypeU8, codec.TypeU16, codec.TypeU32, codec.TypeU64:
		return scalar(f, v.Uint())
	case codec.TypeBool:
		return v.Bool()
	case codec.TypeBytes:
		return base64.StdEncoding.EncodeToString(v.Bytes())
	case codec.TypeUUID:
		return base64.StdEncoding.EncodeToString(v.Slice(0, 16).Bytes())
	case codec.TypeList:
		items := make([]any, v.Len())
		for i := range items {
			items[i] = goJSON(f.Elem, v.Index(i))
		}
		return items
	case codec.TypePart:
		return goObject(f.Part, v)
	case codec.TypeChoice:
		return goChoice(f, v)
	}
	return v.String()
}

// goChoice writes a union: a struct with the number of the variant and one field for each.
func goChoice(f *codec.LayoutField, v reflect.Value) any {
	for i := range f.Forms {
		form := f.Forms[i]
		if form.Number != v.FieldByName("Kind").Uint() {
			continue
		}
		variant := form.Layout.Name[strings.LastIndex(form.Layout.Name, ".")+1:]
		out := goObject(form.Layout, goField(v, variant))
		out[oracle.Variant] = variant
		return out
	}
	return nil
}

// goMessage reads a transport message: first all boundaries, then record by record, with the label in front of a record.
func goMessage(t testing.TB, dir oracle.Direction, message []byte) Answer {
	if a, bad := goBoundaries(message); bad {
		return a
	}
	out := Answer{Verdict: oracle.Accept}
	label, labelAt := uint64(0), -1
	for rest, at := message, 0; len(rest) > 0; {
		_, after, _ := codec.NextRecord(rest)
		size := len(rest) - len(after)
		a, rec := goRecord(t, dir, rest[:size])
		isLabel := rec.Message == map[oracle.Direction]string{oracle.Up: "session.correlate", oracle.Down: "session.correlated"}[dir]
		unlabelled := isLabel || dir == oracle.Down && (rec.Form == oracle.Push || rec.Form == oracle.Control)
		switch {
		case labelAt >= 0 && unlabelled:
			return rejected(oracle.BadLabel, labelAt) // the label comes before whatever is wrong inside the record (W-50)
		case a.Verdict == oracle.Reject:
			*a.Offset += at
			return a
		case isLabel && len(after) == 0:
			return rejected(oracle.BadLabel, at)
		case isLabel:
			n, _ := strconv.ParseUint(text(rec.Value["id"]), 10, 64)
			label, labelAt = n, at
		default:
			if labelAt >= 0 {
				rec.Label = strconv.FormatUint(label, 10)
			}
			out.Records, labelAt = append(out.Records, rec), -1
		}
		at += size
		rest = after
	}
	return out
}

// goBoundaries checks the boundaries of all records and finds the record to blame.
func goBoundaries(message []byte) (Answer, bool) {
	err := codec.CheckRecords(message, bounds.RecordsPerFrameMax)
	if err == nil {
		return Answer{}, false
	}
	class := oracle.BadFrame
	if err == codec.ErrBadRecord {
		class = oracle.BadRecord
	}
	at := 0
	for count := 0; count < bounds.RecordsPerFrameMax; count++ {
		_, rest, err := codec.NextRecord(message[at:])
		if err != nil {
			break
		}
		at = len(message) - len(rest)
	}
	return rejected(class, at), true
}

// goAnswer reads the bytes of a vector.
func goAnswer(t testing.TB, v Vector) Answer {
	if v.Unit == "message" {
		return goMessage(t, v.Dir, v.Bytes)
	}
	a, _ := goRecord(t, v.Dir, v.Bytes)
	return a
}

// reasonOf is the reason word of an error of the route grammar, "" for none.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	if mistake, ok := err.(*pattern.Error); ok {
		return mistake.Reason.String()
	}
	return err.Error()
}

// checkSelector compares what Go knows of a selector.
func checkSelector(t *testing.T, v oracle.RouteVector, sel pattern.Selector) {
	t.Helper()
	var masks []string
	for _, m := range sel.Masks() {
		masks = append(masks, m.String())
	}
	want := slices.Sorted(slices.Values(v.Masks))
	slices.Sort(masks)
	_, point := sel.Point()
	if sel.Exact() != v.Exact || point != v.Point || !slices.Equal(masks, want) || sel.Text() != string(v.Text) {
		t.Errorf("%s: exact %v, point %v, masks %v; want %v, %v, %v", v.ID, sel.Exact(), point, masks, v.Exact, v.Point, want)
	}
}

// normal brings a value to what reading it from JSON gives.
func normal(v map[string]any) map[string]any {
	content, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.UseNumber()
	var out map[string]any
	if err := dec.Decode(&out); err != nil {
		panic(err)
	}
	return out
}
