// Command fitzd is the lease broker.
package main

import (
	"io"
	"os"
	"os/signal"

	"github.com/fitzwire/fitz/broker/internal/program"
)

func main() {
	program.IgnoreHangup()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, program.Signals()...)
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr, signals))
}

// run is fitzd without its process: it returns the exit code.
func run(args []string, env func(string) string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	fitzd := program.Program{Name: "fitzd"}
	return fitzd.Run(args, env, stdout, stderr, signals)
}
