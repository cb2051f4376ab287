package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/balance"
)

// Worker is a member of a fleet with a client of its own. It looks at the fleet whenever something changes, to take what is free, and once
// in a round, to release what others should have. All methods may be called from any goroutine.
type Worker struct {
	id       string
	settings Settings
	wire     *wire
	client   *fitz.Client
	observer *fitz.InventoryObserver
	cancel   context.CancelFunc
	done     chan struct{}
	err      error // valid after done

	// What follows belongs to run.
	presence *fitz.Lease
	joined   time.Time // when the presence was taken
	held     map[string]holding
}

// holding is a lease of a resource.
type holding struct {
	lease *fitz.Lease
	since time.Time
}

// Join starts a worker. It fails when the broker cannot be reached and when a worker of that name is there. The context bounds the start
// alone; the worker lives until Leave, Kill or a failure of its observer that does not pass.
func Join(ctx context.Context, id string, s Settings) (*Worker, error) {
	w := &Worker{id: id, settings: s, wire: &wire{dial: s.Dial}, done: make(chan struct{}), held: map[string]holding{}}
	options := append(append([]fitz.Option{}, s.Options...), fitz.WithOwnerID(id), fitz.WithDialer(w.wire.connect))
	client, err := fitz.Connect(ctx, s.URL, options...)
	if err != nil {
		return nil, err
	}
	w.client = client
	if err := w.enter(ctx); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	var alive context.Context
	alive, w.cancel = context.WithCancel(context.Background())
	go w.run(alive)
	return w, nil
}

// enter takes the presence and starts the observer.
func (w *Worker) enter(ctx context.Context) error {
	present, err := w.takePresence(ctx)
	if err != nil {
		return err
	}
	if !present {
		return fmt.Errorf("there is a worker %s already", w.id)
	}
	w.observer, err = w.client.Lease().Observe(Selector, &fitz.ObserveOptions{ExpectedTTL: w.settings.TTL})
	return err
}

// ID returns the name of the worker, which is the owner of its leases.
func (w *Worker) ID() string { return w.id }

// Done returns a channel that is closed when the worker has ended.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Err returns why a worker has ended that was not asked to, once Done is closed.
func (w *Worker) Err() error {
	select {
	case <-w.done:
		return w.err
	default:
		return nil
	}
}

// Leave ends the worker in order: it releases everything. It is idempotent and bounded by the close timeout of the client.
func (w *Worker) Leave() {
	w.cancel()
	<-w.done
}

// Kill ends the worker as the death of its process would: its connection is gone without a word, and nothing is released.
func (w *Worker) Kill() {
	w.wire.breakOff()
	w.Leave()
}

// run is the life of the worker.
func (w *Worker) run(ctx context.Context) {
	defer close(w.done)
	ctx, cancel := context.WithCancelCause(ctx)
	changed := make(chan struct{}, 1) // one is enough: whoever wakes looks at everything
	var watching sync.WaitGroup
	watching.Go(func() { cancel(w.watch(ctx, changed)) })
	w.work(ctx, changed)
	cancel(nil)
	watching.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		w.err = cause
	}
	w.leave()
}

// watch tells of changes until ctx ends or the observer fails.
func (w *Worker) watch(ctx context.Context, changed chan<- struct{}) error {
	for _, err := range w.observer.Changes(ctx) {
		if err != nil {
			return err
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	return nil
}

// work acts once in a round, at a time that differs from worker to worker, and whenever something changes.
func (w *Worker) work(ctx context.Context, changed <-chan struct{}) {
	round := time.NewTimer(time.Duration(w.settings.Random() * float64(w.settings.Round)))
	defer round.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			w.act(ctx, false)
		case <-round.C:
			round.Reset(w.settings.Round)
			w.act(ctx, true)
		}
	}
}

// leave gives the presence back first: as long as a worker is present, the others leave to it what is its share.
func (w *Worker) leave() {
	if !w.wire.broken() {
		ctx, cancel := context.WithTimeout(context.Background(), w.settings.Round)
		defer cancel()
		_ = w.presence.Release(ctx) // the end of the session frees what could not be released
	}
	_ = w.observer.Close()
	_ = w.client.Close()
}

// act looks at the fleet and does what is planned. What fails is planned again.
func (w *Worker) act(ctx context.Context, inRound bool) {
	ctx, cancel := context.WithTimeout(ctx, w.settings.Round)
	defer cancel()
	w.forget()
	if present, err := w.takePresence(ctx); err != nil || !present {
		return
	}
	inventory, synced := w.observer.Snapshot()
	if !synced || inventory.Stale {
		return
	}
	view := w.view(inventory, time.Now())
	plan := w.settings.Rules.Decide(view)
	if inRound {
		w.release(ctx, plan.Release)
	}
	if w.mayTake(view) {
		w.take(ctx, plan.Acquire)
	}
}

// forget drops leases that are lost.
func (w *Worker) forget() {
	for route, h := range w.held {
		if h.lease.Err() != nil {
			delete(w.held, route)
		}
	}
}

// takePresence makes sure that the worker is present. False: somebody else of that name is.
func (w *Worker) takePresence(ctx context.Context) (bool, error) {
	if w.presence != nil && w.presence.Err() == nil {
		return true, nil
	}
	lease, ok, err := w.client.Lease().TryAcquire(ctx, PresenceRoute(w.id), w.settings.TTL, nil)
	if err != nil || !ok {
		return false, err
	}
	w.presence, w.joined = lease, time.Now()
	return true, nil
}

// view is what the inventory shows, corrected by what the worker knows better: which leases are its own.
func (w *Worker) view(inventory *fitz.Inventory, now time.Time) balance.View {
	v := balance.View{Self: w.id, Workers: []string{w.id}, Catalogue: w.settings.Catalogue, Holders: map[string]string{}, Keep: map[string]bool{}}
	for entry := range inventory.All() {
		switch {
		case entry.Route == PresenceRoute(entry.OwnerID):
			v.Workers = append(v.Workers, entry.OwnerID)
		case entry.OwnerID != w.id:
			v.Holders[entry.Route] = entry.OwnerID
		}
	}
	for route, h := range w.held {
		v.Holders[route] = w.id
		v.Keep[route] = now.Sub(h.since) < w.settings.Round // no route moves twice in a round
	}
	return v
}

// mayTake keeps the first worker that comes back after a restart of the broker from taking everything: when nobody holds anything, the
// fleet has a round to gather.
func (w *Worker) mayTake(v balance.View) bool {
	for _, route := range v.Catalogue {
		if _, held := v.Holders[route]; held {
			return true
		}
	}
	return time.Since(w.joined) >= w.settings.Round
}

func (w *Worker) release(ctx context.Context, routes []string) {
	for _, route := range routes {
		_ = w.held[route].lease.Release(ctx) // it is over here, and the ttl ends it at the broker at the latest
		delete(w.held, route)
	}
}

// take tries to acquire routes. Somebody else may have been faster; that is seen in the next change.
func (w *Worker) take(ctx context.Context, routes []string) {
	for _, route := range routes {
		lease, ok, err := w.client.Lease().TryAcquire(ctx, route, w.settings.TTL, nil)
		if err != nil {
			return
		}
		if ok {
			w.held[route] = holding{lease, time.Now()}
		}
	}
}

// wire is the connection of a worker, which can be broken off.
type wire struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error) // nil: the network

	mu   sync.Mutex
	conn net.Conn // the last one: a client has one session at a time
	dead bool
}

var errDead = errors.New("the worker is dead")

func (w *wire) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if w.broken() {
		return nil, errDead
	}
	dial := w.dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errors.Join(errDead, conn.Close())
	}
	w.conn = conn
	return conn, nil
}

func (w *wire) breakOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

func (w *wire) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}
