package link

import (
	"context"
	"errors"
	"fmt"
)

// Kind says what went wrong on this side of the connection.
type Kind uint8

// The kinds of errors.
const (
	Invalid   Kind = iota + 1 // an address, an option or a request is not usable; nothing was sent
	Refused                   // the connection could not be opened
	Rejected                  // the peer ended the connection instead of opening the session
	Lost                      // the connection ended
	Closed                    // Close was called
	Timeout                   // no answer in time
	Overload                  // too many requests wait to be sent
	Violation                 // the peer sent something malformed or impossible
)

var kindNames = [...]string{
	Invalid:   "invalid",
	Refused:   "connection refused",
	Rejected:  "connection rejected",
	Lost:      "connection lost",
	Closed:    "connection closed",
	Timeout:   "request timeout",
	Overload:  "too many requests",
	Violation: "protocol violation",
}

// String names the kind for people.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return "unknown"
}

// Error is every error that this package makes, apart from context errors, which are returned as they are.
type Error struct {
	Kind   Kind
	Sent   bool   // the request may have reached the peer, so that its outcome is unknown
	Reason string // for people
	Err    error  // cause, or nil
}

// errTimeout is the cause of what took too long on the clock of a session. It is no error of a context, so that nobody takes it for the end
// of the caller's own.
var errTimeout = errors.New("timeout")

// Error describes the error in one line.
func (e *Error) Error() string {
	text := e.Kind.String()
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the cause, unless that is the error of a context: such a context is never that of the caller, whose error is returned as it
// is, so that nobody may take this one for their own cancellation (errors.md section 4). Its text is in that of e.
func (e *Error) Unwrap() error {
	if isContext(e.Err) {
		return nil
	}
	return e.Err
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// IsKind reports whether err is an *Error of that kind.
func IsKind(err error, kind Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == kind
}

// GivenUp reports whether an error of Call says that the request was given up, which is when Request.Late is called.
func GivenUp(err error) bool {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind == Timeout
	}
	return isContext(err)
}

func invalid(format string, args ...any) *Error {
	return &Error{Kind: Invalid, Reason: fmt.Sprintf(format, args...)}
}

func violation(reason string, cause error) *Error {
	return &Error{Kind: Violation, Reason: reason, Err: cause}
}
