package observer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A Refresh that is given up leaves nothing behind, however often it is repeated against a peer that never answers.
func TestRefreshThatIsGivenUpIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		birth := time.Now()
		o := New(Ports{
			Now:    func() time.Duration { return time.Since(birth) },
			After:  func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
			Random: func() float64 { return 0.5 },
			Wall:   time.Now,
		}, Items[int]{Closed: errors.New("closed")}, complete(t, Options{}), Limits{Dirty: 1, Consumers: 1, CloseTimeout: time.Second})
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := o.Refresh(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
		}
		synctest.Wait()
		left := make(chan int)
		o.box.post(func() { left <- len(o.waiters) })
		if n := <-left; n != 0 {
			t.Errorf("%d calls are kept", n)
		}
		o.Close()
		if err := o.Refresh(t.Context()); err == nil || err.Error() != "closed" {
			t.Errorf("refresh after close: %v", err)
		}
	})
}
