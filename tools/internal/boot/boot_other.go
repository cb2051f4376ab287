//go:build !linux

package boot

import "time"

// System is the monotonic clock of the Go runtime.
func System() time.Duration { return monotonic() }
