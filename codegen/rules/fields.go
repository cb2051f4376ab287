package rules

import (
	"fmt"
	"math/big"
	"slices"

	"github.com/fitzwire/fitz/codegen/model"
)

var fieldRules = []Rule{
	{"FIELD_TYPE", "The type of a field exists, and a list is a list of something that is no list.", fieldTypes},
	{"BOUND_MISSING", "Everything of variable size names its bound (invariant 13).", boundMissing},
	{"BOUND_NEEDLESS", "Only what varies in size has a bound.", boundNeedless},
	{"BOUND_UNKNOWN", "Every bound that is named exists.", boundUnknown},
	{"BOUND_REACTION", "What a peer chooses has a reaction, and only a refusal has codes (invariant 13).", boundReactions},
	{"BOUND_MINUS", "A bound that shrinks by other fields is used beside them.", boundMinus},
	{"FIELD_ORDER", "Nothing follows a rest or an open list, and only further tails follow a tail.", fieldOrder},
	{"FIELD_WHEN", "What says whether a field is present was decoded before and is always there.", fieldWhen},
	{"FIELD_RANGE", "Limits, constants and defaults fit the type and each other.", fieldRanges},
	{"FIELD_KEYWORD", "A keyword stands only on types that it says something about.", fieldKeywords},
	{"FIELD_ROLE", "A role fits its type.", fieldRoles},
	{"FIELD_LATE", "Late fields have one size and end their struct.", fieldLate},
	{"CAPABILITY_LEAK", "A value that lets its reader act is in no listing and no push.", capabilityLeak},
	{"TAIL_DEFAULT", "A tail has the default that its absence stands for, so that the default is not encoded (invariant 12).", tailDefault},
	{"STRUCT_CYCLE", "No struct contains itself.", structCycle},
	{"ENUM_VALUES", "The numbers of an enumeration or union are distinct and fit its type.", enumValues},
	{"ROUTE_GRAMMAR", "Routes and selectors have the one grammar: a scheme of the domain and its bound (invariant 1).", routeGrammar},
	{"ENDPOINT_OPAQUE", "An endpoint is opaque: nothing but its size can be said of one (invariant 1).", endpointOpaque},
}

func fieldTypes(c *checker) {
	for _, p := range c.fields {
		if t := element(p.Field); !known(p.domain, t) {
			c.add(p.Where("type"), fmt.Sprintf("the type %s of the field %s does not exist", t, p.Name), "use a built-in type or one of the domain")
		}
	}
}

// varies tells whether values of a type, which is no list, have different sizes.
func varies(d *model.Domain, t string) bool { return variesIn(d, t, visited{}) }

func variesIn(d *model.Domain, t string, seen visited) bool {
	if text[t] || t == "endpoint" || len(composite(d, t)) > 1 {
		return true
	}
	return seen.anyField(d, t, func(f *model.Field) bool {
		return f.Elem != "" || f.Presence.Kind != model.Always || variesIn(d, f.Type, seen)
	})
}

func boundMissing(c *checker) {
	for _, p := range c.fields {
		missing := func(key, what string) {
			c.add(p.Pos, fmt.Sprintf("the field %s of %s has no %s", p.Name, p.owner.Name, what), "name a bound in "+key)
		}
		switch {
		case p.Elem != "":
			if p.Bound == "" {
				missing("bound", "bound of the number of its members")
			}
			if p.Bytes == "" && varies(p.domain, p.Elem) {
				missing("bytes", "bound of the bytes of its members, whose size varies")
			}
		case p.Type == "endpoint":
			if p.MaxBytes == "" {
				missing("max_bytes", "bound of its bytes")
			}
		case text[p.Type] && p.Bound == "":
			missing("bound", "bound of its bytes")
		case p.Length != "" && p.Bound == "":
			missing("bound", "bound of the bytes that its length announces")
		}
	}
}

func boundNeedless(c *checker) {
	for _, p := range c.fields {
		if p.Bound != "" && p.Elem == "" && !text[p.Type] && p.Length == "" && p.Type != "endpoint" {
			c.add(p.Where("bound"), fmt.Sprintf("the field %s has one size and needs no bound", p.Name), "remove it; the largest number is max")
		}
		if p.Bytes != "" && p.Elem == "" {
			c.add(p.Where("bytes"), fmt.Sprintf("the field %s is no list", p.Name), "use bound")
		}
	}
}

func boundUnknown(c *checker) {
	check := func(name string, pos model.Pos) {
		if name != "" && c.spec.Bound(name) == nil {
			c.add(pos, fmt.Sprintf("there is no bound %s", name), "correct the name or add the bound")
		}
	}
	for _, p := range c.fields {
		check(p.Bound, p.Where("bound"))
		check(p.Bytes, p.Where("bytes"))
		check(p.MaxBytes, p.Where("max_bytes"))
		for _, n := range []*model.Number{p.Min, p.Max, p.Default, p.Const} {
			if n != nil {
				check(n.Bound, n.Pos)
			}
		}
	}
	w, r := c.spec.Wire, c.spec.Routes
	for _, name := range []string{w.Framing.PrefixMax, w.Framing.PrefixSentMax, w.Framing.LengthMax, w.Framing.ReplyMax, w.Framing.RecordsMax} {
		check(name, w.Framing.Pos)
	}
	check(w.CloseTextMax, w.Pos)
	for _, s := range w.Outbound {
		check(s.Frames, s.Where("frames"))
		check(s.Bytes, s.Where("bytes"))
	}
	for _, t := range w.FixedTexts {
		check(t.Bound, t.Where("bound"))
	}
	for _, name := range []string{r.Bytes, r.Segments, r.ContainmentSegments, r.ContainmentStates} {
		check(name, r.Pos)
	}
	for _, d := range c.spec.SDK.Defaults {
		check(d.Bound, d.Where("bound"))
	}
}

func boundReactions(c *checker) {
	for _, b := range c.spec.Bounds {
		if b.ChosenBy == "peer" && b.Reaction == "none" {
			c.add(b.Where("reaction"), fmt.Sprintf("a peer chooses the value of %s and nothing happens beyond it", b.Name), "say what happens: refuse, close, evict, …")
		}
		if len(b.Codes) > 0 && b.Reaction != "refuse" {
			c.add(b.Where("codes"), fmt.Sprintf("the reaction of %s is %s, which answers no code", b.Name, b.Reaction), "remove the codes or refuse")
		}
	}
}

func boundMinus(c *checker) {
	for _, p := range c.fields {
		b := c.spec.Bound(p.Bound)
		if b == nil || p.kind != inRequest {
			continue
		}
		for _, name := range b.Minus {
			other := fieldNamed(p.group, name)
			if other == nil || !text[other.Type] {
				c.add(p.Where("bound"), fmt.Sprintf("the bound %s shrinks by the length of %s, which %s does not have", b.Name, name, p.owner.Name), "add the field or use another bound")
			}
		}
	}
}

func fieldOrder(c *checker) {
	for _, p := range c.fields {
		if p.index == 0 {
			continue
		}
		before := p.group[p.index-1]
		tail := before.Presence.Kind == model.Tail || before.Presence.Kind == model.TailFlagged
		if !open(p.domain, before) {
			continue
		}
		if tail && (p.Presence.Kind == model.Tail || p.Presence.Kind == model.TailFlagged) && !open(p.domain, plain(before)) {
			continue
		}
		c.add(p.Pos, fmt.Sprintf("the field %s follows %s, which ends only with the value", p.Name, before.Name), "move it in front, or make it a tail behind a tail")
	}
	for _, p := range c.fields {
		if p.Elem != "" && openType(p.domain, p.Elem) {
			c.add(p.Where("type"), fmt.Sprintf("the members of %s end only with the value", p.Name), "use members whose end is known")
		}
	}
}

// plain is a field without its presence.
func plain(f *model.Field) *model.Field {
	g := *f
	g.Presence = model.Presence{}
	return &g
}

func fieldWhen(c *checker) {
	for _, p := range c.fields {
		if p.Presence.Kind != model.PresentWhen {
			continue
		}
		where := p.Where("presence/when/field")
		i := slices.IndexFunc(p.group, func(f *model.Field) bool { return f.Name == p.Presence.Field })
		if i < 0 || i >= p.index {
			c.add(where, fmt.Sprintf("no field %s stands before %s", p.Presence.Field, p.Name), "name a field that is decoded earlier")
			continue
		}
		f := p.group[i]
		if f.Presence.Kind != model.Always {
			c.add(where, fmt.Sprintf("the field %s is not always there", f.Name), "name a field that is")
		}
		switch bit := p.Presence.Bit; {
		case bit == "" && f.Type != "bool":
			c.add(where, fmt.Sprintf("the field %s is no bool", f.Name), "name a bool, or give the bit of a field of format capabilities")
		case bit != "" && f.Format != "capabilities":
			c.add(where, fmt.Sprintf("the field %s holds no capabilities", f.Name), "name a field of format capabilities, or remove the bit")
		}
	}
}

func fieldRanges(c *checker) {
	for _, p := range c.fields {
		n := width(p.domain, p.Type)
		low, high := c.number(p.Min), c.number(p.Max)
		fits := func(what string, num *model.Number) {
			v := c.number(num)
			if num == nil || n == 0 || v == nil {
				return
			}
			if v.Sign() < 0 || v.Cmp(largest(n)) > 0 {
				c.add(num.Pos, fmt.Sprintf("the %s %s of %s does not fit %s", what, v, p.Name, p.Type), "use a number that fits")
			}
		}
		fits("smallest value", p.Min)
		fits("largest value", p.Max)
		fits("default", p.Default)
		fits("constant", p.Const)
		if low != nil && high != nil && low.Cmp(high) > 0 {
			c.add(p.Where("min"), fmt.Sprintf("the smallest value %s of %s is above the largest, %s", low, p.Name, high), "swap the two")
		}
		c.between(p, "default", p.Default, low, high)
		c.between(p, "constant", p.Const, low, high)
		if v := c.number(p.Const); v != nil && v.Sign() == 0 && p.Nonzero {
			c.add(p.Const.Pos, fmt.Sprintf("the constant of %s is the zero that nonzero forbids", p.Name), "remove one of the two")
		}
	}
}

// between reports a default or constant outside of the limits of its field.
func (c *checker) between(p *place, what string, num *model.Number, low, high *big.Int) {
	v := c.number(num)
	if v == nil {
		return
	}
	if low != nil && v.Cmp(low) < 0 || high != nil && v.Cmp(high) > 0 {
		c.add(num.Pos, fmt.Sprintf("the %s %s of %s is outside of its limits", what, v, p.Name), "move it inside")
	}
}

func fieldKeywords(c *checker) {
	for _, p := range c.fields {
		integer := width(p.domain, p.Type) > 0
		plainInteger := bits[p.Type] > 0
		sized := text[p.Type] || p.Elem != "" || p.Length != ""
		bad := func(key, why, mend string) {
			c.add(p.Where(key), fmt.Sprintf("%s says nothing about the field %s, %s", key, p.Name, why), mend)
		}
		if p.Min != nil && !plainInteger {
			bad("min", "which is no integer", "remove it")
		}
		if p.Max != nil && !plainInteger {
			bad("max", "which is no integer", "remove it; sizes have a bound")
		}
		if p.Nonzero && !plainInteger {
			bad("nonzero", "which is no integer", "remove it")
		}
		if (p.Default != nil || p.Const != nil) && !integer {
			bad(map[bool]string{true: "default", false: "const"}[p.Default != nil], "which is no integer, bool or enumeration", "remove it")
		}
		if p.Const != nil && p.Presence.Kind != model.Always {
			bad("const", "which is not always there", "remove the presence")
		}
		c.aboveKeyword(p, plainInteger, bad)
		if (p.Text != "" || p.Code != "") && p.Max == nil && p.Min == nil && !sized && !isEnum(p) {
			bad(map[bool]string{true: "text", false: "code"}[p.Text != ""], "which no value of is refused", "remove it or give a limit")
		}
		if p.Length != "" && len(composite(p.domain, p.Type)) == 0 {
			bad("length", "which is no struct or union", "remove it")
		}
		if p.LaterIgnored && p.Length == "" {
			bad("later_bytes", "which has no length in front", "remove it or give a length")
		}
		if _, ok := p.At["form"]; ok && p.Elem == "" {
			bad("form", "which is no list", "remove it")
		}
		if _, ok := p.At["count"]; ok && p.Form != "counted" {
			bad("count", "which is no counted list", "remove it")
		}
		if p.Presence.Kind == model.Rest && p.Type != "string" && p.Type != "bytes" {
			bad("presence", "which is no string or bytes", "remove rest")
		}
		c.formatKeyword(p, bad)
	}
}

func isEnum(p *place) bool { return p.domain != nil && p.domain.Enum(p.Type) != nil }

func (c *checker) aboveKeyword(p *place, integer bool, bad func(key, why, mend string)) {
	switch p.Above {
	case "clamp":
		if !integer || p.Max == nil {
			bad("above", "which is no integer with max", "give a max or remove it")
		}
	case "cut":
		if p.Type != "string" {
			bad("above", "which is no text that can be cut", "remove it")
		}
	case "refuse":
		if p.Max == nil && p.Bound == "" {
			bad("above", "which has no limit", "give a limit or remove it")
		}
	}
}

// formats is the types that each format is a reading of.
var formats = map[string][]string{
	"capabilities":  {"u32"},
	"error_code":    {"u32"},
	"domain_number": {"u8"},
	"rfc3339_ms":    {"string"},
	"unix_ms":       {"u64"},
	"json":          {"string", "bytes"},
}

func (c *checker) formatKeyword(p *place, bad func(key, why, mend string)) {
	if types := formats[p.Format]; types != nil && !slices.Contains(types, p.Type) {
		bad("format", fmt.Sprintf("which is %s and not %v", p.Type, types), "change the type or the format")
	}
}

func fieldRoles(c *checker) {
	for _, p := range c.fields {
		number := bits[p.Type] > 0 || p.Type == "uuid"
		ok := true
		switch p.Role {
		case "claim", "secret":
			ok = p.Type == "string" || p.Type == "bytes"
		case "capability", "registration", "correlation", "acknowledgement":
			ok = number
		case "opaque":
			ok = number || p.Type == "bytes" || p.Type == "string"
		}
		if !ok {
			c.add(p.Where("role"), fmt.Sprintf("a field of type %s has no role %s", p.Type, p.Role), "change the type or the role")
		}
	}
}

func fieldLate(c *checker) {
	for _, p := range c.fields {
		if p.Late && p.kind != inStruct {
			c.add(p.Where("late"), fmt.Sprintf("the field %s stands in no struct", p.Name), "remove late")
		}
		if p.Late && (p.Presence.Kind != model.Always || p.Elem != "" || varies(p.domain, p.Type)) {
			c.add(p.Where("late"), fmt.Sprintf("the field %s has no single size", p.Name), "remove late or use an integer")
		}
		if !p.Late && p.index > 0 && p.group[p.index-1].Late {
			c.add(p.Pos, fmt.Sprintf("the field %s follows the late field %s", p.Name, p.group[p.index-1].Name), "move it in front of the late fields")
		}
	}
}

func capabilityLeak(c *checker) {
	for _, p := range c.fields {
		push := p.msg != nil && p.msg.Class == "push"
		if push && p.Role == "capability" {
			c.add(p.Where("role"), fmt.Sprintf("the push %s tells %s to everyone who listens", p.owner.Name, p.Name), "leave it out")
		}
		listing := p.Elem != "" && p.kind == inReply && p.op.ReadOnly
		if !listing && !push {
			continue
		}
		if inner := carrier(p.domain, element(p.Field), visited{}); inner != "" {
			c.add(p.Where("type"), fmt.Sprintf("members of %s tell %s", p.Name, inner), "leave it out, or use another struct")
		}
	}
}

// carrier is the name of a capability within a type, "" when there is none.
func carrier(d *model.Domain, t string, seen visited) (name string) {
	seen.anyField(d, t, func(f *model.Field) bool {
		if name = carrier(d, element(f), seen); f.Role == "capability" {
			name = f.Name
		}
		return name != ""
	})
	return name
}

func tailDefault(c *checker) {
	for _, p := range c.fields {
		if p.Presence.Kind == model.Tail && p.Default == nil && width(p.domain, p.Type) > 0 {
			c.add(p.Pos, fmt.Sprintf("nothing says what the absence of %s means", p.Name), "give a default, or use tail_flag when absence is a value of its own")
		}
	}
}

func structCycle(c *checker) {
	for _, d := range c.spec.Domains {
		for _, s := range d.Structs {
			if reaches(d, s.Name, s.Name, map[string]bool{}) {
				c.add(s.Pos, fmt.Sprintf("%s contains itself", s.Name), "break the cycle")
			}
		}
		for _, u := range d.Unions {
			if reaches(d, u.Name, u.Name, map[string]bool{}) {
				c.add(u.Pos, fmt.Sprintf("%s contains itself", u.Name), "break the cycle")
			}
		}
	}
}

// reaches tells whether a value of type from contains one of type to.
func reaches(d *model.Domain, from, to string, seen map[string]bool) bool {
	if seen[from] {
		return false
	}
	seen[from] = true
	for _, group := range composite(d, from) {
		for _, f := range group {
			if t := element(f); t == to || reaches(d, t, to, seen) {
				return true
			}
		}
	}
	return false
}

func enumValues(c *checker) {
	for _, d := range c.spec.Domains {
		for _, e := range d.Enums {
			seen := map[uint64]string{}
			for _, v := range e.Values {
				c.member(e.Type, v.Named, v.Value, seen)
			}
		}
		for _, u := range d.Unions {
			seen := map[uint64]string{}
			for _, v := range u.Variants {
				c.member(u.Tag, v.Named, v.Value, seen)
			}
		}
	}
}

// member checks one numbered name.
func (c *checker) member(t string, n model.Named, value uint64, seen map[uint64]string) {
	if first, ok := seen[value]; ok {
		c.add(n.Where("value"), fmt.Sprintf("%s has the number %d of %s", n.Name, value, first), "give it a number of its own")
	}
	seen[value] = n.Name
	if size := bits[t]; size > 0 && new(big.Int).SetUint64(value).Cmp(largest(size)) > 0 {
		c.add(n.Where("value"), fmt.Sprintf("the number %d of %s does not fit %s", value, n.Name, t), "use a smaller number or a larger type")
	}
}

func routeGrammar(c *checker) {
	for _, d := range c.spec.Domains {
		if d.Scheme != "" && c.spec.Scheme(d.Scheme) == nil {
			c.add(d.Where("routes"), fmt.Sprintf("there is no scheme %s", d.Scheme), "name a scheme of the routes file")
		}
	}
	for _, p := range c.fields {
		if !isRoute(element(p.Field)) {
			continue
		}
		if p.domain == nil || p.domain.Scheme == "" {
			c.add(p.Where("type"), fmt.Sprintf("the field %s is a %s in a domain without a scheme", p.Name, element(p.Field)), "name the scheme of the domain in routes")
		}
		if p.Elem == "" && p.Bound != "" && p.Bound != c.spec.Routes.Bytes {
			c.add(p.Where("bound"), fmt.Sprintf("the %s %s has the bound %s and not that of the grammar", p.Type, p.Name, p.Bound), "use "+c.spec.Routes.Bytes)
		}
	}
}

// saidOfEndpoints is the keys that a field of type endpoint may have.
var saidOfEndpoints = []string{"name", "type", "doc", "max_bytes"}

func endpointOpaque(c *checker) {
	for _, p := range c.fields {
		if element(p.Field) != "endpoint" {
			if p.MaxBytes != "" {
				c.add(p.Where("max_bytes"), fmt.Sprintf("the field %s is no endpoint", p.Name), "use bound")
			}
			continue
		}
		for key, pos := range p.At {
			if !slices.Contains(saidOfEndpoints, key) {
				c.add(pos, fmt.Sprintf("%s is said of the endpoint %s", key, p.Name), "remove it; an endpoint has max_bytes and nothing else")
			}
		}
	}
}
