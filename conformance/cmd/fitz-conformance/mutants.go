package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fitzwire/fitz/conformance/mutants"
)

// mutantsCommand shows that the suite notices every fault that is seeded into broker and SDK.
type mutantsCommand struct {
	Only         []string      `help:"Only faults whose names match one of these patterns: lease.*." placeholder:"GLOB"`
	ChangedSince string        `help:"Only faults that a change since this revision can concern: their package, their scenarios or their entry was changed. auto is where the branch left main, and for main the commit before; without history it is --quick." placeholder:"REV"`
	Quick        bool          `help:"Only one fault of every package."`
	Transport    []string      `help:"Run the scenarios over these transports (default: tcp, or the only one that a scenario has)." enum:"tcp,ws" placeholder:"tcp,ws"`
	Seed         string        `help:"Seed of everything random (default: drawn, and printed)." placeholder:"N"`
	Slots        int           `help:"Faults at a time (default: one for each processor)." default:"0"`
	Budget       time.Duration `help:"Time that the run may take without its builds; one and a half of it fails the run." placeholder:"120s"`
	JSON         string        `help:"Write everything that was found out to this file; - is the output." placeholder:"FILE" name:"json"`
	Quiet        bool          `help:"Print only what is not killed." short:"q"`
	Programs     string        `help:"Keep the builds in this folder, so that the next run builds only what was changed." placeholder:"DIR"`
	Discover     bool          `help:"Run, with each of the faults, every scenario that names a clause which it breaks, and print which of them notice it, instead of judging."`
}

func (m *mutantsCommand) run(ctx context.Context, root string, stdout io.Writer) error {
	tree, err := open(root)
	if err != nil {
		return err
	}
	files := os.DirFS(tree.Root)
	list, err := mutants.Load(files)
	if err != nil {
		return err
	}
	hooks, err := mutants.FindHooks(files)
	if err != nil {
		return err
	}
	runner := &mutants.Runner{Tree: tree, Options: mutants.Options{Transports: m.Transport, Slots: m.Slots}}
	if runner.Options.Seed, err = seedOf(m.Seed); err != nil {
		return err
	}
	all := len(list)
	if list, err = m.choose(ctx, stdout, runner, list, hooks); err != nil || len(list) == 0 {
		return err
	}
	folder := m.Programs
	if folder == "" {
		if folder, err = os.MkdirTemp("", "fitz-conformance-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(folder) }()
	}
	if err := m.build(ctx, runner, folder); err != nil {
		return err
	}
	if m.Discover {
		return m.discover(ctx, stdout, runner, list)
	}
	runner.Options.Progress = func(done, of int, r *mutants.Result) {
		if !m.Quiet || r.Verdict != mutants.Killed {
			fmt.Fprintf(stdout, "[%d/%d] %-11s %s (%d ms)\n", done, of, r.Verdict, r.ID, r.Duration.Milliseconds())
		}
	}
	report, err := runner.Run(ctx, list)
	if err != nil {
		return err
	}
	report.All = all
	printMutants(stdout, report)
	if err := m.write(report, stdout); err != nil {
		return err
	}
	late := m.Budget > 0 && report.Duration > m.Budget+m.Budget/2
	if m.Budget > 0 {
		fmt.Fprintf(stdout, "budget mutants: %v of %v\n", report.Duration.Round(time.Millisecond), m.Budget)
	}
	if !report.OK() || late {
		return errFailed
	}
	return nil
}

// choose selects faults and says so. An empty list means that there is nothing to do.
func (m *mutantsCommand) choose(ctx context.Context, stdout io.Writer, r *mutants.Runner, list []mutants.Mutant, hooks mutants.Hooks) ([]mutants.Mutant, error) {
	all := len(list)
	list, err := mutants.Matching(list, m.Only)
	if err != nil {
		return nil, &usageError{err}
	}
	quick := m.Quick
	if m.ChangedSince != "" {
		changes, err := mutants.Since(ctx, r.Tree.Root, m.ChangedSince)
		switch {
		case err == nil:
			list = mutants.Touched(list, hooks, r.Tree.Scenarios, changes)
			fmt.Fprintf(stdout, "%d of %d faults concern what was changed since %s\n", len(list), all, changes.Since)
		case errors.Is(err, mutants.ErrNoHistory):
			quick = true
			fmt.Fprintln(stdout, err)
		default:
			return nil, &usageError{err}
		}
	}
	if quick {
		list = mutants.Quick(list, hooks)
		fmt.Fprintf(stdout, "%d of %d faults, one of every package\n", len(list), all)
	}
	return list, nil
}

// build builds the programs twice, without faults and with them.
func (m *mutantsCommand) build(ctx context.Context, r *mutants.Runner, folder string) error {
	plain, mutated := mutants.Folders(folder)
	var err error
	if !m.Discover {
		if r.Plain, err = mutants.Build(ctx, r.Tree, plain); err != nil {
			return err
		}
	}
	r.Mutated, err = mutants.Build(ctx, r.Tree, mutated, mutants.Tag)
	return err
}

func (m *mutantsCommand) discover(ctx context.Context, stdout io.Writer, r *mutants.Runner, list []mutants.Mutant) error {
	for _, one := range list {
		found, err := r.Discover(ctx, one)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%s: %s\n", one.ID, strings.Join(found, " "))
	}
	return nil
}

func (m *mutantsCommand) write(report *mutants.Report, stdout io.Writer) error {
	if m.JSON == "" {
		return nil
	}
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if m.JSON == "-" {
		_, err = stdout.Write(text)
		return err
	}
	return os.WriteFile(m.JSON, text, 0o644)
}

// printMutants prints the table of a run, what is not killed last.
func printMutants(w io.Writer, r *mutants.Report) {
	for _, b := range r.Baseline {
		fmt.Fprintf(w, "%s: %d cases, %v\n", b.Build, b.Cases, b.Duration.Round(time.Millisecond))
		for _, complaint := range b.Complaints {
			fmt.Fprintln(w, "not right:", complaint)
		}
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, verdict := range []mutants.Verdict{mutants.Killed, mutants.NotCounted, mutants.Survived} {
		for i := range r.Results {
			if one := &r.Results[i]; one.Verdict == verdict {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", one.Verdict, one.Side, one.ID, strings.Join(one.Breaks, " "), strings.Join(one.KilledBy, " "))
			}
		}
	}
	_ = table.Flush() // an output that takes nothing is seen at the end
	for i := range r.Results {
		if one := &r.Results[i]; one.Verdict != mutants.Killed {
			fmt.Fprintf(w, "%s: %s: %s\n    %s\n", one.Verdict, one.ID, one.What, one.Why)
		}
	}
	fmt.Fprintf(w, "%d faults of %d: %d killed, %d survived, %d not counted; seed %d, %v\n", len(r.Results), r.All,
		r.Count(mutants.Killed), r.Count(mutants.Survived), r.Count(mutants.NotCounted), r.Seed, r.Duration.Round(time.Millisecond))
}
