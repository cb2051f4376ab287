// Package lease is the lease domain of the broker: exclusive ownership of routes with fencing tokens, lines of waiters, inventory
// pages out of snapshots, and notifications (lease.md).
//
// [Domain] is what dispatch and the session layer see. Behind it every family has a mailbox, which lets one command in at a time,
// and a synchronous state machine without goroutines, I/O or a clock: the type family. A command executes on the goroutine of its
// session; answers and notifications leave by enqueueing into sessions, which never blocks.
//
//	lease.go      one tenure of a route, its encoded form and its order
//	family.go     the universe of one family, sessions in it, close
//	ownership.go  ACQUIRE, RENEW, RELEASE, QUERY, expiry
//	waiters.go    lines, deferred replies, CANCEL
//	fanout.go     SUBSCRIBE, UNSUBSCRIBE, NOTIFY, sliced fan-outs
//	inventory.go  the ordered maps, pages
//	snapshots.go  kept listings, cursors, budgets
//	wheel.go      deadlines
//	mailbox.go    turns, bounds of waiting commands
//	domain.go     handlers, Run, Stop, admin listing
package lease
