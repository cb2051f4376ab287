package observer

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pager"
)

// phase is how far a pass is.
type phase uint8

const (
	waiting  phase = iota // for a delay, or for a place among the listings of the client
	listing               // pages are being read
	draining              // everything is listed; the routes of D are repaired
)

// pass is one full pass: all pages of the selector, and then the routes that were notified meanwhile (OB-12, OB-13).
type pass[T any] struct {
	phase     phase
	number    uint64 // of passes whose first LIST was sent
	sent      uint64 // send order of its first page
	afterGap  bool
	storm     bool // in place of too many repairs (OB-23)
	candidate map[string]*entry[T]
	listed    []*entry[T] // of the candidate, as they came, which is mostly in order
	after     pager.Cursor
	leave     func() // gives the place back; nil when there is none

	// repaired holds the results of repairs that were sent after the pass began: they are younger than its snapshot (OB-28).
	repaired map[string]*entry[T]
	// unrepaired is what is left of D, with the send order that a repair must at least have.
	unrepaired map[string]uint64
}

// wants reports whether an installation waits for a repair of the route.
func (p *pass[T]) wants(route string) bool {
	if p == nil || p.phase != draining {
		return false
	}
	_, wanted := p.unrepaired[route]
	return wanted
}

// requestPass starts a full pass after a delay, unless there is one already.
func (o *Observer[T]) requestPass(delay time.Duration) {
	if o.pass != nil {
		return
	}
	o.pass = &pass[T]{}
	o.startPass(delay)
}

// startPass makes the pass begin, or begin again, after a delay.
func (o *Observer[T]) startPass(delay time.Duration) {
	o.dropPlace()
	*o.pass = pass[T]{afterGap: !o.following(), storm: o.pass.storm}
	o.inbox.abortPass(o.following())
	if delay > 0 {
		o.arm(&o.passRetry, delay, o.enter)
		return
	}
	o.enter()
}

// enter takes a place among the listings of the client. A selector that matches one route at most needs none: it has one page (OB-29).
func (o *Observer[T]) enter() {
	if o.items.Point {
		o.beginPass(nil)
		return
	}
	p := o.pass
	o.call(func(ctx context.Context) func(bool) {
		leave, err := o.ports.Enter(ctx)
		return func(stale bool) {
			switch {
			case err != nil: // the generation is over
			case stale || p != o.pass:
				leave()
			default:
				o.beginPass(leave)
			}
		}
	})
}

// beginPass sends the first LIST.
func (o *Observer[T]) beginPass(leave func()) {
	p := o.pass
	o.begun++
	o.order++
	p.phase, p.number, p.sent, p.leave = listing, o.begun, o.order, leave
	p.candidate, p.repaired = map[string]*entry[T]{}, map[string]*entry[T]{}
	o.inbox.beginPass(p.number, o.options.RepairLimit)
	o.listPage()
}

func (o *Observer[T]) listPage() {
	p, after, session := o.pass, o.pass.after, o.session
	o.call(func(ctx context.Context) func(bool) {
		var page pager.Page[T]
		err := o.timed(ctx, func(ctx context.Context) (err error) {
			page, err = session.List(ctx, after)
			return err
		})
		return func(stale bool) {
			if stale || p != o.pass {
				return
			}
			if err == nil {
				err = o.collect(p, &page)
			}
			o.listed(&page, err)
		}
	})
}

// collect takes a page into the candidate. A page of another snapshot, a cursor that does not grow, an item outside the selector and a
// repeated item are violations (OB-16).
func (o *Observer[T]) collect(p *pass[T], page *pager.Page[T]) error {
	if err := pager.Check(p.after, page); err != nil {
		return o.items.Violation("LIST", err)
	}
	now := o.ports.Now()
	for _, item := range page.Items {
		route := o.items.Route(item)
		if !o.items.Matches(route) && !mutant.On("observer.foreign-item-accepted") {
			return o.items.Violation(fmt.Sprintf("LIST answered %q, which the selector does not match", route), nil)
		}
		if p.candidate[route] != nil && !mutant.On("observer.repeated-item-accepted") {
			return o.items.Violation(fmt.Sprintf("LIST answered %q twice", route), nil)
		}
		if len(p.candidate) >= o.options.MaxItems && !mutant.On("observer.view-unbounded") {
			return o.items.TooMany
		}
		e := &entry[T]{route: route, item: item, sent: p.sent, read: now}
		p.candidate[route] = e
		p.listed = append(p.listed, e)
	}
	return nil
}

// listed goes on after a page.
func (o *Observer[T]) listed(page *pager.Page[T], err error) {
	switch {
	case err != nil:
		o.passFailed(err)
	case page.HasNext && !mutant.On("observer.first-page-only"):
		o.pass.after = page.Next
		o.listPage()
	default:
		o.freeze()
	}
}

// passFailed aborts the pass and starts it again (OB-16), unless nothing can come of it.
func (o *Observer[T]) passFailed(err error) {
	o.lastError = err
	switch class := o.class(List, err); {
	case class == Never || err == o.items.TooMany:
		o.fire(fatal, HasFailed, err)
	case mutant.On("observer.failed-pass-not-repeated"):
	case class == CursorLost && o.cursorsLost < passRepeats:
		o.cursorsLost++
		o.startPass(0)
	default:
		delay := o.ports.FailureDelay(o.passFailures, o.ports.Random())
		o.passFailures++
		o.startPass(delay)
	}
}

// freeze ends the listing: what was notified since it began is read again before the candidate counts (OB-13), or is too much for that,
// and everything is listed once more (OB-14).
func (o *Observer[T]) freeze() {
	p := o.pass
	o.dropPlace()
	o.cursorsLost, o.passFailures = 0, 0
	d, all := o.inbox.freeze()
	if mutant.On("observer.raced-list-installed") {
		d, all = nil, false
	}
	if all || len(d) > o.options.RepairLimit && o.repeats < passRepeats {
		delay := o.ports.PassDelay(o.repeats, o.ports.Random())
		o.repeats++
		o.startPass(delay)
		return
	}
	p.phase = draining
	p.unrepaired = make(map[string]uint64, len(d))
	for route, r := range o.inFlight {
		if r.sent > p.sent { // its answer is younger than the snapshot
			p.unrepaired[route] = r.sent
		}
	}
	o.dropJobs() // what was not sent is in D, or older than the snapshot
	for route := range o.failed {
		d = append(d, route) // whatever they were notified for, the answer is still missing
	}
	clear(o.failed)
	for _, route := range d {
		if _, twice := p.unrepaired[route]; twice && p.unrepaired[route] > o.order {
			continue
		}
		p.unrepaired[route] = o.order + 1
		if o.inFlight[route] == nil {
			o.jobs = append(o.jobs, &repair[T]{route: route})
		}
	}
	o.pump()
	o.installWhenRepaired()
}

// installWhenRepaired installs the candidate when nothing of D is left (OB-27).
func (o *Observer[T]) installWhenRepaired() {
	if o.pass != nil && o.pass.phase == draining && len(o.pass.unrepaired) == 0 {
		o.install()
	}
}

// install makes the candidate the view.
func (o *Observer[T]) install() {
	p := o.pass
	next, err := o.assembled(p)
	if err != nil {
		o.lastError = err
		o.fire(fatal, HasFailed, err)
		return
	}
	o.pass = nil
	first, wasFlagged := !o.synced, o.flagged
	before := o.view
	if first {
		before = newView[T](nil, 0)
	}
	differences := diff(before, next, o.identical)
	if !p.afterGap && !first {
		o.drift += o.inbox.unexpected(o.drifted(differences))
	}
	o.inbox.installed(p.number)
	o.passes++
	o.repeats, o.gapsInVain = 0, 0
	if p.storm {
		o.hadStorm, o.stormEnd = true, o.ports.Now()
	}
	o.lifetime = o.session.Lifetime()
	o.lastSync = o.ports.Wall()
	o.synced = true
	o.fire(installed, NoReason, nil)
	o.accept(next, differences, wasFlagged)
	if first {
		close(o.firstSync)
	}
	if !mutant.On("observer.no-periodic-pass") {
		o.arm(&o.periodic, o.options.Wait(o.ports.Random()), func() { o.requestPass(0) })
	}
	o.arm(&o.staleAfter, stalePasses*o.options.Interval(), func() { o.fire(overdue, NoRecentPass, nil) })
	o.completeRefresh(p.number)
	o.noticed()
}

// assembled is the candidate with the repairs that are younger.
func (o *Observer[T]) assembled(p *pass[T]) (*view[T], error) {
	entries := p.listed[:0]
	for _, e := range p.listed {
		if p.repaired[e.route] == nil {
			entries = append(entries, e)
		}
	}
	for _, e := range p.repaired {
		if !e.gone {
			entries = append(entries, e)
		}
	}
	if len(entries) > o.options.MaxItems && !mutant.On("observer.view-unbounded") {
		return nil, o.items.TooMany
	}
	return newView(entries, p.sent), nil
}

// drifted returns the routes of differences that are more than a renewal (OB-26).
func (o *Observer[T]) drifted(differences []difference[T]) []string {
	var routes []string
	for _, d := range differences {
		if d.before == nil || d.after == nil || !o.items.SameHolding(d.before.item, d.after.item) {
			routes = append(routes, d.route())
		}
	}
	return routes
}

// identical reports whether two items differ in nothing but the remaining time (OB-51).
func (o *Observer[T]) identical(a, b T) bool {
	return o.items.SameHolding(a, b) && o.items.SameRenewal(a, b)
}

// accept makes next the view and tells consumers what changed.
func (o *Observer[T]) accept(next *view[T], differences []difference[T], wasFlagged bool) {
	o.view = next
	if wasFlagged && mutant.On("observer.silent-replacement") {
		differences = nil
	}
	if len(differences) > 0 {
		o.version++
	}
	o.takenAt, o.takenTime = o.ports.Wall(), o.ports.Now()
	var events []Event[T]
	for _, d := range differences {
		if event, ok := o.change(d); ok {
			events = append(events, event)
		}
	}
	if wasFlagged && !o.flagged {
		events = append(events, Event[T]{Kind: BecameFresh})
	}
	o.tell(events...)
}

// change turns a difference into an event. False: a renewal, which is not asked for (OB-53).
func (o *Observer[T]) change(d difference[T]) (Event[T], bool) {
	switch {
	case d.before == nil:
		return Event[T]{Kind: Added, After: d.after.item}, true
	case d.after == nil:
		return Event[T]{Kind: Removed, Before: d.before.item}, true
	}
	renewed := o.items.SameHolding(d.before.item, d.after.item)
	return Event[T]{Kind: Changed, Before: d.before.item, After: d.after.item}, !renewed || o.options.IncludeRenewals || mutant.On("observer.renewals-told")
}

// dropPass ends the pass without a result.
func (o *Observer[T]) dropPass() {
	if o.pass == nil {
		return
	}
	o.dropPlace()
	o.pass = nil
}

// dropPlace gives the place among the listings of the client back.
func (o *Observer[T]) dropPlace() {
	if o.pass.leave != nil {
		o.pass.leave()
		o.pass.leave = nil
	}
}

// refreshWaiter is a call of Refresh that waits for a pass younger than the one with the number.
type refreshWaiter struct {
	after uint64
	done  chan struct{}
}

// refresh asks for a pass whose first LIST is sent from now on (OB-62). A running one does not count: another follows.
func (o *Observer[T]) refresh(w refreshWaiter) {
	if o.terminal() {
		return // whoever waits sees the end
	}
	w.after = o.begun
	o.waiters = append(o.waiters, w)
	if o.following() {
		o.requestPass(0)
	}
}

// forgetRefresh drops a call that does not wait any more.
func (o *Observer[T]) forgetRefresh(w refreshWaiter) {
	o.waiters = slices.DeleteFunc(o.waiters, func(other refreshWaiter) bool { return other.done == w.done })
}

// completeRefresh lets go whoever waited for the pass with that number, and starts one for whoever waits for a later one.
func (o *Observer[T]) completeRefresh(number uint64) {
	left := o.waiters[:0]
	for _, w := range o.waiters {
		if w.after < number || mutant.On("observer.refresh-takes-running-pass") {
			close(w.done)
		} else {
			left = append(left, w)
		}
	}
	clear(o.waiters[len(left):])
	o.waiters = left
	if len(left) > 0 {
		o.requestPass(0)
	}
}
