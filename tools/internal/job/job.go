// Package job runs one command in a process group of its own, passes signals on to the whole group, and hands the terminal over like a
// shell does. On Linux the command is killed when this process dies, however that happens.
package job

import (
	"os"
)

// Options says what to run.
type Options struct {
	Argv []string // the program, as found by exec.LookPath, and its arguments
	Env  []string // NAME=value, the whole environment
	// Stdin, Stdout and Stderr are handed to the command as they are.
	Stdin, Stdout, Stderr *os.File
	// Resume, if set, is asked before a command that was stopped from the terminal goes on. False: it is not continued, because what it
	// relied on is gone, and the caller ends it.
	Resume func() bool
}

// Status is how a command ended.
type Status struct {
	Code   int       // exit status, when Signal is nil
	Signal os.Signal // signal that ended it, or nil
}

// signalBase is what shells add to the number of a signal.
const signalBase = 128

// ExitCode is the status as a shell would report it.
func (s Status) ExitCode() int {
	if s.Signal == nil {
		return s.Code
	}
	return signalBase + SignalNumber(s.Signal)
}
