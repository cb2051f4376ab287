package fitztest

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"

	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Direction is a direction of a connection.
type Direction uint8

// The directions.
const (
	ToBroker Direction = iota
	ToClient
)

// heldMax is how many frames may be held at a time. A test that holds more is told so.
const heldMax = 1 << 16

// Frame is one record on its way, together with the label in front of it.
type Frame struct {
	Direction Direction
	Type      wire.MessageType
	Label     uint64 // 0: none
	Value     []byte
}

// Filter chooses frames.
type Filter struct {
	Direction Direction
	Type      wire.MessageType
	Skip      int // so many pass first
	Count     int // so many are chosen; 0: all
	// Match is a further demand; nil: none.
	Match func(Frame) bool
}

// Network is what stands between clients and their broker. Faults of frames apply to the connections that there are and to those that come, but
// for those with TLS, in which no frame can be seen: what else a network does happens to them as well. All methods may be called from any goroutine, and return at once unless they say otherwise.
type Network struct {
	tb testing.TB

	mu      sync.Mutex
	changed sync.Cond
	links   map[*link]struct{}
	refused bool
	rules   []*Rule
	written map[passedKey]int
	passed  map[passedKey]int
	held    int
	black   bool
	frozen  bool
	dials   int
}

type passedKey struct {
	direction Direction
	typ       wire.MessageType
}

// carrier is what a connection carries.
type carrier uint8

const (
	carriesTCP       carrier = iota // transport messages behind their length
	carriesWebSocket                // an upgrade and then a WebSocket
	carriesSecrets                  // TLS, in which no frame can be seen
)

// link is one connection.
type link struct{ near, far *conn }

func newNetwork(tb testing.TB) *Network {
	n := &Network{tb: tb, links: map[*link]struct{}{}, written: map[passedKey]int{}, passed: map[passedKey]int{}}
	n.changed.L = &n.mu
	return n
}

// admit is asked before a connection is made.
func (n *Network) admit() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dials++
	n.changed.Broadcast()
	if n.refused {
		return errDown
	}
	return nil
}

// attach leads a connection through the network.
func (n *Network) attach(near, far *conn, carries carrier) {
	l := &link{near, far}
	near.relay = n.relay(ToBroker, near.out, carries)
	far.relay = n.relay(ToClient, far.out, carries)
	near.forget = func() { n.detach(l) }
	n.mu.Lock()
	n.links[l] = struct{}{}
	frozen := n.frozen
	n.mu.Unlock()
	near.in.set(func() { near.in.frozen = frozen })
}

func (n *Network) relay(d Direction, out *stream, carries carrier) *relay {
	r := &relay{network: n, direction: d, out: out, framing: tcpFraming{}, foreign: carries == carriesSecrets}
	if carries == carriesWebSocket {
		r.framing = &webSocketFraming{direction: d}
	}
	return r
}

func (n *Network) detach(l *link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, l)
}

func (n *Network) each(f func(*link)) {
	n.mu.Lock()
	links := make([]*link, 0, len(n.links))
	for l := range n.links {
		links = append(links, l)
	}
	n.mu.Unlock()
	for _, l := range links {
		f(l)
	}
}

// Cut loses every connection: both ends get an error as of a connection that was reset, and what was on its way is gone. It differs from a
// broker that closes connections in order, which Broker.Stop does: a client whose session is being opened takes that for a refusal.
func (n *Network) Cut() {
	n.each(func(l *link) {
		for _, s := range []*stream{l.near.in, l.near.out} {
			s.set(func() { s.reset, s.buf = true, nil })
		}
		n.detach(l)
	})
}

// Refuse makes Dial fail, or succeed again.
func (n *Network) Refuse(refused bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refused = refused
}

// BlackHole swallows everything in both directions, as a network does whose other end is gone without a word, or stops doing so.
func (n *Network) BlackHole(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.black = on
}

// Freeze keeps clients from reading, or lets them read again. What the broker sends waits in the connection until that is full, and then
// in the broker.
func (n *Network) Freeze(on bool) {
	n.mu.Lock()
	n.frozen = on
	n.mu.Unlock()
	n.each(func(l *link) { l.near.in.set(func() { l.near.in.frozen = on }) })
}

// Passed returns how many frames of a message have been delivered in a direction so far.
func (n *Network) Passed(d Direction, typ wire.MessageType) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.passed[passedKey{d, typ}]
}

// Written returns how many frames of a message have been sent in a direction so far, whatever became of them.
func (n *Network) Written(d Direction, typ wire.MessageType) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.written[passedKey{d, typ}]
}

// Dials returns how often Dial was called.
func (n *Network) Dials() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials
}

// Await waits until so many frames of a message have been delivered in a direction in all, or ctx ends.
func (n *Network) Await(ctx context.Context, d Direction, typ wire.MessageType, count int) error {
	return n.await(ctx, func() bool { return n.passed[passedKey{d, typ}] >= count })
}

// await waits for something that is looked at under the lock.
func (n *Network) await(ctx context.Context, done func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed.Broadcast()
	})
	defer stop()
	n.mu.Lock()
	defer n.mu.Unlock()
	for !done() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n.changed.Wait()
	}
	return nil
}

// action is what a rule does to a frame.
type action uint8

const (
	hold action = iota
	drop
	repeat
	edit
)

// Rule is a fault that stays until Remove.
type Rule struct {
	network *Network
	filter  Filter
	action  action
	alone   bool // held frames do not hold up others
	change  func(value []byte) []byte

	seen, hit int
	queue     []waiting
	removed   bool
}

// waiting is a held frame, or bytes without records that came behind one.
type waiting struct {
	relay *relay
	frame Frame
	asIs  []byte // not nil: instead of a frame
}

func (n *Network) add(r *Rule) *Rule {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.network = n
	n.rules = append(n.rules, r)
	return r
}

// Hold keeps the chosen frames and everything behind them in the same direction of their connection until Release or Remove.
func (n *Network) Hold(f Filter) *Rule { return n.add(&Rule{filter: f, action: hold}) }

// HoldAlone keeps the chosen frames; others overtake them.
func (n *Network) HoldAlone(f Filter) *Rule {
	return n.add(&Rule{filter: f, action: hold, alone: true})
}

// Drop loses the chosen frames.
func (n *Network) Drop(f Filter) *Rule { return n.add(&Rule{filter: f, action: drop}) }

// Repeat delivers the chosen frames twice. A transport message with several frames stays one as far as its frames are not touched.
func (n *Network) Repeat(f Filter) *Rule { return n.add(&Rule{filter: f, action: repeat}) }

// Edit changes the values of the chosen frames, to at most what a record holds (record_value_max).
func (n *Network) Edit(f Filter, change func(value []byte) []byte) *Rule {
	return n.add(&Rule{filter: f, action: edit, change: change})
}

// Hits returns how many frames the rule was applied to.
func (r *Rule) Hits() int {
	r.network.mu.Lock()
	defer r.network.mu.Unlock()
	return r.hit
}

// Await waits until the rule was applied to so many frames, or ctx ends.
func (r *Rule) Await(ctx context.Context, hits int) error {
	return r.network.await(ctx, func() bool { return r.hit >= hits })
}

// Release delivers what is held, in order. The rule goes on to hold.
func (r *Rule) Release() {
	n := r.network
	n.mu.Lock()
	defer n.mu.Unlock()
	queue := r.queue
	r.queue = nil
	for _, w := range queue {
		n.held--
		if w.relay.held == r {
			w.relay.held = nil
		}
		if w.asIs != nil {
			w.relay.out.put(w.asIs)
			continue
		}
		w.relay.deliverAlone(w.frame)
	}
}

// Remove ends the rule and delivers what it holds.
func (r *Rule) Remove() {
	n := r.network
	n.mu.Lock()
	r.removed = true
	n.rules = slices.DeleteFunc(n.rules, func(other *Rule) bool { return other == r })
	n.mu.Unlock()
	r.Release()
}

// chooses reports whether the rule applies to the frame. The lock of the network is held.
func (r *Rule) chooses(f Frame) bool {
	if f.Direction != r.filter.Direction || f.Type != r.filter.Type || r.filter.Match != nil && !r.filter.Match(f) {
		return false
	}
	r.seen++
	if r.seen <= r.filter.Skip || r.filter.Count > 0 && r.hit >= r.filter.Count {
		return false
	}
	r.hit++
	r.network.changed.Broadcast()
	return true
}

// relay takes what one end of a connection writes apart into frames, lets the faults at them, and hands the rest to the other end.
type relay struct {
	network   *Network
	direction Direction
	framing   framing
	out       *stream
	partial   []byte
	batch     []byte // records that were delivered and are to leave in one transport message; guarded by the lock of the network
	foreign   bool   // the stream holds no messages any more: everything goes through as it is
	held      *Rule  // holds everything of this direction; guarded by the lock of the network
}

// write takes bytes of the stream. It is called by one goroutine at a time. What is kept of them is at most a transport message that an SDK
// accepts (sdk_frame_recv_max) and the head of an upgrade (http_header_bytes_max); what is longer, or not a message, goes through as it is and is the
// business of the other end.
func (r *relay) write(p []byte) {
	n := r.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if r.foreign {
		r.pass(p)
		return
	}
	r.partial = append(r.partial, p...)
	rest := r.partial
	for !r.foreign {
		next := r.framing.next(rest)
		switch next.kind {
		case pieceUnfinished:
			r.partial = append(r.partial[:0], rest...)
			return
		case pieceMessage:
			r.message(next.payload)
		case pieceAsIs:
			r.pass(rest[:next.size])
		case pieceForeign:
			r.foreign = true
			r.pass(append(next.payload, rest...))
			r.partial = nil
		}
		rest = rest[next.size:]
	}
}

// writeAsIs ends taking the stream apart: p and everything behind it goes through as it is.
func (r *relay) writeAsIs(p []byte) {
	n := r.network
	n.mu.Lock()
	defer n.mu.Unlock()
	r.foreign = true
	r.pass(append(r.partial, p...))
	r.partial = nil
}

// pass hands bytes on in which no frames are. The lock of the network is held.
func (r *relay) pass(p []byte) {
	switch {
	case r.network.black:
	case r.held != nil:
		r.keep(r.held, waiting{relay: r, asIs: append([]byte{}, p...)})
	default:
		r.out.put(p)
	}
}

// message takes a transport message apart. What is not made of records goes through as it is. The lock of the network is held.
func (r *relay) message(payload []byte) {
	n := r.network
	frames, ok := framesOf(r.direction, payload)
	for _, f := range frames {
		n.written[passedKey{f.Direction, f.Type}]++
	}
	if n.black {
		return
	}
	if !ok {
		r.pass(r.framing.message(payload))
		return
	}
	for _, f := range frames {
		r.apply(f)
	}
	r.flush()
}

// framesOf joins every record of a transport message with the label in front of it. False: it does not hold records.
func framesOf(d Direction, payload []byte) ([]Frame, bool) {
	var frames []Frame
	label := uint64(0)
	for len(payload) > 0 {
		record, rest, err := codec.NextRecord(payload)
		if err != nil {
			return nil, false
		}
		payload = rest
		t, value := wire.MessageType(record.Type), record.Value
		if (t == wire.TypeCorrelate || t == wire.TypeCorrelated) && len(value) == 8 && len(payload) > 0 {
			label = binary.BigEndian.Uint64(value)
			continue
		}
		frames = append(frames, Frame{d, t, label, slices.Clone(value)})
		label = 0
	}
	return frames, len(frames) > 0
}

// apply lets the first rule at a frame that chooses it.
func (r *relay) apply(f Frame) {
	n := r.network
	if r.held != nil {
		r.keep(r.held, waiting{relay: r, frame: f})
		return
	}
	for _, rule := range n.rules {
		if !rule.chooses(f) {
			continue
		}
		switch rule.action {
		case hold:
			if !rule.alone {
				r.held = rule
			}
			r.keep(rule, waiting{relay: r, frame: f})
		case drop:
		case repeat:
			r.deliver(f)
			r.deliverAlone(f)
		case edit:
			r.deliverAlone(r.edited(rule, f))
		}
		return
	}
	r.deliver(f)
}

// edited returns a frame with another value.
func (r *relay) edited(rule *Rule, f Frame) Frame {
	value := rule.change(slices.Clone(f.Value))
	if len(value) > codec.MaxRecordValue {
		r.network.tb.Errorf("fitztest: a value of %d bytes is too long for %v; it stays as it was", len(value), f.Type)
		return f
	}
	f.Value = value
	return f
}

func (r *relay) keep(rule *Rule, w waiting) {
	if r.network.held >= heldMax {
		r.network.tb.Errorf("fitztest: more than %d frames are held; %v is lost", heldMax, w.frame.Type)
		return
	}
	r.network.held++
	rule.queue = append(rule.queue, w)
}

// deliver lets a frame leave with the transport message in which it came (W-14). The lock of the network is held, as it is for flush.
func (r *relay) deliver(f Frame) {
	r.network.passed[passedKey{f.Direction, f.Type}]++
	r.network.changed.Broadcast()
	if f.Label != 0 {
		typ := wire.TypeCorrelate
		if r.direction == ToClient {
			typ = wire.TypeCorrelated
		}
		r.batch = codec.AppendRecord(r.batch, uint16(typ), binary.BigEndian.AppendUint64(nil, f.Label))
	}
	r.batch = codec.AppendRecord(r.batch, uint16(f.Type), f.Value)
}

// deliverAlone lets a frame leave in a transport message of its own, because with others it could be too long for one.
func (r *relay) deliverAlone(f Frame) {
	r.flush()
	r.deliver(f)
	r.flush()
}

// flush hands what was delivered to the other end.
func (r *relay) flush() {
	if len(r.batch) > 0 {
		r.out.put(r.framing.message(r.batch))
		r.batch = nil
	}
}
