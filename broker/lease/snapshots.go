package lease

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/mutant"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

const (
	// counterBits is the size of the counter in a snapshot id; the bits above are the tag of the broker lifetime (L-62).
	counterBits = 40

	noAlarm = math.MaxInt64
)

// churn counts the bytes that changes of the held set of one family would pin in a snapshot taken before them (L-66). The
// counter moves under the lock of the family; the snapshots of the broker read it at any time.
type churn struct {
	total atomic.Int64
	alarm atomic.Int64 // total above which a budget may be exceeded; noAlarm while the family has no snapshot
	rang  func()       // called when total is above alarm
}

func (c *churn) add(bytes int64) {
	if c.total.Add(bytes) > c.alarm.Load() {
		c.rang()
	}
}

// snapshot is one kept listing with its bindings (L-64).
type snapshot struct {
	id       uint64
	family   uint32
	session  uint64
	selector string
	churn    *churn
	pinnedAt int64 // churn at the capture

	listing listing
	offset  uint32 // identities examined so far (L-63)

	capturedAt, usedAt clock.Instant
}

// pinned is what the snapshot keeps in memory beyond the live set (L-66).
func (s *snapshot) pinned() int64 { return s.churn.total.Load() - s.pinnedAt }

// ending is what is remembered of a snapshot that ended, so that its cursor is answered with the reason.
type ending struct {
	family  uint32
	session uint64
	reason  wire.LeaseCursorMisuse
}

// snapshots keeps the listings of all families of a broker between their pages (lease.md section 8.3). Budgets are spent per
// session and per broker; keeping a new one never fails, an older one gives way (L-67). Its tables are nil until the first
// listing has a second page.
//
// It is safe for concurrent use. Its lock is taken inside the lock of a family, never the other way round.
type snapshots struct {
	limits  *bounds.Limits
	metrics *instruments
	tag     uint64 // upper bits of every id

	clock clock.Clock

	mu      sync.Mutex
	counter uint64
	sweeper clock.Timer // nil until the first snapshot
	armed   bool        // sweeper will call
	stopped bool
	kept    []*snapshot // in the order of their captures, which is that of their ids
	ended   map[uint64]ending
	order   []uint64 // ids of ended, a ring
	oldest  int      // where the ring starts once it is full
}

func newSnapshots(limits *bounds.Limits, c clock.Clock, m *instruments, lifetime [16]byte) *snapshots {
	tag := uint64(lifetime[0])<<16 | uint64(lifetime[1])<<8 | uint64(lifetime[2])
	return &snapshots{limits: limits, clock: c, metrics: m, tag: tag << counterBits}
}

// keep stores a listing that has a next page and returns its cursor.
func (k *snapshots) keep(s *snapshot, now clock.Instant) wire.LeaseCursor {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counter++
	s.id = k.tag | k.counter&(1<<counterBits-1)
	s.capturedAt, s.usedAt = now, now
	s.pinnedAt = s.churn.total.Load()
	k.kept = append(k.kept, s)
	k.metrics.m.ListSnapshots.Inc()
	k.enforce()
	if !k.armed {
		k.arm(min(k.idle(), k.age()))
	}
	return wire.LeaseCursor{SnapshotID: s.id, Offset: s.offset}
}

// arm makes sweep run in d. A snapshot may be used at exactly its bound, so the sweep comes behind it.
func (k *snapshots) arm(d time.Duration) {
	k.armed = true
	if k.sweeper == nil {
		k.sweeper = k.clock.AfterFunc(d+1, k.sweep)
		return
	}
	k.sweeper.Reset(d + 1)
}

// take checks a cursor in the order of lease.md section 8.4 and returns its snapshot and where its next page starts. A misuse does not consume the snapshot
// (L-68); one that is idle or too old ends here. The caller has checked LC-01.
func (k *snapshots) take(c wire.LeaseCursorView, family uint32, session uint64, selector string, now clock.Instant,
) (*snapshot, listing, wire.LeaseCursorMisuse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c.SnapshotID>>counterBits != k.tag>>counterBits && !mutant.On("lease.cursor-any-lifetime") {
		return nil, listing{}, wire.LeaseCursorMisuseBrokerLifetime // LC-02
	}
	s := k.find(c.SnapshotID)
	if s != nil && k.tooOld(s, now) {
		k.end(s, wire.LeaseCursorMisuseExpired)
		k.enforce()
		s = nil
	}
	if s == nil {
		e, known := k.ended[c.SnapshotID]
		switch {
		case !known || e.family != family && !mutant.On("lease.cursor-any-family"):
			return nil, listing{}, wire.LeaseCursorMisuseUnknownSnapshot // LC-03, LC-04
		case e.session != session:
			return nil, listing{}, wire.LeaseCursorMisuseOtherSession // LC-05
		}
		return nil, listing{}, e.reason // LC-06 to LC-08
	}
	switch {
	case s.family != family && !mutant.On("lease.cursor-any-family"):
		return nil, listing{}, wire.LeaseCursorMisuseUnknownSnapshot // LC-04
	case s.session != session && !mutant.On("lease.cursor-any-session"):
		return nil, listing{}, wire.LeaseCursorMisuseOtherSession // LC-05
	case s.selector != selector && !mutant.On("lease.cursor-any-selector"):
		return nil, listing{}, wire.LeaseCursorMisuseOtherSelector // LC-09
	case c.Offset != s.offset && mutant.On("lease.cursor-any-offset"):
	case c.Offset != s.offset && mutant.On("lease.cursor-consumed"):
		k.end(s, wire.LeaseCursorMisuseFinished)
		k.enforce()
		return nil, listing{}, wire.LeaseCursorMisuseOffsetTooHigh
	case c.Offset < s.offset:
		return nil, listing{}, wire.LeaseCursorMisuseOffsetTooLow // LC-10
	case c.Offset > s.offset:
		return nil, listing{}, wire.LeaseCursorMisuseOffsetTooHigh // LC-11
	}
	s.usedAt = now
	return s, s.listing, 0
}

// proceed moves the snapshot behind a page that was built from it, or ends it with its last page (L-65). A snapshot that ended
// in the meantime stays ended.
func (k *snapshots) proceed(s *snapshot, to listing, offset uint32, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.find(s.id) != s {
		return
	}
	if !more {
		k.end(s, wire.LeaseCursorMisuseFinished)
		k.enforce()
		return
	}
	s.listing, s.offset = to, offset
}

// drop ends a snapshot whose page could not be delivered: its session is closing.
func (k *snapshots) drop(id uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.find(id); s != nil {
		k.end(s, wire.LeaseCursorMisuseOtherSession)
		k.enforce()
	}
}

// closeSession ends the snapshots of a session (L-65). Only other sessions can still name them (LC-05).
func (k *snapshots) closeSession(session uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := len(k.kept) - 1; i >= 0; i-- {
		if k.kept[i].session == session {
			k.end(k.kept[i], wire.LeaseCursorMisuseOtherSession)
		}
	}
	k.enforce()
}

// stop ends all snapshots (E-12).
func (k *snapshots) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = true
	for len(k.kept) > 0 {
		k.end(k.kept[0], wire.LeaseCursorMisuseEvicted)
	}
	if k.sweeper != nil {
		k.sweeper.Stop()
	}
}

// sweep ends what is idle or too old, and arms itself for the next one (L-65).
func (k *snapshots) sweep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed = false
	now := k.clock.Now()
	next := clock.Never
	for i := len(k.kept) - 1; i >= 0; i-- {
		s := k.kept[i]
		if k.tooOld(s, now) {
			k.end(s, wire.LeaseCursorMisuseExpired)
			continue
		}
		next = min(next, s.usedAt.Add(k.idle()), s.capturedAt.Add(k.age()))
	}
	k.enforce()
	if len(k.kept) > 0 && !k.stopped {
		k.arm(next.Sub(now))
	}
}

func (k *snapshots) idle() time.Duration {
	if mutant.On("lease.idle-snapshot-kept") {
		return k.age()
	}
	return time.Duration(k.limits.LeaseSnapshotIdleMs) * time.Millisecond
}

func (k *snapshots) age() time.Duration {
	return time.Duration(k.limits.LeaseSnapshotAgeMs) * time.Millisecond
}

func (k *snapshots) tooOld(s *snapshot, now clock.Instant) bool {
	return now.Sub(s.usedAt) > k.idle() || now.Sub(s.capturedAt) > k.age()
}

// find returns the kept snapshot with that id, nil if there is none.
func (k *snapshots) find(id uint64) *snapshot {
	at, found := slices.BinarySearchFunc(k.kept, id, func(s *snapshot, id uint64) int { return compareNumbers(s.id, id) })
	if !found {
		return nil
	}
	return k.kept[at]
}

// end removes a snapshot and remembers how it ended. The caller calls enforce when it has ended all that it wants to: the alarms of the
// family, and what the others have left, depend on those that remain.
func (k *snapshots) end(s *snapshot, reason wire.LeaseCursorMisuse) {
	k.kept = slices.DeleteFunc(k.kept, func(other *snapshot) bool { return other == s })
	if len(k.kept) == 0 {
		k.kept = nil
	}
	k.metrics.m.ListSnapshots.Dec()
	s.churn.alarm.Store(noAlarm)
	k.remember(s.id, ending{s.family, s.session, reason})
}

// remember keeps the last lease_cursor_memory_max endings.
func (k *snapshots) remember(id uint64, e ending) {
	if k.ended == nil {
		k.ended = map[uint64]ending{}
	}
	k.ended[id] = e
	if int64(len(k.order)) < k.limits.LeaseCursorMemoryMax {
		k.order = append(k.order, id)
		return
	}
	delete(k.ended, k.order[k.oldest])
	k.order[k.oldest] = id
	k.oldest = (k.oldest + 1) % len(k.order)
}

// changed is called by the churn of a family that may have exceeded a budget.
func (k *snapshots) changed() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enforce()
}

// enforce evicts until every budget holds (L-67), also that which other families change meanwhile. A change that goes beyond its alarm
// waits for the lock here, so that each family gets by only once.
func (k *snapshots) enforce() {
	for k.evictOver(); k.setAlarms(); k.evictOver() {
	}
}

// evictOver evicts until every budget holds. A session spends its own budget first.
func (k *snapshots) evictOver() {
	for s := k.overSession(); s != nil; s = k.overSession() {
		k.evict(s)
	}
	for int64(len(k.kept)) > k.limits.LeaseSnapshotsMax {
		k.evict(k.leastUsedOfGreediest())
	}
	for len(k.kept) > 0 && k.pinnedTotal() > k.limits.LeaseSnapshotTotalBytesMax {
		k.evict(k.kept[0])
	}
}

func (k *snapshots) evict(s *snapshot) {
	k.metrics.m.ListEvictionsTotal.Inc()
	k.end(s, wire.LeaseCursorMisuseEvicted)
}

// overSession returns the oldest snapshot of a session that exceeds its budget, nil if none does.
func (k *snapshots) overSession() *snapshot {
	counts := k.counts()
	seen := map[uint64]bool{}
	for _, s := range k.kept {
		if seen[s.session] {
			continue
		}
		seen[s.session] = true
		if int64(counts[s.session]) > k.limits.LeaseSnapshotsPerSessionMax || s.pinned() > k.limits.LeaseSnapshotSessionBytesMax {
			return s
		}
	}
	return nil
}

// counts returns the number of snapshots of each session.
func (k *snapshots) counts() map[uint64]int {
	counts := make(map[uint64]int, len(k.kept))
	for _, s := range k.kept {
		counts[s.session]++
	}
	return counts
}

// leastUsedOfGreediest returns the least recently used snapshot of the session that keeps most; among several such sessions, the
// one whose snapshot was not used for longest.
func (k *snapshots) leastUsedOfGreediest() *snapshot {
	counts := k.counts()
	var found *snapshot
	for _, s := range k.kept {
		if found == nil || counts[s.session] > counts[found.session] ||
			counts[s.session] == counts[found.session] && s.usedAt < found.usedAt {
			found = s
		}
	}
	return found
}

// pinnedTotal is the pinned bytes of the broker: those of the oldest snapshot of every family (L-66).
func (k *snapshots) pinnedTotal() int64 {
	total := int64(0)
	seen := map[*churn]bool{}
	for _, s := range k.kept {
		if !seen[s.churn] {
			seen[s.churn] = true
			total += s.pinned()
		}
	}
	return total
}

// setAlarms tells every family with snapshots by how much it may change before a budget can be exceeded. What the broker has left
// is split among the families, so that they cannot exceed it together before one of them asks again. The churn of a family is read once
// for all of that: it goes on meanwhile. late says that one was beyond its alarm before the alarm was set, so that nothing rang.
func (k *snapshots) setAlarms() (late bool) {
	type account struct{ total, alarm int64 }
	accounts := map[*churn]account{}
	left := k.limits.LeaseSnapshotTotalBytesMax
	for _, s := range k.kept {
		a, known := accounts[s.churn]
		if !known {
			a = account{s.churn.total.Load(), noAlarm}
			left -= a.total - s.pinnedAt // of the oldest snapshot of the family
		}
		a.alarm = min(a.alarm, s.pinnedAt+k.limits.LeaseSnapshotSessionBytesMax)
		accounts[s.churn] = a
	}
	for c, a := range accounts {
		alarm := min(a.alarm, a.total+max(0, left)/int64(len(accounts)))
		c.alarm.Store(alarm)
		late = late || c.total.Load() > alarm
	}
	return late
}
