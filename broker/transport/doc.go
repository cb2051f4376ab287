// Package transport carries transport messages over TCP and WebSocket (wire.md sections 1 and 3). It knows frames, sockets,
// buffers and admission; records, labels and everything above them belong to the session layer.
//
// A connection has one reader. It may be written to by one goroutine at a time, and interrupted from any.
package transport

import (
	"errors"
	"net"
	"time"

	"github.com/fitzwire/fitz/generated/go/wire"
)

// Names of the transports as they appear in metrics and configuration.
const (
	TCP       = "tcp"
	WebSocket = "websocket"
)

// ErrInterrupted is returned by a read or write that InterruptRead or InterruptWrite ended.
var ErrInterrupted = errors.New("interrupted")

// ErrTimeout is returned by a write whose time was over before everything was handed to the socket.
var ErrTimeout = errors.New("write timeout")

// ErrPeerClosed is returned by a read when the peer ended the connection in order: end of stream between two messages on TCP,
// a close frame on WebSocket.
var ErrPeerClosed = errors.New("closed by the peer")

// Violation is the error of a read that met something the protocol forbids. Reason is what the connection is closed with.
type Violation struct{ Reason wire.CloseReason }

// Error returns the text of the close reason.
func (v *Violation) Error() string { return v.Reason.Text }

// Hooks is told by a connection what happens while it reads. All methods are called from the reading goroutine.
type Hooks interface {
	// Received: bytes arrived, whatever they are (W-66).
	Received()
	// Waiting: the connection is about to wait for the socket, so that now is the time to send what is queued. begun says that
	// the first bytes of a transport message are here (W-30).
	Waiting(begun bool)
	// Pause and Resume stand around time in which the connection does not read because the broker has no room for it (W-81).
	Pause()
	Resume()
	// Ping: the peer sent a WebSocket ping that a pong with the same payload answers. The payload is valid during the call.
	Ping(payload []byte)
}

// Conn is one connection.
type Conn interface {
	// Transport is TCP or WebSocket.
	Transport() string
	// RemoteAddr is the address of the peer.
	RemoteAddr() net.Addr
	// Bind sets who is told about reading. It is called once, before the first read.
	Bind(h Hooks)
	// ReadMessage waits for one complete transport message and returns its payload, which stays valid until the next call. An
	// error is a *Violation, ErrPeerClosed, ErrInterrupted, or what the socket said.
	ReadMessage() ([]byte, error)
	// SetMaxMessage changes how many bytes a transport message may have (W-10, W-23), from the next message on: those of which bytes
	// have arrived already included. It is called before the first read, or by the reading goroutine between two calls of ReadMessage to
	// raise the bound.
	SetMaxMessage(n int)
	// HeaderSize is the number of bytes that the transport puts before a payload of that length.
	HeaderSize(payload int) int
	// AppendHeader appends those bytes.
	AppendHeader(dst []byte, payload int) []byte
	// AppendPong appends a whole frame that answers a ping; nothing where the transport has no pings.
	AppendPong(dst, payload []byte) []byte
	// AppendClose appends a whole frame that ends the connection and says why; nothing where the transport has no such frame.
	AppendClose(dst []byte, code uint16, text string) []byte
	// Write hands whole frames to the socket in one call (W-11). It returns how many bytes it took; fewer than len(p) come with
	// ErrTimeout, ErrInterrupted or what the socket said. After ErrTimeout the rest may be written by a later call. The timeout is
	// real time. Without one, 0, only ExpireWrite or InterruptWrite ends a call that the peer does not let go on.
	Write(p []byte, timeout time.Duration) (int, error)
	// ExpireWrite makes a Write without a timeout that is in progress, or about to begin, return ErrTimeout soon. A Write with a
	// timeout forgets it. It never blocks.
	ExpireWrite()
	// InterruptRead makes the current and every later ReadMessage return ErrInterrupted soon. It never blocks.
	InterruptRead()
	// InterruptWrite is the same for Write.
	InterruptWrite()
	// EndRead gives back what the last message and the bytes behind it hold of the budget of receive buffers. The reading goroutine calls
	// it when it reads no more.
	EndRead()
	// Linger ends the connection in order: it ends the sending side, reads off what the peer still sends, so that the peer gets
	// everything that was written, and closes when the peer has closed too, or after the given time or number of bytes. It must
	// not run together with ReadMessage.
	Linger(timeout time.Duration, bytes int)
	// Abort closes at once. It may be called more than once.
	Abort()
}
