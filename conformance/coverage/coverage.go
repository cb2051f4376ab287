// Package coverage tells what the conformance suite shows of the protocol: for every rule of the reference and every error code the cases in
// which it is kept and something is accepted, and those in which something is refused or a fault is noticed. What cannot be seen from outside
// stands in conformance/coverage.yaml with its reason and the Go tests that show it instead.
package coverage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Side is one of the two ways to show a rule.
type Side string

// The sides.
const (
	Accepting Side = "accepting" // something right is accepted: a scenario that proves the rule, a positive golden vector that names it
	Rejecting Side = "rejecting" // something wrong is noticed: a negative vector, a scenario that lists a refusal, a seeded fault that is killed
)

// Clause is one rule of the reference.
type Clause struct {
	ID    string
	File  string   // of docs/protocol
	Later string   // what it waits for; "" when it is built
	Tests []string // the Go tests that spec/clauses.yaml names: "broker/lease TestGrant"
}

// Code is an error code, or a condition that a client finds by itself.
type Code struct {
	Name  string
	Group string // domain of the code, "local" for a condition of a client
}

// Scenario is what a scenario says that it shows.
type Scenario struct {
	ID                     string
	Proves, Refuses, Codes []string
}

// Vector is what a golden vector says that it shows.
type Vector struct {
	ID      string
	Accept  bool
	Clauses []string
	Code    string // of a refusal that it is answered with, or that it carries
}

// Mutant is one seeded fault.
type Mutant struct {
	ID               string
	Breaks, KilledBy []string
}

// Input is everything that is compared.
type Input struct {
	Clauses   []Clause // in the order of the reference
	Codes     []Code
	Scenarios []Scenario
	Vectors   []Vector
	Mutants   []Mutant
	Exempt    Exemptions
	HasTest   func(test string) bool // tells whether "package/folder TestName" exists
}

// Row is what is known of one rule or code.
type Row struct {
	ID       string   `json:"id"`
	Group    string   `json:"group"` // file of the reference; "errors: lease" for a code
	Later    string   `json:"later,omitempty"`
	Accepted []string `json:"accepted_by,omitempty"`
	Rejected []string `json:"rejected_by,omitempty"`
	Mutants  []string `json:"mutants,omitempty"`      // those among Rejected
	Inside   string   `json:"inside,omitempty"`       // why a side cannot be seen from outside
	Sides    []Side   `json:"inside_sides,omitempty"` // which
	Tests    []string `json:"inside_tests,omitempty"` // that show it instead
	NoMutant string   `json:"no_mutant,omitempty"`    // why no fault is seeded for it
	Missing  []string `json:"missing,omitempty"`      // what is not there and has no reason
	proving  []string // scenarios
}

// Problem is something that is not as it should be.
type Problem struct {
	About string `json:"about"` // id of a rule, a code, a scenario, a fault, or a pattern of coverage.yaml
	Text  string `json:"text"`
}

// String is one line.
func (p Problem) String() string { return p.About + ": " + p.Text }

// Report is the whole answer.
type Report struct {
	Rows     []*Row    `json:"rows"`
	Problems []Problem `json:"problems,omitempty"` // what is missing, what is stale and what is not known
}

// OK tells whether nothing is missing and nothing is stale.
func (r *Report) OK() bool { return len(r.Problems) == 0 }

func (r *Report) problem(about, format string, args ...any) {
	r.Problems = append(r.Problems, Problem{about, fmt.Sprintf(format, args...)})
}

// mapper builds a report.
type mapper struct {
	Input
	report    *Report
	rows      map[string]*Row
	clauses   map[string]*Clause
	scenarios map[string]*Scenario
}

// Map compares rules and codes with the cases.
func Map(in Input) *Report {
	m := &mapper{Input: in, report: &Report{}, rows: map[string]*Row{}, clauses: map[string]*Clause{}, scenarios: map[string]*Scenario{}}
	for i := range in.Clauses {
		c := &in.Clauses[i]
		m.clauses[c.ID] = c
		m.add(&Row{ID: c.ID, Group: c.File, Later: c.Later})
	}
	for _, c := range in.Codes {
		m.add(&Row{ID: c.Name, Group: "errors: " + c.Group})
	}
	for i := range in.Scenarios {
		m.scenarios[in.Scenarios[i].ID] = &in.Scenarios[i]
	}
	m.fromScenarios()
	m.fromVectors()
	m.fromMutants()
	m.acceptedCodes()
	m.parts()
	m.exempt()
	for _, row := range m.report.Rows {
		m.judge(row)
	}
	return m.report
}

func (m *mapper) add(row *Row) {
	m.rows[row.ID] = row
	m.report.Rows = append(m.report.Rows, row)
}

// row is the row of an id that somebody names; an unknown id is a problem of theirs.
func (m *mapper) row(id, namedBy string) *Row {
	row := m.rows[id]
	if row == nil {
		m.report.problem(namedBy, "names %s, which is neither a rule nor a code in reach", id)
		row = &Row{} // nobody sees it
	}
	return row
}

// proved is the rules that a scenario proves: those that it lists, and the row of an acceptance table that it has its name of. OBS-015-RESTART
// proves OBS-015.
func (m *mapper) proved(s *Scenario) []string {
	out := slices.Clone(s.Proves)
	for _, c := range m.Clauses {
		named := s.ID == c.ID || strings.HasPrefix(s.ID, c.ID+"-")
		if named && matches(m.Exempt.Rows, c.ID) && !slices.Contains(out, c.ID) {
			out = append(out, c.ID)
		}
	}
	return out
}

func (m *mapper) fromScenarios() {
	for _, s := range m.Scenarios {
		for _, id := range m.proved(&s) {
			row := m.row(id, s.ID)
			row.Accepted = append(row.Accepted, s.ID)
			row.proving = append(row.proving, s.ID)
		}
		for _, id := range s.Refuses {
			row := m.row(id, s.ID)
			row.Rejected = append(row.Rejected, s.ID)
		}
		for _, code := range s.Codes {
			if row := m.rows[code]; row != nil { // codes of parts that are not built are none of this report
				row.Rejected = append(row.Rejected, s.ID)
			}
		}
	}
}

func (m *mapper) fromVectors() {
	for _, v := range m.Vectors {
		name := "vector " + v.ID
		for _, id := range v.Clauses {
			row := m.row(id, name)
			if v.Accept {
				row.Accepted = append(row.Accepted, name)
			} else {
				row.Rejected = append(row.Rejected, name)
			}
		}
		row := m.rows[v.Code]
		switch {
		case row == nil:
		case v.Accept:
			row.Accepted = append(row.Accepted, name)
		default:
			row.Rejected = append(row.Rejected, name)
		}
	}
}

// fromMutants adds a fault to the rules that it breaks, when a scenario that is about the rule kills it. A row of an acceptance table is a
// test by itself: every fault that its scenario kills is one that it notices.
func (m *mapper) fromMutants() {
	for _, f := range m.Mutants {
		name := "mutant " + f.ID
		noticed := map[string]bool{}
		for _, id := range f.KilledBy {
			s := m.scenarios[id]
			if s == nil {
				m.report.problem(name, "is killed by %s, which is no scenario", id)
				continue
			}
			for _, clause := range slices.Concat(m.proved(s), s.Refuses) {
				noticed[clause] = noticed[clause] || slices.Contains(f.Breaks, clause) || matches(m.Exempt.Rows, clause)
			}
		}
		for _, id := range f.Breaks {
			m.row(id, name)
		}
		for _, row := range m.report.Rows {
			if noticed[row.ID] {
				row.Rejected = append(row.Rejected, name)
				row.Mutants = append(row.Mutants, f.ID)
			}
		}
	}
}

// acceptedCodes adds to each code the scenarios that prove a rule of a scenario that shows the code, and in which the code does not come: the
// same rule where nothing is refused.
func (m *mapper) acceptedCodes() {
	for _, code := range m.Codes {
		rules := map[string]bool{}
		for _, s := range m.Scenarios {
			if slices.Contains(s.Codes, code.Name) {
				for _, id := range slices.Concat(s.Proves, s.Refuses) {
					rules[id] = true
				}
			}
		}
		row := m.rows[code.Name]
		for _, s := range m.Scenarios {
			if !slices.Contains(s.Codes, code.Name) && slices.ContainsFunc(s.Proves, func(id string) bool { return rules[id] }) {
				row.Accepted = append(row.Accepted, s.ID)
			}
		}
	}
}

// parts adds to each row that is the sum of others what is known of all of them: a side that one of them lacks is lacking.
func (m *mapper) parts() {
	for _, id := range slices.Sorted(maps.Keys(m.Exempt.Parts)) {
		row := m.row(id, File)
		accepted, rejected, seeded := true, true, true
		for _, name := range m.Exempt.Parts[id] {
			part := m.row(name, File)
			accepted, rejected, seeded = accepted && len(part.Accepted) > 0, rejected && len(part.Rejected) > 0, seeded && len(part.Mutants) > 0
		}
		all := "each of " + strings.Join(m.Exempt.Parts[id], ", ")
		if accepted {
			row.Accepted = append(row.Accepted, all)
		}
		if rejected {
			row.Rejected = append(row.Rejected, all)
		}
		if seeded {
			row.Mutants = append(row.Mutants, all)
		}
	}
}

// exempt gives the rows their reasons.
func (m *mapper) exempt() {
	for _, g := range m.Exempt.Inside {
		for _, test := range g.Tests {
			if !m.HasTest(test) {
				m.report.problem(test, "coverage.yaml names it as a proof, and there is no such test")
			}
		}
		m.each(g.Clauses, "inside", func(row *Row) {
			if row.Inside != "" {
				m.report.problem(row.ID, "stands twice under inside in coverage.yaml")
			}
			row.Inside, row.Sides, row.Tests = g.Reason, g.sides(), g.Tests
			if c := m.clauses[row.ID]; len(row.Tests) == 0 && c != nil {
				row.Tests = c.Tests
			}
			if len(row.Tests) == 0 && (len(row.proving) == 0 || slices.Contains(row.Sides, Accepting)) {
				m.report.problem(row.ID, "coverage.yaml says that it cannot be seen from outside, and no Go test is named for it")
			}
		})
	}
	for _, g := range m.Exempt.NoMutant {
		m.each(g.Clauses, "no_mutant", func(row *Row) {
			if row.NoMutant != "" {
				m.report.problem(row.ID, "stands twice under no_mutant in coverage.yaml")
			}
			row.NoMutant = g.Reason
		})
	}
	for _, pattern := range m.Exempt.Rows {
		m.each([]string{pattern}, "rows", func(*Row) {})
	}
}

// each calls do with the rows that the patterns of a group match.
func (m *mapper) each(patterns []string, where string, do func(*Row)) {
	for _, pattern := range patterns {
		found := false
		for _, row := range m.report.Rows {
			if matches([]string{pattern}, row.ID) {
				found = true
				do(row)
			}
		}
		if !found {
			m.report.problem(pattern, "coverage.yaml names it under %s, and no rule or code has that id", where)
		}
	}
}

// judge finds out what is missing for a row and what is said of it that is not so.
func (m *mapper) judge(row *Row) {
	if row.Later != "" {
		if len(row.proving) > 0 {
			m.report.problem(row.ID, "spec/clauses.yaml says that it waits for %s, and %s proves it", row.Later, row.proving[0])
		}
		if row.Inside != "" || row.NoMutant != "" {
			m.report.problem(row.ID, "coverage.yaml has a reason for it, and it waits for %s anyway", row.Later)
		}
		return
	}
	m.side(row, Accepting, row.Accepted)
	m.side(row, Rejecting, row.Rejected)
	needsMutant := len(row.proving) > 0 && len(row.Mutants) == 0 && !slices.Contains(row.Sides, Rejecting)
	switch {
	case needsMutant && row.NoMutant == "":
		m.missing(row, fmt.Sprintf("mutant: no seeded fault breaks it and is killed by %s", some(row.proving, " or ")))
	case !needsMutant && row.NoMutant != "":
		m.report.problem(row.ID, "coverage.yaml says why no fault is seeded for it, and none is needed (%s)", noNeed(row))
	}
}

// noNeed says why a row needs no reason for having no fault.
func noNeed(row *Row) string {
	switch {
	case len(row.Mutants) > 0:
		return row.Mutants[0] + " is one"
	case len(row.proving) == 0:
		return "no scenario proves it"
	}
	return "the rejecting side has a reason already"
}

func (m *mapper) side(row *Row, side Side, cases []string) {
	inside := slices.Contains(row.Sides, side)
	switch {
	case len(cases) == 0 && !inside:
		m.missing(row, string(side)+" case")
	case len(cases) > 0 && inside:
		m.report.problem(row.ID, "coverage.yaml says that it has no %s case, and %s is one", side, cases[0])
	}
}

func (m *mapper) missing(row *Row, what string) {
	row.Missing = append(row.Missing, what)
	m.report.problem(row.ID, "no %s", strings.TrimPrefix(what, "no "))
}

// some is the first few of a list.
func some(list []string, between string) string {
	const shown = 3
	if len(list) <= shown {
		return strings.Join(list, between)
	}
	return fmt.Sprintf("%s%s%d others", strings.Join(list[:shown], between), between, len(list)-shown)
}
