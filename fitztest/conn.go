package fitztest

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// windowBytes is what a direction of a connection holds before its writer waits, as the buffers of a socket do.
const windowBytes = 64 << 10

// memoryAddr is the address of both ends of every connection.
type memoryAddr struct{}

func (memoryAddr) Network() string { return "memory" }
func (memoryAddr) String() string  { return "memory" }

// errReset is what both ends of a connection get that the network has cut.
var errReset error = &net.OpError{Op: "read", Net: "memory", Err: syscall.ECONNRESET}

// listener accepts connections in memory.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept is part of net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close is part of net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is part of net.Listener.
func (l *listener) Addr() net.Addr { return memoryAddr{} }

// offer hands a connection to Accept.
func (l *listener) offer(ctx context.Context, c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.closed:
		return errDown
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stream is one direction of a connection: bytes that were written and not read. Its lock is never held across anything that waits for
// somebody else than the other end.
type stream struct {
	mu       sync.Mutex
	changed  sync.Cond
	buf      []byte
	finished bool // the writer has closed: the reader gets what is left, then the end
	broken   bool // the reader has closed: writing is in vain
	frozen   bool // a fault: the reader gets nothing
	reset    bool // a fault: the connection is lost
	read     deadline
	write    deadline
}

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

// deadline is when waiting ends.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// passed reports whether the deadline is over. The lock of the stream is held.
func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (s *stream) setDeadline(d *deadline, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if !at.IsZero() {
		d.timer = time.AfterFunc(max(time.Until(at), 0), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
	}
	s.changed.Broadcast()
}

// take reads, waiting for bytes.
func (s *stream) take(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.broken:
			return 0, net.ErrClosed
		case s.reset:
			return 0, errReset
		case s.read.passed():
			return 0, os.ErrDeadlineExceeded
		case len(s.buf) > 0 && !s.frozen:
			n := copy(p, s.buf)
			s.buf = append(s.buf[:0], s.buf[n:]...)
			s.changed.Broadcast()
			return n, nil
		case s.finished && len(s.buf) == 0:
			return 0, io.EOF
		}
		s.changed.Wait()
	}
}

// room waits until something may be written.
func (s *stream) room() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.reset:
			return errReset
		case s.broken:
			return io.ErrClosedPipe
		case s.finished:
			return net.ErrClosed
		case s.write.passed():
			return os.ErrDeadlineExceeded
		case len(s.buf) < windowBytes:
			return nil
		}
		s.changed.Wait()
	}
}

// put appends bytes. It does not wait: room was there before.
func (s *stream) put(p []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.broken && !s.finished {
		s.buf = append(s.buf, p...)
		s.changed.Broadcast()
	}
}

func (s *stream) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changed.Broadcast()
}

// stopTimers ends what deadlines left.
func (s *stream) stopTimers() {
	for _, d := range []*deadline{&s.read, &s.write} {
		if d.timer != nil {
			d.timer.Stop()
		}
	}
}

// conn is one end of a connection.
type conn struct {
	in, out *stream
	relay   *relay // what is written goes through it; nil: straight into out
	once    sync.Once
	forget  func()
}

// connect makes a connection. Frames of both directions go through the network, if there is one.
func connect(n *Network, carries carrier) (near, far *conn) {
	up, down := newStream(), newStream()
	near, far = &conn{in: down, out: up}, &conn{in: up, out: down}
	if n != nil {
		n.attach(near, far, carries)
	}
	return near, far
}

// Read is part of net.Conn.
func (c *conn) Read(p []byte) (int, error) { return c.in.take(p) }

// Write is part of net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.out.room(); err != nil {
		return 0, err
	}
	if c.relay == nil {
		c.out.put(p)
	} else {
		c.relay.write(p)
	}
	return len(p), nil
}

// Close is part of net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() {
		c.in.set(func() { c.in.broken = true; c.in.stopTimers() })
		c.out.set(func() { c.out.finished = true; c.out.stopTimers() })
		if c.forget != nil {
			c.forget()
		}
	})
	return nil
}

// CloseWrite ends the sending side.
func (c *conn) CloseWrite() error {
	c.out.set(func() { c.out.finished = true })
	return nil
}

// LocalAddr is part of net.Conn.
func (c *conn) LocalAddr() net.Addr { return memoryAddr{} }

// RemoteAddr is part of net.Conn.
func (c *conn) RemoteAddr() net.Addr { return memoryAddr{} }

// SetDeadline is part of net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.read, t)
	c.out.setDeadline(&c.out.write, t)
	return nil
}

// SetReadDeadline is part of net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.read, t)
	return nil
}

// SetWriteDeadline is part of net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.write, t)
	return nil
}
