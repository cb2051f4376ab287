package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	project = "../../../spec/fitz.yaml"
	toy     = "../../../spec/badspecs/_base/spec/toy.yaml"
)

// Every exit code of the commands for specifications means one thing.
func TestExitCodes(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "toy.yaml")
	if err := os.WriteFile(broken, []byte("protocol: Toy\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args     []string
		code     int
		out, log string // parts that must be there
	}{
		"clean":           {[]string{"check", "--spec", project}, exitOK, "", "in order by"},
		"another clean":   {[]string{"check", "-s", toy}, exitOK, "", "in order by"},
		"findings":        {[]string{"check", "--spec", broken}, exitFindings, `SCHEMA: the key "files" is missing`, "findings"},
		"missing index":   {[]string{"check", "--spec", "nowhere/toy.yaml"}, exitFailure, "", "nowhere/toy.yaml"},
		"tool failure":    {[]string{"check", "--spec", t.TempDir()}, exitFailure, "", "fitzgen: read"},
		"no command":      {nil, exitUsage, "", "expected"},
		"unknown command": {[]string{"destroy"}, exitUsage, "", "destroy"},
		"unknown flag":    {[]string{"check", "--force"}, exitUsage, "", "--force"},
		"help":            {[]string{"--help"}, exitOK, "Usage: fitzgen", ""},
		"selftest":        {[]string{"selftest", "--spec", project}, exitOK, "schema constraints", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out, log bytes.Buffer
			if code := run(test.args, &out, &log); code != test.code {
				t.Errorf("exit code %d, want %d\n%s%s", code, test.code, &out, &log)
			}
			if !strings.Contains(out.String(), test.out) || !strings.Contains(log.String(), test.log) {
				t.Errorf("standard output:\n%s\nerror output:\n%s", &out, &log)
			}
		})
	}
}
