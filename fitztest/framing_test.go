package fitztest

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// across writes a stream in pieces through a new network and returns what comes out, and the relay.
func across(tb testing.TB, ws bool, d Direction, pieces ...[]byte) ([]byte, *relay) {
	carries := carriesTCP
	if ws {
		carries = carriesWebSocket
	}
	r := newNetwork(tb).relay(d, newStream(), carries)
	for _, p := range pieces {
		r.write(p)
	}
	return r.out.buf, r
}

// upgrade is the head with which a direction begins.
func upgrade(d Direction) []byte {
	if d == ToBroker {
		return []byte("GET /ws HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	return []byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
}

// wsFrame is a frame with a first byte, masked or not.
func wsFrame(first byte, masked bool, payload []byte) []byte {
	w := &webSocketFraming{direction: ToClient}
	if masked {
		w.direction = ToBroker
	}
	return w.frame(first, payload)
}

// parts takes a stream after its head apart with a second reading of RFC 6455, and returns messages and control frames in their order.
func parts(t rapid.TB, stream []byte, masked bool) (messages [][]byte, controls [][]byte) {
	for len(stream) > 0 {
		first, second := stream[0], stream[1]
		stream = stream[2:]
		n := int(second & 0x7F)
		switch n {
		case 126:
			n = int(binary.BigEndian.Uint16(stream))
			stream = stream[2:]
		case 127:
			n = int(binary.BigEndian.Uint64(stream))
			stream = stream[8:]
		}
		if masked != (second&0x80 != 0) {
			t.Fatalf("masked %v", !masked)
		}
		var key []byte
		if masked {
			key, stream = stream[:4], stream[4:]
		}
		payload := bytes.Clone(stream[:n])
		stream = stream[n:]
		for i := range payload {
			if masked {
				payload[i] ^= key[i%4]
			}
		}
		switch first {
		case 0x82:
			messages = append(messages, payload)
		case 0x88, 0x89, 0x8A:
			controls = append(controls, payload)
		default:
			t.Fatalf("first byte %x", first)
		}
	}
	return messages, controls
}

// W-23: messages in any fragments, with control frames in between, written in any pieces, come out whole and in order, masked as the direction
// demands.
func TestWebSocketMessages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]Direction{ToBroker, ToClient}).Draw(t, "direction")
		stream := upgrade(d)
		var messages, controls [][]byte
		for range rapid.IntRange(1, 6).Draw(t, "messages") {
			var message []byte
			for range rapid.IntRange(1, 3).Draw(t, "records") {
				size := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(60_000, 65_535)).Draw(t, "size")
				message = codec.AppendRecord(message, uint16(wire.TypeLeaseNotify), bytes.Repeat([]byte{byte(size)}, size))
			}
			messages = append(messages, message)
			opcode := byte(opBinary)
			for {
				n := rapid.IntRange(0, len(message)).Draw(t, "fragment")
				if rapid.IntRange(0, 2).Draw(t, "last") == 0 {
					break
				}
				stream = append(stream, wsFrame(opcode, d == ToBroker, message[:n])...)
				message, opcode = message[n:], opContinue
				if rapid.Bool().Draw(t, "control") {
					ping := rapid.SliceOfN(rapid.Byte(), 0, controlMax).Draw(t, "ping")
					controls = append(controls, ping)
					stream = append(stream, wsFrame(0x89, d == ToBroker, ping)...)
				}
			}
			stream = append(stream, wsFrame(finalBit|opcode, d == ToBroker, message)...)
		}
		var pieces [][]byte
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		out, r := across(nil, true, d, pieces...)
		if !bytes.HasPrefix(out, upgrade(d)) || r.foreign || len(r.partial) > 0 {
			t.Fatalf("begins with %q, foreign %v, %d bytes kept", out[:40], r.foreign, len(r.partial))
		}
		gotMessages, gotControls := parts(t, out[len(upgrade(d)):], d == ToBroker)
		if !slices.EqualFunc(gotMessages, messages, bytes.Equal) || !slices.EqualFunc(gotControls, controls, bytes.Equal) {
			t.Fatalf("%d messages and %d control frames, want %d and %d", len(gotMessages), len(gotControls), len(messages), len(controls))
		}
	})
}

// What no end accepts goes through as it is, with everything behind it, and nothing of it is kept.
func TestForeignBytes(t *testing.T) {
	record := codec.AppendRecord(nil, uint16(wire.TypeLeaseNotify), []byte("x"))
	begun := wsFrame(opBinary, true, record)
	large := binary.BigEndian.AppendUint64([]byte{0x82, maskBit | length64}, bounds.SDKFrameRecvMax+1)
	for name, c := range map[string]struct {
		d    Direction
		ws   bool
		head []byte
		body []byte
		pass []byte // what of the body comes out, when that is not the body
	}{
		"length on TCP":        {d: ToBroker, body: binary.BigEndian.AppendUint32(nil, bounds.SDKFrameRecvMax+1)},
		"no upgrade":           {d: ToClient, ws: true, body: []byte("HTTP/1.1 403 Forbidden\r\nContent-Length: 10\r\n\r\n\x82\x7e")},
		"head":                 {d: ToBroker, ws: true, body: bytes.Repeat([]byte("a"), bounds.HTTPHeaderBytesMax+1)},
		"text":                 {d: ToBroker, ws: true, head: upgrade(ToBroker), body: wsFrame(0x81, true, record)},
		"reserved bit":         {d: ToBroker, ws: true, head: upgrade(ToBroker), body: wsFrame(0xC2, true, record)},
		"reserved opcode":      {d: ToBroker, ws: true, head: upgrade(ToBroker), body: wsFrame(0x83, true, record)},
		"not masked":           {d: ToBroker, ws: true, head: upgrade(ToBroker), body: wsFrame(0x82, false, record)},
		"masked":               {d: ToClient, ws: true, head: upgrade(ToClient), body: wsFrame(0x82, true, record)},
		"continues nothing":    {d: ToBroker, ws: true, head: upgrade(ToBroker), body: wsFrame(0x80, true, record)},
		"control in fragments": {d: ToBroker, ws: true, head: upgrade(ToBroker), body: wsFrame(0x09, true, record)},
		"long control":         {d: ToBroker, ws: true, head: upgrade(ToBroker), body: wsFrame(0x89, true, make([]byte, controlMax+1))},
		"long message":         {d: ToBroker, ws: true, head: upgrade(ToBroker), body: append(slices.Clone(large), mask[:]...)},
		"begun twice":          {d: ToBroker, ws: true, head: upgrade(ToBroker), body: append(slices.Clone(begun), begun...)},
		"long in sum": {d: ToBroker, ws: true, head: upgrade(ToBroker), body: slices.Concat(wsFrame(opBinary, true, make([]byte, bounds.SDKFrameRecvMax)),
			wsFrame(finalBit|opContinue, true, []byte{1}))},
	} {
		t.Run(name, func(t *testing.T) {
			after := []byte("anything")
			out, r := across(t, c.ws, c.d, c.head, c.body, after)
			if want := slices.Concat(c.head, c.body, after); !bytes.Equal(out, want) {
				t.Errorf("%d bytes came out, want the %d that went in", len(out), len(want))
			}
			if !r.foreign || len(r.partial) > 0 {
				t.Errorf("foreign %v, %d bytes kept", r.foreign, len(r.partial))
			}
		})
	}
}

// A message that holds no records, or none at all, reaches the other end.
func TestMessagesWithoutRecords(t *testing.T) {
	for _, body := range []string{"", "\x00", "\x00\x07\x00\x09ab"} {
		for _, ws := range []bool{false, true} {
			var head, message []byte
			if ws {
				head, message = upgrade(ToClient), wsFrame(0x82, false, []byte(body))
			} else {
				message = tcpFraming{}.message([]byte(body))
			}
			if out, _ := across(t, ws, ToClient, head, message); !bytes.Equal(out, slices.Concat(head, message)) {
				t.Errorf("%q, WebSocket %v: %q came out", body, ws, out)
			}
		}
	}
}

// Frames of one message that no rule touches stay together, with their labels; an edited or repeated one leaves alone.
func TestMessagesStayTogether(t *testing.T) {
	one := func(typ wire.MessageType, text string) []byte {
		return codec.AppendRecord(nil, uint16(typ), []byte(text))
	}
	label := one(wire.TypeCorrelated, "\x00\x00\x00\x00\x00\x00\x00\x07")
	a, b, c := one(wire.TypeLeaseNotify, "a"), append(label, one(wire.TypeLeaseQuery, "b")...), one(wire.TypeLeaseList, "c")
	n := newNetwork(t)
	r := n.relay(ToClient, newStream(), carriesTCP)
	check := func(want ...[]byte) {
		t.Helper()
		r.out.buf = nil
		r.write(tcpFraming{}.message(slices.Concat(a, b, c)))
		var stream []byte
		for _, message := range want {
			stream = append(stream, tcpFraming{}.message(message)...)
		}
		if !bytes.Equal(r.out.buf, stream) {
			t.Errorf("%q, want %q", r.out.buf, stream)
		}
	}
	check(slices.Concat(a, b, c))
	query := Filter{Direction: ToClient, Type: wire.TypeLeaseQuery, Count: 1}
	n.Repeat(query)
	check(slices.Concat(a, b), b, c)
	n.Edit(query, func([]byte) []byte { return []byte("edited") })
	check(a, append(slices.Clone(label), one(wire.TypeLeaseQuery, "edited")...), c)
	n.Drop(query)
	check(slices.Concat(a, c))
	rule := n.HoldAlone(query)
	check(slices.Concat(a, c))
	r.out.buf = nil
	rule.Remove()
	if want := (tcpFraming{}).message(b); !bytes.Equal(r.out.buf, want) {
		t.Errorf("released %q, want %q", r.out.buf, want)
	}
}

// A ping stays behind a held frame, as everything does; a black hole swallows it.
func TestControlFramesAreNoWayAround(t *testing.T) {
	n := newNetwork(t)
	r := n.relay(ToClient, newStream(), carriesWebSocket)
	rule := n.Hold(Filter{Direction: ToClient, Type: wire.TypeLeaseNotify})
	other := n.HoldAlone(Filter{Direction: ToClient, Type: wire.TypeLeaseQuery})
	record := func(typ wire.MessageType) []byte {
		return wsFrame(0x82, false, codec.AppendRecord(nil, uint16(typ), []byte("x")))
	}
	r.write(upgrade(ToClient))
	r.write(record(wire.TypeLeaseQuery))
	begin := len(r.out.buf)
	behind := slices.Concat(record(wire.TypeLeaseNotify), wsFrame(0x89, false, []byte("ping")), record(wire.TypeLeaseList))
	r.write(behind)
	other.Release() // of another rule: what is behind the notification waits on
	r.write(wsFrame(0x88, false, nil))
	if got := r.out.buf[begin:]; !bytes.Equal(got, record(wire.TypeLeaseQuery)) {
		t.Errorf("%q came past what is held", got)
	}
	begin = len(r.out.buf)
	rule.Remove()
	if got := r.out.buf[begin:]; !bytes.Equal(got, append(behind, wsFrame(0x88, false, nil)...)) {
		t.Errorf("released %q", got)
	}
	n.BlackHole(true)
	begin = len(r.out.buf)
	r.write(slices.Concat(wsFrame(0x89, false, nil), record(wire.TypeLeaseNotify)))
	if len(r.out.buf) != begin || n.Passed(ToClient, wire.TypeLeaseNotify) != 1 || n.Written(ToClient, wire.TypeLeaseNotify) != 2 {
		t.Errorf("%d bytes left a black hole; %d of %d notifications passed", len(r.out.buf)-begin, n.Passed(ToClient, wire.TypeLeaseNotify), n.Written(ToClient, wire.TypeLeaseNotify))
	}
}

// A refused upgrade reaches the client with its body.
func TestRefusedUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := Start(t, WithWebSocket())
		c, err := b.Dial(context.Background(), "tcp", "any")
		if err != nil {
			t.Fatal(err)
		}
		defer func(c net.Conn) { _ = c.Close() }(c)
		if _, err := c.Write([]byte("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		var answer strings.Builder
		buf := make([]byte, 1024)
		for {
			n, err := c.Read(buf)
			answer.Write(buf[:n])
			if err != nil {
				break
			}
		}
		head, body, _ := strings.Cut(answer.String(), "\r\n\r\n")
		if !strings.HasPrefix(head, "HTTP/1.1 400 ") || body == "" {
			t.Errorf("%q", answer.String())
		}
	})
}

// Whatever bytes are written in whatever pieces, the network does not break, the pieces make no difference, and nothing is lost behind what it does not
// understand.
func FuzzFraming(f *testing.F) {
	record := codec.AppendRecord(nil, uint16(wire.TypeLeaseNotify), []byte("x"))
	for _, ws := range []bool{false, true} {
		for _, d := range []Direction{ToBroker, ToClient} {
			f.Add(ws, byte(d), uint8(3), slices.Concat(upgrade(d), wsFrame(0x02, d == ToBroker, record), wsFrame(0x89, d == ToBroker, nil), wsFrame(0x80, d == ToBroker, record)))
			f.Add(ws, byte(d), uint8(200), append(tcpFraming{}.message(record), 0xff, 0xff, 0xff, 0xff))
		}
	}
	f.Fuzz(func(t *testing.T, ws bool, direction byte, step uint8, stream []byte) {
		d := Direction(direction & 1)
		const most = 1 << 12 // pieces: what is not complete yet is looked at again with each of them
		size := max(int(step)+1, (len(stream)+most-1)/most)
		out, r := across(t, ws, d, slices.Collect(slices.Chunk(stream, size))...)
		again, _ := across(t, ws, d, stream)
		if !bytes.Equal(out, again) {
			t.Errorf("%q in pieces of %d, %q at once", out, size, again)
		}
		if r.foreign && !bytes.HasSuffix(out, stream[len(stream)-min(len(stream), 1):]) {
			t.Errorf("%q ends with %q", stream, out)
		}
	})
}
