package pattern

import (
	"math/bits"
	"slices"
	"strings"
)

// Mask is one canonical mask of a selector of fixed depth: Depth positions, each a literal or "*". Masks are comparable with ==
// and may be map keys.
type Mask struct {
	Segments [MaxDepth]string // the literal or "*" of each position; "" beyond Depth
	Wild     uint8            // bit i is set when position i is "*"
	Depth    uint8
}

// Matches reports whether the route has Depth segments and fits the mask position by position. The scheme plays no part.
func (m Mask) Matches(r Route) bool {
	return m.matches(&r)
}

func (m *Mask) matches(r *Route) bool {
	if r.count != uint32(m.Depth) {
		return false
	}
	for i := range int(m.Depth) {
		if m.Wild&(1<<i) == 0 && m.Segments[i] != r.near(i) {
			return false
		}
	}
	return true
}

// Covers reports whether every route that matches q also matches m: covered(q, m) of routes.md section 4.
func (m Mask) Covers(q Mask) bool {
	return m.covers(&q)
}

func (m *Mask) covers(q *Mask) bool {
	if m.Depth != q.Depth || q.Wild&^m.Wild != 0 {
		return false
	}
	for i := range int(m.Depth) {
		if m.Wild&(1<<i) == 0 && m.Segments[i] != q.Segments[i] {
			return false
		}
	}
	return true
}

// Literals returns the number of positions that are not "*".
func (m Mask) Literals() int { return int(m.Depth) - bits.OnesCount8(m.Wild) }

// String returns the positions joined by "/".
func (m Mask) String() string { return strings.Join(m.Segments[:m.Depth], "/") }

// maxMasks bounds the masks of one selector: handing out MaxDepth-n stars to at most n+1 places gives at most
// binomial(MaxDepth, n) tuples.
const maxMasks = 6

// maskSet collects different masks. All masks of one selector have the same number of literals, so one covers another only if
// they are equal.
type maskSet struct {
	masks [maxMasks]Mask
	count int
}

func (s *maskSet) add(m *Mask) {
	if !slices.Contains(s.masks[:s.count], *m) {
		s.masks[s.count] = *m
		s.count++
	}
}

// expand adds the canonical masks of the segments of a selector at the given depth (routes.md section 4). The text has reached
// the depth, see scan.reachesDepth. Stars are handed out to the last "**" first, which fixes the order of the masks.
func (s *maskSet) expand(segments []string, doubles, depth int) {
	var counts [MaxDepth + 1]int
	stars := counts[:doubles]
	stars[doubles-1] = depth - (len(segments) - doubles)
	for {
		var m Mask
		m.fill(segments, stars, depth)
		s.add(&m)
		if !advance(stars) {
			return
		}
	}
}

// advance moves to the next way, in lexical order, to write the sum of stars as a sum. It reports false after the last one.
func advance(stars []int) bool {
	last := len(stars) - 1
	if last < 1 {
		return false
	}
	rest := stars[last]
	i := last - 1
	for ; i >= 0 && rest == 0; i-- {
		rest = stars[i]
	}
	if i < 0 {
		return false
	}
	stars[i]++
	clear(stars[i+1:])
	stars[last] = rest - 1
	return true
}

// fill sets m to the segments with the i-th "**" replaced by stars[i] times "*".
func (m *Mask) fill(segments []string, stars []int, depth int) {
	*m = Mask{Depth: uint8(depth)}
	at, double := 0, 0
	for _, segment := range segments {
		repeat := 1
		if segment == "**" {
			repeat = stars[double]
			double++
		}
		if !isWildcard(segment) {
			m.Segments[at] = segment
			at++
			continue
		}
		for range repeat {
			m.Segments[at] = "*"
			m.Wild |= 1 << at
			at++
		}
	}
}
