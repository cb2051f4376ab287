package tests

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// grantAll answers every request of leases with success, and notes what it was asked.
type grantAll struct {
	mu    sync.Mutex
	asked []wire.MessageType
	token uint64
	ids   uint64
}

func (g *grantAll) handle(p *fitztest.Session, f fitztest.Frame) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked = append(g.asked, f.Type)
	switch f.Type {
	case wire.TypeLeaseAcquire:
		g.token++
		p.Reply(f, &wire.LeaseAcquireReply{FencingToken: g.token})
	case wire.TypeLeaseRenew:
		p.Reply(f, &wire.LeaseRenewReply{FencingToken: g.token})
	case wire.TypeLeaseRelease:
		p.Reply(f, &wire.LeaseReleaseReply{})
	case wire.TypeLeaseQuery:
		p.Reply(f, &wire.LeaseQueryReply{})
	case wire.TypeLeaseSubscribe:
		g.ids++
		p.Reply(f, &wire.LeaseSubscribeReply{SubscriptionID: 7})
		p.Push(wire.TypeLeaseNotify, &wire.LeaseNotify{SubscriptionID: 7, Route: route}) // right behind the success (OB-11)
	case wire.TypeLeaseUnsubscribe:
		p.Reply(f, &wire.LeaseUnsubscribeReply{})
	}
}

func (g *grantAll) count(typ wire.MessageType) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, t := range g.asked {
		if t == typ {
			n++
		}
	}
	return n
}

// C-64, C-65, C-66, C-68, E-02, E-04, E-05: what other brokers answer.
func TestOtherBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answer func(p *fitztest.Session, f fitztest.Frame)
		s := fitztest.NewPeer(t, fitztest.Script{Hello: func(*fitztest.Session) *wire.ServerHello { // C-61
			return &wire.ServerHello{Version: 1, Capabilities: wire.CapCorrelation}
		}, Answer: func(p *fitztest.Session, f fitztest.Frame) { answer(p, f) }})
		c := connect(t, s)
		if st := c.Status(); st.State != fitz.ConnReady || st.BrokerLifetime != "" {
			t.Errorf("%+v", st)
		}
		query := func(value []byte) (fitz.LeaseInfo, error) {
			answer = func(p *fitztest.Session, f fitztest.Frame) { p.SendValue(f.Label, f.Type, value) }
			return c.Lease().Query(t.Context(), route)
		}
		if info, err := query(wire.AppendCoded(nil, wire.CodeLeaseExpired, "Expired")); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
		for text, want := range map[string]string{"session:12:w1": "w1", "session:x:w1": "session:x:w1", "w1": "w1", "session:1": "session:1", "session:1:": ""} {
			value, _ := (&wire.LeaseQueryReply{Held: true, OwnerID: text}).AppendValue(nil)
			if info, err := query(value); err != nil || info.OwnerID != want {
				t.Errorf("%q is shown as %q, %v", text, info.OwnerID, err)
			}
		}
		for name, c := range map[string]struct {
			value  []byte
			code   fitz.Code
			number uint32
		}{
			"plain":         {wire.AppendPlain(nil, "unauthorized: permission denied"), "lease", 0},
			"coded":         {wire.AppendCoded(nil, wire.CodeLeaseUnauthorized, "no"), fitz.CodeLeaseUnauthorized, 5009},
			"stream coded":  {wire.AppendStreamCoded(nil, wire.CodeLeaseUnauthorized, "no"), fitz.CodeLeaseUnauthorized, 5009},
			"unknown codes": {wire.AppendCoded(nil, 5999, "no"), fitz.Code(wire.Code(5999).String()), 5999},
		} {
			_, err := query(c.value)
			var e *fitz.Error
			if !errors.As(err, &e) || e.Code != c.code || e.Number != c.number || e.Retry != fitz.RetryNever || !e.FromBroker() || e.Op != "lease.query" || e.Route != route {
				t.Errorf("%s: %+v", name, err)
			}
		}
		answer = func(p *fitztest.Session, f fitztest.Frame) {
			switch f.Type {
			case wire.TypeLeaseAcquire:
				p.Reply(f, &wire.LeaseAcquireReply{FencingToken: 1})
			case wire.TypeLeaseRenew:
				p.Reply(f, &wire.LeaseRenewReply{FencingToken: 2})
			case wire.TypeLeaseRelease:
				var m wire.LeaseReleaseRequest
				if err := m.DecodeValue(f.Value); err != nil || m.FencingToken != 2 {
					t.Errorf("released %+v, %v", m, err)
				}
				p.Reply(f, &wire.LeaseReleaseReply{})
			}
		}
		lease := acquire(t, c, route, time.Minute)
		if err := lease.Extend(t.Context(), time.Minute); err != nil || lease.FencingToken() != 2 {
			t.Errorf("token %d, %v", lease.FencingToken(), err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Pure reads are tried again, three times, after a growing delay; nothing else is (errors.md section 2).
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fitztest.Start(t)
		c := connect(t, b)
		busy := func([]byte) []byte { return wire.AppendCoded(nil, wire.CodeLeaseQueueFull, "busy") }
		b.Network().Edit(fitztest.Filter{Direction: fitztest.ToClient, Type: wire.TypeLeaseQuery}, busy)
		b.Network().Edit(fitztest.Filter{Direction: fitztest.ToClient, Type: wire.TypeLeaseAcquire}, busy)
		began := time.Now()
		_, err := c.Lease().Query(t.Context(), route)
		wantCode(t, err, fitz.ErrLeaseQueueFull)
		if took := time.Since(began); took != 75*time.Millisecond+150*time.Millisecond {
			t.Errorf("took %v", took)
		}
		_, err = c.Lease().Acquire(t.Context(), route, time.Second, nil)
		wantCode(t, err, fitz.ErrLeaseQueueFull)
		if q, a := b.Network().Written(fitztest.ToBroker, wire.TypeLeaseQuery), b.Network().Written(fitztest.ToBroker, wire.TypeLeaseAcquire); q != fitz.DefaultRetryAttempts || a != 1 {
			t.Errorf("%d QUERY, %d ACQUIRE", q, a)
		}
	})
}

// a refused token is tried again only when the source has another one.
func TestTokenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := []string{"old", "new", "new", "new"}
		asked := 0
		source := func(context.Context) (string, error) {
			asked++
			return tokens[asked-1], nil
		}
		good := "new"
		s := fitztest.NewPeer(t, fitztest.Script{Refuse: func(p *fitztest.Session) bool { return p.Token() != good }})
		c := connect(t, s, fitz.WithTokenSource(source))
		if asked != 2 || s.Last().Token() != "new" {
			t.Fatalf("asked %d times, %q", asked, s.Last().Token())
		}
		good = "newer" // and the source does not know it
		s.Network().Cut()
		for st := range c.StatusChanges(t.Context()) {
			if st.State == fitz.ConnClosed {
				wantCode(t, st.Reason, fitz.ErrAuthRejected)
			}
		}
		_, err := c.Lease().Query(t.Context(), route)
		wantCode(t, err, fitz.ErrAuthRejected)
		if asked != 4 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// The first session: one attempt, and its error.
func TestConnectFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := errors.New("no route to host")
		s := fitztest.NewPeer(t, fitztest.Script{})
		_, err := fitz.Connect(t.Context(), s.URL(), fitz.WithClock(s.Clock()),
			fitz.WithDialer(func(context.Context, string, string) (net.Conn, error) { return nil, fail }))
		if !errors.Is(err, fitz.ErrConnRefused) || !errors.Is(err, fail) {
			t.Error(err)
		}
		errSource := errors.New("source")
		// Never by a name that is looked up: the resolver is one for all bubbles.
		failing := fitz.WithTokenSource(func(context.Context) (string, error) { return "", errSource })
		_, err = fitz.Connect(t.Context(), s.URL(), append(s.Options(), failing)...)
		if !errors.Is(err, errSource) {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = fitz.Connect(ctx, s.URL(), s.Options()...); err != context.Canceled {
			t.Error(err)
		}
	})
}

// D10: delays between attempts double up to a bound, half of each is drawn, and they begin anew after a session that lived long enough.
func TestReconnectDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		attempts := func() []time.Duration { mu.Lock(); defer mu.Unlock(); return slices.Clone(at) }
		began := time.Now()
		s := fitztest.Start(t)
		c := connect(t, s, fitz.WithDialer(func(ctx context.Context, n, a string) (net.Conn, error) {
			mu.Lock()
			at = append(at, time.Since(began))
			mu.Unlock()
			return s.Dial(ctx, n, a)
		}))
		time.Sleep(fitz.DefaultReconnectBackoffReset)
		s.Network().Refuse(true)
		s.Network().Cut()
		time.Sleep(12 * time.Second)
		s.Network().Refuse(false)
		time.Sleep(5 * time.Second)
		var delays []time.Duration
		tried := attempts()
		for i := 2; i < len(tried); i++ {
			delays = append(delays, (tried[i] - tried[i-1]).Round(time.Microsecond))
		}
		want := []time.Duration{375 * time.Millisecond, 750 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second, 3750 * time.Millisecond, 3750 * time.Millisecond}
		if !slices.Equal(delays, want) {
			t.Errorf("%v, want %v", delays, want)
		}
		n := len(tried)
		time.Sleep(fitz.DefaultReconnectBackoffReset)
		cut := time.Since(began)
		s.Network().Cut()
		time.Sleep(time.Second)
		tried = attempts()
		if st := c.Status(); len(tried) != n+1 || tried[n]-cut != 187500*time.Microsecond || st.Sessions != 3 || st.State != fitz.ConnReady {
			t.Errorf("after a long session: %v after the cut, %+v", tried[n:], st)
		}
	})
}

// W-67: an announced end is a state of its own; the client leaves within the first half of the grace, after what is running.
func TestGoaway(t *testing.T) {
	for code, want := range map[wire.Code]fitz.LeaseLostReason{
		wire.CodeGoawayShutdown: fitz.LeaseLostBrokerRestarted, wire.CodeGoawayDrain: fitz.LeaseLostDisconnected,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &grantAll{}
			hold := true
			s := fitztest.NewPeer(t, fitztest.Script{Hello: func(p *fitztest.Session) *wire.ServerHello {
				hello := fitztest.Greeting()
				hello.Lifecycle.BrokerLifetimeID[0] += byte(p.Number)
				hello.Lifecycle.HeartbeatMs = 0
				return hello
			}, Answer: func(p *fitztest.Session, f fitztest.Frame) {
				if f.Type == wire.TypeLeaseQuery && hold {
					time.AfterFunc(9*time.Second, func() { g.handle(p, f) })
					return
				}
				g.handle(p, f)
			}})
			c := connect(t, s)
			before := c.Status().BrokerLifetime
			lease := acquire(t, c, route, time.Hour)
			began := time.Now()
			s.Last().Push(wire.TypeGoaway, &wire.Goaway{GraceMs: 20_000, Code: code, Reason: "stop"})
			synctest.Wait()
			if st := c.Status(); st.State != fitz.ConnDraining || !strings.Contains(st.Reason.Error(), "stop") {
				t.Errorf("%+v", st)
			}
			if _, err := c.Lease().Query(t.Context(), route); err != nil { // works on, and is finished
				t.Error(err)
			}
			<-lease.Done()
			var lost *fitz.LeaseLost
			if !errors.As(lease.Err(), &lost) || lost.Reason != want || time.Since(began) != 9*time.Second {
				t.Errorf("%v after %v", lease.Err(), time.Since(began))
			}
			hold = false
			if _, err := c.Lease().Query(t.Context(), route); err != nil {
				t.Error(err)
			}
			if st := c.Status(); st.State != fitz.ConnReady || st.Sessions != 2 || st.BrokerLifetime == before {
				t.Errorf("%+v", st)
			}
		})
	}
}

// L-96, W-66: a frozen socket ends leases at their deadlines, and the session when the peer was silent for too long.
func TestFrozenSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fitztest.Start(t)
		c := connect(t, s)
		short, long := acquire(t, c, route, 10*time.Second), acquire(t, c, route+"2", time.Hour)
		began := time.Now()
		s.Network().BlackHole(true) // not even PONG
		<-short.Done()
		if took := time.Since(began); took != 9*time.Second {
			t.Errorf("the short lease was lost after %v", took)
		}
		<-long.Done()
		if took := time.Since(began); took > fitz.DefaultPingTimeout+time.Second {
			t.Errorf("the session was lost after %v", took)
		}
	})
}

// Closing a client, release of its leases included, is bounded although the network swallows everything (sdk_close_timeout_ms).
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fitztest.Start(t)
		c := connect(t, s)
		var leases []*fitz.Lease
		for i := range 50 {
			leases = append(leases, acquire(t, c, fmt.Sprintf("lease://r/a/%d", i), time.Hour))
		}
		sub, err := c.Lease().Subscribe(t.Context(), "lease://r/**", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Network().BlackHole(true)
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > bounds.SDKCloseTimeoutMs*time.Millisecond {
			t.Errorf("took %v", took)
		}
		for _, l := range leases {
			wantCode(t, l.Err(), fitz.ErrLeaseLost)
		}
		var last error
		for _, err := range sub.All(t.Context()) {
			last = err
		}
		var lost *fitz.SubscriptionLost
		if !errors.As(last, &lost) || lost.Reason != fitz.SubscriptionLostClientClosed {
			t.Errorf("%v", last)
		}
	})
}

// Section 0.2: calls that are made while there is no session wait for the next one, within bounds and deadlines.
func TestAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fitztest.Start(t)
		c := connect(t, s, fitz.WithLimits(fitz.Limits{Queue: 3}))
		lease := acquire(t, c, route, time.Hour)
		s.Network().Refuse(true)
		s.Network().Cut()
		<-lease.Done()
		errs := make(chan error, 10)
		began := time.Now()
		for range 3 {
			go func() {
				_, err := c.Lease().Query(context.Background(), route)
				errs <- err
			}()
		}
		synctest.Wait()
		_, err := c.Lease().Query(t.Context(), route)
		wantCode(t, err, fitz.ErrRequestOverload)
		if err := lease.Release(t.Context()); err != nil || lease.Extend(t.Context(), time.Minute) == nil {
			t.Errorf("a lease of an earlier session: %v", err)
		}
		for range 3 {
			err := <-errs
			var e *fitz.Error
			if !errors.As(err, &e) || e.Code != fitz.CodeRequestTimeout || e.Outcome != fitz.OutcomeRejected {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != fitz.DefaultRequestTimeout {
			t.Errorf("gave up after %v", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := c.Lease().Query(ctx, route)
			errs <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-errs; err != context.Canceled {
			t.Error(err)
		}
		go func() {
			_, err := c.Lease().Query(context.Background(), route)
			errs <- err
		}()
		synctest.Wait()
		s.Network().Refuse(false)
		if err := <-errs; err != nil {
			t.Error(err)
		}
	})
}

// Status readers miss the oldest changes and are told how many (sdk_status_events).
func TestStatusMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fitztest.Start(t)
		c := connect(t, s, fitz.WithLimits(fitz.Limits{StatusEvents: 2}))
		var states []string
		for st := range c.StatusChanges(t.Context()) {
			states = append(states, fmt.Sprint(st.State, " ", st.Missed))
			if len(states) == 1 { // now the reader is behind
				for range 3 {
					s.Network().Cut()
					time.Sleep(10 * time.Second)
				}
			}
			if len(states) == 3 {
				break
			}
		}
		if want := []string{"ready 0", "reconnecting 4", "ready 0"}; !slices.Equal(states, want) {
			t.Errorf("%v, want %v", states, want)
		}
	})
}

// OB-11, OB-18: users of one text share the registration; the last one removes it; a notification right behind the success is seen.
func TestSharedRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &grantAll{}
		s := fitztest.NewPeer(t, fitztest.Script{Answer: g.handle})
		c := connect(t, s)
		open := func() *fitz.Subscription[fitz.LeaseChange] {
			sub, err := c.Lease().Subscribe(t.Context(), "lease://r/a/*", nil)
			if err != nil {
				t.Fatal(err)
			}
			if change, err := sub.Next(t.Context()); err != nil || change.Route != route {
				t.Fatalf("%+v, %v", change, err)
			}
			return sub
		}
		a, b := open(), open()
		if change, err := a.Next(t.Context()); err != nil || change.Route != route { // the one of b
			t.Fatalf("%+v, %v", change, err)
		}
		s.Last().Push(wire.TypeLeaseNotify, &wire.LeaseNotify{SubscriptionID: 8, Route: "lease://r/a/other"}) // nobody's
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if n := g.count(wire.TypeLeaseUnsubscribe); n != 0 {
			t.Errorf("%d UNSUBSCRIBE while somebody listens", n)
		}
		s.Last().Push(wire.TypeLeaseNotify, &wire.LeaseNotify{SubscriptionID: 7, Route: "lease://r/a/2"})
		if change, err := b.Next(t.Context()); err != nil || change.Route != "lease://r/a/2" {
			t.Fatalf("%+v, %v", change, err)
		}
		_, err := a.Next(t.Context())
		wantCode(t, err, fitz.ErrConnClosed)
		for range 2 {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if s, u := g.count(wire.TypeLeaseSubscribe), g.count(wire.TypeLeaseUnsubscribe); s != 2 || u != 1 {
			t.Errorf("%d SUBSCRIBE, %d UNSUBSCRIBE", s, u)
		}
	})
}

// L-75, W-68, OB-30: how a subscription ends while the session lives, and that the next one starts with a registration of its own.
func TestSubscriptionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end         func(p *fitztest.Session)
		reason      fitz.SubscriptionLostReason
		dropped     uint64
		unsubscribe int
	}{
		"SUB_ENDED": {func(p *fitztest.Session) {
			p.Push(wire.TypeSubEnded, &wire.SubEnded{Domain: 4, SubscriptionID: 7, Code: wire.CodeSubSlowConsumer, Dropped: 3, Reason: "slow"})
		}, fitz.SubscriptionLostSubscriptionEnded, 3, 0},
		"payload": {func(p *fitztest.Session) {
			value, _ := (&wire.LeaseNotify{SubscriptionID: 7, Route: route}).AppendValue(nil)
			binary.BigEndian.PutUint32(value[len(value)-4:], 1)
			p.SendValue(0, wire.TypeLeaseNotify, append(value, 0))
		}, fitz.SubscriptionLostDecodeError, 0, 1},
		"no id": {func(p *fitztest.Session) { p.SendValue(0, wire.TypeLeaseNotify, []byte{1}) }, fitz.SubscriptionLostDecodeError, 0, 1},
		"no route": {func(p *fitztest.Session) {
			p.Push(wire.TypeLeaseNotify, &wire.LeaseNotify{SubscriptionID: 7, Route: "lease://r/a/*"})
		}, fitz.SubscriptionLostDecodeError, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &grantAll{}
				s := fitztest.NewPeer(t, fitztest.Script{Answer: g.handle})
				client := connect(t, s)
				sub, err := client.Lease().Subscribe(t.Context(), "lease://r/a/*", nil)
				if err != nil {
					t.Fatal(err)
				}
				c.end(s.Last())
				var last error
				for _, err := range sub.All(t.Context()) {
					last = err
				}
				var lost *fitz.SubscriptionLost
				if !errors.As(last, &lost) || lost.Reason != c.reason || lost.Dropped != c.dropped || lost.Selector != "lease://r/a/*" {
					t.Errorf("%v", last)
				}
				synctest.Wait()
				if n := g.count(wire.TypeLeaseUnsubscribe); n != c.unsubscribe {
					t.Errorf("%d UNSUBSCRIBE, want %d", n, c.unsubscribe)
				}
				if _, err := client.Lease().Subscribe(t.Context(), "lease://r/a/*", nil); err != nil || client.Status().Sessions != 1 {
					t.Errorf("%v, %+v", err, client.Status())
				}
			})
		})
	}
}

// L-73, W-73: a cancelled acquire whose grant was faster is released, before the next acquire of the route is sent.
func TestCancelLosesAgainstTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []wire.MessageType
		var waiting fitztest.Frame
		s := fitztest.NewPeer(t, fitztest.Script{Answer: func(p *fitztest.Session, f fitztest.Frame) {
			asked = append(asked, f.Type)
			switch f.Type {
			case wire.TypeLeaseAcquire:
				if waiting.Label == 0 {
					waiting = f
					p.Reply(f, &wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindQueued, FencingToken: 5})
					return
				}
				p.Reply(f, &wire.LeaseAcquireReply{FencingToken: 6})
			case wire.TypeCancel:
				p.Reply(waiting, &wire.LeaseAcquireReply{FencingToken: 5})
				p.Push(wire.TypeCancelled, &wire.Cancelled{CorrelationID: waiting.Label, Outcome: wire.CancelOutcomeAlreadyCompleted})
			case wire.TypeLeaseRelease:
				p.Reply(f, &wire.LeaseReleaseReply{})
			}
		}})
		c := connect(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error)
		go func() {
			_, err := c.Lease().Acquire(ctx, route, time.Hour, nil)
			errs <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-errs; err != context.Canceled {
			t.Error(err)
		}
		if lease := acquire(t, c, route, time.Hour); lease.FencingToken() != 6 {
			t.Errorf("token %d", lease.FencingToken())
		}
		want := []wire.MessageType{wire.TypeLeaseAcquire, wire.TypeCancel, wire.TypeLeaseRelease, wire.TypeLeaseAcquire}
		if !slices.Equal(asked, want) {
			t.Errorf("%v, want %v", asked, want)
		}
	})
}

// A reply that is neither success nor refusal ends the session with its own code, and the outcome is unknown.
func TestMalformedReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fitztest.NewPeer(t, fitztest.Script{Answer: func(p *fitztest.Session, f fitztest.Frame) { p.SendValue(f.Label, f.Type, []byte{0, 9, 9}) }})
		c := connect(t, s)
		_, err := c.Lease().Acquire(t.Context(), route, time.Second, nil)
		var e *fitz.Error
		if !errors.As(err, &e) || e.Code != fitz.CodeProtocolViolation || e.Outcome != fitz.OutcomeUnknown {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if st := c.Status(); st.Sessions != 2 {
			t.Errorf("%+v", st)
		}
		_, err = c.Lease().Subscribe(t.Context(), "lease://r/**", nil)
		wantCode(t, err, fitz.ErrProtocolViolation)
		time.Sleep(time.Second)
		if st := c.Status(); st.Sessions != 3 {
			t.Errorf("%+v", st)
		}
	})
}

// D11, D-1: whatever bytes a broker sends, a client neither breaks nor takes memory for what did not arrive.
func TestHostileBytes(t *testing.T) {
	const sessions = 300
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		poison := func() []byte {
			value := make([]byte, rng.IntN(200))
			for i := range value {
				value[i] = byte(rng.Uint32())
			}
			types := []wire.MessageType{wire.TypeServerHello, wire.TypeCorrelated, wire.TypeGoaway, wire.TypeSubEnded, wire.TypeCancelled, wire.TypePing,
				wire.TypePong, wire.TypeLeaseAcquire, wire.TypeLeaseQuery, wire.TypeLeaseNotify, wire.TypeLeaseList, 999}
			switch rng.IntN(4) {
			case 0: // noise
				return value
			case 1: // a length that does not come
				return binary.BigEndian.AppendUint32(nil, bounds.SDKFrameRecvMax-uint32(rng.IntN(1000)))
			case 2: // too long
				return binary.BigEndian.AppendUint32(nil, rng.Uint32()|1<<31)
			}
			record := codec.AppendRecord(nil, uint16(types[rng.IntN(len(types))]), value)
			return append(binary.BigEndian.AppendUint32(nil, uint32(len(record))), record...)
		}
		s := fitztest.NewPeer(t, fitztest.Script{Answer: func(p *fitztest.Session, f fitztest.Frame) {
			for range 1 + rng.IntN(3) {
				p.SendBytes(poison())
			}
		}})
		c := connect(t, s, fitz.WithLimits(fitz.Limits{RequestTimeout: 100 * time.Millisecond}))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range sessions {
			_, _ = c.Lease().Query(t.Context(), route)
			lease, err := c.Lease().Acquire(t.Context(), route, time.Second, nil)
			if err == nil {
				_ = lease.Release(t.Context())
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 8<<20 {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		if perSession := (after.TotalAlloc - before.TotalAlloc) / sessions; perSession > 1<<20 {
			t.Errorf("%d bytes were allocated for each session", perSession)
		}
	})
}
