package pattern_test

import (
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pattern"
)

// routeSet is a set of routes out of at most 128.
type routeSet [2]uint64

func (s routeSet) in(o routeSet) bool { return s[0]&^o[0] == 0 && s[1]&^o[1] == 0 }
func (s routeSet) size() int          { return bits.OnesCount64(s[0]) + bits.OnesCount64(s[1]) }

// world holds every valid pattern over a few literals, and every route over these and one further literal, at one depth. One
// further literal is enough to tell all match sets apart: it fills every "*" that no other pattern names.
type world struct {
	grammar  *pattern.Grammar
	routes   []pattern.Route
	paths    [][]string
	patterns []classified
}

type classified struct {
	segments []string
	selector pattern.Selector
	matched  routeSet // by naiveMatch
}

func newWorld(t *testing.T, domain string, literals ...string) *world {
	t.Helper()
	w := &world{grammar: grammars(t)[domain]}
	w.paths = tuples(append(slices.Clone(literals), "other"), w.grammar.Depth)
	for _, path := range w.paths {
		w.routes = append(w.routes, mustRoute(t, w.grammar, domain+"://"+strings.Join(path, "/")))
	}
	for length := 1; length <= 2*w.grammar.Depth+1; length++ {
		for _, segments := range tuples(append(slices.Clone(literals), "*", "**"), length) {
			if !naiveValid(segments, w.grammar.Depth) {
				continue
			}
			c := classified{segments: segments, selector: mustSelector(t, w.grammar, domain+"://"+strings.Join(segments, "/"))}
			for i, path := range w.paths {
				if naiveMatch(segments, path) {
					c.matched[i/64] |= 1 << (i % 64)
				}
			}
			w.patterns = append(w.patterns, c)
		}
	}
	return w
}

// tuples returns all tuples of the given length over an alphabet.
func tuples(alphabet []string, length int) [][]string {
	out := [][]string{nil}
	for range length {
		var longer [][]string
		for _, t := range out {
			for _, s := range alphabet {
				longer = append(longer, append(slices.Clone(t), s))
			}
		}
		out = longer
	}
	return out
}

// naiveValid is.
func naiveValid(segments []string, depth int) bool {
	others, doubles := 0, 0
	for i, s := range segments {
		if s == "**" {
			doubles++
		} else {
			others++
		}
		if i > 0 && s == "**" && segments[i-1] == "**" {
			return false
		}
	}
	return others == depth || others < depth && doubles > 0
}

// validPatterns counts the valid patterns of a depth with so many segments that are not "**": for n of these, each of the n+1
// gaps has a "**" or not, and at least one has if n is less than the depth.
func validPatterns(depth, alphabet int) int {
	total, ways := 0, 1
	for n := 0; n <= depth; n++ {
		gaps := 1 << (n + 1)
		if n < depth {
			gaps--
		}
		total += ways * gaps
		ways *= alphabet
	}
	return total
}

// Clauses.
func TestEveryPatternOfDepth3(t *testing.T) {
	w := newWorld(t, "lease", "a", "b", "c")
	if want := validPatterns(3, 4); len(w.patterns) != want || want != 1149 {
		t.Fatalf("%d patterns, want %d", len(w.patterns), want)
	}
	w.check(t, 3)
	byMasks := make(map[int]int)
	for _, masks := range w.languages(t) {
		byMasks[len(masks)]++
	}
	if byMasks[1] != 64 || byMasks[2] != 33 || byMasks[3] != 12 || len(byMasks) != 3 {
		t.Errorf("match sets by number of masks: %v", byMasks)
	}
}

// Clauses.
func TestEveryPatternOfDepth4(t *testing.T) {
	w := newWorld(t, "schedule", "a", "b")
	if want := validPatterns(4, 3); len(w.patterns) != want || want != 3070 {
		t.Fatalf("%d patterns, want %d", len(w.patterns), want)
	}
	w.check(t, 6)
	w.languages(t)
}

func (w *world) check(t *testing.T, maskBound int) {
	t.Helper()
	largest := 0
	for _, c := range w.patterns {
		largest = max(largest, len(c.selector.Masks()))
		w.checkMatches(t, c)
		checkMasks(t, c, w.grammar.Depth)
		w.checkPoint(t, c)
	}
	if largest != maskBound {
		t.Errorf("R-20: at most %d masks, want exactly %d", largest, maskBound)
	}
	for _, g := range w.patterns {
		for _, q := range w.patterns {
			if got, want := g.selector.Contains(q.selector), q.matched.in(g.matched); got != want {
				t.Fatalf("%s contains %s: %v, want %v", g.selector.Text(), q.selector.Text(), got, want)
			}
		}
	}
}

// checkMatches compares matching by masks, and by look-up of the masks of the route, with the definition of "**".
func (w *world) checkMatches(t *testing.T, c classified) {
	t.Helper()
	filed := make(map[pattern.Mask]bool)
	for _, m := range c.selector.Masks() {
		filed[m] = true
	}
	for i, r := range w.routes {
		want := c.matched[i/64]&(1<<(i%64)) != 0
		found := false
		for wild := range 1 << w.grammar.Depth {
			found = found || filed[r.Mask(uint8(wild))]
		}
		if got := c.selector.Matches(r); got != want || found != want || c.selector.ContainsRoute(r) != want {
			t.Fatalf("%s matches %s: %v, by look-up %v, want %v", c.selector.Text(), r, got, found, want)
		}
	}
}

// checkMasks checks that no mask covers another one, R-23 and R-24.
func checkMasks(t *testing.T, c classified, depth int) {
	t.Helper()
	masks := c.selector.Masks()
	for i, x := range masks {
		for j, y := range masks {
			if i != j && y.Covers(x) {
				t.Fatalf("%s: mask %s covers %s", c.selector.Text(), y, x)
			}
		}
		text := strings.Split(x.String(), "/")
		if stars := len(text) - x.Literals(); len(text) != depth || stars != strings.Count(x.String(), "*") {
			t.Fatalf("%s: mask %s with %d literals", c.selector.Text(), x, x.Literals())
		}
	}
	others := slices.DeleteFunc(slices.Clone(c.segments), func(s string) bool { return s == "**" })
	if len(others) == depth && (len(masks) != 1 || masks[0].String() != strings.Join(others, "/")) {
		t.Fatalf("R-24: %s has the masks %q", c.selector.Text(), maskStrings(c.selector))
	}
	prefix := 0
	for ; prefix < depth; prefix++ {
		first := strings.Split(masks[0].String(), "/")[prefix]
		differs := func(m pattern.Mask) bool { return strings.Split(m.String(), "/")[prefix] != first }
		if first == "*" || slices.ContainsFunc(masks, differs) {
			break
		}
	}
	if c.selector.Prefix() != prefix {
		t.Fatalf("R-23: %s has a prefix of %d, want %d", c.selector.Text(), c.selector.Prefix(), prefix)
	}
}

// checkPoint checks R-22: a selector is a point selector if and only if it matches one route.
func (w *world) checkPoint(t *testing.T, c classified) {
	t.Helper()
	point, ok := c.selector.Point()
	if ok != (c.matched.size() == 1) {
		t.Fatalf("%s: point %v, matches %d routes", c.selector.Text(), ok, c.matched.size())
	}
	if !ok {
		if point.Len() != 0 || point.Text() != "" || point.Scheme() != "" {
			t.Fatalf("%s: point %q", c.selector.Text(), point)
		}
		return
	}
	checkRoute(t, w.grammar, point.Text(), point)
	i := slices.IndexFunc(w.routes, func(r pattern.Route) bool { return r.Compare(point) == 0 })
	if i < 0 || c.matched[i/64]&(1<<(i%64)) == 0 || w.routes[i].Text() != point.Text() {
		t.Fatalf("%s: point %q", c.selector.Text(), point)
	}
}

// languages returns the sorted masks of every match set and checks that they are canonical: equal match sets have equal masks,
// different ones have different masks.
func (w *world) languages(t *testing.T) map[routeSet][]string {
	t.Helper()
	masks := make(map[routeSet][]string)
	sets := make(map[string]routeSet)
	for _, c := range w.patterns {
		own := maskStrings(c.selector)
		slices.Sort(own)
		if seen, ok := masks[c.matched]; ok && !slices.Equal(seen, own) {
			t.Fatalf("%s has the masks %q, another pattern of the same match set has %q", c.selector.Text(), own, seen)
		}
		key := strings.Join(own, " ")
		if seen, ok := sets[key]; ok && seen != c.matched {
			t.Fatalf("%s has the masks %q of a pattern of another match set", c.selector.Text(), own)
		}
		masks[c.matched], sets[key] = own, c.matched
	}
	return masks
}

// a grant of any depth is accepted; one that cannot match anything contains nothing, not even itself.
func TestGrantsOfAnyDepth(t *testing.T) {
	w := newWorld(t, "lease", "a")
	for length := 1; length <= 6; length++ {
		for _, segments := range tuples([]string{"a", "*", "**"}, length) {
			if strings.Contains(strings.Join(segments, "/"), "**/**") {
				continue
			}
			text := "lease://" + strings.Join(segments, "/")
			grant := mustGrant(t, w.grammar, text)
			var matched routeSet
			for i, path := range w.paths {
				if naiveMatch(segments, path) {
					matched[i/64] |= 1 << (i % 64)
				}
				if grant.ContainsRoute(w.routes[i]) != naiveMatch(segments, path) {
					t.Fatalf("%s contains %s: %v", text, w.routes[i], grant.ContainsRoute(w.routes[i]))
				}
			}
			if empty := matched == (routeSet{}); empty != (grant.Masks() == nil) || grant.Contains(grant) == empty {
				t.Fatalf("%s: masks %q, empty %v", text, maskStrings(grant), empty)
			}
			for _, q := range w.patterns {
				if grant.Contains(q.selector) != q.matched.in(matched) {
					t.Fatalf("%s contains %s: %v", text, q.selector.Text(), grant.Contains(q.selector))
				}
			}
		}
	}
}

// A-33: R-12, R-14 and R-15 do not apply to entries.
func TestGrantsOfStream(t *testing.T) {
	g := grammars(t)["stream"]
	for _, text := range []string{"stream://r/a/**", "stream://r/__area__/k", "stream://**/k", "stream://r"} {
		if _, err := g.ParseSelector(text); err == nil {
			t.Errorf("%s is a selector", text)
		}
		mustGrant(t, g, text)
	}
}

// the scheme must be equal.
func TestSchemesNeverMix(t *testing.T) {
	all := grammars(t)
	for _, a := range all {
		for _, b := range all {
			grant := mustGrant(t, a, a.Scheme+"://**")
			request := mustSelector(t, b, b.Scheme+"://**")
			route := mustRoute(t, b, b.Scheme+"://"+strings.Repeat("x/", max(b.Depth, 1)-1)+"x")
			same := a == b
			if grant.Contains(request) != same || grant.ContainsRoute(route) != same || grant.Matches(route) != same {
				t.Errorf("%s contains %s: %v, %v", grant.Text(), request.Text(), grant.Contains(request), grant.ContainsRoute(route))
			}
		}
	}
}

// Masks of different depths have nothing to do with each other, nor with routes of another length.
func TestMasksOfDifferentDepths(t *testing.T) {
	all := grammars(t)
	three, four := mustSelector(t, all["lease"], "lease://**").Masks()[0], mustSelector(t, all["schedule"], "schedule://**").Masks()[0]
	lease, schedule := mustRoute(t, all["lease"], "lease://a/b/c"), mustRoute(t, all["schedule"], "schedule://a/b/c/d")
	if three.Covers(four) || four.Covers(three) || three.Matches(schedule) || four.Matches(lease) {
		t.Error("masks of different depths cover or match")
	}
	if !three.Covers(three) || !three.Covers(lease.Mask(2)) || !three.Matches(lease) || !four.Matches(schedule) {
		t.Error("masks of the same depth do not")
	}
	if m := lease.Mask(2); m.String() != "a/*/c" || m.Literals() != 2 || m.Depth != 3 || m.Covers(three) {
		t.Errorf("mask %v", m)
	}
}

func TestZeroValues(t *testing.T) {
	g := grammars(t)["lease"]
	var s pattern.Selector
	full, route := mustSelector(t, g, "lease://**"), mustRoute(t, g, "lease://a/b/c")
	if _, point := s.Point(); point || s.Exact() || s.Wildcard() || s.Text() != "" || s.Scheme() != "" || s.Path() != "" || s.Masks() != nil || s.Prefix() != 0 {
		t.Error("the zero selector has properties")
	}
	if s.Matches(route) || s.Contains(full) || full.Contains(s) || s.Contains(s) || s.ContainsRoute(route) || full.Matches(pattern.Route{}) {
		t.Error("the zero selector or route takes part in matching")
	}
	if s.Clone() != s || s.Matches(pattern.Route{}) {
		t.Error("the zero selector does not stay zero")
	}
}
