package fitztest

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// peerURL is the address of every Peer. No name is looked up.
const peerURL = "fitz://peer.test:1"

// Script says what a Peer answers. Its functions are called by one goroutine for each session, in the order in which frames arrive; those of
// several sessions can run at the same time. All of them may be nil.
type Script struct {
	// Hello returns what the session is greeted with after its CONNECT; nil: with nothing, as a broker of which no capability is known (C-60).
	// Without the function every session gets Greeting.
	Hello func(s *Session) *wire.ServerHello
	// Refuse reports whether the session is closed in order instead, as one whose token is refused.
	Refuse func(s *Session) bool
	// Answer is told of every frame but CONNECT, CLIENT_HELLO, PING, which is answered, and PONG. Its Value is the function's own.
	Answer func(s *Session, f Frame)
	// Ended is told when the connection is gone and everything that came before was answered.
	Ended func(s *Session)
}

// Peer is a broker whose answers a test writes by hand, for what no real one says: answers in a wrong order, with codes of other versions, or
// without any sense. It speaks TCP framing in memory, and what it sends and gets goes through a Network.
//
//	peer := fitztest.NewPeer(t, fitztest.Script{Answer: func(s *fitztest.Session, f fitztest.Frame) {
//		s.Refuse(f, wire.CodeLeaseQueueFull, "busy")
//	}})
//	client := peer.Connect()
type Peer struct {
	tb      testing.TB
	script  Script
	network *Network
	clock   sharedClock

	mu     sync.Mutex
	live   map[*Session]struct{}
	last   *Session
	closed bool
	tasks  sync.WaitGroup
}

// Session is one connection of a client to a Peer. Its methods may be called from any goroutine. What is sent to a session that has ended is
// lost; a session whose client does not read makes the sender wait.
type Session struct {
	// Number counts the connections of the peer, from 0.
	Number int

	peer *Peer
	conn *conn

	mu    sync.Mutex // of what is written
	token string
}

// NewPeer makes a peer that ends with the test.
func NewPeer(tb testing.TB, script Script) *Peer {
	tb.Helper()
	if script.Hello == nil {
		script.Hello = func(*Session) *wire.ServerHello { return Greeting() }
	}
	p := &Peer{tb: tb, script: script, live: map[*Session]struct{}{}, network: newNetwork(tb), clock: sharedClock{elapsed{time.Now()}}}
	tb.Cleanup(p.Close)
	return p
}

// Greeting returns the hello of a broker of this specification: of lifetime 1, with every capability and the default heartbeat. A test changes
// in it what it is about.
func Greeting() *wire.ServerHello {
	hello := &wire.ServerHello{Version: 1, Capabilities: wire.AnnouncedCapabilities}
	hello.Lifecycle.BrokerLifetimeID[0] = 1
	hello.Lifecycle.SessionIncarnation = 1
	hello.Lifecycle.MaxFrameBytes = bounds.FrameRecvMax
	hello.Lifecycle.HeartbeatMs = bounds.HeartbeatMs
	return hello
}

// URL is the address that clients are given, together with Dial.
func (p *Peer) URL() string { return peerURL }

// Network returns what stands between clients and the peer.
func (p *Peer) Network() *Network { return p.network }

// Clock is package time, which in a bubble is the time of the bubble, for fitz.WithClock.
func (p *Peer) Clock() fitz.Clock { return p.clock }

// Options are the options with which a client reaches the peer, in the time of package time.
func (p *Peer) Options() []fitz.Option {
	return []fitz.Option{fitz.WithDialer(p.Dial), fitz.WithClock(p.clock)}
}

// Connect connects a client, with more options than Options, until the test ends.
func (p *Peer) Connect(more ...fitz.Option) *fitz.Client {
	p.tb.Helper()
	c, err := fitz.Connect(p.tb.Context(), p.URL(), append(p.Options(), more...)...)
	if err != nil {
		p.tb.Fatalf("fitztest: connect: %v", err)
	}
	p.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Dial opens a session. It is the dial function that clients are given; network and address are ignored.
func (p *Peer) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := p.network.admit(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errDown
	}
	near, far := connect(p.network, carriesTCP)
	s := &Session{peer: p, conn: far}
	if p.last != nil {
		s.Number = p.last.Number + 1
	}
	p.live[s], p.last = struct{}{}, s
	p.tasks.Go(s.serve)
	return near, nil
}

// Last returns the newest session, nil before the first.
func (p *Peer) Last() *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// Close ends every session in order and waits for the script. Then Dial fails. It is idempotent.
func (p *Peer) Close() {
	p.mu.Lock()
	p.closed = true
	for s := range p.live {
		s.Close()
	}
	p.mu.Unlock()
	p.tasks.Wait()
}

func (p *Peer) forget(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, s)
}

// serve reads until the connection ends.
func (s *Session) serve() {
	defer func() {
		s.Close()
		s.peer.forget(s)
		if s.peer.script.Ended != nil {
			s.peer.script.Ended(s)
		}
	}()
	var stream []byte
	chunk := make([]byte, windowBytes)
	for {
		n, err := s.conn.Read(chunk)
		if err != nil {
			return
		}
		stream = append(stream, chunk[:n]...)
		rest, ok := s.messages(stream)
		if !ok {
			return
		}
		stream = append(stream[:0], rest...)
	}
}

// messages takes the whole messages from the front of what was read. False: the session is over.
func (s *Session) messages(stream []byte) (rest []byte, ok bool) {
	for {
		next := tcpFraming{}.next(stream)
		switch next.kind {
		case pieceUnfinished:
			return stream, true
		case pieceForeign:
			s.peer.tb.Error("fitztest: a client sent a transport message that is too long")
			return nil, false
		}
		if !s.message(next.payload) {
			return nil, false
		}
		stream = stream[next.size:]
	}
}

func (s *Session) message(payload []byte) bool {
	frames, ok := framesOf(ToBroker, payload)
	if !ok {
		s.peer.tb.Error("fitztest: a client sent something that holds no records")
	}
	for _, f := range frames {
		if !s.frame(f) {
			return false
		}
	}
	return ok
}

// frame answers one frame. False: the session is over.
func (s *Session) frame(f Frame) bool {
	script := &s.peer.script
	switch f.Type {
	case wire.TypeConnect:
		s.mu.Lock()
		s.token = string(f.Value)
		s.mu.Unlock()
		if script.Refuse != nil && script.Refuse(s) {
			return false
		}
		if hello := script.Hello(s); hello != nil {
			s.Push(wire.TypeServerHello, hello)
		}
	case wire.TypePing:
		s.SendValue(0, wire.TypePong, f.Value)
	case wire.TypeClientHello, wire.TypePong:
	default:
		if script.Answer != nil {
			script.Answer(s, f)
		}
	}
	return true
}

// Message is a message of package wire.
type Message interface {
	AppendValue(dst []byte) ([]byte, error)
}

// Token returns the token of the CONNECT of the session; empty: it has none, or there was no CONNECT yet.
func (s *Session) Token() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// Reply answers a request with its own type and label.
func (s *Session) Reply(request Frame, m Message) { s.send(request.Label, request.Type, m) }

// Refuse answers a request with a refusal.
func (s *Session) Refuse(request Frame, code wire.Code, text string) {
	s.SendValue(request.Label, request.Type, wire.AppendCoded(nil, code, text))
}

// Push sends a message that answers nothing, such as a notification.
func (s *Session) Push(typ wire.MessageType, m Message) { s.send(0, typ, m) }

func (s *Session) send(label uint64, typ wire.MessageType, m Message) {
	value, err := m.AppendValue(nil)
	if err != nil {
		s.peer.tb.Errorf("fitztest: %v: %v", typ, err)
		return
	}
	s.SendValue(label, typ, value)
}

// SendValue sends a record with a value as it is, of at most record_value_max bytes, behind a label unless that is 0.
func (s *Session) SendValue(label uint64, typ wire.MessageType, value []byte) {
	if len(value) > codec.MaxRecordValue {
		s.peer.tb.Errorf("fitztest: a value of %d bytes is too long for %v; nothing is sent", len(value), typ)
		return
	}
	var message []byte
	if label != 0 {
		message = codec.AppendRecord(message, uint16(wire.TypeCorrelated), binary.BigEndian.AppendUint64(nil, label))
	}
	s.SendMessage(codec.AppendRecord(message, uint16(typ), value))
}

// SendMessage sends a transport message as it is, be it records or not.
func (s *Session) SendMessage(payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.conn.Write(tcpFraming{}.message(payload)) // what a session that has ended is sent is lost
}

// SendBytes sends bytes of the stream as they are, be they messages or not. From then on no fault of single frames applies to what the session
// sends.
func (s *Session) SendBytes(stream []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.out.room() == nil {
		s.conn.relay.writeAsIs(stream)
	}
}

// Close ends the session in order, as a broker does that refuses it. The client gets what was sent before. Network.Cut is the way to lose
// connections.
func (s *Session) Close() { _ = s.conn.Close() }
