// Package endpoint is one end of a connection without any behaviour of its own: it writes what it is told to, right or wrong, reads what comes, and
// records both. Raw peers are clients of it, scripted brokers are servers.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Endpoint is one end of a connection. One goroutine may read while others write.
type Endpoint struct {
	codec     trace.Codec
	log       *trace.Log
	number    int
	transport stream.Transport
	client    bool
	socket    *net.TCPConn
	parser    *stream.Parser
	buf       []byte

	writing chan struct{} // holds one value while somebody writes
}

// New returns the end of a connection. Number tells it from others in the log.
func New(codec trace.Codec, log *trace.Log, number int, t stream.Transport, client bool, socket *net.TCPConn) *Endpoint {
	limits := stream.Limits{
		Message: int(max(codec.Bound("frame_recv_max"), codec.Bound("sdk_frame_recv_max"))),
		Head:    int(codec.Bound("http_header_bytes_max")),
	}
	return &Endpoint{
		codec: codec, log: log, number: number, transport: t, client: client, socket: socket,
		parser: stream.NewParser(t, !client, limits), buf: make([]byte, codec.Bound("frame_send_max")),
		writing: make(chan struct{}, 1),
	}
}

// Sends returns the direction of what this end sends.
func (e *Endpoint) Sends() oracle.Direction {
	if e.client {
		return oracle.Up
	}
	return oracle.Down
}

// Receives returns the direction of what this end receives.
func (e *Endpoint) Receives() oracle.Direction {
	if e.client {
		return oracle.Down
	}
	return oracle.Up
}

// WebSocket reports whether the connection is one.
func (e *Endpoint) WebSocket() bool { return e.transport == stream.WebSocket }

// Message sends a transport message and records its frames.
func (e *Endpoint) Message(ctx context.Context, payload []byte) error {
	return e.wire(ctx, trace.Split(e.codec, e.Sends(), payload), stream.AppendMessage(nil, e.transport, e.client, payload), 0)
}

// Declared sends a transport message that declares another size than it has.
func (e *Endpoint) Declared(ctx context.Context, payload []byte, size uint64) error {
	entry := trace.Entry{Kind: trace.Bytes, Bytes: payload, Note: fmt.Sprintf("declared as %d bytes", size)}
	return e.wire(ctx, []trace.Entry{entry}, stream.AppendDeclared(nil, e.transport, e.client, payload, size), 0)
}

// Frame sends a WebSocket frame.
func (e *Endpoint) Frame(ctx context.Context, f stream.Frame) error {
	if !e.WebSocket() {
		return errors.New("endpoint: TCP has no such frames")
	}
	entry := trace.Entry{Kind: trace.Bytes, Bytes: f.Payload, Note: fmt.Sprintf("WebSocket frame with opcode %d", f.Opcode)}
	if name, ok := controlNames[f.Opcode]; ok {
		entry = trace.Entry{Kind: trace.Control, Message: name, Bytes: f.Payload}
	}
	return e.wire(ctx, []trace.Entry{entry}, f.Append(nil), 0)
}

// Raw writes bytes to the stream as they are, in writes of chunk bytes; 0 writes them at once.
func (e *Endpoint) Raw(ctx context.Context, b []byte, chunk int) error {
	return e.wire(ctx, []trace.Entry{{Kind: trace.Bytes, Bytes: slices.Clone(b)}}, b, chunk)
}

// Head writes the head of an upgrade.
func (e *Endpoint) Head(ctx context.Context, b []byte) error {
	return e.wire(ctx, []trace.Entry{{Kind: trace.Head, Bytes: b}}, b, 0)
}

// wire writes. When ctx ends meanwhile the rest is not written, and the connection is of no more use.
func (e *Endpoint) wire(ctx context.Context, entries []trace.Entry, b []byte, chunk int) error {
	if ctx.Err() != nil {
		return fmt.Errorf("endpoint: write: %w", context.Cause(ctx))
	}
	select {
	case e.writing <- struct{}{}:
		defer func() { <-e.writing }()
	case <-ctx.Done():
		return fmt.Errorf("endpoint: write: %w", context.Cause(ctx))
	}
	stop := context.AfterFunc(ctx, func() { _ = e.socket.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	group := 0
	if len(entries) > 0 && entries[0].Kind == trace.Frame {
		group = e.log.Group()
	}
	refs := make([]trace.Ref, 0, len(entries))
	for _, entry := range entries {
		entry.Conn, entry.Dir, entry.Group, entry.Fate = e.number, e.Sends(), group, trace.Delivered
		refs = append(refs, e.log.Add(entry))
	}
	if chunk <= 0 {
		chunk = max(len(b), 1)
	}
	for part := range slices.Chunk(b, chunk) {
		if _, err := e.socket.Write(part); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			for _, ref := range refs {
				e.log.Settle(ref, trace.Lost, "")
			}
			return fmt.Errorf("endpoint: write: %w", err)
		}
	}
	return nil
}

var controlNames = map[byte]string{stream.OpPing: "ping", stream.OpPong: "pong", stream.OpClose: "close"}

// Received is something that was read.
type Received struct {
	trace.Entry
	Record oracle.Record // of a frame
	Opcode byte          // of a WebSocket control frame
}

// Read waits for bytes and returns what is now complete. The error is io.EOF at the end of the stream and ErrReset when the other side has reset the
// connection; what was incomplete is recorded then.
func (e *Endpoint) Read() ([]Received, error) {
	n, err := e.socket.Read(e.buf)
	var out []Received
	for _, piece := range e.parser.Feed(e.buf[:n]) {
		out = append(out, e.received(piece)...)
	}
	if err == nil {
		return out, nil
	}
	if rest := e.parser.Pending(); len(rest) > 0 {
		e.add(trace.Entry{Kind: trace.Bytes, Bytes: rest, Note: "incomplete at the end of the stream"})
	}
	switch {
	case errors.Is(err, io.EOF):
		e.add(trace.Entry{Kind: trace.Event, Message: "FIN"})
		return out, io.EOF
	case errors.Is(err, syscall.ECONNRESET):
		e.add(trace.Entry{Kind: trace.Event, Message: "RST"})
		return out, ErrReset
	}
	return out, err
}

// ErrReset says that the other side has reset the connection.
var ErrReset = errors.New("endpoint: the connection was reset")

// received records a piece.
func (e *Endpoint) received(piece stream.Piece) []Received {
	switch piece.Kind {
	case stream.Message:
		return e.frames(piece.Payload)
	case stream.Control:
		entry := trace.Entry{Kind: trace.Control, Message: controlNames[piece.Opcode], Bytes: piece.Payload}
		if piece.Opcode == stream.OpClose {
			code, text := stream.ParseClose(piece.Payload)
			entry.Note = fmt.Sprintf("%d %q", code, text)
		}
		return []Received{{Entry: e.add(entry), Opcode: piece.Opcode}}
	case stream.Head:
		return []Received{{Entry: e.add(trace.Entry{Kind: trace.Head, Bytes: piece.Raw})}}
	}
	return []Received{{Entry: e.add(trace.Entry{Kind: trace.Bytes, Bytes: piece.Raw, Note: "no message of this transport"})}}
}

func (e *Endpoint) frames(payload []byte) []Received {
	group := e.log.Group()
	var out []Received
	for _, entry := range trace.Split(e.codec, e.Receives(), payload) {
		entry.Group = group
		r := Received{Entry: e.add(entry)}
		if entry.Kind == trace.Frame {
			r.Record, _ = e.codec.Decode(e.Receives(), entry.Record)
			r.Record.Label = entry.Label
		}
		out = append(out, r)
	}
	return out
}

func (e *Endpoint) add(entry trace.Entry) trace.Entry {
	entry.Conn, entry.Dir, entry.Fate = e.number, e.Receives(), trace.Delivered
	return e.log.Get(e.log.Add(entry))
}

// Event records something about the connection.
func (e *Endpoint) Event(what string) {
	e.log.Add(trace.Entry{Conn: e.number, Kind: trace.Event, Dir: e.Sends(), Message: what, Fate: trace.Delivered})
}

// CloseWrite tells the other side that nothing more comes (FIN).
func (e *Endpoint) CloseWrite() {
	_ = e.socket.CloseWrite()
	e.Event("FIN")
}

// Reset ends the connection with RST.
func (e *Endpoint) Reset() {
	_ = e.socket.SetLinger(0)
	_ = e.socket.Close()
	e.Event("RST")
}

// Close ends the connection.
func (e *Endpoint) Close() { _ = e.socket.Close() }
