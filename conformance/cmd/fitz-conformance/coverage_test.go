package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// covered is a source tree in which nearly nothing is shown.
func covered(t *testing.T) string {
	t.Helper()
	root := tree(t, nil)
	docs, err := filepath.Abs("../../../docs")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(docs, filepath.Join(root, "docs")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"conformance/mutants.yaml":  "- {id: lease.token-repeats, side: broker, breaks: [L-20], what: repeats tokens, killed_by: [A-1]}\n",
		"conformance/coverage.yaml": "rows: [\"AC-*\"]\nno_mutant:\n- {clauses: [L-20], reason: none}\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// What is missing and what is stale are told, and the exit code is not that of success.
func TestCoverage(t *testing.T) {
	root := covered(t)
	code, out, errs := call(t, "--root", root, "coverage", "--all")
	if code != exitTool || !strings.Contains(errs, "coverage is not complete") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	for _, want := range []string{
		"accepted by  A-1", "not right: L-11: no accepting case", "not right: LEASE_INVALID_FENCE: no rejecting case", "not built: kv.md waits for the KV domain",
		"not right: L-20: coverage.yaml says why no fault is seeded for it, and none is needed (lease.token-repeats is one)",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output", want)
		}
	}
	code, out, _ = call(t, "--root", root, "coverage", "--json", "-")
	var report struct {
		OK     bool
		Rows   []struct{ ID string }
		Totals []struct{ Group string }
	}
	if err := json.NewDecoder(bytes.NewBufferString(out)).Decode(&report); err != nil || code != exitTool || report.OK || len(report.Rows) < 500 || len(report.Totals) == 0 {
		t.Errorf("exit code %d, %v, %d rows", code, err, len(report.Rows))
	}
}

func TestCoverageMistake(t *testing.T) {
	root := covered(t)
	if err := os.WriteFile(filepath.Join(root, "conformance", "coverage.yaml"), []byte("nothing: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := call(t, "--root", root, "coverage"); code != exitTool || !strings.Contains(errs, "field nothing not found") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}
