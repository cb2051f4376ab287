package link

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// manual is a clock that moves only in Advance, in a bubble whose own time moves otherwise.
type manual struct{ port.Manual }

func (m *manual) AfterFunc(d time.Duration, f func()) func() bool {
	return m.Manual.AfterFunc(d, f).Stop
}

// advance lets an hour of the bubble pass, which must change nothing, and then moves the clock.
func (m *manual) advance(d time.Duration) {
	time.Sleep(time.Hour)
	synctest.Wait()
	m.Advance(d)
	synctest.Wait()
}

// pendingResult fails the test when there is a result already.
func pendingResult[T any](t *testing.T, results <-chan T) {
	t.Helper()
	select {
	case got := <-results:
		t.Fatalf("too early: %+v", got)
	default:
	}
}

// onManual opens a session whose time moves only by hand.
func onManual(t *testing.T, cfg config) (session, *manual) {
	t.Helper()
	clock := new(manual)
	cfg.options.Clock = clock
	return open(t, cfg), clock
}

// Options.Clock: the connect timeout.
func TestClockOfConnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		clock := new(manual)
		results := make(chan error, 1)
		go func() {
			_, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: hang, Clock: clock})
			results <- err
		}()
		clock.advance(10*time.Second - 1)
		pendingResult(t, results)
		clock.advance(1)
		err := <-results
		if !IsKind(err, Refused) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	})
}

// Options.Clock: the settle time of a peer without a hello (C-60), and the connect timeout that is over before it.
func TestClockOfSettle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, settle := range []time.Duration{time.Second, time.Minute} {
			near, far := net.Pipe()
			newRemote(t, far).drain()
			clock := new(manual)
			results := make(chan dialled, 1)
			go func() {
				c, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: pipe(near), Clock: clock, Limits: Limits{Settle: settle}})
				results <- dialled{c, err}
			}()
			clock.advance(min(settle, 10*time.Second) - 1)
			pendingResult(t, results)
			clock.advance(1)
			d := <-results
			if settle == time.Second {
				if d.err != nil {
					t.Fatal(d.err)
				}
				_ = d.conn.Close()
			} else if !IsKind(d.err, Refused) {
				t.Fatalf("got %v", d.err)
			}
			_ = far.Close()
		}
	})
}

// Options.Clock: the request timeout, the wait in line, and how long a slot is kept (W-59).
func TestClockOfRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, clock := onManual(t, config{caps: bitLabels})
		s.remote.drain()
		plain := s.start(t.Context(), echo("a"))
		synctest.Wait()
		clock.advance(10*time.Second - 1)
		pendingResult(t, plain)
		clock.advance(1)
		(<-plain).wantKind(t, Timeout, true)

		line := s.start(t.Context(), waitRequest("b"))
		synctest.Wait()
		s.remote.send(labelled(toyLabelled, 2, text(toyWait, "q")))
		clock.advance(10 * time.Second)
		clock.advance(30*time.Second - 1)
		pendingResult(t, line)
		clock.advance(1)
		(<-line).wantKind(t, Timeout, true)
		s.close(t)
	})
}

// Options.Clock: a given-up request that was not labelled costs the session in time of the clock (W-59).
func TestClockOfAbandonedRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, clock := onManual(t, config{})
		s.remote.drain()
		ctx, cancel := context.WithCancel(t.Context())
		call := s.start(ctx, echo("a"))
		synctest.Wait()
		cancel()
		if got := <-call; !errors.Is(got.err, context.Canceled) {
			t.Fatal(got.err)
		}
		clock.advance(10*time.Second - 1)
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		clock.advance(1)
		s.wantEnd(t, Lost)
		s.close(t)
	})
}

// Options.Clock: heartbeat and silence (W-66).
func TestClockOfHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, clock := onManual(t, config{caps: bitLabels | bitLifecycle, heartbeatMs: 1000})
		clock.advance(time.Second)
		s.remote.expect(rec(toyPing, u64(1)))
		s.remote.send(rec(toyPong, u64(1)))
		synctest.Wait()
		s.remote.drain()
		clock.advance(2500*time.Millisecond - 1)
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		clock.advance(1)
		s.wantEnd(t, Lost)
		s.close(t)
	})
}

// A peer that takes nothing ends the session, also when the write begins while the keeper rests.
func TestClockOfWrites(t *testing.T) {
	for _, heartbeat := range []uint32{0, 100_000} {
		bubble(t, func(t *testing.T) {
			s, clock := onManual(t, config{caps: bitLabels | bitLifecycle, heartbeatMs: heartbeat})
			clock.advance(20 * time.Second)
			call := s.start(t.Context(), Request{Type: toyEcho, Timeout: time.Hour})
			synctest.Wait()
			clock.advance(25*time.Second - 1)
			pendingResult(t, call)
			clock.advance(1)
			(<-call).wantKind(t, Lost, true)
			s.wantEnd(t, Lost)
			s.close(t)
		})
	}
}

// Options.Clock: Close while a callback does not return.
func TestClockOfClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		s, clock := onManual(t, config{options: Options{OnPush: func(uint16, []byte) error { <-release; return nil }}})
		s.remote.send(text(toyPush, "x"))
		synctest.Wait()
		results := make(chan error, 1)
		go func() { results <- s.Close() }()
		synctest.Wait()
		clock.advance(5*time.Second - 1)
		pendingResult(t, results)
		clock.advance(1)
		if err := <-results; !IsKind(err, Timeout) {
			t.Fatal(err)
		}
		close(release)
	})
}

// Deadlines that callers give stay on the clock of the machine.
func TestDeadlinesOfCallersAreThoseOfTheMachine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, _ := onManual(t, config{caps: bitLabels})
		s.remote.drain()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got := <-s.start(ctx, echo("a")); !errors.Is(got.err, context.DeadlineExceeded) {
			t.Fatal(got.err)
		}
		s.close(t)
	})
}
