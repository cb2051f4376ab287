//go:build !linux

package port

import "time"

// CountsSuspend says whether System runs on while the machine is suspended.
const CountsSuspend = false

// bootTime is the clock of the Go runtime.
func bootTime() time.Duration { return monotonic() }
