package lease

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/wire"
)

var histories = flag.Int("histories", 20_000, "number of random histories that TestLinearizable checks")

// The kinds of operations of a history. Commands are intervals of their client. What the broker decides by itself is told by the
// frame that it enqueues: such a decision is an operation of the client "broker" at the moment of the frame. Time is an operation
// of the client "clock", so that an expiry has a decision time and the checker need not accept any.
type opKind uint8

const (
	opAcquire opKind = iota
	opRenew
	opRelease
	opQuery
	opClosing // nothing is enqueued into the session any more
	opClose   // the domain is told
	opAdvance // time moves on
	opSweep   // the broker serves what is due
	opGranted // deferred grant
	opTimeout // deferred 5006
	opNotify  // the watcher was told of one change
)

type opInput struct {
	kind    opKind
	session uint64
	route   int // -1: all
	token   uint64
	ttl     uint64
	wait    uint32
	time    clock.Instant
}

type opOutput struct {
	code  uint32 // 0 = success
	kind  uint8
	token uint64
	held  bool
	left  uint64
	line  uint32
}

// linearState is one route as the specification sees it. Values are never changed in place.
type linearState struct {
	now      clock.Instant
	holder   uint64 // session, 0 = free
	token    uint64
	deadline clock.Instant
	line     [8]lineEntry
	waiting  int
	untold   int    // changes of the held set that no NOTIFY has told
	granted  untold // deferred grants decided and not yet told
	late     untold // the same for 5006
	closing  [8]uint64
}

// lineEntry is a waiter with the number of requests that joined it, which are answered one by one (L-33).
type lineEntry struct {
	session, token, ttl uint64
	deadline            clock.Instant
	requests            int
}

// untold counts decisions per session.
type untold [8]struct {
	session uint64
	n       int
}

func (u *untold) add(session uint64, n int) {
	for i := range u {
		if u[i].session == session || u[i].n == 0 {
			u[i].session = session
			u[i].n += n
			return
		}
	}
	panic("more sessions than a history has")
}

func (u *untold) take(session uint64) bool {
	for i := range u {
		if u[i].session == session && u[i].n > 0 {
			if u[i].n--; u[i].n == 0 {
				copy(u[i:], u[i+1:])
				u[len(u)-1].session, u[len(u)-1].n = 0, 0
			}
			return true
		}
	}
	return false
}

func (s *linearState) isClosing(session uint64) bool {
	for _, c := range s.closing {
		if c == session {
			return true
		}
	}
	return false
}

func (s *linearState) replaceClosing(old, by uint64) bool {
	for i := range s.closing {
		if s.closing[i] == old {
			s.closing[i] = by
			return true
		}
	}
	return false
}

func (s *linearState) drop(i int) {
	copy(s.line[i:s.waiting], s.line[i+1:s.waiting])
	s.waiting--
	s.line[s.waiting] = lineEntry{}
}

func (s *linearState) timeOut(i int) {
	if w := s.line[i]; !s.isClosing(w.session) {
		s.late.add(w.session, w.requests)
	}
	s.drop(i)
}

// end frees the route and advances its line (L-31, L-45, L-81).
func (s *linearState) end() {
	s.holder, s.token, s.deadline = 0, 0, 0
	s.untold++
	for s.waiting > 0 {
		w := s.line[0]
		if w.deadline <= s.now {
			s.timeOut(0)
			continue
		}
		s.drop(0)
		s.untold++
		if s.isClosing(w.session) {
			s.untold++ // the grant could not be delivered
			continue
		}
		s.holder, s.token, s.deadline = w.session, w.token, s.now.Add(seconds(w.ttl))
		s.granted.add(w.session, w.requests)
		return
	}
}

// settle applies what is due before a command looks at the route.
func (s *linearState) settle() (expired bool) {
	for s.holder != 0 && s.deadline <= s.now {
		s.end()
		expired = true
	}
	for i := 0; i < s.waiting; {
		if s.line[i].deadline <= s.now {
			s.timeOut(i)
		} else {
			i++
		}
	}
	return expired
}

// step is the specification: whether the output is right in that state, and the next state.
func step(state, input, output any) (bool, any) {
	s, in, out := state.(linearState), input.(opInput), output.(opOutput)
	ok := s.apply(in, out)
	return ok, s
}

func (s *linearState) apply(in opInput, out opOutput) bool {
	switch in.kind {
	case opAdvance:
		s.now = in.time
		return true
	case opSweep:
		s.settle()
		return true
	case opGranted:
		return s.granted.take(in.session)
	case opTimeout:
		return s.late.take(in.session)
	case opNotify:
		s.untold--
		return s.untold >= 0
	case opClosing:
		return s.replaceClosing(0, in.session)
	case opClose:
		return s.replaceClosing(in.session, 0) && s.close(in.session)
	}
	expired := s.settle()
	switch in.kind {
	case opAcquire:
		return s.acquire(in, out)
	case opRenew:
		switch {
		case expired:
			return out.code == uint32(wire.CodeLeaseExpired)
		case s.holder != in.session:
			return out.code == uint32(wire.CodeLeaseNotFound)
		case s.token != in.token:
			return out.code == uint32(wire.CodeLeaseInvalidFence)
		}
		s.deadline = s.now.Add(seconds(in.ttl))
		return out.code == 0 && out.token == s.token
	case opRelease:
		switch {
		case expired || s.holder == 0:
			return out.code == 0
		case s.holder != in.session:
			return out.code == uint32(wire.CodeLeaseNotFound)
		case s.token != in.token:
			return out.code == uint32(wire.CodeLeaseInvalidFence)
		}
		s.end()
		return out.code == 0
	default: // opQuery
		if s.holder == 0 {
			return !out.held && out.line == 0
		}
		return out.held && out.left == wholeSeconds(s.deadline.Sub(s.now)) && out.line == uint32(s.waiting)
	}
}

func (s *linearState) acquire(in opInput, out opOutput) bool {
	switch {
	case s.holder == 0:
		s.holder, s.token, s.deadline = in.session, out.token, s.now.Add(seconds(in.ttl))
		s.untold++
		return out.code == 0 && out.kind == uint8(wire.LeaseGrantKindAcquired)
	case s.holder == in.session:
		return out.code == 0 && out.kind == uint8(wire.LeaseGrantKindAlreadyHeld) && out.token == s.token
	case in.wait == 0:
		return out.code == uint32(wire.CodeLeaseHeld)
	}
	for i := range s.line[:s.waiting] {
		if w := &s.line[i]; w.session == in.session {
			w.requests++
			return out.code == 0 && out.kind == uint8(wire.LeaseGrantKindAlreadyQueued) && out.token == w.token
		}
	}
	s.line[s.waiting] = lineEntry{in.session, out.token, in.ttl, s.now.Add(seconds(uint64(in.wait))), 1}
	s.waiting++
	return out.code == 0 && out.kind == uint8(wire.LeaseGrantKindQueued)
}

// close ends a session (L-80).
func (s *linearState) close(session uint64) bool {
	for i := 0; i < s.waiting; {
		if s.line[i].session == session {
			s.drop(i)
		} else {
			i++
		}
	}
	if s.holder == session {
		s.end()
	}
	return true
}

const linearRoutes = 2

var linearModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var parts [linearRoutes][]porcupine.Operation
		for _, op := range history {
			for route := range parts {
				if at := op.Input.(opInput).route; at == route || at < 0 {
					parts[route] = append(parts[route], op)
				}
			}
		}
		return parts[:]
	},
	Init: func() any { return linearState{} },
	Step: step,
}

// recorder turns the calls of one history into operations.
type recorder struct {
	stamp atomic.Int64
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (r *recorder) note(client int, in opInput, call int64, out opOutput, ret int64) {
	r.mu.Lock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: ret})
	r.mu.Unlock()
}

const brokerClient = 100

// linearSession records the reply of the command that its goroutine executes, and decisions of the broker at their moment.
type linearSession struct {
	*fakeSession
	r      *recorder
	out    opOutput // of the command that executes
	closed atomic.Bool
	index  map[string]int
	// waiting holds the route of each label, so that a deferred reply tells its route.
	waiting sync.Map
}

func (s *linearSession) Reply(c peer.Call, value []byte) bool {
	if s.closed.Load() {
		return false
	}
	switch c.Type {
	case wire.TypeLeaseAcquire:
		var v wire.LeaseAcquireReplyView
		s.must(v.DecodeValue(value))
		s.out = opOutput{kind: uint8(v.Kind), token: v.FencingToken}
	case wire.TypeLeaseRenew:
		var v wire.LeaseRenewReplyView
		s.must(v.DecodeValue(value))
		s.out = opOutput{token: v.FencingToken}
	case wire.TypeLeaseQuery:
		var v wire.LeaseQueryReplyView
		s.must(v.DecodeValue(value))
		s.out = opOutput{held: v.Held, left: v.TTLRemaining, line: v.PendingWaiters}
	default:
		s.out = opOutput{}
	}
	return true
}

func (s *linearSession) must(err error) {
	if err != nil {
		s.h.Error(err)
	}
}

func (s *linearSession) Refuse(_ peer.Call, code wire.Code, _ string) bool {
	s.out = opOutput{code: uint32(code)}
	return !s.closed.Load()
}

func (s *linearSession) Wait(peer.Call) bool { return !s.closed.Load() }

func (s *linearSession) deferred(c peer.Call, kind opKind) bool {
	if s.closed.Load() {
		return false
	}
	route, _ := s.waiting.Load(c.Label)
	at := s.r.stamp.Add(1)
	s.r.note(brokerClient, opInput{kind: kind, session: s.number, route: route.(int)}, at, opOutput{}, at)
	return true
}

func (s *linearSession) Settle(c peer.Call, _ []byte) bool { return s.deferred(c, opGranted) }

func (s *linearSession) SettleRefusal(c peer.Call, _ wire.Code, _ string) bool {
	return s.deferred(c, opTimeout)
}

func (s *linearSession) Notify(_ wire.MessageType, value []byte) peer.NotifyResult {
	var v wire.LeaseNotifyView
	s.must(v.DecodeValue(value))
	at := s.r.stamp.Add(1)
	s.r.note(brokerClient, opInput{kind: opNotify, route: s.index[string(v.Route)]}, at, opOutput{}, at)
	return peer.Enqueued
}

var linearPaths = [linearRoutes]string{"lease://r/a/0", "lease://r/a/1"}

// jumpClock moves from one instant to another in one step and calls nobody: sweeps are operations of the history.
type jumpClock struct {
	clock.Clock
	now atomic.Int64
}

func (c *jumpClock) Now() clock.Instant                          { return clock.Instant(c.now.Load()) }
func (c *jumpClock) AfterFunc(time.Duration, func()) clock.Timer { return inertTimer{} }

type inertTimer struct{}

func (inertTimer) Stop() bool               { return false }
func (inertTimer) Reset(time.Duration) bool { return false }

// linearWorld is one domain with a watcher, a clock that jumps, and the record of what happens.
type linearWorld struct {
	h       *harness
	r       *recorder
	jump    *jumpClock
	watcher *linearSession
	now     clock.Instant
}

func newLinearWorld(t *testing.T) *linearWorld {
	w := &linearWorld{h: &harness{TB: t}, r: &recorder{}, jump: &jumpClock{Clock: clock.NewManual(wallStart)}}
	limits := bounds.Default()
	limits.CommandDeadlineControlMs = int64(time.Hour / time.Millisecond) // the clock jumps while commands wait (E-10)
	w.h.domain = New(Options{Limits: limits, Clock: w.jump, Lifetime: lifetime, Metrics: linearMetrics})
	w.h.table = dispatch.New(limits, w.h.domain)
	index := map[string]int{}
	for i, path := range linearPaths {
		index[path] = i
	}
	w.watcher = &linearSession{fakeSession: w.h.session("watcher"), r: w.r, index: index}
	subscribe, err := (&wire.LeaseSubscribeRequest{Selector: "lease://**"}).AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.h.table.Dispatch(w.watcher, peer.Call{Type: wire.TypeLeaseSubscribe}, subscribe)
	return w
}

func (w *linearWorld) client(id int, seed uint64) *linearClient {
	c := &linearClient{h: w.h, r: w.r, id: id, rng: rand.New(rand.NewPCG(seed, uint64(id)))}
	c.connect()
	return c
}

// tick moves time on and, every other time, serves what is due, whether or not a timer asked for it. id is the client that it is in
// the history.
func (w *linearWorld) tick(id int, rng *rand.Rand) {
	w.now = w.now.Add(time.Duration(rng.IntN(8)) * 250 * time.Millisecond)
	call := w.r.stamp.Add(1)
	w.jump.now.Store(int64(w.now))
	w.r.note(id, opInput{kind: opAdvance, route: -1, time: w.now}, call, opOutput{}, w.r.stamp.Add(1))
	runtime.Gosched()
	if rng.IntN(2) == 0 {
		call = w.r.stamp.Add(1)
		w.h.domain.mailbox(w.watcher.family).serve()
		w.r.note(id, opInput{kind: opSweep, route: -1}, call, opOutput{}, w.r.stamp.Add(1))
	}
}

// randomHistory lets clients with random commands, disconnects and time run against one domain at once and returns what happened.
func randomHistory(t *testing.T, seed uint64, clients, length int) []porcupine.Operation {
	w := newLinearWorld(t)
	var wait sync.WaitGroup
	for id := range clients {
		wait.Go(func() {
			c := w.client(id, seed)
			for range length {
				c.act()
				if c.rng.IntN(3) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	wait.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1000))
		for range length {
			w.tick(clients, rng)
		}
	})
	wait.Wait()
	return w.r.ops
}

// orderlyHistory is a random history whose commands follow each other, so that each has one right answer and a seed has one history.
func orderlyHistory(t *testing.T, seed uint64, clients, length int) []porcupine.Operation {
	w := newLinearWorld(t)
	all := make([]*linearClient, clients)
	for id := range all {
		all[id] = w.client(id, seed)
	}
	rng := rand.New(rand.NewPCG(seed, 1000))
	for range (clients + 1) * length {
		if id := rng.IntN(clients + 1); id < clients {
			all[id].act()
		} else {
			w.tick(clients, rng)
		}
	}
	return w.r.ops
}

var linearMetrics = newHarnessMetrics()

// linearClient is one client: a session at a time, the tokens it knows.
type linearClient struct {
	h      *harness
	r      *recorder
	id     int
	rng    *rand.Rand
	s      *linearSession
	label  uint64
	tokens [linearRoutes]uint64
}

func (c *linearClient) connect() {
	c.s = &linearSession{fakeSession: c.h.session(fmt.Sprint(c.id)), r: c.r}
	c.tokens = [linearRoutes]uint64{}
}

func (c *linearClient) act() {
	route := c.rng.IntN(linearRoutes)
	in := opInput{session: c.s.number, route: route, ttl: 1 + c.rng.Uint64N(3), token: c.tokens[route]}
	if c.rng.IntN(8) == 0 {
		in.token++
	}
	const owner = "w"
	path := linearPaths[route]
	switch n := c.rng.IntN(20); {
	case n < 8:
		in.kind = opAcquire
		if c.rng.IntN(2) == 0 {
			in.wait = 1 + c.rng.Uint32N(3)
		}
		c.label++
		c.s.waiting.Store(c.label, route)
		c.call(in, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: path, OwnerID: owner, TTL: in.ttl, Wait: in.wait})
		if c.s.out.code == 0 {
			c.tokens[route] = c.s.out.token
		}
	case n < 11:
		in.kind = opRenew
		c.call(in, wire.TypeLeaseRenew, &wire.LeaseRenewRequest{Route: path, OwnerID: owner, FencingToken: in.token, TTL: in.ttl})
	case n < 15:
		in.kind = opRelease
		c.call(in, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: path, OwnerID: owner, FencingToken: in.token})
	case n < 19:
		in.kind = opQuery
		c.call(in, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: path})
	default:
		// The session starts closing between two commands: within one, the checker could not tell which of its frames were lost.
		in.kind, in.route = opClosing, -1
		box := c.h.domain.mailbox(c.s.family)
		call := c.r.stamp.Add(1)
		box.mu.Lock()
		c.s.closed.Store(true)
		box.mu.Unlock()
		c.r.note(c.id, in, call, opOutput{}, c.r.stamp.Add(1))
		runtime.Gosched()
		in.kind = opClose
		call = c.r.stamp.Add(1)
		c.h.domain.CloseSession(c.s)
		c.r.note(c.id, in, call, opOutput{}, c.r.stamp.Add(1))
		c.connect()
	}
}

func (c *linearClient) call(in opInput, typ wire.MessageType, request value) {
	encoded, err := request.AppendValue(nil)
	if err != nil {
		c.h.Error(err)
		return
	}
	call := c.r.stamp.Add(1)
	c.h.table.Dispatch(c.s, peer.Call{Type: typ, Label: c.label}, encoded)
	c.r.note(c.id, in, call, c.s.out, c.r.stamp.Add(1))
}

// Linearizability: the commands of concurrent clients, with expiry, disconnects and grants to waiters, look as if they had been
// executed one at a time between their call and their return.
func TestLinearizable(t *testing.T) {
	n := *histories
	if testing.Short() {
		n /= 20
	}
	var next atomic.Int64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for seed := next.Add(1); seed <= int64(n) && !t.Failed(); seed = next.Add(1) {
				history := randomHistory(t, uint64(seed), 3+int(seed%2), 8)
				if result, info := porcupine.CheckOperationsVerbose(linearModel, history, 10*time.Second); result != porcupine.Ok {
					t.Errorf("seed %d: %s", seed, result)
					_ = info
					for _, op := range history {
						t.Logf("%3d..%3d client %d %+v -> %+v", op.Call, op.Return, op.ClientId, op.Input, op.Output)
					}
				}
			}
		}()
	}
	wait.Wait()
}

// The checker notices what must not happen: a history with one answer or one decision changed is refused, whichever it is.
func TestLinearizableNoticesWrongAnswers(t *testing.T) {
	changed := map[opKind]int{}
	for seed := range uint64(200) {
		history := orderlyHistory(t, seed, 3, 8)
		if !porcupine.CheckOperations(linearModel, history) {
			t.Fatalf("seed %d: the unchanged history is refused", seed)
		}
		rng := rand.New(rand.NewPCG(seed, 7))
		at := rng.IntN(len(history))
		in, out := history[at].Input.(opInput), history[at].Output.(opOutput)
		switch in.kind {
		case opAcquire, opRenew, opRelease:
			out.code++
		case opQuery:
			out.held = !out.held
		case opNotify, opGranted:
			in.kind = opTimeout
		case opTimeout:
			in.kind = opGranted
		default:
			continue // time and the end of a session are not answers
		}
		changed[in.kind]++
		history[at].Input, history[at].Output = in, out
		if porcupine.CheckOperations(linearModel, history) {
			t.Errorf("seed %d: operation %d %+v -> %+v is not noticed", seed, at, in, out)
		}
	}
	for _, kind := range []opKind{opAcquire, opRenew, opRelease, opQuery, opGranted, opTimeout} {
		if changed[kind] == 0 {
			t.Errorf("no operation of kind %d was changed", kind)
		}
	}
}
