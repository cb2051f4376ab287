package doctest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
)

// Block is a fenced block of code of a document.
type Block struct {
	File string // as it was given to Blocks
	Line int    // of its first line, from 1
	Info string // behind the fence: language and mark
	Text string
}

// String is where the block stands.
func (b Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

// Language is the first word of the info.
func (b Block) Language() string {
	language, _, _ := strings.Cut(b.Info, " ")
	return language
}

// Runs tells whether the block is marked to be run.
func (b Block) Runs() bool { return slices.Contains(strings.Fields(b.Info), "run") }

const fence = "```"

// Blocks takes the fenced blocks out of a document. A block that is not closed is an error, and so is a mark that means nothing.
func Blocks(file, text string) ([]Block, error) {
	var blocks []Block
	var open *Block
	for i, line := range strings.Split(text, "\n") {
		marker, isFence := strings.CutPrefix(strings.TrimSpace(line), fence)
		switch {
		case open == nil && isFence:
			open = &Block{File: file, Line: i + 2, Info: strings.TrimSpace(marker)}
		case open != nil && isFence && marker == "":
			blocks, open = append(blocks, *open), nil
		case open != nil:
			open.Text += line + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%v: the block is not closed", open)
	}
	for _, b := range blocks {
		if b.Language() == "go" && b.Info != "go" && b.Info != "go run" {
			return nil, fmt.Errorf("%v: %q is neither go nor go run", b, b.Info)
		}
	}
	return blocks, nil
}

// Form is what a block of Go is.
type Form int

// The forms.
const (
	Program Form = iota
	Declarations
	Body
)

// Imports are the packages that a block may use without importing them, by name.
var Imports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "slog": "log/slog", "os": "os", "sync": "sync", "testing": "testing",
	"synctest": "testing/synctest", "time": "time",
	"fitz": "github.com/fitzwire/fitz/generated/go/fitz", "fitztest": "github.com/fitzwire/fitz/fitztest",
}

// Source is a block as a file.
type Source struct {
	Form Form
	Text string
}

// bodyHead opens the function of a body. The braces keep the names of the parameters free for the block.
const bodyHead = `func Block(ctx context.Context, client *fitz.Client, lease *fitz.Lease, work func(context.Context) error, write func(context.Context, uint64) error) error {
{
`

// Wrap makes a file of a block of Go: of the named package, unless the block names its own.
func Wrap(b Block, name string) (Source, error) {
	at := fmt.Sprintf("//line %s:%d\n", b.File, b.Line)
	if strings.HasPrefix(strings.TrimSpace(b.Text), "package ") {
		return Source{Program, at + b.Text}, nil
	}
	clause := "package " + name + "\n"
	form, rest := Declarations, at+b.Text
	tree, err := parser.ParseFile(token.NewFileSet(), "", clause+rest, parser.SkipObjectResolution)
	if err != nil {
		form, rest = Body, bodyHead+at+b.Text+"}\nreturn nil\n}\n"
		tree, err = parser.ParseFile(token.NewFileSet(), "", clause+rest, parser.SkipObjectResolution)
	}
	if err != nil {
		return Source{}, fmt.Errorf("%v: neither a list of declarations nor the body of a function: %w", b, err)
	}
	var imports strings.Builder
	for _, path := range used(tree) {
		fmt.Fprintf(&imports, "import %q\n", path)
	}
	return Source{form, clause + imports.String() + rest}, nil
}

// used are the paths of the packages of Imports that a file names, sorted.
func used(tree *ast.File) []string {
	paths := map[string]bool{}
	ast.Inspect(tree, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && Imports[x.Name] != "" {
			paths[Imports[x.Name]] = true
		}
		return true
	})
	return slices.Sorted(maps.Keys(paths))
}
