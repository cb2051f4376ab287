package emit

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/overlay"
)

// otherDomains is the specification with a sketch of every other domain.
func otherDomains(t *testing.T) []File {
	t.Helper()
	fsys, err := overlay.Lay(os.DirFS(root), "spec", "fixtures/other-domains")
	if err != nil {
		t.Fatal(err)
	}
	spec, list, err := load.FS(fsys, "spec/fitz.yaml")
	if err != nil || len(list) > 0 {
		t.Fatalf("%v\n%v", err, list)
	}
	return generate(t, spec)
}

// overlayTree writes files to a folder and makes the description that lets the Go tool see them in the place of the generated tree.
func overlayTree(t *testing.T, files []File) (description, dir string) {
	t.Helper()
	dir = t.TempDir()
	write(t, dir, files)
	generated, err := filepath.Abs(filepath.Join(root, "generated"))
	if err != nil {
		t.Fatal(err)
	}
	present, err := ReadManifest(os.DirFS(generated))
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, e := range present.Files {
		replace[filepath.Join(generated, filepath.FromSlash(e.Path))] = "" // gone, unless it is made again
	}
	for _, f := range files {
		replace[filepath.Join(generated, filepath.FromSlash(f.Path))] = filepath.Join(dir, filepath.FromSlash(f.Path))
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(name, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return name, dir
}

// What is generated for all seven domains compiles, and its codecs pass the properties that those of the project pass: unions, parts with
// lengths, every form of lists, optional fields at the end, numbers that mean two things.
func TestOtherDomains(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a tree of its own")
	}
	tree, dir := overlayTree(t, otherDomains(t))
	goTool(t, "build", "-overlay", tree, "./generated/go/bounds", "./generated/go/client", "./generated/go/codec", "./generated/go/dispatch", "./generated/go/link", "./generated/go/metrics",
		"./generated/go/pattern", "./generated/go/route", "./generated/go/settings", "./generated/go/wire")
	goTool(t, "test", "-overlay", tree, "-run", "^(TestRoundTrip|TestOwnedIsACopy|TestAnnotateAgreesWithDecoders|TestTruncation|TestExtension|TestBounds|TestAllocations|TestDocumentedExamples)$",
		"./codegen/emit/wiretest", "-rapid.nofailfile",
		"-messages", filepath.Join(dir, "docs", "messages.md"))
	goTool(t, "test", "-overlay", tree, "-run", "^(TestGoDecodes|TestGoEncodes|TestGoCut|TestGoRoutes|TestCounts)$", "./conformance/vectors",
		"-vectors", filepath.Join(dir, "vectors"), "-spec", mergedSpec(t))
	cmd := exec.Command("go", "vet", "-overlay", tree, "./codegen/emit/dispatchtest")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("not enough arguments in call to dispatch.New")) {
		t.Errorf("a domain without a handler compiles: %v\n%s", err, out)
	}
}

// mergedSpec writes the specification with all domains to a folder, for a program that reads it from there.
func mergedSpec(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, from := range []string{"spec", "spec/fixtures/other-domains"} {
		names, err := filepath.Glob(filepath.Join(root, from, "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		domains, err := filepath.Glob(filepath.Join(root, from, "domains", "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range append(names, domains...) {
			inside, err := filepath.Rel(filepath.Join(root, from), name)
			if err != nil {
				t.Fatal(err)
			}
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			target := filepath.Join(dir, inside)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(target, content, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// goTool runs the Go tool in the root of the source tree.
func goTool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go %v: %v\n%s", args, err, out)
	}
}
