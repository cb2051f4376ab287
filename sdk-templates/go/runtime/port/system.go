package port

import (
	"sync"
	"time"
)

// tick is how long a system clock sleeps at most while calls are pending. Timers of the operating system may stand still while the machine
// is suspended, so that a long sleep would end late (L-104).
const tick = time.Second

// System returns a clock of the machine. It counts suspended time if CountsSuspend. All its timers share one timer of the Go runtime, which
// rests while none is pending.
func System() Clock { return &system{now: bootTime} }

// system looks at its clock at least once in a tick while calls are pending.
type system struct {
	now func() time.Duration

	mu      sync.Mutex
	pending schedule
	wake    *time.Timer
	wakeAt  time.Duration // when wake looks again; only meaningful while calls are pending
}

func (s *system) Now() time.Duration { return s.now() }

func (s *system) AfterFunc(d time.Duration, f func()) Timer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	idle := len(s.pending.entries) == 0
	e := s.pending.add(now+max(d, 0), f)
	if idle || e.at < s.wakeAt {
		s.arm(now)
	}
	return &systemTimer{s, e}
}

// arm sets the timer to the earliest call, at most a tick away. s.mu is held.
func (s *system) arm(now time.Duration) {
	at, ok := s.pending.next()
	if !ok {
		return
	}
	wait := min(max(at-now, 0), tick)
	s.wakeAt = now + wait
	if s.wake != nil {
		s.wake.Stop()
	}
	s.wake = time.AfterFunc(wait, s.run)
}

// run makes the calls that are due.
func (s *system) run() {
	for {
		s.mu.Lock()
		now := s.now()
		e := s.pending.take(now)
		if e == nil {
			s.arm(now)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		e.f()
	}
}

type systemTimer struct {
	clock *system
	entry *entry
}

func (t *systemTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	stopped := t.clock.pending.remove(t.entry)
	if len(t.clock.pending.entries) == 0 && t.clock.wake != nil {
		t.clock.wake.Stop()
	}
	return stopped
}

// processStart is where the clock of the Go runtime begins.
var processStart = time.Now()

// monotonic is the clock of the Go runtime, which may stop while the machine is suspended.
func monotonic() time.Duration { return time.Since(processStart) }
