package rules

import (
	"math/big"

	"github.com/fitzwire/fitz/codegen/model"
)

// bits is the sizes of the integer types.
var bits = map[string]uint{"u8": 8, "u16": 16, "u32": 32, "u64": 64}

// text is the types whose size is that of what they hold.
var text = map[string]bool{"string": true, "bytes": true, "route": true, "selector": true}

// scalar tells whether a type is built into the language.
func scalar(t string) bool {
	return bits[t] > 0 || text[t] || t == "bool" || t == "uuid" || t == "endpoint"
}

func isRoute(t string) bool { return t == "route" || t == "selector" }

// known tells whether a type, which is no list, exists in a domain. An envelope has no domain and built-in types only.
func known(d *model.Domain, t string) bool {
	if scalar(t) {
		return true
	}
	return d != nil && (d.Enum(t) != nil || d.Struct(t) != nil || d.Union(t) != nil)
}

// composite is the groups of fields that a type stands for: one of a struct, one each of the variants of a union, none of others.
func composite(d *model.Domain, t string) [][]*model.Field {
	if d == nil {
		return nil
	}
	if s := d.Struct(t); s != nil {
		return [][]*model.Field{s.Fields}
	}
	var out [][]*model.Field
	if u := d.Union(t); u != nil {
		for _, v := range u.Variants {
			out = append(out, v.Fields)
		}
	}
	return out
}

// element is the type that a field or the members of its list have.
func element(f *model.Field) string {
	if f.Elem != "" {
		return f.Elem
	}
	return f.Type
}

// width is the number of bits of the integer that a type is, 0 when it is none. A bool counts as one that holds 0 and 1.
func width(d *model.Domain, t string) uint {
	if t == "bool" {
		return 1
	}
	if d != nil {
		if e := d.Enum(t); e != nil {
			return bits[e.Type]
		}
	}
	return bits[t]
}

// largest is the largest number of that many bits.
func largest(n uint) *big.Int {
	one := big.NewInt(1)
	return new(big.Int).Sub(new(big.Int).Lsh(one, n), one)
}

// number is the value of a number, nil when it names a bound that does not exist.
func (c *checker) number(n *model.Number) *big.Int {
	if n == nil || n.Value != nil {
		return valueOf(n)
	}
	if b := c.spec.Bound(n.Bound); b != nil {
		return big.NewInt(b.Default)
	}
	return nil
}

func valueOf(n *model.Number) *big.Int {
	if n == nil {
		return nil
	}
	return n.Value
}

// open tells whether nothing can follow a value of the field, because only the end of the value says where it ends.
func open(d *model.Domain, f *model.Field) bool { return opens(d, f, visited{}) }

// openType is open for a value of a type.
func openType(d *model.Domain, t string) bool { return opensType(d, t, visited{}) }

func opens(d *model.Domain, f *model.Field, seen visited) bool {
	switch f.Presence.Kind {
	case model.Tail, model.TailFlagged, model.Rest:
		return true
	}
	if f.Form == "until_end" {
		return true
	}
	return f.Length == "" && opensType(d, element(f), seen)
}

func opensType(d *model.Domain, t string, seen visited) bool {
	return seen.anyField(d, t, func(f *model.Field) bool { return opens(d, f, seen) })
}

// visited is the types that a search has been in. A search for any field with a property never needs to go into a type twice, which ends
// walks over structs that contain themselves and keeps the others short.
type visited map[string]bool

// anyField tells whether a field of a struct or of a variant has a property; false for other types and those visited before.
func (v visited) anyField(d *model.Domain, t string, property func(*model.Field) bool) bool {
	if v[t] {
		return false
	}
	v[t] = true
	for _, group := range composite(d, t) {
		for _, f := range group {
			if property(f) {
				return true
			}
		}
	}
	return false
}
