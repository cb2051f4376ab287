package engine_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/scenario"
)

const patientHead = "id: X-1\ntitle: t\nproves: [L-20]\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\nbudget_ms: 60000\ntime: virtual\n"

// What does not come is missing when everybody says that nothing is left to do, long before the budget is used up. A step that waits while
// steps beside it do something is no such thing.
func TestMissing(t *testing.T) {
	c := world(t)
	for _, k := range []struct{ name, text, says, step string }{
		{"a frame at a peer", "subject: broker\nsteps:\n  - peer: p1\n  - await: {peer: p1, message: lease.notify}\n", "0 of 1", "2"},
		{"an expected frame", "subject: broker\nsteps:\n  - peer: p1\n  - {expect: p1, message: lease.notify}\n", "lease.notify", "2"},
		{"a close", "subject: broker\nsteps:\n  - peer: p1\n  - closed: p1\n", "closed", "2"},
		{"an answer to a client", "subject: client\nsteps:\n  - connect: c1\n  - {hold: {link: c1, dir: down, message: lease.query}}\n" +
			"  - {do: lease.query, on: c1, args: {route: \"lease://$REALM/q/a\"}}\n", "lease.query", "3"},
		{"an event", "subject: client\nsteps:\n  - connect: c1\n  - {do: lease.acquire, on: c1, as: l1, args: {route: \"lease://$REALM/q/a\", ttl_ms: 30000}}\n" +
			"  - {event: {of: l1, ev: lease.lost}}\n", "lease.lost", "3"},
	} {
		t.Run(k.name, func(t *testing.T) {
			c.Scenarios = []*scenario.Scenario{parse(t, "X-1.yaml", patientHead+k.text)}
			got := &perform(t, c).Cases[0]
			if got.Verdict != engine.Fail || got.Reason != engine.ReasonMissing || got.Step != k.step || !strings.Contains(got.Message, k.says) {
				t.Error(got.Describe())
			}
		})
	}
	t.Run("steps in the background", func(t *testing.T) {
		c.Scenarios = []*scenario.Scenario{parse(t, "X-1.yaml", patientHead+"subject: broker\nsteps:\n  - peer: p1\n  - peer: p2\n"+
			"  - do: lease.subscribe\n    on: p1\n    args: {selector: \"lease://$REALM/q/a\"}\n"+
			"  - background: later\n    every_ms: 1500\n    times: 2\n    var: i\n"+
			"    steps: [{do: lease.acquire, on: p2, args: {route: \"lease://$REALM/q/a\", owner_id: \"w$i\", ttl: 30}, any: true, when: {transport: tcp}}]\n"+
			"  - await: {peer: p1, dir: down, message: lease.notify}\n  - end: later\n")}
		if got := &perform(t, c).Cases[0]; got.Verdict != engine.Pass {
			t.Error(got.Describe())
		}
	})
}

// A driver that does not say that it has nothing left to do is not one of which something is missing.
func TestMissingNeedsAnswers(t *testing.T) {
	for name, k := range map[string]struct {
		silent []string // commands without an answer
		want   string
	}{
		"everybody answers": {[]string{"lease.acquire"}, engine.ReasonMissing},
		"the driver hangs":  {[]string{"lease.acquire", "clock.settle"}, engine.ReasonDeadline},
	} {
		t.Run(name, func(t *testing.T) {
			c := world(t)
			text := hurried(patientHead, k.want) + "subject: client\nsteps:\n  - connect: c1\n" +
				"  - {do: lease.acquire, on: c1, as: l1, args: {route: \"lease://$REALM/q/a\", ttl_ms: 30000}}\n"
			c.Scenarios = []*scenario.Scenario{parse(t, "X-1.yaml", text)}
			forgetful := talker{features: []string{"tcp", "lease", "stats", "virtual"}, answer: func(_ io.Writer, c driver.Command) bool {
				return slices.Contains(k.silent, c.Cmd)
			}}
			c.Driver = engine.DriverSource{Limits: driver.DefaultLimits, Start: func(ctx context.Context) (*driver.Driver, error) {
				return driver.Run(ctx, forgetful.main, driver.DefaultLimits)
			}}
			if got := &perform(t, c).Cases[0]; got.Verdict != engine.Fail || got.Reason != k.want {
				t.Error(got.Describe())
			}
		})
	}
}
