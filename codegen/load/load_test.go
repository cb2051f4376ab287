package load

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/codegen/overlay"
)

const toyDir = "../../spec/badspecs/_base"

// toy is the base of the fixtures, alone in a file system.
func toy(t *testing.T) *overlay.FS {
	t.Helper()
	o := overlay.New(nil)
	if err := o.PutDir(".", Disk(), toyDir); err != nil {
		t.Fatal(err)
	}
	return o
}

func loadToy(t *testing.T, fsys fs.FS) *model.Spec {
	t.Helper()
	spec, list, err := FS(fsys, "spec/toy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) > 0 {
		t.Fatalf("findings:\n%s", list)
	}
	return spec
}

// The specification of the project itself loads without a finding.
func TestLoadProject(t *testing.T) {
	spec, list, err := Load("../../spec/fitz.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) > 0 {
		t.Fatalf("findings:\n%s", list)
	}
	if spec.Fingerprint == 0 || len(spec.Domains) < 2 || spec.Domain("lease").Operation("acquire") == nil {
		t.Fatalf("incomplete model: %+v", spec)
	}
}

// Everything that the base says arrives in the model.
func TestModel(t *testing.T) {
	spec := loadToy(t, toy(t))
	door := spec.Domain("door")
	unlock, list, note := door.Operation("unlock"), door.Operation("list"), door.Operation("note")
	field := func(fields []*model.Field, name string) *model.Field {
		for _, f := range fields {
			if f.Name == name {
				return f
			}
		}
		t.Fatalf("no field %s", name)
		return nil
	}
	count, patience, items := field(unlock.Request, "count"), field(unlock.Request, "patience"), field(list.Reply, "items")
	urgent, extras := field(note.Request, "urgent"), field(spec.Domain("line").Message("hello").Fields, "extras")
	for what, ok := range map[string]bool{
		"protocol":          spec.Protocol == "toy" && spec.Version == "1.2.3" && spec.Dir == "spec" && spec.Tree == ".." && spec.Reference == "../reference",
		"framing":           spec.Wire.Framing.Escape == 255 && spec.Wire.Framing.WideType == "u16" && spec.Wire.Framing.ReplyMax == "reply_max" && spec.Wire.Framing.RecordsMax == "records_max",
		"label":             spec.Wire.LabelRequest == "mark" && spec.Wire.LabelReply == "marked",
		"envelope":          spec.Envelope("coded").Status == 1 && len(spec.Envelope("coded").Fields) == 2 && spec.Envelope("clauses") == nil,
		"answer form":       spec.Form("coded").IngressLabelled == "coded" && spec.Form("carried").IngressLabelled == "coded" && spec.Form("carried").Carried,
		"capability":        spec.Capability("more").Bit == 1 && !spec.Capability("more").Announced && spec.Capability("more").WaitsFor == "more work",
		"close reason":      spec.CloseReason("too_much").Text == "too much: " && spec.CloseReason("too_much").Detail && spec.CloseReason("too_much").WebSocket == 1013,
		"bound":             spec.Bound("frame_max").OperatorMayChange && spec.Bound("frame_max").Default == 1<<20 && spec.Bound("body_max").Minus[0] == "route" && spec.Bound("name_max").Codes[0] == "DOOR_BAD",
		"error":             spec.Error("DOOR_FULL").Code == 202 && spec.Error("DOOR_FULL").Outcome == "unknown" && spec.Class("Lost").Parent == "ToyError" && spec.Local[0].Reasons[1] == "broken",
		"code range":        spec.CodeRanges[1].Name == "door" && spec.CodeRanges[1].From == 200 && spec.CodeRanges[1].To == 299,
		"scheme":            spec.Scheme("door").Depth == 2 && spec.Scheme("free").Depth == 0 && spec.Scheme("door").Reserved[0] == "__all__" && spec.Scheme("door").ReservedFrom == 1,
		"domain":            door.Number == 2 && spec.Domain("line").Extra[0].To == 249 && spec.Domain("line").Faults.Malformed == "close:bad_record",
		"faults":            unlock.Faults.Malformed == "DOOR_BAD" && unlock.Faults.NotAccepted == "DOOR_FULL",
		"access":            unlock.Access.On == "route" && unlock.Access.As == "exact" && unlock.Access.Level == "write",
		"names":             unlock.SDKName == "turn" && list.SDKName == "list",
		"deferred":          unlock.Deferred.After[0] == "ajar" && unlock.Deferred.Cancellable,
		"paged":             list.Paged.By == "place" && list.ReadOnly,
		"number":            count.Min.Value.Int64() == 1 && count.Max.Value.Int64() == 9 && count.Above == "refuse" && count.Code == "DOOR_BAD",
		"tail":              patience.Presence.Kind == model.Tail && patience.Default.Value.Sign() == 0 && patience.Unit == "s",
		"tail flag":         urgent.Presence.Kind == model.TailFlagged,
		"list":              items.Elem == "item" && items.Form == "counted" && items.Count == "u16" && items.Bytes == "page_max",
		"length":            extras.Length == "u16" && extras.LaterIgnored && extras.Presence.Kind == model.PresentWhen && extras.Presence.Bit == "marks",
		"no reply":          note.NoReply && note.AnsweredBy == "echo" && !unlock.NoReply,
		"message":           spec.Domain("line").Message("login").Malformed == "close:too_much" && spec.Domain("line").Message("hello").LaterIgnored,
		"union":             door.Union("key").Tag == "u8" && door.Union("key").Variants[1].Value == 1,
		"reasons":           door.Reasons[0].Code == "DOOR_BAD" && door.Reasons[0].Values[0].Text == "locked",
		"sdk":               spec.SDK.URLEnv == "TOY_URL" && spec.SDK.CommandLine[0].Env == "TOY_TOKEN" && spec.SDK.Packages[0].Values[0].Key == "module" && len(spec.SDK.Defaults[2].Extra) == 6,
		"broker":            spec.Broker.Settings[0].Aliases[0] == "TOY_OLD_LEVEL" && spec.Broker.Aliases[1].Secret && spec.Broker.AnonymousFamily == 1 && spec.Broker.HelloDelayMax == 10,
		"metrics":           spec.Metrics[0].Metrics[1].Buckets[0] == 0.1 && spec.Metrics[0].Metrics[0].Labels[0] == "operation",
		"invariants":        spec.Invariants[0].Checks[1].Target == "lib TestBounded" && spec.Invariants[1].WaitsFor == "streams",
		"clauses":           spec.Clauses[0].Proofs[1].Kind == "test" && spec.Clauses[2].Later == "more work",
		"place of a key":    count.Where("max").Line == count.Pos.Line && count.Where("max").Col > count.Pos.Col && count.Where("none") == count.Pos,
		"place of an item":  unlock.Where("errors/1").Col > unlock.Where("errors/0").Col,
		"place of the file": unlock.Pos.File == "spec/domains/door.yaml",
	} {
		if !ok {
			t.Errorf("%s is wrong in the model", what)
		}
	}
}

// A default may be the name of a bound or of a value of the enumeration.
func TestDefaultsByName(t *testing.T) {
	o := toy(t)
	err := o.Edit(".", "@ spec/domains/door.yaml\n-       - {name: patience, type: u32, unit: s, presence: tail, default: 0, doc: How long.}\n+       - {name: patience, type: state, presence: tail, default: ajar, doc: How.}\n")
	if err != nil {
		t.Fatal(err)
	}
	d := loadToy(t, o).Domain("door")
	last := d.Operation("unlock").Request[3].Default
	if last.Enum != "ajar" || last.Value.Int64() != 1 || last.Bound != "" {
		t.Errorf("default %+v", last)
	}
	if limit := d.Operation("list").Request[2].Default; limit.Bound != "doors_max" || limit.Value != nil {
		t.Errorf("default %+v", limit)
	}
}

// wire.md section 5: the fingerprint sees what changes bytes or behaviour, and nothing else.
func TestFingerprint(t *testing.T) {
	before := loadToy(t, toy(t)).Fingerprint
	for name, test := range map[string]struct {
		edit string
		same bool
	}{
		"comment":        {"@ spec/wire.yaml\n- version: 1\n+ version: 1 # of the hello\n", true},
		"doc":            {"@ spec/toy.yaml\n- doc: A small protocol that breaks no rule.\n+ doc: Another text.\n", true},
		"order of keys":  {"@ spec/sdk.yaml\n- acronyms: [id]\n- environment: {url: TOY_URL, doc: Address., command_line: {token: {name: TOY_TOKEN, doc: Token.}}}\n+ environment: {doc: Address., command_line: {token: {doc: Token., name: TOY_TOKEN}}, url: TOY_URL}\n+ acronyms: [id]\n", true},
		"quotes":         {"@ spec/toy.yaml\n- title: Toy\n+ title: \"Toy\"\n", true},
		"clauses":        {"@ spec/clauses.yaml\n-   T-03: {later: more work}\n+   T-03: {later: much more work}\n", true},
		"order of items": {"@ spec/broker.yaml\n-   level: {type: enum, values: [low, high], default: low, flag: level, env: TOY_LEVEL, aliases: [TOY_OLD_LEVEL], doc: How much.}\n+   level: {type: enum, values: [high, low], default: low, flag: level, env: TOY_LEVEL, aliases: [TOY_OLD_LEVEL], doc: How much.}\n", false},
		"number":         {"@ spec/wire.yaml\n- version: 1\n+ version: 2\n", false},
		"version":        {"@ spec/toy.yaml\n- version: 1.2.3\n+ version: 1.2.4\n", false},
		"text":           {"@ spec/wire.yaml\n-   not_here: {text: not here, clause: T-04}\n+   not_here: {text: elsewhere, clause: T-04}\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := toy(t)
			if err := o.Edit(".", test.edit); err != nil {
				t.Fatal(err)
			}
			if got := loadToy(t, o).Fingerprint; (got == before) != test.same {
				t.Errorf("fingerprint %x, before %x, want the same: %v", got, before, test.same)
			}
		})
	}
}

// The canonical form byte by byte.
func TestCanonical(t *testing.T) {
	index := "files: {wire: wire.yaml}\nb: [1, 0.000002, true, 1.50]\na: \"q\\\"b\\\\s\\x01é\"\ndoc: gone\nnested: {because: gone, B: 1, a: 2}\n"
	l := &loader{dir: ".", index: &source{path: "i", kind: "index"}, files: map[string]*source{}}
	l.index.parse([]byte(index), &l.list)
	wire := &source{path: "wire.yaml", kind: "wire"}
	wire.parse([]byte("version: 1\nclauses: [X-01]\n"), &l.list)
	for _, kind := range kinds {
		l.files[kind] = &source{}
	}
	l.files["wire"] = wire
	want := `{"a":"q\"b\\s\u0001é","b":[1,0.000002,true,1.5],"files":{"wire":{"version":1}},"nested":{"B":1,"a":2}}`
	if got := string(l.canonical()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// One run reports every mistake, wherever it is.
func TestAllMistakesInOneRun(t *testing.T) {
	o := toy(t)
	edit := "@ spec/wire.yaml\n- version: 1\n+ version: 010\n+ version: 2\n@ spec/sdk.yaml\n- acronyms: [id]\n+ acronyms: &a {id: yes}\n@ spec/broker.yaml\n+ zone: 3\n"
	if err := o.Edit(".", edit); err != nil {
		t.Fatal(err)
	}
	_, list, err := FS(o, "spec/toy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{YAMLNumber, YAMLDuplicate, YAMLAnchor, YAMLBool, Schema} {
		if !list.Has(rule) {
			t.Errorf("no %s in\n%s", rule, list)
		}
	}
}

// A violation of a schema points at the very value, through the JSON pointer of the schema library.
func TestPlaceOfViolation(t *testing.T) {
	list, err := File("bounds", "b.yaml", []byte("bounds:\n  x_max:\n    {default: 1, unit: bytes, scope: s, chosen_by: nobody, reaction: none, beyond: b, because: c}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "b.yaml:3:52: SCHEMA: \"nobody\" is not one of the possible values; use one of peer, local\n"
	if list.String() != want {
		t.Errorf("got  %swant %s", list, want)
	}
}

// A missing index is a failure of the call; a folder in the place of a file is one of the machine.
func TestToolFailures(t *testing.T) {
	if _, _, err := FS(fstest.MapFS{}, "toy.yaml"); err == nil {
		t.Error("a missing index is no error")
	}
	if _, _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder was read as a file")
	}
	if _, err := File("poem", "p.yaml", []byte("a: b\n")); err == nil || !strings.Contains(err.Error(), "poem") {
		t.Errorf("unknown kind: %v", err)
	}
}

// Aliases never make the loader expand anything: the schema does not look at a file with one.
func TestAliasesAreNotExpanded(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		bomb += string(rune('b'+i)) + ": &" + string(rune('b'+i)) + " [" + strings.Repeat("*"+string(rune('a'+i))+", ", 7) + "*" + string(rune('a'+i)) + "]\n"
	}
	list, err := File("sdk", "s.yaml", []byte(bomb))
	if err != nil {
		t.Fatal(err)
	}
	if !list.Has(YAMLAlias) || !list.Has(YAMLAnchor) || list.Has(Schema) {
		t.Errorf("findings:\n%s", list)
	}
}
