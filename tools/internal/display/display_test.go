package display

import (
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// L-10: nothing that a terminal would act upon gets through.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"plain owner-1 äöü 日本 😀": "plain owner-1 äöü 日本 😀",
		"a\x1b[31mb":             `a\u001b[31mb`,
		"a\nb\tc\x00":            `a\u000ab\u0009c\u0000`,
		"a\u2028b\u2029c\u0085":  `a\u2028b\u2029c\u0085`,
		"a\u202egnp\u2066x":      `a\u202egnp\u2066x`,
		"zero\u200bwidth\ufeff":  `zero\u200bwidth\ufeff`,
		"\u061c\u200f":           `\u061c\u200f`,
		"tag\U000e0041":          `tag\U000e0041`,
		"bad\xff\xc3":            `bad\xff\xc3`,
		"\ufffd":                 "\ufffd",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestTextIsAlwaysPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		out := Text(in)
		for _, r := range out {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q shows %U", in, r)
			}
		}
		if !utf8.ValidString(out) {
			t.Fatalf("%q is not UTF-8", out)
		}
	})
}

// C-66
func TestOwner(t *testing.T) {
	for in, want := range map[string]string{
		"session:17:worker": "worker", "session:17:a:b": "a:b", "session:x:worker": "session:x:worker", "session:17": "session:17",
		"session::worker": "session::worker", "worker": "worker", "session:1:a\nb": `a\u000ab`,
	} {
		if got := Owner(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
