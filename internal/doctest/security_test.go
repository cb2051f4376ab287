package doctest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const securityPage = "SECURITY.md"

// threat is one row of the table of threats.
type threat struct{ name, bounds, happens, tests string }

var (
	threatRow = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$`)
	ruleName  = regexp.MustCompile(`\b[A-Z]{1,3}-[0-9]{1,3}\b`)
)

func threats(text string) (out []threat) {
	_, table, _ := strings.Cut(text, "\n## Threats\n")
	for i, match := range threatRow.FindAllStringSubmatch(table, -1) {
		if i > 0 { // the head
			out = append(out, threat{match[1], match[2], match[3], match[4]})
		}
	}
	return out
}

// knownNames are what the table may name.
type knownNames struct {
	bounds, rules map[string]bool
	test          func(folder, name string) bool
	scenario      func(name string) bool
}

func newKnownNames(t testing.TB) knownNames {
	t.Helper()
	keys := func(name string) map[string]bool {
		var file struct{ Bounds, Clauses map[string]any }
		parse(t, filepath.Join(root, name), yaml.Unmarshal, &file)
		out := map[string]bool{}
		for _, table := range []map[string]any{file.Bounds, file.Clauses} {
			for key := range table {
				out[key] = true
			}
		}
		if len(out) == 0 {
			t.Fatalf("%s names nothing", name)
		}
		return out
	}
	scenarios, err := filepath.Glob(filepath.Join(root, scenarioFolder, "*", "*.yaml"))
	if err != nil || len(scenarios) == 0 {
		t.Fatal("no scenarios", err)
	}
	known := map[string]bool{}
	for _, name := range scenarios {
		known[filepath.Base(filepath.Dir(name))+"/"+strings.TrimSuffix(filepath.Base(name), ".yaml")] = true
	}
	return knownNames{
		bounds: keys("spec/bounds.yaml"), rules: keys("spec/clauses.yaml"),
		scenario: func(name string) bool { return known[name] },
		test: func(folder, name string) bool {
			files, _ := filepath.Glob(filepath.Join(root, folder, "*_test.go")) // the pattern is well formed
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if regexp.MustCompile(`(?m)^func ` + regexp.QuoteMeta(name) + `\(`).Match(text) {
					return true
				}
			}
			return false
		},
	}
}

// problems says what a row names that does not exist, or fails to name.
func (k knownNames) problems(row threat) (problems []string) {
	complain := func(format string, args ...any) {
		problems = append(problems, row.name+": "+fmt.Sprintf(format, args...))
	}
	for _, bound := range spans(row.bounds) {
		if !k.bounds[bound] {
			complain("no bound %s", bound)
		}
	}
	for _, rule := range ruleName.FindAllString(row.bounds, -1) {
		if !k.rules[rule] {
			complain("no rule %s", rule)
		}
	}
	tests := spans(row.tests)
	if len(tests) == 0 {
		complain("no test")
	}
	for _, test := range tests {
		folder, name, isTest := strings.Cut(test, " ")
		if isTest && !k.test(folder, name) || !isTest && !k.scenario(test) {
			complain("no test or scenario %s", test)
		}
	}
	if left := strings.Trim(regexp.MustCompile("`[^`]*`").ReplaceAllString(row.tests, ""), ", "); left != "" {
		complain("%q is no test", left)
	}
	return problems
}

// Every row of the table of threats names bounds, rules and tests that exist.
func TestThreatTable(t *testing.T) {
	rows := threats(read(t, securityPage))
	if len(rows) < 30 {
		t.Fatalf("%d threats", len(rows))
	}
	known := newKnownNames(t)
	for _, row := range rows {
		for _, problem := range known.problems(row) {
			t.Error(problem)
		}
	}
}

// Rows that name something that does not exist are found.
func TestThreatTableMistakes(t *testing.T) {
	known := newKnownNames(t)
	good := threat{"t", "`frame_recv_max`, W-10", "closed", "`broker TestSiege`, `wire/W-20-UPGRADE`"}
	if problems := known.problems(good); len(problems) != 0 {
		t.Errorf("%v", problems)
	}
	for _, bad := range []threat{
		{"t", "`frame_recv_most`", "closed", "`broker TestSiege`"},
		{"t", "W-999", "closed", "`broker TestSiege`"},
		{"t", "W-10", "closed", ""},
		{"t", "W-10", "closed", "`broker TestSieg`"},
		{"t", "W-10", "closed", "`brokers TestSiege`"},
		{"t", "W-10", "closed", "`wire/W-20`"},
		{"t", "W-10", "closed", "TestSiege"},
	} {
		if len(known.problems(bad)) == 0 {
			t.Errorf("nothing is wrong with %v", bad)
		}
	}
}
