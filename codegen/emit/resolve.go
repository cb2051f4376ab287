package emit

import (
	"fmt"
	"math"
	"slices"

	"github.com/fitzwire/fitz/codegen/model"
)

// kind is what a field is on the wire.
type kind uint8

const (
	number kind = iota
	boolean
	uuid
	text
	blob
	route // or selector
	enumeration
	structure
	choice // union
	list
)

// protocol is the model with everything looked up that Go code needs: names, types, sizes, codes.
type protocol struct {
	*model.Spec
	names   namer
	domains []*domain
	structs map[string]*record // by domain and name
}

// domain is one domain with its records in the order in which they are generated.
type domain struct {
	*model.Domain
	records []*record
}

// part is the role of a record.
type part string

const (
	requestPart part = "request"
	replyPart   part = "reply"
	messagePart part = "message"
	structPart  part = "struct"
	unionPart   part = "union"
)

// record is a sequence of fields with a Go type of its own.
type record struct {
	domain  *model.Domain
	part    part
	name    string // of the specification
	goName  string
	path    string // as errors name it: lease.acquire
	doc     string
	clauses []string
	code    string // name of the code that answers a malformed value, "" when nothing does
	op      *model.Operation
	message *model.Message
	open    bool // later bytes are ignored
	source  []*model.Field
	fields  []*field
	union   *model.Union
	forms   []*record // variants of a union

	smallest, largest int
	limited           bool // has a bound that an operator may change
	progress          progress
}

// field is one field with its Go type.
type field struct {
	*model.Field
	owner   *record
	goName  string
	varName string // of its codec.Field
	kind    kind
	bits    int // width of a number, in bits
	enum    *model.Enum
	enumOf  string // Go name of the enumeration
	record  *record
	elem    *field
	most    *model.Bound // its bound
	bytes   *model.Bound // bound of the bytes of a list
	least   *limit       // smallest number
	highest *limit       // largest number
	initial *limit       // number when the field is absent or 0
	when    *field       // decides about presence
	bit     *model.Capability
	minus   []*field // their lengths are taken off the bound
	code    string   // of a mistake of size

	smallest, largest int // with everything that belongs to the field
}

// limit is a number: a literal, or the default of a bound.
type limit struct {
	value uint64
	bound *model.Bound
}

// changeable tells whether an operator may change the number.
func (l *limit) changeable() bool { return l != nil && l.bound != nil && l.bound.OperatorMayChange }

// limit resolves a number of the specification.
func (p *protocol) limit(n *model.Number) *limit {
	if n == nil {
		return nil
	}
	if b := p.Bound(n.Bound); b != nil {
		return &limit{uint64(b.Default), b}
	}
	return &limit{value: n.Value.Uint64()}
}

// resolve looks everything up. It fails on what the rules should have found.
func resolve(spec *model.Spec) (*protocol, error) {
	p := &protocol{Spec: spec, names: newNamer(spec), structs: map[string]*record{}}
	for _, d := range spec.Domains {
		out := &domain{Domain: d}
		p.domains = append(p.domains, out)
		for _, s := range d.Structs {
			p.structs[d.Name+"."+s.Name] = &record{domain: d, part: structPart, name: s.Name, goName: p.names.in(d, s.Name),
				path: d.Name + "." + s.Name, doc: s.Doc, clauses: s.Clauses, source: s.Fields}
		}
		for _, u := range d.Unions {
			p.structs[d.Name+"."+u.Name] = p.unionRecord(d, u)
		}
	}
	for _, d := range p.domains {
		if err := p.domainRecords(d); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *protocol) unionRecord(d *model.Domain, u *model.Union) *record {
	r := &record{domain: d, part: unionPart, name: u.Name, goName: p.names.in(d, u.Name), path: d.Name + "." + u.Name, doc: u.Doc,
		clauses: u.Clauses, union: u}
	for _, v := range u.Variants {
		r.forms = append(r.forms, &record{domain: d, part: structPart, name: u.Name + "_" + v.Name, goName: p.names.in(d, u.Name, v.Name),
			path: r.path + "." + v.Name, doc: v.Doc, source: v.Fields})
	}
	return r
}

// domainRecords fills the records of a domain in the order of the specification.
func (p *protocol) domainRecords(d *domain) error {
	for _, s := range d.Structs {
		if err := p.add(d, p.structs[d.Name+"."+s.Name]); err != nil {
			return err
		}
	}
	for _, u := range d.Unions {
		r := p.structs[d.Name+"."+u.Name]
		if err := p.add(d, append(slices.Clone(r.forms), r)...); err != nil {
			return err
		}
	}
	for _, op := range d.Operations {
		if err := p.add(d, p.operationRecords(d, op)...); err != nil {
			return err
		}
	}
	for _, m := range d.Messages {
		r := &record{domain: d.Domain, part: messagePart, name: m.Name, goName: p.names.in(d.Domain, m.Name), path: d.Name + "." + m.Name,
			doc: m.Doc, clauses: m.Clauses, message: m, open: m.LaterIgnored, source: m.Fields}
		if p.Error(m.Malformed) != nil {
			r.code = m.Malformed
		}
		if err := p.add(d, r); err != nil {
			return err
		}
	}
	return nil
}

// operationRecords are the request and the reply of an operation.
func (p *protocol) operationRecords(d *domain, op *model.Operation) []*record {
	base := record{domain: d.Domain, name: op.Name, doc: op.Doc, clauses: op.Clauses, op: op}
	request, reply := base, base
	request.part, request.goName, request.path, request.source = requestPart, p.names.in(d.Domain, op.Name)+"Request", d.Name+"."+op.Name, op.Request
	reply.part, reply.goName, reply.path, reply.source = replyPart, p.names.in(d.Domain, op.Name)+"Reply", d.Name+"."+op.Name+".reply", op.Reply
	if p.Error(op.Faults.Malformed) != nil {
		request.code = op.Faults.Malformed
	}
	if op.NoReply {
		return []*record{&request}
	}
	return []*record{&request, &reply}
}

// add fills records and adds them to their domain.
func (p *protocol) add(d *domain, records ...*record) error {
	for _, r := range records {
		if err := p.fill(r); err != nil {
			return err
		}
		d.records = append(d.records, r)
	}
	return nil
}

// progress says how far a record is.
type progress uint8

const (
	untouched progress = iota
	begun
	filled
)

// fill resolves the fields of a record, and before them the records that they are made of, as sizes add up from the inside.
func (p *protocol) fill(r *record) error {
	switch r.progress {
	case filled:
		return nil
	case begun:
		return fmt.Errorf("%s:%d: %s contains itself", r.domain.Pos.File, r.domain.Pos.Line, r.path)
	}
	r.progress = begun
	err := p.fillFields(r)
	if r.union != nil {
		err = p.fillForms(r)
	}
	if most := p.Bound(p.Wire.Framing.LengthMax); most != nil {
		r.largest = min(r.largest, int(most.Default))
	}
	r.progress = filled
	return err
}

func (p *protocol) fillForms(r *record) error {
	width := widths[r.union.Tag] / 8
	r.smallest = math.MaxInt
	for _, form := range r.forms {
		if err := p.fill(form); err != nil {
			return err
		}
		r.smallest = min(r.smallest, width+form.smallest)
		r.largest = max(r.largest, width+form.largest)
		r.limited = r.limited || form.limited
	}
	return nil
}

func (p *protocol) fillFields(r *record) error {
	if r.part == replyPart {
		r.smallest, r.largest = 1, 1 // the status
	}
	for _, mf := range r.source {
		f, err := p.field(r, mf)
		if err != nil {
			return fmt.Errorf("%s:%d: %s.%s: %w", mf.Pos.File, mf.Pos.Line, r.path, mf.Name, err)
		}
		r.fields = append(r.fields, f)
		r.smallest += f.smallest
		r.largest = addSizes(r.largest, f.largest)
		r.limited = r.limited || f.limited()
	}
	return nil
}

// widths is the width in bits of each integer type.
var widths = map[string]int{"u8": 8, "u16": 16, "u32": 32, "u64": 64}

func (p *protocol) field(owner *record, mf *model.Field) (*field, error) {
	f := &field{Field: mf, owner: owner, goName: p.names.exported(mf.Name), most: p.Bound(mf.Bound), bytes: p.Bound(mf.Bytes)}
	f.varName = "field" + owner.goName + f.goName
	f.code = mf.Code
	f.least, f.highest, f.initial = p.limit(mf.Min), p.limit(mf.Max), p.limit(mf.Default)
	if err := p.fieldType(f, mf.Type); err != nil {
		return nil, err
	}
	if f.kind == route && owner.op != nil && f.code == "" && p.Error(owner.op.Faults.Route) != nil && owner.part == requestPart {
		f.code = owner.op.Faults.Route
	}
	if f.most != nil {
		for _, name := range f.most.Minus {
			other := owner.find(name)
			if other == nil {
				return nil, fmt.Errorf("its bound takes off %s, which is no earlier field", name)
			}
			f.minus = append(f.minus, other)
		}
	}
	if mf.Presence.Kind == model.PresentWhen {
		f.when, f.bit = owner.find(mf.Presence.Field), p.Capability(mf.Presence.Bit)
		if f.when == nil {
			return nil, fmt.Errorf("it is present when %s says so, which is no earlier field", mf.Presence.Field)
		}
	}
	f.sizes()
	return f, nil
}

// fieldType finds what the field is.
func (p *protocol) fieldType(f *field, name string) error {
	d := f.owner.domain
	switch name {
	case "u8", "u16", "u32", "u64":
		f.bits = widths[name]
		return nil
	case "bool":
		f.kind = boolean
		return nil
	case "uuid":
		f.kind = uuid
		return nil
	case "string":
		f.kind = text
		return nil
	case "bytes":
		f.kind = blob
		return nil
	case "route", "selector":
		f.kind = route
		return nil
	}
	if f.Elem != "" {
		return p.listType(f)
	}
	if e, owner := p.enum(d, name); e != nil {
		f.kind, f.enum, f.enumOf, f.bits = enumeration, e, p.names.in(owner, e.Name), widths[e.Type]
		return nil
	}
	if r := p.lookup(d, name); r != nil {
		if err := p.fill(r); err != nil {
			return err
		}
		f.kind, f.record = structure, r
		if r.part == unionPart {
			f.kind = choice
		}
		return nil
	}
	return fmt.Errorf("its type %s is unknown", name)
}

func (p *protocol) listType(f *field) error {
	elem := &model.Field{Named: f.Named, Type: f.Elem, Code: f.Field.Code}
	f.kind = list
	f.elem = &field{Field: elem, owner: f.owner, goName: f.goName, varName: f.varName, most: p.elementBound(f)}
	if err := p.fieldType(f.elem, f.Elem); err != nil {
		return err
	}
	f.elem.sizes()
	if f.elem.smallest == 0 {
		return fmt.Errorf("its elements can be empty, so their number is not bounded by the bytes that remain (D-2)")
	}
	return nil
}

// elementBound is the bound of a text in a list: of routes the one of all routes, else the one of the bytes of the list.
func (p *protocol) elementBound(f *field) *model.Bound {
	if f.Elem == "route" || f.Elem == "selector" {
		return p.Bound(p.Routes.Bytes)
	}
	return f.bytes
}

// enum finds an enumeration, in its own domain first.
func (p *protocol) enum(d *model.Domain, name string) (*model.Enum, *model.Domain) {
	if e := d.Enum(name); e != nil {
		return e, d
	}
	for _, other := range p.Domains {
		if e := other.Enum(name); e != nil {
			return e, other
		}
	}
	return nil, nil
}

// lookup finds a struct or union, in its own domain first.
func (p *protocol) lookup(d *model.Domain, name string) *record {
	if r := p.structs[d.Name+"."+name]; r != nil {
		return r
	}
	for _, other := range p.Domains {
		if r := p.structs[other.Name+"."+name]; r != nil {
			return r
		}
	}
	return nil
}

func (r *record) find(name string) *field {
	for _, f := range r.fields {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// limited tells whether what an operator says decides about the field.
func (f *field) limited() bool {
	switch {
	case f.Above == "clamp":
		return false
	case f.most != nil && f.most.OperatorMayChange, f.bytes != nil && f.bytes.OperatorMayChange:
		return true
	case f.least.changeable(), f.highest.changeable():
		return true
	case f.kind == list:
		return f.elem.limited()
	case f.record != nil:
		return f.record.limited
	}
	return false
}

// sizes derives how many bytes the field takes at least and at most.
func (f *field) sizes() {
	least, most := f.valueSizes()
	if f.Length != "" {
		least, most = least+widths[f.Length]/8, most+widths[f.Length]/8
	}
	switch f.Presence.Kind {
	case model.Flagged:
		least, most = 1, addSizes(1, most)
	case model.TailFlagged:
		least, most = 0, addSizes(1, most)
	case model.Tail, model.Rest, model.PresentWhen:
		least = 0
	}
	f.smallest, f.largest = least, most
}

// valueSizes are the sizes of the value without what presence and length add.
func (f *field) valueSizes() (least, most int) {
	const lengthSize = 4
	switch f.kind {
	case number, enumeration:
		return f.bits / 8, f.bits / 8
	case boolean:
		return 1, 1
	case uuid:
		return 16, 16
	case structure, choice:
		if f.Length != "" && f.most != nil {
			return f.record.smallest, int(f.most.Default)
		}
		return f.record.smallest, f.record.largest
	case list:
		return f.listSizes()
	}
	most = math.MaxUint16
	if f.most != nil {
		most = int(f.most.Default)
	}
	if f.Presence.Kind == model.Rest {
		return 0, most
	}
	return lengthSize, lengthSize + most
}

func (f *field) listSizes() (least, most int) {
	least = f.frame()
	most = math.MaxUint16
	if f.most != nil {
		most = f.elem.largest * int(f.most.Default)
	}
	if f.bytes != nil {
		most = min(most, int(f.bytes.Default))
	}
	return least, addSizes(least, most)
}

// frame is the bytes that a list takes beside its elements.
func (f *field) frame() int {
	switch f.Form {
	case "flagged":
		return 1
	case "until_end":
		return 0
	}
	if f.Count == "" {
		return 4
	}
	return widths[f.Count] / 8
}

// addSizes adds without going beyond what a record can hold by far.
func addSizes(a, b int) int { return min(a+b, 1<<40) }
