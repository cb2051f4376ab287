package emit

import (
	"maps"
	"slices"

	"github.com/dave/jennifer/jen"
)

// lists writes the list types whose elements are r, when some field is such a list.
func (g messageGen) lists(r *record) {
	if r.part != structPart && r.part != unionPart {
		return
	}
	for _, f := range g.listFields() {
		if f.elem.record == r {
			g.listType(f.elem)
			return
		}
	}
}

// plainLists writes the list types whose elements are no records, and reports whether there are any.
func (g messageGen) plainLists() bool {
	elems := map[string]*field{}
	for _, f := range g.listFields() {
		if f.elem.record == nil {
			elems[g.listName(f.elem)] = f.elem
		}
	}
	for _, name := range slices.Sorted(maps.Keys(elems)) {
		g.listType(elems[name])
	}
	return len(elems) > 0
}

// listFields are all fields of the protocol that are lists.
func (g messageGen) listFields() []*field {
	var out []*field
	for _, d := range g.domains {
		for _, r := range d.records {
			for _, f := range r.fields {
				if f.kind == list {
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// listType writes the view of a list: how it is read, walked, copied and written.
func (g messageGen) listType(elem *field) {
	name := g.listName(elem)
	typ := g.goType(elem, true)
	g.f.Add(doc(name + " is a list inside a received value. It was checked when it was read."))
	g.f.Type().Id(name).Struct(jen.Id("list").Qual(codecPath, "List"))
	g.f.Line()
	g.f.Add(doc("Len returns the number of elements."))
	g.f.Func().Params(jen.Id("l").Id(name)).Id("Len").Params().Int().Block(jen.Return(jen.Id("l").Dot("list").Dot("Len").Call()))
	g.f.Line()
	g.f.Add(doc("All yields the elements in wire order."))
	g.f.Func().Params(jen.Id("l").Id(name)).Id("All").Params().Qual("iter", "Seq").Types(typ).Block(
		jen.Return(jen.Func().Params(jen.Id("yield").Func().Params(typ).Bool()).Block(
			jen.List(jen.Id("r"), jen.Id("walk")).Op(":=").Id("l").Dot("list").Dot("Walk").Call(),
			jen.For(jen.Id("walk").Dot("Next").Call(jen.Op("&").Id("r"))).BlockFunc(func(b *jen.Group) {
				g.readElement(b, elem, jen.Op("&").Id("r"), jen.Op("&").Id("defaultLimits"), jen.Qual(codecPath, "Unnamed"))
				b.If(jen.Op("!").Id("yield").Call(jen.Id("item"))).Block(jen.Return())
			}),
		)),
	)
	g.f.Line()
	g.listOwned(elem)
	g.listRead(elem)
	g.listWrite(elem)
}

// readElement reads one element into the variable item.
func (g messageGen) readElement(b *jen.Group, elem *field, r, limits, ref jen.Code) {
	if elem.record != nil {
		b.Var().Id("item").Add(g.goType(elem, true))
		args := []jen.Code{r}
		if elem.record.limited {
			args = append(args, limits)
		}
		b.Id("item").Dot("read").Call(args...)
		return
	}
	method := map[kind]string{boolean: "Bool", uuid: "UUID", text: "String", blob: "Bytes", route: "Route"}[elem.kind]
	args := []jen.Code{ref}
	switch elem.kind {
	case number, enumeration:
		method = "U" + elem.Type[1:]
		if elem.enum != nil {
			method = "U" + elem.enum.Type[1:]
		}
	case text, blob, route:
		args = append(args, jen.Id("shape").Dot("MostElement"))
	}
	value := jen.Id("r").Dot(method).Call(args...)
	if elem.enum != nil {
		value = jen.Id(elem.enumOf).Call(value)
	}
	b.Id("item").Op(":=").Add(value)
	if elem.enum != nil && elem.enum.Closed {
		b.Id("r").Dot("Known").Call(ref, jen.Id("item").Dot("Known").Call())
	}
}

func (g messageGen) listOwned(elem *field) {
	item := jen.Code(jen.Id("item"))
	switch elem.kind {
	case text, route:
		item = jen.String().Call(jen.Id("item"))
	case blob:
		item = jen.Append(jen.Index().Byte().Call(jen.Nil()), jen.Id("item").Op("..."))
	case structure, choice:
		item = jen.Id("item").Dot("Owned").Call()
	}
	name := g.listName(elem)
	typ := jen.Index().Add(g.goType(elem, false))
	g.f.Add(doc("Owned copies the elements out of the value (D-8); nil when there are none."))
	g.f.Func().Params(jen.Id("l").Id(name)).Id("Owned").Params().Add(typ).Block(
		jen.If(jen.Id("l").Dot("Len").Call().Op("==").Lit(0)).Block(jen.Return(jen.Nil())),
		jen.Id("items").Op(":=").Make(typ, jen.Lit(0), jen.Id("l").Dot("Len").Call()),
		jen.For(jen.Id("item").Op(":=").Range().Id("l").Dot("All").Call()).Block(
			jen.Id("items").Op("=").Append(jen.Id("items"), item)),
		jen.Return(jen.Id("items")),
	)
	g.f.Line()
}

// listRead writes the only parser of a list.
func (g messageGen) listRead(elem *field) {
	params := []jen.Code{
		jen.Id("r").Op("*").Qual(codecPath, "Reader"),
		jen.Id("f").Op("*").Qual(codecPath, "Field"),
		jen.Id("shape").Qual(codecPath, "ListShape"),
	}
	if elem.limited() {
		params = append(params, jen.Id("limits").Op("*").Qual(boundsPath, "Limits"))
	}
	g.f.Func().Params(self("l", g.listName(elem))).Id("read").Params(params...).Block(
		jen.Id("walk").Op(":=").Id("r").Dot("List").Call(jen.Id("f"), g.elementSize(elem), jen.Id("shape")),
		jen.For(jen.Id("walk").Dot("Next").Call(jen.Id("r"))).BlockFunc(func(b *jen.Group) {
			g.readElement(b, elem, jen.Id("r"), jen.Id("limits"), jen.Id("f"))
			if elem.record == nil && (elem.enum == nil || !elem.enum.Closed) {
				b.Id("_").Op("=").Id("item")
			}
		}),
		jen.Id("l").Dot("list").Op("=").Id("walk").Dot("End").Call(jen.Id("r")),
	)
	g.f.Line()
}

// elementSize is the smallest size of an element.
func (g messageGen) elementSize(elem *field) jen.Code {
	if elem.record != nil {
		return jen.Id(elem.record.goName + "MinSize")
	}
	return jen.Lit(elem.smallest)
}

func (g messageGen) listWrite(elem *field) {
	params := []jen.Code{
		jen.Id("w").Op("*").Qual(codecPath, "Writer"),
		jen.Id("f").Op("*").Qual(codecPath, "Field"),
		jen.Id("shape").Qual(codecPath, "ListShape"),
		jen.Id("items").Index().Add(g.goType(elem, false)),
	}
	if elem.limited() {
		params = append(params, jen.Id("limits").Op("*").Qual(boundsPath, "Limits"))
	}
	g.f.Func().Id("write"+g.listName(elem)).Params(params...).Block(
		jen.Id("start").Op(":=").Id("w").Dot("Offset").Call(),
		jen.If(jen.Op("!").Id("w").Dot("ListStart").Call(jen.Id("f"), jen.Len(jen.Id("items")), jen.Id("shape"))).Block(jen.Return()),
		jen.For(jen.Id("i").Op(":=").Range().Id("items")).BlockFunc(func(b *jen.Group) {
			b.Id("w").Dot("ListItem").Call(jen.Id("shape"))
			g.writeElement(b, elem)
		}),
		jen.Id("w").Dot("ListEnd").Call(jen.Id("f"), jen.Id("start"), jen.Id("shape")),
	)
	g.f.Line()
}

func (g messageGen) writeElement(b *jen.Group, elem *field) {
	item := jen.Id("items").Index(jen.Id("i"))
	w := func(method string, args ...jen.Code) { b.Id("w").Dot(method).Call(args...) }
	switch elem.kind {
	case structure, choice:
		b.Add(item).Dot("write").Call(limitsArg(elem.record, jen.Id("w"))...)
	case boolean:
		w("Bool", item)
	case uuid:
		w("UUID", item)
	case text:
		w("String", jen.Id("f"), item, jen.Id("shape").Dot("MostElement"))
	case blob:
		w("Bytes", jen.Id("f"), item, jen.Id("shape").Dot("MostElement"))
	case route:
		w("Route", jen.Id("f"), item, jen.Id("shape").Dot("MostElement"))
	case number:
		w("U"+elem.Type[1:], item)
	case enumeration:
		w("U"+elem.enum.Type[1:], jen.Id("uint"+elem.enum.Type[1:]).Call(item))
		if elem.enum.Closed {
			w("Known", jen.Id("f"), item.Clone().Dot("Known").Call())
		}
	}
}
