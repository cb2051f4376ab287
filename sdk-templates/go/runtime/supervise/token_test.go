package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// source is a token source that gives what stands on a list, the last one again and again. An entry that begins with "!" is an error.
type source struct {
	mu    sync.Mutex
	next  []string
	asked []time.Duration // since the start of the test
	birth time.Time
}

func newSource(next ...string) *source { return &source{next: next, birth: time.Now()} }

func (s *source) token(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Since(s.birth))
	token := s.next[0]
	if len(s.next) > 1 {
		s.next = s.next[1:]
	}
	if rest, bad := strings.CutPrefix(token, "!"); bad {
		return "", errors.New(rest)
	}
	return token, nil
}

func (s *source) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func (p *toyPeer) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tokens)
}

// only accepts tokens of a list.
func only(good ...string) func(string) bool {
	return func(token string) bool { return slices.Contains(good, token) }
}

// tokenBubble runs a test with options whose tokens come from a source.
func tokenBubble(t *testing.T, judge func(string) bool, tokens []string, f func(t *testing.T, p *toyPeer, s *source, o Options)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &toyPeer{t: t, lifetime: "a", judge: judge}
		s := newSource(tokens...)
		o := p.options()
		o.Token = s.token
		f(t, p, s, o)
		p.tasks.Wait()
	})
}

// after a refusal the source is asked once more, at once; another token is tried after a delay, the same one never.
func TestTokenAtConnect(t *testing.T) {
	for name, test := range map[string]struct {
		tokens []string
		sent   []string
		kind   link.Kind // 0: connected
		asked  int
		after  time.Duration
	}{
		"good":                   {[]string{"good"}, []string{"good"}, 0, 1, 0},
		"the same again":         {[]string{"bad"}, []string{"bad"}, link.Rejected, 2, 0},
		"another one":            {[]string{"bad", "good"}, []string{"bad", "good"}, 0, 2, 75 * time.Millisecond},
		"another bad one":        {[]string{"bad", "worse", "good"}, []string{"bad", "worse"}, link.Rejected, 2, 75 * time.Millisecond},
		"no token":               {[]string{"!out of order", "good"}, nil, link.Refused, 1, 0},
		"no token after refusal": {[]string{"bad", "!out of order"}, []string{"bad"}, link.Refused, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			tokenBubble(t, only("good"), test.tokens, func(t *testing.T, p *toyPeer, s *source, o Options) {
				began := time.Now()
				c, err := Connect(t.Context(), o)
				if err == nil {
					defer func() { _ = c.Close() }()
				}
				if test.kind == link.Rejected && !strings.Contains(err.Error(), "the peer closed the connection") {
					t.Errorf("what the peer did is not told: %v", err)
				}
				if (err == nil) != (test.kind == 0) || err != nil && !link.IsKind(err, test.kind) {
					t.Errorf("%v", err)
				}
				if !slices.Equal(p.seen(), test.sent) || s.count() != test.asked || time.Since(began) != test.after {
					t.Errorf("sent %q, asked %d times, after %v", p.seen(), s.count(), time.Since(began))
				}
			})
		})
	}
}

// A-05 at a reconnect: the client goes on with another token, survives a source that fails for a while, and ends for good when there is no
// token but the one that was refused. What waits for a session then fails.
func TestTokenAtReconnect(t *testing.T) {
	for name, test := range map[string]struct {
		tokens, sent []string
		end          bool
	}{
		"asked for each session":                 {[]string{"good", "fresh"}, []string{"good", "fresh"}, false},
		"expired, another one":                   {[]string{"good", "bad", "fresh"}, []string{"good", "bad", "fresh"}, false},
		"expired":                                {[]string{"good", "bad"}, []string{"good", "bad"}, true},
		"two expired ones":                       {[]string{"good", "bad", "worse", "fresh"}, []string{"good", "bad", "worse"}, true},
		"a source out of order":                  {[]string{"good", "!x", "!y", "!z", "fresh"}, []string{"good", "fresh"}, false},
		"out of order after a refusal":           {[]string{"good", "bad", "!x", "fresh"}, []string{"good", "bad", "fresh"}, false},
		"out of order, then the refused one":     {[]string{"good", "bad", "!x", "bad", "fresh"}, []string{"good", "bad"}, true},
		"out of order, then another refused one": {[]string{"good", "bad", "!x", "worse", "fresh"}, []string{"good", "bad", "worse"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			tokenBubble(t, only("good", "fresh"), test.tokens, func(t *testing.T, p *toyPeer, s *source, o Options) {
				c, err := Connect(t.Context(), o)
				if err != nil {
					t.Fatal(err)
				}
				p.cut()
				synctest.Wait()
				_, err = c.Call(t.Context(), link.Request{Type: toyEcho, Value: []byte("a")})
				if link.IsKind(err, link.Rejected) != test.end || !test.end && err != nil {
					t.Errorf("a call that waits: %v", err)
				}
				if !slices.Equal(p.seen(), test.sent) {
					t.Errorf("sent %q", p.seen())
				}
				state := Ready
				if test.end {
					state = Closed
					<-c.Done()
					if !link.IsKind(c.Err(), link.Rejected) || !link.IsKind(c.Status().Reason, link.Rejected) {
						t.Errorf("%v, %+v", c.Err(), c.Status())
					}
				}
				if st := c.Status(); st.State != state {
					t.Errorf("%+v", st)
				}
				asked := s.count()
				time.Sleep(time.Minute)
				if s.count() != asked {
					t.Error("the source was asked later on")
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A token that was refused once is not sent again in later sessions either: the source is asked for another one.
func TestRefusedTokenComesBack(t *testing.T) {
	tokens := []string{"good", "bad", "fresh", "bad", "good"}
	tokenBubble(t, only("good", "fresh"), tokens, func(t *testing.T, p *toyPeer, _ *source, o Options) {
		c, err := Connect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			p.cut()
			time.Sleep(time.Second)
		}
		if got := p.seen(); !slices.Equal(got, []string{"good", "bad", "fresh", "good"}) || c.Status().State != Ready {
			t.Errorf("sent %q, %+v", got, c.Status())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A network that fails while the second token is tried does not let the first one through.
func TestRefusalOutlivesTheNetwork(t *testing.T) {
	tokenBubble(t, only("good", "fresh"), []string{"good", "bad", "fresh", "bad"}, func(t *testing.T, p *toyPeer, _ *source, o Options) {
		dials := 0
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials++; dials == 3 {
				return nil, errToy
			}
			return p.dial(ctx, network, address)
		}
		c, err := Connect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		p.cut()
		<-c.Done()
		if got := p.seen(); !slices.Equal(got, []string{"good", "bad"}) || !link.IsKind(c.Err(), link.Rejected) {
			t.Errorf("sent %q, %v", got, c.Err())
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A source that fails is told of as an attempt that failed, with the delays of reconnecting, and its error does not show a token that it had
// given or made.
func TestTokenSourceFails(t *testing.T) {
	const other = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ3In0.c2lnbmF0dXJl"
	tokens := []string{"good-token", "!good-token is old", "!got " + other, "!x", "!x", "good-token"}
	tokenBubble(t, nil, tokens, func(t *testing.T, p *toyPeer, s *source, o Options) {
		var told []string
		o.Names.Failed = "failed"
		o.Hooks = port.Hooks{Event: func(e port.Event) {
			if e.Name == "failed" {
				told = append(told, fmt.Sprint(e.Count, " ", e.Err))
			}
		}}
		c, err := Connect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		p.cut()
		time.Sleep(200 * time.Millisecond) // the first delay is 75 ms, the second 150 ms
		st := c.Status()
		if st.State != Reconnecting || !link.IsKind(st.Reason, link.Refused) || !strings.Contains(st.Reason.Error(), "token source: ... is old") {
			t.Errorf("%+v", st)
		}
		if _, err := c.Call(t.Context(), link.Request{Type: toyEcho}); err != nil {
			t.Error(err)
		}
		want(t, "events", told, "1 connection refused: token source: ... is old", "2 connection refused: token source: got ...",
			"3 connection refused: token source: x", "4 connection refused: token source: x")
		if got := s.asked[2] - s.asked[1]; got != 150*time.Millisecond {
			t.Errorf("the second delay is %v", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The source gets a context that ends with the connect timeout. One that does not look at it delays nobody, is not asked a second time before
// it has returned, and does not keep Close.
func TestTokenSourceIsSlow(t *testing.T) {
	for _, obeys := range []bool{true, false} {
		tokenBubble(t, nil, []string{"unused"}, func(t *testing.T, p *toyPeer, _ *source, o Options) {
			var mu sync.Mutex
			running, most, calls := 0, 0, 0
			note := func(by int) {
				mu.Lock()
				defer mu.Unlock()
				running += by
				most = max(most, running)
				if by > 0 {
					calls++
				}
			}
			slow := false
			released := make(chan struct{})
			o.Token = func(ctx context.Context) (string, error) {
				note(1)
				defer note(-1)
				if !slow {
					return "one", nil
				}
				if obeys {
					<-ctx.Done()
					return "", ctx.Err()
				}
				<-released
				return "late", nil
			}
			c, err := Connect(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			slow = true
			p.cut()
			time.Sleep(10*time.Second + 80*time.Millisecond) // the delay before, and the timeout
			if reason := c.Status().Reason; !link.IsKind(reason, link.Refused) || !strings.Contains(reason.Error(), errSlow.Error()) {
				t.Errorf("obeys %v: %v", obeys, reason)
			}
			time.Sleep(time.Minute)
			if err := c.Close(); err != nil {
				t.Errorf("obeys %v: %v", obeys, err)
			}
			mu.Lock()
			if most != 1 || (calls > 2) != obeys {
				t.Errorf("obeys %v: %d at a time, %d calls", obeys, most, calls)
			}
			mu.Unlock()
			close(released)
			if obeys {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			o.Token = func(ctx context.Context) (string, error) { <-ctx.Done(); return "", errors.New("given up") }
			if _, err := Connect(ctx, o); err != context.DeadlineExceeded {
				t.Errorf("the end of the caller's own context: %v", err)
			}
		})
	}
}

// What a refusal ends: registrations and calls end with the session that was lost, what comes later fails with the refusal, and nothing hangs.
func TestRefusalEndsEverything(t *testing.T) {
	tokenBubble(t, only("good"), []string{"good", "bad"}, func(t *testing.T, p *toyPeer, _ *source, o Options) {
		c, err := Connect(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		var watching sync.WaitGroup
		watching.Go(func() {
			for s := range c.StatusChanges(context.Background()) {
				states = append(states, fmt.Sprint(s.State, " ", link.IsKind(s.Reason, link.Rejected)))
			}
		})
		var r recorder
		if _, err := c.Subscribe(t.Context(), topicOf("x"), r.sink()); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		p.set(func() { p.hold = hold })
		running := make(chan error, 1)
		go func() {
			_, err := c.Call(context.Background(), link.Request{Type: toyEcho})
			running <- err
		}()
		synctest.Wait()
		p.cut()
		close(hold)
		if err := <-running; !link.IsKind(err, link.Lost) {
			t.Errorf("a call that was sent: %v", err)
		}
		<-c.Done()
		want(t, "the registration", r.got, fmt.Sprint("end ", EndDisconnected, " 0"))
		for _, later := range []func() error{
			func() error { _, err := c.Call(t.Context(), link.Request{Type: toyEcho}); return err },
			func() error { _, err := c.Subscribe(t.Context(), topicOf("y"), Sink{}); return err },
			func() error { _, err := c.Session(t.Context()); return err },
		} {
			if err := later(); !link.IsKind(err, link.Rejected) {
				t.Errorf("later: %v", err)
			}
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		watching.Wait()
		want(t, "states", states, "1 false", "2 false", "4 true")
		if err := c.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
