// Package fakebroker is a broker that does what a script says: it gives answers that no good broker gives, so that clients meet them. It keeps no
// leases and knows no rules of the protocol; what the script does not say is not answered, except CONNECT and PING.
package fakebroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/conformance/internal/await"
	"github.com/fitzwire/fitz/conformance/internal/endpoint"
	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Transports of a broker.
const (
	TCP       = string(stream.TCP)
	WebSocket = string(stream.WebSocket)
)

// Options are what may be said when a broker is started. The zero value is useful.
type Options struct {
	Name   string       // in its trace
	Limits trace.Limits // of the trace; zero: trace.DefaultLimits
	Now    func() time.Time
}

// Broker is a running scripted broker. Its methods may be called from any goroutine.
type Broker struct {
	compose composer
	script  Script
	log     *trace.Log
	ctx     context.Context // ends in Close
	cancel  context.CancelFunc
	done    sync.WaitGroup
	doors   map[stream.Transport]net.Listener

	mu       sync.Mutex
	changed  sync.Cond
	closed   bool
	accepted int
	sessions map[int]*session
	seen     []int // how often what a rule wants has happened, by rule
	hits     []int // how often a rule was followed, by rule
	gates    map[string]bool
	waiting  map[string]int // rules that wait, by gate
	inbox    []Received
	size     int
	missed   bool
	problems []error
}

// Received is a frame, or something else, that a client sent.
type Received = endpoint.Received

// WebSocketFrame is one frame to be sent, right or wrong.
type WebSocketFrame = stream.Frame

// waitingMax bounds the rules that wait at a time, and problemsMax the problems that are kept.
const (
	waitingMax  = 1024
	problemsMax = 16
)

// ErrInbox says that Next came too late: more arrived meanwhile than a broker keeps.
var ErrInbox = errors.New("fakebroker: frames that nobody looked at have been left out")

// Start checks a script and starts a broker that listens on loopback ports, one for TCP and one for WebSocket, until Close.
func Start(codec Codec, script Script, o Options) (*Broker, error) {
	if err := script.Check(codec); err != nil {
		return nil, fmt.Errorf("fakebroker: %w", err)
	}
	if o.Limits == (trace.Limits{}) {
		o.Limits = trace.DefaultLimits
	}
	b := &Broker{
		compose: composer{codec: codec}, script: script, log: trace.New(o.Name, codec, o.Limits, o.Now), doors: map[stream.Transport]net.Listener{},
		sessions: map[int]*session{}, seen: make([]int, len(script.Rules)), hits: make([]int, len(script.Rules)), gates: map[string]bool{}, waiting: map[string]int{},
	}
	b.changed.L = &b.mu
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for _, t := range stream.Transports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Close()
			return nil, fmt.Errorf("fakebroker: %w", err)
		}
		b.doors[t] = l
		b.done.Go(func() { b.listen(t, l) })
	}
	return b, nil
}

// Address returns the host and port on which a transport is served, "" for an unknown one.
func (b *Broker) Address(transport string) string {
	if l := b.doors[stream.Transport(transport)]; l != nil {
		return l.Addr().String()
	}
	return ""
}

// Trace returns the log of the broker.
func (b *Broker) Trace() *trace.Log { return b.log }

// Release opens a gate for good: rules that wait there go on, and later ones do not wait.
func (b *Broker) Release(gate string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gates[gate] = true
	b.changed.Broadcast()
}

// AwaitWaiting waits until n rules wait at a gate, or ctx ends.
func (b *Broker) AwaitWaiting(ctx context.Context, gate string, n int) error {
	return b.await(ctx, fmt.Sprintf("%d rules at %s", n, gate), func() bool { return b.waiting[gate] >= n })
}

// Hits returns how often a rule was followed, by its name.
func (b *Broker) Hits(rule string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hitsOf(rule)
}

func (b *Broker) hitsOf(rule string) int {
	sum := 0
	for i, r := range b.script.Rules {
		if r.Name == rule {
			sum += b.hits[i]
		}
	}
	return sum
}

// AwaitHits waits until a rule was followed n times, or ctx ends.
func (b *Broker) AwaitHits(ctx context.Context, rule string, n int) error {
	return b.await(ctx, fmt.Sprintf("rule %s, %d times", rule, n), func() bool { return b.hitsOf(rule) >= n })
}

// AwaitConnections waits until n connections have been accepted since the start, or ctx ends.
func (b *Broker) AwaitConnections(ctx context.Context, n int) error {
	return b.await(ctx, fmt.Sprintf("%d connections", n), func() bool { return b.accepted >= n })
}

// Open returns the numbers of the connections that are open now, in the order in which they came.
func (b *Broker) Open() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.sessions))
}

// Filter chooses what clients sent. What is zero is not looked at, except that the zero Kind is trace.Frame.
type Filter struct {
	Conn    int
	Kind    trace.Kind
	Message string
	Match   func(Received) bool
}

func (f Filter) chooses(r Received) bool {
	kind := f.Kind
	if kind == "" {
		kind = trace.Frame
	}
	return r.Kind == kind && (f.Conn == 0 || f.Conn == r.Conn) && (f.Message == "" || f.Message == r.Message) && (f.Match == nil || f.Match(r))
}

// Next waits for something that the filter chooses among what nobody has taken, and takes it; rules have been followed for it anyway.
func (b *Broker) Next(ctx context.Context, f Filter) (Received, error) {
	var next Received
	missed := false
	err := b.await(ctx, trace.Filter{Kind: f.Kind, Message: f.Message, Conn: f.Conn}.String(), func() bool {
		at := slices.IndexFunc(b.inbox, f.chooses)
		missed = b.missed
		if at < 0 || missed {
			return missed
		}
		next = b.inbox[at]
		b.inbox = slices.Delete(b.inbox, at, at+1)
		b.size -= len(next.Bytes)
		return true
	})
	if missed {
		return Received{}, ErrInbox
	}
	return next, err
}

// Do does actions of a script on a connection now; 0 is the one that was opened last. Fields of a request cannot be taken.
func (b *Broker) Do(ctx context.Context, conn int, actions ...Action) error {
	for i, a := range actions {
		if err := a.check(&b.compose); err != nil {
			return fmt.Errorf("fakebroker: do %d: %w", i+1, err)
		}
	}
	s, err := b.session(conn)
	if err != nil {
		return err
	}
	for _, a := range actions {
		if err := s.do(ctx, a, Received{}); err != nil {
			return err
		}
	}
	return nil
}

// SendFrame sends a WebSocket frame as it is on a connection; 0 is the one that was opened last. It fails on TCP.
func (b *Broker) SendFrame(ctx context.Context, conn int, f WebSocketFrame) error {
	s, err := b.session(conn)
	if err != nil {
		return err
	}
	return s.end.Frame(ctx, f)
}

func (b *Broker) session(conn int) (*session, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if conn == 0 {
		for number := range b.sessions {
			conn = max(conn, number)
		}
	}
	if s := b.sessions[conn]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("fakebroker: connection %d is not open", conn)
}

// Err returns what the script asked for and could not be done, such as a field that a request did not have. A connection that a client ends
// meanwhile is no problem.
func (b *Broker) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(b.problems...)
}

func (b *Broker) problem(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) < problemsMax {
		b.problems = append(b.problems, fmt.Errorf("fakebroker: %w", err))
	}
}

// Close ends every connection and everything that runs, and returns when nothing is left. A second call does nothing.
func (b *Broker) Close() {
	b.mu.Lock()
	b.closed = true
	for _, s := range b.sessions {
		s.end.Close()
	}
	for _, l := range b.doors {
		_ = l.Close()
	}
	b.changed.Broadcast()
	b.mu.Unlock()
	b.cancel()
	b.done.Wait()
}

// await waits for something that is looked at under the lock.
func (b *Broker) await(ctx context.Context, what string, done func() bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := await.Until(ctx, &b.changed, what, done); err != nil {
		return fmt.Errorf("fakebroker: %w", err)
	}
	return nil
}

func (b *Broker) listen(t stream.Transport, l net.Listener) {
	for {
		socket, err := l.Accept()
		if err != nil {
			return
		}
		b.accept(t, socket.(*net.TCPConn))
	}
}

func (b *Broker) accept(t stream.Transport, socket *net.TCPConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = socket.Close()
		return
	}
	b.accepted++
	s := &session{broker: b, number: b.accepted, end: endpoint.New(b.compose.codec, b.log, b.accepted, t, false, socket)}
	b.sessions[s.number] = s
	s.end.Event("opened " + string(t))
	b.changed.Broadcast()
	b.done.Go(s.serve)
}

// session is one connection.
type session struct {
	broker *Broker
	number int
	end    *endpoint.Endpoint
	leaves atomic.Bool // this side has ended the stream
}

// serve answers what comes until the connection ends.
func (s *session) serve() {
	b := s.broker
	defer func() {
		s.end.Close()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.sessions, s.number)
		b.changed.Broadcast()
	}()
	if !s.end.WebSocket() {
		s.opened()
	}
	for {
		received, err := s.end.Read()
		for _, r := range received {
			s.receive(r)
		}
		if err != nil {
			s.end.Event("closed")
			return
		}
	}
}

// opened follows the first rule for a new connection.
func (s *session) opened() {
	s.follow(Received{}, func(on On) bool { return on.Opened })
}

// receive answers one thing.
func (s *session) receive(r Received) {
	switch r.Kind {
	case trace.Head:
		s.upgrade(r)
		return
	case trace.Control:
		s.control(r)
	}
	s.broker.keep(r)
	if r.Kind != trace.Frame {
		return
	}
	if s.follow(r, func(on On) bool { return on.Message == r.Message && wanted(on.Where, r.Record.Value) }) {
		return
	}
	var usual *Action
	switch {
	case r.Message == connect && (s.broker.script.Hello == nil || !s.broker.script.Hello.Off):
		usual = &Action{Hello: s.broker.script.Hello}
		if usual.Hello == nil {
			usual.Hello = &Hello{}
		}
	case r.Message == ping && !s.broker.script.Mute:
		usual = &Action{Send: &Record{Message: pong, Value: map[string]any{"nonce": requestPrefix + "nonce"}}}
	}
	if usual != nil {
		s.try(*usual, r)
	}
}

// wanted reports whether the fields of a frame have values. Numbers are compared by what they say.
func wanted(where map[string]any, value oracle.Value) bool {
	for name, want := range where {
		got, ok := value[name]
		if !ok || !reflect.DeepEqual(got, want) && fmt.Sprint(got) != fmt.Sprint(want) {
			return false
		}
	}
	return true
}

func (s *session) upgrade(r Received) {
	head, err := stream.AnswerUpgrade(r.Bytes)
	if err != nil {
		_ = s.end.Head(s.broker.ctx, stream.RefuseUpgrade(http.StatusBadRequest))
		s.end.CloseWrite()
		return
	}
	if err := s.end.Head(s.broker.ctx, head); err == nil {
		s.opened()
	}
}

// control answers what RFC 6455 wants answered.
func (s *session) control(r Received) {
	switch {
	case s.leaves.Load():
	case r.Opcode == stream.OpClose:
		_ = s.end.Frame(s.broker.ctx, stream.Frame{Opcode: stream.OpClose, Payload: r.Bytes})
		s.end.CloseWrite()
	case r.Opcode == stream.OpPing && !s.broker.script.Mute:
		_ = s.end.Frame(s.broker.ctx, stream.Frame{Opcode: stream.OpPong, Payload: r.Bytes})
	}
}

// keep puts something where Next finds it, and leaves the oldest out when there is too much.
func (b *Broker) keep(r Received) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inbox = append(b.inbox, r)
	b.size += len(r.Bytes)
	codec := b.compose.codec
	for int64(len(b.inbox)) > codec.Bound("session_notify_frames_max") || int64(b.size) > codec.Bound("session_notify_bytes_max") {
		b.size -= len(b.inbox[0].Bytes)
		b.inbox = b.inbox[1:]
		b.missed = true
	}
	b.changed.Broadcast()
}

// follow follows the first rule that wants what happened, and reports whether there was one.
func (s *session) follow(r Received, wants func(On) bool) bool {
	b := s.broker
	at := b.choose(s.number, wants)
	if at < 0 {
		return false
	}
	s.carryOut(b.script.Rules[at].Do, r)
	return true
}

// choose returns the first rule that wants what happened on a connection and whose turn it is, -1 for none. Every rule up to that one counts it.
func (b *Broker) choose(conn int, wants func(On) bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, rule := range b.script.Rules {
		on := rule.On
		if on.Conn != 0 && on.Conn != conn || !wants(on) {
			continue
		}
		b.seen[i]++
		if b.seen[i] < on.Nth || on.Count > 0 && b.hits[i] >= on.Count {
			continue
		}
		b.hits[i]++
		b.changed.Broadcast()
		return i
	}
	return -1
}

// carryOut does what a rule says. From the first Wait on it goes on beside the connection, so that later frames are answered.
func (s *session) carryOut(actions []Action, r Received) {
	for i, a := range actions {
		if a.Wait == "" {
			if !s.try(a, r) {
				return
			}
			continue
		}
		s.wait(a.Wait, actions[i+1:], r)
		return
	}
}

func (s *session) wait(gate string, rest []Action, r Received) {
	b := s.broker
	b.mu.Lock()
	defer b.mu.Unlock()
	total := 0
	for _, n := range b.waiting {
		total += n
	}
	if total >= waitingMax {
		b.problems = append(b.problems, fmt.Errorf("fakebroker: more than %d rules wait", waitingMax))
		return
	}
	if b.closed {
		return
	}
	b.waiting[gate]++
	b.changed.Broadcast()
	b.done.Go(func() {
		err := b.await(b.ctx, gate, func() bool { return b.gates[gate] })
		b.mu.Lock()
		b.waiting[gate]--
		b.mu.Unlock()
		if err == nil {
			s.carryOut(rest, r)
		}
	})
}

// try does an action and keeps what goes wrong. It reports false when the connection is of no more use.
func (s *session) try(a Action, r Received) bool {
	err := s.do(s.broker.ctx, a, r)
	var network net.Error
	if err == nil {
		return true
	}
	if !errors.As(err, &network) && s.broker.ctx.Err() == nil {
		s.broker.problem(err)
	}
	return false
}

// do does an action once or as often as it says.
func (s *session) do(ctx context.Context, a Action, r Received) error {
	for range max(a.Times, 1) {
		if err := s.once(ctx, a, r); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) once(ctx context.Context, a Action, r Received) error {
	c := &s.broker.compose
	request := r.Record.Value
	switch {
	case a.Reply != nil:
		return s.send(ctx, []Record{*a.Reply}, request, r.Label)
	case a.Send != nil:
		return s.send(ctx, []Record{*a.Send}, request, 0)
	case len(a.Together) > 0:
		return s.send(ctx, a.Together, request, r.Label)
	case a.Message != nil:
		b, err := unhex(*a.Message)
		if err != nil {
			return err
		}
		return s.end.Message(ctx, b)
	case a.Raw != nil:
		b, err := unhex(*a.Raw)
		if err != nil {
			return err
		}
		return s.end.Raw(ctx, b, a.Chunk)
	case a.Declare != nil:
		b, err := c.record(&a.Declare.Record, request, r.Label)
		if err != nil {
			return err
		}
		return s.end.Declared(ctx, b, a.Declare.Size)
	case a.Hello != nil:
		b, err := c.hello(a.Hello)
		if err != nil {
			return err
		}
		return s.end.Message(ctx, b)
	case a.Close != nil:
		return s.close(ctx, *a.Close)
	case a.Reset:
		s.end.Reset()
		return nil
	}
	return s.broker.await(ctx, a.Wait, func() bool { return s.broker.gates[a.Wait] })
}

func (s *session) send(ctx context.Context, records []Record, request oracle.Value, label uint64) error {
	var payload []byte
	for i := range records {
		b, err := s.broker.compose.record(&records[i], request, label)
		if err != nil {
			return fmt.Errorf("%s: %w", records[i].Message, err)
		}
		payload = append(payload, b...)
	}
	return s.end.Message(ctx, payload)
}

// close ends the connection from this side; the rest of what the client sends is still read.
func (s *session) close(ctx context.Context, how Closing) error {
	if s.end.WebSocket() && how.Code != 0 {
		if err := s.end.Frame(ctx, stream.Frame{Opcode: stream.OpClose, Payload: stream.ClosePayload(how.Code, how.Text)}); err != nil {
			return err
		}
	}
	s.leaves.Store(true)
	s.end.CloseWrite()
	return nil
}
