// Package trace records what passed a link: every frame with the moment at which it was read and the moment at which it was delivered, or
// what became of it instead. Proxies, raw peers and scripted brokers write such logs; scenarios wait on them and count in them, and reports
// show them with every byte named.
package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fitzwire/fitz/conformance/oracle"
)

// Codec is the part of *oracle.Spec that the packages of the wire need.
type Codec interface {
	EncodeAny(message string, form oracle.Form, v oracle.Value) ([]byte, error)
	Label(dir oracle.Direction, label uint64, record []byte) []byte
	Decode(dir oracle.Direction, record []byte) (oracle.Record, *oracle.Fault)
	SplitMessage(dir oracle.Direction, message []byte) ([]oracle.Record, *oracle.Fault)
	Annotate(dir oracle.Direction, record []byte) []oracle.Span
	Bound(name string) int64
	Capability(name string) (uint64, bool)
}

// Kind says what an entry is about.
type Kind string

// The kinds.
const (
	Frame   Kind = "frame"   // one record with the label in front of it
	Bytes   Kind = "bytes"   // bytes without records: not a message, or the end of one is missing
	Control Kind = "control" // WebSocket ping, pong or close
	Head    Kind = "head"    // head of an upgrade
	Event   Kind = "event"   // something about a connection: opened, closed, reset, a fault
)

// Fate is what became of what was read.
type Fate string

// The fates.
const (
	Waiting   Fate = "waiting"   // read, and its turn has not come
	Held      Fate = "held"      // a rule keeps it
	Delivered Fate = "delivered" // written to the other side
	Dropped   Fate = "dropped"   // a rule lost it
	Swallowed Fate = "swallowed" // a black hole or a mute lost it
	Answered  Fate = "answered"  // the proxy answered it instead of the other side
	Lost      Fate = "lost"      // its connection ended before its turn came
)

// Moment is one of the two moments of an entry.
type Moment string

// The moments.
const (
	Written Moment = "delivered" // its write to the other side was begun; the moment when none is named
	Read    Moment = "read"      // it was read from its sender
)

// Entry is one thing that passed. Entries that a Log returns are copies; their bytes are shared and must not be changed.
type Entry struct {
	Seq      int           // place in the log, from 1
	At       time.Duration // since the start of the log: read
	Conn     int           // number of the connection on its link, from 1
	Kind     Kind
	Dir      oracle.Direction
	Message  string      // name of the message, "" when it has none; of a control frame ping, pong, close; of an event its name
	Form     oracle.Form // of a frame
	Type     uint16      // message number of a frame
	Label    uint64      // of a frame, 0 for none
	Bytes    []byte      // as read: label record and record; payload of a control frame
	Record   []byte      // of a frame: Bytes without the label
	Fault    *oracle.Fault
	Group    int    // frames of one transport message share it, from 1
	Inserted bool   // made on the way, not sent by the other side
	Rule     string // what touched it: "hold h1"
	Note     string

	Fate      Fate
	Delivered time.Duration // since the start of the log, when Fate is Delivered
	Sent      []byte        // as delivered, when that differs from Bytes

	readTick, sentTick uint64
	gone               bool // left out
	codec              Codec
}

// Value decodes the value of a frame as it was read. It is nil when the frame does not decode.
func (e Entry) Value() oracle.Value {
	if e.Kind != Frame || e.codec == nil {
		return nil
	}
	record, fault := e.codec.Decode(e.Dir, e.Record)
	if fault != nil {
		return nil
	}
	return record.Value
}

// Limits bound what a log keeps. Beyond them the entries behind the first quarter go first, and the log says how many.
type Limits struct {
	Entries int
	Bytes   int // of entries as they were read and as they were delivered
}

// DefaultLimits are the limits of a log for which nothing else was said: more than the busiest scenario makes.
var DefaultLimits = Limits{Entries: 1 << 17, Bytes: 64 << 20}

// Ref names an entry of a log for those who write it.
type Ref struct{ entry *Entry }

// Log is the log of one link. It is safe for concurrent use.
type Log struct {
	name   string
	codec  Codec
	limits Limits
	start  time.Time
	now    func() time.Time

	mu      sync.Mutex
	entries []*Entry // in the order in which they were read
	sent    []*Entry // in the order in which they were delivered
	bytes   int
	seq     int
	groups  int
	tick    uint64
	left    LeftOut
	waiters map[*waiter]struct{}
}

// LeftOut says what a log no longer has.
type LeftOut struct {
	Entries int    `json:"entries"`
	Bytes   int    `json:"bytes"`
	After   int    `json:"after"` // entry behind which the gap is
	tick    uint64 // last moment of anything left out
}

// New returns an empty log. The clock tells the moments of its entries; nil is time.Now.
func New(name string, codec Codec, limits Limits, now func() time.Time) *Log {
	if now == nil {
		now = time.Now
	}
	return &Log{name: name, codec: codec, limits: limits, start: now(), now: now, waiters: map[*waiter]struct{}{}}
}

// Name returns the name of the link.
func (l *Log) Name() string { return l.name }

// Add appends an entry that was read now. Its Fate may be Delivered already.
func (l *Log) Add(e Entry) Ref {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.tick++
	e.Seq, e.At, e.readTick, e.codec = l.seq, l.now().Sub(l.start), l.tick, l.codec
	entry := &e
	l.entries = append(l.entries, entry)
	l.bytes += entry.size()
	if !e.Inserted {
		l.tell(entry, Read)
	}
	if e.Fate == Delivered {
		l.deliver(entry)
	}
	l.shrink()
	return Ref{entry}
}

// Get returns an entry as it is now.
func (l *Log) Get(r Ref) Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *r.entry
}

// Group returns the number of a new transport message.
func (l *Log) Group() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.groups++
	return l.groups
}

// Deliver says that an entry was delivered now; sent is nil when the bytes are those that were read.
func (l *Log) Deliver(r Ref, sent []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.entry.Sent = sent
	if r.entry.gone {
		l.tick++
		l.left.tick = l.tick
		return
	}
	l.bytes += len(sent)
	l.deliver(r.entry)
	l.shrink()
}

func (l *Log) deliver(e *Entry) {
	l.tick++
	e.Fate, e.Delivered, e.sentTick = Delivered, l.now().Sub(l.start), l.tick
	l.sent = append(l.sent, e)
	l.tell(e, Written)
}

// Settle says what became of an entry that was not delivered, or not yet. The rule is "" when none touched it anew.
func (l *Log) Settle(r Ref, fate Fate, rule string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.entry.Fate = fate
	l.touch(r.entry, rule)
}

// Touch says that a rule touched an entry.
func (l *Log) Touch(r Ref, rule string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.touch(r.entry, rule)
}

func (l *Log) touch(e *Entry, rule string) {
	switch {
	case rule == "" || rule == e.Rule:
	case e.Rule == "":
		e.Rule = rule
	default:
		e.Rule += ", " + rule
	}
}

// shrink keeps the log within its limits. What goes is an eighth of them at a time, so that the cost of moving the rest is spread.
func (l *Log) shrink() {
	if len(l.entries) <= l.limits.Entries && l.bytes <= l.limits.Bytes {
		return
	}
	first := l.head()
	end := first
	for end < len(l.entries) && (len(l.entries)-(end-first) > l.limits.Entries/8*7 || l.bytes > l.limits.Bytes/8*7) {
		e := l.entries[end]
		l.bytes -= e.size()
		l.left.Entries++
		l.left.Bytes += e.size()
		l.left.tick = max(l.left.tick, e.readTick, e.sentTick)
		e.gone = true
		end++
	}
	l.entries = slices.Delete(l.entries, first, end)
	l.sent = slices.DeleteFunc(l.sent, func(e *Entry) bool { return e.gone })
}

// head returns how many entries at the start are kept for good: those of the first quarter of the limits.
func (l *Log) head() int {
	if l.left.Entries > 0 {
		n, _ := slices.BinarySearchFunc(l.entries, l.left.After+1, func(e *Entry, seq int) int { return cmp.Compare(e.Seq, seq) })
		return n
	}
	n, used := 0, 0
	for n < len(l.entries) && n < l.limits.Entries/4 && used+l.entries[n].size() <= l.limits.Bytes/4 {
		used += l.entries[n].size()
		n++
	}
	if n > 0 {
		l.left.After = l.entries[n-1].Seq
	}
	return n
}

func (e *Entry) size() int { return len(e.Bytes) + len(e.Sent) }

// Left returns what the log no longer has.
func (l *Log) Left() LeftOut {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left
}

// Entries returns what the log has, in the order in which it was read.
func (l *Log) Entries() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]Entry, len(l.entries))
	for i, e := range l.entries {
		out[i] = *e
	}
	return out
}

// Mark names this moment for Filter.Since.
func (l *Log) Mark() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tick
}

// Filter chooses entries. What is zero is not looked at, except that the zero Kind is Frame and the zero At is Written.
type Filter struct {
	Conn    int
	Kind    Kind
	Dir     oracle.Direction
	Message string
	Form    oracle.Form
	Where   func(Entry) bool
	At      Moment
	Since   uint64 // a mark: only what happened after it
}

// String describes the filter: down lease.list reply.
func (f Filter) String() string {
	out := string(f.kind())
	for _, word := range []string{string(f.Dir), f.Message, string(f.Form)} {
		if word != "" {
			out += " " + word
		}
	}
	if f.Conn != 0 {
		out += fmt.Sprintf(" of connection %d", f.Conn)
	}
	if f.At == Read {
		out += ", read"
	}
	return out
}

func (f Filter) kind() Kind {
	if f.Kind == "" {
		return Frame
	}
	return f.Kind
}

func (f Filter) moment() Moment {
	if f.At == "" {
		return Written
	}
	return f.At
}

// Chooses reports whether the entry is what the filter looks for, whatever its moments.
func (f Filter) Chooses(e Entry) bool {
	return e.Kind == f.kind() &&
		(f.Conn == 0 || e.Conn == f.Conn) &&
		(f.Dir == "" || e.Dir == f.Dir) &&
		(f.Message == "" || e.Message == f.Message) &&
		(f.Form == "" || e.Form == f.Form) &&
		(f.Where == nil || f.Where(e))
}

// tickOf is the tick of the moment, 0 when the entry has not had it.
func (m Moment) tickOf(e *Entry) uint64 {
	if m == Read {
		return e.readTick
	}
	return e.sentTick
}

// ErrLeftOut says that the log no longer has everything that a filter asks about.
var ErrLeftOut = errors.New("trace: the log has left out entries that the question is about")

// Find returns the entries that a filter chooses, in the order of the moment it names. Where is called without locks.
func (l *Log) Find(f Filter) ([]Entry, error) {
	found, _, err := l.scan(f)
	return found, err
}

// scan returns what Find does, and the mark up to which it looked.
func (l *Log) scan(f Filter) (found []Entry, mark uint64, err error) {
	m := f.moment()
	l.mu.Lock()
	order := l.sent
	if m == Read {
		order = l.entries
	}
	after, _ := slices.BinarySearchFunc(order, f.Since+1, func(e *Entry, tick uint64) int { return cmp.Compare(m.tickOf(e), tick) })
	for _, e := range order[after:] {
		// What was made on the way was never read from a sender.
		if m == Written && e.Fate == Delivered || m == Read && !e.Inserted {
			found = append(found, *e)
		}
	}
	mark = l.tick
	if l.left.Entries > 0 && l.left.tick > f.Since {
		err = ErrLeftOut
	}
	l.mu.Unlock()
	if err != nil {
		return nil, mark, err
	}
	return slices.DeleteFunc(found, func(e Entry) bool { return !f.Chooses(e) }), mark, nil
}

// Count returns how many entries a filter chooses.
func (l *Log) Count(f Filter) (int, error) {
	found, err := l.Find(f)
	return len(found), err
}

// waiter waits for entries. Its channel has room for one call.
type waiter struct {
	moment Moment
	bell   chan struct{}
}

// tell wakes those who wait for the moment. The lock is held.
func (l *Log) tell(e *Entry, m Moment) {
	for w := range l.waiters {
		if w.moment != m {
			continue
		}
		select {
		case w.bell <- struct{}{}:
		default:
		}
	}
}

// Await waits until a filter chooses n entries and returns the nth in the order of the moment. It ends with the error of ctx, which says how
// many there were.
func (l *Log) Await(ctx context.Context, f Filter, n int) (Entry, error) {
	w := &waiter{moment: f.moment(), bell: make(chan struct{}, 1)}
	l.mu.Lock()
	l.waiters[w] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiters, w)
	}()
	seen := 0
	for rest := f; ; {
		found, mark, err := l.scan(rest)
		if err != nil {
			return Entry{}, err
		}
		if seen+len(found) >= n && len(found) > 0 {
			return found[max(n-seen, 1)-1], nil
		}
		seen, rest.Since = seen+len(found), mark
		select {
		case <-w.bell:
		case <-ctx.Done():
			return Entry{}, fmt.Errorf("%d of %d: %s: %w", seen, n, f, context.Cause(ctx))
		}
	}
}
