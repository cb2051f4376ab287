//go:build mutants

package mutant

import (
	"fmt"
	"os"
	"slices"
)

// Environment is the variable that names the one fault that is switched on; empty: none. A program may hold a broker and the SDK, which
// have variables of their own.
const Environment = "FITZ_MUTANT"

// exitUnknown is the exit code of a program that was asked for a fault that it does not have: it must never be taken for one that works.
const exitUnknown = 2

var active = chosen()

// chosen is the fault that the environment names. A name that is not in the list ends the program.
func chosen() string {
	name := os.Getenv(Environment)
	if name == "" || slices.Contains(names, name) {
		return name
	}
	fmt.Fprintf(os.Stderr, "%s: there is no fault %q in this program\n", Environment, name)
	os.Exit(exitUnknown)
	return ""
}

// On reports whether the named fault is switched on.
func On(name string) bool { return name == active }
