package scenario

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Mismatch is one place where a value is not what a matcher wants.
type Mismatch struct {
	Path string // items.0.route, "" for the value itself
	Want string
	Got  string
}

// String says where, what was expected and what came.
func (m Mismatch) String() string {
	where := m.Path
	if where == "" {
		where = "value"
	}
	return fmt.Sprintf("%s: expected %s, got %s", where, m.Want, m.Got)
}

// Describe puts mismatches into one text, a line each.
func Describe(list []Mismatch) string {
	lines := make([]string, len(list))
	for i, m := range list {
		lines[i] = m.String()
	}
	return strings.Join(lines, "\n")
}

// Match compares a value with a matcher whose variables are replaced and returns every difference. A mapping matches when each of its
// keys does; keys that the matcher does not name are not looked at. A list matches a list of the same length, member by member.
func Match(want, got any) []Mismatch {
	var m matching
	m.value("", want, got, true)
	return m.list
}

type matching struct{ list []Mismatch }

func (m *matching) add(path, want string, got any, present bool) {
	text := "nothing"
	if present {
		text = Show(got)
	}
	m.list = append(m.list, Mismatch{path, want, text})
}

func (m *matching) value(path string, want, got any, present bool) {
	switch w := want.(type) {
	case map[string]any:
		m.mapping(path, w, got, present)
	case []any:
		m.sequence(path, w, got, present)
	default:
		if !present || !Equal(want, got) {
			m.add(path, Show(want), got, present)
		}
	}
}

func (m *matching) mapping(path string, want map[string]any, got any, present bool) {
	exact := false
	plainKeys := 0
	for _, key := range keys(want) {
		if !strings.HasPrefix(key, "$") {
			plainKeys++
			continue
		}
		if key == "$exact" {
			exact, _ = want[key].(bool)
			continue
		}
		m.operator(path, key, want[key], got, present)
	}
	if plainKeys == 0 && !exact && len(want) > 0 {
		return
	}
	object, ok := got.(map[string]any)
	if !ok || !present {
		m.add(path, "a mapping", got, present)
		return
	}
	m.members(path, want, object)
	if !exact {
		return
	}
	for _, key := range keys(object) {
		if _, named := want[key]; !named {
			m.add(join(path, key), "nothing", object[key], true)
		}
	}
}

func (m *matching) members(path string, want, got map[string]any) {
	for _, key := range keys(want) {
		if strings.HasPrefix(key, "$") {
			continue
		}
		v, present := got[key]
		m.value(join(path, key), want[key], v, present && v != nil)
	}
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (m *matching) sequence(path string, want []any, got any, present bool) {
	list, ok := got.([]any)
	if !ok || !present {
		m.add(path, fmt.Sprintf("a list of %d", len(want)), got, present)
		return
	}
	if len(list) != len(want) {
		m.add(path, fmt.Sprintf("%d members", len(want)), fmt.Sprintf("%d members: %s", len(list), Show(list)), true)
		return
	}
	for i := range want {
		m.value(join(path, strconv.Itoa(i)), want[i], list[i], true)
	}
}

// operator is one operator of a matcher: the test whether a value passes, and the words for what it wants.
type operator struct {
	passes func(operand, got any) bool
	words  string
}

// operators is every operator of a matcher. It is filled when the program starts, because operators match inner matchers.
var operators map[string]operator

func init() {
	operators = map[string]operator{
		"$any":      {func(_, _ any) bool { return true }, "anything"},
		"$not":      {func(operand, got any) bool { return len(Match(operand, got)) > 0 }, "anything but"},
		"$min":      {func(operand, got any) bool { c, ok := compare(got, operand); return ok && c >= 0 }, "at least"},
		"$max":      {func(operand, got any) bool { c, ok := compare(got, operand); return ok && c <= 0 }, "at most"},
		"$re":       {matchesPattern, "text of the form"},
		"$len":      {hasLength, "length"},
		"$contains": {contains, "something that contains"},
		"$set":      {sameSet, "in any order"},
		"$oneof":    {oneOf, "one of"},
		"$sorted":   {isSorted, "members in ascending order by"},
	}
}

// Operators returns the names of all operators of matchers.
func Operators() []string { return append(slices.Sorted(maps.Keys(operators)), "$absent", "$exact") }

func (m *matching) operator(path, op string, operand, got any, present bool) {
	if op == "$absent" {
		if present {
			m.add(path, "nothing", got, true)
		}
		return
	}
	known, ok := operators[op]
	if !ok {
		m.add(path, "the unknown operator "+op, got, present)
		return
	}
	if present && known.passes(operand, got) {
		return
	}
	want := known.words
	if op != "$any" {
		want += " " + Show(operand)
	}
	m.add(path, want, got, present)
}

func matchesPattern(operand, got any) bool {
	pattern, _ := operand.(string)
	text, ok := scalarText(got)
	re, err := regexp.Compile(pattern)
	return err == nil && ok && re.MatchString(text)
}

func hasLength(operand, got any) bool {
	n := 0
	switch got := got.(type) {
	case string:
		n = len(got)
	case []byte:
		n = len(got)
	case []any:
		n = len(got)
	case map[string]any:
		n = len(got)
	default:
		return false
	}
	return len(Match(operand, int64(n))) == 0
}

func contains(operand, got any) bool {
	switch got := got.(type) {
	case Named:
		part, ok := operand.(string)
		return ok && strings.Contains(got.Name, part)
	case string:
		part, ok := operand.(string)
		return ok && strings.Contains(got, part)
	case []any:
		wanted, several := operand.([]any)
		if !several {
			wanted = []any{operand}
		}
		return matched(wanted, got)
	}
	return false
}

func sameSet(operand, got any) bool {
	want, isList := operand.([]any)
	list, ok := got.([]any)
	return isList && ok && len(want) == len(list) && matched(want, list)
}

// matched tells whether each matcher can be given a member of its own. The lists are short, so that trying is good enough: the search
// ends after maxTries steps, which counts as not matched.
func matched(want, got []any) bool {
	tries := 0
	used := make([]bool, len(got))
	var place func(i int) bool
	place = func(i int) bool {
		if i == len(want) {
			return true
		}
		for j := range got {
			tries++
			if tries > maxTries {
				return false
			}
			if used[j] || len(Match(want[i], got[j])) > 0 {
				continue
			}
			used[j] = true
			if place(i + 1) {
				return true
			}
			used[j] = false
		}
		return false
	}
	return place(0)
}

const maxTries = 1 << 20

func oneOf(operand, got any) bool {
	list, _ := operand.([]any)
	return slices.ContainsFunc(list, func(want any) bool { return len(Match(want, got)) == 0 })
}

// isSorted tells whether the members of a list grow strictly; operand is the path in each member that is compared.
func isSorted(operand, got any) bool {
	path, _ := operand.(string)
	list, ok := got.([]any)
	if !ok {
		return false
	}
	for i := 1; i < len(list); i++ {
		before, ok1 := Find(list[i-1], path)
		after, ok2 := Find(list[i], path)
		if !ok1 || !ok2 || !smaller(before, after) {
			return false
		}
	}
	return true
}

// smaller compares numbers by value and texts as routes are ordered: segment by segment.
func smaller(a, b any) bool {
	if c, ok := compare(a, b); ok {
		return c < 0
	}
	x, ok1 := a.(string)
	y, ok2 := b.(string)
	return ok1 && ok2 && slices.Compare(strings.Split(x, "/"), strings.Split(y, "/")) < 0
}

// Equal compares two plain values. Numbers are equal by value, also when one of them is written as text of decimal digits, as a driver
// writes u64; bytes are equal to their base64 text, as a driver writes them. nil is equal to nothing but nil.
func Equal(want, got any) bool {
	if b, ok := want.([]byte); ok {
		return equalBytes(b, got)
	}
	if b, ok := got.([]byte); ok {
		return equalBytes(b, want)
	}
	switch want := want.(type) {
	case string:
		if s, ok := got.(string); ok {
			return want == s
		}
		if n, ok := got.(Named); ok && n.Name == want {
			return true
		}
	case bool:
		b, ok := got.(bool)
		return ok && b == want
	case map[string]any:
		object, ok := got.(map[string]any)
		return ok && maps.EqualFunc(want, object, Equal)
	case []any:
		list, ok := got.([]any)
		return ok && slices.EqualFunc(want, list, Equal)
	case nil:
		return got == nil
	}
	c, ok := compare(want, got)
	return ok && c == 0
}

func equalBytes(b []byte, other any) bool {
	switch other := other.(type) {
	case []byte:
		return bytes.Equal(b, other)
	case string:
		return other == base64.StdEncoding.EncodeToString(b)
	}
	return false
}

func compare(a, b any) (int, bool) {
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok {
			return x.Cmp(y), true
		}
	}
	x, ok1 := number(a)
	y, ok2 := number(b)
	if !ok1 || !ok2 {
		return 0, false
	}
	return x.Cmp(y), true
}

func newInt(i int64) *big.Int { return big.NewInt(i) }

// integer is a value as a whole number: any integer type, or text of decimal digits as u64 are written by drivers.
func integer(v any) (*big.Int, bool) {
	switch v := v.(type) {
	case int:
		return newInt(int64(v)), true
	case int64:
		return newInt(v), true
	case uint8:
		return newInt(int64(v)), true
	case uint16:
		return newInt(int64(v)), true
	case uint32:
		return newInt(int64(v)), true
	case uint64:
		return new(big.Int).SetUint64(v), true
	case Named:
		return new(big.Int).SetUint64(v.Number), true
	case json.Number:
		return digits(v.String())
	case string:
		return digits(v)
	}
	return nil, false
}

// Named is a number that has a name: a value of an enumeration, an error code, bits of capabilities. It is equal to both.
type Named struct {
	Number uint64
	Name   string
}

// String is name (number).
func (n Named) String() string { return fmt.Sprintf("%s (%d)", n.Name, n.Number) }

func digits(s string) (*big.Int, bool) {
	if len(s) > 32 || !plainInt.MatchString(s) {
		return nil, false
	}
	return new(big.Int).SetString(s, 10)
}

func number(v any) (*big.Float, bool) {
	if i, ok := integer(v); ok {
		return new(big.Float).SetInt(i), true
	}
	switch v := v.(type) {
	case float64:
		if v != v { // NaN compares with nothing
			return nil, false
		}
		return big.NewFloat(v), true
	case json.Number:
		f, ok := new(big.Float).SetString(v.String())
		return f, ok
	}
	return nil, false
}

// maxShown is the longest text that Show returns, in bytes.
const maxShown = 400

// Show is a value as text for a message: JSON with bytes in hexadecimal, cut when it is long.
func Show(v any) string {
	var b strings.Builder
	show(&b, v)
	s := b.String()
	if len(s) > maxShown {
		cut := maxShown
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return fmt.Sprintf("%s… (%d bytes)", s[:cut], len(s))
	}
	return s
}

func show(b *strings.Builder, v any) {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, key := range keys(v) {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(key + ": ")
			show(b, v[key])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, member := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			show(b, member)
			if b.Len() > 4*maxShown {
				b.WriteString(", …")
				break
			}
		}
		b.WriteByte(']')
	case []byte:
		b.WriteString("0x" + hex.EncodeToString(v))
	case string:
		b.WriteString(strconv.Quote(v))
	case nil:
		b.WriteString("null")
	default:
		fmt.Fprint(b, v)
	}
}
