package clock_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
)

func TestInstantAddStopsAtTheEnds(t *testing.T) {
	for _, c := range []struct {
		from clock.Instant
		add  time.Duration
		want clock.Instant
	}{
		{0, time.Second, clock.Instant(time.Second)},
		{clock.Never - 1, time.Second, clock.Never},
		{clock.Never, math.MaxInt64, clock.Never},
		{math.MinInt64 + 1, -time.Second, math.MinInt64},
		{5, -3, 2},
	} {
		if got := c.from.Add(c.add); got != c.want {
			t.Errorf("%d + %v = %d, want %d", c.from, c.add, got, c.want)
		}
	}
	if got := clock.Instant(7).Sub(5); got != 2 {
		t.Errorf("7 - 5 = %v", got)
	}
}

func TestSystemGoesForwardAndCalls(t *testing.T) {
	c := clock.System()
	before := c.Now()
	called := make(chan clock.Instant, 1)
	timer := c.AfterFunc(time.Millisecond, func() { called <- c.Now() })
	if at := <-called; at.Sub(before) < time.Millisecond {
		t.Errorf("called after %v", at.Sub(before))
	}
	if timer.Stop() {
		t.Error("Stop after the call reports a pending call")
	}
	if timer.Reset(time.Hour) || !timer.Stop() {
		t.Error("Reset did not set the timer again")
	}
	if d := time.Since(c.Wall()); d < 0 || d > time.Minute {
		t.Errorf("wall clock is %v away", d)
	}
}

func TestManualCallsInOrderOfTime(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	c := clock.NewManual(start)
	var calls []string
	note := func(name string) func() {
		return func() { calls = append(calls, name+"@"+time.Duration(c.Now()).String()) }
	}
	c.AfterFunc(3*time.Second, note("late"))
	c.AfterFunc(time.Second, func() {
		note("first")()
		c.AfterFunc(time.Second, note("nested"))
	})
	c.AfterFunc(time.Second, note("second"))
	stopped := c.AfterFunc(time.Second, note("stopped"))
	if !stopped.Stop() || stopped.Stop() {
		t.Error("Stop must report a pending call exactly once")
	}
	if d, ok := c.Next(); !ok || d != time.Second || c.Pending() != 3 {
		t.Errorf("next in %v (%v), %d pending", d, ok, c.Pending())
	}
	c.Advance(2500 * time.Millisecond)
	if want := []string{"first@1s", "second@1s", "nested@2s"}; !slices.Equal(calls, want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	if got := c.Wall(); !got.Equal(start.Add(2500 * time.Millisecond)) {
		t.Errorf("wall clock %v", got)
	}
	c.Advance(time.Second)
	if len(calls) != 4 || calls[3] != "late@3s" {
		t.Errorf("calls %v", calls)
	}
	if _, ok := c.Next(); ok {
		t.Error("a timer is left")
	}
}

// L-14: setting the time of day moves no monotonic time and no timer.
func TestManualWallStepChangesNoTimer(t *testing.T) {
	c := clock.NewManual(time.Unix(0, 0))
	called := 0
	timer := c.AfterFunc(time.Minute, func() { called++ })
	for _, step := range []time.Duration{24 * time.Hour, -48 * time.Hour} {
		c.SetWall(c.Wall().Add(step))
		c.Advance(0)
	}
	if called != 0 || c.Now() != 0 {
		t.Fatalf("%d calls at %d", called, c.Now())
	}
	if !timer.Reset(time.Second) {
		t.Error("Reset does not report the pending call")
	}
	c.Advance(time.Second)
	if called != 1 {
		t.Errorf("%d calls", called)
	}
	timer.Reset(-time.Second)
	c.Advance(0)
	if called != 2 {
		t.Errorf("%d calls after a reset into the past", called)
	}
}
