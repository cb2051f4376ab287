// Package boot tells the time since the machine started. All processes of a machine see the same clock, so that tests can compare what
// happened in several of them. Clients have the clock of the SDK.
package boot

import "time"

// processStart is where the fallback clock begins.
var processStart = time.Now()

// monotonic is the clock of the Go runtime, which may stop while the machine is suspended and is another one in each process.
func monotonic() time.Duration { return time.Since(processStart) }
