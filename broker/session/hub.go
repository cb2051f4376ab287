package session

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Domains executes requests. The generated dispatch.Table together with the domains implements it.
type Domains interface {
	// Dispatch executes one request and enqueues its reply, or marks it as waiting, before it returns.
	Dispatch(s peer.Session, call peer.Call, value []byte) dispatch.Outcome
	// Cancel detaches a waiting request. False: its last reply is enqueued.
	Cancel(s peer.Session, call peer.Call) bool
	// CloseSession drops everything the domains keep for the session, in the order of W-36. The session enqueues nothing any more.
	CloseSession(s peer.Session)
}

// Options are what a Hub needs. All fields are required except Log, Metrics and Auth.
type Options struct {
	Limits   bounds.Limits
	Clock    clock.Clock
	Domains  Domains
	Lifetime [16]byte // broker_lifetime_id
	// IncarnationKey is random per process (L-13).
	IncarnationKey [32]byte
	Family         uint32 // of anonymous sessions
	Metrics        *metrics.Session
	Auth           *metrics.Auth
	Log            *slog.Logger
}

// Hub keeps the sessions of a broker and what they share.
type Hub struct {
	limits       bounds.Limits
	clock        clock.Clock
	domains      Domains
	lifetime     [16]byte
	key          [32]byte
	anonymous    *auth.Access
	metrics      *instruments
	auth         *metrics.Auth
	log          *slog.Logger
	context      context.Context
	budgets      budgets
	pause        tally
	connectWait  time.Duration
	readTimeout  time.Duration
	writeTimeout time.Duration
	idle         time.Duration

	outbound atomic.Int64 // bytes in the queues of all sessions

	mu       sync.Mutex
	sessions map[uint64]*Session // by incarnation
	last     uint64              // number of the newest session
	retired  uint64              // work of the sessions that have ended
	graced   bool                // the grace of Drain is over
	draining bool
	farewell Farewell // what GOAWAY says while it drains
	closed   bool
	graceEnd clock.Instant
	ended    sync.Cond // a session has ended
}

// NewHub returns a hub without sessions.
func NewHub(o Options) *Hub {
	h := &Hub{
		limits: o.Limits, clock: o.Clock, domains: o.Domains, lifetime: o.Lifetime, key: o.IncarnationKey, anonymous: auth.Anonymous(o.Family),
		metrics: newInstruments(o.Metrics, &o.Limits), auth: o.Auth, log: o.Log, context: context.Background(),
		pause:        tally{o.Limits.SessionReadPauseFrames, o.Limits.SessionReadPauseBytes},
		connectWait:  milliseconds(o.Limits.ConnectWaitMs),
		readTimeout:  milliseconds(o.Limits.SessionReadTimeoutMs),
		writeTimeout: milliseconds(o.Limits.SessionWriteTimeoutMs),
		idle:         milliseconds(o.Limits.SessionIdleMs),
		sessions:     make(map[uint64]*Session),
	}
	h.ended.L = &h.mu
	h.budgets[answers] = tally{o.Limits.SessionAnswerFramesMax, o.Limits.SessionAnswerBytesMax}
	h.budgets[notify] = tally{o.Limits.SessionNotifyFramesMax, o.Limits.SessionNotifyBytesMax}
	h.budgets[rpc] = tally{o.Limits.SessionRPCFramesMax, o.Limits.SessionRPCBytesMax}
	h.budgets[deferred] = noBudget
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if h.auth == nil {
		h.auth = metrics.NewAuth(nil)
	}
	return h
}

// Open registers a new session over conn; the caller runs it. entry is its place among the connections without a first record.
// The incarnation is a keyed hash of the number of the session; a number whose hash is 0 or that of a live session is skipped
// (L-13).
//
// It is not part of Run so that the goroutine that runs the session, and waits most of the time, keeps the smallest stack.
func (h *Hub) Open(conn transport.Conn, entry *transport.Entry, door Door) *Session {
	now := h.clock.Now()
	accepted := entry.Since // the upgrade of a WebSocket counts (W-30)
	s := &Session{hub: h, conn: conn, entry: entry, door: door, accepted: accepted}
	h.admit(s)
	s.progress.L = &s.mu
	s.lastRead.Store(int64(now))

	h.mu.Lock()
	for s.incarnation == 0 || h.sessions[s.incarnation] != nil {
		h.last++
		s.number, s.incarnation = h.last, h.incarnation(h.last)
	}
	h.sessions[s.incarnation] = s
	closed := h.closed
	h.mu.Unlock()
	h.metrics.of(conn).sessions.Inc()

	s.wakeAt(accepted.Add(h.connectWait))
	if !entry.Hand(func() { s.Close(wire.CloseConnectTimeout) }) {
		s.Close(wire.CloseConnectTimeout)
	}
	if closed {
		s.Close(wire.CloseGoingAway)
	}
	return s
}

// admit gives an anonymous session what it may do. One that must show a token may do nothing yet, and its first message is bounded
// until then (W-10).
func (h *Hub) admit(s *Session) {
	if s.door.Authority == nil {
		s.access.Store(h.anonymous)
		return
	}
	s.conn.SetMaxMessage(min(bounds.PreauthFrameMax, int(h.limits.FrameRecvMax)))
}

func (h *Hub) incarnation(number uint64) uint64 {
	mac := hmac.New(sha256.New, h.key[:])
	mac.Write(binary.BigEndian.AppendUint64(nil, number))
	return binary.BigEndian.Uint64(mac.Sum(nil))
}

// Run serves the session until it has ended.
func (s *Session) Run() {
	s.run()
	s.finish()
	s.hub.remove(s)
}

func (h *Hub) remove(s *Session) {
	h.metrics.of(s.conn).sessions.Dec()
	h.metrics.m.ClosesTotal.WithLabelValues(s.why.name).Inc()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.retired += s.work() + 1
	delete(h.sessions, s.incarnation)
	h.ended.Broadcast()
}

// Len returns the number of sessions.
func (h *Hub) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sessions)
}

// Each calls f for every session that is open at this moment, without locks.
func (h *Hub) Each(f func(s *Session)) {
	h.mu.Lock()
	all := make([]*Session, 0, len(h.sessions))
	for _, s := range h.sessions {
		all = append(all, s)
	}
	h.mu.Unlock()
	for _, s := range all {
		f(s)
	}
}

// Farewell is why a broker drains, as GOAWAY tells it.
type Farewell uint8

// Reasons to drain (W-37).
const (
	Shutdown    Farewell = iota // the broker ends: 9201
	Replacement                 // the operator puts another one in its place: 9202
)

// message returns the GOAWAY that says so.
func (f Farewell) message(grace time.Duration) *wire.Goaway {
	m := &wire.Goaway{GraceMs: uint32(grace.Milliseconds()), Code: wire.CodeGoawayShutdown, Reason: "shutdown"}
	if f == Replacement {
		m.Code, m.Reason = wire.CodeGoawayDrain, "replaced"
	}
	return m
}

// Drain announces the end: negotiated sessions get GOAWAY, also those that negotiate later, and Drain waits until all sessions
// have left, drain_grace_ms have passed, or ctx ends (W-37). The listeners are closed before.
func (h *Hub) Drain(ctx context.Context, why Farewell) {
	grace := milliseconds(h.limits.DrainGraceMs)
	h.mu.Lock()
	h.draining, h.farewell = true, why
	h.graceEnd = h.clock.Now().Add(grace)
	h.mu.Unlock()
	h.Each(func(s *Session) { s.goaway(why.message(grace)) })

	over := false
	end := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		over = true
		h.graced = true
		h.ended.Broadcast()
	}
	timer := h.clock.AfterFunc(grace, end)
	defer timer.Stop()
	defer context.AfterFunc(ctx, end)()

	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.sessions) > 0 && !over {
		h.ended.Wait()
	}
}

// Close ends every session with `going away`, also those that come later, and waits until all have ended.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.Each(func(s *Session) { s.Close(wire.CloseGoingAway) })
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.sessions) > 0 {
		h.ended.Wait()
	}
}

// warnIfDraining sends GOAWAY to a session that negotiates after Drain began.
func (h *Hub) warnIfDraining(s *Session) {
	h.mu.Lock()
	draining, why, left := h.draining, h.farewell, h.graceEnd.Sub(h.clock.Now())
	h.mu.Unlock()
	if draining {
		s.goaway(why.message(max(left, 0)))
	}
}

// charge counts n bytes of outbound queues, which may be negative.
func (h *Hub) charge(n int64) {
	h.outbound.Add(n)
	h.metrics.m.OutboundQueueBytes.Add(float64(n))
}

// shed closes sessions with the largest backlog while the queues of all sessions hold more than outbound_total_bytes_max (W-82).
// It is called without the lock of a session.
func (h *Hub) shed() {
	for h.outbound.Load() > h.limits.OutboundTotalBytesMax {
		largest := h.largest()
		if largest == nil {
			return
		}
		largest.Close(wire.CloseSlowConsumer)
	}
}

// largest returns the open session with the largest backlog, nil when none has any.
func (h *Hub) largest() *Session {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found *Session
	most := int64(0)
	for _, s := range h.sessions {
		if n := s.backlog.Load(); n > most && !s.closing.Load() {
			found, most = s, n
		}
	}
	return found
}

func (h *Hub) sent(frames int64) { h.metrics.m.FramesSentTotal.Add(float64(frames)) }
func (h *Hub) malformedRequest() { h.metrics.m.MalformedRequestsTotal.Inc() }
func (h *Hub) droppedRecord()    { h.metrics.m.DroppedRecordsTotal.Inc() }
func (h *Hub) pausedReading()    { h.metrics.m.ReadPausesTotal.Inc() }
