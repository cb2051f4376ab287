package emit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("wire messages", wireMessages) }

// wireMessages makes one file of types and codecs for each domain.
func wireMessages(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	var files []*goFile
	for _, d := range p.domains {
		f := newGoFile(spec, wirePath, d.Name+".go")
		g := messageGen{p, f}
		g.enums(d)
		g.reasonTables(d.Domain)
		for _, r := range d.records {
			g.record(r)
		}
		for _, r := range d.records {
			g.lists(r)
		}
		files = append(files, f)
	}
	lists := newGoFile(spec, wirePath, "lists.go")
	g := messageGen{p, lists}
	if g.plainLists() {
		files = append(files, lists)
	}
	return renderAll(files...)
}

// messageGen writes the records of one domain.
type messageGen struct {
	*protocol
	f *goFile
}

// record writes one record top-down: type, limits, encode, decode, view.
func (g messageGen) record(r *record) {
	if r.union != nil {
		g.unionTag(r)
	}
	g.typeOf(r)
	g.sizesOf(r)
	g.appendValue(r)
	g.decodeValue(r)
	g.write(r)
	g.view(r)
	g.viewDecode(r)
	g.owned(r)
	g.read(r)
	g.extras(r)
}

// onWire are the fields that the Go type holds: constants are not among them.
func (r *record) onWire() []*field {
	return slices.DeleteFunc(slices.Clone(r.fields), func(f *field) bool { return f.Const != nil })
}

// intro says in words which record it is.
func (r *record) intro() string {
	switch r.part {
	case requestPart:
		return fmt.Sprintf("%s asks for %s (message %d). %s", r.goName, r.opName(), r.op.Number, sentence(r.doc))
	case replyPart:
		return fmt.Sprintf("%s is the success of %s (message %d).", r.goName, r.opName(), r.op.Number)
	case messagePart:
		return fmt.Sprintf("%s is the value of %s (message %d). %s", r.goName, r.domain.Name+"."+r.name, r.message.Number, sentence(r.doc))
	}
	return fmt.Sprintf("%s is a part of other values. %s", r.goName, sentence(r.doc))
}

func (r *record) opName() string { return r.domain.Name + "." + r.op.Name }

// rules is the paragraph that names the clauses of the record.
func (r *record) rules() string {
	if len(r.clauses) == 0 {
		return ""
	}
	return "Rules: " + strings.Join(r.clauses, ", ") + "."
}

// typeOf writes the Go type that owns its memory.
func (g messageGen) typeOf(r *record) {
	g.f.Add(doc(r.intro(), r.direction(), r.rules()))
	g.f.Type().Id(r.goName).StructFunc(func(s *jen.Group) { g.structFields(s, r, false) })
	g.f.Line()
}

// direction says who sends a control or push message.
func (r *record) direction() string {
	if r.message == nil {
		return ""
	}
	by := map[string]string{"to_broker": "Sent by clients", "to_client": "Sent by the broker", "both": "Sent by both sides"}[r.message.Direction]
	if r.message.AnsweredBy != "" {
		by += "; answered by " + r.message.AnsweredBy
	}
	if r.open {
		by += "; bytes after the last field are ignored"
	}
	return by + "."
}

// structFields writes the fields of a record or of its view.
func (g messageGen) structFields(s *jen.Group, r *record, view bool) {
	if r.union != nil {
		s.Add(doc("Kind says which of the forms below is on the wire."))
		s.Id("Kind").Id(r.goName + "Kind")
		for _, form := range r.forms {
			s.Id(g.formName(r, form)).Id(form.goName + viewSuffix(view))
		}
		return
	}
	for _, f := range r.onWire() {
		if !view {
			s.Add(doc(g.fieldDoc(f)))
		}
		s.Id(f.goName).Add(g.goType(f, view))
		if f.hasFlag() {
			s.Id("Has" + f.goName).Bool()
		}
	}
}

func viewSuffix(view bool) string {
	if view {
		return "View"
	}
	return ""
}

// formName is the field of a union that holds a form.
func (g messageGen) formName(r, form *record) string {
	return strings.TrimPrefix(form.goName, r.goName)
}

// hasFlag tells whether a bool beside the field says that it is present.
func (f *field) hasFlag() bool {
	switch f.Presence.Kind {
	case model.Flagged, model.TailFlagged:
		return true
	case model.Tail:
		return f.kind == structure || f.kind == choice || f.kind == uuid
	}
	return false
}

// unitWords are units as a comment writes them.
var unitWords = map[string]string{"s": "seconds", "ms": "milliseconds"}

// fieldDoc is the comment of a field: what it is, its unit, its bounds and when it is there.
func (g messageGen) fieldDoc(f *field) string {
	var facts []string
	if f.Unit != "" {
		facts = append(facts, "in "+cmp.Or(unitWords[f.Unit], f.Unit))
	}
	facts = append(facts, g.limits(f)...)
	if f.Nonzero {
		facts = append(facts, "not 0")
	}
	facts = append(facts, g.presence(f)...)
	text := sentence(f.Doc)
	if len(facts) > 0 {
		text = strings.TrimSuffix(text, ".") + "; " + strings.Join(facts, ", ") + "."
	}
	return text
}

// limits says in words what a field may hold.
func (g messageGen) limits(f *field) []string {
	var facts []string
	switch {
	case f.Above == "clamp" && f.highest != nil:
		facts = append(facts, "more than "+f.highest.words()+" counts as that")
	case f.least != nil && f.highest != nil:
		facts = append(facts, f.least.words()+" to "+f.highest.words())
	case f.highest != nil:
		facts = append(facts, "at most "+f.highest.words())
	case f.least != nil:
		facts = append(facts, "at least "+f.least.words())
	}
	unit := " bytes"
	if f.kind == list {
		unit = " items"
	}
	if f.most != nil {
		facts = append(facts, "at most "+f.most.Name+unit)
	}
	if f.bytes != nil {
		facts = append(facts, "at most "+f.bytes.Name+" bytes")
	}
	if f.Above == "cut" {
		facts = append(facts, "longer text is cut when it is sent")
	}
	return facts
}

func (l *limit) words() string {
	if l.bound != nil {
		return l.bound.Name
	}
	return fmt.Sprint(l.value)
}

// presence says in words when the field is on the wire.
func (g messageGen) presence(f *field) []string {
	switch {
	case f.hasFlag():
		return []string{"on the wire only with Has" + f.goName}
	case f.Presence.Kind == model.Tail:
		return []string{"left out when it is " + g.defaultWords(f)}
	case f.Presence.Kind == model.PresentWhen && f.bit != nil:
		return []string{"on the wire only with " + capabilityName(g.names, f.bit) + " in " + f.when.goName}
	case f.Presence.Kind == model.PresentWhen:
		return []string{"on the wire only with " + f.when.goName}
	}
	return nil
}

func (g messageGen) defaultWords(f *field) string {
	switch {
	case f.initial != nil:
		return f.initial.words()
	case f.kind == number, f.kind == enumeration:
		return "0"
	case f.kind == boolean:
		return "false"
	}
	return "empty"
}

// goType is the Go type of a field.
func (g messageGen) goType(f *field, view bool) *jen.Statement {
	switch f.kind {
	case number:
		return g.numberType(f)
	case boolean:
		return jen.Bool()
	case uuid:
		return jen.Index(jen.Lit(16)).Byte()
	case enumeration:
		return jen.Id(f.enumOf)
	case blob:
		return jen.Index().Byte()
	case text, route:
		if view {
			return jen.Index().Byte()
		}
		return jen.String()
	case list:
		if view {
			return jen.Id(g.listName(f.elem))
		}
		return jen.Index().Add(g.goType(f.elem, false))
	}
	return jen.Id(f.record.goName + viewSuffix(view))
}

// numberType is the type of a number; formats that have a Go type of their own get it.
func (g messageGen) numberType(f *field) *jen.Statement {
	switch f.Format {
	case "capabilities":
		return jen.Id("Capabilities")
	case "error_code":
		return jen.Id("Code")
	}
	return jen.Id(fmt.Sprintf("uint%d", f.bits))
}

// plainNumber tells whether the Go type of a field is the integer type itself.
func (f *field) plainNumber() bool {
	return f.kind == number && f.Format != "capabilities" && f.Format != "error_code"
}

// sizesOf writes how many bytes a value takes.
func (g messageGen) sizesOf(r *record) {
	g.f.Add(doc("Sizes of " + article(r.goName) + " " + r.goName + " on the wire, in bytes. The largest is derived from the bounds."))
	g.f.Const().Defs(
		jen.Id(r.goName+"MinSize").Op("=").Lit(r.smallest),
		jen.Id(r.goName+"MaxSize").Op("=").Lit(r.largest),
	)
	g.f.Line()
}

// codeOf is the code that answers a malformed value, as a Go number.
func (g messageGen) codeOf(r *record) jen.Code {
	if r.code == "" {
		return jen.Lit(0)
	}
	return jen.Id("uint32").Call(jen.Id(codeName(g.names, r.code)))
}

// self is the receiver of a method.
func self(name, typ string) jen.Code { return jen.Id(name).Op("*").Id(typ) }

// limitsParam and limitsArg pass the bounds in force to records that depend on them.
func limitsParam(r *record, first ...jen.Code) []jen.Code {
	if r.limited {
		first = append(first, jen.Id("limits").Op("*").Qual(boundsPath, "Limits"))
	}
	return first
}

func limitsArg(r *record, first ...jen.Code) []jen.Code {
	if r.limited {
		first = append(first, jen.Id("limits"))
	}
	return first
}

// appendValue writes AppendValue, and AppendValueWithin where operators may change a bound.
func (g messageGen) appendValue(r *record) {
	name, comment := "AppendValue", "AppendValue appends the value to dst. An error is a *codec.Error and leaves dst as it was."
	if r.limited {
		g.f.Add(doc(comment + " Bounds have their defaults."))
		g.f.Func().Params(self("m", r.goName)).Id(name).Params(jen.Id("dst").Index().Byte()).Params(jen.Index().Byte(), jen.Error()).Block(
			jen.Return(jen.Id("m").Dot("AppendValueWithin").Call(jen.Id("dst"), jen.Op("&").Id("defaultLimits"))))
		g.f.Line()
		name, comment = "AppendValueWithin", "AppendValueWithin is AppendValue with the bounds that an operator chose."
	}
	g.f.Add(doc(comment))
	g.f.Func().Params(self("m", r.goName)).Id(name).Params(limitsParam(r, jen.Id("dst").Index().Byte())...).
		Params(jen.Index().Byte(), jen.Error()).Block(
		jen.Id("w").Op(":=").Qual(codecPath, "NewWriter").Call(jen.Id("dst"), g.codeOf(r)),
		jen.Id("m").Dot("write").Call(limitsArg(r, jen.Op("&").Id("w"))...),
		jen.Return(jen.Id("w").Dot("Finish").Call(jen.Op("&").Id(messageVar(r)))),
	)
	g.f.Line()
}

// messageVar is the codec.Field that names a whole record.
func messageVar(r *record) string { return "value" + r.goName }

// decodeValue writes the decoder that copies.
func (g messageGen) decodeValue(r *record) {
	name, comment := "DecodeValue", "DecodeValue reads a whole value and copies what it keeps. An error is a *codec.Error and leaves m as it was."
	if r.limited {
		g.f.Add(doc(comment + " Bounds have their defaults."))
		g.f.Func().Params(self("m", r.goName)).Id(name).Params(jen.Id("value").Index().Byte()).Error().Block(
			jen.Return(jen.Id("m").Dot("DecodeValueWithin").Call(jen.Id("value"), jen.Op("&").Id("defaultLimits"))))
		g.f.Line()
		name, comment = "DecodeValueWithin", "DecodeValueWithin is DecodeValue with the bounds that an operator chose."
	}
	g.f.Add(doc(comment))
	g.f.Func().Params(self("m", r.goName)).Id(name).Params(limitsParam(r, jen.Id("value").Index().Byte())...).Error().Block(
		jen.Var().Id("v").Id(r.goName+"View"),
		jen.If(jen.Err().Op(":=").Id("v").Dot(name).Call(limitsArg(r, jen.Id("value"))...), jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Err())),
		jen.Op("*").Id("m").Op("=").Id("v").Dot("Owned").Call(),
		jen.Return(jen.Nil()),
	)
	g.f.Line()
}

// view writes the type whose fields alias a received value.
func (g messageGen) view(r *record) {
	g.f.Add(doc(r.goName + "View is " + article(r.goName) + " " + r.goName + " whose text, bytes and lists alias the value that it was read from."))
	g.f.Type().Id(r.goName + "View").StructFunc(func(s *jen.Group) { g.structFields(s, r, true) })
	g.f.Line()
}

// viewDecode writes the only parser of a record.
func (g messageGen) viewDecode(r *record) {
	name := "DecodeValue"
	comment := "DecodeValue reads a whole value without allocating. An error is a *codec.Error; unless it is malformed, v is complete."
	if r.limited {
		g.f.Add(doc(comment + " Bounds have their defaults."))
		g.f.Func().Params(self("v", r.goName+"View")).Id(name).Params(jen.Id("value").Index().Byte()).Error().Block(
			jen.Return(jen.Id("v").Dot("DecodeValueWithin").Call(jen.Id("value"), jen.Op("&").Id("defaultLimits"))))
		g.f.Line()
		name, comment = "DecodeValueWithin", "DecodeValueWithin is DecodeValue with the bounds that an operator chose."
	}
	finish := jen.Id("r").Dot("Finish").Call(jen.Op("&").Id(messageVar(r)))
	if r.open {
		finish = jen.Id("r").Dot("FinishOpen").Call()
	}
	g.f.Add(doc(comment))
	g.f.Func().Params(self("v", r.goName+"View")).Id(name).Params(limitsParam(r, jen.Id("value").Index().Byte())...).Error().Block(
		jen.Op("*").Id("v").Op("=").Id(r.goName+"View").Values(),
		jen.Id("r").Op(":=").Qual(codecPath, "NewReader").Call(jen.Id("value"), g.codeOf(r)),
		jen.Id("v").Dot("read").Call(limitsArg(r, jen.Op("&").Id("r"))...),
		jen.Return(finish),
	)
	g.f.Line()
}

// owned writes the copy of a view.
func (g messageGen) owned(r *record) {
	typ := r.goName
	g.f.Add(doc("Owned copies the view out of the value that it aliases (D-8)."))
	g.f.Func().Params(self("v", typ+"View")).Id("Owned").Params().Id(typ).Block(
		jen.Return(jen.Id(typ).Values(g.ownedFields(r)...)),
	)
	g.f.Line()
}

func (g messageGen) ownedFields(r *record) []jen.Code {
	p := &pairs{}
	if r.union != nil {
		p.add("Kind", jen.Id("v").Dot("Kind"))
	}
	for _, form := range r.forms {
		p.add(g.formName(r, form), jen.Id("v").Dot(g.formName(r, form)).Dot("Owned").Call())
	}
	for _, f := range r.onWire() {
		p.add(f.goName, g.ownedField(f))
		if f.hasFlag() {
			p.add("Has"+f.goName, jen.Id("v").Dot("Has"+f.goName))
		}
	}
	return p.block()
}

func (g messageGen) ownedField(f *field) jen.Code {
	from := jen.Id("v").Dot(f.goName)
	switch f.kind {
	case text, route:
		return jen.String().Call(from)
	case blob:
		return jen.Append(jen.Index().Byte().Call(jen.Nil()), from.Op("..."))
	case structure, choice, list:
		return from.Dot("Owned").Call()
	}
	return from
}
