package transport

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/generated/go/wire"
)

// prefixSize is the size of the length before each message on TCP.
const prefixSize = 4

// readAhead is the largest buffer that is used only to take several messages with one read.
const readAhead = 32 << 10

// socket is what both transports share: a connection whose reads and writes can be interrupted for good.
type socket struct {
	nc        net.Conn
	readEnds  atomic.Bool
	writeEnds atomic.Bool
	expired   atomic.Bool // ExpireWrite was called for the write in progress
}

var longAgo = time.Unix(1, 0)

func (s *socket) RemoteAddr() net.Addr { return s.nc.RemoteAddr() }

func (s *socket) read(p []byte) (int, error) {
	n, err := s.nc.Read(p)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrInterrupted
	}
	return n, err
}

// Write is part of Conn.
func (s *socket) Write(p []byte, timeout time.Duration) (int, error) {
	deadline := time.Time{}
	if timeout > 0 {
		s.expired.Store(false)
		deadline = time.Now().Add(timeout)
	}
	// The deadline stands before the flags are looked at, and who sets a flag does it the other way round: one of the two sees it.
	if err := s.nc.SetWriteDeadline(deadline); err != nil {
		return 0, err
	}
	switch {
	case s.writeEnds.Load():
		return 0, ErrInterrupted
	case s.expired.Load():
		return 0, ErrTimeout
	}
	n, err := s.nc.Write(p)
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		err = ErrTimeout
		if s.writeEnds.Load() {
			err = ErrInterrupted
		}
	}
	return n, err
}

// ExpireWrite is part of Conn.
func (s *socket) ExpireWrite() {
	s.expired.Store(true)
	_ = s.nc.SetWriteDeadline(longAgo) // fails only when the connection is closed, and then nothing waits
}

// InterruptWrite is part of Conn.
func (s *socket) InterruptWrite() {
	s.writeEnds.Store(true)
	_ = s.nc.SetWriteDeadline(longAgo) // fails only when the connection is closed, and then nothing waits
}

func (s *socket) interruptRead() {
	s.readEnds.Store(true)
	_ = s.nc.SetReadDeadline(longAgo)
}

// Abort is part of Conn.
func (s *socket) Abort() { _ = s.nc.Close() }

// Linger is part of Conn.
func (s *socket) Linger(timeout time.Duration, bytes int) {
	defer s.Abort()
	if closeWrite(s.nc) != nil {
		return
	}
	if s.nc.SetReadDeadline(time.Now().Add(timeout)) != nil {
		return
	}
	buf := GetBuffer(smallestBuffer)
	defer PutBuffer(buf)
	for bytes > 0 {
		n, err := s.nc.Read(buf)
		bytes -= n
		if err != nil {
			return
		}
	}
}

// tcpConn is a connection with length-prefixed messages.
type tcpConn struct {
	socket
	max   int // bytes of a message
	hooks Hooks
	start int // first byte of the buffer that belongs to no returned message
	end   int // end of the received bytes
	full  int // the last so many reads filled the buffer, so that more is probably waiting
	buf   growing
}

// NewTCP returns a connection over nc that accepts messages of at most maxMessage bytes (W-10).
func NewTCP(nc net.Conn, maxMessage int, in *Inbound) Conn {
	c := &tcpConn{socket: socket{nc: nc}, max: maxMessage}
	c.buf.claim.in = in
	return c
}

func (c *tcpConn) Transport() string { return TCP }
func (c *tcpConn) Bind(h Hooks)      { c.hooks = h }

// SetMaxMessage is part of Conn.
func (c *tcpConn) SetMaxMessage(n int) { c.max = n }

func (c *tcpConn) HeaderSize(int) int { return prefixSize }

func (c *tcpConn) AppendHeader(dst []byte, payload int) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(payload))
}

func (c *tcpConn) AppendPong(dst, _ []byte) []byte                   { return dst }
func (c *tcpConn) AppendClose(dst []byte, _ uint16, _ string) []byte { return dst }

func (c *tcpConn) InterruptRead() {
	c.interruptRead()
	c.buf.claim.abort()
}

// EndRead is part of Conn.
func (c *tcpConn) EndRead() { c.buf.release() }

// ReadMessage is part of Conn.
func (c *tcpConn) ReadMessage() ([]byte, error) {
	if c.start == c.end {
		c.start, c.end = 0, 0
		if c.full < 2 { // one may be chance, and a session that waits keeps no buffer
			c.buf.release()
		}
	}
	for {
		message, err := c.next()
		if message != nil || err != nil {
			return message, err
		}
		if err := c.fill(); err != nil {
			c.buf.release()
			return nil, err
		}
	}
}

// next returns the payload of the next message when it is complete.
func (c *tcpConn) next() ([]byte, error) {
	received := c.buf.bytes()[c.start:c.end]
	if len(received) < prefixSize {
		return nil, nil
	}
	length := binary.BigEndian.Uint32(received)
	switch {
	case length == 0:
		return nil, &Violation{wire.CloseBadFrame}
	case uint64(length) > uint64(c.max):
		return nil, &Violation{wire.CloseFrameTooLarge}
	}
	size := prefixSize + int(length)
	if len(received) < size {
		return nil, nil
	}
	c.start += size
	return received[prefixSize:size:size], nil
}

// fill reads more bytes behind the partial message.
func (c *tcpConn) fill() error {
	if c.start > 0 {
		b := c.buf.bytes()
		c.end = copy(b, b[c.start:c.end])
		c.start = 0
	}
	size, limit := len(c.buf.bytes()), c.max+prefixSize
	ahead := size < readAhead && (c.full > 1 || c.full == 1 && c.end > 0)
	if size < limit && (c.end == size || ahead) {
		if !c.buf.grow(c.end, limit, c.hooks) {
			return ErrInterrupted
		}
	}
	if c.readEnds.Load() {
		return ErrInterrupted
	}
	c.hooks.Waiting(c.end > 0)
	space := c.buf.bytes()[c.end:]
	n, err := c.read(space)
	if n > 0 {
		c.end += n
		c.full++
		if n < len(space) {
			c.full = 0
		}
		c.hooks.Received()
		return nil
	}
	if err == io.EOF && c.end == 0 {
		return ErrPeerClosed
	}
	return err
}
