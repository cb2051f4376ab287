package auth

import (
	"strings"

	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Grant is one permission entry, classified.
type Grant struct {
	domain   domain
	selector pattern.Selector
	rights   rights
}

// Scheme is the domain that the grant is for.
func (g Grant) Scheme() string { return grammars[g.domain].Scheme }

// Pattern is the text of its pattern.
func (g Grant) Pattern() string { return g.selector.Text() }

// Levels are the levels of access that it gives, in the order read, write, all.
func (g Grant) Levels() []wire.AccessLevel {
	var levels []wire.AccessLevel
	for _, level := range []wire.AccessLevel{wire.AccessRead, wire.AccessWrite, wire.AccessAll} {
		if g.rights&needed(level) != 0 {
			levels = append(levels, level)
		}
	}
	return levels
}

// Empty reports that the pattern matches no route of its domain, so that the grant gives nothing.
func (g Grant) Empty() bool {
	return grammars[g.domain].Depth != 0 && len(g.selector.Masks()) == 0
}

const schemeEnd = "://"

// ParseGrant classifies one entry of a list of permissions: `pattern#access`. False: it is malformed.
func ParseGrant(entry string) (Grant, bool) {
	if len(entry) > bounds.PermissionBytesMax {
		return Grant{}, false
	}
	text, access := entry, "*"
	if at := strings.LastIndexByte(entry, '#'); at >= 0 {
		text, access = entry[:at], entry[at+1:]
	}
	r, ok := rightsOf(access)
	if !ok {
		return Grant{}, false
	}
	scheme, _, _ := strings.Cut(text, schemeEnd)
	d, known := domainOf(scheme)
	if !known {
		return Grant{}, false
	}
	selector, err := grammars[d].ParseGrant(text)
	if err != nil {
		return Grant{}, false
	}
	return Grant{d, selector, r}, true
}

// rightsOf reads the part behind the "#".
func rightsOf(access string) (rights, bool) {
	switch access {
	case "read":
		if mutant.On("auth.read-grants-write") {
			return canRead | canWrite, true
		}
		return canRead, true
	case "write":
		return canWrite, true
	case "*":
		return canRead | canWrite | canAll, true
	default:
		return 0, false
	}
}

// parseCoarse classifies an entry of `scp` or `scope` such as lease.read or api/lease.read. False: it is not of that form.
func parseCoarse(entry string) (Grant, bool) {
	if prefix, rest, found := strings.Cut(entry, "/"); found {
		if prefix == "" {
			return Grant{}, false
		}
		entry = rest
	}
	scheme, access, _ := strings.Cut(entry, ".")
	if access != "read" && access != "write" {
		return Grant{}, false
	}
	return ParseGrant(scheme + schemeEnd + "**#" + access)
}

// place is somewhere in a token where permissions may stand, and what holds for them there.
type place struct {
	object, claim string // object: the claim is a member of that claim, "" when it stands at the top
	array, text   bool   // forms that are allowed: an array of entries, entries in one text with spaces between them
	roles         bool   // entries that are no patterns mean something to others and are ignored
	coarse        bool   // entries may be coarse
}

// places returns where permissions are looked for, in order.
func (c *Config) places() []place {
	all := []place{
		{object: c.CustomClaim, claim: "permissions", array: true},
		{claim: "permissions", array: true},
		{claim: c.PermissionsClaim, array: true},
		{claim: c.RoleClaim, array: true, roles: true},
		{claim: "scp", array: true, text: true, roles: true, coarse: true},
		{claim: "scope", text: true, roles: true, coarse: true},
	}
	if c.CustomClaim == "" {
		all = all[1:]
	}
	return all
}

// grantsOf reads the permissions of a token. The first place that is present decides, also when what stands there is refused.
func (c *Config) grantsOf(claims map[string]any, most int64) ([]Grant, Reason) {
	for _, p := range c.places() {
		value, present, ok := p.find(claims)
		switch {
		case !present:
		case mutant.On("auth.empty-source-passed-over") && isEmpty(value):
		case !ok:
			return nil, ReasonPermissionsMalformed
		default:
			return p.grants(value, most)
		}
	}
	return nil, ReasonPermissionsMissing
}

// isEmpty reports whether a source is a list without entries.
func isEmpty(value any) bool {
	entries, ok := entriesOf(value)
	return ok && len(entries) == 0
}

// find returns what stands at the place. Not ok: it is there and can hold no permissions.
func (p place) find(claims map[string]any) (value any, present, ok bool) {
	if p.claim == "" {
		return nil, false, false // not configured
	}
	if p.object != "" {
		object, present := claims[p.object]
		if !present {
			return nil, false, false
		}
		if claims, ok = object.(map[string]any); !ok {
			return nil, true, false
		}
	}
	value, present = claims[p.claim]
	switch value.(type) {
	case []any:
		return value, present, p.array
	case string:
		return value, present, p.text
	default:
		return nil, present, false
	}
}

// grants reads the entries at the place.
func (p place) grants(value any, most int64) ([]Grant, Reason) {
	entries, ok := entriesOf(value)
	switch {
	case !ok:
		return nil, ReasonPermissionsMalformed
	case int64(len(entries)) > most:
		return nil, ReasonTooManyPermissions
	}
	grants := make([]Grant, 0, len(entries))
	for _, entry := range entries {
		g, ok := p.grant(entry)
		switch {
		case ok:
			grants = append(grants, g)
		case !p.roles || strings.Contains(entry, schemeEnd):
			return nil, ReasonPermissionsMalformed
		}
	}
	if len(grants) == 0 {
		return nil, ReasonPermissionsMissing
	}
	return grants, ""
}

func (p place) grant(entry string) (Grant, bool) {
	if g, ok := parseCoarse(entry); ok && p.coarse {
		return g, true
	}
	return ParseGrant(entry)
}

// entriesOf returns the entries of an array of texts, or of a text with spaces between them.
func entriesOf(value any) ([]string, bool) {
	if text, ok := value.(string); ok {
		return strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }), true
	}
	array, _ := value.([]any)
	entries := make([]string, len(array))
	for i, member := range array {
		text, ok := member.(string)
		if !ok {
			return nil, false
		}
		entries[i] = text
	}
	return entries, true
}
