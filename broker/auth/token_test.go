package auth_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/bounds"
)

// nested is a JSON text of that many levels of arrays.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// withClaim is the text of accepted claims with one more member in front.
func withClaim(t *testing.T, member string) string {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(encode(t, claims(nil)))
	if err != nil {
		t.Fatal(err)
	}
	return "{" + member + "," + string(raw[1:])
}

func TestClauseA10(t *testing.T) {
	a := open(t, config())
	good := hs256(t, claims(nil))
	parts := strings.Split(good, ".")
	header := object{"alg": "HS256"}
	depth := bounds.Default().TokenJSONDepthMax
	for _, test := range []struct {
		name, token string
		reason      auth.Reason
	}{
		{"three parts", good, ""},
		{"nothing", "", auth.ReasonTokenMissing},
		{"two parts", parts[0] + "." + parts[1], auth.ReasonTokenMalformed},
		{"four parts", good + ".", auth.ReasonTokenMalformed},
		{"five parts, as of an encrypted token", good + "..", auth.ReasonTokenMalformed},
		{"no dots", "token", auth.ReasonTokenMalformed},
		{"an empty header", "." + parts[1] + "." + parts[2], auth.ReasonTokenMalformed},
		{"empty claims", signed(parts[0] + "."), auth.ReasonTokenMalformed},
		{"empty claims that are not signed", parts[0] + ".." + parts[2], auth.ReasonSignature},
		{"an empty signature", parts[0] + "." + parts[1] + ".", auth.ReasonSignature},
		{"padding", good + "=", auth.ReasonTokenMalformed},
		{"padding of a header", signed(base64.URLEncoding.EncodeToString([]byte(`{"alg":"HS256" }`)) + "." + parts[1]), auth.ReasonTokenMalformed},
		{"the other alphabet", signed(encode(t, header) + "." + strings.ReplaceAll(encode(t, withClaim(t, `"x":"~~~???"`)), "_", "/")), auth.ReasonTokenMalformed},
		{"a line break inside", signed(parts[0] + ".\n" + parts[1]), auth.ReasonTokenMalformed},
		{"a carriage return at the end", good + "\r", auth.ReasonTokenMalformed},
		{"a space in front", " " + good, auth.ReasonTokenMalformed},
		{"bits that stand for nothing", parts[0] + "." + parts[1] + "." + looseEnd(parts[2]), auth.ReasonTokenMalformed},
		{"a header that is no JSON", token(t, "alg", claims(nil)), auth.ReasonTokenMalformed},
		{"a header that is an array", token(t, `["HS256"]`, claims(nil)), auth.ReasonTokenMalformed},
		{"claims that are no object", token(t, header, `"claims"`), auth.ReasonTokenMalformed},
		{"claims that are null", token(t, header, `null`), auth.ReasonTokenMalformed},
		{"two objects", token(t, header, withClaim(t, `"x":1`)+"{}"), auth.ReasonTokenMalformed},
		{"text behind the claims", token(t, header, withClaim(t, `"x":1`)+"x"), auth.ReasonTokenMalformed},
		{"a comma too many", token(t, header, withClaim(t, `"x":[1,]`)), auth.ReasonTokenMalformed},
		{"claims that are not UTF-8", token(t, header, withClaim(t, "\"x\":\"\xff\"")), auth.ReasonTokenMalformed},
		{"the deepest claims", token(t, header, withClaim(t, `"x":`+nested(int(depth)-1))), ""},
		{"claims one level deeper", token(t, header, withClaim(t, `"x":`+nested(int(depth)))), auth.ReasonTokenMalformed},
		{"the deepest header", token(t, fmt.Sprintf(`{"alg":"HS256","x":%s}`, nested(int(depth)-1)), claims(nil)), ""},
		{"a header one level deeper", token(t, fmt.Sprintf(`{"alg":"HS256","x":%s}`, nested(int(depth))), claims(nil)), auth.ReasonTokenMalformed},
		{"a claim twice", token(t, header, withClaim(t, `"tid":"ops"`)), auth.ReasonTokenMalformed},
		{"a claim twice, one of them escaped", token(t, header, withClaim(t, `"\u0074id":"ops"`)), auth.ReasonTokenMalformed},
		{"an unknown claim twice", token(t, header, withClaim(t, `"x":1,"x":1`)), auth.ReasonTokenMalformed},
		{"a member of a claim twice", token(t, header, withClaim(t, `"x":{"a":{"b":1,"b":1}}`)), auth.ReasonTokenMalformed},
		{"a member twice inside an array", token(t, header, withClaim(t, `"x":[[{"b":1,"b":2}]]`)), auth.ReasonTokenMalformed},
		{"the algorithm twice", token(t, `{"alg":"none","alg":"HS256"}`, claims(nil)), auth.ReasonTokenMalformed},
		{"names that differ in case", token(t, header, withClaim(t, `"TID":"ops"`)), ""},
		{"an extension that must be understood", token(t, object{"alg": "HS256", "crit": []string{"b64"}, "b64": false}, claims(nil)), auth.ReasonTokenMalformed},
	} {
		t.Run(test.name, func(t *testing.T) { want(t, a, test.token, test.reason) })
	}
}

// looseEnd changes bits of the last character that belong to no byte.
func looseEnd(part string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, part[len(part)-1])
	return part[:len(part)-1] + string(alphabet[last^1])
}

// token_bytes_max is looked at before anything else: a token that is no token is too long all the same.
func TestTokenBytesMax(t *testing.T) {
	a := open(t, config())
	most := int(bounds.Default().TokenBytesMax)
	want(t, a, strings.Repeat("x", most), auth.ReasonTokenMalformed)
	want(t, a, strings.Repeat("x", most+1), auth.ReasonTokenTooLong)

	long := func(n int) string { return hs256(t, claims(object{"x": strings.Repeat("x", n)})) }
	n := 0
	for len(long(n+1)) <= most {
		n += max(1, (most-len(long(n)))*3/4-4)
	}
	want(t, a, long(n), "")
	want(t, a, long(n+4), auth.ReasonTokenTooLong)
}

// the keys that the operator gave decide which algorithm a token must have, and nothing in the token does.
func TestClauseA11(t *testing.T) {
	a := open(t, config())
	for _, algorithm := range []any{"none", "None", "NONE", "nOnE", "", "HS384", "HS512", "hs256", "RS256", "ES256", "PS256", "HS256 ", null, 256, []string{"HS256"}} {
		t.Run(fmt.Sprint(algorithm), func(t *testing.T) {
			want(t, a, token(t, object{"alg": algorithm}, claims(nil)), auth.ReasonAlgorithm)
		})
	}
	want(t, a, token(t, object{"alg": "HS256"}, claims(nil)), "")
	want(t, a, token(t, object{}, claims(nil)), auth.ReasonAlgorithm)
	unsigned := encode(t, object{"alg": "none"}) + "." + encode(t, claims(nil)) + "."
	want(t, a, unsigned, auth.ReasonAlgorithm)
}

// Nothing that a header names beside a key id is looked at: a token cannot bring its own key.
func TestKeysInTheHeaderAreIgnored(t *testing.T) {
	stranger := secondKey()
	brought := object{
		"jwk": jwk(&stranger.PublicKey, "k", nil), "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/cert", "x5c": []string{"AAAA"},
		"kid": "first",
	}
	a := open(t, withKeys("issuer", file(t, keySet(t, jwk(&firstKey().PublicKey, "first", nil)))))
	c := claims(object{"iss": "issuer"})
	for name := range brought {
		header := object{"alg": "RS256", "kid": "first", name: brought[name]}
		forged := encode(t, header) + "." + encode(t, c)
		genuine := rs256WithHeader(t, header, c)
		want(t, a, forged+"."+base64.RawURLEncoding.EncodeToString(make([]byte, 256)), auth.ReasonSignature)
		want(t, a, genuine, "")
	}
	brought["alg"] = "HS256"
	want(t, open(t, config()), token(t, brought, claims(nil)), "")
}

// The public key of a set is known to everybody: it must not work as a secret.
func TestClauseA12(t *testing.T) {
	first, second := firstKey(), secondKey()
	c := claims(object{"iss": "issuer"})
	a := open(t, withKeys("issuer", file(t, keySet(t, jwk(&first.PublicKey, "first", nil), jwk(&second.PublicKey, "second", nil)))))
	good := rs256(t, first, "first", c)
	for _, test := range []struct {
		name, token string
		reason      auth.Reason
	}{
		{"first key", good, ""},
		{"second key", rs256(t, second, "second", c), ""},
		{"the key of another id", rs256(t, second, "first", c), auth.ReasonSignature},
		{"an unknown id", rs256(t, first, "third", c), auth.ReasonKey},
		{"no id and two keys", rs256(t, first, "", c), auth.ReasonKey},
		{"an id that is no text", rs256WithHeader(t, object{"alg": "RS256", "kid": 1}, c), auth.ReasonKey},
		{"another issuer", rs256(t, first, "first", claims(object{"iss": "other"})), auth.ReasonIssuer},
		{"an empty issuer", rs256(t, first, "first", claims(nil)), auth.ReasonIssuer},
		{"no issuer", rs256(t, first, "first", claims(object{"iss": nil})), auth.ReasonIssuer},
		{"an issuer that is no text", rs256(t, first, "first", claims(object{"iss": []string{"issuer"}})), auth.ReasonIssuer},
		{"no algorithm", encode(t, object{"alg": "none", "kid": "first"}) + "." + encode(t, c) + ".", auth.ReasonAlgorithm},
		{"HS256 with a secret", token(t, object{"alg": "HS256", "kid": "first"}, c), auth.ReasonAlgorithm},
		{"RS384", rs256WithHeader(t, object{"alg": "RS384", "kid": "first"}, c), auth.ReasonAlgorithm},
		{"PS256", rs256WithHeader(t, object{"alg": "PS256", "kid": "first"}, c), auth.ReasonAlgorithm},
		{"a signature that is cut", good[:len(good)-2], auth.ReasonSignature},
		{"a signature of something else", replacePart(good, 1, encode(t, claims(object{"iss": "issuer", "tid": "ops"}))), auth.ReasonSignature},
	} {
		t.Run(test.name, func(t *testing.T) { want(t, a, test.token, test.reason) })
	}
	for i, public := range publicForms(t) {
		text := encode(t, object{"alg": "HS256", "kid": "first"}) + "." + encode(t, c)
		mac := hmac.New(sha256.New, public)
		mac.Write([]byte(text))
		forged := text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
		if reasonOf(t, a, forged) != auth.ReasonAlgorithm {
			t.Errorf("form %d of the public key works as a secret", i)
		}
	}
	alone := open(t, withKeys("issuer", file(t, keySet(t, jwk(&first.PublicKey, "first", nil)))))
	want(t, alone, rs256(t, first, "", c), "")
	want(t, alone, rs256(t, second, "", c), auth.ReasonSignature)
}

// publicForms are texts of the first public key that a careless library takes for a secret.
func publicForms(t *testing.T) [][]byte {
	t.Helper()
	public := &firstKey().PublicKey
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := x509.MarshalPKCS1PublicKey(public)
	return [][]byte{
		der, pkcs1, public.N.Bytes(), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: pkcs1}), {},
	}
}

// A valid token of one issuer is none of another: each has its own keys.
func TestKeySetsBelongToTheirIssuer(t *testing.T) {
	first, second := firstKey(), secondKey()
	c := config()
	c.HMACSecret = nil
	c.JWKS = map[string]string{
		"one": file(t, keySet(t, jwk(&first.PublicKey, "k", nil))),
		"two": file(t, keySet(t, jwk(&second.PublicKey, "k", nil))),
	}
	a := open(t, c)
	want(t, a, rs256(t, first, "k", claims(object{"iss": "one"})), "")
	want(t, a, rs256(t, second, "k", claims(object{"iss": "two"})), "")
	want(t, a, rs256(t, first, "k", claims(object{"iss": "two"})), auth.ReasonSignature)
	want(t, a, rs256(t, second, "k", claims(object{"iss": "one"})), auth.ReasonSignature)
}

// Every change of a byte of a token is noticed.
func TestChangedTokensAreRefused(t *testing.T) {
	a := open(t, config())
	good := hs256(t, claims(nil))
	for i := range good {
		changed := []byte(good)
		changed[i] ^= 1
		if reasonOf(t, a, string(changed)) == "" {
			t.Errorf("a change of byte %d is not noticed", i)
		}
	}
	other := config()
	other.HMACSecret = slices.Concat(secret, []byte("x"))
	want(t, open(t, other), good, auth.ReasonSignature)
}

func TestClausesA13AndA14(t *testing.T) {
	at := now.Unix()
	for _, test := range []struct {
		name   string
		claims object
		after  time.Duration // what the time is later than now
		reason auth.Reason
	}{
		{"a second left", object{"exp": at + 1}, 0, ""},
		{"a nanosecond left", object{"exp": at + 1}, time.Second - 1, ""},
		{"at the end", object{"exp": at}, 0, auth.ReasonExpired},
		{"at the end, later", object{"exp": at + 1}, time.Second, auth.ReasonExpired},
		{"a second ago", object{"exp": at - 1}, 0, auth.ReasonExpired},
		{"long ago", object{"exp": 0}, 0, auth.ReasonExpired},
		{"before all time", object{"exp": -1}, 0, auth.ReasonExpired},
		{"no end", object{"exp": nil}, 0, auth.ReasonExpiryMissing},
		{"null", object{"exp": null}, 0, auth.ReasonTokenMalformed},
		{"a text", object{"exp": fmt.Sprint(at + 60)}, 0, auth.ReasonTokenMalformed},
		{"a fraction", object{"exp": float64(at) + 60.5}, 0, auth.ReasonTokenMalformed},
		{"an exponent", object{"exp": jsonNumber("4e9")}, 0, auth.ReasonTokenMalformed},
		{"more than 64 bits", object{"exp": jsonNumber("92233720368547758080")}, 0, auth.ReasonTokenMalformed},
		{"the largest", object{"exp": jsonNumber("9223372036854775807")}, 0, ""},

		{"valid from now", object{"nbf": at}, 0, ""},
		{"valid since long", object{"nbf": 0}, 0, ""},
		{"valid in a second", object{"nbf": at + 1}, 0, auth.ReasonNotYetValid},
		{"valid in a nanosecond", object{"nbf": at + 1}, time.Second - 1, auth.ReasonNotYetValid},
		{"valid a second later", object{"nbf": at + 1}, time.Second, ""},
		{"valid from a text", object{"nbf": "0"}, 0, auth.ReasonTokenMalformed},
		{"valid from null", object{"nbf": null}, 0, auth.ReasonTokenMalformed},
		{"valid from a fraction", object{"nbf": 0.5}, 0, auth.ReasonTokenMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			time := clock.NewManual(now)
			a, err := auth.New(auth.Options{Config: config(), Limits: bounds.Default(), Clock: time})
			if err != nil {
				t.Fatal(err)
			}
			time.Advance(test.after)
			want(t, a, hs256(t, claims(test.claims)), test.reason)
		})
	}
}

// The time of a token is the time of day, which an operator may set.
func TestTimeOfDayDecides(t *testing.T) {
	time := clock.NewManual(now)
	a, err := auth.New(auth.Options{Config: config(), Limits: bounds.Default(), Clock: time})
	if err != nil {
		t.Fatal(err)
	}
	tomorrow := hs256(t, claims(object{"nbf": now.Unix() + 86_400, "exp": now.Unix() + 86_401}))
	want(t, a, tomorrow, auth.ReasonNotYetValid)
	time.SetWall(now.AddDate(0, 0, 1))
	want(t, a, tomorrow, "")
}

func TestClauseA15(t *testing.T) {
	without, with := open(t, config()), config()
	with.Issuers = []string{"https://id.example", "other"}
	configured := open(t, with)
	for _, test := range []struct {
		name                string
		issuer              any
		without, configured auth.Reason
	}{
		{"empty", "", "", auth.ReasonIssuer},
		{"missing", nil, auth.ReasonIssuer, auth.ReasonIssuer},
		{"null", null, auth.ReasonIssuer, auth.ReasonIssuer},
		{"a number", 0, auth.ReasonIssuer, auth.ReasonIssuer},
		{"an array", []string{""}, auth.ReasonIssuer, auth.ReasonIssuer},
		{"configured", "https://id.example", auth.ReasonIssuer, ""},
		{"the second", "other", auth.ReasonIssuer, ""},
		{"with a slash more", "https://id.example/", auth.ReasonIssuer, auth.ReasonIssuer},
		{"in capitals", "OTHER", auth.ReasonIssuer, auth.ReasonIssuer},
		{"unknown", "x", auth.ReasonIssuer, auth.ReasonIssuer},
	} {
		t.Run(test.name, func(t *testing.T) {
			shown := hs256(t, claims(object{"iss": test.issuer}))
			want(t, without, shown, test.without)
			want(t, configured, shown, test.configured)
		})
	}
}

func TestClauseA16(t *testing.T) {
	other := config()
	other.Audiences = []string{"mine"}
	standard, configured := open(t, config()), open(t, other)
	for _, test := range []struct {
		name                 string
		audience             any
		standard, configured auth.Reason
	}{
		{"fitz", "fitz", "", auth.ReasonAudience},
		{"fitz-broker", "fitz-broker", "", auth.ReasonAudience},
		{"configured", "mine", auth.ReasonAudience, ""},
		{"one of an array", []string{"x", "fitz", "mine"}, "", ""},
		{"an array of one", []string{"fitz"}, "", auth.ReasonAudience},
		{"an array of others", []string{"x", "y"}, auth.ReasonAudience, auth.ReasonAudience},
		{"an empty array", []string{}, auth.ReasonAudience, auth.ReasonAudience},
		{"an array with something else", []any{"fitz", "mine", 1}, auth.ReasonAudience, auth.ReasonAudience},
		{"missing", nil, auth.ReasonAudience, auth.ReasonAudience},
		{"null", null, auth.ReasonAudience, auth.ReasonAudience},
		{"empty", "", auth.ReasonAudience, auth.ReasonAudience},
		{"part of one", "fit", auth.ReasonAudience, auth.ReasonAudience},
		{"in capitals", "FITZ", auth.ReasonAudience, auth.ReasonAudience},
		{"an object", object{"fitz": true}, auth.ReasonAudience, auth.ReasonAudience},
		{"two in one text", "fitz mine", auth.ReasonAudience, auth.ReasonAudience},
	} {
		t.Run(test.name, func(t *testing.T) {
			shown := hs256(t, claims(object{"aud": test.audience}))
			want(t, standard, shown, test.standard)
			want(t, configured, shown, test.configured)
		})
	}
}

func TestClauseA17(t *testing.T) {
	a := open(t, config())
	for name, test := range map[string]struct {
		subject any
		reason  auth.Reason
	}{
		"a text":      {"someone", ""},
		"a space":     {" ", ""},
		"empty":       {"", auth.ReasonSubject},
		"missing":     {nil, auth.ReasonSubject},
		"null":        {null, auth.ReasonSubject},
		"a number":    {1, auth.ReasonSubject},
		"an array":    {[]string{"someone"}, auth.ReasonSubject},
		"true":        {true, auth.ReasonSubject},
		"a long text": {strings.Repeat("x", 1000), ""},
	} {
		t.Run(name, func(t *testing.T) { want(t, a, hs256(t, claims(object{"sub": test.subject})), test.reason) })
	}
}

// iat, unknown claims and typ play no part, whatever they are.
func TestClausesA18AndA19(t *testing.T) {
	a := open(t, config())
	for _, value := range []any{0, -1, now.Unix() + 1000, "soon", null, []int{1}, object{"x": 1}, true, 1.5} {
		want(t, a, hs256(t, claims(object{"iat": value})), "")
		want(t, a, hs256(t, claims(object{"jti": value, "unknown": value, "": value})), "")
		want(t, a, token(t, object{"alg": "HS256", "typ": value, "cty": value, "unknown": value}, claims(nil)), "")
	}
	want(t, a, token(t, object{"alg": "HS256"}, claims(nil)), "")
	want(t, a, token(t, object{"alg": "HS256", "typ": "at+jwt"}, claims(nil)), "")
}

// No refusal carries anything of its token.
func TestRefusalsAreFixedTexts(t *testing.T) {
	a := open(t, config())
	const mark = "MARKER"
	for _, shown := range []string{
		mark, mark + "." + mark + "." + mark, hs256(t, claims(object{"iss": mark})), hs256(t, claims(object{"tid": mark})),
		hs256(t, claims(object{"permissions": []string{mark}})), hs256(t, claims(object{"aud": mark})), token(t, object{"alg": mark}, claims(nil)),
		strings.Repeat(mark, int(bounds.Default().TokenBytesMax)),
	} {
		reason := reasonOf(t, a, shown)
		if !slices.Contains(auth.Reasons, reason) {
			t.Errorf("reason %q is none of the fixed ones", reason)
		}
	}
	for _, reason := range auth.Reasons {
		if len("connect failed: ")+len(reason) > bounds.CloseReasonMax {
			t.Errorf("reason %q would be cut", reason)
		}
	}
}

func replacePart(token string, i int, part string) string {
	parts := strings.Split(token, ".")
	parts[i] = part
	return strings.Join(parts, ".")
}
