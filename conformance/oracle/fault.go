package oracle

import (
	"fmt"
	"strconv"
)

// Fault says what is wrong with bytes or with a value, where, and what answers it.
type Fault struct {
	Code     uint32   // number of errors.yaml, 0 when no refusal answers
	CodeName string   // name of errors.yaml, of a close reason, or protocol.violation for what a client finds; "" when the record is dropped
	Reaction Reaction // what the receiver does
	Offset   int      // bytes from the start of what was decoded: the record with its header, or the transport message
	Class    Class    // of the mistake
	Field    string   // path of the field to blame: items[2].owner_id; "" when none is
	Clause   string   // rule that is broken
	Reason   string   // reason word of routes.md section 3 for BadRoute
	Text     string   // text that the specification prescribes for the refusal, "" for none
}

// Class is the class of a mistake.
type Class string

// The classes of mistakes, in the order of the checks. Their offset is that of the first byte of the field (its length or count, when one
// stands in front), unless it is said otherwise.
const (
	BadFrame     Class = "bad_frame"     // empty, cut off or with too many records (W-03): first byte of the record that is not whole or too much
	BadRecord    Class = "bad_record"    // a small type in the long form (W-01): first byte of the record
	UnknownType  Class = "unknown_type"  // no row in the registry for that direction (W-05): first byte of the record
	BadLabel     Class = "bad_label"     // a label in front of nothing that it may label (W-50): first byte of the label record
	BadEnvelope  Class = "bad_envelope"  // a first byte of a reply that is no success, and no whole refusal (E-01, E-02): that byte
	Truncated    Class = "truncated"     // fewer bytes left than the field needs (D-1)
	Trailing     Class = "trailing"      // bytes after the last field (D-4): the first of them
	BadFlag      Class = "bad_flag"      // bool8 or presence byte neither 0 nor 1
	BadUTF8      Class = "bad_utf8"      // text that is not UTF-8 (D-3): where the valid text ends
	BadEnum      Class = "bad_enum"      // unknown number of a closed enumeration (D-6)
	BadCount     Class = "bad_count"     // count above remaining bytes / smallest element (D-2)
	BadConstant  Class = "bad_constant"  // not the only value that the field may have
	Zero         Class = "zero"          // zero where zero is not allowed
	BadRoute     Class = "bad_route"     // a route or selector outside the grammar (routes.md section 3)
	OverBound    Class = "over_bound"    // a length, count or size above its bound (D-3)
	OutOfRange   Class = "out_of_range"  // a number outside its range (D-3)
	CannotEncode Class = "cannot_encode" // a value without the fields of the message, or larger than a record
)

// Reaction says what a receiver does with a mistake.
type Reaction string

// The reactions.
const (
	Refuse  Reaction = "refuse"    // answers with Code (W-06)
	Close   Reaction = "close"     // closes the session with the reason CodeName
	Drop    Reaction = "drop"      // drops the record and counts it (W-07)
	Violate Reaction = "violation" // a client ends the connection with protocol.violation
)

// Error tells class, field, offset and answer; never a byte of the value.
func (f *Fault) Error() string {
	text := string(f.Class) + " at byte " + strconv.Itoa(f.Offset)
	if f.Field != "" {
		text = f.Field + ": " + text
	}
	if f.Reason != "" {
		text += " (" + f.Reason + ")"
	}
	if f.CodeName != "" {
		text += fmt.Sprintf(", %s %s", f.Reaction, f.CodeName)
	}
	return text
}

// Structural reports whether a value with the mistake is malformed (D-4 to D-6), as opposed to one that is only too large or has a bad route.
func (f *Fault) Structural() bool {
	return f.Class != BadRoute && f.Class != OverBound && f.Class != OutOfRange
}

// clauseOf is the rule of the reference behind a class.
var clauseOf = map[Class]string{
	BadFrame: "W-03", BadRecord: "W-01", UnknownType: "W-05", BadLabel: "W-50", BadEnvelope: "E-02",
	Truncated: "D-1", Trailing: "D-4", BadFlag: "D-6", BadUTF8: "D-3", BadEnum: "D-6", BadCount: "D-2", BadConstant: "D-6", Zero: "D-6",
	OverBound: "D-3", OutOfRange: "D-3", CannotEncode: "W-02",
}

// fault is a mistake of a value of a message that travels in a direction. The code, when there is one, replaces the usual answer.
func (s *Spec) fault(m *message, dir Direction, class Class, offset int, path, code string) *Fault {
	f := &Fault{Class: class, Offset: offset, Field: path, Clause: clauseOf[class]}
	if class == Zero && m != nil && m.form == Control && len(m.clauses) > 0 {
		f.Clause = m.clauses[0]
	}
	switch {
	case dir == Down:
		f.Reaction, f.CodeName = Violate, "protocol.violation"
	case m == nil:
	case code != "":
		s.answer(f, answer{code: code})
	default:
		s.answer(f, m.faults.malformed)
	}
	return f
}

// answer sets what answers a mistake that a broker finds.
func (s *Spec) answer(f *Fault, a answer) {
	switch {
	case a.drop:
		f.Reaction = Drop
	case a.close != "":
		f.Reaction, f.CodeName = Close, a.close
	case a.code != "":
		row, _ := s.Error(a.code)
		f.Reaction, f.CodeName, f.Code = Refuse, row.Name, row.Number
	}
}

// beyond changes the answer to a control record with a field above a bound by what the bound says: the record is dropped (W-07), or it is the
// CONNECT that is refused (W-34).
func (s *Spec) beyond(f *Fault, reaction string) {
	switch reaction {
	case "drop":
		f.Reaction, f.CodeName = Drop, ""
	case "refuse":
		f.CodeName = "connect_failed"
	}
}

// frameFault is a mistake of the records of a transport message: a broker closes the session, a client finds a violation.
func frameFault(dir Direction, class Class, offset int) *Fault {
	f := &Fault{Class: class, Offset: offset, Clause: clauseOf[class], Reaction: Close}
	switch class {
	case BadFrame:
		f.CodeName = "bad_frame"
	case BadRecord:
		f.CodeName = "bad_record"
	case BadLabel:
		f.CodeName = "bad_control_record"
	case UnknownType:
		f.CodeName = "unsupported_message_type"
	}
	if dir == Down {
		f.Reaction, f.CodeName = Violate, "protocol.violation"
	}
	return f
}
