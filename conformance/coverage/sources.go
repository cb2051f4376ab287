package coverage

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/codegen/rules"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/mutants"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/vectors"
	"github.com/fitzwire/fitz/internal/reference"
)

// Domains is the domains whose error codes must be shown: those that are built.
var Domains = []string{"session", "lease"}

// Local is the group of the conditions that a client finds by itself.
const Local = "local"

// Read puts together what a source tree holds.
func Read(tree *kit.Tree) (Input, error) {
	files := os.DirFS(tree.Root)
	in := Input{HasTest: tests(files)}
	spec, list, err := load.FS(files, "spec/fitz.yaml")
	if err != nil {
		return in, err
	}
	if len(list) > 0 {
		return in, fmt.Errorf("the specification has %d mistakes, the first is: %v", len(list), list[0])
	}
	if in.Clauses, err = clauses(files, spec); err != nil {
		return in, err
	}
	numbers := in.addCodes(spec)
	in.addScenarios(tree)
	if err := in.addVectors(files, tree.Vectors, numbers); err != nil {
		return in, err
	}
	seeded, err := mutants.Load(files)
	if err != nil {
		return in, err
	}
	for _, m := range seeded {
		in.Mutants = append(in.Mutants, Mutant{ID: m.ID, Breaks: m.Breaks, KilledBy: m.KilledBy})
	}
	text, err := fs.ReadFile(files, File)
	if err != nil {
		return in, err
	}
	in.Exempt, err = ParseExemptions(text)
	return in, err
}

// clauses is the rules of the reference in its order, with what the specification says of each.
func clauses(files fs.FS, spec *model.Spec) ([]Clause, error) {
	docs, err := fs.Sub(files, reference.Dir)
	if err != nil {
		return nil, err
	}
	all, err := reference.New(docs).Rules()
	if err != nil {
		return nil, err
	}
	var out []Clause
	for _, r := range all {
		i := slices.IndexFunc(spec.Clauses, func(c *model.Clause) bool { return c.ID == r.ID })
		if i < 0 {
			return nil, fmt.Errorf("spec/clauses.yaml has no line for %s", r.ID)
		}
		c := Clause{ID: r.ID, File: r.File, Later: spec.Clauses[i].Later}
		for _, p := range spec.Clauses[i].Proofs {
			if p.Kind == "test" {
				c.Tests = append(c.Tests, p.Target)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// addCodes adds the codes and conditions and returns the names of all codes by their numbers.
func (in *Input) addCodes(spec *model.Spec) map[string]string {
	names := map[string]string{}
	for _, e := range spec.Errors {
		names[strconv.FormatUint(uint64(e.Code), 10)] = e.Name
		if slices.Contains(Domains, e.Domain) {
			in.Codes = append(in.Codes, Code{Name: e.Name, Group: e.Domain})
		}
	}
	for _, e := range spec.Local {
		in.Codes = append(in.Codes, Code{Name: e.Name, Group: Local})
	}
	return names
}

func (in *Input) addScenarios(tree *kit.Tree) {
	for _, s := range tree.Scenarios {
		in.Scenarios = append(in.Scenarios, Scenario{ID: s.ID, Proves: s.Proves, Refuses: s.Refuses, Codes: s.Codes})
	}
}

func (in *Input) addVectors(files fs.FS, list []vectors.Vector, numbers map[string]string) error {
	for _, v := range list {
		code := v.Name
		if number, ok := v.Value["code"].(json.Number); ok && v.Form == oracle.Refusal {
			code = numbers[number.String()]
		}
		in.Vectors = append(in.Vectors, Vector{ID: v.ID, Accept: v.Verdict == oracle.Accept, Clauses: v.Clauses, Code: code})
	}
	folder, err := fs.Sub(files, "generated/vectors")
	if err != nil {
		return err
	}
	routes, err := vectors.Routes(folder)
	for _, v := range routes.Texts {
		in.Vectors = append(in.Vectors, Vector{ID: v.ID, Accept: v.Verdict == oracle.Accept, Clauses: v.Clauses})
	}
	for _, v := range routes.Matches {
		in.Vectors = append(in.Vectors, Vector{ID: v.ID, Accept: v.Matches, Clauses: []string{"R-18"}})
	}
	for _, v := range routes.Containment {
		in.Vectors = append(in.Vectors, Vector{ID: v.ID, Accept: v.Contained, Clauses: []string{contains(routes, v.Scheme), "R-33", "A-37"}})
	}
	return err
}

// contains is the rule of containment for routes of a scheme: R-32 without a fixed depth, R-30 with one.
func contains(routes oracle.RouteFile, scheme string) string {
	flexible := func(v oracle.RouteVector) bool { return v.Scheme == scheme && v.Flexible }
	if slices.ContainsFunc(routes.Texts, flexible) {
		return "R-32"
	}
	return "R-30"
}

// tests tells whether a test exists: "package/folder TestName".
func tests(files fs.FS) func(string) bool {
	known := map[string]map[string]bool{}
	return func(test string) bool {
		folder, name, _ := strings.Cut(test, " ")
		if known[folder] == nil {
			found, err := rules.TestsIn(files, folder)
			if err != nil {
				return false
			}
			known[folder] = found
		}
		return known[folder][name]
	}
}
