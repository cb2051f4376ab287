package fitz_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

// Errors.md sections 3 and 4: every error of the package has the class of its code; unknown codes are those of a server.
func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want fitz.Class
	}{
		{&fitz.Error{Code: fitz.CodeLeaseHeld}, fitz.ClassLeaseHeld},
		{fmt.Errorf("wrapped: %w", &fitz.Error{Code: fitz.CodeLeaseInvalidFence}), fitz.ClassLeaseFenced},
		{fitz.ErrConfigInvalid, fitz.ClassConfigError},
		{&fitz.Error{Code: fitz.CodeRequestTimeout}, fitz.ClassTimeoutError},
		{&fitz.LeaseLost{Reason: fitz.LeaseLostExpired}, fitz.ClassLeaseLost},
		{&fitz.SubscriptionLost{}, fitz.ClassSubscriptionLost},
		{&fitz.Error{Code: fitz.CodeLeaseBadRequest, Op: fitz.OpLeaseSubscribe}, fitz.ClassLeaseBadRequest}, // no broker said it
		{&fitz.Error{Code: "lease"}, fitz.ClassLeaseError},                                                  // E-05
		{&fitz.Error{Code: "kv"}, fitz.ClassKvError},
		{&fitz.Error{Code: "5099"}, fitz.ClassServerError}, // E-04
		{context.Canceled, ""},
		{errors.New("other"), ""},
		{nil, ""},
	} {
		if got := fitz.ClassOf(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
	if got := (&fitz.Error{Code: fitz.CodeConnLost}).Class(); got != fitz.ClassConnectionLost {
		t.Error(got)
	}
}

func TestClassesAreATree(t *testing.T) {
	for _, c := range []struct {
		class, other fitz.Class
		want         bool
	}{
		{fitz.ClassLeaseHeld, fitz.ClassLeaseHeld, true},
		{fitz.ClassLeaseHeld, fitz.ClassLeaseError, true},
		{fitz.ClassLeaseHeld, fitz.ClassServerError, true},
		{fitz.ClassLeaseHeld, fitz.ClassFitzError, true},
		{fitz.ClassLeaseError, fitz.ClassLeaseHeld, false},
		{fitz.ClassConnectionLost, fitz.ClassServerError, false},
		{"", fitz.ClassFitzError, false},
	} {
		if got := c.class.Is(c.other); got != c.want {
			t.Errorf("%s in %s: %v", c.class, c.other, got)
		}
	}
}

// Errors.md section 4: the end of a lease and of a subscription has the retry class of its condition, not that of its cause.
func TestRetryAndOutcomeOf(t *testing.T) {
	refusal := &fitz.Error{Code: fitz.CodeLeaseHeld, Retry: fitz.RetryBackoff, Outcome: fitz.OutcomeRejected}
	for _, c := range []struct {
		err     error
		retry   fitz.Retry
		outcome fitz.Outcome
	}{
		{fmt.Errorf("wrapped: %w", refusal), fitz.RetryBackoff, fitz.OutcomeRejected},
		{&fitz.LeaseLost{Err: refusal}, fitz.RetryNever, ""},
		{&fitz.SubscriptionLost{Err: refusal}, fitz.RetryImmediate, ""},
		{fitz.ErrConfigInvalid, fitz.RetryNever, fitz.OutcomeRejected},
		{context.Canceled, "", ""},
		{nil, "", ""},
	} {
		if retry, outcome := fitz.RetryOf(c.err), fitz.OutcomeOf(c.err); retry != c.retry || outcome != c.outcome {
			t.Errorf("%v: %q %q", c.err, retry, outcome)
		}
	}
}
