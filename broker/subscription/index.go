// Package subscription finds the registrations whose selector matches a concrete route (R-34, R-35, W-94, W-96). It knows
// neither sessions nor messages: a domain owns one [Index] per family and decides what a match means.
//
// A selector of fixed depth is filed once per canonical mask, in the bucket of that mask; a route is looked up once per mask
// shape that has a bucket, which is at most 8 times at depth 3 and 16 times at depth 4, however many registrations there are.
// Every bucket is sorted by registration id, so that one merge of at most 8 buckets yields each registration once and in order
// of its id. A match therefore needs no list of targets and no set of seen ones, and can go on later behind an id: a fan-out
// that is served in slices keeps two numbers.
//
// An Index is not safe for concurrent use; the lock of the family protects it.
package subscription

import (
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/fitzwire/fitz/generated/go/pattern"
)

// shapesMax is the number of mask shapes at the largest fixed depth.
const shapesMax = 1 << pattern.MaxDepth

// Registration is one selector that a session registered. Its fields do not change while it is in an Index.
type Registration[T any] struct {
	ID       uint64 // from a counter that only grows (W-92)
	Selector pattern.Selector
	Value    T // what the domain keeps for it
}

// Work counts what lookups did, so that tests and metrics can tell the cost of a change from the number of registrations.
type Work struct {
	Probes   uint64 // lookups of one mask
	Examined uint64 // entries of buckets that were looked at
}

// Index holds the registrations of one family and domain.
type Index[T any] struct {
	seed   maphash.Seed
	salts  [shapesMax]uint64 // makes equal literals in different mask shapes differ
	fold   uint64            // all ones; tests clear bits to force collisions
	shapes [shapesMax]int    // buckets per mask shape
	live   uint32            // bit w is set when shapes[w] > 0
	shards [shardCount]table[T]
	count  int
	work   Work
}

// New returns an empty index. Its hash is seeded, so that no peer can choose selectors that collide.
func New[T any]() *Index[T] {
	x := &Index[T]{seed: maphash.MakeSeed(), fold: ^uint64(0)}
	for i := range x.salts {
		x.salts[i] = maphash.Comparable(x.seed, i)
	}
	return x
}

// Len returns the number of registrations.
func (x *Index[T]) Len() int { return x.count }

// Buckets returns the number of different masks that are registered.
func (x *Index[T]) Buckets() int {
	total := 0
	for _, n := range x.shapes {
		total += n
	}
	return total
}

// Work returns the totals of all lookups.
func (x *Index[T]) Work() Work { return x.work }

// Add files r under every mask of its selector. The id must not be in use. A selector without masks is filed nowhere and
// matches nothing.
func (x *Index[T]) Add(r *Registration[T]) {
	masks := r.Selector.Masks()
	for i := range masks {
		hash := x.hashMask(&masks[i])
		b := x.find(hash, masks[i].Wild, masks[i].Segments[:masks[i].Depth])
		if b == nil {
			b = newBucket[T](&masks[i])
			x.table(hash).insert(hash, b)
			x.shapes[b.wild]++
			x.live |= 1 << b.wild
		}
		b.add(r)
	}
	x.count++
}

// Remove takes r out. It reports false when r is not in the index.
func (x *Index[T]) Remove(r *Registration[T]) bool {
	masks := r.Selector.Masks()
	removed := len(masks) == 0
	for i := range masks {
		hash := x.hashMask(&masks[i])
		b := x.find(hash, masks[i].Wild, masks[i].Segments[:masks[i].Depth])
		if b == nil || !b.remove(r) {
			continue
		}
		removed = true
		if len(b.entries) > 0 {
			continue
		}
		x.table(hash).remove(hash, b)
		if x.shapes[b.wild]--; x.shapes[b.wild] == 0 {
			x.live &^= 1 << b.wild
		}
	}
	if removed {
		x.count--
	}
	return removed
}

// hashMask hashes the literals of m and its shape.
func (x *Index[T]) hashMask(m *pattern.Mask) uint64 {
	hash := x.salts[m.Wild]
	for i := range int(m.Depth) {
		if m.Wild&(1<<i) == 0 {
			hash ^= x.hashSegment(i, m.Segments[i])
		}
	}
	return hash & x.fold
}

// hashSegment hashes one literal together with its position.
func (x *Index[T]) hashSegment(position int, literal string) uint64 {
	return bits.RotateLeft64(maphash.String(x.seed, literal), 17*position)
}

func (x *Index[T]) table(hash uint64) *table[T] { return &x.shards[hash>>shardShift] }

// find returns the bucket of the mask that has the positions in wild as "*" and the literals of segments elsewhere, nil when
// there is none.
func (x *Index[T]) find(hash uint64, wild uint8, segments []string) *bucket[T] {
	t := x.table(hash)
	if t.count == 0 {
		return nil
	}
	for at := t.home(hash); t.slots[at].bucket != nil; at = t.after(at) {
		if s := &t.slots[at]; s.hash == hash && s.bucket.wild == wild && s.bucket.holds(segments) {
			return s.bucket
		}
	}
	return nil
}

// bucket holds the registrations of one mask in order of their ids. A removed one leaves an entry without registration; the last
// entry always has one.
type bucket[T any] struct {
	literals string // the literal segments, each followed by a slash: a copy, because the selector it came from may go first
	entries  []entry[T]
	dead     int
	wild     uint8
}

func newBucket[T any](m *pattern.Mask) *bucket[T] {
	size := 0
	for i := range int(m.Depth) {
		if m.Wild&(1<<i) == 0 {
			size += len(m.Segments[i]) + 1
		}
	}
	literals := make([]byte, 0, size)
	for i := range int(m.Depth) {
		if m.Wild&(1<<i) == 0 {
			literals = append(append(literals, m.Segments[i]...), '/')
		}
	}
	return &bucket[T]{literals: string(literals), wild: m.Wild}
}

type entry[T any] struct {
	id           uint64
	registration *Registration[T]
}

func compareID[T any](e entry[T], id uint64) int {
	switch {
	case e.id < id:
		return -1
	case e.id > id:
		return 1
	}
	return 0
}

func (b *bucket[T]) add(r *Registration[T]) {
	e := entry[T]{r.ID, r}
	if n := len(b.entries); n == 0 || b.entries[n-1].id < r.ID {
		b.entries = append(b.entries, e)
		return
	}
	at, _ := slices.BinarySearchFunc(b.entries, r.ID, compareID)
	b.entries = slices.Insert(b.entries, at, e)
}

// remove takes r out. Its cost is amortised by compaction: at most half of the entries are dead.
func (b *bucket[T]) remove(r *Registration[T]) bool {
	at, found := slices.BinarySearchFunc(b.entries, r.ID, compareID)
	if !found || b.entries[at].registration != r {
		return false
	}
	b.entries[at].registration = nil
	b.dead++
	for n := len(b.entries); n > 0 && b.entries[n-1].registration == nil; n-- {
		b.entries = b.entries[:n-1]
		b.dead--
	}
	if live := len(b.entries) - b.dead; live > 0 && (2*b.dead > len(b.entries) || 4*live < cap(b.entries)) {
		b.compact(live)
	}
	return true
}

// compact moves the live entries to memory of their size. A match that is under way keeps reading the old entries.
func (b *bucket[T]) compact(live int) {
	kept := make([]entry[T], 0, live)
	for _, e := range b.entries {
		if e.registration != nil {
			kept = append(kept, e)
		}
	}
	b.entries, b.dead = kept, 0
}

// holds reports whether the mask of the bucket has these literals at its literal positions. No segment contains a slash.
func (b *bucket[T]) holds(segments []string) bool {
	rest := b.literals
	for i, segment := range segments {
		if b.wild&(1<<i) != 0 {
			continue
		}
		if len(rest) <= len(segment) || rest[len(segment)] != '/' || rest[:len(segment)] != segment {
			return false
		}
		rest = rest[len(segment)+1:]
	}
	return rest == ""
}
