package pattern_test

import "testing"

// FuzzParseRoute compares the parser with the independent check, in every domain.
func FuzzParseRoute(f *testing.F) { fuzzText(f, asRoute) }

// FuzzParseSelector does the same for selectors and for the patterns of permission entries.
func FuzzParseSelector(f *testing.F) { fuzzText(f, asSelector, asGrant) }

func fuzzText(f *testing.F, uses ...use) {
	all := grammars(f)
	for _, text := range tableTexts(f) {
		f.Add(text)
	}
	for _, text := range []string{"r/a/k", "kv:/r/a", "stream://__area__/__realm__/k", "lease://\u0085/\u00a0/c", "lease://a/\xc2", "://", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, g := range all {
			for _, as := range uses {
				checkText(t, g, text, as)
			}
		}
	})
}

// FuzzContains compares containment at flexible depth with the walk over rests.
func FuzzContains(f *testing.F) {
	g := *grammars(f)["notice"]
	g.ContainmentStatesMax = 1 << 20
	f.Add("**", "*/**")
	f.Add("a/**/b", "a/*/**/b")
	f.Add("**/a/*", "b/**/a/*")
	f.Fuzz(func(t *testing.T, grant, request string) {
		gs, err := g.ParseSelector("notice://" + grant)
		qs, err2 := g.ParseSelector("notice://" + request)
		if err != nil || err2 != nil {
			return
		}
		a, b := segmentsOf(gs), segmentsOf(qs)
		if len(a) > 8 || len(b) > 8 {
			return // the walk over rests is slow
		}
		if want, _ := contains(a, b); gs.Contains(qs) != want {
			t.Fatalf("%q contains %q: %v", grant, request, !want)
		}
	})
}
