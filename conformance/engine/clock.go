package engine

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fitzwire/fitz/conformance/brokerproc"
	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/scenario"
)

// tell gives the driver a command about its clock.
func (x *exec) tell(ctx context.Context, cmd string, args map[string]any) error {
	if x.driver == nil {
		return nil
	}
	reply, err := x.driver.Do(ctx, driver.Command{Cmd: cmd, Args: args})
	switch {
	case err != nil:
		return err
	case reply.Unsupported():
		return x.unsupported(cmd)
	case reply.Err != nil:
		return failed(ReasonExpectation, "%s: %s", cmd, scenario.Show(reply.Err))
	}
	return nil
}

// virtual tells whether the broker processes of the case have a control port.
func (x *exec) virtual() bool { return x.cell.Scenario.Time == scenario.Virtual }

func (x *exec) doAdvance(ctx context.Context, s *scenario.Step) error {
	if !x.virtual() {
		return mistaken("advance needs time: virtual")
	}
	ms, err := x.number(s, "ms", 0)
	if err != nil {
		return err
	}
	seconds, err := x.number(s, "s", 0)
	if err != nil {
		return err
	}
	d := time.Duration(ms)*time.Millisecond + time.Duration(seconds)*time.Second
	sides := []string{"broker", "driver"}
	if s.Text("first") == "driver" {
		slices.Reverse(sides)
	}
	if only := s.Text("only"); only != "" {
		sides = []string{only}
	}
	for _, side := range sides {
		if err := x.advance(ctx, side, d); err != nil {
			return err
		}
		if err := x.settle(ctx, "all"); err != nil {
			return err
		}
	}
	return nil
}

func (x *exec) advance(ctx context.Context, side string, d time.Duration) error {
	if side == "driver" {
		return x.tell(ctx, "clock.advance", map[string]any{"ms": d.Milliseconds()})
	}
	return x.controls(func(c *brokerproc.Control) error {
		_, err := c.Advance(ctx, d)
		return err
	})
}

// controls does something with the control port of every broker that runs and has one.
func (x *exec) controls(do func(*brokerproc.Control) error) error {
	for _, name := range slices.Sorted(maps.Keys(x.brokers)) {
		x.mu.Lock()
		resting := x.resting[name]
		x.mu.Unlock()
		c := x.brokers[name].Control()
		if c == nil || resting {
			continue
		}
		if err := do(c); err != nil {
			return err
		}
	}
	return nil
}

// quietRounds is how many rounds in a row must find that no frame moved before all count as settled. One is not enough, because a frame
// may be on its way between two of those that are asked.
const quietRounds = 3

func (x *exec) doSettle(ctx context.Context, s *scenario.Step) error { return x.settle(ctx, s.Name) }

// settle asks driver, links and brokers in turn until nobody has work left and no frame has moved.
func (x *exec) settle(ctx context.Context, scope string) error {
	for quiet := 0; quiet < quietRounds; {
		before := x.ticks()
		if scope != "broker" && x.driver != nil && x.driver.Has("virtual") {
			if err := x.tell(ctx, "clock.settle", nil); err != nil {
				return err
			}
		}
		if err := x.settleLinks(ctx); err != nil {
			return err
		}
		if scope != "driver" {
			if err := x.controls(func(c *brokerproc.Control) error { return c.Settle(ctx) }); err != nil {
				return err
			}
		}
		quiet++
		if x.ticks() != before {
			quiet = 0
		}
	}
	return nil
}

func (x *exec) settleLinks(ctx context.Context) error {
	x.mu.Lock()
	links := slices.Collect(maps.Values(x.links))
	x.mu.Unlock()
	for _, l := range links {
		if err := l.Settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ticks counts everything that moved on any link, peer or in the driver.
func (x *exec) ticks() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	var sum uint64
	for _, l := range x.links {
		sum += l.Trace().Mark()
	}
	for _, p := range x.peers {
		sum += p.Trace().Mark()
	}
	if x.driver != nil {
		sum += x.driver.Seen()
	}
	return sum
}

func (x *exec) doWall(ctx context.Context, s *scenario.Step) error {
	ms, err := x.number(s, "ms", 0)
	if err != nil {
		return err
	}
	if s.Text("side") == "driver" {
		return x.tell(ctx, "clock.set", map[string]any{"wall_shift_ms": ms})
	}
	if !x.virtual() {
		return mistaken("wall needs time: virtual")
	}
	return x.controls(func(c *brokerproc.Control) error { return c.ShiftWall(ctx, time.Duration(ms)*time.Millisecond) })
}

// Broker processes.

func (x *exec) namedBroker(s *scenario.Step) (string, *brokerproc.Broker, error) {
	name, err := x.word(s.Name)
	if err != nil {
		return "", nil, err
	}
	b := x.brokers[name]
	if b == nil {
		return name, nil, mistaken("there is no broker %q", name)
	}
	return name, b, nil
}

func (x *exec) rest(name string, resting bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.resting[name] = resting
}

func (x *exec) doBroker(ctx context.Context, s *scenario.Step) error {
	name, b, err := x.namedBroker(s)
	if err != nil {
		return err
	}
	switch s.Action {
	case "restart_broker":
		x.rest(name, true)
		err = b.Restart(ctx)
		x.rest(name, err != nil)
	case "stop_broker":
		x.rest(name, true)
		err = b.Kill()
	case "start_broker":
		err = b.Restart(ctx)
		x.rest(name, err != nil)
	case "pause_broker":
		x.rest(name, true)
		err = b.Pause()
	case "resume_broker":
		err = b.Continue()
		x.rest(name, false)
	case "drain_broker":
		x.rest(name, true)
		err = b.Terminate()
	}
	if errors.Is(err, brokerproc.ErrAttached) {
		return cannotRun(ReasonNoProcess, "%v", err)
	}
	return err
}

func (x *exec) control(s *scenario.Step) (*brokerproc.Control, error) {
	name, b, err := x.namedBroker(s)
	if err != nil {
		return nil, err
	}
	c := b.Control()
	if c == nil {
		return nil, cannotRun(ReasonNoVirtual, "the broker %s has no control port", name)
	}
	return c, nil
}

func (x *exec) doBrokerStats(ctx context.Context, s *scenario.Step) error {
	c, err := x.control(s)
	if err != nil {
		return err
	}
	stats, err := c.Stats(ctx)
	if err != nil {
		return err
	}
	got, err := asMap(stats)
	if err != nil {
		return err
	}
	return x.match("stats of "+s.Name, s.Value("is"), got)
}

func (x *exec) doBrokerHolds(ctx context.Context, s *scenario.Step) error {
	c, err := x.control(s)
	if err != nil {
		return err
	}
	selector, err := x.text(s, "selector")
	if err != nil {
		return err
	}
	if selector == "" {
		if selector, err = x.word("lease://$" + scenario.VarRealm + "/**"); err != nil {
			return err
		}
	}
	family, err := x.number(s, "family", 0)
	if err != nil {
		return err
	}
	held, err := c.Held(ctx, selector, family)
	if err != nil {
		return err
	}
	list := make([]any, len(held))
	for i, h := range held {
		if list[i], err = asMap(h); err != nil {
			return err
		}
	}
	return x.match("leases of "+s.Name, s.Value("is"), list)
}
