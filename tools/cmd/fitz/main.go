// Command fitz holds leases while commands run, shows who holds what, and decodes messages.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), stdio{os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr}))
}
