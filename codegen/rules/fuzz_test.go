package rules

import (
	"os"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/overlay"
)

// FuzzCheck gives the rules whatever the loader makes of any bytes in the place of one file: the answer is findings, never a panic or a hang.
func FuzzCheck(f *testing.F) {
	const dir = specDir + "/badspecs/_base"
	base := overlay.New(nil)
	if err := base.PutDir(".", load.Disk(), dir); err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"domains/door.yaml", "domains/line.yaml", "wire.yaml", "errors.yaml", "bounds.yaml", "routes.yaml", "invariants.yaml"} {
		text, err := os.ReadFile(dir + "/spec/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(name, text)
	}
	f.Add("domains/door.yaml", []byte("domain: door\nstructs: {a: {fields: [{name: b, type: list<a>}]}}\nunions: {c: {variants: {d: {fields: [{name: e, type: c, length: u9}]}}}}\n"))
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		if strings.Contains(name, "\x00") {
			return
		}
		o := overlay.New(base)
		o.Put("spec/"+name, text)
		spec, _, err := load.FS(o, "spec/toy.yaml")
		if err != nil {
			return
		}
		if _, err := Check(o, spec); err != nil {
			t.Error(err)
		}
	})
}
