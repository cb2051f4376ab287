package doctest

import (
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/codegen/rules"
)

const (
	lawsPage  = "docs/development/architectural-laws.md"
	specIndex = "spec/fitz.yaml"
)

// law is one section of the page of laws.
type law struct {
	title     string // with its number, when it has one
	statement string
	why       string
	checks    []*model.Proof
	waitsFor  string
}

var (
	lawSection = regexp.MustCompile(`(?m)^### (.+)\n\n> (.+)\n\nWhy: (.+)\n\n(?:Enforced by: (.+)|Waits for: (.+))$`)
	lawHeading = regexp.MustCompile(`(?m)^### `)
	namedCheck = regexp.MustCompile("^(rule|test|scenario|generated) `([^`]+)`$")
)

// laws reads the page of laws. A section of another form is an error.
func laws(text string) (out []law, err error) {
	for _, match := range lawSection.FindAllStringSubmatch(text, -1) {
		l := law{title: match[1], statement: match[2], why: match[3], waitsFor: match[5]}
		for _, check := range strings.Split(match[4], ", ") {
			parts := namedCheck.FindStringSubmatch(check)
			if parts == nil && match[4] != "" {
				return nil, fmt.Errorf("%s: %q names no check", l.title, check)
			}
			if parts != nil {
				l.checks = append(l.checks, &model.Proof{Pos: model.Pos{File: lawsPage}, Kind: parts[1], Target: parts[2]})
			}
		}
		out = append(out, l)
	}
	if n := len(lawHeading.FindAllString(text, -1)); n == 0 || n != len(out) {
		return nil, fmt.Errorf("%d laws, of which %d have a statement, a reason and what enforces them", n, len(out))
	}
	return out, nil
}

// unknownChecks returns the findings of the generator about checks that do not exist, when an invariant named these.
func unknownChecks(tree fs.FS, checks []*model.Proof) ([]string, error) {
	spec, list, err := load.FS(tree, specIndex)
	if err != nil || len(list) > 0 {
		return nil, fmt.Errorf("the specification: %v %v", err, list)
	}
	spec.Invariants = append(spec.Invariants, &model.Invariant{Number: len(spec.Invariants) + 1, State: "enforced", Checks: checks})
	list, err = rules.Check(tree, spec)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range list {
		if f.Pos.File == lawsPage {
			out = append(out, f.String())
		}
	}
	return out, nil
}

// disagreement says what a law says otherwise than the invariant of its number.
func disagreement(l law, i *model.Invariant) string {
	named := func(checks []*model.Proof) (out []string) {
		for _, c := range checks {
			out = append(out, fmt.Sprintf("%s `%s`", c.Kind, c.Target))
		}
		return out
	}
	switch {
	case !strings.HasPrefix(l.title, fmt.Sprintf("%d. ", i.Number)):
		return fmt.Sprintf("stands in the place of invariant %d", i.Number)
	case l.statement != i.Doc:
		return "says otherwise than " + i.Doc
	case l.waitsFor != i.WaitsFor:
		return fmt.Sprintf("waits for %q, and the invariant for %q", l.waitsFor, i.WaitsFor)
	case !slices.Equal(named(l.checks), named(i.Checks)):
		return "Enforced by: " + strings.Join(named(i.Checks), ", ")
	}
	return ""
}

// Every law names a check that exists, and the first laws are the invariants, word by word.
func TestLaws(t *testing.T) {
	tree := os.DirFS(root)
	all, err := laws(read(t, lawsPage))
	if err != nil {
		t.Fatal(err)
	}
	spec, _, err := load.FS(tree, specIndex)
	if err != nil || len(spec.Invariants) == 0 || len(all) <= len(spec.Invariants) {
		t.Fatalf("%d laws, %v", len(all), err)
	}
	for i, invariant := range spec.Invariants {
		if problem := disagreement(all[i], invariant); problem != "" {
			t.Errorf("%s: %s %s", lawsPage, all[i].title, problem)
		}
	}
	var checks []*model.Proof
	for i, l := range all {
		if i >= len(spec.Invariants) && len(l.checks) == 0 {
			t.Errorf("%s: %s is enforced by nothing", lawsPage, l.title)
		}
		checks = append(checks, l.checks...)
	}
	problems, err := unknownChecks(tree, checks)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

func TestBrokenLawsAreFound(t *testing.T) {
	good := "### 1. A\n\n> b.\n\nWhy: c.\n\nEnforced by: rule `CLAUSE_PROOF`, test `internal/doctest TestLaws`\n\n### D\n\n> e.\n\nWhy: f.\n\nWaits for: g\n"
	all, err := laws(good)
	if err != nil || len(all) != 2 || len(all[0].checks) != 2 || all[1].waitsFor != "g" {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, bad := range []string{"", "### 1. A\n\n> b.\n\nWhy: c.\n", strings.Replace(good, "rule `", "law `", 1), strings.Replace(good, "Why: f.", "f.", 1)} {
		if _, err := laws(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	problems, err := unknownChecks(os.DirFS(root), []*model.Proof{
		all[0].checks[0], all[0].checks[1],
		{Pos: model.Pos{File: lawsPage}, Kind: "test", Target: "internal/doctest TestNoSuchThing"}, {Pos: model.Pos{File: lawsPage}, Kind: "rule", Target: "NO_SUCH_RULE"},
		{Pos: model.Pos{File: lawsPage}, Kind: "scenario", Target: "lease/NO-SUCH"}, {Pos: model.Pos{File: lawsPage}, Kind: "generated", Target: "no_such"},
	})
	if err != nil || len(problems) != 4 {
		t.Errorf("%q, %v", problems, err)
	}
	invariant := &model.Invariant{Named: model.Named{Doc: "b."}, Number: 1, Checks: all[0].checks}
	if problem := disagreement(all[0], invariant); problem != "" {
		t.Error(problem)
	}
	for _, other := range []model.Invariant{
		{Named: invariant.Named, Number: 2, Checks: invariant.Checks}, {Number: 1, Checks: invariant.Checks},
		{Named: invariant.Named, Number: 1, Checks: invariant.Checks[:1]}, {Named: invariant.Named, Number: 1, Checks: invariant.Checks, WaitsFor: "x"},
	} {
		if disagreement(all[0], &other) == "" {
			t.Errorf("%+v is taken for the same", other)
		}
	}
}
