package pattern_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pattern"
	"pgregory.net/rapid"
)

// flexiblePatterns returns all valid patterns of at most the given length over two literals, as segments.
func flexiblePatterns(longest int) [][]string {
	var out [][]string
	for length := 1; length <= longest; length++ {
		for _, segments := range tuples([]string{"a", "b", "*", "**"}, length) {
			if !strings.Contains(strings.Join(segments, "/"), "**/**") {
				out = append(out, segments)
			}
		}
	}
	return out
}

// all pairs of short patterns against all routes of up to seven segments over the literals and one other.
func TestFlexibleContainmentByEnumeration(t *testing.T) {
	g := grammars(t)["notice"]
	patterns := flexiblePatterns(3)
	var paths [][]string
	for length := 1; length <= 7; length++ {
		paths = append(paths, tuples([]string{"a", "b", "other"}, length)...)
	}
	selectors := make([]pattern.Selector, len(patterns))
	matched := make([][]uint64, len(patterns))
	for p, segments := range patterns {
		selectors[p] = mustSelector(t, g, "notice://"+strings.Join(segments, "/"))
		matched[p] = make([]uint64, len(paths)/64+1)
	}
	for i, path := range paths {
		r := mustRoute(t, g, "notice://"+strings.Join(path, "/"))
		for p, segments := range patterns {
			want := naiveMatch(segments, path)
			if selectors[p].Matches(r) != want {
				t.Fatalf("%s matches %s: want %v", selectors[p].Text(), r, want)
			}
			if want {
				matched[p][i/64] |= 1 << (i % 64)
			}
		}
	}
	for a := range patterns {
		for b := range patterns {
			want := true
			for w := range matched[b] {
				want = want && matched[b][w]&^matched[a][w] == 0
			}
			if got := selectors[a].Contains(selectors[b]); got != want {
				t.Fatalf("%s contains %s: %v, want %v", selectors[a].Text(), selectors[b].Text(), got, want)
			}
		}
	}
}

// rests is a set of the parts of a pattern that are still to be matched, each joined by "/" with a final "/".
type rests map[string]bool

func newRests(segments ...string) rests {
	out := make(rests)
	out.add(segments)
	return out
}

func (s rests) add(segments []string) {
	s[strings.Join(append(slices.Clone(segments), ""), "/")] = true
	if len(segments) > 0 && segments[0] == "**" {
		s.add(segments[1:])
	}
}

// after returns the rests after one more segment.
func (s rests) after(symbol string) rests {
	out := make(rests)
	for rest := range s {
		segments := strings.Split(strings.TrimSuffix(rest, "/"), "/")
		switch segments[0] {
		case "":
		case "**":
			out.add(segments)
		case "*", symbol:
			out.add(segments[1:])
		}
	}
	return out
}

func (s rests) accepts() bool { return s[""] }

func (s rests) key() string {
	var keys []string
	for rest := range s {
		keys = append(keys, rest+"\n") // so that the set of the empty rest is not the empty set
	}
	slices.Sort(keys)
	return strings.Join(keys, "")
}

// contains decides containment without bounds by the rests of both patterns. It shares nothing with the package: no automaton of
// positions, no bit sets, both sides determinized. It reports the number of pairs that it has visited.
func contains(grant, request []string) (bool, int) {
	symbols := append(slices.Concat(grant, request), "an other literal")
	symbols = slices.DeleteFunc(symbols, func(s string) bool { return s == "*" || s == "**" })
	slices.Sort(symbols)
	symbols = slices.Compact(symbols)
	type pair struct{ grant, request rests }
	pending := []pair{{newRests(grant...), newRests(request...)}}
	seen := make(map[string]bool)
	for len(pending) > 0 {
		p := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		for _, symbol := range symbols {
			next := pair{p.grant.after(symbol), p.request.after(symbol)}
			key := next.grant.key() + "|" + next.request.key()
			if seen[key] || len(next.request) == 0 {
				continue
			}
			if next.request.accepts() && !next.grant.accepts() {
				return false, len(seen)
			}
			seen[key] = true
			pending = append(pending, next)
		}
	}
	return true, len(seen)
}

func TestFlexibleContainmentOfLongPatterns(t *testing.T) {
	g := *grammars(t)["notice"]
	g.ContainmentStatesMax = 1 << 20
	answers := make(map[bool]int)
	rapid.Check(t, func(t *rapid.T) {
		grant := drawPattern(t, []string{"a", "b"}, 7, "grant")
		request := drawPattern(t, []string{"a", "b"}, 7, "request")
		if rapid.Bool().Draw(t, "related") {
			request = drawInstance(t, grant)
		}
		want, _ := contains(grant, request)
		got := mustSelector(t, &g, "notice://"+strings.Join(grant, "/")).Contains(mustSelector(t, &g, "notice://"+strings.Join(request, "/")))
		if got != want {
			t.Fatalf("%q contains %q: %v, want %v", grant, request, got, want)
		}
		answers[got]++
	})
	if answers[true] == 0 || answers[false] == 0 {
		t.Errorf("answers %v", answers)
	}
}

// drawPattern draws a valid pattern of flexible depth.
func drawPattern(t *rapid.T, literals []string, longest int, label string) []string {
	alphabet := append(slices.Clone(literals), "*", "**")
	segments := rapid.SliceOfN(rapid.SampledFrom(alphabet), 1, longest).Draw(t, label)
	return slices.CompactFunc(segments, func(a, b string) bool { return a == "**" && b == "**" })
}

// drawInstance draws a pattern that is likely to be contained in the given one: every wildcard is kept or narrowed.
func drawInstance(t *rapid.T, segments []string) []string {
	var out []string
	for _, s := range segments {
		switch s {
		case "*":
			out = append(out, rapid.SampledFrom([]string{"*", "a", "b"}).Draw(t, "one"))
		case "**":
			choices := [][]string{{"**"}, {}, {"*"}, {"a", "**"}, {"**", "b"}, {"*", "**", "a"}}
			out = append(out, rapid.SampledFrom(choices).Draw(t, "some")...)
		default:
			out = append(out, s)
		}
	}
	out = slices.CompactFunc(out, func(a, b string) bool { return a == "**" && b == "**" })
	if len(out) == 0 {
		return []string{"*"}
	}
	return out
}

// R-23 at flexible depth, R-17, R-22.
func TestFlexibleSelectors(t *testing.T) {
	g := grammars(t)["rpc"]
	for _, segments := range flexiblePatterns(4) {
		s := mustSelector(t, g, "rpc://"+strings.Join(segments, "/"))
		prefix := slices.IndexFunc(segments, func(s string) bool { return strings.Contains(s, "*") })
		point, ok := s.Point()
		switch {
		case s.Masks() != nil:
			t.Errorf("%s: masks %q", s, maskStrings(s))
		case prefix < 0 && (!s.Exact() || s.Prefix() != len(segments) || !ok || point.Text() != s.Text() || point.Len() != len(segments)):
			t.Errorf("%s: exact %v, prefix %d, point %q", s, s.Exact(), s.Prefix(), point)
		case prefix >= 0 && (s.Exact() || s.Prefix() != prefix || ok):
			t.Errorf("%s: exact %v, prefix %d, point %v", s, s.Exact(), s.Prefix(), ok)
		}
	}
}

// The two bounds of R-32, at the bound and one beyond.
func TestContainmentSegmentsBound(t *testing.T) {
	g := grammars(t)["notice"]
	path := func(last string, n int) string { return "notice://" + strings.Repeat("x/", n-1) + last }
	grant := mustSelector(t, g, path("**", g.MaxSegments))
	atBound := mustSelector(t, g, path("*", g.ContainmentSegmentsMax-g.MaxSegments))
	wide := mustSelector(t, g, path("**", g.ContainmentSegmentsMax-g.MaxSegments))
	beyond := mustSelector(t, g, path("*", g.MaxSegments))
	if g.MaxSegments != 64 || g.ContainmentSegmentsMax != 127 {
		t.Fatalf("bounds %d and %d", g.MaxSegments, g.ContainmentSegmentsMax)
	}
	if !wide.Contains(grant) || grant.Contains(atBound) {
		t.Errorf("at the bound: %v, want true; %v, want false", wide.Contains(grant), grant.Contains(atBound))
	}
	if want, _ := contains(strings.Split(grant.Path(), "/"), strings.Split(beyond.Path(), "/")); !want || grant.Contains(beyond) {
		t.Errorf("beyond the bound: contained %v, answer %v, want no", want, grant.Contains(beyond))
	}
	// decided directly, outside the bounds
	if !grant.Contains(mustSelector(t, g, grant.Text()+"")) || !beyond.Contains(beyond.Clone()) {
		t.Error("equal paths are contained")
	}
	exact := mustSelector(t, g, path("x", g.MaxSegments))
	if !grant.Contains(exact) || !beyond.Contains(exact) || exact.Contains(beyond) || !exact.Contains(exact.Clone()) {
		t.Error("a request without wildcard is decided directly")
	}
}

// The largest automata: 63 steps on either side, and more steps in the grant than a route of the request may have.
func TestContainmentOfLargestPatterns(t *testing.T) {
	g := *grammars(t)["notice"]
	g.MaxSegments = g.ContainmentSegmentsMax
	selector := func(path string) pattern.Selector { return mustSelector(t, &g, "notice://"+path) }
	steps := strings.Repeat("x/*/", 31) + "x" // 63 segments
	for _, c := range []struct {
		grant, request string
		want           bool
	}{
		{steps + "/**", strings.Replace(steps, "*", "y", 5), true},
		{"**/" + steps, strings.Replace(steps, "*", "y", 5), true},
		{steps + "/**", strings.Replace(steps, "x", "*", 1), false},
		{steps, steps + "/*", false},
		{steps + "/*", steps[:len(steps)-4] + "/**", false},
		{strings.Repeat("*/", 100) + "**", "**", false},
		{strings.Repeat("*/", 90) + "x", "**/x", false},
		{"*/**", "**", true},
		{"*", "**", false},
		{"*/*/**", "**", false},
	} {
		grant, request := strings.Split(c.grant, "/"), strings.Split(c.request, "/")
		if want, _ := contains(grant, request); want != c.want {
			t.Errorf("%s contains %s: the independent answer is %v", c.grant, c.request, want)
		}
		if got := selector(c.grant).Contains(selector(c.request)); got != c.want {
			t.Errorf("%s contains %s: %v", c.grant, c.request, got)
		}
	}
}

// A state is one pair of a state of the request and a subset of the states of the grant; start and repetition do not count.
// Clauses: R-32.
func TestContainmentStatesBound(t *testing.T) {
	for _, c := range []struct {
		grant, request string
		states         int
	}{
		{"**", "*/**", 1},   // one segment or more
		{"**", "a/*", 2},    // a, then anything
		{"*/**", "**/a", 2}, // not yet at the final a, at it
		{"**", "a/**/b/*", 3},
		{"**/a/**", "b/**/a/*", 4}, // after b without and with a; after the a of the request; at the end
	} {
		for states := 1; states <= 6; states++ {
			g := *grammars(t)["notice"]
			g.ContainmentStatesMax = states
			grant, request := mustSelector(t, &g, "notice://"+c.grant), mustSelector(t, &g, "notice://"+c.request)
			if got := grant.Contains(request); got != (states >= c.states) {
				t.Errorf("%s contains %s with at most %d states: %v", c.grant, c.request, states, got)
			}
		}
	}
}

// The number of subsets grows exponentially here; the bound ends the walk with no, in bounded work.
func TestContainmentOfExplodingSubsets(t *testing.T) {
	g := grammars(t)["notice"]
	selector := func(first string, stars int) pattern.Selector {
		return mustSelector(t, g, "notice://"+first+strings.Repeat("/*", stars))
	}
	if !selector("**/a", 8).Contains(selector("b/**/a", 8)) {
		t.Error("a small one is decided")
	}
	if selector("**/a", 30).Contains(selector("b/**/a", 30)) {
		t.Error("one beyond containment_states_max is denied")
	}
	if !selector("**/a", 30).Contains(selector("**/a", 30)) || selector("b/**/a", 8).Contains(selector("**/a", 8)) {
		t.Error("equal paths are contained, and wider requests are not")
	}
}

// Matching goes back to the last "**" only.
func TestFlexibleMatchingOfLongRoutes(t *testing.T) {
	g := grammars(t)["notice"]
	s := mustSelector(t, g, "notice://"+strings.Repeat("**/a/", 31)+"b")
	if s.Matches(mustRoute(t, g, "notice://"+strings.Repeat("a/", 63)+"a")) {
		t.Error("matches without a final b")
	}
	if !s.Matches(mustRoute(t, g, "notice://"+strings.Repeat("a/", 63)+"b")) {
		t.Error("does not match")
	}
}
