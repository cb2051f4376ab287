package pattern_test

import (
	"bytes"
	"strings"
	"testing"
)

// Allocations of the operations that run for every request or change.
// Clauses: R-21.
func TestAllocations(t *testing.T) {
	all := grammars(t)
	lease, schedule, notice, kv := all["lease"], all["schedule"], all["notice"], all["kv"]
	deep := "notice://" + strings.Repeat("segment/", 63) + "x"
	route := mustRoute(t, lease, "lease://acme/renderers/document-123")
	unicode := mustRoute(t, lease, "lease://Acme/Ünïcode/日本")
	deepRoute := mustRoute(t, notice, deep)
	three := mustSelector(t, lease, "lease://**/renderers/**")
	two := mustSelector(t, lease, "lease://acme/**/renderers/**")
	flexible := mustSelector(t, notice, "notice://**/segment/*/**/x")
	flexibleExact := mustSelector(t, notice, deep)
	for name, c := range map[string]struct {
		want float64
		do   func()
	}{
		"ParseRoute lease":           {0, func() { _, _ = lease.ParseRoute("lease://acme/renderers/document-123") }},
		"ParseRoute unicode":         {0, func() { _, _ = lease.ParseRoute("lease://Acme/Ünïcode/日本") }},
		"ParseRoute schedule":        {0, func() { _, _ = schedule.ParseRoute("schedule://r/a/k/run") }},
		"ParseRoute stream":          {0, func() { _, _ = all["stream"].ParseRoute("stream://r/a/k") }},
		"ParseRoute notice":          {0, func() { _, _ = notice.ParseRoute(deep) }},
		"ParseRoute kv":              {0, func() { _, _ = kv.ParseRoute("kv://r/a/k") }},
		"ParseRoute kv, no scheme":   {1, func() { _, _ = kv.ParseRoute("r/a/k") }},
		"ParseSelector exact":        {1, func() { _, _ = lease.ParseSelector("lease://acme/renderers/document-123") }},
		"ParseSelector one mask":     {1, func() { _, _ = lease.ParseSelector("lease://acme/**") }},
		"ParseSelector three masks":  {2, func() { _, _ = lease.ParseSelector("lease://**/renderers/**") }},
		"ParseSelector flexible":     {2, func() { _, _ = notice.ParseSelector("notice://a/**/b/*/c") }},
		"Route.Clone":                {1, func() { _ = route.Clone() }},
		"Route.Compare":              {0, func() { _ = route.Compare(unicode) + deepRoute.Compare(deepRoute) }},
		"Route.Mask":                 {0, func() { _ = route.Mask(5) }},
		"Selector.Matches":           {0, func() { _ = three.Matches(route) }},
		"Selector.Matches, flexible": {0, func() { _ = flexible.Matches(deepRoute) }},
		"Selector.Contains":          {0, func() { _ = three.Contains(two) }},
		"Selector.Contains, direct":  {0, func() { _ = flexible.Contains(flexibleExact) || flexible.Contains(flexible) }},
		"Selector.Masks":             {0, func() { _ = three.Masks() }},
	} {
		if got := testing.AllocsPerRun(100, c.do); got != c.want {
			t.Errorf("%s: %v allocations, want %v", name, got, c.want)
		}
	}
}

const (
	benchRoute    = "lease://acme/renderers/document-123"
	benchSelector = "lease://**/renderers/**"
)

func BenchmarkParseRoute(b *testing.B) {
	all := grammars(b)
	for name, text := range map[string]string{
		"lease": benchRoute, "unicode": "lease://Acme/Ünïcode/日本", "schedule": "schedule://acme/jobs/nightly/run",
		"notice": "notice://a/b/c/d/e", "longest": "lease://a/b/" + strings.Repeat("x", 4084),
	} {
		g := grammarOf(b, all, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.ParseRoute(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	// what the least possible work on the same text costs
	b.Run("floor: strings.Count", func(b *testing.B) {
		for b.Loop() {
			if strings.Count(benchRoute, "/") != 4 {
				b.Fatal("count")
			}
		}
	})
	b.Run("floor: bytes.Split", func(b *testing.B) {
		text, slash := []byte(benchRoute), []byte("/")
		b.ReportAllocs()
		for b.Loop() {
			if len(bytes.Split(text, slash)) != 5 {
				b.Fatal("split")
			}
		}
	})
	b.Run("floor: byte loop, longest", func(b *testing.B) {
		text := "lease://a/b/" + strings.Repeat("x", 4084)
		for b.Loop() {
			n := 0
			for i := range len(text) {
				if text[i] == '/' {
					n++
				}
			}
			if n != 4 {
				b.Fatal("count")
			}
		}
	})
}

func BenchmarkParseSelector(b *testing.B) {
	all := grammars(b)
	for name, text := range map[string]string{
		"exact": benchRoute, "one mask": "lease://acme/**", "two masks": "lease://acme/**/renderers/**", "three masks": benchSelector,
		"six masks": "schedule://**/a/**/b/**", "stream": "stream://r/**", "flexible": "notice://a/**/b/*/c",
	} {
		g := grammarOf(b, all, text)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := g.ParseSelector(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("floor: bytes.Split", func(b *testing.B) {
		text, slash := []byte(benchSelector), []byte("/")
		b.ReportAllocs()
		for b.Loop() {
			if len(bytes.Split(text, slash)) != 5 {
				b.Fatal("split")
			}
		}
	})
}

func BenchmarkContains(b *testing.B) {
	all := grammars(b)
	exploding := func(first string) string { return "notice://" + first + strings.Repeat("/*", 30) }
	for name, c := range map[string]struct{ grant, request string }{
		"one mask":          {"lease://acme/**", "lease://acme/renderers/*"},
		"three masks":       {benchSelector, "lease://**/renderers/**"},
		"six masks":         {"schedule://**/a/**/b/**", "schedule://**/a/**/b/**"},
		"flexible":          {"notice://a/**", "notice://a/*/c/**"},
		"flexible, direct":  {"notice://a/**", "notice://a/b/c"},
		"flexible, longest": {"notice://**", "notice://" + strings.Repeat("*/", 63) + "**"},
		"flexible, worst":   {exploding("**/a"), exploding("b/**/a")},
	} {
		grant, request := mustSelector(b, grammarOf(b, all, c.grant), c.grant), mustSelector(b, grammarOf(b, all, c.request), c.request)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_ = grant.Contains(request)
			}
		})
	}
	b.Run("floor: compare three segments", func(b *testing.B) {
		x, y := [3]string{"acme", "renderers", "*"}, [3]string{"acme", "*", "*"}
		for b.Loop() {
			covered := true
			for i := range x {
				covered = covered && (y[i] == "*" || y[i] == x[i])
			}
			if !covered {
				b.Fatal("not covered")
			}
		}
	})
}

func BenchmarkMatches(b *testing.B) {
	all := grammars(b)
	for name, c := range map[string]struct{ selector, route string }{
		"one mask":    {"lease://acme/**", benchRoute},
		"three masks": {"lease://**/document-123/**", benchRoute},
		"flexible":    {"notice://a/**/e", "notice://a/b/c/d/e"},
	} {
		g := grammarOf(b, all, c.selector)
		s, r := mustSelector(b, g, c.selector), mustRoute(b, g, c.route)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !s.Matches(r) {
					b.Fatal("no match")
				}
			}
		})
	}
}

func BenchmarkCompare(b *testing.B) {
	g := grammars(b)["lease"]
	x, y := mustRoute(b, g, benchRoute), mustRoute(b, g, "lease://acme/renderers/document-124")
	b.Run("tuple order", func(b *testing.B) {
		for b.Loop() {
			if x.Compare(y) >= 0 {
				b.Fatal("order")
			}
		}
	})
	b.Run("floor: strings.Compare", func(b *testing.B) {
		a, c := x.Text(), y.Text()
		for b.Loop() {
			if strings.Compare(a, c) >= 0 {
				b.Fatal("order")
			}
		}
	})
}
