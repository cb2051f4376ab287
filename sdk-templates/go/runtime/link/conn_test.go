package link

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestDialSendsConnectFirstAndAnswersTheHello(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels | bitLifecycle, options: Options{Token: "secret"}})
		hello, ok := s.Hello()
		if !ok || hello.Capabilities != bitLabels|bitLifecycle {
			t.Fatalf("hello %+v, %v", hello, ok)
		}
		s.close(t)
	})
}

// C-60: silence for the settle time is an open session without capabilities; a late hello counts for the late bits only and is not
// answered.
func TestDialSettlesWithoutHello(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began := time.Now()
		s := open(t, config{noHello: true})
		if took := time.Since(began); took != time.Second {
			t.Fatalf("settled after %v", took)
		}
		if _, ok := s.Hello(); ok {
			t.Fatal("a hello out of nothing")
		}
		first := s.start(t.Context(), echo("a"))
		s.remote.expect(text(toyEcho, "a"))
		s.remote.send(text(toyEcho, "A"))
		(<-first).want(t, "A")

		s.remote.send(rec(toyHello, toyHelloValue(bitLabels|bitLifecycle, 0, 10)))
		synctest.Wait()
		second := s.start(t.Context(), echo("b"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "b")))
		s.remote.send(labelled(toyLabelled, 1, text(toyEcho, "B")))
		(<-second).want(t, "B")
		s.close(t)
	})
}

// an orderly end before the session is open is a refusal, any other end is not.
func TestDialRejected(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*remote)
		kind Kind
	}{
		"orderly close": {func(r *remote) { _ = r.conn.Close() }, Rejected},
		"cut off": {func(r *remote) {
			_, _ = r.conn.Write([]byte{0, 0})
			_ = r.conn.Close()
		}, Refused},
		"nonsense": {func(r *remote) { _, _ = r.conn.Write([]byte{0, 0, 0, 0}) }, Violation},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				near, far := net.Pipe()
				r := newRemote(t, far)
				result := make(chan error, 1)
				go func() {
					_, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: pipe(near)})
					result <- err
				}()
				r.expect(text(toyConnect, ""))
				test.end(r)
				if err := <-result; !IsKind(err, test.kind) {
					t.Fatalf("got %v, want kind %v", err, test.kind)
				}
				_ = far.Close()
			})
		})
	}
}

func pipe(conn net.Conn) DialFunc {
	return func(context.Context, string, string) (net.Conn, error) { return conn, nil }
}

func hang(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestDialConnectTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		began := time.Now()
		_, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: hang})
		if !IsKind(err, Refused) || time.Since(began) != 10*time.Second {
			t.Fatalf("got %v after %v", err, time.Since(began))
		}
	})
}

func TestDialReturnsTheErrorOfTheContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if _, err := Dial(ctx, "toy://host", toyProtocol(), Options{Dial: hang}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		near, far := net.Pipe()
		newRemote(t, far).drain()
		ctx, cancel = context.WithTimeout(t.Context(), time.Second/2) // shorter than the settle time
		defer cancel()
		if _, err := Dial(ctx, "toy://host", toyProtocol(), Options{Dial: pipe(near)}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		_ = far.Close()
	})
}

func TestDialRefusesABadTokenBeforeItConnects(t *testing.T) {
	never := func(context.Context, string, string) (net.Conn, error) { panic("connected") }
	_, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Token: string(make([]byte, 101)), Dial: never})
	if !IsKind(err, Invalid) {
		t.Fatalf("got %v", err)
	}
}

func TestCloseIsIdempotentAndFailsWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels, options: Options{Limits: Limits{InFlight: 1}}})
		sentCall := s.start(t.Context(), echo("a"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		queuedCall := s.start(t.Context(), echo("b"))
		synctest.Wait()
		s.close(t)
		s.close(t)
		(<-sentCall).wantKind(t, Closed, true)
		(<-queuedCall).wantKind(t, Closed, false)
		(<-s.start(t.Context(), echo("c"))).wantKind(t, Closed, false)
		s.wantEnd(t, Closed)
	})
}

// Close is bounded also when a callback does not return.
func TestCloseIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		s := open(t, config{caps: bitLabels, options: Options{OnPush: func(uint16, []byte) error { <-release; return nil }}})
		s.remote.send(text(toyPush, "x"))
		began := time.Now()
		if err := s.Close(); !IsKind(err, Timeout) || time.Since(began) != 5*time.Second {
			t.Fatalf("got %v after %v", err, time.Since(began))
		}
		close(release)
		s.close(t)
	})
}

func TestLostConnectionFailsEveryCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels, options: Options{Limits: Limits{InFlight: 1}}})
		sentCall := s.start(t.Context(), echo("a"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		queuedCall := s.start(t.Context(), echo("b"))
		synctest.Wait()
		_ = s.remote.conn.Close()
		(<-sentCall).wantKind(t, Lost, true)
		(<-queuedCall).wantKind(t, Lost, false)
		s.wantEnd(t, Lost)
		s.close(t)
	})
}

// W-66: silence for a heartbeat in either direction is answered with one PING per heartbeat; 2.5 heartbeats without a byte end it.
func TestHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels | bitLifecycle, heartbeatMs: 1000})
		began := time.Now()
		s.remote.expect(rec(toyPing, u64(1)))
		if took := time.Since(began); took != time.Second {
			t.Fatalf("first ping after %v", took)
		}
		s.remote.send(rec(toyPong, u64(1)))
		s.remote.expect(rec(toyPing, u64(2)))
		s.remote.send(rec(toyPong, u64(77))) // an unknown nonce is ignored (W-65)
		heard := time.Now()
		s.remote.expect(rec(toyPing, u64(3)))
		s.remote.expect(rec(toyPing, u64(4)))
		s.wantEnd(t, Lost)
		if took := time.Since(heard); took != 2500*time.Millisecond {
			t.Fatalf("given up after %v", took)
		}
		s.close(t)
	})
}

// W-66: traffic in one direction is not enough.
func TestHeartbeatWhenOnlyThePeerTalks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels | bitLifecycle, heartbeatMs: 1000})
		stop := make(chan struct{})
		go func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					_, _ = s.remote.conn.Write([]byte{0, 0, 0, 4, byte(toyPush), 0, 1, 'x'})
				case <-stop:
					return
				}
			}
		}()
		began := time.Now()
		s.remote.expect(rec(toyPing, u64(1)))
		if took := time.Since(began); took != time.Second {
			t.Fatalf("ping after %v", took)
		}
		close(stop)
		s.close(t)
	})
}

// KeptFor counts from when something was sent that was answered: by a reply, or by the PONG of the PING. What the peer says by itself, an unknown
// nonce and what is only sent do not count. Nothing answered for a heartbeat is a reason for a PING, too (W-66).
func TestKeptFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels | bitLifecycle, heartbeatMs: 1000})
		left := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got, bounded := s.KeptFor(); got != want || !bounded {
				t.Fatalf("kept for %v, %v; want %v", got, bounded, want)
			}
		}
		left(2500 * time.Millisecond)
		s.remote.expect(rec(toyPing, u64(1))) // after 1 s
		s.remote.send(rec(toyPong, u64(77)))
		left(1500 * time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		s.remote.send(rec(toyPong, u64(1)))
		left(2400 * time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		call := s.start(t.Context(), echo("a"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		left(2300 * time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		s.remote.send(labelled(toyLabelled, 1, text(toyEcho, "a")))
		<-call
		left(2400 * time.Millisecond)
		began := time.Now()
		for range 8 { // the client answers, which nobody answers
			time.Sleep(100 * time.Millisecond)
			s.remote.send(rec(toyPing, u64(5)))
			s.remote.expect(rec(toyPong, u64(5)))
		}
		left(1600 * time.Millisecond)
		s.remote.expect(rec(toyPing, u64(2)))
		if took := time.Since(began); took != 900*time.Millisecond {
			t.Fatalf("ping after %v", took)
		}
		s.close(t)
		if _, bounded := s.KeptFor(); bounded {
			t.Error("a session that has ended")
		}
	})
	for _, cfg := range []config{{caps: bitLabels, heartbeatMs: 1000}, {caps: bitLabels | bitLifecycle}} {
		bubble(t, func(t *testing.T) {
			s := open(t, cfg)
			if _, bounded := s.KeptFor(); bounded {
				t.Errorf("%+v: the peer waits without end", cfg)
			}
			s.close(t)
		})
	}
}

// W-65: PINGs of the peer are answered in order with their nonce.
func TestPingIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels | bitLifecycle})
		s.remote.send(rec(toyPing, u64(5)), rec(toyPing, u64(6)))
		s.remote.expect(rec(toyPong, u64(5)))
		s.remote.expect(rec(toyPong, u64(6)))
		s.close(t)
	})
}

// A peer that asks and never reads is not read any more, so that answers to it take bounded memory.
func TestPeerThatNeverReadsIsNotReadAnyMore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels | bitLifecycle})
		var accepted atomic.Int64
		go func() {
			ping := rec(toyPing, u64(1))
			message := append([]byte{0, 0, 0, byte(len(ping))}, ping...)
			for {
				if _, err := s.remote.conn.Write(message); err != nil {
					return
				}
				accepted.Add(1)
			}
		}()
		synctest.Wait()
		s.mu.Lock()
		kept := len(s.out)
		s.mu.Unlock()
		if kept > outMax || accepted.Load() > 3*outMax {
			t.Fatalf("%d answers kept, %d pings taken", kept, accepted.Load())
		}
		s.close(t)
	})
}

// C-61: a session without heartbeat on TCP relies on TCP itself and is not given up.
func TestNoHeartbeatWithoutLifecycle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels})
		time.Sleep(time.Hour) // virtual
		if err := s.Err(); err != nil {
			t.Fatalf("ended with %v", err)
		}
		s.close(t)
	})
}

func TestAddresses(t *testing.T) {
	p := toyProtocol()
	for address, want := range map[string]target{
		"toy://h":           {host: "h", hostPort: "h:7"},
		"toy://h:1/":        {host: "h", hostPort: "h:1"},
		"tcp://[::1]:9":     {host: "::1", hostPort: "[::1]:9"},
		"ws://h":            {websocket: true, host: "h", hostPort: "h:8", url: "ws://h:8/toy"},
		"ws://h:9/a%20b/c":  {websocket: true, host: "h", hostPort: "h:9", url: "ws://h:9/a%20b/c"},
		"ws://[::1]:9/":     {websocket: true, host: "::1", hostPort: "[::1]:9", url: "ws://[::1]:9/"},
		"toys://h":          {secure: true, host: "h", hostPort: "h:7"},
		"tls://h:9":         {secure: true, host: "h", hostPort: "h:9"},
		"wss://h":           {websocket: true, secure: true, host: "h", hostPort: "h:8", url: "wss://h:8/toy"},
		"":                  {},
		"tcps://h":          {},
		"tls://h/path":      {},
		"h:1":               {},
		"toy://":            {},
		"toy://:1":          {},
		"toy://h:0":         {},
		"toy://h:65536":     {},
		"toy://h/path":      {},
		"toy://u:p@h":       {},
		"toy://h?x=1":       {},
		"toy://h#x":         {},
		"http://h":          {},
		"toy://h:x":         {},
		"toy:opaque":        {},
		"toy://h\x00":       {},
		"ws://u@h/toy":      {},
		"ws://h/toy?query=": {},
	} {
		got, err := parseTarget(address, p)
		if want == (target{}) {
			if !IsKind(err, Invalid) || CheckAddress(address, p) == nil {
				t.Errorf("%q: got %+v, %v", address, got, err)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", address, got, err, want)
		}
	}
}

// Options.Greeting: what is sent right after the hello was answered, with the capabilities that count.
func TestGreeting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, late := range []bool{false, true} {
			seen := make(chan uint32, 1)
			near, far := net.Pipe()
			r := newRemote(t, far)
			result := make(chan dialled, 1)
			go func() {
				c, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: pipe(near), Greeting: func(h Hello) []byte {
					seen <- h.Capabilities
					return text(toyEcho, "hi")
				}})
				result <- dialled{c, err}
			}()
			r.expect(text(toyConnect, ""))
			if late {
				time.Sleep(2 * time.Second)
			}
			r.send(rec(toyHello, toyHelloValue(bitLabels|bitLifecycle, 0, 0)))
			want := uint32(bitLabels)
			if !late {
				want |= bitLifecycle
				r.expect(rec(toyClientHello, []byte{bitLabels | bitLifecycle}))
			}
			r.expect(text(toyEcho, "hi"))
			if got := <-seen; got != want {
				t.Errorf("late %v: capabilities %b, want %b", late, got, want)
			}
			d := <-result
			if d.err != nil {
				t.Fatal(d.err)
			}
			session{d.conn, r}.close(t)
			_ = far.Close()
		}
	})
}
