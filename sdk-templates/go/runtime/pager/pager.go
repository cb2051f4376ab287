// Package pager walks listings that a peer serves page by page out of one snapshot. It knows nothing about a protocol: a page is fetched
// by a function, and a cursor is a pair of numbers that only the peer understands.
//
// A listing that has yielded something never starts again by itself: an error ends it (L-69).
package pager

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// Cursor is where a listing goes on. The zero Cursor stands before the first page.
type Cursor struct {
	Snapshot uint64 // names the snapshot at the peer
	Offset   uint32 // grows from page to page
}

// Page is one page of a listing. It may be empty although another one follows.
type Page[T any] struct {
	Items   []T
	Next    Cursor // valid when HasNext
	HasNext bool
}

// Fetch asks for the page behind a cursor, the first one when the cursor is zero.
type Fetch[T any] func(ctx context.Context, after Cursor) (Page[T], error)

// ErrClosed is returned by a listing whose Pager was closed.
var ErrClosed = errors.New("the pager is closed")

// Violation says that the peer answered what no listing can be (L-69, OB-16).
type Violation string

// Error says what was wrong.
func (v Violation) Error() string { return string(v) }

// What a page must not be.
const (
	OtherSnapshot Violation = "a page of another snapshot"
	StuckCursor   Violation = "a cursor that does not grow"
)

// Check compares the cursor of a page with the one that was asked for: it names the same snapshot, and its offset is greater (L-69). A
// first page may name any snapshot, but its cursor must lead somewhere.
func Check[T any](after Cursor, page *Page[T]) error {
	switch {
	case !page.HasNext:
		return nil
	case after != Cursor{} && page.Next.Snapshot != after.Snapshot && !mutant.On("pager.mixed-snapshots"):
		return OtherSnapshot
	case page.Next.Offset <= after.Offset && !mutant.On("pager.stuck-cursor-accepted"):
		return StuckCursor
	}
	return nil
}

// Options says what a Pager lists.
type Options[T any] struct {
	Fetch Fetch[T]
	Gate  *Gate  // shared by the listings of a client; nil: no bound, for listings that cannot have a second page
	Start Cursor // zero: from the beginning
}

// Pager is one listing that has not begun. Every iteration is a listing of its own. It is safe for concurrent use.
type Pager[T any] struct {
	options Options[T]
	closing context.Context
	close   context.CancelFunc
}

// New returns a Pager. Nothing is fetched before an iteration.
func New[T any](o Options[T]) *Pager[T] {
	p := &Pager[T]{options: o}
	p.closing, p.close = context.WithCancel(context.Background())
	return p
}

// Close ends running iterations with ErrClosed, and later ones before they fetch. It is idempotent.
func (p *Pager[T]) Close() { p.close() }

// Pages yields page by page. An error is yielded once, last: that of ctx, ErrClosed, a Violation, or that of Fetch. The listing takes a
// place in the gate until its last page, or until the loop is left.
func (p *Pager[T]) Pages(ctx context.Context) iter.Seq2[Page[T], error] {
	return func(yield func(Page[T], error) bool) {
		if err := p.list(ctx, yield); err != nil {
			yield(Page[T]{}, err)
		}
	}
}

// All yields item by item, as Pages does.
func (p *Pager[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range p.Pages(ctx) {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

// list is one listing. A nil error means that it is over or was left.
func (p *Pager[T]) list(ctx context.Context, yield func(Page[T], error) bool) error {
	bounded, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.closing, cancel)()
	leave, err := p.enter(bounded)
	if err != nil {
		return p.cause(ctx, err)
	}
	defer leave()
	for after := p.options.Start; ; {
		if p.closing.Err() != nil {
			return ErrClosed
		}
		page, err := p.options.Fetch(bounded, after)
		if err == nil {
			err = Check(after, &page)
		}
		if err != nil && after != p.options.Start && mutant.On("pager.restarts-after-items") {
			after = p.options.Start
			continue
		}
		if err != nil {
			return p.cause(ctx, err)
		}
		if len(page.Items) == 0 && mutant.On("pager.stops-at-empty-page") {
			return nil
		}
		if !page.HasNext {
			leave() // what the loop does with the last page keeps nobody waiting
		}
		if !yield(page, nil) || !page.HasNext {
			return nil
		}
		after = page.Next
	}
}

func (p *Pager[T]) enter(ctx context.Context) (leave func(), err error) {
	if p.options.Gate == nil {
		return func() {}, ctx.Err()
	}
	return p.options.Gate.Enter(ctx)
}

// cause tells the end of the pager and of the caller's context from other errors.
func (p *Pager[T]) cause(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case p.closing.Err() != nil:
		return ErrClosed
	}
	return err
}

// Gate bounds how many listings run at a time. The others wait, first in first out (OB-29).
type Gate struct {
	mu    sync.Mutex
	free  int
	queue []chan struct{} // closed when its owner may run
}

// NewGate returns a gate for so many listings at a time, at least one.
func NewGate(places int) *Gate { return &Gate{free: max(places, 1)} }

// Enter waits for a place. leave gives it back and may be called more than once. The error is that of ctx; then there is no place.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if turn := g.take(); turn != nil {
		select {
		case <-turn:
		case <-ctx.Done():
			g.abandon(turn)
			return nil, context.Cause(ctx)
		}
	}
	return sync.OnceFunc(g.leave), nil
}

// take takes a place, or joins the line and returns its turn.
func (g *Gate) take() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free > 0 || mutant.On("pager.listings-unbounded") {
		g.free--
		return nil
	}
	turn := make(chan struct{})
	g.queue = append(g.queue, turn)
	return turn
}

// abandon leaves the line. A turn that came meanwhile is passed on.
func (g *Gate) abandon(turn chan struct{}) {
	g.mu.Lock()
	for i, other := range g.queue {
		if other == turn {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			g.mu.Unlock()
			return
		}
	}
	g.mu.Unlock()
	g.leave()
}

func (g *Gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		g.free++
		return
	}
	close(g.queue[0])
	g.queue = g.queue[1:]
}
