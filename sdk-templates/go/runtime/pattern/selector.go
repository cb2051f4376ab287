package pattern

import (
	"slices"
	"strings"
)

// Selector is the one classified form of a selector. Listing, registration, removal, grants and cursors share it. It is a
// small handle to a read-only value, cheap to copy and safe for concurrent use. It aliases the text it was parsed from; Clone
// copies what must outlive a receive buffer. The zero Selector matches and contains nothing.
type Selector struct{ form *form }

// form is computed once, when the text is classified.
type form struct {
	grammar  *Grammar
	text     string
	path     int      // offset of the path in text
	wild     bool     // has a segment "*" or "**"
	masks    []Mask   // fixed depth
	single   [1]Mask  // memory of masks when there is only one
	segments []string // flexible depth
	prefix   int
	point    Route // the only route selected, if there is one
}

var noForm form

func (s Selector) get() *form {
	if s.form == nil {
		return &noForm
	}
	return s.form
}

// newSelector classifies a text that has passed the checks.
func newSelector(g *Grammar, text string, s *scan) Selector {
	f := &form{grammar: g, text: text, path: s.path, wild: s.wild()}
	switch {
	case g.Depth == 0:
		f.classifyFlexible(s)
	case s.reachesDepth(g):
		f.classifyFixed(s)
	}
	return Selector{f}
}

func (f *form) classifyFlexible(s *scan) {
	f.segments = make([]string, 0, s.count)
	for _, segment := range splitPath(f.text[f.path:]) {
		f.segments = append(f.segments, segment)
	}
	f.prefix = slices.IndexFunc(f.segments, isWildcard)
	if !f.wild {
		f.prefix = s.count
		f.point = f.exactRoute(s)
	}
}

func (f *form) classifyFixed(s *scan) {
	var spans [maxSpans]string
	start := uint32(f.path)
	for i := range s.count {
		spans[i] = f.text[start:s.ends[i]]
		start = s.ends[i] + 1
	}
	f.expand(spans[:s.count], s.doubles)
	f.prefix = literalPrefix(f.masks)
	switch {
	case !f.wild:
		f.point = f.exactRoute(s)
	case len(f.masks) == 1 && f.masks[0].Wild == 0:
		f.point = joinedRoute(f.grammar.Scheme, &f.masks[0])
	}
}

// expand computes the masks. With at most one "**" there is only one way to hand out the stars.
func (f *form) expand(segments []string, doubles int) {
	depth := f.grammar.Depth
	if doubles < 2 {
		f.single[0].fill(segments, []int{depth + doubles - len(segments)}, depth)
		f.masks = f.single[:]
		return
	}
	var set maskSet
	set.expand(segments, doubles, depth)
	f.masks = f.single[:]
	if set.count > 1 {
		f.masks = make([]Mask, set.count)
	}
	copy(f.masks, set.masks[:])
}

// exactRoute returns the text as a route.
func (f *form) exactRoute(s *scan) Route {
	r := Route{text: f.text, path: uint32(f.path), count: uint32(s.count)}
	copy(r.ends[:], s.ends[:])
	return r
}

// joinedRoute returns the route of a mask without "*".
func joinedRoute(scheme string, m *Mask) Route {
	r := Route{path: uint32(len(scheme) + len(separator)), count: uint32(m.Depth)}
	r.text = scheme + separator + m.String()
	end := r.path
	for i := range int(m.Depth) {
		end += uint32(len(m.Segments[i]))
		r.ends[i] = end
		end++
	}
	return r
}

// literalPrefix implements R-23.
func literalPrefix(masks []Mask) int {
	for p := range int(masks[0].Depth) {
		for i := range masks {
			if masks[i].Wild&(1<<p) != 0 || masks[i].Segments[p] != masks[0].Segments[p] {
				return p
			}
		}
	}
	return int(masks[0].Depth)
}

// Text returns the text that was parsed. It is the identity of a registration and never rewritten.
func (s Selector) Text() string { return s.get().text }

// String returns the text that was parsed.
func (s Selector) String() string { return s.get().text }

// Scheme returns the text before "://".
func (s Selector) Scheme() string {
	f := s.get()
	return f.text[:max(0, f.path-len(separator))]
}

// Path returns the text after "://": the segments, joined by "/".
func (s Selector) Path() string {
	f := s.get()
	return f.text[f.path:]
}

// Exact reports whether no segment is a wildcard.
func (s Selector) Exact() bool { return s.form != nil && !s.form.wild }

// Wildcard reports whether a segment is "*" or "**".
func (s Selector) Wildcard() bool { return s.get().wild }

// Point returns the only route that the selector can match, if there is only one: its canonical set is one mask without "*"
// . Every exact selector of the right depth is one; so is "a/b/c/**" at depth 3.
func (s Selector) Point() (Route, bool) {
	f := s.get()
	return f.point, f.point.count > 0
}

// Masks returns the canonical masks of a selector of fixed depth, nil for one of flexible depth and for a grant that matches
// nothing. Stars that "**" stands for fall to the last "**" first: "**/a/**" gives a/*/*, */a/*, */*/a. The caller
// must not change the slice.
func (s Selector) Masks() []Mask { return slices.Clip(s.get().masks) }

// Prefix returns the number of leading positions in which all masks carry the same literal. At flexible depth it is the
// number of leading literal segments.
func (s Selector) Prefix() int { return s.get().prefix }

// Matches reports whether the route is in the match set. At fixed depth it compares at most six masks.
func (s Selector) Matches(r Route) bool {
	f := s.get()
	if f.grammar == nil || r.Scheme() != f.grammar.Scheme {
		return false
	}
	if f.grammar.Depth == 0 {
		return matchSegments(f.segments, r.Path())
	}
	for i := range f.masks {
		if f.masks[i].matches(&r) {
			return true
		}
	}
	return false
}

// ContainsRoute reports whether the selector, as a grant, contains the one route r. It has no bound.
func (s Selector) ContainsRoute(r Route) bool { return s.Matches(r) }

// Contains reports whether the match set of the grant s contains the whole match set of the request q. Both must
// have the same scheme. A grant or request that matches nothing is not contained and contains nothing. At flexible depth
// the answer is false beyond the bounds of the grammar of s.
func (s Selector) Contains(q Selector) bool {
	f, o := s.get(), q.get()
	if f.grammar == nil || o.grammar == nil || f.grammar.Scheme != o.grammar.Scheme {
		return false
	}
	if f.grammar.Depth == 0 {
		return f.containsFlexible(o)
	}
	for i := range o.masks {
		if !f.covers(&o.masks[i]) {
			return false
		}
	}
	return len(o.masks) > 0
}

// covers reports whether one mask covers q. A union of masks contains a mask only if one of them does, because the segment
// alphabet is unbounded.
func (f *form) covers(q *Mask) bool {
	for i := range f.masks {
		if f.masks[i].covers(q) {
			return true
		}
	}
	return false
}

// Clone returns an equal selector that shares no memory with the text that was parsed. It holds exactly that text (D-8).
func (s Selector) Clone() Selector {
	if s.form == nil {
		return s
	}
	text := strings.Clone(s.form.text)
	var scanned scan
	if err := scanned.grant(s.form.grammar, text); err != nil {
		return Selector{} // not reachable: the same text passed the same checks before
	}
	return newSelector(s.form.grammar, text, &scanned)
}
