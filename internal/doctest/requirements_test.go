package doctest

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/internal/reference"
)

const (
	requirementsPage = "docs/development/client-requirements.md"
	vectorFolder     = "generated/vectors"
	scenarioFolder   = "conformance/scenarios"
)

// requirement is one row of the page of requirements.
type requirement struct {
	id       string
	rules    []string
	fixtures []string
}

var requirementRow = regexp.MustCompile(`(?m)^\| (CR-[0-9]+) \| .+ \| ([^|]+) \| ([^|]+) \|$`)

func requirements(text string) (out []requirement) {
	for _, match := range requirementRow.FindAllStringSubmatch(text, -1) {
		var rules []string
		if cell := strings.TrimSpace(match[2]); cell != "—" {
			rules = strings.Split(cell, ", ")
		}
		out = append(out, requirement{match[1], rules, spans(match[3])})
	}
	return out
}

// shown are the rules that each fixture shows, by its name: file.json for vectors, folder/ID for scenarios about clients.
func shown(t testing.TB) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	scenarios, err := filepath.Glob(filepath.Join(root, scenarioFolder, "*", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scenarios {
		var s struct {
			Subject, ID     string
			Proves, Refuses []string
		}
		parse(t, name, yaml.Unmarshal, &s)
		if s.Subject == "client" {
			out[path.Base(filepath.Dir(name))+"/"+s.ID] = append(s.Proves, s.Refuses...)
		}
	}
	vectors, err := filepath.Glob(filepath.Join(root, vectorFolder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range vectors {
		type vector struct{ Clauses []string }
		var file struct{ Vectors, Texts, Matches, Containment []vector }
		parse(t, name, json.Unmarshal, &file)
		rules := []string{} // so that a file without any is known
		for _, v := range slices.Concat(file.Vectors, file.Texts, file.Matches, file.Containment) {
			rules = append(rules, v.Clauses...)
		}
		out[filepath.Base(name)] = rules
	}
	if len(scenarios) == 0 || len(vectors) == 0 {
		t.Fatal("no fixtures")
	}
	return out
}

func parse(t testing.TB, name string, unmarshal func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// unmet says what is wrong with requirements: rules that the reference does not have, fixtures that do not exist, rules that no fixture of the
// row shows, and scenarios that no row names.
func unmet(all []requirement, known map[string]bool, fixtures map[string][]string) (problems []string) {
	named := map[string]bool{}
	ids := map[string]bool{}
	for _, r := range all {
		if ids[r.id] {
			problems = append(problems, r.id+" stands there twice")
		}
		ids[r.id] = true
		var rules []string
		for _, pattern := range r.fixtures {
			found := 0
			for name, shows := range fixtures {
				if ok, err := path.Match(pattern, name); ok && err == nil {
					found++
					named[name] = true
					rules = append(rules, shows...)
				}
			}
			if found == 0 {
				problems = append(problems, fmt.Sprintf("%s: there is no fixture %s", r.id, pattern))
			}
		}
		for _, rule := range r.rules {
			if !known[rule] {
				problems = append(problems, fmt.Sprintf("%s: the reference has no rule %s", r.id, rule))
			} else if !slices.Contains(rules, rule) {
				problems = append(problems, fmt.Sprintf("%s: no fixture of it shows %s", r.id, rule))
			}
		}
	}
	for name := range fixtures {
		if !named[name] {
			problems = append(problems, "no requirement names "+name)
		}
	}
	slices.Sort(problems)
	return problems
}

// Every requirement on a client has fixtures that are there and show its rules, and every scenario about clients belongs to one.
func TestClientRequirements(t *testing.T) {
	known := map[string]bool{}
	for _, rule := range reference.Rows(t, (*reference.Docs).Rules) {
		known[rule.ID] = true
	}
	all := requirements(read(t, requirementsPage))
	if len(all) < 30 {
		t.Errorf("only %d requirements", len(all))
	}
	for _, problem := range unmet(all, known, shown(t)) {
		t.Errorf("%s: %s", requirementsPage, problem)
	}
}

func TestUnmetRequirementsAreFound(t *testing.T) {
	text := "| id | a client must | rules | accepted by |\n|---|---|---|---|\n| CR-01 | a | L-1, L-2 | `client/A*`, `x.json` |\n| CR-02 | b | L-3, L-9 | `client/GONE`, `client/B` |\n| CR-02 | c | L-1 | `x.json` |\n"
	all := requirements(text)
	if len(all) != 3 || !slices.Equal(all[0].rules, []string{"L-1", "L-2"}) || !slices.Equal(all[0].fixtures, []string{"client/A*", "x.json"}) {
		t.Fatalf("%+v", all)
	}
	got := unmet(all, map[string]bool{"L-1": true, "L-2": true, "L-3": true}, map[string][]string{
		"client/A-1": {"L-2"}, "client/B": {"L-1"}, "client/C": {"L-1"}, "x.json": {"L-1"},
	})
	want := []string{
		"CR-02 stands there twice", "CR-02: no fixture of it shows L-3", "CR-02: the reference has no rule L-9", "CR-02: there is no fixture client/GONE", "no requirement names client/C",
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
