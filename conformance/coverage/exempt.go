package coverage

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"

	"gopkg.in/yaml.v3"
)

// File is the list of what cannot be seen from outside, below the root of the source tree.
const File = "conformance/coverage.yaml"

// Exemptions is the content of that file. Ids may be patterns: RV-*.
type Exemptions struct {
	Rows     []string            `yaml:"rows"`      // rows of acceptance tables: each is a test, and every fault that its scenario notices counts for it
	Parts    map[string][]string `yaml:"parts"`     // rows that are the sum of others: id to the ids of the others
	Inside   []Inside            `yaml:"inside"`    // rules and codes of which a side cannot be seen from outside
	NoMutant []Reason            `yaml:"no_mutant"` // rules with a scenario for which no fault is seeded
}

// Inside is some rules and codes of which a side cannot be seen from outside.
type Inside struct {
	Clauses []string `yaml:"clauses"`
	Lacks   []Side   `yaml:"lacks"` // the sides; both when there are none
	Reason  string   `yaml:"reason"`
	Tests   []string `yaml:"tests"` // "package/folder TestName"; when there are none, those that spec/clauses.yaml names for each rule; a rule with a scenario needs none
}

// Reason is some rules with a reason.
type Reason struct {
	Clauses []string `yaml:"clauses"`
	Reason  string   `yaml:"reason"`
}

func (g *Inside) sides() []Side {
	if len(g.Lacks) == 0 {
		return []Side{Accepting, Rejecting}
	}
	return g.Lacks
}

// ParseExemptions reads the file.
func ParseExemptions(text []byte) (Exemptions, error) {
	var e Exemptions
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&e); err != nil {
		return e, fmt.Errorf("%s: %w", File, err)
	}
	var wrong []error
	check := func(list string, i int, clauses []string, reason string) {
		if len(clauses) == 0 || reason == "" {
			wrong = append(wrong, fmt.Errorf("%s: entry %d of %s has no clauses or no reason", File, i+1, list))
		}
		wrong = append(wrong, patterns(clauses)...)
	}
	for i, g := range e.Inside {
		check("inside", i, g.Clauses, g.Reason)
		for _, side := range g.Lacks {
			if side != Accepting && side != Rejecting {
				wrong = append(wrong, fmt.Errorf("%s: entry %d of inside lacks %q; known are %s and %s", File, i+1, side, Accepting, Rejecting))
			}
		}
	}
	for i, g := range e.NoMutant {
		check("no_mutant", i, g.Clauses, g.Reason)
	}
	wrong = append(wrong, patterns(e.Rows)...)
	return e, errors.Join(wrong...)
}

func patterns(list []string) []error {
	var wrong []error
	for _, pattern := range list {
		if _, err := path.Match(pattern, ""); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %q: %w", File, pattern, err))
		}
	}
	return wrong
}

// matches tells whether one of the patterns, which are right, matches an id.
func matches(patterns []string, id string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, id); return ok })
}
