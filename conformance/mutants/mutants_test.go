package mutants

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/scenario"
)

var update = flag.Bool("update", false, "write the lists of names of broker and SDK")

const root = "../.."

var tree = sync.OnceValues(func() (*kit.Tree, error) { return kit.Open(root) })

func openTree(t *testing.T) *kit.Tree {
	t.Helper()
	opened, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

func load(t *testing.T) ([]Mutant, Hooks) {
	t.Helper()
	list, err := Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	hooks, err := FindHooks(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return list, hooks
}

// Every fault of the sources is in the list and in the names that its program knows, and the other way round.
func TestListAgreesWithSources(t *testing.T) {
	list, hooks := load(t)
	for _, side := range []Side{Broker, SDK} {
		var listed []string
		for _, m := range list {
			if m.Side == side {
				listed = append(listed, m.ID)
			}
		}
		slices.Sort(listed)
		inSources := hooks.names(side)
		if len(inSources) == 0 {
			t.Errorf("%s: no fault was found in the sources", side)
		}
		for _, id := range inSources {
			if !slices.Contains(listed, id) {
				t.Errorf("%s: %s is in %v and not in %s", side, id, hooks[side][id], File)
			}
		}
		for _, id := range listed {
			if !slices.Contains(inSources, id) {
				t.Errorf("%s: %s is in %s and nowhere in the sources", side, id, File)
			}
		}
		checkNames(t, side, inSources)
	}
}

func checkNames(t *testing.T, side Side, names []string) {
	t.Helper()
	name, want := filepath.Join(root, nameLists[side]), nameList(names)
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is old; go test ./conformance/mutants -update writes it", nameLists[side])
	}
}

// Every clause and every scenario that the list names exists, and a fault of the SDK is looked for by a scenario that judges a client. Some
// scenario of a fault names a clause that the fault breaks.
func TestListAgreesWithScenarios(t *testing.T) {
	tree := openTree(t)
	list, _ := load(t)
	byID := map[string]*scenario.Scenario{}
	for _, sc := range tree.Scenarios {
		byID[sc.ID] = sc
	}
	for _, m := range list {
		for _, clause := range m.Breaks {
			if !tree.Catalog.Clauses[clause] {
				t.Errorf("%s: there is no clause %s", m.ID, clause)
			}
		}
		for _, id := range m.KilledBy {
			switch sc := byID[id]; {
			case sc == nil:
				t.Errorf("%s: there is no scenario %s", m.ID, id)
			case m.Side == SDK && sc.Subject != scenario.Client:
				t.Errorf("%s: the scenario %s needs no client", m.ID, id)
			}
		}
		named := slices.ContainsFunc(m.KilledBy, func(id string) bool {
			return byID[id] != nil && slices.ContainsFunc(byID[id].Clauses(), func(clause string) bool { return slices.Contains(m.Breaks, clause) })
		})
		if !named {
			t.Errorf("%s breaks %v, and none of %v names one of them", m.ID, m.Breaks, m.KilledBy)
		}
	}
}

func TestLoadMistakes(t *testing.T) {
	const good = `- {id: lease.x, side: broker, breaks: [L-01], what: "does x", killed_by: [LEASE-X]}` + "\n"
	for _, c := range []struct{ name, text, want string }{
		{"no killer", `- {id: lease.x, side: broker, breaks: [L-01], what: "does x", killed_by: []}`, "killed_by (lease.x)"},
		{"killer missing", `- {id: lease.x, side: broker, breaks: [L-01], what: "does x"}`, "killed_by"},
		{"unknown key", `- {id: lease.x, side: broker, breaks: [L-01], what: "does x", killed_by: [A-1], reason: none}`, "reason"},
		{"side", `- {id: lease.x, side: peer, breaks: [L-01], what: "does x", killed_by: [A-1]}`, "side (lease.x)"},
		{"name", `- {id: Lease_X, side: broker, breaks: [L-01], what: "does x", killed_by: [A-1]}`, "id (Lease_X)"},
		{"twice", good + good, "lease.x is listed twice"},
		{"empty", `[]`, "minimum 1 items"},
		{"no list", `{}`, "expected array"},
		{"no yaml", "- {", File},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Load(fstest.MapFS{File: {Data: []byte(c.text)}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want something about %q", err, c.want)
			}
		})
	}
	if list, err := Load(fstest.MapFS{File: {Data: []byte(good)}}); err != nil || len(list) != 1 || list[0].KilledBy[0] != "LEASE-X" {
		t.Errorf("got %v, %v", list, err)
	}
	if _, err := Load(fstest.MapFS{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func ids(list []Mutant) string {
	var out []string
	for _, m := range list {
		out = append(out, m.ID)
	}
	return strings.Join(out, " ")
}

var (
	testList = []Mutant{
		{ID: "a.one", Side: Broker, KilledBy: []string{"A-1"}},
		{ID: "a.two", Side: Broker, KilledBy: []string{"A-2"}},
		{ID: "b.one", Side: SDK, KilledBy: []string{"A-1", "B-1"}},
	}
	testHooks     = Hooks{Broker: {"a.one": {"broker/a"}, "a.two": {"broker/a", "broker/b"}}, SDK: {"b.one": {"sdk-templates/go/runtime/b"}}}
	testScenarios = []*scenario.Scenario{{ID: "A-1", File: "a/A-1.yaml"}, {ID: "A-2", File: "a/A-2.yaml"}, {ID: "B-1", File: "b/B-1.yaml"}}
)

func TestMatching(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		want     string
	}{
		{nil, "a.one a.two b.one"},
		{[]string{"a.*"}, "a.one a.two"},
		{[]string{"b.one", "*.two"}, "a.two b.one"},
	} {
		got, err := Matching(testList, c.patterns)
		if err != nil || ids(got) != c.want {
			t.Errorf("%v: got %q, %v, want %q", c.patterns, ids(got), err, c.want)
		}
	}
	for _, patterns := range [][]string{{"c.*"}, {"a.*", "nothing"}, {"["}} {
		if got, err := Matching(testList, patterns); err == nil {
			t.Errorf("%v: got %q, want a mistake", patterns, ids(got))
		}
	}
}

func TestTouched(t *testing.T) {
	other := slices.Clone(testList)
	other[1].What = "another"
	for _, c := range []struct {
		name  string
		files []string
		old   []Mutant
		want  string
	}{
		{"nothing", nil, testList, ""},
		{"a document", []string{"docs/a.md", "broker/a/notes.txt"}, testList, ""},
		{"a test", []string{"broker/a/a_test.go"}, testList, ""},
		{"a package", []string{"broker/a/a.go"}, testList, "a.one a.two"},
		{"the other package of a fault", []string{"broker/b/b.go"}, testList, "a.two"},
		{"a template", []string{"sdk-templates/go/runtime/b/c.go.tmpl"}, testList, "b.one"},
		{"a scenario", []string{"conformance/scenarios/a/A-1.yaml"}, testList, "a.one b.one"},
		{"an entry", []string{File}, other, "a.two"},
		{"a list that is new", []string{File}, nil, "a.one a.two b.one"},
		{"the suite", []string{"conformance/engine/engine.go"}, testList, "a.one b.one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ids(Touched(testList, testHooks, testScenarios, &Changes{Files: c.files, Old: c.old})); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if got := ids(Quick(testList, testHooks)); got != "a.one b.one" {
		t.Errorf("quick: got %q", got)
	}
}

// repository is a git repository with one commit that holds file a.
func repository(t *testing.T) (dir string, run func(args ...string)) {
	t.Helper()
	dir = t.TempDir()
	run = func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	run("init", "-q", "-b", "main")
	write(t, dir, "a", "1")
	run("add", "a")
	run("commit", "-q", "-m", "one")
	return dir, run
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestSince(t *testing.T) {
	ctx := context.Background()
	dir, run := repository(t)
	if _, err := Since(ctx, dir, Auto); !errors.Is(err, ErrNoHistory) {
		t.Errorf("a first commit: got %v", err)
	}
	if _, err := Since(ctx, t.TempDir(), Auto); !errors.Is(err, ErrNoHistory) {
		t.Errorf("no repository: got %v", err)
	}
	if _, err := Since(ctx, dir, "nothing"); err == nil || errors.Is(err, ErrNoHistory) {
		t.Errorf("no revision: got %v", err)
	}
	files := func(want ...string) {
		t.Helper()
		c, err := Since(ctx, dir, Auto)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Sort(c.Files); !reflect.DeepEqual(c.Files, want) {
			t.Errorf("got %q, want %q", c.Files, want)
		}
	}
	write(t, dir, "b", "1")
	run("add", "b")
	run("commit", "-q", "-m", "two")
	files("b") // on main: since the commit before
	write(t, dir, "a", "2")
	write(t, dir, "new file", "1")
	files("a", "b", "new file") // what is not committed counts
	run("checkout", "-q", "-b", "side")
	run("commit", "-q", "-a", "-m", "three")
	files("a", "new file") // on a branch: since it left main
}

func TestJudge(t *testing.T) {
	noticed := Outcome{Case: "A-1/tcp", Scenario: "A-1", Verdict: engine.Fail, Reason: engine.ReasonExpectation, Notices: true}
	passed := Outcome{Case: "A-1/tcp", Scenario: "A-1", Verdict: engine.Pass}
	hung := Outcome{Case: "A-1/tcp", Scenario: "A-1", Verdict: engine.Fail, Reason: engine.ReasonDeadline}
	second := Outcome{Case: "B-1/tcp", Scenario: "B-1", Verdict: engine.Pass}
	for _, c := range []struct {
		name     string
		killedBy []string
		cases    []Outcome
		want     Verdict
	}{
		{"noticed", []string{"A-1"}, []Outcome{noticed}, Killed},
		{"noticed in one column", []string{"A-1"}, []Outcome{passed, noticed}, Killed},
		{"not noticed", []string{"A-1"}, []Outcome{passed}, Survived},
		{"hung", []string{"A-1"}, []Outcome{hung}, NotCounted},
		{"not run", []string{"A-1"}, nil, Survived},
		{"one of two scenarios", []string{"A-1", "B-1"}, []Outcome{noticed, second}, Survived},
		{"hung and not noticed", []string{"A-1", "B-1"}, []Outcome{hung, second}, Survived},
	} {
		r := Result{Mutant: Mutant{KilledBy: c.killedBy}, Cases: c.cases}
		if r.judge(); r.Verdict != c.want || (r.Why == "") != (c.want == Killed) {
			t.Errorf("%s: got %s (%s), want %s", c.name, r.Verdict, r.Why, c.want)
		}
	}
}

// What counts is an expectation that is not met, or something that is missing; nothing else has noticed anything.
func TestNotices(t *testing.T) {
	for reason, want := range map[string]bool{
		engine.ReasonExpectation: true, engine.ReasonMissing: true,
		engine.ReasonDeadline: false, engine.ReasonBrokerCrash: false, engine.ReasonBrokerStart: false, engine.ReasonBrokerLeft: false,
		"driver.crash": false, "driver.hang": false, "driver.start": false, "broker.hang": false,
	} {
		if got := notices(SDK, &engine.Case{Verdict: engine.Fail, Reason: reason}); got != want {
			t.Errorf("%s: got %v", reason, got)
		}
	}
	closed := &engine.Case{Verdict: engine.Fail, Reason: engine.ReasonClosed}
	if !notices(Broker, closed) || notices(SDK, closed) {
		t.Error("a broker that closes a connection can be noticed; a client that does is noticed otherwise")
	}
	if notices(Broker, &engine.Case{Verdict: engine.CouldNotRun, Reason: engine.ReasonExpectation}) {
		t.Error("a case that could not run notices nothing")
	}
}

// Programs with faults refuse a name that they do not have, a fault is killed by what is for it and survives what is not, and a program that
// ends at once has not been noticed. Nothing is judged when the same scenarios do not pass without a fault.
func TestRun(t *testing.T) {
	ctx := t.Context()
	mutated, err := Build(ctx, openTree(t), t.TempDir(), Tag)
	if err != nil {
		t.Fatal(err)
	}
	for program, side := range map[string]Side{mutated.Driver: SDK, mutated.Broker: Broker, mutated.Test: Broker} {
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), side.Environment()+"=no.such-fault")
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), `there is no fault "no.such-fault"`) {
			t.Errorf("%s: %v\n%s", program, err, out)
		}
	}
	killed := Mutant{ID: "lease.renew-unfenced", Side: Broker, KilledBy: []string{"LEASE-HELD"}}
	survivor := Mutant{ID: "lease.release-silent", Side: Broker, KilledBy: []string{"LEASE-HELD"}}
	unknown := Mutant{ID: "lease.no-such-fault", Side: Broker, KilledBy: []string{"LEASE-HELD"}}
	sdk := Mutant{ID: "observer.list-before-subscribe", Side: SDK, KilledBy: []string{"OBS-003"}}
	runner := Runner{Tree: openTree(t), Plain: mutated, Mutated: mutated, Options: Options{Seed: 1}}
	report, err := runner.Run(ctx, []Mutant{killed, survivor, unknown, sdk})
	if err != nil {
		t.Fatal(err)
	}
	want := []Verdict{Killed, Survived, NotCounted, Killed}
	if len(report.Results) != len(want) || len(report.Baseline) != 2 {
		t.Fatalf("got %+v", report)
	}
	for i, r := range report.Results {
		if r.Verdict != want[i] {
			t.Errorf("%s: got %s (%s), want %s", r.ID, r.Verdict, r.Why, want[i])
		}
	}
	if report.OK() {
		t.Error("a run with survivors is no success")
	}

	runner.Plain.Broker, runner.Plain.Test = "/nonexistent", "/nonexistent"
	report, err = runner.Run(ctx, []Mutant{killed})
	if err != nil {
		t.Fatal(err)
	}
	if report.OK() || len(report.Results) != 0 || len(report.Baseline) != 1 || len(report.Baseline[0].Complaints) == 0 {
		t.Errorf("got %+v", report)
	}
}

// A run without results, or with a baseline in which nothing was run, is no success.
func TestReportOK(t *testing.T) {
	right := Baseline{Cases: 1}
	for _, c := range []struct {
		name string
		r    Report
		want bool
	}{
		{"all killed", Report{Baseline: []Baseline{right}, Results: []Result{{Verdict: Killed}}}, true},
		{"nothing run", Report{Baseline: []Baseline{right}}, false},
		{"no baseline", Report{Results: []Result{{Verdict: Killed}}}, false},
		{"an empty baseline", Report{Baseline: []Baseline{{}}, Results: []Result{{Verdict: Killed}}}, false},
		{"a complaint", Report{Baseline: []Baseline{{Cases: 1, Complaints: []string{"x"}}}, Results: []Result{{Verdict: Killed}}}, false},
		{"not counted", Report{Baseline: []Baseline{right}, Results: []Result{{Verdict: Killed}, {Verdict: NotCounted}}}, false},
	} {
		if got := c.r.OK(); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}
