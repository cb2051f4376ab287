package overlay

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

func base() *FS {
	return New(fstest.MapFS{
		"spec/a.yaml":   {Data: []byte("one\ntwo\nthree\n")},
		"spec/d/b.yaml": {Data: []byte("b\n")},
	})
}

func names(t *testing.T, fsys fs.FS, dir string) string {
	t.Helper()
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}

func TestFoldersShowBothLayers(t *testing.T) {
	o := base()
	o.Put("spec/c.yaml", nil)
	o.Put("spec/e/f.yaml", nil)
	o.Remove("spec/a.yaml")
	if got := names(t, o, "spec"); got != "c.yaml d/ e/" {
		t.Errorf("spec holds %s", got)
	}
	if got := names(t, o, "spec/d/../e"); got != "f.yaml" {
		t.Errorf("spec/e holds %s", got)
	}
	if _, err := fs.ReadFile(o, "spec/a.yaml"); err == nil {
		t.Error("a removed file can be read")
	}
	if _, err := fs.ReadDir(o, "spec/none"); err == nil {
		t.Error("a missing folder can be listed")
	}
}

func TestEdit(t *testing.T) {
	for name, test := range map[string]struct{ edits, file, want string }{
		"replace":  {"@ a.yaml\n- two\n+ 2\n+ 2b\n", "a.yaml", "one\n2\n2b\nthree\n"},
		"delete":   {"@ a.yaml\n- one\n- two\n", "a.yaml", "three\n"},
		"twice":    {"@ a.yaml\n- one\n+ 1\n- three\n+ 3\n", "a.yaml", "1\ntwo\n3\n"},
		"append":   {"@ a.yaml\n+ four\n", "a.yaml", "one\ntwo\nthree\nfour\n"},
		"new":      {"# why\n@ n.yaml\n+ x\n", "n.yaml", "x\n"},
		"repeated": {"@ n.yaml\n+*3 x\n", "n.yaml", "x\nx\nx\n"},
		"indented": {"@ n.yaml\n+   x\n", "n.yaml", "  x\n"},
	} {
		t.Run(name, func(t *testing.T) {
			o := base()
			if err := o.Edit("spec", test.edits); err != nil {
				t.Fatal(err)
			}
			got, err := fs.ReadFile(o, "spec/"+test.file)
			if err != nil || string(got) != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestEditRefusesWhatDoesNotFit(t *testing.T) {
	for _, edits := range []string{
		"@ a.yaml\n- four\n", "@ a.yaml\n- ne\n", "@ none.yaml\n- one\n", "? a\n", "@ a.yaml\n+*x y\n",
	} {
		if err := base().Edit("spec", edits); err == nil {
			t.Errorf("%q was applied", edits)
		}
	}
}
