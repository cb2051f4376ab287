package pattern_test

import (
	"slices"
	"strings"
	"testing"
)

// texts that some rule of equality could take for one another are different routes, and no selector takes them for one another.
func TestRoutesAreComparedByteByByte(t *testing.T) {
	all := grammars(t)
	for _, pair := range [][2]string{
		{"a/b/K", "a/b/k"},
		{"a/b/\u00e9", "a/b/e\u0301"}, // composed and decomposed
		{"a/b/%2F", "a/b/%2f"},
		{"a/b/%61", "a/b/a"},
		{"a/b/ k", "a/b/k"},
		{"a/b/k ", "a/b/k"},
		{"a/b/k?x", "a/b/k"},
		{"a/b/k#x", "a/b/k"},
		{"a/b/k:80", "a/b/k"},
		{"a/./k", "a/b/k"},
		{"a/../k", "a/b/k"},
		{"a/b/\ufeffk", "a/b/k"},
		{"a/b/\u212a", "a/b/k"}, // the sign for Kelvin folds to k
	} {
		for _, domain := range []string{"lease", "kv", "queue", "stream", "notice", "rpc"} {
			g := all[domain]
			one, two := mustRoute(t, g, domain+"://"+pair[0]), mustRoute(t, g, domain+"://"+pair[1])
			if one.Text() == two.Text() || one.Compare(two) == 0 || one.Canonical() != domain+"://"+pair[0] {
				t.Errorf("%q and %q are one route", one.Text(), two.Text())
			}
			s := mustSelector(t, g, one.Text())
			if !s.Matches(one) || s.Matches(two) || s.Contains(mustSelector(t, g, two.Text())) {
				t.Errorf("the selector %q takes %q", s.Text(), two.Text())
			}
		}
	}
}

// of all patterns of up to seven segments, stream takes the eight shapes of depth 3, one literal realm with "**", and "**".
func TestShapesOfStream(t *testing.T) {
	g := grammars(t)["stream"]
	want := []string{"**", "*/*/*", "*/*/l", "*/l/*", "*/l/l", "l/**", "l/*/*", "l/*/l", "l/l/*", "l/l/l"}
	var got []string
	for length := 1; length <= 7; length++ {
		for _, segments := range tuples([]string{"l", "*", "**"}, length) {
			path := strings.Join(segments, "/")
			if _, err := g.ParseSelector("stream://" + path); err == nil {
				got = append(got, path)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("accepted %q, want %q", got, want)
	}
}

// notice and rpc have no rule of depth: every number of segments up to the bound is a route, with or without wildcards a
// pattern.
func TestFlexibleDomainsHaveNoDepth(t *testing.T) {
	all := grammars(t)
	for _, domain := range []string{"notice", "rpc"} {
		g := all[domain]
		for n := 1; n <= g.MaxSegments; n++ {
			if r := mustRoute(t, g, domain+"://"+strings.Repeat("x/", n-1)+"x"); r.Len() != n {
				t.Errorf("%s: %d segments", r.Text(), r.Len())
			}
			mustSelector(t, g, domain+"://"+strings.Repeat("*/", n-1)+"**")
			mustSelector(t, g, domain+"://"+strings.Repeat("*/", n-1)+"x")
		}
	}
}
