package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/balance"
	"github.com/fitzwire/fitz/tools/internal/fleet"
)

type demoCmd struct {
	Workers   int           `name:"workers" default:"${demo_workers}" placeholder:"N" help:"Workers to start, 0 to ${demo_workers_max} (default ${demo_workers}). 0 shows a fleet that others run."`
	Resources int           `name:"resources" default:"${demo_resources}" placeholder:"M" help:"Resources that the fleet shares, 1 to ${demo_resources_max} (default ${demo_resources}). All workers need the same number."`
	Round     time.Duration `name:"round" default:"${demo_round}" placeholder:"DURATION" help:"How often a worker looks for something to release (default ${demo_round})."`
	TTL       time.Duration `name:"ttl" default:"${demo_ttl}" placeholder:"DURATION" help:"Life of a lease without renewal, in whole seconds (default ${demo_ttl})."`
	Churn     time.Duration `name:"churn" default:"${demo_churn}" placeholder:"DURATION" help:"How often a worker joins, leaves or is killed (default ${demo_churn}). 0: never."`
	Worker    bool          `name:"worker" help:"Be one worker of the fleet and show nothing, until interrupted or killed."`
	Name      string        `name:"name" placeholder:"ID" help:"Name of that worker (default HOST-PID-RANDOM)."`
}

// Bounds of what one program runs.
const (
	demoWorkersMax   = 1000
	demoResourcesMax = 10_000
	demoRoundMin     = 100 * time.Millisecond
	demoRoundMax     = time.Hour
	demoChurn        = 12 * time.Second // time for three rounds to settle and to look at it
	demoLatest       = 12               // events on the screen
	demoSpreadEvery  = 500 * time.Millisecond
)

// demoVars are the numbers in the help text and the defaults.
func demoVars() kong.Vars {
	return kong.Vars{
		"demo_workers": strconv.Itoa(fleet.DefaultWorkers), "demo_workers_max": strconv.Itoa(demoWorkersMax),
		"demo_resources": strconv.Itoa(fleet.DefaultResources), "demo_resources_max": strconv.Itoa(demoResourcesMax),
		"demo_round": fleet.DefaultRound.String(), "demo_ttl": fleet.DefaultTTL.String(), "demo_churn": demoChurn.String(),
	}
}

// Help is the long help text.
func (*demoCmd) Help() string {
	return `Workers share the resources lease://demo/fleet/... by holding a lease for each. Everyone sees the fleet through an inventory observer,
releases what others should have, and takes what is free; nobody leads. After a change the fleet settles within three rounds.

In a terminal the view is a table that is redrawn; else each event is one line: joined, left, taken, moved, freed, stale, fresh.
"fitz demo --worker" in another terminal is a process of its own that joins the fleet; end it by kill -9 and see what becomes of its leases.`
}

// Run shows or joins the fleet until interrupted.
func (c *demoCmd) Run(a *app) error {
	settings, err := c.settings(a)
	if err != nil {
		return err
	}
	err = a.guarded(func(ctx context.Context) error {
		if c.Worker {
			return c.work(ctx, a, settings)
		}
		return c.show(ctx, a, settings)
	})
	if f := (*failure)(nil); errors.As(err, &f) && f.silent { // interrupted, which is how a demo ends
		return nil
	}
	return err
}

// settings checks everything that was asked for, before anything is sent.
func (c *demoCmd) settings(a *app) (fleet.Settings, error) {
	s := fleet.Settings{URL: a.url, Round: c.Round, TTL: c.TTL, Rules: balance.Rules{BandPercent: fleet.DefaultBandPercent}, Random: random}
	switch {
	case c.Workers < 0 || c.Workers > demoWorkersMax:
		return s, usage("--workers must be 0 to %d", demoWorkersMax)
	case c.Resources < 1 || c.Resources > demoResourcesMax:
		return s, usage("--resources must be 1 to %d", demoResourcesMax)
	case c.Round < demoRoundMin || c.Round > demoRoundMax:
		return s, usage("--round must be %v to %v", demoRoundMin, demoRoundMax)
	case c.Churn < 0:
		return s, usage("--churn must not be negative")
	case len(c.Name) > bounds.LeaseOwnerBytesMax:
		return s, usage("--name is longer than %d bytes", bounds.LeaseOwnerBytesMax)
	case c.Name != "" && !c.Worker:
		return s, usage("--name is for --worker")
	}
	if c.Name != "" {
		if err := checkRoute(fleet.PresenceRoute(c.Name)); err != nil {
			return s, err
		}
	}
	if err := checkTTL(c.TTL); err != nil {
		return s, err
	}
	s.Catalogue = fleet.Catalogue(c.Resources)
	var err error
	s.Options, err = a.options()
	return s, err
}

// random is uniform in [0, 1).
func random() float64 { return randv2.Float64() }

// work is one worker.
func (c *demoCmd) work(ctx context.Context, a *app, s fleet.Settings) error {
	name := c.Name
	if name == "" {
		name = defaultOwner()
	}
	worker, err := fleet.Join(ctx, name, s)
	if err != nil {
		return err
	}
	defer worker.Leave()
	if err := a.print(fmt.Sprintf("worker %s is process %d", name, os.Getpid())); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-worker.Done():
		return worker.Err()
	}
}

// show runs the workers and shows the fleet.
func (c *demoCmd) show(ctx context.Context, a *app, s fleet.Settings) error {
	watcher, err := fitz.Connect(ctx, s.URL, s.Options...)
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }() // it holds nothing
	observer, err := watcher.Lease().Observe(fleet.Selector, &fitz.ObserveOptions{ExpectedTTL: s.TTL})
	if err != nil {
		return err
	}
	defer func() { _ = observer.Close() }()
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	stage := newStage(a, s.Catalogue)
	defer stage.close()
	part := func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	part(func(ctx context.Context) error { return stage.follow(ctx, observer) })
	part(stage.refresh)
	if c.Workers > 0 {
		part((&troupe{settings: s, size: c.Workers, every: c.Churn, prefix: demoPrefix(), stage: stage, fail: cancel}).run)
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// demoPrefix begins the names of the workers of one program, which must not be those of another one.
func demoPrefix() string {
	var unique [2]byte
	_, _ = rand.Read(unique[:]) // never fails
	return "worker-" + hex.EncodeToString(unique[:])
}

// stage shows a fleet. It is safe for several goroutines.
type stage struct {
	app    *app
	screen *os.File // nil: lines

	mu     sync.Mutex
	board  *fleet.Board
	latest []string // newest first
	spread string   // that was printed last
}

func newStage(a *app, catalogue []string) *stage {
	s := &stage{app: a, board: fleet.NewBoard(catalogue)}
	if file, ok := a.stdout.(*os.File); ok && !a.json && term.IsTerminal(int(file.Fd())) {
		s.screen = file
		_, _ = file.WriteString(hideCursor + clearAll) // what fails here fails again when the screen is drawn
	}
	return s
}

// close gives the terminal back.
func (s *stage) close() {
	if s.screen != nil {
		_, _ = s.screen.WriteString("\r\n" + showCursor)
	}
}

// follow shows changes until ctx ends or the view fails.
func (s *stage) follow(ctx context.Context, observer *fitz.InventoryObserver) error {
	for change, err := range observer.Changes(ctx) {
		if err != nil {
			return err
		}
		if err := s.apply(change); err != nil {
			return err
		}
	}
	return nil
}

func (s *stage) apply(change fitz.InventoryChange) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, event := range s.board.Apply(change) {
		if err := s.tell(fleet.Line(event), event); err != nil {
			return err
		}
	}
	return s.draw()
}

// act announces what the demo does to the fleet.
func (s *stage) act(action, worker string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.tell(fmt.Sprintf("demo   %ss %s", action, worker), map[string]string{"event": "demo", "action": action, "worker": worker}); err != nil {
		return err
	}
	return s.draw()
}

// tell adds an event to the screen, or prints it. s.mu is held.
func (s *stage) tell(line string, object any) error {
	switch {
	case s.screen != nil:
		s.latest = append([]string{time.Now().Format(time.TimeOnly) + "  " + line}, s.latest[:min(len(s.latest), demoLatest-1)]...)
		return nil
	case s.app.json:
		return s.app.printJSON(s.app.stdout, object)
	}
	return s.app.print(line)
}

// draw draws the screen, if there is one. s.mu is held.
func (s *stage) draw() error {
	if s.screen == nil {
		return nil
	}
	width, height, err := term.GetSize(int(s.screen.Fd()))
	if err != nil {
		width, height = 0, 0
	}
	_, err = s.screen.WriteString(frame(s.board.Live(s.latest, width, height)))
	return err
}

// refresh prints the spread whenever it is another one, or redraws the screen, until ctx ends.
func (s *stage) refresh(ctx context.Context) error {
	return each(ctx, demoSpreadEvery, s.showSpread)
}

// each calls f in that interval until ctx ends or f fails.
func each(ctx context.Context, interval time.Duration, f func() error) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := f(); err != nil {
			return err
		}
	}
}

func (s *stage) showSpread() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.screen != nil {
		return s.draw()
	}
	spread := s.board.Spread()
	if spread.String() == s.spread {
		return nil
	}
	s.spread = spread.String()
	return s.tell("spread "+s.spread, struct {
		Event string `json:"event"`
		fleet.Spread
	}{"spread", spread})
}

// troupe is the workers of one program, which come, go and are killed.
type troupe struct {
	settings fleet.Settings
	size     int
	every    time.Duration // 0: nobody comes or goes
	prefix   string
	stage    *stage
	fail     func(error)
	workers  []*fleet.Worker
	names    int
	watching sync.WaitGroup
}

// run starts the workers and changes them until ctx ends.
func (t *troupe) run(ctx context.Context) error {
	defer t.end()
	for range t.size {
		if err := t.join(ctx); err != nil {
			return err
		}
	}
	if t.every == 0 {
		<-ctx.Done()
		return nil
	}
	return each(ctx, t.every, func() error { return t.change(ctx) })
}

func (t *troupe) join(ctx context.Context) error {
	t.names++
	worker, err := fleet.Join(ctx, fmt.Sprintf("%s-%d", t.prefix, t.names), t.settings)
	if err != nil {
		return err
	}
	t.workers = append(t.workers, worker)
	t.watching.Go(func() {
		<-worker.Done()
		if err := worker.Err(); err != nil {
			t.fail(err)
		}
	})
	return nil
}

// change lets one worker come, go or die. The number of workers stays near the one that was asked for.
func (t *troupe) change(ctx context.Context) error {
	if len(t.workers) < t.size || len(t.workers) == t.size && (t.size == 1 || random() < 0.5) {
		if err := t.stage.act("add", t.prefix+"-"+strconv.Itoa(t.names+1)); err != nil {
			return err
		}
		return t.tryJoin(ctx)
	}
	i := int(random() * float64(len(t.workers)))
	worker := t.workers[i]
	t.workers = append(t.workers[:i], t.workers[i+1:]...)
	action, end := "remove", worker.Leave
	if random() < 0.5 {
		action, end = "kill", worker.Kill
	}
	if err := t.stage.act(action, worker.ID()); err != nil {
		return err
	}
	end()
	return nil
}

// tryJoin joins, and leaves it for the next time when the broker cannot be reached now.
func (t *troupe) tryJoin(ctx context.Context) error {
	err := t.join(ctx)
	if code := fitz.CodeOf(err); code == fitz.CodeConnRefused || code == fitz.CodeConnLost || code == fitz.CodeConnGoaway || code == fitz.CodeRequestTimeout {
		return nil
	}
	return err
}

// end lets all workers leave together.
func (t *troupe) end() {
	var leaving sync.WaitGroup
	for _, worker := range t.workers {
		leaving.Go(worker.Leave)
	}
	leaving.Wait()
	t.watching.Wait()
}
