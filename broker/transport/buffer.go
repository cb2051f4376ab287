package transport

import (
	"slices"
	"sync"
	"unsafe"
)

// Size classes of pooled buffers. Each is four times the one before, so that a buffer is never larger than four times what
// arrived in it.
const (
	smallestBuffer = 512
	growthFactor   = 4
	bufferClasses  = 6 // 512 bytes to 512 KiB
)

// inlineBuffer is the size of the buffer that every connection holds in itself: a length prefix and a usual request.
const inlineBuffer = 128

// bufferPools hold the first bytes of free buffers: a pointer goes into a pool without allocating, and the class tells the size.
var bufferPools [bufferClasses]sync.Pool

// classSize returns the size of a class.
func classSize(class int) int { return smallestBuffer << (2 * class) }

// classOf returns the class whose size is exactly n, or -1.
func classOf(n int) int {
	for class := range bufferClasses {
		if classSize(class) == n {
			return class
		}
	}
	return -1
}

// nextSize returns the size of the buffer that follows one of size n when no message needs more than limit bytes.
func nextSize(n, limit int) int {
	size := smallestBuffer
	for size <= n {
		size *= growthFactor
	}
	return min(size, limit)
}

// GetBuffer returns a buffer of at least n bytes, from a pool when a class fits.
func GetBuffer(n int) []byte {
	for class := range bufferClasses {
		size := classSize(class)
		if n > size {
			continue
		}
		if first, ok := bufferPools[class].Get().(*byte); ok {
			return unsafe.Slice(first, size)
		}
		return make([]byte, size)
	}
	return make([]byte, n)
}

// PutBuffer gives a buffer back. Buffers that belong to no class are left to the garbage collector.
func PutBuffer(b []byte) {
	b = b[:cap(b)]
	if class := classOf(len(b)); class >= 0 {
		bufferPools[class].Put(unsafe.SliceData(b))
	}
}

// Inbound is the budget of receive buffers over all connections (inbound_total_bytes_max, W-81).
//
// A connection asks before its buffer grows and is not read until it may. The larger the buffer it asks for, the earlier it
// waits: growth by n bytes is granted while n more would still be free, so that the largest partial messages stop first and
// small ones go on. The total never passes the bound.
//
// Connections that wait keep what they hold, so all of them could wait for each other. Therefore a part of the budget is set
// aside for one connection at a time, the one that asks for least: it always gets what it asks for until its message is
// complete. A peer that has this place and does not send is ended by session_read_timeout_ms like every other.
type Inbound struct {
	mu       sync.Mutex
	max      int64
	reserved int64
	used     int64
	holder   *claim
	waiting  []*claim
	changed  func(bytes int64)
}

// NewInbound returns a budget of max bytes for messages of at most message bytes. changed, when not nil, is told the number
// of bytes in use after each change; it must not block.
func NewInbound(maxBytes, message int64, changed func(bytes int64)) *Inbound {
	// The connection that has the reserve holds its old and its new buffer while it grows.
	reserved := min(2*message, maxBytes/2)
	return &Inbound{max: maxBytes, reserved: reserved, changed: changed}
}

// Used returns the number of bytes in receive buffers.
func (in *Inbound) Used() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.used
}

// claim is what one connection holds of the budget.
type claim struct {
	in      *Inbound
	held    int64
	asks    int64
	granted chan struct{}
	aborted bool
}

// take asks for n more bytes and waits until they are granted. False: the claim was aborted. pause and resume are called
// around the waiting, if there is any.
func (c *claim) take(n int64, pause, resume func()) bool {
	in := c.in
	in.mu.Lock()
	if c.aborted {
		in.mu.Unlock()
		return false
	}
	if in.grant(c, n) {
		in.mu.Unlock()
		return true
	}
	granted := make(chan struct{})
	c.asks, c.granted = n, granted
	in.waiting = append(in.waiting, c)
	in.mu.Unlock()

	pause()
	<-granted
	resume()

	in.mu.Lock()
	defer in.mu.Unlock()
	return !c.aborted // what may have been granted just before is given back with the rest
}

// grant gives n bytes to c if it may have them now. The lock is held.
func (in *Inbound) grant(c *claim, n int64) bool {
	switch {
	case in.holder == c && in.used+n <= in.max:
	case in.used+2*n <= in.max-in.reserved:
	case in.holder == nil && in.used+n <= in.max:
		in.holder = c
	default:
		return false
	}
	in.used += n
	c.held += n
	in.tell()
	return true
}

// end returns everything, and the reserve if the claim has it.
func (c *claim) end() {
	if c.held > 0 { // else it has no reserve either; nobody else changes it while the claim does not wait
		c.give(c.held, true)
	}
}

// give returns n bytes. done says that the message is complete, so that the reserve is free for another.
func (c *claim) give(n int64, done bool) {
	in := c.in
	in.mu.Lock()
	defer in.mu.Unlock()
	in.used -= n
	c.held -= n
	if done && in.holder == c {
		in.holder = nil
	}
	in.tell()
	in.wake()
}

// wake grants what fits now, the smallest requests first. The lock is held.
func (in *Inbound) wake() {
	if len(in.waiting) == 0 {
		return
	}
	slices.SortStableFunc(in.waiting, func(a, b *claim) int { return int(a.asks - b.asks) })
	for len(in.waiting) > 0 && in.grant(in.waiting[0], in.waiting[0].asks) {
		in.leave(in.waiting[0])
	}
}

// leave takes a claim out of the line. The lock is held.
func (in *Inbound) leave(c *claim) {
	if i := slices.Index(in.waiting, c); i >= 0 {
		in.waiting = slices.Delete(in.waiting, i, i+1)
		close(c.granted)
	}
}

// abort ends the current and every later take.
func (c *claim) abort() {
	in := c.in
	in.mu.Lock()
	defer in.mu.Unlock()
	c.aborted = true
	in.leave(c)
}

func (in *Inbound) tell() {
	if in.changed != nil {
		in.changed(in.used)
	}
}

// growing is the receive buffer of one connection: a small array inside the connection, and a pooled buffer while a message
// needs more. It grows only when the bytes that arrived have filled it (D-1).
type growing struct {
	inline [inlineBuffer]byte
	pooled []byte
	claim  claim
}

// bytes returns the buffer in use.
func (g *growing) bytes() []byte {
	if g.pooled != nil {
		return g.pooled
	}
	return g.inline[:]
}

// grow replaces the buffer with the next larger one, which is never larger than limit, and keeps its first n bytes. False:
// interrupted. The caller has made sure that the buffer is smaller than limit.
func (g *growing) grow(n, limit int, h Hooks) bool {
	size := nextSize(len(g.bytes()), limit)
	if !g.claim.take(int64(size), h.Pause, h.Resume) {
		return false
	}
	larger := GetBuffer(size)[:size]
	copy(larger, g.bytes()[:n])
	old := g.pooled
	g.pooled = larger
	if old != nil {
		g.claim.give(int64(len(old)), false)
		PutBuffer(old)
	}
	return true
}

// release gives the pooled buffer back, and what was granted for another one that was not taken any more.
func (g *growing) release() {
	if g.pooled != nil {
		PutBuffer(g.pooled)
		g.pooled = nil
	}
	g.claim.end()
}
