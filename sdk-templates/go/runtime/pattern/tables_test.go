package pattern_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/internal/reference"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pattern"
)

// The reasons stand in the order of the checks, with the words of routes.md section 3.
func TestReasonsAreTheWordsOfTheReference(t *testing.T) {
	var words []string
	for _, w := range reference.Rows(t, (*reference.Docs).ReasonWords) {
		words = append(words, w.Word)
	}
	var got []string
	for r := pattern.TooLong; r <= pattern.ShapeNotAllowed; r++ {
		got = append(got, r.String())
	}
	if !slices.Equal(got, words) {
		t.Errorf("reasons %q, want %q", got, words)
	}
	for _, r := range []pattern.Reason{0, pattern.ShapeNotAllowed + 1, 255} {
		if s := r.String(); !strings.HasPrefix(s, "reason(") {
			t.Errorf("%d is called %q", uint8(r), s)
		}
	}
}

// RV, and the boundary line of routes.md section 7.2.
// Clauses: R-01, RV-01 to RV-44.
func TestValidRoutes(t *testing.T) {
	all := grammars(t)
	for _, c := range append(reference.Rows(t, (*reference.Docs).ValidRoutes), reference.Rows(t, (*reference.Docs).Boundary)...) {
		t.Run(c.ID, func(t *testing.T) {
			g := all[c.Domain]
			if c.Use == reference.Concrete {
				checkText(t, g, c.Text, asRoute)
				r := mustRoute(t, g, c.Text)
				if s := mustSelector(t, g, c.Text); !s.Exact() || !s.Matches(r) {
					t.Errorf("as a selector: exact %v, matches itself %v", s.Exact(), s.Matches(r))
				}
				return
			}
			checkText(t, g, c.Text, asSelector)
			s := mustSelector(t, g, c.Text)
			if s.Exact() != c.Exact || s.Wildcard() == c.Exact {
				t.Errorf("exact %v, wildcard %v", s.Exact(), s.Wildcard())
			}
			if _, point := s.Point(); c.Exact && !point {
				t.Error("an exact selector is a point selector (R-22)")
			}
			if got := maskStrings(s); !c.Exact && !slices.Equal(got, c.Masks) {
				t.Errorf("masks %q, want %q", got, c.Masks)
			}
		})
	}
}

// RI.
// Clauses: R-01, RI-01 to RI-45.
func TestInvalidRoutes(t *testing.T) {
	all := grammars(t)
	for _, c := range reference.Rows(t, (*reference.Docs).InvalidRoutes) {
		t.Run(c.ID, func(t *testing.T) {
			as := asSelector
			if c.Use == reference.Concrete {
				as = asRoute
			}
			_, _, err := parse(t, all[c.Domain], c.Text, as)
			if err == nil || err.Reason.String() != c.Reason {
				t.Fatalf("%v, want %s", err, c.Reason)
			}
			checkErrorText(t, err)
			checkText(t, all[c.Domain], c.Text, as)
		})
	}
}

// errors.md section 6: a route error starts with its word, then ": " and free text; R-11 has a fixed text.
func checkErrorText(t *testing.T, err *pattern.Error) {
	t.Helper()
	text := err.Error()
	if err.Reason == pattern.AdjacentDoubleStar {
		if text != "adjacent ** segments are not allowed" {
			t.Errorf("text %q is not the fixed text", text)
		}
		return
	}
	if detail, ok := strings.CutPrefix(text, err.Reason.String()+": "); !ok || detail == "" || len(text) > 120 {
		t.Errorf("text %q of %s", text, err.Reason)
	}
}

// Every domain accepts and refuses every text of the tables as routes.md section 3 says, for every use.
func TestTableTextsInEveryDomain(t *testing.T) {
	all := grammars(t)
	for _, text := range tableTexts(t) {
		for _, g := range all {
			for _, as := range []use{asRoute, asSelector, asGrant} {
				checkText(t, g, text, as)
			}
		}
	}
}

// tableTexts returns every route and pattern text of the tables.
func tableTexts(t reference.TB) []string {
	t.Helper()
	var texts []string
	for _, c := range reference.Rows(t, (*reference.Docs).ValidRoutes) {
		texts = append(texts, c.Text)
	}
	for _, c := range reference.Rows(t, (*reference.Docs).Boundary) {
		texts = append(texts, c.Text)
	}
	for _, c := range reference.Rows(t, (*reference.Docs).InvalidRoutes) {
		texts = append(texts, c.Text)
	}
	for _, c := range reference.Rows(t, (*reference.Docs).Containments) {
		texts = append(texts, c.Grant, c.Request)
	}
	for _, c := range reference.Rows(t, (*reference.Docs).Matches) {
		texts = append(texts, c.Pattern, c.Route)
	}
	for _, c := range reference.Rows(t, (*reference.Docs).CanonicalMasks) {
		texts = append(texts, "lease://"+c.Path)
	}
	return texts
}

// RC.
// Clauses: A-37, RC-01 to RC-39.
func TestContainments(t *testing.T) {
	all := grammars(t)
	for _, c := range reference.Rows(t, (*reference.Docs).Containments) {
		t.Run(c.ID, func(t *testing.T) {
			grant := mustGrant(t, grammarOf(t, all, c.Grant), c.Grant)
			g := grammarOf(t, all, c.Request)
			request := mustSelector(t, g, c.Request)
			if got := grant.Contains(request); got != c.Contained {
				t.Errorf("%v, want %v", got, c.Contained)
			}
			if request.Exact() {
				if got := grant.ContainsRoute(mustRoute(t, g, c.Request)); got != c.Contained {
					t.Errorf("as a route: %v, want %v", got, c.Contained)
				}
			}
		})
	}
}

// RM.
// Clauses: RM-01 to RM-15.
func TestMatches(t *testing.T) {
	all := grammars(t)
	for _, c := range reference.Rows(t, (*reference.Docs).Matches) {
		t.Run(c.ID, func(t *testing.T) {
			s := mustSelector(t, grammarOf(t, all, c.Pattern), c.Pattern)
			r := mustRoute(t, grammarOf(t, all, c.Route), c.Route)
			if got := s.Matches(r); got != c.Matches {
				t.Errorf("%v, want %v", got, c.Matches)
			}
			if c.Once {
				hit := 0
				for _, m := range s.Masks() {
					if m.Matches(r) {
						hit++
					}
				}
				if hit < 2 {
					t.Errorf("the row wants a route that matches through several masks, not %d", hit)
				}
			}
		})
	}
}

// C3, for literals that differ and for equal ones.
// Clauses: C3-01 to C3-35.
func TestCanonicalMasks(t *testing.T) {
	g := grammars(t)["lease"]
	for _, c := range reference.Rows(t, (*reference.Docs).CanonicalMasks) {
		t.Run(c.ID, func(t *testing.T) {
			if got := maskStrings(mustSelector(t, g, "lease://"+c.Path)); !slices.Equal(got, c.Masks) {
				t.Errorf("masks %q, want %q", got, c.Masks)
			}
			same := func(path string) string { return strings.ReplaceAll(path, "b", "a") }
			var want []string
			for _, m := range c.Masks {
				want = append(want, same(m))
			}
			if got := maskStrings(mustSelector(t, g, "lease://"+same(c.Path))); !slices.Equal(got, want) {
				t.Errorf("%s: masks %q, want %q", same(c.Path), got, want)
			}
		})
	}
}
