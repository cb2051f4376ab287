package emit

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("wire registry", wireRegistry) }

// wireRegistry makes the parts of package wire that belong to no single message.
func wireRegistry(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	file := func(name string) messageGen { return messageGen{p, newGoFile(spec, wirePath, name)} }
	about, codes, caps, closes, texts, registry := file("wire.go"), file("codes.go"), file("capabilities.go"), file("closes.go"), file("texts.go"), file("registry.go")
	about.about()
	codes.codes()
	caps.capabilities()
	caps.access()
	closes.closeReasons()
	texts.fixedTexts()
	registry.registry()
	refusals := file("refusals.go")
	refusals.refusals()
	return renderAll(about.f, codes.f, caps.f, closes.f, texts.f, registry.f, refusals.f)
}

func (g messageGen) about() {
	g.f.PackageComment("// Package wire holds the messages of the " + g.Title + " protocol: types, codecs, codes, capabilities and texts.")
	g.f.PackageComment("//")
	g.f.PackageComment("// Every message is a Go type T with AppendValue and DecodeValue for the value of its record, and a TView that reads the same value")
	g.f.PackageComment("// without allocating. Both are strict; every error is a *codec.Error with kind, offset, field and code.")
	g.f.Add(doc("Version and fingerprint of the specification that this package was made from. A difference of the fingerprint is only reported, never a reason to refuse."))
	g.f.Const().Defs(
		jen.Id("SpecVersion").Op("=").Lit(g.Version),
		jen.Id("SpecFingerprint").Uint64().Op("=").Id(fmt.Sprintf("0x%016x", g.Fingerprint)),
		jen.Id("HelloVersion").Op("=").Lit(int(g.Wire.Version)),
	)
	g.f.Line()
	g.f.Add(doc("statusSuccess is the first byte of a success (errors.md section 1)."))
	g.f.Const().Id("statusSuccess").Op("=").Lit(int(g.status("success")))
	g.f.Line()
	g.f.Add(doc("defaultLimits are the bounds that hold when an operator changed none."))
	g.f.Var().Id("defaultLimits").Op("=").Qual(boundsPath, "Default").Call()
	g.f.Line()
}

// status is the first byte of an envelope.
func (g messageGen) status(name string) uint8 {
	if e := g.Envelope(name); e != nil {
		return e.Status
	}
	return 0
}

func codeName(n namer, name string) string { return "Code" + n.exported(strings.ToLower(name)) }

func capabilityName(n namer, c *model.Capability) string { return "Cap" + n.exported(c.Name) }

// dotted is the text of a code in an SDK: LEASE_HELD is lease.held.
func dotted(name string) string { return strings.Replace(strings.ToLower(name), "_", ".", 1) }

// codes writes the registry of error codes.
func (g messageGen) codes() {
	g.f.Add(doc("Code is the number of a refusal. Codes are open: an unknown one is kept (D-6, E-04)."))
	g.f.Type().Id("Code").Uint32()
	g.f.Line()
	g.f.Add(doc("The codes of errors.md sections 3 and 4."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, e := range g.Errors {
			c.Id(codeName(g.names, e.Name)).Id("Code").Op("=").Lit(int(e.Code)).Comment(remark(lower(e.Doc)))
		}
	})
	g.f.Line()
	g.words("Retry", "Retry says when a refused request may be sent again (errors.md section 2).", g.distinct(func(e *model.ErrorCode) string { return e.Retry }))
	g.words("Outcome", "Outcome says what a refused request did (errors.md section 2).", g.distinct(func(e *model.ErrorCode) string { return e.Outcome }))
	g.f.Add(doc("CodeInfo is one row of the registry."))
	g.f.Type().Id("CodeInfo").Struct(
		jen.Id("Code").Id("Code"),
		jen.Id("Name").String().Comment("LEASE_HELD"),
		jen.Id("Text").String().Comment("lease.held"),
		jen.Id("Domain").String(),
		jen.Id("Retry").Id("Retry"),
		jen.Id("Outcome").Id("Outcome").Comment("empty for codes that answer no request"),
		jen.Id("Class").String().Comment("error class of the SDKs"),
		jen.Id("Doc").String(),
	)
	g.f.Line()
	g.f.Add(doc("Codes is the registry, by number."))
	g.f.Var().Id("Codes").Op("=").Index().Id("CodeInfo").ValuesFunc(func(v *jen.Group) {
		for _, e := range g.sortedCodes() {
			v.Line().Values(g.codeRow(e)...)
		}
		v.Line()
	})
	g.f.Line()
	g.f.Add(doc("Info returns the row of the code, false when the registry has none."))
	g.f.Func().Params(jen.Id("c").Id("Code")).Id("Info").Params().Params(jen.Id("CodeInfo"), jen.Bool()).Block(
		jen.List(jen.Id("i"), jen.Id("found")).Op(":=").Qual("slices", "BinarySearchFunc").Call(jen.Id("Codes"), jen.Id("c"),
			jen.Func().Params(jen.Id("row").Id("CodeInfo"), jen.Id("c").Id("Code")).Int().Block(jen.Return(jen.Qual("cmp", "Compare").Call(jen.Id("row").Dot("Code"), jen.Id("c"))))),
		jen.If(jen.Op("!").Id("found")).Block(jen.Return(jen.Id("CodeInfo").Values(jen.Id("Code").Op(":").Id("c"), jen.Id("Retry").Op(":").Id("RetryNever")), jen.False())),
		jen.Return(jen.Id("Codes").Index(jen.Id("i")), jen.True()),
	)
	g.f.Line()
	g.f.Add(doc("String returns the name of the code: LEASE_HELD."))
	g.f.Func().Params(jen.Id("c").Id("Code")).Id("String").Params().String().Block(
		jen.If(jen.List(jen.Id("info"), jen.Id("known")).Op(":=").Id("c").Dot("Info").Call(), jen.Id("known")).Block(jen.Return(jen.Id("info").Dot("Name"))),
		jen.Return(jen.Lit("code ").Op("+").Qual("strconv", "FormatUint").Call(jen.Uint64().Call(jen.Id("c")), jen.Lit(10))),
	)
	g.f.Line()
}

func (g messageGen) codeRow(e *model.ErrorCode) []jen.Code {
	p := &pairs{}
	p.add("Code", jen.Id(codeName(g.names, e.Name)))
	p.text("Name", e.Name)
	p.text("Text", dotted(e.Name))
	p.text("Domain", e.Domain)
	p.add("Retry", g.word("Retry", e.Retry))
	if e.Outcome != "" {
		p.add("Outcome", g.word("Outcome", e.Outcome))
	}
	p.text("Class", e.Class)
	p.text("Doc", e.Doc)
	return p.line()
}

func (g messageGen) sortedCodes() []*model.ErrorCode {
	return slices.SortedFunc(slices.Values(g.Errors), func(a, b *model.ErrorCode) int { return int(a.Code) - int(b.Code) })
}

// distinct are the values of one column of the registry, in order of appearance.
func (g messageGen) distinct(column func(*model.ErrorCode) string) []string {
	var out []string
	for _, e := range g.Errors {
		if v := column(e); v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// words writes a string type with its values.
func (g messageGen) words(typ, comment string, values []string) {
	g.f.Add(doc(comment))
	g.f.Type().Id(typ).String()
	g.f.Line()
	g.f.Add(doc("The values of " + typ + "."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, v := range values {
			c.Id(typ + g.names.exported(v)).Id(typ).Op("=").Lit(v)
		}
	})
	g.f.Line()
}

func (g messageGen) word(typ, value string) jen.Code {
	return jen.Id(typ + g.names.exported(value))
}

// capabilities writes the bits of the hello.
func (g messageGen) capabilities() {
	g.f.Add(doc("Capabilities is a set of bits of the hello (wire.md section 5). Unknown bits are kept (D-6)."))
	g.f.Type().Id("Capabilities").Uint32()
	g.f.Line()
	g.f.Add(doc("The capabilities."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, b := range g.Wire.Capabilities {
			text := lower(b.Doc)
			if b.WaitsFor != "" {
				text += "; not announced before " + b.WaitsFor + " is built"
			}
			c.Add(doc(sentence(capabilityName(g.names, b) + ": " + text)))
			c.Id(capabilityName(g.names, b)).Id("Capabilities").Op("=").Lit(1).Op("<<").Lit(b.Bit)
		}
	})
	g.f.Line()
	g.f.Add(doc("AnnouncedCapabilities are the bits that a broker of this specification announces."))
	g.f.Const().Id("AnnouncedCapabilities").Op("=").Add(g.announced())
	g.f.Line()
	g.f.Add(doc("Has reports whether all bits of other are set."))
	g.f.Func().Params(jen.Id("c").Id("Capabilities")).Id("Has").Params(jen.Id("other").Id("Capabilities")).Bool().Block(
		jen.Return(jen.Id("c").Op("&").Id("other").Op("==").Id("other")))
	g.f.Line()
	g.f.Add(doc("Names returns the names of the bits that are set, lowest first; unknown ones are \"bit 19\"."))
	g.f.Func().Params(jen.Id("c").Id("Capabilities")).Id("Names").Params().Index().String().Block(
		jen.Var().Id("names").Index().String(),
		jen.For(jen.Id("bits").Op(":=").Id("c"), jen.Id("bits").Op("!=").Lit(0), jen.Id("bits").Op("&=").Id("bits").Op("-").Lit(1)).Block(
			jen.Id("names").Op("=").Append(jen.Id("names"), jen.Id("capabilityName").Call(jen.Id("bits").Op("&").Op("-").Id("bits")))),
		jen.Return(jen.Id("names")),
	)
	g.f.Line()
	g.f.Func().Id("capabilityName").Params(jen.Id("bit").Id("Capabilities")).String().BlockFunc(func(b *jen.Group) {
		b.Switch(jen.Id("bit")).BlockFunc(func(s *jen.Group) {
			for _, c := range g.Wire.Capabilities {
				s.Case(jen.Id(capabilityName(g.names, c))).Block(jen.Return(jen.Lit(c.Name)))
			}
		})
		b.Return(jen.Lit("bit ").Op("+").Qual("strconv", "Itoa").Call(jen.Qual("math/bits", "TrailingZeros32").Call(jen.Uint32().Call(jen.Id("bit")))))
	})
	g.f.Line()
}

func (g messageGen) announced() *jen.Statement {
	var out *jen.Statement
	for _, b := range g.Wire.Capabilities {
		switch {
		case !b.Announced:
		case out == nil:
			out = jen.Id(capabilityName(g.names, b))
		default:
			out = out.Op("|").Id(capabilityName(g.names, b))
		}
	}
	if out == nil {
		return jen.Id("Capabilities").Call(jen.Lit(0))
	}
	return out
}

// accessLevels are the levels of the specification language, weakest first.
var accessLevels = []struct{ name, doc string }{
	{"read", "may look"}, {"write", "may change"}, {"all", "may do everything"}, {"session", "needs no grant, only the session"},
}

// access writes the levels of access.
func (g messageGen) access() {
	g.f.Add(doc("AccessLevel is what a caller must be allowed to do with a route (auth.md section 4)."))
	g.f.Type().Id("AccessLevel").Uint8()
	g.f.Line()
	g.f.Add(doc("The levels of access."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for i, level := range accessLevels {
			c.Add(doc("Access" + upperFirst(level.name) + " " + level.doc + "."))
			if i == 0 {
				c.Id("Access" + upperFirst(level.name)).Id("AccessLevel").Op("=").Iota().Op("+").Lit(1)
				continue
			}
			c.Id("Access" + upperFirst(level.name))
		}
	})
	g.f.Line()
	g.f.Add(doc("String returns the name of the level."))
	g.f.Func().Params(jen.Id("a").Id("AccessLevel")).Id("String").Params().String().BlockFunc(func(b *jen.Group) {
		b.Switch(jen.Id("a")).BlockFunc(func(s *jen.Group) {
			for _, level := range accessLevels {
				s.Case(jen.Id("Access" + upperFirst(level.name))).Block(jen.Return(jen.Lit(level.name)))
			}
		})
		b.Return(jen.Lit("none"))
	})
	g.f.Line()
}

// closeReasons writes the ways in which the broker closes a session.
func (g messageGen) closeReasons() {
	g.f.Add(doc("CloseReason is one way in which the broker closes a session. Its text goes into the close frame of a WebSocket; over TCP the connection just ends."))
	g.f.Type().Id("CloseReason").Struct(
		jen.Id("Name").String(),
		jen.Id("Text").String(),
		jen.Id("WebSocket").Uint16().Comment("close code of RFC 6455"),
		jen.Id("Detail").Bool().Comment("the text is followed by a detail"),
	)
	g.f.Line()
	g.f.Add(doc("String returns the name of the reason."))
	g.f.Func().Params(jen.Id("c").Id("CloseReason")).Id("String").Params().String().Block(jen.Return(jen.Id("c").Dot("Name")))
	g.f.Line()
	g.f.Add(doc("The close reasons."))
	g.f.Var().DefsFunc(func(v *jen.Group) {
		for _, c := range g.Wire.CloseReasons {
			v.Add(doc(sentence("Close"+g.names.exported(c.Name)+": "+lower(c.Doc)) + " " + clauses(c.Clause)))
			p := &pairs{}
			p.text("Name", c.Name)
			p.text("Text", c.Text)
			p.add("WebSocket", jen.Lit(c.WebSocket))
			p.flag("Detail", c.Detail)
			v.Id("Close" + g.names.exported(c.Name)).Op("=").Id("CloseReason").Values(p.line()...)
		}
	})
	g.f.Line()
	g.f.Add(doc("CloseReasons are all of them, in the order of the specification."))
	g.f.Var().Id("CloseReasons").Op("=").Index().Id("CloseReason").ValuesFunc(func(v *jen.Group) {
		for _, c := range g.Wire.CloseReasons {
			v.Line().Id("Close" + g.names.exported(c.Name))
		}
		v.Line()
	})
	g.f.Line()
}

var placeholder = regexp.MustCompile(`\{([a-z_]+)\}`)

// fixedTexts writes the texts that are part of the contract: constants, and functions for texts with placeholders.
func (g messageGen) fixedTexts() {
	g.f.Add(doc("Texts that are part of the contract (errors.md section 6)."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, t := range g.Wire.FixedTexts {
			if !placeholder.MatchString(t.Text) {
				c.Id("Text" + g.names.exported(t.Name)).Op("=").Lit(t.Text).Comment(remark(clauses(t.Clause)))
			}
		}
	})
	g.f.Line()
	for _, t := range g.Wire.FixedTexts {
		if placeholder.MatchString(t.Text) {
			g.textFunction(t)
		}
	}
}

// textFunction writes the function of a text with placeholders. Those that count something are numbers.
func (g messageGen) textFunction(t *model.FixedText) {
	name := "Text" + g.names.exported(t.Name)
	var params []jen.Code
	var sum *jen.Statement
	add := func(part *jen.Statement) {
		if sum == nil {
			sum = part
			return
		}
		sum = sum.Op("+").Add(part)
	}
	rest := t.Text
	for {
		at := placeholder.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		if at[0] > 0 {
			add(jen.Lit(rest[:at[0]]))
		}
		word := rest[at[2]:at[3]]
		if word == "count" || word == "limit" {
			params = append(params, jen.Id(g.names.local(word)).Int())
			add(jen.Qual("strconv", "Itoa").Call(jen.Id(g.names.local(word))))
		} else {
			params = append(params, jen.Id(g.names.local(word)).String())
			add(jen.Id(g.names.local(word)))
		}
		rest = rest[at[1]:]
	}
	if rest != "" {
		add(jen.Lit(rest))
	}
	g.f.Add(doc(fmt.Sprintf("%s is the text %q. %s", name, t.Text, clauses(t.Clause))))
	g.f.Func().Id(name).Params(params...).String().Block(jen.Return(sum))
	g.f.Line()
}
