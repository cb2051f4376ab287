package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter counts what a connection tells.
type counter struct{ received, waiting, begun, paused, resumed int }

func (c *counter) Received()   { c.received++ }
func (c *counter) Pause()      { c.paused++ }
func (c *counter) Resume()     { c.resumed++ }
func (c *counter) Ping([]byte) {}

func (c *counter) Waiting(begun bool) {
	c.waiting++
	if begun {
		c.begun++
	}
}

// feed is a connection whose reads return the given pieces and then EOF.
type feed struct {
	net.Conn
	pieces [][]byte
	reads  int
}

func (f *feed) Read(p []byte) (int, error) {
	if len(f.pieces) == 0 {
		return 0, io.EOF
	}
	f.reads++
	n := copy(p, f.pieces[0])
	if f.pieces[0] = f.pieces[0][n:]; len(f.pieces[0]) == 0 {
		f.pieces = f.pieces[1:]
	}
	return n, nil
}
func (f *feed) SetReadDeadline(time.Time) error { return nil }

const testMax = 4096

func newFeed(pieces ...[]byte) (*tcpConn, *feed, *counter) {
	f, h := &feed{pieces: pieces}, &counter{}
	c := NewTCP(f, testMax, NewInbound(1<<20, testMax, nil)).(*tcpConn)
	c.Bind(h)
	return c, f, h
}

func framed(payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

// Whatever the messages and however they are cut into segments, they are read as they were sent (W-10), the buffer is given back,
// and it was never larger than growthFactor times what had arrived.
func TestTCPReadsWhatWasSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, testMax), 0, 12).Draw(t, "messages")
		var stream []byte
		for _, m := range messages {
			stream = append(stream, framed(m)...)
		}
		var pieces [][]byte
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		c, _, _ := newFeed(pieces...)
		for i, want := range messages {
			got, err := c.ReadMessage()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("message %d: %d bytes, %v; want %d bytes", i, len(got), err, len(want))
			}
			if held := len(c.buf.pooled); held > 0 && held > max(growthFactor*len(stream), smallestBuffer) {
				t.Fatalf("buffer of %d bytes for %d received", held, len(stream))
			}
		}
		if _, err := c.ReadMessage(); !errors.Is(err, ErrPeerClosed) {
			t.Fatalf("end: %v", err)
		}
		if used := c.buf.claim.in.Used(); used != 0 || c.buf.pooled != nil {
			t.Fatalf("%d bytes are held at the end", used)
		}
	})
}

// D-1: the announced length allocates nothing; the buffer grows with the bytes that arrive.
func TestTCPBufferGrowsWithArrivedBytes(t *testing.T) {
	payload := make([]byte, testMax)
	stream := framed(payload)
	for n := range len(stream) {
		c, _, _ := newFeed(stream[:n])
		if _, err := c.ReadMessage(); err == nil {
			t.Fatal("a cut message was returned")
		}
		peak := int64(0)
		c, _, _ = newFeed(stream[:n])
		c.buf.claim.in.changed = func(bytes int64) { peak = max(peak, bytes) }
		_, _ = c.ReadMessage()
		if n < inlineBuffer && peak != 0 {
			t.Fatalf("%d bytes held after %d arrived", peak, n)
		}
		// While it grows, the old buffer is held beside the new one.
		if peak > int64((growthFactor+1)*n) {
			t.Fatalf("%d bytes held after %d arrived", peak, n)
		}
	}
}

// Small messages that wait together are taken with few reads.
func TestTCPReadsAhead(t *testing.T) {
	const messages = 1000
	c, f, _ := newFeed(bytes.Repeat(framed(make([]byte, 60)), messages))
	for range messages {
		if _, err := c.ReadMessage(); err != nil {
			t.Fatal(err)
		}
	}
	if f.reads > 20 {
		t.Errorf("%d reads for %d messages that had arrived", f.reads, messages)
	}
}

// W-10 and the hooks: what a connection says of bytes that arrive.
func TestTCPHooks(t *testing.T) {
	c, _, h := newFeed(framed([]byte("a")), framed([]byte("bc"))[:3], framed([]byte("bc"))[3:])
	for range 2 {
		if _, err := c.ReadMessage(); err != nil {
			t.Fatal(err)
		}
	}
	if h.received != 3 || h.waiting != 3 || h.begun != 1 {
		t.Errorf("%+v", h)
	}
	for _, prefix := range []struct {
		bytes []byte
		want  wire.CloseReason
	}{
		{[]byte{0, 0, 0, 0}, wire.CloseBadFrame},
		{binary.BigEndian.AppendUint32(nil, testMax+1), wire.CloseFrameTooLarge},
		{[]byte{0xFF, 0xFF, 0xFF, 0xFF}, wire.CloseFrameTooLarge},
	} {
		c, _, _ := newFeed(prefix.bytes)
		_, err := c.ReadMessage()
		var violation *Violation
		if !errors.As(err, &violation) || violation.Reason != prefix.want {
			t.Errorf("prefix %x: %v", prefix.bytes, err)
		}
	}
	c, _, _ = newFeed(framed([]byte("abc"))[:5])
	if _, err := c.ReadMessage(); err == nil || errors.Is(err, ErrPeerClosed) {
		t.Errorf("end inside a message: %v", err)
	}
}

func FuzzTCPReader(f *testing.F) {
	f.Add(framed([]byte("abc")), uint8(3))
	f.Add([]byte{0, 0, 0, 0}, uint8(1))
	f.Add(append(framed(make([]byte, 300)), 0xFF, 0xFF), uint8(200))
	f.Fuzz(func(t *testing.T, stream []byte, size uint8) {
		c, _, _ := newFeed(slices.Collect(slices.Chunk(stream, int(size)+1))...)
		read := 0
		for {
			message, err := c.ReadMessage()
			if err != nil {
				break
			}
			if want := stream[read+prefixSize : read+prefixSize+len(message)]; !bytes.Equal(message, want) {
				t.Fatalf("message %x, sent %x", message, want)
			}
			read += prefixSize + len(message)
		}
		if used := c.buf.claim.in.Used(); used > int64(2*testMax+prefixSize) {
			t.Fatalf("%d bytes held", used)
		}
	})
}

// The interrupts end a waiting read and a waiting write, and every later one.
func TestInterrupts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, broker := net.Pipe()
		defer func() { _ = client.Close() }()
		c := NewTCP(broker, testMax, NewInbound(1<<20, testMax, nil))
		c.Bind(&counter{})
		var group sync.WaitGroup
		group.Go(func() {
			for range 2 {
				if _, err := c.ReadMessage(); !errors.Is(err, ErrInterrupted) {
					t.Errorf("read: %v", err)
				}
			}
		})
		group.Go(func() {
			if n, err := c.Write([]byte("x"), time.Second); n != 0 || !errors.Is(err, ErrTimeout) {
				t.Errorf("write: %d, %v", n, err)
			}
			for range 2 {
				if _, err := c.Write([]byte("x"), time.Hour); !errors.Is(err, ErrInterrupted) {
					t.Errorf("write: %v", err)
				}
			}
		})
		time.Sleep(2 * time.Second)
		c.InterruptRead()
		c.InterruptWrite()
		group.Wait()
		c.Abort()
	})
}

// The budget of receive buffers under random use: never above the bound, nobody waits for ever while somebody can go on, and the
// accounts are right (inbound_total_bytes_max).
func TestInboundBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const total, message = 100_000, 20_000
		peak := int64(0)
		in := NewInbound(total, message, func(n int64) { peak = max(peak, n) })
		var group sync.WaitGroup
		paused := 0
		var mu sync.Mutex
		for i := range 40 {
			group.Go(func() {
				c := claim{in: in}
				for size := int64(512); size <= message; size = min(4*size, message) {
					if !c.take(size, func() { mu.Lock(); paused++; mu.Unlock() }, func() {}) {
						t.Error("aborted")
					}
					time.Sleep(time.Duration(i+1) * time.Millisecond)
					c.give(c.held-size, false)
					if size == message {
						break
					}
				}
				c.give(c.held, true)
			})
		}
		group.Wait()
		if peak > total {
			t.Errorf("%d bytes in use, at most %d", peak, total)
		}
		if paused == 0 || in.Used() != 0 {
			t.Errorf("%d pauses, %d bytes left", paused, in.Used())
		}
	})
}

// An aborted claim does not wait, and its place in the line is free.
func TestInboundAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := NewInbound(1000, 100, nil)
		holder, waiting, reserve := &claim{in: in}, &claim{in: in}, &claim{in: in}
		none := func() {}
		if !holder.take(400, none, none) || !reserve.take(500, none, none) {
			t.Fatal("not granted")
		}
		done := make(chan bool)
		go func() { done <- waiting.take(300, none, none) }()
		synctest.Wait()
		waiting.abort()
		if <-done || waiting.take(1, none, none) {
			t.Error("granted after the abort")
		}
		holder.give(400, true)
		reserve.give(500, true)
		if in.Used() != 0 || len(in.waiting) != 0 {
			t.Errorf("%d bytes, %d waiting", in.Used(), len(in.waiting))
		}
	})
}

// What is granted just before the claim is aborted is given back with everything else, and so is the reserve.
func TestGrantedAndAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := NewInbound(1000, 100, nil)
		holder, waiting := &claim{in: in}, &claim{in: in}
		none := func() {}
		if !holder.take(400, none, none) || !holder.take(300, none, none) {
			t.Fatal("not granted")
		}
		done := make(chan bool)
		go func() { done <- waiting.take(500, none, none) }()
		synctest.Wait()
		in.mu.Lock()
		in.used, holder.held, in.holder = 0, 0, nil // what give does
		in.wake()
		waiting.aborted = true // what abort does
		in.mu.Unlock()
		if <-done {
			t.Error("granted after the abort")
		}
		if in.Used() != 500 {
			t.Fatalf("%d bytes are granted, want 500", in.Used())
		}
		g := growing{claim: *waiting}
		g.release()
		if in.Used() != 0 {
			t.Errorf("%d bytes are held", in.Used())
		}
	})
}

// The set of connections without a first record against a model: never above its bounds, and who gives way is the oldest (W-38).
func TestPreauthModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, perAddress := rapid.IntRange(1, 6).Draw(t, "limit"), rapid.IntRange(1, 4).Draw(t, "per address")
		p := NewPreauth(clock.System(), limit, perAddress, nil)
		type item struct {
			address byte
			entry   *Entry
			gone    bool
		}
		var model []*item // oldest first
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if len(model) > 0 && rapid.Bool().Draw(t, "leave") {
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				model[i].entry.Leave()
				model[i].entry.Leave()
				model = slices.Delete(model, i, i+1)
				continue
			}
			it := &item{address: byte(rapid.IntRange(0, 2).Draw(t, "address"))}
			own := 0
			var oldest, oldestOwn *item
			for _, m := range slices.Backward(model) {
				oldest = m
				if m.address == it.address {
					own++
					oldestOwn = m
				}
			}
			victim := (*item)(nil)
			switch {
			case own >= perAddress:
				victim = oldestOwn
			case len(model) >= limit:
				victim = oldest
			}
			it.entry = p.Add(&net.TCPAddr{IP: net.IPv4(10, 0, 0, it.address)}, func() { it.gone = true })
			model = append(model, it)
			if victim != nil {
				if !victim.gone {
					t.Fatal("the oldest did not give way")
				}
				if victim.entry.Hand(func() {}) {
					t.Fatal("an evicted entry says that it is in the set")
				}
				model = slices.DeleteFunc(model, func(m *item) bool { return m == victim })
			}
			for _, m := range model {
				if m.gone {
					t.Fatal("somebody else gave way")
				}
			}
		}
		if p.Len() != len(model) {
			t.Fatalf("%d in the set, want %d", p.Len(), len(model))
		}
		for _, m := range model {
			m.entry.Leave()
		}
		if p.Len() != 0 || len(p.addresses) != 0 {
			t.Fatalf("%d entries and %d addresses are left", p.Len(), len(p.addresses))
		}
	})
}

// IPv4 and its IPv6 form are one address; ports and zones do not count.
func TestAddressOf(t *testing.T) {
	want := netip.MustParseAddr("10.0.0.1")
	for _, a := range []net.Addr{
		&net.TCPAddr{IP: net.ParseIP("10.0.0.1").To4(), Port: 1},
		&net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1"), Port: 2},
	} {
		if got := addressOf(a); got != want {
			t.Errorf("%v is %v", a, got)
		}
	}
	if got := addressOf(&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}); got != netip.MustParseAddr("fe80::1") {
		t.Errorf("zone: %v", got)
	}
}

// W-24: configured origins take the form that browsers send.
func TestNormalizeOrigin(t *testing.T) {
	for text, want := range map[string]string{
		"https://Example.COM":         "https://example.com",
		"HTTPS://example.com:443":     "https://example.com",
		"http://example.com:80":       "http://example.com",
		"http://example.com:443":      "http://example.com:443",
		"http://localhost:3000":       "http://localhost:3000",
		"http://[::1]:80":             "http://[::1]",
		"https://[2001:DB8::1]:8443":  "https://[2001:db8::1]:8443",
		"https://example.com/":        "",
		"https://example.com/a":       "",
		"https://example.com?x":       "",
		"https://example.com?":        "",
		"https://example.com#x":       "",
		"https://example.com#":        "",
		"https://*.example.com":       "",
		"*":                           "",
		"null":                        "",
		"example.com":                 "",
		"https://user@example.com":    "",
		"https://":                    "",
		"https://example.com:":        "",
		"https://[2001:0db8::0001]":   "https://[2001:db8::1]",
		"https://[fe80::1%25eth0]":    "",
		"https://b\u00fccher.example": "",
		"https://example.com:0443":    "",
		"https://example.com:0":       "",
		"https://example.com:70000":   "",
	} {
		got, err := NormalizeOrigin(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}

// Buffers come back in their class and are never smaller than asked for.
func TestBuffers(t *testing.T) {
	for _, n := range []int{1, 511, 512, 513, 2048, 2049, 100_000, 524_288, 524_289, 2_000_000} {
		b := GetBuffer(n)
		if len(b) < n {
			t.Errorf("%d bytes for %d", len(b), n)
		}
		PutBuffer(b[:0])
	}
	for size, limit := inlineBuffer, 1<<20+4; size < limit; {
		next := nextSize(size, limit)
		if next <= size || next > growthFactor*size || next > limit {
			t.Fatalf("after %d comes %d", size, next)
		}
		size = next
	}
}
