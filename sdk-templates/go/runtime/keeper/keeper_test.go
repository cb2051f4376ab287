package keeper

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var key = Key{"route", "owner"}

// script is a session whose answers a test gives.
type script struct {
	done    chan struct{}
	kept    func() (time.Duration, bool)
	acquire func(ctx context.Context, wait time.Duration, late func(Grant, bool)) (Grant, bool, error)
	renew   func(ctx context.Context, token uint64, ttl time.Duration) (uint64, error)
	release func(ctx context.Context, token uint64) error
	log     chan string // what was sent
}

func (s *script) Done() <-chan struct{} { return s.done }

func (s *script) KeptFor() (time.Duration, bool) { return s.kept() }

func (s *script) Acquire(ctx context.Context, _ Terms, wait time.Duration, late func(Grant, bool)) (Grant, bool, error) {
	s.log <- "acquire"
	return s.acquire(ctx, wait, late)
}

func (s *script) Renew(ctx context.Context, _ Key, token uint64, ttl time.Duration) (uint64, error) {
	s.log <- "renew"
	return s.renew(ctx, token, ttl)
}

func (s *script) Release(ctx context.Context, _ Key, token uint64) error {
	s.log <- "release"
	return s.release(ctx, token)
}

func newScript() *script {
	return &script{
		done: make(chan struct{}),
		kept: func() (time.Duration, bool) { return 0, false },
		acquire: func(context.Context, time.Duration, func(Grant, bool)) (Grant, bool, error) {
			return Grant{Token: 1}, false, nil
		},
		renew:   func(_ context.Context, token uint64, _ time.Duration) (uint64, error) { return token, nil },
		release: func(context.Context, uint64) error { return nil },
		log:     make(chan string, 100),
	}
}

// sent returns what was sent since the last time.
func (s *script) sent() []string {
	var out []string
	for len(s.log) > 0 {
		out = append(out, <-s.log)
	}
	return out
}

func (s *script) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := s.sent(); !slices.Equal(got, want) {
		t.Fatalf("sent %v, want %v", got, want)
	}
}

// bubble runs a test with a keeper on a clock that the test moves.
func bubble(t *testing.T, f func(t *testing.T, k *Keeper, s *script, clock *port.Manual)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, clock := newScript(), &port.Manual{}
		k := New(testOptions(clock, func() float64 { return 0.5 }, func(context.Context) (Session, error) { return s, nil }))
		f(t, k, s, clock)
		k.Close()
	})
}

func take(t *testing.T, k *Keeper, terms Terms) *Lease {
	t.Helper()
	l, err := k.Acquire(t.Context(), terms)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func over(l *Lease) bool {
	select {
	case <-l.done: // without looking at the clock
		return true
	default:
		return false
	}
}

// L-95, L-96: the margin, the moment of the renewal, and the deadline that counts from the send time.
func TestDeadline(t *testing.T) {
	for _, c := range []struct{ ttl, deadline, renewal time.Duration }{
		{time.Second, 750 * time.Millisecond, time.Second / 3},
		{10 * time.Second, 9 * time.Second, 10 * time.Second / 3},
		{30 * time.Second, 27 * time.Second, 10 * time.Second},
		{time.Hour, time.Hour - 5*time.Second, 20 * time.Minute},
	} {
		bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
			s.acquire = func(context.Context, time.Duration, func(Grant, bool)) (Grant, bool, error) {
				clock.Advance(100 * time.Millisecond) // the reply takes its time
				return Grant{Token: 1}, false, nil
			}
			s.renew = func(ctx context.Context, _ uint64, _ time.Duration) (uint64, error) { // a black hole
				<-ctx.Done()
				return 0, ctx.Err()
			}
			l := take(t, k, Terms{Key: key, TTL: c.ttl})
			s.want(t, "acquire")
			if l.Deadline() != c.deadline {
				t.Errorf("ttl %v: deadline %v, want %v", c.ttl, l.Deadline(), c.deadline)
			}
			clock.Advance(c.renewal - 100*time.Millisecond - 1)
			s.want(t)
			clock.Advance(1)
			s.want(t, "renew")
			clock.Advance(c.deadline - c.renewal - 1)
			synctest.Wait()
			if over(l) {
				t.Errorf("ttl %v: lost before the deadline", c.ttl)
			}
			clock.Advance(1)
			if !over(l) || l.Err() != (lostError{Expired}) {
				t.Errorf("ttl %v: %v at the deadline", c.ttl, l.Err())
			}
		})
	}
}

// L-104: a timer that comes late never makes a handle look held.
func TestEveryMemberLooksAtTheClock(t *testing.T) {
	members := map[string]func(*Lease){
		"Err": func(l *Lease) { _ = l.Err() }, "Done": func(l *Lease) { _ = l.Done() }, "Token": func(l *Lease) { _ = l.Token() },
		"Deadline": func(l *Lease) { _ = l.Deadline() }, "Watch": func(l *Lease) { l.Watch(func(error) {}) },
		"Extend":  func(l *Lease) { _ = l.Extend(context.Background(), time.Second) },
		"Release": func(l *Lease) { _ = l.Release(context.Background()) },
	}
	for name, member := range members {
		bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
			l := take(t, k, Terms{Key: key, TTL: 10 * time.Second})
			clock.Jump(9 * time.Second) // stopped: no timer runs
			member(l)
			if !over(l) || l.err != (lostError{Expired}) {
				t.Errorf("%s: %v", name, l.err)
			}
			s.want(t, "acquire") // and nothing was sent (L-107)
		})
	}
}

// L-97, L-98: what the answer to a renewal means.
func TestRenewal(t *testing.T) {
	for _, c := range []struct {
		err  error
		want error
	}{{errFenced, lostError{Fenced}}, {errGone, lostError{Expired}}, {errOverload, nil}, {errLate, nil}, {nil, nil}} {
		bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
			first := c.err
			s.renew = func(context.Context, uint64, time.Duration) (uint64, error) {
				err := first
				first = nil
				return 7, err // L-46, C-64: another token is adopted
			}
			l := take(t, k, Terms{Key: key, TTL: 30 * time.Second})
			clock.Advance(10 * time.Second)
			synctest.Wait()
			if l.Err() != c.want {
				t.Fatalf("%v: %v, want %v", c.err, l.Err(), c.want)
			}
			if c.want != nil {
				return
			}
			clock.Advance(75 * time.Millisecond) // the first delay of a retry, with its jitter
			synctest.Wait()
			if l.Token() != 7 || l.Deadline() < 37*time.Second {
				t.Errorf("%v: token %d, deadline %v after a retry", c.err, l.Token(), l.Deadline())
			}
		})
	}
}

// L-95, L-100: a grant whose moment is unknown is confirmed first, and given back when that fails.
func TestUnsureGrantIsConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		s.acquire = func(context.Context, time.Duration, func(Grant, bool)) (Grant, bool, error) {
			clock.Advance(20 * time.Second) // in line
			return Grant{Token: 1, Unsure: true}, false, nil
		}
		l := take(t, k, Terms{Key: key, TTL: 10 * time.Second, Wait: 30 * time.Second})
		s.want(t, "acquire", "renew")
		if l.Deadline() != 29*time.Second {
			t.Errorf("deadline %v", l.Deadline())
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.want(t, "release")
		s.renew = func(context.Context, uint64, time.Duration) (uint64, error) { return 0, errLate }
		if _, err := k.Acquire(t.Context(), Terms{Key: key, TTL: 10 * time.Second, Wait: 30 * time.Second}); err != errLate {
			t.Error(err)
		}
		s.want(t, "acquire", "renew", "release")
	})
}

// L-73, L-99: a late grant is released, and until that is done nobody else in the client asks for the key.
func TestLateGrantIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, _ *port.Manual) {
		var late func(Grant, bool)
		s.acquire = func(ctx context.Context, _ time.Duration, f func(Grant, bool)) (Grant, bool, error) {
			late = f
			<-ctx.Done()
			return Grant{}, true, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := k.Acquire(ctx, Terms{Key: key, TTL: time.Hour, Wait: 30 * time.Second})
			failed <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-failed; err != context.Canceled {
			t.Fatal(err)
		}
		s.want(t, "acquire")
		if _, err := k.Acquire(t.Context(), Terms{Key: key, TTL: time.Second}); err != errHeld {
			t.Errorf("a second acquire before the late reply: %v", err)
		}
		hold := make(chan struct{})
		s.release = func(_ context.Context, token uint64) error {
			if token != 9 {
				t.Errorf("token %d", token)
			}
			<-hold
			return nil
		}
		late(Grant{Token: 9}, true)
		s.want(t, "release")
		if _, err := k.Acquire(t.Context(), Terms{Key: key, TTL: time.Second}); err != errHeld {
			t.Errorf("a second acquire before the release: %v", err)
		}
		close(hold)
		synctest.Wait()
		if places, _ := k.Len(); places != 0 {
			t.Errorf("%d places are left", places)
		}
	})
}

// A cancellation in the same tick as the grant gives the grant back.
func TestCancelledAtTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, _ *port.Manual) {
		ctx, cancel := context.WithCancel(t.Context())
		s.acquire = func(context.Context, time.Duration, func(Grant, bool)) (Grant, bool, error) {
			cancel()
			return Grant{Token: 1}, false, nil
		}
		if l, err := k.Acquire(ctx, Terms{Key: key, TTL: time.Hour}); l != nil || err != context.Canceled {
			t.Fatalf("%v, %v", l, err)
		}
		s.want(t, "acquire", "release")
		if _, err := k.Acquire(ctx, Terms{Key: key, TTL: time.Hour}); err != context.Canceled {
			t.Error(err)
		}
		s.want(t) // cancelled before it was sent: no frame
	})
}

// L-99: the local line is first in first out, bounded, and ends with the wait.
func TestLocalLine(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		l := take(t, k, Terms{Key: key, TTL: time.Hour})
		s.want(t, "acquire")
		if _, err := k.Acquire(t.Context(), Terms{Key: key, TTL: time.Hour}); err != errHeld {
			t.Errorf("without waiting: %v", err)
		}
		order, failed := make(chan int, 20), make(chan error, 20)
		for i := range k.options.LineMax {
			wait := time.Hour
			if i == 0 {
				wait = time.Second
			}
			go func() {
				next, err := k.Acquire(t.Context(), Terms{Key: key, TTL: time.Hour, Wait: wait})
				if err != nil {
					failed <- err
					return
				}
				order <- i
				failed <- next.Release(t.Context())
			}()
			synctest.Wait()
		}
		if _, err := k.Acquire(t.Context(), Terms{Key: key, TTL: time.Hour, Wait: time.Hour}); err != errOverload {
			t.Errorf("one more than LineMax: %v", err)
		}
		s.want(t) // no frame
		clock.Advance(time.Second)
		if err := <-failed; err != errTimeout {
			t.Errorf("after the wait: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		for want := 1; want < k.options.LineMax; want++ {
			if got := <-order; got != want {
				t.Errorf("%d came before %d", got, want)
			}
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	})
}

// L-101: a long wait is served by asking again; a session that ended before the request was sent is followed by the next.
func TestAsksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		var waits []time.Duration
		s.acquire = func(_ context.Context, wait time.Duration, _ func(Grant, bool)) (Grant, bool, error) {
			waits = append(waits, wait)
			if len(waits) == 1 {
				return Grant{}, false, errUnsent
			}
			clock.Advance(wait)
			return Grant{}, false, errTimeout
		}
		_, err := k.Acquire(t.Context(), Terms{Key: key, TTL: time.Second, Wait: 70 * time.Second})
		want := []time.Duration{30 * time.Second, 30 * time.Second, 30 * time.Second, 10 * time.Second}
		if err != errTimeout || !slices.Equal(waits, want) {
			t.Errorf("%v, %v", err, waits)
		}
	})
}

// L-97: an Extend with an unknown outcome keeps what is surely left.
func TestExtend(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		l := take(t, k, Terms{Key: key, TTL: 100 * time.Second, Manual: true})
		s.renew = func(context.Context, uint64, time.Duration) (uint64, error) { return 0, errLate }
		if err := l.Extend(t.Context(), time.Hour); err != errLate || l.Deadline() != 95*time.Second {
			t.Errorf("longer: %v, deadline %v", err, l.Deadline())
		}
		if err := l.Extend(t.Context(), 10*time.Second); err != errLate || l.Deadline() != 9*time.Second {
			t.Errorf("shorter: %v, deadline %v", err, l.Deadline())
		}
		s.renew = func(_ context.Context, token uint64, _ time.Duration) (uint64, error) {
			clock.Advance(9 * time.Second) // the answer comes after the deadline
			return token, nil
		}
		if err := l.Extend(t.Context(), time.Hour); err != (lostError{Expired}) {
			t.Errorf("answered after the deadline: %v", err)
		}
	})
}

// L-105, L-106: what Run returns, and that RELEASE comes after the body.
func TestRun(t *testing.T) {
	errBody := errors.New("body")
	for name, c := range map[string]struct {
		body func(ctx context.Context, lose, cancel func()) error
		want error
	}{
		"result":                 {func(context.Context, func(), func()) error { return nil }, nil},
		"error":                  {func(context.Context, func(), func()) error { return errBody }, errBody},
		"lost, cancelled":        {func(ctx context.Context, lose, _ func()) error { lose(); <-ctx.Done(); return ctx.Err() }, lostError{Fenced}},
		"lost, result":           {func(_ context.Context, lose, _ func()) error { lose(); return nil }, lostError{Fenced}},
		"lost, error":            {func(_ context.Context, lose, _ func()) error { lose(); return errBody }, errBody},
		"cancelled by caller":    {func(ctx context.Context, _, cancel func()) error { cancel(); return ctx.Err() }, context.Canceled},
		"cancelled, then lost":   {func(ctx context.Context, lose, cancel func()) error { cancel(); lose(); return ctx.Err() }, context.Canceled},
		"cause of the loss":      {func(ctx context.Context, lose, _ func()) error { lose(); return context.Cause(ctx) }, lostError{Fenced}},
		"an own cancelled error": {func(context.Context, func(), func()) error { return context.Canceled }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, k *Keeper, s *script, _ *port.Manual) {
				l := take(t, k, Terms{Key: key, TTL: time.Hour})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				err := l.Run(ctx, func(ctx context.Context) error {
					defer func() { s.log <- "body" }()
					return c.body(ctx, func() { l.lose(Fenced, nil) }, cancel)
				})
				if err != c.want {
					t.Errorf("%v, want %v", err, c.want)
				}
				synctest.Wait()
				got := s.sent()
				want := []string{"acquire", "body", "release"}
				if errors.As(l.Err(), new(lostError)) {
					want = want[:2] // L-107
				}
				if !slices.Equal(got, want) {
					t.Errorf("sent %v, want %v", got, want)
				}
			})
		})
	}
}

// A panic of the body does not keep the lease.
func TestRunPanics(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, _ *port.Manual) {
		l := take(t, k, Terms{Key: key, TTL: time.Hour})
		func() {
			defer func() { _ = recover() }()
			_ = l.Run(t.Context(), func(context.Context) error { panic("body") })
		}()
		s.want(t, "acquire", "release")
	})
}

// L-96: an answer that takes longer than the interval of renewals makes the next one due at once, also when its timer fires before the
// RENEW that was answered has ended.
func TestRenewalDueDuringARenewal(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		answer, end := make(chan struct{}), make(chan struct{})
		s.renew = func(_ context.Context, token uint64, _ time.Duration) (uint64, error) {
			<-answer
			return token, nil
		}
		k.options.Hooks.Event = func(port.Event) { <-end } // told behind the answer, while the turn is taken
		l := take(t, k, Terms{Key: key, TTL: 30 * time.Second})
		clock.Advance(10 * time.Second)
		s.want(t, "acquire", "renew")
		clock.Advance(12 * time.Second)
		answer <- struct{}{}
		synctest.Wait()
		clock.Advance(0)
		s.want(t)
		end <- struct{}{}
		synctest.Wait()
		clock.Advance(0)
		s.want(t, "renew")
		answer <- struct{}{}
		end <- struct{}{}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		s.want(t, "release")
	})
}

// C-64: a RELEASE waits for the RENEW on its way and carries the token that it brings; it is bounded all the same.
func TestReleaseAfterRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		answer := make(chan uint64)
		s.renew = func(ctx context.Context, _ uint64, _ time.Duration) (uint64, error) {
			select {
			case token := <-answer:
				return token, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		l := take(t, k, Terms{Key: key, TTL: 30 * time.Second})
		clock.Advance(10 * time.Second)
		s.want(t, "acquire", "renew")
		released := make(chan error, 1)
		go func() { released <- l.Release(t.Context()) }()
		synctest.Wait()
		if !over(l) {
			t.Error("a release is local and at once")
		}
		s.want(t)
		s.release = func(_ context.Context, token uint64) error {
			if token != 7 {
				t.Errorf("token %d", token)
			}
			return nil
		}
		answer <- 7
		if err := <-released; err != nil {
			t.Error(err)
		}
		s.want(t, "release")

		s.release = func(ctx context.Context, _ uint64) error { <-ctx.Done(); return ctx.Err() }
		l = take(t, k, Terms{Key: key, TTL: 30 * time.Second})
		s.want(t, "acquire")
		go func() { released <- l.Release(t.Context()) }()
		s.want(t, "release")
		clock.Advance(5 * time.Second)
		if err := <-released; err != errLate {
			t.Errorf("a release that is not answered: %v", err)
		}
	})
}

// L-97, L-73: a lease that is lost while the outcome of a RENEW is unknown is released once, because the broker may have given it a whole ttl.
// Until that is done its place is taken (L-99).
func TestLostWhileARenewalIsUnknown(t *testing.T) {
	blackHole := func(ctx context.Context, _ uint64, _ time.Duration) (uint64, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		s.renew = blackHole
		answer := make(chan error)
		s.release = func(_ context.Context, token uint64) error {
			if token != 1 {
				t.Errorf("token %d", token)
			}
			return <-answer
		}
		l := take(t, k, Terms{Key: key, TTL: 30 * time.Second})
		clock.Advance(10 * time.Second)
		s.want(t, "acquire", "renew")
		clock.Advance(17 * time.Second)
		if !over(l) {
			t.Fatal("the signal waits for something")
		}
		s.want(t, "release")
		if _, err := k.Acquire(t.Context(), Terms{Key: key, TTL: time.Second}); err != errHeld {
			t.Errorf("acquired before the release was answered: %v", err)
		}
		answer <- errGone
		synctest.Wait()
		take(t, k, Terms{Key: key, TTL: time.Second})
		s.want(t, "acquire")
		close(answer)
	})
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) { // the reply comes, but late and with another token
		answer := make(chan uint64)
		s.renew = func(context.Context, uint64, time.Duration) (uint64, error) { return <-answer, nil }
		s.release = func(_ context.Context, token uint64) error {
			if token != 7 {
				t.Errorf("token %d", token)
			}
			return nil
		}
		l := take(t, k, Terms{Key: key, TTL: 30 * time.Second})
		clock.Advance(10 * time.Second)
		s.want(t, "acquire", "renew")
		clock.Jump(17 * time.Second)
		answer <- 7
		s.want(t, "release")
		if !over(l) || l.Err() != (lostError{Expired}) {
			t.Error(l.Err())
		}
	})
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) { // given up long before the deadline
		s.renew = blackHole
		l := take(t, k, Terms{Key: key, TTL: 30 * time.Second, Manual: true})
		ctx, cancel := context.WithCancel(t.Context())
		cancelled := make(chan error, 1)
		go func() { cancelled <- l.Extend(ctx, time.Hour) }()
		synctest.Wait()
		cancel()
		if err := <-cancelled; err != context.Canceled {
			t.Error(err)
		}
		s.want(t, "acquire", "renew")
		clock.Advance(27 * time.Second)
		s.want(t, "release")
	})
}

// A lease that the broker cannot have prolonged needs no RELEASE when it is lost.
func TestLostForSureSendsNothing(t *testing.T) {
	for _, refusal := range []error{errGone, errFenced, errUnsent} {
		bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
			s.renew = func(context.Context, uint64, time.Duration) (uint64, error) { return 0, refusal }
			l := take(t, k, Terms{Key: key, TTL: 30 * time.Second})
			clock.Advance(10 * time.Second)
			synctest.Wait()
			clock.Advance(17 * time.Second)
			synctest.Wait()
			if !over(l) || slices.Contains(s.sent(), "release") {
				t.Errorf("%v: over %v", refusal, over(l))
			}
		})
	}
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) { // nor one whose session has ended
		s.renew = func(ctx context.Context, _ uint64, _ time.Duration) (uint64, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
		l := take(t, k, Terms{Key: key, TTL: 30 * time.Second})
		clock.Advance(10 * time.Second)
		s.want(t, "acquire", "renew")
		close(s.done)
		if l.Err() != (lostError{Disconnected}) {
			t.Error(l.Err())
		}
		s.want(t)
	})
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) { // nor one that was renewed in time before
		l := take(t, k, Terms{Key: key, TTL: 30 * time.Second, Manual: true})
		if err := l.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Minute)
		s.want(t, "acquire", "renew")
	})
}

// L-96, L-104: what is left of the ttl does not count when the peer may have ended the session because it has heard nothing of it. The handle is lost
// by then, whatever comes first, a timer or a look. The peer may as well hear everything: it is told.
func TestLostWhenThePeerMayHaveEndedTheSession(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		until := 25 * time.Second
		s.kept = func() (time.Duration, bool) { return until - clock.Now(), true }
		l := take(t, k, Terms{Key: key, TTL: time.Hour})
		until = 35 * time.Second // it has heard of it meanwhile
		clock.Advance(35*time.Second - 1)
		if over(l) || l.Err() != nil {
			t.Fatal("lost too early")
		}
		s.want(t, "acquire")
		clock.Advance(1)
		if !over(l) || l.Err() != (lostError{Disconnected}) {
			t.Fatal(l.Err())
		}
		s.want(t, "release")

		until = time.Hour
		l = take(t, k, Terms{Key: key, TTL: 2 * time.Hour, Manual: true})
		clock.Jump(time.Hour) // a process that was stopped
		if over(l) || l.Err() != (lostError{Disconnected}) || !over(l) {
			t.Error(l.Err())
		}
		s.want(t, "acquire", "release")
	})
}

// The end of a session loses what was taken in it, and nothing else; Close loses the rest and releases it.
func TestSessionEndedAndClose(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, _ *port.Manual) {
		a := take(t, k, Terms{Key: key, TTL: time.Hour})
		k.SessionEnded(newScript(), Disconnected, nil)
		if over(a) {
			t.Fatal("lost with the session of somebody else")
		}
		k.SessionEnded(s, Restarted, nil)
		if a.Err() != (lostError{Restarted}) {
			t.Error(a.Err())
		}
		b := take(t, k, Terms{Key: key, TTL: time.Hour})
		s.want(t, "acquire", "acquire")
		k.Close()
		if b.Err() != (lostError{ClientClosed}) {
			t.Error(b.Err())
		}
		s.want(t, "release")
		if _, err := k.Acquire(t.Context(), Terms{Key: key, TTL: time.Hour}); err != errClosed {
			t.Error(err)
		}
		if places, held := k.Len(); places != 0 || held != 0 {
			t.Errorf("%d places, %d held", places, held)
		}
	})
}

// A network that swallows everything does not keep Close.
func TestCloseIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, k *Keeper, s *script, clock *port.Manual) {
		s.release = func(ctx context.Context, _ uint64) error { <-ctx.Done(); return ctx.Err() }
		take(t, k, Terms{Key: key, TTL: time.Hour})
		closed := make(chan struct{})
		go func() {
			k.Close()
			close(closed)
		}()
		synctest.Wait()
		clock.Advance(k.options.CloseWait)
		<-closed
	})
}
