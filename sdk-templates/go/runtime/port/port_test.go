package port

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSystemGoesForward(t *testing.T) {
	c := System()
	a := c.Now()
	if b := c.Now(); a <= 0 || b < a {
		t.Fatalf("%v, then %v", a, b)
	}
	called := make(chan time.Duration)
	began := c.Now()
	c.AfterFunc(5*time.Millisecond, func() { called <- c.Now() })
	if at := <-called; at-began < 5*time.Millisecond {
		t.Errorf("called early, after %v", at-began)
	}
}

// bubbleSystem is a system clock on the time of a bubble, with time in which no timer runs.
func bubbleSystem(suspended *atomic.Int64) *system {
	began := time.Now()
	return &system{now: func() time.Duration { return time.Since(began) + time.Duration(suspended.Load()) }}
}

// L-103, L-104: time in which no timer ran counts; a call comes at most one look later.
func TestSystemNoticesSuspendedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		c := bubbleSystem(&suspended)
		began := time.Now()
		called := make(chan struct{})
		c.AfterFunc(time.Hour, func() { close(called) })
		synctest.Wait()
		suspended.Store(int64(2 * time.Hour))
		<-called
		if took := time.Since(began); took > tick {
			t.Errorf("noticed after %v", took)
		}
	})
}

// Calls come in order and never early; a stopped one never comes; nothing wakes up when nothing is pending.
func TestSystemOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var suspended atomic.Int64
		c := bubbleSystem(&suspended)
		var got []int
		at := map[int]time.Duration{}
		note := func(i int) func() { return func() { got = append(got, i); at[i] = c.Now() } }
		c.AfterFunc(3*time.Second, note(3))
		stopped := c.AfterFunc(2*time.Second, note(2))
		c.AfterFunc(500*time.Millisecond, note(1))
		c.AfterFunc(-time.Second, note(0))
		if !stopped.Stop() || stopped.Stop() {
			t.Error("Stop does not say whether the call was pending")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !slices.Equal(got, []int{0, 1, 3}) || at[1] != 500*time.Millisecond || at[3] != 3*time.Second {
			t.Errorf("%v at %v", got, at)
		}
	})
}

// A manual clock makes the same calls at the same instants, however its moves are cut.
func TestManualMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delays := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 10).Draw(t, "delays")
		run := func(moves []int) (calls []time.Duration) {
			var m Manual
			for _, d := range delays {
				m.AfterFunc(time.Duration(d), func() { calls = append(calls, m.Now()) })
			}
			for _, move := range moves {
				m.Advance(time.Duration(move))
			}
			if m.Pending() != 0 {
				t.Fatalf("%d calls are pending", m.Pending())
			}
			return calls
		}
		whole := run([]int{20})
		first := rapid.IntRange(0, 20).Draw(t, "first move")
		if parts := run([]int{first, 20 - first}); !slices.Equal(whole, parts) {
			t.Fatalf("%v, and cut %v", whole, parts)
		}
		slices.Sort(delays)
		for i, d := range delays {
			if whole[i] != time.Duration(d) {
				t.Fatalf("call %d at %v, want %v", i, whole[i], d)
			}
		}
	})
}

// Jump makes no calls; they come late.
func TestManualJump(t *testing.T) {
	var m Manual
	called := time.Duration(0)
	m.AfterFunc(time.Second, func() { called = m.Now() })
	if next, ok := m.Next(); !ok || next != time.Second {
		t.Error(next, ok)
	}
	m.Jump(time.Minute)
	if called != 0 {
		t.Fatal("called while stopped")
	}
	m.Advance(0)
	if called != time.Minute {
		t.Errorf("called at %v", called)
	}
}

func TestSleepAndTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m Manual
		result := make(chan error, 1)
		go func() { result <- Sleep(t.Context(), &m, time.Second) }()
		synctest.Wait()
		m.Advance(time.Second)
		if err := <-result; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { result <- Sleep(ctx, &m, time.Second) }()
		synctest.Wait()
		cancel()
		if err := <-result; err != context.Canceled || m.Pending() != 0 {
			t.Error(err, m.Pending())
		}
		cause := errors.New("cause")
		ctx, cancel = WithTimeout(t.Context(), &m, time.Second, cause)
		m.Advance(time.Second)
		if <-ctx.Done(); context.Cause(ctx) != cause {
			t.Error(context.Cause(ctx))
		}
		cancel()
		ctx, cancel = WithTimeout(t.Context(), &m, time.Second, cause)
		cancel()
		if <-ctx.Done(); context.Cause(ctx) != context.Canceled || m.Pending() != 0 {
			t.Error(context.Cause(ctx), m.Pending())
		}
	})
}

// L-96: the spread of a renewal.
func TestSpread(t *testing.T) {
	for _, c := range []struct{ random, want float64 }{{0, 0.9}, {0.5, 1}, {1, 1.1}} {
		if got := Rand(func() float64 { return c.random }).Spread(0.1); got < c.want-1e-9 || got > c.want+1e-9 {
			t.Errorf("%v: %v, want %v", c.random, got, c.want)
		}
	}
	for range 1000 {
		if r := SystemRand(); r < 0 || r >= 1 {
			t.Fatal(r)
		}
	}
}

func TestHooksMayBeEmpty(t *testing.T) {
	var h Hooks
	ctx, done := h.Start(t.Context(), Operation{})
	done(nil)
	h.Tell(Event{})
	if ctx != t.Context() {
		t.Error("another context")
	}
}

// A counted clock counts each call until it begins or is stopped, once.
func TestCounted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Manual
		c := NewCounted(&m)
		var timers []Timer
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				timers = append(timers, c.AfterFunc(time.Duration(rapid.IntRange(0, 5).Draw(t, "delay")), func() {}))
			},
			"stop": func(t *rapid.T) {
				if len(timers) > 0 {
					rapid.SampledFrom(timers).Draw(t, "timer").Stop()
				}
			},
			"advance": func(t *rapid.T) { m.Advance(time.Duration(rapid.IntRange(0, 3).Draw(t, "by"))) },
			"": func(t *rapid.T) {
				if c.Pending() != m.Pending() {
					t.Fatalf("%d, want %d", c.Pending(), m.Pending())
				}
			},
		})
	})
}
