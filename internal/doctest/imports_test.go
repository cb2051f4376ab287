package doctest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const (
	boundaries = "docs/development/domain-boundaries-spec.md"
	modulePath = "github.com/fitzwire/fitz/"
)

// importRule is one row of the table of imports: the packages that it is about, and what those may import.
type importRule struct {
	packages []string // patterns below the root of the module
	allowed  []string // patterns of packages of this module, and prefixes of other modules
}

// libraries stands in a row for every module of others.
const libraries = "libraries"

func (r *importRule) allows(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".") && slices.Contains(r.allowed, libraries) ||
		slices.ContainsFunc(r.allowed, func(p string) bool { return meansPackage(p, imported) })
}

// judgedTrees are the folders whose packages each need a row.
var judgedTrees = []string{"broker", "codegen", "conformance", "fitztest", "generated/go", "internal", "sdk-templates/go/runtime"}

var importTable = regexp.MustCompile(`(?m)^\| package \| may import \|\n\|---\|---\|\n((?:\|.*\|\n)+)`)

// importRules reads the table of imports. A row without packages names a group in its first cell, for which that word stands in other rows.
func importRules(text string) ([]importRule, error) {
	table := importTable.FindStringSubmatch(text)
	if table == nil {
		return nil, fmt.Errorf("no table of imports")
	}
	var rules []importRule
	groups := map[string][]string{}
	for line := range strings.Lines(table[1]) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 2 {
			return nil, fmt.Errorf("%q has %d cells", line, len(cells))
		}
		allowed := spans(cells[1])
		for _, word := range strings.FieldsFunc(codeSpan.ReplaceAllString(cells[1], ""), func(r rune) bool { return r == ' ' || r == ',' }) {
			group, known := groups[word]
			switch {
			case word == libraries:
				group = []string{libraries}
			case !known && word != "nothing":
				return nil, fmt.Errorf("%q: there is no group %s", line, word)
			}
			allowed = append(allowed, group...)
		}
		if packages := spans(cells[0]); len(packages) > 0 {
			rules = append(rules, importRule{packages, allowed})
		} else {
			groups[strings.TrimSpace(cells[0])] = allowed
		}
	}
	return rules, nil
}

// meansPackage tells whether a pattern means a package: its name, or with /... at the end, or with /* for one more part, those under it.
func meansPackage(pattern, name string) bool {
	if prefix, all := strings.CutSuffix(pattern, "/..."); all {
		return name == prefix || strings.HasPrefix(name, prefix+"/")
	}
	matched, err := path.Match(pattern, name)
	return err == nil && matched
}

// mostSpecific is the rule of a package: that whose pattern says most of its name.
func mostSpecific(rules []importRule, name string) *importRule {
	var best *importRule
	length := -1
	for i := range rules {
		for _, p := range rules[i].packages {
			if literal := len(strings.TrimRight(p, "*.")); meansPackage(p, name) && literal > length {
				best, length = &rules[i], literal
			}
		}
	}
	return best
}

// sources parses every Go file of a tree that is not a test, by folder.
func sources(tree fs.FS, folders []string, mode parser.Mode) (map[string]map[string]*ast.File, error) {
	out := map[string]map[string]*ast.File{}
	for _, folder := range folders {
		err := fs.WalkDir(tree, folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, text, mode|parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			dir := path.Dir(name)
			if out[dir] == nil {
				out[dir] = map[string]*ast.File{}
			}
			out[dir][path.Base(name)] = file
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// importsOf are the packages that a file imports, those of this module without its path and none of the standard library.
func importsOf(file *ast.File) (out []string, err error) {
	for _, spec := range file.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if first, _, _ := strings.Cut(name, "/"); strings.Contains(first, ".") {
			out = append(out, strings.TrimPrefix(name, modulePath))
		}
	}
	return out, nil
}

// forbiddenImports says which packages of a tree have no rule or import what theirs does not allow, and which rules mean no package.
func forbiddenImports(tree fs.FS, folders []string, rules []importRule) (problems []string, err error) {
	packages, err := sources(tree, folders, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	for name, files := range packages {
		rule := mostSpecific(rules, name)
		if rule == nil {
			problems = append(problems, name+" stands in no row")
			continue
		}
		for file, parsed := range files {
			imports, err := importsOf(parsed)
			if err != nil {
				return nil, err
			}
			for _, imported := range imports {
				if !rule.allows(imported) {
					problems = append(problems, fmt.Sprintf("%s/%s may not import %s", name, file, imported))
				}
			}
		}
	}
	for _, rule := range rules {
		for _, p := range rule.packages {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(packages)), func(name string) bool { return meansPackage(p, name) }) {
				problems = append(problems, "no package is "+p)
			}
		}
	}
	slices.Sort(problems)
	return problems, nil
}

// Every package imports only what the table of the boundaries lets it (design: each layer imports only what is below it; generated code
// imports runtimes and never the other way round).
func TestImports(t *testing.T) {
	rules, err := importRules(read(t, boundaries))
	if err != nil {
		t.Fatal(err)
	}
	problems, err := forbiddenImports(os.DirFS(root), judgedTrees, rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

func TestForbiddenImportsAreFound(t *testing.T) {
	rules, err := importRules("| package | may import |\n|---|---|\n| base | `b` |\n| `a`, `a/*` | base, `a/...` |\n| `a/x` | nothing |\n| `b` | nothing |\n| `d` | libraries |\n| `gone` | `example.org/m/...` |\n\n")
	if err != nil {
		t.Fatal(err)
	}
	file := func(imports ...string) *fstest.MapFile {
		text := "package p\n"
		for _, i := range imports {
			text += "import _ " + strconv.Quote(i) + "\n"
		}
		return &fstest.MapFile{Data: []byte(text)}
	}
	tree := fstest.MapFS{
		"a/a.go": file("fmt", modulePath+"b", modulePath+"a/y"), "a/y/y.go": file("example.org/m"), "a/x/x.go": file(modulePath + "b"),
		"a/x/x_test.go": file("example.org/any"), "b/b.go": file("net"), "c/c.go": file(), "d/d.go": file("example.org/any", modulePath+"b"),
	}
	got, err := forbiddenImports(tree, []string{"a", "b", "c", "d"}, rules)
	want := []string{"a/x/x.go may not import b", "a/y/y.go may not import example.org/m", "c stands in no row", "d/d.go may not import b", "no package is gone"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"", "| package | may import |\n|---|---|\n| `a` | others |\n"} {
		if _, err := importRules(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// Packages of the broker that start nothing, wait for nothing and look at no clock but the one they are given.
var synchronous = []string{"broker/lease", "broker/peer", "broker/subscription"}

// What a synchronous package may not use, by package. An empty list means all of it.
var asynchronous = map[string][]string{
	"net": nil, "net/http": nil, "os": nil, "os/signal": nil, "math/rand": nil, "math/rand/v2": nil, "crypto/rand": nil,
	"time": {"Now", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Since", "Until"},
}

// asynchrony says where a file starts a goroutine, or uses time, chance or the outside that nobody gave it.
func asynchrony(file *ast.File) (problems []string) {
	for _, spec := range file.Imports {
		name, _ := strconv.Unquote(spec.Path.Value)
		if members, listed := asynchronous[name]; listed && members == nil {
			problems = append(problems, "imports "+name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			problems = append(problems, "starts a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(asynchronous[x.Name], n.Sel.Name) {
				problems = append(problems, "calls "+x.Name+"."+n.Sel.Name)
			}
		}
		return true
	})
	return problems
}

// The core of a domain is synchronous: no goroutine, no input or output, no clock of its own (L-06, L-91).
func TestDomainsAreSynchronous(t *testing.T) {
	packages, err := sources(os.DirFS(root), synchronous, 0)
	if err != nil || len(packages) < len(synchronous) {
		t.Fatalf("%d packages, %v", len(packages), err)
	}
	for name, files := range packages {
		for file, parsed := range files {
			for _, problem := range asynchrony(parsed) {
				t.Errorf("%s %s", filepath.Join(name, file), problem)
			}
		}
	}
}

func TestAsynchronyIsFound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "", "package p\nimport \"os\"\nimport \"time\"\nfunc f() { go f(); _ = time.Now(); _ = time.Second; _ = os.Args }\n", parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := asynchrony(file), []string{"imports os", "starts a goroutine", "calls time.Now"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
