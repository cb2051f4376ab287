// Command fitz-release makes what is handed out of a release: programs for every platform in archives, Debian packages, the conformance suite and
// checksums. The same commit and the same version of Go give the same bytes, on every machine.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// commandLine is what can be asked for.
type commandLine struct {
	Root string `default:"." type:"existingdir" help:"Source tree."`

	Make    makeCommand    `cmd:"" help:"Make all archives and look at them."`
	Build   buildCommand   `cmd:"" help:"Build the programs of one platform, as they stand in its archive."`
	Notices noticesCommand `cmd:"" help:"Compare THIRD_PARTY_NOTICES.md with the modules in use."`
	Verify  verifyCommand  `cmd:"" help:"Look at archives that were made."`
}

// session is what commands work with.
type session struct {
	ctx  context.Context
	root string
	out  io.Writer
}

func (s *session) say(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command without its process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var line commandLine
	helped := false
	parser, err := kong.New(&line, kong.Name("fitz-release"), kong.Writers(stdout, stderr), kong.Exit(func(int) { helped = true }),
		kong.Description("Makes what is handed out of a release. Exit codes: 0 done, 1 failed, 2 wrong usage."))
	if err != nil {
		fmt.Fprintln(stderr, "fitz-release:", err)
		return 1
	}
	parsed, err := parser.Parse(args)
	if helped {
		return 0
	}
	if err != nil {
		fmt.Fprintln(stderr, "fitz-release:", err)
		return 2
	}
	if err := parsed.Run(&session{ctx: ctx, root: line.Root, out: stdout}); err != nil {
		fmt.Fprintln(stderr, "fitz-release:", err)
		return 1
	}
	return 0
}
