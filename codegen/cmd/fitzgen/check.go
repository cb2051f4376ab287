package main

import (
	"fmt"

	"github.com/fitzwire/fitz/codegen/findings"
	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/codegen/rules"
)

// checkCmd checks the specification: every finding on a line of its own on the standard output, a summary on the error output.
type checkCmd struct{}

// Run implements the command.
func (*checkCmd) Run(a *app) error {
	_, list, err := a.checked()
	if err != nil {
		return err
	}
	if len(list) > 0 {
		return a.refuse(list)
	}
	constraints, err := load.Constraints()
	if err != nil {
		return err
	}
	fmt.Fprintf(a.log, "%s: in order by %d rules and %d schema constraints\n", a.Spec, len(rules.All()), len(constraints))
	return nil
}

// checked loads the specification and returns it with all findings of the loader and the rules.
func (a *app) checked() (*model.Spec, findings.List, error) {
	spec, list, err := load.Load(a.Spec)
	if err != nil {
		return nil, nil, err
	}
	more, err := rules.Check(load.Disk(), spec)
	if err != nil {
		return nil, nil, err
	}
	return spec, append(list, more...).Sorted(), nil
}

// refuse prints findings and returns the outcome that they mean.
func (a *app) refuse(list findings.List) error {
	fmt.Fprint(a.out, list)
	fmt.Fprintf(a.log, "%s: %d findings\n", a.Spec, len(list))
	return &outcome{code: exitFindings}
}
