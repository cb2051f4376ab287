// Package reference reads the tables of the protocol reference in docs/protocol, so that tests and checks use them as fixtures
// and never repeat them. It knows the form of the tables, not their content.
//
// Every loader returns an error when its table is missing, has no rows, or has a cell that it cannot read; it never skips a row.
package reference

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Dir is the folder of the reference below the module root.
const Dir = "docs/protocol"

// Docs is one copy of the reference. Its methods read the files anew on every call.
type Docs struct{ files fs.FS }

// New returns the reference whose Markdown files are at the root of files.
func New(files fs.FS) *Docs { return &Docs{files} }

// Find returns the reference of the module that the working directory belongs to: it walks up to go.mod.
func Find() (*Docs, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return New(os.DirFS(filepath.Join(dir, filepath.FromSlash(Dir)))), nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil, errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}

// TB is the part of testing.TB that Rows needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Rows returns what a loader finds in the reference of this module and fails the test on an error:
//
//	reference.Rows(t, (*reference.Docs).ValidRoutes)
func Rows[T any](t TB, load func(*Docs) ([]T, error)) []T {
	t.Helper()
	docs, err := Find()
	if err != nil {
		t.Fatalf("reference: %v", err)
	}
	rows, err := load(docs)
	if err != nil {
		t.Fatalf("reference: %v", err)
	}
	return rows
}

// Source is a place in the reference.
type Source struct {
	File string // name below Dir, such as "routes.md"
	Line int    // from 1
}

// String returns the place in the form file:line.
func (s Source) String() string { return fmt.Sprintf("%s/%s:%d", Dir, s.File, s.Line) }

func (s Source) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: "+format, append([]any{s}, args...)...)
}

// Row is one row of a table. Cells hold Markdown without the surrounding spaces.
type Row struct {
	Source
	Cells []string
}

// ID returns the first cell.
func (r Row) ID() string { return r.Cells[0] }

// Table is one table of a file.
type Table struct {
	Source           // of the header row
	Section string   // number of the section that it stands in, such as "7.1"; "" before the first one
	Title   string   // title of that section
	Header  []string // cells of the header row
	Rows    []Row
}

// Files returns the names of all files of the reference, sorted.
func (d *Docs) Files() ([]string, error) {
	names, err := fs.Glob(d.files, "*.md")
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s has no Markdown files", Dir)
	}
	return names, err
}

// Tables returns all tables of a file.
func (d *Docs) Tables(file string) ([]Table, error) {
	text, err := fs.ReadFile(d.files, file)
	if err != nil {
		return nil, err
	}
	p := tableParser{file: file}
	for line := range strings.Lines(string(text)) {
		p.line++
		if err := p.read(strings.TrimSpace(line)); err != nil {
			return nil, err
		}
	}
	if p.fenced {
		return nil, Source{file, p.line}.errorf("a code block is not closed")
	}
	return p.tables, p.finish()
}

// Table returns the table of a section of a file whose header row begins with the given cells.
func (d *Docs) Table(file, section string, header ...string) (Table, error) {
	tables, err := d.Tables(file)
	if err != nil {
		return Table{}, err
	}
	for _, t := range tables {
		if t.Section == section && len(t.Header) >= len(header) && slices.Equal(t.Header[:len(header)], header) {
			return t, nil
		}
	}
	return Table{}, fmt.Errorf("%s/%s: section %s has no table %q", Dir, file, section, header)
}

// Section returns the text of a section of a file without the heading line and without its subsections.
func (d *Docs) Section(file, section string) (string, error) {
	text, err := fs.ReadFile(d.files, file)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	inside, found := false, false
	for line := range strings.Lines(string(text)) {
		if number, _, ok := heading(strings.TrimSpace(line)); ok {
			inside = number == section
			found = found || inside
			continue
		}
		if inside {
			out.WriteString(line)
		}
	}
	if !found {
		return "", fmt.Errorf("%s/%s: no section %s", Dir, file, section)
	}
	return out.String(), nil
}

type tableParser struct {
	file           string
	line           int
	section, title string
	fenced         bool
	state          int // rows of the current table read so far, header and delimiter included
	tables         []Table
}

func (p *tableParser) read(line string) error {
	if strings.HasPrefix(line, "```") {
		p.fenced = !p.fenced
	}
	if p.fenced || !strings.HasPrefix(line, "|") {
		if number, title, ok := heading(line); ok && !p.fenced {
			p.section, p.title = number, title
		}
		return p.finish()
	}
	source := Source{p.file, p.line}
	cells, err := splitCells(line)
	if err != nil {
		return source.errorf("%v", err)
	}
	p.state++
	if p.state == 1 {
		p.tables = append(p.tables, Table{Source: source, Section: p.section, Title: p.title, Header: cells})
		return nil
	}
	t := &p.tables[len(p.tables)-1]
	if len(cells) != len(t.Header) {
		return source.errorf("%d cells, the header row has %d", len(cells), len(t.Header))
	}
	delimiter := !slices.ContainsFunc(cells, func(c string) bool { return strings.Trim(c, ":-") != "" || c == "" })
	if delimiter != (p.state == 2) {
		return source.errorf("a table needs one line of dashes, directly below its header row")
	}
	if !delimiter {
		t.Rows = append(t.Rows, Row{source, cells})
	}
	return nil
}

// finish ends the current table, if there is one.
func (p *tableParser) finish() error {
	open := p.state > 0
	p.state = 0
	if open && len(p.tables[len(p.tables)-1].Rows) == 0 {
		return p.tables[len(p.tables)-1].errorf("the table has no rows")
	}
	return nil
}

// heading splits a heading line such as "### 7.1 Valid". The number is "" for a heading without one.
func heading(line string) (number, title string, ok bool) {
	title = strings.TrimLeft(line, "#")
	if level := len(line) - len(title); level == 0 || level > 6 || !strings.HasPrefix(title, " ") {
		return "", "", false
	}
	title = strings.TrimSpace(title)
	first, rest, _ := strings.Cut(title, " ")
	if digits := strings.TrimSuffix(first, "."); strings.Trim(digits, "0123456789.") == "" {
		return digits, strings.TrimSpace(rest), true
	}
	return "", title, true
}

// splitCells splits a table line at every "|" that is not escaped as "\|".
func splitCells(line string) ([]string, error) {
	if len(line) < 2 || !strings.HasSuffix(line, "|") || strings.HasSuffix(line, `\|`) {
		return nil, errors.New("a table line must end with |")
	}
	var cells []string
	var cell strings.Builder
	for i := 1; i < len(line); i++ {
		switch {
		case line[i] == '\\' && line[i+1] == '|': // the last byte is "|", so there is a next one
			cell.WriteByte('|')
			i++
		case line[i] == '|':
			cells = append(cells, strings.TrimSpace(cell.String()))
			cell.Reset()
		default:
			cell.WriteByte(line[i])
		}
	}
	return cells, nil
}

// codeSpans returns the texts between backticks of a cell.
func codeSpans(cell string) ([]string, error) {
	parts := strings.Split(cell, "`")
	if len(parts)%2 == 0 {
		return nil, fmt.Errorf("unbalanced backticks in %q", cell)
	}
	var spans []string
	for i := 1; i < len(parts); i += 2 {
		spans = append(spans, parts[i])
	}
	return spans, nil
}

// code returns the text of a cell that is one code span and nothing else.
func code(cell string) (string, error) {
	text, opened := strings.CutPrefix(cell, "`")
	text, closed := strings.CutSuffix(text, "`")
	if !opened || !closed || text == "" || strings.Contains(text, "`") {
		return "", fmt.Errorf("%q is not one code span", cell)
	}
	return text, nil
}

// load reads every row of a table with read.
func load[T any](t Table, err error, read func(Row) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	out := make([]T, 0, len(t.Rows))
	for _, row := range t.Rows {
		v, err := read(row)
		if err != nil {
			return nil, row.errorf("%v", err)
		}
		out = append(out, v)
	}
	return out, nil
}
