package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("route", routeFiles) }

// routeFiles makes package route: the grammar of each scheme as values of package pattern.
func routeFiles(spec *model.Spec) ([]File, error) {
	names := newNamer(spec)
	f := newGoFile(spec, routePath, "route.go")
	f.PackageComment("// Package route holds the grammar of the routes of each domain (routes.md). The values are read only.")
	f.Add(doc("The grammars."))
	f.Var().DefsFunc(func(v *jen.Group) {
		for _, s := range spec.Routes.Schemes {
			v.Add(doc(schemeDoc(names, s)))
			v.Id(names.exported(s.Name)).Op("=").Qual(patternPath, "Grammar").Values(grammar(spec, names, s)...)
		}
	})
	f.Line()
	f.Add(doc("ByScheme are the grammars by the scheme of their routes."))
	f.Var().Id("ByScheme").Op("=").Map(jen.String()).Op("*").Qual(patternPath, "Grammar").ValuesFunc(func(v *jen.Group) {
		for _, s := range spec.Routes.Schemes {
			v.Line().Lit(s.Name).Op(":").Op("&").Id(names.exported(s.Name))
		}
		v.Line()
	})
	f.Line()
	return renderAll(f)
}

func schemeDoc(names namer, s *model.Scheme) string {
	text := fmt.Sprintf("%s: routes of 1 to route_segments_max segments", names.exported(s.Name))
	if s.Depth > 0 {
		text = fmt.Sprintf("%s: routes of %d segments", names.exported(s.Name), s.Depth)
	}
	return sentence(text) + " " + clauses(s.Clauses...)
}

func grammar(spec *model.Spec, names namer, s *model.Scheme) []jen.Code {
	bound := func(name string) jen.Code { return jen.Qual(boundsPath, names.exported(name)) }
	p := &pairs{}
	p.text("Scheme", s.Name)
	p.add("Depth", jen.Lit(s.Depth))
	p.add("MaxBytes", bound(spec.Routes.Bytes))
	p.add("MaxSegments", bound(spec.Routes.Segments))
	if len(s.Reserved) > 0 {
		p.add("Reserved", literals(s.Reserved))
		p.add("ReservedFrom", jen.Lit(s.ReservedFrom))
	}
	if len(s.Shapes) > 0 {
		p.add("Shapes", literals(s.Shapes))
	}
	p.flag("AllowSchemeless", s.Schemeless)
	p.add("ContainmentSegmentsMax", bound(spec.Routes.ContainmentSegments))
	p.add("ContainmentStatesMax", bound(spec.Routes.ContainmentStates))
	return p.block()
}

// literals is a slice of texts.
func literals(texts []string) jen.Code {
	return jen.Index().String().ValuesFunc(func(v *jen.Group) {
		for _, t := range texts {
			v.Lit(t)
		}
	})
}
