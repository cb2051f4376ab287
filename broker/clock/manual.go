package clock

import (
	"sync"
	"time"
)

// Manual is a clock for tests. It stands still except in Advance, which runs the calls that become due in the goroutine of the
// caller, in order of time, and calls of one instant in the order in which they were set.
type Manual struct {
	mu     sync.Mutex
	now    Instant
	wall   time.Time
	serial uint64
	timers []*manualTimer
}

type manualTimer struct {
	clock   *Manual
	due     Instant
	serial  uint64 // order among timers of one instant
	pending bool
	f       func()
}

// NewManual returns a clock whose monotonic time is zero and whose time of day is wall.
func NewManual(wall time.Time) *Manual { return &Manual{wall: wall} }

// Now returns the monotonic time.
func (m *Manual) Now() Instant {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Wall returns the time of day. Advance moves it along.
func (m *Manual) Wall() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall
}

// SetWall sets the time of day, as an operator or a time server does. Monotonic time and timers do not notice.
func (m *Manual) SetWall(wall time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall = wall
}

// AfterFunc makes Advance call f when it reaches d from now. A d that is not positive is reached by the next Advance, even by
// one of zero.
func (m *Manual) AfterFunc(d time.Duration, f func()) Timer {
	t := &manualTimer{clock: m, f: f}
	t.Reset(d)
	return t
}

// Pending returns the number of timers that are set.
func (m *Manual) Pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.timers)
}

// Next returns the time until the earliest timer, false when none is set.
func (m *Manual) Next() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.earliest()
	if first < 0 {
		return 0, false
	}
	return max(0, m.timers[first].due.Sub(m.now)), true
}

// Advance moves the time forward by d, which must not be negative. Timers that are set by the calls are served too when they
// are due within d.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	end := m.now.Add(max(0, d))
	for {
		first := m.earliest()
		if first < 0 || m.timers[first].due > end {
			break
		}
		t := m.timers[first]
		m.move(t.due)
		m.remove(t)
		m.mu.Unlock()
		t.f()
		m.mu.Lock()
	}
	m.move(end)
	m.mu.Unlock()
}

func (m *Manual) move(to Instant) {
	if to > m.now {
		m.wall = m.wall.Add(to.Sub(m.now))
		m.now = to
	}
}

func (m *Manual) earliest() int {
	first := -1
	for i, t := range m.timers {
		if first < 0 || t.due < m.timers[first].due ||
			t.due == m.timers[first].due && t.serial < m.timers[first].serial {
			first = i
		}
	}
	return first
}

func (m *Manual) remove(t *manualTimer) bool {
	for i, other := range m.timers {
		if other == t {
			m.timers = append(m.timers[:i], m.timers[i+1:]...)
			t.pending = false
			return true
		}
	}
	return false
}

// Stop implements Timer.
func (t *manualTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.clock.remove(t)
}

// Reset implements Timer.
func (t *manualTimer) Reset(d time.Duration) bool {
	m := t.clock
	m.mu.Lock()
	defer m.mu.Unlock()
	was := t.pending
	if !was {
		m.timers = append(m.timers, t)
	}
	m.serial++
	t.due, t.serial, t.pending = m.now.Add(d), m.serial, true
	return was
}
