package session

import (
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// watch is the one timer of a session. It runs only while something has a deadline, and looks at all of them when it fires:
// what moves a deadline later only stores an instant.
type watch struct {
	timer clock.Timer
	at    clock.Instant // when the timer fires; 0 when it does not run
	hello clock.Instant // when a delayed hello is due
	open  bool          // the first record is complete
}

func (w *watch) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
	w.at = 0
}

// wakeAt makes sure that the deadlines are looked at at that instant.
func (s *Session) wakeAt(at clock.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeAtLocked(at)
}

func (s *Session) wakeAtLocked(at clock.Instant) {
	if s.ending || s.watch.at != 0 && s.watch.at <= at {
		return
	}
	s.watch.at = at
	wait := max(at.Sub(s.hub.clock.Now()), 0)
	if s.watch.timer == nil {
		s.watch.timer = s.hub.clock.AfterFunc(wait, s.lookAtDeadlines)
		return
	}
	s.watch.timer.Reset(wait)
}

// lookAtDeadlines ends the session when one has passed, sends a hello that is due, and sets the timer for the next deadline.
func (s *Session) lookAtDeadlines() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.at = 0
	if s.ending {
		return
	}
	now := s.hub.clock.Now()
	if s.helloDue && now >= s.watch.hello {
		s.helloLocked()
	}
	next := clock.Never
	for _, d := range s.deadlinesLocked() {
		if d.at == 0 {
			continue
		}
		if now >= d.at {
			s.endLocked(because(d.reason))
			return
		}
		next = min(next, d.at)
	}
	if s.helloDue {
		next = min(next, s.watch.hello)
	}
	if next != clock.Never {
		s.wakeAtLocked(next)
	}
}

// deadline is an instant at which a session ends, 0 when it does not.
type deadline struct {
	at     clock.Instant
	reason wire.CloseReason
}

// deadlinesLocked returns the deadlines in force. While the broker does not read, only the one of the first record runs (W-30,
// W-66); Resume sets the timer again.
func (s *Session) deadlinesLocked() [3]deadline {
	var all [3]deadline
	if !s.watch.open {
		all[0] = deadline{s.accepted.Add(s.hub.connectWait), wire.CloseConnectTimeout}
	}
	if s.paused.Load() {
		return all
	}
	if begun := s.begun.Load(); begun != 0 {
		all[1] = deadline{clock.Instant(begun).Add(s.hub.readTimeout), wire.CloseIdle}
	}
	if s.negotiated.Load() && !mutant.On("session.idle-ignored") {
		all[2] = deadline{clock.Instant(s.lastRead.Load()).Add(s.hub.idle), wire.CloseIdle}
	}
	return all
}

// opened notes that the first record is complete.
func (s *Session) opened() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.open = true
}

// watchAgain sets the timer for the deadlines in force, after one of them came earlier.
func (s *Session) watchAgain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := clock.Never
	for _, d := range s.deadlinesLocked() {
		if d.at != 0 {
			next = min(next, d.at)
		}
	}
	if next != clock.Never {
		s.wakeAtLocked(next)
	}
}

// pause begins time in which the broker does not read; until resume it does not count for the peer (W-30, W-66).
func (s *Session) pause() {
	s.hub.pausedReading()
	s.pausedAt = s.hub.clock.Now()
	s.paused.Store(true)
}

func (s *Session) resume() {
	away := int64(s.hub.clock.Now().Sub(s.pausedAt))
	s.lastRead.Add(away)
	if s.begun.Load() != 0 {
		s.begun.Add(away)
	}
	s.paused.Store(false)
	s.watchAgain()
}

// hooks is what the connection tells the session while it reads.
type hooks struct{ s *Session }

func (h hooks) Pause() {
	h.s.flush()
	h.s.pause()
}

func (h hooks) Resume() { h.s.resume() }

func (h hooks) Received() {
	h.s.waiting.Store(false)
	h.s.arrivals.Add(1)
	h.s.lastRead.Store(int64(h.s.hub.clock.Now()))
}

// Waiting sends what the records so far have queued, and begins the time of a message whose first bytes are here. When none is begun,
// what had begun was a control frame of the transport.
func (h hooks) Waiting(begun bool) {
	h.s.flush()
	defer h.s.waiting.Store(true)
	if !begun {
		h.s.begun.Store(0)
		return
	}
	if h.s.begun.Load() != 0 {
		return
	}
	now := h.s.hub.clock.Now()
	h.s.begun.Store(int64(max(now, 1))) // 0 means that nothing has begun
	h.s.wakeAt(now.Add(h.s.hub.readTimeout))
}

// Ping answers a WebSocket ping. The pong counts as an answer, and while answers pause reading no further ping is read (W-23).
func (h hooks) Ping(payload []byte) {
	s := h.s
	var frame [pongBuffer]byte
	s.mu.Lock()
	if !s.ending {
		s.out.corked = true
		s.enqueueFrameLocked(answers, s.conn.AppendPong(frame[:0], payload))
	}
	s.mu.Unlock()
	s.awaitRoom()
}

// pongBuffer holds the largest pong: two header bytes and a control frame payload.
const pongBuffer = 2 + 125

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
