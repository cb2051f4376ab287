package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// amount is how much a test does: FITZ_REQUESTS requests, or the given number.
func amount(normal int) int {
	if n, err := strconv.Atoi(os.Getenv("FITZ_REQUESTS")); err == nil {
		return n
	}
	return normal
}

// shuffler answers in a random order, each QUERY with its own route as the owner, each ACQUIRE with a token that only its route has, with
// pushes and cuts in between. A CANCEL is answered as W-70 to W-75 say.
type shuffler struct {
	mu    sync.Mutex
	rng   *rand.Rand
	cuts  int // of 100,000
	held  map[*fitztest.Session][]fitztest.Frame
	holds map[*fitztest.Session]map[string]uint64 // routes that a session holds, with their tokens
	next  uint64
}

func (s *shuffler) handle(p *fitztest.Session, f fitztest.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rng.IntN(100_000) < s.cuts {
		p.Close()
		return
	}
	if f.Type == wire.TypeCancel {
		s.cancel(p, f)
		return
	}
	s.held[p] = append(s.held[p], f)
	for len(s.held[p]) > 8 || len(s.held[p]) > 0 && s.rng.IntN(3) > 0 {
		i := s.rng.IntN(len(s.held[p]))
		s.answer(p, i)
	}
	if s.rng.IntN(50) == 0 {
		p.Push(wire.TypeLeaseNotify, &wire.LeaseNotify{SubscriptionID: s.rng.Uint64() | 1, Route: route})
	}
}

// ended frees what a session held (W-35).
func (s *shuffler) ended(p *fitztest.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, p)
	delete(s.holds, p)
}

// flush answers everything that is held back.
func (s *shuffler) flush(p *fitztest.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.held[p]) > 0 {
		s.answer(p, s.rng.IntN(len(s.held[p])))
	}
}

// answer answers one request. s.mu is held.
func (s *shuffler) answer(p *fitztest.Session, i int) {
	f := s.held[p][i]
	s.held[p] = append(s.held[p][:i], s.held[p][i+1:]...)
	switch f.Type {
	case wire.TypeLeaseQuery:
		var m wire.LeaseQueryRequest
		_ = m.DecodeValue(f.Value)
		p.Reply(f, &wire.LeaseQueryReply{Held: true, OwnerID: m.Route})
	case wire.TypeLeaseAcquire:
		var m wire.LeaseAcquireRequest
		_ = m.DecodeValue(f.Value)
		if s.rng.IntN(4) == 0 {
			p.Refuse(f, wire.CodeLeaseHeld, m.Route)
			return
		}
		s.next++
		if s.holds[p] == nil {
			s.holds[p] = map[string]uint64{}
		}
		s.holds[p][m.Route] = s.next
		p.Reply(f, &wire.LeaseAcquireReply{FencingToken: s.next})
	case wire.TypeLeaseRelease:
		var m wire.LeaseReleaseRequest
		_ = m.DecodeValue(f.Value)
		if s.holds[p][m.Route] != m.FencingToken {
			p.Refuse(f, wire.CodeLeaseInvalidFence, m.Route)
			return
		}
		delete(s.holds[p], m.Route)
		p.Reply(f, &wire.LeaseReleaseReply{})
	}
}

// cancel answers the request first, if it is still held back. s.mu is held.
func (s *shuffler) cancel(p *fitztest.Session, f fitztest.Frame) {
	var m wire.Cancel
	_ = m.DecodeValue(f.Value)
	outcome := wire.CancelOutcomeUnknown
	for i, held := range s.held[p] {
		if held.Label == m.CorrelationID {
			s.answer(p, i)
			outcome = wire.CancelOutcomeAlreadyCompleted
			break
		}
	}
	p.Push(wire.TypeCancelled, &wire.Cancelled{CorrelationID: m.CorrelationID, Outcome: outcome})
}

// mix is what happens beside the requests.
type mix struct {
	seed    uint64
	cuts    int // of 100,000 requests
	cancels int // percent
	workers int
	labels  bool
}

// crosstalk runs requests with random cancels against a shuffler.
func crosstalk(tb testing.TB, t rapid.TB, m mix, requests int) {
	s := &shuffler{rng: rand.New(rand.NewPCG(m.seed, 0)), cuts: m.cuts, held: map[*fitztest.Session][]fitztest.Frame{}, holds: map[*fitztest.Session]map[string]uint64{}}
	script := fitztest.Script{Answer: s.handle, Ended: s.ended}
	if !m.labels {
		script.Hello = func(*fitztest.Session) *wire.ServerHello { return &wire.ServerHello{Version: 1} } // C-60
	}
	world := fitztest.NewPeer(tb, script)
	defer world.Close()
	c, err := fitz.Connect(context.Background(), world.URL(), append(world.Options(), fitz.WithRandom(func() float64 { return 0 }))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	stop := make(chan struct{})
	var flushing sync.WaitGroup
	flushing.Go(func() { // nothing is held back for ever
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				s.flush(world.Last())
			}
		}
	})
	var wrong atomic.Pointer[string]
	var group sync.WaitGroup
	for w := range m.workers {
		rng := rand.New(rand.NewPCG(uint64(w), uint64(requests)))
		group.Go(func() {
			for i := range requests / m.workers {
				ctx, cancel := context.WithCancel(context.Background())
				if rng.IntN(100) < m.cancels {
					time.AfterFunc(time.Duration(rng.IntN(300))*time.Microsecond, cancel)
				}
				if text := one(ctx, c, rng, fmt.Sprintf("lease://r/w%d/%d", w, i)); text != "" {
					wrong.Store(&text)
				}
				cancel()
			}
		})
	}
	group.Wait()
	close(stop)
	flushing.Wait()
	if text := wrong.Load(); text != nil {
		t.Fatal(*text)
	}
	settle(t, c, s, world)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// one does one thing and says what was wrong with its result.
func one(ctx context.Context, c *fitz.Client, rng *rand.Rand, route string) string {
	if rng.IntN(4) > 0 {
		info, err := c.Lease().Query(ctx, route)
		return verdict(ctx, err, err != nil || info.OwnerID == route, "a query got the answer of "+info.OwnerID)
	}
	lease, ok, err := c.Lease().TryAcquire(ctx, route, time.Hour, nil)
	if err != nil || !ok {
		return verdict(ctx, err, true, "")
	}
	if err := lease.Release(context.Background()); fitz.CodeOf(err) == fitz.CodeLeaseInvalidFence {
		return "a lease got the token of another: " + err.Error()
	}
	return ""
}

// verdict accepts the results that cancels and cuts explain.
func verdict(ctx context.Context, err error, right bool, text string) string {
	switch {
	case !right:
		return text
	case err == nil, errors.Is(err, fitz.ErrConnLost), errors.Is(err, fitz.ErrLeaseLost), errors.Is(err, fitz.ErrRequestOverload):
		return ""
	case err == context.Canceled && ctx.Err() != nil:
		return ""
	}
	return "unexpected: " + err.Error()
}

// settle waits until every lease that was given up is released, within the round trips that this takes.
func settle(t rapid.TB, c *fitz.Client, s *shuffler, world *fitztest.Peer) {
	deadline := time.Now().Add(2 * time.Minute)
	for {
		s.flush(world.Last())
		s.mu.Lock()
		left := 0
		for _, routes := range s.holds {
			left += len(routes)
		}
		s.mu.Unlock()
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d routes are held that nobody wants", left)
		}
		_, _ = c.Lease().Query(context.Background(), "lease://r/settle/x")
	}
}

// W-44, W-57, W-58, L-73: no caller sees the answer of another, and no cancelled acquire leaves a lease, whatever the order of replies,
// pushes, cancels and cuts.
func TestNoCrosstalk(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		crosstalk(t, r, mix{
			seed: rapid.Uint64().Draw(r, "seed"), cuts: rapid.IntRange(0, 300).Draw(r, "cuts"), cancels: rapid.IntRange(0, 30).Draw(r, "cancels"),
			workers: rapid.IntRange(8, 64).Draw(r, "workers"), labels: rapid.IntRange(0, 3).Draw(r, "labels") > 0,
		}, 120)
	})
}

// The same with many requests of one client: FITZ_REQUESTS=1000000 for all of them.
func TestNoCrosstalkMany(t *testing.T) {
	crosstalk(t, t, mix{seed: 1, cuts: 2, cancels: 10, workers: 256, labels: true}, amount(20_000))
}
