// Package session is the session layer of the broker (wire.md sections 2 to 9): it takes transport messages apart into records,
// answers control records itself, gives requests to the dispatch of the domains, and sends what they answer.
//
// A session has one goroutine, the reader. It executes what has arrived and writes what is queued before it waits for more; when
// others enqueue meanwhile, a writer goroutine is started that ends when the queue is empty. An idle session has one goroutine and no
// buffers. Enqueueing never blocks (W-84).
package session

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// What is granted to a connection that ends in order: time to take what is queued, and then time and bytes in which the broker
// reads off what the peer has sent, so that the close arrives as the end of the stream and not as a reset.
const (
	lastWrites  = time.Second
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 1 << 20
)

// Session is one accepted connection from its first record to its close. It implements peer.Session.
type Session struct {
	hub         *Hub
	conn        transport.Conn
	entry       *transport.Entry
	door        Door
	number      uint64
	incarnation uint64
	accepted    clock.Instant

	// Of the reader goroutine only.
	first     bool          // a record was received
	label     uint64        // of the CORRELATE before the record that is looked at
	malformed int64         // requests answered as malformed (W-06)
	records   uint64        // taken
	bytesIn   int64         // of complete transport messages, headers included
	pausedAt  clock.Instant // when reading was paused, while it is

	access atomic.Pointer[auth.Access] // nil before the CONNECT of a token listener

	mu       sync.Mutex
	progress sync.Cond // the queue shrank, a write ended, or the session ends
	out      queue
	bytesOut int64 // that the socket took
	ending   bool
	why      ending
	labels   labels
	watch    watch
	// announced are the capabilities of the hello, once it is enqueued (W-50, W-60).
	announced wire.Capabilities
	helloDue  bool
	greeted   bool // a CLIENT_HELLO was received
	warned    bool // GOAWAY was enqueued

	negotiated atomic.Bool
	backlog    atomic.Int64 // bytes of queue buffers
	lastRead   atomic.Int64 // clock.Instant of the last received bytes
	begun      atomic.Int64 // clock.Instant of the first byte of a message that is not complete, 0 when there is none
	paused     atomic.Bool  // the broker does not read
	closing    atomic.Bool  // mirrors ending for readers without the lock
	waiting    atomic.Bool  // the reader waits for the socket
	dropped    atomic.Bool  // the domains keep nothing of it any more
	finished   atomic.Bool  // everything is done but waiting for the peer to close too
	arrivals   atomic.Uint64
}

// ending is why a session ends.
type ending struct {
	reason wire.CloseReason // zero: the peer ended it, or the connection was lost
	name   string           // for logs and metrics
	abrupt bool             // nothing can be written any more
}

// because returns the ending for a close reason of the protocol.
func because(reason wire.CloseReason) ending {
	return ending{reason: reason, name: reason.Name, abrupt: reason == wire.CloseWriteTimeout}
}

// detail is what a close reason says beyond its name: why a token was refused.
func (e ending) detail() string {
	if !e.reason.Detail {
		return ""
	}
	return strings.TrimPrefix(e.reason.Text, wire.CloseConnectFailed.Text)
}

// Endings that are not the broker's.
var (
	left = ending{name: "peer_closed"}
	lost = ending{name: "connection_lost", abrupt: true}
)

var _ peer.Session = (*Session)(nil)

// Number is part of peer.Session.
func (s *Session) Number() uint64 { return s.number }

// Incarnation is part of peer.Session.
func (s *Session) Incarnation() uint64 { return s.incarnation }

// Family is part of peer.Session. It is 0, which no family has, before the CONNECT of a token listener.
func (s *Session) Family() uint32 { return s.access.Load().Family() }

// Negotiated is part of peer.Session.
func (s *Session) Negotiated() bool { return s.negotiated.Load() }

// Authorize is part of peer.Session. Permissions are those of the CONNECT, however long ago that is (A-38, W-39).
func (s *Session) Authorize(level wire.AccessLevel, sel pattern.Selector) bool {
	return s.access.Load().Allows(level, sel) || s.denied(sel.Scheme())
}

// AuthorizeRoute is part of peer.Session.
func (s *Session) AuthorizeRoute(level wire.AccessLevel, r pattern.Route) bool {
	return s.access.Load().AllowsRoute(level, r) || s.denied(r.Scheme())
}

// denied counts a denial; it returns false for its callers to pass on.
func (s *Session) denied(domain string) bool {
	s.hub.auth.PermissionDenialsTotal.WithLabelValues(domain).Inc()
	return false
}

// Reply is part of peer.Session.
func (s *Session) Reply(call peer.Call, value []byte) bool {
	s.mu.Lock()
	done := s.enqueueLocked(answers, call.Label, call.Type, value) == peer.Enqueued
	if done {
		s.answeredLocked(call)
	}
	s.mu.Unlock()
	s.hub.shed()
	return done
}

// Refuse is part of peer.Session.
func (s *Session) Refuse(call peer.Call, code wire.Code, message string) bool {
	if mutant.On("session.refusal-unlabelled") {
		call.Label = 0
	}
	var buf [refusalBuffer]byte
	return s.Reply(call, wire.AppendCoded(buf[:0], code, message))
}

// refusalBuffer holds a coded refusal of any length.
const refusalBuffer = 16 + bounds.ErrorMessageMax

// Settle is part of peer.Session.
func (s *Session) Settle(call peer.Call, value []byte) bool {
	s.mu.Lock()
	done := s.enqueueLocked(deferred, call.Label, call.Type, value) == peer.Enqueued
	if done {
		s.settledLocked(call)
	}
	s.mu.Unlock()
	s.hub.shed()
	return done
}

// SettleRefusal is part of peer.Session.
func (s *Session) SettleRefusal(call peer.Call, code wire.Code, message string) bool {
	var buf [refusalBuffer]byte
	return s.Settle(call, wire.AppendCoded(buf[:0], code, message))
}

// Notify is part of peer.Session.
func (s *Session) Notify(typ wire.MessageType, value []byte) peer.NotifyResult {
	return s.enqueue(notify, 0, typ, value)
}

// EndRegistration is part of peer.Session (W-68).
func (s *Session) EndRegistration(domain uint8, id uint64, code wire.Code, dropped uint64, reason string) {
	if !s.Negotiated() || mutant.On("session.sub-ended-missing") {
		return
	}
	message := wire.SubEnded{Domain: domain, SubscriptionID: id, Code: code, Dropped: dropped, Reason: reason}
	value, err := message.AppendValue(nil)
	if err != nil {
		s.hub.log.Error("SUB_ENDED cannot be encoded", "error", err)
		return
	}
	s.enqueue(deferred, 0, wire.TypeSubEnded, value)
}

// Close is part of peer.Session.
func (s *Session) Close(reason wire.CloseReason) { s.end(because(reason)) }

func (s *Session) end(why ending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLocked(why)
}

// endLocked starts the end of the session: nothing is enqueued from now on, and the reader is woken to do the rest.
func (s *Session) endLocked(why ending) {
	if s.ending {
		return
	}
	s.ending, s.why = true, why
	s.closing.Store(true)
	if why.reason == wire.CloseSlowConsumer || why.abrupt {
		s.discardLocked()
	}
	if why.abrupt {
		s.interruptWriteLocked()
	}
	s.conn.InterruptRead()
	s.progress.Broadcast()
}

// run reads and executes until the session ends.
func (s *Session) run() {
	s.conn.Bind(hooks{s})
	defer s.conn.EndRead()
	for s.awaitRoom() {
		payload, err := s.conn.ReadMessage()
		if err != nil {
			s.readEnds(err)
			break
		}
		s.begun.Store(0)
		if !s.take(payload) {
			break
		}
	}
}

// readEnds tells from the error of a read why the session ends.
func (s *Session) readEnds(err error) {
	var violation *transport.Violation
	switch {
	case errors.As(err, &violation):
		s.Close(violation.Reason)
	case err == transport.ErrPeerClosed:
		s.end(left)
	default:
		s.end(lost) // keeps the reason when it was an interruption
	}
}

// take executes the records of one transport message (W-03). False: the session ends.
func (s *Session) take(payload []byte) bool {
	size := int64(s.conn.HeaderSize(len(payload)) + len(payload))
	s.bytesIn += size
	s.hub.metrics.of(s.conn).received.Add(float64(size))
	if err := codec.CheckRecords(payload, bounds.RecordsPerFrameMax); err != nil && !mutant.On("session.records-unchecked") {
		s.Close(reasonOf(err))
		return false
	}
	taken := 0
	defer func() {
		s.records += uint64(taken)
		s.hub.metrics.m.RecordsReceivedTotal.Add(float64(taken))
	}()
	for len(payload) > 0 {
		if !s.awaitRoom() {
			return false
		}
		record, rest, err := codec.NextRecord(payload)
		if err != nil {
			s.Close(reasonOf(err))
			return false
		}
		taken++
		payload = rest
		if !s.record(wire.MessageType(record.Type), record.Value, len(rest) == 0) {
			return false
		}
	}
	return true
}

// reasonOf returns the close reason for broken framing (W-01, W-03).
func reasonOf(err error) wire.CloseReason {
	if errors.Is(err, codec.ErrBadRecord) {
		return wire.CloseBadRecord
	}
	return wire.CloseBadFrame
}

// record executes one record; last says that none follows in its transport message. False: the session ends.
func (s *Session) record(typ wire.MessageType, value []byte, last bool) bool {
	first := !s.first
	if first {
		s.first = true
		s.entry.Leave()
		s.opened()
	}
	if first && typ != wire.TypeConnect && s.door.Authority != nil && !mutant.On("session.connect-not-required") {
		return s.refuse(wire.CloseConnectRequired) // W-31
	}
	if typ == wire.TypeCorrelate {
		return s.correlate(value, last)
	}
	label := s.label
	s.label = 0
	if handled, open := s.control(typ, value, first); handled {
		return open // a label on a control record is dropped (W-52)
	}
	if label != 0 && !s.admit(label) {
		return false
	}
	switch s.hub.domains.Dispatch(s, peer.Call{Type: typ, Label: label}, value) {
	case dispatch.Unknown:
		return mutant.On("session.unknown-type-ignored") || s.refuse(wire.CloseUnsupportedMessageType)
	case dispatch.Malformed:
		return s.countMalformed()
	default:
		return true
	}
}

// refuse closes the session; it returns false for its callers to pass on.
func (s *Session) refuse(reason wire.CloseReason) bool {
	s.Close(reason)
	return false
}

// countMalformed is rule W-06.
func (s *Session) countMalformed() bool {
	if mutant.On("session.malformed-closes") {
		return s.refuse(wire.CloseBadRecord)
	}
	s.malformed++
	s.hub.malformedRequest()
	if s.malformed >= s.hub.limits.SessionMalformedMax {
		return s.refuse(wire.CloseTooManyMalformedRequests)
	}
	return true
}

// finish ends the session: no command of it executes any more and nothing is enqueued, so the domains drop its state (W-36), then
// the peer gets what is queued and the close.
func (s *Session) finish() {
	s.mu.Lock()
	s.watch.stop()
	why := s.why
	s.mu.Unlock()
	s.entry.Leave()
	s.hub.domains.CloseSession(s)
	s.dropped.Store(true)
	orderly := s.lastWrites(why)
	s.finished.Store(true)
	if orderly {
		s.conn.Linger(lingerTime, lingerBytes)
	} else {
		s.conn.Abort()
	}
	s.logEnd(why)
}

// logEnd writes the one line about the session: who it was for people that run the broker, and what it did, in numbers. Nothing that
// the peer chose stands in it.
func (s *Session) logEnd(why ending) {
	s.mu.Lock()
	bytesOut := s.bytesOut
	s.mu.Unlock()
	s.hub.log.LogAttrs(s.hub.context, slog.LevelInfo, "session ended",
		slog.String("reason", why.name),
		slog.String("detail", why.detail()),
		slog.String("listener", s.door.Name),
		slog.String("transport", s.conn.Transport()),
		slog.String("remote", s.conn.RemoteAddr().String()),
		slog.Uint64("family", uint64(s.Family())),
		slog.Float64("seconds", float64(s.hub.clock.Now().Sub(s.accepted).Round(time.Millisecond).Milliseconds())/1000), // 1.477, not 1.4769999999999999
		slog.Uint64("records", s.records),
		slog.Int64("bytes_in", s.bytesIn),
		slog.Int64("bytes_out", bytesOut))
}

// lastWrites waits for the writer goroutine and sends what is queued, and the close frame behind it. False: the connection takes
// nothing any more.
func (s *Session) lastWrites(why ending) bool {
	limit := s.hub.clock.AfterFunc(lastWrites, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.interruptWriteLocked()
	})
	defer limit.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.out.flushing {
		s.progress.Wait()
	}
	if s.out.failed || why.abrupt {
		s.discardLocked()
		return false
	}
	if frame := s.closeFrame(why); len(frame) > 0 {
		s.out.corked = true // no writer goroutine: the reader writes
		s.enqueueFrameLocked(answers, frame)
	}
	s.out.flushing = true
	return s.writeLocked() == nil
}

// closeFrame returns the frame that tells the peer why; empty where the transport has none.
func (s *Session) closeFrame(why ending) []byte {
	if why.reason == (wire.CloseReason{}) {
		return s.conn.AppendClose(nil, normalClosure, "")
	}
	return s.conn.AppendClose(nil, why.reason.WebSocket, why.reason.Text)
}

// normalClosure answers the close frame of a peer that leaves (RFC 6455 section 7.4.1).
const normalClosure = 1000
