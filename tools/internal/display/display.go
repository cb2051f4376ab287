// Package display shows text that other people chose: routes, owners and reasons are data, and must not be able to change what a
// terminal shows around them (L-10).
package display

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with everything escaped that is not visible as itself: control characters, line and paragraph separators, and
// characters that change the direction or the shape of the text around them. Bytes that are not UTF-8 are escaped one by one.
func Text(s string) string {
	if !needsEscape(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case hidden(r) && r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		case hidden(r):
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func needsEscape(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, hidden)
}

// hidden reports whether a character is not visible as itself: Cc, Cf (which holds the bidirectional controls), Zl, Zp, and unusual
// spaces.
func hidden(r rune) bool {
	return r != ' ' && !unicode.IsPrint(r)
}

// Owner shows an owner id. Brokers of older generations put the number of a session in front, which means nothing to people (C-66).
func Owner(owner string) string {
	rest, ok := strings.CutPrefix(owner, "session:")
	if !ok {
		return Text(owner)
	}
	if number, name, ok := strings.Cut(rest, ":"); ok && digits(number) {
		return Text(name)
	}
	return Text(owner)
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
