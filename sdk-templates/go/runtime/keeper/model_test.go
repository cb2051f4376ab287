package keeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// Errors of the model broker.
var (
	errHeld     = errors.New("held")
	errTimeout  = errors.New("wait over")
	errGone     = errors.New("gone")
	errFenced   = errors.New("fenced")
	errUnsent   = errors.New("unsent")
	errCut      = errors.New("cut")
	errReleased = errors.New("released")
	errClosed   = errors.New("closed")
	errLate     = errors.New("late")
	errOverload = errors.New("overload")
)

type lostError struct{ reason Reason }

func (e lostError) Error() string { return fmt.Sprint("lost ", e.reason) }

func testVerdict(err error) Verdict {
	switch {
	case errors.Is(err, errHeld):
		return Taken
	case errors.Is(err, errTimeout):
		return TimedOut
	case errors.Is(err, errGone):
		return IsGone
	case errors.Is(err, errFenced):
		return IsFenced
	case errors.Is(err, errUnsent):
		return Unsent
	}
	return Other
}

func testOptions(clock port.Clock, rng port.Rand, session func(context.Context) (Session, error)) Options {
	return Options{
		Clock: clock, Rand: rng, Session: session, Verdict: testVerdict,
		RenewParts: 3, RenewJitter: 0.1, MarginParts: 10, MarginMin: 250 * time.Millisecond, MarginMax: 5 * time.Second,
		Retry: link.Backoff{First: 100 * time.Millisecond, Cap: time.Second, Factor: 2}, ReleaseTimeout: 5 * time.Second,
		WaitMax: 30 * time.Second, LineMax: 16, CloseWait: 2 * time.Second,
		Lost:     func(_ Key, r Reason, _ error) error { return lostError{r} },
		Held:     func(Key) error { return errHeld },
		WaitOver: func(Key) error { return errTimeout },
		Overload: func(Key) error { return errOverload },
		Closed:   func() error { return errClosed },
		Late:     func(Key) error { return errLate },
		Released: errReleased,
	}
}

// process is what a client runs in: it can be stopped, and then nothing in it goes on while time does (SIGSTOP, suspend).
type process struct {
	mu      sync.Mutex
	stopped chan struct{} // nil while it runs
}

func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopped = make(chan struct{})
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.stopped)
	p.stopped = nil
}

func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stopped == nil
}

// await returns as soon as the process runs.
func (p *process) await() {
	for {
		p.mu.Lock()
		stopped := p.stopped
		p.mu.Unlock()
		if stopped == nil {
			return
		}
		<-stopped
	}
}

// processClock is the clock of a process: it runs on while the process is stopped, its calls come late.
type processClock struct {
	process *process
	birth   time.Time
}

func (c processClock) Now() time.Duration { return time.Since(c.birth) }

func (c processClock) AfterFunc(d time.Duration, f func()) port.Timer {
	return time.AfterFunc(d, func() {
		c.process.await()
		f()
	})
}

// world is a broker with one route, a client under test, and somebody else who wants the route whenever it is free.
type world struct {
	t       testing.TB
	seed    uint64
	rng     *rand.Rand
	process *process
	keeper  *Keeper

	mu      sync.Mutex
	token   uint64
	holder  string // "", "client" or "other"
	of      *wire  // session of the client that holds
	expiry  *time.Timer
	waiter  *waiter // the client in line
	current *wire
	grants  int // to the other
	handles map[*Lease]struct{}
}

type waiter struct {
	of    *wire
	ttl   time.Duration
	reply func(Grant, error)
}

// wire is one session of the client.
type wire struct {
	world *world
	done  chan struct{}

	mu       sync.Mutex
	hole     bool      // nothing arrives any more, in either direction
	unheard  time.Time // since when the broker has heard nothing; zero: the client sends in time whatever it needs to be heard
	over     bool
	up, down time.Time // when the last message arrives
}

// arrival is when a message arrives that is sent now: after a delay, and after those before it.
func (w *world) arrival(last *time.Time) time.Duration {
	delay := time.Duration(w.rng.IntN(20)) * time.Millisecond
	if w.rng.IntN(20) == 0 {
		delay = time.Duration(w.rng.IntN(8000)) * time.Millisecond
	}
	at := time.Now().Add(delay)
	if at.Before(*last) {
		at = *last
	}
	*last = at
	return time.Until(at)
}

// send calls f at the other side when the message arrives, if it does. Messages of one direction keep their order.
func (s *wire) send(last *time.Time, f func()) {
	s.world.mu.Lock()
	delay := s.world.arrival(last)
	s.world.mu.Unlock()
	time.AfterFunc(delay+time.Nanosecond, func() {
		s.mu.Lock()
		lost := s.hole || s.over
		s.mu.Unlock()
		if !lost {
			f()
		}
	})
}

type answer struct {
	grant Grant
	err   error
}

// call sends a request, and returns its answer when it has arrived and the process runs. late gets an answer that nobody waits for.
func (s *wire) call(ctx context.Context, request func(reply func(Grant, error)), late func(answer, bool)) (answer, bool) {
	s.world.process.await()
	select {
	case <-s.done:
		return answer{err: errUnsent}, false
	default:
	}
	answers := make(chan answer, 1)
	s.send(&s.up, func() {
		request(func(g Grant, err error) { s.send(&s.down, func() { answers <- answer{g, err} }) })
	})
	timeout := time.NewTimer(40 * time.Second)
	defer timeout.Stop()
	select {
	case a := <-answers:
		s.world.process.await()
		return a, false
	case <-s.done:
		s.world.process.await()
		return answer{err: errCut}, false
	case <-ctx.Done():
	case <-timeout.C:
	}
	go func() {
		select {
		case a := <-answers:
			s.world.process.await()
			late(a, true)
		case <-s.done:
			s.world.process.await()
			late(answer{}, false)
		}
	}()
	if err := ctx.Err(); err != nil {
		return answer{err: err}, true
	}
	return answer{err: errLate}, true
}

func (s *wire) Done() <-chan struct{} { return s.done }

// Times of W-66: the client sends something in every heartbeat, and the broker ends a session when it has heard nothing for some of them. The
// client counts from what was answered, and not as long.
const (
	heartbeat   = 10 * time.Second
	brokerWaits = 3 * heartbeat
	clientWaits = 5 * heartbeat / 2
)

func (s *wire) KeptFor() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unheard.IsZero() {
		return clientWaits - heartbeat, true
	}
	return time.Until(s.unheard.Add(clientWaits)), true
}

// silence says that nothing of what the client sends arrives any more, or that it sends nothing. Its last word was sent up to a heartbeat ago. ended
// is called when the broker has waited for long enough.
func (s *wire) silence(ended func()) {
	s.world.mu.Lock()
	ago := time.Duration(s.world.rng.Int64N(int64(heartbeat)))
	s.world.mu.Unlock()
	s.mu.Lock()
	since := time.Now().Add(-ago)
	s.unheard = since
	s.mu.Unlock()
	time.AfterFunc(brokerWaits-ago, func() {
		s.mu.Lock()
		still := s.unheard.Equal(since) && !s.over
		s.mu.Unlock()
		if still {
			s.world.drop(s)
			ended()
		}
	})
}

func (s *wire) Acquire(ctx context.Context, terms Terms, wait time.Duration, late func(Grant, bool)) (Grant, bool, error) {
	a, given := s.call(ctx, func(reply func(Grant, error)) { s.world.acquire(s, terms.TTL, wait, reply) }, func(a answer, ok bool) {
		late(a.grant, ok && a.err == nil)
	})
	return a.grant, given, a.err
}

func (s *wire) Renew(ctx context.Context, _ Key, token uint64, ttl time.Duration) (uint64, error) {
	a, _ := s.call(ctx, func(reply func(Grant, error)) { s.world.renew(s, token, ttl, reply) }, func(answer, bool) {})
	return a.grant.Token, a.err
}

func (s *wire) Release(ctx context.Context, _ Key, token uint64) error {
	a, _ := s.call(ctx, func(reply func(Grant, error)) { s.world.release(s, token, reply) }, func(answer, bool) {})
	return a.err
}

func (w *world) acquire(s *wire, ttl, wait time.Duration, reply func(Grant, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.holder == "":
		w.grant(s, ttl)
		w.later(func() { reply(Grant{Token: w.tokenNow()}, nil) })
	case w.holder == "client" && w.of == s:
		w.later(func() { reply(Grant{Token: w.tokenNow(), Unsure: true}, nil) })
	case wait == 0:
		w.later(func() { reply(Grant{}, errHeld) })
	default:
		x := &waiter{s, ttl, reply}
		w.waiter = x
		time.AfterFunc(wait, func() {
			w.mu.Lock()
			mine := w.waiter == x
			if mine {
				w.waiter = nil
			}
			w.mu.Unlock()
			if mine {
				reply(Grant{}, errTimeout)
			}
		})
	}
}

// later runs f without the lock, at the same instant.
func (w *world) later(f func()) { time.AfterFunc(0, f) }

func (w *world) tokenNow() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.token
}

// grant gives the route to the client. w.mu is held.
func (w *world) grant(s *wire, ttl time.Duration) {
	w.token++
	w.holder, w.of = "client", s
	w.rearm(ttl)
}

func (w *world) rearm(ttl time.Duration) {
	if w.expiry != nil {
		w.expiry.Stop()
	}
	token := w.token
	w.expiry = time.AfterFunc(ttl, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.holder == "client" && w.token == token {
			w.free()
		}
	})
}

// free takes the route from the client and gives it to whoever is next. That is the moment at which the client must know. w.mu is held.
func (w *world) free() {
	w.expiry.Stop()
	w.holder, w.of = "", nil
	if x := w.waiter; x != nil && w.rng.IntN(2) == 0 {
		w.waiter = nil
		w.grant(x.of, x.ttl)
		token := w.token
		w.later(func() { x.reply(Grant{Token: token, Unsure: true}, nil) })
		return
	}
	w.grants++
	w.token++
	w.holder = "other"
	for l := range w.handles {
		select {
		case <-l.done:
		default:
			if w.process.running() {
				w.t.Errorf("seed %d: somebody else was granted the route at %v while a handle looks held until %v", w.seed, w.keeper.options.Clock.Now(), l.deadline)
			}
		}
	}
	time.AfterFunc(time.Duration(1+w.rng.IntN(3000))*time.Millisecond, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.holder = ""
		if x := w.waiter; x != nil {
			w.waiter = nil
			w.grant(x.of, x.ttl)
			token := w.token
			w.later(func() { x.reply(Grant{Token: token, Unsure: true}, nil) })
		}
	})
}

func (w *world) renew(s *wire, token uint64, ttl time.Duration, reply func(Grant, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.holder != "client" || w.of != s:
		w.later(func() { reply(Grant{}, errGone) })
	case w.token != token:
		w.later(func() { reply(Grant{}, errFenced) })
	case w.rng.IntN(10) == 0: // not accepted
		w.later(func() { reply(Grant{}, errOverload) })
	default:
		w.rearm(ttl)
		w.later(func() { reply(Grant{Token: token}, nil) })
	}
}

func (w *world) release(s *wire, token uint64, reply func(Grant, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.holder == "client" && w.of == s && w.token == token {
		w.free()
	}
	w.later(func() { reply(Grant{}, nil) })
}

// session returns the current session, or waits for the next one.
func (w *world) session(ctx context.Context) (Session, error) {
	for {
		w.process.await()
		w.mu.Lock()
		s := w.current
		w.mu.Unlock()
		select {
		case <-s.done:
		default:
			return s, nil
		}
		if err := port.Sleep(ctx, w.keeper.options.Clock, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// drop ends a session for the broker.
func (w *world) drop(s *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiter != nil && w.waiter.of == s {
		w.waiter = nil
	}
	if w.holder == "client" && w.of == s {
		w.free()
	}
}

// lose ends the session for the client at once, and for the broker after that.
func (w *world) lose(s *wire, broker time.Duration) {
	s.mu.Lock()
	over := s.over
	s.over = true
	s.mu.Unlock()
	if over {
		return
	}
	close(s.done)
	go func() {
		w.process.await()
		w.keeper.SessionEnded(s, Disconnected, nil)
	}()
	time.AfterFunc(broker, func() { w.drop(s) })
	w.mu.Lock()
	w.current = &wire{world: w, done: make(chan struct{})}
	w.mu.Unlock()
}

// fault does one random thing to the client or its network.
func (w *world) fault() {
	w.mu.Lock()
	what, long := w.rng.IntN(10), time.Duration(w.rng.IntN(40_000))*time.Millisecond
	s := w.current
	w.mu.Unlock()
	switch what {
	case 0: // cut
		w.lose(s, time.Millisecond)
	case 1: // black hole: the client has heard the broker until now
		s.mu.Lock()
		s.hole = true
		s.mu.Unlock()
		s.silence(func() {})
		time.AfterFunc(clientWaits, func() { w.lose(s, brokerWaits-clientWaits) })
	case 2: // stopped, or suspended
		w.process.stop()
		s.mu.Lock()
		hole := s.hole
		s.mu.Unlock()
		ended := make(chan struct{})
		if !hole {
			s.silence(func() { close(ended) })
		}
		time.Sleep(long)
		w.checkResumed()
		w.process.resume()
		if hole {
			return
		}
		select {
		case <-ended: // which the client finds out only now
			time.AfterFunc(time.Millisecond, func() { w.lose(s, 0) })
		default:
			s.mu.Lock()
			s.unheard = time.Time{}
			s.mu.Unlock()
		}
	default:
		time.Sleep(long / 4)
	}
}

// checkResumed looks at every handle as the program would in the very moment in which it goes on, before any timer has come (L-104).
func (w *world) checkResumed() {
	w.mu.Lock()
	other := w.holder != "client"
	var handles []*Lease
	for l := range w.handles {
		handles = append(handles, l)
	}
	w.mu.Unlock()
	for _, l := range handles {
		if l.Err() == nil && other {
			w.t.Errorf("seed %d: after a stop a handle looks held, and somebody else holds", w.seed)
		}
	}
}

// user acquires, holds for a while and releases or loses, again and again, and gives up at random moments.
func (w *world) user(ctx context.Context) {
	for ctx.Err() == nil {
		w.process.await()
		w.mu.Lock()
		ttl := time.Duration(1+w.rng.IntN(20)) * time.Second
		if w.rng.IntN(3) == 0 {
			ttl = time.Hour // the end of the session comes first
		}
		wait := time.Duration(w.rng.IntN(3)) * 20 * time.Second
		patience := time.Duration(w.rng.IntN(60_000)) * time.Millisecond
		if w.rng.IntN(3) == 0 {
			patience = time.Duration(w.rng.IntN(30)) * time.Millisecond
		}
		hold := time.Duration(w.rng.IntN(60_000)) * time.Millisecond
		w.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, patience)
		l, err := w.keeper.Acquire(limited, Terms{Key: Key{"route", "owner"}, TTL: ttl, Wait: wait})
		cancel()
		if err != nil {
			_ = port.Sleep(ctx, w.keeper.options.Clock, 500*time.Millisecond)
			continue
		}
		w.mu.Lock()
		for other := range w.handles {
			select {
			case <-other.done:
			default:
				w.t.Errorf("seed %d: two handles of one client (L-99)", w.seed)
			}
		}
		w.handles[l] = struct{}{}
		w.mu.Unlock()
		select {
		case <-l.Done():
		case <-time.After(hold):
			w.process.await()
			_ = l.Release(ctx)
		}
		w.mu.Lock()
		delete(w.handles, l)
		w.mu.Unlock()
	}
}

func schedules(normal int) int {
	if n, err := strconv.Atoi(os.Getenv("FITZ_SCHEDULES")); err == nil {
		return n
	}
	return normal
}

// L-73, L-95, L-96, L-99, L-104: over random schedules of delays, cuts, black holes and stops, a handle of the client says that it is lost
// before the broker gives the route to somebody else; one client never holds twice; and nothing that was given up stays held.
func TestNoLeaseOutlivesItsSignal(t *testing.T) {
	grants := 0
	for seed := range uint64(schedules(400)) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			w := &world{t: t, seed: seed, rng: rng, process: &process{}, handles: map[*Lease]struct{}{}}
			w.current = &wire{world: w, done: make(chan struct{})}
			random := func() float64 { w.mu.Lock(); defer w.mu.Unlock(); return rng.Float64() }
			w.keeper = New(testOptions(processClock{w.process, time.Now()}, random, w.session))
			ctx, cancel := context.WithCancel(t.Context())
			var users sync.WaitGroup
			for range 2 {
				users.Go(func() { w.user(ctx) })
			}
			for range 20 {
				w.fault()
			}
			cancel()
			users.Wait()
			time.Sleep(2 * time.Minute) // everything that is on its way arrives
			if places, held := w.keeper.Len(); places != 0 || held != 0 {
				t.Errorf("seed %d: %d places and %d leases are left", seed, places, held)
			}
			w.keeper.Close()
			w.mu.Lock()
			if w.holder == "client" {
				t.Errorf("seed %d: the broker holds a lease that nobody wanted", seed)
			}
			grants += w.grants
			w.mu.Unlock()
			w.lose(w.current, 0)
			time.Sleep(time.Minute)
		})
		if t.Failed() {
			return
		}
	}
	if grants == 0 {
		t.Error("nobody else was ever granted the route: the schedules show nothing")
	}
	t.Logf("%d grants to somebody else", grants)
}
