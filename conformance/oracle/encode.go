package oracle

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Encode makes one record, header and value, in the canonical form: fields at the end that are absent or hold their default are left out. Beside
// the types that Value names it takes whole numbers of any Go type and in decimal text, names of enumeration values, Go maps for structs, and hex
// for uuid. A refusal without an envelope is coded when it has a code and plain otherwise. The error is a *Fault: of class CannotEncode, or the
// one that a reader would find.
func (s *Spec) Encode(message string, form Form, v Value) ([]byte, error) {
	record, m, err := s.encode(message, form, v)
	if err != nil {
		return nil, err
	}
	dir := Up
	if form == Refusal || !m.up {
		dir = Down
	}
	if dir == Down && len(record)-headerSize(uint64(m.number), s.wire.escape) > s.wire.replyMax {
		return nil, cannot(message, "the value is larger than a broker may send (W-13)")
	}
	if _, fault := s.Decode(dir, record); fault != nil {
		return nil, fault
	}
	return record, nil
}

// EncodeAny is Encode without the checks of a reader: what comes out can break bounds, ranges and constants. It still fails for a value without the
// fields of the message and for one larger than a record.
func (s *Spec) EncodeAny(message string, form Form, v Value) ([]byte, error) {
	record, _, err := s.encode(message, form, v)
	return record, err
}

// Label puts a label record in front of a record.
func (s *Spec) Label(dir Direction, label uint64, record []byte) []byte {
	m := s.wire.label[dir]
	return append(s.record(m.number, binary.BigEndian.AppendUint64(nil, label)), record...)
}

func cannot(field, what string) *Fault {
	return &Fault{Class: CannotEncode, Field: field + ": " + what, Clause: clauseOf[CannotEncode]}
}

func (s *Spec) encode(name string, form Form, v Value) ([]byte, *message, error) {
	m := s.named(name, form)
	if m == nil {
		return nil, nil, cannot(name, "no message of the form "+string(form))
	}
	t, fault := s.tree(m, form, v)
	if fault != nil {
		return nil, nil, fault
	}
	value := t.bytes()
	if len(value) > s.wire.recordMax {
		return nil, nil, cannot(name, "the value is larger than a record")
	}
	return s.record(m.number, value), m, nil
}

func headerSize(number, escape uint64) int {
	if number < escape {
		return 3
	}
	return 5
}

// record puts the header in front of a value (W-01, W-02).
func (s *Spec) record(number uint16, value []byte) []byte {
	var out []byte
	if uint64(number) < s.wire.escape {
		out = append(out, byte(number))
	} else {
		out = binary.BigEndian.AppendUint16(append(out, byte(s.wire.escape)), number)
	}
	return append(binary.BigEndian.AppendUint16(out, uint16(len(value))), value...)
}

// role says what the bytes of a tree are for.
type role int

const (
	groupRole  role = iota // only holds others
	numberRole             // the bytes of a number, or of a uuid
	flagRole               // a bool, or the byte that says whether a field follows
	moreRole               // the byte that says whether an element follows
	tagRole                // the number of a union
	countRole              // the count of a list
	statusRole             // the first byte of a reply
	sizedRole              // a length and what it measures
	textRole               // text, bytes or a route
)

// tree is a value before it becomes bytes, so that mistakes can be made at one place while every length around it stays right.
type tree struct {
	path  string
	role  role
	field *field // nil for a status
	data  []byte // without kids
	width int    // bytes of the length in front of the kids, for sizedRole
	wrong *uint64
	kids  []*tree
}

func (t *tree) bytes() []byte {
	if t.kids == nil && t.role != sizedRole {
		return t.data
	}
	var inner []byte
	for _, k := range t.kids {
		inner = append(inner, k.bytes()...)
	}
	if t.role != sizedRole {
		return inner
	}
	n := uint64(len(inner))
	if t.wrong != nil {
		n = *t.wrong
	}
	return append(bigEndian(n, t.width), inner...)
}

func bigEndian(n uint64, width int) []byte {
	return binary.BigEndian.AppendUint64(nil, n)[8-width:]
}

// tree makes the tree of a value.
func (s *Spec) tree(m *message, form Form, v Value) (*tree, *Fault) {
	return (&builder{spec: s}).message(m, form, v)
}

func (b *builder) message(m *message, form Form, v Value) (*tree, *Fault) {
	s := b.spec
	root := &tree{kids: []*tree{}}
	if form == Refusal {
		return b.refusal(m, v)
	}
	if m.reply {
		root.kids = append(root.kids, &tree{path: "status", role: statusRole, data: []byte{byte(s.wire.success)}})
	}
	b.layout(root, m.layout, v, "")
	if b.fault != nil {
		b.fault.Field = m.name + "." + b.fault.Field
	}
	return root, b.fault
}

func (b *builder) refusal(m *message, v Value) (*tree, *Fault) {
	name, _ := v[Envelope].(string)
	if name == "" {
		name = "plain"
		if v["code"] != nil {
			name = "coded"
		}
	}
	for _, e := range b.spec.wire.envelopes {
		if e.name != name {
			continue
		}
		rest := Value{}
		for k, inner := range v {
			if k != Envelope {
				rest[k] = inner
			}
		}
		root := &tree{kids: []*tree{{path: "status", role: statusRole, data: []byte{byte(e.status)}}}}
		b.layout(root, e.layout, rest, "")
		return root, b.fault
	}
	return nil, cannot(m.name, "no envelope "+strconv.Quote(name))
}

// forced is a tail field that is written although the canonical form leaves it out: with a value that is its default, or, when it has no value, as
// a presence byte that is 0.
type forced struct{ value any }

// builder keeps the first fault.
type builder struct {
	spec  *Spec
	uncut bool // text that its sender should cut stays as it is
	fault *Fault
}

func (b *builder) cannot(path, what string) {
	if b.fault == nil {
		b.fault = cannot(path, what)
	}
}

func (b *builder) layout(into *tree, l *layout, v Value, prefix string) {
	for name := range v {
		if name != Variant && !slices.ContainsFunc(l.fields, func(f *field) bool { return f.name == name }) {
			b.cannot(prefix+name, "no such field")
		}
	}
	for i, f := range l.fields {
		path := prefix + f.name
		value, given := v[f.name]
		if !given && f.fixed {
			value, given = f.constant, true
		}
		force, must := value.(forced)
		if must {
			value, given = force.value, force.value != nil
		}
		if b.present(into, l.fields[i:], f, path, v, given, must) {
			b.field(into, f, path, value)
		}
	}
}

// present writes the byte that says whether the field follows, when there is one, and tells whether it does.
func (b *builder) present(into *tree, fields []*field, f *field, path string, v Value, given, must bool) bool {
	switch f.presence {
	case flagged:
		into.kids = append(into.kids, flagTree(path, f, given))
		return given
	case tail, tailFlagged:
		later := slices.ContainsFunc(fields[1:], func(o *field) bool { return v[o.name] != nil && !o.isFallback(v[o.name]) })
		if !must && !later && (!given || f.isFallback(v[f.name])) {
			return false
		}
		if f.presence == tailFlagged {
			into.kids = append(into.kids, flagTree(path, f, given))
			return given
		}
	case when:
		if !given {
			return false
		}
		return true
	}
	if !given {
		b.cannot(path, "the field is missing")
	}
	return given
}

// isFallback reports whether a value is the one that the absent field stands for.
func (f *field) isFallback(v any) bool {
	if !f.hasFallback || f.presence != tail {
		return false
	}
	if set, ok := v.(bool); ok {
		return set == (f.fallback == 1)
	}
	n, ok := f.integer(v)
	return ok && n == f.fallback
}

func flagTree(path string, f *field, set bool) *tree {
	data := []byte{0}
	if set {
		data[0] = 1
	}
	return &tree{path: path, role: flagRole, field: f, data: data}
}

func (b *builder) field(into *tree, f *field, path string, v any) {
	leaf := &tree{path: path, field: f}
	switch f.kind {
	case numberKind:
		n, ok := f.integer(v)
		if !ok || f.width < 8 && n >= 1<<(8*f.width) {
			b.cannot(path, fmt.Sprintf("%T is no %s or too large for one", v, f.typ))
		}
		leaf.role, leaf.data = numberRole, bigEndian(n, f.width)
	case boolKind:
		set, ok := v.(bool)
		if !ok {
			b.cannot(path, fmt.Sprintf("%T is no bool", v))
		}
		leaf = flagTree(path, f, set)
	case uuidKind:
		id, ok := octets(v)
		if text, isText := v.(string); isText {
			decoded, err := hex.DecodeString(text)
			id, ok = decoded, err == nil
		}
		if !ok || len(id) != 16 {
			b.cannot(path, "not 16 bytes")
		}
		leaf.role, leaf.data = numberRole, id
	case listKind:
		b.list(into, f, path, v)
		return
	case partKind, unionKind:
		b.compound(into, f, path, v)
		return
	default:
		b.content(into, f, path, v)
		return
	}
	into.kids = append(into.kids, leaf)
}

// integer is a number of any Go type, a decimal text, or the name of a value of the enumeration.
func (f *field) integer(v any) (uint64, bool) {
	switch n := v.(type) {
	case uint64:
		return n, true
	case uint32:
		return uint64(n), true
	case uint16:
		return uint64(n), true
	case uint8:
		return uint64(n), true
	case uint:
		return uint64(n), true
	case int64:
		return uint64(n), n >= 0
	case int:
		return uint64(n), n >= 0
	case float64:
		return uint64(n), n >= 0 && n == math.Trunc(n) && n < 1<<53
	case json.Number:
		return f.integer(n.String())
	case string:
		if f.enum != nil {
			for value, name := range f.enum.names {
				if name == n {
					return value, true
				}
			}
		}
		value, err := strconv.ParseUint(n, 10, 64)
		return value, err == nil
	}
	return 0, false
}

func octets(v any) ([]byte, bool) {
	switch data := v.(type) {
	case []byte:
		return data, true
	case [16]byte:
		return data[:], true
	}
	return nil, false
}

func (b *builder) content(into *tree, f *field, path string, v any) {
	data, ok := octets(v)
	if text, isText := v.(string); isText {
		data, ok = []byte(text), true
	}
	if !ok {
		b.cannot(path, fmt.Sprintf("%T is no %s", v, f.typ))
	}
	if f.cuts && f.bound != nil && !b.uncut {
		data = []byte(cut(string(data), int(f.bound.value)))
	}
	leaf := &tree{path: path, role: textRole, field: f, data: data}
	if f.presence != rest {
		leaf = &tree{path: path, role: sizedRole, field: f, width: 4, kids: []*tree{leaf}}
	}
	into.kids = append(into.kids, leaf)
}

func asValue(v any) (Value, bool) {
	switch m := v.(type) {
	case Value:
		return m, true
	case map[string]any:
		return Value(m), true
	}
	return nil, false
}

func (b *builder) compound(into *tree, f *field, path string, v any) {
	value, ok := asValue(v)
	if !ok {
		b.cannot(path, fmt.Sprintf("%T is no %s", v, f.typ))
		return
	}
	t := &tree{path: path, role: groupRole, field: f, kids: []*tree{}}
	if f.length > 0 {
		t.role, t.width = sizedRole, f.length
	}
	into.kids = append(into.kids, t)
	if f.kind == partKind {
		b.layout(t, f.part, value, path+".")
		return
	}
	for _, variant := range f.union.variants {
		if variant.name == value[Variant] {
			t.kids = append(t.kids, &tree{path: path, role: tagRole, field: f, data: bigEndian(variant.number, f.union.width)})
			b.layout(t, variant.layout, value, path+".")
			return
		}
	}
	b.cannot(path, fmt.Sprintf("no variant %v", value[Variant]))
}

func (b *builder) list(into *tree, f *field, path string, v any) {
	items, ok := v.([]any)
	if !ok {
		b.cannot(path, fmt.Sprintf("%T is no list", v))
	}
	t := &tree{path: path, role: groupRole, field: f, kids: []*tree{}}
	into.kids = append(into.kids, t)
	if f.form == counted {
		t.kids = append(t.kids, &tree{path: path, role: countRole, field: f, data: bigEndian(uint64(len(items)), f.counter)})
	}
	for i, item := range items {
		if f.form == flaggedList {
			t.kids = append(t.kids, &tree{path: path, role: moreRole, field: f, data: []byte{1}})
		}
		b.field(t, f.elem, fmt.Sprintf("%s[%d]", path, i), item)
	}
	if f.form == flaggedList {
		t.kids = append(t.kids, &tree{path: path, role: moreRole, field: f, data: []byte{0}})
	}
}

// find is the first part of a tree with a path and a role, nil when there is none.
func (t *tree) find(path string, r role) *tree {
	if t.path == path && t.role == r {
		return t
	}
	for _, k := range t.kids {
		if found := k.find(path, r); found != nil {
			return found
		}
	}
	return nil
}

// walk visits a tree in byte order.
func (t *tree) walk(visit func(*tree)) {
	visit(t)
	for _, k := range t.kids {
		k.walk(visit)
	}
}

// cutter writes a tree that ends inside of one of its parts.
type cutter struct {
	at   *tree
	keep int  // bytes of that part
	raw  bool // parts with a length keep the one that they would have
	done bool
}

func (c *cutter) bytes(t *tree) []byte {
	if c.done {
		return nil
	}
	if t == c.at {
		c.done = true
		return t.bytes()[:c.keep]
	}
	if t.kids == nil && t.role != sizedRole {
		return t.data
	}
	var inner []byte
	for _, k := range t.kids {
		inner = append(inner, c.bytes(k)...)
	}
	if t.role != sizedRole {
		return inner
	}
	if !c.done || c.raw || t.field.part == nil && t.field.union == nil {
		return append(t.bytes()[:t.width:t.width], inner...)
	}
	c.done = false // the part ends early, and what follows it is there
	return append(bigEndian(uint64(len(inner)), t.width), inner...)
}
