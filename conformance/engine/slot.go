package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/conformance/brokerproc"
	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/rawpeer"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/trace"
)

// BrokerSource starts brokers, or is the address of one.
type BrokerSource struct {
	Real      []string          // command for scenarios with real time
	Virtual   []string          // command for scenarios with virtual time: it has a control port
	Addresses map[string]string // of a broker that runs elsewhere, by brokerproc.TCP and brokerproc.HTTP; then there are no commands
	Foreign   bool              // the command does not take the settings of fitzd
	Env       []string          // added to the environment of the commands
	Secret    string            // of HS256, by which its listeners that want tokens verify them; empty: the one of spec/broker.yaml
}

func (b BrokerSource) info() Info {
	if b.Addresses != nil {
		return Info{Command: strings.Join(slices.Sorted(maps.Values(b.Addresses)), " ")}
	}
	return Info{Command: strings.Join(b.Real, " ")}
}

// slot runs one case at a time and keeps driver and broker for the next one when nothing is wrong with them.
type slot struct {
	engine  *Engine
	driver  *driver.Driver
	subject *driver.Hello
	shared  *brokerproc.Broker // for scenarios with real time and without settings
	virtual []kept             // with a control port, the one that was used last in front; at most keptMax
}

// kept is a broker that a case has left as it found it: its control port says that it holds nothing. Another case with the same settings
// gets it, in which it is some time later.
type kept struct {
	settings string
	broker   *brokerproc.Broker
}

// keptMax is how many brokers with virtual time a slot keeps: the one without settings, and one with those of the scenario at hand, whose
// cells stand beside each other.
const keptMax = 2

// patience is the real time in which everything of a case must end.
const patience = 10 * time.Second

func (s *slot) run(ctx context.Context, cell Cell, begin time.Time) Case {
	sc := cell.Scenario
	started := time.Now()
	c := Case{
		Name: cell.Name(), ID: sc.ID, Title: sc.Title, File: sc.File, Subject: string(sc.Subject), Transport: cell.Transport, Labels: cell.Labels,
		Auth: cell.Auth, Time: string(sc.Time), Proves: sc.Proves, Refuses: sc.Refuses, Codes: sc.Codes,
		Seed: s.engine.seedOf(cell), Started: started.Sub(begin), Replay: s.engine.replay(cell),
	}
	n := s.engine.caseNumber()
	x := &exec{
		engine: s.engine, cell: cell, seed: c.Seed, prefix: fmt.Sprintf("k%d_", n), spec: s.engine.Spec, started: started,
		brokers: map[string]*brokerproc.Broker{},
		vars: map[string]any{
			scenario.VarRealm: fmt.Sprintf("r%d", n), scenario.VarTransport: cell.Transport, scenario.VarLabels: cell.Labels,
			scenario.VarSeed: c.Seed, scenario.VarAuth: cell.Auth,
		},
		fakes: map[string]*fakebroker.Broker{}, links: map[string]*link{}, peers: map[string]*rawpeer.Peer{}, clients: map[string]bool{},
		calls: map[string]running{}, rules: map[string]lifter{}, marks: map[string]moment{}, cursors: map[string]uint64{},
		backgrounds: map[string]*background{}, resting: map[string]bool{},
	}
	err := s.perform(ctx, x)
	c.judge(err)
	if c.Verdict != Pass || s.engine.Traces {
		x.report(&c)
	}
	s.after(x, &c)
	c.Duration = time.Since(started)
	return c
}

// perform prepares a case, runs it and ends what it began.
func (s *slot) perform(ctx context.Context, x *exec) error {
	if err := s.prepare(ctx, x); err != nil {
		return err
	}
	inner, cancel := context.WithTimeoutCause(ctx, x.cell.Scenario.Budget, errDeadline)
	defer cancel()
	err := s.begin(inner, x)
	if err == nil {
		watched, done := x.watchQuiet(inner)
		err = x.run(watched)
		done()
	}
	ending, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), patience, errDeadline)
	defer stop()
	closing := x.close(ending)
	if err != nil {
		return err
	}
	if closing != nil {
		return x.explainEnd(closing)
	}
	if err := x.wellFormed(); err != nil {
		return err
	}
	return x.clean(ending)
}

// explainEnd gives an error of the end of a case a verdict.
func (x *exec) explainEnd(err error) error {
	var f *driver.Fault
	if errors.As(err, &f) {
		return f
	}
	if x.driver != nil {
		if f := x.driver.Alive(); f != nil {
			return f
		}
	}
	return failed(ReasonDeadline, "the end of the case: %v", err)
}

// prepare gets driver and brokers. What cannot be had is a verdict of its own.
func (s *slot) prepare(ctx context.Context, x *exec) error {
	sc := x.cell.Scenario
	b := s.engine.Broker
	if sc.Time == scenario.Virtual && len(b.Virtual) == 0 {
		return cannotRun(ReasonNoVirtual, "the broker has no virtual clock")
	}
	if b.Addresses != nil || b.Foreign {
		if len(sc.Brokers) > 1 || len(sc.Brokers[scenario.DefaultBroker]) > 0 {
			return cannotRun(ReasonNoProcess, "the scenario needs brokers with settings of its own")
		}
	}
	if b.Addresses != nil && stops(sc.Steps) {
		return cannotRun(ReasonNoProcess, "the scenario stops brokers, and this one runs elsewhere")
	}
	if sc.Subject == scenario.Client {
		if err := s.getDriver(ctx, x); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sc.Brokers)) {
		broker, err := s.getBroker(ctx, sc, name)
		if err != nil {
			return err
		}
		x.brokers[name] = broker
	}
	if !x.hasTokens() {
		return &verdictError{Unsupported, ReasonNoTokens, "the broker has no listener that wants a token at " + x.cell.Transport}
	}
	if x.address(scenario.DefaultBroker, x.cell.Transport) == "" {
		return cannotRun(ReasonNoTransport, "the broker does not serve %s", x.cell.Transport)
	}
	return nil
}

// hasTokens tells whether the brokers serve the column auth of the case. One that serves the transport without tokens only does not.
func (x *exec) hasTokens() bool {
	if x.cell.Auth != scenario.Token {
		return true
	}
	for name := range x.brokers {
		if x.listener(name, x.cell.Transport, scenario.Token) == "" && x.listener(name, x.cell.Transport, scenario.Anonymous) != "" {
			return false
		}
	}
	return true
}

// getDriver takes the driver of the slot or starts one, and checks that it can do what the scenario needs.
func (s *slot) getDriver(ctx context.Context, x *exec) error {
	sc := x.cell.Scenario
	if s.engine.Driver.Start == nil {
		return cannotRun(ReasonNoDriver, "there is no driver")
	}
	if sc.Exclusive {
		if f := s.dropDriver(); f != nil {
			return f
		}
	}
	if s.driver == nil {
		d, err := s.startDriver(ctx)
		if err != nil {
			return err
		}
		s.driver = d
	}
	needs := append([]string{x.cell.Transport}, sc.Needs...)
	if sc.Time == scenario.Virtual {
		needs = append(needs, "virtual")
	}
	if x.cell.Auth == scenario.Token {
		needs = append(needs, "token")
	}
	for _, feature := range needs {
		if !s.driver.Has(feature) {
			return &verdictError{Unsupported, ReasonFeature, fmt.Sprintf("the driver lacks the feature %q", feature)}
		}
	}
	s.driver.Renew()
	x.driver = s.driver
	return nil
}

// startDriver starts a driver and asks it for something that does not exist, which a driver must say.
func (s *slot) startDriver(ctx context.Context) (*driver.Driver, error) {
	d, err := s.engine.Driver.Start(ctx)
	var f *driver.Fault
	if errors.As(err, &f) && f.Exit == driver.ExitUnsupported {
		return nil, &verdictError{Unsupported, ReasonCommand, "the driver ended with the code that says so: " + f.Detail}
	}
	if err != nil {
		return nil, err
	}
	h := d.Hello()
	s.subject = &h
	asking, cancel := context.WithTimeoutCause(ctx, s.engine.Driver.Limits.Answer, errDeadline)
	defer cancel()
	reply, err := d.Do(asking, driver.Command{Cmd: "no.such.command"})
	switch {
	case errors.As(err, &f):
	case err != nil:
		f = d.Fail(driver.FaultHang, "it does not answer a command that it cannot know: %v", err)
	case !reply.Unsupported():
		f = d.Fail(driver.FaultNeverRefuses, "it answers a command that does not exist with %s", answerOf(reply))
	}
	if f != nil {
		d.Kill()
		return nil, f
	}
	return d, nil
}

func answerOf(r driver.Reply) string {
	return outcome{ok: r.OK, err: r.Err, cancelled: r.Cancelled}.String()
}

// shareable tells whether a scenario leaves a broker as it found it, apart from its realm. With real time nobody tells that a broker with
// small bounds holds nothing any more.
func shareable(sc *scenario.Scenario) bool {
	if sc.Exclusive || len(sc.Brokers) > 1 || stops(sc.Steps) || movesWall(sc.Steps) {
		return false
	}
	return sc.Time == scenario.Virtual || len(sc.Brokers[scenario.DefaultBroker]) == 0
}

func stops(steps []scenario.Step) bool {
	return slices.ContainsFunc(steps, func(s scenario.Step) bool { return strings.HasSuffix(s.Action, "_broker") || stops(s.Steps) })
}

// movesWall tells whether steps move the time of day of a broker, which would stay moved.
func movesWall(steps []scenario.Step) bool {
	return slices.ContainsFunc(steps, func(s scenario.Step) bool {
		return s.Action == "wall" && s.Text("side") == "broker" || movesWall(s.Steps)
	})
}

func (s *slot) getBroker(ctx context.Context, sc *scenario.Scenario, name string) (*brokerproc.Broker, error) {
	b := s.engine.Broker
	if b.Addresses != nil {
		if s.shared == nil {
			s.shared = brokerproc.Attach(b.Addresses)
		}
		return s.shared, nil
	}
	settings, err := s.engine.replaced(sc.Brokers[name])
	if err != nil {
		return nil, err
	}
	o := brokerproc.Options{Command: b.Real, Args: s.engine.arguments(settings), Env: b.Env, Tokens: s.engine.configure(settings)}
	virtual := sc.Time == scenario.Virtual
	shared := shareable(sc)
	switch {
	case shared && virtual:
		if broker := s.reuse(ctx, settingsOf(o.Args)); broker != nil {
			return broker, nil
		}
	case shared && s.shared != nil && alive(s.shared):
		return s.shared, nil
	}
	if virtual {
		o.Command, o.Control = b.Virtual, true
	}
	broker, err := brokerproc.Start(ctx, o)
	if err != nil {
		return nil, cannotRun(ReasonBrokerStart, "%v", err)
	}
	if shared && !virtual {
		if s.shared != nil {
			s.shared.Close()
		}
		s.shared = broker
	}
	return broker, nil
}

func settingsOf(arguments []string) string { return strings.Join(arguments, "\x00") }

// firstWall is the time of day at which every case with virtual time begins, in a broker that was kept too. fitzd-test starts with it.
var firstWall = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// renew lets a case begin at a whole second, as in a broker that has just begun: a broker may deal with deadlines at ticks that it counts
// from its start, and what is due at the end of an advance is then due at a tick.
func renew(ctx context.Context, c *brokerproc.Control) error {
	now, err := c.Now(ctx)
	if err != nil {
		return err
	}
	if rest := now.Elapsed % time.Second; rest != 0 {
		if _, err := c.Advance(ctx, time.Second-rest); err != nil {
			return err
		}
	}
	return c.SetWall(ctx, firstWall)
}

// reuse takes a broker with these settings out of those that are kept, nil when there is none.
func (s *slot) reuse(ctx context.Context, settings string) *brokerproc.Broker {
	i := slices.IndexFunc(s.virtual, func(k kept) bool { return k.settings == settings })
	if i < 0 {
		return nil
	}
	broker := s.virtual[i].broker
	s.virtual = slices.Delete(s.virtual, i, i+1)
	if alive(broker) && renew(ctx, broker.Control()) == nil {
		return broker
	}
	broker.Close()
	return nil
}

// keep keeps a broker with virtual time. The one that was not used for the longest time makes room; one without settings comes last,
// since most scenarios want it.
func (s *slot) keep(settings string, broker *brokerproc.Broker) {
	s.virtual = append([]kept{{settings, broker}}, s.virtual...)
	if len(s.virtual) <= keptMax {
		return
	}
	gone := len(s.virtual) - 1
	if s.virtual[gone].settings == "" {
		gone--
	}
	s.virtual[gone].broker.Close()
	s.virtual = slices.Delete(s.virtual, gone, gone+1)
}

func alive(b *brokerproc.Broker) bool {
	select {
	case <-b.Exited():
		return false
	default:
		return true
	}
}

// begin sets clock and seed of the driver.
func (s *slot) begin(ctx context.Context, x *exec) error {
	if x.driver == nil {
		return nil
	}
	if x.driver.Has("virtual") {
		if err := x.tell(ctx, "clock.set", map[string]any{"mode": string(x.cell.Scenario.Time)}); err != nil {
			return x.explainEnd(err)
		}
	}
	if x.driver.Has("rng") {
		return x.tell(ctx, "rng.seed", map[string]any{"seed": fmt.Sprint(x.seed)})
	}
	return nil
}

// clean checks that nothing of the case is left in driver and brokers.
func (x *exec) clean(ctx context.Context) error {
	if x.driver != nil && len(x.clients) > 0 && x.driver.Has("stats") {
		if err := x.cleanDriver(ctx); err != nil {
			return err
		}
	}
	if !x.virtual() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(x.brokers)) {
		if c := x.brokers[name].Control(); c != nil && !x.resting[name] {
			if err := cleanBroker(ctx, name, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// cleanDriver asks the driver for its stats until nothing is left. Goroutines and sockets of a closed client end a moment after it.
func (x *exec) cleanDriver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, x.engine.Driver.Limits.Answer)
	defer cancel()
	left := ""
	for {
		reply, err := x.driver.Do(ctx, driver.Command{Cmd: "stats"})
		var f *driver.Fault
		switch {
		case errors.As(err, &f):
			return f
		case err != nil:
			return x.driver.Fail(driver.FaultDirty, "when every client was closed there were left: %s", left)
		case reply.Unsupported():
			return x.unsupported("stats")
		}
		if left = leftOf(reply.OK); left == "" {
			return nil
		}
		if ctx.Err() != nil {
			return x.driver.Fail(driver.FaultDirty, "when every client was closed there were left: %s", left)
		}
	}
}

// gauges is what a driver counts that must be nothing when every client is closed; its stats may hold more.
var gauges = []string{"tasks", "timers", "sockets", "pending", "buffered", "commands"}

func leftOf(stats map[string]any) string {
	var left []string
	for _, key := range gauges {
		if n, ok := scenario.Int(stats[key]); ok && n > 0 {
			left = append(left, fmt.Sprintf("%d %s", n, key))
		}
	}
	return strings.Join(left, ", ")
}

// cleanBroker waits until a broker whose clients have gone holds nothing.
func cleanBroker(ctx context.Context, name string, c *brokerproc.Control) error {
	ctx, cancel := context.WithTimeout(ctx, patience/2)
	defer cancel()
	left := ""
	for {
		if err := c.Settle(ctx); err != nil {
			return brokerLeft(name, left, err)
		}
		stats, err := c.Stats(ctx)
		if err != nil {
			return brokerLeft(name, left, err)
		}
		if left = stats.Left(); left == "" {
			return nil
		}
		if ctx.Err() != nil {
			return brokerLeft(name, left, ctx.Err())
		}
	}
}

func brokerLeft(name, left string, err error) error {
	if left == "" {
		return failed(ReasonBrokerCrash, "the broker %s does not answer: %v", name, err)
	}
	return failed(ReasonBrokerLeft, "when everybody has gone the broker %s holds %s", name, left)
}

// after ends what the next case must not get.
func (s *slot) after(x *exec, c *Case) {
	keep := c.Verdict == Pass && !x.cell.Scenario.Exclusive
	for _, b := range x.brokers {
		if b == s.shared && (keep || s.engine.Broker.Addresses != nil) {
			continue
		}
		if keep && x.virtual() && shareable(x.cell.Scenario) {
			s.keep(settingsOf(b.Args()), b)
			continue
		}
		if b == s.shared {
			s.shared = nil
		}
		b.Close()
	}
	if x.driver == nil || keep {
		return
	}
	if c.Verdict != Pass {
		s.driver.Kill()
		s.driver = nil
		return
	}
	if f := s.dropDriver(); f != nil {
		c.judge(f)
	}
}

// dropDriver ends the driver of the slot in order and returns what was wrong with its end.
func (s *slot) dropDriver() *driver.Fault {
	if s.driver == nil {
		return nil
	}
	d := s.driver
	s.driver = nil
	return d.Close()
}

func (s *slot) close() *driver.Fault {
	if s.shared != nil {
		s.shared.Close()
	}
	for _, k := range s.virtual {
		k.broker.Close()
	}
	return s.dropDriver()
}

// judge makes the verdict of a case of the error that ended it.
func (c *Case) judge(err error) {
	var step *stepError
	if errors.As(err, &step) {
		c.Step, c.StepText = step.step.Index, step.step.Line()
		pos := step.step.Pos
		c.Pos = &pos
	}
	var v *verdictError
	var f *driver.Fault
	switch {
	case err == nil:
		c.Verdict = Pass
	case errors.As(err, &f):
		c.Verdict, c.Reason, c.Message = Fail, f.Name, f.Detail
	case errors.As(err, &v):
		c.Verdict, c.Reason, c.Message = v.verdict, v.reason, v.message
	case errors.Is(err, context.Canceled):
		c.Verdict, c.Reason, c.Message = CouldNotRun, "interrupted", "the run was ended"
	default:
		c.Verdict, c.Reason, c.Message = Fail, ReasonScenario, err.Error()
	}
}

// report adds what a report shows of a case that did not pass.
func (x *exec) report(c *Case) {
	for _, name := range slices.Sorted(maps.Keys(x.links)) {
		c.Links = append(c.Links, x.links[name].Trace().Dump())
	}
	for _, name := range slices.Sorted(maps.Keys(x.peers)) {
		c.Links = append(c.Links, x.peers[name].Trace().Dump())
	}
	for _, name := range slices.Sorted(maps.Keys(x.fakes)) {
		c.Links = append(c.Links, x.fakes[name].Trace().Dump())
	}
	slices.SortStableFunc(c.Links, func(a, b trace.Dump) int { return a.Started.Compare(b.Started) })
	if x.driver != nil {
		c.Events, c.Stderr = x.driver.Events(nil), x.driver.Stderr()
	}
	c.Steps = x.log
	for _, name := range slices.Sorted(maps.Keys(x.brokers)) {
		c.BrokerLog += x.brokers[name].Output()
	}
}

// replay is the command line that runs one cell alone.
func (e *Engine) replay(c Cell) string {
	return fmt.Sprintf("%s --scenario %s --transport %s --labels %s --auth %s --seed %d", e.Replay, c.Scenario.ID, c.Transport, c.Labels, c.Auth, e.Seed)
}

// loadFlags reads the names of the flags of settings out of broker.yaml.
func loadFlags(spec fs.FS) (map[string]string, error) {
	text, err := fs.ReadFile(spec, "broker.yaml")
	if err != nil {
		return nil, err
	}
	var file struct {
		Settings map[string]struct {
			Flag string `yaml:"flag"`
			Type string `yaml:"type"`
		} `yaml:"settings"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("broker.yaml: %w", err)
	}
	flags := map[string]string{}
	for name, s := range file.Settings {
		flags[name] = s.Flag
	}
	return flags, nil
}

// arguments makes flags of settings. A setting that is a mapping is given as NAME=VALUE for each of its keys, a list once for each member.
func (e *Engine) arguments(settings map[string]any) []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		flag := e.flags[name]
		if flag == "" {
			flag = name // the broker refuses it, which the case tells
		}
		switch v := settings[name].(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				args = append(args, fmt.Sprintf("--%s=%s=%v", flag, key, v[key]))
			}
		case []any:
			for _, member := range v {
				args = append(args, fmt.Sprintf("--%s=%v", flag, member))
			}
		case bool:
			if v {
				args = append(args, "--"+flag)
			}
		default:
			args = append(args, fmt.Sprintf("--%s=%v", flag, v))
		}
	}
	return args
}

// featureOf is the feature to which a command belongs, "" for those that every driver must know.
func featureOf(cmd string) string {
	domain, _, _ := strings.Cut(cmd, ".")
	switch domain {
	case "hello", "client", "cancel":
		return ""
	case "vector":
		return "vectors"
	case "clock":
		return "virtual"
	case "example":
		return "examples"
	}
	return domain
}
