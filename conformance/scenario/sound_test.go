package scenario

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"testing"

	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"
)

// trees reads every scenario of the tree as plain data.
func trees(t *testing.T) []any {
	t.Helper()
	var out []any
	err := fs.WalkDir(os.DirFS("../scenarios"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path.Join("../scenarios", name))
		var doc yaml.Node
		if err = errors.Join(err, yaml.Unmarshal(text, &doc)); err != nil {
			return err
		}
		out = append(out, plain(value(doc.Content[0])))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The quick look accepts nothing that the schema refuses, whatever is changed in a file that is right; and it accepts those that are right.
func TestQuickLookIsNoEasier(t *testing.T) {
	files := trees(t)
	schema, _ := compiled()
	quick := 0
	for _, file := range files {
		if sound(file) {
			quick++
		}
	}
	if quick < len(files)*9/10 {
		t.Errorf("the quick look accepts %d of %d files", quick, len(files))
	}
	rapid.Check(t, func(t *rapid.T) {
		file := rapid.SampledFrom(files).Draw(t, "file")
		changed := change(t, file, rapid.IntRange(0, 6).Draw(t, "depth"))
		if sound(changed) && schema.Validate(changed) != nil {
			t.Fatalf("the quick look accepts what the schema refuses: %v", schema.Validate(changed))
		}
	})
}

// change copies a value with one change somewhere inside of it.
func change(t *rapid.T, v any, depth int) any {
	switch v := v.(type) {
	case map[string]any:
		if depth > 0 && len(v) > 0 {
			key := rapid.SampledFrom(keys(v)).Draw(t, "key")
			out := copyOf(v)
			out[key] = change(t, v[key], depth-1)
			return out
		}
		out := copyOf(v)
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			if len(v) > 0 {
				delete(out, rapid.SampledFrom(keys(v)).Draw(t, "gone"))
			}
		case 1:
			out[rapid.SampledFrom(append(Actions(), "when", "steps", "odd", "ok", "err")).Draw(t, "new")] = odd(t)
		default:
			return odd(t)
		}
		return out
	case []any:
		if depth > 0 && len(v) > 0 {
			i := rapid.IntRange(0, len(v)-1).Draw(t, "member")
			out := append([]any(nil), v...)
			out[i] = change(t, v[i], depth-1)
			return out
		}
	}
	return odd(t)
}

func copyOf(m map[string]any) map[string]any {
	out := make(map[string]any, len(m))
	for key, v := range m {
		out[key] = v
	}
	return out
}

func odd(t *rapid.T) any {
	return rapid.SampledFrom([]any{nil, true, "word", "$name", "a-b", "", []any{}, map[string]any{}, []any{map[string]any{"settle": "all"}}}).Draw(t, "odd")
}
