package emit

import (
	"fmt"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("bounds", boundsFiles) }

// boundsFiles makes package bounds: constants, what an operator may change, and the table of all bounds.
func boundsFiles(spec *model.Spec) ([]File, error) {
	g := boundsGen{spec, newNamer(spec), newGoFile(spec, boundsPath, "bounds.go")}
	g.f.PackageComment("// Package bounds holds every bound of the protocol by name (limits.md).")
	g.constants()
	g.table()
	limits := boundsGen{spec, g.names, newGoFile(spec, boundsPath, "limits.go")}
	limits.limits()
	return renderAll(g.f, limits.f)
}

type boundsGen struct {
	*model.Spec
	names namer
	f     *goFile
}

func (g boundsGen) constants() {
	g.f.Add(doc("The bounds with their defaults. The name tells the unit where it is a time; all others are in the unit of the table All."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, b := range g.Bounds {
			c.Add(doc(g.boundDoc(b)))
			c.Id(g.names.exported(b.Name)).Op("=").Lit(int(b.Default))
		}
	})
	g.f.Line()
}

// boundDoc says what is counted and what happens beyond.
func (g boundsGen) boundDoc(b *model.Bound) string {
	text := fmt.Sprintf("%s: %s, per %s", g.names.exported(b.Name), b.Unit, b.Scope)
	if len(b.Minus) > 0 {
		text += ", less the bytes of " + strings.Join(b.Minus, " and ")
	}
	if b.OperatorMayChange {
		text += ". An operator may change it"
	}
	if b.Beyond == "" || b.Beyond == "—" {
		return text + "."
	}
	return text + ". Beyond it: " + strings.TrimSuffix(b.Beyond, ".") + "."
}

// words writes a string type with its values in order of appearance.
func (g boundsGen) words(typ, comment string, column func(*model.Bound) string) {
	g.f.Add(doc(comment))
	g.f.Type().Id(typ).String()
	g.f.Line()
	g.f.Add(doc("The values of " + typ + "."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		seen := map[string]bool{}
		for _, b := range g.Bounds {
			v := column(b)
			if v != "" && !seen[v] {
				c.Id(typ + g.names.exported(v)).Id(typ).Op("=").Lit(v)
			}
			seen[v] = true
		}
	})
	g.f.Line()
}

func (g boundsGen) table() {
	g.words("Chooser", "Chooser says whose value is compared with a bound.", func(b *model.Bound) string { return b.ChosenBy })
	g.words("Reaction", "Reaction says what happens beyond a bound.", func(b *model.Bound) string { return b.Reaction })
	g.f.Add(doc("Bound is one row of the table of bounds."))
	g.f.Type().Id("Bound").Struct(
		jen.Id("Name").String(),
		jen.Id("Default").Int64(),
		jen.Id("Minus").Index().String().Comment("fields whose byte length is taken off"),
		jen.Id("Unit").String(),
		jen.Id("Scope").String(),
		jen.Id("ChosenBy").Id("Chooser"),
		jen.Id("OperatorMayChange").Bool(),
		jen.Id("Reaction").Id("Reaction"),
		jen.Id("Beyond").String().Comment("what happens beyond it, in words"),
		jen.Id("Because").String().Comment("why that"),
	)
	g.f.Line()
	g.f.Add(doc("All is the table of bounds, in the order of limits.md."))
	g.f.Var().Id("All").Op("=").Index().Id("Bound").ValuesFunc(func(v *jen.Group) {
		for _, b := range g.Bounds {
			v.Line().Values(g.row(b).line()...)
		}
		v.Line()
	})
	g.f.Line()
}

func (g boundsGen) row(b *model.Bound) *pairs {
	p := &pairs{}
	p.text("Name", b.Name)
	p.add("Default", jen.Id(g.names.exported(b.Name)))
	if len(b.Minus) > 0 {
		p.add("Minus", literals(b.Minus))
	}
	p.text("Unit", b.Unit)
	p.text("Scope", b.Scope)
	p.add("ChosenBy", jen.Id("Chooser"+g.names.exported(b.ChosenBy)))
	p.flag("OperatorMayChange", b.OperatorMayChange)
	p.add("Reaction", jen.Id("Reaction"+g.names.exported(b.Reaction)))
	p.text("Beyond", b.Beyond)
	p.text("Because", b.Because)
	return p
}

func (g boundsGen) changeable() []*model.Bound {
	var out []*model.Bound
	for _, b := range g.Bounds {
		if b.OperatorMayChange {
			out = append(out, b)
		}
	}
	return out
}

// limits writes what an operator may change.
func (g boundsGen) limits() {
	g.f.Add(doc("Limits are the bounds that an operator may change, in the unit of the table All."))
	g.f.Type().Id("Limits").StructFunc(func(s *jen.Group) {
		for _, b := range g.changeable() {
			s.Id(g.names.exported(b.Name)).Int64().Comment(remark(lower(b.Unit)))
		}
	})
	g.f.Line()
	g.f.Add(doc("Default returns the limits that hold when an operator changed none."))
	p := &pairs{}
	for _, b := range g.changeable() {
		p.add(g.names.exported(b.Name), jen.Id(g.names.exported(b.Name)))
	}
	g.f.Func().Id("Default").Params().Id("Limits").Block(
		jen.Return(jen.Id("Limits").Values(p.block()...)))
	g.f.Line()
	g.f.Add(doc("Set changes the limit of that name. It fails on an unknown name, on a bound that is a constant of the protocol, and on a value below 1."))
	g.f.Func().Params(self("l", "Limits")).Id("Set").Params(jen.Id("name").String(), jen.Id("value").Int64()).Error().Block(
		jen.Id("limit").Op(":=").Id("l").Dot("field").Call(jen.Id("name")),
		jen.Switch().Block(
			jen.Case(jen.Id("limit").Op("==").Nil().Op("&&").Id("isBound").Call(jen.Id("name"))).Block(
				jen.Return(jen.Qual("fmt", "Errorf").Call(jen.Lit("limit %s is a constant of the protocol"), jen.Id("name")))),
			jen.Case(jen.Id("limit").Op("==").Nil()).Block(
				jen.Return(jen.Qual("fmt", "Errorf").Call(jen.Lit("limit %q is unknown"), jen.Id("name")))),
			jen.Case(jen.Id("value").Op("<").Lit(1)).Block(
				jen.Return(jen.Qual("fmt", "Errorf").Call(jen.Lit("limit %s must be at least 1, not %d"), jen.Id("name"), jen.Id("value")))),
		),
		jen.Op("*").Id("limit").Op("=").Id("value"),
		jen.Return(jen.Nil()),
	)
	g.f.Line()
	g.f.Add(doc("Get returns the value in force of the bound of that name, which may be a constant of the protocol; false when there is no such bound."))
	g.f.Func().Params(self("l", "Limits")).Id("Get").Params(jen.Id("name").String()).Params(jen.Int64(), jen.Bool()).Block(
		jen.If(jen.Id("limit").Op(":=").Id("l").Dot("field").Call(jen.Id("name")), jen.Id("limit").Op("!=").Nil()).Block(jen.Return(jen.Op("*").Id("limit"), jen.True())),
		jen.For(jen.List(jen.Id("_"), jen.Id("b")).Op(":=").Range().Id("All")).Block(
			jen.If(jen.Id("b").Dot("Name").Op("==").Id("name")).Block(jen.Return(jen.Id("b").Dot("Default"), jen.True()))),
		jen.Return(jen.Lit(0), jen.False()),
	)
	g.f.Line()
	g.f.Func().Id("isBound").Params(jen.Id("name").String()).Bool().Block(
		jen.Return(jen.Qual("slices", "ContainsFunc").Call(jen.Id("All"), jen.Func().Params(jen.Id("b").Id("Bound")).Bool().Block(jen.Return(jen.Id("b").Dot("Name").Op("==").Id("name"))))))
	g.f.Line()
	g.f.Add(doc("field returns where the limit of that name is kept, nil when there is none."))
	g.f.Func().Params(self("l", "Limits")).Id("field").Params(jen.Id("name").String()).Op("*").Int64().BlockFunc(func(b *jen.Group) {
		b.Switch(jen.Id("name")).BlockFunc(func(s *jen.Group) {
			for _, bound := range g.changeable() {
				s.Case(jen.Lit(bound.Name)).Block(jen.Return(jen.Op("&").Id("l").Dot(g.names.exported(bound.Name))))
			}
		})
		b.Return(jen.Nil())
	})
	g.f.Line()
}
