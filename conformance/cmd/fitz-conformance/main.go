// Command fitz-conformance judges brokers and clients of the protocol by the scenarios of the conformance suite.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/kit"
	"github.com/fitzwire/fitz/conformance/report"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/version"
)

// Exit codes.
const (
	exitOK     = 0
	exitTool   = 1   // the tool could not do its work
	exitUsage  = 2   // wrong flags
	exitFailed = 100 // cases failed, or scenario files have mistakes
)

// errFailed says that the run was done and is no success.
var errFailed = errors.New("failed")

type commandLine struct {
	Root string `help:"Source tree with spec/ and conformance/scenarios (default: found from the working folder upwards)." type:"existingdir"`

	Run      runCommand      `cmd:"" help:"Run scenarios and golden vectors."`
	List     listCommand     `cmd:"" help:"Check the scenario files and list the cases."`
	Coverage coverageCommand `cmd:"" help:"Show that every rule and error code has a case that accepts and one that rejects."`
	Mutants  mutantsCommand  `cmd:"" help:"Show that the suite notices every fault that is seeded into broker and SDK."`
	Version  versionCommand  `cmd:"" help:"Print the version."`
}

type selection struct {
	Scenario  []string `help:"Only scenarios whose id matches one of these patterns: OBS-0*." placeholder:"GLOB"`
	Transport []string `help:"Only these transports." enum:"tcp,ws" placeholder:"tcp,ws"`
	Labels    []string `help:"Only with labels, or without." enum:"on,off" placeholder:"on,off"`
	Auth      []string `help:"Only these ways to authenticate." enum:"anonymous,token" placeholder:"anonymous,token"`
}

func (s selection) choose() engine.Selection {
	return engine.Selection{Scenarios: s.Scenario, Transports: s.Transport, Labels: s.Labels, Auth: s.Auth}
}

type runCommand struct {
	selection
	Driver        string        `help:"Command line of the driver (default: the one of the Go SDK, built from the tree)." placeholder:"CMD"`
	NoDriver      bool          `help:"Judge only the broker: scenarios that need a driver are left out."`
	Broker        string        `help:"Command line of the broker, or addresses of one that runs: tcp://host:port,ws://host:port (default: fitzd, built from the tree)." placeholder:"CMD|ADDRESS"`
	BrokerVirtual string        `help:"Command line of the broker with a control port, for virtual time (default with the default broker: fitzd-test)." placeholder:"CMD"`
	TokenBroker   string        `help:"Addresses of the listeners that want a token, of a broker that runs: tcp://host:port,ws://host:port." placeholder:"ADDRESS"`
	TokenSecret   string        `help:"Secret of HS256 by which the broker verifies tokens (default: the one of spec/broker.yaml)." placeholder:"TEXT" env:"FITZ_CONFORMANCE_TOKEN_SECRET"`
	Seed          string        `help:"Seed of everything random (default: drawn, and printed)." placeholder:"N"`
	Slots         int           `help:"Cases at a time (default: two for each processor)." default:"0"`
	NoVectors     bool          `help:"Leave the golden vectors out."`
	Known         string        `help:"File of known failures (default: conformance/known-failures.yaml for the default driver and broker, none for others)." placeholder:"FILE"`
	Budget        time.Duration `help:"Time that all scenarios may take; one and a half of it fails the run." placeholder:"60s"`
	HelloTimeout  time.Duration `help:"Time from the start of a driver to its hello." default:"10s"`
	AnswerTimeout time.Duration `help:"Time for answers that a driver owes at once." default:"2s"`
	JSON          string        `help:"Write everything that was found out to this file; - is the output." placeholder:"FILE" name:"json"`
	JUnit         string        `help:"Write the cases as JUnit XML to this file; - is the output." placeholder:"FILE" name:"junit"`
	HTML          string        `help:"Write one page with every failure and its frames to this file; - is the output." placeholder:"FILE" name:"html"`
	Traces        bool          `help:"Keep the frames of cases that pass too."`
	Quiet         bool          `help:"Print only what is no pass." short:"q"`
}

type listCommand struct{ selection }

type versionCommand struct{}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command without its process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var line commandLine
	helped := false
	parser, err := kong.New(&line, kong.Name("fitz-conformance"),
		kong.Description("Judges brokers and clients of the protocol by the scenarios of the conformance suite. "+
			"Exit codes: 0 all passed, 1 the tool failed, 2 wrong flags, 100 cases failed."),
		kong.Writers(stdout, stderr), kong.Exit(func(int) { helped = true }))
	if err != nil {
		return complain(stderr, exitTool, err)
	}
	chosen, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		return complain(stderr, exitUsage, err)
	}
	switch {
	case chosen.Command() == "version":
		err = version.Of("fitz-conformance", wire.SpecVersion, wire.SpecFingerprint).Write(stdout, false)
	case chosen.Command() == "list":
		err = line.List.run(line.Root, stdout)
	case chosen.Command() == "coverage":
		err = line.Coverage.run(line.Root, stdout)
	case chosen.Command() == "mutants":
		err = line.Mutants.run(ctx, line.Root, stdout)
	default:
		err = line.Run.run(ctx, line.Root, stdout, stderr)
	}
	var mistakes kit.Mistakes
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &mistakes):
		fmt.Fprintln(stderr, mistakes)
		return exitFailed
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.As(err, &usage):
		return complain(stderr, exitUsage, err)
	}
	return complain(stderr, exitTool, err)
}

func complain(stderr io.Writer, code int, err error) int {
	fmt.Fprintln(stderr, "fitz-conformance:", err)
	return code
}

// usageError is a mistake in the value of a flag.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func open(root string) (*kit.Tree, error) {
	if root == "" {
		var err error
		if root, err = kit.FindRoot("."); err != nil {
			return nil, &usageError{err}
		}
	}
	return kit.Open(root)
}

func (l *listCommand) run(root string, stdout io.Writer) error {
	tree, err := open(root)
	if err != nil {
		return err
	}
	for _, c := range engine.Matrix(tree.Scenarios, l.choose()) {
		fmt.Fprintf(stdout, "%-40s %-7s %-7s %s\n", c.Name(), c.Scenario.Subject, c.Scenario.Time, c.Scenario.Title)
	}
	return mistakes(tree)
}

func (r *runCommand) run(ctx context.Context, root string, stdout, stderr io.Writer) error {
	tree, err := open(root)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "fitz-conformance-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	config, err := r.config(ctx, tree, folder)
	if err != nil {
		return err
	}
	clauses, err := report.LoadClauses(os.DirFS(filepath.Join(tree.Root, "docs", "protocol")))
	if err != nil {
		return err
	}
	text := stdout
	if r.JSON == "-" || r.JUnit == "-" || r.HTML == "-" {
		text = stderr // so that the output is the report and nothing else
	}
	style := report.StyleOf(text, os.Getenv)
	progress := report.NewProgress(text, style, r.Quiet)
	config.Progress, config.Traces = progress.Case, r.Traces
	e, err := engine.New(config)
	if err != nil {
		return err
	}
	scratch := filepath.Join(folder, "tmp")
	restore, err := moveTemp(scratch)
	if err != nil {
		return err
	}
	defer restore()
	result, err := e.Run(ctx)
	result.Left = append(result.Left, remains(scratch)...)
	progress.End()
	document := report.New(result, clauses)
	if err := errors.Join(err, document.WriteText(text, style), r.write(document, stdout, text)); err != nil {
		return err
	}
	if !result.OK() {
		return errors.Join(errFailed, mistakes(tree))
	}
	return mistakes(tree)
}

// mistakes is an error when scenario files have some: they would be left out silently otherwise.
func mistakes(tree *kit.Tree) error {
	if len(tree.Mistakes) == 0 {
		return nil
	}
	return tree.Mistakes
}

// config puts the run together.
func (r *runCommand) config(ctx context.Context, tree *kit.Tree, folder string) (engine.Config, error) {
	c := tree.Config()
	c.Select, c.Slots, c.Budget, c.Replay = r.choose(), r.Slots, r.Budget, r.replay()
	if r.NoVectors || !c.Select.Whole() {
		c.Vectors = nil
	}
	var err error
	if c.Seed, err = seedOf(r.Seed); err != nil {
		return c, err
	}
	if r.Broker == "" {
		c.Broker, err = tree.OwnBroker(ctx, folder)
	} else if c.Broker, err = kit.Broker(r.Broker, r.BrokerVirtual); err != nil {
		err = &usageError{err}
	}
	if err != nil {
		return c, err
	}
	if err := kit.WithTokens(&c.Broker, r.TokenBroker, r.TokenSecret); err != nil {
		return c, &usageError{err}
	}
	if c.Driver, err = r.driver(ctx, tree, folder); err != nil {
		return c, err
	}
	c.Driver.Limits.Hello, c.Driver.Limits.Answer = r.HelloTimeout, r.AnswerTimeout
	if r.NoDriver {
		c.Scenarios = engine.WithoutDriver(c.Scenarios)
	}
	switch {
	case r.Known != "":
		c.Known, err = engine.LoadKnown(r.Known)
	case r.Driver == "" && r.Broker == "" && !r.NoDriver:
		c.Known, err = tree.Known()
	}
	return c, err
}

func (r *runCommand) driver(ctx context.Context, tree *kit.Tree, folder string) (engine.DriverSource, error) {
	switch {
	case r.NoDriver && r.Driver != "":
		return engine.DriverSource{}, &usageError{errors.New("--driver and --no-driver exclude each other")}
	case r.NoDriver:
		return engine.DriverSource{}, nil
	case r.Driver == "":
		return tree.GoDriver(ctx, folder)
	}
	args, err := kit.Split(r.Driver)
	if err != nil {
		return engine.DriverSource{}, &usageError{err}
	}
	limits := driver.DefaultLimits
	limits.Hello, limits.Answer = r.HelloTimeout, r.AnswerTimeout
	return kit.Driver(args, limits), nil
}

// seedOf is the given seed, or a new one.
func seedOf(text string) (uint64, error) {
	if text == "" {
		return uint64(time.Now().UnixNano()) % 1_000_000_007, nil
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, &usageError{fmt.Errorf("--seed: %q is no number", text)}
	}
	return seed, nil
}

// replay is the beginning of the command line that runs one case again. The secret of tokens is not in it, because it is one.
func (r *runCommand) replay() string {
	line := "fitz-conformance run"
	for _, flag := range []struct{ name, value string }{{"driver", r.Driver}, {"broker", r.Broker}, {"broker-virtual", r.BrokerVirtual}, {"token-broker", r.TokenBroker}} {
		if flag.value != "" {
			line += " --" + flag.name + " '" + strings.ReplaceAll(flag.value, "'", `'\''`) + "'"
		}
	}
	if r.NoDriver {
		line += " --no-driver"
	}
	return line
}

// write writes the reports that were asked for, and tells in the text where they are.
func (r *runCommand) write(d *report.Document, stdout, text io.Writer) error {
	var errs []error
	for _, one := range []struct {
		name  string
		write func(io.Writer) error
	}{{r.JSON, d.WriteJSON}, {r.JUnit, d.WriteJUnit}, {r.HTML, d.WriteHTML}} {
		switch one.name {
		case "":
		case "-":
			errs = append(errs, one.write(stdout))
		default:
			errs = append(errs, writeFile(one.name, one.write))
			fmt.Fprintln(text, "report:", one.name)
		}
	}
	return errors.Join(errs...)
}

// writeFile writes a file and makes the folder that it is in.
func writeFile(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(file)
	return errors.Join(write(buffered), buffered.Flush(), file.Close())
}

// moveTemp lets everything of the run, the programs that it starts included, put temporary files into a folder of its own, so that what is
// left there can be found.
func moveTemp(folder string) (restore func(), err error) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	const variable = "TMPDIR"
	before, had := os.LookupEnv(variable)
	if err := os.Setenv(variable, folder); err != nil {
		return nil, err
	}
	return func() {
		if had {
			_ = os.Setenv(variable, before)
		} else {
			_ = os.Unsetenv(variable)
		}
	}, nil
}

// remains is what programs of the run have left in the folder of temporary files.
func remains(folder string) []string {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for _, e := range entries {
		left = append(left, "temporary file "+e.Name())
	}
	return left
}
