package keeper

import (
	"context"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

// Key is what can be held once in a client: a route by an owner (L-99).
type Key struct{ Route, Owner string }

// Terms is what to hold and for how long. TTL and Wait are whole seconds (L-102).
type Terms struct {
	Key
	TTL    time.Duration
	Wait   time.Duration // how long to wait in line when another owner holds; 0: not at all
	Manual bool          // do not renew
}

// Grant is the answer of the peer to an acquire.
type Grant struct {
	Token uint64
	// Unsure says that the moment of the grant is not known: it came out of a line, or the session held the key before. It is then
	// confirmed by a renewal before anybody may rely on it (L-95, L-100).
	Unsure bool
}

// Session is one session of the peer, in which everything that was taken ends with it. Comparable.
type Session interface {
	// Acquire asks for the key. When given is true the request was given up and late is called exactly once, before or after the return,
	// on a goroutine that must not wait: with the grant and true when there was one, with false when there was none and will be none.
	// Otherwise late is never called.
	Acquire(ctx context.Context, terms Terms, wait time.Duration, late func(Grant, bool)) (grant Grant, given bool, err error)
	// Renew replaces the deadline of the peer and returns the token to use from now on (L-46).
	Renew(ctx context.Context, key Key, token uint64, ttl time.Duration) (uint64, error)
	Release(ctx context.Context, key Key, token uint64) error
	// Done returns a channel that is closed when the session has ended.
	Done() <-chan struct{}
	// KeptFor returns how long the peer surely keeps the session, and with it what was taken in it, although nothing should reach it any
	// more; 0 or less: it may have ended it, without a word that arrived. False: it keeps the session without end, or Done tells.
	KeptFor() (time.Duration, bool)
}

// Verdict is what an error of a Session means here.
type Verdict uint8

// The verdicts.
const (
	Other    Verdict = iota // nothing in particular; the outcome may be unknown
	Rejected                // nothing was applied
	Unsent                  // the session ended before the request was sent
	TimedOut                // the time to wait in line is over
	Taken                   // another owner holds, and no waiting was asked for
	IsFenced                // another token holds (L-98)
	IsGone                  // nobody holds, or somebody else does (L-98)
)

// Reason says why something is no longer held.
type Reason uint8

// The reasons.
const (
	Expired      Reason = iota // the local deadline has passed, or the peer says that it has
	Fenced                     // the peer says that another token holds
	Disconnected               // the session has ended
	Restarted                  // the session has ended because the process of the peer does
	ClientClosed               // the client was closed
)

// Options is what a Keeper is made of. Every field must be set.
type Options struct {
	Clock port.Clock
	Rand  port.Rand
	Hooks port.Hooks // may be empty

	// Session returns the session to ask, or waits for one.
	Session func(context.Context) (Session, error)
	Verdict func(error) Verdict

	RenewParts     int64   // a renewal is sent when one of so many parts of the ttl has passed (L-96)
	RenewJitter    float64 // spread of that moment
	MarginParts    int64   // the margin is one of so many parts of the ttl (L-95), between the following
	MarginMin      time.Duration
	MarginMax      time.Duration
	Retry          link.Backoff  // of failed renewals
	ReleaseTimeout time.Duration // of a RELEASE, when the ttl leaves so much
	WaitMax        time.Duration // the longest wait that one request can ask for (L-101)
	LineMax        int           // how many may wait for one key in this client

	// Errors that the Keeper finds by itself.
	Lost      func(Key, Reason, error) error
	Held      func(Key) error // somebody in this client holds or wants the key (L-99)
	WaitOver  func(Key) error // the time to wait in the local line is over
	Overload  func(Key) error // LineMax
	Late      func(Key) error // a RELEASE was not answered in time
	Closed    func() error    // the client was closed
	Released  error           // the handle was released
	Names     EventNames
	CloseWait time.Duration // for releases when the client is closed
}

// EventNames are the names of the events that a Keeper tells its hooks.
type EventNames struct{ Renewed, RenewFailed, Lost, ReleaseFailed, LateGrant string }

// margin is how much earlier than the peer this side counts something as expired (L-95).
func (o *Options) margin(ttl time.Duration) time.Duration {
	if mutant.On("sdk.no-margin") {
		return 0
	}
	return min(max(ttl/time.Duration(o.MarginParts), o.MarginMin), o.MarginMax)
}

// deadline is when something counts as expired here that was granted or renewed by a request sent at that instant (L-95).
func (o *Options) deadline(sent, ttl time.Duration) time.Duration { return sent + ttl - o.margin(ttl) }

// renewal is when to renew what was granted or renewed by a request sent at that instant (L-96).
func (o *Options) renewal(sent, ttl time.Duration) time.Duration {
	return sent + time.Duration(float64(ttl)/float64(o.RenewParts)*o.Rand.Spread(o.RenewJitter))
}
