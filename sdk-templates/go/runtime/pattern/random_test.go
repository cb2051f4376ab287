package pattern_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unsafe"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pattern"
	"pgregory.net/rapid"
)

// literal draws one segment without wildcards: any characters but "/", "*" and control characters.
var literal = rapid.Custom(func(t *rapid.T) string {
	return rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool {
		return r != '/' && r != '*' && !unicode.Is(unicode.Cc, r)
	}), 1, 6, -1).Draw(t, "literal")
})

// drawFixed draws a valid pattern of fixed depth over some literals.
func drawFixed(t *rapid.T, depth int, literals []string, label string) []string {
	others := rapid.IntRange(0, depth).Draw(t, label+" segments")
	gaps := rapid.IntRange(0, 1<<(others+1)-1).Filter(func(g int) bool { return others == depth || g != 0 }).Draw(t, label+" gaps")
	var out []string
	for i := range others + 1 {
		if gaps&(1<<i) != 0 {
			out = append(out, "**")
		}
		if i < others {
			out = append(out, rapid.SampledFrom(append(slices.Clone(literals), "*")).Draw(t, label))
		}
	}
	return out
}

// Random literals of all of Unicode at depth 3 and 4: classification, matching and containment against the definitions.
func TestRandomFixedPatterns(t *testing.T) {
	all := grammars(t)
	for _, domain := range []string{"lease", "schedule"} {
		t.Run(domain, rapid.MakeCheck(func(t *rapid.T) {
			g := all[domain]
			literals := rapid.SliceOfNDistinct(literal, 2, 2, rapid.ID).Draw(t, "literals")
			other := literal.Filter(func(s string) bool { return !slices.Contains(literals, s) }).Draw(t, "other")
			grant := drawFixed(t, g.Depth, literals, "grant")
			request := drawFixed(t, g.Depth, literals, "request")
			prefix := domain + "://"
			gs, qs := mustSelector(t, g, prefix+strings.Join(grant, "/")), mustSelector(t, g, prefix+strings.Join(request, "/"))
			checkSelector(t, g, gs.Text(), gs)
			want := true
			for _, path := range tuples(append(literals, other), g.Depth) {
				r := mustRoute(t, g, prefix+strings.Join(path, "/"))
				inGrant, inRequest := naiveMatch(grant, path), naiveMatch(request, path)
				if gs.Matches(r) != inGrant || qs.Matches(r) != inRequest {
					t.Fatalf("%q and %q match %q: %v, %v", grant, request, path, gs.Matches(r), qs.Matches(r))
				}
				want = want && (inGrant || !inRequest)
			}
			if got := gs.Contains(qs); got != want {
				t.Fatalf("%q contains %q: %v", grant, request, got)
			}
		}))
	}
}

// Random literals at flexible depth.
func TestRandomFlexiblePatterns(t *testing.T) {
	g := grammars(t)["rpc"]
	rapid.Check(t, func(t *rapid.T) {
		literals := rapid.SliceOfNDistinct(literal, 2, 3, rapid.ID).Draw(t, "literals")
		pat := drawPattern(t, literals, 6, "pattern")
		path := rapid.SliceOfN(rapid.SampledFrom(literals), 1, 8).Draw(t, "path")
		s := mustSelector(t, g, "rpc://"+strings.Join(pat, "/"))
		checkSelector(t, g, s.Text(), s)
		r := mustRoute(t, g, "rpc://"+strings.Join(path, "/"))
		checkRoute(t, g, r.Text(), r)
		if got := s.Matches(r); got != naiveMatch(pat, path) {
			t.Fatalf("%q matches %q: %v", pat, path, got)
		}
		request := drawPattern(t, literals, 5, "request")
		want, _ := contains(pat, request)
		if got := s.Contains(mustSelector(t, g, "rpc://"+strings.Join(request, "/"))); got != want {
			t.Fatalf("%q contains %q: %v", pat, request, got)
		}
	})
}

// Damaged texts: every domain and use refuses them for the reason, and at the offset, of the independent check.
// Clauses.
func TestRandomTexts(t *testing.T) {
	all := grammars(t)
	short := *all["notice"]
	short.MaxBytes, short.MaxSegments = 24, 4 // bounds within reach
	all["short"] = &short
	pieces := []string{"/", "/", "/*", "**", "/**/", "/a", "a/b", "/a/b/c", "*/b", "a", "b", "日本", "\u00e9", "\x00", "\u0085", "\xff", "\xc2", "://", "__area__", "lease", ":"}
	domains := []string{"kv", "lease", "stream", "schedule", "notice", "short"}
	rapid.Check(t, func(t *rapid.T) {
		g := all[rapid.SampledFrom(domains).Draw(t, "domain")]
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12).Draw(t, "text"), "")
		if rapid.IntRange(0, 9).Draw(t, "scheme") > 0 {
			text = g.Scheme + "://" + text
		}
		for _, as := range []use{asRoute, asSelector, asGrant} {
			checkText(t, g, text, as)
		}
	})
}

// routes.md section 1: tuple order, not text order.
func TestCompare(t *testing.T) {
	all := grammars(t)
	rapid.Check(t, func(t *rapid.T) {
		g := all[rapid.SampledFrom([]string{"lease", "schedule", "notice"}).Draw(t, "domain")]
		segment := rapid.SampledFrom([]string{"a", "a!", "a-", "a0", "b", "日", "\u00e9", "!", "A"})
		draw := func(label string) ([]string, pattern.Route) {
			low, high := g.Depth, g.Depth
			if g.Depth == 0 {
				low, high = 1, 7
			}
			path := rapid.SliceOfN(segment, low, high).Draw(t, label)
			return path, mustRoute(t, g, g.Scheme+"://"+strings.Join(path, "/"))
		}
		a, ra := draw("a")
		b, rb := draw("b")
		if rapid.Bool().Draw(t, "common") && len(a) == len(b) {
			n := rapid.IntRange(0, len(a)).Draw(t, "length")
			rb = mustRoute(t, g, g.Scheme+"://"+strings.Join(slices.Concat(a[:n], b[n:]), "/"))
			b = slices.Concat(a[:n], b[n:])
		}
		want := slices.Compare(a, b)
		if got := ra.Compare(rb); cmp.Compare(got, 0) != want || cmp.Compare(rb.Compare(ra), 0) != -want {
			t.Fatalf("%q and %q compare as %d, want %d", a, b, got, want)
		}
	})
	notice := all["notice"]
	for n := 1; n <= 8; n++ { // a route that ends first comes first
		short, long := mustRoute(t, notice, "notice://x"+strings.Repeat("/x", n-1)), mustRoute(t, notice, "notice://x"+strings.Repeat("/x", n))
		other := mustRoute(t, notice, "notice://x"+strings.Repeat("/x", n-1)+"!")
		if short.Compare(long) >= 0 || long.Compare(short) <= 0 || other.Compare(long) <= 0 || long.Compare(other) >= 0 {
			t.Fatalf("%q, %q, %q: %d, %d", short, long, other, short.Compare(long), long.Compare(other))
		}
	}
	a, b := mustRoute(t, all["lease"], "lease://a/b/c"), mustRoute(t, all["lease"], "lease://a!/b/c")
	if a.Compare(b) >= 0 || a.Text() < b.Text() {
		t.Error("the order of texts and of tuples must differ here")
	}
}

// Clone outlives the buffer that the text was read into.
// Clauses: D-8.
func TestCloneSharesNoMemory(t *testing.T) {
	all := grammars(t)
	for _, text := range []string{"lease://a/b/c", "lease://a/**/b/**", "lease://*/b/**", "lease://a/**/b/c", "notice://a/**/b", "notice://a/b/c/d/e"} {
		g := grammarOf(t, all, text)
		buffer := []byte(text)
		s := mustSelector(t, g, unsafe.String(&buffer[0], len(buffer)))
		masks, clone := maskStrings(s), s.Clone()
		var route pattern.Route
		if s.Exact() {
			route = mustRoute(t, g, unsafe.String(&buffer[0], len(buffer))).Clone()
		}
		for i := range buffer {
			buffer[i] = 'X'
		}
		if s.Text() == text {
			t.Fatalf("%s: the selector does not alias its text", text)
		}
		checkSelector(t, g, text, clone)
		if !slices.Equal(maskStrings(clone), masks) {
			t.Errorf("%s: masks %q, want %q", text, maskStrings(clone), masks)
		}
		if clone.Exact() {
			checkRoute(t, g, text, route)
		}
	}
	kv := all["kv"]
	buffer := []byte("r/a/k")
	r := mustRoute(t, kv, unsafe.String(&buffer[0], len(buffer))).Clone()
	copy(buffer, "XXXXX")
	checkRoute(t, kv, "r/a/k", r)
}
