package oracle

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The reason words of routes.md section 3, in the order of the checks.
const (
	tooLong            = "too_long"
	invalidUTF8        = "invalid_utf8"
	missingScheme      = "missing_scheme"
	wrongScheme        = "wrong_scheme"
	emptyPath          = "empty_path"
	emptySegment       = "empty_segment"
	controlCharacter   = "control_character"
	wildcardNotAllowed = "wildcard_not_allowed"
	partialWildcard    = "partial_wildcard"
	tooManySegments    = "too_many_segments"
	adjacentDoubleStar = "adjacent_double_star"
	wrongDepth         = "depth"
	reservedSegment    = "reserved_segment"
	wrongShape         = "shape"
)

// Selector is a route or selector after classification.
type Selector struct {
	Text     string // as it was written: the identity of a registration
	Scheme   string
	Segments []string
	Masks    [][]string // canonical set, literals before "*" at each place; nil at flexible depth
	Exact    bool       // no wildcard segment
	Flexible bool
}

// Point reports whether the selector matches one route only.
func (s Selector) Point() bool {
	if s.Flexible {
		return s.Exact
	}
	return len(s.Masks) == 1 && !slices.Contains(s.Masks[0], "*")
}

// Classify reads a text as a route (pattern false) or selector of a scheme. The reason is the first failing check of routes.md section 3, "" when
// the text is valid. A text that only has the wrong depth is classified all the same, with the masks that it has, which may be none.
func (s *Spec) Classify(scheme, text string, pattern bool) (Selector, string) {
	sc, ok := s.schemes[scheme]
	if !ok {
		return Selector{}, wrongScheme
	}
	return s.classify(sc, text, pattern)
}

// Schemes returns the names of all schemes, sorted.
func (s *Spec) Schemes() []string {
	var names []string
	for name := range s.schemes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// textReason is what can be said of a route without its scheme.
func (s *Spec) textReason(text string) string {
	switch {
	case len(text) > s.grammar.bytes:
		return tooLong
	case !utf8.ValidString(text):
		return invalidUTF8
	}
	return ""
}

func (s *Spec) classify(sc *scheme, text string, pattern bool) (Selector, string) {
	g := &s.grammar
	out := Selector{Text: text, Scheme: sc.name, Flexible: sc.depth == 0}
	whole := text
	if sc.schemeless && !pattern && !strings.Contains(text, g.separator) {
		whole = sc.name + g.separator + text
	}
	if reason := s.textReason(whole); reason != "" {
		return out, reason
	}
	name, path, found := strings.Cut(whole, g.separator)
	switch {
	case !found:
		return out, missingScheme
	case name != sc.name:
		return out, wrongScheme
	case path == "":
		return out, emptyPath
	}
	out.Segments = strings.Split(path, g.slash)
	for _, segment := range out.Segments {
		if reason := g.segment(segment, pattern); reason != "" {
			return out, reason
		}
	}
	if len(out.Segments) > g.segments {
		return out, tooManySegments
	}
	for i, segment := range out.Segments[1:] {
		if segment == g.many && out.Segments[i] == g.many {
			return out, adjacentDoubleStar
		}
	}
	out.Exact = !slices.ContainsFunc(out.Segments, g.wild)
	if out.Flexible {
		return out, ""
	}
	out.Masks = g.masks(out.Segments, sc.depth)
	return out, g.place(sc, out, pattern)
}

func (g *grammar) wild(segment string) bool { return segment == g.one || segment == g.many }

// segment judges one segment.
func (g *grammar) segment(segment string, pattern bool) string {
	switch {
	case segment == "":
		return emptySegment
	case strings.ContainsFunc(segment, unicode.IsControl):
		return controlCharacter
	case !strings.Contains(segment, g.one):
		return ""
	case !pattern:
		return wildcardNotAllowed
	case !g.wild(segment):
		return partialWildcard
	}
	return ""
}

// place judges what the scheme says about depth, words and shape.
func (g *grammar) place(sc *scheme, s Selector, pattern bool) string {
	if len(s.Masks) == 0 {
		return wrongDepth
	}
	for i, segment := range s.Segments {
		if i >= sc.from && slices.Contains(sc.reserved, segment) {
			return reservedSegment
		}
	}
	if pattern && len(sc.shapes) > 0 && !slices.Contains(sc.shapes, g.shape(s.Segments)) {
		return wrongShape
	}
	return ""
}

// shape is a pattern with L for every literal.
func (g *grammar) shape(segments []string) string {
	marks := slices.Clone(segments)
	for i, m := range marks {
		if !g.wild(m) {
			marks[i] = "L"
		}
	}
	return strings.Join(marks, g.slash)
}

// masks is the canonical set of masks of routes.md section 4, empty when nothing of that depth matches.
func (g *grammar) masks(segments []string, depth int) [][]string {
	fixed := 0
	for _, s := range segments {
		if s != g.many {
			fixed++
		}
	}
	if fixed > depth || fixed < depth && fixed == len(segments) {
		return nil
	}
	var all [][]string
	g.expand(segments, depth-fixed, nil, &all)
	slices.SortFunc(all, g.compareMasks)
	all = slices.CompactFunc(all, slices.Equal[[]string])
	var out [][]string
	for i, x := range all {
		covered := false
		for j, y := range all {
			covered = covered || i != j && g.covered(x, y)
		}
		if !covered {
			out = append(out, x)
		}
	}
	return out
}

// expand writes every way to hand out so many stars to the double stars that are left.
func (g *grammar) expand(segments []string, stars int, done []string, all *[][]string) {
	at := slices.Index(segments, g.many)
	if at < 0 {
		if stars == 0 {
			*all = append(*all, append(slices.Clone(done), segments...))
		}
		return
	}
	done = append(slices.Clone(done), segments[:at]...)
	for n := 0; n <= stars; n++ {
		g.expand(segments[at+1:], stars-n, done, all)
		done = append(slices.Clone(done), g.one)
	}
}

func (g *grammar) compareMasks(a, b []string) int {
	for i := range a {
		if c := cmp.Or(compareBool(a[i] == g.one, b[i] == g.one), cmp.Compare(a[i], b[i])); c != 0 {
			return c
		}
	}
	return 0
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// covered reports whether mask y matches all that mask x matches.
func (g *grammar) covered(x, y []string) bool {
	for p := range x {
		if y[p] != g.one && y[p] != x[p] {
			return false
		}
	}
	return true
}

// Matches reports whether a selector matches a concrete route.
func (s *Spec) Matches(pattern, route Selector) bool {
	if pattern.Scheme != route.Scheme {
		return false
	}
	if pattern.Flexible {
		return len(route.Segments) > 0 && s.grammar.flexible(pattern.Segments, route.Segments)
	}
	return slices.ContainsFunc(pattern.Masks, func(m []string) bool {
		return len(m) == len(route.Segments) && s.grammar.covered(route.Segments, m)
	})
}

// flexible matches segments one after the other.
func (g *grammar) flexible(pattern, route []string) bool {
	state := g.reach(beginning(pattern), pattern)
	for _, segment := range route {
		state = g.step(state, pattern, segment)
	}
	return state[len(pattern)]
}

// A state of a flexible pattern is the number of its segments that are used up; a set of states says which are possible.
//
// beginning is the set in which none is used up.
func beginning(pattern []string) []bool {
	state := make([]bool, len(pattern)+1)
	state[0] = true
	return state
}

// reach adds the states that need no segment: a double star may stand for none.
func (g *grammar) reach(state []bool, pattern []string) []bool {
	for i, segment := range pattern {
		if state[i] && segment == g.many {
			state[i+1] = true
		}
	}
	return state
}

func (g *grammar) step(state []bool, pattern []string, segment string) []bool {
	next := make([]bool, len(pattern)+1)
	for i, want := range pattern {
		switch {
		case !state[i]:
		case want == g.many:
			next[i] = true
		case want == g.one || want == segment:
			next[i+1] = true
		}
	}
	return g.reach(next, pattern)
}

// Contains reports whether the match set of one grant contains the whole match set of a request (routes.md section 5).
func (s *Spec) Contains(grant, request Selector) bool {
	g := &s.grammar
	if grant.Scheme != request.Scheme || grant.Flexible != request.Flexible {
		return false
	}
	if !grant.Flexible {
		for _, q := range request.Masks {
			if !slices.ContainsFunc(grant.Masks, func(m []string) bool { return g.covered(q, m) }) {
				return false
			}
		}
		return len(request.Masks) > 0
	}
	switch {
	case slices.Equal(grant.Segments, request.Segments):
		return true
	case request.Exact:
		return g.flexible(grant.Segments, request.Segments)
	case len(grant.Segments)+len(request.Segments) > g.containSegments:
		return false
	}
	return g.language(grant.Segments, request.Segments)
}

// pair is a state of the request together with the set of states of the grant that the same segments lead to.
type pair struct {
	request int
	grant   string
}

// language walks every pair that at least one segment leads to and looks for one in which the request ends and the grant does not.
func (g *grammar) language(grant, request []string) bool {
	alphabet := []string{""} // the fresh symbol: no segment is empty
	for _, segment := range slices.Concat(grant, request) {
		if !g.wild(segment) && !slices.Contains(alphabet, segment) {
			alphabet = append(alphabet, segment)
		}
	}
	start := g.reach(beginning(request), request)
	grants := map[string][]bool{}
	key := func(state []bool) string {
		k := make([]byte, len(state))
		for i, set := range state {
			k[i] = byte(compareBool(set, false))
		}
		grants[string(k)] = state
		return string(k)
	}
	grantStart := key(g.reach(beginning(grant), grant))
	visited := map[pair]bool{}
	var queue []pair
	follow := func(from int, at string) {
		for _, symbol := range alphabet {
			one := make([]bool, len(request)+1)
			one[from] = true
			to := key(g.step(grants[at], grant, symbol))
			for next, set := range g.step(one, request, symbol) {
				if p := (pair{next, to}); set && !visited[p] {
					visited[p] = true
					queue = append(queue, p)
				}
			}
		}
	}
	for state, set := range start {
		if set {
			follow(state, grantStart)
		}
	}
	for len(queue) > 0 {
		if len(visited) > g.containStates {
			return false
		}
		p := queue[0]
		queue = queue[1:]
		if p.request == len(request) && !grants[p.grant][len(grant)] {
			return false
		}
		follow(p.request, p.grant)
	}
	return true
}
