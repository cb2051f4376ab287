package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/trace"
)

// doer does the steps of one action.
type doer func(*exec, context.Context, *scenario.Step) error

// doers is every action of the format. It is filled when the program starts, because flow steps do other steps.
var doers map[string]doer

func init() {
	doers = map[string]doer{
		"link": (*exec).doLink, "fake": (*exec).doFake, "act": (*exec).doAct, "open_gate": (*exec).doGate, "followed": (*exec).doFollowed,
		"mint": (*exec).doMint, "connect": (*exec).doConnect, "peer": (*exec).doPeer, "disconnect": (*exec).doDisconnect,
		"pause": (*exec).doPause, "resume": (*exec).doPause,
		"do": (*exec).doCommand, "start": (*exec).doStart, "join": (*exec).doJoin, "pending": (*exec).doPending, "cancel": (*exec).doCancel,
		"send": (*exec).doSend, "expect": (*exec).doExpect, "closed": (*exec).doClosed,
		"await": (*exec).doAwait, "count": (*exec).doCount, "order": (*exec).doOrder, "mark": (*exec).doMark,
		"hold": (*exec).doRule, "hold_alone": (*exec).doRule, "delay": (*exec).doRule, "drop": (*exec).doRule, "duplicate": (*exec).doRule,
		"reorder": (*exec).doRule, "corrupt": (*exec).doRule, "split": (*exec).doRule, "coalesce": (*exec).doRule, "pack": (*exec).doRule,
		"oversize": (*exec).doRule, "edit": (*exec).doRule, "answer": (*exec).doRule,
		"inject": (*exec).doInject, "release": (*exec).doRelease, "lift": (*exec).doLift,
		"cut": (*exec).doFault, "reset": (*exec).doFault, "blackhole": (*exec).doFault, "freeze": (*exec).doFault, "refuse": (*exec).doFault,
		"shut": (*exec).doFault, "auth_reject": (*exec).doFault, "ws_close": (*exec).doFault, "mute_ping": (*exec).doFault,
		"swap":  (*exec).doSwap,
		"event": (*exec).doEvent, "events": (*exec).doEvents,
		"advance": (*exec).doAdvance, "settle": (*exec).doSettle, "wall": (*exec).doWall,
		"restart_broker": (*exec).doBroker, "stop_broker": (*exec).doBroker, "start_broker": (*exec).doBroker,
		"pause_broker": (*exec).doBroker, "resume_broker": (*exec).doBroker, "drain_broker": (*exec).doBroker,
		"broker_stats": (*exec).doBrokerStats, "broker_holds": (*exec).doBrokerHolds,
		"repeat": (*exec).doRepeat, "each": (*exec).doEach, "eventually": (*exec).doEventually,
		"background": (*exec).doBackground, "end": (*exec).doEnd, "set": (*exec).doSet, "check": (*exec).doCheck,
	}
}

func (x *exec) do(ctx context.Context, s *scenario.Step) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	act := doers[s.Action]
	if act == nil {
		return mistaken("the action %q is not built", s.Action)
	}
	return act(x, ctx, s)
}

// Commands.

func (x *exec) doCommand(ctx context.Context, s *scenario.Step) error {
	r, err := x.begin(ctx, s)
	if err != nil {
		return err
	}
	out, err := x.end(ctx, r)
	if err != nil {
		return err
	}
	return x.judge(s, s.Name, out)
}

func (x *exec) doStart(ctx context.Context, s *scenario.Step) error {
	r, err := x.begin(ctx, s)
	if err != nil {
		return err
	}
	return x.keep(s, r)
}

// keep gives a running command its name.
func (x *exec) keep(s *scenario.Step, r running) error {
	name, err := x.text(s, "call")
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.calls[name] = r
	return nil
}

// begin starts a command of a client, a peer or the driver itself.
func (x *exec) begin(ctx context.Context, s *scenario.Step) (running, error) {
	args, err := x.mapping(s, "args")
	if err != nil {
		return running{}, err
	}
	on, err := x.text(s, "on")
	if err != nil {
		return running{}, err
	}
	if x.isPeer(on) {
		p, err := x.peer(on)
		if err != nil {
			return running{}, err
		}
		call, err := p.Start(ctx, s.Name, wire(args))
		return running{peer: call}, encoding(err)
	}
	of, err1 := x.text(s, "of")
	as, err2 := x.text(s, "as")
	if err := errors.Join(err1, err2); err != nil {
		return running{}, err
	}
	return x.command(driver.Command{Cmd: s.Name, Client: x.handle(on), Of: x.handle(of), As: x.handle(as), Seq: x.handle(s.Text("lane"))}, args)
}

// encoding tells a value that has no encoding from a connection that is gone.
func encoding(err error) error {
	var f *oracle.Fault
	if errors.As(err, &f) {
		return mistaken("%v", err)
	}
	return err
}

// argumentCursorOf is the argument of list.open that names another handle.
const argumentCursorOf = "cursor_of"

func (x *exec) command(c driver.Command, args map[string]any) (running, error) {
	if x.driver == nil {
		return running{}, mistaken("%s needs a driver", c.Cmd)
	}
	if name, ok := args[argumentCursorOf].(string); ok {
		args[argumentCursorOf] = x.handle(name)
	}
	if len(args) > 0 {
		c.Args, _ = told(args).(map[string]any)
	}
	call, err := x.driver.Send(c)
	return running{call: call}, err
}

// end waits for the end of a command, for a peer for its next reply.
func (x *exec) end(ctx context.Context, r running) (outcome, error) {
	if r.peer != nil {
		reply, err := r.peer.Reply(ctx)
		if err != nil {
			return outcome{}, err
		}
		return replied(x.spec, reply), nil
	}
	reply, err := x.driver.Wait(ctx, r.call)
	if err != nil {
		return outcome{}, fmt.Errorf("no answer to %s: %w", r.call.Command.Cmd, err)
	}
	if reply.Unsupported() {
		return outcome{}, x.unsupported(r.call.Command.Cmd)
	}
	if reply.Class() == classMistake {
		return outcome{}, mistaken("%s: %s", r.call.Command.Cmd, scenario.Show(reply.Err))
	}
	out := outcome{ok: reply.OK, cancelled: reply.Cancelled}
	if reply.Err != nil {
		out.err = named(x.spec, reply.Err)
	}
	return out, nil
}

// classMistake is the class by which a driver says that the scenario asks for something that cannot be, as an argument that a command does
// not have. It is no failure of the client, whatever the scenario expects.
const classMistake = "DriverError"

// unsupported is the verdict of a command that a driver does not know: a false feature when it announces it.
func (x *exec) unsupported(cmd string) error {
	feature := featureOf(cmd)
	switch {
	case feature == "":
		return x.driver.Fail(driver.FaultUnsupported, "it does not know %s, which every driver must", cmd)
	case x.driver.Has(feature):
		return x.driver.Fail(driver.FaultFalseFeature, "it announces %q and does not know %s", feature, cmd)
	}
	return &verdictError{Unsupported, ReasonCommand, "the driver does not know " + cmd}
}

// judge compares the end of a command with what the step expects.
func (x *exec) judge(s *scenario.Step, what string, out outcome) error {
	var err error
	switch {
	case s.Flag("any"):
	case s.Flag("cancelled"):
		if !out.cancelled {
			err = failed(ReasonExpectation, "%s: expected cancelled, got %s", what, out)
		}
	case s.Has("err"):
		err = x.judgeError(s, what, out)
	case out.ok == nil:
		err = failed(ReasonExpectation, "%s: expected ok, got %s", what, out)
	case s.Has("ok"):
		err = x.match(what, s.Value("ok"), out.ok)
	}
	if err != nil {
		return err
	}
	if out.err != nil {
		return x.save(s, out.err)
	}
	return x.save(s, out.ok)
}

func (x *exec) judgeError(s *scenario.Step, what string, out outcome) error {
	if out.err == nil {
		return failed(ReasonExpectation, "%s: expected err %s, got %s", what, scenario.Show(s.Value("err")), out)
	}
	v, err := x.expand(s.Value("err"))
	if err != nil {
		return err
	}
	want, err := wanted(v)
	if err != nil {
		return mistaken("%v", err)
	}
	if list := scenario.Match(want, out.err); len(list) > 0 {
		return failed(ReasonExpectation, "%s: %s\nin err %s", what, scenario.Describe(list), scenario.Show(out.err))
	}
	return nil
}

func (x *exec) running(s *scenario.Step) (string, running, error) {
	name, err := x.word(s.Name)
	if err != nil {
		return "", running{}, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	r, ok := x.calls[name]
	if !ok {
		return name, r, mistaken("there is no running command %q", name)
	}
	return name, r, nil
}

func (x *exec) doJoin(ctx context.Context, s *scenario.Step) error {
	name, r, err := x.running(s)
	if err != nil {
		return err
	}
	return x.finish(ctx, s, name, r)
}

// finish waits for the end of a running command and judges it.
func (x *exec) finish(ctx context.Context, s *scenario.Step, name string, r running) error {
	out, err := x.end(ctx, r)
	if err != nil {
		return err
	}
	return x.judge(s, name, out)
}

func (x *exec) doPending(_ context.Context, s *scenario.Step) error {
	name, r, err := x.running(s)
	if err != nil {
		return err
	}
	pending := r.peer != nil && r.peer.Pending()
	if r.call != nil {
		select {
		case <-r.call.Done():
		default:
			pending = true
		}
	}
	if pending {
		return nil
	}
	return failed(ReasonExpectation, "%s has an answer", name)
}

// answerGrace is how long what a scenario expects to be there already has to arrive, the answer of a command or a frame: bytes inside a
// socket cannot be seen, so that settle may have come before. It passes only where the expectation fails.
const answerGrace = 250 * time.Millisecond

// awaitAnswer waits for the answer of a command for the grace.
func awaitAnswer(ctx context.Context, call *driver.Call) {
	grace := time.NewTimer(answerGrace)
	defer grace.Stop()
	select {
	case <-call.Done():
	case <-grace.C:
	case <-ctx.Done():
	}
}

// doCancel cancels a running command of a driver and waits for its end. With ok or err the scenario says that the command has its answer
// already.
func (x *exec) doCancel(ctx context.Context, s *scenario.Step) error {
	name, r, err := x.running(s)
	if err != nil {
		return err
	}
	if r.call == nil {
		return mistaken("%s is a request of a peer; send session.cancel instead", name)
	}
	if s.Has("ok") || s.Has("err") {
		awaitAnswer(ctx, r.call)
	}
	reply, err := x.driver.Do(ctx, driver.Command{Cmd: "cancel", Args: map[string]any{"id": r.call.Command.ID}})
	if err != nil {
		return err
	}
	if reply.Unsupported() {
		return x.unsupported("cancel")
	}
	if !s.Has("ok") && !s.Has("err") && !s.Has("cancelled") && !s.Has("any") {
		return nil
	}
	return x.finish(ctx, s, name, r)
}

// Frames that pass.

func (x *exec) doAwait(ctx context.Context, s *scenario.Step) error {
	log, since, err := x.trace(s)
	if err != nil {
		return err
	}
	f, err := x.stepFilter(s, since)
	if err != nil {
		return err
	}
	n, err := x.number(s, "n", 1)
	if err != nil {
		return err
	}
	e, err := log.Await(ctx, f, int(n))
	if err != nil {
		return err
	}
	return x.save(s, fields(x.spec, e))
}

func (x *exec) doCount(ctx context.Context, s *scenario.Step) error {
	log, since, err := x.trace(s)
	if err != nil {
		return err
	}
	f, err := x.stepFilter(s, since)
	if err != nil {
		return err
	}
	return onceMore(ctx, log, func() error {
		found, err := log.Find(f)
		if err != nil {
			return err
		}
		if s.Flag("shared") {
			if found, err = shared(log, found); err != nil {
				return err
			}
		}
		return x.between(s, len(found), f.String())
	})
}

// repeated marks the context of steps that are done again anyway when what they expect is not there.
type repeated struct{}

// onceMore looks again whenever another frame came while what the scenario expects is not there, for the grace: a frame that is on its way
// through a socket cannot be seen, so that settle may have come before it.
func onceMore(ctx context.Context, log *trace.Log, look func() error) error {
	if ctx.Value(repeated{}) != nil {
		return look()
	}
	ctx, cancel := context.WithTimeout(ctx, answerGrace)
	defer cancel()
	for {
		passed, err := log.Count(trace.Filter{})
		if err != nil {
			return look()
		}
		err = look()
		var verdict *verdictError
		if !errors.As(err, &verdict) || verdict.reason != ReasonExpectation {
			return err
		}
		if _, waited := log.Await(ctx, trace.Filter{}, passed+1); waited != nil {
			return err
		}
	}
}

// shared returns the frames that came in one transport message with another one. A label is no frame of its own.
func shared(log *trace.Log, found []trace.Entry) ([]trace.Entry, error) {
	type message struct{ conn, group int }
	all, err := log.Find(trace.Filter{})
	if err != nil {
		return nil, err
	}
	frames := map[message]int{}
	for _, e := range all {
		frames[message{e.Conn, e.Group}]++
	}
	return slices.DeleteFunc(found, func(e trace.Entry) bool { return frames[message{e.Conn, e.Group}] < 2 }), nil
}

// between compares a number with is, min and max.
func (x *exec) between(s *scenario.Step, n int, what string) error {
	want := map[string]any{}
	for key, op := range map[string]string{"min": "$min", "max": "$max"} {
		if s.Has(key) {
			want[op] = s.Value(key)
		}
	}
	if s.Has("is") {
		return x.match("number of "+what, s.Value("is"), int64(n))
	}
	return x.match("number of "+what, want, int64(n))
}

func (x *exec) doOrder(ctx context.Context, s *scenario.Step) error {
	log, since, err := x.trace(s)
	if err != nil {
		return err
	}
	return onceMore(ctx, log, func() error { return x.inOrder(s, log, since) })
}

// inOrder reports what is missing from the order of a step.
func (x *exec) inOrder(s *scenario.Step, log *trace.Log, since uint64) error {
	all, err := log.Find(trace.Filter{At: trace.Moment(s.Text("at")), Since: since})
	if err != nil {
		return err
	}
	for i, member := range s.List("frames") {
		m, _ := member.(map[string]any)
		f, err := x.filter(m, s.Text("at"), 0)
		if err != nil {
			return err
		}
		next := slices.IndexFunc(all, f.Chooses)
		if next < 0 {
			return failed(ReasonExpectation, "frame %d of the order (%s) did not pass after the one before it", i+1, f)
		}
		all = all[next+1:]
	}
	return nil
}

func (x *exec) doMark(_ context.Context, s *scenario.Step) error {
	name, err := x.word(s.Name)
	if err != nil {
		return err
	}
	x.mark(name)
	return nil
}

// Events.

func (x *exec) events(s *scenario.Step) (of string, filter func(driver.Event) bool, err error) {
	if x.driver == nil {
		return "", nil, mistaken("there is no driver")
	}
	of, err = x.text(s, "of")
	if err != nil {
		return "", nil, err
	}
	var where any
	if s.Has("where") {
		if where, err = x.expand(s.Value("where")); err != nil {
			return "", nil, err
		}
	}
	handle, kind := x.handle(of), s.Text("ev")
	return of, func(e driver.Event) bool {
		return e.Of == handle && (kind == "" || e.Kind == kind) && (where == nil || len(scenario.Match(where, e.Fields)) == 0)
	}, nil
}

func (x *exec) doEvent(ctx context.Context, s *scenario.Step) error {
	of, filter, err := x.events(s)
	if err != nil {
		return err
	}
	x.mu.Lock()
	after := x.cursors[of]
	x.mu.Unlock()
	wanted := filter
	if s.Flag("next") {
		handle := x.handle(of)
		wanted = func(e driver.Event) bool { return e.Of == handle }
	}
	e, err := x.driver.AwaitEvent(ctx, after, wanted)
	if err != nil {
		return fmt.Errorf("no event %s of %s: %w", s.Text("ev"), of, err)
	}
	if !filter(e) {
		return failed(ReasonExpectation, "the next event of %s is %s", of, scenario.Show(e.Fields))
	}
	x.mu.Lock()
	x.cursors[of] = e.Seq
	x.mu.Unlock()
	return x.save(s, e.Fields)
}

func (x *exec) doEvents(_ context.Context, s *scenario.Step) error {
	of, filter, err := x.events(s)
	if err != nil {
		return err
	}
	since, err := x.since(s)
	if err != nil {
		return err
	}
	found := x.driver.Events(func(e driver.Event) bool { return e.Seq > since.events && filter(e) })
	return x.between(s, len(found), "events "+s.Text("ev")+" of "+of)
}

// Flow.

func (x *exec) doRepeat(ctx context.Context, s *scenario.Step) error {
	times, err := x.number(s, "times", 1)
	if err != nil {
		return err
	}
	for i := int64(1); i <= times; i++ {
		if s.Has("var") {
			x.set(s.Text("var"), i)
		}
		if err := x.steps(ctx, s.Steps); err != nil {
			return err
		}
	}
	return nil
}

func (x *exec) doEach(ctx context.Context, s *scenario.Step) error {
	v, err := x.expand(s.Value("in"))
	if err != nil {
		return err
	}
	list, ok := v.([]any)
	if !ok {
		return mistaken("in: %s is no list", scenario.Show(v))
	}
	for _, member := range list {
		x.set(s.Text("var"), member)
		if err := x.steps(ctx, s.Steps); err != nil {
			return err
		}
	}
	return nil
}

// doEventually does the steps again while they fail with an expectation. Each round asks other processes, which sets the pace.
func (x *exec) doEventually(ctx context.Context, s *scenario.Step) error {
	round := context.WithValue(ctx, repeated{}, true)
	for {
		err := x.steps(round, s.Steps)
		var v *verdictError
		if err == nil || !errors.As(err, &v) || v.reason != ReasonExpectation {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w; the last round: %w", context.Cause(ctx), err)
		}
	}
}

func (x *exec) doBackground(ctx context.Context, s *scenario.Step) error {
	times, err1 := x.number(s, "times", 0)
	every, err2 := x.number(s, "every_ms", 0)
	name, err3 := x.word(s.Name)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	b := &background{stop: make(chan struct{}), done: make(chan struct{})}
	x.mu.Lock()
	_, twice := x.backgrounds[name]
	x.backgrounds[name] = b
	x.mu.Unlock()
	if twice {
		close(b.done)
		return mistaken("the background %q runs already", name)
	}
	x.besides(1)
	go func() {
		defer close(b.done)
		defer x.besides(-1)
		b.err = x.rounds(ctx, s, b, times, time.Duration(every)*time.Millisecond)
	}()
	return nil
}

// rounds does the steps of a background. Without times it stops when it is told to.
func (x *exec) rounds(ctx context.Context, s *scenario.Step, b *background, times int64, every time.Duration) error {
	var tick <-chan time.Time
	if every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		tick = t.C
	}
	for i := int64(1); times == 0 || i <= times; i++ {
		select {
		case <-b.stop:
			if times == 0 {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		if s.Has("var") {
			x.set(s.Text("var"), i)
		}
		if err := x.steps(ctx, s.Steps); err != nil {
			return err
		}
		if tick != nil {
			select {
			case <-tick:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

func (x *exec) doEnd(ctx context.Context, s *scenario.Step) error {
	name, err := x.word(s.Name)
	if err != nil {
		return err
	}
	x.mu.Lock()
	b := x.backgrounds[name]
	delete(x.backgrounds, name)
	x.mu.Unlock()
	if b == nil {
		return mistaken("there is no background %q", name)
	}
	return b.end(ctx)
}

func (b *background) end(ctx context.Context) error {
	b.once.Do(func() { close(b.stop) })
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		<-b.done // it ends with the context too
		return context.Cause(ctx)
	}
}

// endBackgrounds stops what runs beside the steps when the case ends, in whatever way.
func (x *exec) endBackgrounds() error {
	x.mu.Lock()
	left := x.backgrounds
	x.backgrounds = map[string]*background{}
	x.mu.Unlock()
	var err error
	for _, b := range left {
		b.once.Do(func() { close(b.stop) })
		<-b.done
		err = errors.Join(err, b.err)
	}
	return err
}

func (x *exec) doSet(_ context.Context, s *scenario.Step) error {
	for _, name := range s.Params() {
		v, err := x.expand(s.Value(name))
		if err != nil {
			return err
		}
		x.set(name, v)
	}
	return nil
}

func (x *exec) doCheck(_ context.Context, s *scenario.Step) error {
	v, err := x.expand(s.Value("value"))
	if err != nil {
		return err
	}
	return x.match("value", s.Value("is"), v)
}
