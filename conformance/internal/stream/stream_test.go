package stream_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/conformance/internal/stream"
)

var limits = stream.Limits{Message: 300, Head: 400}

// show is what a parser made of a stream, with foreign bytes in one piece.
func show(pieces []stream.Piece) string {
	var b strings.Builder
	foreign := []byte(nil)
	for _, p := range pieces {
		if p.Kind == stream.Foreign {
			foreign = append(foreign, p.Raw...)
			continue
		}
		fmt.Fprintf(&b, "%d %d %x %x\n", p.Kind, p.Opcode, p.Payload, p.Raw)
	}
	fmt.Fprintf(&b, "foreign %x", foreign)
	return b.String()
}

func feed(t stream.Transport, fromClient bool, parts ...[]byte) ([]stream.Piece, []byte) {
	p := stream.NewParser(t, fromClient, limits)
	var pieces []stream.Piece
	for _, part := range parts {
		pieces = append(pieces, p.Feed(part)...)
	}
	return pieces, p.Pending()
}

var request = stream.UpgradeRequest("h:1", stream.Path)

func response(t testing.TB) []byte {
	head, err := stream.AnswerUpgrade(request)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

func frame(f stream.Frame) []byte { return f.Append(nil) }

func TestParser(t *testing.T) {
	masked := func(f stream.Frame) []byte { f.Masked = true; return frame(f) }
	long := bytes.Repeat([]byte{7}, 200)
	tests := []struct {
		name      string
		transport stream.Transport
		down      bool
		in        []byte
		messages  []string
		foreign   bool
		pending   bool
		controls  string
	}{
		{name: "TCP message", transport: stream.TCP, in: []byte{0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0}, messages: []string{"ab", ""}},
		{name: "TCP at the bound", transport: stream.TCP, in: append([]byte{0, 0, 1, 44}, make([]byte, 300)...), messages: []string{strings.Repeat("\x00", 300)}},
		{name: "W-10 TCP above the bound", transport: stream.TCP, in: []byte{0, 0, 1, 45}, foreign: true},
		{name: "W-10 TCP largest length", transport: stream.TCP, in: []byte{0xFF, 0xFF, 0xFF, 0xFF}, foreign: true},
		{name: "TCP half a length", transport: stream.TCP, in: []byte{0, 0, 0}, pending: true},
		{name: "TCP half a message", transport: stream.TCP, in: []byte{0, 0, 0, 2, 'a'}, pending: true},
		{name: "WS message", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpBinary, Payload: long}), messages: []string{string(long)}},
		{name: "W-23 WS fragments with a ping between", transport: stream.WebSocket, in: bytes.Join([][]byte{
			masked(stream.Frame{Opcode: stream.OpBinary, Payload: []byte("a"), More: true}),
			masked(stream.Frame{Opcode: stream.OpPing, Payload: []byte("p")}),
			masked(stream.Frame{Opcode: stream.OpContinuation, More: true}),
			masked(stream.Frame{Opcode: stream.OpContinuation, Payload: []byte("b")}),
		}, nil), messages: []string{"ab"}, controls: "p"},
		{name: "WS to a client", transport: stream.WebSocket, down: true, in: frame(stream.Frame{Opcode: stream.OpBinary, Payload: []byte("x")}), messages: []string{"x"}},
		{name: "W-23 WS without a mask", transport: stream.WebSocket, in: frame(stream.Frame{Opcode: stream.OpBinary, Payload: []byte("x")}), foreign: true},
		{name: "W-23 WS with a mask to a client", transport: stream.WebSocket, down: true, in: masked(stream.Frame{Opcode: stream.OpBinary}), foreign: true},
		{name: "W-22 WS text", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpText, Payload: []byte("x")}), foreign: true},
		{name: "W-23 WS reserved bit", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpBinary, Reserved: 0x10}), foreign: true},
		{name: "W-23 WS continuation first", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpContinuation}), foreign: true},
		{name: "W-23 WS message inside a message", transport: stream.WebSocket, in: bytes.Join([][]byte{
			masked(stream.Frame{Opcode: stream.OpBinary, More: true}), masked(stream.Frame{Opcode: stream.OpBinary}),
		}, nil), foreign: true},
		{name: "W-23 WS long ping", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpPing, Payload: make([]byte, 126)}), foreign: true},
		{name: "W-23 WS fragmented ping", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpPing, More: true}), foreign: true},
		{name: "W-23 WS unknown control frame", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: 0xB}), foreign: true},
		{name: "WS above the bound", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpBinary, Length: 301}), foreign: true},
		{name: "WS fragments above the bound", transport: stream.WebSocket, in: bytes.Join([][]byte{
			masked(stream.Frame{Opcode: stream.OpBinary, Payload: long, More: true}), masked(stream.Frame{Opcode: stream.OpContinuation, Length: 101}),
		}, nil), foreign: true},
		{name: "WS endless empty fragments", transport: stream.WebSocket, in: append(masked(stream.Frame{Opcode: stream.OpBinary, More: true}),
			bytes.Repeat(masked(stream.Frame{Opcode: stream.OpContinuation, More: true}), 2000)...), foreign: true},
		{name: "WS largest length", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpBinary, Length: 1<<64 - 1}), foreign: true},
		{name: "WS half a frame", transport: stream.WebSocket, in: masked(stream.Frame{Opcode: stream.OpBinary, Length: 9}), pending: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			head := []byte(nil)
			if test.transport == stream.WebSocket {
				head = request
				if test.down {
					head = response(t)
				}
			}
			pieces, pending := feed(test.transport, !test.down, head, test.in)
			var messages []string
			var raw []byte
			foreign, controls := false, ""
			for _, p := range pieces {
				switch p.Kind {
				case stream.Message:
					messages = append(messages, string(p.Payload))
				case stream.Control:
					controls += string(p.Payload)
				case stream.Foreign:
					foreign = true
				}
				raw = append(raw, p.Raw...)
			}
			if fmt.Sprint(messages) != fmt.Sprint(test.messages) || foreign != test.foreign || controls != test.controls || len(pending) > 0 != test.pending {
				t.Errorf("messages %q, foreign %v, controls %q, pending %x", messages, foreign, controls, pending)
			}
			if len(raw)+len(pending) != len(head)+len(test.in) {
				t.Errorf("%d bytes of %d", len(raw)+len(pending), len(head)+len(test.in))
			}
			// However the stream is cut.
			whole := append(append([]byte{}, head...), test.in...)
			for cut := 0; cut < len(whole); cut += 1 + len(whole)/500 {
				other, rest := feed(test.transport, !test.down, whole[:cut], whole[cut:])
				if show(other) != show(pieces) || !bytes.Equal(rest, pending) {
					t.Fatalf("cut at %d: %s instead of %s", cut, show(other), show(pieces))
				}
			}
		})
	}
}

func TestHeads(t *testing.T) {
	for name, test := range map[string]struct {
		down bool
		in   string
		kind stream.Kind
	}{
		"refused":              {true, "HTTP/1.1 400 Bad Request\r\n\r\n", stream.Head},
		"too long":             {false, strings.Repeat("x", 401), stream.Foreign},
		"too long with an end": {false, strings.Repeat("x", 400) + "\r\n\r\n", stream.Foreign},
	} {
		pieces, _ := feed(stream.WebSocket, !test.down, []byte(test.in))
		if len(pieces) != 1 || pieces[0].Kind != test.kind {
			t.Errorf("%s: %v", name, pieces)
		}
	}
	// The body of a refusal is no WebSocket.
	pieces, _ := feed(stream.WebSocket, false, []byte("HTTP/1.1 400 Bad Request\r\n\r\n\x82\x00"))
	if len(pieces) != 2 || pieces[1].Kind != stream.Foreign {
		t.Errorf("%v", pieces)
	}
	for name, head := range map[string]string{
		"no request":  "x\r\n\r\n",
		"no upgrade":  "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"old version": strings.Replace(string(request), "Version: 13", "Version: 8", 1),
		"no key":      strings.Replace(string(request), "Sec-WebSocket-Key", "X", 1),
	} {
		if _, err := stream.AnswerUpgrade([]byte(head)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := stream.CheckUpgrade(response(t)); err != nil {
		t.Error(err)
	}
	var refused *stream.UpgradeError
	if err := stream.CheckUpgrade(stream.RefuseUpgrade(431)); !errors.As(err, &refused) || refused.Status != 431 {
		t.Errorf("%v", err)
	}
	if err := stream.CheckUpgrade(stream.RefuseUpgrade(101, "Sec-WebSocket-Accept: x")); err == nil {
		t.Error("a wrong proof was accepted")
	}
	if err := stream.CheckUpgrade([]byte("junk\r\n\r\n")); err == nil {
		t.Error("junk was accepted")
	}
}

func TestClose(t *testing.T) {
	if code, text := stream.ParseClose(stream.ClosePayload(1001, "going away")); code != 1001 || text != "going away" {
		t.Error(code, text)
	}
	if code, text := stream.ParseClose(stream.ClosePayload(0, "x")); code != 0 || text != "" {
		t.Error(code, text)
	}
	if n := len(stream.ClosePayload(1001, strings.Repeat("x", 200))); n != 125 {
		t.Errorf("%d bytes do not fit into a control frame", n)
	}
}

// Whatever is sent is read back, however it is cut.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		transport := rapid.SampledFrom(stream.Transports).Draw(t, "transport")
		client := rapid.Bool().Draw(t, "client")
		payloads := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 5).Draw(t, "payloads")
		var wire []byte
		if transport == stream.WebSocket {
			wire = append(wire, request...)
			if !client {
				wire = append([]byte{}, "HTTP/1.1 101 x\r\n\r\n"...)
			}
		}
		for _, p := range payloads {
			wire = stream.AppendMessage(wire, transport, client, p)
		}
		p := stream.NewParser(transport, client, limits)
		var got [][]byte
		for len(wire) > 0 {
			n := rapid.IntRange(1, len(wire)).Draw(t, "cut")
			for _, piece := range p.Feed(wire[:n]) {
				if piece.Kind == stream.Message {
					got = append(got, piece.Payload)
				} else if piece.Kind != stream.Head {
					t.Fatalf("a piece of kind %d", piece.Kind)
				}
			}
			wire = wire[n:]
		}
		if len(got) != len(payloads) || !bytes.Equal(bytes.Join(got, []byte("|")), bytes.Join(payloads, []byte("|"))) {
			t.Fatalf("%x instead of %x", got, payloads)
		}
	})
}

// The frames and the upgrade are those of RFC 6455: another implementation understands them, as a client and as a server.
func TestOtherImplementation(t *testing.T) {
	messages := [][]byte{{}, []byte("x"), bytes.Repeat([]byte("y"), 125), bytes.Repeat([]byte("z"), 126), bytes.Repeat([]byte("v"), 70_000)}
	big := stream.Limits{Message: 1 << 20, Head: 1 << 14}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		c.SetReadLimit(1 << 20)
		for {
			typ, b, err := c.Read(r.Context())
			if err != nil || typ != websocket.MessageBinary || c.Write(r.Context(), typ, b) != nil {
				return
			}
		}
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	wire := stream.UpgradeRequest(address, stream.Path)
	for _, m := range messages {
		wire = stream.AppendMessage(wire, stream.WebSocket, true, m)
	}
	wire = stream.Frame{Opcode: stream.OpClose, Masked: true, Payload: stream.ClosePayload(1000, "done")}.Append(wire)
	go func() { _, _ = nc.Write(wire) }()
	check(t, nc, stream.NewParser(stream.WebSocket, false, big), messages)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	done := make(chan error, 1)
	go func() { done <- echo(l, big) }()
	c, _, err := websocket.Dial(context.Background(), "ws://"+l.Addr().String()+stream.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(1 << 20)
	for _, m := range messages {
		if err := c.Write(context.Background(), websocket.MessageBinary, m); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(context.Background()); err != nil || !bytes.Equal(b, m) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
	}
	_ = c.Close(websocket.StatusNormalClosure, "")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func check(t *testing.T, r io.Reader, p *stream.Parser, messages [][]byte) {
	t.Helper()
	buf := make([]byte, 4096)
	var got [][]byte
	for {
		n, err := r.Read(buf)
		for _, piece := range p.Feed(buf[:n]) {
			switch piece.Kind {
			case stream.Head:
				if err := stream.CheckUpgrade(piece.Raw); err != nil {
					t.Fatal(err)
				}
			case stream.Message:
				got = append(got, piece.Payload)
			case stream.Foreign:
				t.Fatalf("foreign bytes %x", piece.Raw)
			}
		}
		if err != nil {
			break
		}
	}
	if len(got) != len(messages) || !bytes.Equal(bytes.Join(got, nil), bytes.Join(messages, nil)) {
		t.Errorf("%d messages", len(got))
	}
}

// echo sends every message of one client back.
func echo(l net.Listener, limits stream.Limits) error {
	nc, err := l.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = nc.Close() }()
	p, buf := stream.NewParser(stream.WebSocket, true, limits), make([]byte, 4096)
	for {
		n, err := nc.Read(buf)
		if err != nil {
			return nil
		}
		for _, piece := range p.Feed(buf[:n]) {
			var out []byte
			switch piece.Kind {
			case stream.Head:
				if out, err = stream.AnswerUpgrade(piece.Raw); err != nil {
					return err
				}
			case stream.Message:
				out = stream.AppendMessage(nil, stream.WebSocket, false, piece.Payload)
			case stream.Control:
				out = stream.Frame{Opcode: piece.Opcode, Payload: piece.Payload}.Append(nil)
			case stream.Foreign:
				return fmt.Errorf("foreign bytes %x", piece.Raw)
			}
			if _, err := nc.Write(out); err != nil {
				return err
			}
		}
	}
}

func TestDeclared(t *testing.T) {
	for _, size := range []uint64{1, 125, 126, 70_000, 1 << 40} {
		tcp := stream.AppendDeclared(nil, stream.TCP, true, []byte("x"), size)
		if got := binary.BigEndian.Uint32(tcp); uint64(got) != min(size, 1<<32-1) || len(tcp) != 5 {
			t.Errorf("TCP %d: %x", size, tcp)
		}
		ws := stream.AppendDeclared(nil, stream.WebSocket, false, []byte("x"), size)
		if size > 125 && ws[len(ws)-2] != byte(size) || ws[len(ws)-1] != 'x' {
			t.Errorf("WS %d: %x", size, ws)
		}
	}
}

// Whatever comes, and however it is cut, the pieces are the same, nothing is lost, and what is kept is bounded.
func FuzzParser(f *testing.F) {
	f.Add(true, true, []byte{0, 0, 0, 1, 'a', 0, 0}, 3)
	f.Add(false, true, append(bytes.Clone(request), 0x82, 0x81, 1, 2, 3, 4, 5), 20)
	f.Add(false, false, append([]byte("HTTP/1.1 101 x\r\n\r\n"), 0x02, 0x01, 'a', 0x89, 0x00, 0x80, 0x01, 'b'), 5)
	f.Add(false, true, append(bytes.Clone(request), 0x82, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF), 1)
	f.Fuzz(func(t *testing.T, tcp, client bool, in []byte, cut int) {
		transport := stream.WebSocket
		if tcp {
			transport = stream.TCP
		}
		in = in[:min(len(in), 1<<14)]
		whole, pending := feed(transport, client, in)
		cut = min(max(cut, 0), len(in))
		parts, rest := feed(transport, client, in[:cut], in[cut:])
		if show(whole) != show(parts) || !bytes.Equal(pending, rest) {
			t.Fatalf("%s, cut at %d: %s", show(whole), cut, show(parts))
		}
		total := len(pending)
		for _, p := range whole {
			total += len(p.Raw)
			if p.Kind == stream.Message && len(p.Payload) > limits.Message {
				t.Fatalf("a message of %d bytes", len(p.Payload))
			}
		}
		if total != len(in) {
			t.Fatalf("%d of %d bytes", total, len(in))
		}
		if most := 17*limits.Message + limits.Head + 14; len(pending) > most {
			t.Fatalf("%d bytes are kept", len(pending))
		}
	})
}
