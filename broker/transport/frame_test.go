package transport

import (
	"encoding/hex"
	"testing"
)

// A WebSocket session waits for the head of a frame and the first byte of its payload with a small stack (D-1): the head alone,
// which may announce the largest message, must not lead into the parser, and a frame without a payload must.
func TestFrameBegun(t *testing.T) {
	for _, c := range []struct {
		bytes string
		want  bool
	}{
		{"", false},
		{"82", false},
		{"8280", false},
		{"828001020304", true},
		{"828501020304", false},
		{"82850102030461", true},
		{"0285010203", false},
		{"0085", true},
		{"8185", true},
		{"82fe0100010203", false},
		{"82fe010001020304", false},
		{"82fe01000102030461", true},
		{"82ff000000000010000001020304", false},
		{"82ff00000000001000000102030461", true},
		// Heads that the parser refuses, or answers, without a payload.
		{"8205", true},
		{"c285", true},
		{"8985", true},
		{"8885", true},
		{"82ff80", false},
	} {
		b, err := hex.DecodeString(c.bytes)
		if err != nil {
			t.Fatal(err)
		}
		if got := frameBegun(b); got != c.want {
			t.Errorf("frameBegun(%s) = %t", c.bytes, got)
		}
	}
}
