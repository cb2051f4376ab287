package fitz_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

func selector(t *testing.T, text string) fitz.Selector {
	t.Helper()
	s, err := fitz.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// what a selector shows of itself.
func TestSelectorShowsWhatItIs(t *testing.T) {
	for text, want := range map[string]struct {
		exact bool
		route string
		masks string
	}{
		"lease://acme/renderers/a":    {true, "lease://acme/renderers/a", "acme/renderers/a"},
		"lease://acme/renderers/a/**": {false, "lease://acme/renderers/a", "acme/renderers/a"},
		"lease://acme/**":             {false, "", "acme/*/*"},
		"lease://**/a/**":             {false, "", "a/*/* */a/* */*/a"},
		"schedule://r/**/run":         {false, "", "r/*/*/run"},
		"notice://a/b/c/d/e":          {true, "notice://a/b/c/d/e", ""},
		"notice://**/x/**":            {false, "", ""},
	} {
		s := selector(t, text)
		r, point := s.Route()
		if s.String() != text || s.Exact() != want.exact || r != want.route || point != (want.route != "") || strings.Join(s.Masks(), " ") != want.masks {
			t.Errorf("%s: exact %v, route %q %v, masks %v", s, s.Exact(), r, point, s.Masks())
		}
	}
}

// Routes.md section 3: the first check that fails decides, and its word is what the error begins with.
func TestSelectorSaysWhatIsWrong(t *testing.T) {
	for text, reason := range map[string]string{
		"":                                     "missing_scheme",
		"a/b/c":                                "missing_scheme",
		"LEASE://a/b/c":                        "wrong_scheme",
		"other://a/b/c":                        "wrong_scheme",
		"lease://":                             "empty_path",
		"lease://a//c":                         "empty_segment",
		"lease://a/b\x00/c":                    "control_character",
		"lease://a/b/doc*":                     "partial_wildcard",
		"lease://a/**/**":                      "adjacent ** segments are not allowed",
		"lease://a/b":                          "depth",
		"schedule://a/b/c":                     "depth",
		"stream://r/__area__/k":                "reserved_segment",
		"stream://r/a/**":                      "shape",
		"lease://a/b/\xff":                     "invalid_utf8",
		"lease://" + strings.Repeat("x", 5000): "too_long",
	} {
		s, err := fitz.ParseSelector(text)
		var e *fitz.Error
		if !errors.As(err, &e) || e.Code != fitz.CodeConfigInvalid || !strings.HasPrefix(e.Message, reason) || s != (fitz.Selector{}) {
			t.Errorf("%.40q: %v, want %s", text, err, reason)
		}
	}
}

// matching and containment, of any scheme.
func TestSelectorMatchesAndContains(t *testing.T) {
	for _, c := range []struct {
		selector, route string
		want            bool
	}{
		{"lease://acme/renderers/*", "lease://acme/renderers/a", true},
		{"lease://acme/renderers/*", "lease://acme/renderer/a", false},
		{"lease://**/renderers/**", "lease://renderers/renderers/renderers", true},
		{"lease://acme/renderers/*", "lease://acme/renderers/*", false}, // no concrete route
		{"lease://acme/renderers/*", "kv://acme/renderers/a", false},
		{"lease://acme/renderers/*", "", false},
		{"notice://a/**", "notice://a", true},
		{"kv://r/a/*", "r/a/k", true},
	} {
		if got := selector(t, c.selector).Matches(c.route); got != c.want {
			t.Errorf("%s, %s: %v", c.selector, c.route, got)
		}
	}
	for _, c := range []struct {
		s, other string
		want     bool
	}{
		{"lease://acme/**", "lease://acme/renderers/*", true},
		{"lease://acme/renderers/*", "lease://acme/**", false},
		{"lease://**/a/**/b", "lease://*/a/b", true},
		{"lease://**", "kv://r/a/k", false},
		{"notice://a/**", "notice://a/*/c", true},
	} {
		if got := selector(t, c.s).Contains(selector(t, c.other)); got != c.want {
			t.Errorf("%s, %s: %v", c.s, c.other, got)
		}
	}
	var zero fitz.Selector
	if zero.Matches("lease://a/b/c") || zero.Contains(zero) || zero.Exact() || zero.String() != "" || zero.Select([]string{""}) != nil {
		t.Error("the zero selector is something")
	}
}

func TestSelectorSelectsInOrder(t *testing.T) {
	got := selector(t, "lease://acme/*/1").Select([]string{"lease://acme/b/1", "lease://acme/b/2", "lease://acme/a/1", "?"})
	if !slices.Equal(got, []string{"lease://acme/b/1", "lease://acme/a/1"}) {
		t.Error(got)
	}
}

// A selector is a text in a configuration, and checked there.
func TestSelectorIsText(t *testing.T) {
	var c struct{ View fitz.Selector }
	if err := json.Unmarshal([]byte(`{"View":"lease://acme/**"}`), &c); err != nil || c.View.String() != "lease://acme/**" {
		t.Error(c, err)
	}
	if text, err := json.Marshal(c); err != nil || string(text) != `{"View":"lease://acme/**"}` {
		t.Error(string(text), err)
	}
	if err := json.Unmarshal([]byte(`{"View":"lease://acme"}`), &c); !errors.Is(err, fitz.ErrConfigInvalid) || c.View.String() != "lease://acme/**" {
		t.Error(c, err)
	}
}
