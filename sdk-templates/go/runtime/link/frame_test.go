package link

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func frame(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// Whatever the sizes are and however the bytes arrive, the messages come out as they were sent.
func TestMessageReaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 20000), 1, 6).Draw(t, "messages")
		var stream []byte
		for _, m := range messages {
			stream = append(stream, frame(m)...)
		}
		var source io.Reader = bytes.NewReader(stream)
		if rapid.Bool().Draw(t, "split") {
			source = iotest.HalfReader(source)
		}
		r := newMessageReader(source, 20000)
		for i, want := range messages {
			got, err := r.next()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("message %d: %d bytes, %v; want %d bytes", i, len(got), err, len(want))
			}
		}
		if _, err := r.next(); err != io.EOF {
			t.Fatalf("end: %v", err)
		}
	})
}

// D-1: a declared length is never an allocation size.
func TestMessageReaderGrowsWithWhatArrived(t *testing.T) {
	for _, arrived := range []int{0, 1, firstChunk - 1, firstChunk, 3 * firstChunk, 100_000} {
		stream := append(binary.BigEndian.AppendUint32(nil, 1<<30), make([]byte, arrived)...)
		r := newMessageReader(bytes.NewReader(stream), 1<<30)
		body := &sizeSpy{Reader: r.r}
		r.r.Reset(body.reset(stream))
		if _, err := r.next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes: %v", arrived, err)
		}
		if limit := max(firstChunk, 2*arrived); body.largest > limit {
			t.Errorf("%d bytes arrived, a buffer of %d was filled", arrived, body.largest)
		}
	}
}

// sizeSpy notes the largest buffer that it was asked to fill.
type sizeSpy struct {
	io.Reader
	largest int
}

func (s *sizeSpy) reset(stream []byte) io.Reader {
	s.Reader = bytes.NewReader(stream)
	return s
}

func (s *sizeSpy) Read(p []byte) (int, error) {
	s.largest = max(s.largest, len(p))
	return s.Reader.Read(p)
}

func TestMessageReaderRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		stream []byte
		check  func(error) bool
	}{
		"nothing":       {nil, func(err error) bool { return err == io.EOF }},
		"half a prefix": {[]byte{0, 0}, func(err error) bool { return err == io.ErrUnexpectedEOF }},
		"no body":       {[]byte{0, 0, 0, 1}, func(err error) bool { return err == io.ErrUnexpectedEOF }},
		"empty":         {[]byte{0, 0, 0, 0}, func(err error) bool { return IsKind(err, Violation) }},
		"too large":     {frame(make([]byte, 101)), func(err error) bool { return IsKind(err, Violation) }},
		"largest":       {frame(make([]byte, 100)), func(err error) bool { return err == nil }},
		"gigantic":      {[]byte{255, 255, 255, 255}, func(err error) bool { return IsKind(err, Violation) }},
	} {
		_, err := newMessageReader(bytes.NewReader(test.stream), 100).next()
		if !test.check(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A large message does not pin its buffer for the life of the session.
func TestMessageReaderForgetsLargeBuffers(t *testing.T) {
	stream := append(frame(make([]byte, 1<<20)), frame([]byte{1})...)
	r := newMessageReader(bytes.NewReader(stream), 1<<20)
	for range 2 {
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(r.buf) > retainBytes {
		t.Fatalf("%d bytes kept", cap(r.buf))
	}
}

func FuzzMessageReader(f *testing.F) {
	f.Add(frame([]byte("abc")))
	f.Add(append(frame(make([]byte, 5000)), 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newMessageReader(iotest.HalfReader(bytes.NewReader(stream)), 1<<16)
		var again []byte
		for {
			message, err := r.next()
			if err != nil {
				break
			}
			again = append(again, frame(message)...)
		}
		if !bytes.HasPrefix(stream, again) {
			t.Fatal("messages differ from what was sent")
		}
	})
}

// Whatever a peer sends, the session ends or goes on; it never panics and never keeps a goroutine.
func FuzzHandleMessage(f *testing.F) {
	f.Add(labelled(toyLabelled, 1, text(toyEcho, "x")))
	f.Add(rec(toyHello, toyHelloValue(3, 0, 1)))
	f.Add(append(rec(toyPing, u64(1)), rec(toyCancelled, u64(1))...))
	f.Fuzz(func(t *testing.T, message []byte) {
		c := &Conn{
			protocol: toyProtocol(), wake: make(chan struct{}, 1), rearm: make(chan struct{}, 1), opened: make(chan struct{}),
			done: make(chan struct{}), limits: toyProtocol().Limits, clock: machine{},
		}
		c.calls.init()
		call := &call{Request: echo("a"), finished: make(chan struct{})}
		if err := c.submit(call); err != nil {
			t.Fatal(err)
		}
		if err := c.handleMessage(message); err != nil && !IsKind(err, Violation) {
			t.Fatalf("%v is no violation", err)
		}
	})
}

// A message that the end of the connection cuts off is none (W-03), wherever the cut is.
func TestCutWebSocketMessageIsNoMessage(t *testing.T) {
	payload := make([]byte, 300)
	for name, stream := range map[string][]byte{
		"whole":     serverFrame(true, 2, payload),
		"fragments": slices.Concat(serverFrame(false, 2, payload[:100]), serverFrame(false, 0, payload[:100]), serverFrame(true, 0, payload[:100])),
	} {
		t.Run(name, func(t *testing.T) {
			for n := range len(stream) + 1 {
				message, err := webSocketMessage(t, stream[:n])
				if whole := n == len(stream); whole != (err == nil) {
					t.Fatalf("%d of %d bytes: a message of %d, %v", n, len(stream), len(message), err)
				}
			}
		})
	}
}

// serverFrame is one frame without a mask.
func serverFrame(final bool, opcode byte, payload []byte) []byte {
	head := []byte{opcode, 126, byte(len(payload) >> 8), byte(len(payload))}
	if len(payload) < 126 {
		head = []byte{opcode, byte(len(payload))}
	}
	if final {
		head[0] |= 0x80
	}
	return append(head, payload...)
}

// webSocketMessage reads the first message of a server that answers the upgrade with these bytes and closes.
func webSocketMessage(t *testing.T, sent []byte) ([]byte, error) {
	t.Helper()
	near, far := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		defer func() { _ = far.Close() }()
		request, err := http.ReadRequest(bufio.NewReader(far))
		if err != nil {
			return
		}
		accept := sha1.Sum([]byte(request.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		_, _ = fmt.Fprintf(far, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(accept[:]))
		_, _ = far.Write(sent)
	}()
	dial := func(context.Context, string, string) (net.Conn, error) { return near, nil }
	transport, err := dialWebSocket(t.Context(), "ws://peer/", dial, Limits{FrameBytes: 1 << 16, HTTPHeader: 1 << 14}, machine{})
	if err != nil {
		t.Fatal(err)
	}
	transport.raw = near
	message, err := transport.read()
	transport.close(false, 0)
	<-served
	return message, err
}
