package engine_test

import (
	"strings"
	"testing"

	"github.com/fitzwire/fitz/conformance/brokerproc"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/scenario"
)

// A broker that sends what no client can read fails, even where no step looks at it: a push that nobody awaits, a label in front of a
// record that has none.
func TestWellFormed(t *testing.T) {
	const malformed = "the broker to p1 has sent a malformed frame, "
	answer := fakebroker.Record{Message: "lease.query", Value: map[string]any{"held": false, "pending_waiters": 0}}
	push := fakebroker.Record{Message: "lease.notify", Value: map[string]any{"subscription_id": 1, "route": "lease://a/b/c"}}
	longer := func(r fakebroker.Record) *fakebroker.Record {
		r.Append, r.Fit = "00", true
		return &r
	}
	labelled := "0300080000000000000001" + "ff0199001d" + "0000000000000002" + "0000000d6c656173653a2f2f722f612f6b" + "00000000"
	for name, k := range map[string]struct {
		do   []fakebroker.Action
		says string
	}{
		"all right":       {[]fakebroker.Action{{Send: &push}, {Reply: &answer}}, ""},
		"a longer answer": {[]fakebroker.Action{{Reply: longer(answer)}}, "lease.query: expected ok, got ok {}"}, // by the step
		"a longer push":   {[]fakebroker.Action{{Send: longer(push)}, {Reply: &answer}}, malformed + "lease.notify"},
		"a labelled push": {[]fakebroker.Action{{Message: &labelled}, {Reply: &answer}}, malformed + "lease.notify: bad_label"},
	} {
		t.Run(name, func(t *testing.T) {
			c := world(t)
			b, err := fakebroker.Start(c.Spec, fakebroker.Script{Rules: []fakebroker.Rule{{On: fakebroker.On{Message: "lease.query"}, Do: k.do}}}, fakebroker.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			c.Broker = engine.BrokerSource{Addresses: map[string]string{brokerproc.TCP: b.Address("tcp")}}
			c.Scenarios = []*scenario.Scenario{parse(t, "X-1.yaml", "id: X-1\ntitle: t\nproves: [L-20]\ntransports: [tcp]\nlabels: [on]\nauth: [anonymous]\nauth_reason: x\n"+
				"subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {route: \"lease://$REALM/q/a\"}}\n")}
			got := &perform(t, c).Cases[0]
			if (got.Verdict == engine.Pass) != (k.says == "") || !strings.Contains(got.Message, k.says) {
				t.Error(got.Describe())
			}
		})
	}
}
