package fitztest

import (
	"bytes"
	"encoding/binary"

	"github.com/fitzwire/fitz/generated/go/bounds"
)

// pieceKind says what a framing found at the start of a stream.
type pieceKind uint8

const (
	pieceUnfinished pieceKind = iota // more bytes are needed
	pieceMessage                     // a transport message
	pieceTaken                       // part of a message that the framing keeps
	pieceAsIs                        // bytes that carry no records, such as a ping
	pieceForeign                     // nothing that an end accepts: it goes through as it is, with everything behind it
)

// piece is what stands at the start of a stream.
type piece struct {
	kind    pieceKind
	size    int    // bytes of the stream
	payload []byte // of a message; what was kept before of what is foreign, in frames
}

// framing takes one direction of a connection apart into transport messages, and makes such bytes.
type framing interface {
	next(stream []byte) piece
	// message returns the bytes of a transport message.
	message(payload []byte) []byte
}

// prefixBytes is the size of the length in front of each transport message on TCP.
const prefixBytes = 4

// tcpFraming is a length in front of each transport message (W-10, W-11).
type tcpFraming struct{}

func (tcpFraming) next(stream []byte) piece {
	if len(stream) < prefixBytes {
		return piece{}
	}
	size := binary.BigEndian.Uint32(stream)
	switch {
	case size > bounds.SDKFrameRecvMax:
		return piece{kind: pieceForeign}
	case len(stream)-prefixBytes < int(size):
		return piece{}
	}
	end := prefixBytes + int(size)
	return piece{pieceMessage, end, stream[prefixBytes:end]}
}

func (tcpFraming) message(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, prefixBytes+len(payload)), uint32(len(payload))), payload...)
}

// Bits and values of the head of a WebSocket frame (RFC 6455 section 5.2).
const (
	finalBit      = 0x80
	reservedBits  = 0x70
	opcodeBits    = 0x0F
	maskBit       = 0x80
	lengthBits    = 0x7F
	length16      = 126
	length64      = 127
	opContinue    = 0x0
	opBinary      = 0x2
	opControl     = 0x8 // this one and those above it
	controlMax    = 125
	maskBytes     = 4
	headBytesMost = 2 + 8 + maskBytes
)

// endOfHead ends the head of an HTTP request or response, and switching begins the one that accepts an upgrade.
var (
	endOfHead = []byte("\r\n\r\n")
	switching = []byte("HTTP/1.1 101 ")
)

// mask is the masking key of what the network sends for a client. Nobody who could be fooled by chosen bytes reads along in memory.
var mask = [maskBytes]byte{0x5A, 0xC3, 0x0F, 0x96}

// webSocketFraming is an HTTP upgrade and then one binary message for each transport message, in one frame or several (W-20, W-22, W-23).
// Clients mask what they send. A message leaves the network in one frame.
type webSocketFraming struct {
	direction Direction
	upgraded  bool   // the head is over
	inside    bool   // a message was begun and has not ended
	joined    []byte // what came of it
}

func (w *webSocketFraming) next(stream []byte) piece {
	if !w.upgraded {
		return w.head(stream)
	}
	head, ok := parseHead(stream)
	switch {
	case !ok:
		return piece{}
	case !w.accepts(head):
		return w.foreign()
	case uint64(len(stream)-head.size) < head.length:
		return piece{}
	}
	end := head.size + int(head.length)
	if head.opcode >= opControl {
		return piece{kind: pieceAsIs, size: end}
	}
	start := len(w.joined)
	w.joined = append(w.joined, stream[head.size:end]...)
	unmask(w.joined[start:], head.key)
	w.inside = !head.final
	if w.inside {
		return piece{kind: pieceTaken, size: end}
	}
	payload := w.joined
	w.joined = nil
	return piece{pieceMessage, end, payload}
}

// head passes the request or the response of the upgrade on.
func (w *webSocketFraming) head(stream []byte) piece {
	end := bytes.Index(stream, endOfHead)
	switch {
	case end < 0 && len(stream) <= bounds.HTTPHeaderBytesMax:
		return piece{}
	case end < 0, w.direction == ToClient && !bytes.HasPrefix(stream, switching):
		return piece{kind: pieceForeign}
	}
	w.upgraded = true
	return piece{kind: pieceAsIs, size: end + len(endOfHead)}
}

// foreign gives up, with what was kept of a message that has not ended.
func (w *webSocketFraming) foreign() piece {
	if !w.inside {
		return piece{kind: pieceForeign}
	}
	return piece{kind: pieceForeign, payload: w.frame(opBinary, w.joined)}
}

// accepts reports whether a frame is one that the other end could take as part of a message or as a control frame.
func (w *webSocketFraming) accepts(h frameHead) bool {
	switch {
	case h.reserved || h.masked != (w.direction == ToBroker):
		return false
	case h.opcode >= opControl:
		return h.final && h.length <= controlMax
	case w.inside != (h.opcode == opContinue), h.opcode != opContinue && h.opcode != opBinary:
		return false
	}
	return h.length <= uint64(bounds.SDKFrameRecvMax-len(w.joined))
}

func (w *webSocketFraming) message(payload []byte) []byte { return w.frame(finalBit|opBinary, payload) }

func (w *webSocketFraming) frame(first byte, payload []byte) []byte {
	second := byte(0)
	if w.direction == ToBroker {
		second = maskBit
	}
	dst := append(make([]byte, 0, headBytesMost+len(payload)), first)
	switch n := len(payload); {
	case n < length16:
		dst = append(dst, second|byte(n))
	case n <= 0xFFFF:
		dst = binary.BigEndian.AppendUint16(append(dst, second|length16), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, second|length64), uint64(n))
	}
	if w.direction == ToClient {
		return append(dst, payload...)
	}
	dst = append(dst, mask[:]...)
	start := len(dst)
	dst = append(dst, payload...)
	unmask(dst[start:], mask)
	return dst
}

// frameHead is the head of a frame.
type frameHead struct {
	final, reserved, masked bool
	opcode                  byte
	length                  uint64 // as declared
	key                     [maskBytes]byte
	size                    int // of the head in bytes
}

// parseHead reports false when the head is not complete.
func parseHead(b []byte) (frameHead, bool) {
	if len(b) < 2 {
		return frameHead{}, false
	}
	h := frameHead{final: b[0]&finalBit != 0, reserved: b[0]&reservedBits != 0, masked: b[1]&maskBit != 0, opcode: b[0] & opcodeBits, size: 2}
	extended := 0
	switch b[1] & lengthBits {
	case length16:
		extended = 2
	case length64:
		extended = 8
	default:
		h.length = uint64(b[1] & lengthBits)
	}
	if len(b) < h.size+extended {
		return frameHead{}, false
	}
	for _, digit := range b[h.size : h.size+extended] {
		h.length = h.length<<8 | uint64(digit)
	}
	h.size += extended
	if h.masked {
		if len(b) < h.size+maskBytes {
			return frameHead{}, false
		}
		h.size += copy(h.key[:], b[h.size:])
	}
	return h, true
}

// unmask removes or adds a mask. A key of zeros changes nothing.
func unmask(payload []byte, key [maskBytes]byte) {
	for i := range payload {
		payload[i] ^= key[i%maskBytes]
	}
}
