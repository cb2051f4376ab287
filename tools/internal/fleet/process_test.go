package fleet_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
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
	quickTTL       = 2 * time.Second
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
	saidLost  = "lost"  // it knows that it lost a route, and why
)

// member is a worker process. It says what it takes and loses, until its standard input ends.
func member(order string) error {
	id, url, _ := strings.Cut(order, " ")
	s := quickSettings(url)
	s.Options = []fitz.Option{fitz.WithHooks(fitz.Hooks{
		Begin: func(ctx context.Context, o fitz.Operation) (context.Context, func(error)) {
			return ctx, func(err error) {
				if err == nil && o.Name == "lease.acquire" {
					fmt.Println(saidTaken, o.Route, "-")
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
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// crew is a broker on real sockets, workers that are processes, and somebody who watches them.
type crew struct {
	t     *testing.T
	url   string
	board *fleet.Board
	seen  chan fleet.Spread // after every change of the inventory
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
		w.board.Apply(change)
		select {
		case w.seen <- w.board.Spread():
		case <-ctx.Done():
			return
		}
	}
}

// settles waits until so many workers share everything.
func (w *crew) settles(workers int) {
	w.t.Helper()
	const patience = 20 * time.Second // a test that hangs fails
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

// process is one worker.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
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

// heard returns what was said so far.
func (p *process) heard() (all [][3]string) {
	for {
		select {
		case said, ok := <-p.said:
			if !ok {
				return all
			}
			all = append(all, said)
		default:
			return all
		}
	}
}
