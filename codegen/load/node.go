package load

import (
	"math/big"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/codegen/model"
)

// node is a forgiving view of a YAML node: whatever is missing or of another kind reads as nothing, because the schema reports it.
type node struct {
	src *source
	n   *yaml.Node
}

func (v node) exists() bool { return v.n != nil }

func (v node) pos() model.Pos { return v.src.pos(v.n) }

func (v node) isMap() bool { return v.n != nil && v.n.Kind == yaml.MappingNode }

// get is the value of a key; of two equal keys the first.
func (v node) get(key string) node {
	for k, value := range v.pairs() {
		if k.n.Value == key {
			return value
		}
	}
	return node{src: v.src}
}

// path is get along several keys.
func (v node) path(keys ...string) node {
	for _, k := range keys {
		v = v.get(k)
	}
	return v
}

// pairs yields the keys and values of a mapping in file order.
func (v node) pairs() func(yield func(key, value node) bool) {
	return func(yield func(key, value node) bool) {
		if !v.isMap() {
			return
		}
		for i := 0; i+1 < len(v.n.Content); i += 2 {
			if v.n.Content[i].Kind != yaml.ScalarNode {
				continue
			}
			if !yield(node{v.src, v.n.Content[i]}, node{v.src, v.n.Content[i+1]}) {
				return
			}
		}
	}
}

// items is the members of a sequence.
func (v node) items() []node {
	if v.n == nil || v.n.Kind != yaml.SequenceNode {
		return nil
	}
	out := make([]node, len(v.n.Content))
	for i, c := range v.n.Content {
		out[i] = node{v.src, c}
	}
	return out
}

// str is the text of a scalar.
func (v node) str() string {
	if v.n == nil || v.n.Kind != yaml.ScalarNode {
		return ""
	}
	return v.n.Value
}

// integer is the value of a plain decimal number that fits; anything else is 0.
func (v node) integer() int64 {
	i, err := strconv.ParseInt(v.str(), 10, 64)
	if err != nil {
		return 0
	}
	return i
}

// uint is integer for numbers that are never negative and fit in bits.
func (v node) uint(bits int) uint64 {
	u, err := strconv.ParseUint(v.str(), 10, bits)
	if err != nil {
		return 0
	}
	return u
}

func (v node) float() float64 {
	f, err := strconv.ParseFloat(v.str(), 64)
	if err != nil {
		return 0
	}
	return f
}

func (v node) boolean() bool { return v.str() == "true" }

// strings is the texts of a sequence of scalars.
func (v node) strings() []string {
	var out []string
	for _, item := range v.items() {
		out = append(out, item.str())
	}
	return out
}

// number is a literal or the name of a bound or enum value; nil when there is none.
func (v node) number() *model.Number {
	text := v.str()
	if !v.exists() || text == "" {
		return nil
	}
	switch text {
	case "true":
		return &model.Number{Pos: v.pos(), Value: big.NewInt(1)}
	case "false":
		return &model.Number{Pos: v.pos(), Value: big.NewInt(0)}
	}
	if value, ok := new(big.Int).SetString(text, 10); ok {
		return &model.Number{Pos: v.pos(), Value: value}
	}
	return &model.Number{Pos: v.pos(), Bound: text}
}

// keyValues is the scalar pairs of a mapping in file order, without the given keys.
func (v node) keyValues(without ...string) []model.KeyValue {
	var out []model.KeyValue
	for k, value := range v.pairs() {
		if value.n.Kind != yaml.ScalarNode || contains(without, k.str()) {
			continue
		}
		out = append(out, model.KeyValue{Key: k.str(), Value: value.str()})
	}
	return out
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// named fills what every named part has, from its key (or name) and value.
func named(name string, at, value node) model.Named {
	n := model.Named{Name: name, Doc: value.get("doc").str(), Pos: at.pos(), At: map[string]model.Pos{}}
	places(n.At, "", value)
	return n
}

// places notes where everything below a node stands.
func places(at map[string]model.Pos, prefix string, v node) {
	for k, value := range v.pairs() {
		at[prefix+k.str()] = value.pos()
		places(at, prefix+k.str()+"/", value)
	}
	for i, item := range v.items() {
		key := prefix + strconv.Itoa(i)
		at[key] = item.pos()
		places(at, key+"/", item)
	}
}
