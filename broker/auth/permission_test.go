package auth_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestClausesA20AndA21(t *testing.T) {
	organisation := config()
	organisation.OrganisationClaim = "org"
	renamed := config()
	renamed.FamilyClaim = "tenant"
	for _, test := range []struct {
		name    string
		config  auth.Config
		changes object
		family  uint32 // 0: refused
	}{
		{"the family claim", config(), nil, 1},
		{"another identity", config(), object{"tid": "ops"}, 2},
		{"missing", config(), object{"tid": nil}, 0},
		{"null", config(), object{"tid": null}, 0},
		{"a number", config(), object{"tid": 1}, 0},
		{"an array", config(), object{"tid": []string{"dev"}}, 0},
		{"unmapped", config(), object{"tid": "other"}, 0},
		{"empty", config(), object{"tid": ""}, 0},
		{"in capitals", config(), object{"tid": "DEV"}, 0},
		{"the number instead of the identity", config(), object{"tid": "1"}, 0},
		{"a claim that is not configured", config(), object{"tid": nil, "org": "dev"}, 0},

		{"another name of the claim", renamed, object{"tid": nil, "tenant": "ops"}, 2},
		{"the name that is not configured", renamed, nil, 0},

		{"organisation before family", organisation, object{"org": "ops"}, 2},
		{"organisation alone", organisation, object{"org": "ops", "tid": nil}, 2},
		{"no organisation", organisation, nil, 1},
		{"an unmapped organisation", organisation, object{"org": "other"}, 0},
		{"an organisation that is no text", organisation, object{"org": 1}, 0},
		{"an organisation that is null", organisation, object{"org": null}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			shown := hs256(t, claims(test.changes))
			if test.family == 0 {
				want(t, open(t, test.config), shown, auth.ReasonFamily)
				return
			}
			if got := connect(t, open(t, test.config), shown).Family(); got != test.family {
				t.Errorf("family %d", got)
			}
		})
	}
}

func TestClauseA22(t *testing.T) {
	most := uint32(bounds.Default().FamiliesMax)
	for _, test := range []struct {
		name     string
		families uint32
		family   uint32
		wrong    string // in the error
	}{
		{"the first of one", 1, 1, ""},
		{"no count means one", 0, 1, ""},
		{"the second of one", 0, 2, "family_map"},
		{"the last", 7, 7, ""},
		{"one more", 7, 8, "family_map"},
		{"none", 7, 0, "family_map"},
		{"the largest number", most, most, ""},
		{"too many", most + 1, 1, "families"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config()
			c.Families, c.FamilyMap = test.families, map[string]uint32{"dev": test.family}
			a, err := auth.New(auth.Options{Config: c, Limits: bounds.Default(), Clock: clock.NewManual(now)})
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := connect(t, a, hs256(t, claims(nil))).Family(); got != test.family {
				t.Errorf("family %d", got)
			}
		})
	}
	c := config()
	c.FamilyMap = nil
	if _, err := auth.New(auth.Options{Config: c, Limits: bounds.Default(), Clock: clock.NewManual(now)}); err == nil {
		t.Error("no identity has a family, and nobody says so")
	}
}

// what a token says about its family decides nothing about realms, and what it may do in a realm nothing about its family.
func TestClauseA23(t *testing.T) {
	access := holding(t, "lease://ops/**#*")
	if access.Family() != 1 {
		t.Errorf("family %d", access.Family())
	}
	if !access.AllowsRoute(wire.AccessWrite, concrete(t, "lease://ops/a/k")) || access.AllowsRoute(wire.AccessWrite, concrete(t, "lease://dev/a/k")) {
		t.Error("the realm follows the family")
	}
}

// reads are routes that an access lets read, one of each source of A-30.
var sources = []string{"custom", "permissions", "claim", "roles", "scp", "scope"}

func reads(t *testing.T, access *auth.Access) string {
	t.Helper()
	var all []string
	for _, name := range sources {
		if access.AllowsRoute(wire.AccessRead, concrete(t, "lease://"+name+"/a/k")) {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

func TestClauseA30(t *testing.T) {
	entry := func(name string) []string { return []string{"lease://" + name + "/a/k#read"} }
	all := object{
		"custom": object{"permissions": entry("custom")}, "permissions": entry("permissions"), "claim": entry("claim"),
		"roles": entry("roles"), "scp": entry("scp"), "scope": entry("scope")[0],
	}
	c := config()
	c.CustomClaim, c.PermissionsClaim = "custom", "claim"
	a := open(t, c)

	// The first that is present wins, and the others play no part.
	rest := claims(all)
	for _, winner := range sources {
		if got := reads(t, connect(t, a, hs256(t, rest))); got != winner {
			t.Errorf("with %s: %q may be read", winner, got)
		}
		// A winner that is empty or malformed is not passed over.
		for _, bad := range []any{[]string{}, "", []any{1}, []any{"lease://a#b"}, 1, null, true, object{"permissions": 1}, []string{"nobody://**"}} {
			broken := maps.Clone(rest)
			if broken[winner] = bad; winner == "custom" {
				broken[winner] = object{"permissions": bad}
			}
			if got := reasonOf(t, a, hs256(t, broken)); got != auth.ReasonPermissionsMalformed && got != auth.ReasonPermissionsMissing {
				t.Errorf("%s %v: reason %q", winner, bad, got)
			}
		}
		rest = maps.Clone(rest)
		delete(rest, winner)
	}
	want(t, a, hs256(t, rest), auth.ReasonPermissionsMissing)

	// A place that is not configured is none.
	if got := reads(t, connect(t, open(t, config()), hs256(t, claims(object{"permissions": nil, "custom": all["custom"], "claim": all["claim"], "scope": all["scope"]})))); got != "scope" {
		t.Errorf("%q may be read", got)
	}
	// A custom claim without permissions is no source, one that can hold none is malformed.
	if got := reads(t, connect(t, a, hs256(t, claims(object{"custom": object{}, "permissions": entry("permissions")})))); got != "permissions" {
		t.Errorf("%q may be read", got)
	}
	want(t, a, hs256(t, claims(object{"custom": "text"})), auth.ReasonPermissionsMalformed)
	want(t, a, hs256(t, claims(object{"custom": null})), auth.ReasonPermissionsMalformed)
}

func TestClauseA30Forms(t *testing.T) {
	renamed := config()
	renamed.RoleClaim = "groups"
	for _, test := range []struct {
		name    string
		config  auth.Config
		changes object
		reason  auth.Reason
	}{
		{"permissions in one text", config(), object{"permissions": "lease://**#read"}, auth.ReasonPermissionsMalformed},
		{"a role among permissions", config(), object{"permissions": []string{"lease://**#read", "admin"}}, auth.ReasonPermissionsMalformed},
		{"a coarse entry among permissions", config(), object{"permissions": []string{"lease.read"}}, auth.ReasonPermissionsMalformed},
		{"roles that are ignored", config(), object{"permissions": nil, "roles": []string{"admin", "lease://**#read", ""}}, ""},
		{"roles alone", config(), object{"permissions": nil, "roles": []string{"admin", "lease.read"}}, auth.ReasonPermissionsMissing},
		{"roles and a malformed pattern", config(), object{"permissions": nil, "roles": []string{"lease://**", "lease://a//b"}}, auth.ReasonPermissionsMalformed},
		{"roles and something with a scheme", config(), object{"permissions": nil, "roles": []string{"lease://**", "https://example.com/admin"}}, auth.ReasonPermissionsMalformed},
		{"roles in one text", config(), object{"permissions": nil, "roles": "lease://**"}, auth.ReasonPermissionsMalformed},
		{"roles of another name", renamed, object{"permissions": nil, "groups": []string{"lease://**"}}, ""},
		{"roles that are not configured", renamed, object{"permissions": nil, "roles": []string{"lease://**"}}, auth.ReasonPermissionsMissing},
		{"scp in one text", config(), object{"permissions": nil, "scp": " openid  lease.read "}, ""},
		{"scp as an array", config(), object{"permissions": nil, "scp": []string{"openid", "lease.read"}}, ""},
		{"scp entries are not split", config(), object{"permissions": nil, "scp": []string{"openid lease.read"}}, auth.ReasonPermissionsMissing},
		{"scp of others", config(), object{"permissions": nil, "scp": "openid profile"}, auth.ReasonPermissionsMissing},
		{"scope", config(), object{"permissions": nil, "scope": "openid lease://**#write"}, ""},
		{"scope splits at spaces only", config(), object{"permissions": nil, "scope": "openid\tlease.read"}, auth.ReasonPermissionsMissing},
		{"scope as an array", config(), object{"permissions": nil, "scope": []string{"lease.read"}}, auth.ReasonPermissionsMalformed},
		{"scope with a malformed pattern", config(), object{"permissions": nil, "scope": "lease.read lease://"}, auth.ReasonPermissionsMalformed},
	} {
		t.Run(test.name, func(t *testing.T) { want(t, open(t, test.config), hs256(t, claims(test.changes)), test.reason) })
	}
}

// permissions_max entries, whatever they are.
func TestClauseA31(t *testing.T) {
	limits := bounds.Default()
	limits.PermissionsMax = 3
	a, err := auth.New(auth.Options{Config: config(), Limits: limits, Clock: clock.NewManual(now)})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []func(n int) object{
		func(n int) object { return object{"permissions": repeat("lease://**", n)} },
		func(n int) object { return object{"permissions": nil, "roles": append(repeat("x", n-1), "lease://**")} },
		func(n int) object { return object{"permissions": nil, "scp": repeat("lease.read", n)} },
		func(n int) object {
			return object{"permissions": nil, "scope": strings.Join(append(repeat("x", n-1), "lease.read"), "  ")}
		},
	} {
		want(t, a, hs256(t, claims(list(3))), "")
		want(t, a, hs256(t, claims(list(4))), auth.ReasonTooManyPermissions)
	}
	// The default, in a token that is not too long for it.
	most := int(bounds.Default().PermissionsMax)
	roomy := bounds.Default()
	roomy.TokenBytesMax = 1 << 20
	if a, err = auth.New(auth.Options{Config: config(), Limits: roomy, Clock: clock.NewManual(now)}); err != nil {
		t.Fatal(err)
	}
	want(t, a, hs256(t, claims(object{"permissions": numbered(most)})), "")
	want(t, a, hs256(t, claims(object{"permissions": numbered(most + 1)})), auth.ReasonTooManyPermissions)
}

func repeat(entry string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = entry
	}
	return all
}

// numbered are n different grants of one route each.
func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("lease://r/a/k%d#read", i)
	}
	return all
}

// granted are the levels that an access has for a route, as letters.
func granted(t testing.TB, access *auth.Access, route string) string {
	t.Helper()
	text := ""
	for _, level := range levels {
		if access.AllowsRoute(level, concrete(t, route)) {
			text += level.String()[:1]
		}
	}
	return text
}

func TestClausesA32AndA34(t *testing.T) {
	longest := "lease://r/a/" + strings.Repeat("k", bounds.RouteBytesMax-len("lease://r/a/"))
	for _, test := range []struct {
		entry, route string
		levels       string // "-": malformed
	}{
		{"lease://r/a/k#read", "lease://r/a/k", "r"},
		{"lease://r/a/k#write", "lease://r/a/k", "w"},
		{"lease://r/a/k#*", "lease://r/a/k", "rwa"},
		{"lease://r/a/k", "lease://r/a/k", "rwa"},
		{"lease://r/a/k#Read", "", "-"},
		{"lease://r/a/k#all", "", "-"},
		{"lease://r/a/k#", "", "-"},
		{"lease://r/a/k# read", "", "-"},
		{"lease://r/a/k#read ", "", "-"},
		{"lease://r/a/k#read,write", "", "-"},
		{"lease://r/a/k#**", "", "-"},
		{"lease://r/a#b/k#read", "lease://r/a#b/k", "r"},
		{"lease://r/a/k#read#write", "lease://r/a/k#read", "w"},
		{"lease://r/a#b/k", "", "-"},
		{"#read", "", "-"},
		{"", "", "-"},
		{longest + "#write", longest, "w"},
		{longest + "x#read", "", "-"},
		{longest, longest, "rwa"},
		{longest + "#rewrite", "", "-"},
	} {
		name := test.entry[:min(len(test.entry), 40)]
		t.Run(name, func(t *testing.T) {
			if test.levels == "-" {
				want(t, open(t, config()), hs256(t, claims(object{"permissions": []string{test.entry}})), auth.ReasonPermissionsMalformed)
				return
			}
			if got := granted(t, holding(t, test.entry), test.route); got != test.levels {
				t.Errorf("levels %q, want %q", got, test.levels)
			}
		})
	}
}

func TestClauseA33(t *testing.T) {
	for _, test := range []struct {
		name, entry string
		ok          bool
	}{
		{"a pattern of too many segments for its domain", "lease://a/b/c/d/e#read", true},
		{"of too few", "lease://a#*", true},
		{"a reserved segment (R-15)", "stream://a/__area__/b#read", true},
		{"a shape that is not listed (R-14)", "stream://a/**/b#read", true},
		{"an unknown scheme", "leases://**", false},
		{"a scheme in capitals", "LEASE://**", false},
		{"a scheme with a wildcard", "*://**", false},
		{"no scheme", "r/a/k", false},
		{"no scheme where routes need none (R-05)", "kv/a/k#read", false},
		{"no path", "lease://#read", false},
		{"an empty segment", "lease://a//k", false},
		{"part of a segment", "lease://a/b*/k", false},
		{"adjacent", "lease://**/**", false},
		{"a control character", "lease://a/\x01/k", false},
		{"64 segments", "rpc://" + strings.Repeat("a/", 63) + "a", true},
		{"65 segments", "rpc://" + strings.Repeat("a/", 64) + "a", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			reason := auth.ReasonPermissionsMalformed
			if test.ok {
				reason = ""
			}
			want(t, open(t, config()), hs256(t, claims(object{"permissions": []string{test.entry}})), reason)
		})
	}
	nothing := holding(t, "lease://a/b/c/d#*", "lease://a#*", "lease://**/b/c/d/e#*")
	for _, selectorText := range []string{"lease://**", "lease://a/b/c", "lease://a/b/*", "lease://*/*/*"} {
		if nothing.Allows(wire.AccessRead, selector(t, selectorText)) {
			t.Errorf("grants that match nothing contain %s", selectorText)
		}
	}
}

// routeIn is a route of a domain.
func routeIn(scheme string) string {
	if scheme == route.Schedule.Scheme {
		return scheme + "://a/b/c/d"
	}
	return scheme + "://a/b/c"
}

func TestClauseA35(t *testing.T) {
	domains := []string{"kv", "queue", "rpc", "lease", "notice", "stream", "schedule"}
	for _, scheme := range domains {
		for access, level := range map[string]string{"read": "r", "write": "w"} {
			for _, form := range []string{"%s.%s", "api/%s.%s", "api:v1/%s.%s"} {
				entry := fmt.Sprintf(form, scheme, access)
				for _, source := range []object{{"scp": entry}, {"scp": []string{entry}}, {"scope": "openid " + entry}} {
					source["permissions"] = nil
					holder := connect(t, open(t, config()), hs256(t, claims(source)))
					for _, other := range domains {
						wantLevels := ""
						if other == scheme {
							wantLevels = level
						}
						if got := granted(t, holder, routeIn(other)); got != wantLevels {
							t.Fatalf("%v: levels %q for %s", source, got, other)
						}
					}
				}
			}
		}
	}
	for _, entry := range []string{
		"lease.all", "lease.*", "lease.", "lease", ".read", "leases.read", "Lease.read", "lease.Read", "a/b/lease.read", "/lease.read",
		"lease.read/", "lease.read.write", "lease/read", "lease.read#write",
	} {
		want(t, open(t, config()), hs256(t, claims(object{"permissions": nil, "scope": entry})), auth.ReasonPermissionsMissing)
	}
}

func TestClauseA36(t *testing.T) {
	access := auth.Anonymous(3)
	if access.Family() != 3 {
		t.Errorf("family %d", access.Family())
	}
	for _, scheme := range []string{"kv", "queue", "rpc", "lease", "notice", "stream", "schedule"} {
		if got := granted(t, access, routeIn(scheme)); got != "rwa" {
			t.Errorf("%s: levels %q of a route", scheme, got)
		}
		for _, level := range levels {
			if !access.Allows(level, selector(t, scheme+"://**")) {
				t.Errorf("%s: no %v for everything", scheme, level)
			}
		}
	}
}

// What nobody was given: no access, no level that grants cannot give, no selector.
func TestNothingIsAllowedByDefault(t *testing.T) {
	var none *auth.Access
	if none.Family() != 0 || none.AllowsRoute(wire.AccessRead, concrete(t, "lease://a/b/c")) || none.Allows(wire.AccessRead, selector(t, "lease://**")) {
		t.Error("no access allows something")
	}
	all := auth.Anonymous(1)
	for _, level := range []wire.AccessLevel{0, wire.AccessSession, 99} {
		if all.AllowsRoute(level, concrete(t, "lease://a/b/c")) || all.Allows(level, selector(t, "lease://**")) {
			t.Errorf("level %d is allowed", level)
		}
	}
	if empty := selector(t, "lease://a/b/c"); !all.Allows(wire.AccessRead, empty) {
		t.Error("an exact selector is not contained in everything")
	}
}
