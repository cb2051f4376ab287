// Package clock is the only source of time of the broker. Deadlines are monotonic (L-14): an [Instant] never jumps when the wall
// clock is set. [System] is the clock of the process; [Manual] is the clock of a test and moves only when it is told to.
package clock

import (
	"math"
	"time"
)

// Instant is a point of monotonic time, in nanoseconds since the start of the process. Instants of two processes are unrelated.
type Instant int64

// Never is later than every deadline.
const Never Instant = math.MaxInt64

// Add returns the instant d after i. It stops at the ends of the range instead of wrapping.
func (i Instant) Add(d time.Duration) Instant {
	sum := i + Instant(d)
	switch {
	case d > 0 && sum < i:
		return Never
	case d < 0 && sum > i:
		return math.MinInt64
	}
	return sum
}

// Sub returns the time from o to i.
func (i Instant) Sub(o Instant) time.Duration { return time.Duration(i - o) }

// Clock tells the time and calls back. Its methods may be called from any goroutine.
type Clock interface {
	// Now returns the monotonic time.
	Now() Instant
	// Wall returns the time of day, which may jump. It is for people: nothing is decided by it (L-14).
	Wall() time.Time
	// AfterFunc calls f once, in a goroutine of the clock, when d has passed. f must not block for long.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call of Clock.AfterFunc.
type Timer interface {
	// Stop prevents the call. False means that the call has begun or was stopped before.
	Stop() bool
	// Reset makes the timer call after d from now, whether or not it has called before. True means that a call was pending.
	Reset(d time.Duration) bool
}

var processStart = time.Now()

type system struct{}

// System returns the clock of the process.
func System() Clock { return system{} }

func (system) Now() Instant                              { return Instant(time.Since(processStart)) }
func (system) Wall() time.Time                           { return time.Now() }
func (system) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
