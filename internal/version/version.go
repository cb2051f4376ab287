// Package version tells what a binary was built from. All binaries print it in the same way.
package version

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// Commit is the commit of the build; the linker sets it (`./task build`).
var Commit = ""

// Info is what a binary was built from.
type Info struct {
	Program     string `json:"program"`
	Version     string `json:"version"`
	Commit      string `json:"commit"`
	Fingerprint string `json:"spec_fingerprint"` // 16 hexadecimal digits, as in the hello
	Go          string `json:"go"`
}

// Of returns the build information of the running program. The specification is that which the program was generated from, or,
// for the generator, which it would generate from.
func Of(program, specVersion string, specFingerprint uint64) Info {
	return Info{
		Program:     program,
		Version:     specVersion,
		Commit:      commit(),
		Fingerprint: fmt.Sprintf("%016x", specFingerprint),
		Go:          runtime.Version(),
	}
}

// String is the information on one line.
func (i Info) String() string {
	return fmt.Sprintf("%s %s (commit %s, spec %s, %s)", i.Program, i.Version, i.Commit, i.Fingerprint, i.Go)
}

// commit prefers what the linker set and falls back to what the Go tool recorded.
func commit() string {
	if Commit != "" {
		return Commit
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				return setting.Value
			}
		}
	}
	return "unknown"
}

// Write prints the information as one line, or as one JSON object.
func (i Info) Write(w io.Writer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(i)
	}
	_, err := fmt.Fprintln(w, i)
	return err
}
