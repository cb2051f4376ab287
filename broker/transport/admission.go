package transport

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
)

// Slots counts connections against connections_max (W-38). Listeners that share it stop accepting while it is full, so that
// further connections wait in the backlog of the system.
type Slots struct {
	mu      sync.Mutex
	max     int
	used    int
	changed *sync.Cond
	// Full, when set before the first connection, is called each time the last slot is taken. It must not block.
	Full func()
	// accepting holds the listeners that wait in Accept; they are called back when the last slot is taken.
	accepting map[*Listener]struct{}
}

// NewSlots returns limit free slots.
func NewSlots(limit int) *Slots {
	s := &Slots{max: limit, accepting: make(map[*Listener]struct{})}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Used returns the number of connections.
func (s *Slots) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// await waits until a slot is free and notes that l goes on to accept. False: l was closed.
func (s *Slots) await(l *Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.used >= s.max && !l.closed {
		s.changed.Wait()
	}
	if l.closed {
		return false
	}
	l.wake(time.Time{})
	s.accepting[l] = struct{}{}
	return true
}

// take gets a slot for a connection that l has accepted. It waits in the rare case that two listeners have accepted for one
// slot: the connection is then kept unread, as if it were in the backlog. False: l was closed.
func (s *Slots) take(l *Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accepting, l)
	for s.used >= s.max && !l.closed {
		s.changed.Wait()
	}
	if l.closed && s.used >= s.max {
		return false
	}
	s.used++
	if s.used >= s.max {
		for other := range s.accepting {
			other.wake(longAgo)
		}
		if s.Full != nil {
			s.Full()
		}
	}
	return true
}

// stopped notes that l does not wait in Accept any more.
func (s *Slots) stopped(l *Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.accepting, l)
}

func (s *Slots) put() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.changed.Broadcast()
}

// Bounds for which a connection without a complete first record gives way, as bounds.yaml names them.
const (
	BoundPreauth    = "preauth_sessions_max"
	BoundPerAddress = "preauth_per_address_max"
)

// Preauth keeps the connections without a complete first record and bounds their number, in all and per remote address
// (preauth_sessions_max, preauth_per_address_max, W-38). The oldest gives way.
type Preauth struct {
	mu        sync.Mutex
	max       int
	maxEach   int
	all       *list.List                // of *Entry, oldest first
	addresses map[netip.Addr]*list.List // of *Entry, oldest first; no empty lists
	changed   func(n int)
	clock     clock.Clock
	// Evicted, when set before the first connection, is called with the name of the bound for which a connection has to give way. It
	// must not block.
	Evicted func(bound string)
}

// NewPreauth returns an empty set whose entries are told by c when they came. changed, when not nil, is told the number of
// connections; it must not block.
func NewPreauth(c clock.Clock, limit, perAddress int, changed func(n int)) *Preauth {
	return &Preauth{clock: c, max: limit, maxEach: perAddress, all: list.New(), addresses: make(map[netip.Addr]*list.List), changed: changed}
}

// Len returns the number of connections in the set.
func (p *Preauth) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all.Len()
}

// Entry is the place of one connection in the set.
type Entry struct {
	// Since is when the connection was accepted (W-30).
	Since   clock.Instant
	set     *Preauth
	address netip.Addr
	inAll   *list.Element // nil once the entry has left
	inOwn   *list.Element
	evicted bool
	evict   func()
}

// Add puts a connection into the set. evict is called, from another goroutine and without locks, when it has to give way.
func (p *Preauth) Add(remote net.Addr, evict func()) *Entry {
	e := &Entry{Since: p.clock.Now(), set: p, address: addressOf(remote), evict: evict}
	p.mu.Lock()
	own := p.addresses[e.address]
	if own == nil {
		own = list.New()
		p.addresses[e.address] = own
	}
	var oldest *Entry
	var bound string
	switch {
	case own.Len() >= p.maxEach:
		oldest, bound = own.Front().Value.(*Entry), BoundPerAddress
	case p.all.Len() >= p.max:
		oldest, bound = p.all.Front().Value.(*Entry), BoundPreauth
	}
	var end func()
	if oldest != nil {
		p.remove(oldest)
		oldest.evicted = true
		end = oldest.evict
		p.addresses[e.address] = own // it is dropped when its last entry leaves
		if p.Evicted != nil {
			p.Evicted(bound)
		}
	}
	e.inAll, e.inOwn = p.all.PushBack(e), own.PushBack(e)
	p.tell()
	p.mu.Unlock()
	if end != nil {
		end()
	}
	return e
}

// Leave takes the connection out of the set: its first record is complete, or it ended. It may be called more than once.
func (e *Entry) Leave() {
	e.set.mu.Lock()
	defer e.set.mu.Unlock()
	if e.inAll != nil {
		e.set.remove(e)
		e.set.tell()
	}
}

// Hand replaces what is called when the connection has to give way. False: it has given way already.
func (e *Entry) Hand(evict func()) bool {
	e.set.mu.Lock()
	defer e.set.mu.Unlock()
	e.evict = evict
	return !e.evicted
}

// remove takes e out of both lists. The lock is held.
func (p *Preauth) remove(e *Entry) {
	p.all.Remove(e.inAll)
	own := p.addresses[e.address]
	own.Remove(e.inOwn)
	e.inAll, e.inOwn = nil, nil
	if own.Len() == 0 {
		delete(p.addresses, e.address)
	}
}

func (p *Preauth) tell() {
	if p.changed != nil {
		p.changed(p.all.Len())
	}
}

// addressOf returns the address without port and zone. Connections without one share the zero address.
func addressOf(remote net.Addr) netip.Addr {
	if tcp, ok := remote.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// Accepted is a connection that has a slot and, until it leaves, a place in the set of connections without a first record.
type Accepted struct {
	net.Conn
	Entry *Entry
	slots *Slots
	once  sync.Once
	err   error
	heard func(begin []byte) // is told what comes first, once; nil: nobody
	limit clock.Timer        // closes the connection while it is not a session yet; nil when nothing does
}

// Read is part of net.Conn. Like every connection it has one reader at a time.
func (a *Accepted) Read(p []byte) (int, error) {
	n, err := a.Conn.Read(p)
	if a.heard != nil && n > 0 {
		a.heard(p[:n])
		a.heard = nil
	}
	return n, err
}

// Limit closes the connection after d unless Unlimit is called before. It is called once, before the connection is used.
func (a *Accepted) Limit(d time.Duration) {
	a.limit = a.Entry.set.clock.AfterFunc(d, func() { a.drop() })
}

// Unlimit takes back what Limit said. It may be called more than once.
func (a *Accepted) Unlimit() {
	if a.limit != nil {
		a.limit.Stop()
	}
}

// Close closes the connection and frees its slot. It may be called more than once.
func (a *Accepted) Close() error {
	a.once.Do(func() {
		a.err = a.Conn.Close()
		a.Entry.Leave()
		a.slots.put()
	})
	return a.err
}

// CloseWrite ends the sending side.
func (a *Accepted) CloseWrite() error { return closeWrite(a.Conn) }

// drop closes the connection without a word to the peer, for which the caller cannot wait.
func (a *Accepted) drop() {
	a.upgraded()
	_ = a.Close()
}

// upgraded says that the connection does not speak HTTP any more: Close ends it at once.
func (a *Accepted) upgraded() {
	if secure, ok := a.Conn.(*tlsConn); ok {
		secure.notify.Store(false)
	}
}

// Listener accepts connections within Slots and enters them into Preauth. It is a net.Listener, so that an HTTP server can use
// it; what Accept returns is an *Accepted.
type Listener struct {
	net.Listener
	slots   *Slots
	preauth *Preauth
	failed  func(err error)
	secure  *TLS // nil: connections are plain
	// Mistaken, when set, is told who begins with a handshake of TLS on a plain listener. It is set before the first Accept.
	Mistaken func(remote net.Addr)
	closed   bool // guarded by slots.mu
	ended    chan struct{}
	once     sync.Once
}

// Listen wraps an open listener. failed, when not nil, is told about errors after which accepting goes on.
func Listen(inner net.Listener, slots *Slots, preauth *Preauth, failed func(err error)) *Listener {
	return &Listener{Listener: inner, slots: slots, preauth: preauth, failed: failed, ended: make(chan struct{})}
}

// Secure makes every connection one over TLS. It is called before the first Accept.
func (l *Listener) Secure(t *TLS) { l.secure = t }

// Pauses between attempts to accept after the system had no room, such as too few descriptors.
const (
	acceptPause    = 5 * time.Millisecond
	acceptPauseMax = time.Second
)

// Accept is part of net.Listener. After Close it returns net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	pause := acceptPause
	for {
		if !l.slots.await(l) {
			return nil, net.ErrClosed
		}
		nc, err := l.Listener.Accept()
		switch {
		case err == nil:
			return l.admit(nc)
		case errors.Is(err, net.ErrClosed):
			l.slots.stopped(l)
			return nil, net.ErrClosed
		case isTimeout(err): // the last slot was taken through another listener
			l.slots.stopped(l)
			continue
		}
		l.slots.stopped(l)
		if l.failed != nil {
			l.failed(err)
		}
		select {
		case <-l.ended:
			return nil, net.ErrClosed
		case <-time.After(pause): // real time: it is the system that has to recover
			pause = min(2*pause, acceptPauseMax)
		}
	}
}

func (l *Listener) admit(nc net.Conn) (net.Conn, error) {
	if !l.slots.take(l) {
		_ = nc.Close()
		return nil, net.ErrClosed
	}
	if tcp, ok := nc.(*net.TCPConn); ok {
		// W-11. They fail only on a connection that is gone, which the first read tells.
		_ = tcp.SetNoDelay(true)
		_ = tcp.SetKeepAlive(true)
	}
	a := &Accepted{Conn: nc, slots: l.slots}
	switch {
	case l.secure != nil:
		a.Conn = l.secure.secure(nc)
	case l.Mistaken != nil:
		a.heard = func(begin []byte) {
			if beginsTLS(begin) {
				l.Mistaken(nc.RemoteAddr())
			}
		}
	}
	a.Entry = l.preauth.Add(nc.RemoteAddr(), a.drop)
	return a, nil
}

// Close stops accepting. Connections that were accepted stay open.
func (l *Listener) Close() error {
	l.slots.mu.Lock()
	l.closed = true
	l.slots.changed.Broadcast()
	l.slots.mu.Unlock()
	l.once.Do(func() { close(l.ended) })
	return l.Listener.Close()
}

// wake ends a waiting Accept, or lets later ones wait again.
func (l *Listener) wake(deadline time.Time) {
	if d, ok := l.Listener.(interface{ SetDeadline(time.Time) error }); ok {
		_ = d.SetDeadline(deadline)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
