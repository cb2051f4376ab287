package lease

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/tidwall/btree"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// inventory is the held set as three ordered maps: by (realm, area, resource), (area, resource, realm) and (resource, realm, area).
// Every selector shape is a prefix of one of them (L-50). A renewal touches none (L-53).
//
// The maps are copy-on-write: a copy takes constant time and is a snapshot of the membership that can be read while the original
// changes (L-50, L-93).
type inventory [depth]*btree.BTreeG[*lease]

func newInventory() (v inventory) {
	for first := range depth {
		less := func(a, b *lease) bool { return compareFrom(first, a, b) < 0 }
		v[first] = btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
	}
	return v
}

func (v *inventory) add(l *lease) {
	for _, tree := range v {
		tree.Set(l)
	}
}

func (v *inventory) remove(l *lease) {
	for _, tree := range v {
		tree.Delete(l)
	}
}

// keep returns copies of the maps that the masks need.
func (v *inventory) keep(masks []pattern.Mask) (kept inventory) {
	for i := range masks {
		if first := plans[masks[i].Wild].first; kept[first] == nil {
			kept[first] = v[first].Copy()
			if mutant.On("lease.list-live") {
				kept[first] = v[first]
			}
		}
	}
	return kept
}

// plan says in which map the leases of a mask are neighbours: the one that starts with segment first, in which they share their
// first prefix segments.
type plan struct{ first, prefix int }

// plans has the plan of every mask shape; bit i of the index is set when position i is "*".
var plans = [1 << depth]plan{
	0b000: {0, 3}, // realm, area, resource
	0b100: {0, 2}, // realm, area
	0b110: {0, 1}, // realm
	0b111: {0, 0}, // everything
	0b001: {1, 2}, // area, resource
	0b101: {1, 1}, // area
	0b011: {2, 1}, // resource
	0b010: {2, 2}, // resource, realm
}

// start returns where the leases of the mask begin in their map.
func (p plan) start(m *pattern.Mask) *lease {
	var segments [depth]string
	for i := range p.prefix {
		at := (p.first + i) % depth
		segments[at] = m.Segments[at]
	}
	return pivot(segments)
}

// inside reports whether the lease shares the prefix. Behind the first one that does not, no other does.
func (p plan) inside(m *pattern.Mask, l *lease) bool {
	for i := range p.prefix {
		if at := (p.first + i) % depth; m.Segments[at] != l.segment(at) {
			return false
		}
	}
	return true
}

// listing is a position in the identities of one selector at one point of the order of changes (L-51). The masks are visited in
// their order; an identity that an earlier mask has is examined and not returned again.
type listing struct {
	trees    inventory
	masks    []pattern.Mask
	captured clock.Instant
	sequence uint64 // changes of the family at the capture
	mask     int    // the one that is being visited
	next     *lease // the first identity of it that was not examined; nil = its first one
}

// page is one page while it is built.
type page struct {
	clock     clock.Clock
	builtAt   clock.Instant // of the late fields
	limit     int           // items
	examined  int
	most      int           // identities examined
	slice     time.Duration // time for it
	value     []byte
	items     int
	itemBytes int
	endedBy   string // the bound that ended it, "" when it was the limit or the end of the range
}

// Names of the bounds that may end a page, as fitz_lease_list_budget_exhausted_total shows them.
const (
	boundPageBytes = "lease_list_page_bytes_max"
	boundExamined  = "lease_list_examined_max"
	boundSlice     = "lease_list_slice_ms"

	// sliceEvery is how often the time of a page is looked at, in identities (L-58).
	sliceEvery = 256
)

// begin starts the value of the page in dst.
func (p *page) begin(dst []byte) { p.value = wire.AppendLeaseListReplyHead(dst[:0], 0) }

// finish completes the value.
func (p *page) finish(next wire.LeaseCursor, hasNext bool) []byte {
	binary.BigEndian.PutUint32(p.value[wire.LeaseListReplyCountOffset:], uint32(p.items))
	p.value = wire.AppendLeaseListReplyTail(p.value, next, hasNext)
	return p.value
}

// ended reports whether a bound that does not depend on the next item ends the page before another identity is examined (L-58).
func (p *page) ended() bool {
	switch {
	case p.items >= p.limit:
		return true
	case p.examined >= p.most:
		p.endedBy = boundExamined
		return true
	case p.examined > 0 && p.examined%sliceEvery == 0 && p.clock.Now().Sub(p.builtAt) >= p.slice:
		p.endedBy = boundSlice
		return true
	}
	return false
}

// add appends the item of l, or reports that it does not fit any more. One item always fits.
func (p *page) add(l *lease) bool {
	if p.items > 0 && p.itemBytes+l.itemBytes() > bounds.LeaseListPageBytesMax {
		p.endedBy = boundPageBytes
		return false
	}
	p.value = append(p.value, l.early...)
	expiresIn, renewals := l.late(p.builtAt)
	p.value = wire.AppendLeaseItemLate(p.value, expiresIn, renewals)
	p.items++
	p.itemBytes += l.itemBytes()
	return true
}

// fill examines identities until the page ends, and reports whether the range has more (L-57 to L-59). The next call goes on with
// the first identity that was not examined.
func (g *listing) fill(p *page) (more bool) {
	for ; g.mask < len(g.masks); g.mask++ {
		m := &g.masks[g.mask]
		plan := plans[m.Wild]
		from := g.next
		if from == nil {
			from = plan.start(m)
		}
		g.next = nil
		g.trees[plan.first].Ascend(from, func(l *lease) bool {
			if !plan.inside(m, l) {
				return false
			}
			if p.ended() || g.wanted(l) && !p.add(l) {
				g.next = l
				return false
			}
			p.examined++
			return true
		})
		if g.next != nil {
			return !mutant.On("lease.list-truncated")
		}
	}
	return false
}

// wanted reports whether l was held at the capture and is not an identity of an earlier mask.
func (g *listing) wanted(l *lease) bool {
	for i := range g.masks[:g.mask] {
		if l.matches(&g.masks[i]) {
			return false
		}
	}
	return l.visible(g.captured, g.sequence)
}

// Item is one held lease as the admin interface shows it. It carries no fencing token (L-05).
type Item struct {
	Route       string
	OwnerID     string
	Incarnation uint64 // L-13
	AcquiredAt  string // RFC 3339, UTC, milliseconds
	ExpiresIn   uint64 // seconds, rounded down
	Renewals    uint32
}

// itemOf reads the encoded form of a lease back.
func itemOf(l *lease, now clock.Instant) (Item, error) {
	var v wire.LeaseItem
	expiresIn, renewals := l.late(now)
	encoded := wire.AppendLeaseItemLate(append([]byte(nil), l.early...), expiresIn, renewals)
	if err := v.DecodeValue(encoded); err != nil {
		return Item{}, err
	}
	return Item{
		Route: v.Route, OwnerID: v.OwnerID, Incarnation: v.HolderIncarnation, AcquiredAt: v.AcquiredAt,
		ExpiresIn: v.ExpiresIn, Renewals: v.Renewals,
	}, nil
}

// each yields every lease of the listing until yield returns false or ctx ends.
func (g *listing) each(ctx context.Context, c clock.Clock, yield func(Item) bool) error {
	var err error
	examined := 0
	for ; g.mask < len(g.masks); g.mask++ {
		m := &g.masks[g.mask]
		plan := plans[m.Wild]
		stopped := false
		g.trees[plan.first].Ascend(plan.start(m), func(l *lease) bool {
			if !plan.inside(m, l) {
				return false
			}
			if examined++; examined%sliceEvery == 0 {
				if err = ctx.Err(); err != nil {
					return false
				}
			}
			if !g.wanted(l) {
				return true
			}
			var item Item
			if item, err = itemOf(l, c.Now()); err != nil {
				return false
			}
			stopped = !yield(item)
			return !stopped
		})
		if err != nil || stopped {
			return err
		}
	}
	return nil
}
