package fleet_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/balance"
	"github.com/fitzwire/fitz/tools/internal/fleet"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(memberEnv); order != "" {
		if err := member(order); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// town is a broker in memory, a fleet, and somebody who watches it.
type town struct {
	t        *testing.T
	broker   *fitztest.Broker
	settings fleet.Settings
	workers  map[string]*fleet.Worker
	names    int

	mu    sync.Mutex
	board *fleet.Board
	takes map[string][]time.Time // since the last change of the fleet
	moves int                    // since then, from one worker to another
}

// townResources is how many resources most towns share: few enough to count their moves by hand.
const townResources = 20

// inTown runs a test in virtual time and ends everything that it started.
func inTown(t *testing.T, seed uint64, resources int, test func(*town)) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, seed))
		var mu sync.Mutex
		broker := fitztest.Start(t)
		w := &town{t: t, broker: broker, workers: map[string]*fleet.Worker{}, takes: map[string][]time.Time{}}
		w.settings = fleet.Settings{
			URL: broker.URL(), Options: broker.Options(), Dial: broker.Dial, Catalogue: fleet.Catalogue(resources),
			Round: fleet.DefaultRound, TTL: fleet.DefaultTTL, Rules: balance.Rules{BandPercent: fleet.DefaultBandPercent},
			Random: func() float64 { mu.Lock(); defer mu.Unlock(); return random.Float64() },
		}
		w.board = fleet.NewBoard(w.settings.Catalogue)
		watcher := broker.Connect()
		observer, err := watcher.Lease().Observe(fleet.Selector, nil)
		if err != nil {
			t.Fatal(err)
		}
		var watching sync.WaitGroup
		watching.Go(func() { w.watch(observer) })
		defer watching.Wait()
		defer observer.Close()
		defer w.end()
		test(w)
	})
}

func (w *town) watch(observer *fitz.InventoryObserver) {
	for change, err := range observer.Changes(w.t.Context()) {
		if err != nil {
			return // closed
		}
		w.mu.Lock()
		for _, event := range w.board.Apply(change) {
			if event.Kind == fleet.Taken || event.Kind == fleet.Moved {
				w.takes[event.Route] = append(w.takes[event.Route], time.Now())
			}
			if event.Kind == fleet.Moved {
				w.moves++
			}
		}
		w.mu.Unlock()
	}
}

func (w *town) end() {
	for _, worker := range w.workers {
		worker.Leave()
	}
}

// begin starts the account of a change.
func (w *town) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.takes)
	w.moves = 0
}

func (w *town) join(count int) {
	w.t.Helper()
	w.begin()
	for range count {
		w.names++
		id := fmt.Sprintf("worker-%02d", w.names)
		worker, err := fleet.Join(w.t.Context(), id, w.settings)
		if err != nil {
			w.t.Fatal(err)
		}
		w.workers[id] = worker
	}
}

// remove ends a worker.
func (w *town) remove(id string, end func(*fleet.Worker)) {
	w.t.Helper()
	w.begin()
	worker := w.workers[id]
	delete(w.workers, id)
	end(worker)
	if err := worker.Err(); err != nil {
		w.t.Errorf("%s ended with %v", id, err)
	}
}

func (w *town) spread() fleet.Spread {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.board.Spread()
}

// settles expects that the fleet is settled three rounds from now, that no route was taken twice within a round, and that the view is what
// the broker says.
func (w *town) settles() fleet.Spread {
	w.t.Helper()
	time.Sleep(3 * w.settings.Round)
	synctest.Wait()
	spread := w.spread()
	if !spread.Settled || spread.Workers != len(w.workers) || spread.Resources != len(w.settings.Catalogue) {
		w.t.Fatalf("%d workers, three rounds after a change: %v", len(w.workers), spread)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for route, times := range w.takes {
		for i := 1; i < len(times); i++ {
			if gap := times[i].Sub(times[i-1]); gap < w.settings.Round {
				w.t.Errorf("%s was taken twice within %v", route, gap)
			}
		}
	}
	held := w.broker.Held("lease://demo/fleet/*")
	if len(held) != len(w.settings.Catalogue) {
		w.t.Errorf("the broker knows of %d leases", len(held))
	}
	for _, item := range held {
		if !slices.Contains(w.board.HeldBy(item.OwnerID), item.Route) {
			w.t.Errorf("the board does not show that %s holds %s", item.OwnerID, item.Route)
		}
	}
	return spread
}

// A fleet that starts together takes everything without a single hand-over, and then nothing moves.
func TestStartsTogether(t *testing.T) {
	inTown(t, 1, townResources, func(w *town) {
		w.join(fleet.DefaultWorkers)
		if spread := w.settles(); spread.Moves != 0 || spread.Least != 4 || spread.Most != 4 {
			t.Errorf("%v", spread)
		}
		w.begin()
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.takes) != 0 {
			t.Errorf("a settled fleet took %v", w.takes)
		}
	})
}

// One worker that comes later gets what it lacks, by as few moves as that takes; one that leaves in order or dies leaves only its own.
func TestJoinLeaveKill(t *testing.T) {
	inTown(t, 2, townResources, func(w *town) {
		w.join(1)
		w.settles()
		for _, step := range []struct {
			name   string
			change func()
			moves  int
		}{
			{"one joins one", func() { w.join(1) }, 9}, // 11 and 9 are within the dead band
			{"three join", func() { w.join(3) }, 12},
			{"one of five leaves", func() { w.remove("worker-02", (*fleet.Worker).Leave) }, 4},
			{"one of four is killed", func() { w.remove("worker-04", (*fleet.Worker).Kill) }, 5},
		} {
			step.change()
			w.settles()
			if w.moves != step.moves {
				t.Errorf("%s: %d moves, want %d", step.name, w.moves, step.moves)
			}
		}
	})
}

// The fleet of the demo is as even as a fleet has to be after every change, whatever the number of its workers.
func TestDefaultFleetIsEven(t *testing.T) {
	const evenAt = 1 + fleet.DefaultBandPercent/100.0
	inTown(t, 6, fleet.DefaultResources, func(w *town) {
		for range 9 {
			w.join(1)
			if spread := w.settles(); spread.MaxToMean > evenAt {
				t.Errorf("%v", spread)
			}
		}
		for id := 1; id < 9; id++ {
			end := (*fleet.Worker).Kill
			if id%2 == 0 {
				end = (*fleet.Worker).Leave
			}
			w.remove(fmt.Sprintf("worker-%02d", id), end)
			if spread := w.settles(); spread.MaxToMean > evenAt {
				t.Errorf("%v", spread)
			}
		}
	})
}

// What a dead worker held is taken within the coalescing of the observers, not at the next round.
func TestTakesOverAtOnce(t *testing.T) {
	inTown(t, 3, townResources, func(w *town) {
		w.join(2)
		w.settles()
		w.remove("worker-01", (*fleet.Worker).Kill)
		time.Sleep(w.settings.Round / 4)
		synctest.Wait()
		if spread := w.spread(); !spread.Settled || w.moves != townResources/2 {
			t.Errorf("%v", spread)
		}
	})
}

// A fleet with more workers than resources shows those that hold nothing.
func TestMoreWorkersThanResources(t *testing.T) {
	inTown(t, 4, 3, func(w *town) {
		w.join(5)
		if spread := w.settles(); spread.Least != 0 || spread.Most != 1 {
			t.Errorf("%v", spread)
		}
	})
}

// The whole fleet survives a restart of the broker and the loss of all connections: it comes back and shares again, and the first to be
// back does not take everything.
func TestRestartAndCut(t *testing.T) {
	inTown(t, 5, townResources, func(w *town) {
		w.join(fleet.DefaultWorkers)
		w.settles()
		for name, fault := range map[string]func(){"restart": w.broker.Restart, "cut": w.broker.Network().Cut} {
			fault()
			w.gathers()
			w.begin()
			spread := w.settles()
			if spread.Most != 4 {
				t.Errorf("%s: %v", name, spread)
			}
			for id, worker := range w.workers {
				select {
				case <-worker.Done():
					t.Errorf("%s: %s ended: %v", name, id, worker.Err())
				default:
				}
			}
		}
	})
}

// gathers waits until all workers are seen.
func (w *town) gathers() {
	w.t.Helper()
	for range 600 {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if s := w.spread(); s.Workers == len(w.workers) && !s.Stale {
			return
		}
	}
	w.t.Fatalf("the fleet does not gather: %v", w.spread())
}

// A worker whose name is taken does not join, and leaves nothing behind.
func TestNameIsTaken(t *testing.T) {
	inTown(t, 6, 1, func(w *town) {
		w.join(1)
		if _, err := fleet.Join(w.t.Context(), "worker-01", w.settings); err == nil {
			t.Error("joined twice")
		}
		w.settles()
	})
}

// Nothing is taken away from a holder that does not take part; the workers share the rest.
func TestStranger(t *testing.T) {
	inTown(t, 7, 10, func(w *town) {
		stranger := w.broker.Connect(fitz.WithOwnerID("stranger"))
		lease, err := stranger.Lease().Acquire(w.t.Context(), w.settings.Catalogue[0], time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.join(3)
		time.Sleep(3 * w.settings.Round)
		synctest.Wait()
		if spread := w.spread(); !spread.Settled || spread.Resources != 9 || spread.Most != 3 {
			t.Errorf("%v", spread)
		}
		if lease.Err() != nil {
			t.Errorf("the lease of the stranger: %v", lease.Err())
		}
		if err := lease.Release(w.t.Context()); err != nil {
			t.Fatal(err)
		}
		w.settles()
	})
}

// Whatever comes, goes and dies, the fleet settles within three rounds of each change.
func TestChurn(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 99))
			inTown(t, seed, 1+random.IntN(60), func(w *town) {
				w.join(1 + random.IntN(6))
				w.settles()
				for range 12 {
					ids := slices.Sorted(maps.Keys(w.workers))
					id := ids[random.IntN(len(ids))]
					switch kind := random.IntN(3); {
					case kind == 0 || len(ids) == 1:
						w.join(1 + random.IntN(3))
					case kind == 1:
						w.remove(id, (*fleet.Worker).Leave)
					default:
						w.remove(id, (*fleet.Worker).Kill)
					}
					w.settles()
				}
			})
		})
	}
}
