package main

import (
	"fmt"
	"path"

	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/selftest"
)

// selftestCmd proves that the checks find something. It prints one line for each check of an enforced invariant and the size of the rest.
type selftestCmd struct{}

// Run implements the command.
func (*selftestCmd) Run(a *app) error {
	failed, err := a.selftestInvariants()
	if err != nil {
		return err
	}
	dir := path.Dir(a.Spec)
	for _, id := range selftest.RuleIDs() {
		f, err := selftest.ReadFixture(load.Disk(), dir, id)
		if err != nil {
			return err
		}
		if problem := f.Problem(); problem != "" {
			failed++
			fmt.Fprintf(a.out, "rule %s: %s\n", id, problem)
		}
	}
	violations, err := selftest.Violations(load.Disk(), dir)
	if err != nil {
		return err
	}
	for _, v := range violations {
		if v.Finding == nil {
			failed++
			fmt.Fprintf(a.out, "constraint %s: no bad spec violates it: %s\n", v.Constraint.Location, v.Change)
		}
	}
	rules := len(selftest.RuleIDs())
	fmt.Fprintf(a.out, "%d rules, %d schema constraints, %d bad specs\n", rules+1, len(violations), rules+len(violations))
	if failed > 0 {
		return &outcome{code: exitFindings, err: fmt.Errorf("%d checks noticed nothing", failed)}
	}
	return nil
}

// selftestInvariants breaks the subjects of the checks of enforced invariants and returns how many noticed nothing.
func (a *app) selftestInvariants() (failed int, err error) {
	results, err := selftest.Invariants(load.Disk(), a.Spec)
	if err != nil {
		return 0, err
	}
	for _, r := range results {
		fmt.Fprintf(a.out, "invariant %d %s, %s: ", r.Invariant, r.Name, r.Check)
		switch {
		case r.Err != nil:
			fmt.Fprintf(a.out, "NOT TRIED: %v\n", r.Err)
		case r.Failed():
			fmt.Fprintf(a.out, "NOT NOTICED: %s\n", r.Broken)
		default:
			fmt.Fprintf(a.out, "noticed: %s\n", r.Broken)
		}
		if r.Failed() {
			failed++
		}
	}
	return failed, nil
}
