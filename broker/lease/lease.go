package lease

import (
	"encoding/binary"
	"strings"
	"sync/atomic"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
)

const (
	// depth is the number of segments of a lease route (L-01).
	depth = 3
	// lengthPrefix is the size of the length before a text (L-60).
	lengthPrefix = 4
	// itemOverhead is charged for each lease, waiter and registration on top of its memory (lease_session_bytes_max).
	itemOverhead = 256
	// lateBytes is the size of the two fields of an item that are written late (L-53, L-60).
	lateBytes = 8 + 4
)

var pathStart = len(route.Lease.Scheme) + len("://")

// lease is one tenure of one route by one owner, from a grant to its end. Its identity, owner and encoded form never change;
// deadline, renewals and end are atomic, because pages are built from kept snapshots outside the lock of the family (L-53, L-93).
// Everything else belongs to the lock.
type lease struct {
	early     []byte    // the item without its late fields, encoded once and shared by pages and notifications (L-61)
	text      string    // the route; it aliases early
	ends      [2]uint16 // where realm and area end in text
	ownerSize uint16
	holder    *holder
	token     uint64 // fencing token of the whole ownership (L-46)

	deadline atomic.Int64  // clock.Instant
	ended    atomic.Uint64 // sequence number of its removal, 0 while it is held
	renewals atomic.Uint32

	wheelLinks[*lease]
	nextOfSession, prevOfSession *lease
	queue                        *queue // nil without waiters
}

// holder is what a lease knows of its session after the session is gone: a snapshot must not keep a session in memory.
type holder struct {
	incarnation uint64        // L-13
	ended       atomic.Uint64 // sequence number of the end of the session: all its leases ended with it (L-80)
	session     *session      // nil after the end; belongs to the lock
}

// newLease returns a lease with the given encoded form, which starts with the length and the text of the route.
func newLease(early []byte, h *holder, token uint64, deadline clock.Instant) *lease {
	size := int(binary.BigEndian.Uint32(early))
	owner := early[lengthPrefix+size:]
	l := &lease{
		early:     early,
		text:      codec.Alias(early[lengthPrefix : lengthPrefix+size]),
		ownerSize: uint16(binary.BigEndian.Uint32(owner)),
		holder:    h,
		token:     token,
	}
	l.ends = endsOf(l.text)
	l.deadline.Store(int64(deadline))
	return l
}

// pivot returns a lease that is only compared: it stands before every lease whose first segments, in the order of some rotation,
// are the ones given.
func pivot(segments [depth]string) *lease {
	l := &lease{text: route.Lease.Scheme + "://" + strings.Join(segments[:], "/")}
	l.ends[0] = uint16(pathStart + len(segments[0]))
	l.ends[1] = l.ends[0] + 1 + uint16(len(segments[1]))
	return l
}

func endsOf(text string) (ends [2]uint16) {
	first := pathStart + strings.IndexByte(text[pathStart:], '/')
	second := first + 1 + strings.IndexByte(text[first+1:], '/')
	return [2]uint16{uint16(first), uint16(second)}
}

// segment returns realm, area or resource.
func (l *lease) segment(i int) string {
	switch i {
	case 0:
		return l.text[pathStart:l.ends[0]]
	case 1:
		return l.text[l.ends[0]+1 : l.ends[1]]
	default:
		return l.text[l.ends[1]+1:]
	}
}

func (l *lease) segments() [depth]string {
	return [depth]string{l.segment(0), l.segment(1), l.segment(2)}
}

// matches reports whether the route fits the mask, position by position.
func (l *lease) matches(m *pattern.Mask) bool {
	for i := range depth {
		if m.Wild&(1<<i) == 0 && m.Segments[i] != l.segment(i) {
			return false
		}
	}
	return true
}

// encodedRoute is the length and the text of the route, as every message carries it.
func (l *lease) encodedRoute() []byte { return l.early[:lengthPrefix+len(l.text)] }

// owner is the logical owner. The result aliases memory that never changes.
func (l *lease) owner() string {
	at := 2*lengthPrefix + len(l.text)
	return codec.Alias(l.early[at : at+int(l.ownerSize)])
}

// itemBytes is the size of the item of the lease on a page (L-60).
func (l *lease) itemBytes() int { return len(l.early) + lateBytes }

// charge is what the lease counts for lease_session_bytes_max and lease_family_bytes_max.
func (l *lease) charge() int64 { return int64(cap(l.early)) + itemOverhead }

func (l *lease) expiry() clock.Instant { return clock.Instant(l.deadline.Load()) }

var _ filed[*lease] = (*lease)(nil)

// due and links serve the wheel.
func (l *lease) due() clock.Instant         { return l.expiry() }
func (l *lease) links() *wheelLinks[*lease] { return &l.wheelLinks }

// closed reports whether the session of the lease is gone, which ended the lease (L-80).
func (l *lease) closed() bool { return l.holder.ended.Load() != 0 }

// over reports whether nobody holds the route any more at now, although the lease was not removed yet (L-15, L-16).
func (l *lease) over(now clock.Instant) bool { return l.expiry() <= now || l.closed() }

// visible reports whether the lease was held when the family had made that many changes and the time was captured (L-53). It
// decides the same at the capture and at any time later: a lease that was held then can only get deadlines after it.
func (l *lease) visible(captured clock.Instant, sequence uint64) bool {
	end := l.holder.ended.Load()
	return l.expiry() > captured && (end == 0 || end > sequence)
}

// late returns the two fields that an item shows as of now: whole seconds left, rounded down, 0 after the end, and the number of
// renewals (L-19, L-53).
func (l *lease) late(now clock.Instant) (expiresIn uint64, renewals uint32) {
	renewals = l.renewals.Load()
	if l.ended.Load() != 0 || l.closed() {
		return 0, renewals
	}
	return wholeSeconds(l.expiry().Sub(now)), renewals
}

// compareFrom orders leases by their segments, starting with segment first and going round (L-50).
func compareFrom(first int, a, b *lease) int {
	if a == b {
		return 0
	}
	for range depth {
		if c := strings.Compare(a.segment(first), b.segment(first)); c != 0 {
			return c
		}
		if first++; first == depth {
			first = 0
		}
	}
	return 0
}
