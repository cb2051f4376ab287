package supervise

import (
	"context"
	"slices"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// text is the identity of a registration towards the peer (W-91).
type text struct {
	domain uint8
	text   string
}

// id is the identity of a registration in what the peer sends (W-92).
type id struct {
	domain uint8
	id     uint64
}

// EndReason says why a registration ended.
type EndReason uint8

// The reasons.
const (
	EndDisconnected EndReason = iota + 1 // the session has ended
	EndedByPeer                          // the peer has removed the registration
	EndUndecodable                       // a notification could not be decoded
	EndClosed                            // the client was closed
)

// End is the end of a registration that its user did not ask for.
type End struct {
	Reason  EndReason
	Dropped uint64 // notifications that the peer has dropped
	Code    uint32 // EndedByPeer
	Err     error  // cause, or nil
}

// Sink is the user of a registration. Its functions must return at once and must not call anything that waits.
type Sink struct {
	// Push receives the value of every notification of the registration, beginning with the first one after the success of its
	// SUBSCRIBE, on the goroutine that reads and before anything that came later is looked at. The value is only valid during the call.
	Push func(value []byte)
	// Ended is called at most once, when the registration ended without Close. A notification that is being handed out at that moment may
	// still follow.
	Ended func(End)
}

// Topic says what to register for.
type Topic struct {
	Domain      uint8
	Text        string // identity of the registration, as it stands in the request
	Subscribe   uint16 // message numbers
	Unsubscribe uint16
	Request     []byte // value of both requests
	// ID reads the reply to the SUBSCRIBE, on the goroutine that reads. Its error is the one that Subscribe returns; an *link.Error of kind
	// Violation also ends the session.
	ID func(reply []byte) (uint64, error)
}

// registration is what the peer knows of one text. All users of the text share it (OB-18).
type registration struct {
	text  text
	turn  chan struct{} // held by the one SUBSCRIBE or UNSUBSCRIBE that is on its way
	id    uint64        // 0: none that anybody listens to
	stale bool          // the peer may still have a registration that nobody listens to
	users []*Subscription
	refs  int // calls that are at work on it, given-up ones included
	topic Topic
}

// Subscription is the share of one user in a registration.
type Subscription struct {
	session *Session
	reg     *registration
	sink    Sink
	ended   bool // session.mu
}

// Subscribe sends one SUBSCRIBE in the current session and returns when it has succeeded. From the arrival of its success on the sink
// receives every notification (OB-11). Users of one text share the registration, but each of them sends its own SUBSCRIBE, which the peer
// answers with the same id.
func (c *Core) Subscribe(ctx context.Context, topic Topic, sink Sink) (*Subscription, error) {
	s, err := c.Session(ctx)
	if err != nil {
		return nil, err
	}
	return s.Subscribe(ctx, topic, sink)
}

// Subscribe is Core.Subscribe in this session.
func (s *Session) Subscribe(ctx context.Context, topic Topic, sink Sink) (*Subscription, error) {
	reg, err := s.registration(topic)
	if err != nil {
		return nil, err
	}
	sub := &Subscription{session: s, reg: reg, sink: sink}
	err = s.register(ctx, sub)
	if !link.GivenUp(err) {
		s.unref(reg)
	}
	if link.IsKind(err, link.Violation) {
		s.Fail("reply to a subscription", err)
	}
	if err != nil {
		return nil, err
	}
	return sub, nil
}

// register sends the SUBSCRIBE of a user. When it is given up, the reference of the caller is that of its late reply.
func (s *Session) register(ctx context.Context, sub *Subscription) error {
	reg := sub.reg
	if err := s.take(ctx, reg); err != nil {
		return s.notSent(reg, err)
	}
	defer reg.release()
	if err := s.sweep(ctx, reg); err != nil {
		return s.notSent(reg, err)
	}
	var refused error
	_, err := s.Call(ctx, link.Request{
		Type: reg.topic.Subscribe, Value: reg.topic.Request,
		Arrived: func(reply []byte) { refused = s.arrived(sub, reply) },
		Late:    func(reply []byte) { s.lateSubscribe(reg, reply) },
	})
	if err == nil {
		err = refused
	}
	return err
}

// notSent gives the reference back that a late reply would have, because none will come.
func (s *Session) notSent(reg *registration, err error) error {
	if link.GivenUp(err) {
		s.unref(reg)
	}
	return err
}

// registration returns what the session has for the text.
func (s *Session) registration(topic Topic) (*registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, ErrStale
	}
	key := text{topic.Domain, topic.Text}
	reg := s.texts[key]
	if reg == nil {
		reg = &registration{text: key, turn: make(chan struct{}, 1), topic: topic}
		s.texts[key] = reg
	}
	reg.refs++
	return reg, nil
}

// ref keeps the entry of a text. s.mu is held.
func (s *Session) ref(reg *registration) { reg.refs++ }

// unref gives a reference back.
func (s *Session) unref(reg *registration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reg.refs--
	s.forget(reg)
}

// take waits for the turn to send something for the text.
func (s *Session) take(ctx context.Context, reg *registration) error {
	select {
	case reg.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.Done():
		return ErrStale
	}
}

func (r *registration) release() { <-r.turn }

// forget drops the entry of a text that nobody uses or works on and that the peer has nothing for. There is never more than one entry
// of a text, so that its requests follow each other. s.mu is held.
func (s *Session) forget(reg *registration) {
	if reg.refs == 0 && len(reg.users) == 0 && !reg.stale && reg.id == 0 {
		delete(s.texts, reg.text)
	}
}

// sweep removes a registration that nobody listens to, so that the next one gets an id of its own. The turn is held.
func (s *Session) sweep(ctx context.Context, reg *registration) error {
	s.mu.Lock()
	stale := reg.stale
	s.mu.Unlock()
	if !stale {
		return nil
	}
	if _, err := s.Call(ctx, link.Request{Type: reg.topic.Unsubscribe, Value: reg.topic.Request}); err != nil {
		return err
	}
	s.mu.Lock()
	reg.stale = false
	s.mu.Unlock()
	return nil
}

// arrived adds the user as soon as the reply is read, before any later record.
func (s *Session) arrived(sub *Subscription, reply []byte) error {
	number, err := sub.reg.topic.ID(reply)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return ErrStale
	}
	reg := sub.reg
	var old []*Subscription
	if reg.id != 0 && reg.id != number { // the peer has replaced it without a word
		old = s.detach(reg)
	}
	reg.id, reg.stale = number, false
	reg.users = append(reg.users, sub)
	s.ids[id{reg.text.domain, number}] = reg
	s.mu.Unlock()
	end(old, End{Reason: EndedByPeer})
	return nil
}

// lateSubscribe removes what a SUBSCRIBE registered that nobody waits for any more.
func (s *Session) lateSubscribe(reg *registration, reply []byte) {
	defer s.unref(reg)
	if reply == nil {
		return
	}
	if _, err := reg.topic.ID(reply); err != nil {
		return
	}
	s.mu.Lock()
	unused := len(reg.users) == 0
	if unused {
		reg.stale = true
	}
	s.mu.Unlock()
	if unused {
		s.core.Background(func(ctx context.Context) { _ = s.unsubscribe(ctx, reg) })
	}
}

// Close ends the share of this user. The last one of a registration sends the UNSUBSCRIBE and waits for its answer, within ctx. It is
// idempotent; a registration that has ended needs nothing.
func (sub *Subscription) Close(ctx context.Context) error {
	s, reg := sub.session, sub.reg
	s.mu.Lock()
	if sub.ended {
		s.mu.Unlock()
		return nil
	}
	sub.ended = true
	reg.users = slices.DeleteFunc(slices.Clone(reg.users), func(u *Subscription) bool { return u == sub }) // the reader may be walking
	last := len(reg.users) == 0 || mutant.On("sdk.shared-registration-ended")
	if last {
		s.detach(reg)
		reg.stale = true
	}
	s.mu.Unlock()
	if !last {
		return nil
	}
	return s.unsubscribe(ctx, reg)
}

// unsubscribe removes a registration that nobody uses.
func (s *Session) unsubscribe(ctx context.Context, reg *registration) error {
	if s.isOver() {
		return nil
	}
	s.mu.Lock()
	s.ref(reg)
	s.mu.Unlock()
	defer s.unref(reg)
	if err := s.take(ctx, reg); err != nil {
		return err
	}
	defer reg.release()
	return s.sweep(ctx, reg) // nothing when somebody has subscribed meanwhile
}

// detach takes a registration out of what is listened to and returns its users. s.mu is held.
func (s *Session) detach(reg *registration) []*Subscription {
	delete(s.ids, id{reg.text.domain, reg.id})
	reg.id = 0
	users := reg.users
	reg.users = nil
	for _, u := range users {
		u.ended = true
	}
	return users
}

func end(users []*Subscription, e End) {
	for _, u := range users {
		u.sink.Ended(e)
	}
}

// notify hands a notification to every user of its registration. One with an unknown id is ignored.
func (s *Session) notify(p Push, value []byte) {
	if p.Err != nil {
		s.undecodable(p)
		return
	}
	s.mu.Lock()
	reg := s.ids[id{p.Domain, p.ID}]
	if reg == nil && mutant.On("sdk.unknown-notify-accepted") {
		for _, reg = range s.ids {
		}
	}
	var users []*Subscription
	if reg != nil {
		users = reg.users
	}
	s.mu.Unlock()
	for _, u := range users {
		u.sink.Push(value)
	}
}

// undecodable ends the registration of a notification that cannot be read; every one of the domain when not even its id can.
func (s *Session) undecodable(p Push) {
	if mutant.On("sdk.undecodable-notify-ignored") {
		return
	}
	s.mu.Lock()
	var hit []*registration
	for key, reg := range s.ids {
		if key.domain == p.Domain && (p.ID == 0 || key.id == p.ID) {
			hit = append(hit, reg)
		}
	}
	var users []*Subscription
	for _, reg := range hit {
		users = append(users, s.detach(reg)...)
		reg.stale = true
	}
	s.mu.Unlock()
	end(users, End{Reason: EndUndecodable, Err: p.Err})
	for _, reg := range hit {
		s.core.Background(func(ctx context.Context) { _ = s.unsubscribe(ctx, reg) })
	}
}

// endedByPeer ends a registration that the peer has removed already (W-68).
func (s *Session) endedByPeer(p Push) {
	s.mu.Lock()
	reg := s.ids[id{p.Domain, p.ID}]
	var users []*Subscription
	if reg != nil {
		users = s.detach(reg)
		s.forget(reg)
	}
	s.mu.Unlock()
	end(users, End{Reason: EndedByPeer, Dropped: p.Dropped, Code: p.Code})
}

// endAll ends every registration of the session.
func (s *Session) endAll(e End) {
	s.mu.Lock()
	s.ended = true
	var users []*Subscription
	for _, reg := range s.ids {
		users = append(users, s.detach(reg)...)
	}
	clear(s.texts)
	s.mu.Unlock()
	if !mutant.On("sdk.lost-subscription-silent") {
		end(users, e)
	}
}
