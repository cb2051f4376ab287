package scenario

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"gopkg.in/yaml.v3"
)

// Catalog is the names of the specification that scenarios may use. It is read from the files of spec/ themselves.
type Catalog struct {
	Messages map[string]bool  // lease.acquire; true for an operation, which is answered
	Clauses  map[string]bool  // L-23
	Codes    map[string]int64 // LEASE_HELD: 5001; protocol.violation, which a client finds by itself: 0
	Bounds   map[string]bool  // lease_wait_secs_max; true for one that is a setting of a broker too
	Settings map[string]bool  // hello
}

// LoadCatalog reads the names from the folder spec/.
func LoadCatalog(fsys fs.FS) (*Catalog, error) {
	c := &Catalog{Messages: map[string]bool{}, Clauses: map[string]bool{}, Codes: map[string]int64{}, Bounds: map[string]bool{}, Settings: map[string]bool{}}
	domains, err := fs.Glob(fsys, "domains/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range domains {
		root, err := readTree(fsys, name)
		if err != nil {
			return nil, err
		}
		domain := strings.TrimSuffix(path.Base(name), ".yaml")
		names(get(root, "operations"), func(key string, _ *yaml.Node) { c.Messages[domain+"."+key] = true })
		names(get(root, "messages"), func(key string, _ *yaml.Node) { c.Messages[domain+"."+key] = false })
	}
	for file, read := range map[string]func(root *yaml.Node){
		"clauses.yaml": func(root *yaml.Node) {
			names(get(root, "clauses"), func(key string, _ *yaml.Node) { c.Clauses[key] = true })
		},
		"errors.yaml": func(root *yaml.Node) {
			names(get(root, "errors"), func(key string, row *yaml.Node) { c.Codes[key], _ = Int(value(orText(get(row, "code")))) })
			names(get(root, "local"), func(key string, _ *yaml.Node) { c.Codes[key] = 0 })
		},
		"bounds.yaml": func(root *yaml.Node) {
			names(get(root, "bounds"), func(key string, row *yaml.Node) {
				c.Bounds[key] = orText(get(row, "operator_may_change")).Value == "true"
			})
		},
		"broker.yaml": func(root *yaml.Node) {
			names(get(root, "settings"), func(key string, _ *yaml.Node) { c.Settings[key] = true })
		},
	} {
		root, err := readTree(fsys, file)
		if err != nil {
			return nil, err
		}
		read(root)
	}
	if len(c.Messages) == 0 || len(c.Clauses) == 0 || len(c.Codes) == 0 || len(c.Bounds) == 0 || len(c.Settings) == 0 {
		return nil, fmt.Errorf("spec: the names of messages, clauses, codes, bounds or settings are missing")
	}
	return c, nil
}

func readTree(fsys fs.FS, name string) (*yaml.Node, error) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(doc.Content) == 0 {
		return nil, fmt.Errorf("%s: nothing is in it", name)
	}
	return doc.Content[0], nil
}

func orText(n *yaml.Node) *yaml.Node {
	if n == nil {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str"}
	}
	return n
}

func names(n *yaml.Node, add func(key string, v *yaml.Node)) {
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		add(n.Content[i].Value, n.Content[i+1])
	}
}
