package emit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dave/jennifer/jen"
)

// row is one message number of the registry.
type row struct {
	number      int
	constName   string
	name        string
	domain      string
	class       string
	toBroker    bool
	toClient    bool
	needs       string
	doc         string
	cancellable bool
}

// numbers are the rows of which each is the first of its number: the same number may mean one thing to the broker and another to the client.
// Directions are those of all rows of the number.
func numbers(rows []row) []row {
	var out []row
	for _, r := range rows {
		if n := len(out); n > 0 && out[n-1].number == r.number {
			out[n-1].toBroker = out[n-1].toBroker || r.toBroker
			out[n-1].toClient = out[n-1].toClient || r.toClient
			continue
		}
		out = append(out, r)
	}
	return out
}

// rows are all messages of the specification, sorted by number.
func (g messageGen) rows() []row {
	var out []row
	for _, d := range g.domains {
		for _, op := range d.Operations {
			out = append(out, row{op.Number, "Type" + g.names.in(d.Domain, op.Name), d.Name + "." + op.Name, d.Name, "Request", true, !op.NoReply, op.Needs, op.Doc,
				op.Deferred != nil && op.Deferred.Cancellable})
		}
		for _, m := range d.Messages {
			out = append(out, row{m.Number, "Type" + g.names.in(d.Domain, m.Name), d.Name + "." + m.Name, d.Name, upperFirst(m.Class),
				m.Direction != "to_client", m.Direction != "to_broker", m.Needs, m.Doc, false})
		}
	}
	slices.SortStableFunc(out, func(a, b row) int { return cmp.Compare(a.number, b.number) })
	return out
}

// registry writes the message numbers and what is known of each.
func (g messageGen) registry() {
	rows := g.rows()
	g.f.Add(doc("MessageType is the number of a message: the type of its record. A request and its replies share one (wire.md section 11)."))
	g.f.Type().Id("MessageType").Uint16()
	g.f.Line()
	g.f.Add(doc("The message numbers."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, r := range rows {
			c.Id(r.constName).Id("MessageType").Op("=").Lit(r.number)
		}
	})
	g.f.Line()
	g.f.Add(doc("Class is the class of a message (README section 5)."))
	g.f.Type().Id("Class").Uint8()
	g.f.Line()
	g.f.Add(doc("The classes of messages."))
	g.f.Const().Defs(
		doc("Request is answered by one or two replies of the same number."), jen.Id("Request").Id("Class").Op("=").Iota().Op("+").Lit(1),
		doc("Push is sent by the broker without being asked; never labelled."), jen.Id("Push"),
		doc("Control manages the session; it never carries user data."), jen.Id("Control"),
		doc("Reply answers a request of another number."), jen.Id("Reply"),
	)
	g.f.Line()
	g.f.Add(doc("String returns the name of the class."))
	g.f.Func().Params(jen.Id("c").Id("Class")).Id("String").Params().String().Block(
		jen.Switch(jen.Id("c")).Block(
			jen.Case(jen.Id("Request")).Block(jen.Return(jen.Lit("request"))),
			jen.Case(jen.Id("Push")).Block(jen.Return(jen.Lit("push"))),
			jen.Case(jen.Id("Control")).Block(jen.Return(jen.Lit("control"))),
			jen.Case(jen.Id("Reply")).Block(jen.Return(jen.Lit("reply"))),
		),
		jen.Return(jen.Lit("none")),
	)
	g.f.Line()
	g.f.Add(doc("MessageInfo is one row of the message registry, or a reserved number."))
	g.f.Type().Id("MessageInfo").Struct(
		jen.Id("Type").Id("MessageType"),
		jen.Id("Name").String().Comment("lease.acquire"),
		jen.Id("Domain").String(),
		jen.Id("Class").Id("Class"),
		jen.Id("ToBroker").Bool().Comment("clients send it"),
		jen.Id("ToClient").Bool().Comment("the broker sends it, as a reply or by itself"),
		jen.Id("Needs").Id("Capabilities").Comment("bit that must have been announced; 0 = none"),
		jen.Id("Cancellable").Bool().Comment("the last reply of a request may come later, and CANCEL gives up the wait (wire.md section 8)"),
		jen.Id("Reserved").Bool().Comment("nothing may use the number yet (W-05)"),
	)
	g.f.Line()
	g.f.Add(doc("LookupMessage returns what is known of a number; false when the registry has no row and reserves nothing there."))
	g.f.Func().Id("LookupMessage").Params(jen.Id("t").Id("MessageType")).Params(jen.Id("MessageInfo"), jen.Bool()).BlockFunc(func(b *jen.Group) {
		b.Switch(jen.Id("t")).BlockFunc(func(s *jen.Group) {
			for i, r := range numbers(rows) {
				s.Case(jen.Id(r.constName)).Block(jen.Return(jen.Id("messageTable").Index(jen.Lit(i)), jen.True()))
			}
		})
		b.For(jen.List(jen.Id("_"), jen.Id("r")).Op(":=").Range().Id("reservedRanges")).Block(
			jen.If(jen.Id("t").Op(">=").Id("r").Dot("from").Op("&&").Id("t").Op("<=").Id("r").Dot("to")).Block(
				jen.Return(jen.Id("MessageInfo").Values(jen.Id("Type").Op(":").Id("t"), jen.Id("Needs").Op(":").Id("r").Dot("needs"), jen.Id("Reserved").Op(":").True()), jen.True())))
		b.Return(jen.Id("MessageInfo").Values(), jen.False())
	})
	g.f.Line()
	g.f.Add(doc("String returns the name of the message: lease.acquire."))
	g.f.Func().Params(jen.Id("t").Id("MessageType")).Id("String").Params().String().Block(
		jen.If(jen.List(jen.Id("info"), jen.Id("known")).Op(":=").Id("LookupMessage").Call(jen.Id("t")), jen.Id("known").Op("&&").Op("!").Id("info").Dot("Reserved")).Block(
			jen.Return(jen.Id("info").Dot("Name"))),
		jen.Return(jen.Lit("message ").Op("+").Qual("strconv", "Itoa").Call(jen.Int().Call(jen.Id("t")))),
	)
	g.f.Line()
	g.messageTable(numbers(rows))
}

func (g messageGen) registryRow(r row) []jen.Code {
	p := &pairs{}
	p.add("Type", jen.Id(r.constName))
	p.text("Name", r.name)
	p.text("Domain", r.domain)
	p.add("Class", jen.Id(r.class))
	p.flag("ToBroker", r.toBroker)
	p.flag("ToClient", r.toClient)
	if c := g.Capability(r.needs); c != nil {
		p.add("Needs", jen.Id(capabilityName(g.names, c)))
	}
	p.flag("Cancellable", r.cancellable)
	return p.line()
}

func (g messageGen) messageTable(rows []row) {
	g.f.Var().Id("messageTable").Op("=").Index(jen.Op("...")).Id("MessageInfo").ValuesFunc(func(v *jen.Group) {
		for _, r := range rows {
			v.Line().Values(g.registryRow(r)...)
		}
		v.Line()
	})
	g.f.Line()
	g.f.Add(doc("reservedRanges are numbers that nothing may use yet (W-05)."))
	g.f.Var().Id("reservedRanges").Op("=").Index(jen.Op("...")).Struct(jen.List(jen.Id("from"), jen.Id("to")).Id("MessageType"), jen.Id("needs").Id("Capabilities")).ValuesFunc(func(v *jen.Group) {
		for _, r := range g.Wire.Reserved {
			needs := jen.Code(jen.Lit(0))
			if c := g.Capability(r.For); c != nil {
				needs = jen.Id(capabilityName(g.names, c))
			}
			v.Line().Values(jen.Lit(r.From), jen.Lit(r.To), needs)
		}
		v.Line()
	})
	g.f.Line()
}

// refusals writes the error envelopes (errors.md section 1).
func (g messageGen) refusals() {
	most := jen.Qual(boundsPath, "ErrorMessageMax")
	coded, plain, stream := g.status("coded"), g.status("plain"), g.status("stream_coded")
	g.f.Add(doc("Refusal is an error reply (E-02)."))
	g.f.Type().Id("Refusal").Struct(
		jen.Id("Code").Id("Code").Comment("0 when HasCode is false"),
		jen.Id("Message").String().Comment("text for people, at most error_message_max bytes"),
		jen.Id("HasCode").Bool().Comment("false for the plain form (E-05)"),
	)
	g.f.Line()
	g.f.Add(doc("First bytes of the error envelopes."))
	g.f.Const().Defs(
		jen.Id("statusCoded").Op("=").Lit(int(coded)),
		jen.Id("statusPlain").Op("=").Lit(int(plain)),
		jen.Id("statusStreamCoded").Op("=").Lit(int(stream)),
	)
	g.f.Line()
	g.f.Add(doc("AppendCoded appends the coded form of a refusal. The message is cut to error_message_max bytes at a character boundary, and what is not UTF-8 in it is replaced (E-03)."))
	g.f.Func().Id("AppendCoded").Params(jen.Id("dst").Index().Byte(), jen.Id("code").Id("Code"), jen.Id("message").String()).Index().Byte().Block(
		jen.Return(jen.Id("appendRefusal").Call(jen.Qual(codecPath, "AppendU32").Call(jen.Append(jen.Id("dst"), jen.Id("statusCoded")), jen.Uint32().Call(jen.Id("code"))), jen.Id("message"))))
	g.f.Line()
	g.f.Add(doc("AppendPlain appends the plain form of a refusal: its message without a code."))
	g.f.Func().Id("AppendPlain").Params(jen.Id("dst").Index().Byte(), jen.Id("message").String()).Index().Byte().Block(
		jen.Return(jen.Id("appendRefusal").Call(jen.Append(jen.Id("dst"), jen.Id("statusPlain")), jen.Id("message"))))
	g.f.Line()
	g.f.Add(doc("AppendStreamCoded appends the form of a refusal that the stream domain uses."))
	g.f.Func().Id("AppendStreamCoded").Params(jen.Id("dst").Index().Byte(), jen.Id("code").Id("Code"), jen.Id("message").String()).Index().Byte().Block(
		jen.Return(jen.Id("appendRefusal").Call(jen.Qual(codecPath, "AppendU32").Call(jen.Append(jen.Id("dst"), jen.Id("statusStreamCoded")), jen.Uint32().Call(jen.Id("code"))), jen.Id("message"))))
	g.f.Line()
	g.f.Func().Id("appendRefusal").Params(jen.Id("dst").Index().Byte(), jen.Id("message").String()).Index().Byte().Block(
		jen.If(jen.Op("!").Qual("unicode/utf8", "ValidString").Call(jen.Id("message"))).Block(
			jen.Id("message").Op("=").Qual("strings", "ToValidUTF8").Call(jen.Id("message"), jen.Lit("?"))),
		jen.Return(jen.Qual(codecPath, "AppendString").Call(jen.Id("dst"), jen.Qual(codecPath, "CutText").Call(jen.Id("message"), most))),
	)
	g.f.Line()
	g.f.Add(doc("DecodeRefusal reads an error reply in any of its forms; false when value is not one. A value that fits both forms of status " + fmt.Sprint(coded) +
		" is coded (E-02). The message is cut to error_message_max bytes, as senders of later versions may allow more; one that is not UTF-8 is no refusal (D-3)."))
	g.f.Func().Id("DecodeRefusal").Params(jen.Id("value").Index().Byte()).Params(jen.Id("Refusal"), jen.Bool()).Block(
		jen.Switch().Block(
			jen.Case(jen.Id("isCoded").Call(jen.Id("value"), jen.Id("statusCoded")), jen.Id("isCoded").Call(jen.Id("value"), jen.Id("statusStreamCoded"))).Block(
				jen.Id("code").Op(":=").Qual("encoding/binary", "BigEndian").Dot("Uint32").Call(jen.Id("value").Index(jen.Lit(1), jen.Empty())),
				jen.Return(jen.Id("refusal").Call(jen.Id("Code").Call(jen.Id("code")), jen.Id("value").Index(jen.Id("codedHeader"), jen.Empty()), jen.True()))),
			jen.Case(jen.Id("isPlain").Call(jen.Id("value"))).Block(
				jen.Return(jen.Id("refusal").Call(jen.Lit(0), jen.Id("value").Index(jen.Id("plainHeader"), jen.Empty()), jen.False()))),
		),
		jen.Return(jen.Id("Refusal").Values(), jen.False()),
	)
	g.f.Line()
	g.f.Add(doc("Bytes in front of the message: status, code and length; status and length."))
	g.f.Const().Defs(jen.Id("codedHeader").Op("=").Lit(9), jen.Id("plainHeader").Op("=").Lit(5))
	g.f.Line()
	g.f.Func().Id("isCoded").Params(jen.Id("value").Index().Byte(), jen.Id("status").Byte()).Bool().Block(
		jen.Return(jen.Len(jen.Id("value")).Op(">=").Id("codedHeader").Op("&&").Id("value").Index(jen.Lit(0)).Op("==").Id("status").Op("&&").Line().
			Uint64().Call(jen.Len(jen.Id("value"))).Op("==").Id("codedHeader").Op("+").Uint64().Call(jen.Qual("encoding/binary", "BigEndian").Dot("Uint32").Call(jen.Id("value").Index(jen.Lit(5), jen.Empty())))))
	g.f.Line()
	g.f.Func().Id("isPlain").Params(jen.Id("value").Index().Byte()).Bool().Block(
		jen.Return(jen.Len(jen.Id("value")).Op(">=").Id("plainHeader").Op("&&").Id("value").Index(jen.Lit(0)).Op("==").Id("statusPlain").Op("&&").Line().
			Uint64().Call(jen.Len(jen.Id("value"))).Op("==").Id("plainHeader").Op("+").Uint64().Call(jen.Qual("encoding/binary", "BigEndian").Dot("Uint32").Call(jen.Id("value").Index(jen.Lit(1), jen.Empty())))))
	g.f.Line()
	g.f.Func().Id("refusal").Params(jen.Id("code").Id("Code"), jen.Id("message").Index().Byte(), jen.Id("hasCode").Bool()).Params(jen.Id("Refusal"), jen.Bool()).Block(
		jen.If(jen.Op("!").Qual("unicode/utf8", "Valid").Call(jen.Id("message"))).Block(jen.Return(jen.Id("Refusal").Values(), jen.False())),
		jen.Id("text").Op(":=").Qual(codecPath, "CutText").Call(jen.String().Call(jen.Id("message").Index(jen.Empty(), jen.Id("min").Call(jen.Len(jen.Id("message")), most.Clone().Op("+").Qual("unicode/utf8", "UTFMax")))), most),
		jen.Return(jen.Id("Refusal").Values(jen.Id("Code").Op(":").Id("code"), jen.Id("Message").Op(":").Id("text"), jen.Id("HasCode").Op(":").Id("hasCode")), jen.True()),
	)
	g.f.Line()
}
