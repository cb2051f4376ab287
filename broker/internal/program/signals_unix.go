//go:build unix

package program

import (
	"os"
	"syscall"
)

// replacement is the signal with which an operator drains for a replacement.
var replacement os.Signal = syscall.SIGUSR1
