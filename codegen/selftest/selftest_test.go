package selftest

import (
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/codegen/load"
)

var update = flag.Bool("update", false, "write expected.txt of every fixture")

const specDir = "../../spec"

// Every rule has a fixture: a good specification without findings and a bad one with exactly the expected ones.
func TestFixtures(t *testing.T) {
	for _, id := range RuleIDs() {
		t.Run(id, func(t *testing.T) {
			f, err := ReadFixture(load.Disk(), specDir, id)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				f.Expected = f.Bad.String()
				if err := os.WriteFile(path.Join(specDir, badspecs, id, "expected.txt"), []byte(f.Expected), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if problem := f.Problem(); problem != "" {
				t.Error(problem)
			}
		})
	}
}

// No fixture is left over from a rule that is gone.
func TestFixturesBelongToRules(t *testing.T) {
	entries, err := os.ReadDir(path.Join(specDir, badspecs))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != baseDir && e.Name() != load.Schema && !slices.Contains(RuleIDs(), e.Name()) {
			t.Errorf("%s is no rule", e.Name())
		}
	}
}

// Every constraint of every schema refuses something, and the record in badspecs/SCHEMA says what and how.
func TestSchemaConstraints(t *testing.T) {
	violations, err := Violations(load.Disk(), specDir)
	if err != nil {
		t.Fatal(err)
	}
	var record strings.Builder
	for _, v := range violations {
		if v.Finding == nil {
			t.Errorf("%s: no bad specification: %s", v.Constraint.Location, v.Change)
			continue
		}
		fmt.Fprintf(&record, "%s\n  %s\n  %s; %s\n", v.Constraint.Location, v.Change, v.Finding.Problem, v.Finding.Mend)
	}
	file := path.Join(specDir, badspecs, load.Schema, "expected.txt")
	if *update {
		if err := os.WriteFile(file, []byte(record.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != record.String() {
		t.Errorf("the record of violations differs from %s; look at the difference with -update", file)
	}
	t.Logf("%d rules, %d schema constraints, %d bad specs", len(RuleIDs())+1, len(violations), len(RuleIDs())+len(violations))
}

// Every check of an enforced invariant notices when its subject is broken in a copy.
func TestInvariants(t *testing.T) {
	results, err := Invariants(load.Disk(), specDir+"/fitz.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 {
		t.Fatal("no invariant is enforced")
	}
	for _, r := range results {
		if r.Failed() {
			t.Errorf("invariant %d %s, %s: broken by %q, error %v, findings:\n%s", r.Invariant, r.Name, r.Check, r.Broken, r.Err, r.All)
		}
	}
}

// A check that cannot notice anything is reported: the self-test is not green by doing nothing.
func TestInvariantsReportWhatIsNotNoticed(t *testing.T) {
	o, err := base(load.Disk(), specDir)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Edit(".", "@ spec/invariants.yaml\n-       - rule: BOUND_MISSING\n+       - rule: FIXED_TEXT\n+       - rule: SIZE_SENT\n"); err != nil {
		t.Fatal(err)
	}
	results, err := Invariants(o, baseIndex)
	if err != nil {
		t.Fatal(err)
	}
	failed := map[string]bool{}
	for _, r := range results {
		failed[r.Check] = r.Failed()
	}
	want := map[string]bool{
		"rule FIXED_TEXT": true, "rule SIZE_SENT": true, // no mistake is known, and none of the base to make
		"test lib TestBounded": false, "scenario knock": false, "generated handlers_complete": false,
	}
	for check, fails := range want {
		if got, ok := failed[check]; !ok || got != fails {
			t.Errorf("%s: failed %v, want %v", check, got, fails)
		}
	}
}
