//go:build unix

package driver

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup puts a process into a group of its own, so that it can be ended with everything that it starts.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func killGroup(pid int, _ *os.Process) { _ = syscall.Kill(-pid, syscall.SIGKILL) }

// groupAlive tells whether the group has processes.
func groupAlive(pid int) bool { return syscall.Kill(-pid, 0) == nil }
