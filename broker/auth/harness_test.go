package auth_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// now is when every token of these tests is shown.
var now = time.Unix(2_000_000_000, 0)

var secret = []byte("a secret of more than thirty-two bytes")

type object = map[string]any

// claims are those of a token that is accepted, with some of them changed. A nil value takes a claim away.
func claims(changes object) object {
	c := object{
		"iss": "", "aud": "fitz", "sub": "someone", "exp": now.Unix() + 60, "tid": "dev", "permissions": []string{"lease://**#*"},
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, value any) bool { return value == nil })
	return c
}

func jsonNumber(text string) json.RawMessage { return json.RawMessage(text) }

// null is a claim that is there and null.
var null = json.RawMessage("null")

func encode(t testing.TB, value any) string {
	t.Helper()
	text, ok := value.(string)
	if !ok {
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text = string(raw)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// token signs a header and claims, each an object or JSON text, with the secret.
func token(t testing.TB, header, claims any) string {
	t.Helper()
	return signed(encode(t, header) + "." + encode(t, claims))
}

func signed(text string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// hs256 is a token with these claims.
func hs256(t testing.TB, claims any) string {
	t.Helper()
	return token(t, object{"alg": "HS256", "typ": "JWT"}, claims)
}

// Keys of key sets, made once: making them takes long.
var (
	firstKey  = sync.OnceValue(newKey)
	secondKey = sync.OnceValue(newKey)
)

func newKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}

// rs256 is a token signed with a key, for the key id, or without one when it is "".
func rs256(t testing.TB, key *rsa.PrivateKey, id string, claims any) string {
	t.Helper()
	header := object{"alg": "RS256"}
	if id != "" {
		header["kid"] = id
	}
	return signedWith(t, key, header, claims)
}

// rs256WithHeader is a token signed with the first key.
func rs256WithHeader(t testing.TB, header, claims any) string {
	t.Helper()
	return signedWith(t, firstKey(), header, claims)
}

func signedWith(t testing.TB, key *rsa.PrivateKey, header, claims any) string {
	t.Helper()
	text := encode(t, header) + "." + encode(t, claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func encodeNumber(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.Bytes()) }

func base64Decode(part string) ([]byte, error) { return base64.RawURLEncoding.DecodeString(part) }

// jwk is a key as a key set holds it, with changes. A nil value takes a member away.
func jwk(key *rsa.PublicKey, id string, changes object) object {
	o := object{"kty": "RSA", "kid": id, "use": "sig", "alg": "RS256", "n": encodeNumber(key.N), "e": encodeNumber(big.NewInt(int64(key.E)))}
	maps.Copy(o, changes)
	maps.DeleteFunc(o, func(_ string, value any) bool { return value == nil })
	return o
}

// keySet is the text of a key set.
func keySet(t testing.TB, keys ...object) []byte {
	t.Helper()
	text, err := json.Marshal(object{"keys": append([]object{}, keys...)})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// file writes a file of the test.
func file(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// config is that of the secret and the family dev.
func config() auth.Config {
	return auth.Config{HMACSecret: secret, Families: 2, FamilyMap: map[string]uint32{"dev": 1, "ops": 2}}
}

// withKeys is config with the key set of one issuer instead of the secret.
func withKeys(issuer, place string) auth.Config {
	c := config()
	c.HMACSecret, c.JWKS = nil, map[string]string{issuer: place}
	return c
}

func open(t testing.TB, c auth.Config) *auth.Authority {
	t.Helper()
	a, err := auth.New(auth.Options{Config: c, Limits: bounds.Default(), Clock: clock.NewManual(now)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// reasonOf is why a token is refused, "" when it is accepted.
func reasonOf(t testing.TB, a *auth.Authority, token string) auth.Reason {
	t.Helper()
	access, err := a.Connect([]byte(token))
	if err == nil {
		if access.Family() == 0 {
			t.Fatal("accepted without a family")
		}
		return ""
	}
	if access != nil {
		t.Fatal("access together with a refusal")
	}
	var refusal *auth.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("the error is %T", err)
	}
	return refusal.Reason
}

// want checks what becomes of a token.
func want(t testing.TB, a *auth.Authority, token string, reason auth.Reason) {
	t.Helper()
	if got := reasonOf(t, a, token); got != reason {
		t.Errorf("reason %q, want %q", got, reason)
	}
}

// connect returns the access of a token that must be accepted.
func connect(t testing.TB, a *auth.Authority, token string) *auth.Access {
	t.Helper()
	access, err := a.Connect([]byte(token))
	if err != nil {
		t.Fatal(err)
	}
	return access
}

// grammarOf returns the grammar of the scheme of a text.
func grammarOf(t testing.TB, text string) *pattern.Grammar {
	t.Helper()
	scheme, _, _ := strings.Cut(text, "://")
	for _, g := range []*pattern.Grammar{&route.KV, &route.Queue, &route.RPC, &route.Lease, &route.Notice, &route.Stream, &route.Schedule} {
		if g.Scheme == scheme {
			return g
		}
	}
	t.Fatalf("no domain has the scheme of %q", text)
	return nil
}

func selector(t testing.TB, text string) pattern.Selector {
	t.Helper()
	s, err := grammarOf(t, text).ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func concrete(t testing.TB, text string) pattern.Route {
	t.Helper()
	r, err := grammarOf(t, text).ParseRoute(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// holding is the access of a token with these permissions.
func holding(t testing.TB, permissions ...string) *auth.Access {
	t.Helper()
	return connect(t, open(t, config()), hs256(t, claims(object{"permissions": permissions})))
}

// levels are what grants can give.
var levels = []wire.AccessLevel{wire.AccessRead, wire.AccessWrite, wire.AccessAll}
