// Package rawpeer is a client of the protocol without an SDK: it sends what it is told to, right or wrong, matches replies to requests by label or by
// order, and hands out everything that comes. It judges a broker of which nothing is known but its address.
package rawpeer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fitzwire/fitz/conformance/internal/await"
	"github.com/fitzwire/fitz/conformance/internal/endpoint"
	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Transports of a peer.
const (
	TCP       = string(stream.TCP)
	WebSocket = string(stream.WebSocket)
)

// Options say where a peer connects to and what it does there by itself. With only Transport and Address it opens an anonymous session, waits for
// SERVER_HELLO and negotiates nothing.
type Options struct {
	Name      string   // of the peer in its trace
	Transport string   // TCP or WebSocket
	Address   string   // host:port
	Path      string   // of the upgrade; "" is /ws (W-20)
	Header    []string // further lines of the upgrade: "Origin: http://a.example"
	Token     string   // of CONNECT

	NoConnect bool // sends no CONNECT, and therefore waits for no hello (W-33)
	NoHello   bool // does not wait for SERVER_HELLO, for brokers with the setting hello = off
	Negotiate bool // answers the hello with CLIENT_HELLO (W-60)
	// Want is the capabilities that CLIENT_HELLO asks for; nil asks for all that were announced.
	Want     []string
	Labels   bool // labels every request of Start and Do; the broker must have announced it
	AutoPong bool // answers PING, and ping of WebSocket
	// ReadBuffer is the size of the socket's buffer for what the broker sends; 0 is what the system gives. A small one makes a peer that pauses soon felt.
	ReadBuffer int

	Log *trace.Log // nil: a new one
	Now func() time.Time
}

// Peer is a raw session. Its methods may be called from any goroutine.
type Peer struct {
	codec    trace.Codec
	options  Options
	log      *trace.Log
	end      *endpoint.Endpoint
	done     chan struct{} // closed when the reader has ended
	deferred map[string][]uint64

	mu      sync.Mutex
	changed sync.Cond
	hello   *oracle.Record
	bits    uint64 // announced
	inbox   []Received
	size    int // bytes of the inbox
	calls   []*Call
	label   uint64 // last one given out
	paused  bool
	over    *Close // nil while the connection is open
	broken  error  // why the peer gave up
	goaway  *oracle.Record
	upgrade *trace.Entry // head of the answer to the upgrade
}

// Received is something that a peer received.
type Received = endpoint.Received

// WebSocketFrame is one frame to be sent, right or wrong.
type WebSocketFrame = stream.Frame

// UpgradeError is a refused WebSocket upgrade.
type UpgradeError = stream.UpgradeError

// Close says how a connection ended.
type Close struct {
	How    How
	Code   uint16         // of a WebSocket close frame, 0 without one
	Text   string         // of it
	GoAway *oracle.Record // last GOAWAY before the end, nil without one
}

// How is the way in which a connection ended.
type How string

// The ways.
const (
	FIN   How = "fin"   // the stream ended; on WebSocket without a close frame
	RST   How = "rst"   // reset
	WS    How = "ws"    // a WebSocket close frame
	Local How = "local" // this side closed it
)

// Error makes an error of the end, for waits that can no longer come true.
func (c *Close) Error() string {
	text := "rawpeer: the connection was closed (" + string(c.How)
	if c.How == WS {
		text += fmt.Sprintf(" %d %q", c.Code, c.Text)
	}
	return text + ")"
}

// ErrInbox says that more came than a peer keeps: session_notify_frames_max frames or session_notify_bytes_max bytes that nobody looked at.
var ErrInbox = errors.New("rawpeer: more frames wait to be looked at than are kept")

const (
	hello       = "session.server_hello"
	clientHello = "session.client_hello"
	connect     = "session.connect"
	ping        = "session.ping"
	pong        = "session.pong"
	goaway      = "session.goaway"
)

// Dial opens a session. A refused upgrade is an *UpgradeError; a connection that the broker ends meanwhile, as it does when it refuses the token, is a
// *Close.
func Dial(ctx context.Context, codec trace.Codec, o Options) (*Peer, error) {
	if t := stream.Transport(o.Transport); !slices.Contains(stream.Transports, t) {
		return nil, fmt.Errorf("rawpeer: no transport %q", o.Transport)
	}
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("rawpeer: %w", err)
	}
	socket := nc.(*net.TCPConn)
	if o.ReadBuffer > 0 {
		if err := socket.SetReadBuffer(o.ReadBuffer); err != nil {
			_ = socket.Close()
			return nil, fmt.Errorf("rawpeer: %w", err)
		}
	}
	if o.Log == nil {
		o.Log = trace.New(o.Name, codec, trace.DefaultLimits, o.Now)
	}
	p := &Peer{
		codec: codec, options: o, log: o.Log, done: make(chan struct{}), deferred: deferredKinds(codec),
		end: endpoint.New(codec, o.Log, 1, stream.Transport(o.Transport), true, socket),
	}
	p.changed.L = &p.mu
	p.end.Event("opened " + o.Transport)
	go p.read()
	if err := p.open(ctx); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// deferredKinds are the values of the field kind that tell of a second reply (L-26, W-42), by message.
func deferredKinds(codec trace.Codec) map[string][]uint64 {
	const acquire = "lease.acquire"
	var kinds []uint64
	for _, name := range []string{"queued", "already_queued"} {
		record, err := codec.EncodeAny(acquire, oracle.Reply, oracle.Value{"kind": name, "fencing_token": uint64(0)})
		if err != nil {
			continue // a specification without leases has no such replies
		}
		if rec, fault := codec.Decode(oracle.Down, record); fault == nil {
			kind, _ := rec.Value["kind"].(uint64)
			kinds = append(kinds, kind)
		}
	}
	return map[string][]uint64{acquire: kinds}
}

// open goes through the beginning of a session.
func (p *Peer) open(ctx context.Context) error {
	if p.end.WebSocket() {
		if err := p.askUpgrade(ctx); err != nil {
			return err
		}
	}
	if p.options.NoConnect {
		return nil
	}
	err := p.Send(ctx, oracle.Record{Message: connect, Form: oracle.Control, Value: oracle.Value{"token": p.options.Token}})
	if err != nil || p.options.NoHello {
		return err
	}
	if err := p.wait(ctx, "SERVER_HELLO", func() bool { return p.hello != nil }); err != nil {
		return err
	}
	return p.negotiate(ctx)
}

func (p *Peer) askUpgrade(ctx context.Context) error {
	path := p.options.Path
	if path == "" {
		path = stream.Path
	}
	if err := p.end.Head(ctx, stream.UpgradeRequest(p.options.Address, path, p.options.Header...)); err != nil {
		return err
	}
	if err := p.wait(ctx, "the answer to the upgrade", func() bool { return p.upgrade != nil }); err != nil {
		return err
	}
	return stream.CheckUpgrade(p.upgrade.Bytes)
}

func (p *Peer) negotiate(ctx context.Context) error {
	if correlation, _ := p.codec.Capability("correlation"); p.options.Labels && p.bits&correlation == 0 {
		return errors.New("rawpeer: labels are asked for, and the broker did not announce correlation")
	}
	if !p.options.Negotiate {
		return nil
	}
	want := p.bits
	if p.options.Want != nil {
		want = 0
	}
	for _, name := range p.options.Want {
		bit, ok := p.codec.Capability(name)
		if !ok {
			return fmt.Errorf("rawpeer: the specification has no capability %q", name)
		}
		want |= bit
	}
	fingerprint := uint64(0)
	if lifecycle, ok := p.hello.Value["lifecycle"].(oracle.Value); ok {
		fingerprint, _ = lifecycle["spec_fingerprint"].(uint64)
	}
	return p.Send(ctx, oracle.Record{Message: clientHello, Form: oracle.Control, Value: oracle.Value{
		"capabilities": want, "sdk_name": "rawpeer", "sdk_version": "1", "spec_fingerprint": fingerprint,
	}})
}

// Trace returns the log of the peer.
func (p *Peer) Trace() *trace.Log { return p.log }

// Hello returns the SERVER_HELLO of the session; false when none came so far.
func (p *Peer) Hello() (oracle.Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hello == nil {
		return oracle.Record{}, false
	}
	return *p.hello, true
}

// Send sends records in one transport message, with the labels that they name. Values are encoded whatever bounds they break; a record without a
// value is sent as its bytes are. Replies are not matched: Next hands them out.
func (p *Peer) Send(ctx context.Context, records ...oracle.Record) error {
	var payload []byte
	for _, rec := range records {
		b, err := trace.Encode(p.codec, oracle.Up, rec)
		if err != nil {
			return fmt.Errorf("rawpeer: %s: %w", rec.Message, err)
		}
		payload = append(payload, b...)
	}
	return p.end.Message(ctx, payload)
}

// SendMessage sends a transport message whose payload is given, well-formed or not.
func (p *Peer) SendMessage(ctx context.Context, payload []byte) error {
	return p.end.Message(ctx, payload)
}

// SendDeclared sends a transport message that declares another size than it has (W-10).
func (p *Peer) SendDeclared(ctx context.Context, payload []byte, size uint64) error {
	return p.end.Declared(ctx, payload, size)
}

// SendFrame sends a WebSocket frame as it is. It fails on TCP.
func (p *Peer) SendFrame(ctx context.Context, f WebSocketFrame) error { return p.end.Frame(ctx, f) }

// Write writes bytes into the stream as they are, in writes of chunk bytes; 0 writes them at once. Half a message may be written so.
func (p *Peer) Write(ctx context.Context, b []byte, chunk int) error { return p.end.Raw(ctx, b, chunk) }

// Wire returns the bytes of a transport message on the wire, for Write.
func (p *Peer) Wire(payload []byte) []byte {
	return stream.AppendMessage(nil, stream.Transport(p.options.Transport), true, payload)
}

// Pause stops reading what the broker sends. What the peer is reading at the moment still comes in.
func (p *Peer) Pause() { p.pause(true) }

// Resume goes on reading.
func (p *Peer) Resume() { p.pause(false) }

func (p *Peer) pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = on
	p.changed.Broadcast()
}

// CloseWrite tells the broker that nothing more comes (FIN), and goes on reading.
func (p *Peer) CloseWrite() { p.end.CloseWrite() }

// Reset ends the connection with RST.
func (p *Peer) Reset() { p.leave(p.end.Reset) }

// Close ends the connection and returns when nothing of the peer is left. A second call does nothing.
func (p *Peer) Close() { p.leave(p.end.Close) }

func (p *Peer) leave(how func()) {
	p.mu.Lock()
	p.finish(&Close{How: Local})
	p.mu.Unlock()
	how()
	<-p.done
}

// finish notes how the connection ended; the first way counts. The lock is held.
func (p *Peer) finish(c *Close) {
	if p.over == nil {
		c.GoAway = p.goaway
		p.over = c
	}
	p.changed.Broadcast()
}

// AwaitClose waits until the broker has ended the connection and tells how, or ctx ends.
func (p *Peer) AwaitClose(ctx context.Context) (Close, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.until(ctx, "the end of the connection", func() bool { return p.over != nil }); err != nil {
		return Close{}, err
	}
	return *p.over, nil
}

// wait waits for something that is looked at under the lock. The end of the connection is the error *Close.
func (p *Peer) wait(ctx context.Context, what string, done func() bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := false
	err := p.until(ctx, what, func() bool {
		ready = done()
		return ready || p.over != nil || p.broken != nil
	})
	switch {
	case err != nil:
		return err
	case ready:
		return nil
	case p.broken != nil:
		return p.broken
	}
	return fmt.Errorf("rawpeer: wait for %s: %w", what, p.over)
}

// until waits without looking at the connection. The lock is held.
func (p *Peer) until(ctx context.Context, what string, done func() bool) error {
	if err := await.Until(ctx, &p.changed, what, done); err != nil {
		return fmt.Errorf("rawpeer: %w", err)
	}
	return nil
}

// read takes what comes until the connection ends.
func (p *Peer) read() {
	defer close(p.done)
	for {
		p.mu.Lock()
		for p.paused && p.over == nil {
			p.changed.Wait()
		}
		p.mu.Unlock()
		received, err := p.end.Read()
		for _, r := range received {
			p.receive(r)
		}
		if err == nil {
			continue
		}
		how := RST
		if errors.Is(err, io.EOF) {
			how = FIN
		}
		p.mu.Lock()
		p.finish(&Close{How: how})
		p.mu.Unlock()
		return
	}
}

// receive takes one thing.
func (p *Peer) receive(r Received) {
	p.mu.Lock()
	var answer func()
	switch r.Kind {
	case trace.Head:
		p.upgrade = &r.Entry
	case trace.Control:
		answer = p.control(r)
	case trace.Frame:
		answer = p.frame(r)
	case trace.Bytes:
		p.keep(r)
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	if answer != nil {
		answer()
	}
}

// control returns what answers a WebSocket control frame. The lock is held.
func (p *Peer) control(r Received) func() {
	switch r.Opcode {
	case stream.OpClose:
		code, text := stream.ParseClose(r.Bytes)
		p.finish(&Close{How: WS, Code: code, Text: text})
		return func() {
			_ = p.SendFrame(context.Background(), WebSocketFrame{Opcode: stream.OpClose, Masked: true, Payload: r.Bytes})
		}
	case stream.OpPing:
		if p.options.AutoPong {
			return func() {
				_ = p.SendFrame(context.Background(), WebSocketFrame{Opcode: stream.OpPong, Masked: true, Payload: r.Bytes})
			}
		}
	}
	p.keep(r)
	return nil
}

// frame puts a frame where it belongs: to the call that it answers, or into the inbox. The lock is held.
func (p *Peer) frame(r Received) func() {
	switch {
	case r.Message == hello && p.hello == nil:
		p.hello = &r.Record
		p.bits, _ = r.Record.Value["capabilities"].(uint64)
		if !p.options.NoConnect && !p.options.NoHello {
			return nil // Dial waits for it
		}
	case r.Message == goaway:
		p.goaway = &r.Record
	case r.Message == ping && p.options.AutoPong:
		return func() {
			_ = p.Send(context.Background(), oracle.Record{Message: pong, Form: oracle.Control, Value: oracle.Value{"nonce": r.Record.Value["nonce"]}})
		}
	}
	if call := p.callOf(r); call != nil {
		call.replies = append(call.replies, r)
		if !p.defers(r.Record) {
			p.calls = slices.DeleteFunc(p.calls, func(c *Call) bool { return c == call })
			call.ended = true
		}
		call.answered = true
		return nil
	}
	p.keep(r)
	return nil
}

// keep puts something into the inbox. The lock is held.
func (p *Peer) keep(r Received) {
	p.inbox = append(p.inbox, r)
	p.size += len(r.Bytes)
	if int64(len(p.inbox)) > p.codec.Bound("session_notify_frames_max") || int64(p.size) > p.codec.Bound("session_notify_bytes_max") {
		p.broken = ErrInbox
		p.finish(&Close{How: Local})
		p.end.Close()
	}
}
