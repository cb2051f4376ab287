package lease

import (
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/subscription"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// subscribe executes SUBSCRIBE (L-70, W-91 to W-93).
func (f *family) subscribe(p peer.Session, call peer.Call, sel pattern.Selector) {
	s := f.open(p)
	if r := s.subscriptions[sel.Text()]; r != nil && !mutant.On("lease.subscribe-again") {
		f.answerSubscribe(p, call, r.ID)
		return
	}
	if code, text := f.roomForRegistration(s, sel); text != "" {
		f.turnAway(s, p, call, code, text)
		return
	}
	r := &subscription.Registration[*session]{ID: f.ids.Add(1), Selector: sel.Clone(), Value: s}
	if f.index == nil {
		f.index = subscription.New[*session]()
	}
	f.index.Add(r)
	if s.subscriptions == nil {
		s.subscriptions = map[string]*subscription.Registration[*session]{}
	}
	s.subscriptions[r.Selector.Text()] = r
	if r.Selector.Wildcard() {
		s.wildcards++
	}
	f.reserve(s, registrationCharge(r.Selector))
	f.metrics.registered(r.Selector, 1)
	if !f.answerSubscribe(p, call, r.ID) {
		f.unregister(r) // L-82
		f.forget(s)
	}
}

// answerSubscribe enqueues the reply of a SUBSCRIBE.
func (f *family) answerSubscribe(p peer.Session, call peer.Call, id uint64) bool {
	f.replies.subscribe.SubscriptionID = id
	return f.reply(p, call, &f.replies.subscribe)
}

// registrationCharge is what a registration counts for lease_session_bytes_max and lease_family_bytes_max.
func registrationCharge(sel pattern.Selector) int64 { return int64(len(sel.Text())) + itemOverhead }

// roomForRegistration checks the caps in the order of L-70. The text is empty when there is room.
func (f *family) roomForRegistration(s *session, sel pattern.Selector) (wire.Code, string) {
	charge := registrationCharge(sel)
	registered := 0
	if f.index != nil {
		registered = f.index.Len()
	}
	switch {
	case sel.Wildcard() && s.wildcards >= wildcardsMax && !mutant.On("lease.wildcard-cap-off"):
		return wire.CodeLeaseBadRequest, wire.TextWildcardSubscriptionLimit(wildcardsMax)
	case len(s.subscriptions) >= registrationsMax:
		return wire.CodeLeaseBadRequest, wire.TextTotalSubscriptionLimit(registrationsMax)
	case s.bytes+charge > f.limits.LeaseSessionBytesMax:
		return wire.CodeLeaseBadRequest, wire.TextSubscriptionMemoryLimit
	case int64(registered) >= f.limits.SubsPerFamilyMax, f.bytes+charge > f.limits.LeaseFamilyBytesMax:
		return wire.CodeLeaseQueueFull, textRegistrationLimit
	}
	return 0, ""
}

// unsubscribe executes UNSUBSCRIBE. What is not registered counts as ended (W-95).
func (f *family) unsubscribe(p peer.Session, call peer.Call, sel pattern.Selector) {
	if s := f.sessions[p.Number()]; s != nil {
		if r := s.subscriptions[sel.Text()]; r != nil && !mutant.On("lease.unsubscribe-ignored") {
			f.unregister(r)
		}
	}
	f.reply(p, call, &wire.LeaseUnsubscribeReply{})
}

// unregister removes a registration; nothing is enqueued for it afterwards.
func (f *family) unregister(r *subscription.Registration[*session]) {
	s := r.Value
	f.index.Remove(r)
	delete(s.subscriptions, r.Selector.Text())
	if r.Selector.Wildcard() {
		s.wildcards--
	}
	f.reserve(s, -registrationCharge(r.Selector))
	f.metrics.registered(r.Selector, -1)
}

// job is the rest of a fan-out that did not fit into one slice (L-92). It keeps no list of targets: the index yields them in
// order of their ids, so that the last one told is enough. Registrations that were made after the change are above upTo;
// removed ones are not found any more.
type job struct {
	lease *lease
	after uint64 // last registration told
	upTo  uint64 // last registration that existed at the change
}

// jobs is a first-in-first-out queue of fan-outs. The zero value is empty.
type jobs struct {
	pending []job
	head    int
}

func (q *jobs) len() int { return len(q.pending) - q.head }

func (q *jobs) push(j job) { q.pending = append(q.pending, j) }

func (q *jobs) first() *job { return &q.pending[q.head] }

func (q *jobs) pop() {
	q.pending[q.head] = job{}
	q.head++
	switch {
	case q.head == len(q.pending):
		*q = jobs{}
	case 2*q.head >= len(q.pending):
		n := copy(q.pending, q.pending[q.head:])
		clear(q.pending[n:])
		q.pending, q.head = q.pending[:n], 0
	}
}

// paused reports whether so many fan-outs are unfinished that the family takes no further command (lease_fanout_jobs_max).
func (f *family) paused() bool { return int64(f.fanout.len()) > f.limits.LeaseFanoutJobsMax }

// notify tells every matching registration that the held set changed at the route of l (L-71). While earlier fan-outs are
// unfinished it lines up behind them, so that every registration sees the changes in their order (W-45).
func (f *family) notify(l *lease) {
	if f.index == nil || f.index.Len() == 0 {
		return
	}
	j := job{lease: l, upTo: f.ids.Load()}
	if f.fanout.len() > 0 {
		f.fanout.push(j)
		return
	}
	budget := int(f.limits.FanoutSliceMax)
	if !f.tell(&j, &budget) {
		f.fanout.push(j)
	}
}

// serve continues the unfinished fan-outs in their order, by at most one slice of targets (L-92).
func (f *family) serve() {
	budget := int(f.limits.FanoutSliceMax)
	for f.fanout.len() > 0 && budget > 0 && f.tell(f.fanout.first(), &budget) {
		f.fanout.pop()
	}
}

// tell notifies targets of the job until the budget, which it counts down, is used up. It reports whether the job is finished.
func (f *family) tell(j *job, budget *int) bool {
	var m subscription.Matches[*session]
	before := f.index.Work()
	segments := j.lease.segments()
	f.index.Match(&m, segments[:], j.after, j.upTo)
	finished := true
	for r := m.Next(); r != nil; r = m.Next() {
		if *budget == 0 {
			finished = false
			break
		}
		if j.after != 0 && mutant.On("lease.notify-first-only") {
			break
		}
		*budget--
		j.after = r.ID
		if !f.tellOne(r, j.lease) {
			f.index.Match(&m, segments[:], j.after, j.upTo) // the registration is gone
		}
	}
	f.metrics.matched(before, f.index.Work())
	return finished
}

// tellOne enqueues one NOTIFY. One that finds no room ends the registration, or the session if it cannot be told (W-83). It reports
// false when the registration was removed.
func (f *family) tellOne(r *subscription.Registration[*session], l *lease) bool {
	f.scratch = wire.AppendLeaseNotifyEncoded(f.scratch[:0], r.ID, l.encodedRoute())
	p := r.Value.peer
	switch p.Notify(wire.TypeLeaseNotify, f.scratch) {
	case peer.Enqueued:
		f.metrics.m.NotifySentTotal.Inc()
	case peer.Full:
		f.metrics.m.NotifyDroppedTotal.Inc()
		if mutant.On("lease.overflow-silent") {
			break
		}
		if !p.Negotiated() {
			p.Close(wire.CloseSlowConsumer)
			break
		}
		f.unregister(r)
		f.metrics.m.SubEndedTotal.Inc()
		p.EndRegistration(domainNumber, r.ID, wire.CodeSubSlowConsumer, 1, wire.CloseSlowConsumer.Text)
		return false
	case peer.Closing: // CloseSession follows
	}
	return true
}
