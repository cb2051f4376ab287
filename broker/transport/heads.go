package transport

import (
	"encoding/binary"
	"math"

	"github.com/fitzwire/fitz/generated/go/wire"
)

// Parts of the first two bytes of a WebSocket frame (RFC 6455 section 5.2).
const (
	finalBit   = 0x80
	reserved   = 0x70
	opcodeBits = 0x0F
	controlBit = 0x08
	maskBit    = 0x80
	lengthBits = 0x7F

	opContinuation = 0x0
	opBinary       = 0x2

	length16 = 126 // the length stands in the next two bytes
	length64 = 127 // the length stands in the next eight bytes
	maskSize = 4
	headMax  = 2 + 8 + maskSize
)

// heads follows the frames of a WebSocket on their way to the parser and judges every announced length at the head, before anything of
// the payload has come (D-1): the parser notices a message that is too large only when too much of it is here, and takes lengths in more
// bytes than they need, which RFC 6455 section 5.2 forbids (W-23). Every other mistake is left to the parser, which refuses it at the
// head too.
type heads struct {
	max     int // bytes of a message
	head    [headMax]byte
	have    uint8 // bytes of head that have come
	open    bool  // a fragmented message has begun and not ended
	refused bool  // the parser will not get over what it has been given
	message int   // payload bytes that the message so far has announced
	left    int   // payload bytes of the frame that have not come
}

// follow looks at the next bytes. It returns how many of them the parser may have, and a violation when a head behind those must not
// get there.
func (h *heads) follow(p []byte) (pass int, violation *Violation) {
	for rest := p; len(rest) > 0 && !h.refused; {
		if h.left > 0 {
			n := min(h.left, len(rest))
			h.left -= n
			rest = rest[n:]
			continue
		}
		begin := len(p) - len(rest)
		for len(rest) > 0 {
			h.head[h.have] = rest[0]
			h.have++
			rest = rest[1:]
			if complete, violation := h.judge(); violation != nil {
				return begin, violation
			} else if complete {
				break
			}
		}
	}
	return len(p), nil
}

// mistake reports whether so far the bytes violate something that is not left to the parser. The frame before them is complete.
func (h *heads) mistake(p []byte) *Violation {
	ahead := *h
	_, violation := ahead.follow(p)
	return violation
}

// judge looks at the head as far as it has come, each time a byte was added. complete says that the payload follows.
func (h *heads) judge() (complete bool, violation *Violation) {
	b := h.head[:h.have]
	if len(b) < 2 {
		return false, nil
	}
	before := 2 // the mask
	switch b[1] & lengthBits {
	case length16:
		before += 2
	case length64:
		before += 8
	}
	if len(b) == before {
		if violation := h.announce(); violation != nil {
			return false, violation
		}
	}
	if len(b) < before+maskSize || h.refused {
		return h.refused, nil
	}
	h.have = 0
	return true, nil
}

// announce judges the length of the head, which is here up to the mask, and notes what follows.
func (h *heads) announce() *Violation {
	first, second := h.head[0], h.head[1]
	length, least := uint64(second&lengthBits), uint64(0)
	switch length {
	case length16:
		length, least = uint64(binary.BigEndian.Uint16(h.head[2:])), length16
	case length64:
		length, least = binary.BigEndian.Uint64(h.head[2:]), math.MaxUint16+1
	}
	opcode := first & opcodeBits
	control := opcode&controlBit != 0
	switch {
	case first&reserved != 0, second&maskBit == 0,
		control && (first&finalBit == 0 || length >= length16),
		!control && opcode != opBinary && opcode != opContinuation,
		!control && h.open != (opcode == opContinuation):
		h.refused = true // by the parser; a text message by the reader
		return nil
	case length < least:
		return &Violation{wire.CloseBadFrame}
	case control:
		h.left = int(length)
		return nil
	case length > math.MaxInt64:
		return &Violation{wire.CloseBadFrame}
	case length > uint64(h.max-h.message):
		return &Violation{wire.CloseFrameTooLarge}
	}
	h.left = int(length)
	h.message += h.left
	if h.open = first&finalBit == 0; !h.open {
		h.message = 0
	}
	return nil
}
