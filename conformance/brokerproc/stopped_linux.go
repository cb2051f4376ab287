package brokerproc

import (
	"errors"

	"golang.org/x/sys/unix"
)

// awaitStopped waits until the process stands still: SIGSTOP returns before the last of its threads does. An error says that it ended
// meanwhile.
func (p *process) awaitStopped() error {
	for {
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.ECHILD):
			return ErrNotRunning
		case !errors.Is(err, unix.EINTR):
			return err
		}
	}
}
