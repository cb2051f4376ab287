package proxy

import (
	"errors"
	"io"
	"net"
	"slices"
	"syscall"

	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// conn is one connection through the proxy.
type conn struct {
	proxy     *Proxy
	number    int
	transport stream.Transport
	near, far *net.TCPConn // far is nil until it was dialled; guarded by the lock of the proxy
	up, down  *flow
	reject    bool // its first message is answered as a refused token is
}

// flow is one direction of a connection. Its fields are guarded by the lock of the proxy unless they say otherwise.
type flow struct {
	conn     *conn
	dir      oracle.Direction
	parser   *stream.Parser // of the goroutine that reads
	from, to *net.TCPConn   // set before the goroutines start
	pending  []*item        // in the order of the sender
	bytes    int            // of pending
	writing  bool
	deaf     bool // what comes is read and lost
	over     bool // nothing more is delivered
}

// ending says how a direction ends.
type ending uint8

const (
	open   ending = iota
	finish        // FIN
	abort         // RST
)

// item is something that waits to be delivered: a transport message, bytes that are none, or the end.
type item struct {
	refs    []trace.Ref
	edited  [][]byte // for each ref what is delivered, nil when it is what was read
	payload []byte   // of a transport message
	wire    []byte   // bytes instead of the payload in a frame
	push    bool     // a push is in it
	ends    ending
	holders []*Rule
	shape   shape
	joins   int  // so many messages behind it go out in the same write
	merges  bool // they become one transport message
}

// shape is how the bytes of a message are put on the wire.
type shape struct {
	chunk    int    // bytes of each write, 0: all at once
	declared uint64 // size that is declared, 0: the real one
	frames   *WebSocketFrame
}

func newConn(p *Proxy, number int, t stream.Transport, near *net.TCPConn) *conn {
	c := &conn{proxy: p, number: number, transport: t, near: near}
	c.up = &flow{conn: c, dir: oracle.Up, parser: stream.NewParser(t, true, p.limits)}
	c.down = &flow{conn: c, dir: oracle.Down, parser: stream.NewParser(t, false, p.limits)}
	return c
}

// serve connects to the broker and runs both directions to their end.
func (c *conn) serve(address string) {
	p := c.proxy
	far, err := dial(p.ctx, address, int(p.codec.Bound("frame_send_max")))
	p.mu.Lock()
	defer func() {
		delete(p.conns, c.number)
		p.changed.Broadcast()
		p.mu.Unlock()
	}()
	if err != nil || p.closed {
		p.event(c.number, oracle.Up, "not connected: the broker is not there")
		reset(c.near)
		if far != nil {
			_ = far.Close()
		}
		return
	}
	c.far = far
	c.up.from, c.up.to = c.near, far
	c.down.from, c.down.to = far, c.near
	p.mu.Unlock()
	finished := make(chan struct{})
	steps := []func(){c.up.read, c.up.write, c.down.read, c.down.write}
	for _, step := range steps {
		p.done.Go(func() {
			step()
			finished <- struct{}{}
		})
	}
	for range steps {
		<-finished
	}
	p.mu.Lock()
	_ = c.near.Close()
	_ = c.far.Close()
	p.event(c.number, "", "closed")
}

// lose gives everything up that has not been delivered, and everything that is still to come. The lock is held.
func (c *conn) lose() {
	for _, f := range []*flow{c.up, c.down} {
		f.lose()
	}
}

func (f *flow) lose() {
	f.over, f.deaf = true, true
	for _, it := range f.pending {
		f.forget(it, trace.Lost, "")
	}
	f.pending, f.bytes = nil, 0
	f.conn.proxy.changed.Broadcast()
}

// forget settles an item that is not delivered. The lock is held.
func (f *flow) forget(it *item, fate trace.Fate, rule string) {
	for _, ref := range it.refs {
		f.conn.proxy.log.Settle(ref, fate, rule)
	}
	for _, r := range it.holders {
		r.unhold(it)
	}
}

// other is the opposite direction.
func (f *flow) other() *flow {
	if f == f.conn.up {
		return f.conn.down
	}
	return f.conn.up
}

// quiet reports whether everything was written that can be. The lock is held.
func (f *flow) quiet() bool {
	return !f.writing && (f.over || f.ready() == 0)
}

// read reads what one side sends until that ends.
func (f *flow) read() {
	p := f.conn.proxy
	buf := make([]byte, p.codec.Bound("frame_send_max"))
	for {
		p.mu.Lock()
		for !f.deaf && (p.frozen(f.dir) || f.bytes > p.queueMax) {
			p.changed.Wait()
		}
		p.mu.Unlock()
		n, err := f.from.Read(buf)
		p.mu.Lock()
		for !f.deaf && p.frozen(f.dir) {
			p.changed.Wait()
		}
		if !f.deaf {
			f.take(buf[:n])
		}
		if err != nil {
			f.end(err)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// take lets rules at what was read. The lock is held.
func (f *flow) take(b []byte) {
	for _, piece := range f.parser.Feed(b) {
		if f.deaf {
			return
		}
		switch piece.Kind {
		case stream.Message:
			f.message(piece)
		case stream.Control:
			f.control(piece)
		case stream.Head:
			f.asIs(trace.Entry{Kind: trace.Head, Bytes: piece.Raw}, piece.Raw)
		case stream.Foreign:
			f.asIs(trace.Entry{Kind: trace.Bytes, Bytes: piece.Raw, Note: "no message of this transport"}, piece.Raw)
		}
	}
}

// end hands the end of what one side sent to the other. The lock is held.
func (f *flow) end(err error) {
	p := f.conn.proxy
	ends, name := finish, "FIN"
	if errors.Is(err, syscall.ECONNRESET) {
		ends, name = abort, "RST"
	}
	if f.deaf {
		return
	}
	if rest := f.parser.Pending(); len(rest) > 0 {
		f.asIs(trace.Entry{Kind: trace.Bytes, Bytes: rest, Note: "incomplete at the end of the stream"}, rest)
	}
	ref := p.log.Add(trace.Entry{Conn: f.conn.number, Kind: trace.Event, Dir: f.dir, Message: name, Fate: trace.Waiting})
	f.put(&item{refs: []trace.Ref{ref}, edited: [][]byte{nil}, ends: ends})
}

// asIs passes bytes on in which no frames are. The lock is held.
func (f *flow) asIs(e trace.Entry, wire []byte) {
	e.Conn, e.Dir, e.Fate = f.conn.number, f.dir, trace.Waiting
	ref := f.conn.proxy.log.Add(e)
	f.put(&item{refs: []trace.Ref{ref}, edited: [][]byte{nil}, wire: wire})
}

var controlNames = map[byte]string{stream.OpPing: "ping", stream.OpPong: "pong", stream.OpClose: "close"}

// control passes a WebSocket control frame on. The lock is held.
func (f *flow) control(piece stream.Piece) {
	e := trace.Entry{Conn: f.conn.number, Dir: f.dir, Kind: trace.Control, Message: controlNames[piece.Opcode], Bytes: piece.Payload, Fate: trace.Waiting}
	if piece.Opcode == stream.OpClose {
		e.Note = closeNote(stream.ParseClose(piece.Payload))
	}
	ref := f.conn.proxy.log.Add(e)
	if piece.Opcode != stream.OpClose && f.conn.proxy.active(mute) {
		f.conn.proxy.log.Settle(ref, trace.Swallowed, "mute ping")
		return
	}
	f.put(&item{refs: []trace.Ref{ref}, edited: [][]byte{nil}, wire: piece.Raw})
}

// put queues an item. The lock is held.
func (f *flow) put(it *item) {
	f.pending = append(f.pending, it)
	f.bytes += it.size()
	f.conn.proxy.changed.Broadcast()
}

// itemOverhead is what an item costs besides its bytes.
const itemOverhead = 256

func (it *item) size() int { return itemOverhead + len(it.payload) + len(it.wire) }

// write delivers what is pending until the end.
func (f *flow) write() {
	p := f.conn.proxy
	for {
		batch, ends := f.next()
		if ends != open {
			f.close(ends)
			return
		}
		err := f.deliver(batch)
		p.mu.Lock()
		f.writing = false
		if err != nil {
			for _, it := range batch {
				f.forget(it, trace.Lost, "")
			}
			f.lose()
		}
		p.changed.Broadcast()
		p.mu.Unlock()
	}
}

// close tells the other side that nothing more comes.
func (f *flow) close(ends ending) {
	p := f.conn.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	f.writing = false
	p.changed.Broadcast()
	if ends == abort {
		// A reset ends both directions at once, and with them what the reader of the other one waits for.
		f.conn.lose()
		reset(f.to)
		_ = f.from.Close()
		return
	}
	_ = f.to.CloseWrite()
}

// next waits for something to deliver, and records that its delivery begins.
func (f *flow) next() ([]*item, ending) {
	p := f.conn.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if f.over {
			f.writing = true
			return nil, finish
		}
		if n := f.ready(); n > 0 {
			batch := f.pop(n)
			if batch[0].ends != open {
				f.writing = true
				f.begin(batch)
				return nil, batch[0].ends
			}
			if !p.active(hole) {
				f.writing = true
				f.begin(batch)
				return batch, open
			}
			for _, it := range batch {
				f.forget(it, trace.Swallowed, string(hole))
			}
			continue
		}
		p.changed.Wait()
	}
}

// begin records that the delivery of items begins. What waits for a push to pass goes on behind it. The lock is held.
func (f *flow) begin(batch []*item) {
	for _, it := range batch {
		for i, ref := range it.refs {
			f.conn.proxy.log.Deliver(ref, it.edited[i])
		}
		if it.push {
			f.pushPassed()
		}
	}
	f.conn.proxy.changed.Broadcast()
}

// ready returns how many items go out next, 0 for none: at first one that nobody holds, behind others only when each of those is held alone. The
// items that go out are moved to the front. The lock is held.
func (f *flow) ready() int {
	var free []int
	for i, it := range f.pending {
		switch {
		case it.ends != open && f.conn.proxy.active(hole):
			return 0
		case len(it.holders) > 0 && slices.ContainsFunc(it.holders, func(r *Rule) bool { return !r.alone }):
			return 0
		case len(it.holders) > 0:
			continue
		case len(free) > 0 && it.payload == nil:
			// Nothing that could go out together with what waits for company.
			return f.front(free)
		}
		free = append(free, i)
		if len(free) > f.pending[free[0]].joins {
			return f.front(free)
		}
	}
	return 0
}

// front moves items to the front and returns how many.
func (f *flow) front(at []int) int {
	if at[len(at)-1] == len(at)-1 {
		return len(at)
	}
	moved := make([]*item, 0, len(f.pending))
	for _, i := range at {
		moved = append(moved, f.pending[i])
	}
	for i, it := range f.pending {
		if !slices.Contains(at, i) {
			moved = append(moved, it)
		}
	}
	f.pending = moved
	return len(at)
}

// pop takes items from the front. The lock is held.
func (f *flow) pop(n int) []*item {
	batch := slices.Clone(f.pending[:n])
	f.pending = slices.Delete(f.pending, 0, n)
	for _, it := range batch {
		f.bytes -= it.size()
	}
	f.conn.proxy.changed.Broadcast()
	return batch
}

// deliver writes items in one go, unless the shape of the first says otherwise.
func (f *flow) deliver(batch []*item) error {
	return inChunks(f.to, f.compose(batch), batch[0].shape.chunk)
}

// compose returns the bytes of items on the wire.
func (f *flow) compose(batch []*item) []byte {
	lead := batch[0]
	var wire []byte
	if lead.merges {
		var payload []byte
		for _, it := range batch {
			payload = append(payload, it.payload...)
		}
		wire = f.frame(&item{payload: payload})
	} else {
		for _, it := range batch {
			wire = append(wire, f.frame(it)...)
		}
	}
	return wire
}

// inChunks writes in pieces of a size; 0 writes at once.
func inChunks(w io.Writer, wire []byte, chunk int) error {
	if chunk <= 0 {
		chunk = max(len(wire), 1)
	}
	for part := range slices.Chunk(wire, chunk) {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// frame returns the bytes of an item on the wire.
func (f *flow) frame(it *item) []byte {
	up := f.dir == oracle.Up
	switch {
	case it.wire != nil:
		return it.wire
	case it.shape.declared > 0:
		return stream.AppendDeclared(nil, f.conn.transport, up, it.payload, it.shape.declared)
	case it.shape.frames != nil && f.conn.transport == stream.WebSocket:
		return it.shape.frames.append(up, it.payload)
	}
	return stream.AppendMessage(nil, f.conn.transport, up, it.payload)
}
