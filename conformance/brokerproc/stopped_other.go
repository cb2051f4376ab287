//go:build !linux

package brokerproc

// awaitStopped has nothing to wait with on this platform.
func (p *process) awaitStopped() error { return nil }
