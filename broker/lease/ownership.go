package lease

import (
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// acquired_at is sent in this form, which is 24 bytes in every year of four digits.
const acquiredAtLayout = "2006-01-02T15:04:05.000Z"

// standing says how a route stood when a command looked at it.
type standing uint8

const (
	standingNow     standing = iota // nothing was due
	standingExpired                 // the lease had expired and was not swept (L-41)
	standingClosed                  // the session of the holder was closed and the lease not removed
)

// settle applies what is due at a route before a command of it is executed: the end of its holder, the grants that follow, and
// waiters whose time is over (lease.md section 5 step 7, L-41, L-45). Its frames come before the reply of the command (W-45).
// The result is the lease that is held at now, nil if there is none.
func (f *family) settle(text string, at moment) (*lease, standing) {
	was := standingNow
	l := f.leases[text]
	for l != nil && l.over(at.now) {
		if was == standingNow {
			was = standingClosed
			if !l.closed() {
				was = standingExpired
			}
		}
		f.end(l, at)
		l = f.leases[text]
	}
	if l != nil && l.queue != nil && l.queue.earliest <= at.now {
		all := l.queue.count
		f.timeOut(l.queue, at.now, &all)
	}
	return l, was
}

// acquire executes steps 7 and 8 of ACQUIRE (L-20 to L-26).
func (f *family) acquire(p peer.Session, call peer.Call, r pattern.Route, owner []byte, ttl uint64, wait uint32, at moment) {
	l, _ := f.settle(r.Text(), at)
	switch {
	case l == nil:
		f.acquireFree(p, call, r, owner, ttl, at)
	case l.ownedBy(p, owner):
		if mutant.On("lease.already-held-renews") {
			l.deadline.Store(int64(at.now.Add(seconds(ttl))))
			f.expiries.moved(l)
		}
		f.answerAcquire(p, call, wire.LeaseGrantKindAlreadyHeld, l.token) // L-22
	case wait == 0:
		f.refuse(p, call, wire.CodeLeaseHeld, wire.TextHeldByOther(l.owner())) // L-23
	default:
		f.enqueue(p, call, l, owner, ttl, wait, at)
	}
}

// acquireFree is L-20 and L-21.
func (f *family) acquireFree(p peer.Session, call peer.Call, r pattern.Route, owner []byte, ttl uint64, at moment) {
	s := f.open(p)
	early := f.encodeEarly(r.Text(), owner, s.holder, at)
	if !f.roomForLease(s, early) {
		f.turnAway(s, p, call, wire.CodeLeaseQueueFull, wire.TextLeaseLimit)
		return
	}
	token, ok := f.nextToken()
	if !ok {
		f.turnAway(s, p, call, wire.CodeLeaseQueueFull, wire.TextLeaseLimit)
		return
	}
	l := f.grant(s, early, token, at.now.Add(seconds(ttl)))
	if f.answerAcquire(p, call, wire.LeaseGrantKindAcquired, token) {
		f.notify(l)
		return
	}
	f.takeBack(l)
	f.forget(s)
}

// answerAcquire enqueues the reply of an ACQUIRE.
func (f *family) answerAcquire(p peer.Session, call peer.Call, kind wire.LeaseGrantKind, token uint64) bool {
	f.replies.acquire = wire.LeaseAcquireReply{Kind: kind, FencingToken: token}
	return f.reply(p, call, &f.replies.acquire)
}

// roomForLease reports whether the session and the family may get one more lease with that encoded form (L-20).
func (f *family) roomForLease(s *session, early []byte) bool {
	return int64(s.held) < f.limits.LeasesPerSessionMax && int64(f.held) < f.limits.LeasesPerFamilyMax &&
		f.fits(s, int64(len(early))+itemOverhead)
}

// encodeEarly encodes the part of the item that never changes, at its exact size and without a reference to the request (L-61).
func (f *family) encodeEarly(text string, owner []byte, h *holder, at moment) []byte {
	var stamp [len(acquiredAtLayout)]byte
	item := wire.LeaseItem{
		Route:             text,
		OwnerID:           codec.Alias(owner), // read before this function returns
		HolderIncarnation: h.shown(f.held),
		AcquiredAt:        codec.Alias(at.wall.UTC().AppendFormat(stamp[:0], acquiredAtLayout)),
	}
	encoded, err := wire.AppendLeaseItemEarly(f.scratch[:0], &item)
	if err != nil {
		// Route and owner passed the bounds of the request, which are not above those of an item.
		panic("lease: an item does not fit its own bounds: " + err.Error())
	}
	f.scratch = encoded
	early := make([]byte, len(encoded))
	copy(early, encoded)
	return early
}

// shown is the incarnation of the holder as items show it (L-13).
func (h *holder) shown(held int) uint64 {
	switch {
	case mutant.On("lease.incarnation-constant"):
		return 1
	case mutant.On("lease.incarnation-per-lease"):
		return h.incarnation + uint64(held) + 1
	}
	return h.incarnation
}

// grant makes the session hold a route that nobody holds. The caller has checked the bounds; it enqueues the reply and then
// notifies.
func (f *family) grant(s *session, early []byte, token uint64, expiry clock.Instant) *lease {
	switch {
	case mutant.On("lease.expires-late"):
		expiry = expiry.Add(time.Second)
	case mutant.On("lease.expires-early"):
		expiry = expiry.Add(-time.Second)
	}
	l := newLease(early, s.holder, token, expiry)
	f.leases[l.text] = l
	f.tree.add(l)
	f.expiries.add(l)
	if l.nextOfSession = s.leases; s.leases != nil {
		s.leases.prevOfSession = l
	}
	s.leases = l
	s.held++
	f.held++
	f.reserve(s, l.charge())
	f.changed(l)
	f.metrics.m.Held.Inc()
	return l
}

// remove takes a lease out of the held set. The caller notifies and then advances the queue, which stays at the lease.
func (f *family) remove(l *lease) {
	delete(f.leases, l.text)
	f.tree.remove(l)
	f.expiries.remove(l)
	f.changed(l)
	l.ended.Store(f.sequence)
	s := l.holder.session
	if s == nil {
		return // the session was closed, which settled the accounts
	}
	if l.prevOfSession != nil {
		l.prevOfSession.nextOfSession = l.nextOfSession
	} else {
		s.leases = l.nextOfSession
	}
	if l.nextOfSession != nil {
		l.nextOfSession.prevOfSession = l.prevOfSession
	}
	l.nextOfSession, l.prevOfSession = nil, nil
	s.held--
	f.held--
	f.reserve(s, -l.charge())
	f.metrics.m.Held.Dec()
}

// changed counts a change of the held set (L-66).
func (f *family) changed(l *lease) {
	f.sequence++
	f.churn.add(int64(l.itemBytes()) + bounds.LeaseSnapshotChangeOverhead)
}

// end is what happens to a lease that ends without a request of its owner: remove, NOTIFY, advance (L-45, L-80).
func (f *family) end(l *lease, at moment) {
	if !l.closed() {
		f.metrics.expired(at.now.Sub(l.expiry()))
	}
	silent := l.closed() && mutant.On("lease.close-silent") || !l.closed() && mutant.On("lease.expiry-silent")
	f.remove(l)
	if !silent {
		f.notify(l)
	}
	f.advance(l, at)
}

// takeBack removes a grant that could not be delivered: two changes of the held set, each with its NOTIFY (L-81). The caller
// advances.
func (f *family) takeBack(l *lease) {
	f.notify(l)
	f.remove(l)
	f.notify(l)
}

// renew executes RENEW (L-40 to L-44).
func (f *family) renew(p peer.Session, call peer.Call, r pattern.Route, owner []byte, token, ttl uint64, at moment) {
	l, was := f.settle(r.Text(), at)
	switch {
	case was == standingExpired:
		f.refuse(p, call, wire.CodeLeaseExpired, wire.TextExpired) // L-41
	case l == nil || !l.ownedBy(p, owner):
		f.refuse(p, call, wire.CodeLeaseNotFound, wire.TextNotHeld) // L-40, L-42
	case l.token != token && !mutant.On("lease.renew-unfenced"):
		f.metrics.m.FenceRejectsTotal.Inc()
		f.refuse(p, call, wire.CodeLeaseInvalidFence, wire.TextFenced) // L-43
	default:
		from := at.now
		if mutant.On("lease.renew-adds") {
			from = l.expiry()
		}
		l.deadline.Store(int64(from.Add(seconds(ttl)))) // L-44
		f.expiries.moved(l)
		if n := l.renewals.Load(); n != ^uint32(0) {
			l.renewals.Store(n + 1)
		}
		f.replies.renew.FencingToken = l.token
		if mutant.On("lease.renew-new-token") {
			l.token, _ = f.nextToken()
			f.replies.renew.FencingToken = l.token
		}
		f.reply(p, call, &f.replies.renew)
		if mutant.On("lease.renew-notifies") {
			f.notify(l)
		}
	}
}

// ownedBy reports whether session and logical owner are those of the lease, which is held (L-11).
func (l *lease) ownedBy(p peer.Session, owner []byte) bool {
	sameSession := l.holder.session.number == p.Number() || mutant.On("lease.owner-by-text")
	return sameSession && l.owner() == string(owner)
}

// release executes RELEASE (L-40 to L-44).
func (f *family) release(p peer.Session, call peer.Call, r pattern.Route, owner []byte, token uint64, at moment) {
	l, was := f.settle(r.Text(), at)
	switch {
	case was == standingExpired || l == nil:
		f.reply(p, call, &wire.LeaseReleaseReply{}) // L-40, L-41: success, for anyone
	case !l.ownedBy(p, owner):
		f.refuse(p, call, wire.CodeLeaseNotFound, wire.TextNotHeld) // L-42
	case l.token != token && !mutant.On("lease.release-unfenced"):
		f.metrics.m.FenceRejectsTotal.Inc()
		f.refuse(p, call, wire.CodeLeaseInvalidFence, wire.TextFenced) // L-43
	case mutant.On("lease.notify-before-reply"):
		f.remove(l)
		f.notify(l)
		f.reply(p, call, &wire.LeaseReleaseReply{})
		f.advance(l, at)
	default:
		f.remove(l) // L-44
		f.reply(p, call, &wire.LeaseReleaseReply{})
		if !mutant.On("lease.release-silent") {
			f.notify(l)
		}
		f.advance(l, at)
	}
}

// query executes QUERY (L-35, L-40 to L-44, L-48).
func (f *family) query(p peer.Session, call peer.Call, r pattern.Route, at moment) {
	l, _ := f.settle(r.Text(), at)
	reply := &f.replies.query
	*reply = wire.LeaseQueryReply{}
	if l != nil {
		*reply = wire.LeaseQueryReply{
			Held: true, OwnerID: l.owner(), TTLRemaining: wholeSeconds(l.expiry().Sub(at.now)), PendingWaiters: uint32(l.queue.length()),
		}
		switch {
		case mutant.On("lease.query-names-session"):
			reply.OwnerID = "session:1:" + l.owner()
		case mutant.On("lease.query-hides-waiters"):
			reply.PendingWaiters = 0
		}
	}
	f.reply(p, call, reply)
	reply.OwnerID = "" // it belongs to the lease
}

// expire ends leases and waiters that are due, within the budget of looks, which it counts down (L-17, L-18). Waiters that end when
// their lease does count too, because each is told; the line of one lease is not divided (L-31). It stops early when the family is
// paused by its fan-outs (L-92).
func (f *family) expire(at moment, budget *int) {
	for !f.paused() {
		l, ok := f.expiries.pop(at.now, budget)
		if !ok {
			break
		}
		before := f.waiting
		f.end(l, at)
		*budget = max(0, *budget-(before-f.waiting))
	}
	for f.timeouts != nil && !f.paused() {
		w, ok := f.timeouts.pop(at.now, budget)
		if !ok {
			break
		}
		*budget++ // w is counted when it ends, which may be after others of its line
		f.timeOut(w.queue, at.now, budget)
		if w.queue != nil {
			f.timeouts.add(w) // its turn comes with the next slice
		}
	}
}

// nextDeadline returns when expire should be called again, clock.Never when nothing has a deadline.
func (f *family) nextDeadline() clock.Instant {
	next := f.expiries.next()
	if f.timeouts != nil {
		next = min(next, f.timeouts.next())
	}
	return next
}

// value is what the generated messages have in common.
type value interface {
	AppendValue(dst []byte) ([]byte, error)
}

// reply enqueues a reply. False: the session is closing (L-81).
func (f *family) reply(p peer.Session, call peer.Call, v value) bool {
	return p.Reply(call, f.encode(v))
}

// encode encodes a reply into memory of the family, which is valid until the next one.
func (f *family) encode(v value) []byte {
	encoded, err := v.AppendValue(f.scratch[:0])
	if err != nil {
		// Every text in a reply passed the bound of a request, which is not above that of the reply.
		panic("lease: a reply does not fit its own bounds: " + err.Error())
	}
	f.scratch = encoded
	return encoded
}

// refuse enqueues an error reply and counts it.
func (f *family) refuse(p peer.Session, call peer.Call, code wire.Code, message string) bool {
	f.metrics.failed(call.Type, code)
	return p.Refuse(call, code, message)
}

// turnAway refuses what needed the state of s, which open may have made for it, and leaves none behind.
func (f *family) turnAway(s *session, p peer.Session, call peer.Call, code wire.Code, message string) {
	f.forget(s)
	f.refuse(p, call, code, message)
}
