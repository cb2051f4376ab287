// Package pty opens pseudo terminals for tests of programs that behave differently on a terminal.
package pty

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Open returns the two ends of a new pseudo terminal: what is written to master is typed, what is read from it was shown. The caller
// closes both.
func Open() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	slave, err = openSlave(int(master.Fd()))
	if err != nil {
		_ = master.Close() // of no use alone
		return nil, nil, err
	}
	return master, slave, nil
}

func openSlave(master int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("number of terminal: %w", err)
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
}

// Resize sets the size of the terminal.
func Resize(terminal *os.File, width, height int) error {
	return unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(width), Row: uint16(height)})
}
