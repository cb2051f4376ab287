package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/codegen/findings"
	"github.com/fitzwire/fitz/spec/schema"
)

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// grammar is the schemas of all kinds of files.
type grammar struct {
	compiled map[string]*jsonschema.Schema // by kind
	docs     map[string]any                // by file name, as decoded JSON
}

// schemas compiles the embedded schemas once.
var schemas = sync.OnceValues(func() (*grammar, error) {
	names, err := fs.Glob(schema.Files, "*.schema.json")
	if err != nil {
		return nil, err
	}
	g := &grammar{compiled: map[string]*jsonschema.Schema{}, docs: map[string]any{}}
	c := jsonschema.NewCompiler()
	c.LoadURL = nil // every schema is embedded; nothing is ever fetched
	for _, name := range names {
		text, err := fs.ReadFile(schema.Files, name)
		if err != nil {
			return nil, err
		}
		var doc any
		if err := json.Unmarshal(text, &doc); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		g.docs[name] = doc
		if err := c.AddResource(schema.Base+name, bytes.NewReader(text)); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		compiled, err := c.Compile(schema.Base + name)
		if err != nil {
			return nil, err
		}
		g.compiled[strings.TrimSuffix(name, ".schema.json")] = compiled
	}
	return g, nil
})

// validate checks one file with the schema of its kind and reports every violation at the node that it is about.
func validate(s *source, list *findings.List) error {
	if s.root == nil || opaque(s.root) {
		return nil
	}
	g, err := schemas()
	if err != nil {
		return fmt.Errorf("schemas: %w", err)
	}
	compiled, ok := g.compiled[s.kind]
	if !ok {
		return fmt.Errorf("no schema for files of kind %q", s.kind)
	}
	err = compiled.Validate(value(s.root))
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &invalid):
		return fmt.Errorf("%s: %w", s.path, err)
	}
	r := reporter{grammar: g, source: s, list: list, hygiene: slices.Clone(*list)}
	r.walk(invalid)
	return nil
}

// opaque tells whether a tree holds an alias, a merge key or a key that is no word. Its meaning is open then, and hygiene has said so.
func opaque(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for i, child := range n.Content {
		key := n.Kind == yaml.MappingNode && i%2 == 0
		if key && (child.Kind != yaml.ScalarNode || child.Tag == "!!merge") || opaque(child) {
			return true
		}
	}
	return false
}

// value is a node as the schema library wants it.
func value(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			if _, twice := m[n.Content[i].Value]; !twice {
				m[n.Content[i].Value] = value(n.Content[i+1])
			}
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			list[i] = value(c)
		}
		return list
	}
	switch {
	case n.Tag == "!!int" && plainInt.MatchString(n.Value), n.Tag == "!!float" && plainFloat.MatchString(n.Value):
		return json.Number(n.Value)
	case n.Tag == "!!bool":
		return n.Value == "true"
	case n.Tag == "!!null":
		return nil
	}
	return n.Value
}

// reporter turns violations into findings.
type reporter struct {
	*grammar
	*source
	list    *findings.List
	hygiene findings.List // what was said before the schema looked
}

func (r *reporter) walk(e *jsonschema.ValidationError) {
	for _, cause := range e.Causes {
		r.walk(cause)
	}
	if len(e.Causes) == 0 {
		r.report(e)
	}
}

// report adds the findings of one violation: one, or one for each key of a required or additionalProperties.
func (r *reporter) report(e *jsonschema.ValidationError) {
	constraint := location(e.AbsoluteKeywordLocation)
	v := node{r.source, r.at(e.InstanceLocation)}
	if r.spoken(v) {
		return
	}
	where, keyword := constraint[:strings.LastIndexByte(constraint, '/')], constraint[strings.LastIndexByte(constraint, '/')+1:]
	owner, _ := r.resolve(where).(map[string]any)
	rep := report{reporter: r, constraint: constraint, owner: owner}
	rep.keyword(keyword, v)
}

// spoken tells whether hygiene has a finding about this very value: a second one would only repeat it.
func (r *reporter) spoken(v node) bool {
	return slices.ContainsFunc(r.hygiene, func(f findings.Finding) bool { return f.Pos == v.pos() && f.Rule != YAMLDuplicate })
}

// report is one violation on its way to a finding.
type report struct {
	*reporter
	constraint string
	owner      map[string]any // the schema that holds the keyword
}

func (r report) add(v node, problem, mend string) {
	*r.list = append(*r.list, findings.Finding{Pos: v.pos(), Rule: Schema, Problem: problem, Mend: mend, Constraint: r.constraint})
}

func (r report) keyword(keyword string, v node) {
	limit := r.owner[keyword]
	switch keyword {
	case "required":
		r.required(v)
	case "additionalProperties":
		r.additional(v)
	case "type":
		r.add(v, fmt.Sprintf("%s stands where %s is expected", kindOf(v.n), kinded(limit)), r.hint())
	case "enum":
		r.add(v, fmt.Sprintf("%q is not one of the possible values", v.str()), "use one of "+joined(limit))
	case "pattern":
		r.add(v, fmt.Sprintf("%q does not have the form %v", v.str(), limit), r.hint())
	case "minimum", "exclusiveMinimum":
		r.add(v, fmt.Sprintf("%s is too small", v.str()), fmt.Sprintf("the smallest value is %v%s", limit, map[bool]string{true: ", which is itself too small"}[keyword == "exclusiveMinimum"]))
	case "maximum":
		r.add(v, fmt.Sprintf("%s is too large", v.str()), fmt.Sprintf("the largest value is %.0f", limit))
	case "minLength":
		r.add(v, "the text is empty", r.hint())
	case "minItems", "minProperties":
		r.add(v, "nothing is in it", "give at least one member or remove the key")
	case "maxProperties":
		r.add(v, "more than one key is in it", "keep one")
	case "uniqueItems":
		r.add(v, "the same member stands in it twice", "keep one of the two")
	default:
		r.add(v, "the value is not allowed by "+r.constraint, r.hint())
	}
}

func (r report) required(v node) {
	names, _ := r.owner["required"].([]any)
	for _, name := range names {
		if key, _ := name.(string); !v.get(key).exists() {
			r.add(v, fmt.Sprintf("the key %q is missing", key), r.hintOf(key))
		}
	}
}

func (r report) additional(v node) {
	known, _ := r.owner["properties"].(map[string]any)
	patterns, _ := r.owner["patternProperties"].(map[string]any)
	for key, value := range v.pairs() {
		if _, ok := known[key.str()]; ok || matchesAny(patterns, key.str()) {
			continue
		}
		r.add(node{v.src, key.n}, fmt.Sprintf("the key %q is not known here", key.str()), knownKeys(known, patterns))
		_ = value
	}
}

// hint says how to mend a value: the description of what it should be.
func (r report) hint() string { return describe(r.owner) }

// hintOf is hint for a key that is missing.
func (r report) hintOf(key string) string {
	known, _ := r.owner["properties"].(map[string]any)
	property, _ := known[key].(map[string]any)
	if target, ok := property["$ref"].(string); ok && property["description"] == nil {
		property, _ = r.resolve(r.join(target)).(map[string]any)
	}
	return "add it: " + describe(property)
}

// join makes a reference absolute within the file of the constraint.
func (r report) join(target string) string {
	if strings.HasPrefix(target, "#") {
		return r.constraint[:strings.IndexByte(r.constraint, '#')] + target
	}
	return target
}

func describe(owner map[string]any) string {
	text, _ := owner["description"].(string)
	if text == "" {
		return "see the schema"
	}
	return strings.TrimSuffix(text, ".")
}

// resolve finds the part of a schema that a location names, domain.schema.json#/properties/number.
func (r *reporter) resolve(where string) any { return r.grammar.resolve(where) }

func (g *grammar) resolve(where string) any {
	file, pointer, _ := strings.Cut(where, "#")
	part := g.docs[file]
	for _, token := range tokens(pointer) {
		switch p := part.(type) {
		case map[string]any:
			part = p[token]
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(p) {
				return nil
			}
			part = p[i]
		default:
			return nil
		}
	}
	return part
}

// at finds the node that a JSON pointer names; the closest one above when there is none.
func (r *reporter) at(pointer string) *yaml.Node {
	n := r.root
	for _, token := range tokens(pointer) {
		next := child(n, token)
		if next == nil {
			return n
		}
		n = next
	}
	return n
}

func child(n *yaml.Node, token string) *yaml.Node {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == token {
				return n.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(token); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i]
		}
	}
	return nil
}

// tokens splits a JSON pointer.
func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	parts := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts
}

// location is the place of a keyword without the address of the schemas and without percent escapes.
func location(absolute string) string {
	short := strings.TrimPrefix(absolute, schema.Base)
	if plain, err := url.PathUnescape(short); err == nil {
		return plain
	}
	return short
}
