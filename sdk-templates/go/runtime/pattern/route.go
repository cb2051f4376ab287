package pattern

import (
	"cmp"
	"strings"
)

// Route is one classified concrete route. It aliases the text it was parsed from; Clone copies what must outlive a receive
// buffer. The zero Route has no segments and matches nothing.
type Route struct {
	text       string // canonical form
	path       uint32 // offset of the path in text
	count      uint32
	ends       [MaxDepth]uint32 // offsets of the ends of the first segments in text
	schemeless bool             // the path alone was parsed
}

// addScheme turns a route that was scanned without its scheme into the canonical form.
func (r *Route) addScheme(scheme string) {
	prefix := uint32(len(scheme) + len(separator))
	r.text = scheme + separator + r.text
	r.path += prefix
	for i := range min(int(r.count), len(r.ends)) {
		r.ends[i] += prefix
	}
	r.schemeless = true
}

// Text returns the text that was parsed.
func (r Route) Text() string {
	if r.schemeless {
		return r.text[r.path:]
	}
	return r.text
}

// Canonical returns the form that equality and notifications use: the text, with the scheme prefixed when it had none.
func (r Route) Canonical() string { return r.text }

// String returns the canonical form.
func (r Route) String() string { return r.text }

// Scheme returns the text before "://" of the canonical form.
func (r Route) Scheme() string { return r.text[:max(0, int(r.path)-len(separator))] }

// Path returns the text after "://": the segments, joined by "/".
func (r Route) Path() string { return r.text[r.path:] }

// Len returns the number of segments.
func (r Route) Len() int { return int(r.count) }

// Segment returns the segment with index i, which must be at least 0 and less than Len. Beyond MaxDepth its cost grows with i;
// walk Path to visit all segments of a flexible route.
func (r Route) Segment(i int) string {
	if i < MaxDepth {
		return r.near(i)
	}
	rest := r.text[r.ends[MaxDepth-1]+1:]
	for range i - MaxDepth {
		_, rest, _ = strings.Cut(rest, "/")
	}
	segment, _, _ := strings.Cut(rest, "/")
	return segment
}

// near is Segment for i less than MaxDepth.
func (r *Route) near(i int) string {
	start := r.path
	if i > 0 {
		start = r.ends[i-1] + 1
	}
	return r.text[start:r.ends[i]]
}

// Clone returns an equal route that shares no memory with the text that was parsed. It holds exactly the canonical form (D-8).
func (r Route) Clone() Route {
	r.text = strings.Clone(r.text)
	return r
}

// Compare orders routes of one grammar segment by segment, each by its UTF-8 bytes; a route that ends first comes first. The
// result is negative, zero or positive.
func (r Route) Compare(o Route) int {
	for i := range min(r.count, o.count, MaxDepth) {
		if c := strings.Compare(r.near(int(i)), o.near(int(i))); c != 0 {
			return c
		}
	}
	if r.count <= MaxDepth || o.count <= MaxDepth {
		return cmp.Compare(r.count, o.count)
	}
	return comparePaths(r.text[r.ends[MaxDepth-1]:], o.text[o.ends[MaxDepth-1]:])
}

func comparePaths(a, b string) int {
	for {
		first, aRest, aMore := strings.Cut(a, "/")
		second, bRest, bMore := strings.Cut(b, "/")
		if c := strings.Compare(first, second); c != 0 {
			return c
		}
		switch {
		case aMore && bMore:
			a, b = aRest, bRest
		case aMore:
			return 1
		case bMore:
			return -1
		default:
			return 0
		}
	}
}

// Mask returns the mask that the route matches when the positions in the bits of wild are "*". An index that files selectors by
// mask looks a route up once for every value of wild below 1<<Len. Len must be at most MaxDepth.
func (r Route) Mask(wild uint8) Mask {
	m := Mask{Wild: wild, Depth: uint8(r.count)}
	for i := range int(r.count) {
		m.Segments[i] = "*"
		if wild&(1<<i) == 0 {
			m.Segments[i] = r.near(i)
		}
	}
	return m
}
