package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/internal/devtoken"
)

const tokenSecret = "a secret of more than thirty-two bytes"

// outcome is what a run of fitz left behind.
type outcome struct {
	code           int
	stdout, stderr string
}

// tokens runs fitz token with an environment and standard input.
func tokens(t *testing.T, environ []string, stdin string, args ...string) outcome {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stdin")
	if err := os.WriteFile(path, []byte(stdin), 0o600); err != nil {
		t.Fatal(err)
	}
	input, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = input.Close() }()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), stdio{append([]string{"token"}, args...), environ, input, &stdout, &stderr})
	return outcome{code, stdout.String(), stderr.String()}
}

// secretFile is a file with the secret as editors leave it.
func secretFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A token that is minted opens a session of a broker with the same secret, for as long as it was told to.
func TestMintedTokenIsAccepted(t *testing.T) {
	for name, ways := range map[string]struct {
		environ []string
		args    []string
	}{
		"file":            {nil, []string{"--secret-file", secretFile(t, tokenSecret+"\n")}},
		"environment":     {[]string{"OTHER=1", "FITZ_JWT_HMAC_SECRET=" + tokenSecret}, nil},
		"file beats both": {[]string{"FITZ_JWT_HMAC_SECRET=other"}, []string{"--secret-file", secretFile(t, tokenSecret)}},
	} {
		t.Run(name, func(t *testing.T) {
			before := time.Now()
			got := tokens(t, ways.environ, "", append([]string{"mint", "--family", "ops", "--permission", "lease://r/**#read", "--permission", "lease://a,b/**#write", "--ttl", "90s"}, ways.args...)...)
			if got.code != exitOK || got.stderr != "" || strings.Count(got.stdout, "\n") != 1 {
				t.Fatalf("%+v", got)
			}
			token := strings.TrimSuffix(got.stdout, "\n")
			for _, test := range []struct {
				at     time.Time
				reason string
			}{{before, ""}, {before.Add(89 * time.Second), ""}, {time.Now().Add(91 * time.Second), "token expired"}} {
				authority, err := auth.New(auth.Options{
					Config: auth.Config{HMACSecret: []byte(tokenSecret), Families: 2, FamilyMap: map[string]uint32{"ops": 2}},
					Limits: bounds.Default(), Clock: clock.NewManual(test.at)})
				if err != nil {
					t.Fatal(err)
				}
				access, err := authority.Connect([]byte(token))
				if test.reason != "" {
					if err == nil || err.Error() != test.reason {
						t.Errorf("at %v: %v", test.at, err)
					}
					continue
				}
				if err != nil || access.Family() != 2 {
					t.Errorf("at %v: family %d, %v", test.at, access.Family(), err)
				}
			}
		})
	}
	got := tokens(t, []string{"FITZ_JWT_HMAC_SECRET=" + tokenSecret}, "", "mint", "--family", "dev", "--permission", "lease://**", "--json")
	var printed map[string]string
	if err := json.Unmarshal([]byte(got.stdout), &printed); err != nil || len(printed) != 1 || strings.Count(printed["token"], ".") != 2 {
		t.Errorf("%+v", got)
	}
}

func TestMintRefuses(t *testing.T) {
	withSecret := []string{"FITZ_JWT_HMAC_SECRET=" + tokenSecret}
	valid := []string{"mint", "--family", "dev", "--permission", "lease://**#read"}
	for name, test := range map[string]struct {
		environ []string
		args    []string
		says    string
	}{
		"no secret":                {nil, valid, "FITZ_JWT_HMAC_SECRET"},
		"an empty secret":          {[]string{"FITZ_JWT_HMAC_SECRET="}, valid, "no secret"},
		"a missing file":           {nil, append(valid, "--secret-file", "missing/file"), "missing/file"},
		"an empty file":            {nil, append(valid, "--secret-file", secretFile(t, "\n")), "holds no secret"},
		"a file that is too large": {nil, append(valid, "--secret-file", secretFile(t, strings.Repeat("x", secretMax+1))), "more than"},
		"no family":                {withSecret, []string{"mint", "--permission", "lease://**"}, "--family"},
		"an empty family":          {withSecret, []string{"mint", "--family", "", "--permission", "lease://**"}, "--family"},
		"no permission":            {withSecret, []string{"mint", "--family", "dev"}, "--permission"},
		"an unknown scheme":        {withSecret, append(valid, "--permission", "leases://**"), `"leases://**"`},
		"an unknown access":        {withSecret, append(valid, "--permission", "lease://**#all"), `"lease://**#all"`},
		"an empty subject":         {withSecret, append(valid, "--subject", ""), "--subject"},
		"no ttl":                   {withSecret, append(valid, "--ttl", "0s"), "--ttl"},
		"a ttl of part of seconds": {withSecret, append(valid, "--ttl", "1500ms"), "--ttl"},
		"too long":                 {withSecret, append(valid, "--subject", strings.Repeat("x", bounds.TokenBytesMax)), "bytes"},
		"the secret as a flag":     {nil, append(valid, "--secret", tokenSecret), "unknown flag"},
	} {
		t.Run(name, func(t *testing.T) {
			got := tokens(t, test.environ, "", slices.Clone(test.args)...)
			if got.code != exitUsage || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, test.says) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// inspected is a token with claims that show every line.
func inspected(t *testing.T, change func(c *devtoken.Claims)) string {
	t.Helper()
	c := devtoken.Claims{
		Subject: "some\nbody", Audience: []string{"fitz", "x"}, Expires: time.Now().Add(time.Hour), NotBefore: time.Unix(0, 0), Family: "dev",
		Permissions: []string{"lease://r/**#read", "lease://a/b/c/d#*", "queue://**"},
	}
	if change != nil {
		change(&c)
	}
	token, err := devtoken.Mint([]byte(tokenSecret), c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestInspect(t *testing.T) {
	token := inspected(t, nil)
	for name, got := range map[string]outcome{
		"argument": tokens(t, nil, "", "inspect", token), "standard input": tokens(t, nil, token+"\n", "inspect"), "dash": tokens(t, nil, token, "inspect", "-"),
	} {
		lines := strings.Split(got.stdout, "\n")
		if got.code != exitOK || got.stderr != "" || !strings.HasPrefix(lines[0], "not verified") {
			t.Errorf("%s: %+v", name, got)
		}
		for _, want := range []string{
			"algorithm   HS256", `issuer      ""`, `subject     "some\nbody"`, `audience    ["fitz","x"]`, `family      "dev" (claim tid)`,
			"not before  1970-01-01T00:00:00Z", "permission  lease://r/** grants read", "permission  queue://** grants read, write, all",
			"permission  lease://a/b/c/d grants nothing: no route of lease matches",
		} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s: no line %q in\n%s", name, want, got.stdout)
			}
		}
		if !strings.Contains(got.stdout, "(in 59m") {
			t.Errorf("%s: no time that is left:\n%s", name, got.stdout)
		}
		for _, part := range strings.Split(token, ".") {
			if strings.Contains(got.stdout, part) {
				t.Errorf("%s: part of the token is shown", name)
			}
		}
	}
	got := tokens(t, nil, "", "inspect", inspected(t, func(c *devtoken.Claims) { c.Expires = time.Now().Add(-90 * time.Minute) }))
	if got.code != exitOK || !strings.Contains(got.stdout, "(1h3") || !strings.Contains(got.stdout, " ago)") {
		t.Errorf("expired: %+v", got)
	}
}

func TestInspectVerifies(t *testing.T) {
	right, wrong := secretFile(t, tokenSecret+"\n"), secretFile(t, "another secret")
	for name, test := range map[string]struct {
		change  func(c *devtoken.Claims)
		args    []string
		refused string // "": verified and accepted
	}{
		"valid":                 {nil, []string{"--secret-file", right}, ""},
		"another secret":        {nil, []string{"--secret-file", wrong}, "signature not valid"},
		"expired":               {func(c *devtoken.Claims) { c.Expires = time.Now().Add(-time.Second) }, []string{"--secret-file", right}, "token expired"},
		"another issuer":        {nil, []string{"--secret-file", right, "--issuer", "i"}, "issuer not accepted"},
		"its issuer":            {func(c *devtoken.Claims) { c.Issuer = "i" }, []string{"--secret-file", right, "--issuer", "i"}, ""},
		"another audience":      {nil, []string{"--secret-file", right, "--audience", "y"}, "audience not accepted"},
		"its audience":          {nil, []string{"--secret-file", right, "--audience", "y", "--audience", "x"}, ""},
		"no family":             {func(c *devtoken.Claims) { c.Family = "" }, []string{"--secret-file", right}, "family unknown"},
		"a family elsewhere":    {func(c *devtoken.Claims) { c.Family = ""; c.Extra = map[string]any{"org": "dev"} }, []string{"--secret-file", right, "--family-claim", "org"}, ""},
		"no permissions":        {func(c *devtoken.Claims) { c.Permissions = nil }, []string{"--secret-file", right}, "permissions missing"},
		"malformed permissions": {func(c *devtoken.Claims) { c.Permissions = []string{"x"} }, []string{"--secret-file", right}, "permissions malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			got := tokens(t, nil, "", append([]string{"inspect", "--json", inspected(t, test.change)}, test.args...)...)
			var shown inspection
			if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil {
				t.Fatalf("%+v: %v", got, err)
			}
			code := exitOK
			if test.refused != "" {
				code = exitFailure
			}
			if got.code != code || got.stderr != "" || shown.Refused != test.refused || strings.Contains(got.stdout, "another secret") {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestInspectRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		stdin string
		args  []string
		says  string
	}{
		"no token":            {"", nil, "token missing"},
		"a word":              {"", []string{"token"}, "token malformed"},
		"an unfinished token": {"", []string{"e30.e30"}, "token malformed"},
		"too long":            {strings.Repeat("x", bounds.TokenBytesMax+10), nil, "token too long"},
		"no such secret":      {"", []string{inspected(t, nil), "--secret-file", "missing/file"}, "missing/file"},
	} {
		t.Run(name, func(t *testing.T) {
			got := tokens(t, nil, test.stdin, append([]string{"inspect"}, test.args...)...)
			if got.code != exitUsage || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, test.says) {
				t.Errorf("%+v", got)
			}
		})
	}
}
