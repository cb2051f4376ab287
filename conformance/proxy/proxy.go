// Package proxy stands between clients and brokers. It takes both directions of every connection apart into frames, records them, and does what
// networks and bad peers do: it holds, loses, repeats, changes and cuts, over TCP and WebSocket alike. Bytes that are no frames go through as they
// are. It shares no code with brokers or SDKs; what a frame says it learns from the specification.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/fitzwire/fitz/conformance/internal/await"
	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Transports of a proxy.
const (
	TCP       = string(stream.TCP)
	WebSocket = string(stream.WebSocket)
)

// Target tells the address (host:port) of the broker that serves a transport, TCP or WebSocket, at the moment. It is asked for every connection,
// so that a broker may come back elsewhere.
type Target func(transport string) string

// Options are what may be said when a proxy is started. The zero value is useful.
type Options struct {
	Name   string       // of the link in its trace
	Limits trace.Limits // of the trace; zero: trace.DefaultLimits
	// HideCapabilities are capabilities (spec/wire.yaml) that are taken out of every SERVER_HELLO, so that a client does without them: with
	// "correlation" it must not label, with "lifecycle" it learns no lifetime and gets no heartbeat (compat.md, C-60, C-61).
	HideCapabilities []string
	// HideHello loses every SERVER_HELLO, as a broker with the setting hello = off does (compat.md section 2).
	HideHello bool
	// Now is the clock of the trace; nil: time.Now.
	Now func() time.Time
	// AfterFunc is the timer of Delay; nil: time.AfterFunc.
	AfterFunc func(time.Duration, func()) (stop func() bool)
}

// Proxy is a running proxy. Its methods may be called from any goroutine, but not from the functions that rules are given.
type Proxy struct {
	codec     trace.Codec
	log       *trace.Log
	afterFunc func(time.Duration, func()) func() bool
	limits    stream.Limits
	queueMax  int // bytes that wait in one direction of a connection before its sender is no longer read

	ctx    context.Context // ends in Close
	cancel context.CancelFunc
	done   sync.WaitGroup
	doors  map[stream.Transport]*door

	mu       sync.Mutex
	changed  sync.Cond // something that somebody waits for has changed
	target   Target
	closed   bool
	accepted int
	conns    map[int]*conn
	rules    []*Rule
	faults   []*Fault
	problems []error
}

// problemsMax is how many mistakes of rules are kept.
const problemsMax = 16

// Start starts a proxy that listens on loopback ports, one for TCP and one for WebSocket, until Close. Its addresses stay the same however often the
// broker behind it comes and goes.
func Start(codec trace.Codec, target Target, o Options) (*Proxy, error) {
	if o.Limits == (trace.Limits{}) {
		o.Limits = trace.DefaultLimits
	}
	if o.AfterFunc == nil {
		o.AfterFunc = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	p := &Proxy{
		codec: codec, log: trace.New(o.Name, codec, o.Limits, o.Now), afterFunc: o.AfterFunc, target: target,
		limits: stream.Limits{
			Message: int(max(codec.Bound("frame_recv_max"), codec.Bound("sdk_frame_recv_max"))),
			Head:    int(codec.Bound("http_header_bytes_max")),
		},
		queueMax: int(codec.Bound("session_notify_bytes_max")),
		doors:    map[stream.Transport]*door{},
		conns:    map[int]*conn{},
	}
	p.changed.L = &p.mu
	if err := p.hide(o); err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for _, t := range stream.Transports {
		d, err := openDoor()
		if err != nil {
			_ = p.Close()
			return nil, fmt.Errorf("proxy: %w", err)
		}
		p.doors[t] = d
		p.listen(t, d)
	}
	return p, nil
}

// hide makes the rules that the options ask for.
func (p *Proxy) hide(o Options) error {
	hello := Filter{Name: "hide", Dir: oracle.Down, Message: serverHello}
	if o.HideHello {
		p.Drop(hello)
		return nil
	}
	if len(o.HideCapabilities) == 0 {
		return nil
	}
	var mask uint64
	for _, name := range o.HideCapabilities {
		bit, ok := p.codec.Capability(name)
		if !ok {
			return fmt.Errorf("proxy: the specification has no capability %q", name)
		}
		mask |= bit
	}
	lifecycle, ok := p.codec.Capability("lifecycle")
	if !ok {
		return errors.New("proxy: the specification has no capability lifecycle")
	}
	p.Edit(hello, func(v oracle.Value) oracle.Value {
		bits, _ := v["capabilities"].(uint64)
		v["capabilities"] = bits &^ mask
		if mask&lifecycle != 0 {
			delete(v, "lifecycle")
		}
		return v
	})
	return nil
}

// Names of messages that the proxy knows.
const (
	serverHello = "session.server_hello"
	ping        = "session.ping"
	pong        = "session.pong"
)

// Address returns the host and port on which a transport is served, "" for an unknown one.
func (p *Proxy) Address(transport string) string {
	if d := p.doors[stream.Transport(transport)]; d != nil {
		return d.address
	}
	return ""
}

// URL returns the address of a transport as clients take it: tcp://127.0.0.1:port or ws://127.0.0.1:port/ws (W-20).
func (p *Proxy) URL(transport string) string {
	address := p.Address(transport)
	if stream.Transport(transport) == stream.WebSocket {
		return "ws://" + address + stream.Path
	}
	return "tcp://" + address
}

// Trace returns the log of the link.
func (p *Proxy) Trace() *trace.Log { return p.log }

// Await waits until n frames that the filter chooses have been delivered since the start, or ctx ends; the error then says how many there were.
// Nth and Count of the filter are not looked at.
func (p *Proxy) Await(ctx context.Context, f Filter, n int) error {
	_, err := p.log.Await(ctx, f.trace(), n)
	return err
}

// Counts returns how many frames that the filter chooses have been delivered since the start. The error is trace.ErrLeftOut.
func (p *Proxy) Counts(f Filter) (int, error) { return p.log.Count(f.trace()) }

// Connections returns how many connections have been accepted since the start, refused ones included.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Open returns the numbers of the connections that are open now, in the order in which they came.
func (p *Proxy) Open() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.conns))
}

// AwaitConnections waits until n connections have been accepted since the start, or ctx ends.
func (p *Proxy) AwaitConnections(ctx context.Context, n int) error {
	return p.await(ctx, fmt.Sprintf("%d connections", n), func() bool { return p.accepted >= n })
}

// AwaitClosed waits until no connection is open, or ctx ends.
func (p *Proxy) AwaitClosed(ctx context.Context) error {
	return p.await(ctx, "every connection to be closed", func() bool { return len(p.conns) == 0 })
}

// Settle waits until everything that was read has been written, held, or lost. What comes in meanwhile counts too.
func (p *Proxy) Settle(ctx context.Context) error {
	return p.await(ctx, "the queues to be empty", func() bool {
		for _, c := range p.conns {
			if !c.up.quiet() || !c.down.quiet() {
				return false
			}
		}
		return true
	})
}

// await waits for something that is looked at under the lock.
func (p *Proxy) await(ctx context.Context, what string, done func() bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := await.Until(ctx, &p.changed, what, done); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	return nil
}

// Err returns what rules were asked for and could not do, such as an edit whose result cannot be encoded. Nil means that every rule did what it
// was made for.
func (p *Proxy) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(p.problems...)
}

// problem keeps a mistake of a rule. The lock is held.
func (p *Proxy) problem(err error) {
	if len(p.problems) < problemsMax {
		p.problems = append(p.problems, err)
	}
}

// Close ends every connection and everything that runs, and returns when nothing is left. A second call does nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		c.lose()
		_ = c.near.Close()
		if c.far != nil {
			_ = c.far.Close()
		}
	}
	for _, r := range p.rules {
		r.stopTimers()
	}
	for _, d := range p.doors {
		d.close()
	}
	p.changed.Broadcast()
	p.mu.Unlock()
	p.cancel()
	p.done.Wait()
	return nil
}

// listen accepts connections while the door is open.
func (p *Proxy) listen(t stream.Transport, d *door) {
	listener := d.listener
	p.done.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			p.accept(t, near.(*net.TCPConn))
		}
	})
}

func (p *Proxy) accept(t stream.Transport, near *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.accepted++
	p.changed.Broadcast()
	number := p.accepted
	if p.closed || p.take(refuse) {
		if !p.closed {
			p.event(number, "", "refused")
		}
		reset(near)
		return
	}
	c := newConn(p, number, t, near)
	c.reject = p.take(reject)
	p.conns[number] = c
	p.event(number, "", "opened "+string(t))
	address := p.target(string(t))
	p.done.Go(func() { c.serve(address) })
}

// event records something about a connection. The lock is held.
func (p *Proxy) event(conn int, dir oracle.Direction, what string) {
	p.log.Add(trace.Entry{Conn: conn, Kind: trace.Event, Dir: dir, Message: what, Fate: trace.Delivered})
}
