package lease

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/subscription"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// moment is the time at which a command executes.
type moment struct {
	now  clock.Instant
	wall time.Time // for acquired_at only (L-14)
}

// shared is what the families of one broker lifetime have in common.
type shared struct {
	limits    bounds.Limits
	tokens    atomic.Uint64 // last fencing token handed out (L-49)
	ids       atomic.Uint64 // last registration id handed out (W-92)
	metrics   *instruments
	snapshots *snapshots
}

// nextToken returns the next fencing token of the broker lifetime, false when they are used up (L-49).
func (sh *shared) nextToken() (uint64, bool) {
	for {
		last := sh.tokens.Load()
		if last == ^uint64(0) {
			return 0, false
		}
		if mutant.On("lease.token-repeats") {
			return 1, true
		}
		if sh.tokens.CompareAndSwap(last, last+1) {
			return last + 1, true
		}
	}
}

// family is the lease universe of one family (L-02): a synchronous state machine without goroutines, I/O or a clock. Every
// command is told the time. Answers and notifications leave it by enqueueing into sessions, which never blocks (L-91), in the
// order of W-45. It is not safe for concurrent use; a mailbox serialises the commands (L-06).
type family struct {
	*shared
	number   uint32
	leases   map[string]*lease // the authority; every key is the text of its lease
	tree     inventory
	sessions map[uint64]*session // those with a lease, waiter or registration
	sequence uint64              // changes of the held set so far, ends of sessions included
	held     int                 // leases whose session is open
	bytes    int64               // of leases, waiters and registrations of open sessions
	waiting  int
	churn    churn

	expiries wheel[*lease]
	timeouts *wheel[*waiter] // nil until somebody waits
	index    *subscription.Index[*session]
	fanout   jobs
	scratch  []byte // for values that are copied when they are enqueued
	replies  replies
}

// replies is memory of the replies that carry something: encoding one on the way to a session then allocates nothing.
type replies struct {
	acquire   wire.LeaseAcquireReply
	renew     wire.LeaseRenewReply
	query     wire.LeaseQueryReply
	subscribe wire.LeaseSubscribeReply
}

func newFamily(sh *shared, number uint32) *family {
	f := &family{shared: sh, number: number, leases: map[string]*lease{}, sessions: map[uint64]*session{}}
	f.tree = newInventory()
	f.churn.alarm.Store(noAlarm)
	f.churn.rang = sh.snapshots.changed
	return f
}

// session is the state of one session in its family. It exists from the first lease, waiter or registration on.
type session struct {
	peer   peer.Session
	number uint64
	holder *holder
	leases *lease // list
	held   int
	bytes  int64 // of leases, waiters and registrations

	waiters *waiter // list
	waiting int
	labels  map[uint64]*waiter // of waiting labelled requests, nil until one waits

	subscriptions map[string]*subscription.Registration[*session] // by original text (W-91), nil until one exists
	wildcards     int
}

// open returns the state of the session and creates it if it has none. The caller either fills it or calls forget.
func (f *family) open(p peer.Session) *session {
	number := p.Number()
	s := f.sessions[number]
	if s == nil {
		s = &session{peer: p, number: number, holder: &holder{incarnation: p.Incarnation()}}
		s.holder.session = s
		f.sessions[number] = s
	}
	return s
}

// forget drops the state of a session that holds nothing. A command that comes after the session was closed must not leave
// anything behind (L-80).
func (f *family) forget(s *session) {
	if s.held == 0 && s.waiting == 0 && len(s.subscriptions) == 0 && f.sessions[s.number] == s {
		delete(f.sessions, s.number)
	}
}

// reserve charges bytes to the session and the family.
func (f *family) reserve(s *session, bytes int64) {
	s.bytes += bytes
	f.bytes += bytes
}

// fits reports whether the session and the family have room for that many more bytes.
func (f *family) fits(s *session, bytes int64) bool {
	return s.bytes+bytes <= f.limits.LeaseSessionBytesMax && f.bytes+bytes <= f.limits.LeaseFamilyBytesMax
}

// closeSession ends everything of a session at once (L-80): its waiters, its registrations, its snapshots and its leases. The
// leases are only marked here, in one step whatever their number; bury removes them, tells about them and advances their queues.
// They are returned in no order.
func (f *family) closeSession(number uint64) []*lease {
	f.snapshots.closeSession(number)
	s := f.sessions[number]
	switch {
	case s == nil, mutant.On("lease.close-keeps-leases"), s.waiting > 0 && mutant.On("lease.grant-to-closed-session"):
		return nil
	}
	delete(f.sessions, number)
	for s.waiters != nil {
		f.dropWaiter(s.waiters)
	}
	for _, r := range s.subscriptions {
		f.index.Remove(r)
		f.metrics.registered(r.Selector, -1)
	}
	f.bytes -= s.bytes
	f.held -= s.held
	f.metrics.m.Held.Sub(float64(s.held))
	f.sequence++
	s.holder.ended.Store(f.sequence)
	s.holder.session = nil
	doomed := make([]*lease, 0, s.held)
	for l := s.leases; l != nil; {
		next := l.nextOfSession
		l.nextOfSession, l.prevOfSession = nil, nil // a snapshot that keeps one must not keep all
		doomed = append(doomed, l)
		l = next
	}
	return doomed
}

// bury removes leases of a closed session, notifies and advances, in the order given. It stops after max leases or when the
// family is paused by its fan-outs, and returns the rest.
func (f *family) bury(doomed []*lease, max int, at moment) []*lease {
	for n := 0; len(doomed) > 0 && n < max && !f.paused(); n++ {
		l := doomed[0]
		doomed[0] = nil
		doomed = doomed[1:]
		if l.ended.Load() == 0 {
			f.end(l, at)
		}
	}
	return doomed
}

// inSegmentOrder sorts leases as routes.md section 1 orders their routes.
func inSegmentOrder(leases []*lease) {
	slices.SortFunc(leases, func(a, b *lease) int { return compareFrom(0, a, b) })
}

// stop ends the family, which is not used afterwards (E-12): waiting requests are refused, registrations of negotiated sessions
// are told that they ended.
func (f *family) stop() {
	for _, s := range f.sessionsInOrder() {
		for s.waiters != nil {
			w := s.waiters
			f.dropWaiter(w)
			f.refuseWaiter(w, wire.CodeLeaseQueueFull, textStopped)
		}
		for _, r := range registrationsInOrder(s) {
			f.unregister(r)
			s.peer.EndRegistration(domainNumber, r.ID, wire.CodeSubBrokerError, 0, textStopped)
			f.metrics.m.SubEndedTotal.Inc()
		}
	}
	f.metrics.m.Held.Sub(float64(f.held))
}

// sessionsInOrder returns the sessions by number: nothing depends on the order of a map.
func (f *family) sessionsInOrder() []*session {
	all := make([]*session, 0, len(f.sessions))
	for _, s := range f.sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *session) int { return compareNumbers(a.number, b.number) })
	return all
}

func registrationsInOrder(s *session) []*subscription.Registration[*session] {
	all := make([]*subscription.Registration[*session], 0, len(s.subscriptions))
	for _, r := range s.subscriptions {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *subscription.Registration[*session]) int { return compareNumbers(a.ID, b.ID) })
	return all
}

func compareNumbers(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func wholeSeconds(d time.Duration) uint64 { return uint64(max(0, d) / time.Second) }

// seconds returns n seconds, or the longest duration if that is less: an operator may allow any ttl.
func seconds(n uint64) time.Duration {
	if n > math.MaxInt64/uint64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}
