package load

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// documentationKeys are the keys that the canonical form leaves out, at every depth: they tell people about the protocol and change no byte
// of it. No part of a spec may have one of them as its name (rule DOC_KEY_NAME).
var documentationKeys = []string{"because", "beyond", "clause", "clauses", "doc", "invariants", "waits_for"}

// DocumentationKeys returns the keys that the fingerprint does not see.
func DocumentationKeys() []string { return slices.Clone(documentationKeys) }

// canonical is the canonical form of the specification (wire.md section 5): one JSON text, which is the index with the content of each file
// in the place of its name.
//
//   - UTF-8 without insignificant white space; the members of an object are sorted by the bytes of their keys.
//   - The keys of DocumentationKeys are left out together with what they hold, which drops the files invariants and clauses too. Comments
//     are no part of the form.
//   - Text escapes the quotation mark and the backslash with a backslash and characters below 0x20 as \u00xx; everything else is itself.
//   - Whole numbers are plain decimal digits; fractions are the shortest decimal that reads back as the same 64-bit number, never with
//     an exponent.
func (l *loader) canonical() []byte {
	var c canon
	c.files = map[*yaml.Node]*yaml.Node{}
	files := node{l.index, l.index.root}.get("files")
	for _, kind := range kinds {
		c.replace(files.get(kind), l.files[kind])
	}
	for i, item := range files.get("domains").items() {
		if i < len(l.domains) {
			c.replace(item, l.domains[i])
		}
	}
	c.value(l.index.root)
	return c.out.Bytes()
}

// fingerprint is the first eight bytes of SHA-256 over the canonical form, big-endian.
func (l *loader) fingerprint() uint64 {
	sum := sha256.Sum256(l.canonical())
	return binary.BigEndian.Uint64(sum[:8])
}

// canon writes the canonical form.
type canon struct {
	out   bytes.Buffer
	files map[*yaml.Node]*yaml.Node // name of a file in the index to its content
}

func (c *canon) replace(name node, src *source) {
	if name.exists() && src != nil && src.root != nil {
		c.files[name.n] = src.root
	}
}

func (c *canon) value(n *yaml.Node) {
	if n == nil {
		c.out.WriteString("null")
		return
	}
	if content, ok := c.files[n]; ok {
		n = content
	}
	switch n.Kind {
	case yaml.MappingNode:
		c.object(n)
	case yaml.SequenceNode:
		c.array(n)
	case yaml.ScalarNode:
		c.scalar(n)
	default:
		c.out.WriteString("null") // an alias, which is a finding
	}
}

func (c *canon) object(n *yaml.Node) {
	type member struct {
		key   string
		value *yaml.Node
	}
	var members []member
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if !contains(documentationKeys, key) {
			members = append(members, member{key, n.Content[i+1]})
		}
	}
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.key, b.key) })
	c.out.WriteByte('{')
	for i, m := range members {
		if i > 0 {
			c.out.WriteByte(',')
		}
		c.text(m.key)
		c.out.WriteByte(':')
		c.value(m.value)
	}
	c.out.WriteByte('}')
}

func (c *canon) array(n *yaml.Node) {
	c.out.WriteByte('[')
	for i, item := range n.Content {
		if i > 0 {
			c.out.WriteByte(',')
		}
		c.value(item)
	}
	c.out.WriteByte(']')
}

func (c *canon) scalar(n *yaml.Node) {
	switch n.Tag {
	case "!!int", "!!bool", "!!null":
		c.out.WriteString(n.Value) // plain by the rules of hygiene
	case "!!float":
		f, err := strconv.ParseFloat(n.Value, 64)
		if err != nil {
			c.text(n.Value)
			return
		}
		c.out.WriteString(strconv.FormatFloat(f, 'f', -1, 64))
	default:
		c.text(n.Value)
	}
}

func (c *canon) text(s string) {
	c.out.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '"' || r == '\\':
			c.out.WriteByte('\\')
			c.out.WriteRune(r)
		case r < 0x20:
			fmt.Fprintf(&c.out, `\u%04x`, r)
		default:
			c.out.WriteRune(r)
		}
	}
	c.out.WriteByte('"')
}
