package link

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// prefixBytes is the size of the length in front of a transport message on TCP. It counts the payload only.
const prefixBytes = 4

// Sizes of the receive buffer: it starts small, doubles as bytes arrive (D-1), and an unusually large one is not kept.
const (
	firstChunk  = 4 << 10
	retainBytes = 128 << 10
)

// transport carries whole transport messages. read is called by one goroutine, write by another; close unblocks both.
type transport interface {
	read() ([]byte, error)                   // valid until the next read
	write(messages [][]byte) error           // in order
	probe(context.Context) error             // asks the peer for a sign of life below the protocol, if the transport can
	close(graceful bool, wait time.Duration) // idempotent
	// orderly reports whether a read error is the peer's way of refusing a session, and not a broken network.
	orderly(err error) bool
}

// DialFunc opens a network connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// meteredConn notes when bytes last arrived.
type meteredConn struct {
	net.Conn
	received *atomic.Int64 // a time.Duration of the clock
	clock    Clock
}

func (c *meteredConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.received.Store(int64(c.clock.Now()))
	}
	return n, err
}

// messageReader reads length-prefixed transport messages. A declared length is compared with the bound before anything is allocated,
// and is never an allocation size: the buffer grows with bytes that arrived (D-1).
type messageReader struct {
	r   *bufio.Reader
	max int64
	buf []byte
}

func newMessageReader(r io.Reader, max int64) *messageReader {
	return &messageReader{r: bufio.NewReaderSize(r, firstChunk), max: max}
}

// next returns the next message, valid until the call after it. io.EOF means that the stream ended between two messages.
func (m *messageReader) next() ([]byte, error) {
	var prefix [prefixBytes]byte
	if _, err := io.ReadFull(m.r, prefix[:]); err != nil {
		return nil, err
	}
	length := int64(binary.BigEndian.Uint32(prefix[:]))
	if length == 0 {
		return nil, violation("empty transport message", nil)
	}
	if length > m.max {
		return nil, violation("transport message too large", nil)
	}
	return m.body(int(length))
}

func (m *messageReader) body(length int) ([]byte, error) {
	if cap(m.buf) > retainBytes {
		m.buf = nil
	}
	buf := m.buf[:0]
	for len(buf) < length {
		start := len(buf)
		buf = grow(buf, min(length, max(2*start, firstChunk)))
		if _, err := io.ReadFull(m.r, buf[start:]); err != nil {
			return nil, cutOff(err)
		}
	}
	m.buf = buf
	return buf, nil
}

// grow returns buf with the given length; its capacity is the length that is needed now, not the one that the peer declared.
func grow(buf []byte, length int) []byte {
	if length <= cap(buf) {
		return buf[:length]
	}
	larger := make([]byte, length)
	copy(larger, buf)
	return larger
}

// cutOff makes an end inside a message an error of its own, also when no byte of the body arrived.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// tcpTransport sends every message with its prefix in one write call (W-11).
type tcpTransport struct {
	conn   net.Conn
	raw    net.Conn // below TLS, else conn; closing it unblocks everything at once
	reader *messageReader
	out    []byte
	clock  Clock
	once   sync.Once
}

func newTCPTransport(conn, raw net.Conn, limits Limits, clock Clock) *tcpTransport {
	return &tcpTransport{conn: conn, raw: raw, reader: newMessageReader(conn, limits.FrameBytes), clock: clock}
}

func (t *tcpTransport) read() ([]byte, error) { return t.reader.next() }

func (t *tcpTransport) write(messages [][]byte) error {
	if cap(t.out) > retainBytes {
		t.out = nil
	}
	out := t.out[:0]
	for _, message := range messages {
		out = binary.BigEndian.AppendUint32(out, uint32(len(message)))
		out = append(out, message...)
	}
	t.out = out
	_, err := t.conn.Write(out)
	return err
}

// probe does nothing: TCP keepalive is on.
func (t *tcpTransport) probe(context.Context) error { return nil }

// close tells a peer behind TLS that this is the end and no cut, unless there is no time for it.
func (t *tcpTransport) close(graceful bool, wait time.Duration) {
	t.once.Do(func() {
		if graceful && t.conn != t.raw {
			stop := t.clock.AfterFunc(wait, func() { _ = t.raw.Close() })
			defer stop()
			_ = t.conn.Close()
		}
		_ = t.raw.Close()
	})
}

// orderly: TLS says the same of a connection that ended with its own word or between two of its records.
func (t *tcpTransport) orderly(err error) bool {
	return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}
