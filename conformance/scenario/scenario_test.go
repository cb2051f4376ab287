package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var specFiles = os.DirFS("../../spec")

var update = flag.Bool("update", false, "write conformance/scenarios/schema.json")

func specCatalog(t testing.TB) *Catalog {
	t.Helper()
	c, err := LoadCatalog(specFiles)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The schema that editors read is the one that the loader uses.
func TestSchemaFile(t *testing.T) {
	name := filepath.Join("..", "scenarios", "schema.json")
	if *update {
		if err := os.WriteFile(name, Schema(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != string(Schema()) {
		t.Error("schema.json is old; go test ./conformance/scenario -update writes it")
	}
}

// Every scenario of the tree is right.
func TestScenariosLoad(t *testing.T) {
	scenarios, mistakes, err := Load(os.DirFS("../scenarios"), specCatalog(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mistakes {
		t.Error(m)
	}
	if len(scenarios) < 3 {
		t.Errorf("%d scenarios", len(scenarios))
	}
}

// Every action has an example in the reference of the format, and the examples are right by the schema and the checks.
func TestReferenceShowsEveryAction(t *testing.T) {
	text, err := os.ReadFile("../scenarios/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var steps strings.Builder
	for _, block := range blocks(string(text)) {
		if strings.HasPrefix(block, "- ") {
			steps.WriteString(block)
		}
	}
	for _, name := range Actions() {
		if !strings.Contains(steps.String(), "\n- "+name+": ") && !strings.HasPrefix(steps.String(), "- "+name+": ") {
			t.Errorf("no example of %s", name)
		}
	}
	for _, op := range Operators() {
		if !strings.Contains(string(text), op+":") {
			t.Errorf("no example of %s", op)
		}
	}
	head := "id: EX\ntitle: t\nproves: [OB-10]\nsubject: client\ntime: virtual\nbrokers: {b2: {}}\nvars: {R: r, o1: 1}\nsteps:\n"
	head = strings.Replace(head, "EX", "EX-1", 1)
	prelude := "- link: c0\n- do: obs.open\n  as: o1\n"
	_, mistakes := Parse("EX-1.yaml", []byte(head+prelude+steps.String()), specCatalog(t))
	for _, m := range mistakes {
		t.Error(m)
	}
}

// blocks returns the yaml blocks of a page.
func blocks(page string) []string {
	var out []string
	for i, part := range strings.Split(page, "```") {
		if body, ok := strings.CutPrefix(part, "yaml\n"); ok && i%2 == 1 {
			out = append(out, body)
		}
	}
	return out
}
