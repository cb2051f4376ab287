package broker_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// logMethods are the calls that write a line, with the position of the message and of the first key.
var logMethods = map[string]int{"Debug": 0, "Info": 0, "Warn": 0, "LogAttrs": 2}

// Every line below level error stands with its keys in docs/reference/logs.md.
func TestLogLinesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/logs.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "fitzd-test") ||
			strings.HasPrefix(path, "internal/control") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if message, keys := logLine(n); message != "" {
				found++
				checkDocumented(t, path, string(page), message, keys)
			}
			return true
		})
		return nil
	})
	if err != nil || found < 12 {
		t.Errorf("%d lines found, %v", found, err)
	}
}

// logLine returns message and keys of a call that logs, an empty message for everything else.
func logLine(n ast.Node) (message string, keys []string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", nil
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", nil
	}
	at, logs := logMethods[method.Sel.Name]
	if !logs || len(call.Args) <= at {
		return "", nil
	}
	message = literal(call.Args[at])
	for i := at + 1; i < len(call.Args); i++ {
		key := literal(call.Args[i])
		if attribute, ok := call.Args[i].(*ast.CallExpr); ok && at > 0 && len(attribute.Args) > 0 {
			key = literal(attribute.Args[0])
		}
		if key != "" && (at > 0 || (i-at)%2 == 1) {
			keys = append(keys, key)
		}
	}
	return message, keys
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		text, _ := strconv.Unquote(l.Value)
		return text
	}
	return ""
}

// checkDocumented looks for the message, and for its keys on its line of the table or, for the one with a table of its own, anywhere.
func checkDocumented(t *testing.T, path, page, message string, keys []string) {
	t.Helper()
	place := page
	if message != "session ended" {
		place = around(page, "| `"+message+"` |")
	}
	if !strings.Contains(place, "`"+message+"`") {
		t.Errorf("%s: the line %q is not documented", path, message)
		return
	}
	for _, key := range keys {
		if !strings.Contains(place, "`"+key+"`") {
			t.Errorf("%s: the key %q of %q is not documented", path, key, message)
		}
	}
}
