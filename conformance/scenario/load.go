package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"gopkg.in/yaml.v3"
)

// Load reads every *.yaml below the root of a file system. It returns the scenarios that are right, by id, and all mistakes of the
// others, by place. The error is only about the file system.
func Load(fsys fs.FS, catalog *Catalog) ([]*Scenario, []Finding, error) {
	var scenarios []*Scenario
	var findings []Finding
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		s, mistakes := Parse(name, text, catalog)
		findings = append(findings, mistakes...)
		if s != nil {
			scenarios = append(scenarios, s)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("scenarios: %w", err)
	}
	slices.SortStableFunc(scenarios, func(a, b *Scenario) int { return strings.Compare(a.ID, b.ID) })
	for i := 1; i < len(scenarios); i++ {
		if scenarios[i].ID == scenarios[i-1].ID {
			findings = append(findings, Finding{Pos{scenarios[i].File, 1, 1}, "ID_TWICE",
				fmt.Sprintf("%s is also the id of %s", scenarios[i].ID, scenarios[i-1].File), "give it another id"})
		}
	}
	return scenarios, sorted(findings), nil
}

// Parse reads one file. The scenario is nil when there is a finding. Without a catalog, names of the specification are not checked.
func Parse(name string, text []byte, catalog *Catalog) (*Scenario, []Finding) {
	f := &file{name: name}
	if !f.read(text) {
		return nil, sorted(f.findings)
	}
	f.validate()
	if len(f.findings) > 0 {
		return nil, sorted(f.findings)
	}
	s := f.build()
	f.check(s, catalog)
	if len(f.findings) > 0 {
		return nil, sorted(f.findings)
	}
	return s, nil
}

func sorted(list []Finding) []Finding {
	slices.SortFunc(list, func(a, b Finding) int {
		if a.Pos.File != b.Pos.File {
			return strings.Compare(a.Pos.File, b.Pos.File)
		}
		if a.Pos.Line != b.Pos.Line {
			return a.Pos.Line - b.Pos.Line
		}
		if a.Pos.Col != b.Pos.Col {
			return a.Pos.Col - b.Pos.Col
		}
		return strings.Compare(a.Rule+a.Problem, b.Rule+b.Problem)
	})
	return slices.Compact(list)
}

// read turns the text into a tree and reports what is not plain YAML.
func (f *file) read(text []byte) bool {
	if len(text) > maxBytes {
		f.add(Pos{File: f.name}, "YAML", fmt.Sprintf("longer than %d bytes", maxBytes), "split it")
		return false
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	var doc, second yaml.Node
	if err := d.Decode(&doc); err != nil {
		problem := strings.TrimPrefix(err.Error(), "yaml: ")
		f.add(errorPos(f.name, problem), "YAML", problem, "mend the YAML")
		return false
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		f.add(f.pos(&second), "YAML", "a second document", "one file holds one scenario")
		return false
	}
	f.root = doc.Content[0]
	if f.root.Kind != yaml.MappingNode {
		f.add(f.pos(f.root), "SCHEMA", "the file is not a mapping", "begin with id, title and the other keys")
		return false
	}
	return f.hygiene(f.root, 1)
}

// errorPos reads the line out of a message of the YAML library: "line 3: ...".
func errorPos(name, problem string) Pos {
	rest, ok := strings.CutPrefix(problem, "line ")
	if !ok {
		return Pos{File: name}
	}
	digits, _, _ := strings.Cut(rest, ":")
	line, err := strconv.Atoi(digits)
	if err != nil {
		return Pos{File: name}
	}
	return Pos{File: name, Line: line, Col: 1}
}

// compiled is the schema and its text as plain data.
var compiled = sync.OnceValues(func() (*jsonschema.Schema, any) {
	text := Schema()
	c := jsonschema.NewCompiler()
	c.LoadURL = nil // the schema refers to nothing outside of itself
	if err := c.AddResource(SchemaID, bytes.NewReader(text)); err != nil {
		panic(err) // a constant of the program
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		panic(err)
	}
	return c.MustCompile(SchemaID), doc
})

// validate reports every violation of the schema at its place.
func (f *file) validate() {
	whole := plain(value(f.root))
	if sound(whole) {
		return
	}
	schema, doc := compiled()
	err := schema.Validate(whole)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
	case errors.As(err, &invalid):
		f.violations(invalid, doc)
	default:
		f.add(Pos{File: f.name}, "SCHEMA", err.Error(), "see schema.json")
	}
}

func (f *file) violations(e *jsonschema.ValidationError, doc any) {
	pointer := tokens(e.AbsoluteKeywordLocation[strings.IndexByte(e.AbsoluteKeywordLocation, '#')+1:])
	keyword := ""
	if len(pointer) > 0 {
		keyword = pointer[len(pointer)-1]
	}
	choice := keyword == "oneOf" || keyword == "anyOf" || keyword == "not"
	if len(e.Causes) > 0 && !choice {
		for _, cause := range e.Causes {
			f.violations(cause, doc)
		}
		return
	}
	if keyword == "" {
		return
	}
	owner, _ := resolve(doc, pointer[:len(pointer)-1]).(map[string]any)
	f.violation(keyword, owner, e)
}

func (f *file) violation(keyword string, owner map[string]any, e *jsonschema.ValidationError) {
	path := tokens(e.InstanceLocation)
	n := f.at(path)
	where := f.pos(n)
	hint := description(owner)
	isKey := slices.Contains(tokens(e.KeywordLocation), "propertyNames")
	if isKey && len(path) > 0 {
		where = f.keyPos(path)
	}
	add := func(problem, mend string) { f.add(where, "SCHEMA", problem, mend) }
	switch {
	case isKey:
		mend := hint
		if known, ok := owner["enum"].([]any); ok {
			mend = "known are " + listed(known)
		}
		add(fmt.Sprintf("the key %q is not known here", path[len(path)-1]), mend)
	case keyword == "required":
		f.missing(owner, n)
	case keyword == "additionalProperties":
		f.unknown(owner, n)
	case keyword == "type":
		add(fmt.Sprintf("%s stands where %v is expected", kindOf(n), owner["type"]), hint)
	case keyword == "enum":
		known, _ := owner["enum"].([]any)
		add(fmt.Sprintf("%q is not one of the possible values", n.Value), "use one of "+listed(known))
	case keyword == "pattern":
		add(fmt.Sprintf("%q does not have the form %v", n.Value, owner["pattern"]), hint)
	case keyword == "minItems", keyword == "minProperties", keyword == "minLength":
		add("nothing is in it", hint)
	case keyword == "oneOf":
		f.choice(owner, n)
	case keyword == "not":
		add("two ways to end stand together", "keep one of ok, err, cancelled and any")
	default:
		add(fmt.Sprintf("the value is not allowed here (%s)", keyword), hint)
	}
}

// choice reports a mapping that has none or several of the keys of which it needs exactly one.
func (f *file) choice(owner map[string]any, n *yaml.Node) {
	branches, _ := owner["oneOf"].([]any)
	var possible, given []string
	for _, branch := range branches {
		b, _ := branch.(map[string]any)
		names, _ := b["required"].([]any)
		for _, name := range names {
			key, _ := name.(string)
			possible = append(possible, key)
			if get(n, key) != nil {
				given = append(given, key)
			}
		}
	}
	problem := "none of the keys " + strings.Join(possible, ", ")
	if len(possible) > 10 {
		problem = "the step has no action"
	}
	if len(given) > 1 {
		problem = "the keys " + strings.Join(given, " and ") + " stand together"
	}
	f.add(f.pos(n), "SCHEMA", problem, "give exactly one of "+strings.Join(possible, ", "))
}

func (f *file) missing(owner map[string]any, n *yaml.Node) {
	names, _ := owner["required"].([]any)
	for _, name := range names {
		key, _ := name.(string)
		if get(n, key) != nil {
			continue
		}
		known, _ := owner["properties"].(map[string]any)
		property, _ := known[key].(map[string]any)
		f.add(f.pos(n), "SCHEMA", fmt.Sprintf("the key %q is missing", key), "add it: "+description(property))
	}
}

func (f *file) unknown(owner map[string]any, n *yaml.Node) {
	known, _ := owner["properties"].(map[string]any)
	for i := 0; i+1 < len(n.Content); i += 2 {
		if _, ok := known[n.Content[i].Value]; !ok {
			f.add(f.pos(n.Content[i]), "SCHEMA", fmt.Sprintf("the key %q is not known here", n.Content[i].Value), "known are "+strings.Join(keys(known), ", "))
		}
	}
}

// at finds the node that the tokens of a JSON pointer name; the closest one above when there is none.
func (f *file) at(path []string) *yaml.Node {
	n := f.root
	for _, token := range path {
		next := get(n, token)
		if n.Kind == yaml.SequenceNode {
			if i, err := strconv.Atoi(token); err == nil && i < len(n.Content) {
				next = n.Content[i]
			}
		}
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

// keyPos is the place of the key that ends a path.
func (f *file) keyPos(path []string) Pos {
	n := f.at(path[:len(path)-1])
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Kind == yaml.MappingNode && n.Content[i].Value == path[len(path)-1] {
			return f.pos(n.Content[i])
		}
	}
	return f.pos(n)
}

func tokens(pointer string) []string {
	if pointer == "" || pointer == "/" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, p := range parts {
		if plain, err := url.PathUnescape(p); err == nil {
			p = plain
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts
}

func resolve(doc any, pointer []string) any {
	for _, token := range pointer {
		switch part := doc.(type) {
		case map[string]any:
			doc = part[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(part) {
				return nil
			}
			doc = part[i]
		default:
			return nil
		}
	}
	return doc
}

func description(owner map[string]any) string {
	text, _ := owner["description"].(string)
	if text == "" {
		if target, ok := owner["$ref"].(string); ok {
			_, doc := compiled()
			definition, _ := resolve(doc, tokens(strings.TrimPrefix(target, "#"))).(map[string]any)
			text, _ = definition["description"].(string)
		}
	}
	if text == "" {
		return "see schema.json"
	}
	return strings.TrimSuffix(text, ".")
}

func listed(values []any) string {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, v)
	}
	return b.String()
}

func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return map[string]string{"!!int": "a whole number", "!!float": "a number", "!!bool": "true or false"}[n.Tag] + map[bool]string{true: "text"}[n.Tag == "!!str"]
}

// build makes the scenario of a file that the schema accepts.
func (f *file) build() *Scenario {
	m, _ := value(f.root).(map[string]any)
	s := &Scenario{
		ID: text(m["id"]), Title: text(m["title"]), File: f.name,
		Proves: texts(m["proves"]), Refuses: texts(m["refuses"]), Codes: texts(m["codes"]),
		Subject: Subject(text(m["subject"])), Time: Clock(text(m["time"])), Needs: texts(m["needs"]),
		Transports: orElse(texts(m["transports"]), TCP, WebSocket),
		Labels:     orElse(texts(m["labels"]), LabelsOn),
		Auth:       orElse(texts(m["auth"]), Anonymous, Token),
		AuthReason: text(m["auth_reason"]),
		Budget:     DefaultBudget,
		Brokers:    map[string]map[string]any{DefaultBroker: settings(m["broker"])},
		Vars:       map[string]any{},
	}
	if ms, ok := m["budget_ms"].(int64); ok {
		s.Budget = time.Duration(ms) * time.Millisecond
	}
	s.Exclusive, _ = m["exclusive"].(bool)
	if vars, ok := m["vars"].(map[string]any); ok {
		s.Vars = vars
	}
	more, _ := m["brokers"].(map[string]any)
	for name, b := range more {
		s.Brokers[name] = settings(b)
	}
	s.Steps = f.steps(get(f.root, "steps"), "")
	s.Always = f.steps(get(f.root, "always"), "always.")
	return s
}

func (f *file) steps(n *yaml.Node, prefix string) []Step {
	var steps []Step
	for i, item := range items(n) {
		steps = append(steps, f.step(item, prefix+strconv.Itoa(i+1)))
	}
	return steps
}

func (f *file) step(n *yaml.Node, index string) Step {
	s := Step{Pos: f.pos(n), Index: index, params: map[string]any{}, at: map[string]Pos{}}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, v := n.Content[i].Value, n.Content[i+1]
		a, isAction := byName[key]
		switch {
		case !isAction || s.Action != "":
			f.param(&s, key, v)
		case a.target == toMap:
			s.Action = key
			f.body(&s, v)
		default:
			s.Action, s.Name = key, v.Value
		}
	}
	return s
}

func (f *file) body(s *Step, n *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		f.param(s, n.Content[i].Value, n.Content[i+1])
	}
}

func (f *file) param(s *Step, key string, n *yaml.Node) {
	s.at[key] = f.pos(n)
	if key == "steps" {
		s.Steps = f.steps(n, s.Index+".")
		return
	}
	s.params[key] = value(n)
}

func settings(v any) map[string]any {
	m, _ := v.(map[string]any)
	given, _ := m["settings"].(map[string]any)
	if given == nil {
		return map[string]any{}
	}
	return given
}

func text(v any) string { s, _ := v.(string); return s }

func texts(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, member := range list {
		out = append(out, text(member))
	}
	return out
}

func orElse(list []string, otherwise ...string) []string {
	if len(list) == 0 {
		return otherwise
	}
	return list
}
