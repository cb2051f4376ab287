package pattern_test

import (
	"strings"
	"testing"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pattern"
)

// The sign ‸ stands before the byte that the error points at.
// Clauses.
func TestErrorOffsets(t *testing.T) {
	all := grammars(t)
	long := strings.Repeat("x", 4084)
	tried := make(map[pattern.Reason]bool)
	for _, c := range []struct {
		domain  string
		as      use
		marked  string
		reason  pattern.Reason
		segment int
	}{
		{"lease", asRoute, "lease://a/b/" + long + "‸x", pattern.TooLong, -1},
		{"lease", asRoute, "lease://a/b/" + long + "‸\xff\x00*//", pattern.TooLong, -1},
		{"kv", asRoute, "a/b/" + long + "xxx‸x", pattern.TooLong, -1},
		{"lease", asRoute, "‸\xfflease://a/b/c", pattern.InvalidUTF8, -1},
		{"lease", asRoute, "lease://a/\x00b/日本‸\xe6\x97", pattern.InvalidUTF8, -1},
		{"lease", asRoute, "lease://a/b/\uFFFD‸\xc2", pattern.InvalidUTF8, -1},
		{"kv", asRoute, "a/b/‸\xed\xa0\x80", pattern.InvalidUTF8, -1},
		{"lease", asRoute, "‸a/b/\x00", pattern.MissingScheme, -1},
		{"kv", asSelector, "‸r/a/*", pattern.MissingScheme, -1},
		{"lease", asRoute, "‸", pattern.MissingScheme, -1},
		{"lease", asSelector, "‸leases://a//", pattern.WrongScheme, -1},
		{"lease", asSelector, "‸a/lease://b/c", pattern.WrongScheme, -1},
		{"kv", asRoute, "‸://r/a/k", pattern.WrongScheme, -1},
		{"lease", asRoute, "lease://‸", pattern.EmptyPath, -1},
		{"kv", asRoute, "‸", pattern.EmptyPath, -1},
		{"lease", asRoute, "lease://‸/b/c", pattern.EmptySegment, 0},
		{"lease", asRoute, "lease://a/‸/c\x00", pattern.EmptySegment, 1},
		{"lease", asRoute, "lease://a/b/‸", pattern.EmptySegment, 2},
		{"kv", asRoute, "r/a/‸", pattern.EmptySegment, 2},
		{"kv", asRoute, "‸/a/k", pattern.EmptySegment, 0},
		{"lease", asRoute, "lease://a/b‸\x00/c", pattern.ControlCharacter, 1},
		{"lease", asRoute, "lease://a/*b‸\x1f/c", pattern.ControlCharacter, 1},
		{"lease", asSelector, "lease://*/日‸\u0085/", pattern.ControlCharacter, 1},
		{"lease", asSelector, "lease://*/\u00a0‸\x7f/c", pattern.ControlCharacter, 1},
		{"lease", asSelector, "lease://*/a/b/c/d/‸\u0080", pattern.ControlCharacter, 5},
		{"lease", asSelector, "lease://*/a/b/c/d/‸\u009f", pattern.ControlCharacter, 5},
		{"lease", asRoute, "lease://a/b‸**/c//", pattern.WildcardNotAllowed, 1},
		{"notice", asRoute, "notice://a/‸*", pattern.WildcardNotAllowed, 1},
		{"kv", asRoute, "r/a‸*/k", pattern.WildcardNotAllowed, 1},
		{"lease", asSelector, "lease://*/**/‸***/\x00", pattern.PartialWildcard, 2},
		{"lease", asSelector, "lease://a/b‸*c*/", pattern.PartialWildcard, 1},
		{"notice", asRoute, "notice://" + strings.Repeat("日/", 64) + "‸x/x", pattern.TooManySegments, 64},
		{"lease", asSelector, "lease://" + strings.Repeat("**/", 64) + "‸**", pattern.TooManySegments, 64},
		{"lease", asSelector, "lease://a/**/‸**/**/b/c/d", pattern.AdjacentDoubleStar, 2},
		{"notice", asGrant, "notice://**/a/**/‸**", pattern.AdjacentDoubleStar, 3},
		{"lease", asRoute, "lease://a/b‸", pattern.WrongDepth, -1},
		{"lease", asRoute, "lease://a/b/c/‸d/e", pattern.WrongDepth, 3},
		{"lease", asSelector, "lease://a/**/b/**/c/**/‸*", pattern.WrongDepth, 6},
		{"lease", asSelector, "lease://*‸", pattern.WrongDepth, -1},
		{"kv", asRoute, "kv:/a/b/‸c", pattern.WrongDepth, 3},
		{"stream", asRoute, "stream://__area__/‸__realm__/__area__", pattern.ReservedSegment, 1},
		{"stream", asSelector, "stream://*/x/‸__area__", pattern.ReservedSegment, 2},
		{"stream", asSelector, "stream://**/‸__area__", pattern.ReservedSegment, 1},
		{"stream", asSelector, "stream://‸r/a/**", pattern.ShapeNotAllowed, -1},
		{"stream", asSelector, "stream://‸r/a/k/**", pattern.ShapeNotAllowed, -1},
	} {
		offset := strings.Index(c.marked, "‸")
		text := strings.Replace(c.marked, "‸", "", 1)
		_, _, err := parse(t, all[c.domain], text, c.as)
		if err == nil || err.Reason != c.reason || err.Offset != offset || err.Segment != c.segment {
			t.Errorf("%.40q as %d: %+v, want %v at %d, segment %d", c.marked, c.as, err, c.reason, offset, c.segment)
			continue
		}
		tried[c.reason] = true
		checkErrorText(t, err)
		if want := (verdict{c.reason.String(), offset, c.segment}); naiveCheck(all[c.domain], text, c.as) != want {
			t.Errorf("%.40q as %d: the independent check says %+v", c.marked, c.as, naiveCheck(all[c.domain], text, c.as))
		}
	}
	for r := pattern.TooLong; r <= pattern.ShapeNotAllowed; r++ {
		if !tried[r] {
			t.Errorf("no text was refused with %s", r)
		}
	}
}

// Texts of errors go to peers: they must not repeat what the peer sent, and stay short.
// Clauses: E-03.
func TestErrorTexts(t *testing.T) {
	g := grammars(t)["lease"]
	for text, want := range map[string]string{
		"lease://secret/b":     "depth: 2 segments that are not **, routes have 3",
		"notice://secret":      "wrong_scheme: the scheme must be lease",
		"secret":               "missing_scheme: the text must begin with lease://",
		"lease://secret//x":    "empty_segment: segment 2 is empty",
		"lease://secret/**/**": "adjacent ** segments are not allowed",
		"lease://" + strings.Repeat("secret", 700): "too_long: 4208 bytes, at most 4096 are allowed",
	} {
		if _, err := g.ParseSelector(text); err == nil || err.Error() != want {
			t.Errorf("%.30q: %v, want %s", text, err, want)
		}
	}
}

// only kv, only concrete, only without "://".
func TestSchemelessRoutes(t *testing.T) {
	all := grammars(t)
	r := mustRoute(t, all["kv"], "r/a/k")
	if r.Text() != "r/a/k" || r.Canonical() != "kv://r/a/k" || r.Scheme() != "kv" {
		t.Errorf("text %q, canonical %q, scheme %q", r.Text(), r.Canonical(), r.Scheme())
	}
	if full := mustRoute(t, all["kv"], "kv://r/a/k"); r.Compare(full) != 0 || r.Canonical() != full.Canonical() {
		t.Errorf("%q and %q are not equal", r.Canonical(), full.Canonical())
	}
	if !mustSelector(t, all["kv"], "kv://r/**").Matches(r) {
		t.Error("a selector does not match the schemeless route")
	}
	for _, as := range []use{asSelector, asGrant} {
		if _, _, err := parse(t, all["kv"], "r/a/k", as); err == nil || err.Reason != pattern.MissingScheme {
			t.Errorf("as %d: %v", as, err)
		}
	}
	for name, g := range all {
		if _, _, err := parse(t, g, "r/a/k", asRoute); name != "kv" && (err == nil || err.Reason != pattern.MissingScheme) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// the canonical form must fit the bound, because notifications carry it
	longest := "r/a/" + strings.Repeat("x", all["kv"].MaxBytes-len("kv://r/a/"))
	if r := mustRoute(t, all["kv"], longest); len(r.Canonical()) != all["kv"].MaxBytes {
		t.Errorf("canonical form of %d bytes", len(r.Canonical()))
	}
}

func TestValidate(t *testing.T) {
	good := pattern.Grammar{Scheme: "x", MaxBytes: 100, MaxSegments: 8, ContainmentSegmentsMax: 2, ContainmentStatesMax: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*pattern.Grammar){
		"scheme":     func(g *pattern.Grammar) { g.Scheme = "" },
		"separator":  func(g *pattern.Grammar) { g.Scheme = "a://b" },
		"negative":   func(g *pattern.Grammar) { g.Depth = -1 },
		"deep":       func(g *pattern.Grammar) { g.Depth = pattern.MaxDepth + 1 },
		"bytes":      func(g *pattern.Grammar) { g.MaxBytes = 4 },
		"segments":   func(g *pattern.Grammar) { g.MaxSegments = 0 },
		"shallow":    func(g *pattern.Grammar) { g.Depth, g.MaxSegments = 3, 2 },
		"reserved":   func(g *pattern.Grammar) { g.ReservedFrom = -1 },
		"containers": func(g *pattern.Grammar) { g.ContainmentSegmentsMax = pattern.MaxContainmentSegments + 1 },
		"contained":  func(g *pattern.Grammar) { g.ContainmentSegmentsMax = 0 },
		"states":     func(g *pattern.Grammar) { g.ContainmentStatesMax = 0 },
		"shape":      func(g *pattern.Grammar) { g.Shapes = []string{"L/x"} },
	} {
		bad := good
		change(&bad)
		if err := bad.Validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
