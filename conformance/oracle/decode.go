package oracle

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Span is a stretch of bytes of a record that means one thing.
type Span struct {
	Offset int
	Len    int    // never 0
	Path   string // field path: items[2].owner_id; "type" and "length" for the header, "owner_id length" for what stands in front of a field
	Type   string // notation of the protocol: u64, str, bool8
	Text   string // what the bytes say
}

// Decode reads one record, header and value, that travels in a direction. A record without a fault is complete; with a fault of class BadRoute,
// OverBound or OutOfRange its value is complete too, so that a reader can show it. Down a message that the specification does not have is no
// mistake: it has no name and no value (W-05). Offsets count from the first byte of the record.
func (s *Spec) Decode(dir Direction, record []byte) (Record, *Fault) {
	rec, _, fault := s.decode(dir, record, false)
	return rec, fault
}

// Annotate names every byte of a record once, in byte order. What follows a structural mistake is one span with the path "not read".
func (s *Spec) Annotate(dir Direction, record []byte) []Span {
	_, spans, fault := s.decode(dir, record, true)
	end := 0
	for _, span := range spans {
		end = span.Offset + span.Len
	}
	if end < len(record) {
		text := hex.EncodeToString(record[end:])
		if fault != nil {
			text = fault.Error()
		}
		spans = append(spans, Span{end, len(record) - end, "not read", "rest", text})
	}
	return spans
}

func (s *Spec) decode(dir Direction, record []byte, naming bool) (Record, []Span, *Fault) {
	h, class := s.header(record)
	if class != "" {
		return Record{Bytes: record}, nil, frameFault(dir, class, 0)
	}
	rec := Record{Type: h.number, Bytes: record}
	if len(record) > h.size+h.value {
		return rec, nil, frameFault(dir, BadFrame, 0)
	}
	spans := []Span{{0, h.size - 2, "type", typeNames[h.size-2], strconv.Itoa(int(h.number))}, {h.size - 2, 2, "length", "u16", strconv.Itoa(h.value)}}
	m := s.find(h.number, dir)
	var refusing *message
	if dir == Down {
		refusing = s.refusable(h.number)
	}
	if m == nil && refusing == nil {
		if dir == Down {
			return rec, spans, nil
		}
		return rec, spans, frameFault(dir, UnknownType, 0)
	}
	r := &reader{spec: s, m: m, dir: dir, buf: record, off: h.size, end: len(record), spans: spans, naming: naming}
	if refusing != nil && (m == nil || m.reply) {
		rec.Message, rec.Form = refusing.name, Refusal
		if value, ok := r.refusal(); ok {
			rec.Value = value
			return rec, r.spans, nil
		}
		if m == nil {
			r.fail(BadEnvelope, r.off, "", nil)
			return rec, r.spans, r.fault()
		}
	}
	rec.Message, rec.Form = m.name, m.form
	spans[0].Text += " " + m.name
	if m.reply {
		r.status()
	}
	value := r.layout(m.layout, "")
	r.finish(m.layout.open, "")
	if fault := r.fault(); fault != nil && fault.Structural() {
		return rec, r.spans, fault
	}
	rec.Value = value
	return rec, r.spans, r.fault()
}

var typeNames = map[int]string{1: "u8", 3: "u8, u16"}

// header is the header of a record.
type header struct {
	number uint16
	size   int // bytes of the header
	value  int // bytes of the value
}

// header reads the header of the first record of data and checks that the value is there.
func (s *Spec) header(data []byte) (h header, class Class) {
	if len(data) == 0 {
		return h, BadFrame
	}
	h.number, h.size = uint16(data[0]), 1
	if uint64(data[0]) == s.wire.escape {
		if len(data) < 3 {
			return h, BadFrame
		}
		h.number, h.size = binary.BigEndian.Uint16(data[1:]), 3
		if uint64(h.number) < s.wire.escape {
			return h, BadRecord
		}
	}
	if len(data) < h.size+2 {
		return h, BadFrame
	}
	h.value = int(binary.BigEndian.Uint16(data[h.size:]))
	h.size += 2
	if len(data) < h.size+h.value {
		return h, BadFrame
	}
	return h, ""
}

// SplitMessage reads a transport message without the length that TCP puts in front. The boundaries of all records are checked before the first is
// read (W-03). Label records are not returned; the record behind one carries its number. The records are returned as far as their boundaries
// are right, and the fault is the first one in byte order; a record with a structural mistake has no value. Offsets count from the first byte of the
// message.
func (s *Spec) SplitMessage(dir Direction, message []byte) ([]Record, *Fault) {
	if fault := s.boundaries(dir, message); fault != nil {
		return nil, fault
	}
	var records []Record
	var first *Fault
	keep := func(fault *Fault, at int) {
		if fault != nil && first == nil {
			fault.Offset += at
			first = fault
		}
	}
	for at := 0; at < len(message); {
		rec, size, fault := s.next(dir, message[at:])
		keep(fault, at)
		if m := s.wire.label[dir]; m == nil || rec.Type != m.number {
			records = append(records, rec)
			at += size
			continue
		}
		label, _ := rec.Value["id"].(uint64)
		labelled, inner, fault := s.labelled(dir, message[at+size:])
		if labelled == nil {
			keep(frameFault(dir, BadLabel, 0), at)
			at += size
			continue
		}
		keep(fault, at+size)
		labelled.Label = label
		records = append(records, *labelled)
		at += size + inner
	}
	return records, first
}

// boundaries checks the boundaries and the number of all records.
func (s *Spec) boundaries(dir Direction, message []byte) *Fault {
	count := 0
	for at := 0; at < len(message) || at == 0; {
		h, class := s.header(message[at:])
		if class != "" {
			return frameFault(dir, class, at)
		}
		if count++; count > s.wire.recordsMax {
			return frameFault(dir, BadFrame, at)
		}
		at += h.size + h.value
	}
	return nil
}

// next decodes the first record of data, whose boundaries are right.
func (s *Spec) next(dir Direction, data []byte) (Record, int, *Fault) {
	h, _ := s.header(data)
	size := h.size + h.value
	rec, fault := s.Decode(dir, data[:size:size])
	return rec, size, fault
}

// labelled decodes the record behind a label; nil when none follows that may carry one (W-50 to W-52).
func (s *Spec) labelled(dir Direction, data []byte) (*Record, int, *Fault) {
	if len(data) == 0 {
		return nil, 0, nil
	}
	rec, size, fault := s.next(dir, data)
	if m := s.wire.label[dir]; rec.Type == m.number {
		return nil, 0, nil
	}
	if dir == Down && (rec.Form == Push || rec.Form == Control) {
		return nil, 0, nil
	}
	return &rec, size, fault
}

// reader reads one value in byte order. After a structural mistake it reads nothing more.
type reader struct {
	spec   *Spec
	m      *message
	dir    Direction
	buf    []byte
	off    int
	end    int    // of the part that is being read
	code   string // answers mistakes inside the part
	spans  []Span
	naming bool // whether spans are wanted

	hard  *Fault
	route *Fault // grammar, judged before bounds in requests
	soft  *Fault
}

func (r *reader) fault() *Fault {
	switch {
	case r.hard != nil:
		return r.hard
	case r.route != nil:
		return r.route
	}
	return r.soft
}

// fail notes a structural mistake.
func (r *reader) fail(class Class, at int, path string, f *field) {
	if r.hard != nil {
		return
	}
	code := r.code
	if class == BadEnum && f != nil && f.code != "" {
		code = f.code
	}
	r.hard = r.spec.fault(r.m, r.dir, class, at, path, code)
	r.end = r.off
}

// over notes a mistake against a bound or a range.
func (r *reader) over(class Class, at int, path string, f *field) {
	if r.hard != nil || r.soft != nil && r.soft.Offset <= at {
		return
	}
	code := f.code
	if code == "" {
		code = r.code
	}
	r.soft = r.spec.fault(r.m, r.dir, class, at, path, code)
	if r.soft.Reaction == Close && f.bound != nil {
		r.spec.beyond(r.soft, f.bound.reaction)
	}
	if r.dir == Up {
		r.soft.Text = f.text
	}
}

func (r *reader) ok() bool { return r.hard == nil }

func (r *reader) more() bool { return r.ok() && r.off < r.end }

func (r *reader) name(from int, path, typ, text string) {
	if r.naming && r.ok() && r.off > from {
		r.spans = append(r.spans, Span{from, r.off - from, path, typ, text})
	}
}

// take is the next n bytes, nil when fewer are left.
func (r *reader) take(n, at int, path string, f *field) []byte {
	if !r.ok() {
		return nil
	}
	if r.end-r.off < n {
		r.fail(Truncated, at, path, f)
		return nil
	}
	r.off += n
	return r.buf[r.off-n : r.off : r.off]
}

func (r *reader) integer(width, at int, path string, f *field) uint64 {
	n := uint64(0)
	for _, b := range r.take(width, at, path, f) {
		n = n<<8 | uint64(b)
	}
	return n
}

// status reads the first byte of a success.
func (r *reader) status() {
	at := r.off
	n := r.integer(1, at, "status", nil)
	if r.ok() && n != r.spec.wire.success {
		r.fail(BadEnvelope, at, "status", nil)
	}
	r.name(at, "status", "u8", "success")
}

// refusal reads the whole value as a refusal of any form (E-02); false when it is none, and then nothing was read.
func (r *reader) refusal() (Value, bool) {
	for _, e := range r.spec.wire.envelopes {
		inner := &reader{spec: r.spec, dir: r.dir, buf: r.buf, off: r.off, end: r.end, spans: r.spans, naming: r.naming}
		at := inner.off
		if n := inner.integer(1, at, "status", nil); !inner.ok() || n != e.status {
			continue
		}
		inner.name(at, "status", "u8", "refusal, "+e.name)
		value := inner.layout(e.layout, "")
		inner.finish(false, "")
		if !inner.ok() {
			continue
		}
		r.spans = inner.spans
		value[Envelope] = e.name
		return value, true
	}
	return nil, false
}

// finish checks that nothing is left of the value or part.
func (r *reader) finish(open bool, path string) {
	at := r.off
	if !r.more() {
		return
	}
	if !open {
		r.fail(Trailing, at, path, nil)
		return
	}
	r.off = r.end
	r.name(at, joined(path, "later bytes"), "rest", hex.EncodeToString(r.buf[at:r.off]))
}

func joined(path, word string) string {
	if path == "" {
		return word
	}
	return path + " " + word
}

// seen is what earlier fields of a layout said.
type seen struct {
	numbers map[string]uint64
	lengths map[string]int
}

func (r *reader) layout(l *layout, prefix string) Value {
	value := Value{}
	s := seen{map[string]uint64{}, map[string]int{}}
	for _, f := range l.fields {
		path := prefix + f.name
		if r.ok() && r.present(f, path, &s) {
			value[f.name] = r.field(f, path, &s)
		}
	}
	return value
}

func (r *reader) present(f *field, path string, s *seen) bool {
	switch f.presence {
	case flagged:
		return r.flag(path, "present", f)
	case tail:
		return r.more()
	case tailFlagged:
		return r.more() && r.flag(path, "present", f)
	case when:
		n := s.numbers[f.whenName]
		return f.whenBits == 0 && n != 0 || f.whenBits != 0 && n&f.whenBits == f.whenBits
	}
	return true
}

// flag reads a byte that is 0 or 1.
func (r *reader) flag(path, word string, f *field) bool {
	at := r.off
	n := r.integer(1, at, path, f)
	if n > 1 {
		r.fail(BadFlag, at, path, f)
	}
	if word != "" {
		path = joined(path, word)
	}
	r.name(at, path, "bool8", strconv.FormatBool(n == 1))
	return n == 1
}

func (r *reader) field(f *field, path string, s *seen) any {
	at := r.off
	switch f.kind {
	case numberKind:
		n := r.number(f, path)
		s.numbers[f.name] = n
		return n
	case boolKind:
		set := r.flag(path, "", f)
		if set {
			s.numbers[f.name] = 1
		}
		return set
	case uuidKind:
		id := r.take(16, at, path, f)
		r.name(at, path, "uuid", hex.EncodeToString(id))
		return append([]byte{}, id...)
	case listKind:
		return r.list(f, path)
	case partKind, unionKind:
		return r.sized(f, path)
	}
	return r.content(f, path, s)
}

func (r *reader) number(f *field, path string) uint64 {
	at := r.off
	n := r.integer(f.width, at, path, f)
	if !r.ok() {
		return 0
	}
	switch {
	case f.fixed && n != f.constant:
		r.fail(BadConstant, at, path, f)
	case f.enum != nil && f.enum.closed && !f.enum.known(n):
		r.fail(BadEnum, at, path, f)
	case f.nonzero && n == 0:
		r.fail(Zero, at, path, f)
	case f.ranged && (n < f.min || n > f.max):
		r.over(OutOfRange, at, path, f)
	}
	if r.naming {
		r.name(at, path, "u"+strconv.Itoa(8*f.width), strings.TrimSpace(strconv.FormatUint(n, 10)+" "+r.spec.numberName(f, n)))
	}
	return n
}

// most is the bound of a text, bytes or list field in bytes, and whether it has one.
func (f *field) most(s *seen) (int, bool) {
	if f.bound == nil {
		return 0, false
	}
	most := int(f.bound.value)
	for _, other := range f.bound.minus {
		most -= s.lengths[other]
	}
	return most, true
}

// content reads text, bytes or a route.
func (r *reader) content(f *field, path string, s *seen) any {
	at := r.off
	n := r.end - r.off
	if f.presence != rest {
		n = int(r.integer(4, at, path, f))
		if r.ok() && n > r.end-r.off {
			r.fail(Truncated, at, path, f)
		}
		r.name(at, joined(path, "length"), "u32", strconv.Itoa(n))
	}
	from := r.off
	data := r.take(n, at, path, f)
	if !r.ok() {
		return nil
	}
	s.lengths[f.name] = n
	if f.kind == routeKind {
		r.checkRoute(f, path, at, data)
	} else if most, bounded := f.most(s); bounded && n > most && !(f.cuts && r.m == nil) {
		r.over(OverBound, at, path, f)
	}
	if f.kind == textKind {
		if valid := validPrefix(data); valid < n {
			r.fail(BadUTF8, from+valid, path, f)
			return nil
		}
	}
	if r.naming {
		r.name(from, path, contentTypes[f.kind], contentText(f, data))
	}
	if f.kind == bytesKind {
		return append([]byte{}, data...)
	}
	if most, bounded := f.most(s); f.cuts && bounded && n > most {
		return cut(string(data), most)
	}
	return string(data)
}

// cut is text of at most so many bytes that ends with a whole character (E-03).
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

var contentTypes = map[kind]string{textKind: "str", routeKind: "str", bytesKind: "bytes"}

func contentText(f *field, data []byte) string {
	switch {
	case f.secret:
		return "(not shown)"
	case f.kind == bytesKind || !utf8.Valid(data):
		return hex.EncodeToString(data)
	}
	return strconv.Quote(string(data))
}

// validPrefix is the number of bytes up to the first that does not continue valid UTF-8.
func validPrefix(data []byte) int {
	for at := 0; at < len(data); {
		char, size := utf8.DecodeRune(data[at:])
		if char == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return len(data)
}

// checkRoute judges a route or selector: by the whole grammar in requests, by length and UTF-8 elsewhere (D-3).
func (r *reader) checkRoute(f *field, path string, at int, data []byte) {
	if r.dir == Down || r.m.form != Request || r.m.domain.scheme == nil {
		if reason := r.spec.textReason(string(data)); reason != "" {
			r.over(BadRoute, at, path, f)
			r.soft.reasoned(r.spec, reason, at)
		}
		return
	}
	_, reason := r.spec.classify(r.m.domain.scheme, string(data), f.pattern)
	if reason == "" || r.route != nil {
		return
	}
	r.route = r.spec.fault(r.m, r.dir, BadRoute, at, path, "")
	r.spec.answer(r.route, r.m.faults.route)
	r.route.reasoned(r.spec, reason, at)
}

// reasoned adds the reason of a bad route when the fault is the one at that offset.
func (f *Fault) reasoned(s *Spec, reason string, at int) {
	if f.Class == BadRoute && f.Offset == at {
		f.Reason, f.Clause = reason, s.grammar.clauses[reason]
	}
}

// sized reads a struct or union, with the length in front when it has one.
func (r *reader) sized(f *field, path string) any {
	if f.length == 0 {
		return r.compound(f, path)
	}
	at := r.off
	n := int(r.integer(f.length, at, path, f))
	if r.ok() && n > r.end-r.off {
		r.fail(Truncated, at, path, f)
	}
	if !r.ok() {
		return nil
	}
	if f.bound != nil && n > int(f.bound.value) {
		r.over(OverBound, at, path, f)
	}
	r.name(at, joined(path, "length"), "u"+strconv.Itoa(8*f.length), strconv.Itoa(n))
	outerEnd, outerCode := r.end, r.code
	r.end = r.off + n
	if f.code != "" {
		r.code = f.code
	}
	value := r.compound(f, path)
	r.finish(f.open, path)
	if r.ok() {
		r.end, r.code = outerEnd, outerCode
	}
	return value
}

func (r *reader) compound(f *field, path string) any {
	if f.kind == partKind {
		return r.layout(f.part, path+".")
	}
	at := r.off
	n := r.integer(f.union.width, at, path, f)
	for _, v := range f.union.variants {
		if r.ok() && v.number == n {
			r.name(at, joined(path, "kind"), "u"+strconv.Itoa(8*f.union.width), strconv.FormatUint(n, 10)+" "+v.name)
			value := r.layout(v.layout, path+".")
			value[Variant] = v.name
			return value
		}
	}
	r.fail(BadEnum, at, path, nil)
	return nil
}

func (r *reader) list(f *field, path string) any {
	at := r.off
	left := uint64(0)
	if f.form == counted {
		left = r.integer(f.counter, at, path, f)
		if r.ok() && left > uint64((r.end-r.off)/f.elem.smallest()) {
			r.fail(BadCount, at, path, f)
		}
		r.name(at, joined(path, "count"), "u"+strconv.Itoa(8*f.counter), strconv.FormatUint(left, 10))
	}
	items, first := []any{}, r.off
	for r.ok() && r.another(f, path, &left) {
		items = append(items, r.field(f.elem, fmt.Sprintf("%s[%d]", path, len(items)), &seen{map[string]uint64{}, map[string]int{}}))
	}
	if !r.ok() {
		return nil
	}
	if f.bound != nil && int64(len(items)) > f.bound.value || f.bytes != nil && int64(r.off-first) > f.bytes.value {
		r.over(OverBound, at, path, f)
	}
	return items
}

// another tells whether an element follows.
func (r *reader) another(f *field, path string, left *uint64) bool {
	switch f.form {
	case flaggedList:
		return r.flag(path, "more", f)
	case untilEnd:
		return r.more()
	}
	*left--
	return *left != ^uint64(0)
}

// smallest is the size of the smallest value of a field that is present, in bytes (D-2).
func (f *field) smallest() int {
	switch f.kind {
	case numberKind:
		return f.width
	case boolKind:
		return 1
	case uuidKind:
		return 16
	case partKind:
		return f.length + f.part.smallest()
	case unionKind:
		least := -1
		for _, v := range f.union.variants {
			if n := v.layout.smallest(); least < 0 || n < least {
				least = n
			}
		}
		return f.length + f.union.width + max(least, 0)
	case listKind:
		return map[listForm]int{counted: f.counter, flaggedList: 1}[f.form]
	}
	if f.presence == rest {
		return 0
	}
	return 4
}

func (l *layout) smallest() int {
	sum := 0
	for _, f := range l.fields {
		switch f.presence {
		case always:
			sum += f.smallest()
		case flagged:
			sum++
		}
	}
	return sum
}
