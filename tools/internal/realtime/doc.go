// Package realtime holds the tests of the Go SDK that cannot run on a virtual clock: a broker and workers that are processes of their own,
// sockets of the operating system, and signals that stop a process. They show for a few schedules that no lease outlives its signal; package
// fitztest shows it for many on a virtual clock.
//
// All processes write down the time of CLOCK_BOOTTIME, which they share, so that the tests run on Linux only.
package realtime
