package pattern

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxDepth is the largest Grammar.Depth.
const MaxDepth = 4

// MaxContainmentSegments is the largest Grammar.ContainmentSegmentsMax: up to it, the states of a grant that can contain the
// request fit into 64 bits.
const MaxContainmentSegments = 127

const (
	separator = "://"

	// maxSpans is the number of segments of the longest selector of fixed depth: MaxDepth segments with "**" before, between
	// and after them.
	maxSpans = 2*MaxDepth + 1
)

// Grammar describes the routes of one domain. Its fields are set before first use and never changed afterwards; a grammar is then
// safe for concurrent use. It must pass Validate.
type Grammar struct {
	Scheme      string // text before "://"
	Depth       int    // segments of a concrete route, 1 to MaxDepth; 0 = flexible, 1 to MaxSegments
	MaxBytes    int    // bytes of a text, scheme included
	MaxSegments int    // segments of a text

	Reserved     []string // segments refused at index ReservedFrom and later
	ReservedFrom int

	// Shapes, when not nil, lists the only selectors allowed, each written as a path in which L stands for a literal:
	// "L/**". It does not restrict concrete routes.
	Shapes []string

	// AllowSchemeless lets ParseRoute accept a text without "://"; its canonical form has Scheme and "://" prefixed.
	AllowSchemeless bool

	ContainmentSegmentsMax int // bound of Selector.Contains at flexible depth: segments of both patterns
	ContainmentStatesMax   int // the same: visited states
}

// Validate reports every field that this package cannot work with. Parsing with a grammar that fails Validate is undefined.
func (g *Grammar) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("grammar %q: "+format, append([]any{g.Scheme}, args...)...))
		}
	}
	check(g.Scheme != "" && !strings.Contains(g.Scheme, separator), "the scheme must be a text without %s", separator)
	check(g.Depth >= 0 && g.Depth <= MaxDepth, "depth %d is not within 0 and %d", g.Depth, MaxDepth)
	check(g.MaxBytes > len(g.Scheme)+len(separator) && g.MaxBytes <= 1<<31-1, "bound of %d bytes", g.MaxBytes)
	check(g.MaxSegments >= max(1, g.Depth), "bound of %d segments", g.MaxSegments)
	check(g.ReservedFrom >= 0, "reserved segments from index %d", g.ReservedFrom)
	if g.Depth == 0 {
		check(g.ContainmentSegmentsMax >= 2 && g.ContainmentSegmentsMax <= MaxContainmentSegments,
			"containment bound of %d segments is not within 2 and %d", g.ContainmentSegmentsMax, MaxContainmentSegments)
		check(g.ContainmentStatesMax >= 1, "containment bound of %d states", g.ContainmentStatesMax)
	}
	for _, shape := range g.Shapes {
		for part := range strings.SplitSeq(shape, "/") {
			check(part == "L" || part == "*" || part == "**", "shape %q has the segment %q", shape, part)
		}
	}
	return errors.Join(errs...)
}

// ParseRoute classifies a concrete route (routes.md section 3). The error is a *Error. The route aliases text. A call that
// succeeds allocates nothing, unless the text is schemeless.
func (g *Grammar) ParseRoute(text string) (Route, error) {
	var s scan
	if err := s.text(g, text, g.AllowSchemeless); err != nil {
		return Route{}, err
	}
	if err := s.segments(g, text, true); err != nil {
		return Route{}, err
	}
	if err := s.depth(g, text); err != nil {
		return Route{}, err
	}
	if err := s.reserved(g, text); err != nil {
		return Route{}, err
	}
	r := Route{text: text, path: uint32(s.path), count: uint32(s.count)}
	copy(r.ends[:], s.ends[:])
	if s.path == 0 {
		r.addScheme(g.Scheme)
	}
	return r, nil
}

// ParseSelector classifies a selector: a route text in which whole segments may be "*" or "**" (routes.md sections 2 to 4). The
// error is a *Error. The selector aliases text.
func (g *Grammar) ParseSelector(text string) (Selector, error) {
	var s scan
	if err := s.grant(g, text); err != nil {
		return Selector{}, err
	}
	if err := s.depth(g, text); err != nil {
		return Selector{}, err
	}
	if err := s.reserved(g, text); err != nil {
		return Selector{}, err
	}
	if g.Shapes != nil && !g.allowsShape(text[s.path:]) {
		return Selector{}, &Error{Reason: ShapeNotAllowed, Offset: s.path, Segment: -1}
	}
	return newSelector(g, text, &s), nil
}

// ParseGrant classifies the pattern of a permission entry: as ParseSelector, but of any depth, with reserved segments and in any
// shape. The result may match nothing; it then contains nothing.
func (g *Grammar) ParseGrant(text string) (Selector, error) {
	var s scan
	if err := s.grant(g, text); err != nil {
		return Selector{}, err
	}
	return newSelector(g, text, &s), nil
}

// scan holds what one pass over a text finds out. Its methods are the checks of routes.md section 3, in groups that run in the
// order text, segments, depth, reserved.
type scan struct {
	path    int              // offset of the path
	count   int              // segments
	doubles int              // segments "**"
	singles int              // segments "*"
	ends    [maxSpans]uint32 // offsets of the ends of the first segments
}

func (s *scan) wild() bool { return s.singles+s.doubles > 0 }

// grant runs the checks that every pattern must pass.
func (s *scan) grant(g *Grammar, text string) *Error {
	if err := s.text(g, text, false); err != nil {
		return err
	}
	return s.segments(g, text, false)
}

// text runs the checks from TooLong to EmptyPath and finds the path.
func (s *scan) text(g *Grammar, text string, schemeless bool) *Error {
	n := len(g.Scheme)
	hasScheme := len(text) >= n+len(separator) && text[:n] == g.Scheme && text[n:n+len(separator)] == separator
	if schemeless && !hasScheme && !strings.Contains(text, separator) {
		return s.schemelessText(g, text)
	}
	if len(text) > g.MaxBytes {
		return &Error{Reason: TooLong, Offset: g.MaxBytes, Segment: -1, have: len(text), want: g.MaxBytes}
	}
	if !utf8.ValidString(text) {
		return &Error{Reason: InvalidUTF8, Offset: invalidOffset(text), Segment: -1}
	}
	if !hasScheme {
		reason := WrongScheme
		if !strings.Contains(text, separator) {
			reason = MissingScheme
		}
		return &Error{Reason: reason, Segment: -1, scheme: g.Scheme}
	}
	s.path = n + len(separator)
	if s.path == len(text) {
		return &Error{Reason: EmptyPath, Offset: s.path, Segment: -1}
	}
	return nil
}

// schemelessText is text for a text without "://". Its byte bound holds for the canonical form, because that is the form
// that notifications carry.
func (s *scan) schemelessText(g *Grammar, text string) *Error {
	bound := g.MaxBytes - len(g.Scheme) - len(separator)
	if len(text) > bound {
		return &Error{Reason: TooLong, Offset: bound, Segment: -1, have: len(text), want: bound}
	}
	if !utf8.ValidString(text) {
		return &Error{Reason: InvalidUTF8, Offset: invalidOffset(text), Segment: -1}
	}
	if text == "" {
		return &Error{Reason: EmptyPath, Segment: -1}
	}
	return nil
}

// Byte classes of a path in valid UTF-8.
const (
	plain = iota
	slash
	star
	control
	lead // 0xC2: U+0080 to U+009F are control characters, the others that begin with this byte are not
)

var classes = func() (t [256]uint8) {
	for c := range 0x20 {
		t[c] = control
	}
	t[0x7f], t['/'], t['*'], t[0xc2] = control, slash, star, lead
	return t
}()

// segments runs the checks from EmptySegment to AdjacentDoubleStar and counts.
func (s *scan) segments(g *Grammar, text string, concrete bool) *Error {
	start, firstStar := s.path, -1
	adjacent, lastDouble := -1, -2
	for i := s.path; ; i++ {
		for i < len(text) && classes[text[i]] == plain {
			i++
		}
		if i < len(text) && text[i] != '/' {
			switch c := classes[text[i]]; {
			case c == star && firstStar < 0:
				firstStar = i
			case c == control, c == lead && text[i+1] < 0xa0:
				return &Error{Reason: ControlCharacter, Offset: i, Segment: s.count}
			}
			continue
		}
		if i == start {
			return &Error{Reason: EmptySegment, Offset: i, Segment: s.count}
		}
		if firstStar >= 0 {
			if concrete {
				return &Error{Reason: WildcardNotAllowed, Offset: firstStar, Segment: s.count}
			}
			switch text[start:i] {
			case "*":
				s.singles++
			case "**":
				if lastDouble == s.count-1 && adjacent < 0 {
					adjacent = s.count
				}
				lastDouble = s.count
				s.doubles++
			default:
				return &Error{Reason: PartialWildcard, Offset: firstStar, Segment: s.count}
			}
			firstStar = -1
		}
		if s.count < len(s.ends) {
			s.ends[s.count] = uint32(i)
		}
		s.count++
		start = i + 1
		if i == len(text) {
			break
		}
	}
	if s.count > g.MaxSegments {
		at := segmentStart(text, s.path, g.MaxSegments)
		return &Error{Reason: TooManySegments, Offset: at, Segment: g.MaxSegments, have: s.count, want: g.MaxSegments}
	}
	if adjacent >= 0 {
		return &Error{Reason: AdjacentDoubleStar, Offset: segmentStart(text, s.path, adjacent), Segment: adjacent}
	}
	return nil
}

// reachesDepth reports whether the text matches routes of the depth of g.
func (s *scan) reachesDepth(g *Grammar) bool {
	others := s.count - s.doubles
	return g.Depth == 0 || others == g.Depth || others < g.Depth && s.doubles > 0
}

// depth runs the check WrongDepth.
func (s *scan) depth(g *Grammar, text string) *Error {
	if s.reachesDepth(g) {
		return nil
	}
	err := &Error{Reason: WrongDepth, Offset: len(text), Segment: -1, have: s.count - s.doubles, want: g.Depth}
	others, start := 0, s.path
	for i, segment := range splitPath(text[s.path:]) {
		if segment != "**" {
			others++
		}
		if others > g.Depth {
			err.Offset, err.Segment = start, i
			break
		}
		start += len(segment) + 1
	}
	return err
}

// reserved runs the check ReservedSegment. It counts segments as they stand in the text.
func (s *scan) reserved(g *Grammar, text string) *Error {
	if g.Reserved == nil {
		return nil
	}
	start := s.path
	for i, segment := range splitPath(text[s.path:]) {
		if i >= g.ReservedFrom && slices.Contains(g.Reserved, segment) {
			return &Error{Reason: ReservedSegment, Offset: start, Segment: i}
		}
		start += len(segment) + 1
	}
	return nil
}

// invalidOffset returns the offset of the first byte of text that is not part of valid UTF-8.
func invalidOffset(text string) int {
	at := 0
	for at < len(text) {
		r, size := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}

// segmentStart returns the offset of the segment with the given index; the text has that many.
func segmentStart(text string, path, index int) int {
	for range index {
		path += strings.IndexByte(text[path:], '/') + 1
	}
	return path
}

// splitPath yields the segments of a path with their indexes.
func splitPath(path string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		for i := 0; ; i++ {
			segment, rest, more := strings.Cut(path, "/")
			if !yield(i, segment) || !more {
				return
			}
			path = rest
		}
	}
}

// allowsShape reports whether the path of a selector has one of the shapes of the grammar.
func (g *Grammar) allowsShape(path string) bool {
	var buffer [64]byte
	shape := buffer[:0]
	for i, segment := range splitPath(path) {
		if i > 0 {
			shape = append(shape, '/')
		}
		if !isWildcard(segment) {
			segment = "L"
		}
		shape = append(shape, segment...)
	}
	return slices.ContainsFunc(g.Shapes, func(allowed string) bool { return allowed == string(shape) })
}

func isWildcard(segment string) bool { return segment == "*" || segment == "**" }
