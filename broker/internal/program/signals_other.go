//go:build !unix

package program

import "os"

// replacement is the signal with which an operator drains for a replacement: this system has none.
var replacement os.Signal
