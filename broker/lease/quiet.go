package lease

// Load is what the domain holds at one moment, in all families.
type Load struct {
	Sessions      int // with a lease, a waiter or a registration
	Leases        int
	Waiters       int
	Registrations int
	Snapshots     int
}

// Look looks at all families, one after the other. Quiet means that none had anything to do when it was looked at: no command that
// waits for its turn, no unfinished fan-out, nothing that is due. mark changes with whatever is done, so that two looks, both quiet
// and with one mark, prove that there was a moment between them at which all families were idle at once.
func (d *Domain) Look() (load Load, mark uint64, quiet bool) {
	d.mu.Lock()
	mark, quiet = d.given, len(d.turns) == 0
	known := *d.mailboxes.Load()
	d.mu.Unlock()
	for _, b := range known {
		done, idle := b.look(&load)
		mark += done
		quiet = quiet && idle
	}
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	load.Snapshots = len(d.snapshots.kept)
	return load, mark, quiet
}

// look adds what the family holds to load.
func (b *mailbox) look(load *Load) (done uint64, idle bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.family
	if f == nil {
		return b.turns, true // stopped
	}
	load.Sessions += len(f.sessions)
	load.Leases += f.held
	load.Waiters += f.waiting
	if f.index != nil {
		load.Registrations += f.index.Len()
	}
	idle = b.waiting.Load() == 0 && f.fanout.len() == 0 && f.nextDeadline() > b.domain.clock.Now()
	return b.turns + f.sequence, idle
}
