package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Filter chooses frames. What is zero is not looked at.
type Filter struct {
	Name    string // of the rule in the trace
	Conn    int    // number of the connection, from 1
	Dir     oracle.Direction
	Message string
	Form    oracle.Form
	Match   func(trace.Entry) bool
	Nth     int // the first that is chosen is the nth since the rule was made, from 1; 0 is 1
	Count   int // so many are chosen; 0: all
}

// String describes the filter: down lease.list reply.
func (f Filter) String() string {
	text := f.trace().String()
	if f.Nth > 1 {
		text += fmt.Sprintf(" from number %d", f.Nth)
	}
	return text
}

// trace is the filter of what was delivered.
func (f Filter) trace() trace.Filter {
	return trace.Filter{Conn: f.Conn, Dir: f.Dir, Message: f.Message, Form: f.Form, Where: f.Match}
}

// Rule is what is done to frames that a filter chooses, until Lift. Rules apply to the connections that there are and to those that come. Several
// may apply to one frame: they look at the frame as it was read, and act in the order in which they were made.
type Rule struct {
	proxy  *Proxy
	name   string
	filter Filter
	act    func(r *Rule, f *flow, e trace.Entry, p *plan)
	alone  bool // what is held is overtaken by what comes behind it
	onPush bool // a push that passes frees what is held

	seen, hits int
	lifted     bool
	held       []*item
	joining    []*item
	timers     map[*item]func() bool
}

// plan is what becomes of one frame.
type plan struct {
	touched bool
	rule    string // names of what touched it
	fate    trace.Fate
	label   uint64
	record  []byte
	edited  bool
	copies  int
	holders []*Rule
	delays  []delay
	shape   shape
	joins   int
	merges  bool
	joiner  *Rule
	answers []oracle.Record
}

type delay struct {
	rule *Rule
	time time.Duration
}

func (p *Proxy) add(kind string, f Filter, act func(*Rule, *flow, trace.Entry, *plan)) *Rule {
	return p.install(&Rule{act: act}, kind, f)
}

func (p *Proxy) install(r *Rule, kind string, f Filter) *Rule {
	r.proxy, r.name, r.filter, r.timers = p, strings.TrimSpace(kind+" "+f.Name), f, map[*item]func() bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Hold keeps the chosen frames, and everything behind them in the same direction of their connection, until Release or Lift. The end of the
// connection waits behind them too. When session_notify_bytes_max wait in a direction its sender is no longer read.
func (p *Proxy) Hold(f Filter) *Rule { return p.add("hold", f, (*Rule).hold) }

// HoldAlone keeps the chosen frames until Release or Lift; others overtake them. Those that are kept when the connection ends are lost.
func (p *Proxy) HoldAlone(f Filter) *Rule {
	return p.install(&Rule{act: (*Rule).hold, alone: true}, "hold alone", f)
}

// Reorder keeps the chosen frames until the next push has been delivered behind them, or Release or Lift; others overtake them. So a push comes
// before the reply that stood in front of it.
func (p *Proxy) Reorder(f Filter) *Rule {
	return p.install(&Rule{act: (*Rule).hold, alone: true, onPush: true}, "reorder", f)
}

func (r *Rule) hold(_ *flow, _ trace.Entry, p *plan) { p.holders = append(p.holders, r) }

// Delay delivers the chosen frames, and everything behind them in the same direction of their connection, so much later.
func (p *Proxy) Delay(f Filter, d time.Duration) *Rule {
	return p.add("delay", f, func(r *Rule, _ *flow, _ trace.Entry, p *plan) {
		p.holders, p.delays = append(p.holders, r), append(p.delays, delay{r, d})
	})
}

// Drop loses the chosen frames.
func (p *Proxy) Drop(f Filter) *Rule {
	return p.add("drop", f, func(_ *Rule, _ *flow, _ trace.Entry, p *plan) { p.fate = trace.Dropped })
}

// Duplicate delivers the chosen frames twice.
func (p *Proxy) Duplicate(f Filter) *Rule {
	return p.add("duplicate", f, func(_ *Rule, _ *flow, _ trace.Entry, p *plan) { p.copies++ })
}

// Corrupt changes one byte of the chosen frames by exclusive or. The offset counts from the first byte of the record; a negative one from
// its end. An offset outside the record is a problem that Err reports.
func (p *Proxy) Corrupt(f Filter, offset int, xor byte) *Rule {
	return p.EditBytes(f, func(record []byte) []byte {
		at := offset
		if at < 0 {
			at += len(record)
		}
		if at < 0 || at >= len(record) {
			return nil
		}
		record[at] ^= xor
		return record
	})
}

// EditBytes changes the bytes of the chosen records, header included; the label in front stays. The function gets a copy. A result of nil is a
// problem that Err reports, and leaves the frame as it is.
func (p *Proxy) EditBytes(f Filter, change func(record []byte) []byte) *Rule {
	return p.add("edit", f, func(r *Rule, _ *flow, _ trace.Entry, p *plan) {
		record := change(slices.Clone(p.record))
		if record == nil {
			r.problem("the bytes cannot be changed so")
			return
		}
		p.record, p.edited = record, true
	})
}

// Edit changes the values of the chosen frames. What cannot be decoded or encoded is a problem that Err reports, and leaves the frame as it is.
func (p *Proxy) Edit(f Filter, change func(oracle.Value) oracle.Value) *Rule {
	return p.Replace(f, func(rec oracle.Record) oracle.Record {
		if rec.Value == nil {
			return rec
		}
		rec.Value, rec.Bytes = change(rec.Value), nil
		return rec
	})
}

// Replace puts other records in the place of the chosen ones. The label of the result stands in front of it. A result with a value is encoded by its
// message and form, whatever bounds it breaks; one without is sent as its bytes are. What cannot be encoded is a problem that Err reports.
func (p *Proxy) Replace(f Filter, change func(oracle.Record) oracle.Record) *Rule {
	return p.add("edit", f, func(r *Rule, fl *flow, e trace.Entry, p *plan) {
		result := change(r.decode(fl.dir, p))
		label := result.Label
		result.Label = 0
		record, err := trace.Encode(r.proxy.codec, fl.dir, result)
		if err != nil {
			r.problem("%s: %v", e.Message, err)
			return
		}
		p.record, p.label, p.edited = record, label, true
	})
}

// Answer keeps the chosen requests from the other side and answers them with the records that the function returns. A record without a label gets
// the label of the request.
func (p *Proxy) Answer(f Filter, answer func(request oracle.Record) []oracle.Record) *Rule {
	return p.add("answer", f, func(r *Rule, fl *flow, _ trace.Entry, p *plan) {
		p.fate = trace.Answered
		for _, rec := range answer(r.decode(fl.dir, p)) {
			if rec.Label == 0 {
				rec.Label = p.label
			}
			p.answers = append(p.answers, rec)
		}
	})
}

func (r *Rule) decode(dir oracle.Direction, p *plan) oracle.Record {
	rec, _ := r.proxy.codec.Decode(dir, p.record)
	rec.Label = p.label
	return rec
}

// Split delivers the chosen frames in writes of one byte.
func (p *Proxy) Split(f Filter) *Rule {
	return p.add("split", f, func(_ *Rule, _ *flow, _ trace.Entry, p *plan) { p.shape.chunk = 1 })
}

// Coalesce delivers each chosen frame in one write with the n-1 messages behind it. It waits for them until Release, Lift, or the end of the stream.
func (p *Proxy) Coalesce(f Filter, n int) *Rule { return p.join("coalesce", f, n, false) }

// Join delivers each chosen frame in one transport message with the n-1 frames behind it (W-14). It waits for them as Coalesce does.
func (p *Proxy) Join(f Filter, n int) *Rule { return p.join("join", f, n, true) }

func (p *Proxy) join(kind string, f Filter, n int, merges bool) *Rule {
	return p.add(kind, f, func(r *Rule, _ *flow, _ trace.Entry, p *plan) {
		p.joins, p.merges, p.joiner = max(n-1, 0), merges, r
	})
}

// Oversize delivers the chosen frames with a size in front that is larger than they are; what follows them in the stream is read as part of
// them. Size 0 is one byte more than the receiver may accept: frame_recv_max or sdk_frame_recv_max.
func (p *Proxy) Oversize(f Filter, size uint64) *Rule {
	return p.add("oversize", f, func(r *Rule, fl *flow, _ trace.Entry, p *plan) {
		p.shape.declared = size
		if size == 0 {
			p.shape.declared = uint64(r.proxy.codec.Bound(receiveBound[fl.dir])) + 1
		}
	})
}

var receiveBound = map[oracle.Direction]string{oracle.Up: "frame_recv_max", oracle.Down: "sdk_frame_recv_max"}

// Reframe delivers the chosen frames in WebSocket frames of another kind, which RFC 6455 may or may not allow. On TCP, which has no such frames, they
// are delivered in writes of w.Fragment bytes.
func (p *Proxy) Reframe(f Filter, w WebSocketFrame) *Rule {
	return p.add("reframe", f, func(_ *Rule, fl *flow, _ trace.Entry, p *plan) {
		p.shape.frames = &w
		if fl.conn.transport == stream.TCP {
			p.shape.chunk = w.Fragment
		}
	})
}

// WebSocketFrame says in which frames a message is delivered. The zero value is one binary frame as it should be.
type WebSocketFrame struct {
	Text      bool // a text message (W-22)
	WrongMask bool // without a mask to a broker, with one to a client (W-23)
	Reserved  byte // reserved bits, in their place: 0x40, 0x20, 0x10
	Fragment  int  // bytes of each fragment, 0 for one frame
	Unended   bool // no frame says that it is the last
}

func (w WebSocketFrame) append(up bool, payload []byte) []byte {
	size := w.Fragment
	if size <= 0 {
		size = max(len(payload), 1)
	}
	parts := slices.Collect(slices.Chunk(payload, size))
	if len(parts) == 0 {
		parts = [][]byte{nil}
	}
	var wire []byte
	for i, part := range parts {
		frame := stream.Frame{Opcode: stream.OpBinary, Masked: up != w.WrongMask, Payload: part, More: w.Unended || i < len(parts)-1}
		switch {
		case i > 0:
			frame.Opcode = stream.OpContinuation
		case w.Text:
			frame.Opcode, frame.Reserved = stream.OpText, w.Reserved
		default:
			frame.Reserved = w.Reserved
		}
		wire = frame.Append(wire)
	}
	return wire
}

// Name returns what the trace calls the rule.
func (r *Rule) Name() string { return r.name }

// Hits returns how many frames the rule has been applied to.
func (r *Rule) Hits() int {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	return r.hits
}

// Held returns how many frames the rule keeps now.
func (r *Rule) Held() int {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	return len(r.held)
}

// Await waits until the rule has been applied to so many frames, or ctx ends.
func (r *Rule) Await(ctx context.Context, hits int) error {
	return r.proxy.await(ctx, fmt.Sprintf("%d frames at %s (%s)", hits, r.name, r.filter), func() bool { return r.hits >= hits })
}

// Release lets everything go that the rule keeps, in order. The rule goes on.
func (r *Rule) Release() {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	r.release(len(r.held))
}

// ReleaseFirst lets the n frames go that the rule has kept longest.
func (r *Rule) ReleaseFirst(n int) {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	r.release(min(n, len(r.held)))
}

// Lift ends the rule and lets everything go that it keeps.
func (r *Rule) Lift() {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	r.lifted = true
	r.proxy.rules = slices.DeleteFunc(r.proxy.rules, func(other *Rule) bool { return other == r })
	r.release(len(r.held))
}

// release frees the first n items. The lock is held.
func (r *Rule) release(n int) {
	for _, it := range slices.Clone(r.held[:n]) {
		it.holders = slices.DeleteFunc(it.holders, func(other *Rule) bool { return other == r })
		r.unhold(it)
	}
	for _, it := range r.joining {
		it.joins = 0
	}
	r.joining = nil
	r.proxy.changed.Broadcast()
}

// unhold forgets that the rule keeps an item. The lock is held.
func (r *Rule) unhold(it *item) {
	r.held = slices.DeleteFunc(r.held, func(other *item) bool { return other == it })
	if stop := r.timers[it]; stop != nil {
		stop()
		delete(r.timers, it)
	}
}

// stopTimers is for the end of the proxy. The lock is held.
func (r *Rule) stopTimers() {
	for _, stop := range r.timers {
		stop()
	}
	clear(r.timers)
}

// after frees an item when a time has passed. The lock is held.
func (r *Rule) after(d time.Duration, it *item) {
	r.timers[it] = r.proxy.afterFunc(d, func() {
		r.proxy.mu.Lock()
		defer r.proxy.mu.Unlock()
		if slices.Contains(r.held, it) {
			it.holders = slices.DeleteFunc(it.holders, func(other *Rule) bool { return other == r })
			r.unhold(it)
			r.proxy.changed.Broadcast()
		}
	})
}

// problem reports what the rule could not do. The lock is held.
func (r *Rule) problem(format string, args ...any) {
	r.proxy.problem(fmt.Errorf("proxy: %s (%s): %s", r.name, r.filter, fmt.Sprintf(format, args...)))
}

// chooses counts the frame and reports whether the rule applies to it. The lock is held.
func (r *Rule) chooses(e trace.Entry) bool {
	if !r.filter.trace().Chooses(e) {
		return false
	}
	r.seen++
	if r.seen < r.filter.Nth || r.filter.Count > 0 && r.hits >= r.filter.Count {
		return false
	}
	r.hits++
	r.proxy.changed.Broadcast()
	return true
}
