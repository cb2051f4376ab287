// Package peer holds what the generated dispatch and the domains see of a session: an interface and two small values.
// It is a leaf, so that domains, dispatch and the session layer can meet here without knowing each other.
package peer

import (
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Call identifies one request while it is handled and until its last reply (W-41, W-51).
type Call struct {
	Type wire.MessageType
	// Label is the correlation id of the request; 0 means that the request was not labelled.
	Label uint64
}

// NotifyResult says what became of a push.
type NotifyResult uint8

// Results of Session.Notify.
const (
	// Enqueued means that the frame is in the outbound queue of the session.
	Enqueued NotifyResult = iota
	// Full means that the NOTIFY budget of the session has no room. Nothing was enqueued; what follows is up to the domain (W-83).
	Full
	// Closing means that the session ends. Nothing was enqueued and nothing will be.
	Closing
)

// String names the result for logs and tests.
func (r NotifyResult) String() string {
	switch r {
	case Enqueued:
		return "enqueued"
	case Full:
		return "full"
	case Closing:
		return "closing"
	default:
		return "unknown"
	}
}

// Session is what dispatch and the domains see of a session. All methods may be called from any goroutine and never block
// on I/O (L-91, W-84). Values and messages are copied before a method returns.
type Session interface {
	// Number is the private number of the session. It is never shown to anybody (L-12).
	Number() uint64
	// Incarnation is the opaque number that stands for the session in LIST and in the hello (L-13). Never 0.
	Incarnation() uint64
	// Family is the isolation key of the session.
	Family() uint32
	// Negotiated reports whether a CLIENT_HELLO with the lifecycle bit was processed (W-62).
	Negotiated() bool
	// Authorize reports whether one single grant of the session with that access contains everything that sel can match.
	Authorize(level wire.AccessLevel, sel pattern.Selector) bool
	// AuthorizeRoute is Authorize for one concrete route.
	AuthorizeRoute(level wire.AccessLevel, r pattern.Route) bool
	// Reply enqueues a reply record of call, labelled when the call is. False: the session is closing and nothing was
	// enqueued, so that the caller can undo what the reply would have promised (L-81).
	Reply(call Call, value []byte) bool
	// Refuse enqueues an error reply in the form of the operation (errors.md section 5). The message is cut to
	// error_message_max. Same result as Reply.
	Refuse(call Call, code wire.Code, message string) bool
	// Wait marks the label of call as in flight beyond this request (a queued ACQUIRE, W-54). It is called before the reply
	// that tells the client that it waits. False: too many labels are in flight (W-56) or the session is closing already;
	// in both cases the session closes and the request must not wait.
	Wait(call Call) bool
	// Settle enqueues the last, deferred reply of a waiting call outside the answers budget (W-80), and frees its label.
	// False as Reply.
	Settle(call Call, value []byte) bool
	// SettleRefusal is Settle with an error reply.
	SettleRefusal(call Call, code wire.Code, message string) bool
	// Notify enqueues one push against the NOTIFY budget.
	Notify(typ wire.MessageType, value []byte) NotifyResult
	// EndRegistration enqueues SUB_ENDED, outside the answers budget (W-80). It does nothing in a session that is not
	// negotiated: such a session is closed by the domain instead (W-83).
	EndRegistration(domain uint8, id uint64, code wire.Code, dropped uint64, reason string)
	// Close starts closing the session for that reason; it returns at once and only the first reason counts. CloseSession of
	// every domain follows (W-36).
	Close(reason wire.CloseReason)
}
