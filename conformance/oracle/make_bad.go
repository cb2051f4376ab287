package oracle

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
)

// broken makes the vectors of one value in which one place is wrong: cut off there, a flag, count, kind or length that cannot be.
func (k *maker) broken(src source, v Value) {
	root, fault := k.tree(src, v)
	if fault != nil {
		k.fail("%s: %v", src.name, fault)
		return
	}
	root.walk(func(t *tree) {
		if strings.Contains(t.path, "[") && !strings.Contains(t.path, "[0]") {
			return
		}
		k.brokenAt(src, root, t)
	})
}

// idOf is the path of a part of a tree as ids have it.
func idOf(t *tree) string { return strings.ReplaceAll(t.path, "[0]", "") }

func (k *maker) brokenAt(src source, root, t *tree) {
	path := idOf(t)
	most := uint64(math.MaxUint64)
	switch t.role {
	case numberRole:
		k.cut(src, root, t, "truncated-"+path, len(t.data)-1)
	case statusRole:
		k.cut(src, root, t, "empty", 0)
		k.with(src, root, t, "status", []byte{k.noStatus()}, BadEnvelope)
	case flagRole:
		word := "truncated-"
		if t.field.kind != boolKind {
			word = "truncated-presence-of-"
		}
		k.cut(src, root, t, word+path, 0)
		k.with(src, root, t, "flag-"+path, []byte{2}, BadFlag)
	case moreRole:
		k.cut(src, root, t, "truncated-more-"+path, 0)
		k.with(src, root, t, "flag-more-"+path, []byte{2}, BadFlag)
	case tagRole:
		k.cut(src, root, t, "truncated-kind-"+path, 0)
		k.with(src, root, t, "unknown-kind-"+path, bigEndian(t.field.noVariant(), t.field.union.width), BadEnum)
	case countRole:
		k.cut(src, root, t, "truncated-count-"+path, len(t.data)-1)
		k.with(src, root, t, "count-"+path, bigEndian(most, len(t.data)), BadCount)
		k.with(src, root, t, "count-one-more-"+path, bigEndian(2, len(t.data)), BadCount, Truncated, BadEnum, BadFlag, BadUTF8)
	case textRole:
		if t.field.presence != rest {
			k.cut(src, root, t, "truncated-"+path, len(t.data)-1)
		}
	case sizedRole:
		k.cut(src, root, t, "truncated-length-"+path, t.width-1)
		k.length(src, root, t, "length-"+path, most>>(64-8*t.width), Truncated)
		k.part(src, root, t, path)
	}
}

// part makes the vectors of a struct or union with a length of its own: bytes left over inside, and a length that is too small or too large for
// what is there.
func (k *maker) part(src source, root, t *tree, path string) {
	if t.field.part == nil && t.field.union == nil {
		return
	}
	size := len(t.bytes()) - t.width
	k.length(src, root, t, "short-"+path, uint64(size-1), Truncated, BadCount)
	c := &cutter{at: t, keep: t.width + size/2, raw: true}
	k.add(src, "truncated-"+path, k.framed(src, c.bytes(root)), nil, Truncated)
	if t.field.open {
		return
	}
	t.kids = append(t.kids, &tree{data: []byte{0}})
	k.add(src, "trailing-"+path, k.framed(src, root.bytes()), nil, Trailing)
	t.kids = t.kids[:len(t.kids)-1]
}

// cut adds a value that ends after some bytes of one part, unless it is a value all the same.
func (k *maker) cut(src source, root, t *tree, id string, keep int) {
	if len(t.data) == 0 && t.role != sizedRole {
		return
	}
	c := &cutter{at: t, keep: keep}
	record := k.framed(src, c.bytes(root))
	if _, fault := k.s.Decode(src.dir, record); fault != nil {
		k.add(src, id, record, nil, Truncated, BadCount)
	}
}

// with adds a value with other bytes in one part.
func (k *maker) with(src source, root, t *tree, id string, data []byte, want ...Class) {
	saved := t.data
	t.data = data
	record := k.framed(src, root.bytes())
	t.data = saved
	k.add(src, id, record, nil, want...)
}

// length adds a value with another length in front of one part.
func (k *maker) length(src source, root, t *tree, id string, n uint64, want ...Class) {
	t.wrong = &n
	record := k.framed(src, root.bytes())
	t.wrong = nil
	k.add(src, id, record, nil, want...)
}

// noVariant is a number that no variant has.
func (f *field) noVariant() uint64 {
	n := uint64(0)
	for slices.ContainsFunc(f.union.variants, func(v variant) bool { return v.number == n }) {
		n++
	}
	return n
}

// noStatus is a first byte that no reply has.
func (k *maker) noStatus() byte {
	n := k.s.wire.success
	for n == k.s.wire.success || slices.ContainsFunc(k.s.wire.envelopes, func(e envelope) bool { return e.status == n }) {
		n++
	}
	return byte(n)
}

// ends makes the vectors about what follows the last field, and about the header.
func (k *maker) ends(src source, full Value) {
	root, fault := k.tree(src, full)
	if fault != nil {
		return // told before
	}
	value := root.bytes()
	switch {
	case src.m.layout.endless():
	case src.m.layout.open:
		k.add(src, "later-bytes", k.framed(src, append(slices.Clone(value), 0, 0xff)), append(slices.Clone(src.m.clauses), "D-4"))
	default:
		k.add(src, "trailing", k.framed(src, append(slices.Clone(value), 0)), nil, Trailing)
	}
	if number := uint64(src.m.number); number < k.s.wire.escape {
		long := append([]byte{byte(k.s.wire.escape), 0}, k.framed(src, value)...)
		k.add(src, "long-type", long, nil, BadRecord)
	}
}

// endless reports whether the last field takes all bytes that there are.
func (l *layout) endless() bool {
	return len(l.fields) > 0 && l.fields[len(l.fields)-1].presence == rest
}

// orders makes the vectors with two mistakes, of which one decides.
func (k *maker) orders(src source, spots []spot, full Value) {
	soft := slices.IndexFunc(spots, func(sp spot) bool { return !strings.Contains(sp.path, ".") && k.tooLarge(src, sp) != nil })
	if soft < 0 {
		return
	}
	large := k.tooLarge(src, spots[soft])
	if record := k.record(src, spots[soft].put(large)); record != nil && !src.m.layout.open && !src.m.layout.endless() {
		value := append(slices.Clone(record[headerSize(uint64(src.m.number), k.s.wire.escape):]), 0)
		if framed := k.framed(src, value); framed != nil {
			k.add(src, "order-structure-before-bound", framed, []string{"D-3", "D-4"}, Trailing)
		}
	}
	for _, sp := range spots[soft+1:] {
		if second := k.tooLarge(src, sp); second != nil && !strings.Contains(sp.path, ".") {
			v := sp.put(second)
			v[spots[soft].f.name] = large
			k.value(src, "order-first-bound", v, []string{"D-3"}, OverBound, OutOfRange)
			break
		}
	}
	for _, sp := range spots {
		if sp.f.kind == routeKind && src.form == Request && !strings.Contains(sp.path, ".") && src.m.domain.scheme != nil {
			v := spots[soft].put(large)
			v[sp.f.name] = src.m.domain.scheme.name + k.s.grammar.separator // no path
			k.value(src, "order-route-before-bound", v, []string{"D-3"}, BadRoute)
			break
		}
	}
}

// tooLarge is a value of a field beyond its bound or range, nil when none fits into a record.
func (k *maker) tooLarge(src source, sp spot) any {
	f := sp.f
	switch {
	case f.kind == numberKind && f.ranged && f.max < math.MaxUint64>>(64-8*f.width):
		return f.max + 1
	case f.kind == textKind && f.bound != nil:
		if most := k.shrunk(src, sp) + 1; most < k.room(src, sp, "") {
			return strings.Repeat("x", most)
		}
	}
	return nil
}

// refusals makes the vectors of the error replies of an operation: in every form, as a reader accepts each on every operation (E-02).
func (k *maker) refusals(m *message) {
	src := k.source(m, Down, Refusal)
	clauses := []string{"E-02"}
	code := k.codeOf(m)
	for _, e := range k.s.wire.envelopes {
		v := Value{Envelope: e.name, "message": "because"}
		for _, f := range e.layout.fields {
			if f.format == "error_code" || f.name == "code" {
				v["code"] = code
			}
		}
		k.value(src, e.name, v, clauses)
		if !k.refused {
			k.refusalEdges(src, e, v)
		}
	}
	if !k.refused { // a plain message of eight bytes that is also a coded one: E-02 says which
		k.add(src, "both-forms", k.framed(src, []byte("\x01\x00\x00\x00\x08\x00\x00\x00\x04abcd")), clauses)
	}
	k.refused = true
}

// codeOf is a code of the domain of a message.
func (k *maker) codeOf(m *message) uint64 {
	for _, row := range k.s.errors {
		if strings.EqualFold(strings.SplitN(row.Text, ".", 2)[0], m.domain.name) {
			return uint64(row.Number)
		}
	}
	return uint64(k.s.errors[0].Number)
}

// refusalEdges are the limits of one envelope, shown once in each domain.
func (k *maker) refusalEdges(src source, e envelope, v Value) {
	root, fault := k.tree(src, v)
	if fault != nil {
		k.fail("%s: %v", src.name, fault)
		return
	}
	value := root.bytes()
	k.add(src, e.name+"-trailing", k.framed(src, append(slices.Clone(value), 0)), []string{"E-01", "E-02"}, BadEnvelope)
	k.add(src, e.name+"-truncated", k.framed(src, value[:len(value)-1]), []string{"E-02"}, BadEnvelope)
	v["message"] = "bad \xff"
	k.value(src, e.name+"-utf8", v, []string{"D-3", "E-02"}, BadEnvelope)
	for _, f := range e.layout.fields {
		if f.kind == numberKind {
			v["message"] = "because"
			v[f.name] = uint64(4242)
			k.value(src, e.name+"-unknown-code", v, []string{"E-04", "D-6"})
			v[f.name] = k.codeOf(src.m)
			continue
		}
		if f.bound == nil {
			continue
		}
		v[f.name] = ""
		k.value(src, e.name+"-empty-message", v, []string{"E-02"})
		v[f.name] = strings.Repeat("x", int(f.bound.value))
		k.value(src, e.name+"-max-message", v, []string{"E-02", "E-03"})
		v[f.name] = strings.Repeat("x", int(f.bound.value)-1) + "\u65e5 and more"
		k.value(src, e.name+"-long-message", v, []string{"E-02", "E-03"})
	}
}

// badRoute is a text that one check of the grammar refuses.
type badRoute struct{ reason, text string }

// badRoutes are texts of a scheme, one for each reason that can refuse it.
func (s *Spec) badRoutes(sc *scheme, pattern bool) []badRoute {
	g := &s.grammar
	prefix := sc.name + g.separator
	good := s.sampleRoute(sc, pattern)
	segments := strings.Split(strings.TrimPrefix(good, prefix), g.slash)
	swap := func(i int, segment string) string {
		changed := slices.Clone(segments)
		changed[i] = segment
		return prefix + strings.Join(changed, g.slash)
	}
	out := []badRoute{
		{tooLong, s.longRoute(sc, g.bytes+1)},
		{invalidUTF8, good + "\xff"},
		{wrongScheme, "x" + good},
		{emptyPath, prefix},
		{emptySegment, swap(0, "")},
		{controlCharacter, swap(0, "r\n")},
	}
	if pattern || !sc.schemeless {
		out = append(out, badRoute{missingScheme, sc.name + ":" + strings.Join(segments, g.slash)})
	}
	if pattern {
		out = append(out, badRoute{partialWildcard, swap(0, "r"+g.one)}, badRoute{adjacentDoubleStar, prefix + g.many + g.slash + g.many})
	} else {
		out = append(out, badRoute{wildcardNotAllowed, swap(0, g.one)})
	}
	out = append(out, badRoute{tooManySegments, prefix + strings.Join(slices.Repeat([]string{"x"}, g.segments+1), g.slash)})
	if sc.depth > 0 {
		out = append(out, badRoute{wrongDepth, good + g.slash + "more"})
	}
	if len(sc.reserved) > 0 {
		out = append(out, badRoute{reservedSegment, swap(sc.from, sc.reserved[0])})
	}
	if pattern && len(sc.shapes) > 0 {
		out = append(out, badRoute{wrongShape, prefix + g.many + g.slash + "x"})
	}
	return out
}

// longRoute is a concrete route of so many bytes.
func (s *Spec) longRoute(sc *scheme, size int) string {
	good := s.sampleRoute(sc, false)
	return good + strings.Repeat("x", size-len(good))
}

// frameVectors makes the vectors of transport messages: boundaries, numbers of records, header forms, message numbers and labels.
func (s *Spec) frameVectors() ([]Vector, error) {
	k := &frameMaker{s: s}
	for _, dir := range []Direction{Up, Down} {
		if k.probe(dir) {
			k.boundaries(dir)
			k.labels(dir)
		}
	}
	k.numbers()
	return k.out, k.err
}

type frameMaker struct {
	s     *Spec
	out   []Vector
	err   error
	plain []byte // a record that may carry a label
	alone []byte // a control record or a push, which no label belongs to; nil when there is none
}

// probe finds the records that the vectors of a direction are made of; false when there is none.
func (k *frameMaker) probe(dir Direction) bool {
	maker := &maker{s: k.s}
	k.plain, k.alone = nil, nil
	for _, m := range k.s.messages {
		if dir == Up && !m.up || dir == Down && !m.down || m == k.s.wire.label[dir] {
			continue
		}
		record := maker.record(maker.source(m, dir, m.form), maker.full(m.layout, m.domain))
		labelled := m.form == Request || m.form == Reply
		if labelled && k.plain == nil {
			k.plain = record
		}
		if m.form == Control && m.up && m.down && k.alone == nil {
			k.alone = record
		}
	}
	return k.plain != nil && maker.err == nil
}

// add adds a transport message. Want is the class that it shows, "" for one that is accepted.
func (k *frameMaker) add(dir Direction, id string, want Class, clause string, parts ...[]byte) {
	message := bytes.Join(parts, nil)
	id = "frames." + string(dir) + "/" + id
	records, fault := k.s.SplitMessage(dir, message)
	v := Vector{ID: id, Dir: dir, Unit: "message", Bytes: message, Verdict: Accept, Clauses: []string{clause}, Records: []RecordJSON{}}
	got := Class("")
	if fault != nil {
		got = fault.Class
		v.reject(fault)
		v.Records = nil
	}
	if got != want && k.err == nil {
		k.err = fmt.Errorf("oracle: %s: %v, want %q", id, fault, want)
	}
	if fault == nil {
		for _, rec := range records {
			r := RecordJSON{Message: rec.Message, Form: rec.Form, Value: k.s.RecordValue(rec)}
			if rec.Label != 0 {
				r.Label = fmt.Sprint(rec.Label)
			}
			v.Records = append(v.Records, r)
		}
		v.Canonical = true
	}
	k.out = append(k.out, v)
}

func (k *frameMaker) boundaries(dir Direction) {
	first, _ := k.s.header(k.plain)
	header := first.size
	k.add(dir, "empty", BadFrame, "W-03")
	k.add(dir, "one", "", "W-03", k.plain)
	k.add(dir, "three-equal", "", "W-04", k.plain, k.plain, k.plain)
	k.add(dir, "max-records", "", "W-03", slices.Repeat([][]byte{k.plain}, k.s.wire.recordsMax)...)
	k.add(dir, "above-records", BadFrame, "W-03", slices.Repeat([][]byte{k.plain}, k.s.wire.recordsMax+1)...)
	for n := 1; n < header; n++ {
		k.add(dir, fmt.Sprintf("header-cut-%d", n), BadFrame, "W-03", k.plain[:n])
	}
	k.add(dir, "value-missing", BadFrame, "W-03", k.plain[:header])
	k.add(dir, "value-cut", BadFrame, "W-03", k.plain[:len(k.plain)-1])
	k.add(dir, "second-cut", BadFrame, "W-03", k.plain, k.plain[:len(k.plain)-1])
	k.add(dir, "second-header-cut", BadFrame, "W-03", k.plain, k.plain[:1])
	k.add(dir, "boundary-before-content", BadFrame, "W-03", []byte{byte(k.s.wire.escape), 0xff, 0xff, 0, 0}, k.plain[:1])
	for _, number := range []uint16{0, 1, uint16(k.s.wire.escape) - 1} {
		k.add(dir, fmt.Sprintf("long-type-%d", number), BadRecord, "W-01", []byte{byte(k.s.wire.escape), byte(number >> 8), byte(number), 0, 0})
	}
	k.add(dir, "second-long-type", BadRecord, "W-01", k.plain, []byte{byte(k.s.wire.escape), 0, 1, 0, 0})
	if len(k.plain) > header {
		broken := slices.Clone(k.plain[:len(k.plain)-1])
		broken[header-1]--
		k.add(dir, "second-malformed", Truncated, "D-1", k.plain, broken)
	}
}

func (k *frameMaker) labels(dir Direction) {
	m := k.s.wire.label[dir]
	if m == nil {
		return
	}
	clause := map[Direction]string{Up: "W-50", Down: "W-51"}[dir]
	label := func(n byte) []byte { return k.s.record(m.number, []byte{0, 0, 0, 0, 0, 0, 0, n}) }
	k.add(dir, "label", "", clause, label(9), k.plain)
	k.add(dir, "label-largest", "", clause, k.s.record(m.number, bytes.Repeat([]byte{0xff}, 8)), k.plain)
	k.add(dir, "label-second", "", clause, k.plain, label(9), k.plain)
	k.add(dir, "label-each", "", clause, label(9), k.plain, label(8), k.plain)
	k.add(dir, "label-zero", Zero, clause, label(0), k.plain)
	k.add(dir, "label-alone", BadLabel, clause, label(9))
	k.add(dir, "label-at-end", BadLabel, clause, k.plain, label(9))
	k.add(dir, "label-twice", BadLabel, clause, label(9), label(8), k.plain)
	k.add(dir, "label-short", Truncated, clause, k.s.record(m.number, make([]byte, 7)), k.plain)
	k.add(dir, "label-long", Trailing, clause, k.s.record(m.number, []byte{0, 0, 0, 0, 0, 0, 0, 9, 0}), k.plain)
	if k.alone != nil {
		want := map[Direction]Class{Down: BadLabel}[dir]
		k.add(dir, "label-of-control", want, "W-52", label(9), k.alone)
	}
}

// numbers makes the vectors of message numbers that a broker does not know, or knows from the other direction (W-05).
func (k *frameMaker) numbers() {
	unknown := func(id string, number uint16) {
		k.add(Up, id, UnknownType, "W-05", k.s.record(number, nil))
	}
	known := func(number uint16) bool {
		return k.s.find(number, Up) != nil || k.s.find(number, Down) != nil || k.s.refusable(number) != nil ||
			slices.ContainsFunc(k.s.wire.reserved, func(r reserved) bool { return number >= r.from && number <= r.to })
	}
	for _, number := range []uint16{0, uint16(k.s.wire.escape), math.MaxUint16} {
		if !known(number) {
			unknown(fmt.Sprintf("unassigned-%d", number), number)
			k.add(Down, fmt.Sprintf("unassigned-%d", number), "", "W-05", k.s.record(number, nil))
		}
	}
	for _, r := range k.s.wire.reserved {
		for _, number := range []uint16{r.from, r.to} {
			if k.s.find(number, Up) == nil {
				unknown(fmt.Sprintf("reserved-%d", number), number)
			}
		}
	}
	for _, m := range k.s.messages {
		if m.down && k.s.find(m.number, Up) == nil {
			unknown("wrong-direction-"+m.name, m.number)
		}
	}
}
