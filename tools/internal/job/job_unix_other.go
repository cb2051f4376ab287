//go:build unix && !linux

package job

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// KilledWithParent says whether the command is killed when this process dies without ending it.
const KilledWithParent = false

func killWithParent(*syscall.SysProcAttr) {}

// waiter waits for one command.
type waiter struct {
	pid    int
	status Status
}

// change waits until the command was stopped or has ended.
func (w *waiter) change() (stopped bool, err error) {
	var status unix.WaitStatus
	if _, err := ignoringEINTR(func() (int, error) { return unix.Wait4(w.pid, &status, unix.WUNTRACED, nil) }); err != nil {
		return false, err
	}
	if status.Stopped() {
		return true, nil
	}
	w.status = statusOf(status)
	return false, nil
}

// reap returns how the command ended.
func (w *waiter) reap() Status { return w.status }
