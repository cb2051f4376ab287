package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fitzwire/fitz/conformance/brokerproc"
	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/proxy"
	"github.com/fitzwire/fitz/conformance/rawpeer"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/trace"
)

// verdictError ends a case with a verdict.
type verdictError struct {
	verdict Verdict
	reason  string
	message string
}

// Error is reason: message.
func (e *verdictError) Error() string { return e.reason + ": " + e.message }

func failed(reason, format string, args ...any) error {
	return &verdictError{Fail, reason, fmt.Sprintf(format, args...)}
}

func cannotRun(reason, format string, args ...any) error {
	return &verdictError{CouldNotRun, reason, fmt.Sprintf(format, args...)}
}

// mistaken is a step that asks for what cannot be; the loader cannot see it, because it depends on values.
func mistaken(format string, args ...any) error { return failed(ReasonScenario, format, args...) }

// errDeadline is the cause of the context of a case whose budget is used up.
var errDeadline = errors.New("the budget of the scenario is used up")

// link is a proxy and where it leads to.
type link struct {
	*proxy.Proxy
	url string // by TLS; empty without
	mu  sync.Mutex
	to  string
}

// lifter is a rule or a fault of a proxy that a step has named.
type lifter struct {
	rule  *proxy.Rule
	fault *proxy.Fault
}

func (l lifter) lift() {
	if l.rule != nil {
		l.rule.Lift()
	}
	if l.fault != nil {
		l.fault.Lift()
	}
}

// running is a command that was started.
type running struct {
	call *driver.Call  // of a driver
	peer *rawpeer.Call // of a peer
}

// moment is a mark: where every trace and the events stood.
type moment struct {
	links  map[string]uint64
	peers  map[string]uint64
	events uint64
}

// exec is one case while it runs.
type exec struct {
	engine  *Engine
	cell    Cell
	seed    uint64
	prefix  string // in front of the names of handles, so that no two cases of a driver share one
	spec    codec
	started time.Time

	driver  *driver.Driver // nil when the scenario needs none
	brokers map[string]*brokerproc.Broker

	mu          sync.Mutex // guards everything below; background steps run beside others
	vars        map[string]any
	fakes       map[string]*fakebroker.Broker
	links       map[string]*link
	peers       map[string]*rawpeer.Peer
	clients     map[string]bool
	calls       map[string]running
	rules       map[string]lifter
	unnamed     int // rules and faults that no step has named
	marks       map[string]moment
	cursors     map[string]uint64 // Seq of the last event of a handle that `event` took
	backgrounds map[string]*background
	beside      int             // backgrounds that run
	resting     map[string]bool // brokers that a step has stopped
	current     *scenario.Step
	log         []StepLog
}

// background is steps that run beside others.
type background struct {
	stop chan struct{}
	once sync.Once
	done chan struct{}
	err  error
}

// stepError is an error with the step that made it.
type stepError struct {
	step *scenario.Step
	err  error
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// run does everything that the scenario says and ends everything that was begun.
func (x *exec) run(ctx context.Context) error {
	err := x.vary()
	if err == nil {
		err = x.steps(ctx, x.cell.Scenario.Steps)
	}
	if err == nil {
		err = x.steps(ctx, x.cell.Scenario.Always)
	}
	return errors.Join(err, x.endBackgrounds(), x.problems())
}

// vary sets the variables of the head. They may use each other in any order; what never becomes known is reported.
func (x *exec) vary() error {
	open := maps.Clone(x.cell.Scenario.Vars)
	for len(open) > 0 {
		before := len(open)
		var last error
		for _, name := range slices.Sorted(maps.Keys(open)) {
			v, err := x.expand(open[name])
			if err != nil {
				last = err
				continue
			}
			x.set(name, v)
			delete(open, name)
		}
		if len(open) == before {
			return last
		}
	}
	return nil
}

func (x *exec) steps(ctx context.Context, steps []scenario.Step) error {
	for i := range steps {
		if err := x.step(ctx, &steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func (x *exec) step(ctx context.Context, s *scenario.Step) error {
	if !x.wanted(s) {
		return nil
	}
	begin := time.Now()
	x.mu.Lock()
	x.current = s
	x.mu.Unlock()
	err := x.do(ctx, s)
	x.note(StepLog{s.Index, s.Line(), begin.Sub(x.started), time.Since(begin)})
	var inner *stepError
	if err == nil || errors.As(err, &inner) {
		return err
	}
	return &stepError{s, x.explain(ctx, s, err)}
}

// maxLog is how many steps of a case are kept for its report; the first ones go.
const maxLog = 2000

func (x *exec) note(entry StepLog) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.log) == maxLog {
		x.log = append(x.log[:0], x.log[maxLog/2:]...)
	}
	x.log = append(x.log, entry)
}

// wanted tells whether the step is done in this cell.
func (x *exec) wanted(s *scenario.Step) bool {
	for axis, value := range s.Map("when") {
		if map[string]string{"transport": x.cell.Transport, "labels": x.cell.Labels, "auth": x.cell.Auth}[axis] != value {
			return false
		}
	}
	return true
}

// explain gives an error that has no verdict the one that it means.
func (x *exec) explain(ctx context.Context, s *scenario.Step, err error) error {
	var v *verdictError
	var f *driver.Fault
	var closed *rawpeer.Close
	crashed := x.crashed()
	if crashed == "" && errors.As(err, &closed) {
		crashed = x.crashing()
	}
	switch {
	case crashed != "":
		return failed(ReasonBrokerCrash, "the broker %s ended by itself; %v", crashed, err)
	case errors.As(err, &v), errors.As(err, &f):
		return err
	case context.Cause(ctx) == errMissing:
		return failed(ReasonMissing, "step %s (%s) waits for what does not come: %v", s.Index, s.Line(), err)
	case ctx.Err() != nil || errors.Is(err, errDeadline):
		if x.driver != nil {
			if f := x.driver.Alive(); f != nil {
				return f
			}
		}
		return failed(ReasonDeadline, "step %s (%s) did not end within %v: %v", s.Index, s.Line(), x.cell.Scenario.Budget, err)
	case errors.As(err, &closed):
		return failed(ReasonClosed, "%v", err)
	}
	return failed(ReasonScenario, "%v", err)
}

// crashed is the name of a broker that ended without being asked, "" when there is none.
func (x *exec) crashed() string {
	for _, name := range slices.Sorted(maps.Keys(x.brokers)) {
		x.mu.Lock()
		resting := x.resting[name]
		x.mu.Unlock()
		exited := x.brokers[name].Exited()
		if exited == nil || resting {
			continue
		}
		select {
		case <-exited:
			return name
		default:
		}
	}
	return ""
}

// crashTime is how long after the end of a connection the end of the process that caused it may be seen.
const crashTime = 3 * time.Second

// crashing waits for the end of a broker of which a connection has ended, since the system closes the sockets of a process before it tells
// that the process is gone. It returns the name of the broker, "" when all go on.
func (x *exec) crashing() string {
	patience := time.NewTimer(crashTime)
	defer patience.Stop()
	look := time.NewTicker(crashTime / 500)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if name := x.crashed(); name != "" {
				return name
			}
		case <-patience.C:
			return x.crashed()
		}
	}
}

// problems is what rules and scripts could not do.
func (x *exec) problems() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(x.links)) {
		if err := x.links[name].Err(); err != nil {
			return failed(ReasonRule, "link %s: %v", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.fakes)) {
		if err := x.fakes[name].Err(); err != nil {
			return failed(ReasonRule, "fake broker %s: %v", name, err)
		}
	}
	return nil
}

// close ends everything of the case but driver and brokers, which may be used again. It returns what the driver did wrong meanwhile.
func (x *exec) close(ctx context.Context) error {
	err := x.endBackgrounds()
	for _, rule := range x.rules {
		rule.lift()
	}
	err = errors.Join(err, x.closeClients(ctx))
	for _, p := range x.peers {
		p.Close()
	}
	for _, l := range x.links {
		err = errors.Join(err, l.Close())
	}
	for _, f := range x.fakes {
		f.Close()
	}
	return err
}

// closeClients closes the clients of the case. A driver whose clock is virtual gets the time that an orderly end may need.
func (x *exec) closeClients(ctx context.Context) error {
	if x.driver == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(x.clients)) {
		call, err := x.driver.Send(driver.Command{Cmd: "client.close", Client: x.handle(name)})
		if err != nil {
			return err
		}
		if err := x.closing(ctx, call); err != nil {
			return err
		}
	}
	return nil
}

func (x *exec) closing(ctx context.Context, call *driver.Call) error {
	if x.cell.Scenario.Time == scenario.Virtual {
		if _, err := x.driver.Do(ctx, driver.Command{Cmd: "clock.settle"}); err != nil {
			return err
		}
		select {
		case <-call.Done():
			return nil
		default:
		}
		// Its goodbye waits for somebody who is not there: the time of the longest orderly end passes.
		ms := x.spec.Bound("sdk_close_timeout_ms")
		if _, err := x.driver.Do(ctx, driver.Command{Cmd: "clock.advance", Args: map[string]any{"ms": ms}}); err != nil {
			return err
		}
	}
	_, err := x.driver.Wait(ctx, call)
	return err
}

// Variables.

func (x *exec) set(name string, v any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.vars[name] = v
}

// lookup finds a variable; a name with dots goes into its value.
func (x *exec) lookup(name string) (any, bool) {
	head, rest, inside := strings.Cut(name, ".")
	if head == scenario.VarBound && inside {
		if _, known := x.engine.catalog.Bounds[rest]; !known {
			return nil, false
		}
		return x.spec.Bound(rest), true
	}
	if head == scenario.VarCA || head == scenario.VarOtherCA {
		return x.file(head)
	}
	x.mu.Lock()
	v, ok := x.vars[head]
	x.mu.Unlock()
	if !ok || !inside {
		return v, ok
	}
	return scenario.Find(v, rest)
}

func (x *exec) expand(v any) (any, error) {
	out, err := scenario.Expand(v, x.lookup)
	if err != nil {
		return nil, mistaken("%v", err)
	}
	return out, nil
}

func (x *exec) expandMap(m map[string]any) (map[string]any, error) {
	v, err := x.expand(m)
	if err != nil {
		return nil, err
	}
	return asMapping(v)
}

// mapping is a parameter that is a mapping, or a variable that holds one; an empty one when it was not given. It is a copy.
func (x *exec) mapping(s *scenario.Step, key string) (map[string]any, error) {
	v, err := x.expand(s.Value(key))
	if err != nil || v == nil {
		return map[string]any{}, err
	}
	m, err := asMapping(v)
	return maps.Clone(m), err
}

func asMapping(v any) (map[string]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, mistaken("%s is no mapping", scenario.Show(v))
	}
	return m, nil
}

// text is a parameter as text, variables replaced.
func (x *exec) text(s *scenario.Step, key string) (string, error) { return x.word(s.Text(key)) }

// word is a name with its variables replaced.
func (x *exec) word(name string) (string, error) {
	if !strings.Contains(name, "$") {
		return name, nil
	}
	v, err := x.expand("" + name)
	if err != nil {
		return "", err
	}
	if text, ok := v.(string); ok {
		return text, nil
	}
	return fmt.Sprint(v), nil
}

// number is a parameter as a whole number; otherwise when it was not given.
func (x *exec) number(s *scenario.Step, key string, otherwise int64) (int64, error) {
	if !s.Has(key) {
		return otherwise, nil
	}
	v, err := x.expand(s.Value(key))
	if err != nil {
		return 0, err
	}
	n, ok := scenario.Int(v)
	if !ok {
		return 0, mistaken("%s: %s is no whole number", key, scenario.Show(v))
	}
	return n, nil
}

// save sets the variables that a step takes out of a result.
func (x *exec) save(s *scenario.Step, result any) error {
	m := s.Map("save")
	for _, name := range slices.Sorted(maps.Keys(m)) {
		path, _ := m[name].(string)
		v, ok := scenario.Find(result, path)
		if !ok {
			return failed(ReasonExpectation, "save %s: there is no %q in %s", name, path, scenario.Show(result))
		}
		x.set(name, v)
	}
	return nil
}

// match compares a value with a matcher of the scenario.
func (x *exec) match(what string, want, got any) error {
	expanded, err := x.expand(want)
	if err != nil {
		return err
	}
	if list := scenario.Match(expanded, got); len(list) > 0 {
		return failed(ReasonExpectation, "%s: %s\nin %s", what, scenario.Describe(list), scenario.Show(got))
	}
	return nil
}

// handle is the name that a driver gets for a name of the scenario.
func (x *exec) handle(name string) string {
	if name == "" {
		return ""
	}
	return x.prefix + name
}

// Names.

func (x *exec) peer(name string) (*rawpeer.Peer, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.peers[name]; p != nil {
		return p, nil
	}
	return nil, mistaken("there is no peer %q", name)
}

func (x *exec) link(name string) (*link, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if l := x.links[name]; l != nil {
		return l, nil
	}
	return nil, mistaken("there is no link %q", name)
}

func (x *exec) fake(name string) (*fakebroker.Broker, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f := x.fakes[name]; f != nil {
		return f, nil
	}
	return nil, mistaken("there is no fake broker %q", name)
}

func (x *exec) isPeer(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.peers[name] != nil
}

func (x *exec) isFake(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.fakes[name] != nil
}

// address is where a broker or fake broker serves a transport at the moment.
func (x *exec) address(to, transport string) string {
	x.mu.Lock()
	f := x.fakes[to]
	x.mu.Unlock()
	if f != nil {
		return f.Address(transport)
	}
	return x.listener(to, transport, x.cell.Auth)
}

// listener is where a broker serves a transport to those who have a token, or to those who need none.
func (x *exec) listener(broker, transport, auth string) string {
	b := x.brokers[broker]
	switch {
	case b == nil:
		return ""
	case transport == scenario.WebSocket && auth == scenario.Token:
		return b.Address(brokerproc.TokenHTTP)
	case transport == scenario.WebSocket:
		return b.Address(brokerproc.HTTP)
	case auth == scenario.Token:
		return b.Address(brokerproc.TokenTCP)
	}
	return b.Address(brokerproc.TCP)
}

// log returns the trace that a step reads, by its link or peer.
func (x *exec) trace(s *scenario.Step) (*trace.Log, uint64, error) {
	since, err := x.since(s)
	if err != nil {
		return nil, 0, err
	}
	if s.Has("link") {
		name, err := x.text(s, "link")
		if err != nil {
			return nil, 0, err
		}
		l, err := x.link(name)
		if err != nil {
			return nil, 0, err
		}
		return l.Trace(), since.links[name], nil
	}
	name, err := x.text(s, "peer")
	if err != nil {
		return nil, 0, err
	}
	p, err := x.peer(name)
	if err != nil {
		return nil, 0, err
	}
	return p.Trace(), since.peers[name], nil
}

func (x *exec) since(s *scenario.Step) (moment, error) {
	if !s.Has("since") {
		return moment{}, nil
	}
	name, err := x.text(s, "since")
	if err != nil {
		return moment{}, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	m, ok := x.marks[name]
	if !ok {
		return moment{}, mistaken("there is no mark %q", name)
	}
	return m, nil
}

func (x *exec) mark(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := moment{links: map[string]uint64{}, peers: map[string]uint64{}}
	for name, l := range x.links {
		m.links[name] = l.Trace().Mark()
	}
	for name, p := range x.peers {
		m.peers[name] = p.Trace().Mark()
	}
	if x.driver != nil {
		m.events = x.driver.Seen()
	}
	x.marks[name] = m
}

// filter makes the filter of a trace of a mapping of the scenario.
func (x *exec) filter(m map[string]any, at string, since uint64) (trace.Filter, error) {
	message, _ := m["message"].(string)
	form, _ := m["form"].(string)
	dir, _ := m["dir"].(string)
	f := trace.Filter{Message: message, Form: oracle.Form(form), Dir: oracle.Direction(dir), At: trace.Moment(at), Since: since}
	if control, given := m["control"].(string); given {
		f.Kind, f.Message = trace.Control, control
	}
	properties := map[string]any{}
	for _, key := range filterKeys {
		want, given := m[key]
		if !given {
			continue
		}
		expanded, err := x.expand(want)
		if err != nil {
			return f, err
		}
		properties[key] = expanded
	}
	if len(properties) > 0 {
		f.Where = func(e trace.Entry) bool { return x.has(e, properties) }
	}
	return f, nil
}

// filterKeys are the parts of a filter that look into a frame.
var filterKeys = []string{"where", "label", "size"}

// has tells whether an entry of a trace is as the parts of a filter want it.
func (x *exec) has(e trace.Entry, properties map[string]any) bool {
	got := map[string]any{"label": e.Label, "size": int64(len(e.Bytes)), "where": nil}
	if m := fields(x.spec, e); m != nil {
		got["where"] = m
	}
	for key, want := range properties {
		if len(scenario.Match(want, got[key])) > 0 {
			return false
		}
	}
	return true
}

func (x *exec) stepFilter(s *scenario.Step, since uint64) (trace.Filter, error) {
	m := map[string]any{}
	for _, key := range append([]string{"message", "form", "dir", "control"}, filterKeys...) {
		if s.Has(key) {
			m[key] = s.Value(key)
		}
	}
	return x.filter(m, s.Text("at"), since)
}
