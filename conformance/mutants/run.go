package mutants

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/scenario"
)

// Verdict is what became of a fault.
type Verdict string

// The verdicts.
const (
	Killed     Verdict = "killed"      // every listed scenario has noticed it
	Survived   Verdict = "survived"    // a listed scenario passes with it
	NotCounted Verdict = "not counted" // a listed scenario fails, but by a hang, a crash or something else that notices nothing
)

// notices tells whether a case has noticed a fault of a side: something was not as the scenario says, or did not come although everybody is
// well, or a broker that goes on running has closed a connection that the scenario needs.
func notices(side Side, c *engine.Case) bool {
	switch c.Reason {
	case engine.ReasonExpectation, engine.ReasonMissing:
		return c.Verdict == engine.Fail
	case engine.ReasonClosed:
		return c.Verdict == engine.Fail && side == Broker
	}
	return false
}

// Programs is one build of the programs under test.
type Programs struct {
	Driver string // path of the driver
	Broker string // path of fitzd
	Test   string // path of fitzd-test
	Limits driver.Limits
}

// Build builds the programs of a tree into a folder.
func Build(ctx context.Context, tree *kit.Tree, into string, tags ...string) (Programs, error) {
	p := Programs{Limits: driver.DefaultLimits}
	into, err := filepath.Abs(into) // the programs are built and started in other folders
	if err != nil {
		return p, err
	}
	err = os.MkdirAll(into, 0o755)
	if err != nil {
		return p, err
	}
	if p.Driver, err = tree.Build(ctx, into, kit.DriverPackage, tags...); err != nil {
		return p, err
	}
	if p.Broker, err = tree.Build(ctx, into, kit.BrokerPackage, tags...); err != nil {
		return p, err
	}
	p.Test, err = tree.Build(ctx, into, kit.TestBrokerPackage, append([]string{"testclock"}, tags...)...)
	return p, err
}

// sources are the programs with a fault of one side switched on, and with none when m is nil.
func (p Programs) sources(m *Mutant) (engine.DriverSource, engine.BrokerSource) {
	active := map[Side]string{}
	if m != nil {
		active[m.Side] = m.ID
	}
	none := Broker.Environment() + "=" // the brokers of examples have no fault
	d := kit.Driver([]string{p.Driver}, p.Limits, none, SDK.Environment()+"="+active[SDK])
	b := engine.BrokerSource{Real: []string{p.Broker}, Virtual: []string{p.Test}, Env: []string{Broker.Environment() + "=" + active[Broker]}}
	return d, b
}

// Options says how to run.
type Options struct {
	Transports []string // of the cases with faults and without; none: tcp where a scenario has it
	Slots      int      // faults at a time; 0: one for each processor, at least two
	Seed       uint64
	Progress   func(done, all int, r *Result) // after each fault; calls do not overlap
}

// Result is what became of one fault.
type Result struct {
	Mutant
	Verdict  Verdict       `json:"verdict"`
	Why      string        `json:"why,omitempty"` // of what is not killed
	Cases    []Outcome     `json:"cases"`
	Duration time.Duration `json:"duration_ns"`
}

// Outcome is what became of one case with a fault.
type Outcome struct {
	Case     string         `json:"case"`
	Scenario string         `json:"scenario"`
	Verdict  engine.Verdict `json:"verdict"`
	Reason   string         `json:"reason,omitempty"`
	Message  string         `json:"message,omitempty"`
	Step     string         `json:"step,omitempty"`
	Notices  bool           `json:"notices"`
}

// Report is everything that one run found out.
type Report struct {
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	Seed     uint64        `json:"seed,string"`
	All      int           `json:"all"`               // faults in the list; fewer results mean a selection
	Baseline []Baseline    `json:"baseline"`          // the same scenarios without a fault
	Results  []Result      `json:"results,omitempty"` // none when the baseline is not right
}

// Baseline is the run of the named scenarios without a fault.
type Baseline struct {
	Build      string        `json:"build"` // "without the tag mutants", "with the tag mutants, no fault switched on"
	Cases      int           `json:"cases"`
	Complaints []string      `json:"complaints,omitempty"`
	Duration   time.Duration `json:"duration_ns"`
}

// OK tells whether the baseline is right and every fault is killed.
func (r *Report) OK() bool {
	wrong := slices.ContainsFunc(r.Baseline, func(b Baseline) bool { return len(b.Complaints) > 0 || b.Cases == 0 })
	return !wrong && len(r.Baseline) > 0 && len(r.Results) > 0 && r.Count(Killed) == len(r.Results)
}

// Count returns how many faults have a verdict.
func (r *Report) Count(v Verdict) int {
	n := 0
	for i := range r.Results {
		if r.Results[i].Verdict == v {
			n++
		}
	}
	return n
}

// Runner runs scenarios with faults.
type Runner struct {
	Tree    *kit.Tree
	Plain   Programs // without the tag
	Mutated Programs // with it
	Options Options
}

// Run runs the scenarios of the faults without any fault, in both builds, and then each fault with its own scenarios. It stops after the
// first part when that is not right: what fails anyway notices nothing.
func (r *Runner) Run(ctx context.Context, list []Mutant) (*Report, error) {
	report := &Report{Started: time.Now(), Seed: r.Options.Seed, All: len(list)}
	defer func() { report.Duration = time.Since(report.Started) }()
	var killers []string
	for _, m := range list {
		killers = append(killers, m.KilledBy...)
	}
	for _, build := range []struct {
		name     string
		programs Programs
	}{{"without the tag " + Tag, r.Plain}, {"with the tag " + Tag + ", no fault switched on", r.Mutated}} {
		base, err := r.baseline(ctx, build.name, build.programs, killers)
		report.Baseline = append(report.Baseline, base)
		if err != nil || len(base.Complaints) > 0 {
			return report, err
		}
	}
	report.Results = r.each(ctx, list)
	return report, context.Cause(ctx)
}

func (r *Runner) baseline(ctx context.Context, name string, p Programs, killers []string) (Baseline, error) {
	run, err := r.engine(ctx, p, nil, killers, r.Options.Slots)
	if err != nil {
		return Baseline{Build: name}, err
	}
	b := Baseline{Build: name, Cases: len(run.Cases), Duration: run.Duration, Complaints: run.Left}
	for i := range run.Cases {
		if c := &run.Cases[i]; c.Verdict != engine.Pass {
			b.Complaints = append(b.Complaints, c.Describe())
		}
	}
	return b, nil
}

// each runs every fault, some at a time, and returns the results in the order of the list.
func (r *Runner) each(ctx context.Context, list []Mutant) []Result {
	slots := r.Options.Slots
	if slots <= 0 {
		slots = max(2, runtime.NumCPU())
	}
	results := make([]Result, len(list))
	next := make(chan int)
	var running sync.WaitGroup
	var telling sync.Mutex
	done := 0
	for range min(slots, max(len(list), 1)) {
		running.Go(func() {
			for i := range next {
				results[i] = r.one(ctx, list[i])
				telling.Lock()
				done++
				if r.Options.Progress != nil {
					r.Options.Progress(done, len(list), &results[i])
				}
				telling.Unlock()
			}
		})
	}
	given := 0
	for given < len(list) && ctx.Err() == nil {
		select {
		case next <- given:
			given++
		case <-ctx.Done():
		}
	}
	close(next)
	running.Wait()
	return results[:given]
}

// one runs the scenarios of one fault.
func (r *Runner) one(ctx context.Context, m Mutant) Result {
	begin := time.Now()
	result := Result{Mutant: m}
	run, err := r.engine(ctx, r.Mutated, &m, m.KilledBy, 1)
	result.Duration = time.Since(begin)
	if err != nil {
		result.Verdict, result.Why = NotCounted, err.Error()
		return result
	}
	for i := range run.Cases {
		c := &run.Cases[i]
		result.Cases = append(result.Cases, Outcome{
			Case: c.Name, Scenario: c.ID, Verdict: c.Verdict, Reason: c.Reason, Message: c.Message, Step: c.Step, Notices: notices(m.Side, c),
		})
	}
	result.judge()
	return result
}

// judge gives a fault its verdict: each of its scenarios must notice it in at least one case.
func (r *Result) judge() {
	r.Verdict = Killed
	for _, id := range r.KilledBy {
		var seen []string
		noticed, failed := false, false
		for _, o := range r.Cases {
			if o.Scenario != id {
				continue
			}
			noticed = noticed || o.Notices
			failed = failed || o.Verdict != engine.Pass
			seen = append(seen, strings.TrimSuffix(o.Case+": "+string(o.Verdict)+" "+o.Reason, " "))
		}
		switch {
		case noticed:
			continue
		case failed && r.Verdict == Killed:
			r.Verdict = NotCounted
		case !failed:
			r.Verdict = Survived
		}
		if len(seen) == 0 {
			seen = []string{id + ": no case"}
		}
		r.Why = strings.TrimPrefix(r.Why+"; "+strings.Join(seen, ", "), "; ")
	}
}

// engine runs scenarios with a fault, or without one.
func (r *Runner) engine(ctx context.Context, p Programs, m *Mutant, ids []string, slots int) (*engine.Run, error) {
	config := r.Tree.Config()
	config.Vectors, config.Slots, config.Seed = nil, slots, r.Options.Seed
	config.Scenarios = chosen(r.Tree.Scenarios, ids, r.Options.Transports)
	config.Driver, config.Broker = p.sources(m)
	config.Replay = "fitz-conformance run"
	if m != nil {
		config.Replay = fmt.Sprintf("fitz-conformance mutants --only %s", m.ID)
	}
	e, err := engine.New(config)
	if err != nil {
		return nil, err
	}
	run, err := e.Run(ctx)
	if err != nil {
		return nil, err
	}
	return run, nil
}

// chosen returns the scenarios with these ids, each with the wanted ones of its transports: without a wish with TCP, or the only one that it
// has. One way to authenticate is enough, since a fault must be noticed in one case.
func chosen(all []*scenario.Scenario, ids, transports []string) []*scenario.Scenario {
	var out []*scenario.Scenario
	for _, sc := range all {
		if !slices.Contains(ids, sc.ID) {
			continue
		}
		one := *sc
		one.Transports = slices.DeleteFunc(slices.Clone(sc.Transports), func(t string) bool { return !slices.Contains(transports, t) })
		if len(one.Transports) == 0 {
			one.Transports = preferred(sc.Transports)
		}
		one.Auth = sc.Auth[:1]
		out = append(out, &one)
	}
	return out
}

func preferred(transports []string) []string {
	const tcp = "tcp"
	if slices.Contains(transports, tcp) {
		return []string{tcp}
	}
	return transports[:1]
}

// Discover runs every scenario that names a clause which the fault breaks, and returns the ids of those that notice it, quickest first. It is
// how the list is made.
func (r *Runner) Discover(ctx context.Context, m Mutant) ([]string, error) {
	var ids []string
	for _, sc := range r.Tree.Scenarios {
		names := slices.ContainsFunc(sc.Clauses(), func(clause string) bool { return slices.Contains(m.Breaks, clause) })
		if names && (m.Side == Broker || sc.Subject == scenario.Client) {
			ids = append(ids, sc.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	run, err := r.engine(ctx, r.Mutated, &m, ids, r.Options.Slots)
	if err != nil {
		return nil, err
	}
	cases := slices.DeleteFunc(run.Cases, func(c engine.Case) bool { return !notices(m.Side, &c) })
	slices.SortStableFunc(cases, func(a, b engine.Case) int { return int(a.Duration - b.Duration) })
	var found []string
	for i := range cases {
		if !slices.Contains(found, cases[i].ID) {
			found = append(found, cases[i].ID)
		}
	}
	return found, nil
}

// Folders are where the two builds of a run stand, below a folder.
func Folders(in string) (plain, mutated string) {
	return filepath.Join(in, "plain"), filepath.Join(in, "mutants")
}
