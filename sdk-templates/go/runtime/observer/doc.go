// Package observer keeps a read-only view of the items that match a selector at a peer: it subscribes, lists, repairs what was notified,
// and starts again after every gap (docs/protocol/observer.md, OB-01 to OB-67).
//
// It is generic over the item type and knows nothing about a protocol, a connection or a clock: everything outside is a port. One task,
// the goroutine of Observer.run, owns all state. The reader, timers, consumers and completed requests only post to it, and nothing holds a
// lock across I/O. The one thing that the reader does by itself is to mark a notified route, in the inbox, before it looks at the next
// frame (OB-11).
//
// Where to look:
//
//	state.go     states, events, and the table of transitions (section 2)
//	engine.go    the task: its messages, timers, requests and generations
//	pass.go      full passes and their installation (section 3)
//	repair.go    steady state: exact reads of notified routes (section 4)
//	recover.go   sessions, SUBSCRIBE, gaps, the end (section 5)
//	inbox.go     what the reader marks
//	view.go      the immutable, ordered view
//	consumer.go  events and their readers (section 7)
//	api.go       what a user of an observer calls
package observer
