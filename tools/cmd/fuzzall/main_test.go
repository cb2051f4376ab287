package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// module writes a module of one package with fuzz targets.
func module(t *testing.T, body string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.test/m\n\ngo 1.25.0\n",
		"p/p_test.go":    "package p\n\nimport \"testing\"\n\n" + body,
		"_off/x_test.go": "package off\n\nimport \"testing\"\n\nfunc FuzzIgnored(f *testing.F) {}\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const good = "func FuzzGood(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) {}) }\n"

func TestTargetsRun(t *testing.T) {
	root := module(t, good+"func FuzzAlso(f *testing.F) { f.Fuzz(func(t *testing.T, n int) {}) }\n")
	var out bytes.Buffer
	if err := (options{fuzztime: "50x", jobs: 2, out: &out}).run(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fuzz FuzzGood", "fuzz FuzzAlso", "50 executions", "fuzz: 2 targets, 50x each, 2 at a time: 100 executions, no failure"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// A target that fails does not keep others from running, and its input is told.
func TestFailureIsFound(t *testing.T) {
	root := module(t, good+"func FuzzBad(f *testing.F) { f.Fuzz(func(t *testing.T, b []byte) { if len(b) > 1 { t.Fatal(\"too long\") } }) }\n")
	var out bytes.Buffer
	err := options{fuzztime: "5000x", jobs: 1, out: &out}.run(t.Context(), root)
	if err == nil || !strings.Contains(err.Error(), "new failing input") || !strings.Contains(err.Error(), "too long") {
		t.Errorf("error %v", err)
	}
	if !strings.Contains(out.String(), "FAILED") || !strings.Contains(out.String(), "fuzz FuzzGood") {
		t.Errorf("output %s", out.String())
	}
}

func TestMistakes(t *testing.T) {
	root := module(t, good)
	for _, c := range []struct {
		o    options
		want string
	}{
		{options{fuzztime: "1x", jobs: 0}, "at least one"},
		{options{fuzztime: "1x", jobs: 1, only: "Nothing"}, "no fuzz target"},
		{options{fuzztime: "soon", jobs: 1}, "invalid value"},
	} {
		c.o.out = &bytes.Buffer{}
		if err := c.o.run(t.Context(), root); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}

const running = "fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\nfuzz: elapsed: 3s, execs: 994 (331/sec), new interesting: 6 (total: 9)\n" +
	"fuzz: elapsed: 30s, execs: 1201 (0/sec), new interesting: 6 (total: 9)\n"

// Only the ending that is known to be none of the target is taken for one.
func TestEndedByDeadline(t *testing.T) {
	for out, want := range map[string]bool{
		running + "--- FAIL: FuzzX (30.02s)\n    context deadline exceeded\nFAIL\n":                                                       true,
		running + "--- FAIL: FuzzX (30.02s)\n    context deadline exceeded\nFAIL\nexit status 1\n":                                        true,
		running + "--- FAIL: FuzzY (30.02s)\n    context deadline exceeded\nFAIL\n":                                                       false,
		running + "--- FAIL: FuzzX (30.02s)\n    x_test.go:7: context deadline exceeded\nFAIL\n":                                          false,
		running + "--- FAIL: FuzzX (30.02s)\n    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n":                  false,
		running + "--- FAIL: FuzzX (1s)\n    context deadline exceeded\n    \n    Failing input written to testdata/fuzz/FuzzX/1\nFAIL\n": false,
		running + "panic: context deadline exceeded\nFAIL\n":                                                                              false,
		running + "PASS\n": false,
	} {
		if got := endedByDeadline([]byte(out), "FuzzX"); got != want {
			t.Errorf("%v for\n%s", got, out)
		}
	}
	if n := executions([]byte(running)); n != 1201 {
		t.Errorf("%d executions", n)
	}
	if n := executions([]byte("PASS\n")); n != 0 {
		t.Errorf("%d executions of nothing", n)
	}
}
