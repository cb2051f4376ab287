package lease

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// population is a family with n leases.
type population struct {
	h       *harness
	f       *family
	owners  []*silent
	routes  []string
	holders []*silent // of routes
}

const populationOwner = "worker-07"

func populate(t testing.TB, n int, change ...func(*bounds.Limits)) *population {
	p := &population{h: newHarness(t, change...)}
	p.f = p.h.family(1)
	at := moment{p.h.clock.Now(), wallStart}
	owner := []byte(populationOwner)
	for i := range n {
		if i%bounds.LeasesPerSessionMax == 0 {
			p.owners = append(p.owners, &silent{p.h.session("owner")})
		}
		s := p.owners[len(p.owners)-1]
		text := populationRoute(i)
		p.f.acquire(s, peer.Call{Type: wire.TypeLeaseAcquire}, mustRoute(t, text), owner, 3600, 0, at)
		p.routes = append(p.routes, text)
		p.holders = append(p.holders, s)
	}
	if len(p.f.leases) != n {
		t.Fatalf("%d leases, want %d", len(p.f.leases), n)
	}
	return p
}

// populationRoute makes groups of 10,000 resources: a group is one percent of a million.
func populationRoute(i int) string {
	return fmt.Sprintf("lease://realm-%02d/area-%02d/document-%06d", i/100_000, i/10_000%10, i%10_000)
}

// selector returns a selector of the given mask shape that matches something.
func (p *population) selector(wild int) string {
	l := p.f.leases[p.routes[len(p.routes)/2]]
	text := "lease:/"
	for i := range depth {
		segment := l.segment(i)
		if wild&(1<<i) != 0 {
			segment = "*"
		}
		text += "/" + segment
	}
	return text
}

// A full listing of a million leases completes while renewals arrive as fast as the domain takes them: no cursor error, every lease
// once (L-51, L-52, L-53). A renewal touches no tree and pins nothing.
func TestMillionLeasesAreListedUnderRenewals(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a million leases")
	}
	const n = 1_000_000
	p := populate(t, n)
	var stop atomic.Bool
	var renewals atomic.Int64
	var wait sync.WaitGroup
	wait.Add(1)
	go func() {
		defer wait.Done()
		owner := []byte(populationOwner)
		for i := 0; !stop.Load(); i = (i + 7919) % n {
			at := clock.Instant(0)
			p.h.domain.mailbox(1).mu.Lock()
			p.f.renew(p.holders[i], renewCall, mustRoute(t, p.routes[i]), owner, uint64(i+1), 3600, moment{at, wallStart})
			p.h.domain.mailbox(1).mu.Unlock()
			renewals.Add(1)
		}
	}()
	reader := p.h.session("reader")
	seen := make([]bool, n)
	total, pages := 0, 0
	started := time.Now()
	var last *wire.LeaseListReply
	for {
		reply, refused := reader.page("**", bounds.LeaseListPageMax, last)
		if refused != "" {
			t.Fatalf("page %d: %s", pages, refused)
		}
		pages++
		for _, item := range reply.Items {
			token := p.f.leases[item.Route].token
			if seen[token-1] {
				t.Fatalf("%s twice", item.Route)
			}
			seen[token-1] = true
			total++
		}
		if !reply.HasNext {
			break
		}
		last = &reply
	}
	took := time.Since(started)
	stop.Store(true)
	wait.Wait()
	if total != n {
		t.Errorf("%d leases listed", total)
	}
	if got := p.h.domain.snapshots.kept; got != nil {
		t.Errorf("%d snapshots are left", len(got))
	}
	t.Logf("%d pages in %v beside %d renewals (%.0f/s)", pages, took, renewals.Load(), float64(renewals.Load())/took.Seconds())
	if renewals.Load() < int64(pages) {
		t.Errorf("only %d renewals", renewals.Load())
	}
	p.listAtRenewalRate(t, 100_000)
}

// listAtRenewalRate lists all leases while so many renewals arrive in each second of a clock on which a page takes as long as it
// may: a machine of any speed meets the same proportion of renewals to pages, and the same age of the snapshot.
func (p *population) listAtRenewalRate(t *testing.T, perSecond int) {
	const page = bounds.LeaseListSliceMs * time.Millisecond
	owner := []byte(populationOwner)
	reader := p.h.session("paced reader")
	total, pages, renewals := 0, 0, 0
	var last *wire.LeaseListReply
	for more := true; more; pages++ {
		reply, refused := reader.page("**", bounds.LeaseListPageMax, last)
		if refused != "" {
			t.Fatalf("page %d after %d renewals: %s", pages, renewals, refused)
		}
		total += len(reply.Items)
		more, last = reply.HasNext, &reply
		p.h.clock.Advance(page)
		for range int(page.Seconds() * float64(perSecond)) {
			i := renewals * 7919 % len(p.routes)
			p.f.renew(p.holders[i], renewCall, mustRoute(t, p.routes[i]), owner, uint64(i+1), 3600, moment{p.h.clock.Now(), wallStart})
			renewals++
		}
	}
	if total != len(p.routes) {
		t.Errorf("%d leases listed beside %d renewals", total, renewals)
	}
	if want := pages * perSecond * bounds.LeaseListSliceMs / 1000; renewals != want {
		t.Errorf("%d renewals in %d pages, want %d", renewals, pages, want)
	}
}
