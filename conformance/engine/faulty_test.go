package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fitzwire/fitz/conformance/brokerproc"
	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/scenario"
)

var write = flag.Bool("write", false, "write the table of faulty subjects into the page about the suite")

const (
	argDriver = "faulty-driver"
	argBroker = "faulty-broker"
)

// The test binary is also every faulty subject: a process that misbehaves as its second argument says.
func init() {
	if len(os.Args) < 3 {
		return
	}
	for _, f := range faultySubjects {
		switch {
		case f.name != os.Args[2]:
		case os.Args[1] == argDriver:
			os.Exit(f.driver(context.Background(), os.Stdin, os.Stdout, os.Stderr))
		case os.Args[1] == argBroker:
			os.Exit(f.broker(os.Args[3:]))
		}
	}
}

// faulty is a subject that must not pass.
type faulty struct {
	name, does string
	driver     driver.Main
	broker     func(args []string) int
	known      *engine.Known // a list that is wrong, with a subject that is right
	scenario   string        // "": clientScenario for drivers, brokerScenario for brokers
	verdict    engine.Verdict
	reason     string
}

const (
	brokerScenario  = "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {route: \"lease://$REALM/q/a\"}, ok: {held: false}}\n"
	restartScenario = "subject: broker\ntime: real\nsteps:\n  - {peer: p1, save: {first: lifecycle.broker_lifetime_id}}\n  - restart_broker: b1\n" +
		"  - {peer: p2, save: {second: lifecycle.broker_lifetime_id}}\n  - check: {value: $second, is: {$not: $first}}\n"
	grantScenario = "subject: broker\ntime: real\nsteps:\n  - peer: p1\n  - peer: p2\n" +
		"  - {do: lease.acquire, on: p1, args: {route: \"lease://$REALM/q/a\", owner_id: w1, ttl: 9}, ok: {kind: acquired}}\n" +
		"  - {do: lease.acquire, on: p2, args: {route: \"lease://$REALM/q/a\", owner_id: w2, ttl: 9}, err: LEASE_HELD}\n"
	yesScenario  = "subject: client\ntime: real\nsteps:\n  - connect: c1\n  - {do: lease.acquire, on: c1, as: l1, args: {route: \"lease://$REALM/q/a\"}, ok: {yes: 1}}\n"
	deafScenario = "subject: client\ntime: real\nsteps:\n  - {connect: c1, args: {owner_id: {$repeat: {text: a, times: 300000}}}}\n"
	passScenario = "subject: broker\ntime: real\nsteps:\n  - check: {value: 1, is: 1}\n"
	failScenario = "subject: broker\ntime: real\nsteps:\n  - check: {value: 1, is: 2}\n"
)

// answering is a driver that answers one command with a line in which ID is its id, and everything else with a plain yes.
func answering(cmd, line string) driver.Main {
	return talker{answer: func(out io.Writer, c driver.Command) bool {
		if cmd != "" && c.Cmd != cmd {
			return false
		}
		_, _ = io.WriteString(out, strings.ReplaceAll(line, "ID", fmt.Sprint(c.ID)))
		return true
	}}.main
}

// acting is a driver that does something at lease.acquire and never answers it.
func acting(act func(out io.Writer, log io.Writer)) driver.Main {
	return func(ctx context.Context, in io.Reader, out, log io.Writer) int {
		return talker{answer: func(out io.Writer, c driver.Command) bool {
			if c.Cmd == "lease.acquire" {
				act(out, log)
			}
			return c.Cmd == "lease.acquire"
		}}.main(ctx, in, out, log)
	}
}

// starting is a driver that says something first, and then stands still or ends.
func starting(line string, code int) driver.Main {
	return func(_ context.Context, in io.Reader, out, _ io.Writer) int {
		_, _ = io.WriteString(out, line)
		if code < 0 {
			forever()
		}
		return code
	}
}

// ending is a driver whose only mistake is its end.
func ending(line string, code int) driver.Main {
	return func(ctx context.Context, in io.Reader, out, log io.Writer) int {
		talker{ending: line}.main(ctx, in, out, log)
		if code < 0 {
			forever()
		}
		return code
	}
}

// forever ends with the process, or after a time that no test waits for.
func forever() { time.Sleep(time.Hour) }

const (
	acquire = "lease.acquire"
	yes     = `{"id":ID,"ok":{"yes":1}}` + "\n"
	no      = `{"id":ID,"err":{"class":"Unsupported"}}` + "\n"
	bye     = `{"ev":"bye"}` + "\n"
)

// scripted is a broker that follows a script and writes its addresses as it was told to.
func scripted(hello *fakebroker.Hello, rules ...fakebroker.Rule) func(args []string) int {
	return func(args []string) int {
		spec, err := oracle.Load(os.DirFS("../../spec"))
		if err != nil {
			return 3
		}
		b, err := fakebroker.Start(spec, fakebroker.Script{Hello: hello, Rules: rules}, fakebroker.Options{})
		if err != nil || announce(args, b.Address("tcp")) != nil {
			return 4
		}
		if b.AwaitHits(context.Background(), "exit", 1) != nil {
			return 5
		}
		return 6
	}
}

// announce writes the file of addresses, all of it or nothing.
func announce(args []string, tcp string) error {
	for i, arg := range args {
		if arg != "--addresses-file" {
			continue
		}
		if err := os.WriteFile(args[i+1]+".new", fmt.Appendf(nil, `{"tcp":%q}`, tcp), 0o600); err != nil {
			return err
		}
		return os.Rename(args[i+1]+".new", args[i+1])
	}
	return errors.New("no file of addresses")
}

// keeping is a broker that has a session of its own which nobody ends: fitzd-test, and somebody who is connected to it.
func keeping(args []string) int {
	program, flags := args[1], slices.Clone(args[2:])
	at := slices.Index(flags, "--addresses-file")
	if at < 0 {
		return 3
	}
	flags[at+1] += ".own"
	child := osexec.Command(program, flags...)
	if child.Start() != nil {
		return 4
	}
	var addresses map[string]string
	for {
		if text, err := os.ReadFile(flags[at+1]); err == nil && json.Unmarshal(text, &addresses) == nil {
			break
		}
		runtime.Gosched()
	}
	session, err := net.Dial("tcp", addresses["tcp"])
	if err != nil {
		return 5
	}
	hello := make([]byte, 1)
	if _, err := session.Write([]byte{0, 0, 0, 3, 1, 0, 0}); err != nil { // CONNECT
		return 6
	}
	if _, err := session.Read(hello); err != nil || os.Rename(flags[at+1], strings.TrimSuffix(flags[at+1], ".own")) != nil {
		return 7
	}
	_ = child.Wait() // it is killed with its group
	_ = session.Close()
	return 8
}

func rule(message string, do ...fakebroker.Action) fakebroker.Rule {
	return fakebroker.Rule{On: fakebroker.On{Message: message}, Do: do}
}

func replying(message string, value map[string]any) fakebroker.Action {
	return fakebroker.Action{Reply: &fakebroker.Record{Message: message, Value: value}}
}

func knownFailure(reason, message string) *engine.Known {
	return &engine.Known{Case: "X-1/tcp/on/anonymous", Reason: reason, Message: message, Why: "w", Owner: "o"}
}

// faultySubjects is everything that the suite must not be fooled by, in the order of the page about it.
var faultySubjects = []faulty{
	{name: "hang", does: "answers nothing at all", driver: answering("", ""), verdict: engine.Fail, reason: driver.FaultHang},
	{name: "hang-later", does: "answers nothing from one command on", driver: acting(func(io.Writer, io.Writer) { forever() }), verdict: engine.Fail, reason: driver.FaultHang},
	{name: "forgets", does: "never answers one command and answers the others", driver: answering(acquire, ""), verdict: engine.Fail, reason: engine.ReasonDeadline},
	{name: "deaf", does: "does not read its input any more", scenario: deafScenario, verdict: engine.Fail, reason: driver.FaultDeaf,
		driver: func(_ context.Context, in io.Reader, out, _ io.Writer) int {
			line := make([]byte, 200)
			_, _ = fmt.Fprint(out, `{"ev":"hello","protocol":1,"name":"t","features":["tcp"]}`+"\n")
			_, _ = in.Read(line)
			_, _ = io.WriteString(out, strings.ReplaceAll(no, "ID", "1"))
			forever()
			return 0
		}},
	{name: "crash", does: "ends with another code than 0 while it is needed", driver: acting(func(io.Writer, io.Writer) { os.Exit(9) }), verdict: engine.Fail, reason: driver.FaultCrash},
	{name: "quiet-end", does: "ends with code 0 while it is needed", driver: acting(func(io.Writer, io.Writer) { os.Exit(0) }), verdict: engine.Fail, reason: driver.FaultCrash},
	{name: "early-bye", does: "says bye while it is needed", driver: acting(func(out, _ io.Writer) { _, _ = io.WriteString(out, bye); os.Exit(0) }), verdict: engine.Fail, reason: driver.FaultCrash},
	{name: "closed-output", does: "closes its output and goes on", driver: acting(func(out, _ io.Writer) { _ = out.(io.Closer).Close(); forever() }), verdict: engine.Fail, reason: driver.FaultCrash},
	{name: "half-line", does: "ends within a line", driver: acting(func(out, _ io.Writer) { _, _ = io.WriteString(out, `{"id":`); os.Exit(0) }), verdict: engine.Fail, reason: driver.FaultHalfLine},
	{name: "giant-line", does: "writes a line longer than the bound", driver: answering(acquire, `{"id":ID,"ok":{"x":"`+strings.Repeat("x", 20_000)+`"}}`+"\n"), verdict: engine.Fail, reason: driver.FaultGiantLine},
	{name: "endless-line", does: "writes bytes for ever and no end of the line", driver: acting(func(out, _ io.Writer) {
		for {
			if _, err := out.Write(bytes.Repeat([]byte("{"), 4096)); err != nil {
				forever()
			}
		}
	}), verdict: engine.Fail, reason: driver.FaultGiantLine},
	{name: "wrong-id", does: "answers a command that nobody gave", driver: answering(acquire, `{"id":4711,"ok":{"yes":1}}`+"\n"), verdict: engine.Fail, reason: driver.FaultWrongID},
	{name: "duplicate-answer", does: "answers one command twice", driver: answering(acquire, yes+yes), verdict: engine.Fail, reason: driver.FaultDuplicate},
	{name: "stray-output", does: "prints to stdout what is no JSON", driver: answering(acquire, "acquired!\n"), verdict: engine.Fail, reason: driver.FaultStray},
	{name: "not-utf8", does: "writes bytes that are no UTF-8", driver: answering(acquire, "{\"id\":ID,\"ok\":{\"x\":\"\xff\"}}\n"), verdict: engine.Fail, reason: driver.FaultNotUTF8},
	{name: "not-json", does: "writes an object that does not parse", driver: answering(acquire, "{\"id\":ID,}\n"), verdict: engine.Fail, reason: driver.FaultNotJSON},
	{name: "two-outcomes", does: "answers with ok and err at once", driver: answering(acquire, `{"id":ID,"ok":{},"err":{"class":"X"}}`+"\n"), verdict: engine.Fail, reason: driver.FaultBadMessage},
	{name: "stderr-flood", does: "writes to stderr without end", driver: acting(func(_, log io.Writer) {
		for {
			if _, err := io.WriteString(log, "noise\n"); err != nil {
				forever()
			}
		}
	}), verdict: engine.Fail, reason: driver.FaultStderrFlood},
	{name: "event-flood", does: "reports events without end", driver: acting(func(out, _ io.Writer) {
		for n := 1; ; n++ {
			if _, err := fmt.Fprintf(out, `{"ev":"x","of":"k1_l1","n":%d}`+"\n", n); err != nil {
				forever()
			}
		}
	}), verdict: engine.Fail, reason: driver.FaultEventFlood},
	{name: "event-gap", does: "leaves out an event", driver: answering(acquire, `{"ev":"x","of":"k1_l1","n":2}`+"\n"), verdict: engine.Fail, reason: driver.FaultEventGap},
	{name: "event-of-nobody", does: "reports an event of a handle that nobody named", driver: answering(acquire, `{"ev":"x","of":"l9","n":1}`+"\n"), verdict: engine.Fail, reason: driver.FaultUnknownHandle},
	{name: "fatal", does: "says that it cannot go on", driver: answering(acquire, `{"ev":"fatal"}`+"\n"), verdict: engine.Fail, reason: driver.FaultFatal},
	{name: "second-hello", does: "says hello twice", driver: answering(acquire, `{"ev":"hello","protocol":1,"name":"x"}`+"\n"), verdict: engine.Fail, reason: driver.FaultSecondHello},
	{name: "no-hello", does: "ends before its hello", driver: starting("", 0), verdict: engine.Fail, reason: driver.FaultNoHello},
	{name: "silent-start", does: "never says hello", driver: starting("", -1), verdict: engine.Fail, reason: driver.FaultNoHello},
	{name: "greeting", does: "prints something in front of its hello", driver: starting("starting\n", -1), verdict: engine.Fail, reason: driver.FaultNoHello},
	{name: "other-version", does: "speaks another version of the protocol", driver: starting(`{"ev":"hello","protocol":2,"name":"x"}`+"\n", -1), verdict: engine.Fail, reason: driver.FaultBadHello},
	{name: "false-feature", does: "claims a feature and answers Unsupported to a command of it", driver: answering(acquire, no), verdict: engine.Fail, reason: driver.FaultFalseFeature},
	{name: "unsupported-everything", does: "answers Unsupported to everything", driver: answering("", no), verdict: engine.Fail, reason: driver.FaultUnsupported},
	{name: "yes-to-everything", does: "answers every command with success, those that do not exist too", driver: answering("", yes), verdict: engine.Fail, reason: driver.FaultNeverRefuses},
	{name: "is-no-driver", does: "ends with exit code 127", driver: starting("", driver.ExitUnsupported), verdict: engine.Unsupported, reason: engine.ReasonCommand},
	{name: "lacks-the-feature", does: "does not announce what the scenario needs", driver: talker{features: []string{"ws"}}.main, verdict: engine.Unsupported, reason: engine.ReasonFeature},
	{name: "wrong-outcome", does: "reports a refusal where there was a grant", driver: answering(acquire, `{"id":ID,"err":{"class":"LeaseHeld","code":"lease.held","number":5001}}`+"\n"), verdict: engine.Fail, reason: engine.ReasonExpectation},
	{name: "leaves-something", does: "has tasks left when every client is closed", driver: answering("stats", `{"id":ID,"ok":{"tasks":1}}`+"\n"), verdict: engine.Fail, reason: driver.FaultDirty},
	{name: "no-bye", does: "ends in order and without bye", driver: func(ctx context.Context, in io.Reader, out, log io.Writer) int { return noBye(ctx, in, out, log) }, verdict: engine.Fail, reason: driver.FaultNoBye},
	{name: "slow-exit", does: "goes on after its bye", driver: ending(bye, -1), verdict: engine.Fail, reason: driver.FaultSlowExit},
	{name: "after-bye", does: "writes after its bye", driver: ending(bye+"{}\n", 0), verdict: engine.Fail, reason: driver.FaultAfterBye},
	{name: "exit-code", does: "says bye and ends with another code than 0", driver: ending(bye, 7), verdict: engine.Fail, reason: driver.FaultExitCode},
	{name: "orphan", does: "leaves a process of its own behind", driver: func(ctx context.Context, in io.Reader, out, log io.Writer) int {
		child := osexec.Command(os.Args[0], append([]string{argDriver, "silent-start"}, os.Args[3:]...)...)
		if child.Start() != nil {
			return 5
		}
		return talker{}.main(ctx, in, out, log)
	}, verdict: engine.Fail, reason: driver.FaultOrphan},

	{name: "broker-exits", does: "ends at its start", broker: func([]string) int { return 3 }, verdict: engine.CouldNotRun, reason: engine.ReasonBrokerStart},
	{name: "broker-no-addresses", does: "starts and never says where it listens", broker: func([]string) int { forever(); return 0 }, verdict: engine.CouldNotRun, reason: engine.ReasonBrokerStart},
	{name: "broker-empty-addresses", does: "says that it listens nowhere", verdict: engine.CouldNotRun, reason: engine.ReasonBrokerStart,
		broker: func(args []string) int { _ = announce(args, ""); forever(); return 0 }},
	{name: "broker-nobody-listens", does: "names an address at which nobody listens", verdict: engine.Fail, reason: engine.ReasonRefused,
		broker: func(args []string) int { _ = announce(args, "127.0.0.1:1"); forever(); return 0 }},
	{name: "broker-hangs", does: "never answers a request", broker: scripted(nil, rule("lease.query")), verdict: engine.Fail, reason: engine.ReasonDeadline},
	{name: "broker-crash", does: "ends at a request", verdict: engine.Fail, reason: engine.ReasonBrokerCrash,
		broker: scripted(nil, fakebroker.Rule{Name: "exit", On: fakebroker.On{Message: "lease.query"}})},
	{name: "broker-closes", does: "closes the connection at a request", broker: scripted(nil, rule("lease.query", fakebroker.Action{Reset: true})), verdict: engine.Fail, reason: engine.ReasonClosed},
	{name: "broker-cut-record", does: "answers with a record that is cut off", verdict: engine.Fail, reason: engine.ReasonDeadline,
		broker: scripted(nil, rule("lease.query", fakebroker.Action{Reply: &fakebroker.Record{Message: "lease.query", Value: map[string]any{"held": false, "pending_waiters": 0}, Cut: 1}}))},
	{name: "broker-grants-all", does: "grants one route to two owners", verdict: engine.Fail, reason: engine.ReasonExpectation, scenario: grantScenario,
		broker: scripted(nil, rule("lease.acquire", replying("lease.acquire", map[string]any{"kind": 0, "fencing_token": 7})))},
	{name: "broker-same-lifetime", does: "announces the lifetime of the process before it", verdict: engine.Fail, reason: engine.ReasonExpectation, scenario: restartScenario,
		broker: scripted(&fakebroker.Hello{Lifetime: "000102030405060708090a0b0c0d0e0f"})},

	{name: "broker-no-control", does: "has no control port and is asked for virtual time", verdict: engine.CouldNotRun, reason: engine.ReasonBrokerStart, broker: scripted(nil),
		scenario: "subject: broker\ntime: virtual\nsteps:\n  - peer: p1\n"},
	{name: "broker-keeps", does: "holds a session when everybody has gone", verdict: engine.Fail, reason: engine.ReasonBrokerLeft, broker: keeping,
		scenario: "subject: broker\ntime: virtual\nsteps:\n  - peer: p1\n"},

	{name: "known-passes", does: "passes, and is listed as a known failure", scenario: passScenario, known: knownFailure(engine.ReasonExpectation, "expected 2"), verdict: engine.Fail, reason: engine.ReasonKnownPasses},
	{name: "known-differs", does: "fails in another way than is listed", scenario: failScenario, known: knownFailure(engine.ReasonExpectation, "something else"), verdict: engine.Fail, reason: engine.ReasonKnownOther},
}

// subject gives the configuration of one faulty subject. Its processes carry the mark in their command lines.
func (f faulty) subject(t *testing.T, c engine.Config, mark string) engine.Config {
	t.Helper()
	text := f.scenario
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case f.driver != nil:
		limits := patiently(driver.DefaultLimits, f.name, f.reason)
		limits.Line, limits.Stderr, limits.Events = 10_000, 10_000, 1000
		if f.name == "silent-start" {
			limits.Hello = time.Second
		}
		c.Driver = kit.Driver([]string{self, argDriver, f.name, mark}, limits)
		text = orElse(text, yesScenario)
	case f.broker != nil:
		command := []string{self, argBroker, f.name, mark}
		c.Broker = engine.BrokerSource{Real: command, Virtual: append(slices.Clone(command), c.Broker.Virtual...)}
		text = orElse(text, brokerScenario)
	default:
		c.Known = []engine.Known{*f.known}
	}
	c.Scenarios = []*scenario.Scenario{parse(t, "X-1.yaml", hurried(head+text, f.reason))}
	return c
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Every faulty subject, run as processes, yields its one verdict, makes the run a failure, and leaves no process.
func TestFaultySubjects(t *testing.T) {
	c := world(t)
	if len(faultySubjects) < 20 {
		t.Errorf("only %d faulty subjects", len(faultySubjects))
	}
	t.Cleanup(func() { // runs when all of them have ended
		if left := children(t); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	for _, f := range faultySubjects {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			mark := t.TempDir()
			run := perform(t, f.subject(t, c, mark))
			if len(run.Cases) != 1 {
				t.Fatalf("%d cases", len(run.Cases))
			}
			if got := &run.Cases[0]; got.Verdict != f.verdict || got.Reason != f.reason {
				t.Errorf("%s\nwant %s %s", got.Describe(), f.verdict, f.reason)
			}
			if run.OK() {
				t.Error("the run is a success")
			}
			if left := marked(t, mark); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// children are the names of the processes that this one has started and that run.
func children(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat") // none on systems without it
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		program, rest, _ := strings.Cut(string(text), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
			names = append(names, program+")")
		}
	}
	return names
}

// marked is the command line of a process that has the mark in it, "" when none is left. What was killed may end a moment later.
func marked(t *testing.T, mark string) (left string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		left = ""
		names, err := filepath.Glob("/proc/[0-9]*/cmdline") // none on systems without it
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if line, err := os.ReadFile(name); err == nil && bytes.Contains(line, []byte(mark)) {
				left = string(bytes.ReplaceAll(line, []byte{0}, []byte(" ")))
			}
		}
		if left == "" {
			return ""
		}
	}
	return left
}

// The command ends with the code for failed cases, whatever the fault is, and a subject without fault passes with the same scenarios.
func TestFaultyExitCodes(t *testing.T) {
	c := world(t)
	tree := &kit.Tree{Root: "../.."}
	programs := t.TempDir()
	command, err := tree.Build(t.Context(), programs, "./conformance/cmd/fitz-conformance")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, name := range []string{"spec", "generated"} {
		from, err := filepath.Abs(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name, text string) string {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	file("conformance/scenarios/x/X-1.yaml", hurried(head+yesScenario, driver.FaultHang)) // one of its drivers hangs
	file("conformance/scenarios/x/X-2.yaml", strings.ReplaceAll(head, "X-1", "X-2")+brokerScenario)
	file("conformance/scenarios/x/X-3.yaml", strings.ReplaceAll(head, "X-1", "X-3")+passScenario)
	entry := "- {case: %s, reason: expectation, message: m, why: w, owner: o}\n"
	passes, stale := file("passes.yaml", fmt.Sprintf(entry, "X-3/tcp/on/anonymous")), file("stale.yaml", fmt.Sprintf(entry, "X-9/tcp/on/anonymous"))
	good := c.Broker.Real[0]
	mark := t.TempDir()
	subject := func(kind, name string) string { return fmt.Sprintf("'%s' %s %s '%s'", self, kind, name, mark) }
	for name, k := range map[string]struct {
		args []string
		code int
	}{
		"nothing wrong":        {[]string{"--no-driver", "--broker", good}, 0},
		"driver hangs":         {[]string{"--broker", good, "--driver", subject(argDriver, "hang"), "--scenario", "X-1"}, 100},
		"driver crashes":       {[]string{"--broker", good, "--driver", subject(argDriver, "crash"), "--scenario", "X-1"}, 100},
		"driver is none":       {[]string{"--broker", good, "--driver", subject(argDriver, "is-no-driver"), "--scenario", "X-1"}, 100},
		"driver ends badly":    {[]string{"--broker", good, "--driver", subject(argDriver, "exit-code"), "--scenario", "X-1"}, 100},
		"broker exits":         {[]string{"--no-driver", "--broker", subject(argBroker, "broker-exits"), "--scenario", "X-2"}, 100},
		"broker crashes":       {[]string{"--no-driver", "--broker", subject(argBroker, "broker-crash"), "--scenario", "X-2"}, 100},
		"known failure passes": {[]string{"--no-driver", "--broker", good, "--known", passes}, 100},
		"stale known failure":  {[]string{"--no-driver", "--broker", good, "--known", stale}, 100},
	} {
		t.Run(name, func(t *testing.T) {
			run := osexec.CommandContext(t.Context(), command, append([]string{"--root", root, "run", "--no-vectors", "--seed", "1"}, k.args...)...)
			out, err := run.CombinedOutput()
			var exit *osexec.ExitError
			if err != nil && !errors.As(err, &exit) || run.ProcessState.ExitCode() != k.code {
				t.Errorf("%v, exit code %d, want %d\n%s", err, run.ProcessState.ExitCode(), k.code, out)
			}
			if left := marked(t, mark); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// At an address, a scenario that stops brokers is not begun: its first steps may need a broker that has just started.
func TestStoppingElsewhere(t *testing.T) {
	c := world(t)
	b, err := brokerproc.Start(t.Context(), brokerproc.Options{Command: c.Broker.Real})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c.Broker = engine.BrokerSource{Addresses: map[string]string{brokerproc.TCP: b.Address(brokerproc.TCP)}}
	c.Scenarios = []*scenario.Scenario{parse(t, "X-1.yaml", head+"subject: broker\ntime: real\nsteps:\n  - check: {value: 1, is: 2}\n  - restart_broker: b1\n")}
	if got := perform(t, c).Cases[0]; got.Verdict != engine.CouldNotRun || got.Reason != engine.ReasonNoProcess {
		t.Error(got.Describe())
	}
}

const (
	suitePage   = "../../docs/development/conformance.md"
	tableBegin  = "<!-- faulty subjects: begin; go test ./conformance/engine -run TestFaultyTable -write writes this table -->\n"
	tableEnd    = "<!-- faulty subjects: end -->\n"
	tableHeader = "| subject | name | does | verdict | reason |\n|---|---|---|---|---|\n"
)

// The page about the suite lists the faulty subjects as they are.
func TestFaultyTable(t *testing.T) {
	var table strings.Builder
	table.WriteString(tableHeader)
	for _, f := range faultySubjects {
		subject := "list of known failures"
		switch {
		case f.driver != nil:
			subject = "driver"
		case f.broker != nil:
			subject = "broker"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | `%s` |\n", subject, f.name, f.does, f.verdict, f.reason)
	}
	page, err := os.ReadFile(suitePage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(page), tableBegin)
	have, after, ended := strings.Cut(rest, tableEnd)
	if !begun || !ended {
		t.Fatal("the page has no marks around the table")
	}
	if have == table.String() {
		return
	}
	if !*write {
		t.Fatal("the table is another one; go test ./conformance/engine -run TestFaultyTable -write writes it")
	}
	if err := os.WriteFile(suitePage, []byte(before+tableBegin+table.String()+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
