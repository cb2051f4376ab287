package mutants

import (
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// sources are the folders whose programs have faults. The SDK is copied out of its folder by the generator.
var sources = map[Side]string{Broker: "broker", SDK: "sdk-templates/go"}

// nameLists are the files that tell the programs which names there are, so that they can refuse others.
var nameLists = map[Side]string{Broker: "broker/internal/mutant/names.go", SDK: "sdk-templates/go/runtime/mutant/names.go"}

// hookPattern is a place at which a fault is.
var hookPattern = regexp.MustCompile(`mutant\.On\("([^"]*)"\)`)

// Hooks is where the faults are: the folders of their places in the source tree, by side and name.
type Hooks map[Side]map[string][]string

// FindHooks reads the sources of broker and SDK.
func FindHooks(root fs.FS) (Hooks, error) {
	hooks := Hooks{}
	for side, folder := range sources {
		found := map[string][]string{}
		err := fs.WalkDir(root, folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !isSource(name) {
				return err
			}
			text, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			for _, hook := range hookPattern.FindAllSubmatch(text, -1) {
				if id, dir := string(hook[1]), path.Dir(name); !slices.Contains(found[id], dir) {
					found[id] = append(found[id], dir)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		hooks[side] = found
	}
	return hooks, nil
}

func isSource(name string) bool {
	return !strings.HasSuffix(name, "_test.go") && (strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".go.tmpl"))
}

// names returns the ids of one side in order.
func (h Hooks) names(side Side) []string { return slices.Sorted(maps.Keys(h[side])) }

// nameList is the text of the file with the names of one side.
func nameList(names []string) string {
	var b strings.Builder
	b.WriteString("//go:build mutants\n\npackage mutant\n\n")
	b.WriteString("// names are the faults that the programs know. A test writes them: go test ./conformance/mutants -update.\n")
	b.WriteString("var names = []string{\n")
	for _, name := range names {
		b.WriteString("\t\"" + name + "\",\n")
	}
	b.WriteString("}\n")
	return b.String()
}
