package port

import (
	"sync"
	"time"
)

// Manual is a clock that moves only when it is told to. The zero value stands at 0.
type Manual struct {
	mu      sync.Mutex
	now     time.Duration
	pending schedule
}

// Now implements Clock.
func (m *Manual) Now() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// AfterFunc implements Clock. A call that is due at once comes with the next move of the clock, a move by 0 included.
func (m *Manual) AfterFunc(d time.Duration, f func()) Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &manualTimer{m, m.pending.add(m.now+max(d, 0), f)}
}

// Advance moves the clock forward by d. Every call that becomes due is made in the goroutine of the caller, at its instant and in order.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	target := m.now + d
	for {
		e := m.pending.take(target)
		if e == nil {
			break
		}
		m.now = max(m.now, e.at)
		m.mu.Unlock()
		e.f()
		m.mu.Lock()
	}
	m.now = max(m.now, target)
	m.mu.Unlock()
}

// Jump moves the clock forward by d at once, as it looks to a process that was stopped meanwhile. Calls that became due are not made;
// Advance makes them, late.
func (m *Manual) Jump(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now += d
}

// Pending returns the number of calls that are not made yet.
func (m *Manual) Pending() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pending.entries)
}

// Next returns how long it is until the earliest pending call; 0 when it is due. False: none is pending.
func (m *Manual) Next() (time.Duration, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at, ok := m.pending.next()
	return max(at-m.now, 0), ok
}

type manualTimer struct {
	clock *Manual
	entry *entry
}

func (t *manualTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	return t.clock.pending.remove(t.entry)
}
