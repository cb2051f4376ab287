// Command fitzgen checks a specification and generates code and documentation from it.
//
// Exit codes: 0 everything is in order, 1 the tool failed, 2 wrong usage, 3 generated files differ from the specification,
// 100 the specification has findings.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitDrift    = 3
	exitFindings = 100
)

// app is what all commands share.
type app struct {
	Spec string `help:"Index of the specification." default:"spec/fitz.yaml" placeholder:"FILE" short:"s"`

	out io.Writer // results
	log io.Writer // everything else
}

// command is one row of the command table. Each command is a struct with kong tags and a method Run(*app) error, in its own file.
type command struct {
	name, help string
	value      any
}

// commands is the command table. A command adds itself with one line here.
func commands() []command {
	return []command{
		{"check", "Check the specification with its schemas and rules.", &checkCmd{}},
		{"gen", "Generate everything from the specification.", &genCmd{}},
		{"drift", "Compare the generated files with what the specification says.", &driftCmd{}},
		{"selftest", "Break the subject of each check in a copy and expect the check to fail.", &selftestCmd{}},
		{"version", "Print version, commit and fingerprint of the specification.", &versionCmd{}},
	}
}

// outcome is an error that decides the exit code. A silent one has been reported already.
type outcome struct {
	code int
	err  error
}

func (o *outcome) Error() string {
	if o.err == nil {
		return ""
	}
	return o.err.Error()
}

func (o *outcome) Unwrap() error { return o.err }

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs one command line and returns its exit code.
func run(args []string, out, log io.Writer) (code int) {
	a := &app{out: out, log: log}
	exit := -1 // set when kong ends the program itself, after --help
	options := []kong.Option{
		kong.Name("fitzgen"),
		kong.Description("Checks a specification and generates code and documentation from it."),
		kong.Writers(out, log),
		kong.Exit(func(code int) { exit = code }),
		kong.UsageOnError(),
	}
	for _, c := range commands() {
		options = append(options, kong.DynamicCommand(c.name, c.help, "", c.value))
	}
	parser, err := kong.New(a, options...)
	if err != nil {
		fmt.Fprintln(log, "fitzgen:", err)
		return exitFailure
	}
	ctx, err := parser.Parse(args)
	switch {
	case exit >= 0:
		return exit
	case err != nil:
		fmt.Fprintln(log, "fitzgen:", err)
		return exitUsage
	}
	return a.report(ctx.Run(a))
}

// report turns the result of a command into an exit code.
func (a *app) report(err error) int {
	if err == nil {
		return exitOK
	}
	code := exitFailure
	var o *outcome
	if errors.As(err, &o) {
		code = o.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(a.log, "fitzgen:", text)
	}
	return code
}
