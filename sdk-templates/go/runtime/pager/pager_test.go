package pager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// L-69: a page of another snapshot and an offset that is not greater are violations.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		after   pager.Cursor
		next    pager.Cursor
		hasNext bool
		want    error
	}{
		{pager.Cursor{}, pager.Cursor{Snapshot: 7, Offset: 1}, true, nil},
		{pager.Cursor{}, pager.Cursor{Snapshot: 7}, true, pager.StuckCursor},
		{pager.Cursor{Snapshot: 7, Offset: 1}, pager.Cursor{Snapshot: 7, Offset: 2}, true, nil},
		{pager.Cursor{Snapshot: 7, Offset: 1}, pager.Cursor{Snapshot: 7, Offset: 1}, true, pager.StuckCursor},
		{pager.Cursor{Snapshot: 7, Offset: 2}, pager.Cursor{Snapshot: 7, Offset: 1}, true, pager.StuckCursor},
		{pager.Cursor{Snapshot: 7, Offset: 1}, pager.Cursor{Snapshot: 8, Offset: 2}, true, pager.OtherSnapshot},
		{pager.Cursor{Snapshot: 7, Offset: 1}, pager.Cursor{Snapshot: 8, Offset: 2}, false, nil},
	} {
		got := pager.Check(c.after, &pager.Page[int]{Next: c.next, HasNext: c.hasNext})
		if !errors.Is(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%+v then %+v: %v, want %v", c.after, c.next, got, c.want)
		}
	}
}

// list serves numbers, so many on a page; every third page is empty.
func list(total, size int, fail func(page int) error) pager.Fetch[int] {
	pages := 0
	return func(ctx context.Context, after pager.Cursor) (page pager.Page[int], err error) {
		pages++
		if err := fail(pages); err != nil {
			return page, err
		}
		at := int(after.Offset)
		if at == 0 {
			at = 1
		}
		for n := at; n < min(at+size, total+1); n++ {
			page.Items = append(page.Items, n)
		}
		page.Next = pager.Cursor{Snapshot: 1, Offset: uint32(at + size)}
		page.HasNext = at+size <= total
		return page, ctx.Err()
	}
}

func never(int) error { return nil }

func TestAllYieldsEveryItemOnce(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		total, size := rapid.IntRange(0, 50).Draw(r, "total"), rapid.IntRange(1, 9).Draw(r, "size")
		gate := pager.NewGate(1)
		p := pager.New(pager.Options[int]{Fetch: list(total, size, never), Gate: gate})
		for range 2 { // every loop is a listing of its own
			want := 0
			for n, err := range p.All(context.Background()) {
				if want++; err != nil || n != want {
					r.Fatalf("got %d, %v, want %d", n, err, want)
				}
			}
			if want != total {
				r.Fatalf("%d of %d", want, total)
			}
		}
		for range p.Pages(context.Background()) { // a loop that is left gives its place back
			break
		}
		if leave, err := gate.Enter(context.Background()); err != nil {
			r.Fatal(err)
		} else {
			leave()
		}
	})
}

// L-69: what has yielded something ends with the error and does not start again.
func TestErrorsEndAListing(t *testing.T) {
	broken := errors.New("cursor")
	for failing := 1; failing <= 3; failing++ {
		calls := 0
		p := pager.New(pager.Options[int]{Fetch: list(6, 2, func(n int) error {
			calls = n
			if n == failing {
				return broken
			}
			return nil
		})})
		items, errs := 0, 0
		for _, err := range p.All(context.Background()) {
			if err == nil {
				items++
			} else if errs++; !errors.Is(err, broken) {
				t.Error(err)
			}
		}
		if items != 2*(failing-1) || errs != 1 || calls != failing {
			t.Errorf("page %d: %d items, %d errors, %d calls", failing, items, errs, calls)
		}
	}
}

func TestCloseAndCancel(t *testing.T) {
	p := pager.New(pager.Options[int]{Fetch: list(6, 2, never)})
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	own := errors.New("own reason")
	var last error
	for _, err := range p.Pages(ctx) {
		if last = err; err == nil {
			cancel(own)
		}
	}
	if !errors.Is(last, own) {
		t.Errorf("cancelled: %v", last)
	}
	for _, err := range p.Pages(context.Background()) {
		if last = err; err == nil {
			p.Close()
		}
	}
	if !errors.Is(last, pager.ErrClosed) {
		t.Errorf("closed: %v", last)
	}
}

// OB-29: at most so many at a time, and the others first in, first out; whoever gives up makes room.
func TestGateIsFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := pager.NewGate(2)
		var leaves []func()
		for range 2 {
			leave, err := gate.Enter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leave)
		}
		entered := make(chan int, 10)
		cancels := map[int]context.CancelFunc{}
		next := make(chan func(), 10)
		for i := range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			cancels[i] = cancel
			go func() {
				leave, err := gate.Enter(ctx)
				if err != nil {
					entered <- -i
					return
				}
				entered <- i
				next <- leave
			}()
			synctest.Wait()
		}
		cancels[1]()
		if got := <-entered; got != -1 {
			t.Fatalf("%d", got)
		}
		leaves[0]()
		leaves[0]() // giving back twice counts once
		synctest.Wait()
		var order []int
		for len(entered) > 0 {
			order = append(order, <-entered)
		}
		for _, leave := range []func(){leaves[1], <-next} {
			leave()
			synctest.Wait()
			for len(entered) > 0 {
				order = append(order, <-entered)
			}
		}
		if want := []int{0, 2, 3}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
		for range 2 {
			(<-next)()
		}
		for i := range 2 { // both places are free again
			if _, err := gate.Enter(t.Context()); err != nil {
				t.Error(fmt.Sprint(i), err)
			}
		}
		for _, cancel := range cancels {
			cancel()
		}
	})
}
