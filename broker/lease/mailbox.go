package lease

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
)

// commandOverhead is charged for each command that waits, on top of its bytes (domain_mailbox_bytes_max).
const commandOverhead = 256

// mailbox serialises the commands of one family (L-06). A command executes on the goroutine of its session while that holds the
// lock; the ones that wait for it are the mailbox, bounded in number and bytes.
type mailbox struct {
	domain       *Domain
	waiting      atomic.Int64 // commands
	waitingBytes atomic.Int64

	mu      sync.Mutex
	resumed sync.Cond // the family is not paused any more, or a deadline passed
	family  *family   // nil after Stop
	timer   clock.Timer
	armed   clock.Instant // when timer calls at the latest, clock.Never when it is not set
	inTurn  bool          // in the list of the domain; belongs to the lock of the domain
	turns   uint64        // served so far
}

func newMailbox(d *Domain, number uint32) *mailbox {
	b := &mailbox{domain: d, family: newFamily(&d.shared, number), armed: clock.Never}
	b.resumed.L = &b.mu
	return b
}

// enter waits for the turn of a command of that many bytes. True: the caller holds the lock and must call leave. False: the
// mailbox is full, the command's deadline passed before it started (E-10), or the domain was stopped (E-12). start is when the
// command came. The time of a command is read under the lock, so that it never goes back from one command to the next.
func (b *mailbox) enter(bytes int) (at moment, start clock.Instant, ok bool) {
	if b.mu.TryLock() {
		if b.family != nil && !b.family.paused() {
			at = b.domain.moment()
			return at, at.now, true
		}
		b.mu.Unlock()
	}
	start = b.domain.clock.Now()
	charge := int64(bytes) + commandOverhead
	waiting, waitingBytes := b.waiting.Add(1), b.waitingBytes.Add(charge)
	defer func() {
		b.waiting.Add(-1)
		b.waitingBytes.Add(-charge)
	}()
	limits := &b.domain.limits
	if waiting > limits.DomainMailboxMax || waitingBytes > limits.DomainMailboxBytesMax {
		return moment{}, start, false
	}
	patience := time.Duration(limits.CommandDeadlineControlMs) * time.Millisecond
	b.mu.Lock()
	b.awaitResume(start.Add(patience))
	at = b.domain.moment()
	if b.family == nil || b.family.paused() || at.now.Sub(start) > patience {
		b.mu.Unlock()
		return moment{}, start, false
	}
	return at, start, true
}

// awaitResume waits while the family is paused by its fan-outs, until the deadline has passed. The caller holds the lock.
func (b *mailbox) awaitResume(deadline clock.Instant) {
	if b.family == nil || !b.family.paused() {
		return
	}
	timer := b.domain.clock.AfterFunc(deadline.Sub(b.domain.clock.Now())+1, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.resumed.Broadcast()
	})
	defer timer.Stop()
	for b.family != nil && b.family.paused() && b.domain.clock.Now() <= deadline {
		b.resumed.Wait()
	}
}

// leave ends a command: it sees to it that the domain serves what the command left behind.
func (b *mailbox) leave() {
	b.schedule()
	b.mu.Unlock()
}

// schedule asks for the next turn: at once when a fan-out is unfinished, else at the next deadline. An idle family asks for none.
func (b *mailbox) schedule() {
	f := b.family
	if f == nil {
		return
	}
	if f.fanout.len() > 0 {
		b.domain.giveTurn(b)
	}
	next := f.nextDeadline()
	if next >= b.armed {
		return
	}
	in := next.Sub(b.domain.clock.Now())
	if in <= 0 { // due already, or a slot of the wheel that is looked at late because nothing was due for a while
		b.domain.giveTurn(b)
		return
	}
	b.armed = next
	if b.timer == nil {
		b.timer = b.domain.clock.AfterFunc(in, func() { b.domain.giveTurn(b) })
		return
	}
	b.timer.Reset(in)
}

// serve is one turn: a slice of the unfinished fan-outs, then a slice of the due deadlines (L-18, L-92).
func (b *mailbox) serve() {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.family
	if f == nil {
		return
	}
	b.turns++
	b.fanOut()
	at := b.domain.moment()
	budget := int(b.domain.limits.LeaseExpirySliceMax)
	f.expire(at, &budget)
	b.armed = clock.Never
	if f.nextDeadline() <= at.now {
		b.domain.giveTurn(b)
		return
	}
	b.schedule()
}

// fanOut serves one slice of the unfinished fan-outs and lets commands in again when that ends the pause. The caller holds the lock.
func (b *mailbox) fanOut() {
	wasPaused := b.family.paused()
	b.family.serve()
	if wasPaused && !b.family.paused() {
		b.resumed.Broadcast()
	}
}

// stop ends the family. Commands that wait are refused when they get the lock.
func (b *mailbox) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.family == nil {
		return
	}
	b.family.stop()
	b.family = nil
	if b.timer != nil {
		b.timer.Stop()
	}
	b.resumed.Broadcast()
}
