package emit

import (
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("wire fields", wireFields) }

// wireFields makes, for each domain, the file of the fields as errors and tables name them.
func wireFields(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	var files []*goFile
	for _, d := range p.domains {
		g := messageGen{p, newGoFile(spec, wirePath, d.Name+"_fields.go")}
		for _, r := range d.records {
			g.fieldVars(r)
		}
		files = append(files, g.f)
	}
	return renderAll(files...)
}

// fieldVars writes the fields of one record.
func (g messageGen) fieldVars(r *record) {
	rules := ""
	if len(r.clauses) > 0 {
		rules = "rules" + r.goName
		g.f.Const().Id(rules).Op("=").Lit(strings.Join(r.clauses, ", "))
		g.f.Line()
	}
	g.f.Add(doc("Fields of " + r.goName + " as errors name them."))
	g.f.Var().DefsFunc(func(v *jen.Group) {
		v.Id(messageVar(r)).Op("=").Qual(codecPath, "Field").Values(g.fieldValues(r.path, "", "", "", rules)...)
		if r.part == replyPart {
			v.Id(statusVar(r)).Op("=").Qual(codecPath, "Field").Values(g.fieldValues(r.path+".status", "", "", "", rules)...)
		}
		for _, f := range r.fields {
			v.Id(f.varName).Op("=").Qual(codecPath, "Field").Values(g.fieldValues(r.path+"."+f.Name, f.boundName(), f.code, f.Text, rules)...)
		}
	})
	g.f.Line()
}

// boundName is the name of the bound that a mistake of size is about.
func (f *field) boundName() string {
	switch {
	case f.most != nil:
		return f.most.Name
	case f.highest != nil && f.highest.bound != nil:
		return f.highest.bound.Name
	}
	return ""
}

func (g messageGen) fieldValues(path, bound, code, text, rules string) []jen.Code {
	p := &pairs{}
	p.text("Name", path)
	p.text("Bound", bound)
	if code != "" {
		p.add("Code", jen.Id("uint32").Call(jen.Id(codeName(g.names, code))))
	}
	p.text("Text", text)
	if rules != "" {
		p.add("Clause", jen.Id(rules))
	}
	return p.line()
}
