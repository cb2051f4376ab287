package supervise

import (
	"context"
	"sync"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// Session is one session of a client. What was made in it ends with it.
type Session struct {
	core       *Core
	conn       *link.Conn
	generation uint64
	leaving    chan Push // the peer has announced the end

	mu     sync.Mutex
	calls  int           // running
	idle   chan struct{} // set when somebody waits for calls to become 0
	ended  bool          // no registration can be made any more
	texts  map[text]*registration
	ids    map[id]*registration
	goaway Push
}

// Generation returns the number of the session, counted from 1.
func (s *Session) Generation() uint64 { return s.generation }

// Done returns a channel that is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.conn.Done() }

// Goaway returns with which code the peer announced the end of the session, 0 when it did not.
func (s *Session) Goaway() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.goaway.Code
}

// KeptFor is link.Conn.KeptFor.
func (s *Session) KeptFor() (time.Duration, bool) { return s.conn.KeptFor() }

// Hello returns the hello of the peer, if it has sent one.
func (s *Session) Hello() (link.Hello, bool) { return s.conn.Hello() }

// Fail ends the session because the layer above found that the peer broke the protocol.
func (s *Session) Fail(reason string, cause error) { s.conn.Fail(reason, cause) }

// Call is link.Conn.Call in this session. After its end it fails at once with ErrStale.
func (s *Session) Call(ctx context.Context, request link.Request) ([]byte, error) {
	if s.isOver() {
		return nil, ErrStale
	}
	s.begin()
	defer s.finish()
	return s.conn.Call(ctx, request)
}

func (s *Session) isOver() bool {
	select {
	case <-s.conn.Done():
		return true
	default:
		return false
	}
}

func (s *Session) begin() {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
}

func (s *Session) finish() {
	s.mu.Lock()
	s.calls--
	if s.calls == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	s.mu.Unlock()
}

// quiet returns a channel that is closed as soon as no call is running.
func (s *Session) quiet() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == 0 {
		idle := make(chan struct{})
		close(idle)
		return idle
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	return s.idle
}

// push acts on what the peer sent by itself, on the goroutine that reads.
func (s *Session) push(typ uint16, value []byte) error {
	p := s.core.options.Classify(typ, value)
	switch p.Kind {
	case PushNotify:
		s.notify(p, value)
		return nil
	case PushEnded:
		if p.Err == nil && !mutant.On("sdk.sub-ended-ignored") {
			s.endedByPeer(p)
		}
	case PushGoaway:
		if p.Err == nil && !mutant.On("sdk.goaway-ignored") {
			s.announce(p)
		}
	}
	return p.Err
}

// announce notes the end that the peer has announced, and wakes the supervisor.
func (s *Session) announce(p Push) {
	s.mu.Lock()
	s.goaway = p
	s.mu.Unlock()
	select {
	case s.leaving <- p:
	default: // announced before
	}
}
