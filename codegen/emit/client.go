package emit

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
)

func init() { register("client", clientFiles) }

// Import paths that only package client needs.
const (
	linkPath   = generatedPath + "link"
	clientPath = generatedPath + "client"
)

// clientFiles makes package client: typed operations over package link.
func clientFiles(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	roles, err := findRoles(p)
	if err != nil {
		return nil, err
	}
	file := func(name string) clientGen {
		g := clientGen{messageGen{p, newGoFile(spec, clientPath, name)}, roles, ""}
		g.f.ImportName(linkPath, "link")
		return g
	}
	main, protocol, errs, defaults := file("client.go"), file("protocol.go"), file("errors.go"), file("defaults.go")
	main.about()
	main.options()
	main.clientType()
	main.events()
	protocol.protocolValue()
	protocol.classification()
	protocol.controls()
	if err := errs.errors(); err != nil {
		return nil, err
	}
	if err := defaults.defaults(); err != nil {
		return nil, err
	}
	files := []*goFile{main.f, protocol.f, errs.f, defaults.f}
	for _, d := range p.domains {
		if len(d.Operations) == 0 {
			continue
		}
		g := file(d.Name + ".go")
		if err := g.operations(d); err != nil {
			return nil, err
		}
		files = append(files, g.f)
	}
	return renderAll(files...)
}

// clientGen writes package client.
type clientGen struct {
	messageGen
	roles  roles
	prefix string // of the names of defaults
}

// defaultName is the constant of a default.
func (g clientGen) defaultName(name string) string { return g.prefix + g.names.exported(name) }

// roles are the control messages that a session needs, by what they do.
type roles struct {
	connect, hello, clientHello *record
	label, labelled             *record
	ping, pong                  *record
	cancel, cancelled           *record
	lifecycle                   *field // of the hello
	labels, life                *model.Capability
}

// findRoles looks the control messages up. The names are those of the session layer of this specification language.
func findRoles(p *protocol) (roles, error) {
	var r roles
	for name, role := range map[string]**record{
		"connect": &r.connect, "server_hello": &r.hello, "client_hello": &r.clientHello, p.Wire.LabelRequest: &r.label,
		p.Wire.LabelReply: &r.labelled, "ping": &r.ping, "pong": &r.pong, "cancel": &r.cancel, "cancelled": &r.cancelled,
	} {
		if *role = p.control(name); *role == nil {
			return r, fmt.Errorf("the session layer has no message %s", name)
		}
	}
	r.lifecycle = r.hello.find("lifecycle")
	r.labels, r.life = p.Capability(r.label.message.Needs), p.Capability(r.clientHello.message.Needs)
	if r.lifecycle == nil || r.labels == nil || r.life == nil {
		return r, fmt.Errorf("the hello announces no labels or no lifecycle")
	}
	return r, nil
}

// control finds a message of the session domain.
func (p *protocol) control(name string) *record {
	for _, d := range p.domains {
		if d.Name != p.names.session {
			continue
		}
		for _, r := range d.records {
			if r.message != nil && r.name == name {
				return r
			}
		}
	}
	return nil
}

// pushes are the messages that the broker sends by itself and that an application may want to see: pushes, and the one control message
// that announces the end of the session.
func (g clientGen) pushes() []*record {
	var out []*record
	for _, d := range g.domains {
		for _, r := range d.records {
			if m := r.message; m != nil && m.Direction == "to_client" && (m.Class == "push" || g.toApplication(r)) {
				out = append(out, r)
			}
		}
	}
	return out
}

// toApplication tells whether a control message has no meaning for the session layer itself.
func (g clientGen) toApplication(r *record) bool {
	return !slices.Contains([]*record{g.roles.hello, g.roles.labelled, g.roles.ping, g.roles.pong, g.roles.cancelled}, r)
}

// deferred are the operations with a second reply.
func (g clientGen) deferred() []*record {
	var out []*record
	for _, d := range g.domains {
		for _, r := range d.records {
			if r.part == requestPart && r.op.Deferred != nil {
				out = append(out, r)
			}
		}
	}
	return out
}

// method is the name of an operation without Request or Reply.
func (r *record) method() string { return strings.TrimSuffix(r.goName, "Request") }

// typeConst is the number of a message as a constant of package wire.
func typeConst(r *record) *jen.Statement {
	name := r.goName
	if r.op != nil {
		name = r.method()
	}
	return jen.Qual(wirePath, "Type"+name)
}

func wireType(name string) *jen.Statement { return jen.Qual(wirePath, name) }

func (g clientGen) about() {
	g.f.PackageComment("// Package client speaks the " + g.Title + " protocol: one typed method for each operation, callbacks for what the broker sends by itself.")
	g.f.PackageComment("//")
	g.f.PackageComment("// A Client is one session. It does not reconnect: leases, registrations and listings end with their session (W-35), so whoever wants a")
	g.f.PackageComment("// new one dials again. Every error is an *Error, apart from those of the context.")
}

func onPush(r *record) string { return "On" + r.goName }
func onLate(r *record) string { return "OnLate" + r.method() }

func replyOf(r *record) string { return r.method() + "Reply" }

// options writes what Dial can be told.
func (g clientGen) options() {
	g.f.Add(doc("Options says how to open a session. The zero value is usable.",
		"Callbacks run on the goroutine that reads, in the order of arrival. They must return at once and must not call methods of the Client that wait for an answer."))
	g.f.Type().Id("Options").StructFunc(func(s *jen.Group) {
		s.Id("Token").String().Comment("empty means anonymous")
		s.Id("Limits").Qual(linkPath, "Limits").Comment("fields that are not positive have their defaults")
		s.Id("Dial").Qual(linkPath, "DialFunc").Comment("nil means TCP to every address of a name until one answers")
		for _, r := range g.pushes() {
			s.Line()
			s.Add(doc(onPush(r) + ": " + lower(r.doc) + ". " + clauses(r.clauses...)))
			s.Id(onPush(r)).Func().Params(wireType(r.goName))
		}
		for _, r := range g.deferred() {
			s.Line()
			s.Add(doc(onLate(r) + " receives a success that answers a request which was given up. Nobody holds what it gave; release it (L-73)."))
			s.Id(onLate(r)).Func().Params(wireType(r.goName), wireType(replyOf(r)))
		}
	})
	g.f.Line()
}

func receiver() *jen.Statement { return jen.Id("c").Op("*").Id("Client") }

func (g clientGen) method(comment, name string) *jen.Statement {
	g.f.Add(doc(comment))
	return g.f.Func().Params(receiver()).Id(name)
}

func ctxParam() jen.Code { return jen.Id("ctx").Qual("context", "Context") }

func ifErr(init jen.Code, then ...jen.Code) *jen.Statement {
	return jen.If(init, jen.Err().Op("!=").Nil()).Block(then...)
}

func (g clientGen) clientType() {
	g.f.Add(doc("Client is one open session. All methods may be called from any goroutine."))
	g.f.Type().Id("Client").Struct(jen.Id("link").Op("*").Qual(linkPath, "Conn"), jen.Id("options").Id("Options"))
	g.f.Line()
	g.f.Add(doc("Dial opens a session. The address is " + g.Protocol + "://host:port or tcp://host:port for TCP, ws://host:port/path for WebSocket; a port that is left out is that of the default listener."))
	g.f.Func().Id("Dial").Params(ctxParam(), jen.Id("address").String(), jen.Id("options").Id("Options")).Params(jen.Op("*").Id("Client"), jen.Error()).Block(
		jen.Id("c").Op(":=").Op("&").Id("Client").Values(jen.Dict{jen.Id("options"): jen.Id("options")}),
		jen.List(jen.Id("conn"), jen.Err()).Op(":=").Qual(linkPath, "Dial").Call(jen.Id("ctx"), jen.Id("address"), jen.Op("&").Id("protocol"), jen.Qual(linkPath, "Options").Values(jen.Dict{
			jen.Id("Token"):  jen.Id("options").Dot("Token"),
			jen.Id("Limits"): jen.Id("options").Dot("Limits"),
			jen.Id("OnPush"): jen.Id("c").Dot("push"),
			jen.Id("OnLate"): jen.Id("c").Dot("late"),
			jen.Id("Dial"):   jen.Id("options").Dot("Dial"),
		})),
		jen.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Nil(), jen.Id("localError").Call(jen.Err()))),
		jen.Id("c").Dot("link").Op("=").Id("conn"),
		jen.Return(jen.Id("c"), jen.Nil()),
	)
	g.f.Line()
	g.f.Add(doc("CheckAddress reports whether Dial could use the address, without connecting."))
	g.f.Func().Id("CheckAddress").Params(jen.Id("address").String()).Error().Block(
		jen.Return(jen.Id("localError").Call(jen.Qual(linkPath, "CheckAddress").Call(jen.Id("address"), jen.Op("&").Id("protocol")))))
	g.f.Line()
	g.method("Close ends the session and waits for its goroutines, at most for the close timeout. It is idempotent.", "Close").Params().Error().Block(
		jen.Return(jen.Id("localError").Call(jen.Id("c").Dot("link").Dot("Close").Call())))
	g.f.Line()
	g.method("Done returns a channel that is closed when the session has ended.", "Done").Params().Op("<-").Chan().Struct().Block(jen.Return(jen.Id("c").Dot("link").Dot("Done").Call()))
	g.f.Line()
	g.method("Err returns why the session ended, or nil while it is open.", "Err").Params().Error().Block(
		jen.Return(jen.Id("localError").Call(jen.Id("c").Dot("link").Dot("Err").Call())))
	g.f.Line()
	hello := g.roles.hello.goName
	g.method(hello+" returns what the broker said about itself. False: it has said nothing, the session has no capabilities so far (C-60).", hello).Params().Params(wireType(hello), jen.Bool()).Block(
		jen.List(jen.Id("hello"), jen.Id("ok")).Op(":=").Id("c").Dot("link").Dot("Hello").Call(),
		jen.If(jen.Op("!").Id("ok")).Block(jen.Return(wireType(hello).Values(), jen.False())),
		jen.List(jen.Id("detail"), jen.Id("ok")).Op(":=").Id("hello").Dot("Detail").Assert(wireType(hello)),
		jen.Return(jen.Id("detail"), jen.Id("ok")),
	)
	g.f.Line()
	g.exchange()
}

// exchange writes the helper that every operation uses.
func (g clientGen) exchange() {
	g.f.Add(doc("decoder is a reply."))
	g.f.Type().Id("decoder").Interface(jen.Id("DecodeValue").Params(jen.Id("value").Index().Byte()).Error())
	g.f.Line()
	g.method("exchange sends a request and decodes its last reply. A reply that is neither a success nor a refusal ends the session.", "exchange").
		Params(ctxParam(), jen.Id("request").Qual(linkPath, "Request"), jen.Id("reply").Id("decoder")).Error().Block(
		jen.List(jen.Id("value"), jen.Err()).Op(":=").Id("c").Dot("link").Dot("Call").Call(jen.Id("ctx"), jen.Id("request")),
		jen.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Id("localError").Call(jen.Err()))),
		jen.If(jen.List(jen.Id("refusal"), jen.Id("ok")).Op(":=").Qual(wirePath, "DecodeRefusal").Call(jen.Id("value")), jen.Id("ok")).Block(
			jen.Return(jen.Id("refused").Call(wireType("MessageType").Call(jen.Id("request").Dot("Type")), jen.Id("refusal")))),
		ifErr(jen.Err().Op(":=").Id("reply").Dot("DecodeValue").Call(jen.Id("value")),
			jen.Id("c").Dot("link").Dot("Fail").Call(jen.Lit("reply"), jen.Err()),
			jen.Return(jen.Id("localError").Call(jen.Op("&").Qual(linkPath, "Error").Values(jen.Dict{
				jen.Id("Kind"): jen.Qual(linkPath, "Violation"), jen.Id("Sent"): jen.True(), jen.Id("Reason"): jen.Lit("reply"), jen.Id("Err"): jen.Err(),
			})))),
		jen.Return(jen.Nil()),
	)
	g.f.Line()
}

// events writes the dispatch of what the broker sends by itself.
func (g clientGen) events() {
	g.method("push decodes what the broker sent by itself and hands it on. An error ends the session.", "push").Params(jen.Id("typ").Uint16(), jen.Id("value").Index().Byte()).Error().Block(
		jen.Switch(wireType("MessageType").Call(jen.Id("typ"))).BlockFunc(func(s *jen.Group) {
			for _, r := range g.pushes() {
				s.Case(typeConst(r)).Block(jen.Return(jen.Id("deliver").Call(jen.Op("new").Call(wireType(r.goName)), jen.Id("value"), jen.Id("c").Dot("options").Dot(onPush(r)))))
			}
		}),
		jen.Return(jen.Nil()),
	)
	g.f.Line()
	g.f.Add(doc("deliver decodes a value and hands it on, if somebody wants it."))
	g.f.Func().Id("deliver").Types(jen.Id("T").Any(), jen.Id("P").Interface(jen.Op("*").Id("T"), jen.Id("decoder"))).
		Params(jen.Id("m").Id("P"), jen.Id("value").Index().Byte(), jen.Id("receive").Func().Params(jen.Id("T"))).Error().Block(
		ifErr(jen.Err().Op(":=").Id("m").Dot("DecodeValue").Call(jen.Id("value")), jen.Return(jen.Err())),
		jen.If(jen.Id("receive").Op("!=").Nil()).Block(jen.Id("receive").Call(jen.Op("*").Id("m"))),
		jen.Return(jen.Nil()),
	)
	g.f.Line()
	g.method("late looks at the reply of a request that was given up. Only a success matters to somebody.", "late").Params(jen.Id("request").Qual(linkPath, "Request"), jen.Id("reply").Index().Byte()).Block(
		jen.Switch(wireType("MessageType").Call(jen.Id("request").Dot("Type"))).BlockFunc(func(s *jen.Group) {
			for _, r := range g.deferred() {
				s.Case(typeConst(r)).Block(jen.Id("deliverLate").Call(
					jen.Op("new").Call(wireType(r.goName)), jen.Op("new").Call(wireType(replyOf(r))), jen.Id("request").Dot("Value"), jen.Id("reply"), jen.Id("c").Dot("options").Dot(onLate(r))))
			}
		}),
	)
	g.f.Line()
	g.f.Add(doc("deliverLate decodes a request and its reply and hands them on. A refusal is not decodable as a reply, and is dropped."))
	g.f.Func().Id("deliverLate").Types(
		jen.Id("Q"), jen.Id("R").Any(),
		jen.Id("PQ").Interface(jen.Op("*").Id("Q"), jen.Id("decoder")),
		jen.Id("PR").Interface(jen.Op("*").Id("R"), jen.Id("decoder")),
	).Params(
		jen.Id("request").Id("PQ"), jen.Id("reply").Id("PR"), jen.List(jen.Id("sent"), jen.Id("received")).Index().Byte(), jen.Id("receive").Func().Params(jen.Id("Q"), jen.Id("R")),
	).Block(
		jen.If(jen.Id("receive").Op("==").Nil().Op("||").Id("request").Dot("DecodeValue").Call(jen.Id("sent")).Op("!=").Nil().Op("||").Id("reply").Dot("DecodeValue").Call(jen.Id("received")).Op("!=").Nil()).Block(jen.Return()),
		jen.Id("receive").Call(jen.Op("*").Id("request"), jen.Op("*").Id("reply")),
	)
	g.f.Line()
}

// operations writes one method for each operation of a domain.
func (g clientGen) operations(d *domain) error {
	for _, r := range d.records {
		if r.part != requestPart || r.op.NoReply {
			continue
		}
		var err error
		if r.op.Deferred == nil {
			g.operation(d, r)
		} else {
			err = g.deferredOperation(d, r)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.path, err)
		}
	}
	return nil
}

// operationDoc says what an operation does and how it can be refused.
func (g clientGen) operationDoc(name string, r *record) []string {
	text := name + ": " + lower(r.op.Doc) + "."
	if len(r.op.Errors) > 0 {
		text += " The broker may refuse it with " + strings.Join(r.op.Errors, ", ") + "."
	}
	return []string{text + " " + clauses(r.op.Clauses...)}
}

func operationParams(r *record) []jen.Code {
	return []jen.Code{ctxParam(), jen.Id("request").Op("*").Add(wireType(r.goName))}
}

func (g clientGen) operation(d *domain, r *record) {
	g.f.Add(doc(g.operationDoc(r.method(), r)...))
	g.f.Func().Params(receiver()).Id(r.method()).Params(operationParams(r)...).Params(jen.Id("reply").Add(wireType(replyOf(r))), jen.Err().Error()).BlockFunc(func(b *jen.Group) {
		g.prepare(b, d, r)
		b.Err().Op("=").Id("c").Dot("exchange").Call(jen.Id("ctx"), jen.Qual(linkPath, "Request").Values(jen.Dict{
			jen.Id("Type"): jen.Uint16().Call(typeConst(r)), jen.Id("Value"): jen.Id("value"),
		}), jen.Op("&").Id("reply"))
		b.Return(jen.Id("reply"), jen.Err())
	})
	g.f.Line()
}

// prepare checks the routes of a request and encodes it.
func (g clientGen) prepare(b *jen.Group, d *domain, r *record) {
	for _, f := range r.fields {
		if f.kind != route {
			continue
		}
		parse := "ParseRoute"
		if f.Type == "selector" {
			parse = "ParseSelector"
		}
		b.Add(jen.If(jen.List(jen.Id("_"), jen.Err()).Op(":=").Qual(routePath, g.names.exported(d.Scheme)).Dot(parse).Call(jen.Id("request").Dot(f.goName)), jen.Err().Op("!=").Nil()).Block(
			jen.Return(jen.Id("reply"), jen.Id("invalid").Call(jen.Err()))))
	}
	b.List(jen.Id("value"), jen.Err()).Op(":=").Id("request").Dot("AppendValue").Call(jen.Nil())
	b.If(jen.Err().Op("!=").Nil()).Block(jen.Return(jen.Id("reply"), jen.Id("invalid").Call(jen.Err())))
}

// deferredOperation writes the two methods of an operation with a second reply.
func (g clientGen) deferredOperation(d *domain, r *record) error {
	wait, err := waitField(r)
	if err != nil {
		return err
	}
	waiting := r.method() + "Waiting"
	text := g.operationDoc(r.method(), r)
	text = append(text, "When the request must wait in line, "+r.method()+" returns its last reply; "+waiting+" tells that it waits.")
	g.f.Add(doc(text...))
	g.f.Func().Params(receiver()).Id(r.method()).Params(operationParams(r)...).Params(wireType(replyOf(r)), jen.Error()).Block(
		jen.Return(jen.Id("c").Dot(waiting).Call(jen.Id("ctx"), jen.Id("request"), jen.Nil())))
	g.f.Line()
	comment := waiting + " is " + r.method() + " with a callback for the first of two replies, under the rules of the callbacks of Options."
	if r.op.Deferred.Cancellable {
		comment += " When ctx ends while the request waits, it is cancelled, and the method returns when the broker has said what became of it."
	}
	g.f.Add(doc(comment))
	g.f.Func().Params(receiver()).Id(waiting).Params(append(operationParams(r), jen.Id("waiting").Func().Params(wireType(replyOf(r))))...).
		Params(jen.Id("reply").Add(wireType(replyOf(r))), jen.Err().Error()).BlockFunc(func(b *jen.Group) {
		g.prepare(b, d, r)
		request := jen.Dict{
			jen.Id("Type"):    jen.Uint16().Call(typeConst(r)),
			jen.Id("Value"):   jen.Id("value"),
			jen.Id("Wait"):    jen.Qual("time", "Duration").Call(jen.Id("request").Dot(wait.goName)).Op("*").Add(timeUnit(wait.Unit)),
			jen.Id("Waiting"): jen.Func().Params(jen.Id("first").Index().Byte()).Block(jen.Id("_").Op("=").Id("deliver").Call(jen.Op("new").Call(wireType(replyOf(r))), jen.Id("first"), jen.Id("waiting"))),
		}
		if r.op.Deferred.Cancellable {
			request[jen.Id("Cancellable")] = jen.True()
		}
		b.Err().Op("=").Id("c").Dot("exchange").Call(jen.Id("ctx"), jen.Qual(linkPath, "Request").Values(request), jen.Op("&").Id("reply"))
		b.Return(jen.Id("reply"), jen.Err())
	})
	g.f.Line()
	return nil
}

// waitField is the field that says how long a request may wait: the only time of the request that may be left out.
func waitField(r *record) (*field, error) {
	var found []*field
	for _, f := range r.fields {
		if f.Presence.Kind == model.Tail && timeUnit(f.Unit) != nil {
			found = append(found, f)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d fields of a deferred operation could be its waiting time, not one", len(found))
	}
	return found[0], nil
}

// timeUnit is a unit of the specification as a Go duration, nil when it is no time.
func timeUnit(unit string) *jen.Statement {
	word, _, _ := strings.Cut(unit, " ")
	switch word {
	case "s":
		return jen.Qual("time", "Second")
	case "ms":
		return jen.Qual("time", "Millisecond")
	}
	return nil
}

// protocolValue writes what package link must be told.
func (g clientGen) protocolValue() {
	types := jen.Dict{}
	for name, r := range map[string]*record{
		"Connect": g.roles.connect, "Hello": g.roles.hello, "ClientHello": g.roles.clientHello, "LabelRequest": g.roles.label, "LabelReply": g.roles.labelled,
		"Ping": g.roles.ping, "Pong": g.roles.pong, "Cancel": g.roles.cancel, "Cancelled": g.roles.cancelled,
	} {
		types[jen.Id(name)] = jen.Uint16().Call(typeConst(r))
	}
	d := jen.Dict{
		jen.Id("Scheme"): jen.Lit(g.Protocol),
		jen.Id("Types"):  jen.Qual(linkPath, "Types").Values(types),
		jen.Id("Capabilities"): jen.Qual(linkPath, "Capabilities").Values(jen.Dict{
			jen.Id("Labels"):    jen.Uint32().Call(jen.Qual(wirePath, capabilityName(g.names, g.roles.labels))),
			jen.Id("Lifecycle"): jen.Uint32().Call(jen.Qual(wirePath, capabilityName(g.names, g.roles.life))),
			jen.Id("Late"):      jen.Id("lateCapabilities"),
		}),
		jen.Id("Limits"):            jen.Id("defaultLimits"),
		jen.Id("AppendRecord"):      jen.Qual(codecPath, "AppendRecord"),
		jen.Id("CheckRecords"):      jen.Id("checkRecords"),
		jen.Id("NextRecord"):        jen.Id("nextRecord"),
		jen.Id("Class"):             jen.Id("class"),
		jen.Id("Final"):             jen.Id("final"),
		jen.Id("AppendConnect"):     jen.Id("appendConnect"),
		jen.Id("DecodeHello"):       jen.Id("decodeHello"),
		jen.Id("AppendClientHello"): jen.Id("appendClientHello"),
		jen.Id("AppendLabel"):       jen.Id("appendLabel"),
		jen.Id("DecodeLabel"):       jen.Id("decodeLabel"),
		jen.Id("AppendNonce"):       jen.Id("appendNonce"),
		jen.Id("DecodeNonce"):       jen.Id("decodeNonce"),
		jen.Id("AppendCancel"):      jen.Id("appendCancel"),
		jen.Id("DecodeCancelled"):   jen.Id("decodeCancelled"),
	}
	for transport, field := range map[string]string{"tcp": "TCPPort", "websocket": "WebSocketPort"} {
		if l := g.listener(transport); l != nil {
			_, port, _ := net.SplitHostPort(l.Address)
			d[jen.Id(field)] = jen.Lit(port)
			if l.Path != "" {
				d[jen.Id("WebSocketPath")] = jen.Lit(l.Path)
			}
		}
	}
	g.f.Add(doc("lateCapabilities are the bits that a hello after the settle time still counts for: those below the lifecycle bit (C-60)."))
	g.f.Const().Id("lateCapabilities").Op("=").Uint32().Call(jen.Qual(wirePath, capabilityName(g.names, g.roles.life)).Op("-").Lit(1))
	g.f.Line()
	g.f.Add(doc("protocol is what the session layer must know of the specification."))
	g.f.Var().Id("protocol").Op("=").Qual(linkPath, "Protocol").Values(d)
	g.f.Line()
}

// listener is the first listener of that transport.
func (g clientGen) listener(transport string) *model.Listener {
	for _, l := range g.Broker.Listeners {
		if l.Transport == transport {
			return l
		}
	}
	return nil
}

// classification writes the functions that tell records apart.
func (g clientGen) classification() {
	g.f.Func().Id("checkRecords").Params(jen.Id("payload").Index().Byte()).Error().Block(
		jen.Return(jen.Qual(codecPath, "CheckRecords").Call(jen.Id("payload"), jen.Qual(boundsPath, g.names.exported(g.Wire.Framing.RecordsMax)))))
	g.f.Line()
	g.f.Func().Id("nextRecord").Params(jen.Id("payload").Index().Byte()).Params(jen.Uint16(), jen.Index().Byte(), jen.Index().Byte(), jen.Error()).Block(
		jen.List(jen.Id("record"), jen.Id("rest"), jen.Err()).Op(":=").Qual(codecPath, "NextRecord").Call(jen.Id("payload")),
		jen.Return(jen.Id("record").Dot("Type"), jen.Id("record").Dot("Value"), jen.Id("rest"), jen.Err()))
	g.f.Line()
	g.f.Add(doc("class says what a received record is."))
	g.f.Func().Id("class").Params(jen.Id("typ").Uint16()).Qual(linkPath, "Class").Block(
		jen.Switch(wireType("MessageType").Call(jen.Id("typ"))).Block(
			jen.Case(commaLines(g.typeConsts(g.replies()))...).Block(jen.Return(jen.Qual(linkPath, "Reply"))),
			jen.Case(commaLines(g.typeConsts(g.pushes()))...).Block(jen.Return(jen.Qual(linkPath, "Push"))),
			jen.Case(commaLines(g.typeConsts(g.sessionControls()))...).Block(jen.Return(jen.Qual(linkPath, "Control"))),
		),
		jen.Return(jen.Qual(linkPath, "Unknown")),
	)
	g.f.Line()
	g.f.Add(doc("final reports whether no further reply follows: everything is final but a success that says that the request waits in line."))
	g.f.Func().Id("final").Params(jen.Id("typ").Uint16(), jen.Id("value").Index().Byte()).Bool().Block(
		jen.Switch(wireType("MessageType").Call(jen.Id("typ"))).BlockFunc(func(s *jen.Group) {
			for _, r := range g.deferred() {
				s.Case(typeConst(r)).Block(g.finalOf(r)...)
			}
		}),
		jen.Return(jen.True()),
	)
	g.f.Line()
}

// finalOf decides about the replies of one deferred operation.
func (g clientGen) finalOf(r *record) []jen.Code {
	deferred := r.op.Deferred
	var waits *jen.Statement
	for _, value := range deferred.After {
		kind := jen.Id("reply").Dot(g.names.exported(deferred.Field)).Op("==").Qual(wirePath, g.deferredEnum(r)+g.names.exported(value))
		if waits == nil {
			waits = kind
			continue
		}
		waits = waits.Op("||").Add(kind)
	}
	return []jen.Code{
		jen.Var().Id("reply").Add(wireType(replyOf(r) + "View")),
		ifErr(jen.Err().Op(":=").Id("reply").Dot("DecodeValue").Call(jen.Id("value")), jen.Return(jen.True())),
		jen.Return(jen.Op("!").Parens(waits)),
	}
}

// deferredEnum is the enumeration of the field that says whether a second reply follows.
func (g clientGen) deferredEnum(r *record) string {
	for _, d := range g.domains {
		for _, reply := range d.records {
			if reply.part == replyPart && reply.op == r.op {
				return reply.find(r.op.Deferred.Field).enumOf
			}
		}
	}
	return ""
}

// replies are the requests whose replies a client may receive.
func (g clientGen) replies() []*record {
	var out []*record
	for _, d := range g.domains {
		for _, r := range d.records {
			if r.part == requestPart && r.op.AnsweredBy == "" {
				out = append(out, r)
			}
		}
	}
	return out
}

// sessionControls are the control messages of the session layer itself.
func (g clientGen) sessionControls() []*record {
	pushes := g.pushes()
	var out []*record
	for _, d := range g.domains {
		for _, r := range d.records {
			if r.part == messagePart && r.message.Class == "control" && !slices.Contains(pushes, r) {
				out = append(out, r)
			}
		}
	}
	return out
}

func (g clientGen) typeConsts(records []*record) []*jen.Statement {
	var out []*jen.Statement
	for _, r := range records {
		out = append(out, typeConst(r))
	}
	return out
}

// commaLines puts a few items on each line.
func commaLines(items []*jen.Statement) []jen.Code {
	const perLine = 4
	var out []jen.Code
	for i, item := range items {
		if i > 0 && i%perLine == 0 {
			item = jen.Line().Add(item)
		}
		out = append(out, item)
	}
	return out
}

// controls writes the codecs of the control messages in the form that package link wants.
func (g clientGen) controls() {
	r := g.roles
	g.appendControl("appendConnect", r.connect, jen.Id("token").String(), jen.Id("token"))
	g.appendControl("appendLabel", r.label, jen.Id("label").Uint64(), jen.Id("label"))
	g.appendControl("appendNonce", r.ping, jen.Id("nonce").Uint64(), jen.Id("nonce"))
	g.appendControl("appendCancel", r.cancel, jen.Id("label").Uint64(), jen.Id("label"))
	g.decodeControl("decodeLabel", r.labelled)
	g.decodeControl("decodeNonce", r.pong)
	g.decodeControl("decodeCancelled", r.cancelled)
	g.helloFunctions()
}

// appendControl writes a function that appends a control message whose first field is given.
func (g clientGen) appendControl(name string, r *record, param, value jen.Code) {
	g.f.Func().Id(name).Params(jen.Id("dst").Index().Byte(), param).Params(jen.Index().Byte(), jen.Error()).Block(
		jen.Id("m").Op(":=").Add(wireType(r.goName)).Values(jen.Dict{jen.Id(r.fields[0].goName): value}),
		jen.Return(jen.Id("m").Dot("AppendValue").Call(jen.Id("dst"))))
	g.f.Line()
}

// decodeControl writes a function that returns the first field of a control message.
func (g clientGen) decodeControl(name string, r *record) {
	g.f.Func().Id(name).Params(jen.Id("value").Index().Byte()).Params(jen.Uint64(), jen.Error()).Block(
		jen.Var().Id("m").Add(wireType(r.goName+"View")),
		jen.Err().Op(":=").Id("m").Dot("DecodeValue").Call(jen.Id("value")),
		jen.Return(jen.Id("m").Dot(r.fields[0].goName), jen.Err()))
	g.f.Line()
}

func (g clientGen) helloFunctions() {
	hello, life := g.roles.hello, g.roles.lifecycle
	of := func(name string) *jen.Statement { return jen.Id("m").Dot(life.goName).Dot(g.names.exported(name)) }
	g.f.Add(doc("decodeHello reads the hello. What the lifecycle part says is zero when it is not announced."))
	g.f.Func().Id("decodeHello").Params(jen.Id("value").Index().Byte()).Params(jen.Qual(linkPath, "Hello"), jen.Error()).Block(
		jen.Var().Id("m").Add(wireType(hello.goName)),
		ifErr(jen.Err().Op(":=").Id("m").Dot("DecodeValue").Call(jen.Id("value")), jen.Return(jen.Qual(linkPath, "Hello").Values(), jen.Err())),
		jen.Return(jen.Qual(linkPath, "Hello").Values(jen.Dict{
			jen.Id("Capabilities"): jen.Uint32().Call(jen.Id("m").Dot(life.when.goName)),
			jen.Id("MaxFrame"):     jen.Int64().Call(of("max_frame_bytes")),
			jen.Id("Heartbeat"):    jen.Qual("time", "Duration").Call(of("heartbeat_ms")).Op("*").Qual("time", "Millisecond"),
			jen.Id("Detail"):       jen.Id("m"),
		}), jen.Nil()),
	)
	g.f.Line()
	g.f.Add(doc("appendClientHello asks for what this package uses of what was announced (W-61)."))
	g.f.Func().Id("appendClientHello").Params(jen.Id("dst").Index().Byte(), jen.Id("announced").Uint32()).Params(jen.Index().Byte(), jen.Error()).Block(
		jen.Id("m").Op(":=").Add(wireType(g.roles.clientHello.goName)).Values(jen.Dict{
			jen.Id(g.names.exported("capabilities")):     wireType("Capabilities").Call(jen.Id("announced")).Op("&").Qual(wirePath, capabilityName(g.names, g.roles.life)),
			jen.Id(g.names.exported("sdk_name")):         jen.Lit(g.Protocol + "/go"),
			jen.Id(g.names.exported("sdk_version")):      wireType("SpecVersion"),
			jen.Id(g.names.exported("spec_fingerprint")): wireType("SpecFingerprint"),
		}),
		jen.Return(jen.Id("m").Dot("AppendValue").Call(jen.Id("dst"))),
	)
	g.f.Line()
}

// localKinds says which condition of the specification each kind of error of package link is.
var localKinds = []struct{ kind, condition string }{
	{"Invalid", "config.invalid"}, {"Refused", "conn.refused"}, {"Rejected", "auth.rejected"}, {"Lost", "conn.lost"}, {"Closed", "conn.closed"},
	{"Timeout", "request.timeout"}, {"Overload", "request.overload"}, {"Violation", "protocol.violation"},
}

// errors writes the error type and the conditions that a client finds by itself.
func (g clientGen) errors() error {
	g.f.Add(doc("Error is every error of this package, apart from those of the context: a refusal by the broker, or a condition that the client found by itself (errors.md section 4)."))
	g.f.Type().Id("Error").Struct(
		jen.Id("Code").Qual(wirePath, "Code").Comment("0: no refusal, or one without a code (E-05)"),
		jen.Id("Name").String().Comment("lease.held, conn.lost; the domain alone for a refusal without a code"),
		jen.Id("Retry").Qual(wirePath, "Retry"),
		jen.Id("Outcome").Qual(wirePath, "Outcome"),
		jen.Id("Message").String().Comment("text for people"),
		jen.Id("FromBroker").Bool().Comment("the broker refused; else the client found it by itself"),
		jen.Id("Err").Error().Comment("cause, or nil"),
	)
	g.f.Line()
	g.f.Add(doc("Error describes the error in one line."))
	g.f.Func().Params(jen.Id("e").Op("*").Id("Error")).Id("Error").Params().String().Block(
		jen.Id("text").Op(":=").Id("e").Dot("Name"),
		jen.If(jen.Id("e").Dot("Code").Op("!=").Lit(0)).Block(jen.Id("text").Op("+=").Lit(" (").Op("+").Qual("strconv", "FormatUint").Call(jen.Uint64().Call(jen.Id("e").Dot("Code")), jen.Lit(10)).Op("+").Lit(")")),
		jen.If(jen.Id("e").Dot("Message").Op("!=").Lit("")).Block(jen.Id("text").Op("+=").Lit(": ").Op("+").Id("e").Dot("Message")),
		jen.Return(jen.Id("text")),
	)
	g.f.Line()
	g.f.Add(doc("Unwrap returns the cause."))
	g.f.Func().Params(jen.Id("e").Op("*").Id("Error")).Id("Unwrap").Params().Error().Block(jen.Return(jen.Id("e").Dot("Err")))
	g.f.Line()
	g.f.Add(doc("CodeOf returns the code with which the broker refused, 0 when err is no refusal with a code."))
	g.f.Func().Id("CodeOf").Params(jen.Err().Error()).Qual(wirePath, "Code").Block(
		jen.Var().Id("e").Op("*").Id("Error"),
		jen.If(jen.Qual("errors", "As").Call(jen.Err(), jen.Op("&").Id("e"))).Block(jen.Return(jen.Id("e").Dot("Code"))),
		jen.Return(jen.Lit(0)),
	)
	g.f.Line()
	g.f.Add(doc("Is reports whether err is an *Error of that name: Is(err, NameConnLost)."))
	g.f.Func().Id("Is").Params(jen.Err().Error(), jen.Id("name").String()).Bool().Block(
		jen.Var().Id("e").Op("*").Id("Error"),
		jen.Return(jen.Qual("errors", "As").Call(jen.Err(), jen.Op("&").Id("e")).Op("&&").Id("e").Dot("Name").Op("==").Id("name")),
	)
	g.f.Line()
	if err := g.conditions(); err != nil {
		return err
	}
	g.refused()
	return nil
}

// conditionName is the constant of a condition.
func (g clientGen) conditionName(condition string) string {
	return "Name" + g.names.exported(condition)
}

func (g clientGen) conditions() error {
	g.f.Add(doc("Names of the conditions that a client finds by itself."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, k := range localKinds {
			c.Id(g.conditionName(k.condition)).Op("=").Lit(k.condition)
		}
	})
	g.f.Line()
	rows := jen.Dict{}
	for _, k := range localKinds {
		l := findLocal(g.Local, k.condition)
		if l == nil {
			return fmt.Errorf("errors.yaml has no condition %s", k.condition)
		}
		rows[jen.Qual(linkPath, k.kind)] = jen.Values(jen.Dict{
			jen.Id("Name"): jen.Id(g.conditionName(k.condition)), jen.Id("Retry"): jen.Lit(l.Retry), jen.Id("Outcome"): jen.Lit(l.Outcome),
		})
	}
	g.f.Var().Id("conditions").Op("=").Map(jen.Qual(linkPath, "Kind")).Id("Error").Values(rows)
	g.f.Line()
	g.f.Add(doc("localError turns an error of the session layer into an *Error. Errors of the context stay as they are."))
	g.f.Func().Id("localError").Params(jen.Err().Error()).Error().Block(
		jen.Var().Id("found").Op("*").Qual(linkPath, "Error"),
		jen.If(jen.Op("!").Qual("errors", "As").Call(jen.Err(), jen.Op("&").Id("found"))).Block(jen.Return(jen.Err())),
		jen.Id("e").Op(":=").Id("conditions").Index(jen.Id("found").Dot("Kind")),
		jen.List(jen.Id("e").Dot("Message"), jen.Id("e").Dot("Err")).Op("=").List(jen.Id("found").Dot("Error").Call(), jen.Id("found").Dot("Err")),
		jen.If(jen.Op("!").Id("found").Dot("Sent").Op("&&").Id("e").Dot("Outcome").Op("==").Qual(wirePath, "OutcomeUnknown")).Block(
			jen.Id("e").Dot("Outcome").Op("=").Qual(wirePath, "OutcomeRejected").Comment("nothing was sent")),
		jen.Return(jen.Op("&").Id("e")),
	)
	g.f.Line()
	invalid := g.conditionName(localKinds[0].condition)
	g.f.Add(doc("invalid is a request that was found wrong before it was sent. The text of a route error begins with its reason word."))
	g.f.Func().Id("invalid").Params(jen.Err().Error()).Error().Block(
		jen.Id("e").Op(":=").Id("conditions").Index(jen.Qual(linkPath, localKinds[0].kind)),
		jen.List(jen.Id("e").Dot("Name"), jen.Id("e").Dot("Message"), jen.Id("e").Dot("Err")).Op("=").List(jen.Id(invalid), jen.Err().Dot("Error").Call(), jen.Err()),
		jen.Return(jen.Op("&").Id("e")),
	)
	g.f.Line()
	return nil
}

// findLocal finds a condition.
func findLocal(list []*model.LocalError, name string) *model.LocalError {
	for _, l := range list {
		if l.Name == name {
			return l
		}
	}
	return nil
}

func (g clientGen) refused() {
	g.f.Add(doc("refused turns an error reply into an *Error. An unknown code keeps its number (E-04); a refusal without a code has none, whatever its text says (E-05)."))
	g.f.Func().Id("refused").Params(jen.Id("typ").Qual(wirePath, "MessageType"), jen.Id("refusal").Qual(wirePath, "Refusal")).Error().Block(
		jen.Id("e").Op(":=").Op("&").Id("Error").Values(jen.Dict{
			jen.Id("Code"): jen.Id("refusal").Dot("Code"), jen.Id("Message"): jen.Id("refusal").Dot("Message"), jen.Id("FromBroker"): jen.True(),
			jen.Id("Retry"): jen.Qual(wirePath, "RetryNever"), jen.Id("Outcome"): jen.Qual(wirePath, "OutcomeRejected"),
		}),
		jen.List(jen.Id("info"), jen.Id("known")).Op(":=").Id("refusal").Dot("Code").Dot("Info").Call(),
		jen.Switch().Block(
			jen.Case(jen.Op("!").Id("refusal").Dot("HasCode")).Block(
				jen.List(jen.Id("message"), jen.Id("_")).Op(":=").Qual(wirePath, "LookupMessage").Call(jen.Id("typ")),
				jen.Id("e").Dot("Name").Op("=").Id("message").Dot("Domain")),
			jen.Case(jen.Id("known")).Block(
				jen.List(jen.Id("e").Dot("Name"), jen.Id("e").Dot("Retry"), jen.Id("e").Dot("Outcome")).Op("=").List(jen.Id("info").Dot("Text"), jen.Id("info").Dot("Retry"), jen.Id("info").Dot("Outcome"))),
			jen.Default().Block(
				jen.List(jen.Id("e").Dot("Name"), jen.Id("e").Dot("Outcome")).Op("=").List(jen.Id("refusal").Dot("Code").Dot("String").Call(), jen.Qual(wirePath, "OutcomeUnknown"))),
		),
		jen.Return(jen.Id("e")),
	)
	g.f.Line()
}

// defaults writes the defaults of clients as constants, and the limits of a session made of them.
func (g clientGen) defaults() error {
	g.f.Add(doc("EnvURL is the environment variable with the address that a client connects to when none is given."))
	g.f.Const().Id("EnvURL").Op("=").Lit(g.SDK.URLEnv)
	g.f.Line()
	if l := g.listener("tcp"); l != nil {
		g.f.Add(doc("DefaultURL is the address of a broker on the same machine that was started without options."))
		g.f.Const().Id("DefaultURL").Op("=").Lit(g.Protocol + "://" + l.Address)
		g.f.Line()
	}
	g.f.Add(doc("Defaults of clients (sdk.yaml)."))
	var backoffs []*model.Default
	var failed error
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, d := range g.SDK.Defaults {
			if extra(d, "first") != "" {
				backoffs = append(backoffs, d)
				continue
			}
			value, err := g.defaultValue(d)
			if err != nil {
				failed = cmp.Or(failed, err)
				continue
			}
			line := c.Id(g.defaultName(d.Name)).Op("=").Add(value)
			if comment := defaultComment(d); comment != "" {
				line.Comment(comment)
			}
		}
	})
	if failed != nil {
		return failed
	}
	g.f.Line()
	g.f.Add(doc("Delays between attempts (sdk.yaml)."))
	g.f.Var().DefsFunc(func(v *jen.Group) {
		for _, d := range backoffs {
			v.Id(g.defaultName(d.Name)).Op("=").Qual(linkPath, "Backoff").Values(jen.Dict{
				jen.Id("First"):  jen.Id(extra(d, "first")).Op("*").Add(timeUnit(d.Unit)),
				jen.Id("Cap"):    jen.Id(extra(d, "cap")).Op("*").Add(timeUnit(d.Unit)),
				jen.Id("Factor"): jen.Id(extra(d, "factor")),
			})
		}
	})
	g.f.Line()
	g.defaultLimits()
	return nil
}

func extra(d *model.Default, key string) string {
	for _, kv := range d.Extra {
		if kv.Key == key {
			return kv.Value
		}
	}
	return ""
}

// defaultComment tells where a default is explained.
func defaultComment(d *model.Default) string {
	return strings.Join(slices.DeleteFunc([]string{partsOf(d.Unit), d.Clause}, func(s string) bool { return s == "" }), ", ")
}

// partsOf is a unit that is no unit of time.
func partsOf(unit string) string {
	if timeUnit(unit) != nil {
		return ""
	}
	return unit
}

// defaultValue is a default as a Go constant: times are durations.
func (g clientGen) defaultValue(d *model.Default) (jen.Code, error) {
	if b := g.Bound(d.Bound); b != nil {
		value := jen.Qual(boundsPath, g.names.exported(b.Name))
		if unit := timeUnit(b.Unit); unit != nil {
			return value.Op("*").Add(unit), nil
		}
		return value, nil
	}
	if _, err := strconv.ParseFloat(d.Value, 64); err != nil {
		return nil, fmt.Errorf("%s:%d: default %s is no number", d.Pos.File, d.Pos.Line, d.Name)
	}
	value := jen.Id(d.Value)
	if unit := timeUnit(d.Unit); unit != nil {
		return value.Op("*").Add(unit), nil
	}
	return value, nil
}

// defaultLimits writes the limits of a session.
func (g clientGen) defaultLimits() {
	b := func(name string) *jen.Statement { return jen.Qual(boundsPath, g.names.exported(name)) }
	d := func(name string) *jen.Statement { return jen.Id(g.defaultName(name)) }
	ms := func(name string) *jen.Statement { return b(name).Op("*").Qual("time", "Millisecond") }
	g.f.Add(doc("defaultLimits bounds a session that is not told otherwise."))
	g.f.Var().Id("defaultLimits").Op("=").Qual(linkPath, "Limits").Values(jen.Dict{
		jen.Id("FrameBytes"):   d("max_frame"),
		jen.Id("RecordValue"):  b(g.Wire.Framing.LengthMax),
		jen.Id("InFlight"):     d("in_flight"),
		jen.Id("Labels"):       b("correlation_table_max"),
		jen.Id("Queue"):        d("queue"),
		jen.Id("QueueBytes"):   b("sdk_queue_bytes_max"),
		jen.Id("Abandoned"):    b("sdk_cancelled_max"),
		jen.Id("HTTPHeader"):   b("http_header_bytes_max"),
		jen.Id("Connect"):      d("connect_timeout"),
		jen.Id("Settle"):       d("settle"),
		jen.Id("Request"):      d("request_timeout"),
		jen.Id("Heartbeat"):    d("ping_interval"),
		jen.Id("PeerSilence"):  d("ping_timeout"),
		jen.Id("CloseTimeout"): ms("sdk_close_timeout_ms"),
	})
}
