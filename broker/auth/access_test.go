package auth_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// A-37 and AC-P04: one single grant contains the whole match set.
func TestClauseA37(t *testing.T) {
	for _, test := range []struct {
		name    string
		grants  []string
		request string
		allowed bool
	}{
		{"everything", []string{"lease://**"}, "lease://**", true},
		{"everything in three segments", []string{"lease://*/*/*"}, "lease://**", true},
		{"itself", []string{"lease://r/*/k"}, "lease://r/*/k", true},
		{"another text of the same set", []string{"lease://r/**"}, "lease://r/*/*", true},
		{"an exact one", []string{"lease://r/a/*"}, "lease://r/a/k", true},
		{"a part", []string{"lease://r/**"}, "lease://r/a/*", true},
		{"overlap", []string{"lease://r/a/*"}, "lease://r/*/k", false},
		{"overlap the other way", []string{"lease://r/*/k"}, "lease://r/a/*", false},
		{"more than the grant", []string{"lease://r/a/*"}, "lease://r/**", false},
		{"the literal that a wildcard is not", []string{"lease://r/a/k"}, "lease://r/a/*", false},
		{"two halves of a union", []string{"lease://r/a/*", "lease://r/b/*"}, "lease://r/*/*", false},
		{"masks, each in another grant", []string{"lease://a/**", "lease://*/a/*", "lease://*/*/a"}, "lease://**/a/**", false},
		{"masks, all in one grant", []string{"lease://x/**", "lease://**/a/**"}, "lease://**/a/**", true},
		{"masks, two in one and one in another", []string{"lease://**/a/*", "lease://a/**"}, "lease://**/a/**", false},
		{"masks of one grant that is wider", []string{"lease://a/**"}, "lease://a/**/b/**", true},
		{"another domain", []string{"queue://**"}, "lease://**", false},
		{"a grant of no route", []string{"lease://r/a/k/x"}, "lease://r/a/k", false},

		{"flexible: everything", []string{"notice://**"}, "notice://a/*/b/**", true},
		{"flexible: one segment is not all", []string{"notice://*"}, "notice://**", false},
		{"flexible: prefix", []string{"notice://a/**"}, "notice://a/*/b", true},
		{"flexible: another prefix", []string{"notice://b/**"}, "notice://a/*/b", false},
		{"flexible: a wildcard first", []string{"notice://*/b/**"}, "notice://a/b/*", true},
		{"flexible: exact", []string{"notice://a/b"}, "notice://a/b", true},
		{"flexible: exact, deeper", []string{"notice://a/b"}, "notice://a/b/c", false},
		{"flexible: exact does not contain a wildcard", []string{"notice://a/b"}, "notice://a/*", false},
		{"flexible: two halves", []string{"notice://*", "notice://*/*/**"}, "notice://**", false},
		{"flexible: everything in two ways", []string{"notice://*/**"}, "notice://**", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			access, request := holding(t, test.grants...), selector(t, test.request)
			if got := access.Allows(wire.AccessRead, request); got != test.allowed {
				t.Errorf("allowed %v", got)
			}
			if r, single := request.Point(); single && access.AllowsRoute(wire.AccessRead, r) != test.allowed {
				t.Errorf("a route is judged differently")
			}
		})
	}
}

// A-34 with A-37: levels are not united either, and read gives no write.
func TestLevelsAreThoseOfOneGrant(t *testing.T) {
	access := holding(t, "lease://**#read", "lease://r/**#write", "lease://r/a/k#*", "notice://a/**#write", "notice://a/b#read", "rpc://w#*")
	for _, test := range []struct {
		request string
		levels  string
	}{
		{"lease://**", "r"}, {"lease://r/**", "rw"}, {"lease://r/a/k", "rwa"}, {"lease://x/a/k", "r"}, {"lease://*/a/k", "r"},
		{"notice://a/**", "w"}, {"notice://a/b", "rw"}, {"notice://b", ""}, {"rpc://w", "rwa"}, {"rpc://*", ""}, {"kv://a/b/c", ""},
	} {
		got := ""
		for _, level := range levels {
			if access.Allows(level, selector(t, test.request)) {
				got += level.String()[:1]
			}
		}
		if got != test.levels {
			t.Errorf("%s: levels %q, want %q", test.request, got, test.levels)
		}
	}
}

var segments = []string{"a", "b", "*", "**"}

// patternOf draws the text of a pattern of a domain that parses as a grant.
func patternOf(t *rapid.T, g *pattern.Grammar, label string) pattern.Selector {
	for {
		text := g.Scheme + "://" + rapid.SampledFrom(segments).Draw(t, label)
		for range rapid.IntRange(0, 4).Draw(t, label) {
			text += "/" + rapid.SampledFrom(segments).Draw(t, label)
		}
		if s, err := g.ParseGrant(text); err == nil {
			return s
		}
	}
}

// grantNear draws a grant: any one, or one of the masks of the request, which together cover it and alone do not.
func grantNear(t *rapid.T, g *pattern.Grammar, request pattern.Selector) pattern.Selector {
	masks := request.Masks()
	if len(masks) < 2 || rapid.Bool().Draw(t, "any grant") {
		return patternOf(t, g, "grant")
	}
	s, err := g.ParseGrant(g.Scheme + "://" + rapid.SampledFrom(masks).Draw(t, "mask").String())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The index answers what looking at every grant answers: one of them, alone, with the level, contains the request.
func TestIndexAgreesWithEveryGrantAlone(t *testing.T) {
	accesses := []string{"#read", "#write", "#*"}
	gives := func(access string, level wire.AccessLevel) bool {
		return access == "#*" || access == "#"+level.String()
	}
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom([]*pattern.Grammar{&route.Lease, &route.Stream, &route.Notice, &route.Schedule}).Draw(t, "domain")
		request := patternOf(t, g, "request")
		var grants []pattern.Selector
		var given, entries []string
		for range rapid.IntRange(1, 6).Draw(t, "grants") {
			s, access := grantNear(t, g, request), rapid.SampledFrom(accesses).Draw(t, "access")
			grants, given, entries = append(grants, s), append(given, access), append(entries, s.Text()+access)
		}
		access := compile(t, entries)
		for _, level := range levels {
			alone := false
			for i := range grants {
				alone = alone || gives(given[i], level) && grants[i].Contains(request)
			}
			if got := access.Allows(level, request); got != alone {
				t.Fatalf("%v of %s with %q: allowed %v, one grant alone %v", level, request, entries, got, alone)
			}
		}
	})
}

// Containment never widens: whatever matches a request that is allowed is allowed as a route, and with fewer grants nothing more is.
func TestContainmentNeverWidens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := rapid.SampledFrom([]*pattern.Grammar{&route.Lease, &route.Notice}).Draw(t, "domain")
		var entries []string
		for range rapid.IntRange(1, 5).Draw(t, "grants") {
			entries = append(entries, patternOf(t, g, "grant").Text()+"#read")
		}
		all, fewer := compile(t, entries), compile(t, entries[1:])
		request := patternOf(t, g, "request")
		allowed := all.Allows(wire.AccessRead, request)
		if !allowed && fewer.Allows(wire.AccessRead, request) {
			t.Fatalf("%s is allowed with less", request)
		}
		text := g.Scheme + "://"
		for i := range rapid.IntRange(1, 3).Draw(t, "depth") {
			if i > 0 {
				text += "/"
			}
			text += rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "segment")
		}
		r, err := g.ParseRoute(text)
		if err != nil {
			return // not the depth of the domain
		}
		if allowed && request.Matches(r) && !all.AllowsRoute(wire.AccessRead, r) {
			t.Fatalf("%s is allowed and %s in it is not", request, r)
		}
		if fewer.AllowsRoute(wire.AccessRead, r) && !all.AllowsRoute(wire.AccessRead, r) {
			t.Fatalf("%s is allowed with less", r)
		}
	})
}

// compile is the access of these entries, without a token where there are none.
func compile(t *rapid.T, entries []string) *auth.Access {
	var grants []auth.Grant
	for _, entry := range entries {
		g, ok := auth.ParseGrant(entry)
		if !ok {
			t.Fatalf("%q is malformed", entry)
		}
		grants = append(grants, g)
	}
	return auth.NewAccess(1, grants)
}

// The hot path: no request may cost memory for its permission.
func TestChecksAllocateNothing(t *testing.T) {
	for _, n := range []int{1, 64, 1024} {
		access := spread(n)
		r, s := concrete(t, "lease://r5/a/k"), selector(t, "lease://r5/a/*")
		flexible := concrete(t, "rpc://r5/a/k/x/y")
		if got := testing.AllocsPerRun(100, func() {
			access.AllowsRoute(wire.AccessWrite, r)
			access.Allows(wire.AccessRead, s)
			access.AllowsRoute(wire.AccessWrite, flexible)
		}); got != 0 {
			t.Errorf("%d grants: %v allocations", n, got)
		}
	}
}

// spread is an access of n grants of every shape.
func spread(n int) *auth.Access {
	shapes := []string{"lease://r%d/a/k#*", "lease://r%d/**#read", "lease://*/a%d/*#write", "rpc://r%d/a/**#*", "rpc://*/a%d/**#read", "lease://**/k%d#*"}
	var grants []auth.Grant
	for i := range n {
		g, _ := auth.ParseGrant(fmt.Sprintf(shapes[i%len(shapes)], i))
		grants = append(grants, g)
	}
	return auth.NewAccess(1, grants)
}

func BenchmarkAllows(b *testing.B) {
	for _, n := range []int{1, 64, 1024} {
		access := spread(n)
		allowed, denied := concrete(b, fmt.Sprintf("lease://r%d/a/k", (n-1)/6*6)), concrete(b, "lease://x/y/z")
		if !access.AllowsRoute(wire.AccessWrite, allowed) || access.AllowsRoute(wire.AccessWrite, denied) {
			b.Fatal("the grants are not those that are meant")
		}
		for name, check := range map[string]func(){
			"route": func() { access.AllowsRoute(wire.AccessWrite, allowed) }, "denied": func() { access.AllowsRoute(wire.AccessWrite, denied) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					check()
				}
			})
		}
		request := selector(b, "lease://r5/a/*")
		b.Run(fmt.Sprintf("selector/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				access.Allows(wire.AccessRead, request)
			}
		})
	}
	access, r := auth.Anonymous(1), concrete(b, "lease://r/a/k")
	b.Run("anonymous", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			access.AllowsRoute(wire.AccessWrite, r)
		}
	})
}

// BenchmarkConnect is what a CONNECT costs: HS256 and RS256, with a few and with many permissions.
func BenchmarkConnect(b *testing.B) {
	hmac := open(b, config())
	rsa := open(b, withKeys("i", file(b, keySet(b, jwk(&firstKey().PublicKey, "k", nil)))))
	for _, n := range []int{1, 64, 256} {
		few := object{"permissions": numbered(n)}
		b.Run(fmt.Sprintf("HS256/%d", n), func(b *testing.B) { benchmarkConnect(b, hmac, hs256(b, claims(few))) })
		few["iss"] = "i"
		b.Run(fmt.Sprintf("RS256/%d", n), func(b *testing.B) { benchmarkConnect(b, rsa, rs256(b, firstKey(), "k", claims(few))) })
	}
}

func benchmarkConnect(b *testing.B, a *auth.Authority, token string) {
	b.ReportAllocs()
	for b.Loop() {
		connect(b, a, token)
	}
}

// R-33, for every selector of depth 3 that is several masks: whoever may see each of them may not for that reason see all of them.
func TestGrantsAreNeverUnited(t *testing.T) {
	united := 0
	for _, text := range patternTexts(5) {
		request, err := route.Lease.ParseSelector(route.Lease.Scheme + "://" + text)
		if err != nil || len(request.Masks()) < 2 {
			continue
		}
		var parts []auth.Grant
		for _, m := range request.Masks() {
			g, ok := auth.ParseGrant(route.Lease.Scheme + "://" + m.String() + "#read")
			if !ok {
				t.Fatalf("mask %s is malformed", m)
			}
			parts = append(parts, g)
		}
		united++
		if auth.NewAccess(1, parts).Allows(wire.AccessRead, request) {
			t.Errorf("%s is allowed by grants of its parts", request)
		}
		whole, _ := auth.ParseGrant(request.Text() + "#read")
		if !auth.NewAccess(1, append(parts, whole)).Allows(wire.AccessRead, request) {
			t.Errorf("%s is not allowed by its own grant", request)
		}
	}
	if united < 10 {
		t.Errorf("only %d selectors have several masks", united)
	}
}

// patternTexts are all paths of up to that many of the segments.
func patternTexts(most int) []string {
	all, last := []string{}, []string{""}
	for range most {
		var next []string
		for _, start := range last {
			for _, segment := range segments {
				next = append(next, start+segment)
			}
		}
		all = append(all, next...)
		last = nil
		for _, text := range next {
			last = append(last, text+"/")
		}
	}
	return all
}
