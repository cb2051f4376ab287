package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

// D1: a thousand acquires that wait in line do not delay one of a free route on the same client. The proof is that the free ones are
// answered while all the others wait.
func TestWaitersDoNotDelay(t *testing.T) {
	const waiters = 1000
	b := fitztest.Start(t)
	holder, c := connect(t, b), connect(t, b)
	for i := range waiters {
		acquire(t, holder, fmt.Sprintf("lease://r/held/%d", i), time.Hour)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	for i := range waiters {
		waiting.Go(func() {
			if _, err := c.Lease().Acquire(ctx, fmt.Sprintf("lease://r/held/%d", i), time.Hour, nil); err != context.Canceled {
				t.Errorf("%v", err)
			}
		})
	}
	for i := 0; i < waiters; {
		info, err := holder.Lease().Query(t.Context(), fmt.Sprintf("lease://r/held/%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if info.PendingWaiters == 1 {
			i++
		}
	}
	for i := range 100 {
		lease := acquire(t, c, fmt.Sprintf("lease://r/free/%d", i), time.Hour)
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	waiting.Wait()
	for i := range waiters {
		info, err := holder.Lease().Query(t.Context(), fmt.Sprintf("lease://r/held/%d", i))
		if err != nil || info.PendingWaiters != 0 {
			t.Fatalf("a cancelled acquire waits on: %+v, %v", info, err)
		}
	}
}

// L-73: an acquire that is cancelled at any moment, from before it is sent to the tick of its grant, leaves no lease behind.
func TestCancelAtEveryMoment(t *testing.T) {
	variants(t, func(t *testing.T, options ...fitztest.Option) {
		b := fitztest.Start(t, options...)
		holder, c := connect(t, b, fitz.WithOwnerID("holder")), connect(t, b, fitz.WithOwnerID("canceller"))
		rng := rand.New(rand.NewPCG(7, 7))
		cancelled, granted := 0, 0
		for range 150 {
			lease := acquire(t, holder, route, time.Hour)
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan *fitz.Lease)
			go func() {
				l, err := c.Lease().Acquire(ctx, route, time.Hour, nil)
				if err != nil && err != context.Canceled {
					t.Error(err)
				}
				result <- l
			}()
			spin(rng.IntN(400))
			order := []func(){cancel, func() { _ = lease.Release(context.Background()) }}
			if rng.IntN(2) == 0 {
				order[0], order[1] = order[1], order[0]
			}
			order[0]()
			var l *fitz.Lease
			if rng.IntN(8) == 0 { // so that a machine on which one of the two always comes too late sees both outcomes
				l = <-result
				order[1]()
			} else {
				spin(rng.IntN(200))
				order[1]()
				l = <-result
			}
			if l != nil {
				granted++
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			} else {
				cancelled++
			}
			cancel()
			for held := true; held; { // a lease of the other would stay for an hour
				info, err := holder.Lease().Query(t.Context(), route)
				if err != nil {
					t.Fatal(err)
				}
				held = info.Held
			}
		}
		if cancelled == 0 || granted == 0 {
			t.Errorf("%d cancelled, %d granted: the test shows nothing", cancelled, granted)
		}
	})
}

// spin lets about that many microseconds pass, by giving others a turn.
func spin(us int) {
	for end := time.Now().Add(time.Duration(us) * time.Microsecond); time.Now().Before(end); {
		_ = rand.Uint64()
	}
}

// sdk.md 2.1: programs that use the SDK depend on the standard library and one more module.
func TestImportClosure(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "github.com/fitzwire/fitz/generated/go/fitz").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, path := range strings.Fields(string(out)) {
		if !strings.HasPrefix(path, "github.com/fitzwire/fitz/generated/go/") && !strings.HasPrefix(path, "github.com/coder/websocket") {
			t.Errorf("the SDK imports %s", path)
		}
	}
}
