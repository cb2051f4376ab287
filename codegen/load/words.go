package load

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// kindOf says what a node is, with its article.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the truth value " + n.Value
	case "!!null":
		return "nothing"
	}
	return fmt.Sprintf("the text %q", n.Value)
}

var articles = map[string]string{
	"object": "a mapping", "array": "a list", "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
}

// kinded says what a type keyword wants.
func kinded(limit any) string {
	var words []string
	switch l := limit.(type) {
	case string:
		words = []string{articles[l]}
	case []any:
		for _, t := range l {
			words = append(words, articles[fmt.Sprint(t)])
		}
	}
	return strings.Join(words, " or ")
}

func joined(limit any) string {
	values, _ := limit.([]any)
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	return strings.Join(words, ", ")
}

func matchesAny(patterns map[string]any, key string) bool {
	for p := range patterns {
		if ok, err := regexp.MatchString(p, key); err == nil && ok {
			return true
		}
	}
	return false
}

// knownKeys says which keys a mapping takes.
func knownKeys(known, patterns map[string]any) string {
	var names, forms []string
	for k := range known {
		names = append(names, k)
	}
	for p := range patterns {
		forms = append(forms, p)
	}
	slices.Sort(names)
	slices.Sort(forms)
	switch {
	case len(forms) == 0:
		return "use one of " + strings.Join(names, ", ")
	case len(names) == 0:
		return "use a name of the form " + strings.Join(forms, ", ")
	}
	return fmt.Sprintf("use %s or a name of the form %s", strings.Join(names, ", "), strings.Join(forms, ", "))
}
