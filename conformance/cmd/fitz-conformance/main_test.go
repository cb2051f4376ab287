package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/report"
)

// The test binary is also a driver that is none: it says that it is not supported.
func TestMain(m *testing.M) {
	if os.Getenv("FITZ_TEST_NO_DRIVER") != "" {
		os.Exit(127)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(removeBroker))
}

// call runs the command.
func call(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// tree is a source tree with one scenario for a broker, which passes, and one that fails.
func tree(t *testing.T, more map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"spec", "generated"} {
		from, err := filepath.Abs(filepath.Join("../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(root, "conformance", "scenarios", "a")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	const head = "title: t\nproves: [L-20]\nsubject: broker\ntime: real\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\n"
	files := map[string]string{
		"A-1": head + "steps:\n  - peer: p1\n  - {do: lease.query, on: p1, args: {route: \"lease://$REALM/q/a\"}, ok: {held: false}}\n",
		"A-2": head + "steps:\n  - check: {value: 1, is: 2}\n",
	}
	for name, text := range more {
		files[name] = text
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name+".yaml"), []byte("id: "+name+"\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// broker is fitzd, built once.
var (
	folder string
	broker = sync.OnceValues(func() (string, error) {
		var err error
		if folder, err = os.MkdirTemp("", "fitz-conformance-test-"); err != nil {
			return "", err
		}
		source := &kit.Tree{Root: "../../.."}
		return source.Build(context.Background(), folder, kit.BrokerPackage)
	})
)

func removeBroker(code int) {
	if folder != "" && os.RemoveAll(folder) != nil {
		code = 1
	}
	os.Exit(code)
}

func fitzd(t *testing.T) string {
	t.Helper()
	name, err := broker()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestRun(t *testing.T) {
	root, program := tree(t, nil), fitzd(t)
	report := filepath.Join(t.TempDir(), "run.json")
	code, out, errs := call(t, "--root", root, "run", "--no-driver", "--broker", program, "--scenario", "A-1", "--json", report, "--seed", "7")
	if code != exitOK || !strings.Contains(out, "[1/1] pass") || errs != "" {
		t.Fatalf("%d\n%s%s", code, out, errs)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var result engine.Run
	if err := json.Unmarshal(text, &result); err != nil || result.Seed != 7 || !result.Filtered || result.Cases[0].Verdict != engine.Pass {
		t.Errorf("%v %+v", err, result)
	}

	code, out, _ = call(t, "--root", root, "run", "--no-driver", "--broker", program, "--seed", "7")
	replay := "again: fitz-conformance run --broker '" + program + "' --no-driver --scenario A-2 --transport tcp --labels on --auth anonymous --seed 7"
	if code != exitFailed || !strings.Contains(out, replay) || !strings.Contains(out, "a/A-2.yaml:10:5, step 1 (check)") {
		t.Errorf("%d\n%s", code, out)
	}
	// The command line that is printed repeats the failure alone.
	_, line, _ := strings.Cut(replay, "fitz-conformance ")
	args := append([]string{"--root", root}, strings.Fields(strings.ReplaceAll(line, "'", ""))...)
	code, again, _ := call(t, args...)
	if code != exitFailed || !strings.Contains(again, "[1/1] fail") || !strings.Contains(again, "value: expected 2, got 1") {
		t.Errorf("%d\n%s", code, again)
	}

	if code, out, _ = call(t, "--root", root, "run", "--no-driver", "--broker", program, "--scenario", "Z*"); code != exitFailed || !strings.Contains(out, "no case was chosen") {
		t.Errorf("nothing chosen: %d\n%s", code, out)
	}
}

// Files that a program of the run leaves are found.
func TestLeftFiles(t *testing.T) {
	scratch := filepath.Join(t.TempDir(), "tmp")
	restore, err := moveTemp(scratch)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.CreateTemp("", "left-")
	restore()
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if left := remains(scratch); len(left) != 1 || !strings.Contains(left[0], "left-") {
		t.Error(left)
	}
	if strings.HasPrefix(os.TempDir(), scratch) {
		t.Error("the folder of temporary files was not put back")
	}
}

// A driver that says that it is none is unsupported, which is no pass.
func TestUnsupportedDriver(t *testing.T) {
	t.Setenv("FITZ_TEST_NO_DRIVER", "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := tree(t, map[string]string{"A-3": "title: t\nproves: [L-20]\nsubject: client\ntime: real\ntransports: [tcp]\nauth: [anonymous]\nauth_reason: x\nsteps:\n  - connect: c1\n"})
	code, out, _ := call(t, "--root", root, "run", "--driver", self, "--broker", fitzd(t), "--scenario", "A-3")
	if code != exitFailed || !strings.Contains(out, "unsupported") {
		t.Errorf("%d\n%s", code, out)
	}
}

func TestList(t *testing.T) {
	code, out, _ := call(t, "--root", tree(t, nil), "list", "--scenario", "A-2")
	if code != exitOK || strings.Count(out, "\n") != 1 || !strings.HasPrefix(out, "A-2/tcp/on/anonymous") {
		t.Errorf("%d\n%s", code, out)
	}
	root := tree(t, map[string]string{"A-3": "title: t\n"})
	code, out, errs := call(t, "--root", root, "list")
	if code != exitFailed || strings.Count(out, "\n") != 2 || !strings.Contains(errs, "conformance/scenarios/a/A-3.yaml:1:1: SCHEMA:") {
		t.Errorf("%d\n%s%s", code, out, errs)
	}
}

func TestUsage(t *testing.T) {
	root := tree(t, nil)
	for _, args := range [][]string{
		{}, {"jump"}, {"run", "--colour"}, {"--root", root, "run", "--transport", "udp"}, {"--root", root, "run", "--seed", "x", "--no-driver"},
		{"--root", root, "run", "--no-driver", "--broker", "udp://a:1"}, {"--root", root, "run", "--no-driver", "--driver", "x", "--broker", "tcp://127.0.0.1:1"},
		{"--root", root, "run", "--driver", "'", "--broker", "tcp://127.0.0.1:1"},
	} {
		if code, out, errs := call(t, args...); code != exitUsage || errs == "" {
			t.Errorf("%v: %d\n%s%s", args, code, out, errs)
		}
	}
	if code, out, _ := call(t, "--help"); code != exitOK || !strings.Contains(out, "Exit codes") {
		t.Errorf("help: %d\n%s", code, out)
	}
	if code, out, _ := call(t, "version"); code != exitOK || !strings.Contains(out, "fitz-conformance") {
		t.Errorf("version: %d\n%s", code, out)
	}
	if code, _, errs := call(t, "--root", root, "run", "--no-driver", "--broker", "tcp://127.0.0.1:1", "--known", "/does/not/exist"); code != exitTool {
		t.Errorf("known: %d\n%s", code, errs)
	}
}

// One run makes every report. What goes to the output is the report alone.
func TestReports(t *testing.T) {
	root, program := tree(t, nil), fitzd(t)
	folder := filepath.Join(t.TempDir(), "new", "folder")
	file := func(name string) string { return filepath.Join(folder, name) }
	code, out, errs := call(t, "--root", root, "run", "--no-driver", "--broker", program, "--traces", "--seed", "7",
		"--json", "-", "--junit", file("junit.xml"), "--html", file("report.html"))
	if code != exitFailed || !strings.Contains(errs, "FAILED") || !strings.Contains(errs, "report: "+file("report.html")) {
		t.Fatalf("%d\n%s", code, errs)
	}
	document, err := report.Read(strings.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	var frames []string
	for _, c := range document.Cases {
		for _, l := range c.Links {
			for _, e := range l.Entries {
				frames = append(frames, e.Message)
			}
		}
	}
	if document.OK || document.Counts["pass"] != 1 || document.Counts["fail"] != 1 || !slices.Contains(frames, "lease.query") {
		t.Errorf("%+v, frames %v", document.Counts, frames)
	}
	for name, want := range map[string]string{"junit.xml": `<testsuite name="a" tests="2" failures="1"`, "report.html": "--scenario A-2 --transport tcp"} {
		if text, err := os.ReadFile(file(name)); err != nil || !bytes.Contains(text, []byte(want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
