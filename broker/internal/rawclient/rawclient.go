// Package rawclient is a scripted client for tests: it sends exactly the bytes it is told to, well-formed or not, over TCP or
// WebSocket, and checks what comes back. It shares no code with the transports of the broker.
package rawclient

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Transports that Dial knows.
const (
	TCP       = "tcp"
	WebSocket = "websocket"
)

// Transports are all of them, for tests that run over each.
var Transports = []string{TCP, WebSocket}

// patience is the usual Patience of a client: far more than a busy machine needs.
const patience = 2 * time.Minute

// Opcodes of RFC 6455.
const (
	OpContinuation = 0x0
	OpText         = 0x1
	OpBinary       = 0x2
	OpClose        = 0x8
	OpPing         = 0x9
	OpPong         = 0xA
)

// Client is one connection. Its methods fail the test on every surprise.
type Client struct {
	tb   testing.TB
	Conn net.Conn
	// Patience ends a read or write that hangs, so that a broken test fails instead of blocking.
	Patience  time.Duration
	r         *bufio.Reader
	websocket bool
}

// Dial connects to a listener of the broker.
func Dial(tb testing.TB, transport, address string) *Client {
	tb.Helper()
	nc, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		tb.Fatalf("dial %s: %v", address, err)
	}
	tb.Cleanup(func() { _ = nc.Close() })
	if transport == WebSocket {
		return Upgrade(tb, nc)
	}
	return New(tb, nc)
}

// New returns a client with length-prefixed messages over a connection.
func New(tb testing.TB, nc net.Conn) *Client {
	return &Client{tb: tb, Conn: nc, Patience: patience, r: bufio.NewReader(nc)}
}

// Upgrade makes a WebSocket of a connection.
func Upgrade(tb testing.TB, nc net.Conn, header ...string) *Client {
	tb.Helper()
	c := New(tb, nc)
	c.websocket = true
	response := c.Handshake(header...)
	if response.StatusCode != http.StatusSwitchingProtocols {
		tb.Fatalf("upgrade: %s", response.Status)
	}
	// The answer to the nonce of RFC 6455 section 1.3.
	if got := response.Header.Get("Sec-WebSocket-Accept"); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		tb.Fatalf("upgrade: Sec-WebSocket-Accept is %q", got)
	}
	return c
}

// Handshake sends an upgrade request with more header lines and returns the response. A line that is the name of a usual header
// and a colon with nothing behind it removes that header.
func (c *Client) Handshake(more ...string) *http.Response {
	c.tb.Helper()
	lines := []string{"Host: broker", "Upgrade: websocket", "Connection: Upgrade",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"}
	for _, line := range more {
		name, value, _ := strings.Cut(line, ":")
		kept := lines[:0]
		for _, l := range lines {
			if n, _, _ := strings.Cut(l, ":"); !strings.EqualFold(n, name) {
				kept = append(kept, l)
			}
		}
		lines = kept
		if value != "" {
			lines = append(lines, line)
		}
	}
	c.Raw([]byte("GET /ws HTTP/1.1\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"))
	return c.Response()
}

// Response reads an HTTP response without a body.
func (c *Client) Response() *http.Response {
	c.tb.Helper()
	c.patient()
	response, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.tb.Fatalf("response: %v", err)
	}
	_ = response.Body.Close()
	return response
}

func (c *Client) patient() { _ = c.Conn.SetDeadline(time.Now().Add(c.Patience)) }

// Raw sends bytes without any framing.
func (c *Client) Raw(p []byte) {
	c.tb.Helper()
	if err := c.TryRaw(p); err != nil {
		c.tb.Fatalf("write: %v", err)
	}
}

// TryRaw is Raw that returns the error.
func (c *Client) TryRaw(p []byte) error {
	c.patient()
	_, err := c.Conn.Write(p)
	return err
}

// Hex sends the bytes of a hexadecimal text, which may hold spaces, without any framing.
func (c *Client) Hex(text string) { c.tb.Helper(); c.Raw(Bytes(c.tb, text)) }

// Bytes returns the bytes of a hexadecimal text, which may hold spaces.
func Bytes(tb testing.TB, text string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		tb.Fatalf("%q: %v", text, err)
	}
	return b
}

// Framed returns one transport message as it stands on the wire.
func (c *Client) Framed(payload []byte) []byte {
	if c.websocket {
		return Frame(OpBinary, true, payload)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// Frame returns a masked WebSocket frame.
func Frame(opcode byte, final bool, payload []byte) []byte {
	first := opcode
	if final {
		first |= 0x80
	}
	frame := []byte{first}
	switch n := len(payload); {
	case n <= 125:
		frame = append(frame, 0x80|byte(n))
	case n <= 0xFFFF:
		frame = binary.BigEndian.AppendUint16(append(frame, 0x80|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 0x80|127), uint64(n))
	}
	mask := [4]byte{0x37, 0xfa, 0x21, 0x3d}
	frame = append(frame, mask[:]...)
	for i, b := range payload {
		frame = append(frame, b^mask[i%4])
	}
	return frame
}

// Record returns one encoded record.
func Record(typ wire.MessageType, value []byte) []byte {
	return append(codec.AppendRecordHeader(nil, uint16(typ), len(value)), value...)
}

// Encoder is a message of the wire package.
type Encoder interface {
	AppendValue(dst []byte) ([]byte, error)
}

// Encode returns the record of a message.
func Encode(tb testing.TB, typ wire.MessageType, message Encoder) []byte {
	tb.Helper()
	value, err := message.AppendValue(nil)
	if err != nil {
		tb.Fatalf("encode %v: %v", typ, err)
	}
	return Record(typ, value)
}

// Labelled returns a record behind the CORRELATE that labels it.
func Labelled(label uint64, record []byte) []byte {
	return append(Record(wire.TypeCorrelate, binary.BigEndian.AppendUint64(nil, label)), record...)
}

// Send sends records in one transport message.
func (c *Client) Send(records ...[]byte) {
	c.tb.Helper()
	c.Raw(c.Framed(bytes.Join(records, nil)))
}

// Request sends a message, labelled unless label is 0.
func (c *Client) Request(label uint64, typ wire.MessageType, message Encoder) {
	c.tb.Helper()
	record := Encode(c.tb, typ, message)
	if label != 0 {
		record = Labelled(label, record)
	}
	c.Send(record)
}

// ErrClosed is returned by Read at the end of the connection: EOF on TCP, a close frame on WebSocket.
type ErrClosed struct {
	Code uint16 // 0 on TCP
	Text string
}

func (e *ErrClosed) Error() string { return fmt.Sprintf("closed: %d %q", e.Code, e.Text) }

// Read returns the payload of the next transport message. Pongs are skipped.
func (c *Client) Read() ([]byte, error) {
	for {
		opcode, payload, err := c.ReadFrame()
		switch {
		case err != nil:
			return nil, err
		case opcode == OpBinary:
			return payload, nil
		case opcode == OpClose:
			closed := &ErrClosed{}
			if len(payload) >= 2 {
				closed.Code, closed.Text = binary.BigEndian.Uint16(payload), string(payload[2:])
			}
			return nil, closed
		case opcode != OpPong:
			return nil, fmt.Errorf("unexpected opcode %#x", opcode)
		}
	}
}

// ReadFrame returns the next frame. On TCP the opcode is always OpBinary.
func (c *Client) ReadFrame() (opcode byte, payload []byte, err error) {
	c.patient()
	if !c.websocket {
		var prefix [4]byte
		if _, err := io.ReadFull(c.r, prefix[:]); err != nil {
			return 0, nil, ended(err)
		}
		payload = make([]byte, binary.BigEndian.Uint32(prefix[:]))
		_, err = io.ReadFull(c.r, payload)
		return OpBinary, payload, err
	}
	var header [2]byte
	if _, err := io.ReadFull(c.r, header[:]); err != nil {
		return 0, nil, err
	}
	if header[0]&0xF0 != 0x80 || header[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("frame header %x: not final, reserved bits or masked", header)
	}
	size := uint64(header[1])
	if extended := map[uint64]int{126: 2, 127: 8}[size]; extended > 0 {
		var length [8]byte
		if _, err := io.ReadFull(c.r, length[8-extended:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(length[:])
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(c.r, payload)
	return header[0] & 0xF, payload, err
}

// ended makes an orderly end of TCP recognizable.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return &ErrClosed{}
	}
	return err
}

// Next returns the payload of the next transport message.
func (c *Client) Next() []byte {
	c.tb.Helper()
	payload, err := c.Read()
	if err != nil {
		c.tb.Fatalf("read: %v", err)
	}
	return payload
}

// Received is one record as it was received.
type Received struct {
	Label uint64
	Type  wire.MessageType
	Value []byte
}

// Receive returns the next record and checks that it comes as W-12 says: alone, or behind its CORRELATED.
func (c *Client) Receive() Received {
	c.tb.Helper()
	received, err := Split(c.Next())
	if err != nil {
		c.tb.Fatal(err)
	}
	return received
}

// Split takes the payload of a transport message of the broker apart.
func Split(payload []byte) (Received, error) {
	record, rest, err := codec.NextRecord(payload)
	var received Received
	if err == nil && wire.MessageType(record.Type) == wire.TypeCorrelated {
		received.Label = binary.BigEndian.Uint64(record.Value)
		record, rest, err = codec.NextRecord(rest)
	}
	if err != nil || len(rest) != 0 {
		return received, fmt.Errorf("message %x is not one record (%v)", payload, err)
	}
	received.Type, received.Value = wire.MessageType(record.Type), record.Value
	return received, nil
}

// Expect receives a record of that type and label and returns its value.
func (c *Client) Expect(label uint64, typ wire.MessageType) []byte {
	c.tb.Helper()
	received := c.Receive()
	if received.Type != typ || received.Label != label {
		c.tb.Fatalf("received %v labelled %d (%x), want %v labelled %d", received.Type, received.Label, received.Value, typ, label)
	}
	return received.Value
}

// ExpectHex receives a transport message and compares its payload with a hexadecimal text.
func (c *Client) ExpectHex(text string) {
	c.tb.Helper()
	if got, want := c.Next(), Bytes(c.tb, text); !bytes.Equal(got, want) {
		c.tb.Fatalf("received %x, want %x", got, want)
	}
}

// ExpectRefusal receives an error reply with that code and returns its text.
func (c *Client) ExpectRefusal(label uint64, typ wire.MessageType, code wire.Code) string {
	c.tb.Helper()
	value := c.Expect(label, typ)
	refusal, ok := wire.DecodeRefusal(value)
	if !ok || !refusal.HasCode || wire.Code(refusal.Code) != code {
		c.tb.Fatalf("reply %x is %+v (%v), want code %v", value, refusal, ok, code)
	}
	return refusal.Message
}

// ExpectClose checks that nothing but the end of the connection follows, for that reason where the transport can tell it.
func (c *Client) ExpectClose(reason wire.CloseReason) {
	c.tb.Helper()
	payload, err := c.Read()
	if err == nil {
		c.tb.Fatalf("read %x, want close %q", payload, reason.Text)
	}
	c.Check(err, reason)
}

// Check checks the error of a Read as ExpectClose does.
func (c *Client) Check(err error, reason wire.CloseReason) {
	c.tb.Helper()
	var closed *ErrClosed
	if !errors.As(err, &closed) {
		c.tb.Fatalf("read: %v, want close %q", err, reason.Text)
	}
	if c.websocket && (closed.Code != uint16(reason.WebSocket) || closed.Text != reason.Text) {
		c.tb.Fatalf("closed with %d %q, want %d %q", closed.Code, closed.Text, reason.WebSocket, reason.Text)
	}
	_ = c.Conn.Close()
}

// ExpectGone waits for the end of the connection in any form, and skips what comes before.
func (c *Client) ExpectGone() {
	c.tb.Helper()
	for {
		_, _, err := c.ReadFrame()
		var closed *ErrClosed
		if errors.As(err, &closed) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
			return
		}
		if err != nil {
			c.tb.Fatalf("read: %v, want the end of the connection", err)
		}
	}
}

// Connect opens a session with an empty token and returns the hello.
func (c *Client) Connect() wire.ServerHello {
	c.tb.Helper()
	c.Send(Record(wire.TypeConnect, nil))
	var hello wire.ServerHello
	if err := hello.DecodeValue(c.Expect(0, wire.TypeServerHello)); err != nil {
		c.tb.Fatalf("hello: %v", err)
	}
	return hello
}

// Negotiate sends a CLIENT_HELLO with the lifecycle bit.
func (c *Client) Negotiate() {
	c.tb.Helper()
	c.Send(Encode(c.tb, wire.TypeClientHello, &wire.ClientHello{
		Capabilities: wire.CapLifecycle, SDKName: "raw", SDKVersion: "1", SpecFingerprint: wire.SpecFingerprint}))
}

// Sync waits until the broker has executed everything that was sent, in a negotiated session without outstanding replies.
func (c *Client) Sync(nonce uint64) {
	c.tb.Helper()
	c.Request(0, wire.TypePing, &wire.Ping{Nonce: nonce})
	var pong wire.Pong
	if err := pong.DecodeValue(c.Expect(0, wire.TypePong)); err != nil || pong.Nonce != nonce {
		c.tb.Fatalf("pong %+v, %v; want nonce %d", pong, err, nonce)
	}
}
