package rules

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/internal/reference"
)

var proofRules = []Rule{
	{"REFERENCE_READ", "The reference that the index names can be read.", referenceRead},
	{"CLAUSE_UNKNOWN", "Every rule of the reference that is named exists.", clauseUnknown},
	{"CLAUSE_MISSING", "Every rule of the reference has a line among the clauses.", clauseMissing},
	{"CLAUSE_ORDER", "Clauses stand in the order of the reference.", clauseOrder},
	{"CLAUSE_PROOF", "A clause has a proof, or says what it waits for, and not both.", clauseProof},
	{"PROOF_UNKNOWN", "Every check that is named exists.", proofUnknown},
	{"INVARIANT_STATE", "Invariants are numbered; one that is enforced names its checks, one that waits says for what.", invariantStates},
}

// inTree is the place of a file of the source tree.
func (c *checker) inTree(name string) string { return path.Join(c.spec.Dir, c.spec.Tree, name) }

// below is a folder as a file system, for names that fs.Sub refuses.
type below struct {
	fs.FS
	dir string
}

func (b below) Open(name string) (fs.File, error) { return b.FS.Open(path.Join(b.dir, name)) }

func (b below) ReadDir(name string) ([]fs.DirEntry, error) {
	return fs.ReadDir(b.FS, path.Join(b.dir, name))
}

// referenceRead reads the ids of the reference for the rules behind it.
func referenceRead(c *checker) {
	if c.spec.Reference == "" {
		return // the schema asks for it
	}
	rows, err := reference.New(below{c.fsys, path.Join(c.spec.Dir, c.spec.Reference)}).Rules()
	if err != nil {
		c.add(c.spec.Pos, fmt.Sprintf("the reference %s cannot be read: %v", c.spec.Reference, err), "correct the folder or its tables")
		return
	}
	c.reference = make(map[string]int, len(rows))
	for i, r := range rows {
		c.reference[r.ID] = i
		c.order = append(c.order, r.ID)
	}
}

var clauseID = regexp.MustCompile(`^[A-Z]`)

func clauseUnknown(c *checker) {
	if c.reference == nil {
		return
	}
	check := func(id string, pos model.Pos) {
		if _, ok := c.reference[id]; id != "" && clauseID.MatchString(id) && !ok {
			c.add(pos, fmt.Sprintf("the reference has no rule %s", id), "correct the id")
		}
	}
	all := func(n model.Named, ids []string) {
		for i, id := range ids {
			check(id, n.Where(fmt.Sprintf("clauses/%d", i)))
		}
	}
	for _, x := range c.spec.Clauses {
		check(x.ID, x.Pos)
	}
	w, r := c.spec.Wire, c.spec.Routes
	for _, id := range slices.Concat(w.Framing.Clauses, w.LabelClauses, w.EnvelopeClauses) {
		check(id, w.Framing.Pos)
	}
	for _, id := range r.Clauses {
		check(id, r.Pos)
	}
	for _, x := range w.CloseReasons {
		check(x.Clause, x.Where("clause"))
	}
	for _, x := range w.Outbound {
		check(x.Clause, x.Where("clause"))
	}
	for _, x := range w.FixedTexts {
		check(x.Clause, x.Where("clause"))
	}
	for _, x := range r.Reasons {
		check(x.Clause, x.Where("clause"))
	}
	for _, x := range r.Schemes {
		all(x.Named, x.Clauses)
	}
	for _, x := range c.spec.SDK.Defaults {
		check(x.Clause, x.Where("clause"))
	}
	for _, d := range c.spec.Domains {
		for _, x := range d.Structs {
			all(x.Named, x.Clauses)
		}
		for _, x := range d.Unions {
			all(x.Named, x.Clauses)
		}
		for _, x := range d.Operations {
			all(x.Named, x.Clauses)
		}
		for _, x := range d.Messages {
			all(x.Named, x.Clauses)
		}
		for _, x := range d.Reasons {
			for _, v := range x.Values {
				check(v.Clause, v.Where("clause"))
			}
		}
	}
}

// clausesPos is the place of the clauses as a whole.
func (c *checker) clausesPos() model.Pos {
	if len(c.spec.Clauses) == 0 {
		return c.spec.Pos
	}
	return model.Pos{File: c.spec.Clauses[0].Pos.File, Line: 1, Col: 1}
}

func clauseMissing(c *checker) {
	have := map[string]bool{}
	for _, x := range c.spec.Clauses {
		have[x.ID] = true
	}
	for _, id := range c.order {
		if !have[id] {
			c.add(c.clausesPos(), fmt.Sprintf("the rule %s of the reference has no line", id), "add it with its proof, or with later")
		}
	}
}

func clauseOrder(c *checker) {
	last := -1
	for _, x := range c.spec.Clauses {
		at, ok := c.reference[x.ID]
		if !ok {
			continue
		}
		if at < last {
			c.add(x.Pos, fmt.Sprintf("%s stands behind %s, which the reference has later", x.ID, c.order[last]), "keep the order of the reference")
			continue
		}
		last = at
	}
}

func clauseProof(c *checker) {
	for _, x := range c.spec.Clauses {
		if (len(x.Proofs) > 0) == (x.Later != "") {
			c.add(x.Pos, fmt.Sprintf("%s has both or none of proof and later", x.ID), "name its proof, or what it waits for")
		}
	}
}

func proofUnknown(c *checker) {
	tests := map[string]map[string]bool{} // package folder to its tests
	check := func(p *model.Proof) {
		if problem, mend := c.proof(p, tests); problem != "" {
			c.add(p.Pos, problem, mend)
		}
	}
	for _, x := range c.spec.Clauses {
		for _, p := range x.Proofs {
			check(p)
		}
	}
	for _, x := range c.spec.Invariants {
		for _, p := range x.Checks {
			check(p)
		}
	}
}

// proof says what is wrong with one named check, "" when it exists.
func (c *checker) proof(p *model.Proof, tests map[string]map[string]bool) (problem, mend string) {
	switch p.Kind {
	case "test":
		folder, name, _ := strings.Cut(p.Target, " ")
		if tests[folder] == nil {
			tests[folder] = c.testsOf(folder)
		}
		if !tests[folder][name] {
			return fmt.Sprintf("the package %s has no test %s", folder, name), "correct the name or write the test"
		}
	case "rule":
		if !c.known[p.Target] {
			return fmt.Sprintf("there is no rule %s", p.Target), "correct the name or write the rule"
		}
	case "scenario":
		if !c.exists(path.Join("conformance/scenarios", p.Target+".yaml")) {
			return fmt.Sprintf("there is no scenario %s", p.Target), "correct the name or write the scenario"
		}
	case "generated":
		check, ok := generatedChecks[p.Target]
		if !ok || !c.generates(check) {
			return fmt.Sprintf("the generator writes no check %s", p.Target), "correct the name, or generate it"
		}
	}
	return "", ""
}

func (c *checker) exists(name string) bool {
	_, err := fs.Stat(c.fsys, c.inTree(name))
	return err == nil
}

// testsOf is the tests and fuzz targets of the package in one folder of the source tree.
func (c *checker) testsOf(folder string) map[string]bool {
	found, err := TestsIn(c.fsys, c.inTree(folder))
	if err != nil {
		c.err = fmt.Errorf("tests of %s: %w", folder, err)
	}
	return found
}

// TestsIn returns the names of the tests and fuzz targets of the package in one folder. A folder that does not exist has none.
func TestsIn(fsys fs.FS, dir string) (map[string]bool, error) {
	found := map[string]bool{}
	entries, err := fs.ReadDir(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		src, err := fs.ReadFile(fsys, path.Join(dir, e.Name()))
		if err != nil {
			return found, err
		}
		addTests(found, src)
	}
	return found, nil
}

// addTests adds the tests of one file. A file that does not parse has the tests that could be read; the compiler reports the rest.
func addTests(found map[string]bool, src []byte) {
	file, _ := parser.ParseFile(token.NewFileSet(), "", src, parser.SkipObjectResolution)
	if file == nil {
		return
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if ok && f.Recv == nil && f.Body != nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
			found[f.Name.Name] = true
		}
	}
}

// generatedCheck is a check that the generator writes into its output: a text in the files of one folder.
type generatedCheck struct {
	folder string
	text   *regexp.Regexp
}

// generatedChecks is the checks that a proof can name as generated.
var generatedChecks = map[string]generatedCheck{
	// A handler that is missing does not compile: dispatch asks for one interface with a method for each operation.
	"handlers_complete": {"generated/go/dispatch", regexp.MustCompile(`type \w+Handler interface \{`)},
	// Dispatch is an exact switch over message numbers.
	"dispatch_exact": {"generated/go/dispatch", regexp.MustCompile(`case wire\.Type\w+:`)},
}

// GeneratedCheck returns where a check that the generator writes can be seen: a folder below the root of the source tree, and a text in its files.
func GeneratedCheck(name string) (folder string, text *regexp.Regexp, ok bool) {
	check, ok := generatedChecks[name]
	return check.folder, check.text, ok
}

func (c *checker) generates(check generatedCheck) bool {
	entries, err := fs.ReadDir(c.fsys, c.inTree(check.folder))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			return false
		}
		text, err := fs.ReadFile(c.fsys, path.Join(c.inTree(check.folder), e.Name()))
		return err == nil && check.text.Match(text)
	})
}

func invariantStates(c *checker) {
	for i, x := range c.spec.Invariants {
		if x.Number != i+1 {
			c.add(x.Where("number"), fmt.Sprintf("the invariant %s has the number %d in place %d", x.Name, x.Number, i+1), "number them in order")
		}
		switch {
		case x.State == "enforced" && len(x.Checks) == 0:
			c.add(x.Pos, fmt.Sprintf("the invariant %s is enforced by nothing", x.Name), "name its checks, or say what it waits for")
		case x.State == "enforced" && x.WaitsFor != "", x.State == "waits" && x.WaitsFor == "":
			c.add(x.Pos, fmt.Sprintf("the invariant %s has the state %s and waits for %q", x.Name, x.State, x.WaitsFor), "give waits_for exactly when it waits")
		}
	}
}
