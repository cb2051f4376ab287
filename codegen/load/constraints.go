package load

import (
	"slices"
	"strings"
)

// Constraint is one keyword of a schema that can refuse something.
type Constraint struct {
	Location string // domain.schema.json#/properties/number/minimum
	Keyword  string
}

// refusing is the keywords that can refuse a value. A schema that uses another one is a mistake that Constraints reports.
var refusing = []string{
	"additionalProperties", "enum", "exclusiveMinimum", "maxProperties", "maximum", "minItems", "minLength", "minProperties", "minimum",
	"pattern", "required", "type", "uniqueItems",
}

// Constraints returns every constraint of every schema, by location.
func Constraints() ([]Constraint, error) {
	g, err := schemas()
	if err != nil {
		return nil, err
	}
	var out []Constraint
	for file, doc := range g.docs {
		collect(file+"#", doc, &out)
	}
	slices.SortFunc(out, func(a, b Constraint) int { return strings.Compare(a.Location, b.Location) })
	return out, nil
}

// collect adds the constraints of one schema and of the schemas below it.
func collect(where string, doc any, out *[]Constraint) {
	owner, ok := doc.(map[string]any)
	if !ok {
		return
	}
	for _, keyword := range refusing {
		if _, ok := owner[keyword]; ok {
			*out = append(*out, Constraint{where + "/" + keyword, keyword})
		}
	}
	collect(where+"/items", owner["items"], out)
	for _, group := range []string{"properties", "patternProperties", "$defs"} {
		members, _ := owner[group].(map[string]any)
		for name, member := range members {
			collect(where+"/"+group+"/"+escape(name), member, out)
		}
	}
}

func escape(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1")
}
