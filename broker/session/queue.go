package session

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// share is one of the budgets of an outbound queue (wire.md section 9).
type share uint8

const (
	answers  share = iota // replies and control records
	notify                // pushes
	rpc                   // calls, their frames and their lifecycle
	deferred              // deferred ACQUIRE replies and SUB_ENDED, which have no budget of their own (W-80)
	shares
)

// tally is an amount of frames and their bytes, headers included.
type tally struct{ frames, bytes int64 }

func (t *tally) add(o tally)      { t.frames += o.frames; t.bytes += o.bytes }
func (t *tally) subtract(o tally) { t.frames -= o.frames; t.bytes -= o.bytes }

// within reports whether the amount and one more frame of size bytes stay inside b.
func (t tally) within(b tally, size int) bool {
	return t.frames < b.frames && t.bytes+int64(size) <= b.bytes
}

// largestChunk bounds what is handed to the socket in one call, unless a single frame is larger.
const largestChunk = 32 << 10

// inlineWait is how long the reading goroutine tries to hand frames to the socket itself. When the socket does not take them in
// that time, a writer goroutine goes on and the reader reads again, so that a peer that is slow in taking notifications can
// still renew its leases.
const inlineWait = 2 * time.Millisecond

// chunk is a run of whole frames that leave in one write call. Its buffer comes from the pool of transport.
type chunk struct {
	next    *chunk
	frames  []byte
	written int
	largest int // size of its largest frame
	held    [shares]tally
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// queue is the outbound side of a session. Its fields are guarded by the lock of the session.
type queue struct {
	head, tail *chunk
	current    *chunk // being written; not in the list
	held       [shares]tally
	// flushing: somebody writes, the reader or the writer goroutine; nobody else may.
	flushing bool
	// corked: the reader is at work and flushes when it is done, so that nobody else needs to start a writer.
	corked bool
	failed bool // a write failed; nothing is written any more
	// stalled: the socket does not take what is being written.
	stalled  bool
	stalls   uint64 // how often that began
	enqueued uint64 // frames that ever came
}

// budgets are the limits of the shares.
type budgets [shares]tally

var noBudget = tally{math.MaxInt64, math.MaxInt64}

// enqueue appends one record, labelled unless label is 0, as one transport message (W-12).
func (s *Session) enqueue(sh share, label uint64, typ wire.MessageType, value []byte) peer.NotifyResult {
	s.mu.Lock()
	result := s.enqueueLocked(sh, label, typ, value)
	s.mu.Unlock()
	s.hub.shed()
	return result
}

// labelSize is the size of the record that stands before a labelled reply (W-51).
var labelSize = codec.RecordHeaderSize(uint16(wire.TypeCorrelated)) + 8

func (s *Session) enqueueLocked(sh share, label uint64, typ wire.MessageType, value []byte) peer.NotifyResult {
	if s.ending {
		return peer.Closing
	}
	s.helloLocked()
	payload := codec.RecordHeaderSize(uint16(typ)) + len(value)
	if label != 0 {
		payload += labelSize
	}
	size := s.conn.HeaderSize(payload) + payload
	if !s.out.held[sh].within(s.hub.budgets[sh], size) {
		return s.fullLocked(sh)
	}
	c := s.roomLocked(size)
	c.frames = s.conn.AppendHeader(c.frames, payload)
	if label != 0 {
		c.frames = codec.AppendRecordHeader(c.frames, uint16(wire.TypeCorrelated), 8)
		c.frames = codec.AppendU64(c.frames, label)
	}
	c.frames = codec.AppendRecordHeader(c.frames, uint16(typ), len(value))
	c.frames = append(c.frames, value...)
	s.appendedLocked(c, sh, size)
	return peer.Enqueued
}

// fullLocked is what happens to a frame that its share has no room for: a push may be dropped, a session whose answers find no
// room is closed (W-82, W-83).
func (s *Session) fullLocked(sh share) peer.NotifyResult {
	if sh == answers {
		s.endLocked(because(wire.CloseSlowConsumer))
		return peer.Closing
	}
	return peer.Full
}

// enqueueFrameLocked appends a whole frame of the transport.
func (s *Session) enqueueFrameLocked(sh share, frame []byte) {
	c := s.roomLocked(len(frame))
	c.frames = append(c.frames, frame...)
	s.appendedLocked(c, sh, len(frame))
}

// roomLocked returns the last chunk if size more bytes fit into its buffer, else a new last chunk. Buffers grow with what is
// queued: a reply alone takes the smallest one.
func (s *Session) roomLocked(size int) *chunk {
	last := s.out.tail
	if last != nil && len(last.frames)+size <= cap(last.frames) {
		return last
	}
	want := size
	if last != nil {
		want = max(size, min(2*cap(last.frames), largestChunk))
	}
	c := chunks.Get().(*chunk)
	c.frames = transport.GetBuffer(want)[:0]
	if last == nil {
		s.out.head = c
	} else {
		last.next = c
	}
	s.out.tail = c
	s.chargeLocked(int64(cap(c.frames)))
	return c
}

func (s *Session) appendedLocked(c *chunk, sh share, size int) {
	amount := tally{1, int64(size)}
	c.largest = max(c.largest, size)
	c.held[sh].add(amount)
	s.out.held[sh].add(amount)
	s.out.enqueued++
	if !s.out.corked && !s.out.flushing {
		s.out.flushing = true
		go s.write()
	}
}

// chargeLocked counts n bytes of buffers, which may be negative.
func (s *Session) chargeLocked(n int64) {
	s.backlog.Add(n)
	s.hub.charge(n)
}

// freeLocked gives a chunk back, written or not.
func (s *Session) freeLocked(c *chunk) {
	for sh := range c.held {
		s.out.held[sh].subtract(c.held[sh])
	}
	s.chargeLocked(-int64(cap(c.frames)))
	transport.PutBuffer(c.frames)
	*c = chunk{}
	chunks.Put(c)
}

// discardLocked drops what is queued and not being written.
func (s *Session) discardLocked() {
	for c := s.out.head; c != nil; {
		next := c.next
		s.freeLocked(c)
		c = next
	}
	s.out.head, s.out.tail = nil, nil
}

// flush hands everything that is queued to the socket. The reader calls it when it is about to wait, so that the replies of all
// requests that had arrived leave together; when the socket takes them too slowly, a writer goroutine goes on.
func (s *Session) flush() {
	s.mu.Lock()
	s.out.corked = false
	if s.out.flushing || s.out.head == nil {
		s.mu.Unlock()
		return
	}
	s.out.flushing = true
	if s.transmitLocked(false) == errSlow {
		go s.write()
	}
	s.mu.Unlock()
}

// write is the writer goroutine. It is started by whoever set flushing, and ends when the queue is empty or a write fails.
func (s *Session) write() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.writeLocked() // the session ends with what fails
}

// writeLocked writes until the queue is empty or a write fails. While at least one frame is written in the time of each write, the peer is
// slow, but it reads (W-82).
func (s *Session) writeLocked() error {
	for {
		if err := s.transmitLocked(true); err != errSlow {
			return err
		}
	}
}

// errSlow says that the socket did not take everything in time and that writing may go on.
var errSlow = errors.New("slow")

// transmitLocked writes until the queue is empty, and lets go of the lock during each write. A patient caller gives a slow socket
// session_write_timeout_ms for each write. Whoever calls it has set flushing; it is cleared unless errSlow is returned.
func (s *Session) transmitLocked(patient bool) error {
	for {
		c := s.out.current
		if c == nil {
			if c = s.out.head; c == nil || s.out.failed {
				s.out.flushing = false
				s.progress.Broadcast()
				return nil
			}
			if s.out.head = c.next; c.next == nil {
				s.out.tail = nil
			}
			c.next = nil
			s.out.current = c
		}
		n, err := s.handOverLocked(c.frames[c.written:], patient)
		c.written += n
		if err == nil {
			s.sentLocked(c)
			continue
		}
		if err == transport.ErrTimeout && (!patient || n >= c.largest) {
			return errSlow
		}
		s.failLocked(err)
		return err
	}
}

// handOverLocked hands bytes to the socket without the lock. When the socket does not take them at once, a patient caller waits as
// long as the clock of the broker allows (W-82).
func (s *Session) handOverLocked(frames []byte, patient bool) (int, error) {
	s.mu.Unlock()
	n, err := s.conn.Write(frames, inlineWait)
	s.mu.Lock()
	s.tookLocked(n)
	if err != transport.ErrTimeout || !patient {
		return n, err
	}
	s.out.stalled = true
	s.out.stalls++
	stall := s.out.stalls
	limit := s.hub.clock.AfterFunc(s.hub.writeTimeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.out.stalled && s.out.stalls == stall {
			s.out.stalled = false // the writer is on its way
			s.conn.ExpireWrite()
		}
	})
	s.mu.Unlock()
	more, err := s.conn.Write(frames[n:], 0)
	s.mu.Lock()
	s.tookLocked(more)
	s.out.stalled = false
	limit.Stop()
	return n + more, err
}

// tookLocked counts bytes that the socket took.
func (s *Session) tookLocked(n int) {
	s.bytesOut += int64(n)
	s.hub.metrics.of(s.conn).sent.Add(float64(n))
}

// interruptWriteLocked ends writing for good.
func (s *Session) interruptWriteLocked() {
	s.out.stalled = false // the writer is on its way
	s.conn.InterruptWrite()
}

func (s *Session) sentLocked(c *chunk) {
	frames := int64(0)
	for _, t := range c.held {
		frames += t.frames
	}
	s.hub.sent(frames)
	s.out.current = nil
	s.freeLocked(c)
	s.progress.Broadcast()
}

// failLocked ends writing for good.
func (s *Session) failLocked(err error) {
	s.out.failed = true
	s.out.flushing = false
	if s.out.current != nil {
		s.freeLocked(s.out.current)
		s.out.current = nil
	}
	s.discardLocked()
	if err == transport.ErrTimeout {
		s.endLocked(because(wire.CloseWriteTimeout))
	} else {
		s.endLocked(lost)
	}
	s.progress.Broadcast()
}

// pausedLocked is rule W-81 for answers.
func (s *Session) pausedLocked() bool {
	held := s.out.held[answers]
	return held.frames > s.hub.pause.frames || held.bytes > s.hub.pause.bytes
}

// awaitRoom waits while the session has so many answers queued that no further record may be taken (W-81). Afterwards the reader is
// at work, until it flushes. False: the session ends.
func (s *Session) awaitRoom() bool {
	s.mu.Lock()
	if !s.ending && s.pausedLocked() {
		s.mu.Unlock()
		s.flush()
		s.drainAnswers()
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	s.out.corked = true
	return !s.ending
}

// drainAnswers waits until a writer goroutine has brought the answers below the pause.
func (s *Session) drainAnswers() {
	s.mu.Lock()
	wait := !s.ending && s.pausedLocked()
	s.mu.Unlock()
	if !wait {
		return
	}
	s.pause()
	defer s.resume()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ending && s.pausedLocked() {
		s.progress.Wait()
	}
}
