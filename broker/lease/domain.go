package lease

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

const (
	// domainNumber names the domain in SUB_ENDED: the hundreds of its message numbers (W-68).
	domainNumber = uint8(wire.TypeLeaseNotify / 100)

	wildcardsMax     = bounds.WildcardSubsPerSessionMax
	registrationsMax = bounds.SubsPerSessionMax
)

// Texts for people that no contract fixes.
const (
	textNotAccepted       = "the lease domain is busy"
	textRegistrationLimit = "registration limit of the family"
	textStopped           = "the lease domain was stopped"
	textTooManyJoined     = "too many requests joined this waiter"
)

// Options are what a Domain needs.
type Options struct {
	Limits   bounds.Limits
	Clock    clock.Clock    // nil: the clock of the process
	Lifetime [16]byte       // broker_lifetime_id; its first three bytes tag snapshot ids (L-62)
	Metrics  *metrics.Lease // nil: collectors that nobody reads
	Log      *slog.Logger   // nil: silent
}

// ErrStopped says that the domain was stopped, so that its inventory is unavailable and not empty (E-12).
var ErrStopped = errors.New("the lease domain was stopped")

// Domain is the lease domain of one broker lifetime: the universes of all families behind the handler that dispatch calls. It is
// safe for concurrent use. It starts no goroutine: Run is the only one it needs.
type Domain struct {
	shared
	clock clock.Clock
	log   *slog.Logger

	stopped   atomic.Bool
	mailboxes atomic.Pointer[map[uint32]*mailbox] // replaced under mu when a family appears
	pages     sync.Pool                           // *[]byte, memory of LIST replies
	inventory chan struct{}                       // held while an admin listing runs

	mu    sync.Mutex
	turns []*mailbox    // that ask to be served
	given uint64        // turns that were ever asked for
	wake  chan struct{} // something was added to turns
}

var _ dispatch.LeaseHandler = (*Domain)(nil)

// New returns an empty domain (L-03).
func New(o Options) *Domain {
	if o.Clock == nil {
		o.Clock = clock.System()
	}
	if o.Metrics == nil {
		o.Metrics = metrics.NewLease(nil)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Domain{clock: o.Clock, log: o.Log, wake: make(chan struct{}, 1), inventory: make(chan struct{}, 1)}
	d.limits = o.Limits
	d.metrics = newInstruments(o.Metrics)
	d.snapshots = newSnapshots(&d.limits, o.Clock, d.metrics, o.Lifetime)
	d.mailboxes.Store(&map[uint32]*mailbox{})
	d.pages.New = func() any { return new([]byte) }
	return d
}

// mailbox returns the mailbox of a family. Families are those of the configuration, at most families_max.
func (d *Domain) mailbox(number uint32) *mailbox {
	if b := (*d.mailboxes.Load())[number]; b != nil {
		return b
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := *d.mailboxes.Load()
	if b := known[number]; b != nil {
		return b
	}
	b := newMailbox(d, number)
	if d.stopped.Load() {
		b.family = nil
	}
	grown := make(map[uint32]*mailbox, len(known)+1)
	for n, other := range known {
		grown[n] = other
	}
	grown[number] = b
	d.mailboxes.Store(&grown)
	return b
}

// moment returns the time for a command that starts now.
func (d *Domain) moment() moment { return moment{d.clock.Now(), d.clock.Wall()} }

// giveTurn makes Run serve the mailbox.
func (d *Domain) giveTurn(b *mailbox) {
	d.mu.Lock()
	if !b.inTurn {
		b.inTurn = true
		d.turns = append(d.turns, b)
		d.given++
	}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default: // Run has been woken already and not looked yet
	}
}

// serveTurn serves one mailbox that asked for it. False: none did.
func (d *Domain) serveTurn() bool {
	d.mu.Lock()
	if len(d.turns) == 0 {
		d.mu.Unlock()
		return false
	}
	b := d.turns[0]
	d.turns[0] = nil
	if d.turns = d.turns[1:]; len(d.turns) == 0 {
		d.turns = nil
	}
	b.inTurn = false
	d.mu.Unlock()
	b.serve()
	return true
}

// Run ends leases and waiters when they are due (L-17) and continues fan-outs (L-92), in slices with other commands and outbound
// writers in between (L-18). It returns nil when ctx ends.
func (d *Domain) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		}
		for ctx.Err() == nil && d.serveTurn() {
			runtime.Gosched()
		}
	}
}

// Stop ends the domain (E-12): waiting requests and all later ones are refused, LIST never answers an empty page, registrations of
// negotiated sessions are told that they ended.
func (d *Domain) Stop() {
	if d.stopped.Swap(true) {
		return
	}
	d.mu.Lock()
	known := *d.mailboxes.Load()
	d.mu.Unlock()
	for _, b := range known {
		b.stop()
	}
	d.snapshots.stop()
	d.log.Info("lease domain stopped", "families", len(known))
}

// CloseSession ends everything that the session has here (L-80). It is called once, after the session refuses to enqueue. What it
// held is free in one step; telling about it and advancing the queues goes on in slices until it returns.
func (d *Domain) CloseSession(s peer.Session) {
	b := (*d.mailboxes.Load())[s.Family()]
	if b == nil {
		return
	}
	slice := int(d.limits.LeaseExpirySliceMax)
	b.mu.Lock()
	if b.family == nil {
		b.mu.Unlock()
		return
	}
	doomed := b.family.closeSession(s.Number())
	if len(doomed) > slice {
		b.leave()
		inSegmentOrder(doomed)
		b.mu.Lock()
	} else {
		inSegmentOrder(doomed)
	}
	for b.family != nil {
		if doomed = b.family.bury(doomed, slice, d.moment()); len(doomed) == 0 {
			break
		}
		b.leave()
		runtime.Gosched()
		b.mu.Lock()
		if b.family != nil && b.family.paused() {
			b.fanOut() // the end of a session does not depend on Run
		}
	}
	b.leave()
}

// begin counts a request and waits for its turn. False: it was answered, because it was not accepted.
func (d *Domain) begin(s peer.Session, call peer.Call, bytes int) (command, bool) {
	c := command{domain: d, call: call, mailbox: d.mailbox(s.Family())}
	d.metrics.requested(call.Type)
	var ok bool
	if c.at, c.start, ok = c.mailbox.enter(bytes); ok {
		c.family = c.mailbox.family
		return c, true
	}
	d.refuseUnaccepted(s, call)
	return c, false
}

// refuseUnaccepted answers a request that is not executed (E-10, E-12).
func (d *Domain) refuseUnaccepted(s peer.Session, call peer.Call) {
	code, text := wire.CodeLeaseQueueFull, textNotAccepted
	if d.stopped.Load() {
		text = textStopped
		if call.Type == wire.TypeLeaseList {
			code, text = wire.CodeLeaseTimeout, wire.TextInventoryUnavailable
		}
	}
	d.metrics.failed(call.Type, code)
	s.Refuse(call, code, text)
}

// command is a request while it executes.
type command struct {
	domain  *Domain
	mailbox *mailbox
	family  *family
	call    peer.Call
	start   clock.Instant
	at      moment
}

func (c *command) end() {
	c.mailbox.leave()
	c.domain.metrics.answered(c.call.Type, c.domain.clock.Now().Sub(c.start))
}

// Acquire implements dispatch.LeaseHandler (L-20 to L-26).
func (d *Domain) Acquire(s peer.Session, call peer.Call, r pattern.Route, req wire.LeaseAcquireRequestView) {
	if c, ok := d.begin(s, call, len(req.Route)+len(req.OwnerID)); ok {
		defer c.end()
		c.family.acquire(s, call, r, req.OwnerID, req.TTL, req.Wait, c.at)
	}
}

// Renew implements dispatch.LeaseHandler (L-40 to L-46).
func (d *Domain) Renew(s peer.Session, call peer.Call, r pattern.Route, req wire.LeaseRenewRequestView) {
	if c, ok := d.begin(s, call, len(req.Route)+len(req.OwnerID)); ok {
		defer c.end()
		c.family.renew(s, call, r, req.OwnerID, req.FencingToken, req.TTL, c.at)
	}
}

// Release implements dispatch.LeaseHandler (L-40 to L-44).
func (d *Domain) Release(s peer.Session, call peer.Call, r pattern.Route, req wire.LeaseReleaseRequestView) {
	if c, ok := d.begin(s, call, len(req.Route)+len(req.OwnerID)); ok {
		defer c.end()
		c.family.release(s, call, r, req.OwnerID, req.FencingToken, c.at)
	}
}

// Query implements dispatch.LeaseHandler (L-35, L-40 to L-44, L-48).
func (d *Domain) Query(s peer.Session, call peer.Call, r pattern.Route, req wire.LeaseQueryRequestView) {
	if c, ok := d.begin(s, call, len(req.Route)); ok {
		defer c.end()
		c.family.query(s, call, r, c.at)
	}
}

// Subscribe implements dispatch.LeaseHandler (L-70, W-91 to W-93).
func (d *Domain) Subscribe(s peer.Session, call peer.Call, sel pattern.Selector, req wire.LeaseSubscribeRequestView) {
	if c, ok := d.begin(s, call, len(req.Selector)); ok {
		defer c.end()
		c.family.subscribe(s, call, sel)
	}
}

// Unsubscribe implements dispatch.LeaseHandler (W-95).
func (d *Domain) Unsubscribe(s peer.Session, call peer.Call, sel pattern.Selector, req wire.LeaseUnsubscribeRequestView) {
	if c, ok := d.begin(s, call, len(req.Selector)); ok {
		defer c.end()
		c.family.unsubscribe(s, call, sel)
	}
}

// Refused implements dispatch.LeaseHandler: such requests are in the metrics of the domain, too (lease.md section 13).
func (d *Domain) Refused(call peer.Call, code wire.Code) {
	d.metrics.requested(call.Type)
	d.metrics.failed(call.Type, code)
}

// Cancel implements dispatch.LeaseHandler (W-70, W-71, W-76). It is never refused and changes nothing but the line, so it does not
// wait for a paused family.
func (d *Domain) Cancel(s peer.Session, call peer.Call) bool {
	b := (*d.mailboxes.Load())[s.Family()]
	if b == nil || call.Label == 0 {
		return false
	}
	b.mu.Lock()
	defer b.leave()
	return b.family != nil && b.family.cancel(s.Number(), call, d.moment())
}

// List implements dispatch.LeaseHandler: one page (lease.md section 8).
func (d *Domain) List(s peer.Session, call peer.Call, sel pattern.Selector, req wire.LeaseListRequestView) {
	buffer := d.pages.Get().(*[]byte)
	p := page{
		clock: d.clock,
		limit: int(req.EffectiveLimit()),
		most:  int(d.limits.LeaseListExaminedMax),
		slice: time.Duration(d.limits.LeaseListSliceMs) * time.Millisecond,
	}
	p.begin(*buffer)
	if req.HasCursor {
		d.nextPage(s, call, sel, req.Cursor, &p)
	} else if c, ok := d.begin(s, call, len(req.Selector)); ok {
		p.builtAt = c.at.now
		c.family.list(s, call, sel, &p)
		c.end()
	}
	d.metrics.paged(&p)
	*buffer = p.value
	d.pages.Put(buffer)
}

// nextPage builds a page from a kept snapshot, outside the lock of the family (L-93).
func (d *Domain) nextPage(s peer.Session, call peer.Call, sel pattern.Selector, cursor wire.LeaseCursorView, p *page) {
	p.builtAt = d.clock.Now()
	d.metrics.requested(call.Type)
	kept, position, misuse := d.takeSnapshot(s, sel, cursor, p.builtAt)
	if d.stopped.Load() { // looked at behind the snapshot: Stop ends it, and what ended because of that was not evicted (E-12)
		d.refuseUnaccepted(s, call)
		return
	}
	if misuse != 0 {
		d.metrics.m.ListCursorMismatchesTotal.WithLabelValues(misuse.String()).Inc()
		d.metrics.failed(call.Type, wire.CodeLeaseInvalidListCursor)
		s.Refuse(call, wire.CodeLeaseInvalidListCursor, wire.TextInvalidListCursor(misuse.String()))
		return
	}
	d.metrics.m.ListCursorResumesTotal.Inc()
	more := position.fill(p)
	next := wire.LeaseCursor{SnapshotID: cursor.SnapshotID, Offset: cursor.Offset + uint32(p.examined)}
	d.snapshots.proceed(kept, position, next.Offset, more)
	if !s.Reply(call, p.finish(next, more)) {
		d.snapshots.drop(next.SnapshotID)
	}
	d.metrics.answered(call.Type, d.clock.Now().Sub(p.builtAt))
}

// takeSnapshot checks the cursor in the order of lease.md section 8.4.
func (d *Domain) takeSnapshot(s peer.Session, sel pattern.Selector, cursor wire.LeaseCursorView, now clock.Instant,
) (*snapshot, listing, wire.LeaseCursorMisuse) {
	if _, point := sel.Point(); point {
		return nil, listing{}, wire.LeaseCursorMisuseExactSelector // LC-01
	}
	return d.snapshots.take(cursor, s.Family(), s.Number(), sel.Text(), now)
}

// list builds the first page of a listing and keeps its snapshot if there is a second one (L-50 to L-55, L-64).
func (f *family) list(p peer.Session, call peer.Call, sel pattern.Selector, page *page) {
	if r, point := sel.Point(); point {
		page.examined = 1
		if l := f.leases[r.Text()]; l != nil && l.visible(page.builtAt, f.sequence) {
			page.add(l)
		}
		p.Reply(call, page.finish(wire.LeaseCursor{}, false))
		return
	}
	g := listing{trees: f.tree, masks: sel.Masks(), captured: page.builtAt, sequence: f.sequence}
	if !g.fill(page) {
		p.Reply(call, page.finish(wire.LeaseCursor{}, false))
		return
	}
	owned := sel.Clone()
	g.masks = owned.Masks()
	g.trees = f.tree.keep(g.masks[g.mask:])
	next := f.snapshots.keep(&snapshot{
		family: f.number, session: p.Number(), selector: owned.Text(), churn: &f.churn, listing: g, offset: uint32(page.examined),
	}, page.builtAt)
	if !p.Reply(call, page.finish(next, true)) {
		f.snapshots.drop(next.SnapshotID)
	}
}

// Inventory yields the leases of a family that match the selector, held at one instant, for the admin interface. Fields that change
// are those of the moment of the call. It holds the lock only to take a snapshot; yield may take its time. One listing runs at a
// time; others wait for it. The error is that of ctx or ErrStopped.
func (d *Domain) Inventory(ctx context.Context, number uint32, sel pattern.Selector, yield func(Item) bool) error {
	select {
	case d.inventory <- struct{}{}:
		defer func() { <-d.inventory }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b := (*d.mailboxes.Load())[number]
	switch {
	case d.stopped.Load():
		return ErrStopped
	case b == nil:
		return nil
	}
	b.mu.Lock()
	if b.family == nil {
		b.mu.Unlock()
		return ErrStopped
	}
	g := listing{masks: sel.Masks(), captured: d.clock.Now(), sequence: b.family.sequence}
	g.trees = b.family.tree.keep(g.masks)
	b.mu.Unlock()
	return g.each(ctx, d.clock, yield)
}

// Capacities are the sizes of tables that must not exist for a session that uses none of their features (invariant 12).
type Capacities struct {
	Labels    int // waiting labelled requests of the session, at least 1 when the table exists
	Waiters   int // waiters of the session, at least 1 when the family has a table of deadlines for them
	Snapshots int // room for kept snapshots of the broker
	Cursors   int // room for remembered endings of snapshots of the broker
}

// Capacities returns the sizes that concern one session.
func (d *Domain) Capacities(number uint32, session uint64) Capacities {
	var c Capacities
	if b := (*d.mailboxes.Load())[number]; b != nil {
		b.mu.Lock()
		c = b.family.capacities(session)
		b.mu.Unlock()
	}
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	c.Snapshots, c.Cursors = cap(d.snapshots.kept), cap(d.snapshots.order)
	return c
}

func (f *family) capacities(session uint64) (c Capacities) {
	if f == nil {
		return c
	}
	if f.timeouts != nil {
		c.Waiters = 1
	}
	if s := f.sessions[session]; s != nil {
		c.Waiters = max(c.Waiters, s.waiting)
		if s.labels != nil {
			c.Labels = max(1, len(s.labels))
		}
	}
	return c
}
