package observer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/observer"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pager"
)

// OB-14, OB-24, OB-42: when more is notified during a pass than can be remembered, everything is listed again, however often that happens,
// after delays that double up to the largest one. It is no gap.
func TestTooMuchToRememberCostsAnotherPass(t *testing.T) {
	const (
		dirtyMax = 4
		storms   = 9
	)
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(1)
		p.up, p.down = 0, 0
		o := defaults()
		o.MaxItems = dirtyMax
		o, err := o.Complete(defaults(), limits())
		if err != nil {
			t.Fatal(err)
		}
		bounds := limits()
		bounds.Dirty = dirtyMax
		ports := p.ports(pager.NewGate(1))
		ports.Random = func() float64 { return 0 } // the shortest delays
		p.observer = observer.New(ports, items(), o, bounds)
		defer p.finish()
		var times []time.Time
		p.onPage = func(n int) {
			times = append(times, time.Now())
			if n > storms {
				return
			}
			for i := range dirtyMax + 1 {
				p.changeLocked(fmt.Sprint("x://a/", i), true)
				p.changeLocked(fmt.Sprint("x://a/", i), false)
			}
		}
		p.open()
		if err := p.observer.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := p.observer.Status(); s.State != observer.Ready || s.Passes != 1 || s.Repairs != 0 || s.Generation != 1 {
			t.Errorf("%+v", s)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if len(times) != storms+1 {
			t.Fatalf("%d passes, want %d", len(times), storms+1)
		}
		for i := 1; i < len(times); i++ {
			want := min(25*time.Millisecond<<(i-1), time.Second)
			if d := times[i].Sub(times[i-1]); d != want {
				t.Errorf("pass %d came after %v, want %v", i, d, want)
			}
		}
	})
}

// OB-33, OB-62: whatever asks for a pass while one is running or waiting is served by at most one more.
func TestPassesAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(1)
		p.down = 10 * time.Millisecond // so that all calls are made before the page arrives
		o := observe(t, p)
		defer p.finish()
		p.open()
		if err := o.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		refreshed := make(chan error)
		p.onPage = func(int) {
			p.onPage = nil
			for range 20 { // while the listing runs
				go func() { refreshed <- o.Refresh(context.Background()) }()
			}
		}
		if err := o.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			if err := <-refreshed; err != nil {
				t.Error(err)
			}
		}
		if s := o.Status(); s.Passes != 3 {
			t.Errorf("%d passes, want the first one, that of the first call and one for all others", s.Passes)
		}
	})
}
