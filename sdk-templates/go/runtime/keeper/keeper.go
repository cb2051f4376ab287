package keeper

import (
	"context"
	"sync"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// Keeper is everything that one client holds or wants to hold. All methods may be called from any goroutine.
type Keeper struct {
	options Options
	closing chan struct{}
	life    context.Context // of everything in the background
	stop    context.CancelFunc
	tasks   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	places map[Key]*place
	held   map[*Lease]struct{}
}

// place is the right to hold or to ask for one key. It is in the map while somebody has it.
type place struct {
	line []*turn // who wants it next, first in first out
}

type turn struct {
	key   Key
	given chan struct{} // closed when the place is theirs
}

// New makes a Keeper. It must be closed.
func New(o Options) *Keeper {
	k := &Keeper{options: o, closing: make(chan struct{}), places: map[Key]*place{}, held: map[*Lease]struct{}{}}
	k.life, k.stop = context.WithCancel(context.Background())
	return k
}

// enter takes the place of a key, or waits for it in the local line (L-99).
func (k *Keeper) enter(ctx context.Context, key Key, wait time.Duration) error {
	t, err := k.joinLine(key, wait)
	if t == nil || err != nil {
		return err
	}
	over := make(chan struct{})
	timer := k.options.Clock.AfterFunc(wait, func() { close(over) })
	defer timer.Stop()
	select {
	case <-t.given:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-over:
		err = k.options.WaitOver(key)
	case <-k.closing:
		err = k.options.Closed()
	}
	k.leaveLine(t)
	return err
}

// joinLine takes the place if it is free. Otherwise it returns a turn in its line.
func (k *Keeper) joinLine(key Key, wait time.Duration) (*turn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, k.options.Closed()
	}
	p := k.places[key]
	switch {
	case p == nil, mutant.On("sdk.two-handles-of-a-key"):
		k.places[key] = &place{}
		return nil, nil
	case wait <= 0:
		return nil, k.options.Held(key)
	case len(p.line) >= k.options.LineMax:
		return nil, k.options.Overload(key)
	}
	t := &turn{key, make(chan struct{})}
	p.line = append(p.line, t)
	return t, nil
}

// leaveLine gives a turn up, and the place on when it was given meanwhile.
func (k *Keeper) leaveLine(t *turn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.places[t.key]
	for i, other := range p.line {
		if other == t {
			p.line = append(p.line[:i], p.line[i+1:]...)
			return
		}
	}
	k.pass(t.key)
}

// leave gives the place of a key to the next in its line.
func (k *Keeper) leave(key Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pass(key)
}

// pass implements leave. k.mu is held.
func (k *Keeper) pass(key Key) {
	if mutant.On("sdk.two-handles-of-a-key") {
		return
	}
	p := k.places[key]
	if len(p.line) == 0 {
		delete(k.places, key)
		return
	}
	next := p.line[0]
	p.line[0] = nil
	p.line = p.line[1:]
	close(next.given)
}

// task runs f in the background. Close waits for it. False: the keeper is closed, f was not and will not be called.
func (k *Keeper) task(f func()) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.tasks.Go(f)
	return true
}

// Len returns the number of keys that are held, asked for or waited for, and of those that are held.
func (k *Keeper) Len() (places, held int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.places), len(k.held)
}

// Waiting returns how many acquires wait in the local lines (L-99).
func (k *Keeper) Waiting() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, p := range k.places {
		n += len(p.line)
	}
	return n
}

// SessionEnded says that a session has ended. Everything that was held in it is lost, now.
func (k *Keeper) SessionEnded(s Session, reason Reason, cause error) {
	k.mu.Lock()
	var gone []*Lease
	for l := range k.held {
		if l.session == s && !mutant.On("sdk.lease-survives-session") {
			gone = append(gone, l)
		}
	}
	k.mu.Unlock()
	for _, l := range gone {
		l.lose(reason, cause)
	}
}

// Close ends everything that is held with ClientClosed, releases it as far as that can be done within CloseWait, and lets nothing new
// begin.
func (k *Keeper) Close() {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return
	}
	k.closed = true
	close(k.closing)
	var all []*Lease
	for l := range k.held {
		all = append(all, l)
	}
	k.mu.Unlock()
	ctx, cancel := port.WithTimeout(context.Background(), k.options.Clock, k.options.CloseWait, context.DeadlineExceeded)
	defer cancel()
	var releases sync.WaitGroup
	for _, l := range all {
		if l.end(ended{state: lost, reason: ClientClosed}) {
			releases.Go(func() {
				_ = l.sendRelease(ctx) // the end of the session frees what this does not
				k.leave(l.key)
			})
		}
	}
	finished := make(chan struct{})
	go func() {
		releases.Wait()
		close(finished)
	}()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	k.stop()
	k.tasks.Wait()
	<-finished
}
