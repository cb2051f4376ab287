package fleet_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/balance"
	"github.com/fitzwire/fitz/tools/internal/fleet"
)

// The test binary is a worker of a fleet when this is set to an id and a url.
const memberEnv = "FITZ_FLEET_MEMBER"

// The fleet of processes is quick, so that its tests are.
const (
	quickRound     = 200 * time.Millisecond
	quickTTL       = 5 * time.Second
	quickResources = 12
)

func quickSettings(url string) fleet.Settings {
	return fleet.Settings{
		URL: url, Catalogue: fleet.Catalogue(quickResources), Round: quickRound, TTL: quickTTL,
		Rules: balance.Rules{BandPercent: fleet.DefaultBandPercent}, Random: rand.Float64,
	}
}

// Words of a member.
const (
	saidTaken = "taken" // it has acquired a route
	saidGiven = "given" // it has released a route
	saidLost  = "lost"  // it knows that it lost a route, and why
	saidHere  = "here"  // it has read a line
)

// member is a worker process. It says what it takes, gives back and loses, and answers each line, until its standard input ends.
func member(order string) error {
	id, url, _ := strings.Cut(order, " ")
	s := quickSettings(url)
	s.Options = []fitz.Option{fitz.WithHooks(fitz.Hooks{
		Begin: func(ctx context.Context, o fitz.Operation) (context.Context, func(error)) {
			return ctx, func(err error) {
				switch {
				case err == nil && o.Name == "lease.acquire":
					fmt.Println(saidTaken, o.Route, "-")
				case err == nil && o.Name == "lease.release":
					fmt.Println(saidGiven, o.Route, "-")
				}
			}
		},
		Event: func(e fitz.Event) {
			if e.Name == fitz.EventLeaseLost {
				fmt.Println(saidLost, e.Route, strings.ReplaceAll(e.Err.Error(), " ", "_"))
			}
		},
	})}
	worker, err := fleet.Join(context.Background(), id, s)
	if err != nil {
		return err
	}
	defer worker.Leave()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(saidHere, "-", "-")
	}
	return lines.Err()
}

// crew is a broker on real sockets, workers that are processes, and somebody who watches them.
type crew struct {
	t    *testing.T
	url  string
	seen chan fleet.Spread // after every change of the inventory

	mu    sync.Mutex
	board *fleet.Board
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	c, _, err := config.Load([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w := &crew{t: t, url: "fitz://" + b.Addresses()["tcp"], board: fleet.NewBoard(fleet.Catalogue(quickResources)), seen: make(chan fleet.Spread)}
	client, err := fitz.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	observer, err := client.Lease().Observe(fleet.Selector, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { w.watch(ctx, observer) })
	t.Cleanup(func() {
		stop()
		watching.Wait()
		_ = observer.Close()
		_ = client.Close()
	})
	return w
}

func (w *crew) watch(ctx context.Context, observer *fitz.InventoryObserver) {
	for change, err := range observer.Changes(ctx) {
		if err != nil {
			return
		}
		w.mu.Lock()
		w.board.Apply(change)
		spread := w.board.Spread()
		w.mu.Unlock()
		select {
		case w.seen <- spread:
		case <-ctx.Done():
			return
		}
	}
}

// patience ends a test that hangs. It is far more than a busy machine needs.
const patience = 2 * time.Minute

// settles waits until so many workers share everything.
func (w *crew) settles(workers int) {
	w.t.Helper()
	over := time.NewTimer(patience)
	defer over.Stop()
	var last fleet.Spread
	for !last.Settled || last.Workers != workers || last.Held != quickResources {
		select {
		case last = <-w.seen:
		case <-over.C:
			w.t.Fatalf("%d workers do not settle: %v", workers, last)
		}
	}
}

// holds returns what a worker holds according to the board, its presence included, in order.
func (w *crew) holds(id string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	routes := append(w.board.HeldBy(id), fleet.PresenceRoute(id))
	slices.Sort(routes)
	return routes
}

// process is one worker.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.Writer
	said chan [3]string // word, route, reason
}

func (w *crew) start(id string) *process {
	w.t.Helper()
	p := &process{t: w.t, cmd: exec.Command(os.Args[0]), said: make(chan [3]string, 1000)}
	p.cmd.Env = append(os.Environ(), memberEnv+"="+id+" "+w.url)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	p.in = in
	var reading sync.WaitGroup
	reading.Go(func() { p.read(out) })
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // a stopped one, too
		_ = in.Close()
		reading.Wait()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) read(out io.Reader) {
	defer close(p.said)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var said [3]string
		if n, err := fmt.Sscan(lines.Text(), &said[0], &said[1], &said[2]); n != 3 {
			p.t.Errorf("a worker said %q: %v", lines.Text(), err)
		}
		select {
		case p.said <- said:
		default:
			p.t.Error("a worker says more than anybody wants to know")
		}
	}
}

// hears returns what the worker has said since the last call, once it has said that it holds exactly these routes, and keeps held up to date. The
// broker knows of a lease before its worker does, and the worker before it has said so.
func (p *process) hears(held map[string]bool, routes []string) (all [][3]string) {
	p.t.Helper()
	over := time.NewTimer(patience)
	defer over.Stop()
	for complete := false; !complete; {
		// A worker waits for each of its requests, so that at most one is on its way, and without that one it does not hold these routes: when it
		// does at its answer, nothing comes behind.
		if _, err := io.WriteString(p.in, "\n"); err != nil {
			p.t.Fatal(err)
		}
		for answered := false; !answered; {
			select {
			case said, ok := <-p.said:
				if !ok {
					p.t.Fatalf("a worker ended after %v", all)
				}
				switch said[0] {
				case saidHere:
					answered = true
					continue
				case saidTaken:
					held[said[1]] = true
				default:
					delete(held, said[1])
				}
				all = append(all, said)
			case <-over.C:
				p.t.Fatalf("a worker holds %v, not %v, after %v", slices.Sorted(maps.Keys(held)), routes, all)
			}
		}
		complete = slices.Equal(slices.Sorted(maps.Keys(held)), routes)
	}
	return all
}
