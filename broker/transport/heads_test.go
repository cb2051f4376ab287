package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/generated/go/wire"
)

// frame returns a masked frame whose length stands in as many bytes as the form says: 7 bits, 16 or 64.
func frame(first byte, form int, payload []byte) []byte {
	f := []byte{first, maskBit}
	switch form {
	case 7:
		f[1] |= byte(len(payload))
	case 16:
		f[1] |= length16
		f = binary.BigEndian.AppendUint16(f, uint16(len(payload)))
	default:
		f[1] |= length64
		f = binary.BigEndian.AppendUint64(f, uint64(len(payload)))
	}
	mask := [maskSize]byte{1, 2, 3, 4}
	f = append(f, mask[:]...)
	for i, b := range payload {
		f = append(f, b^mask[i%maskSize])
	}
	return f
}

// shortest is the form that RFC 6455 section 5.2 wants for a length.
func shortest(n int) int {
	switch {
	case n < length16:
		return 7
	case n < 1<<16:
		return 16
	}
	return 64
}

// upgraded is the response to an upgrade whose connection is handed over.
type upgraded struct {
	net.Conn
	header http.Header
}

func (u *upgraded) Header() http.Header { return u.header }
func (u *upgraded) WriteHeader(int)     {}
func (u *upgraded) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return u.Conn, bufio.NewReadWriter(bufio.NewReader(u.Conn), bufio.NewWriter(io.Discard)), nil
}

// newWebSocket returns a WebSocket that reads the given pieces after its upgrade.
func newWebSocket(t testing.TB, most int, pieces ...[]byte) (*wsConn, *feed, *counter) {
	t.Helper()
	f, h := &feed{pieces: pieces}, &counter{}
	u := Upgrader{MaxMessage: most, Inbound: NewInbound(1<<20, int64(most), nil)}
	r, err := http.NewRequest(http.MethodGet, "/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Version": "13"} {
		r.Header.Set(name, value)
	}
	c, err := u.Upgrade(&upgraded{f, http.Header{}}, r)
	if err != nil {
		t.Fatal(err)
	}
	c.Bind(h)
	t.Cleanup(c.(*wsConn).forget)
	return c.(*wsConn), f, h
}

// W-23: what a head announces is judged when the last byte of the length is here, before any of the payload, and nothing is allocated.
func TestHeadsAreJudgedAlone(t *testing.T) {
	for _, c := range []struct {
		name, bytes string
		want        wire.CloseReason
	}{
		{"larger than a message may be, 16 bits", "82fe1001", wire.CloseFrameTooLarge},
		{"larger than a message may be, 64 bits", "82ff0000000000010000", wire.CloseFrameTooLarge},
		{"all bits but the first", "82ff7fffffffffffffff", wire.CloseFrameTooLarge},
		{"the first bit", "82ff8000000000000000", wire.CloseBadFrame},
		{"all bits", "82ffffffffffffffffff", wire.CloseBadFrame},
		{"16 bits for 125", "82fe007d", wire.CloseBadFrame},
		{"16 bits for nothing", "82fe0000", wire.CloseBadFrame},
		{"64 bits for 125", "82ff000000000000007d", wire.CloseBadFrame},
		{"64 bits for 65535", "82ff000000000000ffff", wire.CloseBadFrame},
		{"a fragment above the rest", "0281000000007f" + "80fe1000", wire.CloseFrameTooLarge},
		{"a fragment in 16 bits", "0281000000007f" + "80fe0001", wire.CloseBadFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw, err := hex.DecodeString(c.bytes)
			if err != nil {
				t.Fatal(err)
			}
			for size := 1; size <= len(raw); size++ {
				ws, f, _ := newWebSocket(t, testMax, slices.Collect(slices.Chunk(raw, size))...)
				peak := int64(0)
				ws.buf.claim.in.changed = func(n int64) { peak = max(peak, n) }
				_, err := ws.ReadMessage()
				var violation *Violation
				if !errors.As(err, &violation) || violation.Reason != c.want {
					t.Fatalf("in pieces of %d: %v, want %v", size, err, c.want)
				}
				if peak != 0 || len(f.pieces) != 0 {
					t.Fatalf("in pieces of %d: %d bytes were held, %d pieces not read", size, peak, len(f.pieces))
				}
			}
		})
	}
}

// Messages are read as they were sent, whatever their fragments, the control frames between them and the segments on the way; nothing
// is held at the end.
func TestWebSocketReadsWhatWasSent(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		messages := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 400), 0, 6).Draw(rt, "messages")
		var stream []byte
		control := func() {
			if rapid.IntRange(0, 3).Draw(rt, "control") == 0 {
				opcode := rapid.SampledFrom([]byte{finalBit | 0x9, finalBit | 0xA}).Draw(rt, "opcode")
				stream = append(stream, frame(opcode, 7, make([]byte, rapid.IntRange(0, 125).Draw(rt, "size")))...)
			}
		}
		for _, m := range messages {
			opcode, rest := byte(opBinary), m
			for rapid.IntRange(0, 2).Draw(rt, "more") == 0 {
				control()
				n := rapid.IntRange(0, len(rest)).Draw(rt, "fragment")
				stream = append(stream, frame(opcode, shortest(n), rest[:n])...)
				opcode, rest = opContinuation, rest[n:]
			}
			control()
			stream = append(stream, frame(finalBit|opcode, shortest(len(rest)), rest)...)
		}
		var pieces [][]byte
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, min(len(rest), 200)).Draw(rt, "cut")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		ws, _, _ := newWebSocket(t, 400, pieces...)
		for i, want := range messages {
			got, err := ws.ReadMessage()
			if err != nil || !bytes.Equal(got, want) {
				rt.Fatalf("message %d: %x, %v; want %x", i, got, err, want)
			}
		}
		if _, err := ws.ReadMessage(); err == nil {
			rt.Fatal("a message that was not sent")
		}
		if used := ws.buf.claim.in.Used(); used != 0 {
			rt.Fatalf("%d bytes are held at the end", used)
		}
	})
}

// A message may be as large as SetMaxMessage said last, whole or in fragments, also when it arrives together with the one before
// (W-10, W-23: the first message on a token listener is bounded by preauth_frame_max).
func TestSetMaxMessage(t *testing.T) {
	const first, later = 300, 3000
	tooLarge := func(t *testing.T, c Conn) {
		t.Helper()
		_, err := c.ReadMessage()
		var violation *Violation
		if !errors.As(err, &violation) || violation.Reason != wire.CloseFrameTooLarge {
			t.Errorf("%v, want %v", err, wire.CloseFrameTooLarge)
		}
	}
	raised := func(t *testing.T, c Conn) {
		t.Helper()
		for _, want := range []int{first, later} {
			got, err := c.ReadMessage()
			if err != nil || len(got) != want {
				t.Fatalf("%d bytes, %v; want %d", len(got), err, want)
			}
			c.SetMaxMessage(later)
		}
		tooLarge(t, c)
	}
	payload := make([]byte, later+1)
	tcp := func(raw ...[]byte) Conn {
		c, _, _ := newFeed(raw...)
		c.SetMaxMessage(first)
		return c
	}
	webSocket := func(raw ...[]byte) Conn {
		c, _, _ := newWebSocket(t, first, raw...)
		return c
	}
	whole := func(n int) []byte { return frame(finalBit|opBinary, shortest(n), payload[:n]) }
	fragments := func(n int) []byte {
		raw := frame(opBinary, 7, payload[:1])
		for range n - 2 {
			raw = append(raw, frame(opContinuation, 7, payload[:1])...)
		}
		return append(raw, frame(finalBit|opContinuation, 7, payload[:1])...)
	}
	for _, c := range []struct {
		name    string
		conn    func(raw ...[]byte) Conn
		message func(n int) []byte
	}{
		{"tcp", tcp, func(n int) []byte { return framed(payload[:n]) }},
		{"websocket", webSocket, whole},
		{"websocket fragments", webSocket, fragments},
	} {
		t.Run(c.name, func(t *testing.T) {
			tooLarge(t, c.conn(c.message(first+1)))
			raised(t, c.conn(c.message(first), c.message(later), c.message(later+1)))
			together := slices.Concat(c.message(first), c.message(later), c.message(later+1))
			raised(t, c.conn(together))
		})
	}
}

// However hostile the bytes, a WebSocket reads what a plain reading of RFC 6455 says, holds no more than a message may have, and
// nothing at the end.
func FuzzWebSocketReader(f *testing.F) {
	f.Add(frame(finalBit|opBinary, 7, []byte("abc")), uint8(3))
	f.Add(slices.Concat(frame(opBinary, 7, []byte("a")), frame(0x89, 7, []byte("p")), frame(finalBit|opContinuation, 7, []byte("b"))), uint8(1))
	f.Add(frame(finalBit|opBinary, 16, []byte("abc")), uint8(200))
	f.Add(frame(finalBit|opBinary, 16, make([]byte, 300)), uint8(7))
	f.Add(frame(0x88, 7, []byte{3, 0xE8}), uint8(7))
	f.Add([]byte{0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, uint8(0))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		const most = 1000
		ws, _, _ := newWebSocket(t, most, slices.Collect(slices.Chunk(stream, int(size)+1))...)
		want := plainly(stream, most)
		for i := 0; ; i++ {
			got, err := ws.ReadMessage()
			if err != nil {
				if i < len(want) {
					t.Fatalf("message %d: %v, want %x", i, err, want[i])
				}
				break
			}
			if i >= len(want) || !bytes.Equal(got, want[i]) {
				t.Fatalf("message %d is %x, want %x", i, got, want)
			}
			if used := ws.buf.claim.in.Used(); used > most {
				t.Fatalf("%d bytes held", used)
			}
		}
		if used := ws.buf.claim.in.Used(); used != 0 {
			t.Fatalf("%d bytes are held at the end", used)
		}
	})
}

// plainly returns the binary messages of a stream up to its first mistake, as RFC 6455 is written.
func plainly(b []byte, most int) (messages [][]byte) {
	var message []byte
	open := false
	for {
		if len(b) < 2 {
			return messages
		}
		final, opcode, n, head := b[0]&0x80 != 0, b[0]&0xF, int(b[1]&0x7F), 2
		if b[0]&0x70 != 0 || b[1]&0x80 == 0 {
			return messages
		}
		switch n {
		case 126:
			if len(b) < 4 {
				return messages
			}
			if n, head = int(binary.BigEndian.Uint16(b[2:])), 4; n < 126 {
				return messages
			}
		case 127:
			if len(b) < 10 {
				return messages
			}
			large := binary.BigEndian.Uint64(b[2:])
			if large < 1<<16 || large > uint64(most) {
				return messages
			}
			n, head = int(large), 10
		}
		if len(b) < head+4+n {
			return messages
		}
		payload := bytes.Clone(b[head+4 : head+4+n])
		for i := range payload {
			payload[i] ^= b[head+i%4]
		}
		b = b[head+4+n:]
		switch {
		case opcode >= 8 && (opcode > 10 || !final || n > 125), opcode == 8, opcode > 2 && opcode < 8, opcode == 1,
			opcode == 2 && open, opcode == 0 && !open:
			return messages
		case opcode > 8:
			continue
		}
		if message = append(message, payload...); len(message) > most {
			return messages
		}
		if open = !final; final {
			messages, message = append(messages, message), nil
		}
	}
}

// A connection that ends inside a message, wherever, leaves no message behind: what has come of it is not taken for the whole.
func TestCutMessageIsNoMessage(t *testing.T) {
	payload := make([]byte, 900)
	for name, stream := range map[string][]byte{
		"whole":     frame(finalBit|opBinary, 16, payload),
		"fragments": slices.Concat(frame(opBinary, 16, payload[:300]), frame(opContinuation, 16, payload[:300]), frame(finalBit|opContinuation, 16, payload[:300])),
	} {
		t.Run(name, func(t *testing.T) {
			for n := range stream {
				ws, _, _ := newWebSocket(t, testMax, stream[:n])
				if message, err := ws.ReadMessage(); err == nil {
					t.Fatalf("%d of %d bytes are a message of %d", n, len(stream), len(message))
				}
			}
		})
	}
}
