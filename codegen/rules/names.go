package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/model"
)

var nameRules = []Rule{
	{"NAME_COLLISION", "Names of one scope differ after conversion to the case of every output language.", nameCollisions},
	{"NAME_RESERVED", "No name is a reserved word of an output language.", nameReserved},
	{"DOC_KEY_NAME", "No part has the name of a documentation key, which the fingerprint would not see.", docKeyNames},
	{"TYPE_UNUSED", "Every enumeration, struct and union is used.", typeUnused},
}

// scope is names that stand beside each other in generated code.
type scope struct {
	what  string
	names []model.Named
}

// take appends the names of a list of parts.
func take[T any](s *scope, list []T, named func(T) model.Named) {
	for _, x := range list {
		s.names = append(s.names, named(x))
	}
}

// scopes returns every scope of the specification.
func (c *checker) scopes() []scope {
	out := []scope{c.typeScope()}
	one := func(what string, fill func(*scope)) {
		s := scope{what: what}
		fill(&s)
		out = append(out, s)
	}
	spec := c.spec
	one("bounds", func(s *scope) { take(s, spec.Bounds, func(b *model.Bound) model.Named { return b.Named }) })
	one("codes and conditions", func(s *scope) {
		take(s, spec.Errors, func(e *model.ErrorCode) model.Named { return e.Named })
		take(s, spec.Local, func(e *model.LocalError) model.Named { return e.Named })
	})
	one("classes", func(s *scope) { take(s, spec.Classes, func(e *model.ErrorClass) model.Named { return e.Named }) })
	one("capabilities", func(s *scope) {
		take(s, spec.Wire.Capabilities, func(e *model.Capability) model.Named { return e.Named })
	})
	one("close reasons", func(s *scope) {
		take(s, spec.Wire.CloseReasons, func(e *model.CloseReason) model.Named { return e.Named })
	})
	one("fixed texts", func(s *scope) { take(s, spec.Wire.FixedTexts, func(e *model.FixedText) model.Named { return e.Named }) })
	one("route reasons", func(s *scope) {
		take(s, spec.Routes.Reasons, func(e *model.RouteReason) model.Named { return e.Named })
	})
	one("schemes", func(s *scope) { take(s, spec.Routes.Schemes, func(e *model.Scheme) model.Named { return e.Named }) })
	for _, g := range spec.Metrics {
		one("metrics", func(s *scope) { take(s, g.Metrics, func(m *model.Metric) model.Named { return m.Named }) })
	}
	for _, d := range spec.Domains {
		out = append(out, domainScopes(d)...)
	}
	for _, e := range spec.Wire.Envelopes {
		out = append(out, fieldScope(e.Name, e.Fields))
	}
	return out
}

// typeScope is the names of all types that are generated for messages: they share one package in most languages.
func (c *checker) typeScope() scope {
	s := scope{what: "types"}
	add := func(d *model.Domain, n model.Named, suffix string) {
		n.Name = d.Name + "_" + n.Name + suffix
		s.names = append(s.names, n)
	}
	for _, d := range c.spec.Domains {
		for _, op := range d.Operations {
			add(d, op.Named, "_request")
			add(d, op.Named, "_reply")
			add(d, op.Named, "") // its number
		}
		for _, m := range d.Messages {
			add(d, m.Named, "")
		}
		for _, e := range d.Enums {
			add(d, e.Named, "")
		}
		for _, x := range d.Structs {
			add(d, x.Named, "")
		}
		for _, u := range d.Unions {
			add(d, u.Named, "")
		}
		for _, r := range d.Reasons {
			add(d, r.Named, "")
		}
	}
	return s
}

func domainScopes(d *model.Domain) []scope {
	methods := scope{what: "methods of " + d.Name}
	for _, op := range d.Operations {
		n := op.Named
		n.Name, n.Pos = op.SDKName, op.Where("sdk_name")
		methods.names = append(methods.names, n)
	}
	out := []scope{methods}
	for _, e := range d.Enums {
		s := scope{what: "values of " + e.Name}
		take(&s, e.Values, func(v *model.EnumValue) model.Named { return v.Named })
		out = append(out, s)
	}
	for _, u := range d.Unions {
		s := scope{what: "variants of " + u.Name}
		take(&s, u.Variants, func(v *model.Variant) model.Named { return v.Named })
		out = append(out, s)
		for _, v := range u.Variants {
			out = append(out, fieldScope(v.Name, v.Fields))
		}
	}
	for _, x := range d.Structs {
		out = append(out, fieldScope(x.Name, x.Fields))
	}
	for _, op := range d.Operations {
		out = append(out, fieldScope(op.Name, op.Request), fieldScope(op.Name, op.Reply))
	}
	for _, m := range d.Messages {
		out = append(out, fieldScope(m.Name, m.Fields))
	}
	for _, r := range d.Reasons {
		s := scope{what: "reasons of " + r.Name}
		take(&s, r.Values, func(v *model.ReasonValue) model.Named { return v.Named })
		out = append(out, s)
	}
	return out
}

func fieldScope(owner string, fields []*model.Field) scope {
	s := scope{what: "fields of " + owner}
	take(&s, fields, func(f *model.Field) model.Named { return f.Named })
	return s
}

// folded is a name without what case conversion takes away.
func folded(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", ".", "", "-", "").Replace(name))
}

func nameCollisions(c *checker) {
	for _, s := range c.scopes() {
		seen := map[string]string{}
		for _, n := range s.names {
			key := folded(n.Name)
			if first, ok := seen[key]; ok {
				c.add(n.Pos, fmt.Sprintf("among the %s, %s collides with %s", s.what, n.Name, first), "rename one of the two")
				continue
			}
			seen[key] = n.Name
		}
	}
}

// reserved is the reserved words of Go, TypeScript, Python, Rust and C# that a name in lower case can be.
var reserved = strings.Fields(`
abstract and any arguments as assert async await base become bool boolean box break byte case catch chan char checked class const constructor
continue crate debugger decimal declare def default defer del delegate delete do double dyn elif else enum eval event except explicit export
extends extern fallthrough false final finally fixed float fn for foreach from func function gen global go goto if impl implements implicit import
in instanceof int interface internal is lambda let lock long loop macro map match mod module move mut namespace new nil none nonlocal not null
number object operator or out override package params pass priv private protected public pub raise range readonly ref return sbyte sealed select
self short sizeof stackalloc static str string struct super switch symbol this throw trait true try type typeof uint ulong unchecked undefined
union unsafe unsized ushort use using var virtual void volatile where while with yield`)

func nameReserved(c *checker) {
	check := func(n model.Named) {
		if slices.Contains(reserved, n.Name) {
			c.add(n.Pos, fmt.Sprintf("%s is a reserved word of an output language", n.Name), "use another word")
		}
	}
	for _, d := range c.spec.Domains {
		check(d.Named)
		for _, s := range domainScopes(d) {
			for _, n := range s.names {
				check(n)
			}
		}
		for _, m := range d.Messages {
			check(m.Named)
		}
	}
}

func docKeyNames(c *checker) {
	keys := load.DocumentationKeys()
	for _, n := range c.keyed() {
		if slices.Contains(keys, n.Name) {
			c.add(n.Pos, fmt.Sprintf("%s is a documentation key, so the fingerprint does not see what stands below it", n.Name), "use another word")
		}
	}
}

// keyed is every part whose name is a key of its file.
func (c *checker) keyed() []model.Named {
	var s scope
	spec := c.spec
	take(&s, spec.Bounds, func(x *model.Bound) model.Named { return x.Named })
	take(&s, spec.CodeRanges, func(x *model.CodeRange) model.Named { return x.Named })
	take(&s, spec.Wire.FixedTexts, func(x *model.FixedText) model.Named { return x.Named })
	take(&s, spec.Wire.Forms, func(x *model.AnswerForm) model.Named { return x.Named })
	take(&s, spec.Wire.Outbound, func(x *model.OutboundShare) model.Named { return x.Named })
	take(&s, spec.Routes.Schemes, func(x *model.Scheme) model.Named { return x.Named })
	take(&s, spec.SDK.Packages, func(x *model.Package) model.Named { return x.Named })
	take(&s, spec.SDK.Defaults, func(x *model.Default) model.Named { return x.Named })
	take(&s, spec.SDK.States, func(x *model.StateList) model.Named { return x.Named })
	take(&s, spec.Broker.Listeners, func(x *model.Listener) model.Named { return x.Named })
	take(&s, spec.Broker.Settings, func(x *model.Setting) model.Named { return x.Named })
	take(&s, spec.Admin.Paths, func(x *model.AdminPath) model.Named { return x.Named })
	take(&s, spec.Admin.Types, func(x *model.AdminType) model.Named { return x.Named })
	take(&s, spec.Metrics, func(x *model.MetricGroup) model.Named { return x.Named })
	for _, d := range spec.Domains {
		take(&s, d.Enums, func(x *model.Enum) model.Named { return x.Named })
		take(&s, d.Structs, func(x *model.Struct) model.Named { return x.Named })
		take(&s, d.Unions, func(x *model.Union) model.Named { return x.Named })
		take(&s, d.Operations, func(x *model.Operation) model.Named { return x.Named })
		take(&s, d.Messages, func(x *model.Message) model.Named { return x.Named })
		take(&s, d.Reasons, func(x *model.ReasonTable) model.Named { return x.Named })
		for _, e := range d.Enums {
			take(&s, e.Values, func(x *model.EnumValue) model.Named { return x.Named })
		}
		for _, u := range d.Unions {
			take(&s, u.Variants, func(x *model.Variant) model.Named { return x.Named })
		}
		for _, r := range d.Reasons {
			take(&s, r.Values, func(x *model.ReasonValue) model.Named { return x.Named })
		}
	}
	return s.names
}

func typeUnused(c *checker) {
	used := map[string]bool{}
	for _, p := range c.fields {
		if p.domain != nil {
			used[p.domain.Name+"."+element(p.Field)] = true
		}
	}
	for _, d := range c.spec.Domains {
		check := func(n model.Named) {
			if !used[d.Name+"."+n.Name] {
				c.add(n.Pos, fmt.Sprintf("nothing uses %s", n.Name), "use it or remove it")
			}
		}
		for _, e := range d.Enums {
			check(e.Named)
		}
		for _, s := range d.Structs {
			check(s.Named)
		}
		for _, u := range d.Unions {
			check(u.Named)
		}
	}
}
