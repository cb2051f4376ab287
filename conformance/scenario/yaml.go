package scenario

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"
)

// maxDepth is how deep a scenario may be nested, and maxBytes how long its file may be.
const (
	maxDepth = 32
	maxBytes = 1 << 20
)

var (
	plainInt    = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	plainFloat  = regexp.MustCompile(`^-?(0|[1-9][0-9]*)\.[0-9]+$`)
	looseNumber = regexp.MustCompile(`^[-+]?(0[0-9_]+|[0-9]+(_[0-9]+)+|0[xob][0-9a-fA-F_]+|[0-9]+(:[0-5]?[0-9])+)$`)
)

// file is one scenario file while it is read.
type file struct {
	name     string
	root     *yaml.Node
	findings []Finding
}

func (f *file) pos(n *yaml.Node) Pos {
	if n == nil {
		return Pos{File: f.name}
	}
	return Pos{File: f.name, Line: n.Line, Col: n.Column}
}

func (f *file) add(pos Pos, rule, problem, mend string) {
	f.findings = append(f.findings, Finding{Pos: pos, Rule: rule, Problem: problem, Mend: mend})
}

// hygiene reports what two readers of YAML could understand differently. It tells whether the tree can be read on.
func (f *file) hygiene(n *yaml.Node, depth int) bool {
	if depth > maxDepth {
		f.add(f.pos(n), "YAML", fmt.Sprintf("nested deeper than %d levels", maxDepth), "flatten it")
		return false
	}
	sound := true
	if n.Anchor != "" || n.Kind == yaml.AliasNode {
		f.add(f.pos(n), "YAML", "an anchor or alias", "write the value out where it is used")
		sound = n.Kind != yaml.AliasNode
	}
	if n.Style&yaml.TaggedStyle != 0 {
		f.add(f.pos(n), "YAML", "a tag "+n.Tag, "remove it")
	}
	if n.Kind == yaml.ScalarNode {
		f.scalar(n)
	}
	seen := map[string]int{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			sound = f.key(child, seen) && sound
			continue
		}
		sound = f.hygiene(child, depth+1) && sound
	}
	return sound
}

func (f *file) key(n *yaml.Node, seen map[string]int) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		f.add(f.pos(n), "YAML", "a key that is not text", "use a plain word as key")
		return false
	}
	if line, twice := seen[n.Value]; twice {
		f.add(f.pos(n), "YAML", fmt.Sprintf("the key %q stands on line %d already", n.Value, line), "keep one of the two")
	}
	seen[n.Value] = n.Line
	return true
}

func (f *file) scalar(n *yaml.Node) {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return
	}
	number := n.Tag == "!!int" && !plainInt.MatchString(n.Value) || n.Tag == "!!float" && !plainFloat.MatchString(n.Value)
	switch {
	case n.Tag == "!!null":
		f.add(f.pos(n), "YAML", "a key without a value", "give it a value or remove it")
	case n.Tag == "!!timestamp":
		f.add(f.pos(n), "YAML", n.Value+" reads as a point in time", "put it in quotes")
	case number, n.Tag == "!!str" && looseNumber.MatchString(n.Value):
		f.add(f.pos(n), "YAML", n.Value+" can be read as different numbers", "write plain decimal digits, or put text in quotes")
	}
}

// value is a node as plain data: map[string]any, []any, string, bool, int64, uint64 (above the largest int64), float64.
func value(n *yaml.Node) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for i := 0; i+1 < len(n.Content); i += 2 {
			m[n.Content[i].Value] = value(n.Content[i+1])
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			list[i] = value(c)
		}
		return list
	}
	return scalarValue(n)
}

func scalarValue(n *yaml.Node) any {
	switch n.Tag {
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 10, 64); err == nil {
			return i
		}
		if u, err := strconv.ParseUint(n.Value, 10, 64); err == nil {
			return u
		}
	case "!!float":
		if x, err := strconv.ParseFloat(n.Value, 64); err == nil {
			return x
		}
	case "!!bool":
		return n.Value == "true"
	}
	return n.Value
}

// plain is data as the schema library wants it: numbers as json.Number.
func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for key, member := range v {
			m[key] = plain(member)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, member := range v {
			list[i] = plain(member)
		}
		return list
	case int64:
		return json.Number(strconv.FormatInt(v, 10))
	case uint64:
		return json.Number(strconv.FormatUint(v, 10))
	case float64:
		return json.Number(new(big.Float).SetFloat64(v).Text('g', -1))
	}
	return v
}

// get is the value node of a key, nil when there is none.
func get(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// items is the members of a sequence.
func items(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return n.Content
}
