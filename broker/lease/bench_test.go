package lease

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

const million = 1_000_000

// sharedPopulation is built once for all benchmarks of a run.
var sharedPopulation = map[int]*population{}

func million1(b *testing.B, n int) *population {
	if sharedPopulation[n] == nil {
		clear(sharedPopulation)
		before := heapBytes()
		p := populate(b, n)
		sharedPopulation[n] = p
		p.h.TB = b
		bytes := float64(heapBytes()-before) - float64(n)*(16+8) // the tables of the population itself
		b.Logf("%d leases: %.0f bytes each, %.0f without their texts in the population", n, bytes/float64(n), bytes/float64(n)-48)
	}
	return sharedPopulation[n]
}

func heapBytes() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkLeaseMemory reports the bytes of one lease with route and owner of ordinary length, beside the floor: a Go map from the
// route to a struct with owner, token and deadline.
func BenchmarkLeaseMemory(b *testing.B) {
	const n = 200_000
	texts := make([]string, n)
	for i := range texts {
		texts[i] = populationRoute(i)
	}
	b.Run("family", func(b *testing.B) {
		for b.Loop() {
			h := newHarness(b)
			s := []*silent{{h.session("a")}, {h.session("b")}, {h.session("c")}, {h.session("d")}}
			f := h.family(1)
			before := heapBytes()
			for i, text := range texts {
				f.acquire(s[i%4], peer.Call{Type: wire.TypeLeaseAcquire}, mustRoute(b, text), []byte(populationOwner), 3600, 0, moment{0, wallStart})
			}
			b.ReportMetric(float64(heapBytes()-before)/n, "B/lease")
			runtime.KeepAlive(f)
		}
	})
	b.Run("map", func(b *testing.B) {
		type entry struct {
			owner    string
			token    uint64
			deadline time.Duration
		}
		for b.Loop() {
			before := heapBytes()
			m := map[string]*entry{}
			for i, text := range texts {
				m[string([]byte(text))] = &entry{string([]byte(populationOwner)), uint64(i), time.Hour}
			}
			b.ReportMetric(float64(heapBytes()-before)/n, "B/lease")
			runtime.KeepAlive(m)
		}
	})
}

// BenchmarkWaiterMemory reports the bytes of one request in line, with an owner of ordinary length: a thousand lines of a hundred sessions.
func BenchmarkWaiterMemory(b *testing.B) {
	const lines, sessions = 1000, bounds.LeaseWaitersPerKeyMax
	for b.Loop() {
		h := newHarness(b)
		holder := &silent{h.session("holder")}
		f := h.family(1)
		call, at := peer.Call{Type: wire.TypeLeaseAcquire}, moment{0, wallStart}
		for i := range lines {
			f.acquire(holder, call, mustRoute(b, populationRoute(i)), []byte(populationOwner), 3600, 0, at)
		}
		var waiting []*silent
		for range sessions {
			waiting = append(waiting, &silent{h.session("waiting")})
		}
		before := heapBytes()
		for _, s := range waiting {
			for i := range lines {
				f.acquire(s, call, mustRoute(b, populationRoute(i)), []byte(populationOwner), 3600, bounds.LeaseWaitSecsMax, at)
			}
		}
		b.ReportMetric(float64(heapBytes()-before)/(lines*sessions), "B/waiter")
		if n := testutil.ToFloat64(h.metrics.Waiters); n != lines*sessions {
			b.Fatalf("%v wait", n)
		}
		runtime.KeepAlive(f)
	}
}

// BenchmarkList is P-LIST: the first page and a later page of every selector shape over a million leases, beside the floor of
// copying as many encoded items.
func BenchmarkList(b *testing.B) {
	p := million1(b, million)
	reader := &pageCatcher{fakeSession: p.h.session("reader")}
	counter := &counting{reader}
	for wild := range 1 << depth {
		text := p.selector(wild)
		name := text[len("lease://"):]
		request := encode(b, &wire.LeaseListRequest{Selector: text, Limit: 500})
		b.Run("first/"+name, func(b *testing.B) {
			before, items := p.h.examined(), p.h.items()
			b.ReportAllocs()
			for b.Loop() {
				p.h.table.Dispatch(counter, peer.Call{Type: wire.TypeLeaseList}, request)
			}
			b.ReportMetric(float64(p.h.items()-items)/float64(b.N), "items/op")
			b.ReportMetric(float64(p.h.examined()-before)/max(1, float64(p.h.items()-items)), "examined/item")
		})
		first, refused := reader.page(name, 500, nil)
		if refused != "" || !first.HasNext {
			continue
		}
		b.Run("later/"+name, func(b *testing.B) {
			b.ReportAllocs()
			page := first
			for b.Loop() {
				b.StopTimer()
				if !page.HasNext {
					page, _ = reader.page(name, 500, nil)
				}
				request := encode(b, &wire.LeaseListRequest{Selector: text, Limit: 500, Cursor: page.Next, HasCursor: true})
				b.StartTimer()
				p.h.table.Dispatch(reader, peer.Call{Type: wire.TypeLeaseList}, request)
				b.StopTimer()
				if err := page.DecodeValue(reader.value); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
	b.Run("floor/copy-500-items", func(b *testing.B) {
		var leases []*lease
		for _, text := range p.routes[:500] {
			leases = append(leases, p.f.leases[text])
		}
		var buffer []byte
		for b.Loop() {
			buffer = buffer[:0]
			for _, l := range leases {
				buffer = append(buffer, l.early...)
				buffer = wire.AppendLeaseItemLate(buffer, 1, 1)
			}
		}
	})
}

// counting answers and drops.
type counting struct{ *pageCatcher }

func (*counting) Reply(peer.Call, []byte) bool { return true }

func encode(b testing.TB, v value) []byte {
	encoded, err := v.AppendValue(nil)
	if err != nil {
		b.Fatal(err)
	}
	return encoded
}

// BenchmarkCapture is the cost of keeping a snapshot, whatever the number of leases (L-50).
func BenchmarkCapture(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		p := populate(b, n)
		masks := mustSelector(b, "lease://**/x/**").Masks()
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.f.tree.keep(masks)
			}
		})
	}
}

// BenchmarkRenew is one renewal beside its floor, a write to a random cell; BenchmarkGrantRelease one change of the held set and back.
func BenchmarkRenew(b *testing.B) {
	p := million1(b, million)
	routes := make([]pattern.Route, 1<<16)
	for i := range routes {
		routes[i] = mustRoute(b, p.routes[i*15%million])
	}
	owner := []byte(populationOwner)
	b.Run("core", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			at := i % len(routes) * 15 % million
			p.f.renew(p.holders[at], renewCall, routes[i%len(routes)], owner, uint64(at+1), 3600, moment{0, wallStart})
		}
	})
	b.Run("dispatch", func(b *testing.B) {
		requests := make([][]byte, 4096)
		for i := range requests {
			at := i * 15 % million
			requests[i] = encode(b, &wire.LeaseRenewRequest{Route: p.routes[at], OwnerID: populationOwner, FencingToken: uint64(at + 1), TTL: 3600})
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			at := i % len(requests)
			p.h.table.Dispatch(p.holders[at*15%million], renewCall, requests[at])
		}
	})
	b.Run("floor/map-lookup-and-write", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			p.f.leases[routes[i%len(routes)].Text()].deadline.Store(int64(time.Hour))
		}
	})
}

func BenchmarkGrantRelease(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := populate(b, n)
			s := &silent{p.h.session("s")}
			routes := make([]pattern.Route, 4096)
			for i := range routes {
				routes[i] = mustRoute(b, fmt.Sprintf("lease://realm-%02d/area-%02d/new-%d", i*7%100, i*13%100, i))
			}
			owner := []byte(populationOwner)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r := routes[i%len(routes)]
				p.f.acquire(s, peer.Call{Type: wire.TypeLeaseAcquire}, r, owner, 3600, 0, moment{0, wallStart})
				p.f.release(s, peer.Call{Type: wire.TypeLeaseRelease}, r, owner, p.f.tokens.Load(), moment{0, wallStart})
			}
		})
		b.Run(fmt.Sprintf("floor/map-set-delete/%d", n), func(b *testing.B) {
			m := map[string]*lease{}
			for i := range n {
				m[populationRoute(i)] = nil
			}
			texts := make([]string, 4096)
			for i := range texts {
				texts[i] = fmt.Sprintf("lease://realm-%02d/area-%02d/new-%d", i*7%100, i*13%100, i)
			}
			for i := 0; b.Loop(); i++ {
				m[texts[i%len(texts)]] = &lease{}
				delete(m, texts[i%len(texts)])
			}
		})
	}
}

// BenchmarkAcquireRelease is the pair through dispatch, as a session sees it.
func BenchmarkAcquireRelease(b *testing.B) {
	h := newHarness(b)
	s := &silent{h.session("s")}
	acquire := encode(b, &wire.LeaseAcquireRequest{Route: "lease://realm/area/document-123", OwnerID: populationOwner, TTL: 30})
	release := wire.LeaseReleaseRequest{Route: "lease://realm/area/document-123", OwnerID: populationOwner}
	b.ReportAllocs()
	for b.Loop() {
		h.table.Dispatch(s, peer.Call{Type: wire.TypeLeaseAcquire}, acquire)
		release.FencingToken = h.domain.tokens.Load()
		h.table.Dispatch(s, peer.Call{Type: wire.TypeLeaseRelease}, encode(b, &release))
	}
}

// BenchmarkExpiry is one deadline: filed, fired, removed.
func BenchmarkExpiry(b *testing.B) {
	h := newHarness(b)
	s := &silent{h.session("s")}
	f := h.family(1)
	routes := make([]pattern.Route, 1024)
	for i := range routes {
		routes[i] = mustRoute(b, populationRoute(i))
	}
	owner := []byte(populationOwner)
	now := h.clock.Now()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f.acquire(s, peer.Call{Type: wire.TypeLeaseAcquire}, routes[i%len(routes)], owner, 1, 0, moment{now, wallStart})
		if i%len(routes) == len(routes)-1 {
			now = now.Add(2 * time.Second)
			budget := 1 << 20
			f.expire(moment{now, wallStart}, &budget)
		}
	}
}
