package codec

import "strconv"

// Kind says what is wrong with a field.
type Kind uint8

// The kinds of mistakes. Those before OverBound are structural: the value is malformed (D-3). The others are mistakes of size; the
// value can still be read as a whole.
const (
	Truncated  Kind = iota + 1 // fewer bytes left than the field needs (D-1)
	Trailing                   // bytes left over after the last field (D-4)
	BadFlag                    // bool8 or presence byte not 0 or 1
	BadUTF8                    // string not UTF-8 (D-3)
	BadEnum                    // unknown number of a closed enumeration (D-6)
	BadCount                   // count larger than remaining bytes / smallest element (D-2)
	BadConst                   // not the constant that the field must hold
	Zero                       // zero where zero is not allowed
	OverBound                  // a length, count or size above its named bound
	OutOfRange                 // a number outside its smallest and largest value
	RouteText                  // a route or selector too long or not UTF-8; the grammar of routes tells which (D-3)
	kindEnd
)

var kindNames = [kindEnd]string{
	Truncated:  "truncated",
	Trailing:   "trailing",
	BadFlag:    "bad flag",
	BadUTF8:    "bad utf-8",
	BadEnum:    "bad enum",
	BadCount:   "bad count",
	BadConst:   "bad constant",
	Zero:       "zero",
	OverBound:  "over bound",
	OutOfRange: "out of range",
	RouteText:  "route text",
}

// String returns the kind in words: "truncated", "bad flag".
func (k Kind) String() string {
	if k == 0 || k >= kindEnd {
		return "kind(" + strconv.Itoa(int(k)) + ")"
	}
	return kindNames[k]
}

// Malformed reports whether a value with such a mistake is malformed, as opposed to one that is only too large.
func (k Kind) Malformed() bool { return k > 0 && k < OverBound }

// Field describes one field for errors. Fields are generated and never change.
type Field struct {
	Name   string // path, such as "lease.acquire.owner_id"
	Bound  string // name of its bound, "" when it has none
	Code   uint32 // wire code of a mistake of size or of an unknown number (D-6), 0 when it is that of a malformed message
	Text   string // text that goes with Code, "" when none is prescribed
	Clause string // rules that the field implements
}

// Error says what is wrong with a value, where, and what answers it.
type Error struct {
	Kind Kind

	// Offset is where in the value the mistake shows, in bytes:
	//
	//	Trailing    the first byte left over
	//	BadUTF8     the first byte that does not continue valid UTF-8
	//	all others  the first byte of the field; its length or count, when it has one in front
	//
	// In an error of a Writer it is where the field would have stood.
	Offset int

	// Field is the field to blame; for Trailing the message, or the part with a length of its own.
	Field *Field

	code uint32
}

// Code returns the wire code that answers the mistake, 0 in messages that nothing answers.
func (e *Error) Code() uint32 { return e.code }

// Text returns the text that goes with Code: the one prescribed for the field, or else what Error says.
func (e *Error) Text() string {
	if e.Field.Text != "" && !e.Kind.Malformed() {
		return e.Field.Text
	}
	return e.Error()
}

// Error returns field, offset, kind and bound. It never contains a byte of the value.
func (e *Error) Error() string {
	text := e.Field.Name + " at byte " + strconv.Itoa(e.Offset) + ": " + e.Kind.String()
	if e.Field.Bound != "" && !e.Kind.Malformed() {
		text += ", see " + e.Field.Bound
	}
	return text
}

// mistakes keeps the first structural mistake and the mistake of size with the smallest offset.
type mistakes struct {
	code uint32 // wire code of a malformed message
	hard Error
	soft Error
}

// malformed notes a structural mistake unless one was noted before: readers run in byte order and stop there.
func (m *mistakes) malformed(kind Kind, offset int, f *Field) {
	if m.hard.Kind != 0 {
		return
	}
	code := m.code
	if kind == BadEnum && f.Code != 0 {
		code = f.Code
	}
	m.hard = Error{Kind: kind, Offset: offset, Field: f, code: code}
}

// oversize notes a mistake of size.
func (m *mistakes) oversize(kind Kind, offset int, f *Field) {
	if m.soft.Kind != 0 && m.soft.Offset <= offset {
		return
	}
	code := f.Code
	if code == 0 {
		code = m.code
	}
	m.soft = Error{Kind: kind, Offset: offset, Field: f, code: code}
}

// err returns the mistake that decides, nil when there is none.
func (m *mistakes) err() *Error {
	decisive := m.hard
	if decisive.Kind == 0 {
		decisive = m.soft
	}
	if decisive.Kind == 0 {
		return nil
	}
	return &Error{Kind: decisive.Kind, Offset: decisive.Offset, Field: decisive.Field, code: decisive.code}
}

// AsError returns err as the *Error that every codec returns, nil for nil.
func AsError(err error) *Error {
	mistake, _ := err.(*Error)
	return mistake
}

// Malformed reports whether err is a structural mistake.
func Malformed(err error) bool {
	mistake := AsError(err)
	return mistake != nil && mistake.Kind.Malformed()
}
