package subscription

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/fitzwire/fitz/generated/go/pattern"
)

// The population of the matcher benchmarks: five mask shapes over random segments, so that a route has about one match.
type population struct {
	regs   []*Registration[int]
	routes [][]string
}

func populate(b *testing.B, n int) population {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	realms, areas := max(2, n/500), 40
	realm := func() string { return fmt.Sprintf("realm-%d", rng.IntN(realms)) }
	area := func() string { return fmt.Sprintf("area-%d", rng.IntN(areas)) }
	resource := func() string { return fmt.Sprintf("resource-%d", rng.IntN(n)) }
	var p population
	for i := range n {
		var text string
		switch i % 10 {
		case 0:
			text = realm() + "/" + area() + "/*"
		case 1:
			text = "*/" + area() + "/" + resource()
		case 2:
			text = realm() + "/*/" + resource()
		case 3:
			text = "*/*/" + resource()
		default:
			text = realm() + "/" + area() + "/" + resource()
		}
		p.regs = append(p.regs, &Registration[int]{ID: uint64(i + 1), Selector: mustSelector(b, "lease://"+text)})
	}
	for range 4096 {
		p.routes = append(p.routes, []string{realm(), area(), resource()})
	}
	return p
}

var sizes = []int{1_000, 10_000, 100_000, 1_000_000}

// BenchmarkMatch is P-MATCH: the time per change with about one match. "maps" is the floor: one Go map per mask shape with the
// literals as its key, which knows no order, no removal and no resuming; "naive" tries every selector.
func BenchmarkMatch(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("index/%d", n), func(b *testing.B) {
			p := populate(b, n)
			before := heap()
			x := New[int]()
			for _, reg := range p.regs {
				x.Add(reg)
			}
			bytes := float64(heap()-before) / float64(n)
			var m Matches[int]
			matches, work := 0, x.Work()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				x.Match(&m, p.routes[i%len(p.routes)], 0, all)
				for m.Next() != nil {
					matches++
				}
			}
			b.ReportMetric(float64(matches)/float64(b.N), "matches/op")
			b.ReportMetric(float64(x.Work().Probes-work.Probes)/float64(b.N), "probes/op")
			b.ReportMetric(bytes, "B/registration")
		})
		b.Run(fmt.Sprintf("maps/%d", n), func(b *testing.B) {
			p := populate(b, n)
			type key struct {
				segments [3]string
				wild     uint8
			}
			maps := map[key][]int{}
			for i, reg := range p.regs {
				for _, m := range reg.Selector.Masks() {
					k := key{wild: m.Wild}
					copy(k.segments[:], m.Segments[:3])
					maps[k] = append(maps[k], i)
				}
			}
			matches := 0
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				segments := p.routes[i%len(p.routes)]
				for wild := range uint8(8) {
					k := key{wild: wild}
					for at := range 3 {
						k.segments[at] = "*"
						if wild&(1<<at) == 0 {
							k.segments[at] = segments[at]
						}
					}
					matches += len(maps[k])
				}
			}
			b.ReportMetric(float64(matches)/float64(b.N), "matches/op")
		})
		if n > 10_000 {
			continue
		}
		b.Run(fmt.Sprintf("naive/%d", n), func(b *testing.B) {
			p := populate(b, n)
			var routes []pattern.Route
			for _, s := range p.routes {
				routes = append(routes, mustRoute(b, "lease://"+s[0]+"/"+s[1]+"/"+s[2]))
			}
			for i := 0; b.Loop(); i++ {
				for _, reg := range p.regs {
					reg.Selector.Matches(routes[i%len(routes)])
				}
			}
		})
	}
}

// BenchmarkGather is the cost per target of a dense selector: 10,000 registrations of one text.
func BenchmarkGather(b *testing.B) {
	x := New[int]()
	for i := range 10_000 {
		x.Add(&Registration[int]{ID: uint64(i + 1), Selector: mustSelector(b, "lease://r/a/*")})
	}
	var m Matches[int]
	sum := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		x.Match(&m, []string{"r", "a", "k"}, 0, all)
		for reg := m.Next(); reg != nil; reg = m.Next() {
			sum += reg.ID
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/target")
}

// BenchmarkAddRemove is one registration and its removal beside many others.
func BenchmarkAddRemove(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := populate(b, n)
			x := New[int]()
			for _, reg := range p.regs {
				x.Add(reg)
			}
			extra := &Registration[int]{Selector: mustSelector(b, "lease://realm-1/area-1/*")}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				extra.ID = uint64(n + i + 1)
				x.Add(extra)
				x.Remove(extra)
			}
		})
	}
}

func heap() uint64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
