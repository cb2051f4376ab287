package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// recordMax is the largest part of a write that becomes one record of TLS (RFC 8446 section 5.1), in bytes.
	recordMax = 1 << 14
	// sealedMax bounds what is encrypted and not handed to the socket yet, in bytes: one write, and answers to a peer that changes its
	// keys again and again and reads nothing.
	sealedMax = 4 * recordMax
	// closeNotifyTimeout bounds in real time how long the end of a connection waits for a peer that reads nothing.
	closeNotifyTimeout = time.Second
)

// tlsConn is a connection over TLS. The handshake belongs to the first read, so that it runs in the goroutine of the connection.
//
// A write of crypto/tls that meets its deadline spoils the connection, while a session goes on after one when the peer has read at
// least something (W-82). Therefore the library writes into memory, and what it wrote is handed to the socket here, where a deadline
// spoils nothing.
type tlsConn struct {
	raw  net.Conn
	tls  *tls.Conn
	from *TLS

	ready  atomic.Bool // the handshake is complete
	failed sync.Once
	// notify says that Close ends the sending side in order. It is for connections that speak HTTP; a session ends its own.
	notify atomic.Bool

	writing sync.Mutex // held by whoever hands bytes to the socket
	owed    int        // bytes at the start of the next write that are sealed already; guarded by writing
	mu      sync.Mutex
	sealed  []byte // encrypted, not handed to the socket
}

func (t *TLS) secure(raw net.Conn) *tlsConn {
	c := &tlsConn{raw: raw, from: t}
	c.tls = tls.Server(sink{c}, t.config)
	c.notify.Store(t.options.HTTP)
	return c
}

// sink is the connection as the library sees it. It has no deadlines of its own.
type sink struct{ c *tlsConn }

func (s sink) Read(p []byte) (int, error)       { return s.c.raw.Read(p) }
func (s sink) Close() error                     { return s.c.raw.Close() }
func (s sink) LocalAddr() net.Addr              { return s.c.raw.LocalAddr() }
func (s sink) RemoteAddr() net.Addr             { return s.c.raw.RemoteAddr() }
func (s sink) SetDeadline(time.Time) error      { return nil }
func (s sink) SetReadDeadline(time.Time) error  { return nil }
func (s sink) SetWriteDeadline(time.Time) error { return nil }

// Write hands the handshake to the socket, and keeps everything behind it.
func (s sink) Write(p []byte) (int, error) {
	if !s.c.ready.Load() {
		return s.c.raw.Write(p)
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if len(s.c.sealed)+len(p) > sealedMax {
		return 0, errors.New("the peer asks for more than it reads")
	}
	if s.c.sealed == nil {
		s.c.sealed = GetBuffer(len(p))[:0]
	}
	s.c.sealed = append(s.c.sealed, p...)
	return len(p), nil
}

// handshake completes the handshake, which is done once.
func (c *tlsConn) handshake() error {
	if c.ready.Load() {
		return nil
	}
	if err := c.tls.Handshake(); err != nil {
		c.failed.Do(func() { c.from.failed(c.raw.RemoteAddr(), err) })
		return err
	}
	if !c.ready.Swap(true) {
		_ = c.raw.SetWriteDeadline(time.Time{}) // see SetReadDeadline; fails only when the connection is closed
		c.from.done()
	}
	return nil
}

// Read is part of net.Conn.
func (c *tlsConn) Read(p []byte) (int, error) {
	if err := c.handshake(); err != nil {
		return 0, err
	}
	return c.tls.Read(p)
}

// Write is part of net.Conn. It counts the bytes whose records the socket took completely. After a deadline the next call must begin with
// the bytes that were not counted: some of them are encrypted already.
func (c *tlsConn) Write(p []byte) (int, error) {
	if err := c.handshake(); err != nil {
		return 0, err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.flush(); err != nil {
		return 0, err
	}
	written := min(c.owed, len(p))
	c.owed = 0
	for written < len(p) {
		part := p[written:min(len(p), written+recordMax)]
		if _, err := c.tls.Write(part); err != nil {
			return written, err
		}
		if err := c.flush(); err != nil {
			c.owed = len(part)
			return written, err
		}
		written += len(part)
	}
	return written, nil
}

// flush hands to the socket what is sealed. The reader may add to it meanwhile, behind what is there.
func (c *tlsConn) flush() error {
	for {
		c.mu.Lock()
		sealed := c.sealed
		c.mu.Unlock()
		if len(sealed) == 0 {
			return nil
		}
		n, err := c.raw.Write(sealed)
		c.took(n)
		if err != nil {
			return err
		}
	}
}

// took drops what the socket has taken.
func (c *tlsConn) took(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := copy(c.sealed, c.sealed[n:])
	if c.sealed = c.sealed[:left]; left == 0 {
		PutBuffer(c.sealed)
		c.sealed = nil
	}
}

// CloseWrite ends the sending side in order: it tells the peer so that nobody on the way can make it up (RFC 8446 section 6.1).
func (c *tlsConn) CloseWrite() error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.endWriting()
}

// endWriting is CloseWrite for a caller that holds writing.
func (c *tlsConn) endWriting() error {
	if !c.ready.Load() {
		return errors.New("closed before the end of the handshake")
	}
	if err := c.raw.SetWriteDeadline(time.Now().Add(closeNotifyTimeout)); err != nil {
		return err
	}
	if err := c.tls.CloseWrite(); err != nil {
		return err
	}
	if err := c.flush(); err != nil {
		return err
	}
	return closeWrite(c.raw)
}

func closeWrite(nc net.Conn) error {
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close is part of net.Conn.
func (c *tlsConn) Close() error {
	if c.notify.Load() && c.writing.TryLock() { // whoever writes meanwhile is cut off
		_ = c.endWriting() // nobody waits for the peer
		c.writing.Unlock()
	}
	return c.raw.Close()
}

func (c *tlsConn) LocalAddr() net.Addr  { return c.raw.LocalAddr() }
func (c *tlsConn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// SetDeadline is part of net.Conn.
func (c *tlsConn) SetDeadline(t time.Time) error { return c.raw.SetDeadline(t) }

// SetReadDeadline is part of net.Conn. Before the end of the handshake it counts for writing too, because a read writes then.
func (c *tlsConn) SetReadDeadline(t time.Time) error {
	if !c.ready.Load() {
		return c.raw.SetDeadline(t)
	}
	return c.raw.SetReadDeadline(t)
}

// SetWriteDeadline is part of net.Conn.
func (c *tlsConn) SetWriteDeadline(t time.Time) error { return c.raw.SetWriteDeadline(t) }
