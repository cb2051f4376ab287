package observer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/observer"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pager"
)

// item is what the model lists.
type item struct {
	Route    string
	Owner    string
	Holder   uint64
	Acquired string
	Renewals uint32
	Left     time.Duration
}

// Errors of the model, one of each class.
var (
	errAgain     = errors.New("busy")
	errCursor    = errors.New("cursor")
	errGone      = errors.New("session gone")
	errNever     = errors.New("denied")
	errTooMany   = errors.New("view too large")
	errClosed    = errors.New("closed")
	errViolation = errors.New("violation")
)

// peer is a broker as far as an observer can tell, in the time of a bubble, with everything that can go wrong under the control of a test.
// Requests of a session execute in the order in which they were sent (W-40); pushes and replies travel one after the other.
type peer struct {
	mu       sync.Mutex
	leases   map[string]item
	serial   uint64
	lifetime string
	current  *line
	pageSize int
	random   *rand.Rand // guarded by mu

	up, down time.Duration // longest time on the way
	reorder  time.Duration // longest time by which a reply may fall behind (W-44)

	fail       []error // of the next requests; nil lets one through
	failList   []error // of the next listings only
	onPage     func(n int)
	dropNotify int // so many notifications get lost
	malformed  int // so many notifications do not decode
	repeatPage bool
	serially   bool // no labels

	// What was seen.
	subscribes, unsubscribes int
	pages, exact, listings   int
	notified                 int
	askingMost, pagingMost   int // SUBSCRIBE and pages in flight in one session
	exactMost, routeMost     int // exact LISTs in flight, of all routes and of one
	observer                 *observer.Observer[item]
	background               sync.WaitGroup
}

// line is one session.
type line struct {
	peer      *peer
	done      chan struct{}
	closed    bool
	uplink    chan func()
	downlink  chan func()
	id        uint64
	sink      observer.Sink
	snapshots map[uint64][]item
	lifetime  string
	pipelined bool

	asking, paging, exact int // in flight
	routes                map[string]int
}

func newPeer(seed int64) *peer {
	return &peer{
		leases: map[string]item{}, lifetime: "l1", pageSize: 3, random: rand.New(rand.NewSource(seed)),
		up: time.Millisecond, down: time.Millisecond}
}

// some returns a random time below most. p.mu is held.
func (p *peer) some(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return time.Duration(p.random.Int63n(int64(most)))
}

// open opens a session and tells the observer.
func (p *peer) open() {
	p.mu.Lock()
	s := &line{peer: p, done: make(chan struct{}), uplink: make(chan func(), 1<<16), downlink: make(chan func(), 1<<16), snapshots: map[uint64][]item{}, routes: map[string]int{}}
	p.current = s
	s.lifetime, s.pipelined = p.lifetime, !p.serially
	p.mu.Unlock()
	p.background.Go(func() { s.carry(s.uplink, p.up) })
	p.background.Go(func() { s.carry(s.downlink, p.down) })
	p.observer.SessionOpened(s)
}

// carry runs what is sent in one direction, in order, each after a while.
func (s *line) carry(frames chan func(), most time.Duration) {
	for {
		select {
		case f := <-frames:
			s.peer.mu.Lock()
			d := s.peer.some(most)
			s.peer.mu.Unlock()
			if d > 0 {
				time.Sleep(d) // virtual
			}
			select {
			case <-s.done:
				return
			default:
				f()
			}
		case <-s.done:
			return
		}
	}
}

// cut ends the session.
func (p *peer) cut() {
	p.mu.Lock()
	s := p.current
	p.current = nil
	if s != nil && !s.closed {
		s.closed = true
		close(s.done)
	}
	p.mu.Unlock()
	if s != nil {
		p.observer.SessionLost(errGone)
	}
}

// exchange sends a request and waits for its reply. execute runs at the broker, under the lock.
func (s *line) exchange(ctx context.Context, inOrder bool, execute func() (reply func(), err error)) error {
	p := s.peer
	answer := make(chan error, 1)
	s.uplink <- func() {
		p.mu.Lock()
		reply, err := execute()
		late := p.some(p.reorder)
		if inOrder { // W-46
			late = 0
		}
		p.mu.Unlock()
		deliver := func() {
			if err == nil && reply != nil {
				reply()
			}
			answer <- err
		}
		if late == 0 {
			s.downlink <- deliver
			return
		}
		time.AfterFunc(late, func() { s.downlink <- deliver })
	}
	select {
	case err := <-answer:
		return err
	case <-s.done:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	}
}

// refusal returns the error of the next request. p.mu is held.
func (p *peer) refusal(list bool) error {
	queue := &p.fail
	if list && len(p.fail) == 0 {
		queue = &p.failList
	}
	if len(*queue) == 0 {
		return nil
	}
	err := (*queue)[0]
	*queue = (*queue)[1:]
	return err
}

type registration struct {
	s    *line
	sink observer.Sink
}

// Leave sends UNSUBSCRIBE, unless the registration has ended.
func (r registration) Leave(ctx context.Context) error {
	live := false
	r.s.peer.with(func() { live = r.s.sink == r.sink })
	if !live {
		return nil
	}
	return r.s.exchange(ctx, true, func() (func(), error) {
		r.s.peer.unsubscribes++
		r.s.sink, r.s.id = nil, 0
		return nil, nil
	})
}

func (p *peer) session() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (s *line) Subscribe(ctx context.Context, sink observer.Sink) (observer.Registration, error) {
	p := s.peer
	p.gauge(&s.asking, &p.askingMost, 1)
	defer p.gauge(&s.asking, &p.askingMost, -1)
	err := s.exchange(ctx, true, func() (func(), error) {
		p.subscribes++
		if err := p.refusal(false); err != nil {
			return nil, err
		}
		p.serial++
		s.id, s.sink = p.serial, sink
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	return registration{s, sink}, nil
}

func (p *peer) gauge(now, most *int, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*now += by
	*most = max(*most, *now)
}

func (s *line) List(ctx context.Context, after pager.Cursor) (page pager.Page[item], err error) {
	p := s.peer
	p.gauge(&s.paging, &p.pagingMost, 1)
	defer p.gauge(&s.paging, &p.pagingMost, -1)
	err = s.exchange(ctx, false, func() (func(), error) {
		p.pages++
		if after == (pager.Cursor{}) {
			p.listings++
		}
		if p.onPage != nil {
			p.onPage(p.pages)
		}
		if err := p.refusal(true); err != nil {
			return nil, err
		}
		answer, err := s.page(after)
		return func() { page = answer }, err
	})
	return page, err
}

// page cuts a page out of a snapshot. p.mu is held.
func (s *line) page(after pager.Cursor) (page pager.Page[item], err error) {
	p := s.peer
	id, offset := after.Snapshot, int(after.Offset)
	if after == (pager.Cursor{}) {
		p.serial++
		id = p.serial
		s.snapshots[id] = p.sorted()
	}
	all, ok := s.snapshots[id]
	if !ok {
		return page, errCursor
	}
	last := min(offset+p.pageSize, len(all))
	page.Items = slices.Clone(all[offset:last])
	if last == len(all) {
		delete(s.snapshots, id)
		return page, nil
	}
	page.HasNext, page.Next = true, pager.Cursor{Snapshot: id, Offset: uint32(last)}
	if p.repeatPage {
		page.Next.Offset = max(after.Offset, 1)
	}
	return page, nil
}

func (s *line) Read(ctx context.Context, route string) (page pager.Page[item], err error) {
	p := s.peer
	p.gauge(&s.exact, &p.exactMost, 1)
	defer p.gauge(&s.exact, &p.exactMost, -1)
	p.mu.Lock()
	s.routes[route]++
	p.routeMost = max(p.routeMost, s.routes[route])
	p.mu.Unlock()
	defer p.with(func() { s.routes[route]-- })
	err = s.exchange(ctx, false, func() (func(), error) {
		p.exact++
		if err := p.refusal(true); err != nil {
			return nil, err
		}
		answer := pager.Page[item]{}
		if held, ok := p.leases[route]; ok {
			answer.Items = []item{held}
		}
		return func() { page = answer }, nil
	})
	return page, err
}

// sorted returns the leases. p.mu is held.
func (p *peer) sorted() []item {
	all := make([]item, 0, len(p.leases))
	for _, l := range p.leases {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b item) int { return observer.Compare(a.Route, b.Route) })
	return all
}

// change applies one change of the held set and notifies it (L-71).
func (p *peer) change(route string, held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changeLocked(route, held)
}

func (p *peer) changeLocked(route string, held bool) {
	if _, was := p.leases[route]; !was && !held {
		return
	}
	p.serial++
	delete(p.leases, route)
	if held {
		p.leases[route] = item{Route: route, Owner: fmt.Sprint("o", p.serial), Holder: p.serial, Acquired: fmt.Sprint(p.serial), Left: time.Minute}
	}
	s := p.current
	if s == nil || s.sink == nil {
		return
	}
	if p.dropNotify > 0 {
		p.dropNotify--
		return
	}
	sink := s.sink
	p.notified++
	if p.malformed > 0 {
		p.malformed--
		s.downlink <- func() { sink.Malformed(errViolation) }
		return
	}
	s.downlink <- func() { sink.Notify(route) }
}

// renew changes what a renewal changes; nothing is notified (L-72).
func (p *peer) renew(route string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l, ok := p.leases[route]; ok {
		l.Renewals++
		p.leases[route] = l
	}
}

// endRegistration removes the registration and says so (W-68).
func (p *peer) endRegistration(dropped uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.current
	if s == nil || s.sink == nil {
		return
	}
	sink := s.sink
	s.sink, s.id = nil, 0
	s.downlink <- func() { sink.Ended(dropped, errAgain) }
}

// loseCursors forgets every snapshot.
func (p *peer) loseCursors() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		clear(p.current.snapshots)
	}
}

// restart is another process: nothing is held.
func (p *peer) restart() {
	p.cut()
	p.mu.Lock()
	p.serial++
	p.lifetime = fmt.Sprint("l", p.serial)
	clear(p.leases)
	p.mu.Unlock()
}

func (p *peer) with(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// defaults are small enough that every bound is met.
func defaults() observer.Options {
	return observer.Options{
		ReconcileMin: 5 * time.Second, ReconcileMax: time.Minute, ReconcileJitter: 0.2, ChangeBuffer: 256,
		Coalesce: 25 * time.Millisecond, RepairLimit: 64, MaxItems: 100_000, ListTimeout: 10 * time.Second}
}

func limits() observer.Limits {
	return observer.Limits{TTLMax: time.Hour, PageMax: 500, Dirty: 4096, Consumers: 64, CloseTimeout: 5 * time.Second}
}

// delay is a backoff with equal jitter.
func delay(first, most time.Duration) func(int, float64) time.Duration {
	return func(attempt int, random float64) time.Duration {
		d := most
		if attempt < 20 {
			d = min(first<<attempt, most)
		}
		return d/2 + time.Duration(random*float64(d/2))
	}
}

func (s *line) Lifetime() string { return s.lifetime }
func (s *line) Pipelined() bool  { return s.pipelined }

func (p *peer) ports(gate *pager.Gate) observer.Ports {
	birth := time.Now()
	return observer.Ports{
		Now:   func() time.Duration { return time.Since(birth) },
		After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
		Random: func() float64 {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.random.Float64()
		},
		Wall:  time.Now,
		Enter: gate.Enter,
		Class: func(_ observer.Operation, err error) observer.Class {
			switch {
			case errors.Is(err, errNever):
				return observer.Never
			case errors.Is(err, errCursor):
				return observer.CursorLost
			case errors.Is(err, errGone):
				return observer.SessionGone
			}
			return observer.Again
		},
		PassDelay:    delay(50*time.Millisecond, 2*time.Second),
		FailureDelay: delay(250*time.Millisecond, 5*time.Second),
	}
}

func items() observer.Items[item] {
	return observer.Items[item]{
		Route:       func(i item) string { return i.Route },
		Matches:     func(route string) bool { return strings.HasPrefix(route, "x://a/") },
		SameHolding: func(a, b item) bool { return a.Holder == b.Holder && a.Owner == b.Owner && a.Acquired == b.Acquired },
		SameRenewal: func(a, b item) bool { return a.Renewals == b.Renewals },
		Aged:        func(i item, by time.Duration) item { i.Left = max(i.Left-by, 0); return i },
		TooMany:     errTooMany,
		Violation: func(reason string, cause error) error {
			return fmt.Errorf("%w: %s %v", errViolation, reason, cause)
		},
		Closed: errClosed,
	}
}

// observe starts an observer of the peer, without a session.
func observe(t testing.TB, p *peer, change ...func(*observer.Options)) *observer.Observer[item] {
	t.Helper()
	o := defaults()
	for _, f := range change {
		f(&o)
	}
	o, err := o.Complete(defaults(), limits())
	if err != nil {
		t.Fatal(err)
	}
	p.observer = observer.New(p.ports(pager.NewGate(4)), items(), o, limits())
	return p.observer
}

// finish ends observer and peer.
func (p *peer) finish() {
	p.observer.Close()
	p.cut()
	p.background.Wait()
}
