package selftest

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/codegen/findings"
	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/spec/schema"
)

// Violation is one specification file that violates one constraint of a schema, and the finding that says so.
type Violation struct {
	Constraint load.Constraint
	Change     string // what was done to which value
	Finding    *findings.Finding
}

// Violations makes a bad specification for every constraint of every schema: it looks for a value that the constraint governs, in the base of
// the fixtures, and changes it. A constraint that governs nothing, or whose violation is not found, has a Violation without finding.
func Violations(fsys fs.FS, specDir string) ([]Violation, error) {
	constraints, err := load.Constraints()
	if err != nil {
		return nil, err
	}
	m := &mutator{schemas: map[string]any{}, found: map[string]*Violation{}}
	if err := m.readSchemas(); err != nil {
		return nil, err
	}
	if err := m.visitFiles(fsys, path.Join(specDir, badspecs, baseDir, "spec")); err != nil {
		return nil, err
	}
	out := make([]Violation, 0, len(constraints))
	for _, c := range constraints {
		if v := m.found[c.Location]; v != nil {
			v.Constraint = c
			out = append(out, *v)
			continue
		}
		out = append(out, Violation{Constraint: c, Change: "governs nothing in the base"})
	}
	return out, nil
}

// mutator walks files along their schemas and tries a violation of every constraint that it meets.
type mutator struct {
	schemas map[string]any
	found   map[string]*Violation

	kind string     // of the file
	root *yaml.Node // of the file
	err  error
}

func (m *mutator) readSchemas() error {
	names, err := fs.Glob(schema.Files, "*.schema.json")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(schema.Files, name)
		if err != nil {
			return err
		}
		var doc any
		if err := json.Unmarshal(text, &doc); err != nil {
			return err
		}
		m.schemas[name] = doc
	}
	return nil
}

// visitFiles visits every file of a specification.
func (m *mutator) visitFiles(fsys fs.FS, dir string) error {
	return fs.WalkDir(fsys, dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		var doc yaml.Node
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return err
		}
		m.kind, m.root = kindOfFile(name), doc.Content[0]
		m.visit(m.kind+".schema.json#", m.root, "")
		return m.err
	})
}

func kindOfFile(name string) string {
	switch {
	case path.Base(path.Dir(name)) == "domains":
		return "domain"
	case path.Base(name) == path.Base(baseIndex):
		return "index"
	}
	return strings.TrimSuffix(path.Base(name), ".yaml")
}

// resolve finds a part of a schema and follows its reference.
func (m *mutator) resolve(where string) (string, map[string]any) {
	file, pointer, _ := strings.Cut(where, "#")
	part := m.schemas[file]
	for _, token := range strings.Split(pointer, "/")[1:] {
		members, _ := part.(map[string]any)
		part = members[strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")]
	}
	owner, _ := part.(map[string]any)
	if target, ok := owner["$ref"].(string); ok {
		if strings.HasPrefix(target, "#") {
			target = file + target
		}
		return m.resolve(target)
	}
	return where, owner
}

// visit tries the constraints on one value and goes below it.
func (m *mutator) visit(where string, n *yaml.Node, at string) {
	where, owner := m.resolve(where)
	for keyword, limit := range owner {
		location := where + "/" + keyword
		if m.found[location] != nil && m.found[location].Finding != nil {
			continue
		}
		if change := mutation(keyword, limit, owner, n); change != nil {
			m.try(location, n, at, change)
		}
	}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i].Value, n.Content[i+1]
		if below := memberOf(owner, key); below != "" {
			m.visit(where+below, value, at+"/"+key)
		}
	}
	if _, ok := owner["items"]; ok && n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			m.visit(where+"/items", item, fmt.Sprintf("%s/%d", at, i))
		}
	}
}

// memberOf is the place of the schema of one key below that of its mapping, "" when there is none.
func memberOf(owner map[string]any, key string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	if members, _ := owner["properties"].(map[string]any); members[key] != nil {
		return "/properties/" + escape(key)
	}
	patterns, _ := owner["patternProperties"].(map[string]any)
	for p := range patterns {
		if regexp.MustCompile(p).MatchString(key) {
			return "/patternProperties/" + escape(p)
		}
	}
	return ""
}

// try changes the value, checks the file and changes it back.
func (m *mutator) try(location string, n *yaml.Node, at string, change *yaml.Node) {
	before := *n
	*n = *change
	text, err := yaml.Marshal(m.root)
	*n = before
	if err != nil {
		m.err = err
		return
	}
	list, err := load.File(m.kind, m.kind+".yaml", text)
	if err != nil {
		m.err = err
		return
	}
	v := &Violation{Change: fmt.Sprintf("%s: %s", at, show(change))}
	if i := slices.IndexFunc(list, func(f findings.Finding) bool { return f.Constraint == location }); i >= 0 {
		v.Finding = &list[i]
	}
	if old := m.found[location]; old == nil || better(v, old) {
		m.found[location] = v
	}
}

// better prefers a violation that was found, then the one whose text comes first, so that the record does not depend on the order of maps.
func better(a, b *Violation) bool {
	if (a.Finding == nil) != (b.Finding == nil) {
		return a.Finding != nil
	}
	return a.Change < b.Change
}

func show(n *yaml.Node) string {
	text, err := yaml.Marshal(flow(n))
	if err != nil {
		return err.Error()
	}
	line := strings.TrimSpace(strings.ReplaceAll(string(text), "\n", " "))
	if runes := []rune(line); len(runes) > 60 {
		line = string(runes[:60]) + "…"
	}
	return line
}

// flow is a copy of a node in one line.
func flow(n *yaml.Node) *yaml.Node {
	c := *n
	c.Style |= yaml.FlowStyle
	c.HeadComment, c.LineComment, c.FootComment = "", "", ""
	c.Content = make([]*yaml.Node, len(n.Content))
	for i, child := range n.Content {
		c.Content[i] = flow(child)
	}
	return &c
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}

// mutation is a value that violates a keyword, made from one that does not; nil when the keyword says nothing about the value.
func mutation(keyword string, limit any, owner map[string]any, n *yaml.Node) *yaml.Node {
	isText := n.Kind == yaml.ScalarNode && n.Tag == "!!str"
	isNumber := n.Kind == yaml.ScalarNode && (n.Tag == "!!int" || n.Tag == "!!float")
	c := *n
	c.Content = slices.Clone(n.Content)
	switch {
	case keyword == "type":
		return otherType(limit)
	case keyword == "enum":
		return scalar("!!str", "something_else")
	case keyword == "pattern" && isText:
		return scalar("!!str", "* no such form *")
	case keyword == "minLength" && isText:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle}
	case keyword == "minimum" && isNumber:
		return scalar("!!int", fmt.Sprintf("%.0f", limit.(float64)-1))
	case keyword == "exclusiveMinimum" && isNumber:
		return scalar("!!int", fmt.Sprintf("%.0f", limit))
	case keyword == "maximum" && isNumber:
		return scalar("!!int", fmt.Sprintf("%.0f", limit.(float64)+1))
	case keyword == "minItems" && n.Kind == yaml.SequenceNode, keyword == "minProperties" && n.Kind == yaml.MappingNode:
		c.Content, c.Style = nil, yaml.FlowStyle
		return &c
	case keyword == "uniqueItems" && n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		c.Content = append(c.Content, n.Content[0])
		return &c
	case keyword == "required" && n.Kind == yaml.MappingNode:
		c.Content, c.Style = nil, yaml.FlowStyle
		return &c
	case keyword == "additionalProperties" && n.Kind == yaml.MappingNode:
		c.Content = append(c.Content, scalar("!!str", "No-Such-Key"), scalar("!!str", "x"))
		return &c
	case keyword == "maxProperties" && n.Kind == yaml.MappingNode:
		return second(owner, &c)
	}
	return nil
}

// second adds a second known key to a mapping of one.
func second(owner map[string]any, c *yaml.Node) *yaml.Node {
	members, _ := owner["properties"].(map[string]any)
	for _, key := range slices.Sorted(keys(members)) {
		if !slices.ContainsFunc(c.Content, func(k *yaml.Node) bool { return k.Value == key }) {
			c.Content = append(c.Content, scalar("!!str", key), scalar("!!str", "x"))
			return c
		}
	}
	return nil
}

func keys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// otherType is a value of a type that a keyword does not allow.
func otherType(limit any) *yaml.Node {
	allowed := fmt.Sprint(limit)
	switch {
	case !strings.Contains(allowed, "array"):
		return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle, Content: []*yaml.Node{scalar("!!int", "7")}}
	case !strings.Contains(allowed, "object"):
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle, Content: []*yaml.Node{scalar("!!str", "a"), scalar("!!int", "7")}}
	}
	return scalar("!!int", "7")
}
