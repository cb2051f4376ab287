package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const templates = "../../../sdk-templates"

// fitzgen runs one command line and expects an exit code. It returns what was printed.
func fitzgen(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out, log bytes.Buffer
	if got := run(args, &out, &log); got != code {
		t.Fatalf("fitzgen %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, &out, &log)
	}
	return out.String()
}

// files is every file below a folder with its content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		out[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A fresh tree has no drift; each kind of difference is drift; another run mends changed and missing files and leaves foreign ones alone.
func TestGenAndDrift(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "generated")
	common := []string{"--spec", project, "--out", dir, "--templates", templates}
	gen, drift := append([]string{"gen"}, common...), append([]string{"drift"}, common...)
	if out := fitzgen(t, exitDrift, drift...); !strings.Contains(out, "missing: go/wire/lease.go") {
		t.Errorf("drift of an empty folder:\n%s", out)
	}
	fitzgen(t, exitOK, gen...)
	fresh := files(t, dir)
	fitzgen(t, exitOK, drift...)
	if out := fitzgen(t, exitOK, gen...); out != "" {
		t.Errorf("a second run wrote\n%s", out)
	}
	change := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	change("go/wire/lease.go", "package wire\n")
	change("go/wire/foreign.go", "package wire\n")
	if err := os.Remove(filepath.Join(dir, "docs/limits.md")); err != nil {
		t.Fatal(err)
	}
	if out := fitzgen(t, exitDrift, drift...); out != "missing: docs/limits.md\nextra: go/wire/foreign.go\nchanged: go/wire/lease.go\n" {
		t.Errorf("drift:\n%s", out)
	}
	if out := fitzgen(t, exitOK, gen...); out != "written: docs/limits.md\nwritten: go/wire/lease.go\n" {
		t.Errorf("gen:\n%s", out)
	}
	if out := fitzgen(t, exitDrift, drift...); out != "extra: go/wire/foreign.go\n" {
		t.Errorf("drift:\n%s", out)
	}
	for name, content := range files(t, dir) {
		if name != "go/wire/foreign.go" && fresh[name] != content {
			t.Errorf("%s differs", name)
		}
	}
}

// A specification with findings, and one that cannot be read, write nothing at all.
func TestInvalidSpecWritesNothing(t *testing.T) {
	broken := t.TempDir()
	if err := os.CopyFS(broken, os.DirFS(filepath.Dir(project))); err != nil {
		t.Fatal(err)
	}
	lease := filepath.Join(broken, "domains/lease.yaml")
	text, err := os.ReadFile(lease)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lease, bytes.Replace(text, []byte("bound: route_bytes_max"), []byte("bound: no_such_bound"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "generated")
	args := []string{"--spec", filepath.Join(broken, "fitz.yaml"), "--out", dir, "--templates", templates}
	if out := fitzgen(t, exitFindings, append([]string{"gen"}, args...)...); !strings.Contains(out, "no_such_bound") {
		t.Errorf("findings:\n%s", out)
	}
	fitzgen(t, exitFindings, append([]string{"drift"}, args...)...)
	fitzgen(t, exitFailure, "gen", "--spec", filepath.Join(broken, "nowhere.yaml"), "--out", dir, "--templates", templates)
	fitzgen(t, exitFailure, "gen", "--spec", project, "--out", dir, "--templates", filepath.Join(broken, "nowhere"))
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("files were written: %v", files(t, dir))
	}
}

// A manifest that names a file outside the output folder is refused, so that nothing outside is ever removed.
func TestManifestCannotReachOutside(t *testing.T) {
	parent := t.TempDir()
	dir, victim := filepath.Join(parent, "generated"), filepath.Join(parent, "victim")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{victim: "kept", filepath.Join(dir, "MANIFEST.gen.json"): `{"files":[{"path":"../victim"}]}`} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fitzgen(t, exitFailure, "gen", "--spec", project, "--out", dir, "--templates", templates)
	if got := files(t, parent); got["victim"] != "kept" || len(got) != 2 {
		t.Errorf("%v", got)
	}
}
