package port

import "context"

// Operation is what is told of an operation when it begins.
type Operation struct {
	Name   string // for example lease.acquire
	Domain string
	Route  string // concrete route or selector; belongs into spans and logs, never into the labels of a metric
	Server string // address of the peer
}

// Event is something that happened without being the result of a call.
type Event struct {
	Name  string
	Route string // empty when the event belongs to none
	Count uint64 // how many, where that means something
	Err   error  // why, or nil
}

// Hooks are told what a client does. They run in the goroutine in which it happens and must return at once; fields may be nil.
type Hooks struct {
	// Begin is called when an operation begins. The context that it returns is used for the operation, and the function with the result of
	// the operation when it ends.
	Begin func(context.Context, Operation) (context.Context, func(error))
	// Event is called for what happens in the background.
	Event func(Event)
}

// Start calls Begin, if somebody listens.
func (h *Hooks) Start(ctx context.Context, op Operation) (context.Context, func(error)) {
	if h.Begin == nil {
		return ctx, func(error) {}
	}
	return h.Begin(ctx, op)
}

// Tell calls Event, if somebody listens.
func (h *Hooks) Tell(e Event) {
	if h.Event != nil {
		h.Event(e)
	}
}
