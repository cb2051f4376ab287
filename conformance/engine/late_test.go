package engine

import (
	"context"
	"testing"

	"github.com/fitzwire/fitz/conformance/trace"
)

// A frame that was still in a socket when settle came is waited for; what never comes stays missing, and a step that is repeated anyway
// does not wait.
func TestOnceMore(t *testing.T) {
	log := trace.New("c1", nil, trace.DefaultLimits, nil)
	looks := 0
	one := func() error {
		looks++
		if n, err := log.Count(trace.Filter{}); err != nil || n != 1 {
			return failed(ReasonExpectation, "%d frames (%v)", n, err)
		}
		return nil
	}
	if err := onceMore(context.WithValue(t.Context(), repeated{}, true), log, one); err == nil || looks != 1 {
		t.Fatalf("repeated: %v after %d looks", err, looks)
	}
	if err := onceMore(t.Context(), log, one); err == nil {
		t.Fatal("nothing came")
	}
	looks = 0
	late := func() error {
		err := one()
		if looks == 1 {
			log.Deliver(log.Add(trace.Entry{Kind: trace.Frame, Message: "late"}), nil)
		}
		return err
	}
	if err := onceMore(t.Context(), log, late); err != nil || looks != 2 {
		t.Fatalf("late: %v after %d looks", err, looks)
	}
}
