package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

// enums writes the enumerations of a domain.
func (g messageGen) enums(d *domain) {
	for _, e := range d.Enums {
		kind := "open: unknown numbers are kept (D-6)"
		if e.Closed {
			kind = "closed: unknown numbers are malformed (D-6)"
		}
		values := make([]enumValue, 0, len(e.Values))
		for _, v := range e.Values {
			values = append(values, enumValue{v.Name, v.Doc, v.Value})
		}
		name := g.names.in(d.Domain, e.Name)
		g.enumType(name, e.Type, fmt.Sprintf("%s: %s. The enumeration is %s.", name, lower(e.Doc), kind), values)
	}
}

// unionTag writes the enumeration of the forms of a union.
func (g messageGen) unionTag(r *record) {
	name := r.goName + "Kind"
	values := make([]enumValue, 0, len(r.union.Variants))
	for _, v := range r.union.Variants {
		values = append(values, enumValue{v.Name, v.Doc, v.Value})
	}
	g.enumType(name, r.union.Tag, fmt.Sprintf("%s says which form of %s is on the wire; unknown numbers are malformed (D-6).", name, r.goName), values)
}

type enumValue struct {
	name, doc string
	value     uint64
}

// enumType writes type, values, String and Known of an enumeration.
func (g messageGen) enumType(name, wire, comment string, values []enumValue) {
	typ := "uint" + wire[1:]
	g.f.Add(doc(comment))
	g.f.Type().Id(name).Id(typ)
	g.f.Line()
	g.f.Add(doc("The values of " + name + "."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, v := range values {
			c.Add(doc(sentence(name + g.names.exported(v.name) + ": " + lower(v.doc))))
			c.Id(name + g.names.exported(v.name)).Id(name).Op("=").Lit(int(v.value))
		}
	})
	g.f.Line()
	g.f.Add(doc("String returns the name of the value as the specification writes it."))
	g.f.Func().Params(jen.Id("e").Id(name)).Id("String").Params().String().BlockFunc(func(b *jen.Group) {
		b.Switch(jen.Id("e")).BlockFunc(func(s *jen.Group) {
			for _, v := range values {
				s.Case(jen.Id(name + g.names.exported(v.name))).Block(jen.Return(jen.Lit(v.name)))
			}
		})
		b.Return(jen.Lit("unknown ").Op("+").Qual("strconv", "FormatUint").Call(jen.Uint64().Call(jen.Id("e")), jen.Lit(10)))
	})
	g.f.Line()
	g.f.Add(doc("Known reports whether the number belongs to the enumeration."))
	g.f.Func().Params(jen.Id("e").Id(name)).Id("Known").Params().Bool().Block(jen.Return(g.knownValues(name, values)))
	g.f.Line()
}

// knownValues is the condition that a number belongs to an enumeration: one comparison when its values are 0 to n.
func (g messageGen) knownValues(name string, values []enumValue) jen.Code {
	last, dense := values[0], len(values)
	for _, v := range values {
		if v.value >= last.value {
			last = v
		}
	}
	if last.value == uint64(dense-1) {
		return jen.Id("e").Op("<=").Id(name + g.names.exported(last.name))
	}
	var out *jen.Statement
	for _, v := range values {
		cond := jen.Id("e").Op("==").Id(name + g.names.exported(v.name))
		if out == nil {
			out = cond
			continue
		}
		out = out.Op("||").Add(cond)
	}
	return out
}

// reasonTables writes the reasons of codes, in check order.
func (g messageGen) reasonTables(d *model.Domain) {
	for _, t := range d.Reasons {
		name := g.names.in(d, t.Name)
		g.f.Add(doc(fmt.Sprintf("%s says why %s is answered: %s. The values stand in the order in which they are checked; String returns the fixed text.",
			name, t.Code, lower(t.Doc))))
		g.f.Type().Id(name).Uint8()
		g.f.Line()
		g.f.Add(doc("The values of " + name + ", in check order."))
		g.f.Const().DefsFunc(func(c *jen.Group) {
			for i, v := range t.Values {
				c.Add(doc(sentence(name+g.names.exported(v.Name)+": "+lower(v.Doc)) + " " + clauses(v.Clause)))
				if i == 0 {
					c.Id(name + g.names.exported(v.Name)).Id(name).Op("=").Iota().Op("+").Lit(1)
					continue
				}
				c.Id(name + g.names.exported(v.Name))
			}
		})
		g.f.Line()
		g.f.Add(doc("String returns the fixed text of the reason."))
		g.f.Func().Params(jen.Id("e").Id(name)).Id("String").Params().String().BlockFunc(func(b *jen.Group) {
			b.Switch(jen.Id("e")).BlockFunc(func(s *jen.Group) {
				for _, v := range t.Values {
					s.Case(jen.Id(name + g.names.exported(v.Name))).Block(jen.Return(jen.Lit(v.Text)))
				}
			})
			b.Return(jen.Lit("unknown ").Op("+").Qual("strconv", "Itoa").Call(jen.Int().Call(jen.Id("e"))))
		})
		g.f.Line()
	}
}
