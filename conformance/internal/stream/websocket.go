package stream

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Opcodes of RFC 6455 section 5.2.
const (
	OpContinuation = 0x0
	OpText         = 0x1
	OpBinary       = 0x2
	OpClose        = 0x8
	OpPing         = 0x9
	OpPong         = 0xA

	opControl = 0x8 // this one and those above it
)

// Bits and values of a frame header (RFC 6455 section 5.2).
const (
	finalBit      = 0x80
	reservedBits  = 0x70
	opcodeBits    = 0x0F
	maskBit       = 0x80
	lengthBits    = 0x7F
	length16      = 126
	length64      = 127
	length16Max   = 0xFFFF
	controlMax    = 125
	maskBytes     = 4
	headerBytes   = 2 + 8 + maskBytes
	closeCodeSize = 2
)

// fixedKey is the masking key of what the suite sends as a client. It is fixed so that equal runs have equal bytes; a key that nobody can foresee
// protects intermediaries against chosen bytes, and there are none on a loopback.
var fixedKey = [maskBytes]byte{0x5A, 0xC3, 0x0F, 0x96}

// Frame is one WebSocket frame to be sent, right or wrong. The zero value with an opcode and a payload is a final frame without a mask.
type Frame struct {
	Opcode   byte
	More     bool // not the last frame of its message
	Reserved byte // reserved bits, in their place: 0x40, 0x20, 0x10
	Masked   bool
	Payload  []byte
	// Length is declared instead of the size of the payload when it is above zero.
	Length uint64
}

// Append appends the frame.
func (f Frame) Append(dst []byte) []byte {
	first := f.Opcode&opcodeBits | f.Reserved&reservedBits
	if !f.More {
		first |= finalBit
	}
	second := byte(0)
	if f.Masked {
		second = maskBit
	}
	length := uint64(len(f.Payload))
	if f.Length > 0 {
		length = f.Length
	}
	dst = append(dst, first)
	switch {
	case length < length16:
		dst = append(dst, second|byte(length))
	case length <= length16Max:
		dst = binary.BigEndian.AppendUint16(append(dst, second|length16), uint16(length))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, second|length64), length)
	}
	if !f.Masked {
		return append(dst, f.Payload...)
	}
	dst = append(dst, fixedKey[:]...)
	start := len(dst)
	dst = append(dst, f.Payload...)
	mask(dst[start:], fixedKey)
	return dst
}

// AppendMessage appends a transport message as a peer sends it: with its length on TCP, in one binary frame on WebSocket, masked when a client
// sends it.
func AppendMessage(dst []byte, t Transport, fromClient bool, payload []byte) []byte {
	if t == TCP {
		return append(binary.BigEndian.AppendUint32(dst, uint32(len(payload))), payload...)
	}
	return Frame{Opcode: OpBinary, Masked: fromClient, Payload: payload}.Append(dst)
}

// AppendDeclared appends a transport message that declares another size than it has: what follows it is read as part of it, or it ends early.
func AppendDeclared(dst []byte, t Transport, fromClient bool, payload []byte, declared uint64) []byte {
	if t == TCP {
		return append(binary.BigEndian.AppendUint32(dst, uint32(min(declared, 1<<32-1))), payload...)
	}
	return Frame{Opcode: OpBinary, Masked: fromClient, Payload: payload, Length: declared}.Append(dst)
}

// ClosePayload returns the payload of a close frame; code 0 makes an empty one. The text is cut to what fits.
func ClosePayload(code uint16, text string) []byte {
	if code == 0 {
		return nil
	}
	text = text[:min(len(text), controlMax-closeCodeSize)]
	return append(binary.BigEndian.AppendUint16(nil, code), text...)
}

// ParseClose returns code and text of a close frame; code 0 when it has none.
func ParseClose(payload []byte) (code uint16, text string) {
	if len(payload) < closeCodeSize {
		return 0, ""
	}
	return binary.BigEndian.Uint16(payload), string(payload[closeCodeSize:])
}

// header is the header of a frame that was received.
type header struct {
	final, masked    bool
	reserved, opcode byte
	length           uint64 // as declared
	key              [maskBytes]byte
	size             int // of the header in bytes
}

// parseHeader reports false when the header is not complete.
func parseHeader(b []byte) (header, bool) {
	if len(b) < 2 {
		return header{}, false
	}
	h := header{final: b[0]&finalBit != 0, reserved: b[0] & reservedBits, masked: b[1]&maskBit != 0, opcode: b[0] & opcodeBits, size: 2}
	extended := 0
	switch n := b[1] & lengthBits; n {
	case length16:
		extended = 2
	case length64:
		extended = 8
	default:
		h.length = uint64(n)
	}
	if len(b) < h.size+extended {
		return header{}, false
	}
	for _, digit := range b[h.size : h.size+extended] {
		h.length = h.length<<8 | uint64(digit)
	}
	h.size += extended
	if !h.masked {
		return h, true
	}
	if len(b) < h.size+maskBytes {
		return header{}, false
	}
	h.size += copy(h.key[:], b[h.size:])
	return h, true
}

// mask adds or removes a mask. A key of zeros changes nothing.
func mask(payload []byte, key [maskBytes]byte) {
	for i := range payload {
		payload[i] ^= key[i%maskBytes]
	}
}

// UpgradeRequest returns the head that asks for a WebSocket (RFC 6455 section 4.1). Further header lines are "Name: value".
func UpgradeRequest(host, path string, lines ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n",
		path, host, upgradeKey)
	for _, line := range lines {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// upgradeKey is the nonce of every upgrade of the suite, which is the one of RFC 6455 section 1.3.
const upgradeKey = "dGhlIHNhbXBsZSBub25jZQ=="

// acceptOf returns the proof that an upgrade was understood (RFC 6455 section 4.2.2).
func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// UpgradeError is a refused upgrade.
type UpgradeError struct {
	Status int // HTTP status
	Detail string
}

func (e *UpgradeError) Error() string {
	return fmt.Sprintf("stream: the upgrade was answered with status %d: %s", e.Status, e.Detail)
}

// CheckUpgrade looks at the head of the response to UpgradeRequest. A refusal is an *UpgradeError.
func CheckUpgrade(head []byte) error {
	response, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), nil)
	if err != nil {
		return fmt.Errorf("stream: response to an upgrade: %w", err)
	}
	_ = response.Body.Close()
	switch {
	case response.StatusCode != http.StatusSwitchingProtocols:
		return &UpgradeError{Status: response.StatusCode, Detail: response.Status}
	case response.Header.Get("Sec-WebSocket-Accept") != acceptOf(upgradeKey):
		return &UpgradeError{Status: response.StatusCode, Detail: "wrong Sec-WebSocket-Accept"}
	}
	return nil
}

// AnswerUpgrade returns the head that accepts the upgrade which a client asked for. An error means that it asked for none.
func AnswerUpgrade(head []byte) ([]byte, error) {
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return nil, fmt.Errorf("stream: upgrade: %w", err)
	}
	key := request.Header.Get("Sec-WebSocket-Key")
	switch {
	case !strings.EqualFold(request.Header.Get("Upgrade"), "websocket"), request.Header.Get("Sec-WebSocket-Version") != "13":
		return nil, errors.New("stream: the request asks for no WebSocket of version 13")
	case key == "":
		return nil, errors.New("stream: the request has no Sec-WebSocket-Key")
	}
	return RefuseUpgrade(http.StatusSwitchingProtocols, "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Accept: "+acceptOf(key)), nil
}

// RefuseUpgrade returns the head of a response with a status and header lines.
func RefuseUpgrade(status int, lines ...string) []byte {
	var b bytes.Buffer
	_, _ = fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	for _, line := range lines {
		_, _ = io.WriteString(&b, line+"\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// Path is the path of WebSockets (W-20).
const Path = "/ws"
