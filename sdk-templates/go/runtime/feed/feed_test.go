package feed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type overflow uint64

func (overflow) Error() string { return "overflow" }

func newFeed(max int) *Feed[int] {
	return New[int](max, func(dropped uint64) error { return overflow(dropped) })
}

var errEnd = errors.New("end")

// L-75: whatever happens, a reader sees a prefix of what was offered, in order, and then how it ended; what is missing is counted.
func TestReaderSeesAPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(t, "max")
		f := newFeed(size)
		var kept []int // what must still come
		next, dropped := 0, uint64(0)
		ended := false
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				taken := f.Offer(next)
				want := !ended && dropped == 0 && len(kept) < size
				if taken != want {
					t.Fatalf("offer: %v, want %v", taken, want)
				}
				if taken {
					kept = append(kept, next)
				} else if !ended {
					dropped++
				}
				next++
			},
			"read": func(t *rapid.T) {
				if len(kept) == 0 && dropped == 0 && !ended {
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					if _, err := f.Next(ctx); err != context.Canceled {
						t.Fatalf("a cancelled read: %v", err)
					}
					return
				}
				item, err := f.Next(context.Background())
				switch {
				case len(kept) > 0:
					if err != nil || item != kept[0] {
						t.Fatalf("%d, %v, want %d", item, err, kept[0])
					}
					kept = kept[1:]
				case dropped > 0:
					if err != overflow(dropped) {
						t.Fatalf("%v after %d dropped", err, dropped)
					}
				default:
					if err != errEnd {
						t.Fatal(err)
					}
				}
			},
			"end": func(*rapid.T) {
				f.End(errEnd)
				f.End(errors.New("a second end"))
				ended = true
			},
			"": func(t *rapid.T) {
				if f.Dropped() != dropped {
					t.Fatalf("%d dropped, want %d", f.Dropped(), dropped)
				}
				if len(f.ring) > size {
					t.Fatalf("a ring of %d for at most %d", len(f.ring), size)
				}
			},
		})
	})
}

// A reader that waits is woken by an item, an end and Stop; Stop forgets what is kept.
func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(4)
		results := make(chan error)
		read := func() {
			_, err := f.Next(t.Context())
			results <- err
		}
		go read()
		synctest.Wait()
		f.Offer(1)
		if err := <-results; err != nil {
			t.Fatal(err)
		}
		go read()
		synctest.Wait()
		f.End(errEnd)
		if err := <-results; err != errEnd {
			t.Fatal(err)
		}
		g := newFeed(1)
		g.Offer(1)
		g.Offer(2)
		g.Stop(errEnd)
		if _, err := g.Next(t.Context()); err != errEnd {
			t.Fatal(err)
		}
	})
}
