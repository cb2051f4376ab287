package observer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func segments(route string) []string { return strings.Split(route, "/") }

// Compare is the order of the lists of segments (OB-50).
func TestCompareIsSegmentOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		route := rapid.StringMatching(`[a-c!.~/]{0,8}`)
		a, b := route.Draw(r, "a"), route.Draw(r, "b")
		want := slices.Compare(segments(a), segments(b))
		got := Compare(a, b)
		if (got < 0) != (want < 0) || (got > 0) != (want > 0) {
			r.Fatalf("Compare(%q, %q) = %d, want %d", a, b, got, want)
		}
	})
}

// A view is a sorted map, and changing one leaves the older ones as they were.
func TestViewIsAPersistentSortedMap(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		model := map[string]int{}
		v := newView[int](nil, 0)
		var olds []*view[int]
		var models []map[string]int
		steps := rapid.IntRange(0, 600).Draw(r, "steps")
		spread := rapid.IntRange(1, 500).Draw(r, "spread")
		for i := range steps {
			route := fmt.Sprintf("x://%d", rapid.IntRange(0, spread).Draw(r, "route"))
			e := &entry[int]{route: route, item: i, gone: rapid.IntRange(0, 2).Draw(r, "gone") == 0}
			if i%50 == 0 {
				olds, models = append(olds, v), append(models, maps.Clone(model))
			}
			v = v.with(e)
			if e.gone {
				delete(model, route)
			} else {
				model[route] = i
			}
			if got := v.get(route); (got == nil) != e.gone {
				r.Fatalf("get %s: %v", route, got)
			}
		}
		for i, old := range append(olds, v) {
			m := model
			if i < len(models) {
				m = models[i]
			}
			var routes []string
			old.each(func(e *entry[int]) bool {
				routes = append(routes, e.route)
				if m[e.route] != e.item {
					r.Errorf("%s is %d, want %d", e.route, e.item, m[e.route])
				}
				return true
			})
			if len(routes) != len(m) || old.count != len(m) || !slices.IsSortedFunc(routes, Compare) {
				r.Fatalf("view %d: %d entries, %d counted, want %d; sorted %v", i, len(routes), old.count, len(m), slices.IsSortedFunc(routes, Compare))
			}
		}
	})
}

// OB-54: the differences of two views, applied to the first, give the second, in segment order.
func TestDiff(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		draw := func(name string) *view[int] {
			var entries []*entry[int]
			for n, item := range rapid.MapOfN(rapid.IntRange(0, 300), rapid.IntRange(0, 1), 0, 300).Draw(r, name) {
				entries = append(entries, &entry[int]{route: fmt.Sprintf("x://%d", n), item: item})
			}
			return newView(entries, 0)
		}
		before, after := draw("before"), draw("after")
		v := before
		last := ""
		for _, d := range diff(before, after, func(a, b int) bool { return a == b }) {
			if last != "" && Compare(last, d.route()) >= 0 {
				r.Fatalf("%s before %s", last, d.route())
			}
			last = d.route()
			if d.after != nil {
				v = v.with(d.after)
			} else {
				v = v.with(&entry[int]{route: d.before.route, gone: true})
			}
		}
		if left := diff(v, after, func(a, b int) bool { return a == b }); len(left) != 0 {
			r.Fatalf("%d differences are left", len(left))
		}
	})
}

// The inbox stays within its bounds whatever is notified (OB-24).
func TestInboxIsBounded(t *testing.T) {
	b := newInbox(10, 20)
	b.freeze() // a view is followed
	for i := range 11 {
		b.mark(1, fmt.Sprint(i))
	}
	if routes, all := b.pending(func(string) bool { return false }); !all || len(routes) != 0 {
		t.Errorf("%d dirty routes, all %v", len(routes), all)
	}
	b.beginPass(1, 5)
	for i := range 20 {
		b.mark(1, fmt.Sprint(i))
	}
	if b.sinceAll || len(b.since) != 20 {
		t.Errorf("during a pass the larger bound holds: %d, all %v", len(b.since), b.sinceAll)
	}
	b.mark(1, "one more")
	if d, all := b.freeze(); !all || len(d) != 0 {
		t.Errorf("D has %d routes, all %v", len(d), all)
	}
	if len(b.notified) > 20 || b.unexpected([]string{"never"}) != 0 {
		t.Error("OB-26: what is not known counts as drift")
	}
	// Once a pass that began after the overflow is installed, notifications count again.
	b.beginPass(2, 5)
	b.mark(1, "told")
	b.installed(1)
	if b.unexpected([]string{"never"}) != 0 {
		t.Error("OB-26: an older pass ends what was lost later")
	}
	b.installed(2)
	if n := b.unexpected([]string{"told", "never"}); n != 1 {
		t.Errorf("OB-26: %d unexpected", n)
	}
	if b.mark(2, "x") {
		t.Error("OB-31: a notification of another generation counts")
	}
	if got := b.count(); got != 33 {
		t.Errorf("%d notifications", got)
	}
}
