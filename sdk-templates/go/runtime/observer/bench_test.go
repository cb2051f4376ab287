package observer_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/observer"
)

// inventoryOf returns a peer that holds so many leases and answers at once.
func inventoryOf(leases int) *peer {
	p := newPeer(1)
	p.up, p.down, p.pageSize = 0, 0, 500
	for i := range leases {
		p.change(fmt.Sprintf("x://a/renderers/r%06d", i), true)
	}
	return p
}

// BenchmarkObserverChange is the time from a change at the broker to the new view, with 10,000 items: a notification, an exact read and an
// installation. It also reports the memory that one observer of them keeps.
func BenchmarkObserverChange(b *testing.B) {
	const leases = 10_000
	p := inventoryOf(leases)
	before := heap()
	o := observe(b, p, func(o *observer.Options) { o.Coalesce = observer.NoCoalesce })
	defer p.finish()
	p.open()
	if err := o.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(heap()-before)/leases, "B/item")
	c, err := o.Consume()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, ok, err := c.Next(b.Context()); !ok {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.change(fmt.Sprintf("x://a/renderers/r%06d", i%leases), true)
		if _, ok, err := c.Next(b.Context()); !ok {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heap()-before)/leases, "B/item")
}

// BenchmarkObserverPass is one full pass over 10,000 items that finds no difference.
func BenchmarkObserverPass(b *testing.B) {
	p := inventoryOf(10_000)
	o := observe(b, p)
	defer p.finish()
	p.open()
	if err := o.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := o.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSnapshot is a walk over a snapshot of 10,000 items.
func BenchmarkSnapshot(b *testing.B) {
	p := inventoryOf(10_000)
	o := observe(b, p)
	defer p.finish()
	p.open()
	if err := o.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := time.Duration(0)
		for i := range o.Snapshot().All() {
			n += i.Left
		}
		if n == 0 {
			b.Fatal("nothing left")
		}
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
