package rules

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/codegen/overlay"
)

const specDir = "../../spec"

// The specification of the project has no finding.
func TestProject(t *testing.T) {
	spec, list, err := load.Load(specDir + "/fitz.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := Check(load.Disk(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if list = append(list, more...); len(list) > 0 {
		t.Errorf("findings:\n%s", list)
	}
}

// The language can say what the other six domains need: a sketch of each has no finding.
func TestOtherDomains(t *testing.T) {
	fsys, err := overlay.Lay(load.Disk(), specDir, "fixtures/other-domains")
	if err != nil {
		t.Fatal(err)
	}
	spec, list, err := load.FS(fsys, specDir+"/fitz.yaml")
	if err != nil {
		t.Fatal(err)
	}
	more, err := Check(fsys, spec)
	if err != nil {
		t.Fatal(err)
	}
	if list = append(list, more...); len(list) > 0 {
		t.Errorf("findings:\n%s", list)
	}
	if len(spec.Domains) != 8 {
		t.Fatalf("%d domains", len(spec.Domains))
	}
	forms := map[string]bool{}
	presences := map[model.PresenceKind]bool{}
	for _, d := range spec.Domains {
		for _, f := range d.AllFields() {
			forms[f.Form], presences[f.Presence.Kind] = true, true
		}
	}
	if !forms["flagged"] || !presences[model.TailFlagged] || len(spec.Domain("stream").Unions) == 0 {
		t.Errorf("forms %v, presences %v", forms, presences)
	}
	if op := spec.Domain("notice").Operation("publish"); !op.NoReply {
		t.Error("PUBLISH has a reply")
	}
	if op := spec.Domain("rpc").Operation("request"); op.AnsweredBy != "response" || !spec.Form(op.Envelope).Carried {
		t.Errorf("RPC request: %+v", op)
	}
}

// The first line of every spec file tells editors its schema.
func TestEditorsFindTheSchema(t *testing.T) {
	first := regexp.MustCompile(`^# yaml-language-server: \$schema=(\S+)\n`)
	files := map[string]string{"fitz": "index"}
	err := filepath.WalkDir(specDir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "badspecs" {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".yaml" {
			return nil
		}
		kind := strings.TrimSuffix(d.Name(), ".yaml")
		if filepath.Base(filepath.Dir(name)) == "domains" {
			kind = "domain"
		}
		if other, ok := files[kind]; ok {
			kind = other
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		m := first.FindSubmatch(text)
		if m == nil || filepath.Join(filepath.Dir(name), string(m[1])) != filepath.Join(specDir, "schema", kind+".schema.json") {
			t.Errorf("%s does not start with the line of its schema: %q", name, m)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every rule says what it is for, once.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	id := regexp.MustCompile(`^[A-Z]+(_[A-Z]+)*$`)
	for _, r := range All() {
		if !id.MatchString(r.ID) || seen[r.ID] || !strings.HasSuffix(r.Purpose, ".") || r.check == nil {
			t.Errorf("rule %+v", r)
		}
		seen[r.ID] = true
	}
}

// A rule looks at whatever the loader could make of broken files and never fails on it: an empty specification has findings, not a panic.
func TestRulesTakeIncompleteSpecs(t *testing.T) {
	list, err := Check(load.Disk(), &model.Spec{Domains: []*model.Domain{{Operations: []*model.Operation{{}}, Messages: []*model.Message{{}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Error("no findings")
	}
}

// Structs that contain each other many times over, in a circle or not, cost no more than their number.
func TestNestedStructsAreCheap(t *testing.T) {
	for name, circle := range map[string]bool{"circle": true, "no circle": false} {
		t.Run(name, func(t *testing.T) {
			const depth = 60
			d := &model.Domain{}
			for i := range depth {
				next := fmt.Sprintf("s%d", i+1)
				if i == depth-1 {
					next = map[bool]string{true: "s0", false: "u8"}[circle]
				}
				twice := []*model.Field{{Named: model.Named{Name: "a"}, Type: next}, {Named: model.Named{Name: "b"}, Type: next}}
				d.Structs = append(d.Structs, &model.Struct{Named: model.Named{Name: fmt.Sprintf("s%d", i)}, Fields: twice})
			}
			outer := []*model.Field{{Named: model.Named{Name: "x"}, Type: "s0"}, {Named: model.Named{Name: "y"}, Type: "list<s0>", Elem: "s0", Form: "counted", Count: "u32"}}
			d.Operations = []*model.Operation{{Request: outer, Reply: outer, ReadOnly: true}}
			spec := &model.Spec{Domains: []*model.Domain{d}, Bounds: []*model.Bound{{Named: model.Named{Name: "max"}, Default: 1 << 16}}}
			spec.Wire.Framing.LengthMax, spec.Wire.Framing.ReplyMax = "max", "max"
			list, err := Check(load.Disk(), spec)
			if err != nil {
				t.Fatal(err)
			}
			if list.Has("STRUCT_CYCLE") != circle {
				t.Errorf("findings:\n%s", list)
			}
		})
	}
}
