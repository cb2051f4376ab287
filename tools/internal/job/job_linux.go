package job

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// KilledWithParent says whether the command is killed when this process dies without ending it.
const KilledWithParent = true

func killWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = unix.SIGKILL }

// waiter waits for one command. A command that has ended keeps its number until it is reaped, so that no signal to its group can hit
// somebody else.
type waiter struct{ pid int }

// change waits until the command was stopped or has ended.
func (w *waiter) change() (stopped bool, err error) {
	if _, err := w.look(unix.WEXITED | unix.WSTOPPED | unix.WNOWAIT); err != nil {
		return false, err
	}
	ended, err := w.look(unix.WEXITED | unix.WNOWAIT | unix.WNOHANG)
	if ended || err != nil {
		return false, err
	}
	_, err = w.look(unix.WSTOPPED | unix.WNOHANG) // takes the news
	return true, err
}

// look reports whether there is something of that kind.
func (w *waiter) look(options int) (bool, error) {
	var info unix.Siginfo
	_, err := ignoringEINTR(func() (int, error) { return 0, unix.Waitid(unix.P_PID, w.pid, &info, options, nil) })
	return info.Signo != 0, err
}

// reap lets the operating system forget the command and returns how it ended.
func (w *waiter) reap() Status {
	var status unix.WaitStatus
	if _, err := ignoringEINTR(func() (int, error) { return unix.Wait4(w.pid, &status, 0, nil) }); err != nil {
		return Status{Code: 1}
	}
	return statusOf(status)
}
