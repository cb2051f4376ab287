// Package stream takes the bytes of a connection apart into transport messages and makes such bytes: a length in front of each message on TCP,
// binary messages after an HTTP upgrade on WebSocket (wire.md sections 1 and 3). It owns every bit of both, so that the suite can also send what
// no library would: frames without a mask, reserved bits, lengths without the bytes. It knows nothing of records.
package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// Transport names a transport.
type Transport string

// The transports.
const (
	TCP       Transport = "tcp"
	WebSocket Transport = "ws"
)

// Transports are all of them.
var Transports = []Transport{TCP, WebSocket}

// Limits bound what a parser keeps of a message that is not complete. The zero value keeps nothing: every message is then foreign.
type Limits struct {
	Message int // bytes of a transport message
	Head    int // bytes of an HTTP head
}

// Kind says what a piece of a stream is.
type Kind uint8

// The kinds of pieces.
const (
	// Message is a transport message. On WebSocket it may have come in several frames.
	Message Kind = iota + 1
	// Control is a WebSocket ping, pong or close.
	Control
	// Head is the head of an HTTP request or response.
	Head
	// Foreign is bytes that no end of the protocol accepts. Everything behind them is foreign too.
	Foreign
)

// Piece is a part of a stream.
type Piece struct {
	Kind    Kind
	Raw     []byte // the bytes as they were on the wire
	Payload []byte // of a message or a control frame, without a mask
	Opcode  byte   // of a control frame
}

// Parser takes one direction of a connection apart. It keeps at most a message of the largest size with what WebSocket puts around its frames, or
// the head of an upgrade. It is not safe for concurrent use.
type Parser struct {
	transport  Transport
	fromClient bool
	limits     Limits

	rest    []byte // bytes not taken apart yet
	foreign bool
	opened  bool   // the head of the upgrade is over
	inside  bool   // a WebSocket message was begun and has not ended
	joined  []byte // payload of it so far
	raw     []byte // bytes of it so far
}

// NewParser returns a parser for what a client sends, or for what is sent to it.
func NewParser(t Transport, fromClient bool, limits Limits) *Parser {
	return &Parser{transport: t, fromClient: fromClient, limits: limits, opened: t == TCP}
}

// Feed takes bytes and returns the pieces that are now complete. The pieces own their memory. However the bytes of a stream are cut, the
// pieces are the same, except that foreign bytes come as they arrive.
func (p *Parser) Feed(b []byte) []Piece {
	p.rest = append(p.rest, b...)
	var pieces []Piece
	for {
		piece, size, ok := p.next(p.rest)
		if !ok {
			break
		}
		p.rest = p.rest[size:]
		if piece.Kind != 0 {
			pieces = append(pieces, piece)
		}
	}
	p.rest = slices.Clone(p.rest)
	return pieces
}

// Pending returns the bytes that do not make a complete piece yet.
func (p *Parser) Pending() []byte { return slices.Concat(p.raw, p.rest) }

// next returns the piece at the start of b and how many bytes of b it takes; a piece without a kind was kept. It reports false when more bytes are
// needed.
func (p *Parser) next(b []byte) (Piece, int, bool) {
	switch {
	case len(b) == 0:
		return Piece{}, 0, false
	case p.foreign:
		return Piece{Kind: Foreign, Raw: slices.Clone(b)}, len(b), true
	case !p.opened:
		return p.head(b)
	case p.transport == TCP:
		return p.prefixed(b)
	}
	return p.frame(b)
}

// give makes the stream foreign from here on.
func (p *Parser) give(b []byte) (Piece, int, bool) {
	p.foreign = true
	raw := slices.Concat(p.raw, b)
	p.raw, p.joined, p.inside = nil, nil, false
	return Piece{Kind: Foreign, Raw: raw}, len(b), true
}

// PrefixBytes is the size of the length in front of a message on TCP (W-10).
const PrefixBytes = 4

func (p *Parser) prefixed(b []byte) (Piece, int, bool) {
	if len(b) < PrefixBytes {
		return Piece{}, 0, false
	}
	size := binary.BigEndian.Uint32(b)
	if uint64(size) > uint64(p.limits.Message) {
		return p.give(b)
	}
	end := PrefixBytes + int(size)
	if len(b) < end {
		return Piece{}, 0, false
	}
	raw := slices.Clone(b[:end])
	return Piece{Kind: Message, Raw: raw, Payload: raw[PrefixBytes:]}, end, true
}

// endOfHead ends the head of an HTTP request or response, and switching begins the one that accepts an upgrade.
var (
	endOfHead = []byte("\r\n\r\n")
	switching = []byte("HTTP/1.1 101 ")
)

func (p *Parser) head(b []byte) (Piece, int, bool) {
	end := bytes.Index(b, endOfHead)
	if end < 0 && len(b) <= p.limits.Head {
		return Piece{}, 0, false
	}
	if end < 0 || end+len(endOfHead) > p.limits.Head {
		return p.give(b)
	}
	end += len(endOfHead)
	p.opened = true
	// A response that refuses the upgrade is followed by a body, and the request behind it by nothing.
	p.foreign = !p.fromClient && !bytes.HasPrefix(b, switching)
	return Piece{Kind: Head, Raw: slices.Clone(b[:end])}, end, true
}

func (p *Parser) frame(b []byte) (Piece, int, bool) {
	h, ok := parseHeader(b)
	switch {
	case !ok:
		return Piece{}, 0, false
	case !p.accepts(h):
		return p.give(b)
	case uint64(len(b)-h.size) < h.length:
		return Piece{}, 0, false
	}
	end := h.size + int(h.length)
	payload := slices.Clone(b[h.size:end])
	mask(payload, h.key)
	if h.opcode >= opControl {
		return Piece{Kind: Control, Raw: slices.Clone(b[:end]), Payload: payload, Opcode: h.opcode}, end, true
	}
	p.raw = append(p.raw, b[:end]...)
	p.joined = append(p.joined, payload...)
	p.inside = !h.final
	if p.inside {
		return Piece{}, end, true
	}
	piece := Piece{Kind: Message, Raw: p.raw, Payload: p.joined}
	p.raw, p.joined = nil, nil
	return piece, end, true
}

// accepts reports whether a frame is one that the other end could take as part of a message or as a control frame (RFC 6455 section 5). Empty
// fragments are limited with the rest of the message, because each of them costs its header.
func (p *Parser) accepts(h header) bool {
	switch {
	case h.reserved != 0 || h.masked != p.fromClient:
		return false
	case h.opcode >= opControl:
		return h.final && h.length <= controlMax && h.opcode <= OpPong
	case p.inside != (h.opcode == OpContinuation), h.opcode != OpContinuation && h.opcode != OpBinary:
		return false
	}
	return h.length <= uint64(p.limits.Message-len(p.joined)) && len(p.raw) <= rawPerPayload*p.limits.Message
}

// rawPerPayload bounds what fragments cost: the bytes of a fragmented message on the wire are at most so many times the largest payload.
const rawPerPayload = 16

// ErrTooLarge says that something does not fit into the bound of its kind.
var ErrTooLarge = errors.New("stream: larger than its bound")
