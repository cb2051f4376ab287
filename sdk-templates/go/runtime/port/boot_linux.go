package port

import (
	"syscall"
	"time"
	"unsafe"
)

// CountsSuspend says whether System runs on while the machine is suspended.
const CountsSuspend = true

// clockBoottime is CLOCK_BOOTTIME of clock_gettime(2), which counts suspended time.
const clockBoottime = 7

// bootTime returns the time since the machine started. Kernels that do not know the clock are answered by that of the Go runtime.
func bootTime() time.Duration {
	var now syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		return monotonic()
	}
	return time.Duration(now.Nano())
}
