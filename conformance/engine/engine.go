package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/vectors"
)

// Config is what a run is about.
type Config struct {
	Spec      *oracle.Spec
	SpecFiles fs.FS // spec/, for the names of settings and bounds
	Scenarios []*scenario.Scenario
	Vectors   []vectors.Vector // given to a driver that has the feature; none: left out

	Driver DriverSource
	Broker BrokerSource
	Select Selection
	Known  []Known

	Slots    int    // cases at a time; 0: two for each processor, at least four
	Seed     uint64 // of everything random; each case has a seed of its own made of it
	Replay   string // beginning of the command line that replays one case
	Budget   time.Duration
	Traces   bool                         // keep frames, events and steps of cases that pass too
	Progress func(done, all int, c *Case) // after each case; calls do not overlap
}

// DriverSource starts drivers. Without Start there is none.
type DriverSource struct {
	Start  func(ctx context.Context) (*driver.Driver, error)
	Name   string // command line, for the report
	Limits driver.Limits
}

// Selection chooses cells of the matrix. What is empty chooses all.
type Selection struct {
	Scenarios  []string // patterns of ids: OBS-0*
	Transports []string
	Labels     []string
	Auth       []string
	Cases      []string // names: OBS-003/tcp/on/anonymous
}

// Whole tells whether the selection leaves nothing out.
func (s Selection) Whole() bool {
	return len(s.Scenarios)+len(s.Transports)+len(s.Labels)+len(s.Auth)+len(s.Cases) == 0
}

func (s Selection) chooses(c Cell) bool {
	named := len(s.Scenarios) == 0
	for _, pattern := range s.Scenarios {
		matched, err := path.Match(pattern, c.Scenario.ID)
		named = named || err == nil && matched
	}
	in := func(list []string, v string) bool { return len(list) == 0 || slices.Contains(list, v) }
	return named && in(s.Transports, c.Transport) && in(s.Labels, c.Labels) && in(s.Auth, c.Auth) && in(s.Cases, c.Name())
}

// Matrix returns the cells of scenarios that a selection chooses, in the order of the scenarios.
func Matrix(scenarios []*scenario.Scenario, s Selection) []Cell {
	var cells []Cell
	for _, sc := range scenarios {
		for _, transport := range sc.Transports {
			for _, labels := range sc.Labels {
				for _, auth := range sc.Auth {
					if c := (Cell{sc, transport, labels, auth}); s.chooses(c) {
						cells = append(cells, c)
					}
				}
			}
		}
	}
	return cells
}

// Engine runs the cases of one configuration.
type Engine struct {
	Config
	catalog *scenario.Catalog
	flags   map[string]string // of settings of a broker
	dev     development
	keys    lazyMaterial
	forms   map[string]oracle.Form
	number  sync.Mutex // guards cases
	cases   uint64
}

// New checks a configuration.
func New(c Config) (*Engine, error) {
	catalog, err := scenario.LoadCatalog(c.SpecFiles)
	if err != nil {
		return nil, err
	}
	flags, err := loadFlags(c.SpecFiles)
	if err != nil {
		return nil, err
	}
	for _, pattern := range c.Select.Scenarios {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("pattern %q: %w", pattern, err)
		}
	}
	if c.Slots <= 0 {
		c.Slots = max(4, 2*runtime.NumCPU()) // cases wait for most of their time
	}
	if c.Driver.Limits == (driver.Limits{}) {
		c.Driver.Limits = driver.DefaultLimits
	}
	dev, err := loadDevelopment(c.SpecFiles)
	if err != nil {
		return nil, err
	}
	e := &Engine{Config: c, catalog: catalog, flags: flags, dev: dev, forms: map[string]oracle.Form{}}
	for _, m := range c.Spec.Messages() {
		e.forms[m.Name] = m.Forms[0]
	}
	return e, nil
}

// form is the form of a message that was written without one: the request of an operation, the only form of others.
func (e *Engine) form(message string) oracle.Form {
	if e.catalog.Messages[message] {
		return oracle.Request
	}
	return e.forms[message]
}

// Run runs every chosen case and returns what was found out. It ends early, with the cases so far, when ctx ends; the error is then of ctx.
func (e *Engine) Run(ctx context.Context) (*Run, error) {
	leaks := watchLeaks()
	defer e.dropMaterial()
	cells := Matrix(e.Scenarios, e.Select)
	run := &Run{
		Started: time.Now(), Seed: e.Seed, Slots: e.Slots, Filtered: !e.Select.Whole(),
		Subject: Info{Command: e.Driver.Name}, Broker: e.Broker.info(), Cases: make([]Case, len(cells)),
	}
	begin := time.Now()
	e.runVectors(ctx, run)
	e.runCells(ctx, run, cells, begin)
	run.Duration = time.Since(begin)
	if e.Budget > 0 && !run.Filtered {
		took := run.Duration
		if run.Vectors != nil {
			took -= run.Vectors.Duration
		}
		run.Budgets = append(run.Budgets, Budget{"scenarios", e.Budget, took})
	}
	run.settleKnown(e.Known)
	run.Left = leaks()
	return run, context.Cause(ctx)
}

// runs counts the runs of this process: those that go on, and all that ever began.
var runs struct {
	sync.Mutex
	active int
	begun  uint64
}

// watchLeaks returns a function that tells at the end of a run which goroutines and processes of it are left. Those of runs beside it
// cannot be told from its own, so that it says nothing when there were any.
func watchLeaks() func() []string {
	runs.Lock()
	defer runs.Unlock()
	alone := runs.active == 0
	runs.active++
	runs.begun++
	mine := runs.begun
	goroutines, processes := goleak.IgnoreCurrent(), children()
	return func() []string {
		runs.Lock()
		runs.active--
		alone = alone && runs.begun == mine
		runs.Unlock()
		if !alone {
			return nil
		}
		var left []string
		for pid, name := range children() {
			if _, before := processes[pid]; !before {
				left = append(left, fmt.Sprintf("process %s %s", pid, name))
			}
		}
		if err := goleak.Find(goroutines); err != nil {
			left = append(left, err.Error())
		}
		return left
	}
}

// children is the processes that this one has started and that run, where the system tells them under /proc. Those that a driver started are
// its own affair, whose end the driver package checks.
func children() map[string]string {
	out := map[string]string{}
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return out
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		pid, rest, _ := strings.Cut(string(text), " (")
		program, rest, _ := strings.Cut(rest, ") ")
		fields := strings.Fields(rest) // state, parent
		if len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
			out[pid] = program
		}
	}
	return out
}

// runCells gives the cells to the slots.
func (e *Engine) runCells(ctx context.Context, run *Run, cells []Cell, begin time.Time) {
	next := make(chan int)
	var slots sync.WaitGroup
	var telling sync.Mutex
	done := 0
	for range min(e.Slots, max(len(cells), 1)) {
		slots.Go(func() {
			s := &slot{engine: e}
			var last *Case // that used the driver which the slot still has
			for i := range next {
				c := &run.Cases[i]
				*c = s.run(ctx, cells[i], begin)
				if c.Subject == string(scenario.Client) {
					last = c
				}
				telling.Lock()
				done++
				run.learn(s.subject)
				if e.Progress != nil {
					e.Progress(done, len(cells), c)
				}
				telling.Unlock()
			}
			if f := s.close(); f != nil && last != nil {
				last.judge(f)
			}
		})
	}
	given := 0
	for given < len(cells) && ctx.Err() == nil {
		select {
		case next <- given:
			given++
		case <-ctx.Done():
		}
	}
	close(next)
	slots.Wait()
	run.Cases = run.Cases[:given]
}

// learn takes over what a driver says of itself.
func (r *Run) learn(h *driver.Hello) {
	if h == nil || r.Subject.Name != "" {
		return
	}
	r.Subject.Name, r.Subject.Version, r.Subject.Language, r.Subject.Features = h.Name, h.Version, h.Language, h.Features
}

// caseNumber numbers the cases of a run.
func (e *Engine) caseNumber() uint64 {
	e.number.Lock()
	defer e.number.Unlock()
	e.cases++
	return e.cases
}

// seedOf is the seed of a cell: equal for equal seeds of runs, whatever else runs.
func (e *Engine) seedOf(c Cell) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(c.Name()) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return (h ^ e.Seed) >> 1 // drivers keep it in signed numbers
}

// vectorsBudget is what the vectors of one driver may take.
const vectorsBudget = 15 * time.Second

// wrongMax is how many wrong answers are kept.
const wrongMax = 100

// runVectors gives the golden vectors to a driver of their own.
func (e *Engine) runVectors(ctx context.Context, run *Run) {
	if e.Driver.Start == nil || len(e.Vectors) == 0 || ctx.Err() != nil {
		return
	}
	v := &Vectors{Verdict: Pass}
	run.Vectors = v
	begin := time.Now()
	err := e.askVectors(ctx, run, v)
	v.Duration = time.Since(begin)
	run.Budgets = append(run.Budgets, Budget{"vectors", vectorsBudget, v.Duration})
	var f *driver.Fault
	switch {
	case errors.As(err, &f):
		v.Verdict, v.Reason = Fail, f.Error()
	case errors.Is(err, errNoVectors):
		v.Verdict, v.Reason = Unsupported, err.Error()
	case err != nil:
		v.Verdict, v.Reason = Fail, err.Error()
	case v.WrongAll > 0:
		v.Verdict, v.Reason = Fail, fmt.Sprintf("%d of %d answers are wrong", v.WrongAll, v.Checked)
	}
}

var errNoVectors = errors.New("the driver lacks the feature vectors")

// askVectors sends commands some at a time, so that neither side waits for the other.
func (e *Engine) askVectors(ctx context.Context, run *Run, v *Vectors) error {
	d, err := e.Driver.Start(ctx)
	if err != nil {
		return err
	}
	defer d.Kill()
	h := d.Hello()
	run.learn(&h)
	if !d.Has("vectors") {
		return errNoVectors
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 4*vectorsBudget, errDeadline)
	defer cancel()
	const window = 64
	var open []question
	for i := range e.Vectors {
		for _, q := range questions(&e.Vectors[i]) {
			if q.call, err = d.Send(q.command); err != nil {
				return err
			}
			if open = append(open, q); len(open) < window {
				continue
			}
			if err := v.take(ctx, d, open[0]); err != nil {
				return err
			}
			open = open[1:]
		}
	}
	for _, q := range open {
		if err := v.take(ctx, d, q); err != nil {
			return err
		}
	}
	if f := d.Close(); f != nil {
		return f
	}
	return nil
}

// question is one command about a vector and what its answer must be.
type question struct {
	id      string
	command driver.Command
	call    *driver.Call
	check   func(ok map[string]any) error
}

func questions(v *vectors.Vector) []question {
	list := []question{{
		id:      "decode " + v.ID,
		command: driver.Command{Cmd: "vector.decode", Args: v.DecodeArgs()},
		check: func(ok map[string]any) error {
			answer, err := asAnswer(ok)
			if err != nil {
				return err
			}
			return vectors.Check(*v, answer)
		},
	}}
	if args := v.EncodeArgs(); encodable(v) {
		list = append(list, question{
			id: "encode " + v.ID, command: driver.Command{Cmd: "vector.encode", Args: args},
			check: func(ok map[string]any) error {
				encoded, err := asBytes(ok)
				if err != nil {
					return err
				}
				return vectors.CheckBytes(*v, encoded)
			},
		})
	}
	return list
}

func (v *Vectors) take(ctx context.Context, d *driver.Driver, q question) error {
	reply, err := d.Wait(ctx, q.call)
	if err != nil {
		return err
	}
	v.Checked++
	switch {
	case reply.Unsupported():
		return d.Fail(driver.FaultFalseFeature, "it announces vectors and does not know %s", q.command.Cmd)
	case reply.OK == nil:
		err = fmt.Errorf("%s", scenario.Show(reply.Err))
	default:
		err = q.check(reply.OK)
	}
	if err == nil {
		return nil
	}
	v.WrongAll++
	if len(v.Wrong) < wrongMax {
		v.Wrong = append(v.Wrong, q.id+": "+err.Error())
	}
	return nil
}

// asMap is a value as JSON has it.
func asMap(v any) (map[string]any, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	return m, json.Unmarshal(text, &m)
}

// WithoutDriver returns the scenarios that need no driver.
func WithoutDriver(scenarios []*scenario.Scenario) []*scenario.Scenario {
	return slices.DeleteFunc(slices.Clone(scenarios), func(s *scenario.Scenario) bool { return s.Subject == scenario.Client })
}
