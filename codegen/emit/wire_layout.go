package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("wire layouts", wireLayouts) }

// wireLayouts makes the tables that name every byte of a value.
func wireLayouts(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	var files []*goFile
	for _, d := range p.domains {
		g := messageGen{p, newGoFile(spec, wirePath, d.Name+"_layout.go")}
		for _, r := range d.records {
			if r.union == nil { // its forms are records of their own
				g.layout(r)
			}
		}
		files = append(files, g.f)
	}
	tables := messageGen{p, newGoFile(spec, wirePath, "layouts.go")}
	tables.layoutTables()
	tables.envelopes()
	return renderAll(append(files, tables.f)...)
}

func layoutVar(r *record) string { return "layout" + r.goName }

// layout writes the table of the fields of a record.
func (g messageGen) layout(r *record) {
	p := &pairs{}
	p.text("Name", r.path)
	p.text("Doc", sentence(r.doc))
	if r.code != "" {
		p.add("Code", g.codeOf(r))
	}
	p.flag("Open", r.open)
	p.add("Value", jen.Op("&").Id(messageVar(r)))
	if fields := g.layoutFields(r); len(fields) > 0 {
		p.add("Fields", jen.Index().Qual(codecPath, "LayoutField").Values(append(fields, jen.Line())...))
	}
	g.f.Var().Id(layoutVar(r)).Op("=").Qual(codecPath, "Layout").Values(p.block()...)
	g.f.Line()
}

func (g messageGen) layoutFields(r *record) []jen.Code {
	var out []jen.Code
	if r.part == replyPart {
		out = append(out, jen.Line().Values(g.statusField(statusVar(r), g.status("success")).block()...))
	}
	for i, f := range r.fields {
		out = append(out, jen.Line().Values(g.layoutField(r, i, f).block()...))
	}
	return out
}

// statusField is the first byte of an envelope.
func (g messageGen) statusField(variable string, status uint8) *pairs {
	p := &pairs{}
	p.text("Name", "status")
	p.add("Field", jen.Op("&").Id(variable))
	p.add("Type", jen.Qual(codecPath, "TypeU8"))
	p.text("Doc", "Kind of the envelope.")
	p.flag("Fixed", true)
	if status != 0 {
		p.add("Const", jen.Lit(int(status)))
	}
	return p
}

func (g messageGen) layoutField(r *record, i int, f *field) *pairs {
	p := g.layoutValue(f)
	switch f.Presence.Kind {
	case model.Flagged:
		p.add("Presence", jen.Qual(codecPath, "Flagged"))
	case model.Tail:
		p.add("Presence", jen.Qual(codecPath, "Tail"))
	case model.TailFlagged:
		p.add("Presence", jen.Qual(codecPath, "TailFlagged"))
	case model.Rest:
		p.add("Presence", jen.Qual(codecPath, "Rest"))
	case model.PresentWhen:
		p.add("Presence", jen.Qual(codecPath, "PresentWhen"))
		p.add("When", jen.Lit(r.index(f.when)))
		if f.bit != nil {
			p.add("Bits", jen.Uint64().Call(jen.Id(capabilityName(g.names, f.bit))))
		}
	}
	if len(f.minus) > 0 {
		p.add("Minus", jen.Index().Int().ValuesFunc(func(v *jen.Group) {
			for _, other := range f.minus {
				v.Lit(r.index(other))
			}
		}))
	}
	return p
}

// index is the place of a field in the layout: a reply has its status in front.
func (r *record) index(f *field) int {
	for i, other := range r.fields {
		if other == f && r.part == replyPart {
			return i + 1
		}
		if other == f {
			return i
		}
	}
	return 0
}

// layoutValue is a field without its presence, which is also what an element of a list is.
func (g messageGen) layoutValue(f *field) *pairs {
	p := &pairs{}
	p.text("Name", f.Name)
	p.add("Field", jen.Op("&").Id(f.varName))
	p.add("Type", jen.Qual(codecPath, layoutType(f)))
	p.text("Doc", sentence(f.Doc))
	p.text("Unit", f.Unit)
	p.flag("Secret", f.Role == "secret")
	switch f.kind {
	case number, enumeration:
		g.layoutNumber(p, f)
	case text, blob, route:
		p.add("MaxBytes", g.defaultBound(f.most))
	case structure:
		g.layoutLength(p, f)
		p.add("Part", jen.Op("&").Id(layoutVar(f.record)))
	case choice:
		g.layoutChoice(p, f)
	case list:
		p.add("List", g.defaultShape(f))
		p.add("Elem", jen.Op("&").Qual(codecPath, "LayoutField").Values(g.layoutValue(f.elem).line()...))
	}
	return p
}

func layoutType(f *field) string {
	switch f.kind {
	case number, enumeration:
		return fmt.Sprintf("TypeU%d", f.bits)
	case boolean:
		return "TypeBool"
	case uuid:
		return "TypeUUID"
	case text:
		return "TypeString"
	case blob:
		return "TypeBytes"
	case list:
		return "TypeList"
	case structure:
		return "TypePart"
	case choice:
		return "TypeChoice"
	}
	return map[string]string{"route": "TypeRoute", "selector": "TypeSelector"}[f.Type]
}

func (g messageGen) layoutNumber(p *pairs, f *field) {
	if f.Const != nil {
		p.flag("Fixed", true)
		p.add("Const", g.constant(f))
	}
	p.flag("NonZero", f.Nonzero)
	if f.Above != "clamp" && (f.least != nil || f.highest != nil) {
		p.flag("Ranged", true)
		if f.least != nil {
			p.add("Least", g.limitValue(f.least))
		}
		p.add("Most", jen.Qual("math", "MaxUint64"))
		if f.highest != nil {
			p.list[len(p.list)-1] = jen.Id("Most").Op(":").Add(g.limitValue(f.highest))
		}
	}
	if f.enum != nil {
		p.flag("Closed", f.enum.Closed)
		p.add("Names", g.enumNames(f))
	}
	switch f.Format {
	case "capabilities":
		p.add("Flags", jen.Id("capabilityNames"))
	case "error_code":
		p.add("Names", jen.Id("codeNames"))
	case "domain_number":
		p.add("Names", jen.Id("domainNames"))
	}
}

func (g messageGen) enumNames(f *field) jen.Code {
	return jen.Index().Qual(codecPath, "Name").ValuesFunc(func(v *jen.Group) {
		for _, value := range f.enum.Values {
			v.Values(namePair(jen.Uint64().Call(jen.Id(f.enumOf+g.names.exported(value.Name))), value.Name)...)
		}
	})
}

func (g messageGen) layoutLength(p *pairs, f *field) {
	if f.Length == "" {
		return
	}
	p.add("Length", jen.Lit(widths[f.Length]/8))
	p.flag("Open", f.LaterIgnored)
	p.add("MaxBytes", g.defaultBound(f.most))
}

func (g messageGen) layoutChoice(p *pairs, f *field) {
	p.add("Width", jen.Lit(widths[f.record.union.Tag]/8))
	p.add("Choice", jen.Op("&").Id(messageVar(f.record)))
	p.add("Forms", jen.Index().Qual(codecPath, "Form").ValuesFunc(func(v *jen.Group) {
		for i, form := range f.record.forms {
			v.Values(
				jen.Id("Number").Op(":").Uint64().Call(jen.Id(f.record.goName+"Kind"+g.names.exported(f.record.union.Variants[i].Name))),
				jen.Id("Layout").Op(":").Op("&").Id(layoutVar(form)),
			)
		}
	}))
}

// defaultBound is a bound as a constant.
func (g messageGen) defaultBound(bound *model.Bound) jen.Code {
	if bound == nil {
		return jen.Qual(codecPath, "MaxRecordValue")
	}
	return jen.Qual(boundsPath, g.names.exported(bound.Name))
}

// layoutTables writes the table of all messages.
func (g messageGen) layoutTables() {
	g.f.Add(doc("Value is a message, reply or struct that owns its memory."))
	g.f.Type().Id("Value").Interface(
		jen.Id("AppendValue").Params(jen.Id("dst").Index().Byte()).Params(jen.Index().Byte(), jen.Error()),
		jen.Id("View"),
	)
	g.f.Line()
	g.f.Add(doc("View is what reads a value."))
	g.f.Type().Id("View").Interface(jen.Id("DecodeValue").Params(jen.Id("value").Index().Byte()).Error())
	g.f.Line()
	g.f.Add(doc("Part says which of the values of a message number is meant."))
	g.f.Type().Id("Part").Uint8()
	g.f.Line()
	g.f.Add(doc("The parts."))
	g.f.Const().Defs(
		doc("Ask is the value that a client sends to ask for an operation."), jen.Id("Ask").Id("Part").Op("=").Iota(),
		doc("Success is the value that answers it."), jen.Id("Success"),
		doc("Alone is the value of a message that is neither."), jen.Id("Alone"),
		doc("Inner is a part of other values."), jen.Id("Inner"),
	)
	g.f.Line()
	g.f.Add(doc("MessageLayout is the layout of one value with its Go types."))
	g.f.Type().Id("MessageLayout").Struct(
		jen.Id("Type").Id("MessageType").Comment("0 for Inner"),
		jen.Id("Part").Id("Part"),
		jen.Id("ToBroker").Bool().Comment("clients send it"),
		jen.Id("ToClient").Bool().Comment("the broker sends it"),
		jen.Id("Name").String().Comment("of the Go type"),
		jen.Id("Layout").Op("*").Qual(codecPath, "Layout"),
		jen.Id("MinSize").Int(),
		jen.Id("MaxSize").Int(),
		jen.Id("New").Func().Params().Id("Value"),
		jen.Id("NewView").Func().Params().Id("View"),
	)
	g.f.Line()
	g.layoutTable("Messages", "Messages are the values of all messages, in the order of the specification.", func(r *record) bool { return r.part != structPart && r.part != unionPart })
	g.layoutTable("Inners", "Inners are the parts that messages share.", func(r *record) bool { return r.part == structPart })
	for _, kind := range []string{"Value", "View"} {
		g.f.Func().Id("new"+kind).Types(jen.Id("T").Any(), jen.Id("P").Interface(jen.Op("*").Id("T"), jen.Id(kind))).Params().Id(kind).Block(
			jen.Return(jen.Id("P").Call(jen.New(jen.Id("T")))))
		g.f.Line()
	}
	g.f.Add(doc("FindLayout returns the layout of a value."))
	g.f.Func().Id("FindLayout").Params(jen.Id("t").Id("MessageType"), jen.Id("part").Id("Part")).Params(jen.Id("MessageLayout"), jen.Bool()).Block(
		jen.For(jen.List(jen.Id("_"), jen.Id("m")).Op(":=").Range().Id("Messages")).Block(
			jen.If(jen.Id("m").Dot("Type").Op("==").Id("t").Op("&&").Id("m").Dot("Part").Op("==").Id("part")).Block(jen.Return(jen.Id("m"), jen.True()))),
		jen.Return(jen.Id("MessageLayout").Values(), jen.False()),
	)
	g.f.Line()
	g.numberNames()
}

func (g messageGen) layoutTable(name, comment string, wanted func(*record) bool) {
	g.f.Add(doc(comment))
	g.f.Var().Id(name).Op("=").Index().Id("MessageLayout").ValuesFunc(func(v *jen.Group) {
		for _, d := range g.domains {
			for _, r := range d.records {
				if wanted(r) {
					v.Line().Values(g.layoutRow(d, r)...)
				}
			}
		}
		v.Line()
	})
	g.f.Line()
}

func (g messageGen) layoutRow(d *domain, r *record) []jen.Code {
	p := &pairs{}
	part := map[part]string{requestPart: "Ask", replyPart: "Success", messagePart: "Alone", structPart: "Inner"}[r.part]
	if r.part != structPart {
		p.add("Type", jen.Id("Type"+g.names.in(d.Domain, r.name)))
	}
	p.add("Part", jen.Id(part))
	p.flag("ToBroker", r.part == requestPart || r.message != nil && r.message.Direction != "to_client")
	p.flag("ToClient", r.part == replyPart || r.message != nil && r.message.Direction != "to_broker")
	p.text("Name", r.goName)
	p.add("Layout", jen.Op("&").Id(layoutVar(r)))
	p.add("MinSize", jen.Id(r.goName+"MinSize"))
	p.add("MaxSize", jen.Id(r.goName+"MaxSize"))
	p.add("New", jen.Id("newValue").Types(jen.Id(r.goName)))
	p.add("NewView", jen.Id("newView").Types(jen.Id(r.goName+"View")))
	return p.line()
}

// namePair is a codec.Name.
func namePair(number jen.Code, name string) []jen.Code {
	p := &pairs{}
	p.add("Number", number)
	p.text("Name", name)
	return p.line()
}

// numberNames writes the names of numbers whose meaning is a registry.
func (g messageGen) numberNames() {
	table := func(name, comment string, rows func(v *jen.Group)) {
		g.f.Add(doc(comment))
		g.f.Var().Id(name).Op("=").Index().Qual(codecPath, "Name").ValuesFunc(func(v *jen.Group) {
			rows(v)
			v.Line()
		})
		g.f.Line()
	}
	table("capabilityNames", "capabilityNames are the bits of the hello.", func(v *jen.Group) {
		for _, c := range g.Wire.Capabilities {
			v.Line().Values(namePair(jen.Uint64().Call(jen.Id(capabilityName(g.names, c))), c.Name)...)
		}
	})
	table("codeNames", "codeNames are the error codes.", func(v *jen.Group) {
		for _, e := range g.sortedCodes() {
			v.Line().Values(namePair(jen.Uint64().Call(jen.Id(codeName(g.names, e.Name))), e.Name)...)
		}
	})
	table("domainNames", "domainNames are the domains by their number (W-68).", func(v *jen.Group) {
		for _, d := range g.domains {
			v.Line().Values(namePair(jen.Lit(d.Number), d.Name)...)
		}
	})
}

// envelopes writes the layouts of refusals.
func (g messageGen) envelopes() {
	var names []jen.Code
	for _, e := range g.Wire.Envelopes {
		if len(e.Fields) == 0 {
			continue
		}
		r := &record{domain: &model.Domain{}, part: structPart, goName: "Envelope" + g.names.exported(e.Name), path: "envelope." + e.Name, doc: e.Doc, clauses: g.Wire.EnvelopeClauses}
		for _, mf := range e.Fields {
			f, err := g.field(r, mf)
			if err != nil {
				continue
			}
			if f.Name == "code" && f.Format == "" {
				open := *f.Field
				open.Format = "error_code"
				f.Field = &open
			}
			r.fields = append(r.fields, f)
		}
		g.envelope(r, e)
		names = append(names, jen.Line().Op("&").Id(layoutVar(r)))
	}
	g.f.Add(doc("Envelopes are the layouts of refusals, the coded form first (errors.md section 1). DecodeRefusal tells which of them a value has."))
	g.f.Var().Id("Envelopes").Op("=").Index().Op("*").Qual(codecPath, "Layout").Values(append(names, jen.Line())...)
	g.f.Line()
}

func (g messageGen) envelope(r *record, e *model.Envelope) {
	g.fieldVars(r)
	status := statusVar(r)
	g.f.Var().Id(status).Op("=").Qual(codecPath, "Field").Values(g.fieldValues(r.path+".status", "", "", "", "rules"+r.goName)...)
	g.f.Line()
	p := &pairs{}
	p.text("Name", r.path)
	p.text("Doc", sentence(r.doc))
	p.add("Value", jen.Op("&").Id(messageVar(r)))
	fields := []jen.Code{jen.Line().Values(g.statusField(status, e.Status).block()...)}
	for i, f := range r.fields {
		fields = append(fields, jen.Line().Values(g.layoutField(r, i, f).block()...))
	}
	p.add("Fields", jen.Index().Qual(codecPath, "LayoutField").Values(append(fields, jen.Line())...))
	g.f.Var().Id(layoutVar(r)).Op("=").Qual(codecPath, "Layout").Values(p.block()...)
	g.f.Line()
}
