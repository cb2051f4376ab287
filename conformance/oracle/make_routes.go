package oracle

import (
	"fmt"
	"slices"
	"strings"
)

// RouteFile holds the golden vectors of the route grammar.
type RouteFile struct {
	Comment     string              `json:"comment"`
	Version     string              `json:"spec_version"`
	Fingerprint string              `json:"spec_fingerprint"`
	Texts       []RouteVector       `json:"texts"`
	Matches     []MatchVector       `json:"matches"`
	Containment []ContainmentVector `json:"containment"`
}

// RouteVector is one text and what the grammar says about it.
type RouteVector struct {
	ID      string   `json:"id"`
	Scheme  string   `json:"scheme"` // domain of the message that carries the text
	Use     string   `json:"use"`    // route or selector
	Text    Bytes    `json:"text"`   // UTF-8 in hex, because some are not valid
	Shown   string   `json:"shown"`  // the beginning of the text for people
	Verdict string   `json:"verdict"`
	Clauses []string `json:"clauses"`

	Exact    bool     `json:"exact,omitempty"`    // no wildcard segment
	Point    bool     `json:"point,omitempty"`    // matches one route only
	Flexible bool     `json:"flexible,omitempty"` // of a scheme without a fixed depth
	Masks    []string `json:"masks,omitempty"`    // canonical set, sorted with literals before stars

	Reason string `json:"reason,omitempty"` // word of routes.md section 3
}

// MatchVector says whether a selector matches a route.
type MatchVector struct {
	ID      string `json:"id"`
	Scheme  string `json:"scheme"`
	Pattern string `json:"pattern"`
	Route   string `json:"route"`
	Matches bool   `json:"matches"`
}

// ContainmentVector says whether one grant contains all that a request may match.
type ContainmentVector struct {
	ID        string `json:"id"`
	Scheme    string `json:"scheme"`
	Grant     string `json:"grant"`
	Request   string `json:"request"`
	Contained bool   `json:"contained"`
}

const shownBytes = 60

func (s *Spec) routeVectors() (RouteFile, error) {
	k := &routeMaker{s: s, ids: map[string]bool{}}
	kinds := map[string]bool{} // schemes that read alike are shown once where it would be the same again
	for _, name := range s.Schemes() {
		sc := s.schemes[name]
		k.texts(sc)
		kind := fmt.Sprint(sc.depth, sc.shapes)
		if !kinds[kind] {
			k.shapes(sc)
			k.pairs(sc)
		}
		kinds[kind] = true
	}
	return k.out, k.err
}

type routeMaker struct {
	s   *Spec
	out RouteFile
	ids map[string]bool
	err error
}

func (k *routeMaker) texts(sc *scheme) {
	g := &k.s.grammar
	for _, pattern := range []bool{false, true} {
		for _, b := range k.s.badRoutes(sc, pattern) {
			k.text(sc, strings.ReplaceAll(b.reason, "_", "-"), b.text, pattern, b.reason)
		}
		prefix := sc.name + g.separator
		k.text(sc, "max-bytes", k.s.longRoute(sc, g.bytes), pattern, "")
		k.text(sc, "upper-case-scheme", strings.ToUpper(sc.name)+g.separator+"r", pattern, wrongScheme)
		k.text(sc, "trailing-slash", k.s.sampleRoute(sc, pattern)+g.slash, pattern, emptySegment)
		k.text(sc, "percent", strings.Replace(k.s.sampleRoute(sc, pattern), prefix+"r", prefix+"%2F ?#:", 1), pattern, "")
		k.text(sc, "c1-control", strings.Replace(k.s.sampleRoute(sc, pattern), prefix+"r", prefix+"r\u0085", 1), pattern, controlCharacter)
		schemeless := strings.TrimPrefix(k.s.sampleRoute(sc, false), prefix)
		reason := missingScheme
		if sc.schemeless && !pattern {
			reason = ""
		}
		k.text(sc, "without-scheme", schemeless, pattern, reason)
		if sc.depth == 0 {
			k.text(sc, "max-segments", prefix+strings.Join(slices.Repeat([]string{"x"}, g.segments), g.slash), pattern, "")
		}
	}
}

// shapes makes the vectors of all sequences of one to three segments out of a literal and the wildcards.
func (k *routeMaker) shapes(sc *scheme) {
	kinds := []string{"L", k.s.grammar.one, k.s.grammar.many}
	last := [][]string{nil}
	for range 3 {
		var next [][]string
		for _, before := range last {
			for _, kind := range kinds {
				shape := append(slices.Clone(before), kind)
				k.shape(sc, shape)
				next = append(next, shape)
			}
		}
		last = next
	}
}

// literals replaces the marks of a shape by different words.
func literals(shape []string) []string {
	out := slices.Clone(shape)
	for i, mark := range out {
		if mark == "L" {
			out[i] = string(rune('a' + i))
		}
	}
	return out
}

func (k *routeMaker) shape(sc *scheme, shape []string) {
	g := &k.s.grammar
	text := sc.name + g.separator + strings.Join(literals(shape), g.slash)
	_, reason := k.s.classify(sc, text, true)
	k.text(sc, "shape-"+strings.NewReplacer("**", "many", "*", "one", "L", "literal").Replace(strings.Join(shape, "-")), text, true, reason)
}

func (k *routeMaker) text(sc *scheme, id, text string, pattern bool, want string) {
	use := map[bool]string{false: "route", true: "selector"}[pattern]
	got, reason := k.s.classify(sc, text, pattern)
	id = sc.name + "." + use + "/" + id
	if k.ids[id] {
		return
	}
	k.ids[id] = true
	if reason != want && k.err == nil {
		k.err = fmt.Errorf("oracle: %s: reason %q, want %q", id, reason, want)
	}
	v := RouteVector{ID: id, Scheme: sc.name, Use: use, Text: Bytes(text), Verdict: Accept, Exact: got.Exact, Flexible: got.Flexible}
	v.Shown = strings.ToValidUTF8(cut(text, shownBytes), "\ufffd")
	if reason != "" {
		v.Verdict, v.Reason, v.Clauses = Reject, reason, []string{k.s.grammar.clauses[reason]}
		v.Exact, v.Flexible = false, false
		k.out.Texts = append(k.out.Texts, v)
		return
	}
	v.Clauses = k.kept(sc, text, pattern)
	v.Point = got.Point()
	for _, m := range got.Masks {
		v.Masks = append(v.Masks, strings.Join(m, k.s.grammar.slash))
	}
	k.out.Texts = append(k.out.Texts, v)
}

// kept is the rules that an accepted text shows: every one that refuses texts of its scheme and use, and those that refuse nothing.
func (k *routeMaker) kept(sc *scheme, text string, pattern bool) []string {
	g := &k.s.grammar
	out := []string{"R-01"}
	for _, b := range k.s.badRoutes(sc, pattern) {
		out = append(out, g.clauses[b.reason])
	}
	if !strings.HasPrefix(text, sc.name+g.separator) {
		out = slices.DeleteFunc(out, func(id string) bool { return id == g.clauses[wrongScheme] })
		out = append(out, "R-05")
	}
	if sc.depth == 0 {
		out = append(out, "R-13")
	}
	if pattern {
		out = append(out, "R-20")
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pairs makes the vectors of matching and containment out of some selectors that differ in every way that matters.
func (k *routeMaker) pairs(sc *scheme) {
	g := &k.s.grammar
	depth := sc.depth
	if depth == 0 {
		depth = 3
	}
	word := func(marks ...string) string { return sc.name + g.separator + strings.Join(marks, g.slash) }
	fill := func(mark string, n int) []string { return slices.Repeat([]string{mark}, n) }
	literal := []string{"a", "b", "c", "d"}[:depth]
	texts := []string{
		word(literal...), word(g.many), word("a", g.many), word(g.many, literal[depth-1]), word(g.many, "b", g.many), word("a", g.many, literal[depth-1]),
		word(fill(g.one, depth)...), word(append([]string{"a"}, fill(g.one, depth-1)...)...), word(append(fill(g.one, depth-1), literal[depth-1])...),
		word(g.one, g.many), word("x", g.many),
	}
	routes := []string{word(literal...), word(append([]string{"x"}, literal[1:]...)...), word(append(slices.Clone(literal[:depth-1]), "x")...),
		word(fill("b", depth)...), word(append([]string{"A"}, literal[1:]...)...)}
	if sc.depth == 0 {
		routes = append(routes, word("a"), word("a", "c"), word("b"), word("a", "b", "b", "c"))
	}
	var selectors []Selector
	for _, text := range texts {
		if sel, reason := k.s.classify(sc, text, true); reason == "" {
			selectors = append(selectors, sel)
		}
	}
	for i, sel := range selectors {
		for j, text := range routes {
			if route, reason := k.s.classify(sc, text, false); reason == "" {
				k.out.Matches = append(k.out.Matches, MatchVector{fmt.Sprintf("%s.match/%d-%d", sc.name, i, j), sc.name, sel.Text, text, k.s.Matches(sel, route)})
			}
		}
		for j, request := range selectors {
			k.out.Containment = append(k.out.Containment, ContainmentVector{fmt.Sprintf("%s.containment/%d-%d", sc.name, i, j), sc.name, sel.Text, request.Text, k.s.Contains(sel, request)})
		}
	}
}
