package doctest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/conformance/kit"
)

const (
	clientGuide = "docs/guides/test-your-own-client.md"

	driverLines = 60

	runnerPackage = "./conformance/cmd/fitz-conformance"
	runnerFailed  = 100 // exit code of a run with cases that did not pass
)

// result is what the guides look at of what a run has found out.
type result struct {
	Cases []struct{ Name, Verdict, Reason, Message string }
	Left  []string
}

// conformance is the runner and the brokers of the tree.
type conformance struct {
	t      testing.TB
	root   string
	runner string
	broker []string // flags that name the brokers
}

func newConformance(t testing.TB) conformance {
	t.Helper()
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	tree, folder := &kit.Tree{Root: checkout}, t.TempDir()
	runner, err := tree.Build(t.Context(), folder, runnerPackage)
	if err != nil {
		t.Fatal(err)
	}
	b, err := tree.OwnBroker(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	return conformance{t, checkout, runner, []string{"--broker", b.Real[0], "--broker-virtual", b.Virtual[0]}}
}

// run runs the command in a folder and returns its exit code, what it printed, and what it found out.
func (c conformance) run(folder string, args ...string) (code int, printed string, found result) {
	c.t.Helper()
	ctx, stop := context.WithTimeout(c.t.Context(), toolTimeout)
	defer stop()
	report := filepath.Join(folder, "run.json")
	command := exec.CommandContext(ctx, c.runner, append([]string{"--root", c.root, "run", "--hello-timeout", "1m", "--answer-timeout", "20s", "--json", report}, args...)...)
	command.Dir = folder
	out, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(report)
	if err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(text, &found); err != nil {
		c.t.Fatal(err)
	}
	for _, left := range found.Left {
		c.t.Error("left behind:", left)
	}
	return command.ProcessState.ExitCode(), string(out), found
}

// row is one line of a table of verdicts.
type row struct {
	patterns, says  []string // of names of cases; of messages
	verdict, reason string
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// verdicts reads the table of the verdicts of a guide.
func verdicts(t testing.TB, name string) []row {
	t.Helper()
	_, rest, found := strings.Cut(read(t, name), "| cases | verdict | reason | why |\n|---|---|---|---|\n")
	table, _, _ := strings.Cut(rest, "\n\n")
	if !found || table == "" {
		t.Fatalf("%s has no table of verdicts", name)
	}
	var rows []row
	for _, line := range strings.Split(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 4 {
			t.Fatalf("%s: %q has %d cells", name, line, len(cells))
		}
		rows = append(rows, row{spans(cells[0]), spans(cells[3]), strings.TrimSpace(cells[1]), strings.Join(spans(cells[2]), "")})
	}
	return rows
}

func spans(text string) (out []string) {
	for _, match := range codeSpan.FindAllStringSubmatch(text, -1) {
		out = append(out, match[1])
	}
	return out
}

// matches tells whether a pattern means a case. A pattern without the last parts of a name means all of them.
func matches(pattern, name string) bool {
	parts := strings.Split(name, "/")
	n := strings.Count(pattern, "/") + 1
	matched, err := path.Match(pattern, strings.Join(parts[:min(n, len(parts))], "/"))
	return err == nil && matched
}

// compare compares every case with the one row that means it, and says which case or pattern stands alone.
func compare(rows []row, found result) (problems []string) {
	used := map[string]bool{}
	for _, c := range found.Cases {
		named := 0
		for _, r := range rows {
			at := slices.IndexFunc(r.patterns, func(p string) bool { return matches(p, c.Name) })
			if at < 0 {
				continue
			}
			named++
			used[r.patterns[at]] = true
			if r.verdict != c.Verdict || r.reason != c.Reason {
				problems = append(problems, fmt.Sprintf("%s: %s %s (%s), and the guide says %s %s", c.Name, c.Verdict, c.Reason, c.Message, r.verdict, r.reason))
			}
			if r.verdict == "fail" && !slices.ContainsFunc(r.says, func(says string) bool { return strings.Contains(c.Message, says) }) {
				problems = append(problems, fmt.Sprintf("%s: %q, and the guide says %q", c.Name, c.Message, r.says))
			}
		}
		if named != 1 {
			problems = append(problems, fmt.Sprintf("%s stands in %d rows", c.Name, named))
		}
	}
	for _, r := range rows {
		for _, p := range r.patterns {
			if !used[p] {
				problems = append(problems, "there is no case "+p)
			}
		}
	}
	return problems
}

// python is the interpreter itself: what is called python3 may be a script that looks for it each time.
func python(t testing.TB) string {
	t.Helper()
	name, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3; the driver of the guide is in Python")
	}
	out, err := exec.CommandContext(t.Context(), name, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// files are the blocks of a guide whose info names a file, and its blocks of differences.
func files(t testing.TB, name string) (files map[string]string, diffs []Block) {
	t.Helper()
	all, err := Blocks(name, read(t, name))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for _, b := range all {
		switch _, file, named := strings.Cut(b.Info, " "); {
		case b.Language() == "diff":
			diffs = append(diffs, b)
		case named && b.Language() != "go":
			files[file] = b.Text
		}
	}
	return files, diffs
}

// patch does what a block of differences says to a text. The lines without the added ones must stand in the text exactly once.
func patch(text string, diff Block) (string, error) {
	var before, after strings.Builder
	for _, line := range strings.SplitAfter(diff.Text, "\n") {
		if line == "" {
			continue
		}
		if line[0] != '+' {
			before.WriteString(line[1:])
		}
		if line[0] != '-' {
			after.WriteString(line[1:])
		}
	}
	if n := strings.Count(text, before.String()); n != 1 {
		return "", fmt.Errorf("%v: the lines stand in the text %d times", diff, n)
	}
	return strings.Replace(text, before.String(), after.String(), 1), nil
}

// The driver of the guide, word by word: exactly the cases that the guide names fail, for the reasons that it names, and none fails when the
// mistake is mended.
func TestClientGuide(t *testing.T) {
	interpreter := python(t)
	blocks, diffs := files(t, clientGuide)
	if len(diffs) != 1 || blocks["tiny.py"] == "" || blocks["driver.py"] == "" {
		t.Fatalf("%d diffs, files %q", len(diffs), blocks)
	}
	if lines := strings.Count(blocks["driver.py"], "\n"); lines > driverLines {
		t.Errorf("the driver has %d lines, want at most %d", lines, driverLines)
	}
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range blocks {
		write(name, text)
	}
	c := newConformance(t)
	driver := append(slices.Clone(c.broker), "--driver", interpreter+" driver.py", "--auth", "anonymous")

	code, printed, found := c.run(folder, append(driver, "--scenario", "PLAIN-*,HANDLE-TOKEN")...)
	if code != runnerFailed {
		t.Errorf("exit code %d", code)
	}
	for _, problem := range compare(verdicts(t, clientGuide), found) {
		t.Error(problem)
	}
	said := plain(printed)
	quotes := guideBlocks(t, clientGuide, "text")
	for _, b := range quotes {
		for _, line := range strings.Split(strings.TrimSpace(b.Text), "\n") {
			if !strings.Contains(said, plain(line)) {
				t.Errorf("%v: %q is not printed:\n%s", b, line, printed)
			}
		}
	}
	if len(quotes) == 0 {
		t.Error("no failure is quoted")
	}

	mended, err := patch(blocks["tiny.py"], diffs[0])
	if err != nil {
		t.Fatal(err)
	}
	write("tiny.py", mended)
	code, printed, found = c.run(folder, append(driver, "--scenario", "PLAIN-*", "--transport", "tcp")...)
	if code != 0 || len(found.Cases) == 0 {
		t.Errorf("mended: exit code %d of %d cases\n%s", code, len(found.Cases), printed)
	}
}

var numbers = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// plain is a text without its layout and its numbers, which differ from run to run.
func plain(text string) string {
	return strings.Join(strings.Fields(numbers.ReplaceAllString(text, "0")), " ")
}

func guideBlocks(t testing.TB, name, language string) (out []Block) {
	t.Helper()
	all, err := Blocks(name, read(t, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range all {
		if b.Language() == language {
			out = append(out, b)
		}
	}
	return out
}

// A verdict that the guide does not name, a case that it lacks and a pattern without a case are found.
func TestCompareVerdicts(t *testing.T) {
	rows := []row{{patterns: []string{"A-*/tcp/*"}, verdict: "pass"}, {patterns: []string{"B-1/tcp/*", "C"}, says: []string{"late"}, verdict: "fail", reason: "deadline"}}
	var good result
	text := `{"Cases": [{"name": "A-1/tcp/on/anonymous", "verdict": "pass"}, {"name": "B-1/tcp/off/anonymous", "verdict": "fail", "reason": "deadline", "message": "too late"},
		{"name": "C/ws/off/anonymous", "verdict": "fail", "reason": "deadline", "message": "late"}]}`
	if err := json.Unmarshal([]byte(text), &good); err != nil {
		t.Fatal(err)
	}
	if problems := compare(rows, good); len(problems) > 0 {
		t.Error(problems)
	}
	for name, spoil := range map[string]func(*result){
		"other verdict": func(r *result) { r.Cases[0].Verdict = "fail" },
		"other reason":  func(r *result) { r.Cases[1].Reason = "expectation" },
		"other message": func(r *result) { r.Cases[1].Message = "gone" },
		"not named":     func(r *result) { r.Cases[0].Name = "A-1/ws/on/anonymous" },
		"missing":       func(r *result) { r.Cases = r.Cases[:2] },
	} {
		bad := result{Cases: slices.Clone(good.Cases)}
		spoil(&bad)
		if problems := compare(rows, bad); len(problems) == 0 {
			t.Errorf("%s is not found", name)
		}
	}
}

func TestPatch(t *testing.T) {
	diff := Block{Text: " a\n-b\n+c\n+d\n e\n"}
	if got, err := patch("x\na\nb\ne\n", diff); err != nil || got != "x\na\nc\nd\ne\n" {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{"", "a\nb\n", "a\nb\ne\na\nb\ne\n"} {
		if _, err := patch(text, diff); err == nil {
			t.Errorf("%q is patched", text)
		}
	}
}
