package session

import (
	"strings"
	"time"
	"unicode"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// HelloMode says when a listener sends SERVER_HELLO (compat.md section 2).
type HelloMode uint8

// Modes of a hello.
const (
	HelloImmediate HelloMode = iota // when the CONNECT is accepted
	HelloDelayed                    // some time later, or before the first other frame
	HelloOff                        // never
)

// Hello is the setting `hello` of a listener. Delay counts for HelloDelayed only.
type Hello struct {
	Mode  HelloMode
	Delay time.Duration
}

// Door is what a listener decides for the sessions that come through it.
type Door struct {
	Hello Hello
	// Authority verifies the token of CONNECT, which must be the first record (W-31). nil: the listener is anonymous, and tokens are not
	// examined.
	Authority *auth.Authority
	// Name is that of the listener, for logs.
	Name string
}

// control executes the control records that a client may send (W-05). CORRELATE is not among them: it belongs to the record
// behind it. handled is false for every other type; open is false when the session ends.
func (s *Session) control(typ wire.MessageType, value []byte, first bool) (handled, open bool) {
	switch typ {
	case wire.TypeConnect:
		return true, s.connect(value, first)
	case wire.TypeSessionMetadata:
		return true, s.metadata(value)
	case wire.TypeClientHello:
		return true, s.clientHello(value)
	case wire.TypePing, wire.TypePong, wire.TypeCancel:
		if !s.Negotiated() { // W-62
			return true, s.refuse(wire.CloseBadControlRecord)
		}
	}
	switch typ {
	case wire.TypePing:
		return true, s.ping(value)
	case wire.TypePong:
		return true, s.pong(value)
	case wire.TypeCancel:
		return true, s.cancel(value)
	default:
		return false, true
	}
}

// capabilities returns what the hello of this session announced; nothing before it is enqueued.
func (s *Session) capabilities() wire.Capabilities {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.announced
}

// connect is CONNECT (W-32 to W-34). On an anonymous listener only the length of the token is looked at.
func (s *Session) connect(value []byte, first bool) bool {
	if !first && !mutant.On("session.second-connect-accepted") {
		return s.refuse(wire.CloseUnexpectedConnect)
	}
	var message wire.ConnectView
	mistake := message.DecodeValueWithin(value, &s.hub.limits)
	if codec.Malformed(mistake) {
		return s.refuse(wire.CloseBadControlRecord)
	}
	if mistake != nil {
		return s.refuseToken(auth.ReasonTokenTooLong)
	}
	if s.door.Authority != nil && !s.authenticate(message.Token) {
		return false
	}
	s.greet()
	return true
}

// authenticate makes the session that of its token. False: the session ends without a frame (W-34).
func (s *Session) authenticate(token []byte) bool {
	access, err := s.door.Authority.Connect(token)
	if err != nil && mutant.On("session.refusal-keeps-connection") {
		return true
	}
	if err != nil {
		return s.refuseToken(err.(*auth.Refusal).Reason)
	}
	s.access.Store(access)
	s.conn.SetMaxMessage(int(s.hub.limits.FrameRecvMax))
	return true
}

func (s *Session) refuseToken(why auth.Reason) bool {
	reason := wire.CloseConnectFailed
	reason.Text += string(why)
	return s.refuse(reason)
}

// greet sends the hello, at once or later, as the listener says (W-33).
func (s *Session) greet() {
	switch s.door.Hello.Mode {
	case HelloImmediate:
		s.mu.Lock()
		s.helloDue = true
		s.helloLocked()
		s.mu.Unlock()
	case HelloDelayed:
		s.mu.Lock()
		s.helloDue = true
		s.watch.hello = s.hub.clock.Now().Add(s.door.Hello.Delay)
		s.wakeAtLocked(s.watch.hello)
		s.mu.Unlock()
	}
}

// helloLocked enqueues the SERVER_HELLO that is due, before every other frame (W-33).
func (s *Session) helloLocked() {
	if !s.helloDue || s.ending {
		return
	}
	s.helloDue = false
	hello := wire.ServerHello{
		Version:      wire.HelloVersion,
		Capabilities: wire.AnnouncedCapabilities,
		Lifecycle: wire.LifecycleHello{
			BrokerLifetimeID:   s.hub.lifetime,
			SessionIncarnation: s.incarnation,
			MaxFrameBytes:      uint32(s.hub.limits.FrameRecvMax),
			HeartbeatMs:        uint32(s.hub.limits.HeartbeatMs),
			SpecFingerprint:    wire.SpecFingerprint,
		},
	}
	if mutant.On("session.lifetime-constant") {
		hello.Lifecycle.BrokerLifetimeID = [16]byte{15: 1}
	}
	value, err := hello.AppendValue(nil)
	if err != nil {
		s.hub.log.Error("SERVER_HELLO cannot be encoded", "error", err)
		return
	}
	if s.enqueueLocked(answers, 0, wire.TypeServerHello, value) == peer.Enqueued {
		s.announced = wire.AnnouncedCapabilities
	}
}

// metadata is SESSION_METADATA: a name for people. It is looked at and not kept; a bad one is dropped and counted (W-07).
func (s *Session) metadata(value []byte) bool {
	if s.capabilities()&wire.CapSessionMetadata == 0 {
		return s.refuse(wire.CloseUnsupportedMessageType)
	}
	var message wire.SessionMetadataView
	if message.DecodeValue(value) != nil || !displayable(string(message.ServiceName)) {
		s.hub.droppedRecord()
	}
	return true
}

// displayable is the rule for service names (wire.md section 5).
func displayable(name string) bool {
	trimmed := strings.TrimSpace(name)
	return trimmed != "" && len(trimmed) <= bounds.ServiceNameMax && !strings.ContainsFunc(trimmed, unicode.IsControl)
}

// clientHello is CLIENT_HELLO (W-60 to W-62).
func (s *Session) clientHello(value []byte) bool {
	var message wire.ClientHelloView
	if message.DecodeValue(value) != nil {
		return s.refuse(wire.CloseBadControlRecord)
	}
	s.mu.Lock()
	allowed := s.announced&wire.CapLifecycle != 0 && !s.greeted
	s.greeted = true
	announced := s.announced
	s.mu.Unlock()
	if !allowed {
		return s.refuse(wire.CloseBadControlRecord)
	}
	if message.Capabilities&announced&wire.CapLifecycle == 0 {
		return true
	}
	s.negotiated.Store(true)
	s.watchAgain()
	s.hub.warnIfDraining(s)
	return true
}

// ping is PING, which is answered at once and in order (W-65).
func (s *Session) ping(value []byte) bool {
	var message wire.PingView
	if message.DecodeValue(value) != nil {
		return s.refuse(wire.CloseBadControlRecord)
	}
	nonce := message.Nonce
	if mutant.On("session.pong-wrong-nonce") {
		nonce++
	}
	return s.sendControl(wire.TypePong, &wire.Pong{Nonce: nonce})
}

// pong is PONG. The broker sends no PING, so that every nonce is unknown and ignored (W-65).
func (s *Session) pong(value []byte) bool {
	var message wire.PongView
	if message.DecodeValue(value) != nil {
		return s.refuse(wire.CloseBadControlRecord)
	}
	return true
}

// goaway enqueues GOAWAY once, in a negotiated session (W-37, W-67).
func (s *Session) goaway(message *wire.Goaway) {
	if !s.Negotiated() || mutant.On("session.goaway-missing") {
		return
	}
	s.mu.Lock()
	again := s.warned
	s.warned = true
	s.mu.Unlock()
	if again {
		return
	}
	s.sendControl(wire.TypeGoaway, message)
}

// encoder is a message that appends its record value.
type encoder interface {
	AppendValue(dst []byte) ([]byte, error)
}

// sendControl enqueues a control record among the answers. False: the session ends.
func (s *Session) sendControl(typ wire.MessageType, message encoder) bool {
	var buf [64]byte
	value, err := message.AppendValue(buf[:0])
	if err != nil {
		s.hub.log.Error("control record cannot be encoded", "type", typ.String(), "error", err)
		return true
	}
	return s.enqueue(answers, 0, typ, value) == peer.Enqueued
}
