package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"github.com/fitzwire/fitz/broker/internal/mutant"
)

// Token is a compact token taken apart. Nothing of it is verified.
type Token struct {
	// Header and Claims are its JSON objects. Numbers are json.Number.
	Header, Claims map[string]any
	claims         []byte // the text of Claims
	signed         string // what the signature is of
	signature      []byte
}

// encoding is base64url without padding; bits that stand for nothing must be zero.
var encoding = base64.RawURLEncoding.Strict()

// Decode takes a compact token apart. The error names a reason and nothing of the token. most bounds the token in bytes, depth its JSON
// in levels.
func Decode(token []byte, most, depth int64) (*Token, error) {
	t, reason := open(token, most, depth)
	if reason == "" {
		reason = t.decodeClaims(depth)
	}
	if reason != "" {
		return nil, &Refusal{reason}
	}
	return t, nil
}

// open takes a token apart and decodes its header. The claims are only decoded when they are needed: with a secret that is after the
// signature was checked, so that a token that anybody can write costs next to nothing.
func open(token []byte, most, depth int64) (*Token, Reason) {
	switch {
	case len(token) == 0:
		return nil, ReasonTokenMissing
	case int64(len(token)) > most:
		return nil, ReasonTokenTooLong
	}
	parts := bytes.SplitN(token, []byte("."), 4)
	if len(parts) != 3 {
		return nil, ReasonTokenMalformed
	}
	var raw [3][]byte
	for i, part := range parts {
		var ok bool
		if raw[i], ok = decodePart(part); !ok {
			return nil, ReasonTokenMalformed
		}
	}
	t := &Token{claims: raw[1], signed: string(token[:len(parts[0])+1+len(parts[1])]), signature: raw[2]}
	var err error
	if t.Header, err = decodeObject(raw[0], depth); err != nil {
		return nil, ReasonTokenMalformed
	}
	// An extension that must be understood is not (RFC 7515 section 4.1.11).
	if _, critical := t.Header["crit"]; critical {
		return nil, ReasonTokenMalformed
	}
	return t, ""
}

func (t *Token) decodeClaims(depth int64) Reason {
	var err error
	if t.Claims, err = decodeObject(t.claims, depth); err != nil {
		return ReasonTokenMalformed
	}
	return ""
}

// decodePart decodes one part. Line breaks, which the decoder of the library skips, are refused.
func decodePart(part []byte) ([]byte, bool) {
	if bytes.ContainsAny(part, "\r\n") {
		return nil, false
	}
	raw, err := encoding.AppendDecode(nil, part)
	return raw, err == nil
}

// text returns a claim or header that is a string.
func text(object map[string]any, name string) (string, bool) {
	value, ok := object[name].(string)
	return value, ok
}

// checkTime checks exp and nbf without leeway. Both are whole seconds, so the whole seconds of now decide.
func checkTime(claims map[string]any, now time.Time) Reason {
	if _, present := claims["exp"]; !present {
		return ReasonExpiryMissing
	}
	expires, ok := seconds(claims["exp"])
	if !ok {
		return ReasonTokenMalformed
	}
	if expires <= now.Unix() && !mutant.On("auth.expiry-ignored") {
		return ReasonExpired
	}
	if _, present := claims["nbf"]; !present {
		return ""
	}
	begins, ok := seconds(claims["nbf"])
	switch {
	case !ok:
		return ReasonTokenMalformed
	case now.Unix() < begins && !mutant.On("auth.not-before-ignored"):
		return ReasonNotYetValid
	default:
		return ""
	}
}

// seconds reads an integer. A number with a fraction or an exponent is none.
func seconds(value any) (int64, bool) {
	number, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	return n, err == nil
}

// hasAudience reports whether aud, a string or an array of strings, names one of them.
func hasAudience(value any, accepted map[string]bool) bool {
	switch aud := value.(type) {
	case string:
		return accepted[aud]
	case []any:
		found := false
		for _, member := range aud {
			name, ok := member.(string)
			if !ok {
				return false
			}
			found = found || accepted[name]
		}
		return found
	default:
		return false
	}
}
