package scenario

import (
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Lookup finds the value of a variable. Names may have dots; the scope decides what they mean.
type Lookup func(name string) (any, bool)

// variable matches $name, ${name} and $$ in a text. A name may go on with dots: $page.next.offset.
var variable = regexp.MustCompile(`\$\$|\$\{([A-Za-z_][A-Za-z0-9_.]*)\}|\$([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)`)

// maxText is the longest text that {$repeat} makes.
const maxText = 32 << 20

// Constructors of values, which stand as the only key of a mapping, beside the operators of matchers.
const (
	opSum    = "$sum"    // {$sum: [a, b, ...]}: sum of whole numbers
	opRepeat = "$repeat" // {$repeat: {text: a, times: 3}}: aaa
	opHex    = "$hex"    // {$hex: 00ff}: bytes
	opText   = "$bytes"  // {$bytes: abc}: bytes of a text
	opRange  = "$list"   // {$list: {times: 3, var: i, value: ...}}: list of values
)

// Variables returns the names of all variables that a value reads, each as often as it stands there.
func Variables(v any) []string {
	var names []string
	switch v := v.(type) {
	case string:
		for _, m := range variable.FindAllStringSubmatch(v, -1) {
			if m[0] != "$$" {
				names = append(names, m[1]+m[2])
			}
		}
	case []any:
		for _, member := range v {
			names = append(names, Variables(member)...)
		}
	case map[string]any:
		for _, key := range keys(v) {
			names = append(names, Variables(v[key])...)
		}
	}
	return names
}

// Expand replaces variables and makes the values that constructors describe. A text that is only a variable becomes its value with its
// type; inside of a longer text it becomes text. Operators of matchers stay, with their operands expanded.
func Expand(v any, lookup Lookup) (any, error) {
	switch v := v.(type) {
	case string:
		return expandText(v, lookup)
	case []any:
		list := make([]any, len(v))
		for i, member := range v {
			expanded, err := Expand(member, lookup)
			if err != nil {
				return nil, err
			}
			list[i] = expanded
		}
		return list, nil
	case map[string]any:
		return expandMap(v, lookup)
	}
	return v, nil
}

func expandText(s string, lookup Lookup) (any, error) {
	if m := variable.FindStringSubmatch(s); m != nil && m[0] == s && s != "$$" {
		v, ok := lookup(m[1] + m[2])
		if !ok {
			return nil, fmt.Errorf("variable %q is not set", m[1]+m[2])
		}
		return v, nil
	}
	var failure error
	text := variable.ReplaceAllStringFunc(s, func(found string) string {
		if found == "$$" {
			return "$"
		}
		name := strings.Trim(found, "${}")
		v, ok := lookup(name)
		if !ok {
			failure = fmt.Errorf("variable %q is not set", name)
			return found
		}
		word, ok := scalarText(v)
		if !ok {
			failure = fmt.Errorf("variable %q is %s, which does not fit into a text", name, Show(v))
		}
		return word
	})
	return text, failure
}

func scalarText(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case Named:
		return v.Name, true
	}
	if i, ok := integer(v); ok {
		return i.String(), true
	}
	return "", false
}

func expandMap(m map[string]any, lookup Lookup) (any, error) {
	if spec, ok := only(m, opRange); ok {
		return expandRange(spec, lookup)
	}
	out := make(map[string]any, len(m))
	for _, key := range keys(m) {
		expanded, err := Expand(m[key], lookup)
		if err != nil {
			return nil, err
		}
		out[key] = expanded
	}
	return construct(out)
}

// construct replaces a mapping that is a constructor by the value that it describes.
func construct(m map[string]any) (any, error) {
	if len(m) != 1 {
		return m, nil
	}
	for op, operand := range m {
		switch op {
		case opSum:
			return sum(operand)
		case opRepeat:
			return repeated(operand)
		case opHex:
			digits, _ := operand.(string)
			b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", opHex, err)
			}
			return b, nil
		case opText:
			text, ok := operand.(string)
			if !ok {
				return nil, fmt.Errorf("%s needs a text, not %s", opText, Show(operand))
			}
			return []byte(text), nil
		}
	}
	return m, nil
}

func only(m map[string]any, op string) (map[string]any, bool) {
	spec, ok := m[op].(map[string]any)
	return spec, ok && len(m) == 1
}

func sum(operand any) (any, error) {
	list, ok := operand.([]any)
	if !ok {
		return nil, fmt.Errorf("%s needs a list of whole numbers", opSum)
	}
	total := newInt(0)
	for _, member := range list {
		i, ok := integer(member)
		if !ok {
			return nil, fmt.Errorf("%s: %s is not a whole number", opSum, Show(member))
		}
		total.Add(total, i)
	}
	switch {
	case total.IsInt64():
		return total.Int64(), nil
	case total.IsUint64():
		return total.Uint64(), nil
	}
	return nil, fmt.Errorf("%s: %s does not fit into 64 bits", opSum, total)
}

func repeated(operand any) (any, error) {
	spec, _ := operand.(map[string]any)
	unit, isText := spec["text"].(string)
	times, ok := Int(spec["times"])
	if !isText || !ok || times < 0 {
		return nil, fmt.Errorf("%s needs text and times", opRepeat)
	}
	if times > maxText || int64(len(unit))*times > maxText {
		return nil, fmt.Errorf("%s makes more than %d bytes", opRepeat, maxText)
	}
	return strings.Repeat(unit, int(times)), nil
}

// maxList is the longest list that {$list} makes.
const maxList = 1 << 20

func expandRange(spec map[string]any, lookup Lookup) (any, error) {
	times, err := Expand(spec["times"], lookup)
	if err != nil {
		return nil, err
	}
	n, ok := Int(times)
	if !ok || n < 0 || n > maxList {
		return nil, fmt.Errorf("%s needs times from 0 to %d", opRange, maxList)
	}
	name := text(spec["var"])
	list := make([]any, 0, n)
	for i := int64(1); i <= n; i++ {
		inner := func(wanted string) (any, bool) {
			if wanted == name {
				return i, true
			}
			return lookup(wanted)
		}
		v, err := Expand(spec["value"], inner)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// Int is a value as int64, also when it is written as text of decimal digits.
func Int(v any) (int64, bool) {
	i, ok := integer(v)
	if !ok || !i.IsInt64() {
		return 0, false
	}
	return i.Int64(), true
}

// Find reads a path of names and list positions in a value: items.0.route. The path "." is the value itself.
func Find(v any, path string) (any, bool) {
	if path == "." || path == "" {
		return v, true
	}
	for _, token := range strings.Split(path, ".") {
		switch part := v.(type) {
		case map[string]any:
			member, ok := part[token]
			if !ok {
				return nil, false
			}
			v = member
		case []any:
			i, err := strconv.Atoi(token)
			if token == "count" {
				return int64(len(part)), true
			}
			if err != nil || i < 0 || i >= len(part) || i > math.MaxInt32 {
				return nil, false
			}
			v = part[i]
		default:
			return nil, false
		}
	}
	return v, true
}
