package lease

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// L-51, L-93: pages are built from kept roots while other goroutines grant, release, renew and end sessions. What is held throughout
// is listed exactly once, in any shape.
func TestPagesBesideChanges(t *testing.T) {
	h := newHarness(t)
	stable := h.session("stable")
	stable.fill(7)
	var stop atomic.Bool
	var wait sync.WaitGroup
	for w := range 2 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			s := &silent{h.session("churn")}
			send := func(typ wire.MessageType, v value) {
				h.table.Dispatch(s, peer.Call{Type: typ}, encode(t, v))
			}
			for i := 0; !stop.Load(); i++ {
				path := fmt.Sprintf("lease://r%d/a%d/churn%d", rng.IntN(7), rng.IntN(7), rng.IntN(20))
				send(wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: path, OwnerID: "w", TTL: 60})
				send(wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: path, OwnerID: "w", FencingToken: h.domain.tokens.Load()})
				if i%50 == 49 {
					s.close()
					s = &silent{h.session("churn")}
				}
				runtime.Gosched()
			}
		}()
	}
	reader := h.session("reader")
	for round := range 60 {
		shape := append(shapes, "**/r1/**", "**/a2/**/k3/**")[round%(len(shapes)+2)]
		sel := mustSelector(t, "lease://"+shape)
		want := map[string]bool{}
		for r := range 7 {
			for a := range 7 {
				for k := range 7 {
					path := fmt.Sprintf("r%d/a%d/k%d", r, a, k)
					if sel.Matches(mustRoute(t, "lease://"+path)) {
						want[path] = true
					}
				}
			}
		}
		seen := map[string]bool{}
		for _, path := range reader.collect(shape, 13) {
			if seen[path] {
				t.Fatalf("%s: %s twice", shape, path)
			}
			seen[path] = true
			delete(want, path)
		}
		if len(want) > 0 {
			t.Fatalf("%s: missing %v", shape, want)
		}
	}
	stop.Store(true)
	wait.Wait()
	h.family(1).verify(t)
}

// Everything at once, with the clock of the process and Run: commands of all kinds, cancels, listings, slow and vanishing sessions.
// The books agree at the end, and nothing is left when the last session has gone (invariant 13).
func TestEverythingAtOnce(t *testing.T) {
	limits := bounds.Default()
	limits.FanoutSliceMax, limits.LeaseFanoutJobsMax, limits.LeaseExpirySliceMax, limits.LeaseSnapshotsMax = 3, 8, 4, 5
	h := &harness{TB: t, metrics: newHarnessMetrics()}
	h.domain = New(Options{Limits: limits, Clock: clock.System(), Lifetime: lifetime, Metrics: h.metrics})
	h.table = dispatch.New(limits, h.domain)
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error)
	go func() { ran <- h.domain.Run(ctx) }()

	var wait sync.WaitGroup
	for worker := range 6 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			rng := rand.New(rand.NewPCG(uint64(worker), 2))
			connect := func() *fakeSession {
				s := h.sessionIn(fmt.Sprint(worker), uint32(worker%2))
				s.negotiated = rng.IntN(2) == 0
				s.observe = func(string) {}
				if rng.IntN(4) == 0 {
					s.room = rng.IntN(200)
				}
				if rng.IntN(4) == 0 {
					s.notifies = rng.IntN(100)
				}
				return s
			}
			s := connect()
			var token atomic.Uint64
			for label := uint64(1); label <= 1500; label++ {
				path := fmt.Sprintf("r%d/a%d/k%d", rng.IntN(2), rng.IntN(2), rng.IntN(3))
				switch rng.IntN(12) {
				case 0, 1, 2:
					s.acquire(path, "w", 1, uint32(rng.IntN(3)), label)
				case 3:
					s.renew(path, "w", token.Load(), 1)
				case 4, 5:
					f := h.domain.mailbox(s.family)
					f.mu.Lock()
					if l := f.family.leases["lease://"+path]; l != nil {
						token.Store(l.token)
					}
					f.mu.Unlock()
					s.release(path, "w", token.Load())
				case 6:
					s.query(path)
				case 7:
					s.subscribe([]string{"**", "r0/**", "*/a1/*", path}[rng.IntN(4)])
				case 8:
					s.unsubscribe("r0/**")
				case 9:
					s.cancel(label - uint64(rng.IntN(8)))
				case 10:
					s.list([]string{"**", "**/a1/**", "r1/*/*"}[rng.IntN(3)], uint32(rng.IntN(3)))
				case 11:
					if s.isClosing() || rng.IntN(10) == 0 {
						s.close()
						s = connect()
					}
				}
			}
			s.close()
		}()
	}
	wait.Wait()
	for family := range uint32(2) {
		box := h.domain.mailbox(family)
		box.mu.Lock()
		box.family.verify(t)
		f := box.family
		if len(f.leases)+len(f.sessions)+f.waiting != 0 || f.bytes != 0 || f.index.Len() != 0 {
			t.Errorf("left: %d leases, %d sessions, %d waiters, %d bytes, %d registrations", len(f.leases), len(f.sessions), f.waiting, f.bytes, f.index.Len())
		}
		box.mu.Unlock()
	}
	if n := len(h.domain.snapshots.kept); n != 0 {
		t.Errorf("%d snapshots are left", n)
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	h.domain.Stop()
}

// The end of a session goes on while the family is paused, also when nobody runs the domain.
func TestCloseSessionOfAPausedFamilyWithoutRun(t *testing.T) {
	h := newHarness(t, func(l *bounds.Limits) { l.FanoutSliceMax, l.LeaseFanoutJobsMax, l.LeaseExpirySliceMax = 1, 1, 2 })
	a := h.session("a")
	for i := range 10 {
		a.acquire(fmt.Sprintf("r/a/%d", i), "w", 30, 0)
	}
	for i := range 4 {
		h.session(fmt.Sprint(i)).subscribe("r/a/*")
	}
	h.drain()
	a.close()
	h.serve()
	got := h.drain()
	if len(got) != 40 {
		t.Errorf("%d frames", len(got))
	}
	for id := range 4 {
		var told []string
		for _, f := range got {
			if strings.HasPrefix(f, fmt.Sprintf("%d: 409", id)) {
				told = append(told, f[len(f)-1:])
			}
		}
		if strings.Join(told, "") != "0123456789" {
			t.Errorf("session %d was told %v", id, told)
		}
	}
	h.family(1).verify(t)
}
