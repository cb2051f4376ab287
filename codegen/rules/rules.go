// Package rules checks what a schema cannot say: that names exist and do not collide, that numbers lie where they belong, that everything
// of variable size has a bound, and that the project keeps its invariants.
//
// A rule has an id, a purpose, a handler, and a fixture folder spec/badspecs/ID with a good and a bad specification.
package rules

import (
	"io/fs"
	"slices"

	"github.com/fitzwire/fitz/codegen/findings"
	"github.com/fitzwire/fitz/codegen/model"
)

// Rule is one rule.
type Rule struct {
	ID      string
	Purpose string
	check   func(*checker)
}

// All returns every rule in the order of the table.
func All() []Rule {
	return slices.Concat(messageRules, nameRules, fieldRules, errorRules, sizeRules, wireRules, wordRules, operatorRules, proofRules)
}

// Check runs every rule over a specification. The file system holds the reference and the source tree that the specification names. An error
// is a failure of the tool; mistakes of the specification are findings.
func Check(fsys fs.FS, spec *model.Spec) (findings.List, error) {
	all := All()
	c := &checker{spec: spec, fsys: fsys, known: make(map[string]bool, len(all)), sizes: map[string]int64{}}
	c.fields = c.allFields()
	for _, r := range all {
		c.known[r.ID] = true
	}
	for _, r := range all {
		c.rule = r.ID
		r.check(c)
		if c.err != nil {
			return nil, c.err
		}
	}
	return c.list.Sorted(), nil
}

// checker is the state of one run.
type checker struct {
	spec   *model.Spec
	fsys   fs.FS
	fields []*place
	rule   string // rule that runs now
	list   findings.List
	err    error            // failure of the tool, ends the run
	known  map[string]bool  // ids of all rules
	sizes  map[string]int64 // largest size of structs and unions by domain and name, -1 when it cannot be computed

	reference map[string]int // clause to its position in the reference, nil when it cannot be read
	order     []string
}

// add reports a finding of the rule that runs.
func (c *checker) add(pos model.Pos, problem, mend string) { c.list.Add(pos, c.rule, problem, mend) }

// place is one field and where it stands.
type place struct {
	*model.Field
	domain *model.Domain // nil in an envelope
	kind   placeKind
	owner  model.Named
	group  []*model.Field // all fields of the owner
	index  int            // in group
	op     *model.Operation
	msg    *model.Message
}

type placeKind uint8

const (
	inRequest placeKind = iota
	inReply
	inMessage
	inStruct
	inVariant
	inEnvelope
)

// allFields walks every field of the specification.
func (c *checker) allFields() []*place {
	var out []*place
	add := func(p place, fields []*model.Field) {
		for i, f := range fields {
			q := p
			q.Field, q.group, q.index = f, fields, i
			out = append(out, &q)
		}
	}
	for _, e := range c.spec.Wire.Envelopes {
		add(place{kind: inEnvelope, owner: e.Named}, e.Fields)
	}
	for _, d := range c.spec.Domains {
		for _, s := range d.Structs {
			add(place{domain: d, kind: inStruct, owner: s.Named}, s.Fields)
		}
		for _, u := range d.Unions {
			for _, v := range u.Variants {
				add(place{domain: d, kind: inVariant, owner: v.Named}, v.Fields)
			}
		}
		for _, op := range d.Operations {
			add(place{domain: d, kind: inRequest, owner: op.Named, op: op}, op.Request)
			add(place{domain: d, kind: inReply, owner: op.Named, op: op}, op.Reply)
		}
		for _, m := range d.Messages {
			add(place{domain: d, kind: inMessage, owner: m.Named, msg: m}, m.Fields)
		}
	}
	return out
}

// fieldNamed is the field of that name in a list, nil when there is none.
func fieldNamed(list []*model.Field, name string) *model.Field {
	if i := slices.IndexFunc(list, func(f *model.Field) bool { return f.Name == name }); i >= 0 {
		return list[i]
	}
	return nil
}
