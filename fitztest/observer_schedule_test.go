package fitztest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Random schedules of changes and faults against the real broker: whatever happens, at rest the inventory is what the broker lists, the
// changes lead to it, and the requests are bounded.
func TestObserverSchedules(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 1<<16), 5, 60).Draw(r, "steps")
		labels := rapid.Bool().Draw(r, "labels")
		limit := rapid.SampledFrom([]int{0, 2}).Draw(r, "repair limit")
		options := few
		if rapid.Bool().Draw(r, "websocket") {
			options = append(slices.Clone(few), fitztest.WithWebSocket())
		}
		ok := true
		t.Run("schedule", func(t *testing.T) {
			inWorld(t, setup{broker: options, client: []fitz.Option{fitz.WithRandom(func() float64 { return 0.3 })}}, labels, func(w *world) {
				schedule(w, steps, &fitz.ObserveOptions{PageSize: 2, RepairLimit: limit, ChangeBuffer: 8, ListTimeout: 5 * time.Second})
			})
			ok = !t.Failed()
		})
		if !ok {
			r.Fatalf("failed with labels %v, repair limit %d, WebSocket %v, steps %v", labels, limit, len(options) > len(few), steps)
		}
	})
}

func schedule(w *world, steps []int, options *fitz.ObserveOptions) {
	o := w.observe(options)
	held := map[string]bool{}
	var rules []*fitztest.Rule
	release := func() {
		for _, rule := range rules {
			rule.Remove()
		}
		rules = nil
	}
	notify, list, subscribe := toClient(wire.TypeLeaseNotify), toClient(wire.TypeLeaseList), toClient(wire.TypeLeaseSubscribe)
	changes := 0
	for _, step := range steps {
		name := fmt.Sprint("r", step>>4%7)
		switch step % 16 {
		case 0:
			w.net.Cut()
		case 1:
			if step>>12%4 == 0 {
				if !w.labels { // a close while a session without hello is being opened would count as a refusal
					release()
					w.rest(time.Minute)
				}
				w.broker.Restart()
				w.holder = w.broker.Holder()
				clear(held)
			}
		case 2:
			rules = append(rules, w.net.HoldAlone(once(list)))
		case 3:
			rules = append(rules, w.net.Hold(once(subscribe)))
		case 4:
			rules = append(rules, w.net.Hold(once(toBroker(wire.TypeLeaseList))))
		case 5:
			rules = append(rules, w.net.Drop(once(notify)))
		case 6:
			rules = append(rules, w.net.Edit(once(notify), malformed))
		case 7:
			rules = append(rules, w.net.Edit(once(list), refusal(wire.CodeLeaseTimeout)))
		case 8:
			rules = append(rules, w.net.Edit(once(list), refusal(wire.CodeLeaseInvalidListCursor)))
		case 9:
			rules = append(rules, w.net.Repeat(once(notify)))
		case 10:
			release()
			time.Sleep(time.Duration(step>>4) * time.Millisecond)
		default:
			if held[name] {
				w.free(name)
			} else {
				w.take(name)
			}
			held[name] = !held[name]
			changes++
			time.Sleep(time.Duration(step>>8%40) * time.Millisecond)
		}
	}
	release()
	w.rest(5 * time.Minute)
	s := o.is(fitz.ObserverReady, "")
	o.agrees()
	if snapshot, ok := o.Snapshot(); !ok || snapshot.Stale {
		w.Errorf("at rest %+v", s)
	}
	if uint64(w.subscribes()) > s.Generation {
		w.Errorf("OB-10: %d SUBSCRIBE in %d generations", w.subscribes(), s.Generation)
	}
	pages := 4 + 1
	if most := 2*changes + pages*(int(s.Passes)+2*len(steps)) + 10; w.lists() > most {
		w.Errorf("%d LIST for %d changes and %d passes", w.lists(), changes, s.Passes)
	}
	if err := o.Refresh(context.Background()); err != nil {
		w.Error(err)
	}
	synctest.Wait()
}
