package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/codegen/model"
)

var wordRules = []Rule{
	{"WORD_TOPOLOGY", "No message tells of the parts of a cluster (invariant 9).", wordTopology},
	{"WORD_PROMISE", "No text promises more than the next hop (invariant 7).", wordPromise},
	{"DOC_SENTENCE", "What stands about messages is full sentences.", docSentences},
}

// topology is the words that a client must not meet in a name.
var topology = []string{"node", "nodes", "shard", "shards", "leader", "leaders", "replica", "replicas", "follower", "followers"}

func wordTopology(c *checker) {
	check := func(n model.Named) {
		for _, word := range strings.Split(n.Name, "_") {
			if slices.Contains(topology, word) {
				c.add(n.Pos, fmt.Sprintf("%s tells a client of the %s", n.Name, word), "name what it means to a client; a cluster looks like one broker")
			}
		}
	}
	for _, n := range c.visible() {
		check(n)
	}
}

// visible is everything that a client meets by name: domains, messages, types, their members, and every field.
func (c *checker) visible() []model.Named {
	var s scope
	for _, p := range c.fields {
		s.names = append(s.names, p.Named)
	}
	for _, d := range c.spec.Domains {
		s.names = append(s.names, d.Named)
		take(&s, d.Operations, func(x *model.Operation) model.Named { return x.Named })
		take(&s, d.Messages, func(x *model.Message) model.Named { return x.Named })
		take(&s, d.Structs, func(x *model.Struct) model.Named { return x.Named })
		take(&s, d.Enums, func(x *model.Enum) model.Named { return x.Named })
		take(&s, d.Unions, func(x *model.Union) model.Named { return x.Named })
		for _, e := range d.Enums {
			take(&s, e.Values, func(x *model.EnumValue) model.Named { return x.Named })
		}
		for _, u := range d.Unions {
			take(&s, u.Variants, func(x *model.Variant) model.Named { return x.Named })
		}
	}
	return s.names
}

// promises is words that claim a guarantee beyond the next hop.
var promises = regexp.MustCompile(`(?i)end[- ]to[- ]end|exactly[- ]once|guaranteed delivery|never lost`)

func wordPromise(c *checker) {
	check := func(n model.Named) {
		if found := promises.FindString(n.Doc); found != "" {
			c.add(n.Where("doc"), fmt.Sprintf("the text of %s promises %q", n.Name, found), "say what the broker did; a guarantee is about the next hop")
		}
	}
	for _, n := range c.visible() {
		check(n)
	}
	for _, n := range c.keyed() {
		check(n)
	}
	for _, e := range c.spec.Errors {
		check(e.Named)
	}
	for _, k := range c.spec.Wire.Capabilities {
		check(k.Named)
	}
	check(model.Named{Name: c.spec.Protocol, Doc: c.spec.Doc, Pos: c.spec.Pos})
}

func docSentences(c *checker) {
	for _, n := range c.visible() {
		if n.Doc != "" && !strings.HasSuffix(n.Doc, ".") {
			c.add(n.Where("doc"), fmt.Sprintf("the text of %s does not end with a full stop", n.Name), "write full sentences; a text with a comma or colon in a flow mapping needs quotes")
		}
	}
}
