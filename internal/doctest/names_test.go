package doctest

import (
	"errors"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/codegen/load"
)

var (
	testName   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Z]\w*)\(`)
	namedTest  = regexp.MustCompile(`^(?:Test|Fuzz|Benchmark)[A-Z]\w*$`)
	metricName = regexp.MustCompile(`^(fitz_[a-z0-9_]+)(\{[^}]*\})?$`)
	boundName  = regexp.MustCompile(`^[a-z0-9]+(?:_[a-z0-9]+)*_(?:max|ms)$`)
)

// addTestNames adds the names of all tests, fuzz targets and benchmarks of a tree. A tree that is not there has none.
func addTestNames(tree fs.FS, names map[string]bool) error {
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		for _, match := range testName.FindAllSubmatch(text, -1) {
			names[string(match[1])] = true
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Every test, metric and bound that a document names in a code span is there.
func TestNamesExist(t *testing.T) {
	tests := map[string]bool{}
	for _, folder := range append(judgedTrees, "sdk-templates", "tools") {
		if err := addTestNames(os.DirFS(root+"/"+folder), tests); err != nil {
			t.Fatal(err)
		}
	}
	spec, _, err := load.FS(os.DirFS(root), specIndex)
	if err != nil {
		t.Fatal(err)
	}
	metrics, bounds := map[string]bool{}, map[string]bool{}
	for _, group := range spec.Metrics {
		for _, m := range group.Metrics {
			metrics[m.Name] = true
		}
	}
	for _, b := range spec.Bounds {
		bounds[b.Name] = true
	}
	counts := map[string]int{}
	for _, name := range documents(t) {
		for _, said := range spans(strings.Join(prose(read(t, name)), "\n")) {
			kind, word, known := "", said, map[string]bool(nil)
			switch {
			case namedTest.MatchString(said):
				kind, known = "test", tests
			case metricName.MatchString(said):
				kind, word, known = "metric", metricName.FindStringSubmatch(said)[1], metrics
			case boundName.MatchString(said) && name != driverPage: // which names arguments in the same form
				kind, known = "bound", bounds
			default:
				continue
			}
			counts[kind]++
			if !known[word] {
				t.Errorf("%s: there is no %s %s", name, kind, word)
			}
		}
	}
	if counts["test"] < 15 || counts["metric"] < 5 || counts["bound"] < 5 {
		t.Errorf("only %v", counts)
	}
}
