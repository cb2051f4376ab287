package session

import (
	"slices"

	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// labels are the correlation ids of a session (wire.md sections 6 and 8). Domains answer while a request executes, so that only
// the label of a waiting request is in flight any longer than that. Both tables are nil until they are needed: a session that
// labels nothing that waits and cancels nothing has neither (invariant 12).
type labels struct {
	// waiting are the labels in flight beyond their request, and what they label (W-54).
	waiting map[uint64]peer.Call
	// done are the last cancel_memory_max labels of requests that can wait and whose last reply is enqueued (W-79), a ring once
	// it is full; next is the oldest.
	done []uint64
	next int
}

// correlate is CORRELATE (W-50).
func (s *Session) correlate(value []byte, last bool) bool {
	var message wire.CorrelateView
	if s.label != 0 || last || s.capabilities()&wire.CapCorrelation == 0 || message.DecodeValue(value) != nil {
		return s.refuse(wire.CloseBadControlRecord)
	}
	s.label = message.ID
	return true
}

// admit checks the label of a request (W-55, W-56). False: the session ends.
func (s *Session) admit(label uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.labels.waiting) == 0 {
		return true
	}
	if _, used := s.labels.waiting[label]; used && !mutant.On("session.duplicate-label-accepted") {
		s.endLocked(because(wire.CloseDuplicateCorrelationID))
		return false
	}
	if int64(len(s.labels.waiting)) >= s.hub.limits.CorrelationTableMax {
		s.endLocked(because(wire.CloseTooManyLabels))
		return false
	}
	return true
}

// Wait is part of peer.Session.
func (s *Session) Wait(call peer.Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	if call.Label == 0 {
		return true
	}
	if int64(len(s.labels.waiting)) >= s.hub.limits.CorrelationTableMax {
		s.endLocked(because(wire.CloseTooManyLabels))
		return false
	}
	if s.labels.waiting == nil {
		s.labels.waiting = make(map[uint64]peer.Call)
	}
	s.labels.waiting[call.Label] = call
	return true
}

// answeredLocked notes that a reply of call is enqueued. It is the last one unless the label waits.
func (s *Session) answeredLocked(call peer.Call) {
	if _, waits := s.labels.waiting[call.Label]; !waits {
		s.rememberLocked(call)
	}
}

// settledLocked notes that the last reply of a waiting call is enqueued.
func (s *Session) settledLocked(call peer.Call) {
	delete(s.labels.waiting, call.Label)
	s.rememberLocked(call)
}

// rememberLocked keeps a completed label for W-74. Only negotiated sessions can ask for it (W-62).
func (s *Session) rememberLocked(call peer.Call) {
	if call.Label == 0 || !s.negotiated.Load() || !canWait(call.Type) {
		return
	}
	if int64(len(s.labels.done)) < s.hub.limits.CancelMemoryMax {
		s.labels.done = append(s.labels.done, call.Label)
		return
	}
	s.labels.done[s.labels.next] = call.Label
	s.labels.next = (s.labels.next + 1) % len(s.labels.done)
}

// cancel is CANCEL (W-70 to W-77). The domain decides whether the request still waits, so that it is either granted or
// cancelled; whichever it was, its reply is enqueued before the CANCELLED that follows here.
func (s *Session) cancel(value []byte) bool {
	var message wire.CancelView
	if message.DecodeValue(value) != nil {
		return s.refuse(wire.CloseBadControlRecord)
	}
	label := message.CorrelationID
	s.mu.Lock()
	call, waits := s.labels.waiting[label]
	known := slices.Contains(s.labels.done, label)
	s.mu.Unlock()

	outcome := wire.CancelOutcomeUnknown
	switch {
	case waits && s.hub.domains.Cancel(s, call):
		outcome = wire.CancelOutcomeCancelled
	case (waits || known) && !mutant.On("session.cancel-forgets"):
		outcome = wire.CancelOutcomeAlreadyCompleted
	}
	return s.sendControl(wire.TypeCancelled, &wire.Cancelled{CorrelationID: label, Outcome: outcome})
}

// Capacities are the sizes of the tables of a session that are allocated only when they are needed (invariant 12).
type Capacities struct{ Labels, CancelMemory, QueueBytes int }

// Capacities returns the sizes at this moment.
func (s *Session) Capacities() Capacities {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Capacities{Labels: len(s.labels.waiting), CancelMemory: cap(s.labels.done), QueueBytes: int(s.backlog.Load())}
	if s.labels.waiting != nil && c.Labels == 0 {
		c.Labels = 1 // a map that exists has room for one at least
	}
	return c
}

// canWait reports whether requests of that type may wait for their last reply, so that CANCEL can name them (wire.md section 8).
func canWait(typ wire.MessageType) bool {
	info, known := wire.LookupMessage(typ)
	return known && info.Cancellable
}
