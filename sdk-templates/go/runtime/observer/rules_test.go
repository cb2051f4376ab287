package observer

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fitzwire/fitz/internal/reference"
)

// The table of transitions is that of section 2, row by row.
func TestTransitionsAgreeWithTheReference(t *testing.T) {
	type row struct{ from, event, to string }
	rows := reference.Rows(t, func(d *reference.Docs) ([]row, error) {
		table, err := d.Table("observer.md", "2", "from", "event", "to", "action")
		var rows []row
		for _, r := range table.Rows {
			rows = append(rows, row{r.Cells[0], r.Cells[1], r.Cells[2]})
		}
		return rows, err
	})
	// What the rows of the document mean: the transitions that they must have, as from/event/to.
	meaning := map[row][]string{
		{"starting", "subscription acknowledged", "syncing"}: {"starting/acknowledged/syncing"},
		{"starting", "session lost, SUBSCRIBE failed with backoff, reconnect or immediate class", "starting"}: {
			"starting/gap/starting", "starting/refused/starting"},
		{"syncing", "candidate installed (OB-13)", "ready"}:                                       {"syncing/installed/ready"},
		{"syncing", "gap, never synced", "starting"}:                                              {"syncing/gap/starting"},
		{"syncing", "gap, synced", "stale"}:                                                       {"syncing/gap/stale"},
		{"ready", "gap", "stale"}:                                                                 {"ready/gap/stale"},
		{"ready", "stale_after without a good pass", "stale"}:                                     {"ready/overdue/stale"},
		{"stale", "subscription acknowledged", "syncing"}:                                         {"stale/acknowledged/syncing"},
		{"stale (no_recent_pass)", "candidate installed", "ready"}:                                {"stale/installed/ready"},
		{"stale", "gap, or SUBSCRIBE failed with backoff, reconnect or immediate class", "stale"}: {"stale/gap/stale", "stale/refused/stale"},
		{"starting, syncing, ready, stale", "error of class never or reauth", "failed"}: {
			"starting/fatal/failed", "syncing/fatal/failed", "ready/fatal/failed", "stale/fatal/failed"},
		{"any but closed", "close", "closed"}: {
			"starting/closing/closed", "syncing/closing/closed", "ready/closing/closed", "stale/closing/closed", "failed/closing/closed"},
	}
	want := map[string]bool{"ready/installed/ready": true} // "a periodic pass never leaves ready"
	for _, r := range rows {
		r.event = strings.ReplaceAll(r.event, "`", "")
		r.from = strings.ReplaceAll(r.from, "`", "")
		means, ok := meaning[r]
		if !ok {
			t.Errorf("the document has a row that the code does not know: %+v", r)
		}
		for _, m := range means {
			want[m] = true
		}
		delete(meaning, r)
	}
	for r := range meaning {
		t.Errorf("the document has no row %+v", r)
	}
	events := [...]string{"acknowledged", "refused", "installed", "gap", "overdue", "fatal", "closing"}
	got := map[string]bool{}
	for _, tr := range transitions {
		got[fmt.Sprintf("%v/%s/%v", tr.from, events[tr.on], tr.to)] = true
	}
	for name := range want {
		if !got[name] {
			t.Errorf("no transition %s", name)
		}
	}
	for name := range got {
		if !want[name] {
			t.Errorf("transition %s is not in the document", name)
		}
	}
}

// At most one transition applies to a state, an event and what is known.
func TestTransitionsAreUnambiguous(t *testing.T) {
	for from := Starting; from <= Closed; from++ {
		for on := acknowledged; on <= closing; on++ {
			for _, synced := range []bool{false, true} {
				for reason := NoReason; reason <= HasClosed; reason++ {
					n := 0
					for _, tr := range transitions {
						if tr.from == from && tr.on == on && tr.when.holds(synced, reason) {
							n++
						}
					}
					if n > 1 {
						t.Errorf("%v, event %d, synced %v, %v: %d transitions", from, on, synced, reason, n)
					}
				}
			}
		}
	}
}

func complete(t *testing.T, o Options) Options {
	t.Helper()
	o, err := o.Complete(Options{
		ReconcileMin: 5 * time.Second, ReconcileMax: time.Minute, ReconcileJitter: 0.2, ChangeBuffer: 256, Coalesce: 25 * time.Millisecond,
		RepairLimit: 64, MaxItems: 100_000, ListTimeout: 10 * time.Second,
	}, Limits{TTLMax: 24 * time.Hour, PageMax: 500})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// OBS-032 (OB-41): 1,000 seeds give waits that are spread over the range and stay inside it; one fixed number gives one exact wait.
func TestWaitIsSpread(t *testing.T) {
	o := complete(t, Options{ExpectedTTL: 30 * time.Second})
	var tenths [10]int
	for seed := range int64(1000) {
		d := o.Wait(rand.New(rand.NewSource(seed)).Float64())
		if d < 12*time.Second || d > 18*time.Second {
			t.Fatalf("seed %d: %v", seed, d)
		}
		tenths[min(9, int((d-12*time.Second)*10/(6*time.Second)))]++
	}
	for i, n := range tenths {
		if n < 50 || n > 150 {
			t.Errorf("tenth %d has %d of 1,000", i, n)
		}
	}
	for random, want := range map[float64]time.Duration{0: 12 * time.Second, 0.25: 13500 * time.Millisecond, 0.5: 15 * time.Second} {
		if got := o.Wait(random); got != want {
			t.Errorf("%v gives %v, want %v", random, got, want)
		}
	}
}

// OB-04: not a number is no jitter.
func TestJitterThatIsNoNumber(t *testing.T) {
	if _, err := (Options{ReconcileJitter: math.NaN()}).Complete(complete(t, Options{}), Limits{PageMax: 1}); err == nil {
		t.Error("accepted")
	}
}

// The defaults and ranges of section 1, as the document writes them, are those of the code.
func TestRangesAgreeWithTheReference(t *testing.T) {
	rows := reference.Rows(t, func(d *reference.Docs) ([][]string, error) {
		table, err := d.Table("observer.md", "1", "option", "default", "valid", "meaning")
		var rows [][]string
		for _, r := range table.Rows {
			rows = append(rows, r.Cells)
		}
		return rows, err
	})
	want := map[string]string{
		"expected_ttl":     "1 s to lease_ttl_secs_max",
		"reconcile_min":    "1 s to 1 h",
		"reconcile_max":    "reconcile_min to 24 h",
		"reconcile_jitter": "above 0, at most 0.5",
		"page_size":        "0 to 500",
		"change_buffer":    "1 to 65,536",
		"coalesce":         "0 to 1,000 ms",
		"repair_limit":     "1 to 1,024",
		"include_renewals": "bool",
		"max_items":        "1 to 10,000,000",
		"list_timeout":     "100 ms to 10 min",
	}
	for _, cells := range rows {
		name, _, _ := strings.Cut(strings.ReplaceAll(cells[0], "`", ""), " ")
		if valid := strings.ReplaceAll(cells[2], "`", ""); want[name] != valid {
			t.Errorf("%s: the document says %q, this test %q: change the ranges in options.go", name, valid, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("the document has no option %s", name)
	}
	ranges := []struct{ got, want any }{
		{ttlMin, time.Second}, {reconcileFloor, time.Second}, {reconcileMinCap, time.Hour}, {reconcileMaxCap, 24 * time.Hour},
		{jitterMax, 0.5}, {changeBufferCap, 65_536}, {coalesceCap, time.Second}, {repairLimitCap, 1024}, {maxItemsCap, 10_000_000},
		{listTimeoutFloor, 100 * time.Millisecond}, {listTimeoutCap, 10 * time.Minute},
	}
	for i, r := range ranges {
		if fmt.Sprint(r.got) != fmt.Sprint(r.want) {
			t.Errorf("range %d is %v, want %v", i, r.got, r.want)
		}
	}
}

// Words of the code are those of the document.
func TestNamesAgreeWithTheReference(t *testing.T) {
	docs, err := reference.Find()
	if err != nil {
		t.Fatal(err)
	}
	text, err := docs.Section("observer.md", "2")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(stateNames[:], reasonNames[1:]) {
		if !strings.Contains(text, name) {
			t.Errorf("section 2 does not know %s", name)
		}
	}
}
