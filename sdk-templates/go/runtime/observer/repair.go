package observer

import (
	"context"
	"fmt"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pager"
)

// repair is one exact LIST (OB-20).
type repair[T any] struct {
	route string
	sent  uint64    // send order, 0 while it waits
	round *round[T] // nil: it belongs to D of a pass
}

// round is a set of repairs whose results are installed together.
type round[T any] struct {
	left    int // not answered
	results []*entry[T]
}

// steady reports whether notified routes are repaired against the view now: until a pass freezes them, and again after its installation
// (OB-15, OB-25).
func (o *Observer[T]) steady() bool {
	return o.following() && (o.pass == nil || o.pass.phase != draining)
}

// noticed starts the coalesce timer when there is something to repair. Later routes do not extend it (OB-21, OB-44).
func (o *Observer[T]) noticed() {
	if o.steady() && (!o.coalesce.set || mutant.On("observer.coalescing-extended")) && o.inbox.isDirty() {
		o.arm(&o.coalesce, o.options.Coalesce, o.repairDirty)
	}
}

// repairDirty starts a round with every dirty route, or a full pass when there are too many (OB-21, OB-23).
func (o *Observer[T]) repairDirty() {
	o.postponed = false
	if !o.steady() {
		return
	}
	routes, all := o.inbox.pending(o.underRepair)
	switch {
	case all || len(routes) > o.options.RepairLimit || mutant.On("observer.pass-per-notify"):
		o.stormPass()
	case len(routes) == 0:
	case len(o.inFlight)+len(o.jobs)+len(routes) > o.options.RepairLimit:
		o.postponed = true
	default:
		o.startRound(routes)
	}
}

// stormPass starts a full pass in place of repairs, spaced from the end of the previous one by OB-42. While a pass runs, its D takes the
// routes.
func (o *Observer[T]) stormPass() {
	if o.pass != nil {
		return
	}
	delay := time.Duration(0)
	if o.hadStorm {
		delay = o.stormEnd + o.ports.PassDelay(o.repeats, o.ports.Random()) - o.ports.Now()
	}
	o.requestPass(delay)
	o.pass.storm = true
}

// underRepair reports whether the route waits for a repair that has not been answered: one repair per route is in flight (OB-22).
func (o *Observer[T]) underRepair(route string) bool {
	if o.inFlight[route] != nil {
		return true
	}
	for _, job := range o.jobs {
		if job.route == route {
			return true
		}
	}
	return false
}

func (o *Observer[T]) startRound(routes []string) {
	r := &round[T]{left: len(routes)}
	o.rounds++
	for _, route := range routes {
		delete(o.failed, route)
		o.jobs = append(o.jobs, &repair[T]{route: route, round: r})
	}
	o.pump()
}

// pump sends waiting repairs: all of them when requests can be labelled, one at a time otherwise (OB-21).
func (o *Observer[T]) pump() {
	limit := 1
	if o.session.Pipelined() {
		limit = o.options.RepairLimit
	}
	for len(o.jobs) > 0 && len(o.inFlight) < limit {
		job := o.jobs[0]
		o.jobs = o.jobs[1:]
		o.send(job)
	}
}

func (o *Observer[T]) send(job *repair[T]) {
	o.order++
	job.sent = o.order
	o.inFlight[job.route] = job
	o.inbox.sending(job.route)
	session := o.session
	o.call(func(ctx context.Context) func(bool) {
		var page pager.Page[T]
		err := o.timed(ctx, func(ctx context.Context) (err error) {
			page, err = session.Read(ctx, job.route)
			return err
		})
		return func(stale bool) {
			if !stale {
				o.repaired(job, &page, err)
			}
		}
	})
}

// repaired takes the answer of an exact LIST.
func (o *Observer[T]) repaired(job *repair[T], page *pager.Page[T], err error) {
	delete(o.inFlight, job.route)
	if mutant.On("observer.notify-during-repair-forgotten") {
		o.inbox.sending(job.route)
	}
	var result *entry[T]
	if err == nil {
		result, err = o.answer(job, page)
	}
	if err != nil && o.class(List, err) == Never {
		o.fire(fatal, HasFailed, err)
		return
	}
	if err == nil {
		o.repairs++
		o.repairFailures = 0
	} else {
		o.lastError = err
		o.repairLater(job)
	}
	o.satisfy(job, result)
	if o.answered(job, result) != nil {
		return // the observer has failed
	}
	o.pump()
	o.installWhenRepaired()
	if o.postponed {
		o.repairDirty()
	}
	o.noticed()
}

// answer is what the broker says about the route: nobody holds it, or one item. Anything else is a violation (OB-20).
func (o *Observer[T]) answer(job *repair[T], page *pager.Page[T]) (*entry[T], error) {
	e := &entry[T]{route: job.route, sent: job.sent, read: o.ports.Now(), gone: len(page.Items) == 0}
	if e.gone && !page.HasNext {
		return e, nil
	}
	if len(page.Items) != 1 || page.HasNext || o.items.Route(page.Items[0]) != job.route {
		return nil, o.items.Violation(fmt.Sprintf("LIST of the exact route %q answered something else", job.route), nil)
	}
	e.item = page.Items[0]
	return e, nil
}

// repairLater leaves the route of a failed repair dirty, for another attempt after a delay (OB-27).
func (o *Observer[T]) repairLater(job *repair[T]) {
	if mutant.On("observer.failed-repair-forgotten") {
		return
	}
	o.failed[job.route] = struct{}{}
	if o.repairRetry.set {
		return
	}
	delay := o.ports.FailureDelay(o.repairFailures, o.ports.Random())
	o.repairFailures++
	o.arm(&o.repairRetry, delay, o.retryRepairs)
}

// retryRepairs repairs again what failed.
func (o *Observer[T]) retryRepairs() {
	for route := range o.failed {
		delete(o.failed, route)
		switch {
		case o.underRepair(route):
		case o.pass.wants(route):
			o.jobs = append(o.jobs, &repair[T]{route: route})
		default:
			o.inbox.again(route)
		}
	}
	o.pump()
	o.repairDirty()
}

// satisfy gives the result of a repair to the pass that is running. A failed one has no result.
func (o *Observer[T]) satisfy(job *repair[T], result *entry[T]) {
	p := o.pass
	if p == nil || p.phase == waiting {
		return
	}
	if result != nil && job.sent > p.sent {
		p.repaired[job.route] = result
	}
	atLeast, wanted := p.unrepaired[job.route]
	switch {
	case !wanted:
	case result != nil && job.sent >= atLeast:
		delete(p.unrepaired, job.route)
	case result != nil: // it was notified again after this one was sent
		o.jobs = append(o.jobs, &repair[T]{route: job.route})
	}
}

// answered notes the result of a repair in its round, and installs the round when it was the last.
func (o *Observer[T]) answered(job *repair[T], result *entry[T]) error {
	r := job.round
	if r == nil {
		return nil
	}
	r.left--
	if result != nil {
		r.results = append(r.results, result)
	}
	if r.left > 0 {
		return nil
	}
	o.rounds--
	return o.installRound(r)
}

// installRound applies the results of a round to the view. A result never replaces what a request sent later has found (OB-28).
func (o *Observer[T]) installRound(r *round[T]) error {
	if !o.following() || len(r.results) == 0 {
		return nil
	}
	before := o.view
	next := before
	for _, e := range r.results {
		old := next.get(e.route)
		older := e.sent < next.sent || old != nil && e.sent < old.sent
		if older && !mutant.On("observer.older-repair-installed") {
			continue
		}
		next = next.with(e)
	}
	if next.count > o.options.MaxItems {
		o.fire(fatal, HasFailed, o.items.TooMany)
		return o.items.TooMany
	}
	o.accept(next, o.changed(before, next, r), false)
	return nil
}

// changed returns the differences that a round made, in segment order.
func (o *Observer[T]) changed(before, after *view[T], r *round[T]) []difference[T] {
	var found []difference[T]
	newView(r.results, 0).each(func(e *entry[T]) bool {
		d := difference[T]{before.get(e.route), after.get(e.route)}
		same := d.before == d.after || d.before != nil && d.after != nil && o.identical(d.before.item, d.after.item)
		if !same {
			found = append(found, d)
		}
		return true
	})
	return found
}

// dropJobs gives up the repairs that were not sent. Their rounds do not wait for them.
func (o *Observer[T]) dropJobs() {
	jobs := o.jobs
	o.jobs = nil
	for _, job := range jobs {
		if o.answered(job, nil) != nil {
			return
		}
	}
}
