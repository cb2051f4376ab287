package engine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/brokerproc"
	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/scenario"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(removePrograms)) }

// programs are built once for all tests.
var (
	folder   string
	programs = sync.OnceValues(func() (*kit.Tree, error) {
		tree, err := kit.Open("../..")
		if err != nil {
			return nil, err
		}
		if folder, err = os.MkdirTemp("", "fitz-engine-"); err != nil {
			return nil, err
		}
		if _, err = tree.OwnBroker(context.Background(), folder); err != nil {
			return nil, err
		}
		_, err = tree.GoDriver(context.Background(), folder)
		return tree, err
	})
)

func removePrograms(code int) {
	if folder != "" && os.RemoveAll(folder) != nil {
		code = 1
	}
	os.Exit(code)
}

// world is a configuration with the programs of the tree and without scenarios.
func world(t *testing.T) engine.Config {
	t.Helper()
	tree, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	c := tree.Config()
	c.Scenarios, c.Vectors, c.Seed, c.Slots, c.Replay = nil, nil, 1, 2, "run"
	c.Driver, c.Broker = kit.Built(folder)
	return c
}

func parse(t *testing.T, name, text string) *scenario.Scenario {
	t.Helper()
	tree, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s, mistakes := scenario.Parse(name, []byte(text), tree.Catalog)
	for _, m := range mistakes {
		t.Error(m)
	}
	if s == nil {
		t.FailNow()
	}
	return s
}

func perform(t *testing.T, c engine.Config) *engine.Run {
	t.Helper()
	e, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	run, err := e.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range run.Left {
		t.Error("left behind:", left)
	}
	if _, err := json.Marshal(run); err != nil {
		t.Error("the run is no JSON:", err)
	}
	return run
}

// Every step does what the reference of the format says.
func TestSteps(t *testing.T) {
	c := world(t)
	names, err := filepath.Glob("testdata/STEPS-*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Scenarios = append(c.Scenarios, parse(t, name, string(text)))
	}
	run := perform(t, c)
	for i := range run.Cases {
		if k := &run.Cases[i]; k.Verdict != engine.Pass {
			t.Errorf("%s\n%s", k.Describe(), last(k.BrokerLog, 500))
		}
	}
	if !run.OK() {
		t.Error(run.Complaints())
	}
}

func last(text string, n int) string { return text[max(0, len(text)-n):] }

// head begins a scenario with more time than a busy machine needs.
const head = "id: X-1\ntitle: t\nproves: [L-20]\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\nbudget_ms: 60000\n"

// hurried takes from a scenario the time that it would only wait for, when its verdict is that the time was over.
func hurried(text, reason string) string {
	if reason != engine.ReasonDeadline && reason != driver.FaultHang {
		return text
	}
	return strings.Replace(text, "budget_ms: 60000\n", "budget_ms: 3000\n", 1)
}

// patiently gives a driver more time than a busy machine needs, unless it is one whose time has to be over.
func patiently(limits driver.Limits, name, reason string) driver.Limits {
	if reason != driver.FaultHang && reason != driver.FaultDeaf && reason != driver.FaultSlowExit && name != "closed-output" {
		limits.Hello, limits.Answer, limits.Bye = time.Minute, time.Minute, time.Minute
	}
	return limits
}

// A scenario that is not as it should be fails for the reason, at the step, and with the command that repeats it.
func TestVerdicts(t *testing.T) {
	c := world(t)
	cases := []struct {
		name, text     string
		verdict        engine.Verdict
		reason, says   string
		step           string
		withoutVirtual bool
	}{
		{"wrong value", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {route: \"lease://$REALM/q/a\"}, ok: {held: true}}\n",
			engine.Fail, engine.ReasonExpectation, "held: expected true, got false", "2", false},
		{"refusal expected", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {route: \"lease://$REALM/q/a\"}, err: LEASE_HELD}\n",
			engine.Fail, engine.ReasonExpectation, "expected err", "2", false},
		{"success expected", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {route: nonsense}}\n",
			engine.Fail, engine.ReasonExpectation, "expected ok, got err", "2", false},
		{"other code", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {route: nonsense}, err: LEASE_HELD}\n",
			engine.Fail, engine.ReasonExpectation, `name: expected "LEASE_HELD", got "LEASE_BAD_REQUEST"`, "2", false},
		{"nothing comes", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - await: {peer: p1, message: lease.notify}\n",
			engine.Fail, engine.ReasonDeadline, "0 of 1", "2", false},
		{"too many", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - count: {peer: p1, message: session.server_hello, is: 0}\n",
			engine.Fail, engine.ReasonExpectation, "number of frame session.server_hello: value: expected 0, got 1", "2", false},
		{"at the end", "subject: broker\ntime: real\nsteps:\n  - peer: p1\nalways:\n  - count: {peer: p1, message: session.server_hello, is: 0}\n",
			engine.Fail, engine.ReasonExpectation, "expected 0, got 1", "always.1", false},
		{"within a repeat", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - repeat: {times: 2, steps: [{mark: m}, {check: {value: 1, is: 2}}]}\n",
			engine.Fail, engine.ReasonExpectation, "expected 2, got 1", "2.2", false},
		{"in the background", "subject: broker\ntime: real\nsteps:\n  - background: b\n    times: 1\n    steps: [{check: {value: 1, is: 2}}]\n",
			engine.Fail, engine.ReasonExpectation, "expected 2, got 1", "1.1", false},
		{"no encoding", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {rout: x}}\n",
			engine.Fail, engine.ReasonScenario, "rout", "2", false},
		{"connection ended", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {send: p1, hex: \"00\"}\n  - {expect: p1, message: lease.notify}\n",
			engine.Fail, engine.ReasonClosed, "", "3", false},
		{"other status", "subject: broker\ntime: real\nsteps:\n  - {peer: p1, fails: dial, status: 403}\n",
			engine.Fail, engine.ReasonExpectation, "it is open", "1", false},
		{"unknown close reason", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {send: p1, hex: \"00\"}\n  - {closed: p1, reason: nonsense}\n",
			engine.Fail, engine.ReasonScenario, "nonsense", "3", false},
		{"another label", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {send: p1, label: 3, message: lease.query, value: {route: \"lease://$REALM/q/a\"}}\n" +
			"  - {expect: p1, next: true, message: lease.query, label: 4}\n", engine.Fail, engine.ReasonExpectation, "the next frame", "3", false},
		{"another close code", "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {send: p1, hex: \"00\"}\n  - {closed: p1, how: ws}\n",
			engine.Fail, engine.ReasonExpectation, "expected the connection to end with ws", "3", false},
		{"unknown setting", "subject: broker\ntime: real\nbroker: {settings: {log_level: nonsense}}\nsteps:\n  - peer: p1\n",
			engine.CouldNotRun, engine.ReasonBrokerStart, "nonsense", "", false},
		{"no virtual time", "subject: broker\ntime: virtual\nsteps:\n  - peer: p1\n",
			engine.CouldNotRun, engine.ReasonNoVirtual, "", "", true},
		{"missing feature", "subject: client\ntime: real\nneeds: [teleport]\nsteps:\n  - connect: c1\n",
			engine.Unsupported, engine.ReasonFeature, "teleport", "", false},
		{"unknown command", "subject: client\ntime: real\nsteps:\n  - connect: c1\n  - {do: teleport.now, on: c1}\n",
			engine.Unsupported, engine.ReasonCommand, "teleport.now", "2", false},
		{"false feature", "subject: client\ntime: real\nsteps:\n  - connect: c1\n  - {do: obs.teleport, on: c1}\n",
			engine.Fail, driver.FaultFalseFeature, "obs.teleport", "2", false},
		{"client waits for ever", "subject: client\ntime: real\nsteps:\n  - connect: c1\n  - {hold: {link: c1, dir: down, message: lease.query}}\n" +
			"  - {do: lease.query, on: c1, args: {route: \"lease://$REALM/q/a\"}}\n", engine.Fail, engine.ReasonDeadline, "lease.query", "3", false},
	}
	for _, k := range cases {
		t.Run(k.name, func(t *testing.T) {
			c := c
			c.Scenarios = []*scenario.Scenario{parse(t, "X-1.yaml", hurried(head+k.text, k.reason))}
			if k.withoutVirtual {
				c.Broker.Virtual = nil
			}
			run := perform(t, c)
			got := &run.Cases[0]
			if got.Verdict != k.verdict || got.Reason != k.reason || !strings.Contains(got.Message, k.says) || got.Step != k.step {
				t.Fatalf("%s\nstep %q; want %s %s %q at %q", got.Describe(), got.Step, k.verdict, k.reason, k.says, k.step)
			}
			if run.OK() || got.Replay != "run --scenario X-1 --transport tcp --labels on --auth anonymous --seed 1" {
				t.Errorf("ok %v, replay %q", run.OK(), got.Replay)
			}
		})
	}
}

// A broker at an address is judged by raw peers; what needs its process or its clock could not run.
func TestForeignBroker(t *testing.T) {
	c := world(t)
	b, err := brokerproc.Start(t.Context(), brokerproc.Options{Command: c.Broker.Real})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c.Broker = engine.BrokerSource{Addresses: map[string]string{brokerproc.TCP: b.Address(brokerproc.TCP)}}
	c.Driver = engine.DriverSource{}
	peer := "steps:\n  - peer: p1\n"
	for _, s := range []string{
		"id: X-1\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\nsubject: broker\ntime: real\n" + peer, "id: X-2\ntransports: [ws]\nauth: [anonymous]\nauth_reason: x\nsubject: broker\ntime: real\n" + peer,
		"id: X-3\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\nsubject: broker\ntime: virtual\n" + peer,
		"id: X-4\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\nsubject: broker\ntime: real\n" + peer + "  - restart_broker: b1\n",
		"id: X-5\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\nsubject: broker\ntime: real\nbrokers: {b2: {}}\n" + peer,
		"id: X-6\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\nsubject: client\ntime: real\nsteps:\n  - connect: c1\n",
	} {
		c.Scenarios = append(c.Scenarios, parse(t, s[4:7]+".yaml", s+"title: t\nproves: [L-20]\n"))
	}
	run := perform(t, c)
	want := []string{"", engine.ReasonNoTransport, engine.ReasonNoVirtual, engine.ReasonNoProcess, engine.ReasonNoProcess, engine.ReasonNoDriver}
	for i, k := range run.Cases {
		if k.Reason != want[i] || (k.Verdict == engine.Pass) != (i == 0) || i > 0 && k.Verdict != engine.CouldNotRun {
			t.Errorf("%s", k.Describe())
		}
	}
}

// talker is a driver of which single answers can be changed. Without changes it says yes to everything that it knows.
type talker struct {
	features []string
	answer   func(out io.Writer, c driver.Command) (handled bool)
	ending   string
}

func (k talker) main(_ context.Context, in io.Reader, out, _ io.Writer) int {
	features := k.features
	if features == nil {
		features = []string{"tcp", "lease", "stats", "obs"}
	}
	hello, _ := json.Marshal(map[string]any{"ev": "hello", "protocol": 1, "name": "talker", "features": features})
	fmt.Fprintf(out, "%s\n", hello)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c driver.Command
		if json.Unmarshal(lines.Bytes(), &c) != nil {
			return 3
		}
		if k.answer != nil && k.answer(out, c) {
			continue
		}
		if c.Cmd == "no.such.command" {
			fmt.Fprintf(out, `{"id":%d,"err":{"class":"Unsupported"}}`+"\n", c.ID)
			continue
		}
		if c.Cmd == "stats" {
			fmt.Fprintf(out, `{"id":%d,"ok":{"tasks":0}}`+"\n", c.ID)
			continue
		}
		fmt.Fprintf(out, `{"id":%d,"ok":{"yes":1}}`+"\n", c.ID)
	}
	if k.ending == "" {
		k.ending = `{"ev":"bye"}` + "\n"
	}
	_, _ = io.WriteString(out, k.ending)
	return 0
}

const clientScenario = head + "subject: client\ntime: real\nsteps:\n  - connect: c1\n  - {do: lease.acquire, on: c1, as: l1, args: {route: \"lease://$REALM/q/a\"}, ok: {yes: 1}}\n"

// Every faulty driver yields one verdict with its name, whatever the scenario expects, and nothing of it is left (goleak).
func TestFaultyDrivers(t *testing.T) {
	c := world(t)
	on := func(cmd, line string) talker {
		return talker{answer: func(out io.Writer, c driver.Command) bool {
			if c.Cmd != cmd {
				return false
			}
			_, _ = io.WriteString(out, strings.ReplaceAll(line, "ID", fmt.Sprint(c.ID)))
			return true
		}}
	}
	all := func(line string) talker {
		return talker{answer: func(out io.Writer, c driver.Command) bool {
			_, _ = io.WriteString(out, strings.ReplaceAll(line, "ID", fmt.Sprint(c.ID)))
			return true
		}}
	}
	raw := func(main driver.Main) driver.Main { return main }
	const acquire = "lease.acquire"
	for name, k := range map[string]struct {
		main    driver.Main
		verdict engine.Verdict
		reason  string
	}{
		"good":                       {talker{}.main, engine.Pass, ""},
		"never answers":              {all("").main, engine.Fail, driver.FaultHang},
		"hangs at a command":         {hanging().main, engine.Fail, driver.FaultHang},
		"forgets one command":        {on(acquire, "").main, engine.Fail, engine.ReasonDeadline},
		"half a line":                {raw(halfLine), engine.Fail, driver.FaultHalfLine},
		"crash":                      {raw(crash), engine.Fail, driver.FaultCrash},
		"giant line":                 {on(acquire, `{"id":ID,"ok":{"x":"`+strings.Repeat("x", 20_000)+`"}}`+"\n").main, engine.Fail, driver.FaultGiantLine},
		"wrong id":                   {on(acquire, `{"id":4711,"ok":{"yes":1}}`+"\n").main, engine.Fail, driver.FaultWrongID},
		"duplicate answer":           {on(acquire, strings.Repeat(`{"id":ID,"ok":{"yes":1}}`+"\n", 2)).main, engine.Fail, driver.FaultDuplicate},
		"stray output":               {on(acquire, "acquired!\n").main, engine.Fail, driver.FaultStray},
		"not UTF-8":                  {on(acquire, "{\"id\":ID,\"ok\":{\"x\":\"\xff\"}}\n").main, engine.Fail, driver.FaultNotUTF8},
		"not JSON":                   {on(acquire, "{\"id\":ID,}\n").main, engine.Fail, driver.FaultNotJSON},
		"ok and err":                 {on(acquire, `{"id":ID,"ok":{},"err":{"class":"X"}}`+"\n").main, engine.Fail, driver.FaultBadMessage},
		"event gap":                  {on(acquire, `{"ev":"x","of":"k1_l1","n":2}`+"\n").main, engine.Fail, driver.FaultEventGap},
		"event of nobody":            {on(acquire, `{"ev":"x","of":"l9","n":1}`+"\n").main, engine.Fail, driver.FaultUnknownHandle},
		"fatal":                      {on(acquire, `{"ev":"fatal"}`+"\n").main, engine.Fail, driver.FaultFatal},
		"second hello":               {on(acquire, `{"ev":"hello","protocol":1,"name":"x"}`+"\n").main, engine.Fail, driver.FaultSecondHello},
		"no hello":                   {raw(func(context.Context, io.Reader, io.Writer, io.Writer) int { return 0 }), engine.Fail, driver.FaultNoHello},
		"is no driver":               {raw(func(context.Context, io.Reader, io.Writer, io.Writer) int { return driver.ExitUnsupported }), engine.Unsupported, engine.ReasonCommand},
		"says yes to everything":     {all(`{"id":ID,"ok":{"yes":1}}` + "\n").main, engine.Fail, driver.FaultNeverRefuses},
		"unsupported everything":     {all(`{"id":ID,"err":{"class":"Unsupported"}}` + "\n").main, engine.Fail, driver.FaultUnsupported},
		"false feature":              {on(acquire, `{"id":ID,"err":{"class":"Unsupported"}}`+"\n").main, engine.Fail, driver.FaultFalseFeature},
		"lacks the feature honestly": {talker{features: []string{"tcp"}, answer: on(acquire, `{"id":ID,"err":{"class":"Unsupported"}}`+"\n").answer}.main, engine.Unsupported, engine.ReasonCommand},
		"lacks the transport":        {talker{features: []string{"ws"}}.main, engine.Unsupported, engine.ReasonFeature},
		"refuses what must succeed":  {on(acquire, `{"id":ID,"err":{"class":"LeaseHeld","code":"lease.held","number":5001}}`+"\n").main, engine.Fail, engine.ReasonExpectation},
		"cancels by itself":          {on(acquire, `{"id":ID,"cancelled":true}`+"\n").main, engine.Fail, engine.ReasonExpectation},
		"leaves something":           {on("stats", `{"id":ID,"ok":{"tasks":1}}`+"\n").main, engine.Fail, driver.FaultDirty},
		"no bye":                     {talker{ending: " "}.main, engine.Fail, driver.FaultHalfLine},
		"ends without bye":           {raw(noBye), engine.Fail, driver.FaultNoBye},
		"after bye":                  {talker{ending: `{"ev":"bye"}` + "\n{}\n"}.main, engine.Fail, driver.FaultAfterBye},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := c
			c.Scenarios = []*scenario.Scenario{parse(t, "X-1.yaml", hurried(clientScenario, k.reason))}
			limits := patiently(driver.DefaultLimits, name, k.reason)
			limits.Line = 10_000
			c.Driver = engine.DriverSource{Limits: limits, Name: "talker", Start: func(ctx context.Context) (*driver.Driver, error) {
				return driver.Run(ctx, k.main, limits)
			}}
			run := perform(t, c)
			if got := &run.Cases[0]; got.Verdict != k.verdict || got.Reason != k.reason {
				t.Errorf("%s\nwant %s %s", got.Describe(), k.verdict, k.reason)
			}
			if (k.verdict == engine.Pass) != run.OK() {
				t.Errorf("ok is %v", run.OK())
			}
		})
	}
}

// hanging answers everything up to lease.acquire and nothing afterwards.
func hanging() talker {
	hangs := false
	return talker{answer: func(_ io.Writer, c driver.Command) bool {
		hangs = hangs || c.Cmd == "lease.acquire"
		return hangs
	}}
}

func halfLine(ctx context.Context, in io.Reader, out, log io.Writer) int {
	talker{answer: func(out io.Writer, c driver.Command) bool {
		if c.Cmd == "lease.acquire" {
			_, _ = io.WriteString(out, `{"id":`)
			_ = in.(io.Closer).Close()
		}
		return c.Cmd == "lease.acquire"
	}, ending: "1"}.main(ctx, in, out, log)
	return 0
}

func crash(ctx context.Context, in io.Reader, out, log io.Writer) int {
	talker{answer: func(_ io.Writer, c driver.Command) bool {
		if c.Cmd == "lease.acquire" {
			_ = out.(io.Closer).Close()
			_ = in.(io.Closer).Close()
		}
		return c.Cmd == "lease.acquire"
	}}.main(ctx, in, out, log)
	return 2
}

func noBye(ctx context.Context, in io.Reader, out, log io.Writer) int {
	talker{ending: "\x00"}.main(ctx, in, withoutNUL{out}, log)
	return 0
}

// withoutNUL loses a line that is only a NUL.
type withoutNUL struct{ io.Writer }

func (w withoutNUL) Write(b []byte) (int, error) {
	if string(b) == "\x00" {
		return 1, nil
	}
	return w.Writer.Write(b)
}

// A known failure must go on failing as it is listed; everything else about the list is a failure of the run.
func TestKnownFailures(t *testing.T) {
	c := world(t)
	failing := parse(t, "X-1.yaml", head+"subject: broker\ntime: real\nsteps:\n  - check: {value: 1, is: 2}\n")
	passing := parse(t, "X-1.yaml", head+"subject: broker\ntime: real\nsteps:\n  - check: {value: 1, is: 1}\n")
	entry := engine.Known{Case: "X-1/tcp/on/anonymous", Reason: engine.ReasonExpectation, Message: "expected 2, got 1", Why: "w", Owner: "o"}
	other := entry
	other.Message = "something else"
	stale := entry
	stale.Case = "X-2/tcp/on/anonymous"
	for name, k := range map[string]struct {
		scenario *scenario.Scenario
		known    engine.Known
		ok       bool
		state    string
		reason   string
	}{
		"fails as listed":     {failing, entry, true, engine.KnownFails, engine.ReasonExpectation},
		"passes":              {passing, entry, false, engine.KnownPasses, engine.ReasonKnownPasses},
		"fails differently":   {failing, other, false, engine.KnownDiffers, engine.ReasonKnownOther},
		"there is no such":    {passing, stale, false, engine.KnownStale, ""},
		"a failure not known": {failing, stale, false, engine.KnownStale, engine.ReasonExpectation},
	} {
		t.Run(name, func(t *testing.T) {
			c := c
			c.Scenarios, c.Known = []*scenario.Scenario{k.scenario}, []engine.Known{k.known}
			run := perform(t, c)
			if run.OK() != k.ok || run.Known[0].State != k.state || run.Cases[0].Reason != k.reason {
				t.Errorf("ok %v, %+v, %s", run.OK(), run.Known, run.Cases[0].Describe())
			}
		})
	}
}

func TestLoadKnown(t *testing.T) {
	good := "- {case: A/tcp/on/anonymous, reason: expectation, message: m, why: w, owner: o}\n"
	for name, k := range map[string]struct {
		text string
		ok   bool
	}{
		"good": {good, true}, "empty": {"[]\n", true}, "nothing": {"", true}, "twice": {good + good, false},
		"no reason why": {"- {case: A, reason: r, message: m, owner: o}\n", false}, "unknown key": {"- {case: A, since: 3}\n", false},
	} {
		file := filepath.Join(t.TempDir(), "known.yaml")
		if err := os.WriteFile(file, []byte(k.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := engine.LoadKnown(file); (err == nil) != k.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMatrix(t *testing.T) {
	one := parse(t, "X-1.yaml", "id: X-1\ntitle: t\nproves: [L-20]\nsubject: broker\ntime: real\nlabels: [on, off]\nauth: [anonymous]\nauth_reason: x\nsteps:\n  - mark: m\n")
	two := parse(t, "OBS-7.yaml", "id: OBS-7\ntitle: t\nproves: [L-20]\nsubject: broker\ntime: real\ntransports: [ws]\nsteps:\n  - mark: m\n")
	list := []*scenario.Scenario{one, two}
	names := func(s engine.Selection) string {
		var out []string
		for _, c := range engine.Matrix(list, s) {
			out = append(out, c.Name())
		}
		return strings.Join(out, " ")
	}
	for want, s := range map[string]engine.Selection{
		"X-1/tcp/on/anonymous X-1/tcp/off/anonymous X-1/ws/on/anonymous X-1/ws/off/anonymous OBS-7/ws/on/anonymous OBS-7/ws/on/token": {},
		"OBS-7/ws/on/token":                          {Auth: []string{"token"}},
		"OBS-7/ws/on/anonymous OBS-7/ws/on/token":    {Scenarios: []string{"OBS-*"}},
		"X-1/tcp/on/anonymous X-1/tcp/off/anonymous": {Transports: []string{"tcp"}},
		"X-1/ws/off/anonymous":                       {Transports: []string{"ws"}, Labels: []string{"off"}},
		"":                                           {Scenarios: []string{"Y*"}},
	} {
		if got := names(s); got != want {
			t.Errorf("%+v: %s", s, got)
		}
	}
	if _, err := engine.New(engine.Config{Spec: world(t).Spec, SpecFiles: world(t).SpecFiles, Select: engine.Selection{Scenarios: []string{"["}}}); err == nil {
		t.Error("a pattern that is none was taken")
	}
}

// A run without a case is no success: a misspelt pattern must not look like a pass.
func TestNothingChosen(t *testing.T) {
	if run := perform(t, world(t)); run.OK() {
		t.Error("an empty run is a success")
	}
}

func TestBudget(t *testing.T) {
	r := engine.Run{Cases: []engine.Case{{Verdict: engine.Pass}}, Budgets: []engine.Budget{{Name: "scenarios", Limit: 2 * time.Second, Took: 3 * time.Second}}}
	if !r.OK() {
		t.Error("exceeded by half is still right", r.Complaints())
	}
	r.Budgets[0].Took++
	if r.OK() {
		t.Error("exceeded by more than half is right")
	}
}

// The seed of a case depends on the seed of the run and its name, not on what else runs.
func TestSeeds(t *testing.T) {
	c := world(t)
	s := parse(t, "X-1.yaml", "id: X-1\ntitle: t\nproves: [L-20]\nsubject: broker\ntime: real\nsteps:\n  - check: {value: $SEED, is: {$min: 1}}\n")
	c.Scenarios = []*scenario.Scenario{s}
	first := perform(t, c)
	c.Select.Transports = []string{"ws"}
	second := perform(t, c)
	at := slices.IndexFunc(first.Cases, func(k engine.Case) bool { return k.Transport == "ws" })
	if first.Cases[at].Seed != second.Cases[0].Seed || first.Cases[0].Seed == first.Cases[1].Seed {
		t.Errorf("%d %d, %d", first.Cases[0].Seed, first.Cases[1].Seed, second.Cases[0].Seed)
	}
	c.Seed = 2
	if third := perform(t, c); third.Cases[0].Seed == second.Cases[0].Seed {
		t.Error("another seed changes nothing")
	}
}

// The column token needs listeners that want a token and a driver that takes one. What lacks them is unsupported, never a pass.
func TestTokenColumn(t *testing.T) {
	text := "title: t\nproves: [L-20]\ntransports: [tcp]\ntime: real\n"
	peer := parse(t, "X-1.yaml", "id: X-1\nsubject: broker\n"+text+"steps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {route: \"lease://$REALM/q/a\"}}\n"+
		"  - count: {peer: p1, dir: up, message: session.connect, where: {token: {$len: {$min: 1}}}, is: 1}\n    when: {auth: token}\n")
	client := parse(t, "X-2.yaml", "id: X-2\nsubject: client\n"+text+"steps:\n  - connect: c1\n")
	c := world(t)
	c.Scenarios = []*scenario.Scenario{peer, client}
	check := func(what string, c engine.Config, want ...string) {
		t.Helper()
		run := perform(t, c)
		var got []string
		for i := range run.Cases {
			got = append(got, string(run.Cases[i].Verdict)+" "+run.Cases[i].Reason)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q", what, got)
		}
	}
	check("own broker", c, "pass ", "pass ", "pass ", "pass ")

	b, err := brokerproc.Start(t.Context(), brokerproc.Options{
		Command: c.Broker.Real, Tokens: "hmac_secret: another\nfamilies: 2\nfamily_map: {dev: 1, ops: 2}\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	plain := map[string]string{brokerproc.TCP: b.Address(brokerproc.TCP)}
	c.Broker = engine.BrokerSource{Addresses: plain}
	c.Driver = engine.DriverSource{}
	c.Scenarios = c.Scenarios[:1]
	check("no address for tokens", c, "pass ", "unsupported "+engine.ReasonNoTokens)
	both := map[string]string{brokerproc.TCP: b.Address(brokerproc.TCP), brokerproc.TokenTCP: b.Address(brokerproc.TokenTCP)}
	c.Broker = engine.BrokerSource{Addresses: both, Secret: "another"}
	check("both addresses", c, "pass ", "pass ")
	c.Broker.Secret = ""
	check("wrong secret", c, "pass ", "fail "+engine.ReasonRefused)

	c = world(t)
	c.Scenarios = []*scenario.Scenario{client}
	c.Select.Auth = []string{scenario.Token}
	limits := c.Driver.Limits
	c.Driver.Start = func(ctx context.Context) (*driver.Driver, error) {
		return driver.Run(ctx, talker{features: []string{"tcp", "lease"}}.main, limits)
	}
	check("a driver without tokens", c, "unsupported "+engine.ReasonFeature)
}
