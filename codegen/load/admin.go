package load

import (
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

func (l *loader) admin() model.Admin {
	file := l.file("admin")
	return model.Admin{
		Pos:   file.pos(),
		Title: file.get("title").str(),
		Doc:   file.get("doc").str(),
		Paths: rows(file.get("paths"), func(k, v node) *model.AdminPath {
			return &model.AdminPath{
				Named:      named(k.str(), k, v),
				Path:       v.get("path").str(),
				Open:       v.get("open").boolean(),
				Parameters: list(v.get("parameters"), adminParameter),
				Answers:    list(v.get("answers"), adminAnswer),
			}
		}),
		Refusals: list(file.get("refusals"), adminAnswer),
		Types: rows(file.get("types"), func(k, v node) *model.AdminType {
			return &model.AdminType{Named: named(k.str(), k, v), Fields: list(v.get("fields"), adminField)}
		}),
	}
}

func adminParameter(v node) *model.AdminParameter {
	return &model.AdminParameter{
		Named:    named(v.get("name").str(), v, v),
		Type:     v.get("type").str(),
		Required: v.get("required").boolean(),
		Example:  v.get("example").str(),
	}
}

func adminAnswer(v node) *model.AdminAnswer {
	a := &model.AdminAnswer{Pos: v.pos(), Status: int(v.get("status").integer()), Token: v.get("token").boolean(), Type: v.get("type").str(), Doc: v.get("doc").str()}
	if example := v.get("example"); example.exists() {
		a.Example = value(example.n)
	}
	return a
}

func adminField(v node) *model.AdminField {
	f := &model.AdminField{
		Named:    named(v.get("name").str(), v, v),
		Type:     v.get("type").str(),
		Optional: v.get("optional").boolean(),
		Values:   v.get("values").strings(),
		Pattern:  v.get("pattern").str(),
	}
	if elem, ok := strings.CutPrefix(f.Type, "list<"); ok {
		f.Elem = strings.TrimSuffix(elem, ">")
	}
	return f
}
