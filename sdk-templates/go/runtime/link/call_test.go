package link

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// W-44, W-57: every request carries a label; replies are matched by it in any order.
func TestLabelledRepliesInAnyOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels})
		a := s.start(t.Context(), echo("a"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		b := s.start(t.Context(), echo("b"))
		s.remote.expect(labelled(toyLabel, 2, text(toyEcho, "b")))
		s.remote.send(labelled(toyLabelled, 2, text(toyEcho, "B")), labelled(toyLabelled, 1, text(toyEcho, "A")))
		(<-a).want(t, "A")
		(<-b).want(t, "B")
		s.close(t)
	})
}

// W-41, W-57: without labels one request of each type is in flight, the others follow in order.
func TestUnlabelledOneOfEachType(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{noHello: true})
		a := s.start(t.Context(), echo("a"))
		s.remote.expect(text(toyEcho, "a"))
		b := s.start(t.Context(), echo("b"))
		synctest.Wait()
		other := s.start(t.Context(), waitRequest("w"))
		s.remote.expect(text(toyWait, "w")) // b is not sent
		s.remote.send(text(toyEcho, "A"))
		s.remote.expect(text(toyEcho, "b"))
		s.remote.send(text(toyWait, "W"))
		s.remote.send(text(toyEcho, "B"))
		(<-a).want(t, "A")
		(<-b).want(t, "B")
		(<-other).want(t, "W")
		s.close(t)
	})
}

// C-60: without labels a waiting request holds the others of its type back until its last reply.
func TestUnlabelledWaitingRequestsFollowEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{noHello: true})
		a := s.start(t.Context(), waitRequest("a"))
		s.remote.expect(text(toyWait, "a"))
		s.remote.send(text(toyWait, "q"))
		b := s.start(t.Context(), waitRequest("b"))
		c := s.start(t.Context(), echo("c"))
		s.remote.expect(text(toyEcho, "c"))
		s.remote.send(text(toyWait, "A"))
		s.remote.expect(text(toyWait, "b"))
		s.remote.send(text(toyWait, "B"))
		s.remote.send(text(toyEcho, "C"))
		(<-a).want(t, "A")
		(<-b).want(t, "B")
		(<-c).want(t, "C")
		s.close(t)
	})
}

func TestQueueIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels, options: Options{Limits: Limits{InFlight: 1, Queue: 2, QueueBytes: 10}}})
		first := s.start(t.Context(), echo("a"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		(<-s.start(t.Context(), echo("more than ten"))).wantKind(t, Overload, false)
		second, third := s.start(t.Context(), echo("b")), s.start(t.Context(), echo("b"))
		synctest.Wait()
		(<-s.start(t.Context(), echo("d"))).wantKind(t, Overload, false)
		s.remote.send(labelled(toyLabelled, 1, text(toyEcho, "A")))
		(<-first).want(t, "A")
		for label, call := range []<-chan outcome{second, third} {
			s.remote.expect(labelled(toyLabel, uint64(label)+2, text(toyEcho, "b")))
			s.remote.send(labelled(toyLabelled, uint64(label)+2, text(toyEcho, "B")))
			_ = call
		}
		(<-second).want(t, "B")
		(<-third).want(t, "B")
		s.close(t)
	})
}

func TestCancelledInTheQueueIsNeverSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels, options: Options{Limits: Limits{InFlight: 1}}})
		first := s.start(t.Context(), echo("a"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		ctx, cancel := context.WithCancel(t.Context())
		second := s.start(ctx, echo("b"))
		synctest.Wait()
		cancel()
		if got := <-second; !errors.Is(got.err, context.Canceled) {
			t.Fatalf("got %v", got.err)
		}
		s.remote.send(labelled(toyLabelled, 1, text(toyEcho, "A")))
		(<-first).want(t, "A")
		third := s.start(t.Context(), echo("c"))
		s.remote.expect(labelled(toyLabel, 2, text(toyEcho, "c")))
		s.remote.send(labelled(toyLabelled, 2, text(toyEcho, "C")))
		(<-third).want(t, "C")
		s.close(t)
	})
}

// A request that times out before it was sent was not applied, and is never sent.
func TestTimeoutInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{noHello: true})
		first := s.start(t.Context(), waitRequest("a"))
		s.remote.expect(text(toyWait, "a"))
		s.remote.send(text(toyWait, "q"))
		(<-s.start(t.Context(), waitRequest("b"))).wantKind(t, Timeout, false)
		s.remote.send(text(toyWait, "A"))
		(<-first).want(t, "A")
		third := s.start(t.Context(), waitRequest("c"))
		s.remote.expect(text(toyWait, "c"))
		s.remote.send(text(toyWait, "C"))
		(<-third).want(t, "C")
		s.close(t)
	})
}

// Requests that wait in line do not use up the places of others.
func TestWaitingRequestsDoNotDelayOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels, options: Options{Limits: Limits{InFlight: 1, Labels: 4}}})
		var told []string
		request := waitRequest("w")
		request.Waiting = func(reply []byte) { told = append(told, string(reply)) }
		line := s.start(t.Context(), request)
		s.remote.expect(labelled(toyLabel, 1, text(toyWait, "w")))
		s.remote.send(labelled(toyLabelled, 1, text(toyWait, "q")))
		free := s.start(t.Context(), echo("a"))
		s.remote.expect(labelled(toyLabel, 2, text(toyEcho, "a")))
		s.remote.send(labelled(toyLabelled, 2, text(toyEcho, "A")))
		(<-free).want(t, "A")
		s.remote.send(labelled(toyLabelled, 1, text(toyWait, "W")))
		(<-line).want(t, "W")
		if len(told) != 1 || told[0] != "q" {
			t.Fatalf("told %q", told)
		}
		s.close(t)
	})
}

// The number of labels in use is bounded, waiting requests included.
func TestLabelsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels, options: Options{Limits: Limits{Labels: 1}}})
		line := s.start(t.Context(), waitRequest("w"))
		s.remote.expect(labelled(toyLabel, 1, text(toyWait, "w")))
		s.remote.send(labelled(toyLabelled, 1, text(toyWait, "q")))
		next := s.start(t.Context(), echo("a"))
		synctest.Wait()
		s.mu.Lock()
		kept := len(s.calls.queue)
		s.mu.Unlock()
		if kept != 1 {
			t.Fatalf("%d queued", kept)
		}
		s.remote.send(labelled(toyLabelled, 1, text(toyWait, "W")))
		(<-line).want(t, "W")
		s.remote.expect(labelled(toyLabel, 2, text(toyEcho, "a")))
		s.remote.send(labelled(toyLabelled, 2, text(toyEcho, "A")))
		(<-next).want(t, "A")
		s.close(t)
	})
}

// L-101: the request timeout counts from the end of the wait, but only once the peer said that the request waits.
func TestWaitIsAddedToTheRequestTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels})
		began := time.Now()
		silent := s.start(t.Context(), waitRequest("w"))
		s.remote.expect(labelled(toyLabel, 1, text(toyWait, "w")))
		(<-silent).wantKind(t, Timeout, true)
		if took := time.Since(began); took != 10*time.Second {
			t.Fatalf("timed out after %v", took)
		}
		began = time.Now()
		line := s.start(t.Context(), waitRequest("w"))
		s.remote.expect(labelled(toyLabel, 2, text(toyWait, "w")))
		s.remote.send(labelled(toyLabelled, 2, text(toyWait, "q")))
		(<-line).wantKind(t, Timeout, true)
		if took := time.Since(began); took != 40*time.Second {
			t.Fatalf("timed out after %v", took)
		}
		s.close(t)
	})
}

// W-70, W-71: cancelling a waiting request sends CANCEL; the call returns when the peer said what became of it.
func TestCancelWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		late := 0
		s := open(t, config{caps: bitLabels | bitLifecycle, options: Options{OnLate: func(Request, []byte) { late++ }}})
		ctx, cancel := context.WithCancel(t.Context())
		line := s.start(ctx, waitRequest("w"))
		s.remote.expect(labelled(toyLabel, 1, text(toyWait, "w")))
		s.remote.send(labelled(toyLabelled, 1, text(toyWait, "q")))
		synctest.Wait()
		cancel()
		s.remote.expect(rec(toyCancel, u64(1)))
		synctest.Wait()
		select {
		case got := <-line:
			t.Fatalf("returned %v before the outcome", got.err)
		default:
		}
		s.remote.send(labelled(toyLabelled, 1, text(toyWait, "refused")))
		synctest.Wait()
		s.remote.send(rec(toyCancelled, u64(1)))
		if got := <-line; !errors.Is(got.err, context.Canceled) {
			t.Fatalf("got %v", got.err)
		}
		if late != 1 || len(s.calls.labelled)+len(s.calls.cancels)+s.calls.abandoned+s.calls.inFlight != 0 {
			t.Fatalf("late %d, table %+v", late, s.calls)
		}
		s.close(t)
	})
}

// L-73, W-78: a grant that crossed the CANCEL goes to the hook, before the call returns.
func TestGrantThatCrossedTheCancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var request, reply string
		s := open(t, config{caps: bitLabels | bitLifecycle, options: Options{OnLate: func(r Request, b []byte) {
			request, reply = string(r.Value), string(b)
		}}})
		ctx, cancel := context.WithCancel(t.Context())
		line := s.start(ctx, waitRequest("w"))
		s.remote.expect(labelled(toyLabel, 1, text(toyWait, "w")))
		cancel() // before the first reply
		s.remote.expect(rec(toyCancel, u64(1)))
		s.remote.send(labelled(toyLabelled, 1, text(toyWait, "q")))
		s.remote.send(labelled(toyLabelled, 1, text(toyWait, "granted")))
		s.remote.send(rec(toyCancelled, u64(1)))
		if got := <-line; !errors.Is(got.err, context.Canceled) {
			t.Fatalf("got %v", got.err)
		}
		if request != "w" || reply != "granted" {
			t.Fatalf("hook got %q, %q", request, reply)
		}
		s.close(t)
	})
}

// The peer does not answer the CANCEL: the call returns after the request timeout all the same.
func TestCancelIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels | bitLifecycle})
		ctx, cancel := context.WithCancel(t.Context())
		line := s.start(ctx, waitRequest("w"))
		s.remote.expect(labelled(toyLabel, 1, text(toyWait, "w")))
		cancel()
		s.remote.expect(rec(toyCancel, u64(1)))
		began := time.Now()
		if got := <-line; !errors.Is(got.err, context.Canceled) || time.Since(began) != 10*time.Second {
			t.Fatalf("got %v after %v", got.err, time.Since(began))
		}
		s.close(t)
	})
}

// W-58: the reply of a request that was given up is late, whatever it is; too many of them cost the session.
func TestLateReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var late []string
		s := open(t, config{caps: bitLabels, options: Options{OnLate: func(_ Request, b []byte) { late = append(late, string(b)) }}})
		ctx, cancel := context.WithCancel(t.Context())
		call := s.start(ctx, echo("a"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		cancel()
		<-call
		s.remote.send(labelled(toyLabelled, 1, text(toyEcho, "A")))
		s.remote.send(labelled(toyLabelled, 1, text(toyEcho, "again"))) // not known any more
		synctest.Wait()
		if stats := s.Stats(); stats.LateReplies != 2 || len(late) != 1 || late[0] != "A" {
			t.Fatalf("%+v, %q", stats, late)
		}
		for i := range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			call := s.start(ctx, echo("x"))
			s.remote.expect(labelled(toyLabel, uint64(i)+2, text(toyEcho, "x")))
			cancel()
			<-call
		}
		s.wantEnd(t, Lost)
		s.close(t)
	})
}

// W-59: a given-up unlabelled request keeps its slot; without a reply it costs the session.
func TestGivenUpUnlabelledRequestKeepsItsSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{noHello: true})
		give := func() {
			ctx, cancel := context.WithCancel(t.Context())
			call := s.start(ctx, echo("a"))
			s.remote.expect(text(toyEcho, "a"))
			cancel()
			<-call
		}
		give()
		next := s.start(t.Context(), echo("b"))
		synctest.Wait()
		s.remote.send(text(toyEcho, "A")) // late, not the answer of b
		s.remote.expect(text(toyEcho, "b"))
		s.remote.send(text(toyEcho, "B"))
		(<-next).want(t, "B")
		give()
		began := time.Now()
		s.wantEnd(t, Lost)
		if took := time.Since(began); took != 10*time.Second {
			t.Fatalf("given up after %v", took)
		}
		s.close(t)
	})
}

// W-58: pushes are routed by type, in order, before pending requests are looked at; unknown types are ignored and counted (W-05).
func TestPushes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var pushed []string
		s := open(t, config{caps: bitLabels, options: Options{OnPush: func(_ uint16, value []byte) error {
			pushed = append(pushed, string(value))
			return nil
		}}})
		call := s.start(t.Context(), echo("a"))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		s.remote.send(text(toyPush, "1"), text(99, "?"), labelled(toyLabelled, 1, text(toyEcho, "A")), text(toyPush, "2"))
		(<-call).want(t, "A")
		synctest.Wait()
		if strings.Join(pushed, "") != "12" || s.Stats().UnknownRecords != 1 {
			t.Fatalf("%q, %+v", pushed, s.Stats())
		}
		s.close(t)
	})
}

func TestViolations(t *testing.T) {
	tests := map[string][]byte{
		"reply without a request":          text(toyEcho, "x"),
		"reply of another type":            labelled(toyLabelled, 1, text(toyWait, "x")),
		"second hello":                     rec(toyHello, toyHelloValue(0, 0, 0)),
		"label at the end":                 rec(toyLabelled, u64(1)),
		"bad label":                        append(rec(toyLabelled, []byte{1}), text(toyEcho, "x")...),
		"label before a push":              labelled(toyLabelled, 1, text(toyPush, "x")),
		"label before a label":             labelled(toyLabelled, 1, labelled(toyLabelled, 1, text(toyEcho, "x"))),
		"label before a control record":    labelled(toyLabelled, 1, rec(toyPing, u64(1))),
		"control record of the client":     rec(toyConnect, nil),
		"cut-off record":                   {byte(toyEcho), 0, 9},
		"record behind a good one":         append(text(toyPush, "x"), 1),
		"bad ping":                         rec(toyPing, nil),
		"bad pong":                         rec(toyPong, nil),
		"bad cancelled":                    rec(toyCancelled, nil),
		"cancelled that was not asked":     rec(toyCancelled, u64(1)),
		"push that the receiver refuses":   text(toyPush, "bad"),
		"third reply of a waiting request": append(labelled(toyLabelled, 2, text(toyWait, "q")), labelled(toyLabelled, 2, text(toyWait, "q"))...),
	}
	for name, message := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := open(t, config{caps: bitLabels | bitLifecycle, options: Options{OnPush: func(_ uint16, value []byte) error {
					if string(value) == "bad" {
						return errToy
					}
					return nil
				}}})
				call := s.start(t.Context(), echo("a"))
				s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
				line := s.start(t.Context(), waitRequest("w"))
				s.remote.expect(labelled(toyLabel, 2, text(toyWait, "w")))
				s.remote.send(message)
				(<-call).wantKind(t, Violation, true)
				(<-line).wantKind(t, Violation, true)
				s.wantEnd(t, Violation)
				s.close(t)
			})
		})
	}
}

func TestPingInASessionThatDidNotAsk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels})
		s.remote.send(rec(toyPing, u64(1)))
		s.wantEnd(t, Violation)
		s.close(t)
	})
}

func TestFailEndsTheSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels})
		s.Fail("reply", errToy)
		s.wantEnd(t, Violation)
		if !errors.Is(s.Err(), errToy) {
			t.Fatalf("got %v", s.Err())
		}
		s.close(t)
	})
}

// Nothing is sent that cannot be taken: neither a value that no record holds nor a message above the bound of the peer.
func TestRequestsThatDoNotFit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels, maxFrame: 100})
		(<-s.start(t.Context(), echo(strings.Repeat("x", 1<<15+1)))).wantKind(t, Invalid, false)
		(<-s.start(t.Context(), echo(strings.Repeat("x", 87)))).wantKind(t, Invalid, false) // 11 bytes of label, 3 of header
		fits := strings.Repeat("x", 86)
		call := s.start(t.Context(), echo(fits))
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, fits)))
		s.remote.send(labelled(toyLabelled, 1, text(toyEcho, "ok")))
		(<-call).want(t, "ok")
		s.close(t)
	})
}

func TestCallWithAnEndedContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, config{caps: bitLabels})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Call(ctx, echo("a")); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
		s.mu.Lock()
		label := s.calls.nextLabel
		s.mu.Unlock()
		if label != 0 {
			t.Fatal("sent")
		}
		s.close(t)
	})
}

// L-73, OB-11: Arrived sees the last reply before anything that comes after it; Late gets it when nobody waits any more, or nil when it
// will not come, exactly once.
func TestArrivedAndLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var order []string
		s := open(t, config{caps: bitLabels | bitLifecycle, options: Options{OnPush: func(uint16, []byte) error {
			order = append(order, "push")
			return nil
		}}})
		request := echo("a")
		request.Arrived = func(reply []byte) { order = append(order, "arrived "+string(reply)) }
		request.Late = func([]byte) { t.Error("late, although Call returned the reply") }
		done := s.start(t.Context(), request)
		s.remote.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		s.remote.send(labelled(toyLabelled, 1, text(toyEcho, "A")), text(toyPush, "p"))
		(<-done).want(t, "A")
		synctest.Wait()
		if len(order) != 2 || order[0] != "arrived A" || order[1] != "push" {
			t.Errorf("%v", order)
		}

		var late []string
		note := func(reply []byte) { late = append(late, string(reply)) }
		given := func(after func(label uint64), r Request) {
			t.Helper()
			late = nil
			r.Late = note
			r.Arrived = func([]byte) { t.Error("arrived, although it was given up") }
			ctx, cancel := context.WithCancel(t.Context())
			done := s.start(ctx, r)
			synctest.Wait()
			label := s.calls.nextLabel
			s.remote.expect(labelled(toyLabel, label, toyAppend(nil, r.Type, r.Value)))
			cancel()
			synctest.Wait()
			if r.Cancellable {
				s.remote.expect(rec(toyCancel, u64(label)))
			}
			after(label)
			if o := <-done; o.err != context.Canceled {
				t.Errorf("%v", o.err)
			}
			synctest.Wait()
		}
		given(func(label uint64) { s.remote.send(labelled(toyLabelled, label, text(toyEcho, "B"))) }, echo("b"))
		if len(late) != 1 || late[0] != "B" {
			t.Errorf("a late reply: %q", late)
		}
		given(func(label uint64) { s.remote.send(rec(toyCancelled, u64(label))) }, waitRequest("c"))
		if len(late) != 1 || late[0] != "" {
			t.Errorf("cancelled without a reply: %q", late)
		}
		given(func(label uint64) {
			s.remote.send(labelled(toyLabelled, label, text(toyWait, "D")), rec(toyCancelled, u64(label)))
		}, waitRequest("d"))
		if len(late) != 1 || late[0] != "D" {
			t.Errorf("granted before the cancellation: %q", late)
		}
		given(func(uint64) {}, echo("e"))
		if len(late) != 0 {
			t.Errorf("before any reply: %q", late)
		}
		_ = s.remote.conn.Close()
		<-s.Done()
		synctest.Wait()
		if len(late) != 1 || late[0] != "" {
			t.Errorf("the end of the session: %q", late)
		}
		late = nil
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Call(ctx, Request{Type: toyEcho, Late: note}); err != context.Canceled || len(late) != 1 {
			t.Errorf("given up before it was sent: %v, %q", err, late)
		}
		s.close(t)
	})
}

// Only the error of the context of a Call and Timeout say that it was given up.
func TestGivenUp(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false}, {context.Canceled, true}, {context.DeadlineExceeded, true}, {&Error{Kind: Timeout}, true}, {&Error{Kind: Lost}, false},
		{&Error{Kind: Lost, Err: context.Canceled}, false}, {errToy, false},
	} {
		if got := GivenUp(c.err); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
