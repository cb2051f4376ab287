package program

import (
	"os/signal"
	"syscall"
)

// IgnoreHangup lets SIGHUP pass, with which operators ask programs to read their files again: a broker does so by itself, and must not
// end because somebody asked.
func IgnoreHangup() { signal.Ignore(syscall.SIGHUP) }
