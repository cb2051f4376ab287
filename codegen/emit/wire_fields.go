package emit

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

// write writes the method that appends the fields of a record.
func (g messageGen) write(r *record) {
	receiver := self("m", r.goName)
	if len(r.late()) > 0 {
		g.writeParts(r)
		return
	}
	if r.union == nil && len(r.onWire()) == 0 {
		receiver = jen.Op("*").Id(r.goName)
	}
	g.f.Func().Params(receiver).Id("write").Params(limitsParam(r, jen.Id("w").Op("*").Qual(codecPath, "Writer"))...).BlockFunc(func(b *jen.Group) {
		if r.part == replyPart {
			b.Id("w").Dot("U8").Call(jen.Id("statusSuccess"))
		}
		if r.union != nil {
			g.writeUnion(b, r)
		}
		for i, f := range r.fields {
			g.writeField(b, r, i, f)
		}
	})
	g.f.Line()
}

// writeParts is write for a record whose last fields are known late.
func (g messageGen) writeParts(r *record) {
	g.f.Func().Params(self("m", r.goName)).Id("write").Params(limitsParam(r, jen.Id("w").Op("*").Qual(codecPath, "Writer"))...).Block(
		jen.Id("m").Dot("writeEarly").Call(limitsArg(r, jen.Id("w"))...),
		jen.Id("m").Dot("writeLate").Call(limitsArg(r, jen.Id("w"))...),
	)
	g.f.Line()
	for _, half := range []struct {
		name string
		late bool
	}{{"writeEarly", false}, {"writeLate", true}} {
		g.f.Func().Params(self("m", r.goName)).Id(half.name).Params(limitsParam(r, jen.Id("w").Op("*").Qual(codecPath, "Writer"))...).BlockFunc(func(b *jen.Group) {
			for i, f := range r.fields {
				if f.Late == half.late {
					g.writeField(b, r, i, f)
				}
			}
		})
		g.f.Line()
	}
}

// late are the fields that are known only when a shared value is sent.
func (r *record) late() []*field {
	var out []*field
	for _, f := range r.fields {
		if f.Late {
			out = append(out, f)
		}
	}
	return out
}

func (g messageGen) writeUnion(b *jen.Group, r *record) {
	bits := widths[r.union.Tag]
	b.Id("w").Dot(fmt.Sprintf("U%d", bits)).Call(jen.Id(fmt.Sprintf("uint%d", bits)).Call(jen.Id("m").Dot("Kind")))
	b.Switch(jen.Id("m").Dot("Kind")).BlockFunc(func(s *jen.Group) {
		for i, form := range r.forms {
			s.Case(jen.Id(r.goName + "Kind" + g.names.exported(r.union.Variants[i].Name))).Block(
				jen.Id("m").Dot(g.formName(r, form)).Dot("write").Call(limitsArg(form, jen.Id("w"))...))
		}
		s.Default().Block(jen.Id("w").Dot("Known").Call(jen.Op("&").Id(messageVar(r)), jen.False()))
	})
}

// writeField writes the lines of one field with its presence.
func (g messageGen) writeField(b *jen.Group, r *record, i int, f *field) {
	value := jen.Id("m").Dot(f.goName)
	switch f.Presence.Kind {
	case model.Flagged:
		b.Id("w").Dot("Bool").Call(jen.Id("m").Dot("Has" + f.goName))
		b.If(jen.Id("m").Dot("Has" + f.goName)).BlockFunc(func(b *jen.Group) { g.writeValue(b, f, value) })
	case model.TailFlagged:
		b.If(g.anyPresent(r.fields[i:])).Block(jen.Id("w").Dot("Bool").Call(jen.Id("m").Dot("Has" + f.goName)))
		b.If(jen.Id("m").Dot("Has" + f.goName)).BlockFunc(func(b *jen.Group) { g.writeValue(b, f, value) })
	case model.Tail:
		b.If(g.anyPresent(r.fields[i:])).BlockFunc(func(b *jen.Group) { g.writeValue(b, f, value) })
	case model.PresentWhen:
		b.If(g.presentWhen(f, "m")).BlockFunc(func(b *jen.Group) { g.writeValue(b, f, value) })
	default:
		g.writeValue(b, f, value)
	}
}

// anyPresent is the condition under which the first of some tail fields is written: one of them differs from its default.
func (g messageGen) anyPresent(tail []*field) *jen.Statement {
	var out *jen.Statement
	for _, f := range tail {
		cond := g.present(f)
		if out == nil {
			out = cond
			continue
		}
		out = out.Op("||").Add(cond)
	}
	return out
}

// present tells whether a tail field differs from its default.
func (g messageGen) present(f *field) *jen.Statement {
	value := jen.Id("m").Dot(f.goName)
	switch {
	case f.hasFlag():
		return jen.Id("m").Dot("Has" + f.goName)
	case f.kind == boolean && f.initial != nil && f.initial.value == 1:
		return jen.Op("!").Add(value)
	case f.kind == boolean:
		return value
	case f.kind == text, f.kind == route:
		return value.Op("!=").Lit("")
	case f.kind == blob, f.kind == list:
		return jen.Len(value).Op("!=").Lit(0)
	case f.initial != nil:
		return value.Op("!=").Add(g.limitValue(f.initial))
	}
	return value.Op("!=").Lit(0)
}

// presentWhen is the condition of a field that another field decides about.
func (g messageGen) presentWhen(f *field, receiver string) *jen.Statement {
	value := jen.Id(receiver).Dot(f.when.goName)
	switch {
	case f.bit == nil && f.when.kind == boolean:
		return value
	case f.bit == nil:
		return value.Op("!=").Lit(0)
	case f.when.Format == "capabilities":
		return value.Dot("Has").Call(jen.Id(capabilityName(g.names, f.bit)))
	}
	return value.Op("&").Id("uint32").Call(jen.Id(capabilityName(g.names, f.bit))).Op("!=").Lit(0)
}

// writeValue writes the lines of one value without its presence.
func (g messageGen) writeValue(b *jen.Group, f *field, value *jen.Statement) {
	ref := jen.Op("&").Id(f.varName)
	switch f.kind {
	case boolean:
		b.Id("w").Dot("Bool").Call(value)
	case uuid:
		b.Id("w").Dot("UUID").Call(value)
	case number, enumeration:
		g.writeNumber(b, f, value)
	case text:
		b.Id("w").Dot(map[bool]string{true: "Cut", false: restPrefix(f) + "String"}[f.Above == "cut"]).Call(ref, value, g.bound(f, "m"))
	case blob:
		b.Id("w").Dot(restPrefix(f)+"Bytes").Call(ref, value, g.bound(f, "m"))
	case route:
		b.Id("w").Dot("Route").Call(ref, value, g.bound(f, "m"))
	case structure, choice:
		g.writeStruct(b, f, value)
	case list:
		g.writeList(b, f, value)
	}
}

func restPrefix(f *field) string {
	if f.Presence.Kind == model.Rest {
		return "Rest"
	}
	return ""
}

func (g messageGen) writeNumber(b *jen.Group, f *field, value *jen.Statement) {
	method, typ := fmt.Sprintf("U%d", f.bits), fmt.Sprintf("uint%d", f.bits)
	ref := jen.Op("&").Id(f.varName)
	if f.Const != nil {
		b.Id("w").Dot(method).Call(g.constant(f))
		return
	}
	if f.plainNumber() {
		b.Id("w").Dot(method).Call(value)
	} else {
		b.Id("w").Dot(method).Call(jen.Id(typ).Call(value))
	}
	g.checkNumber(b, "w", ref, f, value)
}

// checkNumber writes the checks of the number that was read or written last.
func (g messageGen) checkNumber(b *jen.Group, rw string, ref jen.Code, f *field, value *jen.Statement) {
	if f.enum != nil && f.enum.Closed {
		b.Id(rw).Dot("Known").Call(ref, value.Clone().Dot("Known").Call())
	}
	wide := value.Clone()
	if f.bits != 64 || !f.plainNumber() {
		wide = jen.Id("uint64").Call(value.Clone())
	}
	if f.Nonzero {
		b.Id(rw).Dot("NonZero").Call(ref, wide)
	}
	if f.Above == "clamp" || f.least == nil && f.highest == nil {
		return
	}
	least, most := jen.Code(jen.Lit(0)), jen.Code(jen.Qual("math", "MaxUint64"))
	if f.least != nil {
		least = g.limitWide(f.least)
	}
	if f.highest != nil {
		most = g.limitWide(f.highest)
	}
	b.Id(rw).Dot("Range").Call(ref, wide, least, most)
}

// constant is the value of a constant field.
func (g messageGen) constant(f *field) jen.Code {
	return g.limitValue(g.limit(f.Const))
}

// limitValue is a number as an untyped constant: the name of its bound, or the literal.
func (g messageGen) limitValue(l *limit) jen.Code {
	if l.bound != nil {
		return jen.Qual(boundsPath, g.names.exported(l.bound.Name))
	}
	return jen.Id(fmt.Sprint(l.value))
}

// limitWide is a number as uint64, the one in force when an operator may change it.
func (g messageGen) limitWide(l *limit) jen.Code {
	if l.changeable() {
		return jen.Id("uint64").Call(jen.Id("limits").Dot(g.names.exported(l.bound.Name)))
	}
	return g.limitValue(l)
}

// boundValue is a bound as int, the one in force when an operator may change it.
func (g messageGen) boundValue(bound *model.Bound) *jen.Statement {
	switch {
	case bound == nil:
		return jen.Qual(codecPath, "MaxRecordValue")
	case bound.OperatorMayChange:
		return jen.Int().Call(jen.Id("limits").Dot(g.names.exported(bound.Name)))
	}
	return jen.Qual(boundsPath, g.names.exported(bound.Name))
}

// bound is the bound of a field with the lengths taken off that share its room.
func (g messageGen) bound(f *field, receiver string) jen.Code {
	out := g.boundValue(f.most)
	for _, other := range f.minus {
		out = out.Op("-").Len(jen.Id(receiver).Dot(other.goName))
	}
	return out
}

func (g messageGen) writeStruct(b *jen.Group, f *field, value *jen.Statement) {
	call := value.Clone().Dot("write").Call(limitsArg(f.record, jen.Id("w"))...)
	if f.Length == "" {
		b.Add(call)
		return
	}
	width := jen.Lit(widths[f.Length] / 8)
	start := g.names.local(f.Name) + "Start"
	b.Id(start).Op(":=").Id("w").Dot("Enter").Call(width)
	b.Add(call)
	b.Id("w").Dot("Leave").Call(jen.Op("&").Id(f.varName), jen.Id(start), width, g.boundValue(f.most))
}

// writeList writes a list in its form.
func (g messageGen) writeList(b *jen.Group, f *field, value *jen.Statement) {
	b.Id("write" + g.listName(f.elem)).Call(limitsArgIf(f.elem.limited(),
		jen.Id("w"), jen.Op("&").Id(f.varName), g.shape(f), value)...)
}

// shape is the codec.ListShape of a list, with the bounds in force.
func (g messageGen) shape(f *field) jen.Code {
	return g.shapeWith(f, func(b *model.Bound) jen.Code { return g.boundValue(b) })
}

// defaultShape is the codec.ListShape of a list, with the defaults of its bounds.
func (g messageGen) defaultShape(f *field) jen.Code { return g.shapeWith(f, g.defaultBound) }

func (g messageGen) shapeWith(f *field, bound func(*model.Bound) jen.Code) jen.Code {
	p := &pairs{}
	if form := map[string]string{"flagged": "ListFlagged", "until_end": "ListUntilEnd"}[f.Form]; form != "" {
		p.add("Form", jen.Qual(codecPath, form))
	}
	if f.Form == "counted" && f.Count != "u32" {
		p.add("CountWidth", jen.Lit(widths[f.Count]/8))
	}
	p.add("Most", bound(f.most))
	p.add("MostBytes", bound(f.bytes))
	switch f.elem.kind {
	case text, blob, route:
		p.add("MostElement", bound(f.elem.most))
	}
	return jen.Qual(codecPath, "ListShape").Values(p.line()...)
}

func limitsArgIf(limited bool, first ...jen.Code) []jen.Code {
	if limited {
		first = append(first, jen.Id("limits"))
	}
	return first
}

// read writes the method that reads the fields of a record.
func (g messageGen) read(r *record) {
	receiver := self("v", r.goName+"View")
	if r.union == nil && len(r.onWire()) == 0 {
		receiver = jen.Op("*").Id(r.goName + "View")
	}
	param := jen.Id("r")
	if r.union == nil && len(r.fields) == 0 && r.part != replyPart {
		param = jen.Id("_")
	}
	g.f.Func().Params(receiver).Id("read").Params(limitsParam(r, param.Op("*").Qual(codecPath, "Reader"))...).BlockFunc(func(b *jen.Group) {
		if r.part == replyPart {
			b.Id("r").Dot("Const").Call(jen.Op("&").Id(statusVar(r)), jen.Id("uint64").Call(jen.Id("r").Dot("U8").Call(jen.Op("&").Id(statusVar(r)))), jen.Id("statusSuccess"))
		}
		if r.union != nil {
			g.readUnion(b, r)
		}
		for _, f := range r.fields {
			g.readField(b, f)
		}
	})
	g.f.Line()
}

// statusVar is the codec.Field of the status in front of a reply.
func statusVar(r *record) string { return "status" + r.goName }

func (g messageGen) readUnion(b *jen.Group, r *record) {
	b.Id("v").Dot("Kind").Op("=").Id(r.goName + "Kind").Call(jen.Id("r").Dot(fmt.Sprintf("U%d", widths[r.union.Tag])).Call(jen.Op("&").Id(messageVar(r))))
	b.Switch(jen.Id("v").Dot("Kind")).BlockFunc(func(s *jen.Group) {
		for i, form := range r.forms {
			s.Case(jen.Id(r.goName + "Kind" + g.names.exported(r.union.Variants[i].Name))).Block(
				jen.Id("v").Dot(g.formName(r, form)).Dot("read").Call(limitsArg(form, jen.Id("r"))...))
		}
		s.Default().Block(jen.Id("r").Dot("Known").Call(jen.Op("&").Id(messageVar(r)), jen.False()))
	})
}

// readField writes the lines of one field with its presence.
func (g messageGen) readField(b *jen.Group, f *field) {
	value := jen.Id("v").Dot(f.goName)
	ref := jen.Op("&").Id(f.varName)
	inner := func(b *jen.Group) { g.readValue(b, f, value) }
	switch f.Presence.Kind {
	case model.Flagged:
		b.If(jen.Id("v").Dot("Has"+f.goName).Op("=").Id("r").Dot("Bool").Call(ref), jen.Id("v").Dot("Has"+f.goName)).BlockFunc(inner)
	case model.TailFlagged:
		b.If(jen.Id("r").Dot("More").Call()).Block(jen.Id("v").Dot("Has" + f.goName).Op("=").Id("r").Dot("Bool").Call(ref))
		b.If(jen.Id("v").Dot("Has" + f.goName)).BlockFunc(inner)
	case model.Tail:
		g.readTail(b, f, inner)
	case model.PresentWhen:
		b.If(g.presentWhen(f, "v")).BlockFunc(inner)
	default:
		inner(b)
	}
}

func (g messageGen) readTail(b *jen.Group, f *field, inner func(*jen.Group)) {
	if f.hasFlag() {
		b.If(jen.Id("v").Dot("Has"+f.goName).Op("=").Id("r").Dot("More").Call(), jen.Id("v").Dot("Has"+f.goName)).BlockFunc(inner)
		return
	}
	if f.initial != nil && f.initial.value != 0 {
		value := g.limitValue(f.initial)
		if f.kind == boolean {
			value = jen.True()
		}
		b.Id("v").Dot(f.goName).Op("=").Add(value)
	}
	b.If(jen.Id("r").Dot("More").Call()).BlockFunc(inner)
}

// readValue writes the lines of one value without its presence.
func (g messageGen) readValue(b *jen.Group, f *field, value *jen.Statement) {
	ref := jen.Op("&").Id(f.varName)
	read := func(method string, args ...jen.Code) *jen.Statement {
		return jen.Id("r").Dot(method).Call(append([]jen.Code{ref}, args...)...)
	}
	switch f.kind {
	case boolean:
		b.Add(value).Op("=").Add(read("Bool"))
	case uuid:
		b.Add(value).Op("=").Add(read("UUID"))
	case number, enumeration:
		g.readNumber(b, f, value)
	case text:
		b.Add(value).Op("=").Add(read(restPrefix(f)+"String", g.bound(f, "v")))
	case blob:
		b.Add(value).Op("=").Add(read(restPrefix(f)+"Bytes", g.bound(f, "v")))
	case route:
		b.Add(value).Op("=").Add(read("Route", g.bound(f, "v")))
	case structure, choice:
		g.readStruct(b, f, value)
	case list:
		b.Add(value).Dot("read").Call(limitsArgIf(f.elem.limited(), jen.Id("r"), ref, g.shape(f))...)
	}
}

func (g messageGen) readNumber(b *jen.Group, f *field, value *jen.Statement) {
	ref := jen.Op("&").Id(f.varName)
	read := jen.Id("r").Dot(fmt.Sprintf("U%d", f.bits)).Call(ref)
	if f.Const != nil {
		b.Id("r").Dot("Const").Call(ref, jen.Id("uint64").Call(read), g.constant(f))
		return
	}
	if !f.plainNumber() {
		read = g.goType(f, true).Call(read)
	}
	b.Add(value).Op("=").Add(read)
	g.checkNumber(b, "r", ref, f, value)
}

func (g messageGen) readStruct(b *jen.Group, f *field, value *jen.Statement) {
	call := value.Clone().Dot("read").Call(limitsArg(f.record, jen.Id("r"))...)
	if f.Length == "" {
		b.Add(call)
		return
	}
	outer := g.names.local(f.Name) + "End"
	b.Id(outer).Op(":=").Id("r").Dot("Enter").Call(jen.Op("&").Id(f.varName), jen.Lit(widths[f.Length]/8), g.boundValue(f.most))
	b.Add(call)
	if f.LaterIgnored {
		b.Id("r").Dot("LeaveOpen").Call(jen.Id(outer))
		return
	}
	b.Id("r").Dot("Leave").Call(jen.Op("&").Id(f.varName), jen.Id(outer))
}

// listName is the view of a list of such elements.
func (g messageGen) listName(elem *field) string {
	switch elem.kind {
	case structure, choice:
		return elem.record.goName + "List"
	case enumeration:
		return elem.enumOf + "List"
	case text:
		return "StringList"
	case blob:
		return "BytesList"
	case route:
		return "RouteList"
	case boolean:
		return "BoolList"
	case uuid:
		return "UUIDList"
	}
	return strings.ToUpper(elem.Type[:1]) + elem.Type[1:] + "List"
}
