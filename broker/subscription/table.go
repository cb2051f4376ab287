package subscription

import (
	"math/bits"
)

// The buckets are spread over shards by the upper bits of their hash. A shard that grows moves only its own slots, so that no
// SUBSCRIBE waits for the whole index to be moved.
const (
	shardBits  = 6
	shardCount = 1 << shardBits
	shardShift = 64 - shardBits

	slotsMin = 8
)

// table is an open-addressing hash table with linear probing. It is at most 5/8 full, because most lookups
// find nothing, and at least 1/8 while it has more than the smallest size.
type table[T any] struct {
	slots []slot[T] // a power of two, nil while empty
	count int
}

type slot[T any] struct {
	hash   uint64
	bucket *bucket[T] // nil: free
}

func (t *table[T]) home(hash uint64) int { return int(hash) & (len(t.slots) - 1) }

func (t *table[T]) after(at int) int { return (at + 1) & (len(t.slots) - 1) }

func (t *table[T]) insert(hash uint64, b *bucket[T]) {
	if 8*(t.count+1) > 5*len(t.slots) {
		t.resize(max(slotsMin, 2*len(t.slots)))
	}
	t.place(hash, b)
	t.count++
}

func (t *table[T]) place(hash uint64, b *bucket[T]) {
	at := t.home(hash)
	for t.slots[at].bucket != nil {
		at = t.after(at)
	}
	t.slots[at] = slot[T]{hash, b}
}

func (t *table[T]) resize(size int) {
	old := t.slots
	t.slots = make([]slot[T], size)
	for _, s := range old {
		if s.bucket != nil {
			t.place(s.hash, s.bucket)
		}
	}
}

// remove takes b out and closes the gap: every slot behind it that a lookup could no longer reach moves up.
func (t *table[T]) remove(hash uint64, b *bucket[T]) {
	gap := t.home(hash)
	for t.slots[gap].bucket != b {
		gap = t.after(gap)
	}
	for at := t.after(gap); t.slots[at].bucket != nil; at = t.after(at) {
		distance := (at - t.home(t.slots[at].hash)) & (len(t.slots) - 1)
		if distance >= (at-gap)&(len(t.slots)-1) {
			t.slots[gap] = t.slots[at]
			gap = at
		}
	}
	t.slots[gap] = slot[T]{}
	t.count--
	switch {
	case t.count == 0:
		t.slots = nil
	case len(t.slots) > slotsMin && 8*t.count < len(t.slots):
		t.resize(max(slotsMin, 1<<bits.Len(uint(2*t.count))))
	}
}
