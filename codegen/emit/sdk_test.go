package emit

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/sdk-templates/go/fitz"
)

// sdkFile returns a generated file of the Go SDK.
func sdkFile(t *testing.T, files []File, name string) string {
	t.Helper()
	i := slices.IndexFunc(files, func(f File) bool { return f.Path == "go/fitz/"+name })
	if i < 0 {
		t.Fatalf("no file %s", name)
	}
	return string(files[i].Content)
}

// An operation that is added to the specification has a documented method in the SDK, with its routes checked, without a change by hand.
func TestSDKNewOperation(t *testing.T) {
	spec := loadSpec(t)
	i := slices.IndexFunc(spec.Domains, func(d *model.Domain) bool { return d.Name == "lease" })
	query := slices.IndexFunc(spec.Domains[i].Operations, func(o *model.Operation) bool { return o.Name == "query" })
	added := *spec.Domains[i].Operations[query]
	added.Name, added.Number, added.Doc = "inspect", 404, "Look at one route."
	spec.Domains[i].Operations = append(spec.Domains[i].Operations, &added)
	files, err := sdkFiles(spec)
	if err != nil {
		t.Fatal(err)
	}
	text := sdkFile(t, files, "lease.go")
	for _, want := range []string{
		"// Inspect: look at one route.",
		"func (l *LeaseClient) Inspect(ctx context.Context, request *wire.LeaseInspectRequest) (reply wire.LeaseInspectReply, err error) {",
		"route.Lease.ParseRoute(text)",
		`l.client.read(ctx, &op, text, value, &reply)`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("lease.go lacks %q", want)
		}
	}
}

// Every code and condition has a name and a variable, every reason a constant (errors.md sections 3 and 4).
func TestSDKCodes(t *testing.T) {
	spec := loadSpec(t)
	files, err := sdkFiles(spec)
	if err != nil {
		t.Fatal(err)
	}
	text := sdkFile(t, files, "errors.go")
	p, err := resolve(spec)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, e := range spec.Errors {
		name := p.names.exported(strings.ToLower(e.Name))
		want = append(want, "sentinel(Code"+name+")", `"`+dotted(e.Name)+`"`)
	}
	for _, l := range spec.Local {
		want = append(want, "sentinel(Code"+p.names.exported(l.Name)+")", `"`+l.Name+`"`)
		for _, r := range l.Reasons {
			want = append(want, `= "`+r+`"`)
		}
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("errors.go lacks %s", w)
		}
	}
}

// Every class is a constant with its place in the tree, and every code has one (errors.md section 3).
func TestSDKClasses(t *testing.T) {
	spec := loadSpec(t)
	files, err := sdkFiles(spec)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(sdkFile(t, files, "errors.go")), " ")
	p, err := resolve(spec)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, c := range spec.Classes {
		want = append(want, "Class"+c.Name+` Class = "`+c.Name+`"`)
		if c.Parent != "" {
			want = append(want, "Class"+c.Name+": Class"+c.Parent+",")
		}
	}
	for _, e := range spec.Errors {
		want = append(want, "Code"+p.names.exported(strings.ToLower(e.Name))+": Class"+e.Class+",")
	}
	for _, l := range spec.Local {
		want = append(want, "Code"+p.names.exported(l.Name)+": Class"+l.Class+",")
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("errors.go lacks %s", w)
		}
	}
}

// Names of telemetry are constants, each different from the others of its kind, and no template types one by hand.
func TestSDKTelemetryNames(t *testing.T) {
	spec := loadSpec(t)
	files, err := sdkFiles(spec)
	if err != nil {
		t.Fatal(err)
	}
	p, err := resolve(spec)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(sdkFile(t, files, "telemetry.go")), " ")
	typed := templateTexts(t)
	names := &spec.SDK.Telemetry
	for prefix, list := range map[string][]*model.TelemetryName{
		"Op": names.Operations, "Attribute": names.Attributes, "Metric": names.Metrics, "Event": names.Events,
	} {
		seen := map[string]bool{}
		for _, n := range list {
			if want := prefix + p.names.exported(n.Name) + ` = "` + n.Text + `"`; !strings.Contains(text, want) {
				t.Errorf("telemetry.go lacks %s", want)
			}
			if seen[n.Text] {
				t.Errorf("%s %s twice", prefix, n.Text)
			}
			seen[n.Text] = true
			if strings.Contains(n.Text, ".") && strings.Contains(typed, `"`+n.Text+`"`) {
				t.Errorf("a template has %q", n.Text)
			}
		}
	}
	for _, n := range slices.Concat(names.Events, names.Metrics[1:]) {
		if !strings.HasPrefix(n.Text, names.System+".") {
			t.Errorf("%s is not a name of %s", n.Text, names.System)
		}
	}
}

// templateTexts is the text of every template, without what it hands to functions of the generator.
func templateTexts(t *testing.T) string {
	t.Helper()
	names, err := fs.Glob(fitz.Templates, "*.go.tmpl")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(fitz.Templates, name)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(regexp.MustCompile(`(?s)\{\{.*?\}\}`).ReplaceAllString(string(text), ""))
	}
	return all.String()
}

// A specification without what the shell stands on is refused with its name.
func TestSDKMissingParts(t *testing.T) {
	spec := loadSpec(t)
	spec.Local = slices.DeleteFunc(spec.Local, func(l *model.LocalError) bool { return l.Name == "lease.lost" })
	if _, err := sdkFiles(spec); err == nil || !strings.Contains(err.Error(), "lease.lost") {
		t.Errorf("%v", err)
	}
}
