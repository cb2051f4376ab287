package auth_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// FuzzDecodeToken: whatever is shown is taken apart or refused with a fixed text, and nobody gets in who does not have the secret.
func FuzzDecodeToken(f *testing.F) {
	a := open(f, config())
	f.Add([]byte(hs256(f, claims(nil))))
	f.Add([]byte(token(f, `{"alg":"none"}`, `{"a":{"a":[1,2,{"b":null}]}}`)))
	f.Add([]byte("..."))
	f.Add([]byte("e30.e30."))
	limits := bounds.Default()
	f.Fuzz(func(t *testing.T, token []byte) {
		decoded, err := auth.Decode(token, limits.TokenBytesMax, limits.TokenJSONDepthMax)
		var refusal *auth.Refusal
		if err != nil && (!errors.As(err, &refusal) || !slices.Contains(auth.Reasons, refusal.Reason)) {
			t.Fatalf("error %v", err)
		}
		if err == nil && (decoded.Header == nil || decoded.Claims == nil || int64(len(token)) > limits.TokenBytesMax) {
			t.Fatal("taken apart without its parts")
		}
		if access, err := a.Connect(token); err == nil && (access.Family() == 0 || decoded == nil) {
			t.Fatal("accepted without a family")
		}
	})
}

// FuzzClaims: whatever stands in a token that is signed, it is refused or gives a family and grants.
func FuzzClaims(f *testing.F) {
	a := open(f, config())
	for _, seed := range []any{claims(nil), claims(object{"permissions": nil, "scope": "lease.read"}), claims(object{"aud": []string{"fitz"}, "nbf": 1}), "[]", `{"exp":1e9}`} {
		f.Add(decodedPart(f, encode(f, seed)))
	}
	f.Fuzz(func(t *testing.T, text string) {
		access, err := a.Connect([]byte(token(t, object{"alg": "HS256"}, text)))
		if (err == nil) == (access == nil) || err == nil && access.Family() == 0 {
			t.Fatalf("access %v, error %v", access, err)
		}
	})
}

// FuzzKeySet: a key set is refused or holds keys that may be used.
func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}`))
	f.Add(keySet(f, jwk(&firstKey().PublicKey, "k", nil)))
	f.Add(keySet(f, jwk(&firstKey().PublicKey, "k", nil), object{"kty": "EC"}))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, err := auth.ParseKeys(text)
		if (err == nil) != (len(found) > 0) {
			t.Fatalf("%d keys, error %v", len(found), err)
		}
		for _, bits := range found {
			if bits < 2048 || bits > 8192 {
				t.Fatalf("a key of %d bits", bits)
			}
		}
	})
}

// FuzzPermission: an entry is refused or gives a grant of its own text and no level but those that it names.
func FuzzPermission(f *testing.F) {
	for _, seed := range []string{"lease://**#read", "kv://a/b/c", "rpc://a/**/b#write", "lease.read", "api/queue.write", "stream://a#b#*", "#"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, entry string) {
		g, ok := auth.ParseGrant(entry)
		if !ok {
			return
		}
		if len(entry) > bounds.PermissionBytesMax || !strings.HasPrefix(entry, g.Pattern()) || !strings.HasPrefix(entry, g.Scheme()+"://") {
			t.Fatalf("%q gives a grant of %q", entry, g.Pattern())
		}
		access := auth.NewAccess(1, []auth.Grant{g})
		s, err := grammarOf(t, g.Scheme()+"://").ParseSelector(g.Pattern())
		if err != nil {
			return // of no use as a request
		}
		for _, level := range []wire.AccessLevel{wire.AccessRead, wire.AccessWrite, wire.AccessAll} {
			given := slices.Contains(g.Levels(), level)
			if allowed := access.Allows(level, s); allowed != given && !(given && s.Scheme() == "rpc" || given && s.Scheme() == "notice") {
				t.Fatalf("%q: %v of itself allowed %v", entry, level, allowed)
			}
		}
	})
}

func decodedPart(t testing.TB, part string) string {
	t.Helper()
	text, err := base64Decode(part)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
