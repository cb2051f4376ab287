package session_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// inWebSocket runs a test with a connected WebSocket session.
func inWebSocket(t *testing.T, change func(*bounds.Limits), test func(t *testing.T, w *world, c *rawclient.Client)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, change)
		defer w.close()
		c := w.dial(rawclient.WebSocket)
		c.Connect()
		test(t, w, c)
	})
}

// W-22, W-23: what RFC 6455 forbids ends the session with 1002 `bad frame`, a text message with 1003.
func TestWebSocketViolations(t *testing.T) {
	frame := func(first byte, payload []byte) []byte {
		f := rawclient.Frame(0, false, payload)
		f[0] = first
		return f
	}
	closing := func(code uint16, text string) []byte {
		return rawclient.Frame(rawclient.OpClose, true, append(binary.BigEndian.AppendUint16(nil, code), text...))
	}
	for _, c := range []struct {
		name string
		raw  []byte
		want wire.CloseReason
	}{
		{"text message", rawclient.Frame(rawclient.OpText, true, []byte("hi")), wire.CloseTextMessage},
		{"not masked", []byte{0x82, 1, 0}, wire.CloseBadFrame},
		{"reserved bit 1", frame(0x82|0x40, []byte{1}), wire.CloseBadFrame},
		{"reserved bit 2", frame(0x82|0x20, []byte{1}), wire.CloseBadFrame},
		{"reserved bit 3", frame(0x82|0x10, []byte{1}), wire.CloseBadFrame},
		{"unknown data opcode", frame(0x83, []byte{1}), wire.CloseBadFrame},
		{"unknown control opcode", frame(0x8B, []byte{1}), wire.CloseBadFrame},
		{"continuation of nothing", rawclient.Frame(rawclient.OpContinuation, true, []byte{1}), wire.CloseBadFrame},
		{"new message inside a message", append(rawclient.Frame(rawclient.OpBinary, false, []byte{1}), rawclient.Frame(rawclient.OpBinary, true, []byte{1})...), wire.CloseBadFrame},
		{"fragmented ping", rawclient.Frame(rawclient.OpPing, false, []byte{1}), wire.CloseBadFrame},
		{"large ping", rawclient.Frame(rawclient.OpPing, true, make([]byte, 126)), wire.CloseBadFrame},
		{"close payload of one byte", rawclient.Frame(rawclient.OpClose, true, []byte{3}), wire.CloseBadFrame},
		{"close code 1005", closing(1005, ""), wire.CloseBadFrame},
		{"close code 999", closing(999, ""), wire.CloseBadFrame},
		{"close text not UTF-8", closing(1000, "\xff"), wire.CloseBadFrame},
		{"length with the highest bit", append([]byte{0x82, 0xFF}, bytes.Repeat([]byte{0xFF}, 12)...), wire.CloseBadFrame},
		{"length in 16 bits that needs 7", append([]byte{0x82, 0xFE, 0, 1}, 1, 2, 3, 4, 5), wire.CloseBadFrame},
		{"length in 64 bits that needs 16", append([]byte{0x82, 0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF}, 1, 2, 3, 4, 5), wire.CloseBadFrame},
		{"ping with its length in 16 bits", append([]byte{0x89, 0xFE, 0, 1}, 1, 2, 3, 4, 5), wire.CloseBadFrame},
		{"head of a message that is too large", []byte{0x82, 0xFF, 0, 0, 0, 0, 0, 0x10, 0, 1}, wire.CloseFrameTooLarge},
		{"head of the largest length", []byte{0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}, wire.CloseFrameTooLarge},
		{"head of a text message", []byte{0x81, 0x85, 1, 2, 3, 4}, wire.CloseTextMessage},
		{"empty message", rawclient.Frame(rawclient.OpBinary, true, nil), wire.CloseBadFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWebSocket(t, nil, func(t *testing.T, _ *world, client *rawclient.Client) {
				go func() { _ = client.TryRaw(c.raw) }()
				client.ExpectClose(c.want)
			})
		})
	}
}

// W-23: fragments are joined, pings between them are answered at once, and a message above frame_recv_max closes with 1009.
func TestWebSocketFragments(t *testing.T) {
	const most = 300
	inWebSocket(t, func(l *bounds.Limits) { l.FrameRecvMax = most }, func(t *testing.T, w *world, c *rawclient.Client) {
		record := query(t)
		for i, b := range record {
			opcode := byte(rawclient.OpContinuation)
			if i == 0 {
				opcode = rawclient.OpBinary
			}
			c.Raw(rawclient.Frame(opcode, i == len(record)-1, []byte{b}))
			if i < len(record)-1 {
				c.Raw(rawclient.Frame(rawclient.OpPing, true, []byte{b}))
				if opcode, payload, err := c.ReadFrame(); err != nil || opcode != rawclient.OpPong || !bytes.Equal(payload, []byte{b}) {
					t.Fatalf("frame %#x %x, %v", opcode, payload, err)
				}
			}
		}
		c.Expect(0, wire.TypeLeaseQuery)

		full := rawclient.Record(wire.TypeLeaseQuery, make([]byte, most-5))
		c.Raw(rawclient.Frame(rawclient.OpBinary, true, full))
		c.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest)
		go func() {
			_ = c.TryRaw(rawclient.Frame(rawclient.OpBinary, false, full))
			_ = c.TryRaw(rawclient.Frame(rawclient.OpContinuation, false, nil)) // nothing is too much
			_ = c.TryRaw(rawclient.Frame(rawclient.OpContinuation, true, []byte{0}))
		}()
		c.ExpectClose(wire.CloseFrameTooLarge)
	})
}

// Every length around the limits of header forms and buffers is read as it was sent.
func TestWebSocketMessageSizes(t *testing.T) {
	inWebSocket(t, func(l *bounds.Limits) { l.SessionMalformedMax = 1000 }, func(t *testing.T, _ *world, c *rawclient.Client) {
		for _, n := range []int{0, 1, 110, 120, 121, 122, 123, 124, 250, 506, 507, 508, 2040, 2043, 2044, 8190, 32760, 65530, 65535} {
			c.Raw(rawclient.Frame(rawclient.OpBinary, true, rawclient.Record(wire.TypeLeaseQuery, make([]byte, n))))
			c.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest)
		}
	})
}

// A close frame of the client is answered with one, and ends the session.
func TestWebSocketCloseByClient(t *testing.T) {
	inWebSocket(t, nil, func(t *testing.T, w *world, c *rawclient.Client) {
		c.Raw(rawclient.Frame(rawclient.OpClose, true, []byte{0x03, 0xE8}))
		opcode, payload, err := c.ReadFrame()
		if err != nil || opcode != rawclient.OpClose || !bytes.Equal(payload, []byte{0x03, 0xE8}) {
			t.Errorf("frame %#x %x, %v", opcode, payload, err)
		}
		_ = c.Conn.Close()
		w.hubEmpty(t)
	})
}

func (w *world) hubEmpty(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if n := w.hub.Len(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// W-30: a frame header, a control frame or a fragmented message that is begun and not finished does not hold the session for
// ever; pings between messages do not count as one.
func TestWebSocketUnfinished(t *testing.T) {
	for name, raw := range map[string][]byte{
		"one byte of a header": {0x82},
		"a ping":               rawclient.Frame(rawclient.OpPing, true, []byte("abc"))[:7],
		"a fragment":           rawclient.Frame(rawclient.OpBinary, false, []byte{1}),
	} {
		t.Run(name, func(t *testing.T) {
			inWebSocket(t, nil, func(t *testing.T, w *world, c *rawclient.Client) {
				for range 3 {
					time.Sleep(seconds(w.limits.SessionReadTimeoutMs))
					c.Raw(rawclient.Frame(rawclient.OpPing, true, nil))
					if opcode, _, err := c.ReadFrame(); err != nil || opcode != rawclient.OpPong {
						t.Fatalf("frame %#x, %v", opcode, err)
					}
				}
				start := time.Now()
				c.Raw(raw)
				c.ExpectClose(wire.CloseIdle)
				if d := time.Since(start); d > seconds(w.limits.SessionReadTimeoutMs)+time.Second {
					t.Errorf("closed after %v", d)
				}
			})
		})
	}
}

// W-30: a ping that arrives in parts is no message that was begun, once it is complete.
func TestPingInParts(t *testing.T) {
	inWebSocket(t, nil, func(t *testing.T, w *world, c *rawclient.Client) {
		ping := rawclient.Frame(rawclient.OpPing, true, []byte("abc"))
		for range 3 {
			c.Raw(ping[:4])
			synctest.Wait()
			c.Raw(ping[4:])
			if opcode, _, err := c.ReadFrame(); err != nil || opcode != rawclient.OpPong {
				t.Fatalf("frame %#x, %v", opcode, err)
			}
			time.Sleep(seconds(w.limits.SessionReadTimeoutMs))
		}
	})
}

// close_reason_max: a close text is cut.
func TestWebSocketCloseTextIsCut(t *testing.T) {
	inWebSocket(t, nil, func(t *testing.T, w *world, c *rawclient.Client) {
		reason := wire.CloseConnectFailed
		reason.Text += string(bytes.Repeat([]byte("é"), 100))
		only(t, w).Close(reason)
		_, err := c.Read()
		text := reason.Text[:bounds.CloseReasonMax]
		if len("connect failed: ")%2 != bounds.CloseReasonMax%2 {
			text = text[:len(text)-1] // not inside a character
		}
		want := fmt.Sprintf("closed: %d %q", reason.WebSocket, text)
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	})
}

// W-30: the time of the upgrade counts for the first record.
func TestUpgradeTimeCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.close()
		wait := seconds(w.limits.ConnectWaitMs)
		w.upgradeAfter = wait * 3 / 4
		c := w.dial(rawclient.WebSocket)
		start := time.Now()
		c.ExpectClose(wire.CloseConnectTimeout)
		if d := time.Since(start); d < wait/4 || d > wait/2 {
			t.Errorf("closed %v after the upgrade", d)
		}
	})
}
