package emit

import "github.com/dave/jennifer/jen"

// pairs are the fields of a composite literal in the order in which a person would write them; jen.Dict sorts by name.
type pairs struct{ list []jen.Code }

func (p *pairs) add(name string, value jen.Code) {
	p.list = append(p.list, jen.Id(name).Op(":").Add(value))
}

// text adds a text unless it is empty.
func (p *pairs) text(name, value string) {
	if value != "" {
		p.add(name, jen.Lit(value))
	}
}

// flag adds a bool unless it is false.
func (p *pairs) flag(name string, value bool) {
	if value {
		p.add(name, jen.True())
	}
}

// line is the literal on one line.
func (p *pairs) line() []jen.Code { return p.list }

// block is the literal with one field on each line.
func (p *pairs) block() []jen.Code {
	if len(p.list) == 0 {
		return nil
	}
	out := make([]jen.Code, 0, len(p.list)+1)
	for _, c := range p.list {
		out = append(out, jen.Line().Add(c))
	}
	return append(out, jen.Line())
}
