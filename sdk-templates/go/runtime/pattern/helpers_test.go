package pattern_test

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fitzwire/fitz/internal/reference"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pattern"
)

// grammars returns the grammars of all domains by name. Depths and bounds are those of the reference.
func grammars(t reference.TB) map[string]*pattern.Grammar {
	t.Helper()
	limits := make(map[string]int)
	for _, l := range reference.Rows(t, (*reference.Docs).Limits) {
		limits[l.Name] = int(l.Value)
	}
	out := make(map[string]*pattern.Grammar)
	for _, d := range reference.Rows(t, (*reference.Docs).Domains) {
		g := &pattern.Grammar{
			Scheme:                 d.Name,
			Depth:                  d.Depth,
			MaxBytes:               limits["route_bytes_max"],
			MaxSegments:            limits["route_segments_max"],
			AllowSchemeless:        d.Name == "kv",
			ContainmentSegmentsMax: limits["containment_segments_max"],
			ContainmentStatesMax:   limits["containment_states_max"],
		}
		if d.Name == "stream" {
			g.Reserved, g.ReservedFrom = []string{"__realm__", "__area__"}, 1
			g.Shapes = []string{"L/L/L", "L/L/*", "L/*/L", "L/*/*", "*/L/L", "*/L/*", "*/*/L", "*/*/*", "L/**", "**"}
		}
		if err := g.Validate(); err != nil {
			t.Fatalf("%v", err)
		}
		out[d.Name] = g
	}
	return out
}

// grammarOf returns the grammar of the scheme of a text.
func grammarOf(t reference.TB, all map[string]*pattern.Grammar, text string) *pattern.Grammar {
	t.Helper()
	scheme, _, _ := strings.Cut(text, "://")
	if all[scheme] == nil {
		t.Fatalf("%q: no such domain", text)
	}
	return all[scheme]
}

func mustRoute(t reference.TB, g *pattern.Grammar, text string) pattern.Route {
	t.Helper()
	r, err := g.ParseRoute(text)
	if err != nil {
		t.Fatalf("route %q: %v", text, err)
	}
	return r
}

func mustSelector(t reference.TB, g *pattern.Grammar, text string) pattern.Selector {
	t.Helper()
	s, err := g.ParseSelector(text)
	if err != nil {
		t.Fatalf("selector %q: %v", text, err)
	}
	return s
}

func mustGrant(t reference.TB, g *pattern.Grammar, text string) pattern.Selector {
	t.Helper()
	s, err := g.ParseGrant(text)
	if err != nil {
		t.Fatalf("grant %q: %v", text, err)
	}
	return s
}

func maskStrings(s pattern.Selector) []string {
	var out []string
	for _, m := range s.Masks() {
		out = append(out, m.String())
	}
	return out
}

// naiveMatch matches by the definition of "*" and "**" alone; it knows no masks.
func naiveMatch(pat, path []string) bool {
	switch {
	case len(pat) == 0:
		return len(path) == 0
	case pat[0] == "**":
		return naiveMatch(pat[1:], path) || len(path) > 0 && naiveMatch(pat, path[1:])
	default:
		return len(path) > 0 && (pat[0] == "*" || pat[0] == path[0]) && naiveMatch(pat[1:], path[1:])
	}
}

type use int

const (
	asRoute use = iota
	asSelector
	asGrant
)

// parse parses a text for a use and returns the error in its concrete type.
func parse(t reference.TB, g *pattern.Grammar, text string, as use) (pattern.Route, pattern.Selector, *pattern.Error) {
	t.Helper()
	var r pattern.Route
	var s pattern.Selector
	var err error
	switch as {
	case asRoute:
		r, err = g.ParseRoute(text)
	case asSelector:
		s, err = g.ParseSelector(text)
	default:
		s, err = g.ParseGrant(text)
	}
	if err == nil {
		return r, s, nil
	}
	e, ok := err.(*pattern.Error)
	if !ok {
		t.Fatalf("%q: error of type %T", text, err)
	}
	return r, s, e
}

// verdict is the outcome of the checks of routes.md section 3; the word is "" for a valid text.
type verdict struct {
	word            string
	offset, segment int
}

// naiveCheck follows routes.md section 3 line by line.
func naiveCheck(g *pattern.Grammar, text string, as use) verdict {
	schemeless := as == asRoute && g.AllowSchemeless && !strings.Contains(text, "://")
	prefix := g.Scheme + "://"
	limit := g.MaxBytes
	if schemeless {
		limit -= len(prefix)
	}
	if len(text) > limit {
		return verdict{"too_long", limit, -1}
	}
	for i, r := range text {
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD") {
			return verdict{"invalid_utf8", i, -1}
		}
	}
	start := 0
	if !schemeless {
		scheme, _, found := strings.Cut(text, "://")
		if !found {
			return verdict{"missing_scheme", 0, -1}
		}
		if scheme != g.Scheme {
			return verdict{"wrong_scheme", 0, -1}
		}
		start = len(prefix)
	}
	if start == len(text) {
		return verdict{"empty_path", start, -1}
	}
	segments := strings.Split(text[start:], "/")
	starts := make([]int, len(segments))
	for i, at := 0, start; i < len(segments); i++ {
		starts[i] = at
		at += len(segments[i]) + 1
	}
	for i, s := range segments {
		if s == "" {
			return verdict{"empty_segment", starts[i], i}
		}
		if c := strings.IndexFunc(s, func(r rune) bool { return unicode.Is(unicode.Cc, r) }); c >= 0 {
			return verdict{"control_character", starts[i] + c, i}
		}
		if c := strings.Index(s, "*"); c >= 0 && as == asRoute {
			return verdict{"wildcard_not_allowed", starts[i] + c, i}
		} else if c >= 0 && s != "*" && s != "**" {
			return verdict{"partial_wildcard", starts[i] + c, i}
		}
	}
	if len(segments) > g.MaxSegments {
		return verdict{"too_many_segments", starts[g.MaxSegments], g.MaxSegments}
	}
	for i := 1; i < len(segments); i++ {
		if segments[i] == "**" && segments[i-1] == "**" {
			return verdict{"adjacent_double_star", starts[i], i}
		}
	}
	if as == asGrant {
		return verdict{}
	}
	if v := naiveDepth(g.Depth, segments, starts, len(text)); g.Depth > 0 && v.word != "" {
		return v
	}
	for i := g.ReservedFrom; i < len(segments); i++ {
		if slices.Contains(g.Reserved, segments[i]) {
			return verdict{"reserved_segment", starts[i], i}
		}
	}
	if g.Shapes != nil && as == asSelector && !slices.Contains(g.Shapes, naiveShape(segments)) {
		return verdict{"shape", start, -1}
	}
	return verdict{}
}

func naiveDepth(depth int, segments []string, starts []int, end int) verdict {
	var others []int
	for i, s := range segments {
		if s != "**" {
			others = append(others, i)
		}
	}
	switch {
	case len(others) > depth:
		return verdict{"depth", starts[others[depth]], others[depth]}
	case len(others) < depth && len(others) == len(starts):
		return verdict{"depth", end, -1}
	}
	return verdict{}
}

func naiveShape(segments []string) string {
	var shape []string
	for _, s := range segments {
		if s != "*" && s != "**" {
			s = "L"
		}
		shape = append(shape, s)
	}
	return strings.Join(shape, "/")
}

// checkText compares the parser with naiveCheck and checks what every classified value must fulfil.
func checkText(t reference.TB, g *pattern.Grammar, text string, as use) {
	t.Helper()
	r, s, err := parse(t, g, text, as)
	want := naiveCheck(g, text, as)
	if err != nil {
		if got := (verdict{err.Reason.String(), err.Offset, err.Segment}); got != want {
			t.Fatalf("%s %q as %d: %+v, want %+v", g.Scheme, text, as, got, want)
		}
		return
	}
	if want.word != "" {
		t.Fatalf("%s %q as %d: accepted, want %+v", g.Scheme, text, as, want)
	}
	if as == asRoute {
		checkRoute(t, g, text, r)
		return
	}
	checkSelector(t, g, text, s)
}

func checkRoute(t reference.TB, g *pattern.Grammar, text string, r pattern.Route) {
	t.Helper()
	canonical := text
	if !strings.Contains(text, "://") {
		canonical = g.Scheme + "://" + text
	}
	path := strings.Split(strings.TrimPrefix(canonical, g.Scheme+"://"), "/")
	for _, r := range []pattern.Route{r, r.Clone()} {
		if r.Text() != text || r.Canonical() != canonical || r.Scheme() != g.Scheme || r.String() != canonical ||
			r.Path() != strings.Join(path, "/") || r.Len() != len(path) {
			t.Fatalf("route %q: text %q, canonical %q, scheme %q, path %q, %d segments", text, r.Text(), r.Canonical(), r.Scheme(), r.Path(), r.Len())
		}
		for i := range path {
			if r.Segment(i) != path[i] {
				t.Fatalf("route %q: segment %d is %q", text, i, r.Segment(i))
			}
		}
	}
	if r.Compare(r.Clone()) != 0 {
		t.Fatalf("route %q differs from its clone", text)
	}
	exact, _, err := parse(t, g, r.Canonical(), asRoute)
	if err != nil || exact.Text() != canonical {
		t.Fatalf("canonical form %q of %q: %v", canonical, text, err)
	}
}

func checkSelector(t reference.TB, g *pattern.Grammar, text string, s pattern.Selector) {
	t.Helper()
	path := strings.Split(strings.TrimPrefix(text, g.Scheme+"://"), "/")
	wild := slices.Contains(path, "*") || slices.Contains(path, "**")
	clone := s.Clone()
	if s.Text() != text || s.Scheme() != g.Scheme || s.Path() != strings.Join(path, "/") || s.Wildcard() != wild || s.Exact() == wild {
		t.Fatalf("selector %q: text %q, scheme %q, path %q, wildcard %v, exact %v", text, s.Text(), s.Scheme(), s.Path(), s.Wildcard(), s.Exact())
	}
	if clone.Text() != text || !slices.Equal(clone.Masks(), s.Masks()) || clone.Prefix() != s.Prefix() || clone.Exact() != s.Exact() {
		t.Fatalf("selector %q: clone %q with masks %q", text, clone.Text(), maskStrings(clone))
	}
	if matchesSomething := g.Depth == 0 || len(s.Masks()) > 0; s.Contains(clone) != matchesSomething || clone.Contains(s) != matchesSomething {
		t.Fatalf("selector %q and its clone: contains %v, %v", text, s.Contains(clone), clone.Contains(s))
	}
	if p, ok := s.Point(); ok && (!s.Matches(p) || !s.ContainsRoute(p) || p.Scheme() != g.Scheme) {
		t.Fatalf("selector %q does not match its point %q", text, p)
	}
}

func segmentsOf(s pattern.Selector) []string { return strings.Split(s.Path(), "/") }
