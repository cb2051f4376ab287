package session

import (
	"net"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/bounds"
)

// onePipe is a listener with one connection.
type onePipe struct{ conn net.Conn }

func (p *onePipe) Accept() (net.Conn, error) { return p.conn, nil }
func (p *onePipe) Close() error              { return nil }
func (p *onePipe) Addr() net.Addr            { return &net.TCPAddr{} }

// openOne registers one session without running it.
func openOne(t *testing.T, h *Hub) *Session {
	t.Helper()
	client, broker := net.Pipe()
	limits := bounds.Default()
	listener := transport.Listen(&onePipe{broker}, transport.NewSlots(1), transport.NewPreauth(clock.System(), 1, 1, nil), nil)
	nc, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	accepted := nc.(*transport.Accepted)
	inbound := transport.NewInbound(limits.InboundTotalBytesMax, limits.FrameRecvMax, nil)
	s := h.Open(transport.NewTCP(accepted, int(limits.FrameRecvMax), inbound), accepted.Entry, Door{})
	t.Cleanup(func() {
		accepted.Entry.Leave()
		_ = client.Close()
		_ = nc.Close()
	})
	return s
}

func hubWithKey(key byte) *Hub {
	return NewHub(Options{Limits: bounds.Default(), Clock: clock.NewManual(time.Time{}), IncarnationKey: [32]byte{key}})
}

// L-13: the incarnation is a hash of the session number under the key of the broker lifetime: the same number has another one after a
// restart. A number whose incarnation a live session has is skipped.
// AC-I04, AC-I05.
func TestIncarnation(t *testing.T) {
	h, restarted := hubWithKey(1), hubWithKey(2)
	seen := map[uint64]bool{}
	for number := uint64(1); number <= 1000; number++ {
		n := h.incarnation(number)
		if n == 0 || seen[n] || n == number || n == restarted.incarnation(number) || n != hubWithKey(1).incarnation(number) {
			t.Fatalf("number %d has the incarnation %x", number, n)
		}
		seen[n] = true
	}
	first := openOne(t, h)
	if first.Number() != 1 || first.Incarnation() != h.incarnation(1) {
		t.Errorf("first session: number %d, incarnation %x", first.Number(), first.Incarnation())
	}
	for number := uint64(2); number <= 4; number++ {
		h.sessions[h.incarnation(number)] = first // as if it collided
	}
	second := openOne(t, h)
	if second.Number() != 5 || second.Incarnation() != h.incarnation(5) || h.sessions[second.Incarnation()] != second {
		t.Errorf("second session: number %d, incarnation %x", second.Number(), second.Incarnation())
	}
	delete(h.sessions, h.incarnation(4))
	if third := openOne(t, h); third.Number() != 6 {
		t.Errorf("a number was used again: %d", third.Number()) // a reconnected client is a new session
	}
}
