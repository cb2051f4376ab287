package oracle

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Load reads the specification whose index is fitz.yaml at the root of fsys.
//
// It takes the specification as right, as far as the rules of the generator check it, and returns an error where it cannot make sense of it.
func Load(fsys fs.FS) (*Spec, error) { return LoadIndex(fsys, "fitz.yaml") }

// LoadIndex is Load for an index of another name.
func LoadIndex(fsys fs.FS, index string) (*Spec, error) {
	l := &loader{fsys: fsys, spec: &Spec{bounds: map[string]*bound{}, schemes: map[string]*scheme{}, byName: map[string]*message{}}}
	l.load(index)
	if l.err != nil {
		return nil, fmt.Errorf("oracle: %w", l.err)
	}
	return l.spec, nil
}

// loader keeps the first error and reads on.
type loader struct {
	fsys fs.FS
	spec *Spec
	err  error
}

// node is a place in a YAML file; the node may be nil.
type node struct {
	l    *loader
	file string
	*yaml.Node
}

func (n node) fail(format string, args ...any) {
	if n.l.err != nil {
		return
	}
	line := 0
	if n.Node != nil {
		line = n.Line
	}
	n.l.err = fmt.Errorf("%s:%d: %s", n.file, line, fmt.Sprintf(format, args...))
}

func (n node) at(inner *yaml.Node) node { return node{n.l, n.file, inner} }

// get is the value of a key, without a node when there is none.
func (n node) get(keys ...string) node {
	for _, key := range keys {
		inner := n.at(nil)
		for k, v := range n.pairs() {
			if k == key {
				inner = v
			}
		}
		n = inner
	}
	return n
}

func (n node) has() bool { return n.Node != nil }

// pairs are the members of a mapping in the order of the file.
func (n node) pairs() iter.Seq2[string, node] {
	return func(yield func(string, node) bool) {
		if n.Node == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.at(n.Content[i+1])) {
				return
			}
		}
	}
}

func (n node) items() []node {
	var out []node
	if n.Node != nil && n.Kind == yaml.SequenceNode {
		for _, inner := range n.Content {
			out = append(out, n.at(inner))
		}
	}
	return out
}

func (n node) str() string {
	if n.Node == nil || n.Kind != yaml.ScalarNode {
		return ""
	}
	return n.Value
}

func (n node) texts() []string {
	var out []string
	for _, item := range n.items() {
		out = append(out, item.str())
	}
	return out
}

func (n node) yes() bool { return n.str() == "true" }

// num is a whole number; 0 when the key is missing.
func (n node) num() uint64 {
	if !n.has() {
		return 0
	}
	v, err := strconv.ParseUint(n.str(), 10, 64)
	if err != nil {
		n.fail("%q is not a whole number", n.str())
	}
	return v
}

func (l *loader) read(name string) node {
	content, err := fs.ReadFile(l.fsys, name)
	var doc yaml.Node
	if err == nil {
		err = yaml.Unmarshal(content, &doc)
	}
	if err == nil && len(doc.Content) != 1 {
		err = errors.New("not one document")
	}
	if err != nil {
		if l.err == nil {
			l.err = fmt.Errorf("%s: %w", name, err)
		}
		return node{l, name, nil}
	}
	return node{l, name, doc.Content[0]}
}

func (l *loader) load(index string) {
	root := l.read(index)
	l.spec.Version = root.get("version").str()
	files := root.get("files")
	file := func(kind string) node { return l.read(path.Join(path.Dir(index), files.get(kind).str())) }
	l.bounds(file("bounds"))
	l.errors(file("errors"))
	l.routes(file("routes"))
	wire := file("wire")
	l.wire(wire)
	for _, name := range files.get("domains").items() {
		l.domain(l.read(path.Join(path.Dir(index), name.str())), wire)
	}
	l.labels(wire)
}

func (l *loader) bounds(root node) {
	for name, b := range root.get("bounds").pairs() {
		l.spec.bounds[name] = &bound{name: name, value: int64(b.get("default").num()), minus: b.get("minus").texts(), reaction: b.get("reaction").str()}
	}
}

// bound is the bound that a node names, nil without a node.
func (n node) bound() *bound {
	if !n.has() {
		return nil
	}
	b := n.l.spec.bounds[n.str()]
	if b == nil {
		n.fail("no bound %q", n.str())
		return &bound{}
	}
	return b
}

func (l *loader) errors(root node) {
	for name, e := range root.get("errors").pairs() {
		code := e.get("code")
		l.spec.errors = append(l.spec.errors, ErrorRow{Name: name, Number: uint32(code.num()), Text: strings.Replace(strings.ToLower(name), "_", ".", 1),
			Retry: e.get("retry").str(), Outcome: e.get("outcome").str(), Class: e.get("class").str()})
	}
}

func (l *loader) routes(root node) {
	g := root.get("grammar")
	l.spec.grammar = grammar{
		separator: g.get("separator").str(), slash: g.get("segment_separator").str(), one: g.get("one").str(), many: g.get("many").str(),
		bytes: int(g.get("bytes").bound().value), segments: int(g.get("segments").bound().value),
		containSegments: int(g.get("containment", "segments").bound().value), containStates: int(g.get("containment", "states").bound().value),
		clauses: map[string]string{},
	}
	for _, reason := range root.get("reasons").items() {
		l.spec.grammar.clauses[reason.get("name").str()] = reason.get("clause").str()
	}
	for name, n := range root.get("schemes").pairs() {
		s := &scheme{name: name, schemeless: n.get("schemeless").yes(), from: int(n.get("reserved", "from").num()),
			reserved: n.get("reserved", "words").texts(), shapes: n.get("shapes").texts()}
		if n.get("depth").str() != "flexible" {
			s.depth = int(n.get("depth").num())
		}
		l.spec.schemes[name] = s
	}
}

func (l *loader) wire(root node) {
	w := &l.spec.wire
	framing := root.get("framing")
	w.escape = framing.get("record", "type", "escape").num()
	w.recordMax = int(framing.get("record", "length", "max").bound().value)
	w.replyMax = int(framing.get("record", "length", "reply_max").bound().value)
	w.recordsMax = int(framing.get("records_per_message", "max").bound().value)
	if got := []string{framing.get("byte_order").str(), framing.get("record", "type", "narrow").str(), framing.get("record", "type", "wide").str(),
		framing.get("record", "length", "type").str()}; !slices.Equal(got, []string{"big", "u8", "u16", "u16"}) {
		framing.fail("the framing %v is not known here", got)
	}
	w.bits, w.bitNames, w.label = map[string]uint64{}, map[uint64]string{}, map[Direction]*message{}
	for _, c := range root.get("capabilities").items() {
		mask := uint64(1) << c.get("bit").num()
		w.bits[c.get("name").str()], w.bitNames[mask] = mask, c.get("name").str()
	}
	for _, c := range root.get("close_reasons").items() {
		w.closes = append(w.closes, CloseReason{
			c.get("name").str(), c.get("text").str(), uint16(c.get("websocket").num()), c.get("detail").yes(),
		})
	}
	for _, r := range root.get("reserved").items() {
		w.reserved = append(w.reserved, reserved{uint16(r.get("from").num()), uint16(r.get("to").num())})
	}
	for name, e := range root.get("envelopes").pairs() {
		switch {
		case name == "clauses":
		case name == "success":
			w.success = e.get("status").num()
		default:
			w.envelopes = append(w.envelopes, envelope{name, e.get("status").num(), l.layout(name, e.get("fields"), &domain{})})
		}
	}
}

// labels finds the messages that stand in front of labelled records.
func (l *loader) labels(wire node) {
	for dir, key := range map[Direction]string{Up: "request", Down: "reply"} {
		name := wire.get("label", key).str()
		for _, m := range l.spec.messages {
			if _, own, _ := strings.Cut(m.name, "."); own == name && m.form == Control {
				l.spec.wire.label[dir] = m
			}
		}
	}
}

func (l *loader) domain(root, wire node) {
	d := &domain{name: root.get("domain").str(), number: root.get("number").num(), enums: map[string]*enum{}, structs: map[string]*layout{}, unions: map[string]*union{}}
	if scheme := root.get("routes"); scheme.has() {
		if d.scheme = l.spec.schemes[scheme.str()]; d.scheme == nil {
			scheme.fail("no scheme %q", scheme.str())
		}
	}
	d.faults = l.faults(root.get("faults"), faults{})
	for name, n := range root.get("enums").pairs() {
		d.enums[name] = enumOf(n)
	}
	// Structs and unions may name each other in any order: first all of them are there, then they are filled.
	for name := range root.get("structs").pairs() {
		d.structs[name] = &layout{name: name}
	}
	for name := range root.get("unions").pairs() {
		d.unions[name] = &union{}
	}
	for name, n := range root.get("structs").pairs() {
		*d.structs[name] = *l.layout(name, n.get("fields"), d)
	}
	for name, n := range root.get("unions").pairs() {
		u := d.unions[name]
		u.width = widths[n.get("tag").str()]
		for variantName, v := range n.get("variants").pairs() {
			u.variants = append(u.variants, variant{variantName, v.get("value").num(), l.layout(variantName, v.get("fields"), d)})
		}
	}
	for name, op := range root.get("operations").pairs() {
		l.operation(d, name, op, wire)
	}
	for name, m := range root.get("messages").pairs() {
		l.message(d, name, m)
	}
	l.spec.domains = append(l.spec.domains, d)
}

func enumOf(n node) *enum {
	e := &enum{width: widths[n.get("type").str()], closed: n.get("closed").yes(), names: map[uint64]string{}}
	for name, v := range n.get("values").pairs() {
		e.names[v.get("value").num()] = name
		e.values = append(e.values, v.get("value").num())
	}
	slices.Sort(e.values)
	return e
}

// faults is what a node says about answers to mistakes, over what held before.
func (l *loader) faults(n node, base faults) faults {
	if m := n.get("malformed"); m.has() {
		base.malformed = answerOf(m)
	}
	if r := n.get("route"); r.has() {
		base.route = answerOf(r)
	}
	return base
}

func answerOf(n node) answer {
	switch {
	case n.get("close").has():
		return answer{close: n.get("close").str()}
	case n.str() == "drop":
		return answer{drop: true}
	}
	if _, ok := n.l.spec.Error(n.str()); !ok {
		n.fail("no code %q", n.str())
	}
	return answer{code: n.str()}
}

func (l *loader) operation(d *domain, name string, op, wire node) {
	f := l.faults(op.get("faults"), d.faults)
	full := d.name + "." + name
	typ := uint16(op.get("message").num())
	carried := wire.get("answer_forms", op.get("envelope").str(), "carried").yes()
	request := &message{domain: d, name: full, number: typ, form: Request, up: true, layout: l.layout(full, op.get("request"), d), faults: f,
		clauses: op.get("clauses").texts(), refuses: !carried}
	l.add(request)
	if op.get("reply").str() != "none" {
		l.add(&message{domain: d, name: full, number: typ, form: Reply, down: true, reply: true, layout: l.layout(full, op.get("reply"), d), clauses: op.get("clauses").texts()})
	}
}

func (l *loader) message(d *domain, name string, n node) {
	f := d.faults
	if m := n.get("malformed"); m.has() {
		f.malformed = answerOf(m)
	}
	full := d.name + "." + name
	dir := n.get("direction").str()
	m := &message{domain: d, name: full, number: uint16(n.get("message").num()), form: Form(n.get("class").str()), up: dir != "to_client", down: dir != "to_broker",
		layout: l.layout(full, n.get("fields"), d), faults: f, clauses: n.get("clauses").texts()}
	m.layout.open = n.get("later_bytes").str() == "ignored"
	l.add(m)
}

func (l *loader) add(m *message) {
	l.spec.messages = append(l.spec.messages, m)
	if l.spec.byName[m.name] == nil {
		l.spec.byName[m.name] = m
	}
}

func (l *loader) layout(name string, fields node, d *domain) *layout {
	out := &layout{name: name}
	for _, n := range fields.items() {
		out.fields = append(out.fields, l.field(n, d, out))
	}
	return out
}

// widths are the bytes of numbers.
var widths = map[string]int{"u8": 1, "u16": 2, "u32": 4, "u64": 8}

func (l *loader) field(n node, d *domain, before *layout) *field {
	f := &field{
		name: n.get("name").str(), typ: n.get("type").str(), bound: n.get("bound").bound(), bytes: n.get("bytes").bound(),
		nonzero: n.get("nonzero").yes(), code: n.get("code").str(), format: n.get("format").str(), length: widths[n.get("length").str()],
		open: n.get("later_bytes").str() == "ignored", secret: n.get("role").str() == "secret", clamps: n.get("above").str() == "clamp", cuts: n.get("above").str() == "cut",
	}
	f.text = n.get("text").str()
	l.typed(f, f.typ, n, d)
	f.form = map[string]listForm{"flagged": flaggedList, "until_end": untilEnd}[n.get("form").str()]
	if f.counter = widths[n.get("count").str()]; f.counter == 0 {
		f.counter = 4
	}
	l.ranges(f, n)
	l.presence(f, n.get("presence"), before)
	return f
}

// typed sets what the name of a type means.
func (l *loader) typed(f *field, typ string, n node, d *domain) {
	inner, isList := strings.CutPrefix(typ, "list<")
	switch {
	case widths[typ] > 0:
		f.kind, f.width = numberKind, widths[typ]
	case typ == "bool":
		f.kind = boolKind
	case typ == "uuid":
		f.kind = uuidKind
	case typ == "string":
		f.kind = textKind
	case typ == "endpoint":
		f.kind, f.bound = textKind, n.get("max_bytes").bound()
	case typ == "bytes":
		f.kind = bytesKind
	case typ == "route" || typ == "selector":
		f.kind, f.pattern = routeKind, typ == "selector"
	case isList:
		f.kind = listKind
		f.elem = &field{name: f.name, typ: strings.TrimSuffix(inner, ">")}
		l.typed(f.elem, f.elem.typ, n, d)
	case d.enums[typ] != nil:
		f.kind, f.enum, f.width = numberKind, d.enums[typ], d.enums[typ].width
	case d.structs[typ] != nil:
		f.kind, f.part = partKind, d.structs[typ]
	case d.unions[typ] != nil:
		f.kind, f.union = unionKind, d.unions[typ]
	default:
		n.fail("no type %q", typ)
	}
}

func (l *loader) ranges(f *field, n node) {
	if c := n.get("const"); c.has() {
		f.fixed, f.constant = true, l.value(c, f)
	}
	if d := n.get("default"); d.has() {
		f.hasFallback, f.fallback = true, l.value(d, f)
	}
	lowest, highest := n.get("min"), n.get("max")
	f.max = math.MaxUint64
	if lowest.has() {
		f.ranged, f.min = true, l.value(lowest, f)
	}
	if highest.has() && !f.clamps {
		f.ranged, f.max = true, l.value(highest, f)
	}
}

// value is a number, a bound by name, or a value of the enumeration of the field by name.
func (l *loader) value(n node, f *field) uint64 {
	name := n.str()
	if f.enum != nil {
		for v, own := range f.enum.names {
			if own == name {
				return v
			}
		}
	}
	switch b := l.spec.bounds[name]; {
	case b != nil:
		return uint64(b.value)
	case name == "true":
		return 1
	case name == "false":
		return 0
	}
	return n.num()
}

func (l *loader) presence(f *field, n node, before *layout) {
	names := map[string]presence{"": always, "flag": flagged, "tail": tail, "tail_flag": tailFlagged, "rest": rest}
	kind, ok := names[n.str()]
	if !ok {
		n.fail("no presence %q", n.str())
	}
	f.presence = kind
	w := n.get("when")
	if !w.has() {
		return
	}
	f.presence, f.whenName = when, w.get("field").str()
	if bit := w.get("bit"); bit.has() {
		if f.whenBits = l.spec.wire.bits[bit.str()]; f.whenBits == 0 {
			bit.fail("no capability %q", bit.str())
		}
	}
	if !slices.ContainsFunc(before.fields, func(o *field) bool { return o.name == f.whenName }) {
		w.fail("no earlier field %q", f.whenName)
	}
}
