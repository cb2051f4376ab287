package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

// What an error means for the exit code, and that it is one line, whatever text of others it holds (L-10).
func TestReport(t *testing.T) {
	refusal := func(code fitz.Code) error { return &fitz.Error{Code: code, Message: "say\nso\x1b[2J"} }
	for _, c := range []struct {
		err  error
		code int
		line string
	}{
		{nil, exitOK, ""},
		{fmt.Errorf("write: %w", syscall.EPIPE), exitOK, ""},
		{ended(7), 7, ""},
		{usage("--x is %d", 1), exitUsage, "fitz: --x is 1\n"},
		{&failure{code: exitNotFound, err: refusal(fitz.CodeConnLost)}, exitNotFound, `fitz: conn.lost: say\u000aso\u001b[2J` + "\n"},
		{refusal(fitz.CodeConfigInvalid), exitUsage, `fitz: config.invalid: say\u000aso\u001b[2J` + "\n"},
		{refusal(fitz.CodeConnRefused), exitUnavailable, ""},
		{refusal(fitz.CodeConnLost), exitUnavailable, ""},
		{refusal(fitz.CodeConnGoaway), exitUnavailable, ""},
		{refusal(fitz.CodeAuthRejected), exitUnavailable, ""},
		{fmt.Errorf("listing: %w", refusal(fitz.CodeRequestTimeout)), exitUnavailable, ""},
		{refusal(fitz.CodeLeaseHeld), exitFailure, ""},
		{refusal(fitz.CodeProtocolViolation), exitFailure, ""},
		{&fitz.LeaseLost{Route: "lease://r/a/k", Reason: fitz.LeaseLostExpired}, exitLost, `fitz: lease.lost "lease://r/a/k": expired` + "\n"},
		{errors.New("other"), exitFailure, "fitz: other\n"},
	} {
		var stderr bytes.Buffer
		if code := report(&stderr, c.err); code != c.code {
			t.Errorf("%v: code %d, want %d", c.err, code, c.code)
		}
		silent := c.code == exitOK || c.err != nil && strings.HasPrefix(c.err.Error(), "exit code")
		if got := stderr.String(); c.line != "" && got != c.line || silent != (got == "") || strings.Count(got, "\n") > 1 {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}
