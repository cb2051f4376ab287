package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/cliref"
	"github.com/fitzwire/fitz/internal/version"
	"github.com/fitzwire/fitz/tools/internal/display"
)

// Exit codes. The help text documents them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitUnavailable = 69  // EX_UNAVAILABLE of sysexits
	exitLost        = 75  // EX_TEMPFAIL of sysexits
	exitFindings    = 100 // decode
	exitNotRunnable = 126 // as shells do
	exitNotFound    = 127
	exitSignal      = 128 // plus the number of the signal
)

const description = `Hold leases of a Fitz broker while commands run, see who holds what, and decode messages.

Exit codes: 0 success, 1 failure or refusal, 2 wrong usage, 69 the broker cannot be reached or refuses the token, 75 the lease was lost while it was held,
100 the decoded bytes have a mistake, 126 and 127 the command cannot be run or found, 128+N ended by signal N.
"fitz lease acquire" with a command exits with the status of that command.`

// stdio is everything that a run gets from outside.
type stdio struct {
	args    []string
	environ []string // of commands that are run
	stdin   *os.File
	stdout  io.Writer
	stderr  io.Writer
}

// grammar is the command line.
type grammar struct {
	URL  string `name:"url" env:"${env_url}" default:"${default_url}" placeholder:"URL" help:"Address of the broker: fitz://host:port or tcp://host:port for TCP, ws://host:port/path for WebSocket, with TLS fitzs://, tls:// or wss:// (default ${default_url})."`
	JSON bool   `name:"json" help:"Print JSON, one object on each line."`

	Security security `embed:""`

	Lease struct {
		Acquire acquireCmd `cmd:"" help:"Hold a lease while a command runs, or until interrupted."`
		Ls      lsCmd      `cmd:"" help:"List the leases that match a selector."`
		Query   queryCmd   `cmd:"" help:"Tell who holds a route."`
		Watch   watchCmd   `cmd:"" help:"Keep a live view of the leases that match a selector."`
	} `cmd:"" help:"Hold and watch leases."`
	Token struct {
		Mint    mintCmd    `cmd:"" help:"Print a token for development."`
		Inspect inspectCmd `cmd:"" help:"Show what a token says."`
	} `cmd:"" help:"Make and look at tokens."`
	Status  statusCmd  `cmd:"" help:"Show what a broker is and does, from its admin interface."`
	Demo    demoCmd    `cmd:"" help:"Show a fleet of workers that balances itself."`
	Decode  decodeCmd  `cmd:"" help:"Name every byte of a record or of a transport message."`
	Version versionCmd `cmd:"" help:"Print version, commit and fingerprint of the specification."`

	Completion completionCmd `cmd:"" help:"Print the completion script of a shell."`
	Man        manCmd        `cmd:"" help:"Print the manual page."`
}

// app is what commands work with.
type app struct {
	stdio
	ctx  context.Context
	url  string
	json bool

	security security
}

// failure is an error with an exit code of its own. A silent one has been reported already.
type failure struct {
	code   int
	err    error
	silent bool
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit code %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// ended is an exit code without anything to say.
func ended(code int) error {
	if code == exitOK {
		return nil
	}
	return &failure{code: code, silent: true}
}

func usage(format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// run is the program: it never exits by itself and closes everything that it opened.
func run(ctx context.Context, s stdio) int {
	var g grammar
	help := false
	parser, err := kong.New(&g,
		kong.Name("fitz"), kong.Description(description), kong.Writers(s.stdout, s.stderr),
		kong.Exit(func(int) { help = true }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}),
		kong.Vars{"shells": cliref.Shells, "env_url": fitz.EnvURL, "default_url": fitz.DefaultURL, "longest_turn": fitz.DefaultAcquireWait.String(),
			"acquire_ttl": fitz.DefaultAcquireTTL.String(), "kill_after": fitz.DefaultKillAfter.String()}, demoVars(), tokenVars(), securityVars(), statusVars(),
	)
	if err != nil {
		fmt.Fprintln(s.stderr, "fitz:", err)
		return exitFailure
	}
	parsed, err := parser.Parse(s.args)
	if help {
		return exitOK
	}
	if err != nil {
		return report(s.stderr, usage("%w", err))
	}
	g.Security.note(parsed.Path)
	a := &app{stdio: s, ctx: ctx, url: cmp.Or(g.URL, fitz.DefaultURL), json: g.JSON, security: g.Security} // an empty variable counts as not set
	return report(s.stderr, parsed.Run(a))
}

// report prints an error in one line and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil || errors.Is(err, syscall.EPIPE) { // nobody reads any more: that is an end, not a failure
		return exitOK
	}
	code := codeOf(err)
	if f := (*failure)(nil); errors.As(err, &f) {
		code = f.code
		if f.silent {
			return code
		}
	}
	fmt.Fprintln(stderr, "fitz: "+display.Text(err.Error()))
	return code
}

// codeOf is the exit code of an error that has none of its own.
func codeOf(err error) int {
	switch fitz.CodeOf(err) {
	case fitz.CodeConfigInvalid:
		return exitUsage
	case fitz.CodeConnRefused, fitz.CodeConnLost, fitz.CodeConnGoaway, fitz.CodeAuthRejected, fitz.CodeRequestTimeout:
		return exitUnavailable
	case fitz.CodeLeaseLost:
		return exitLost
	}
	return exitFailure
}

// print writes one line at once, so that a reader behind a pipe sees it.
func (a *app) print(line string) error {
	_, err := io.WriteString(a.stdout, line+"\n")
	return err
}

// printJSON writes one object on one line.
func (a *app) printJSON(w io.Writer, value any) error {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// connect opens a client, with more options than those of every client.
func (a *app) connect(ctx context.Context, more ...fitz.Option) (*fitz.Client, error) {
	options, err := a.options()
	if err != nil {
		return nil, err
	}
	return fitz.Connect(ctx, a.url, append(options, more...)...)
}

type versionCmd struct{}

// Run prints what the program was built from.
func (*versionCmd) Run(a *app) error {
	return version.Of("fitz", wire.SpecVersion, wire.SpecFingerprint).Write(a.stdout, a.json)
}
