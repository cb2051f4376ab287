// Package program is what the broker programs have in common: from the command line to the exit code.
package program

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/version"
)

// Exit codes.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitConfig = 2 // a mistake in the configuration, or an address that cannot be listened at
)

// Program is a broker program.
type Program struct {
	Name string
	// Options are given to the broker on top of its configuration.
	Options []broker.Option
	// Started, when not nil, is called with the running broker; what it returns is called when the broker has ended.
	Started func(b *broker.Broker) (ended func())
	// Hurried, when not nil, is called when a second signal ends the grace of the first; what it returns is called when the broker has ended.
	Hurried func() (ended func())
}

// Run is a broker program without its process: it returns the exit code. args stand without the program name.
func (p *Program) Run(args []string, env func(string) string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	c, action, err := config.Load(args, env, stdout)
	if err != nil {
		p.Complain(stderr, err)
		return ExitConfig
	}
	switch action {
	case config.Help:
		return ExitDone
	case config.Version:
		fmt.Fprintln(stdout, p.about())
		return ExitDone
	case config.Print:
		if err := c.Print(stdout); err != nil {
			p.Complain(stderr, err)
			return ExitFailed
		}
		return ExitDone
	}
	log := logger(c, stderr)
	for _, warning := range c.Warnings {
		log.Warn(warning)
	}
	switch action {
	case config.Check:
		return p.check(c, log, stderr)
	case config.Health:
		return p.healthcheck(c, stderr)
	}
	return p.serve(c, log, stderr, signals, env(notifySocket))
}

// Signals are those that end a broker program: SIGINT and SIGTERM, and SIGUSR1 where the system has it, which says that another broker
// takes its place (W-37).
func Signals() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if replacement != nil {
		all = append(all, replacement)
	}
	return all
}

// check looks at the files that the configuration names.
func (p *Program) check(c *config.Config, log *slog.Logger, stderr io.Writer) int {
	if err := broker.Check(c, append([]broker.Option{broker.WithLog(log)}, p.Options...)...); err != nil {
		p.Complain(stderr, err)
		return ExitConfig
	}
	return ExitDone
}

// serve runs the broker until the first signal, then drains it; a second signal ends the grace at once (W-37).
func (p *Program) serve(c *config.Config, log *slog.Logger, stderr io.Writer, signals <-chan os.Signal, manager string) int {
	b, err := broker.Start(context.Background(), c, append([]broker.Option{broker.WithLog(log)}, p.Options...)...)
	if err != nil {
		p.Complain(stderr, err)
		return ExitConfig
	}
	built := p.built()
	log.Info("started", "program", built.Program, "version", built.Version, "commit", built.Commit, "spec", built.Fingerprint, "go", built.Go)
	if p.Started != nil {
		defer p.Started(b)()
	}
	notify(log, manager, notifyReady)
	shutdown := b.Shutdown
	if <-signals == replacement {
		shutdown = b.Replace
	}
	notify(log, manager, notifyStopping)
	grace, end := context.WithCancel(context.Background())
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		shutdown(grace)
	}()
	select {
	case <-done:
		return ExitDone
	case <-signals:
	}
	if p.Hurried != nil {
		defer p.Hurried()()
	}
	end()
	<-done
	return ExitDone
}

func logger(c *config.Config, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: c.LogLevel}
	if c.LogJSON {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Complain writes an error with the program name before every line.
func (p *Program) Complain(w io.Writer, err error) {
	fmt.Fprintln(w, config.Prefixed(p.Name+": ", err))
}

// about names version, commit and the fingerprint of the specification.
func (p *Program) about() string { return p.built().String() }

// built is what the program was built from.
func (p *Program) built() version.Info {
	return version.Of(p.Name, wire.SpecVersion, wire.SpecFingerprint)
}
