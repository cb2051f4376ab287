package lease

import (
	"slices"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// queue is the line of waiters of a held route, first in first out (L-30). It belongs to the lease that is held and moves to the
// next one with the grant.
type queue struct {
	lease       *lease
	first, last *waiter
	count       int
	earliest    clock.Instant // no waiter has an earlier deadline
}

// waiter is one (session, owner) in line for a route, with all requests that joined it.
type waiter struct {
	session    *session
	owner      string
	ttl        uint64 // seconds
	deadline   clock.Instant
	token      uint64   // reserved for its grant (L-30)
	labels     []uint64 // of the labelled requests that are attached, in order
	unlabelled bool     // at least one unlabelled request is attached (L-33)

	queue                  *queue
	nextInLine, prevInLine *waiter
	nextOfSession          *waiter
	prevOfSession          *waiter
	wheelLinks[*waiter]
}

var _ filed[*waiter] = (*waiter)(nil)

func (w *waiter) due() clock.Instant          { return w.deadline }
func (w *waiter) links() *wheelLinks[*waiter] { return &w.wheelLinks }

// charge is what the waiter counts for lease_session_bytes_max and lease_family_bytes_max. Labels are within the overhead.
func (w *waiter) charge() int64 { return int64(len(w.owner)) + itemOverhead }

// attach adds a request. False: lease_waiter_labels_max labelled requests are attached already.
func (w *waiter) attach(call peer.Call, labelsMax int64) bool {
	if call.Label == 0 {
		w.unlabelled = true
		return true
	}
	if int64(len(w.labels)) >= labelsMax {
		return false
	}
	w.labels = append(w.labels, call.Label)
	if w.session.labels == nil {
		w.session.labels = map[uint64]*waiter{}
	}
	w.session.labels[call.Label] = w
	return true
}

// find returns the waiter of the session and owner, nil if there is none.
func (q *queue) find(number uint64, owner []byte) *waiter {
	if q == nil {
		return nil
	}
	for w := q.first; w != nil; w = w.nextInLine {
		if w.session.number == number && w.owner == string(owner) {
			return w
		}
	}
	return nil
}

// enqueue is an ACQUIRE with a wait time for a route that another owner holds (L-24 to L-26).
func (f *family) enqueue(p peer.Session, call peer.Call, l *lease, owner []byte, ttl uint64, wait uint32, at moment) {
	if w := l.queue.find(p.Number(), owner); w != nil {
		f.join(w, call)
		return
	}
	s := f.open(p)
	if !f.roomForWaiter(s, l.queue, owner) {
		f.turnAway(s, p, call, wire.CodeLeaseQueueFull, wire.TextQueueFull(l.queue.length())) // L-25
		return
	}
	token, ok := f.nextToken()
	if !ok {
		f.turnAway(s, p, call, wire.CodeLeaseQueueFull, wire.TextLeaseLimit)
		return
	}
	w := &waiter{session: s, owner: string(owner), ttl: ttl, deadline: at.now.Add(seconds(uint64(wait))), token: token}
	w.attach(call, f.limits.LeaseWaiterLabelsMax)
	f.append(l, w)
	if f.wait(call, w, wire.LeaseGrantKindQueued) {
		return // L-26
	}
	f.dropWaiter(w) // L-82
	f.forget(s)
}

// join is L-24.
func (f *family) join(w *waiter, call peer.Call) {
	if !w.attach(call, f.limits.LeaseWaiterLabelsMax) {
		f.refuse(w.session.peer, call, wire.CodeLeaseBadRequest, textTooManyJoined)
		return
	}
	if !f.wait(call, w, wire.LeaseGrantKindAlreadyQueued) {
		s := w.session
		f.dropWaiter(w) // L-82
		f.forget(s)
	}
}

// wait tells the client that its request waits. False: the session is closing. Unlabelled requests have no label to keep.
func (f *family) wait(call peer.Call, w *waiter, kind wire.LeaseGrantKind) bool {
	p := w.session.peer
	return (call.Label == 0 || p.Wait(call)) && f.answerAcquire(p, call, kind, w.token)
}

func (q *queue) length() int {
	if q == nil {
		return 0
	}
	return q.count
}

// roomForWaiter checks the bounds of L-25.
func (f *family) roomForWaiter(s *session, q *queue, owner []byte) bool {
	return int64(q.length()) < f.limits.LeaseWaitersPerKeyMax &&
		int64(s.waiting) < f.limits.LeaseWaitersPerSessionMax &&
		int64(f.waiting) < f.limits.LeaseWaitersPerFamilyMax &&
		f.fits(s, int64(len(owner))+itemOverhead)
}

// append puts w at the end of the line of l.
func (f *family) append(l *lease, w *waiter) {
	q := l.queue
	if q == nil {
		q = &queue{lease: l, earliest: clock.Never}
		l.queue = q
	}
	w.queue = q
	if mutant.On("lease.waiters-lifo") && q.first != nil {
		w.nextInLine, q.first.prevInLine, q.first = q.first, w, w
	} else {
		if w.prevInLine = q.last; q.last != nil {
			q.last.nextInLine = w
		} else {
			q.first = w
		}
		q.last = w
	}
	q.count++
	q.earliest = min(q.earliest, w.deadline)

	s := w.session
	if w.nextOfSession = s.waiters; s.waiters != nil {
		s.waiters.prevOfSession = w
	}
	s.waiters = w
	s.waiting++
	f.waiting++
	f.reserve(s, w.charge())
	if f.timeouts == nil {
		f.timeouts = &wheel[*waiter]{}
	}
	f.timeouts.add(w)
	f.metrics.m.Waiters.Inc()
}

// take removes w from its line, its session and the wheel. A line that becomes empty is dropped.
func (f *family) take(w *waiter) {
	q := w.queue
	if w.prevInLine != nil {
		w.prevInLine.nextInLine = w.nextInLine
	} else {
		q.first = w.nextInLine
	}
	if w.nextInLine != nil {
		w.nextInLine.prevInLine = w.prevInLine
	} else {
		q.last = w.prevInLine
	}
	if q.count--; q.count == 0 && q.lease != nil {
		q.lease.queue = nil
	}

	s := w.session
	if w.prevOfSession != nil {
		w.prevOfSession.nextOfSession = w.nextOfSession
	} else {
		s.waiters = w.nextOfSession
	}
	if w.nextOfSession != nil {
		w.nextOfSession.prevOfSession = w.prevOfSession
	}
	for _, label := range w.labels {
		delete(s.labels, label)
	}
	if len(s.labels) == 0 {
		s.labels = nil
	}
	s.waiting--
	f.waiting--
	f.reserve(s, -w.charge())
	f.timeouts.remove(w)
	w.queue, w.nextInLine, w.prevInLine, w.nextOfSession, w.prevOfSession = nil, nil, nil, nil, nil
	f.metrics.m.Waiters.Dec()
}

// dropWaiter removes a waiter without an answer; its token is discarded (W-71, L-80, L-82).
func (f *family) dropWaiter(w *waiter) { f.take(w) }

// advance hands a route that became free to its line (L-31). from is the lease that ended; its queue ends with it or moves on.
func (f *family) advance(from *lease, at moment) {
	q := from.queue
	from.queue = nil
	if q == nil {
		return
	}
	q.lease = nil
	for q.first != nil {
		w := q.first
		f.take(w)
		if w.deadline <= at.now { // L-36: at exactly the deadline it has timed out
			f.timedOut(w)
			continue
		}
		early := f.encodeEarly(from.text, []byte(w.owner), w.session.holder, at)
		if !f.roomForLease(w.session, early) {
			f.refuseWaiter(w, wire.CodeLeaseQueueFull, wire.TextLeaseLimit)
			continue
		}
		if mutant.On("lease.waiter-token-fresh") {
			w.token, _ = f.nextToken()
		}
		l := f.grant(w.session, early, w.token, at.now.Add(seconds(w.ttl)))
		if q.first != nil {
			l.queue, q.lease = q, l
		}
		if f.deliver(w) {
			f.notify(l)
			return
		}
		l.queue, q.lease = nil, nil
		f.takeBack(l) // L-81
		f.forget(w.session)
	}
}

// deliver enqueues the deferred grant, once per labelled request and once for all unlabelled ones (L-32, L-33). False: the session
// is closing and got none.
func (f *family) deliver(w *waiter) bool {
	f.replies.acquire = wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindAcquired, FencingToken: w.token}
	encoded := f.encode(&f.replies.acquire)
	delivered := false
	for _, call := range w.calls() {
		delivered = w.session.peer.Settle(call, encoded) || delivered || mutant.On("lease.grant-to-closed-session")
	}
	return delivered
}

// calls returns the requests that are attached: the labelled ones in the order in which they came, then one for all unlabelled.
func (w *waiter) calls() []peer.Call {
	calls := make([]peer.Call, 0, len(w.labels)+1)
	for _, label := range w.labels {
		calls = append(calls, peer.Call{Type: wire.TypeLeaseAcquire, Label: label})
	}
	if w.unlabelled {
		calls = append(calls, peer.Call{Type: wire.TypeLeaseAcquire})
	}
	return calls
}

// refuseWaiter ends the requests of a waiter that was taken with an error.
func (f *family) refuseWaiter(w *waiter, code wire.Code, message string) {
	for _, call := range w.calls() {
		f.metrics.failed(call.Type, code)
		w.session.peer.SettleRefusal(call, code, message)
	}
}

func (f *family) timedOut(w *waiter) {
	f.metrics.m.WaiterTimeoutsTotal.Inc()
	if mutant.On("lease.wait-timeout-silent") {
		return
	}
	f.refuseWaiter(w, wire.CodeLeaseTimeout, wire.TextWaitOver) // L-32
}

// timeOut ends waiters of the line whose deadline has passed, in their order (L-36), within the budget, which it counts down.
func (f *family) timeOut(q *queue, now clock.Instant, budget *int) {
	q.earliest = clock.Never
	for w := q.first; w != nil; {
		next := w.nextInLine
		if w.deadline <= now && *budget > 0 {
			*budget--
			f.take(w)
			f.timedOut(w)
		} else {
			q.earliest = min(q.earliest, w.deadline)
		}
		w = next
	}
}

// cancel detaches one labelled request from its waiter (W-70, W-71). It reports false when the request does not wait, which
// includes one that is granted or timed out by what was due (W-76).
func (f *family) cancel(number uint64, call peer.Call, at moment) bool {
	s := f.sessions[number]
	if s == nil || s.labels[call.Label] == nil {
		return false
	}
	f.settle(s.labels[call.Label].queue.lease.text, at)
	w := s.labels[call.Label]
	if w == nil {
		return false
	}
	switch shared := len(w.labels) > 1 || w.unlabelled; {
	case mutant.On("lease.cancel-keeps-waiter"):
	case shared && !mutant.On("lease.cancel-detaches-all"):
		i := slices.Index(w.labels, call.Label)
		w.labels = slices.Delete(w.labels, i, i+1)
		delete(s.labels, call.Label)
	default:
		f.dropWaiter(w)
	}
	f.metrics.m.CancelledTotal.Inc()
	f.metrics.failed(call.Type, wire.CodeRequestCancelled)
	s.peer.SettleRefusal(call, wire.CodeRequestCancelled, wire.TextCancelled)
	return true
}
