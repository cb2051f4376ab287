package lease

import (
	"math/bits"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
)

const (
	// wheelTick is the resolution of the wheel: a deadline fires at the first multiple of it that is not earlier, so never early
	// and at most one tick late (L-15, L-17).
	wheelTick = 10 * time.Millisecond

	digitBits   = 6
	digitValues = 1 << digitBits
	digitMask   = digitValues - 1
	// wheelLevels digits number every tick of a clock.Instant.
	wheelLevels = 7
)

// filed is something with a deadline and with room for the links of the wheel.
type filed[T any] interface {
	due() clock.Instant
	links() *wheelLinks[T]
}

// deadlined is what a wheel keeps: a pointer to something that can be filed.
type deadlined[T any] interface {
	comparable
	filed[T]
}

// wheelLinks is embedded in what a wheel keeps, so that filing needs no memory.
type wheelLinks[T any] struct {
	next, prev T
	tick       uint64 // when it fires, never later than its deadline says
	slot       uint16 // 1 + index of its list, 0 = in no list
}

// wheel is a hierarchical timing wheel (L-17). A slot of level n covers 64^n ticks; it is spread over the level below when its
// time comes, so that a deadline is touched at most once per level, a deadline in a year at most six times. The occupancy bits
// tell the next time at which there is something to do: an idle wheel never wakes.
//
// Renewals are lazy: a later deadline leaves the item where it is, and is looked at when the old one fires. Only an earlier one
// moves the item at once, see moved.
//
// The zero wheel is empty and ready.
type wheel[T deadlined[T]] struct {
	current  uint64 // no list holds an item of an earlier tick
	soonest  clock.Instant
	armed    bool // soonest is valid; false = empty
	count    int
	looked   uint64 // items taken out of a list by pop, whether due or not
	occupied [wheelLevels]uint64
	heads    [wheelLevels * digitValues]T
}

// tickOf returns the first tick that is not before the instant.
func tickOf(at clock.Instant) uint64 {
	if at <= 0 {
		return 0
	}
	return (uint64(at) + uint64(wheelTick) - 1) / uint64(wheelTick)
}

func tickStart(tick uint64) clock.Instant {
	if tick > uint64(clock.Never)/uint64(wheelTick) {
		return clock.Never
	}
	return clock.Instant(tick * uint64(wheelTick))
}

// add files x, which is in no wheel, under its deadline.
func (w *wheel[T]) add(x T) {
	l := x.links()
	l.tick = tickOf(x.due())
	tick := max(l.tick, w.current)
	level := max(0, bits.Len64(tick^w.current)-1) / digitBits
	digit := tick >> (level * digitBits) & digitMask
	at := level*digitValues + int(digit)

	var none T
	l.slot, l.prev, l.next = uint16(at+1), none, w.heads[at]
	if l.next != none {
		l.next.links().prev = x
	}
	w.heads[at] = x
	w.occupied[level] |= 1 << digit
	w.count++
	start := tickStart(tick >> (level * digitBits) << (level * digitBits))
	if !w.armed || start < w.soonest {
		w.armed, w.soonest = true, start
	}
}

// remove takes x out, if it is in the wheel.
func (w *wheel[T]) remove(x T) {
	l := x.links()
	if l.slot == 0 {
		return
	}
	var none T
	if l.next != none {
		l.next.links().prev = l.prev
	}
	if l.prev != none {
		l.prev.links().next = l.next
	} else {
		at := int(l.slot - 1)
		w.heads[at] = l.next
		if l.next == none {
			w.occupied[at/digitValues] &^= 1 << (at % digitValues)
		}
	}
	w.count--
	l.slot, l.next, l.prev = 0, none, none
}

// moved must be called when the deadline of x has changed. A later one costs nothing.
func (w *wheel[T]) moved(x T) {
	if tickOf(x.due()) < x.links().tick {
		w.remove(x)
		w.add(x)
	}
}

// first returns the list that comes first and when.
func (w *wheel[T]) first() (at int, tick uint64, ok bool) {
	for level := range wheelLevels {
		if w.occupied[level] == 0 {
			continue
		}
		digit := bits.TrailingZeros64(w.occupied[level])
		above := (level + 1) * digitBits
		start := w.current>>above<<above | uint64(digit)<<(level*digitBits)
		if !ok || start < tick {
			at, tick, ok = level*digitValues+digit, start, true
		}
	}
	return at, tick, ok
}

// pop takes out and returns one item whose deadline has passed. It looks at no more than budget items and counts them down;
// without a due item it returns false, either because none is left or because the budget is used up.
func (w *wheel[T]) pop(now clock.Instant, budget *int) (x T, ok bool) {
	limit := uint64(max(0, now)) / uint64(wheelTick)
	for *budget > 0 {
		at, tick, found := w.first()
		if !found || tick > limit {
			w.current = max(w.current, limit)
			w.armed, w.soonest = found, tickStart(tick)
			return x, false
		}
		w.current = max(w.current, tick)
		*budget--
		w.looked++
		x = w.heads[at]
		w.remove(x)
		if x.due() <= now {
			return x, true
		}
		w.add(x) // it was renewed, or its slot is spread over the level below
	}
	var none T
	return none, false
}

// next returns when pop should be called again, clock.Never while the wheel is empty. It may be too early, never too late.
func (w *wheel[T]) next() clock.Instant {
	if !w.armed {
		return clock.Never
	}
	return w.soonest
}
