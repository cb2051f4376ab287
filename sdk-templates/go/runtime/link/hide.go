package link

import (
	"errors"
	"regexp"
	"strings"
)

// hidden stands where something secret was.
const hidden = "..."

// tokenForm finds what looks like a signed token: three parts, the first of which begins like the encoding of a JSON object.
var tokenForm = regexp.MustCompile(`ey[A-Za-z0-9_-]{6,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`)

// shortToken is the length up to which a token is not looked for in texts: it would be found in words.
const shortToken = 4

func hideText(text, token string) string {
	if len(token) > shortToken {
		text = strings.ReplaceAll(text, token, hidden)
	}
	return tokenForm.ReplaceAllString(text, hidden)
}

// discreet is an error of somebody else without its secrets. It compares like the error itself, which nobody gets to see.
type discreet struct {
	text  string
	cause error
}

func (d *discreet) Error() string        { return d.text }
func (d *discreet) Is(target error) bool { return errors.Is(d.cause, target) }
func (d *discreet) As(target any) bool   { return errors.As(d.cause, target) }

// HideToken returns an error that compares like err and in whose text neither the token is nor anything that looks like one: tokens are never
// shown (E-03), and who made err is not known to keep to that.
func HideToken(err error, token string) error {
	return &discreet{hideText(err.Error(), token), err}
}

// withoutToken is the end of a session in whose text the token is not: what the peer says may hold what it was told.
func withoutToken(err error, token string) error {
	var e *Error
	if !errors.As(err, &e) || hideText(e.Error(), token) == e.Error() {
		return err
	}
	out := *e
	out.Reason = hideText(e.Reason, token)
	if e.Err != nil {
		out.Err = HideToken(e.Err, token)
	}
	return &out
}

// HideAddress returns an address without user, query and fragment, which hold secrets where they are used, and which no address of Dial has.
func HideAddress(address string) string {
	if at := strings.IndexAny(address, "?#"); at >= 0 {
		address = address[:at+1] + hidden
	}
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		scheme, rest = "", address
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = hidden + rest[at:]
	}
	if !ok {
		return rest
	}
	return scheme + "://" + rest
}
