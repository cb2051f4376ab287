package pattern

import "strings"

// matchSegments reports whether a path of at least one segment matches the segments of a pattern of flexible depth. It goes back
// only to the last "**", so that it does at most len(pattern) comparisons for each segment of the path.
func matchSegments(pattern []string, path string) bool {
	at, more := 0, true         // position in pattern; whether path has a further segment
	retry, retryPath := 0, path // position after the last "**" or 0, and the path that it has not taken yet
	for more {
		segment, rest, restMore := strings.Cut(path, "/")
		switch {
		case at < len(pattern) && pattern[at] == "**":
			at++
			retry, retryPath = at, path
		case at < len(pattern) && (pattern[at] == "*" || pattern[at] == segment):
			at++
			path, more = rest, restMore
		case retry > 0:
			at = retry
			_, retryPath, more = strings.Cut(retryPath, "/")
			path = retryPath
		default:
			return false
		}
	}
	if at < len(pattern) && pattern[at] == "**" {
		at++
	}
	return at == len(pattern)
}

// containsFlexible implements R-32.
func (f *form) containsFlexible(q *form) bool {
	if f.text[f.path:] == q.text[q.path:] {
		return true
	}
	if !q.wild {
		return matchSegments(f.segments, q.text[q.path:])
	}
	if len(f.segments)+len(q.segments) > min(f.grammar.ContainmentSegmentsMax, MaxContainmentSegments) {
		return false
	}
	c := newContainment(f.segments, q.segments, f.grammar.ContainmentStatesMax)
	if len(c.grant.steps) > max(1, len(c.request.steps)) {
		return false // the shortest route of the request is too short for the grant
	}
	return c.run()
}

// stateSet is a set of automaton states, numbered from 0 to 63. That is enough for a grant: it has at most as many steps as the
// request, so that both together would need 128 segments before it had 64.
type stateSet uint64

func (s stateSet) has(i int) bool { return s&(1<<i) != 0 }

// automaton is the pattern with its "**" turned into loops: state i has taken i segments that are not "**"; one more segment
// leads to state i+1 if it fits steps[i], and back to state i if loops[i].
type automaton struct {
	steps []int // symbol of each segment that is not "**", anySymbol for "*"
	loops []bool
}

// Steps that are no literal.
const (
	anySymbol = -1 // "*"
	noStep    = -2 // behind the last one
)

// containment walks pairs of a state of the request and the set of states that the grant can be in after the same segments.
type containment struct {
	grant, request automaton
	symbols        int        // literals of both patterns; the symbol with this number is any other text
	grantSteps     []stateSet // by symbol: the states of the grant that it leads on
	grantLoops     stateSet
	statesMax      int
	visited        map[pair]struct{}
	pending        []pair
}

type pair struct {
	request int
	grant   stateSet
}

func newContainment(grant, request []string, statesMax int) *containment {
	c := &containment{statesMax: statesMax}
	symbols := make(map[string]int)
	c.grant = newAutomaton(grant, symbols)
	c.request = newAutomaton(request, symbols)
	c.symbols = len(symbols)
	return c
}

func newAutomaton(segments []string, symbols map[string]int) automaton {
	a := automaton{loops: make([]bool, len(segments)+1)}
	for _, segment := range segments {
		switch segment {
		case "**":
			a.loops[len(a.steps)] = true
		case "*":
			a.steps = append(a.steps, anySymbol)
		default:
			symbol, known := symbols[segment]
			if !known {
				symbol = len(symbols)
				symbols[segment] = symbol
			}
			a.steps = append(a.steps, symbol)
		}
	}
	return a
}

// compile computes the state sets of the grant.
func (c *containment) compile() {
	c.grantSteps = make([]stateSet, c.symbols+1)
	for state, step := range c.grant.steps {
		for symbol := range c.grantSteps {
			if step == anySymbol || step == symbol {
				c.grantSteps[symbol] |= 1 << state
			}
		}
	}
	for state, loops := range c.grant.loops {
		if loops {
			c.grantLoops |= 1 << state
		}
	}
}

// run reports whether no pair that is reached after at least one segment (R-18: the empty path is no route) accepts for the
// request and not for the grant, and no more than statesMax pairs are reached. The order of the walk does not change the answer.
func (c *containment) run() bool {
	c.compile()
	c.visited = make(map[pair]struct{})
	if !c.expand(pair{request: 0, grant: 1 << 0}) {
		return false
	}
	for len(c.pending) > 0 {
		last := len(c.pending) - 1
		p := c.pending[last]
		c.pending = c.pending[:last]
		if !c.expand(p) {
			return false
		}
	}
	return true
}

// expand visits the pairs that one more segment leads to. It reports false as soon as visit does.
func (c *containment) expand(p pair) bool {
	step := noStep
	if p.request < len(c.request.steps) {
		step = c.request.steps[p.request]
	}
	loop := c.request.loops[p.request]
	other := c.grantSteps[c.symbols] & p.grant
	for symbol := range c.symbols + 1 {
		taken := c.grantSteps[symbol] & p.grant
		fits := step == anySymbol || step == symbol
		if !fits && !loop || symbol < c.symbols && taken == other && step != symbol {
			continue // not possible here, or the same as any other text
		}
		next := p.grant&c.grantLoops | taken<<1
		if loop && !c.visit(pair{p.request, next}) {
			return false
		}
		if fits && !c.visit(pair{p.request + 1, next}) {
			return false
		}
	}
	return true
}

// visit enters a pair. It reports false if the pair shows a route of the request outside the grant, which is so when the grant
// has no state left, because every state of the request can still accept; and if the pair is one above the bound.
func (c *containment) visit(p pair) bool {
	if p.grant == 0 {
		return false
	}
	if p.request == len(c.request.steps) && !p.grant.has(len(c.grant.steps)) {
		return false
	}
	if _, seen := c.visited[p]; seen {
		return true
	}
	if len(c.visited) >= c.statesMax {
		return false
	}
	c.visited[p] = struct{}{}
	c.pending = append(c.pending, p)
	return true
}
