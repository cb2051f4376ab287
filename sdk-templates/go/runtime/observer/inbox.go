package observer

import "sync"

// inbox is what the reading goroutine marks and the task takes away. Its methods return at once: the lock is held for map operations
// only (OB-11). All sets are bounded (OB-24).
type inbox struct {
	mu         sync.Mutex
	wake       chan struct{} // something became dirty
	generation uint64        // notifications of other generations are ignored
	accepted   uint64        // notifications that counted (OB-61)

	following bool // the view is repaired: notified routes go to dirty
	dirty     map[string]struct{}
	dirtyAll  bool // too many to remember: everything is dirty

	passing  bool // a pass is listing: notified routes also go to since
	since    map[string]struct{}
	sinceAll bool

	// For drift_found (OB-26): the routes that were notified, each with the number of passes that had begun by then.
	notified map[string]uint64
	lost     bool   // too many to remember
	lostIn   uint64 // the value of begun when that happened last
	begun    uint64

	steadyMax int // of dirty, outside of a pass
	passMax   int // of every set, during a pass
}

func newInbox(dirtyMax, itemsMax int) *inbox {
	return &inbox{
		wake:       make(chan struct{}, 1),
		generation: 1,
		dirty:      map[string]struct{}{},
		since:      map[string]struct{}{},
		notified:   map[string]uint64{},
		steadyMax:  dirtyMax,
		passMax:    max(dirtyMax, itemsMax),
	}
}

// mark notes that a route was notified. False: the generation is over.
func (b *inbox) mark(generation uint64, route string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if generation != b.generation {
		return false
	}
	b.accepted++
	limit := b.steadyMax
	if b.passing {
		limit = b.passMax
		b.sinceAll = put(b.since, route, b.sinceAll, limit)
	}
	if b.following {
		b.dirtyAll = put(b.dirty, route, b.dirtyAll, limit)
		signal(b.wake)
	}
	if !b.lost || b.lostIn != b.begun {
		b.notified[route] = b.begun
	}
	if len(b.notified) > b.passMax {
		b.lost, b.lostIn = true, b.begun
		clear(b.notified)
	}
	return true
}

// put adds a route to a set that holds at most limit routes. True: the set stands for everything.
func put(set map[string]struct{}, route string, all bool, limit int) bool {
	if all {
		return true
	}
	set[route] = struct{}{}
	if len(set) <= limit {
		return false
	}
	clear(set)
	return true
}

// renew starts a generation with nothing in it (OB-30).
func (b *inbox) renew(generation uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.generation = generation
	b.following, b.passing = false, false
	b.dirtyAll, b.sinceAll, b.lost = false, false, false
	clear(b.dirty)
	clear(b.since)
	clear(b.notified)
}

// beginPass starts to collect what is notified during a pass. Everything that was notified before is part of the snapshot that the pass
// is about to take, so that only a few dirty routes are kept, to be repaired meanwhile.
func (b *inbox) beginPass(number uint64, keep int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun = number
	b.passing, b.sinceAll = true, false
	clear(b.since)
	if b.dirtyAll || len(b.dirty) > keep {
		b.dirtyAll = false
		clear(b.dirty)
	}
}

// freeze ends the collection and returns D of OB-13, in no order; all says that it stands for everything. What is notified from now on is
// dirty and handled as steady state after the installation (OB-15).
func (b *inbox) freeze() (d []string, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for route := range b.since {
		d = append(d, route)
	}
	all = b.sinceAll
	b.passing, b.sinceAll = false, false
	clear(b.since)
	b.following, b.dirtyAll = true, false
	clear(b.dirty)
	return d, all
}

// abortPass forgets what was collected: the pass starts again, and its snapshot will be younger. Without a view to repair, notifications do
// not matter until then.
func (b *inbox) abortPass(following bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.passing, b.sinceAll = false, false
	clear(b.since)
	b.following = following
	if !following {
		b.dirtyAll = false
		clear(b.dirty)
	}
}

// installed forgets the notifications that were older than the pass with that number.
func (b *inbox) installed(number uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lostIn < number {
		b.lost = false
	}
	for route, begun := range b.notified {
		if begun < number {
			delete(b.notified, route)
		}
	}
}

// unexpected reports which of the routes were not notified since the previous pass (OB-26). When that is not known, none is.
func (b *inbox) unexpected(routes []string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lost {
		return 0
	}
	n := uint64(0)
	for _, route := range routes {
		if _, ok := b.notified[route]; !ok {
			n++
		}
	}
	return n
}

// sending forgets a route because it is about to be read: what is notified from now on makes it dirty again (OB-22).
func (b *inbox) sending(route string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.dirty, route)
	delete(b.since, route)
}

// again makes a route dirty whose repair failed (OB-27).
func (b *inbox) again(route string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.following {
		b.dirtyAll = put(b.dirty, route, b.dirtyAll, b.passMax)
	}
}

// pending returns the dirty routes for which skip is false, in no order.
func (b *inbox) pending(skip func(route string) bool) (routes []string, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for route := range b.dirty {
		if !skip(route) {
			routes = append(routes, route)
		}
	}
	return routes, b.dirtyAll
}

// isDirty reports whether anything is dirty.
func (b *inbox) isDirty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dirtyAll || len(b.dirty) > 0
}

// count returns the number of notifications that counted.
func (b *inbox) count() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accepted
}

// signal wakes whoever waits on the channel, without waiting for it.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
