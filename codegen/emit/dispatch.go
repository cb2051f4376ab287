package emit

import (
	"fmt"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("dispatch", dispatchFiles) }

// dispatchFiles makes package dispatch: from a record to the typed handler of its domain.
func dispatchFiles(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	table := dispatchGen{messageGen{p, newGoFile(spec, dispatchPath, "dispatch.go")}}
	table.f.PackageComment("// Package dispatch leads every request to the handler of its domain: it decodes, classifies the route, asks for permission and checks the")
	table.f.PackageComment("// bounds, in the order of auth.md section 5. A domain without a handler does not compile.")
	table.table()
	files := []*goFile{table.f}
	for _, d := range p.domains {
		if len(d.Operations) == 0 {
			continue
		}
		g := dispatchGen{messageGen{p, newGoFile(spec, dispatchPath, d.Name+".go")}}
		g.domain(d)
		files = append(files, g.f)
	}
	return renderAll(files...)
}

type dispatchGen struct{ messageGen }

// served are the domains that have operations.
func (g dispatchGen) served() []*domain {
	var out []*domain
	for _, d := range g.domains {
		if len(d.Operations) > 0 {
			out = append(out, d)
		}
	}
	return out
}

func (g dispatchGen) handler(d *domain) string { return g.names.exported(d.Name) + "Handler" }

func sessionParam() jen.Code { return jen.Id("s").Qual(peerPath, "Session") }
func callParam() jen.Code    { return jen.Id("call").Qual(peerPath, "Call") }

// table writes Table with its two entrances.
func (g dispatchGen) table() {
	g.f.Add(doc("Outcome says what became of a record."))
	g.f.Type().Id("Outcome").Uint8()
	g.f.Line()
	g.f.Add(doc("The outcomes of Dispatch."))
	g.f.Const().Defs(
		doc("Done: the request was handed to its domain or refused."), jen.Id("Done").Id("Outcome").Op("=").Iota(),
		doc("Malformed: the request was refused and counts for session_malformed_max (W-06)."), jen.Id("Malformed"),
		doc("Unknown: no request has this number; nothing was answered (W-05)."), jen.Id("Unknown"),
	)
	g.f.Line()
	g.f.Add(doc("Table knows the handler of every domain. It is safe for concurrent use when the handlers are."))
	g.f.Type().Id("Table").StructFunc(func(s *jen.Group) {
		s.Id("limits").Qual(boundsPath, "Limits")
		for _, d := range g.served() {
			s.Id(g.names.local(d.Name)).Id(g.handler(d))
		}
	})
	g.f.Line()
	g.f.Add(doc("New returns a table of these handlers. Requests are checked against the limits."))
	handlers := &pairs{}
	handlers.add("limits", jen.Id("limits"))
	for _, d := range g.served() {
		handlers.add(g.names.local(d.Name), jen.Id(g.names.local(d.Name)))
	}
	g.f.Func().Id("New").ParamsFunc(func(p *jen.Group) {
		p.Id("limits").Qual(boundsPath, "Limits")
		for _, d := range g.served() {
			p.Id(g.names.local(d.Name)).Id(g.handler(d))
		}
	}).Op("*").Id("Table").Block(
		jen.Return(jen.Op("&").Id("Table").Values(handlers.line()...)))
	g.f.Line()
	g.f.Add(doc("Dispatch handles one request. The value is only looked at until Dispatch returns: handlers copy what they keep (D-8)."))
	g.f.Func().Params(self("t", "Table")).Id("Dispatch").Params(sessionParam(), callParam(), jen.Id("value").Index().Byte()).Id("Outcome").BlockFunc(func(b *jen.Group) {
		b.Switch(jen.Id("call").Dot("Type")).BlockFunc(func(s *jen.Group) {
			for _, d := range g.served() {
				for _, op := range d.Operations {
					s.Case(jen.Qual(wirePath, "Type"+g.names.in(d.Domain, op.Name))).Block(
						jen.Return(jen.Id("t").Dot(g.method(d, op)).Call(jen.Id("s"), jen.Id("call"), jen.Id("value"))))
				}
			}
		})
		b.Return(jen.Id("Unknown"))
	})
	g.f.Line()
	g.f.Add(doc("Cancel gives up a request that waits (W-70 to W-76). False: it waits no more, or never could; its last reply is enqueued then."))
	g.f.Func().Params(self("t", "Table")).Id("Cancel").Params(sessionParam(), callParam()).Bool().BlockFunc(func(b *jen.Group) {
		b.Switch(jen.Id("call").Dot("Type")).BlockFunc(func(s *jen.Group) {
			for _, d := range g.served() {
				for _, op := range d.Operations {
					if op.Deferred != nil && op.Deferred.Cancellable {
						s.Case(jen.Qual(wirePath, "Type"+g.names.in(d.Domain, op.Name))).Block(
							jen.Return(jen.Id("t").Dot(g.names.local(d.Name)).Dot("Cancel").Call(jen.Id("s"), jen.Id("call"))))
					}
				}
			}
		})
		b.Return(jen.False())
	})
	g.f.Line()
	g.refusals()
}

// refusals writes the ways to answer a request that its handler never sees.
func (g dispatchGen) refusals() {
	g.f.Add(doc("refusalCounter is told of the requests that a handler never sees."))
	g.f.Type().Id("refusalCounter").Interface(jen.Id("Refused").Params(callParam(), jen.Id("code").Qual(wirePath, "Code")))
	g.f.Line()
	g.f.Add(doc("refuse answers a request, and lets the handler that does not see it count it."))
	handler := jen.Id("handler").Id("refusalCounter")
	g.f.Func().Id("refuse").Params(sessionParam(), callParam(), handler, jen.Id("code").Qual(wirePath, "Code"), jen.Id("text").String()).Block(
		jen.Id("handler").Dot("Refused").Call(jen.Id("call"), jen.Id("code")),
		jen.Id("s").Dot("Refuse").Call(jen.Id("call"), jen.Id("code"), jen.Id("text")),
	)
	g.f.Line()
	g.f.Add(doc("refuseMistake answers a mistake that the codec found with the code and text that the specification gives it."))
	g.f.Func().Id("refuseMistake").Params(sessionParam(), callParam(), handler, jen.Err().Error()).Block(
		jen.Id("mistake").Op(":=").Qual(codecPath, "AsError").Call(jen.Err()),
		jen.Id("refuse").Call(jen.Id("s"), jen.Id("call"), jen.Id("handler"), jen.Qual(wirePath, "Code").Call(jen.Id("mistake").Dot("Code").Call()), jen.Id("mistake").Dot("Text").Call()),
	)
	g.f.Line()
}

// method is the method of Table that serves an operation: leaseAcquire.
func (g dispatchGen) method(d *domain, op *model.Operation) string {
	return g.names.local(d.Name) + g.names.exported(op.Name)
}

// domain writes the handler interface of a domain and what leads to it.
func (g dispatchGen) domain(d *domain) {
	g.f.Add(doc(fmt.Sprintf("%s handles the requests of the domain %s. Its methods answer through the session, at once or later. Route, selector and request alias the received "+
		"value and are valid until the method returns.", g.handler(d), d.Name)))
	g.f.Type().Id(g.handler(d)).InterfaceFunc(func(i *jen.Group) {
		for _, op := range d.Operations {
			i.Add(doc(sentence(g.names.exported(op.Name) + ": " + lower(op.Doc))))
			i.Id(g.names.exported(op.Name)).Params(g.handlerParams(d, op)...)
		}
		i.Add(doc("Refused counts a request that came to none of the other methods: it was malformed, its route or selector is none, no grant contains it, or it is beyond a bound. It is answered with the code."))
		i.Id("Refused").Params(callParam(), jen.Id("code").Qual(wirePath, "Code"))
		if d.cancellable() {
			i.Add(doc("Cancel detaches the waiting request call (W-70 to W-76); false when it waits no more: its last reply is enqueued then."))
			i.Id("Cancel").Params(sessionParam(), callParam()).Bool()
		}
	})
	g.f.Line()
	g.everything(d)
	for _, r := range d.records {
		if r.part == requestPart {
			g.operation(d, r)
		}
	}
}

func (d *domain) cancellable() bool {
	for _, op := range d.Operations {
		if op.Deferred != nil && op.Deferred.Cancellable {
			return true
		}
	}
	return false
}

// routeField is the field whose text is classified before the handler is asked: the one that decides about permission, else the first. Nil
// when there is none.
func (d *domain) routeField(op *model.Operation) *model.Field {
	var first *model.Field
	for _, f := range op.Request {
		if f.Type != "route" && f.Type != "selector" || f.Presence.Kind != model.Always {
			continue
		}
		if op.Access != nil && f.Name == op.Access.On {
			return f
		}
		if first == nil {
			first = f
		}
	}
	return first
}

func (g dispatchGen) handlerParams(d *domain, op *model.Operation) []jen.Code {
	params := []jen.Code{sessionParam(), callParam()}
	if f := d.routeField(op); f != nil {
		params = append(params, jen.Id(f.Type).Qual(patternPath, upperFirst(f.Type)))
	}
	return append(params, jen.Id("req").Qual(wirePath, g.names.in(d.Domain, op.Name)+"RequestView"))
}

// operation writes the steps from the value of a request to its handler.
func (g dispatchGen) operation(d *domain, r *record) {
	op := r.op
	g.f.Add(doc(fmt.Sprintf("%s serves message %d.", g.method(d, op), op.Number)))
	g.f.Func().Params(self("t", "Table")).Id(g.method(d, op)).Params(sessionParam(), callParam(), jen.Id("value").Index().Byte()).Id("Outcome").BlockFunc(func(b *jen.Group) {
		b.Var().Id("req").Qual(wirePath, r.goName+"View")
		decode := jen.Id("req").Dot("DecodeValue").Call(jen.Id("value"))
		if r.limited {
			decode = jen.Id("req").Dot("DecodeValueWithin").Call(jen.Id("value"), jen.Op("&").Id("t").Dot("limits"))
		}
		b.Id("mistake").Op(":=").Add(decode)
		b.If(jen.Qual(codecPath, "Malformed").Call(jen.Id("mistake"))).Block(
			g.refuseMistake(d),
			jen.Return(jen.Id("Malformed")),
		)
		args := []jen.Code{jen.Id("s"), jen.Id("call")}
		if f := d.routeField(op); f != nil {
			g.classify(b, d, op, f)
			args = append(args, jen.Id("target"))
		}
		g.authorize(b, d, op)
		b.If(jen.Id("mistake").Op("!=").Nil()).Block(
			g.refuseMistake(d),
			jen.Return(jen.Id("Done")),
		)
		b.Id("t").Dot(g.names.local(d.Name)).Dot(g.names.exported(op.Name)).Call(append(args, jen.Id("req"))...)
		b.Return(jen.Id("Done"))
	})
	g.f.Line()
}

// refuseMistake refuses for a mistake that the codec found.
func (g dispatchGen) refuseMistake(d *domain) jen.Code {
	return jen.Id("refuseMistake").Call(jen.Id("s"), jen.Id("call"), jen.Id("t").Dot(g.names.local(d.Name)), jen.Id("mistake"))
}

// refusal refuses with a code and ends.
func (g dispatchGen) refusal(d *domain, code string, message jen.Code) []jen.Code {
	return []jen.Code{
		jen.Id("refuse").Call(jen.Id("s"), jen.Id("call"), jen.Id("t").Dot(g.names.local(d.Name)), jen.Qual(wirePath, codeName(g.names, code)), message),
		jen.Return(jen.Id("Done")),
	}
}

// classify writes step 3 of auth.md section 5: the grammar.
func (g dispatchGen) classify(b *jen.Group, d *domain, op *model.Operation, f *model.Field) {
	parse := map[string]string{"route": "ParseRoute", "selector": "ParseSelector"}[f.Type]
	text := jen.Qual(codecPath, "Alias").Call(jen.Id("req").Dot(g.names.exported(f.Name)))
	b.List(jen.Id("target"), jen.Err()).Op(":=").Qual(routePath, g.names.exported(d.Scheme)).Dot(parse).Call(text)
	b.If(jen.Err().Op("!=").Nil()).Block(g.refusal(d, op.Faults.Route, jen.Err().Dot("Error").Call())...)
}

// authorize writes step 4 of auth.md section 5: the permission.
func (g dispatchGen) authorize(b *jen.Group, d *domain, op *model.Operation) {
	if op.Access == nil || op.Access.Level == "session" {
		return
	}
	allow, on := "Authorize", jen.Id("target")
	if f := d.routeField(op); f != nil && f.Type == "route" {
		allow = "AuthorizeRoute"
	}
	if op.Access.As == "everything" {
		allow, on = "Authorize", jen.Id("every"+g.names.exported(d.Name))
	}
	b.If(jen.Op("!").Id("s").Dot(allow).Call(jen.Qual(wirePath, "Access"+upperFirst(op.Access.Level)), on)).
		Block(g.refusal(d, op.Faults.Denied, jen.Qual(wirePath, "TextPermissionDenied"))...)
}

// everything writes the selector of all routes of a domain, when an operation needs permission on it.
func (g dispatchGen) everything(d *domain) {
	for _, op := range d.Operations {
		if op.Access == nil || op.Access.As != "everything" {
			continue
		}
		name := "every" + g.names.exported(d.Name)
		g.f.Add(doc(name + " selects every route of the domain."))
		g.f.Var().Id(name).Op("=").Func().Params().Qual(patternPath, "Selector").Block(
			jen.List(jen.Id("all"), jen.Err()).Op(":=").Qual(routePath, g.names.exported(d.Scheme)).Dot("ParseGrant").Call(
				jen.Lit(d.Scheme+g.Routes.Separator+g.Routes.Many)),
			jen.If(jen.Err().Op("!=").Nil()).Block(jen.Panic(jen.Err())),
			jen.Return(jen.Id("all")),
		).Call()
		g.f.Line()
		return
	}
}
