// Package devtoken mints tokens for development and tests: what an identity provider does in production. The broker does not use it.
package devtoken

import (
	"errors"
	"maps"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Claims are what a token says. The zero value of a field leaves its claim away, except Issuer, which is always written: a broker
// without a configured issuer wants it present and empty.
type Claims struct {
	Issuer, Subject string
	// Audience is written as a string when it has one member, as an array when it has more.
	Audience           []string
	Expires, NotBefore time.Time
	// Family is the value of the claim `tid`.
	Family string
	// Permissions are the entries of the claim `permissions`.
	Permissions []string
	// Extra are further claims. They win over those above.
	Extra map[string]any
}

// Mint returns a compact token signed with HS256.
func Mint(secret []byte, c Claims) (string, error) {
	if len(secret) == 0 {
		return "", errors.New("no secret")
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, c.claims()).SignedString(secret)
}

func (c Claims) claims() jwt.MapClaims {
	claims := jwt.MapClaims{"iss": c.Issuer}
	set := func(present bool, name string, value any) {
		if present {
			claims[name] = value
		}
	}
	set(c.Subject != "", "sub", c.Subject)
	set(len(c.Audience) > 1, "aud", c.Audience)
	if len(c.Audience) == 1 {
		claims["aud"] = c.Audience[0]
	}
	set(!c.Expires.IsZero(), "exp", c.Expires.Unix())
	set(!c.NotBefore.IsZero(), "nbf", c.NotBefore.Unix())
	set(c.Family != "", "tid", c.Family)
	set(c.Permissions != nil, "permissions", c.Permissions)
	maps.Copy(claims, c.Extra)
	return claims
}
