package supervise

import "github.com/fitzwire/fitz/sdk-templates/go/runtime/link"

// Stats is what a client is at work on, and what its sessions met and did not act upon.
type Stats struct {
	link.Stats        // the gauges are those of the current session, the counters those of all sessions
	Waiting       int // calls that wait for a session
	Registrations int // that the peer has for the current session; users of one text share one
}

// Stats returns what the client is at work on and its counters.
func (c *Core) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Stats{Stats: c.past, Waiting: c.waiting}
	if c.latest == nil {
		return s
	}
	now := c.latest.conn.Stats()
	s.Sent, s.Queued, s.GivenUp = now.Sent, now.Queued, now.GivenUp
	s.UnknownRecords += now.UnknownRecords
	s.LateReplies += now.LateReplies
	s.Registrations = c.latest.registered()
	return s
}

// registered returns the number of registrations that somebody listens to.
func (s *Session) registered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ids)
}

// retireStats keeps the counters of a session that has ended. c.mu is held.
func (c *Core) retireStats(s *Session) {
	now := s.conn.Stats()
	c.past.UnknownRecords += now.UnknownRecords
	c.past.LateReplies += now.LateReplies
	c.latest = nil
}
