package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

// extras writes what lets shared bytes be sent without encoding them again, and what a specification says beyond layout.
func (g messageGen) extras(r *record) {
	g.effective(r)
	g.lateHalves(r)
	g.pageParts(r)
	g.encodedRoute(r)
}

// effective writes the number that counts for each field that is clamped instead of refused.
func (g messageGen) effective(r *record) {
	for _, f := range r.fields {
		if f.Above != "clamp" || f.kind != number {
			continue
		}
		for _, typ := range []string{r.goName, r.goName + "View"} {
			g.effectiveOf(typ, f)
		}
	}
}

func (g messageGen) effectiveOf(typ string, f *field) {
	receiver, goType := "m", fmt.Sprintf("uint%d", f.bits)
	comment := fmt.Sprintf("Effective%s is the %s that counts: more than %s is %s.", f.goName, f.goName, f.highest.words(), f.highest.words())
	var body []jen.Code
	if f.initial != nil {
		comment = fmt.Sprintf("Effective%s is the %s that counts: 0 is %s, more than %s is %s.", f.goName, f.goName, f.initial.words(),
			f.highest.words(), f.highest.words())
		body = append(body, jen.If(jen.Id(receiver).Dot(f.goName).Op("==").Lit(0)).Block(jen.Return(g.limitValue(f.initial))))
	}
	body = append(body, jen.Return(jen.Id("min").Call(jen.Id(receiver).Dot(f.goName), g.limitValue(f.highest))))
	g.f.Add(doc(comment))
	g.f.Func().Params(self(receiver, typ)).Id("Effective" + f.goName).Params().Id(goType).Block(body...)
	g.f.Line()
}

// lateHalves writes the two halves of a record whose last fields are known only when it is sent.
func (g messageGen) lateHalves(r *record) {
	late := r.late()
	if len(late) == 0 {
		return
	}
	early := "Append" + r.goName + "Early"
	g.f.Add(doc(fmt.Sprintf("%s appends the fields of m that stay the same while it is shared: all before %s. Append%sLate appends the others; together they are the value. "+
		"An error is a *codec.Error and leaves dst as it was.", early, late[0].goName, r.goName)))
	g.f.Func().Id(early).Params(limitsParam(r, jen.Id("dst").Index().Byte(), jen.Id("m").Op("*").Id(r.goName))...).Params(jen.Index().Byte(), jen.Error()).Block(
		jen.Id("w").Op(":=").Qual(codecPath, "NewWriter").Call(jen.Id("dst"), g.codeOf(r)),
		jen.Id("m").Dot("writeEarly").Call(limitsArg(r, jen.Op("&").Id("w"))...),
		jen.Return(jen.Id("w").Dot("Finish").Call(jen.Op("&").Id(messageVar(r)))),
	)
	g.f.Line()
	g.f.Add(doc(fmt.Sprintf("Append%sLate appends the fields that %s leaves out.", r.goName, early)))
	g.f.Func().Id("Append" + r.goName + "Late").ParamsFunc(func(p *jen.Group) {
		p.Id("dst").Index().Byte()
		for _, f := range late {
			p.Id(g.names.local(f.Name)).Add(g.goType(f, false))
		}
	}).Index().Byte().BlockFunc(func(b *jen.Group) {
		for _, f := range late {
			b.Id("dst").Op("=").Qual(codecPath, fmt.Sprintf("AppendU%d", f.bits)).Call(jen.Id("dst"), jen.Id(g.names.local(f.Name)))
		}
		b.Return(jen.Id("dst"))
	})
	g.f.Line()
}

// pageParts writes the parts around the items of a page, for replies that are built of items encoded before.
func (g messageGen) pageParts(r *record) {
	if r.part != replyPart || r.op.Paged == nil || len(r.fields) != 2 {
		return
	}
	items, next := r.find(r.op.Paged.Items), r.find(r.op.Paged.Next)
	if items == nil || next == nil || items.kind != list || items.Form != "counted" || items.Count != "u32" || next.Presence.Kind != model.Flagged {
		return
	}
	g.f.Add(doc(fmt.Sprintf("%sCountOffset is where the count of a page stands in its value, so that it can be written last.", r.goName)))
	g.f.Const().Id(r.goName + "CountOffset").Op("=").Lit(1)
	g.f.Line()
	g.f.Add(doc(fmt.Sprintf("Append%sHead appends what stands in front of the items of a page: the status and their number. The items follow, then Append%sTail.", r.goName, r.goName)))
	g.f.Func().Id("Append"+r.goName+"Head").Params(jen.Id("dst").Index().Byte(), jen.Id("count").Uint32()).Index().Byte().Block(
		jen.Return(jen.Qual(codecPath, "AppendU32").Call(jen.Append(jen.Id("dst"), jen.Id("statusSuccess")), jen.Id("count"))))
	g.f.Line()
	g.f.Add(doc(fmt.Sprintf("Append%sTail appends what follows the items of a page: the cursor of the next one when there is one.", r.goName)))
	g.f.Func().Id("Append"+r.goName+"Tail").Params(jen.Id("dst").Index().Byte(), jen.Id("next").Add(g.goType(next, false)), jen.Id("hasNext").Bool()).Index().Byte().BlockFunc(func(b *jen.Group) {
		b.Id("dst").Op("=").Qual(codecPath, "AppendBool").Call(jen.Id("dst"), jen.Id("hasNext"))
		b.If(jen.Op("!").Id("hasNext")).Block(jen.Return(jen.Id("dst")))
		for _, f := range next.record.fields {
			b.Id("dst").Op("=").Qual(codecPath, fmt.Sprintf("AppendU%d", f.bits)).Call(jen.Id("dst"), jen.Id("next").Dot(f.goName))
		}
		b.Return(jen.Id("dst"))
	})
	g.f.Line()
}

// encodedRoute writes the form of a push that takes its route as it was encoded before.
func (g messageGen) encodedRoute(r *record) {
	if r.message == nil || r.message.Class != "push" || !r.isNotice() {
		return
	}
	name := "Append" + r.goName + "Encoded"
	g.f.Add(doc(name + " appends the value with a route that was encoded before: its length and its text. The bytes must come from this codec; they are not looked at."))
	g.f.Func().Id(name).ParamsFunc(func(p *jen.Group) {
		p.Id("dst").Index().Byte()
		for _, f := range r.onWire() {
			if f.kind == route {
				p.Id("encoded" + f.goName).Index().Byte()
				continue
			}
			p.Id(g.names.local(f.Name)).Add(g.goType(f, false))
		}
	}).Index().Byte().BlockFunc(func(b *jen.Group) {
		for _, f := range r.fields {
			switch {
			case f.kind == route:
				b.Id("dst").Op("=").Append(jen.Id("dst"), jen.Id("encoded"+f.goName).Op("..."))
			case f.Const != nil:
				b.Id("dst").Op("=").Qual(codecPath, fmt.Sprintf("AppendU%d", f.bits)).Call(jen.Id("dst"), g.constant(f))
			default:
				b.Id("dst").Op("=").Qual(codecPath, fmt.Sprintf("AppendU%d", f.bits)).Call(jen.Id("dst"), jen.Id(g.names.local(f.Name)))
			}
		}
		b.Return(jen.Id("dst"))
	})
	g.f.Line()
}

// isNotice tells whether a push is one route beside plain numbers.
func (r *record) isNotice() bool {
	routes := 0
	for _, f := range r.fields {
		switch {
		case f.Presence.Kind != model.Always, f.kind != route && !f.plainNumber():
			return false
		case f.kind == route:
			routes++
		}
	}
	return routes == 1
}
