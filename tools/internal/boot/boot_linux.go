package boot

import (
	"time"

	"golang.org/x/sys/unix"
)

// System is CLOCK_BOOTTIME, which counts suspended time.
func System() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return monotonic() // kernels before 2.6.39
	}
	return time.Duration(now.Nano())
}
