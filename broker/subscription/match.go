package subscription

import (
	"math/bits"
	"slices"

	"github.com/fitzwire/fitz/generated/go/pattern"
)

// Matches walks the registrations that match one route, in order of their ids, each once (R-35, W-94). It needs no memory beyond
// itself. The index may not be changed while it is in use, except that a registration which Next has returned may be removed
// when the walk then starts again behind its id.
type Matches[T any] struct {
	index   *Index[T]
	upTo    uint64
	count   int
	cursors [shapesMax][]entry[T] // the first count: entries not yet visited; the first entry of each is live and not above upTo
}

// Match starts a walk over the registrations that match a route of the given segments, with an id above after and at most upTo.
// The segments are those of a concrete route of the fixed depth of the domain.
func (x *Index[T]) Match(m *Matches[T], segments []string, after, upTo uint64) {
	m.index, m.upTo, m.count = x, upTo, 0
	if x.live == 0 || len(segments) > pattern.MaxDepth {
		return
	}
	var literals [pattern.MaxDepth]uint64
	for i, segment := range segments {
		literals[i] = x.hashSegment(i, segment)
	}
	// The first slot of every lookup is loaded before the first bucket is looked at, so that their cache misses overlap.
	var hashes [shapesMax]uint64
	var hits uint32
	live := x.live & (1<<(1<<len(segments)) - 1)
	for ; live != 0; live &= live - 1 {
		wild := bits.TrailingZeros32(live)
		hash := x.salts[wild]
		for i := range segments {
			if wild&(1<<i) == 0 {
				hash ^= literals[i]
			}
		}
		hash &= x.fold
		hashes[wild] = hash
		x.work.Probes++
		if t := x.table(hash); t.count > 0 && t.slots[t.home(hash)].bucket != nil {
			hits |= 1 << wild
		}
	}
	for ; hits != 0; hits &= hits - 1 {
		wild := bits.TrailingZeros32(hits)
		if b := x.find(hashes[wild], uint8(wild), segments); b != nil {
			m.enter(b, after)
		}
	}
}

// enter adds the entries of b behind the id after.
func (m *Matches[T]) enter(b *bucket[T], after uint64) {
	entries := b.entries
	if after > 0 && entries[0].id <= after {
		at, found := slices.BinarySearchFunc(entries, after, compareID)
		if found {
			at++
		}
		entries = entries[at:]
	}
	if entries = m.skip(entries); entries != nil {
		m.cursors[m.count] = entries
		m.count++
	}
}

// skip drops dead entries at the front. It returns nil when nothing is left within upTo.
func (m *Matches[T]) skip(entries []entry[T]) []entry[T] {
	for len(entries) > 0 && entries[0].id <= m.upTo {
		m.index.work.Examined++
		if entries[0].registration != nil {
			return entries
		}
		entries = entries[1:]
	}
	return nil
}

// Next returns the next registration, nil when there is none left.
func (m *Matches[T]) Next() *Registration[T] {
	if m.count == 0 {
		return nil
	}
	least := m.cursors[0][0].id
	for i := 1; i < m.count; i++ {
		least = min(least, m.cursors[i][0].id)
	}
	var found *Registration[T]
	for i := 0; i < m.count; {
		head := m.cursors[i][0]
		if head.id != least {
			i++
			continue
		}
		found = head.registration
		rest := m.skip(m.cursors[i][1:])
		if rest == nil {
			m.count--
			m.cursors[i] = m.cursors[m.count]
			m.cursors[m.count] = nil
			continue
		}
		m.cursors[i] = rest
		i++
	}
	return found
}
