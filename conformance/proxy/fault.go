package proxy

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// faultKind is what a fault does.
type faultKind string

const (
	cut        faultKind = "cut"
	resetAll   faultKind = "reset"
	closeAll   faultKind = "close"
	hole       faultKind = "black hole"
	freezeUp   faultKind = "freeze up"
	freezeDown faultKind = "freeze down"
	refuse     faultKind = "refuse"
	reject     faultKind = "reject"
	mute       faultKind = "mute ping"
	shut       faultKind = "shut"
)

// Fault is something wrong with connections. Those that last do so until Lift.
type Fault struct {
	proxy *Proxy
	kind  faultKind
	left  int // so many more connections; below 0: until Lift
	hits  int
}

// Hits returns how many connections the fault has hit. Of a fault that lasts and is not counted, such as a black hole, it is 0.
func (f *Fault) Hits() int {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	return f.hits
}

// Await waits until the fault has hit so many connections, or ctx ends.
func (f *Fault) Await(ctx context.Context, hits int) error {
	return f.proxy.await(ctx, fmt.Sprintf("%d connections at %s", hits, f.kind), func() bool { return f.hits >= hits })
}

// Lift ends the fault. What it has destroyed stays so.
func (f *Fault) Lift() {
	p := f.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Contains(p.faults, f) {
		return
	}
	p.end(f)
	p.event(0, "", string(f.kind)+" lifted")
	if f.kind == shut && !p.closed && !p.active(shut) {
		p.reopen()
	}
	p.changed.Broadcast()
}

// start begins a fault that lasts. The lock is held.
func (p *Proxy) start(kind faultKind, left int) *Fault {
	f := &Fault{proxy: p, kind: kind, left: left}
	p.faults = append(p.faults, f)
	p.event(0, "", string(kind))
	p.changed.Broadcast()
	return f
}

func (p *Proxy) end(f *Fault) {
	p.faults = slices.DeleteFunc(p.faults, func(other *Fault) bool { return other == f })
}

// active reports whether a fault of the kind is on. The lock is held.
func (p *Proxy) active(kind faultKind) bool {
	return slices.ContainsFunc(p.faults, func(f *Fault) bool { return f.kind == kind })
}

func (p *Proxy) frozen(dir oracle.Direction) bool {
	if dir == oracle.Up {
		return p.active(freezeUp)
	}
	return p.active(freezeDown)
}

// take lets a counted fault hit a connection, and reports whether there was one. The lock is held.
func (p *Proxy) take(kind faultKind) bool {
	at := slices.IndexFunc(p.faults, func(f *Fault) bool { return f.kind == kind })
	if at < 0 {
		return false
	}
	f := p.faults[at]
	f.hits++
	if f.left--; f.left == 0 {
		p.end(f)
	}
	p.changed.Broadcast()
	return true
}

// strike does something to every connection that is open.
func (p *Proxy) strike(kind faultKind, hit func(*conn)) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &Fault{proxy: p, kind: kind}
	for _, c := range p.conns {
		p.event(c.number, "", string(kind))
		hit(c)
		f.hits++
	}
	p.changed.Broadcast()
	return f
}

// Cut ends every connection with FIN on both sides. What has not been delivered is lost.
func (p *Proxy) Cut() *Fault { return p.strike(cut, (*conn).lose) }

// Reset ends every connection with RST on both sides. What has not been delivered, and what the other side has not read, is lost.
func (p *Proxy) Reset() *Fault {
	return p.strike(resetAll, func(c *conn) {
		c.lose()
		reset(c.near)
		if c.far != nil {
			reset(c.far)
		}
	})
}

// WSClose ends every connection as a broker does: WebSockets with a close frame that has the code and the text, then all of them with FIN. What
// has not been delivered is lost. Code 0 makes an empty close frame.
func (p *Proxy) WSClose(code uint16, text string) *Fault {
	return p.strike(closeAll, func(c *conn) { c.say(code, text) })
}

// say ends a connection with a reason. The lock is held.
func (c *conn) say(code uint16, text string) {
	c.lose()
	down := c.down
	down.over, down.deaf = false, true
	if c.transport == stream.WebSocket {
		payload := stream.ClosePayload(code, text)
		wire := stream.Frame{Opcode: stream.OpClose, Payload: payload}.Append(nil)
		down.asIs(trace.Entry{Kind: trace.Control, Message: "close", Bytes: payload, Inserted: true, Note: closeNote(code, text)}, wire)
	}
	down.put(&item{ends: finish})
}

func closeNote(code uint16, text string) string { return fmt.Sprintf("%d %q", code, text) }

// Close of a refused token (wire.md section 4, W-34).
const (
	refusedCode = 1008
	refusedText = "connect failed: refused by the proxy"
)

// refuseToken ends a connection as a broker does that refuses the token of CONNECT. The lock is held.
func (f *flow) refuseToken(refs []trace.Ref) {
	f.conn.reject = false
	for _, ref := range refs {
		f.conn.proxy.log.Settle(ref, trace.Answered, string(reject))
	}
	f.conn.say(refusedCode, refusedText)
}

// AuthReject answers the first message of the next n connections as a broker does that refuses their token: without a frame it closes the
// connection (W-34). The broker sees neither the message nor a token. n = 0 goes on until Lift.
func (p *Proxy) AuthReject(n int) *Fault { return p.counted(reject, n) }

// Refuse ends the next n connections with RST before anything was read. n = 0 goes on until Lift. A client has then been accepted by the system for a
// moment; Shut refuses connections as the system does when nobody listens.
func (p *Proxy) Refuse(n int) *Fault { return p.counted(refuse, n) }

func (p *Proxy) counted(kind faultKind, n int) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start(kind, cmp.Or(n, -1))
}

// Shut stops listening, so that the system refuses connections, until Lift. The addresses stay those of the proxy. Open connections go on.
func (p *Proxy) Shut() *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		for _, d := range p.doors {
			d.shut()
		}
	}
	return p.start(shut, -1)
}

// reopen listens again. The lock is held.
func (p *Proxy) reopen() {
	for t, d := range p.doors {
		if err := d.open(); err != nil {
			p.problem(fmt.Errorf("proxy: listen again for %s: %w", t, err))
			continue
		}
		p.listen(t, d)
	}
}

// BlackHole swallows everything that would be delivered, in both directions and on new connections too, until Lift: a network whose other end is
// gone without a word. Ends of connections are not told either; those are told after Lift.
func (p *Proxy) BlackHole() *Fault { return p.lasting(hole) }

// Freeze stops reading what is sent in a direction until Lift, so that the sender is held up once the buffers of the system are full. What the
// proxy has read already is still delivered.
func (p *Proxy) Freeze(dir oracle.Direction) *Fault {
	if dir == oracle.Up {
		return p.lasting(freezeUp)
	}
	return p.lasting(freezeDown)
}

// MutePing loses every sign of life until Lift: PING and PONG of the protocol, ping and pong of WebSocket, in both directions.
func (p *Proxy) MutePing() *Fault { return p.lasting(mute) }

func (p *Proxy) lasting(kind faultKind) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.start(kind, -1)
}

// SwapBroker leads new connections to other addresses. Open connections stay where they are; Cut or Reset ends them.
func (p *Proxy) SwapBroker(target Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	p.event(0, "", "swap broker")
}
