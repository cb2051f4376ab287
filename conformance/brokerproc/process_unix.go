//go:build unix

package brokerproc

import (
	"os/exec"
	"syscall"
)

// executable is how names of programs end.
const executable = ""

type signal = syscall.Signal

const (
	sigTerm = syscall.SIGTERM
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// separate puts the command into a process group of its own.
func separate(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signal sends to the command only.
func (p *process) signal(s signal) error {
	select {
	case <-p.done:
		return ErrNotRunning // its number may belong to another process by now
	default:
		return p.cmd.Process.Signal(s)
	}
}

// killGroup ends the process group of the command, if it has a member. Its number is not given to others while it has one.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
