package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
)

// target is one fuzz function of one package folder.
type target struct{ dir, name string }

// find lists the functions FuzzXxx(*testing.F) of all test files, sorted by folder and name. Folders are below root.
func find(root string) ([]target, error) {
	var targets []target
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && ignored(entry.Name()) {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Fuzz") {
				targets = append(targets, target{dir, fn.Name.Name})
			}
		}
		return nil
	})
	sort.Slice(targets, func(i, j int) bool {
		if targets[i].dir != targets[j].dir {
			return targets[i].dir < targets[j].dir
		}
		return targets[i].name < targets[j].name
	})
	return targets, err
}

// ignored reports whether the Go tool passes over a folder of that name.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata"
}
