// Package mutants proves that the conformance suite notices what it is for. Broker and SDK have seeded faults that exist only in builds
// with the tag "mutants" and of which one at a time is switched on by an environment variable. conformance/mutants.yaml says which clauses
// each of them breaks and which scenarios must fail with it. A scenario that fails because a program hangs, crashes or is too slow has
// noticed nothing.
package mutants

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"gopkg.in/yaml.v3"
)

// File is the list, below the root of the source tree.
const File = "conformance/mutants.yaml"

// Tag is the build tag of programs with faults.
const Tag = "mutants"

// Side is the program that has a fault.
type Side string

// The sides.
const (
	Broker Side = "broker"
	SDK    Side = "sdk"
)

// Environment is the variable that names the one fault that is switched on in the broker or in the SDK of a program built with the tag Tag.
// The driver holds both: its examples start brokers.
func (s Side) Environment() string {
	if s == SDK {
		return "FITZ_SDK_MUTANT"
	}
	return "FITZ_MUTANT"
}

// Mutant is one seeded fault.
type Mutant struct {
	ID       string   `yaml:"id" json:"id"`
	Side     Side     `yaml:"side" json:"side"`
	Breaks   []string `yaml:"breaks" json:"breaks"`       // clauses that do not hold with the fault
	What     string   `yaml:"what" json:"what"`           // what the program does, one sentence
	KilledBy []string `yaml:"killed_by" json:"killed_by"` // ids of scenarios each of which must fail
}

//go:embed schema.json
var schemaText []byte

const schemaID = "https://fitzwire.example/conformance/mutants.schema.json"

// Load reads the list out of a source tree. Every violation of the schema is in the error.
func Load(root fs.FS) ([]Mutant, error) {
	text, err := fs.ReadFile(root, File)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

func parse(text []byte) ([]Mutant, error) {
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	if err := validate(doc); err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	var list []Mutant
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&list); err != nil {
		return nil, fmt.Errorf("%s: %w", File, err)
	}
	seen := map[string]bool{}
	for _, m := range list {
		if seen[m.ID] {
			return nil, fmt.Errorf("%s: %s is listed twice", File, m.ID)
		}
		seen[m.ID] = true
	}
	return list, nil
}

func validate(doc any) error {
	c := jsonschema.NewCompiler()
	c.LoadURL = nil // the schema refers to nothing outside of itself
	if err := c.AddResource(schemaID, bytes.NewReader(schemaText)); err != nil {
		return err
	}
	schema, err := c.Compile(schemaID)
	if err != nil {
		return err
	}
	text, err := json.Marshal(doc) // the validator knows the types of JSON
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(plain); errors.As(err, &invalid) {
		return violations(invalid, doc)
	} else if err != nil {
		return err
	}
	return nil
}

// violations is one line for each thing that is wrong, with the id of its entry where there is one.
func violations(e *jsonschema.ValidationError, doc any) error {
	if len(e.Causes) == 0 {
		return fmt.Errorf("%s%s: %s", e.InstanceLocation, entryName(e.InstanceLocation, doc), e.Message)
	}
	var all []error
	for _, cause := range e.Causes {
		all = append(all, violations(cause, doc))
	}
	return errors.Join(all...)
}

func entryName(location string, doc any) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(location, "/"), "/")
	list, _ := doc.([]any)
	var i int
	if _, err := fmt.Sscan(first, &i); err != nil || i < 0 || i >= len(list) {
		return ""
	}
	entry, _ := list[i].(map[string]any)
	if id, ok := entry["id"].(string); ok {
		return " (" + id + ")"
	}
	return ""
}

// Matching returns the faults whose ids match one of the patterns: lease.*, observer.gap-*. Without patterns it returns all. A pattern
// that matches nothing is a mistake.
func Matching(list []Mutant, patterns []string) ([]Mutant, error) {
	if len(patterns) == 0 {
		return list, nil
	}
	wanted := map[string]bool{}
	for _, pattern := range patterns {
		found := false
		for _, m := range list {
			matches, err := path.Match(pattern, m.ID)
			if err != nil {
				return nil, fmt.Errorf("pattern %q: %w", pattern, err)
			}
			wanted[m.ID] = wanted[m.ID] || matches
			found = found || matches
		}
		if !found {
			return nil, fmt.Errorf("no fault matches %q", pattern)
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(m Mutant) bool { return !wanted[m.ID] }), nil
}
