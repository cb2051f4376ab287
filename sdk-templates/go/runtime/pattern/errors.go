package pattern

import "strconv"

// Reason says which check of a route or selector text failed. The constants stand in the order in which the checks run; the
// first failing check decides, and checks of one segment run before those of the next segment.
type Reason uint8

// The reasons, in check order. WildcardNotAllowed belongs to concrete routes, PartialWildcard to selectors.
const (
	TooLong            Reason = iota + 1 // more bytes than Grammar.MaxBytes
	InvalidUTF8                          // not valid UTF-8
	MissingScheme                        // no "://" (R-05 excepted)
	WrongScheme                          // the text before the first "://" is not Grammar.Scheme
	EmptyPath                            // nothing after "://"
	EmptySegment                         // a segment without characters
	ControlCharacter                     // a character of the Unicode category Cc
	WildcardNotAllowed                   // "*" anywhere in a concrete route
	PartialWildcard                      // "*" next to other characters in a segment
	TooManySegments                      // more segments than Grammar.MaxSegments
	AdjacentDoubleStar                   // two neighbouring "**"
	WrongDepth                           // cannot match a route of Grammar.Depth segments
	ReservedSegment                      // a segment of Grammar.Reserved
	ShapeNotAllowed                      // a shape outside Grammar.Shapes
	reasonEnd
)

var reasonWords = [reasonEnd]string{
	TooLong:            "too_long",
	InvalidUTF8:        "invalid_utf8",
	MissingScheme:      "missing_scheme",
	WrongScheme:        "wrong_scheme",
	EmptyPath:          "empty_path",
	EmptySegment:       "empty_segment",
	ControlCharacter:   "control_character",
	WildcardNotAllowed: "wildcard_not_allowed",
	PartialWildcard:    "partial_wildcard",
	TooManySegments:    "too_many_segments",
	AdjacentDoubleStar: "adjacent_double_star",
	WrongDepth:         "depth",
	ReservedSegment:    "reserved_segment",
	ShapeNotAllowed:    "shape",
}

// adjacentText is a fixed text: it replaces the form "word: free text" for AdjacentDoubleStar.
const adjacentText = "adjacent ** segments are not allowed"

// String returns the reason word, such as "too_long".
func (r Reason) String() string {
	if r == 0 || r >= reasonEnd {
		return "reason(" + strconv.Itoa(int(r)) + ")"
	}
	return reasonWords[r]
}

// Error reports why a text is not a route or selector of a grammar. All errors of the parse functions have this type.
type Error struct {
	Reason Reason

	// Offset is a byte offset into the text as it was given:
	//
	//	TooLong                               the first byte beyond the bound
	//	InvalidUTF8, ControlCharacter         the first byte of the offending character
	//	MissingScheme, WrongScheme            0
	//	EmptyPath, ShapeNotAllowed            the start of the path
	//	WildcardNotAllowed, PartialWildcard   the first "*" of the segment
	//	WrongDepth                            the first segment too many, or the end of the text when segments are missing
	//	all others                            the start of the offending segment
	Offset int

	// Segment is the index of the offending segment, -1 when no segment is to blame.
	Segment int

	have, want int    // bytes or segments, for the text
	scheme     string // the scheme that was expected
}

// Error returns the reason word, ": " and free text; for AdjacentDoubleStar it returns the fixed text alone. It never repeats
// the text that was parsed.
func (e *Error) Error() string {
	if e.Reason == AdjacentDoubleStar {
		return adjacentText
	}
	return e.Reason.String() + ": " + e.detail()
}

func (e *Error) detail() string {
	at := "byte " + strconv.Itoa(e.Offset)
	switch e.Reason {
	case TooLong:
		return strconv.Itoa(e.have) + " bytes, at most " + strconv.Itoa(e.want) + " are allowed"
	case InvalidUTF8:
		return at + " does not continue valid UTF-8"
	case MissingScheme:
		return "the text must begin with " + e.scheme + "://"
	case WrongScheme:
		return "the scheme must be " + e.scheme
	case EmptyPath:
		return "nothing follows the scheme"
	case EmptySegment:
		return "segment " + strconv.Itoa(e.Segment+1) + " is empty"
	case ControlCharacter:
		return at + " begins a control character"
	case WildcardNotAllowed:
		return at + " is *, which a concrete route must not contain"
	case PartialWildcard:
		return at + " is *, which must be a whole segment, alone or doubled"
	case TooManySegments:
		return strconv.Itoa(e.have) + " segments, at most " + strconv.Itoa(e.want) + " are allowed"
	case WrongDepth:
		return strconv.Itoa(e.have) + " segments that are not **, routes have " + strconv.Itoa(e.want)
	case ReservedSegment:
		return "segment " + strconv.Itoa(e.Segment+1) + " is reserved"
	default:
		return "this combination of literals and wildcards is not supported here"
	}
}
