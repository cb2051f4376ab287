package load

import (
	"fmt"
	"regexp"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/codegen/findings"
)

// hygiene reports the parts of YAML that a spec may not use, because two readers could understand them differently.
type hygiene struct {
	*source
	list *findings.List
	deep bool // some part is nested too deep
}

var (
	plainInt   = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
	plainFloat = regexp.MustCompile(`^-?(0|[1-9][0-9]*)\.[0-9]+$`)
	// looseNumber finds plain scalars that some reader takes for a number, whatever this library makes of them.
	looseNumber = regexp.MustCompile(`^[-+]?(0[0-9_]+|[0-9][0-9]*(_[0-9]+)+|0[xob][0-9a-fA-F_]+|[0-9]+(:[0-5]?[0-9])+)$`)
	looseBool   = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false)$`)
)

// check walks one node and everything below it. Depth counts from 1.
func (h *hygiene) check(n *yaml.Node, depth int) {
	if depth > maxDepth {
		h.deep = true
		h.list.Add(h.pos(n), YAMLDepth, fmt.Sprintf("nested deeper than %d levels", maxDepth), "flatten it")
		return
	}
	if n.Anchor != "" {
		h.list.Add(h.pos(n), YAMLAnchor, fmt.Sprintf("anchor &%s", n.Anchor), "write the value out where it is used")
	}
	if n.Style&yaml.TaggedStyle != 0 {
		h.list.Add(h.pos(n), YAMLTag, fmt.Sprintf("tag %s", n.Tag), "remove the tag; the schema says what type a value has")
	}
	switch n.Kind {
	case yaml.AliasNode:
		h.list.Add(h.pos(n), YAMLAlias, fmt.Sprintf("alias *%s", n.Value), "write the value out")
	case yaml.ScalarNode:
		h.scalar(n)
	case yaml.MappingNode:
		h.mapping(n, depth)
	case yaml.SequenceNode:
		for _, item := range n.Content {
			h.check(item, depth+1)
		}
	}
}

func (h *hygiene) mapping(n *yaml.Node, depth int) {
	seen := make(map[string]*yaml.Node, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		h.key(key, seen)
		h.check(value, depth+1)
	}
}

func (h *hygiene) key(key *yaml.Node, seen map[string]*yaml.Node) {
	switch {
	case key.Kind != yaml.ScalarNode:
		h.list.Add(h.pos(key), YAMLKey, "a key that is not a single word", "use a plain word as key")
		return
	case key.Tag == "!!merge" || key.Value == "<<":
		h.list.Add(h.pos(key), YAMLMerge, "merge key", "write the keys out")
		return
	case key.Anchor != "":
		h.list.Add(h.pos(key), YAMLAnchor, fmt.Sprintf("anchor &%s", key.Anchor), "remove it")
	case key.Tag != "!!str":
		h.list.Add(h.pos(key), YAMLKey, fmt.Sprintf("the key %q is not text", key.Value), "use a plain word as key")
	}
	if first, ok := seen[key.Value]; ok {
		h.list.Add(h.pos(key), YAMLDuplicate, fmt.Sprintf("the key %q stands on line %d already", key.Value, first.Line), "keep one of the two")
		return
	}
	seen[key.Value] = key
}

func (h *hygiene) scalar(n *yaml.Node) {
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0 {
		return
	}
	switch {
	case n.Tag == "!!null":
		h.list.Add(h.pos(n), YAMLNull, "a key without a value", "give it a value or remove it")
	case n.Tag == "!!timestamp":
		h.list.Add(h.pos(n), YAMLTimestamp, fmt.Sprintf("%s reads as a point in time", n.Value), "put it in quotes")
	case n.Tag == "!!int" && !plainInt.MatchString(n.Value),
		n.Tag == "!!float" && !plainFloat.MatchString(n.Value),
		n.Tag == "!!str" && looseNumber.MatchString(n.Value):
		h.list.Add(h.pos(n), YAMLNumber, fmt.Sprintf("%s can be read as different numbers", n.Value), "write plain decimal digits, or put text in quotes")
	case looseBool.MatchString(n.Value) && n.Value != "true" && n.Value != "false":
		h.list.Add(h.pos(n), YAMLBool, fmt.Sprintf("%s can be read as true or false", n.Value), "write true or false, or put text in quotes")
	}
}
