package oracle

import (
	"cmp"
	"slices"
	"strconv"
)

// Direction says who sends.
type Direction string

// The directions.
const (
	Up   Direction = "up"   // client to broker
	Down Direction = "down" // broker to client
)

// Form says which of the values of a message number is meant.
type Form string

// The forms. Reply and Refusal share a message number and are told apart by the first byte.
const (
	Request Form = "request"
	Reply   Form = "reply"
	Refusal Form = "refusal"
	Push    Form = "push"
	Control Form = "control"
)

// Value is a decoded value by the field names of the specification.
//
//	u8 to u64, enumerations   uint64
//	bool                      bool
//	string, route, selector   string
//	bytes, uuid               []byte
//	list                      []any
//	struct                    Value
//	union                     Value with the name of its variant under the key Variant
//
// A field that is not on the wire has no key. A refusal has the keys "envelope" (name of wire.yaml), "message" and, unless it is plain, "code".
type Value map[string]any

// Variant is the key under which the value of a union holds the name of its variant.
const Variant = "$variant"

// Envelope is the key under which a refusal holds the name of its envelope.
const Envelope = "envelope"

// Record is one record after decoding.
type Record struct {
	Message string // lease.acquire; "" when the specification has no such message in that direction (a client ignores it, W-05)
	Form    Form
	Type    uint16 // message number
	Value   Value
	Label   uint64 // of the label record in front, 0 for none
	Bytes   []byte // header and value, without the label record
}

// Spec is one specification. It does not change after Load and is safe for concurrent use.
type Spec struct {
	Version string // of the specification

	domains  []*domain
	messages []*message
	byName   map[string]*message // the message for which a name stands; requests of operations
	bounds   map[string]*bound
	errors   []ErrorRow
	schemes  map[string]*scheme
	grammar  grammar
	wire     wireRules
}

// ErrorRow is one row of errors.yaml.
type ErrorRow struct {
	Name    string // LEASE_HELD
	Number  uint32
	Text    string // lease.held: the name in SDKs
	Retry   string // never, immediate, backoff, reconnect, reauth
	Outcome string // rejected, unknown or ""
	Class   string // LeaseHeld
}

type bound struct {
	name     string
	value    int64
	minus    []string // fields whose length shrinks it
	reaction string
}

type domain struct {
	name    string
	number  uint64
	scheme  *scheme
	faults  faults
	enums   map[string]*enum
	structs map[string]*layout
	unions  map[string]*union
}

// answer is what answers a mistake; at most one part is set.
type answer struct {
	code  string // name of errors.yaml
	close string // name of a close reason
	drop  bool
}

type faults struct{ malformed, route answer }

type enum struct {
	width  int
	closed bool
	names  map[uint64]string
	values []uint64
}

type union struct {
	width    int
	variants []variant
}

type variant struct {
	name   string
	number uint64
	layout *layout
}

// layout is a sequence of fields.
type layout struct {
	name   string
	open   bool // later bytes are ignored
	fields []*field
}

// presence says when a field is on the wire.
type presence int

const (
	always presence = iota
	flagged
	tail
	tailFlagged
	rest
	when
)

// kind is the family of the type of a field.
type kind int

const (
	numberKind kind = iota
	boolKind
	uuidKind
	textKind
	bytesKind
	routeKind
	listKind
	partKind
	unionKind
)

// listForm says how the end of a list is known.
type listForm int

const (
	counted listForm = iota
	flaggedList
	untilEnd
)

type field struct {
	name        string
	typ         string // as the specification writes it
	kind        kind
	width       int // bytes of a number
	pattern     bool
	enum        *enum
	part        *layout
	union       *union
	elem        *field
	form        listForm
	counter     int // bytes of the count
	bound       *bound
	bytes       *bound // of all elements
	ranged      bool
	min, max    uint64
	clamps      bool
	cuts        bool
	nonzero     bool
	fixed       bool
	constant    uint64
	length      int // bytes of a length in front of a part, 0 for none
	open        bool
	presence    presence
	whenName    string
	whenBits    uint64
	code        string
	format      string
	secret      bool
	text        string // prescribed text of a refusal of a value that is too large
	fallback    uint64 // that an absent field stands for, when hasFallback
	hasFallback bool
}

// message is one value of one message number.
type message struct {
	domain  *domain
	name    string // lease.acquire
	number  uint16
	form    Form
	up      bool
	down    bool
	layout  *layout
	faults  faults
	clauses []string
	reply   bool // success of an operation: a status stands in front
	refuses bool // refusals of this number may be received
}

type grammar struct {
	separator, slash, one, many string
	bytes, segments             int
	containSegments             int
	containStates               int
	clauses                     map[string]string // of the reasons
}

type scheme struct {
	name       string
	depth      int // 0 for flexible
	schemeless bool
	from       int
	reserved   []string
	shapes     []string
}

type envelope struct {
	name   string
	status uint64
	layout *layout // nil for success
}

type reserved struct{ from, to uint16 }

type wireRules struct {
	escape     uint64
	recordMax  int
	replyMax   int
	recordsMax int
	success    uint64
	envelopes  []envelope // of refusals
	label      map[Direction]*message
	reserved   []reserved
	bits       map[string]uint64
	bitNames   map[uint64]string
	closes     []CloseReason
}

// CloseReason is a row of the close reasons of wire.yaml.
type CloseReason struct {
	Name   string // bad_frame
	Text   string
	Code   uint16 // of a WebSocket close frame
	Detail bool   // more text follows
}

// CloseReason returns a close reason by its name.
func (s *Spec) CloseReason(name string) (CloseReason, bool) {
	for _, c := range s.wire.closes {
		if c.Name == name {
			return c, true
		}
	}
	return CloseReason{}, false
}

// Bound returns the default of a bound of bounds.yaml. It panics for a name that does not exist: names are written by programmers.
func (s *Spec) Bound(name string) int64 {
	b, ok := s.bounds[name]
	if !ok {
		panic("oracle: no bound " + name)
	}
	return b.value
}

// Error returns a row of errors.yaml by its name (LEASE_HELD) or number (5001).
func (s *Spec) Error(nameOrNumber any) (ErrorRow, bool) {
	for _, row := range s.errors {
		if row.Name == nameOrNumber || uint64(row.Number) == asNumber(nameOrNumber) {
			return row, true
		}
	}
	return ErrorRow{}, false
}

// asNumber is a whole number of any Go type, or a number that no code has.
func asNumber(v any) uint64 {
	switch n := v.(type) {
	case int:
		return uint64(n)
	case uint16:
		return uint64(n)
	case uint32:
		return uint64(n)
	case uint64:
		return n
	}
	return ^uint64(0)
}

// MessageInfo describes one message of the specification.
type MessageInfo struct {
	Name   string // lease.acquire
	Domain string
	Number uint16
	Up     bool
	Down   bool
	Forms  []Form
}

// Messages returns every message, sorted by number and name.
func (s *Spec) Messages() []MessageInfo {
	var out []MessageInfo
	for _, m := range s.messages {
		at := slices.IndexFunc(out, func(i MessageInfo) bool { return i.Name == m.name })
		if at < 0 {
			at = len(out)
			out = append(out, MessageInfo{Name: m.name, Domain: m.domain.name, Number: m.number})
		}
		i := &out[at]
		i.Up, i.Down = i.Up || m.up, i.Down || m.down
		i.Forms = append(i.Forms, m.form)
		if m.refuses {
			i.Down = true
			i.Forms = append(i.Forms, Refusal)
		}
	}
	slices.SortFunc(out, func(a, b MessageInfo) int {
		return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Number returns the number of a message.
func (s *Spec) Number(name string) (uint16, bool) {
	if m := s.byName[name]; m != nil {
		return m.number, true
	}
	return 0, false
}

// Capability returns the mask of a capability bit.
func (s *Spec) Capability(name string) (uint64, bool) {
	mask, ok := s.wire.bits[name]
	return mask, ok
}

// find is the message of a number that travels in a direction; labels tell refusals apart later.
func (s *Spec) find(number uint16, dir Direction) *message {
	for _, m := range s.messages {
		if m.number == number && (dir == Up && m.up || dir == Down && m.down) {
			return m
		}
	}
	return nil
}

// refusable is the operation whose refusals have the number, nil when there is none.
func (s *Spec) refusable(number uint16) *message {
	for _, m := range s.messages {
		if m.number == number && m.refuses {
			return m
		}
	}
	return nil
}

// named is the value of a message in a form.
func (s *Spec) named(name string, form Form) *message {
	for _, m := range s.messages {
		if m.name == name && (m.form == form || form == Refusal && m.refuses) {
			return m
		}
	}
	return nil
}

func (e *enum) known(n uint64) bool { return e.names[n] != "" }

// numberName is the name of a number for people, "" when it has none.
func (s *Spec) numberName(f *field, n uint64) string {
	switch {
	case f.enum != nil:
		return f.enum.names[n]
	case f.format == "error_code":
		if row, ok := s.Error(n); ok {
			return row.Name
		}
	case f.format == "domain_number":
		for _, d := range s.domains {
			if d.number == n {
				return d.name
			}
		}
	case f.format == "capabilities":
		return s.bitList(n)
	}
	return ""
}

func (s *Spec) bitList(n uint64) string {
	out := ""
	for bit := range 64 {
		mask := uint64(1) << bit
		if n&mask == 0 {
			continue
		}
		if out != "" {
			out += ", "
		}
		out += cmp.Or(s.wire.bitNames[mask], "bit "+strconv.Itoa(bit))
	}
	return out
}
