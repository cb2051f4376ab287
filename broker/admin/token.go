package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/fitzwire/fitz/generated/go/settings"
)

// Codes and headers of a request without the admin token.
const (
	tokenInvalid = "token.invalid"
	challenge    = `Bearer realm="fitz admin"`
	scheme       = "Bearer "
)

// open reports whether a path needs no token: what asks for health is often not able to send one, and there is nothing to learn.
func open(path string) bool {
	return path == settings.AdminPathHealthz || path == settings.AdminPathReadyz
}

// authorized reports whether a request carries the token. It takes as long for a wrong token as for the right one, however much of it
// is right.
func authorized(r *http.Request, token string) bool {
	given := r.Header.Values("Authorization")
	if len(given) != 1 || len(given[0]) < len(scheme) || !strings.EqualFold(given[0][:len(scheme)], scheme) {
		return false
	}
	a, b := sha256.Sum256([]byte(given[0][len(scheme):])), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// unauthorized refuses a request without the token.
func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", challenge)
	refuse(w, http.StatusUnauthorized, tokenInvalid, "", "the admin token is missing or wrong")
}
