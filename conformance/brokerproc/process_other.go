//go:build !unix

package brokerproc

import (
	"errors"
	"os"
	"os/exec"
)

// executable is how names of programs end.
const executable = ".exe"

type signal int

const (
	sigTerm signal = iota
	sigStop
	sigCont
)

func separate(*exec.Cmd) {}

// signal can only end a process here.
func (p *process) signal(s signal) error {
	if s == sigTerm {
		return p.cmd.Process.Signal(os.Interrupt)
	}
	return errors.ErrUnsupported
}

func killGroup(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
