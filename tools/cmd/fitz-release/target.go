package main

import (
	"fmt"
	"path"
	"strings"

	"github.com/fitzwire/fitz/generated/go/wire"
)

// version is that of the specification, which every program prints.
const version = wire.SpecVersion

// target is a platform.
type target struct{ os, arch string }

// targets are all platforms that are released.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// programs are the packages of the programs, by the folder that is also the name of the program.
var programs = []string{"broker/cmd/fitzd", "tools/cmd/fitz", "codegen/cmd/fitzgen", "conformance/cmd/fitz-conformance"}

func (t target) String() string { return t.os + "/" + t.arch }

// executable is the file name of a program.
func (t target) executable(program string) string {
	if t.os == "windows" {
		return path.Base(program) + ".exe"
	}
	return path.Base(program)
}

// folder is the only folder in the archive.
func (t target) folder() string { return fmt.Sprintf("fitz_%s_%s_%s", version, t.os, t.arch) }

// archive is the name of the archive.
func (t target) archive() string {
	if t.os == "windows" {
		return t.folder() + ".zip"
	}
	return t.folder() + ".tar.gz"
}

// choose returns the targets that a list of OS/ARCH, OS or * names, in the order of targets.
func choose(names []string) ([]target, error) {
	var chosen []target
	used := map[string]bool{}
	for _, t := range targets {
		for _, name := range names {
			matches, err := path.Match(name, t.String())
			if err != nil {
				return nil, fmt.Errorf("target %q: %w", name, err)
			}
			if matches || name == t.os || name == "*" {
				used[name] = true
				chosen = append(chosen, t)
				break
			}
		}
	}
	for _, name := range names {
		if !used[name] && !named(chosen, name) {
			return nil, fmt.Errorf("target %q is none of %s", name, listed(targets))
		}
	}
	return chosen, nil
}

// named reports whether one of the targets goes by the name, also when an earlier name had chosen it.
func named(chosen []target, name string) bool {
	for _, t := range chosen {
		if matches, _ := path.Match(name, t.String()); matches || name == t.os || name == "*" {
			return true
		}
	}
	return false
}

func listed(all []target) string {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.String()
	}
	return strings.Join(names, ", ")
}
