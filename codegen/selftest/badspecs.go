// Package selftest proves that the checks of the generator find something: every rule by a specification that breaks it, every constraint
// of a schema by a value that violates it, and every check of an enforced invariant by breaking its subject in a copy.
package selftest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"github.com/fitzwire/fitz/codegen/findings"
	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/overlay"
	"github.com/fitzwire/fitz/codegen/rules"
)

// Folders of the fixtures, below the folder of the specification. Each rule has a folder of its name in badspecs with good.edit, bad.edit
// and expected.txt; the edits change the specification of the base, and expected.txt is the findings of the bad one.
const (
	badspecs  = "badspecs"
	baseDir   = "_base"
	baseIndex = "spec/toy.yaml"
)

// check loads a specification and returns all findings of the loader and the rules.
func check(fsys fs.FS, index string) (findings.List, error) {
	spec, list, err := load.FS(fsys, index)
	if err != nil {
		return nil, err
	}
	more, err := rules.Check(fsys, spec)
	if err != nil {
		return nil, err
	}
	return append(list, more...).Sorted(), nil
}

// RuleIDs returns every rule that needs a fixture: those of the loader and those of the table. The violations of schemas have their own proof.
func RuleIDs() []string {
	ids := load.RuleIDs()
	for _, r := range rules.All() {
		ids = append(ids, r.ID)
	}
	slices.Sort(ids)
	return ids
}

// Fixture is the fixture of one rule.
type Fixture struct {
	Rule      string
	Good, Bad findings.List
	Expected  string // text of expected.txt, "" when there is none
}

// ReadFixture reads and checks the fixture of one rule; specDir is the folder of the specification.
func ReadFixture(fsys fs.FS, specDir, rule string) (*Fixture, error) {
	f := &Fixture{Rule: rule}
	var err error
	if f.Good, err = edited(fsys, specDir, rule, "good.edit"); err != nil {
		return nil, err
	}
	if f.Bad, err = edited(fsys, specDir, rule, "bad.edit"); err != nil {
		return nil, err
	}
	expected, err := fs.ReadFile(fsys, path.Join(specDir, badspecs, rule, "expected.txt"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f.Expected = string(expected)
	return f, nil
}

// edited checks the base after the edits of one file.
func edited(fsys fs.FS, specDir, rule, name string) (findings.List, error) {
	o, err := base(fsys, specDir)
	if err != nil {
		return nil, err
	}
	file := path.Join(specDir, badspecs, rule, name)
	edits, err := fs.ReadFile(fsys, file)
	if err != nil {
		return nil, err
	}
	if err := o.Edit(".", string(edits)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return check(o, baseIndex)
}

// base is the specification that the fixtures edit, alone in a file system.
func base(fsys fs.FS, specDir string) (*overlay.FS, error) {
	o := overlay.New(nil)
	return o, o.PutDir(".", fsys, path.Join(specDir, badspecs, baseDir))
}

// Problem says what is wrong with a fixture, "" when nothing is.
func (f *Fixture) Problem() string {
	switch {
	case len(f.Good) > 0:
		return fmt.Sprintf("the good specification has findings:\n%s", f.Good)
	case !f.Bad.Has(f.Rule):
		return fmt.Sprintf("the bad specification does not break the rule:\n%s", f.Bad)
	case f.Bad.String() != f.Expected:
		return fmt.Sprintf("the findings are\n%sand expected.txt has\n%s", f.Bad, f.Expected)
	}
	return ""
}
