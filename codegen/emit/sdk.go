package emit

import (
	"bytes"
	"fmt"
	"go/format"
	"io/fs"
	"slices"
	"strings"
	"text/template"

	"github.com/dave/jennifer/jen"

	"github.com/fitzwire/fitz/codegen/model"
	"github.com/fitzwire/fitz/sdk-templates/go/fitz"
)

func init() { register("go sdk", sdkFiles) }

// sdkPath is the import path of the Go SDK.
const sdkPath = generatedPath + "fitz"

// defaultPrefix begins the names of the defaults in the SDK.
const defaultPrefix = "Default"

// sdkFiles makes the Go SDK: the protocol and the defaults as code, and the typed shell of the runtimes from templates.
func sdkFiles(spec *model.Spec) ([]File, error) {
	p, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	roles, err := findRoles(p)
	if err != nil {
		return nil, err
	}
	file := func(name string) clientGen {
		g := clientGen{messageGen{p, newGoFile(spec, sdkPath, name)}, roles, defaultPrefix}
		g.f.ImportName(linkPath, "link")
		return g
	}
	protocol, defaults := file("protocol.go"), file("defaults.go")
	protocol.protocolValue()
	protocol.classification()
	protocol.controls()
	if err := defaults.defaults(); err != nil {
		return nil, err
	}
	defaults.attempts()
	defaults.commandLine()
	files, err := renderAll(protocol.f, defaults.f)
	if err != nil {
		return nil, err
	}
	shell, err := sdkTemplates(p)
	return append(files, shell...), err
}

// attempts writes what the growing delays say beside their delays.
func (g clientGen) attempts() {
	g.f.Add(doc("How often something is tried, and when the delays begin anew (sdk.yaml)."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, d := range g.SDK.Defaults {
			if n := extra(d, "attempts"); n != "" {
				c.Id(g.defaultName(strings.TrimSuffix(d.Name, "_backoff") + "_attempts")).Op("=").Id(n)
			}
			if ms := extra(d, "reset_after_ms"); ms != "" {
				c.Id(g.defaultName(d.Name+"_reset")).Op("=").Id(ms).Op("*").Qual("time", "Millisecond")
			}
		}
	})
	g.f.Line()
}

// commandLine writes the names of the environment variables of the command line.
func (g clientGen) commandLine() {
	if len(g.SDK.CommandLine) == 0 {
		return
	}
	g.f.Add(doc("Environment variables of the command line. The SDK does not look at them by itself."))
	g.f.Const().DefsFunc(func(c *jen.Group) {
		for _, v := range g.SDK.CommandLine {
			c.Id("Env" + g.names.exported(v.Name)).Op("=").Lit(v.Env).Comment(remark(lower(v.Doc)))
		}
	})
	g.f.Line()
}

// sdkCode is a code of the registry, or a condition that the SDK finds by itself.
type sdkCode struct {
	Name    string // in Go case, without prefix
	Text    string // lease.held
	Retry   string
	Outcome string
	Class   string // in Go case, without prefix
	Doc     string
	Reasons []sdkWord
}

// sdkWord is one member of a list of words.
type sdkWord struct{ Name, Text string }

// sdkData is what the templates of the SDK see.
type sdkData struct {
	*model.Spec
	Codes, Local              []sdkCode
	Retries, Outcomes, States []sdkWord
	LeaseStates               []sdkWord

	p *protocol
}

func newSDKData(p *protocol) *sdkData {
	d := &sdkData{Spec: p.Spec, p: p}
	retries, outcomes := map[string]bool{}, map[string]bool{}
	for _, e := range p.Errors {
		d.Codes = append(d.Codes, sdkCode{Name: p.names.exported(strings.ToLower(e.Name)), Text: dotted(e.Name), Retry: e.Retry, Outcome: e.Outcome, Class: e.Class, Doc: e.Doc})
		retries[e.Retry], outcomes[e.Outcome] = true, true
	}
	for _, l := range p.Local {
		d.Local = append(d.Local, sdkCode{Name: p.names.exported(l.Name), Text: l.Name, Retry: l.Retry, Outcome: l.Outcome, Class: l.Class, Doc: l.Doc, Reasons: d.words(l.Reasons)})
		retries[l.Retry], outcomes[l.Outcome] = true, true
	}
	d.Retries, d.Outcomes = d.set(retries), d.set(outcomes)
	for _, s := range p.SDK.States {
		switch s.Name {
		case "connection":
			d.States = d.words(s.States)
		case "lease":
			d.LeaseStates = d.words(s.States)
		}
	}
	return d
}

func (d *sdkData) words(texts []string) []sdkWord {
	var out []sdkWord
	for _, text := range texts {
		out = append(out, sdkWord{d.p.names.exported(text), text})
	}
	return out
}

func (d *sdkData) set(words map[string]bool) []sdkWord {
	var texts []string
	for w := range words {
		if w != "" {
			texts = append(texts, w)
		}
	}
	slices.Sort(texts)
	return d.words(texts)
}

// Import is the import path of a generated package or of a runtime.
func (d *sdkData) Import(name string) string {
	switch name {
	case "bounds", "wire", "route":
		return generatedPath + name
	}
	return runtimePath(name)
}

// Name is the name of something in Go.
func (d *sdkData) Name(text string) string { return d.p.names.exported(text) }

// DomainName is the name of a domain that the specification has.
func (d *sdkData) DomainName(name string) (string, error) {
	_, err := d.DomainNumber(name)
	return name, err
}

// Schemes are the schemes with the shape of their routes.
func (d *sdkData) Schemes() []string {
	var out []string
	for _, s := range d.Spec.Routes.Schemes {
		shape := fmt.Sprintf("%d segments", s.Depth)
		if s.Depth == 0 {
			shape = "1 to route_segments_max segments"
		}
		out = append(out, s.Name+": routes of "+shape)
	}
	return out
}

// DomainClasses are the classes of refusals that name their domain alone (E-05), by the name of the domain.
func (d *sdkData) DomainClasses() map[string]string {
	out := map[string]string{}
	for _, dom := range d.Spec.CodeRanges {
		class := strings.ToUpper(dom.Name[:1]) + dom.Name[1:] + "Error"
		if slices.ContainsFunc(d.Spec.Classes, func(c *model.ErrorClass) bool { return c.Name == class }) {
			out[dom.Name] = class
		}
	}
	return out
}

// LocalNamed finds a condition by its text.
func (d *sdkData) LocalNamed(text string) (sdkCode, error) {
	for _, l := range d.Local {
		if l.Text == text {
			return l, nil
		}
	}
	return sdkCode{}, fmt.Errorf("errors.yaml has no condition %s", text)
}

// About is the comment of the method of an operation: what it does, how it can be refused, and the clauses.
func (d *sdkData) About(method, domain, operation string) (string, error) {
	r, err := d.request(domain, operation)
	if err != nil {
		return "", err
	}
	text := method + ": " + lower(r.op.Doc) + "."
	if len(r.op.Errors) > 0 {
		var codes []string
		for _, e := range r.op.Errors {
			codes = append(codes, dotted(e))
		}
		text += " The broker may refuse it with " + strings.Join(codes, ", ") + "."
	}
	return comment(text + " " + clauses(r.op.Clauses...)), nil
}

func (d *sdkData) request(domain, operation string) (*record, error) {
	for _, dom := range d.p.domains {
		for _, r := range dom.records {
			if dom.Name == domain && r.part == requestPart && r.op.Name == operation {
				return r, nil
			}
		}
	}
	return nil, fmt.Errorf("there is no operation %s.%s", domain, operation)
}

// sdkOperation is an operation that needs no engine: it has a method of its own.
type sdkOperation struct {
	Domain, Name, Method, Request, Reply, Type, About string
	Routes                                            []sdkRoute
	ReadOnly                                          bool
}

// sdkRoute is a field of a request with a route or a selector.
type sdkRoute struct {
	Field    string
	Selector bool
	Scheme   string
}

// Plain are the operations of a domain beside the ones that engines and hand-shaped methods serve.
func (d *sdkData) Plain(domain string, served ...string) ([]sdkOperation, error) {
	var out []sdkOperation
	for _, dom := range d.p.domains {
		for _, r := range dom.records {
			if dom.Name != domain || r.part != requestPart || r.op.NoReply || slices.Contains(served, r.op.Name) {
				continue
			}
			method := d.p.names.exported(r.op.Name)
			about, err := d.About(method, domain, r.op.Name)
			if err != nil {
				return nil, err
			}
			op := sdkOperation{domain, r.op.Name, method, r.goName, replyOf(r), "Type" + r.method(), about, nil, r.op.ReadOnly}
			for _, f := range r.fields {
				if f.kind == route {
					op.Routes = append(op.Routes, sdkRoute{f.goName, f.Type == "selector", d.p.names.exported(dom.Scheme)})
				}
			}
			out = append(out, op)
		}
	}
	return out, nil
}

// sdkNotify is a message that tells the users of a registration something.
type sdkNotify struct {
	Type   string // its Go name
	Number int    // of its domain
	ID     string // field with the id of the registration
}

// Notifies are the messages whose first field names a registration.
func (d *sdkData) Notifies() []sdkNotify {
	var out []sdkNotify
	for _, dom := range d.p.domains {
		for _, r := range dom.records {
			if m := r.message; m != nil && m.Class == "push" && dom.Number != 0 && len(r.fields) > 0 && r.fields[0].Role == "registration" {
				out = append(out, sdkNotify{r.goName, dom.Number, r.fields[0].goName})
			}
		}
	}
	return out
}

// DomainNumber is the number by which SUB_ENDED names a domain.
func (d *sdkData) DomainNumber(name string) (int, error) {
	for _, dom := range d.p.domains {
		if dom.Name == name {
			return dom.Number, nil
		}
	}
	return 0, fmt.Errorf("there is no domain %s", name)
}

// comment is text as a wrapped Go comment.
func comment(text string) string { return strings.Join(wrap(strings.Fields(text)), "\n") }

// sdkTemplates renders every template of the SDK.
func sdkTemplates(p *protocol) ([]File, error) {
	templates, err := template.New("").Funcs(template.FuncMap{"comment": comment, "remark": remark, "lower": lower}).ParseFS(fitz.Templates, "*.go.tmpl")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(fitz.Templates, "*.go.tmpl")
	if err != nil {
		return nil, err
	}
	data := newSDKData(p)
	var files []File
	for _, name := range names {
		var out bytes.Buffer
		fmt.Fprintf(&out, "// Code generated by fitzgen from %s/go/fitz/%s; DO NOT EDIT.\n// Specification %s, fingerprint %016x.\n\n", templatesDir, name, p.Version, p.Fingerprint)
		if err := templates.ExecuteTemplate(&out, name, data); err != nil {
			return nil, err
		}
		source, err := format.Source(out.Bytes())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, File{Path: "go/fitz/" + strings.TrimSuffix(name, ".tmpl"), Origin: FromTemplate, Source: templatesDir + "/go/fitz/" + name, Content: source})
	}
	return files, nil
}
