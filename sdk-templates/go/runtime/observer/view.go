package observer

import (
	"slices"
	"sort"
	"time"
)

// entry is one item of a view.
type entry[T any] struct {
	route string
	item  T
	sent  uint64        // send order of the request that answered it (OB-28)
	read  time.Duration // when the answer arrived
	gone  bool          // of a repair: nothing is held at the route
}

// view is an immutable set of entries in segment order (OB-50). A change copies one chunk and the list of chunks, so that snapshots of
// large inventories share nearly everything and cost nothing to keep.
type view[T any] struct {
	chunks [][]*entry[T] // none is empty
	count  int
	sent   uint64 // send order of the pass that made it: what is absent was absent then
}

// chunkMax is the number of entries of a chunk from which on it is split.
const chunkMax = 128

// newView returns a view of entries, which it sorts.
func newView[T any](entries []*entry[T], sent uint64) *view[T] {
	slices.SortFunc(entries, func(a, b *entry[T]) int { return Compare(a.route, b.route) })
	v := &view[T]{count: len(entries), sent: sent}
	for chunk := range slices.Chunk(entries, chunkMax/2) {
		v.chunks = append(v.chunks, slices.Clip(chunk))
	}
	return v
}

// Compare orders routes segment by segment, each by its bytes. No segment holds a slash, so that it is enough that a slash comes before
// every other byte.
func Compare(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		switch {
		case x == y:
		case x == '/':
			return -1
		case y == '/':
			return 1
		case x < y:
			return -1
		default:
			return 1
		}
	}
	return len(a) - len(b)
}

// find returns the chunk and the place in it where a route is or belongs.
func (v *view[T]) find(route string) (chunk, place int, found bool) {
	chunk = sort.Search(len(v.chunks), func(i int) bool { return Compare(v.chunks[i][0].route, route) > 0 }) - 1
	if chunk < 0 {
		return 0, 0, false
	}
	place, found = slices.BinarySearchFunc(v.chunks[chunk], route, func(e *entry[T], r string) int { return Compare(e.route, r) })
	return chunk, place, found
}

// get returns the entry of a route, nil when there is none.
func (v *view[T]) get(route string) *entry[T] {
	chunk, place, found := v.find(route)
	if !found {
		return nil
	}
	return v.chunks[chunk][place]
}

// with returns a view that holds what e says about its route.
func (v *view[T]) with(e *entry[T]) *view[T] {
	chunk, place, found := v.find(e.route)
	switch {
	case e.gone && !found:
		return v
	case len(v.chunks) == 0:
		return &view[T]{chunks: [][]*entry[T]{{e}}, count: 1, sent: v.sent}
	}
	next := &view[T]{count: v.count, sent: v.sent}
	old := v.chunks[chunk]
	changed := make([]*entry[T], 0, len(old)+1)
	changed = append(changed, old[:place]...)
	if !e.gone {
		changed = append(changed, e)
		next.count++
	}
	if found {
		place++
		next.count--
	}
	changed = append(changed, old[place:]...)

	next.chunks = make([][]*entry[T], 0, len(v.chunks)+1)
	next.chunks = append(next.chunks, v.chunks[:chunk]...)
	switch half := len(changed) / 2; {
	case len(changed) > chunkMax:
		next.chunks = append(next.chunks, slices.Clip(changed[:half]), changed[half:])
	case len(changed) > 0:
		next.chunks = append(next.chunks, changed)
	}
	next.chunks = append(next.chunks, v.chunks[chunk+1:]...)
	return next
}

// each calls f for every entry in order until it returns false.
func (v *view[T]) each(f func(*entry[T]) bool) {
	for _, chunk := range v.chunks {
		for _, e := range chunk {
			if !f(e) {
				return
			}
		}
	}
}

// difference is one route whose entries are not the same; one of the two is nil when the route is not held.
type difference[T any] struct{ before, after *entry[T] }

func (d difference[T]) route() string {
	if d.before != nil {
		return d.before.route
	}
	return d.after.route
}

// cursor walks a view.
type cursor[T any] struct {
	v            *view[T]
	chunk, place int
}

func (c *cursor[T]) current() *entry[T] {
	if c.chunk == len(c.v.chunks) {
		return nil
	}
	return c.v.chunks[c.chunk][c.place]
}

func (c *cursor[T]) next() {
	if c.place++; c.place == len(c.v.chunks[c.chunk]) {
		c.chunk, c.place = c.chunk+1, 0
	}
}

// diff returns the routes whose entries differ in two views, in segment order (OB-54).
func diff[T any](before, after *view[T], same func(a, b T) bool) []difference[T] {
	var found []difference[T]
	a, b := cursor[T]{v: before}, cursor[T]{v: after}
	for {
		x, y := a.current(), b.current()
		switch order := compareEntries(x, y); {
		case x == nil && y == nil:
			return found
		case order < 0:
			found = append(found, difference[T]{x, nil})
			a.next()
		case order > 0:
			found = append(found, difference[T]{nil, y})
			b.next()
		default:
			if x != y && !same(x.item, y.item) {
				found = append(found, difference[T]{x, y})
			}
			a.next()
			b.next()
		}
	}
}

// compareEntries orders entries; a missing one comes last.
func compareEntries[T any](x, y *entry[T]) int {
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return 1
	case y == nil:
		return -1
	}
	if x == y {
		return 0
	}
	return Compare(x.route, y.route)
}
