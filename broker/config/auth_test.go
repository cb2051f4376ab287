package config_test

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// modes are the ways of authentication of the listeners by their names.
func modes(c *config.Config) map[string]string {
	all := map[string]string{}
	for _, l := range c.Listeners {
		all[l.Name] = l.Auth
	}
	return all
}

// keyed is an environment with what a token listener needs, and more.
func keyed(more ...string) map[string]string {
	all := map[string]string{"FITZ_JWT_HMAC_SECRET": "hush", "FITZ_FAMILY_MAP": "dev=1"}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// compat.md section 6: a broker that is told everything by the names of the public one.
func TestTokenAliases(t *testing.T) {
	c := load(t, nil, map[string]string{
		"FITZ_AUTH_REQUIRED": "true", "FITZ_BIND_ADDR": "0.0.0.0", "FITZ_JWT_HMAC_SECRET": " hush ", "FITZ_JWT_AUDIENCES": "one, two", "FITZ_ROUTE_FAMILIES": "3",
		"FITZ_ROUTE_FAMILY_MAP": "dev=1, ops=2,x=y=3", "FITZ_ROUTE_FAMILY_CLAIM": "fam", "FITZ_AUTH_ORG_CLAIM": "org",
		"FITZ_AUTH_CUSTOM_CLAIM": "ext", "FITZ_AUTH_PERMISSIONS_CLAIM": "perms", "FITZ_AUTH_ROLE_CLAIM": "groups"})
	want := auth.Config{HMACSecret: []byte(" hush "), JWKS: map[string]string{}, Audiences: []string{"one", "two"}, Families: 3,
		FamilyMap: map[string]uint32{"dev": 1, "ops": 2, "x=y": 3}, FamilyClaim: "fam", OrganisationClaim: "org", CustomClaim: "ext",
		PermissionsClaim: "perms", RoleClaim: "groups"}
	if !reflect.DeepEqual(c.Auth, want) {
		t.Errorf("%+v, want %+v", c.Auth, want)
	}
	if got, want := modes(c), map[string]string{"tcp": "token", "http": "token", "admin": ""}; !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if address(c, "tcp") != "0.0.0.0:4191" || c.InsecureAnonymous {
		t.Errorf("%+v", c.Listeners)
	}
	if len(c.Warnings) != 0 || c.AuthFrom != "FITZ_JWT_HMAC_SECRET" {
		t.Errorf("%q, keys of %s", c.Warnings, c.AuthFrom)
	}
	c = load(t, nil, map[string]string{"FITZ_AUTH_REQUIRED": "TRUE", "FITZ_JWT_JWKS_MAP": "https://a.example/=/keys/a.json,https://b.example/=https://b.example/keys?x=1",
		"FITZ_JWT_AUDIENCE": "one", "FITZ_ROUTE_FAMILY_MAP": "dev=1"})
	if want := map[string]string{"https://a.example/": "/keys/a.json", "https://b.example/": "https://b.example/keys?x=1"}; !maps.Equal(c.Auth.JWKS, want) {
		t.Errorf("%v", c.Auth.JWKS)
	}
	if !slices.Equal(c.Auth.Audiences, []string{"one"}) {
		t.Errorf("%v", c.Auth.Audiences)
	}
}

// Everything has its default, which is that of the specification of tokens.
func TestTokenDefaults(t *testing.T) {
	c := load(t, nil, keyed("FITZ_AUTH", "token"))
	want := auth.Config{HMACSecret: []byte("hush"), JWKS: map[string]string{}, Audiences: []string{"fitz", "fitz-broker"}, Families: 1,
		FamilyMap: map[string]uint32{"dev": 1}, FamilyClaim: "tid", RoleClaim: "roles"}
	if !reflect.DeepEqual(c.Auth, want) {
		t.Errorf("%+v, want %+v", c.Auth, want)
	}
	if c := load(t, nil, nil); modes(c)["tcp"] != config.AuthAnonymous || c.AuthFrom != "" {
		t.Errorf("%+v", c)
	}
}

// The way of authentication: flag, environment, alias, file, default; and listeners of the file that say it themselves.
func TestAuthPrecedence(t *testing.T) {
	file := written(t, "auth: token\nlisteners:\n  - {transport: tcp, address: \"localhost:1\"}\n  - {transport: tcp, address: \"localhost:2\", auth: anonymous}\n"+
		"  - {transport: websocket, address: \"localhost:3\", auth: token}\n  - {transport: admin, address: \"localhost:4\"}\n")
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{nil, nil, "token"},
		{nil, map[string]string{"FITZ_AUTH_REQUIRED": "false"}, "anonymous"},
		{nil, map[string]string{"FITZ_AUTH_REQUIRED": ""}, "token"},
		{nil, map[string]string{"FITZ_AUTH": "anonymous", "FITZ_AUTH_REQUIRED": "true"}, "anonymous"},
		{[]string{"--auth", "token"}, map[string]string{"FITZ_AUTH": "anonymous", "FITZ_AUTH_REQUIRED": "false"}, "token"},
	} {
		env := keyed("FITZ_CONFIG", file)
		maps.Copy(env, c.env)
		want := map[string]string{"tcp": c.want, "http": c.want, "listeners[0]": c.want, "listeners[1]": "anonymous", "listeners[2]": "token", "admin": "", "listeners[3]": ""}
		if got := modes(load(t, c.args, env)); !maps.Equal(got, want) {
			t.Errorf("%v %v: %v, want %v", c.args, c.env, got, want)
		}
	}
}

// Values of the file, with lists and maps of its own.
func TestTokensInFile(t *testing.T) {
	file := written(t, `
auth: token
hmac_secret: "hush"
issuers: ["https://a.example", "b,c"]
audiences: [one]
families: 2
family_map:
  dev: 1
  "b,c=d": 2
`)
	c := load(t, nil, map[string]string{"FITZ_CONFIG": file})
	if string(c.Auth.HMACSecret) != "hush" || !slices.Equal(c.Auth.Issuers, []string{"https://a.example", "b,c"}) ||
		!maps.Equal(c.Auth.FamilyMap, map[string]uint32{"dev": 1, "b,c=d": 2}) || c.AuthFrom != file+":3" {
		t.Errorf("%+v, keys of %s", c.Auth, c.AuthFrom)
	}
	c = load(t, []string{"--family", "other=2", "--families", "5"}, map[string]string{"FITZ_CONFIG": file})
	if !maps.Equal(c.Auth.FamilyMap, map[string]uint32{"other": 2}) || c.Auth.Families != 5 {
		t.Errorf("the flag does not beat the file: %+v", c.Auth)
	}
}

// Mistakes with tokens are one line each, with the place, and show no secret.
func TestTokenMistakes(t *testing.T) {
	file := func(text string) []string { return []string{"--config", written(t, text)} }
	token := []string{"--auth", "token"}
	needs := "a token listener needs an entry in "
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"no keys", token, map[string]string{"FITZ_FAMILY_MAP": "dev=1"}, "--auth: " + needs + "hmac_secret, hmac_secret_file or jwks"},
		{"empty secret counts as none", token, keyed("FITZ_JWT_HMAC_SECRET", ""), "--auth: " + needs + "hmac_secret"},
		{"empty key sets", file("auth: token\njwks: {}\nfamily_map: {dev: 1}\n"), nil, ":2: " + needs + "hmac_secret, hmac_secret_file or jwks"},
		{"no family", token, map[string]string{"FITZ_JWT_HMAC_SECRET": "hush"}, "--auth: " + needs + "family_map"},
		{"empty map of families", file("auth: token\nhmac_secret: hush\nfamily_map: {}\n"), nil, ":3: " + needs + "family_map"},
		{"list of families with nothing in it", token, keyed("FITZ_FAMILY_MAP", " , "), "FITZ_FAMILY_MAP: " + needs + "family_map"},
		{"empty audiences", file("auth: token\nhmac_secret: hush\nfamily_map: {a: 1}\naudiences: []\n"), nil, ":4: " + needs + "audiences"},
		{"audiences with nothing in them", token, keyed("FITZ_JWT_AUDIENCES", ","), "FITZ_JWT_AUDIENCES: " + needs + "audiences"},
		{"listener of the list", file("hmac_secret: hush\nlisteners:\n  - {transport: tcp, address: \"localhost:1\", auth: token}\n"), nil, ":3: " + needs + "family_map"},
		{"two kinds of keys", token, keyed("FITZ_JWKS", "i=f"), "FITZ_JWKS: jwks cannot be given together with hmac_secret (FITZ_JWT_HMAC_SECRET)"},
		{"two secrets", append(token, "--hmac-secret-file", "f"), keyed(), "--hmac-secret-file: hmac_secret_file cannot be given together with hmac_secret"},
		{"two kinds of keys for nobody", nil, keyed("FITZ_JWKS", "i=f"), "FITZ_JWKS: jwks cannot be given together"},
		{"issuers beside key sets", append(token, "--jwks", "i=f", "--issuer", "j"), map[string]string{"FITZ_FAMILY_MAP": "dev=1"}, "--jwks: jwks cannot be given together with issuers (--issuer)"},
		{"key set without a name", append(token, "--jwks", "https://user:hush@a.example"), map[string]string{"FITZ_FAMILY_MAP": "dev=1"}, "--jwks: jwks: entry 1 is not NAME=VALUE"},
		{"key set without a file", append(token, "--jwks", "issuer="), map[string]string{"FITZ_FAMILY_MAP": "dev=1"}, "--jwks: jwks: an issuer without a file or URL"},
		{"family above the number", token, keyed("FITZ_FAMILY_MAP", "dev=2"), `FITZ_FAMILY_MAP: family_map: the family 2 of "dev" is not from 1 to families 1`},
		{"family 0", file("families: 2\nfamily_map:\n  dev: 1\n  ops: 0\n"), nil, `:4: family_map: the family 0 of "ops" is not from 1 to families 2`},
		{"family that is no number", nil, map[string]string{"FITZ_FAMILY_MAP": "dev=x"}, `FITZ_FAMILY_MAP: family_map: the family of "dev": "x" is not a whole number`},
		{"family that is text", file("family_map: {dev: \"1\"}\n"), nil, ":1: the entry of family_map must be a whole number"},
		{"family twice", []string{"--family", "dev=1", "--family", "dev=1"}, nil, `--family: family_map: "dev" stands twice`},
		{"family twice in the file", file("family_map:\n  dev: 1\n  dev: 1\n"), nil, ":3: dev stands here again, first in line 2"},
		{"list of families", file("family_map: [dev]\n"), nil, ":1: family_map must be a mapping"},
		{"no families", []string{"--families", "0"}, nil, "--families: families: 0 is not from 1 to families_max 1024"},
		{"too many families", nil, map[string]string{"FITZ_ROUTE_FAMILIES": "1025"}, "FITZ_ROUTE_FAMILIES: families: 1025 is not from 1 to families_max 1024"},
		{"no number beside a map", file("families: many\nfamily_map: {acme: 1, globex: 2}\n"), nil, ":1: families must be a whole number"},
		{"wrong secret of a token listener", file("auth: token\nhmac_secret: 12345\nfamily_map: {dev: 1}\n"), nil, ":2: hmac_secret must be text"},
		{"wrong map of a token listener", file("auth: token\nhmac_secret: hush\nfamily_map: [dev]\n"), nil, ":3: family_map must be a mapping"},
		{"families that are none", []string{"--families", "1_0"}, nil, "--families: families: "},
		{"other way", []string{"--auth", "none"}, nil, `--auth: auth "none" is not one of anonymous, token`},
		{"other word of the alias", nil, map[string]string{"FITZ_AUTH_REQUIRED": "maybe"}, `FITZ_AUTH_REQUIRED: "maybe" is not true or false`},
		{"way of an admin listener", file("listeners:\n  - {transport: admin, address: \"localhost:1\", auth: token}\n"), keyed(), ":2: auth is for clients; an admin listener asks for admin_token"},
		{"secret that is a number", file("hmac_secret: 12345\n"), nil, ":1: hmac_secret must be text"},
		{"secret that looks like an alias", file("hmac_secret: *hush\n"), nil, "anchors and aliases are not supported"},
		{"secret as a flag", []string{"--hmac-secret", "hush"}, nil, "unknown flag --hmac-secret"},
		{"secret as a flag with its value", []string{"--hmac-secret=hush"}, nil, "unknown flag --hmac-secret"},
		{"admin token as a flag", []string{"--admin-token=hush"}, nil, "unknown flag --admin-token"},
		{"admin token with a space", nil, map[string]string{"FITZ_ADMIN_TOKEN": "hush hush"}, "FITZ_ADMIN_TOKEN: admin_token: the token holds something else than letters"},
		{"two admin tokens", []string{"--admin-token-file", "f"}, map[string]string{"FITZ_ADMIN_TOKEN": "hush"}, "--admin-token-file: admin_token_file cannot be given together with admin_token (FITZ_ADMIN_TOKEN)"},
		{"open anonymous listener beside a token listener", file("listeners:\n  - {transport: tcp, address: \"0.0.0.0:1\", auth: token}\n  - {transport: tcp, address: \"0.0.0.0:2\"}\n"), keyed(), ":3: anonymous listener 0.0.0.0:2 can be reached"},
		{"open admin listener without a token", []string{"--admin", "0.0.0.0:1", "--auth", "token"}, keyed(), "--admin: the admin listener 0.0.0.0:1 can be reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := problems(t, c.args, c.env)
			if len(got) != 1 || !strings.Contains(got[0], c.want) || strings.Contains(got[0], "hush") {
				t.Errorf("%q, want one line with %q", got, c.want)
			}
		})
	}
	load(t, []string{"--admin", "0.0.0.0:1"}, map[string]string{"FITZ_ADMIN_TOKEN": "hush"})
	load(t, []string{"--tcp", "0.0.0.0:1", "--http", "0.0.0.0:2", "--auth", "token"}, keyed())
	if c := load(t, nil, keyed()); len(c.Warnings) != 1 || c.Warnings[0] != "FITZ_JWT_HMAC_SECRET has no effect: no listener asks for tokens" {
		t.Errorf("%q", c.Warnings)
	}
}

// TLS of the default listeners, and of listeners of the file that say something else.
func TestTLSSettings(t *testing.T) {
	file := written(t, `
tls_cert: c
tls_key: k
tls_min_version: 1.3
listeners:
  - {transport: tcp, address: "localhost:1"}
  - {transport: tcp, address: "localhost:2", tls: off}
  - {transport: websocket, address: "localhost:3", tls: {cert: c2, key: k2, client_ca: a2, client_auth: optional, min_version: 1.2}}
  - {transport: admin, address: "localhost:4"}
  - {transport: admin, address: "localhost:5", tls: {cert: c3, key: k3}}
`)
	c := load(t, []string{"--config", file, "--tls-cert", "c1"}, map[string]string{"FITZ_TLS_KEY": "k1"})
	standard := config.TLS{CertFile: "c1", KeyFile: "k1", ClientAuth: "none", MinVersion: "1.3", From: "--tls-cert"}
	want := map[string]*config.TLS{"tcp": &standard, "http": &standard, "listeners[0]": &standard,
		"listeners[2]": {CertFile: "c2", KeyFile: "k2", ClientCAFile: "a2", ClientAuth: "optional", MinVersion: "1.2", From: file + ":8", ClientCAFrom: file + ":8"},
		"listeners[4]": {CertFile: "c3", KeyFile: "k3", ClientAuth: "none", MinVersion: "1.2", From: file + ":10"}}
	for _, l := range c.Listeners {
		if !reflect.DeepEqual(l.TLS, want[l.Name]) {
			t.Errorf("%s: %+v, want %+v", l.Name, l.TLS, want[l.Name])
		}
	}
	if c := load(t, nil, nil); c.Listeners[0].TLS != nil {
		t.Errorf("%+v", c.Listeners[0].TLS)
	}
}

func TestTLSMistakes(t *testing.T) {
	file := func(text string) []string { return []string{"--config", written(t, text)} }
	listener := func(tls string) []string {
		return file("listeners:\n  - {transport: tcp, address: \"localhost:1\", tls: " + tls + "}\n")
	}
	pair := []string{"--tls-cert", "c", "--tls-key", "k"}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"certificate without a key", []string{"--tls-cert", "c"}, "--tls-cert: TLS needs both tls_cert and tls_key"},
		{"key without a certificate", []string{"--tls-key", "k"}, "--tls-key: TLS needs both tls_cert and tls_key"},
		{"version without a certificate", []string{"--tls-min-version", "1.3"}, "--tls-min-version: TLS needs both"},
		{"client authority without a certificate", []string{"--tls-client-ca", "a", "--tls-client-auth", "required"}, "--tls-client-ca: TLS needs both"},
		{"client certificates without an authority", append(pair, "--tls-client-auth", "required"), "--tls-client-auth: tls_client_auth required needs tls_client_ca"},
		{"authority for nothing", append(pair, "--tls-client-ca", "a"), "--tls-client-ca: tls_client_ca has no effect while tls_client_auth is none"},
		{"old version", append(pair, "--tls-min-version", "1.1"), `--tls-min-version: tls_min_version "1.1" is not one of 1.2, 1.3`},
		{"other demand", append(pair, "--tls-client-auth", "maybe"), `--tls-client-auth: tls_client_auth "maybe" is not one of none, optional, required`},
		{"nothing in it", listener("{}"), ":2: TLS needs both cert and key"},
		{"certificate without a key, of one listener", listener("{cert: c}"), ":2: TLS needs both cert and key"},
		{"client certificates of one listener without an authority", listener("{cert: c, key: k, client_auth: optional}"), ":2: client_auth optional needs client_ca"},
		{"unknown key", listener("{cert: c, key: k, ca: a}"), ":2: unknown key ca"},
		{"other word", listener("on"), ":2: tls must be a mapping"},
		{"list", listener("[c, k]"), ":2: tls must be a mapping"},
		{"number", listener("{cert: c, key: 7}"), ":2: key must be text"},
		{"version that is none", listener("{cert: c, key: k, min_version: 2}"), ":2: min_version must be one of 1.2, 1.3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := problems(t, c.args, nil); !strings.Contains(got[0], c.want) || len(got) != 1 && c.name != "number" && c.name != "other word" {
				t.Errorf("%q, want one line with %q", got, c.want)
			}
		})
	}
}

// What is printed of tokens and TLS means the same when it is read again with the secrets, and shows none of them.
func TestPrintTokensAndTLS(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		word := rapid.StringMatching(`[a-z][a-z ,=:"\\/é]{0,6}[a-z]`)
		env := map[string]string{"FITZ_ADMIN_TOKEN": "hush-token"}
		text := "auth: token\nfamilies: 3\nfamily_map: {"
		for i := range rapid.IntRange(1, 3).Draw(rt, "families") {
			text += fmt.Sprintf("%q: %d, ", fmt.Sprint(word.Draw(rt, "claim"), i), i+1)
		}
		text += "}\n"
		if rapid.Bool().Draw(rt, "key sets") {
			text += fmt.Sprintf("jwks: {%q: %q}\n", word.Draw(rt, "issuer"), word.Draw(rt, "file"))
		} else {
			env["FITZ_JWT_HMAC_SECRET"] = "hush-secret"
			text += fmt.Sprintf("issuers: [%q, %q]\n", word.Draw(rt, "issuer"), word.Draw(rt, "issuer"))
		}
		text += fmt.Sprintf("audiences: [%q]\nrole_claim: %q\n", word.Draw(rt, "audience"), word.Draw(rt, "claim"))
		if rapid.Bool().Draw(rt, "TLS") {
			text += fmt.Sprintf("tls_cert: %q\ntls_key: %q\ntls_client_ca: ca\ntls_client_auth: optional\ntls_min_version: 1.3\n", word.Draw(rt, "cert"), word.Draw(rt, "key"))
		}
		text += "listeners:\n  - {transport: tcp, address: \"localhost:1\", auth: anonymous, tls: off}\n" +
			fmt.Sprintf("  - {transport: admin, address: \"localhost:2\", tls: {cert: %q, key: k}}\n", word.Draw(rt, "cert"))
		env["FITZ_CONFIG"] = written(t, text)
		print := func(c *config.Config) (all, settings string) {
			var out bytes.Buffer
			if err := c.Print(&out); err != nil {
				rt.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if !strings.HasPrefix(line, "#") {
					settings += line
				}
			}
			return out.String(), settings
		}
		first := load(t, nil, env)
		printed, before := print(first)
		if strings.Contains(printed, "hush") || !strings.Contains(printed, "# admin_token: (redacted) # FITZ_ADMIN_TOKEN\n") {
			rt.Fatalf("printed:\n%s", printed)
		}
		env["FITZ_CONFIG"] = written(t, printed)
		second := load(t, nil, env)
		if _, after := print(second); before != after || !reflect.DeepEqual(first.Auth, second.Auth) || !maps.Equal(modes(first), modes(second)) {
			rt.Fatalf("printed\n%s\nand read\n%s\n%+v\n%+v", before, after, first.Auth, second.Auth)
		}
	})
}

// Secrets of the file are not shown either.
func TestPrintRedactsTheFile(t *testing.T) {
	file := written(t, "auth: token\nhmac_secret: hush\nadmin_token: hush\nfamily_map: {dev: 1}\n")
	var out bytes.Buffer
	if err := load(t, []string{"--config", file}, nil).Print(&out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "hush") || !strings.Contains(text, "# hmac_secret: (redacted) # "+file+":2\n") {
		t.Errorf("printed:\n%s", text)
	}
}

// The values of suites and examples make a configuration that a token listener starts with.
func TestDevelopmentValues(t *testing.T) {
	families := settings.DevelopmentFamilies()
	var pairs []string
	for claim, number := range families {
		pairs = append(pairs, fmt.Sprintf("%s=%d", claim, number))
	}
	c := load(t, []string{"--auth", "token", "--families", fmt.Sprint(len(families)), "--audience", settings.DevelopmentAudience},
		map[string]string{"FITZ_JWT_HMAC_SECRET": settings.DevelopmentHMACSecret, "FITZ_FAMILY_MAP": strings.Join(pairs, ",")})
	if !maps.Equal(c.Auth.FamilyMap, families) || families[settings.DevelopmentFamilyDev] != settings.AnonymousFamily {
		t.Errorf("%v", c.Auth.FamilyMap)
	}
}
