package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/tools/internal/display"
	"github.com/fitzwire/fitz/tools/internal/watch"
)

type lsCmd struct {
	Selector string `arg:"" help:"lease://realm/area/resource, where * stands for one segment and ** for any number."`
}

// listAttempts is how often a listing that has shown nothing yet is started (L-69).
const listAttempts = 3

// Run lists what matches. Pages are shown as they arrive.
func (c *lsCmd) Run(a *app) error {
	if err := checkSelector(c.Selector); err != nil {
		return err
	}
	return a.guarded(func(ctx context.Context) error { return c.list(ctx, a) })
}

func (c *lsCmd) list(ctx context.Context, a *app) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it holds nothing
	shown := false
	for attempt := 1; ; attempt++ {
		err := a.list(ctx, client.Lease().List(c.Selector, nil), &shown)
		if shown || attempt == listAttempts || fitz.CodeOf(err) != fitz.CodeLeaseInvalidListCursor {
			return err
		}
	}
}

func (a *app) list(ctx context.Context, pager *fitz.Pager[fitz.LeaseEntry], shown *bool) error {
	first := true
	for page, err := range pager.Pages(ctx) {
		if err != nil {
			return err
		}
		*shown = *shown || len(page.Items) > 0
		if err := a.showPage(page.Items, first); err != nil {
			return err
		}
		first = false
	}
	return nil
}

// showPage prints one page. The head stands above the first.
func (a *app) showPage(page []fitz.LeaseEntry, first bool) error {
	if a.json {
		for _, item := range page {
			if err := a.printJSON(a.stdout, watch.ItemForJSON(item)); err != nil {
				return err
			}
		}
		return nil
	}
	lines := watch.Table(page, time.Now())
	if !first {
		lines = lines[1:]
	}
	for _, line := range lines {
		if err := a.print(line); err != nil {
			return err
		}
	}
	return nil
}

type queryCmd struct {
	Route string `arg:"" help:"lease://realm/area/resource"`
}

// jsonQuery is the answer of a query for programs.
type jsonQuery struct {
	Route            string  `json:"route"`
	Held             bool    `json:"held"`
	OwnerID          *string `json:"owner_id,omitempty"`
	TTLRemainingSecs *uint64 `json:"ttl_remaining_secs,omitempty"`
	PendingWaiters   uint32  `json:"pending_waiters"`
}

// Run tells who holds the route.
func (c *queryCmd) Run(a *app) error {
	if err := checkRoute(c.Route); err != nil {
		return err
	}
	return a.guarded(func(ctx context.Context) error { return c.query(ctx, a) })
}

func (c *queryCmd) query(ctx context.Context, a *app) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it holds nothing
	info, err := client.Lease().Query(ctx, c.Route)
	if err != nil {
		return err
	}
	return a.showQuery(c.Route, info)
}

func (a *app) showQuery(r string, info fitz.LeaseInfo) error {
	left := uint64(info.TTLRemaining / time.Second)
	if a.json {
		out := jsonQuery{Route: r, Held: info.Held, PendingWaiters: info.PendingWaiters}
		if info.Held {
			out.OwnerID, out.TTLRemainingSecs = &info.OwnerID, &left
		}
		return a.printJSON(a.stdout, out)
	}
	waiters := ", " + strconv.FormatUint(uint64(info.PendingWaiters), 10) + " waiting"
	if !info.Held {
		return a.print(display.Text(r) + "  free" + waiters)
	}
	return a.print(fmt.Sprintf("%s  held by %s for %d s more%s", display.Text(r), display.Text(info.OwnerID), left, waiters))
}

type watchCmd struct {
	Selector string `arg:"" help:"lease://realm/area/resource, where * stands for one segment and ** for any number."`
}

// Help is the long help text.
func (*watchCmd) Help() string {
	return `In a terminal the view is a table that is redrawn; else each change is one line: added, changed, removed, stale, fresh.
The view is advisory: only the broker decides who holds what. After a gap it is marked stale until it is complete again.`
}

// Run shows the view until interrupted.
func (c *watchCmd) Run(a *app) error {
	if err := checkSelector(c.Selector); err != nil {
		return err
	}
	err := a.guarded(func(ctx context.Context) error { return c.watch(ctx, a) })
	if f := (*failure)(nil); errors.As(err, &f) && f.silent { // interrupted, which is how a watch ends
		return nil
	}
	return err
}

// watch shows the view until ctx ends or it cannot be shown any more.
func (c *watchCmd) watch(ctx context.Context, a *app) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it holds nothing
	observer, err := client.Lease().Observe(c.Selector, nil)
	if err != nil {
		return err
	}
	defer func() { _ = observer.Close() }()
	if file, ok := a.stdout.(*os.File); ok && !a.json && term.IsTerminal(int(file.Fd())) {
		return newScreen(file, c.Selector, observer).run(ctx)
	}
	return a.showChanges(ctx, observer)
}

// showChanges prints every change until ctx ends or the view fails.
func (a *app) showChanges(ctx context.Context, observer *fitz.InventoryObserver) error {
	shown := watch.NewShown()
	for change, err := range observer.Changes(ctx) {
		if err != nil {
			return err
		}
		if change.Kind == fitz.InventoryReset {
			change.Reason = observer.Status().Reason
		}
		for _, c := range shown.Apply(change) {
			if err := a.showChange(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *app) showChange(c fitz.InventoryChange) error {
	if a.json {
		return a.printJSON(a.stdout, watch.ChangeForJSON(c))
	}
	return a.print(watch.Line(c))
}

// checkSelector refuses a bad selector before anything is sent. The text begins with the reason word.
func checkSelector(text string) error {
	if _, err := route.Lease.ParseSelector(text); err != nil {
		return usage("selector: %w", err)
	}
	return nil
}

func checkRoute(text string) error {
	if _, err := route.Lease.ParseRoute(text); err != nil {
		return usage("route: %w", err)
	}
	return nil
}

// guarded runs f until it returns or the user interrupts the program.
func (a *app) guarded(f func(context.Context) error) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	_, err := unlessSignal(a.ctx, signals, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}
