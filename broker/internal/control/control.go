// Package control lets a test runner move the time of a broker and look into it. It belongs to fitzd-test; fitzd does not contain it.
//
// The control port speaks JSON over TCP, on loopback only: one command in a line, one answer in a line, in the same order.
//
//	> {"id":1,"do":"advance","ms":30000}
//	< {"id":1,"ok":{"now_ns":30000000000,"wall":"2030-01-01T00:00:30Z","fired":2}}
//	> {"id":2,"do":"turn"}
//	< {"id":2,"error":"unknown command \"turn\""}
//
// Times are those of the clock of the broker since it began.
//
//	command                    answer
//	advance {ms}               now_ns, wall, fired   moves the time; see below
//	now                        now_ns, wall
//	wall {set} or {shift_ms}   now_ns, wall          sets the time of day (RFC 3339), which must change nothing
//	settle                     now_ns, wall          waits until the broker has nothing to do
//	next                       now_ns, wall, timers, next_ns
//	                                                 timers that are set and the time until the earliest; next_ns is absent without one
//	held {selector, family}    leases, more          what is held, without tokens; at most 10000, more says that there are others;
//	                                                 default: all leases of the anonymous family
//	stats                      what the broker holds: sessions, lingering, stalled, preauth, leases, waiters, registrations, snapshots,
//	                           timers, outbound_bytes
//	seed                       seed                  of the lifetime id and the incarnation key, as a decimal string
//
// advance fires the timers that become due in the order of their instants, those that are set on the way included. After each
// instant, and at the end, it waits until the broker is settled, so that the effects of one instant are complete before the next one
// begins. When it answers, everything that has become due is executed and every frame of it is handed to its socket.
//
// A broker is settled when every record that it has read is executed, everything that is due is done, and every frame is handed to
// its socket. A session whose peer takes nothing is settled too: its frames wait for the peer; stats counts it as stalled. Bytes that
// the broker has not read yet are none of its business: a runner that wants a request to be included waits for the answer first.
package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/lease"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// Bounds of the control port.
const (
	lineMax        = 64 << 10 // bytes of a command
	connectionsMax = 16
	heldMax        = 10_000
	advanceMax     = 100 * 365 * 24 * time.Hour
	// stuckMax is how many timers may fire at one instant before advance gives up.
	stuckMax = 1_000_000
)

// Server is a control port.
type Server struct {
	socket net.Listener
	clock  *clock.Manual
	seed   uint64
	broker *broker.Broker

	turn    sync.Mutex // held by a command that moves the time
	context context.Context
	cancel  context.CancelFunc
	group   sync.WaitGroup
	slots   chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
}

// Listen opens a control port at a loopback address, which is the only one that may be opened. Nothing is answered until Serve.
func Listen(address string, c *clock.Manual, seed uint64) (*Server, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%q is not a loopback address", host)
	}
	socket, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{socket: socket, clock: c, seed: seed, context: ctx, cancel: cancel,
		slots: make(chan struct{}, connectionsMax), conns: map[net.Conn]struct{}{}}, nil
}

// Address is the bound address.
func (s *Server) Address() string { return s.socket.Addr().String() }

// Serve answers commands about b until Close. It returns at once.
func (s *Server) Serve(b *broker.Broker) {
	s.broker = b
	s.group.Go(s.accept)
}

// closePatience is how long Close lets a command that is in progress go on.
const closePatience = time.Second

// Close ends the port. A command in progress is answered if it ends soon; when Close returns, nothing is left running.
func (s *Server) Close() {
	_ = s.socket.Close() // nothing is lost
	s.mu.Lock()
	s.ended = true
	for nc := range s.conns {
		_ = nc.SetReadDeadline(time.Unix(1, 0)) // no further command
	}
	s.mu.Unlock()
	timer := time.AfterFunc(closePatience, s.abandon)
	defer timer.Stop()
	s.group.Wait()
	s.cancel()
}

func (s *Server) abandon() {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for nc := range s.conns {
		_ = nc.Close()
	}
}

func (s *Server) accept() {
	for {
		select {
		case s.slots <- struct{}{}:
		case <-s.context.Done():
			return
		}
		nc, err := s.socket.Accept()
		if err != nil {
			return // closed
		}
		s.group.Go(func() {
			defer func() { <-s.slots }()
			s.serve(nc)
		})
	}
}

// enter notes a connection. False: the port is closed.
func (s *Server) enter(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.conns[nc] = struct{}{}
	return true
}

func (s *Server) leave(nc net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
	_ = nc.Close()
}

func (s *Server) serve(nc net.Conn) {
	if !s.enter(nc) {
		_ = nc.Close()
		return
	}
	defer s.leave(nc)
	lines := bufio.NewScanner(nc)
	lines.Buffer(make([]byte, 0, 1024), lineMax)
	out := json.NewEncoder(nc)
	out.SetEscapeHTML(false)
	for lines.Scan() {
		if out.Encode(s.answer(lines.Bytes())) != nil {
			return
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		_ = out.Encode(answer{Error: fmt.Sprintf("a command has at most %d bytes", lineMax)}) // the connection ends either way
	}
}

// command is one line of a client.
type command struct {
	ID       uint64  `json:"id"`
	Do       string  `json:"do"`
	Ms       *int64  `json:"ms"`
	Set      string  `json:"set"`
	ShiftMs  *int64  `json:"shift_ms"`
	Selector *string `json:"selector"`
	Family   *uint32 `json:"family"`
}

// answer is one line to a client.
type answer struct {
	ID    uint64 `json:"id"`
	OK    any    `json:"ok,omitempty"`
	Error string `json:"error,omitempty"`
}

func (s *Server) answer(line []byte) answer {
	var c command
	if err := json.Unmarshal(line, &c); err != nil {
		return answer{Error: "not a command: " + err.Error()}
	}
	ok, err := s.do(&c)
	if err != nil {
		return answer{ID: c.ID, Error: err.Error()}
	}
	return answer{ID: c.ID, OK: ok}
}

func (s *Server) do(c *command) (any, error) {
	switch c.Do {
	case "advance":
		return s.advance(c)
	case "now":
		return s.now(), nil
	case "wall":
		return s.wall(c)
	case "settle":
		return s.now(), s.broker.Settle(s.context)
	case "next":
		return s.next(), nil
	case "held":
		return s.held(c)
	case "stats":
		return s.stats(), nil
	case "seed":
		return map[string]string{"seed": strconv.FormatUint(s.seed, 10)}, nil
	}
	return nil, fmt.Errorf("unknown command %q", c.Do)
}

// Now is the answer to advance, now, wall and settle.
type Now struct {
	NowNs int64     `json:"now_ns"` // monotonic, since the start of the broker
	Wall  time.Time `json:"wall"`
	Fired uint64    `json:"fired,omitempty"` // instants with timers that advance passed
}

func (s *Server) now() Now { return Now{NowNs: int64(s.clock.Now()), Wall: s.clock.Wall()} }

func (s *Server) advance(c *command) (any, error) {
	if c.Ms == nil || *c.Ms < 0 || *c.Ms > advanceMax.Milliseconds() {
		return nil, fmt.Errorf("advance needs ms from 0 to %d", advanceMax.Milliseconds())
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	fired, err := s.move(time.Duration(*c.Ms) * time.Millisecond)
	if err != nil {
		return nil, err
	}
	now := s.now()
	now.Fired = fired
	return now, nil
}

// move is advance.
func (s *Server) move(d time.Duration) (fired uint64, err error) {
	end := s.clock.Now().Add(d)
	still := 0
	for {
		if err := s.broker.Settle(s.context); err != nil {
			return fired, err
		}
		left := end.Sub(s.clock.Now())
		next, ok := s.clock.Next()
		if !ok || next > left {
			s.clock.Advance(left)
			return fired, nil // no timer is due at the end, and none is set by what does not happen
		}
		if still++; next > 0 {
			still = 0
		}
		if still > stuckMax {
			return fired, errors.New("timers are set for one instant without end")
		}
		s.clock.Advance(next)
		fired++
	}
}

func (s *Server) wall(c *command) (any, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	switch {
	case c.ShiftMs != nil && c.Set == "":
		s.clock.SetWall(s.clock.Wall().Add(time.Duration(*c.ShiftMs) * time.Millisecond))
	case c.ShiftMs == nil && c.Set != "":
		at, err := time.Parse(time.RFC3339Nano, c.Set)
		if err != nil {
			return nil, err
		}
		s.clock.SetWall(at)
	default:
		return nil, errors.New("wall needs either set or shift_ms")
	}
	return s.now(), nil
}

// Next is the answer to next.
type Next struct {
	Now
	Timers int    `json:"timers"`
	NextNs *int64 `json:"next_ns,omitempty"`
}

func (s *Server) next() Next {
	n := Next{Now: s.now(), Timers: s.clock.Pending()}
	if d, ok := s.clock.Next(); ok {
		ns := int64(d)
		n.NextNs = &ns
	}
	return n
}

// Lease is one held lease in the answer to held.
type Lease struct {
	Route             string `json:"route"`
	OwnerID           string `json:"owner_id"`
	HolderIncarnation string `json:"holder_incarnation"` // decimal
	AcquiredAt        string `json:"acquired_at"`
	ExpiresIn         uint64 `json:"expires_in"` // seconds
	Renewals          uint32 `json:"renewals"`
}

// Held is the answer to held.
type Held struct {
	Leases []Lease `json:"leases"`
	More   bool    `json:"more"`
}

func (s *Server) held(c *command) (any, error) {
	text, family := "lease://**", uint32(settings.AnonymousFamily)
	if c.Selector != nil {
		text = *c.Selector
	}
	if c.Family != nil {
		family = *c.Family
	}
	selector, err := route.Lease.ParseSelector(text)
	if err != nil {
		return nil, err
	}
	held := Held{Leases: []Lease{}}
	err = s.broker.Held(s.context, family, selector, func(item lease.Item) bool {
		held.More = len(held.Leases) == heldMax
		if !held.More {
			held.Leases = append(held.Leases, Lease{item.Route, item.OwnerID, strconv.FormatUint(item.Incarnation, 10),
				item.AcquiredAt, item.ExpiresIn, item.Renewals})
		}
		return !held.More
	})
	if err != nil {
		return nil, err
	}
	return held, nil
}

// Stats is the answer to stats: what the broker holds at this moment.
type Stats struct {
	Sessions      int   `json:"sessions"`
	Lingering     int   `json:"lingering"` // sessions that are over and wait for the peer to close its side
	Stalled       int   `json:"stalled"`   // sessions whose socket takes nothing
	Preauth       int   `json:"preauth"`   // connections without a first record
	Leases        int   `json:"leases"`
	Waiters       int   `json:"waiters"`
	Registrations int   `json:"registrations"`
	Snapshots     int   `json:"snapshots"`
	Timers        int   `json:"timers"`
	OutboundBytes int64 `json:"outbound_bytes"`
}

func (s *Server) stats() Stats {
	load := s.broker.Load()
	return Stats{
		Sessions: load.Session.Sessions, Lingering: load.Session.Lingering, Stalled: load.Session.Stalled, Preauth: load.Preauth,
		Leases: load.Lease.Leases, Waiters: load.Lease.Waiters, Registrations: load.Lease.Registrations,
		Snapshots: load.Lease.Snapshots, Timers: s.clock.Pending(), OutboundBytes: load.Session.OutboundBytes,
	}
}
