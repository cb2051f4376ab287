package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// Options is what a Core is made of. Every field must be set unless it says otherwise.
type Options struct {
	Address  string
	Protocol *link.Protocol
	Limits   link.Limits // fields that are not positive are taken from the protocol
	Dial     link.DialFunc
	TLS      link.TLS // of addresses with TLS; may be empty

	// Greeting is that of link.Options, of every session; it may be nil.
	Greeting func(link.Hello) []byte

	// Token returns the token of the next session; nil means anonymous. It is asked before every attempt to connect, with a context that ends
	// with the connect timeout, and never twice at a time. An error of it is one of the attempt.
	Token func(context.Context) (string, error)

	Clock port.Clock // of everything, sessions included
	Rand  port.Rand
	Hooks port.Hooks // may be empty

	Backoff      link.Backoff  // between attempts to connect
	ResetAfter   time.Duration // a session that lived so long makes the next delay the first one again
	StatusEvents int           // kept for each reader of the status stream

	// Classify reads what the peer sent by itself.
	Classify func(typ uint16, value []byte) Push
	// Lifetime reads who the peer is out of the hello of a session. False: the peer does not say.
	Lifetime func(link.Hello) (Lifetime, bool)

	Names EventNames
}

// EventNames are the names of the events that a Core tells its hooks.
type EventNames struct{ Connected, Lost, Failed, Overflow string }

// Lifetime is the identity of one process of the peer, and of one session in it.
type Lifetime struct {
	ID          [16]byte
	Incarnation uint64
}

// PushKind says what the peer sent by itself.
type PushKind uint8

// The kinds of pushes.
const (
	PushOther  PushKind = iota // nothing for this package
	PushNotify                 // belongs to a registration
	PushEnded                  // the peer has removed a registration
	PushGoaway                 // the peer will end the session
)

// Push is a record that the peer sent by itself.
type Push struct {
	Kind    PushKind
	Domain  uint8  // of the registration
	ID      uint64 // of the registration; 0 when it could not be read
	Code    uint32 // PushEnded, PushGoaway
	Dropped uint64 // PushEnded: how many notifications the peer dropped
	Reason  string
	Grace   time.Duration // PushGoaway: how long the session stays open
	// Err says that the record is malformed. A malformed notification ends its registration; anything else ends the session.
	Err error
}

// Errors that package link does not know.
var (
	// ErrStale says that something belongs to a session that has ended.
	ErrStale = errors.New("the session has ended")
	// ErrAway says that no session was opened in time, and that nothing was sent.
	ErrAway = errors.New("no session")
)

// errClosed is what everything fails with after Close.
func errClosed() error { return &link.Error{Kind: link.Closed} }
