// Package feed is a bounded queue between a goroutine that must not wait and a reader that may. It ends, and says why.
package feed

import (
	"context"
	"sync"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// Feed holds items for one or more readers, first in first out. All methods may be called from any goroutine.
type Feed[T any] struct {
	overflow func(dropped uint64) error

	mu      sync.Mutex
	ring    []T // grows up to max
	first   int
	count   int
	max     int
	full    bool   // an item did not fit: nothing is taken any more
	dropped uint64 // items that came after that
	end     error
	wake    chan struct{} // closed when there is something to see
}

// New returns a Feed of at most max items, which must be positive. When one more comes, the Feed ends after the items that it holds, with
// the error that overflow makes of the number of items that were not taken.
func New[T any](max int, overflow func(dropped uint64) error) *Feed[T] {
	return &Feed[T]{max: max, overflow: overflow, wake: make(chan struct{})}
}

// Offer adds an item. It never waits. False: the Feed takes nothing any more; the item is counted.
func (f *Feed[T]) Offer(item T) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end != nil {
		return false
	}
	if f.count == f.max && mutant.On("sdk.overflow-silent") {
		return true
	}
	if f.full || f.count == f.max {
		f.full = true
		f.dropped++
		return false
	}
	f.push(item)
	f.signal()
	return true
}

// push appends to the ring, which doubles up to max. f.mu is held.
func (f *Feed[T]) push(item T) {
	if f.count == len(f.ring) {
		larger := make([]T, min(f.max, max(2*len(f.ring), 4)))
		n := copy(larger, f.ring[f.first:])
		copy(larger[n:], f.ring[:f.first])
		f.ring, f.first = larger, 0
	}
	f.ring[(f.first+f.count)%len(f.ring)] = item
	f.count++
}

// signal wakes readers. f.mu is held.
func (f *Feed[T]) signal() {
	close(f.wake)
	f.wake = make(chan struct{})
}

// End ends the Feed after the items that it holds. The first end stays; one by overflow comes before any other.
func (f *Feed[T]) End(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.end != nil {
		return
	}
	f.end = err
	f.signal()
}

// Stop ends the Feed at once and forgets what it holds.
func (f *Feed[T]) Stop(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ring, f.first, f.count, f.full, f.end = nil, 0, 0, false, err
	f.signal()
}

// Next returns the next item, or waits for it. After the last one it returns how the Feed ended, again and again. The error is that of ctx
// when ctx ends first; nothing is lost then.
func (f *Feed[T]) Next(ctx context.Context) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	for {
		item, wake, err := f.take()
		if wake == nil {
			return item, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
}

// take removes the next item. A channel: there is neither an item nor an end so far.
func (f *Feed[T]) take() (item T, wake <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.count > 0:
		var none T
		item, f.ring[f.first] = f.ring[f.first], none
		f.first = (f.first + 1) % len(f.ring)
		f.count--
		return item, nil, nil
	case f.full:
		return item, nil, f.overflow(f.dropped)
	case f.end != nil:
		return item, nil, f.end
	}
	return item, f.wake, nil
}

// Len returns the number of items that nobody has taken yet.
func (f *Feed[T]) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Dropped returns how many items were not taken because the Feed was full.
func (f *Feed[T]) Dropped() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dropped
}
