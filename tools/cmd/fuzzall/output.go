package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// corpus is the files that failing inputs were written to, as one text.
func (t target) corpus(root string) (string, error) {
	entries, err := os.ReadDir(filepath.Join(root, t.dir, "testdata", "fuzz", t.name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, "\n"), err
}

var execsOf = regexp.MustCompile(`(?m)^fuzz: elapsed: .*, execs: (\d+) `)

// executions is the last number of executions that a run has printed.
func executions(out []byte) int64 {
	all := execsOf.FindAllSubmatch(out, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(string(all[len(all)-1][1]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// progress is the lines that say how far a run is.
var progress = regexp.MustCompile(`(?m)^fuzz: elapsed: .*\n`)

// endedByDeadline tells whether a run has ended in the one way that is no failure of the target: when the time of a run is over while its
// worker is being asked for more, Go 1.26 and earlier report their own deadline as a failure, without an input that fails.
func endedByDeadline(out []byte, name string) bool {
	rest := progress.ReplaceAll(out, nil)
	known := regexp.MustCompile(`^--- FAIL: ` + regexp.QuoteMeta(name) + ` \([\d.]+s\)\n\s+context deadline exceeded\n(\s*\n)*FAIL\n(exit status 1\n)?$`)
	return known.Match(rest)
}
