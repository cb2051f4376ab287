// Package load reads a specification: YAML files as nodes, checked against the schemas of spec/schema and turned into the model.
//
// Mistakes in the specification are findings, and all of them are found in one run; an error is a failure of the tool or the machine only.
package load

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/codegen/findings"
	"github.com/fitzwire/fitz/codegen/model"
)

// Load reads the specification whose index is the given file. The model is complete when the list is empty; otherwise it holds what could
// be read, so that rules can look for more.
func Load(indexPath string) (*model.Spec, findings.List, error) {
	return FS(disk{}, indexPath)
}

// FS is Load within a file system.
func FS(fsys fs.FS, indexPath string) (*model.Spec, findings.List, error) {
	l := &loader{fsys: fsys, dir: path.Dir(indexPath)}
	if err := l.read(indexPath); err != nil {
		return nil, nil, err
	}
	spec := l.build()
	return spec, l.list.Sorted(), nil
}

// loader is the state of one run.
type loader struct {
	fsys    fs.FS
	dir     string // folder of the index
	index   *source
	files   map[string]*source // by kind, without domains
	domains []*source
	list    findings.List
}

// kinds is the file kinds that an index names once, in the order of the index.
var kinds = []string{"wire", "bounds", "errors", "routes", "sdk", "broker", "admin", "metrics", "invariants", "clauses"}

func (l *loader) read(indexPath string) error {
	index, err := read(l.fsys, path.Clean(indexPath), "index", model.Pos{File: indexPath}, &l.list)
	if err != nil {
		return err
	}
	if l.list.Has(FileMissing) {
		return fmt.Errorf("read %s: %w", indexPath, fs.ErrNotExist) // not a mistake of a specification: there is none
	}
	l.index, l.files = index, map[string]*source{}
	if err := validate(index, &l.list); err != nil {
		return err
	}
	seen := map[string]bool{index.path: true}
	files := node{index, index.root}.get("files")
	for _, kind := range kinds {
		src, err := l.member(files.get(kind), kind, seen)
		if err != nil {
			return err
		}
		l.files[kind] = src
	}
	for _, item := range files.get("domains").items() {
		src, err := l.member(item, "domain", seen)
		if err != nil {
			return err
		}
		l.domains = append(l.domains, src)
	}
	return l.strangers(seen)
}

// member reads one file that the index names. A name that the index lacks is left to the schema.
func (l *loader) member(name node, kind string, seen map[string]bool) (*source, error) {
	empty := &source{path: l.index.path, kind: kind}
	text := name.str()
	if text == "" {
		return empty, nil
	}
	if !fs.ValidPath(text) || strings.Contains(text, `\`) {
		l.list.Add(name.pos(), FileOutside, fmt.Sprintf("%s is not a file below the folder of the index", text), "name a file beside the index or in a folder of it")
		return empty, nil
	}
	file := path.Join(l.dir, text)
	if seen[file] {
		l.list.Add(name.pos(), FileTwice, fmt.Sprintf("the file %s is named twice", text), "name it once")
		return empty, nil
	}
	seen[file] = true
	src, err := read(l.fsys, file, kind, name.pos(), &l.list)
	if err != nil {
		return nil, err
	}
	return src, validate(src, &l.list)
}

// strangers reports YAML files that lie beside the files of the index without belonging to them: they look as if they meant something.
func (l *loader) strangers(seen map[string]bool) error {
	folders := map[string]bool{}
	for file := range seen {
		folders[path.Dir(file)] = true
	}
	names := make([]string, 0, len(folders))
	for folder := range folders {
		names = append(names, folder)
	}
	slices.Sort(names)
	for _, folder := range names {
		if err := l.strangersIn(folder, seen); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) strangersIn(folder string, seen map[string]bool) error {
	entries, err := fs.ReadDir(l.fsys, folder)
	if isMissing(err) {
		return nil // every file of it is a finding already
	}
	if err != nil {
		return fmt.Errorf("list %s: %w", folder, err)
	}
	for _, e := range entries {
		file := path.Join(folder, e.Name())
		ext := path.Ext(file)
		if e.IsDir() || seen[file] || ext != ".yaml" && ext != ".yml" {
			continue
		}
		l.list.Add(model.Pos{File: file, Line: 1, Col: 1}, FileUnknown, "the index does not name this file", "name it in the index or remove it")
	}
	return nil
}

// File checks the text of one file alone: its YAML and the schema of its kind (index, wire, …, domain).
func File(kind, name string, text []byte) (findings.List, error) {
	var list findings.List
	src := &source{path: name, kind: kind}
	src.parse(text, &list)
	if err := validate(src, &list); err != nil {
		return nil, err
	}
	return list.Sorted(), nil
}
