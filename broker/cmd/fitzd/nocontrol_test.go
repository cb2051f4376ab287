package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/broker/internal/program"
)

const controlPackage = "github.com/fitzwire/fitz/broker/internal/control"

// closure returns the packages that a program is made of.
func closure(t *testing.T, args ...string) []string {
	t.Helper()
	text, err := exec.Command("go", append([]string{"list", "-deps"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return strings.Fields(string(text))
}

// fitzd cannot be told to move its time: it has no such flag, and what answers a control port is not in it, whatever the build tag. The
// same look at fitzd-test finds it, so that it would be found.
func TestFitzdHasNoControlPort(t *testing.T) {
	for _, args := range [][]string{{"."}, {"-tags", "testclock", "."}} {
		for _, dependency := range closure(t, args...) {
			if dependency == controlPackage {
				t.Errorf("fitzd (%v) contains %s", args, dependency)
			}
		}
	}
	found := false
	for _, dependency := range closure(t, "-tags", "testclock", "../fitzd-test") {
		found = found || dependency == controlPackage
	}
	if !found {
		t.Errorf("fitzd-test does not contain %s", controlPackage)
	}
	for _, flag := range []string{"--control", "--seed", "--wall"} {
		code, _, stderr := command(t, flag, "127.0.0.1:0")
		if code != program.ExitConfig || !strings.Contains(stderr, "unknown flag "+flag) {
			t.Errorf("%s: exit %d: %s", flag, code, stderr)
		}
		if _, stdout, _ := command(t, "--help"); strings.Contains(stdout, flag+" ") || strings.Contains(stdout, flag+"=") {
			t.Errorf("the help names %s", flag)
		}
	}
}

// The linker leaves no symbol of the control port in fitzd.
func TestFitzdHasNoSymbolOfTheControlPort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fitzd")
	if text, err := exec.Command("go", "build", "-tags", "testclock", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	symbols, err := exec.Command("go", "tool", "nm", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(symbols), "fitz/broker.Start") {
		t.Error("the symbols of the broker are not there, so that nothing was shown")
	}
	for _, name := range []string{controlPackage + ".", "clock.NewManual", "clock.(*Manual)"} {
		if strings.Contains(string(symbols), name) {
			t.Errorf("fitzd contains %s", name)
		}
	}
}
