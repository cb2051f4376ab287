// Command fuzzall runs every fuzz target of the module for some time, a few at a time.
//
// `go test -fuzz` takes one target of one package at a time; this command finds them all, so that a new target needs no list, and builds each
// package once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o := options{out: os.Stdout}
	flag.StringVar(&o.fuzztime, "fuzztime", "30s", "time for each target, or a number of executions: `Nx`")
	flag.IntVar(&o.jobs, "jobs", max(2, runtime.NumCPU()), "targets at a time, each with one worker")
	flag.StringVar(&o.only, "only", "", "run only targets whose name contains this text")
	flag.Parse()
	if err := o.run(ctx, "."); err != nil {
		fmt.Fprintln(os.Stderr, "fuzzall:", err)
		os.Exit(1)
	}
}

// options is how to run.
type options struct {
	fuzztime string
	jobs     int
	only     string
	out      io.Writer
}

// slack is the real time that a target may take beyond its fuzzing: the seed corpus, and what earlier runs have kept in the cache.
const slack = 5 * time.Minute

func (o options) run(ctx context.Context, root string) error {
	if o.jobs < 1 {
		return fmt.Errorf("-jobs is %d; at least one target must run", o.jobs)
	}
	limit := slack
	if d, err := time.ParseDuration(o.fuzztime); err == nil {
		limit += d
	}
	all, err := find(root)
	if err != nil {
		return err
	}
	var targets []target
	for _, t := range all {
		if strings.Contains(t.name, o.only) {
			targets = append(targets, t)
		}
	}
	if len(targets) == 0 {
		return fmt.Errorf("no fuzz target below the current folder has a name with %q in it", o.only)
	}
	began := time.Now()
	bin, err := os.MkdirTemp("", "fuzzall-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(bin) }()
	programs, err := build(ctx, root, bin, targets)
	if err != nil {
		return err
	}
	built := time.Since(began)
	execs, err := o.each(ctx, root, limit, targets, programs)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.out, "fuzz: %d targets, %s each, %d at a time: %d executions, no failure; built in %v, %v in all\n",
		len(targets), o.fuzztime, o.jobs, execs, built.Round(time.Second), time.Since(began).Round(time.Second))
	return err
}

// build builds the test program of each package with the instrumentation for fuzzing and returns the programs by package folder.
func build(ctx context.Context, root, into string, targets []target) (map[string]string, error) {
	programs := map[string]string{}
	for _, t := range targets {
		if programs[t.dir] != "" {
			continue
		}
		name, err := filepath.Abs(filepath.Join(into, fmt.Sprintf("%d.test", len(programs))))
		if err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-fuzz=.", "-o", name, "./"+filepath.ToSlash(t.dir))
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", t.dir, err, out)
		}
		programs[t.dir] = name
	}
	return programs, nil
}

// each runs the targets, some at a time, prints a line for each that is over, and returns how often they were executed. Every target runs,
// whatever others have found.
func (o options) each(ctx context.Context, root string, limit time.Duration, targets []target, programs map[string]string) (int64, error) {
	next := make(chan target)
	var running sync.WaitGroup
	var telling sync.Mutex
	var all int64
	var wrong []error
	for range min(o.jobs, len(targets)) {
		running.Go(func() {
			for t := range next {
				r, err := o.fuzz(ctx, root, limit, t, programs[t.dir])
				telling.Lock()
				all += r.execs
				if err != nil {
					wrong = append(wrong, err)
				}
				fmt.Fprintln(o.out, r.line(t, err))
				telling.Unlock()
			}
		})
	}
	for _, t := range targets {
		if ctx.Err() != nil {
			break
		}
		next <- t
	}
	close(next)
	running.Wait()
	return all, errors.Join(append(wrong, ctx.Err())...)
}

// result is what became of one target.
type result struct {
	execs int64
	took  time.Duration
	again bool // the Go tool ended it with its deadline error, and its seed corpus was run again
}

func (r result) line(t target, err error) string {
	state := "ok"
	switch {
	case err != nil:
		state = "FAILED"
	case r.again:
		state = "ok (ended by the deadline of the Go tool, seed corpus passes)"
	}
	return fmt.Sprintf("fuzz %-32s %-40s %9d executions in %v %s", t.name, t.dir, r.execs, r.took.Round(time.Second), state)
}

// fuzz runs one target.
func (o options) fuzz(ctx context.Context, root string, limit time.Duration, t target, program string) (r result, err error) {
	began := time.Now()
	defer func() { r.took = time.Since(began) }()
	cache, err := os.MkdirTemp(filepath.Dir(program), "cache-")
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not over after %v", limit))
	defer cancel()
	start := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = filepath.Join(root, t.dir)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it ends its worker then
		cmd.WaitDelay = 10 * time.Second
		return cmd.CombinedOutput()
	}
	before, err := t.corpus(root)
	if err != nil {
		return r, err
	}
	out, err := start("-test.run=^$", "-test.fuzz=^"+t.name+"$", "-test.fuzztime="+o.fuzztime, "-test.fuzzminimizetime=1x",
		"-test.parallel=1", "-test.fuzzcachedir="+cache)
	r.execs = executions(out)
	after, listErr := t.corpus(root)
	switch {
	case ctx.Err() != nil:
		return r, fmt.Errorf("%s in %s: %w\n%s", t.name, t.dir, context.Cause(ctx), out)
	case listErr != nil:
		return r, listErr
	case after != before:
		return r, fmt.Errorf("%s in %s has a new failing input: %v\n%s", t.name, t.dir, err, out)
	case err != nil && !endedByDeadline(out, t.name):
		return r, fmt.Errorf("%s in %s: %w\n%s", t.name, t.dir, err, out)
	case r.execs == 0:
		return r, fmt.Errorf("%s in %s was never executed\n%s", t.name, t.dir, out)
	case err == nil:
		return r, nil
	}
	r.again = true
	if out, err := start("-test.run=^" + t.name + "$"); err != nil {
		return r, fmt.Errorf("%s in %s, seed corpus: %w\n%s", t.name, t.dir, err, out)
	}
	return r, nil
}
