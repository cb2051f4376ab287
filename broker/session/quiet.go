package session

// Load is what the sessions of a hub hold at one moment.
type Load struct {
	Sessions      int // open, or with something left to write
	Lingering     int // closed by the broker; it only waits for the peer to close too
	Stalled       int // whose socket takes nothing more
	OutboundBytes int64
}

// Look looks at all sessions, one after the other. Quiet means that none had anything to do when it was looked at: no record to
// execute, no frame to hand to a socket that takes it, no end to bring about. mark changes with whatever gives a session something
// to do, so that two looks, both quiet and with one mark, prove that there was a moment between them at which all were idle at once.
// Bytes that the broker has not taken from a socket yet are no work of the broker.
func (h *Hub) Look() (load Load, mark uint64, quiet bool) {
	h.mu.Lock()
	mark = h.last + h.retired
	quiet = len(h.sessions) == 0 || !h.graced && !h.closed
	h.mu.Unlock()
	load.OutboundBytes = h.outbound.Load()
	h.Each(func(s *Session) {
		mark += s.work()
		if s.finished.Load() {
			load.Lingering++
			return
		}
		load.Sessions++
		idle, stalled := s.idle()
		if stalled {
			load.Stalled++
		}
		quiet = quiet && idle
	})
	return load, mark, quiet
}

// work grows with everything that gives the session something to do.
func (s *Session) work() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.enqueued + s.arrivals.Load()
}

// idle reports whether the session has nothing that it could do now; stalled, whether its socket keeps it from writing.
func (s *Session) idle() (idle, stalled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.out.stalled && s.ending:
		return s.dropped.Load(), true
	case s.out.stalled:
		return s.readerWaits(), true
	case s.ending, s.out.flushing, s.out.head != nil:
		return false, false
	}
	return s.readerWaits(), false
}

// readerWaits reports whether the reader waits for the peer or for room, and has sent what it had.
func (s *Session) readerWaits() bool { return !s.out.corked && (s.waiting.Load() || s.paused.Load()) }
