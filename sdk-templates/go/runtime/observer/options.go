package observer

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/pager"
)

// NoCoalesce is the Coalesce of 0 ms: the zero value of the field means its default.
const NoCoalesce time.Duration = -1

// Options are the options of section 1. What is zero stands for its default.
type Options struct {
	ExpectedTTL     time.Duration // shortest ttl that the observed leases use; 0: not given
	ReconcileMin    time.Duration
	ReconcileMax    time.Duration
	ReconcileJitter float64 // relative
	PageSize        int     // 0: the peer's default
	ChangeBuffer    int     // events per consumer
	Coalesce        time.Duration
	RepairLimit     int // exact reads per round, and in flight
	IncludeRenewals bool
	MaxItems        int
	ListTimeout     time.Duration // per request
}

// Limits are the bounds of an observer that are no options.
type Limits struct {
	TTLMax       time.Duration // of ExpectedTTL
	PageMax      int           // of PageSize
	Dirty        int           // routes that are remembered as notified, outside of a pass
	Consumers    int
	CloseTimeout time.Duration
}

// Ranges of options that no bound of the specification names (section 1).
const (
	ttlMin           = time.Second
	reconcileFloor   = time.Second
	reconcileMinCap  = time.Hour
	reconcileMaxCap  = 24 * time.Hour
	jitterMax        = 0.5
	changeBufferCap  = 65_536
	coalesceCap      = 1000 * time.Millisecond
	repairLimitCap   = 1024
	maxItemsCap      = 10_000_000
	listTimeoutFloor = 100 * time.Millisecond
	listTimeoutCap   = 10 * time.Minute
)

// OptionError names an option that is out of its range (OB-04).
type OptionError struct {
	Option string // as in the specification
	Value  any
	Valid  string
}

// Error says what is wrong in one line.
func (e *OptionError) Error() string {
	return fmt.Sprintf("%s is %v; valid: %s", e.Option, e.Value, e.Valid)
}

// Complete returns the options with the defaults in place of what is not set, or the first *OptionError.
func (o Options) Complete(defaults Options, limits Limits) (Options, error) {
	set(&o.ReconcileMin, defaults.ReconcileMin)
	set(&o.ReconcileMax, defaults.ReconcileMax)
	set(&o.ChangeBuffer, defaults.ChangeBuffer)
	set(&o.RepairLimit, defaults.RepairLimit)
	set(&o.MaxItems, defaults.MaxItems)
	set(&o.ListTimeout, defaults.ListTimeout)
	set(&o.ReconcileJitter, defaults.ReconcileJitter)
	set(&o.Coalesce, defaults.Coalesce)
	if o.Coalesce == NoCoalesce {
		o.Coalesce = 0
	}
	return o, o.check(limits)
}

func set[V comparable](v *V, value V) {
	var zero V
	if *v == zero {
		*v = value
	}
}

func (o Options) check(limits Limits) error {
	if o.ExpectedTTL != 0 {
		if err := within("expected_ttl", o.ExpectedTTL, ttlMin, limits.TTLMax); err != nil {
			return err
		}
	}
	if !(o.ReconcileJitter > 0 && o.ReconcileJitter <= jitterMax) { // not a number is refused too
		return &OptionError{"reconcile_jitter", o.ReconcileJitter, fmt.Sprintf("above 0, at most %v", jitterMax)}
	}
	for _, err := range []error{
		within("reconcile_min", o.ReconcileMin, reconcileFloor, reconcileMinCap),
		within("reconcile_max", o.ReconcileMax, o.ReconcileMin, reconcileMaxCap),
		within("page_size", o.PageSize, 0, limits.PageMax),
		within("change_buffer", o.ChangeBuffer, 1, changeBufferCap),
		within("coalesce", o.Coalesce, 0, coalesceCap),
		within("repair_limit", o.RepairLimit, 1, repairLimitCap),
		within("max_items", o.MaxItems, 1, maxItemsCap),
		within("list_timeout", o.ListTimeout, listTimeoutFloor, listTimeoutCap),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func within[V int | time.Duration](name string, v, low, high V) error {
	if v >= low && v <= high {
		return nil
	}
	return &OptionError{name, v, fmt.Sprintf("%v to %v", low, high)}
}

// Interval is the reconcile interval: clamp(expected_ttl / 2, reconcile_min, reconcile_max), and reconcile_max without expected_ttl
// (OB-40).
func (o Options) Interval() time.Duration {
	if o.ExpectedTTL == 0 {
		return o.ReconcileMax
	}
	return min(max(o.ExpectedTTL/2, o.ReconcileMin), o.ReconcileMax)
}

// Wait is the time from one full pass to the next: interval × (1 + u), u uniform in [−jitter, +jitter]. random is uniform in [0, 1)
// (OB-41).
func (o Options) Wait(random float64) time.Duration {
	u := o.ReconcileJitter * (2*random - 1)
	if mutant.On("observer.no-jitter") {
		u = 0
	}
	return time.Duration(math.Round(float64(o.Interval()) * (1 + u)))
}

// Class is what an error means for an observer.
type Class uint8

// The classes.
const (
	Again       Class = iota // another attempt may succeed, after a delay (OB-43)
	CursorLost               // the peer does not know the cursor any more: start the pass again (OB-16)
	SessionGone              // the session is lost, which its own event tells as well
	Never                    // no new attempt can succeed: the observer fails (OB-37)
)

// Operation is a request of an observer.
type Operation uint8

// The operations.
const (
	Subscribe Operation = iota
	List
)

// Sink receives what the peer sends for a registration. Its methods are called by the goroutine that reads, in the order of arrival, and
// return at once; calls after the registration was left are ignored.
type Sink interface {
	// Notify: the held set changed at the route (OB-11).
	Notify(route string)
	// Malformed: a notification did not decode.
	Malformed(err error)
	// Ended: the peer removed the registration (SUB_ENDED) without enqueueing so many notifications.
	Ended(dropped uint64, err error)
}

// Registration is an acknowledged subscription.
type Registration interface {
	// Leave sends UNSUBSCRIBE if nobody else uses the registration (OB-18), and waits for its reply at most until ctx ends.
	Leave(ctx context.Context) error
}

// Session is one session of the client below. Its requests fail after its end; none of them waits for another session, so that whatever
// they answer belongs to the generation that asked (OB-31). Its methods may be called from any goroutine.
type Session[T any] interface {
	// Subscribe sends SUBSCRIBE and returns when it succeeded. Notifications reach the sink from the arrival of the success on. When ctx
	// ends first, the session sees to it that no registration stays behind.
	Subscribe(ctx context.Context, sink Sink) (Registration, error)
	// List asks for a page of the selector, the first one when the cursor is zero.
	List(ctx context.Context, after pager.Cursor) (pager.Page[T], error)
	// Read asks for the first page, of one item, of the exact route (OB-20).
	Read(ctx context.Context, route string) (pager.Page[T], error)
	// Lifetime names the process of the broker; empty: it announces none.
	Lifetime() string
	// Pipelined reports whether several requests of one kind can be in flight.
	Pipelined() bool
}

// Ports are what an observer needs of its surroundings besides sessions. All functions may be called from any goroutine.
type Ports struct {
	Now    func() time.Duration                                // monotonic
	After  func(d time.Duration, f func()) (stop func() bool)  // calls f in another goroutine
	Random func() float64                                      // uniform in [0, 1)
	Wall   func() time.Time                                    // for people only (OB-46)
	Enter  func(ctx context.Context) (leave func(), err error) // a place for a listing of more than one page (OB-29)
	Class  func(Operation, error) Class                        // what an error of a request means

	// PassDelay and FailureDelay are the backoffs of OB-42 and OB-43: the delay before attempt number attempt, counted from 0.
	PassDelay    func(attempt int, random float64) time.Duration
	FailureDelay func(attempt int, random float64) time.Duration

	// Moved is told every change of the state or its reason, by the task; it must return at once. Nil: nobody is.
	Moved func(state State, reason Reason, err error)
}

// Items tells an observer what it must know of its items.
type Items[T any] struct {
	Route       func(T) string                         // the route in canonical form
	Matches     func(route string) bool                // whether the selector matches
	Point       bool                                   // the selector matches one route at most
	SameHolding func(a, b T) bool                      // incarnation, owner and acquisition are equal (OB-53)
	SameRenewal func(a, b T) bool                      // everything that a renewal changes, apart from the remaining time, is equal
	Aged        func(item T, by time.Duration) T       // the item with so much less time left (OB-52)
	TooMany     error                                  // obs.view_too_large
	Violation   func(reason string, cause error) error // protocol.violation
	Closed      error                                  // conn.closed
}
