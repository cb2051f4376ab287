package load

import (
	"os"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/codegen/overlay"
)

// FuzzLoad gives the loader any bytes in the place of one file: the answer is findings or an error, never a panic, and the model can be read.
func FuzzLoad(f *testing.F) {
	const dir = "../../spec/badspecs/_base/spec/"
	for _, name := range []string{"toy.yaml", "wire.yaml", "domains/door.yaml", "domains/line.yaml", "routes.yaml", "broker.yaml", "clauses.yaml"} {
		text, err := os.ReadFile(dir + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(name, text)
	}
	for _, text := range []string{"", "a", "&a [*a]", "<<: {a: b}", "? [a]\n: b", "a: 010", "a: !!int x", "\x00", "{", "- - - -", "domains: 3", "files: {wire: 3, domains: [a, [b], {c: d}]}"} {
		f.Add("toy.yaml", []byte(text))
		f.Add("domains/door.yaml", []byte(text))
	}
	base := overlay.New(nil)
	if err := base.PutDir(".", Disk(), dir); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		if strings.ContainsAny(name, "\x00") {
			return
		}
		o := overlay.New(base)
		o.Put(name, text)
		spec, list, err := FS(o, "toy.yaml")
		if err != nil {
			return
		}
		for _, d := range spec.Domains {
			d.AllFields()
		}
		for _, finding := range list {
			if finding.Pos.File == "" || finding.Problem == "" || finding.Mend == "" {
				t.Errorf("incomplete finding %+v", finding)
			}
		}
	})
}
