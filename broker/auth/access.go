package auth

import (
	"strings"
	"sync"

	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// domain is the place of a domain in the tables of an Access.
type domain uint8

// grammars are the routes of the seven domains, in the order of their message numbers.
var grammars = [...]*pattern.Grammar{&route.KV, &route.Queue, &route.RPC, &route.Lease, &route.Notice, &route.Stream, &route.Schedule}

// domainOf returns the domain of a scheme, false when there is none.
func domainOf(scheme string) (domain, bool) {
	for i, g := range grammars {
		if g.Scheme == scheme {
			return domain(i), true
		}
	}
	return 0, false
}

// rights are levels of access as a set.
type rights uint8

const (
	canRead rights = 1 << iota
	canWrite
	canAll
)

// needed returns the right that a level asks for. A level that grants cannot give is nobody's.
func needed(level wire.AccessLevel) rights {
	switch level {
	case wire.AccessRead:
		return canRead
	case wire.AccessWrite:
		return canWrite
	case wire.AccessAll:
		return canAll
	default:
		return 0
	}
}

// Access is what a session may do, fixed at its CONNECT: a family and grants. It never changes and is safe for concurrent use.
// The zero Access and nil allow nothing.
type Access struct {
	family uint32
	tables [len(grammars)]table
}

// everything holds the grants of A-36.
var everything = sync.OnceValue(func() (a Access) {
	for i, g := range grammars {
		entire, err := g.ParseGrant(g.Scheme + "://**")
		if err != nil {
			panic(err) // not reachable: "**" is a pattern of every grammar
		}
		a.tables[i].add(entire, canRead|canWrite|canAll)
	}
	return a
})

// Anonymous returns the access of a session that shows no token.
func Anonymous(family uint32) *Access {
	a := everything()
	a.family = family
	return &a
}

// NewAccess compiles grants of a family.
func NewAccess(family uint32, grants []Grant) *Access {
	a := &Access{family: family}
	for _, g := range grants {
		a.tables[g.domain].add(g.selector, g.rights)
	}
	return a
}

// Family is the isolation key of the session, 0 when it has none.
func (a *Access) Family() uint32 {
	if a == nil {
		return 0
	}
	return a.family
}

// Allows reports whether one single grant with that level contains everything that sel can match.
func (a *Access) Allows(level wire.AccessLevel, sel pattern.Selector) bool {
	d, known := domainOf(sel.Scheme())
	return a != nil && known && a.tables[d].contains(needed(level), sel)
}

// AllowsRoute is Allows for one concrete route. It allocates nothing.
func (a *Access) AllowsRoute(level wire.AccessLevel, r pattern.Route) bool {
	d, known := domainOf(r.Scheme())
	return a != nil && known && a.tables[d].matches(needed(level), grammars[d].Depth, r)
}

// table holds the grants of one domain, so that a check costs a few look-ups whatever the number of grants. At fixed depth grants are
// filed by their masks, as registrations are. At flexible depth those without wildcard are filed by their text and the others by
// their first segment.
type table struct {
	entire rights // of grants that match every route of the domain
	// shapes are the rights that some mask with those wild positions gives, so that shapes nobody has cost no look-up.
	shapes [1 << pattern.MaxDepth]rights
	masks  map[pattern.Mask]*cell
	exact  map[string]rights
	first  map[string][]held // by the literal first segment
	loose  []held            // the first segment is a wildcard
}

// held is a grant in a table.
type held struct {
	selector pattern.Selector
	rights   rights
}

// cell is what is filed under one mask.
type cell struct {
	rights rights // of all grants here together
	grants []held
}

// add files a grant. One that matches nothing at the depth of the domain has no masks and is filed nowhere.
func (t *table) add(s pattern.Selector, r rights) {
	if s.Path() == "**" {
		t.entire |= r
		return
	}
	if d, _ := domainOf(s.Scheme()); grammars[d].Depth == 0 {
		t.addFlexible(s, r)
		return
	}
	for _, m := range s.Masks() {
		if m.Literals() == 0 {
			t.entire |= r
		}
		t.shapes[m.Wild] |= r
		c := t.masks[m]
		if c == nil {
			c = &cell{}
			if t.masks == nil {
				t.masks = map[pattern.Mask]*cell{}
			}
			t.masks[m] = c
		}
		c.rights |= r
		c.grants = append(c.grants, held{s, r})
	}
}

func (t *table) addFlexible(s pattern.Selector, r rights) {
	switch {
	case s.Exact():
		if t.exact == nil {
			t.exact = map[string]rights{}
		}
		t.exact[s.Text()] |= r
	case s.Prefix() > 0:
		if t.first == nil {
			t.first = map[string][]held{}
		}
		segment := firstSegment(s.Path())
		t.first[segment] = append(t.first[segment], held{s, r})
	default:
		t.loose = append(t.loose, held{s, r})
	}
}

func firstSegment(path string) string {
	segment, _, _ := strings.Cut(path, "/")
	return segment
}

// matches reports whether one grant with the right need matches the route.
func (t *table) matches(need rights, depth int, r pattern.Route) bool {
	if t.entire&need != 0 {
		return true
	}
	if depth == 0 {
		return t.exact[r.Canonical()]&need != 0 || anyMatches(t.loose, need, r) || anyMatches(t.first[firstSegment(r.Path())], need, r)
	}
	if r.Len() != depth {
		return false
	}
	for wild := range uint8(1 << depth) {
		if t.shapes[wild]&need == 0 {
			continue
		}
		if c := t.masks[r.Mask(wild)]; c != nil && c.rights&need != 0 {
			return true
		}
	}
	return false
}

func anyMatches(grants []held, need rights, r pattern.Route) bool {
	for i := range grants {
		if grants[i].rights&need != 0 && grants[i].selector.ContainsRoute(r) {
			return true
		}
	}
	return false
}

// contains reports whether one grant with the right need contains the whole selector.
func (t *table) contains(need rights, s pattern.Selector) bool {
	d, _ := domainOf(s.Scheme())
	if grammars[d].Depth == 0 {
		return t.containsFlexible(need, s)
	}
	masks := s.Masks()
	if len(masks) == 0 {
		return false // matches nothing, or is no selector of a domain
	}
	if t.entire&need != 0 {
		return true
	}
	// Who contains the selector covers its first mask, with a mask that is wild at least where that one is. Grants found there must
	// cover the other masks too, each by itself.
	for wild := range uint8(1 << masks[0].Depth) {
		if t.shapes[wild]&need == 0 || masks[0].Wild&^wild != 0 {
			continue
		}
		c := t.masks[widened(masks[0], wild)]
		if c == nil || c.rights&need == 0 {
			continue
		}
		if len(masks) == 1 || anyContains(c.grants, need, s) {
			return true
		}
	}
	return mutant.On("auth.grants-united") && t.covers(need, masks)
}

// covers reports whether grants together cover every mask, which is not enough.
func (t *table) covers(need rights, masks []pattern.Mask) bool {
	for _, m := range masks {
		covered := false
		for wild := range uint8(1 << m.Depth) {
			c := t.masks[widened(m, wild)]
			covered = covered || m.Wild&^wild == 0 && c != nil && c.rights&need != 0
		}
		if !covered {
			return false
		}
	}
	return true
}

// widened returns the mask with "*" at the positions of wild.
func widened(m pattern.Mask, wild uint8) pattern.Mask {
	for i := range int(m.Depth) {
		if wild&(1<<i) != 0 {
			m.Segments[i] = "*"
		}
	}
	m.Wild = wild
	return m
}

func (t *table) containsFlexible(need rights, s pattern.Selector) bool {
	if s.Path() == "" {
		return false // no selector
	}
	if t.entire&need != 0 {
		return true
	}
	if r, exact := s.Point(); exact {
		return t.matches(need, 0, r)
	}
	if anyContains(t.loose, need, s) {
		return true
	}
	return s.Prefix() > 0 && anyContains(t.first[firstSegment(s.Path())], need, s)
}

func anyContains(grants []held, need rights, s pattern.Selector) bool {
	for i := range grants {
		if grants[i].rights&need != 0 && grants[i].selector.Contains(s) {
			return true
		}
	}
	return false
}
