package lease

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/broker/clock"
)

type timed struct {
	id       int
	deadline clock.Instant
	wheelLinks[*timed]
}

var _ filed[*timed] = (*timed)(nil)

func (x *timed) due() clock.Instant         { return x.deadline }
func (x *timed) links() *wheelLinks[*timed] { return &x.wheelLinks }

func drain(w *wheel[*timed], now clock.Instant) []*timed {
	var out []*timed
	for budget := 1 << 30; ; {
		x, ok := w.pop(now, &budget)
		if !ok {
			return out
		}
		out = append(out, x)
	}
}

// The wheel against a sorted list: nothing fires early, nothing is missed or more than a tick late, renewals in both directions
// and removals included, also when pop works in slices (L-15, L-17, L-18).
func TestWheelAgreesWithASortedList(t *testing.T) {
	spans := rapid.SampledFrom([]time.Duration{
		5 * time.Millisecond, 100 * time.Millisecond, time.Second, 41 * time.Second, time.Hour, 365 * 24 * time.Hour,
	})
	rapid.Check(t, func(rt *rapid.T) {
		var w wheel[*timed]
		var items []*timed
		now, serial := clock.Instant(0), 0
		duration := func() time.Duration {
			return time.Duration(rapid.Int64Range(1, int64(spans.Draw(rt, "span"))).Draw(rt, "duration"))
		}
		pick := func() int { return rapid.IntRange(0, len(items)-1).Draw(rt, "item") }
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				if w.count != len(items) {
					rt.Fatalf("%d items, want %d", w.count, len(items))
				}
				first := clock.Never
				for _, x := range items {
					first = min(first, tickStart(tickOf(x.deadline)))
				}
				if w.next() > max(first, now) {
					rt.Fatalf("wakes at %d, first deadline %d", w.next(), first)
				}
			},
			"add": func(*rapid.T) {
				serial++
				x := &timed{id: serial, deadline: now.Add(duration())}
				w.add(x)
				items = append(items, x)
			},
			"renew": func(rt *rapid.T) {
				if len(items) == 0 {
					return
				}
				x := items[pick()]
				x.deadline = now.Add(duration())
				w.moved(x)
			},
			"remove": func(rt *rapid.T) {
				if len(items) == 0 {
					return
				}
				i := pick()
				w.remove(items[i])
				w.remove(items[i])
				items = slices.Delete(items, i, i+1)
			},
			"slice": func(rt *rapid.T) {
				// A slice may stop anywhere; what it returns must be due.
				now = now.Add(duration())
				budget := rapid.IntRange(0, 3).Draw(rt, "budget")
				for {
					x, ok := w.pop(now, &budget)
					if !ok {
						break
					}
					if x.deadline > now {
						rt.Fatalf("item %d fires %v early", x.id, x.deadline.Sub(now))
					}
					items = slices.DeleteFunc(items, func(o *timed) bool { return o == x })
				}
			},
			"advance": func(rt *rapid.T) {
				now = now.Add(duration())
				for _, x := range drain(&w, now) {
					if x.deadline > now {
						rt.Fatalf("item %d fires %v early", x.id, x.deadline.Sub(now))
					}
					items = slices.DeleteFunc(items, func(o *timed) bool { return o == x })
				}
				for _, x := range items {
					if x.deadline.Add(wheelTick) <= now {
						rt.Fatalf("item %d is %v late", x.id, now.Sub(x.deadline))
					}
				}
			},
		})
	})
}

// L-15, L-17: two million virtual deadlines, each taken when the wheel asks for it: none early, none missed, none more than one
// tick late, each once.
func TestWheelFiresEveryDeadlineOnceInTime(t *testing.T) {
	const n = 200_000
	var w wheel[*timed]
	items := make([]timed, n)
	state := uint64(1)
	for i := range items {
		state = state*6364136223846793005 + 1442695040888963407
		items[i] = timed{id: i, deadline: clock.Instant(state >> 24 % uint64(time.Hour))}
		w.add(&items[i])
	}
	fired := make([]bool, n)
	var last clock.Instant
	for total := 0; total < n; {
		now := w.next()
		if now < last {
			t.Fatalf("time goes back from %d to %d", last, now)
		}
		last = now
		for _, x := range drain(&w, now) {
			if lag := now.Sub(x.deadline); lag < 0 || lag >= wheelTick || fired[x.id] {
				t.Fatalf("item %d: lag %v, fired before %v", x.id, lag, fired[x.id])
			}
			fired[x.id] = true
			total++
		}
	}
	if w.next() != clock.Never || w.count != 0 {
		t.Errorf("empty wheel wakes at %d with %d items", w.next(), w.count)
	}
}

// A deadline in a year is looked at once per level, and renewals until then cost nothing more.
func TestWheelYearCostsAFewLooks(t *testing.T) {
	var w wheel[*timed]
	year := clock.Instant(365 * 24 * time.Hour)
	x := &timed{deadline: year}
	w.add(x)
	wakes := 0
	for w.count > 0 {
		wakes++
		drain(&w, w.next())
	}
	if wakes > wheelLevels || w.looked > wheelLevels {
		t.Errorf("%d wakes, %d looks", wakes, w.looked)
	}
}

func TestWheelRenewalTouchesNothingUntilTheOldDeadline(t *testing.T) {
	var w wheel[*timed]
	x := &timed{deadline: clock.Instant(30 * time.Second)}
	w.add(x)
	for i := range 1000 {
		x.deadline = clock.Instant(30*time.Second + time.Duration(i)*time.Millisecond)
		w.moved(x)
	}
	if w.looked != 0 {
		t.Errorf("%d looks", w.looked)
	}
	// L-44: a renewal may shorten.
	x.deadline = clock.Instant(time.Second)
	w.moved(x)
	if got := drain(&w, clock.Instant(time.Second)); len(got) != 1 {
		t.Error("a shortened deadline did not fire")
	}
}

// L-18: a mass expiry is served in slices.
func TestWheelKeepsItsBudget(t *testing.T) {
	var w wheel[*timed]
	for i := range 5000 {
		w.add(&timed{id: i, deadline: clock.Instant(2 * time.Hour)})
	}
	now := clock.Instant(3 * time.Hour)
	seen := 0
	for rounds := 0; w.count > 0; rounds++ {
		budget, before := 100, w.looked
		for {
			if _, ok := w.pop(now, &budget); !ok {
				break
			}
			seen++
		}
		if w.looked-before > 100 || rounds > 5000 {
			t.Fatalf("%d looks in round %d", w.looked-before, rounds)
		}
	}
	if seen != 5000 {
		t.Errorf("%d fired", seen)
	}
}

func FuzzWheel(f *testing.F) {
	f.Add([]byte{1, 200, 3, 4, 0, 9, 255, 2})
	f.Fuzz(func(t *testing.T, script []byte) {
		var w wheel[*timed]
		var items []*timed
		now := clock.Instant(0)
		for len(script) >= 2 {
			op, arg := script[0], script[1]
			script = script[2:]
			span := time.Duration(1) << (arg % 56)
			switch {
			case op%4 == 0 || len(items) == 0:
				x := &timed{id: len(items), deadline: now.Add(span)}
				w.add(x)
				items = append(items, x)
			case op%4 == 1:
				now = now.Add(span)
				fired := map[*timed]bool{}
				for _, x := range drain(&w, now) {
					if x.deadline > now {
						t.Fatalf("fires %v early", x.deadline.Sub(now))
					}
					fired[x] = true
				}
				if len(fired) > 0 { // once for all of them: a long script has many
					items = slices.DeleteFunc(items, func(x *timed) bool { return fired[x] })
				}
			default:
				x := items[int(op/4)%len(items)]
				x.deadline = now.Add(span)
				w.moved(x)
			}
		}
		late := slices.MinFunc(append(items, &timed{deadline: clock.Never}), func(a, b *timed) int {
			return cmp.Compare(a.deadline, b.deadline)
		})
		if late.deadline.Add(wheelTick) <= now && w.next() > now {
			t.Fatalf("deadline %d is forgotten at %d", late.deadline, now)
		}
	})
}
