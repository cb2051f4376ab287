//go:build !unix

package job

import (
	"errors"
	"os"
)

// Supported says whether commands can be run on this platform: it has no process groups to end a command with all that it started.
const Supported = false

// KilledWithParent says whether the command is killed when this process dies without ending it.
const KilledWithParent = false

// Forwarded are the signals that a caller passes on to the command.
var Forwarded = []os.Signal{os.Interrupt}

// SignalNumber returns the number of a signal.
func SignalNumber(os.Signal) int { return 0 }

// Job is one running command. There are none on this platform.
type Job struct{}

// Start fails.
func Start(Options) (*Job, error) {
	return nil, errors.New("running a command while a lease is held needs process groups, which this platform does not have")
}

// Exited returns a channel that is never closed.
func (j *Job) Exited() <-chan struct{} { return nil }

// Wait returns at once.
func (j *Job) Wait() Status { return Status{Code: 1} }

// Signal does nothing.
func (j *Job) Signal(os.Signal) error { return nil }

// Terminate does nothing.
func (j *Job) Terminate() error { return nil }

// Kill does nothing.
func (j *Job) Kill() error { return nil }
