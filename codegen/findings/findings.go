// Package findings is how the generator reports mistakes in a specification: each with its place, the rule it breaks, what is wrong and
// how to mend it. A finding is never an error of the tool; a run collects all of them and stops at none.
package findings

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

// Finding is one mistake.
type Finding struct {
	Pos     model.Pos
	Rule    string // id in upper case with underscores, BOUND_MISSING
	Problem string // what is wrong
	Mend    string // how to mend it

	Constraint string // keyword of the schema that is violated, "" for other findings
}

// String is the one form in which findings are shown: file:line:col: RULE_ID: what is wrong; how to mend it.
func (f Finding) String() string {
	line, col := max(f.Pos.Line, 1), max(f.Pos.Col, 1)
	return fmt.Sprintf("%s:%d:%d: %s: %s; %s", f.Pos.File, line, col, f.Rule, f.Problem, f.Mend)
}

// List is the findings of one run.
type List []Finding

// Add appends one finding.
func (l *List) Add(pos model.Pos, rule, problem, mend string) {
	*l = append(*l, Finding{Pos: pos, Rule: rule, Problem: problem, Mend: mend})
}

// Sorted returns the findings by file, line, column, rule and text, each once.
func (l List) Sorted() List {
	out := slices.Clone(l)
	slices.SortFunc(out, compare)
	return slices.CompactFunc(out, func(a, b Finding) bool { return compare(a, b) == 0 })
}

// Has tells whether a rule has a finding in the list.
func (l List) Has(rule string) bool {
	return slices.ContainsFunc(l, func(f Finding) bool { return f.Rule == rule })
}

// String is one finding a line, each line ended.
func (l List) String() string {
	var b strings.Builder
	for _, f := range l {
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	return b.String()
}

func compare(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(a.Pos.File, b.Pos.File),
		cmp.Compare(a.Pos.Line, b.Pos.Line),
		cmp.Compare(a.Pos.Col, b.Pos.Col),
		cmp.Compare(a.Rule, b.Rule),
		cmp.Compare(a.Problem, b.Problem),
		cmp.Compare(a.Mend, b.Mend),
	)
}
