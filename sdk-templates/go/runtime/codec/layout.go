package codec

// Layout is the fields of a value in wire order, as a table. Tables are generated and never change.
type Layout struct {
	Name   string // "lease.acquire"
	Doc    string
	Code   uint32 // wire code of a malformed value, 0 when nothing answers it
	Open   bool   // later bytes are ignored
	Value  *Field // names the whole value in errors
	Fields []LayoutField
}

// LayoutField is one field of a layout.
type LayoutField struct {
	Name  string // "owner_id"
	Field *Field // names the field in errors
	Type  Type
	Doc   string
	Unit  string

	Presence Presence
	When     int    // index of the field that decides, for PresentWhen
	Bits     uint64 // bits of that field that must be set; 0: it must not be 0

	Least, Most uint64 // range of a number, when Ranged
	Ranged      bool
	NonZero     bool
	Fixed       bool   // the number must be Const
	Const       uint64 // see Fixed
	Closed      bool   // the number must be one of Names
	Names       []Name // names of numbers
	Flags       []Name // names of bits
	Secret      bool   // the value is never shown

	MaxBytes int   // bound of text, bytes, routes and of the part behind a length
	Minus    []int // indexes of fields whose lengths are taken off MaxBytes
	Length   int   // bytes of the length in front of a part; 0: no length
	Open     bool  // later bytes of a part with a length are ignored

	List   ListShape    // of a list
	Elem   *LayoutField // of a list
	Part   *Layout      // of a part, and of an element that is one
	Forms  []Form       // of a choice; its number has the width of Width
	Width  int          // bytes of the number of a choice
	Choice *Field       // names the number of a choice in errors
}

// Name is a number with its name.
type Name struct {
	Number uint64
	Name   string
}

// Form is one form of a choice.
type Form struct {
	Number uint64
	Layout *Layout
}

// Type is what a field is on the wire.
type Type uint8

// The types of fields.
const (
	TypeU8 Type = iota + 1
	TypeU16
	TypeU32
	TypeU64
	TypeBool
	TypeUUID
	TypeString
	TypeBytes
	TypeRoute
	TypeSelector
	TypeList
	TypePart   // a struct
	TypeChoice // a number, then the fields of the form that it names
	typeEnd
)

var typeNames = [typeEnd]string{
	TypeU8: "u8", TypeU16: "u16", TypeU32: "u32", TypeU64: "u64", TypeBool: "bool8", TypeUUID: "uuid", TypeString: "str",
	TypeBytes: "bytes", TypeRoute: "route", TypeSelector: "selector", TypeList: "list", TypePart: "struct", TypeChoice: "choice",
}

// String returns the name of the type in the notation of the protocol.
func (t Type) String() string {
	if t == 0 || t >= typeEnd {
		return "none"
	}
	return typeNames[t]
}

// Presence says how the presence of a field is known.
type Presence uint8

// The ways in which the presence of a field is known.
const (
	Always      Presence = iota
	Flagged              // a bool8 stands in front
	Tail                 // present iff bytes remain
	Rest                 // all remaining bytes, without a length
	PresentWhen          // an earlier field says so
	TailFlagged          // present iff bytes remain and a bool8 in front says so
)
