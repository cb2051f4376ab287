package fitztest

import (
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

// Clock is a clock for fitz.WithClock that moves only when it is told to. Everything that a client measures follows it: timeouts of
// connecting, of requests and of closing, heartbeats, delays, the deadlines of leases and the passes of observers. It needs no Broker of this
// package: a client with such a clock can be connected to any broker. All methods may be called from any goroutine.
type Clock struct{ manual *clock.Manual }

var _ fitz.WallClock = (*Clock)(nil)

// NewClock returns a clock at 0, at the time of day of the machine.
func NewClock() *Clock { return &Clock{clock.NewManual(time.Now())} }

// Now implements fitz.Clock.
func (c *Clock) Now() time.Duration { return time.Duration(c.manual.Now()) }

// Wall implements fitz.WallClock. The time of day moves with Advance.
func (c *Clock) Wall() time.Time { return c.manual.Wall() }

// AfterFunc implements fitz.Clock. A call that is due at once comes with the next Advance, one by 0 included.
func (c *Clock) AfterFunc(d time.Duration, f func()) fitz.Timer { return c.manual.AfterFunc(d, f) }

// Advance moves the clock forward by d. Calls that become due are made before it returns, in the order of their instants, each while the clock
// stands at its instant. What they wake runs in goroutines of its own: Advance does not wait for it.
func (c *Clock) Advance(d time.Duration) { c.manual.Advance(d) }

// SetWall sets the time of day, as somebody does who corrects the clock of a machine. No deadline notices (L-14).
func (c *Clock) SetWall(wall time.Time) { c.manual.SetWall(wall) }

// Next returns how long it is until the earliest pending call; 0 when it is due. False: none is pending.
func (c *Clock) Next() (time.Duration, bool) { return c.manual.Next() }

// Pending returns the number of calls that are not made yet.
func (c *Clock) Pending() int { return c.manual.Pending() }

// sharedClock is the clock of a broker as clients use it.
type sharedClock struct{ clock.Clock }

func (c sharedClock) Now() time.Duration { return time.Duration(c.Clock.Now()) }

func (c sharedClock) AfterFunc(d time.Duration, f func()) fitz.Timer {
	return c.Clock.AfterFunc(d, f)
}

// Clock returns the clock of the broker for fitz.WithClock, so that everything that a client measures moves with it: with package time, which
// in a bubble is the time of the bubble, or in Advance. A client in a bubble needs it, because its own clock is that of the machine.
func (b *Broker) Clock() fitz.Clock { return sharedClock{b.clock} }

// Options are the options with which a client reaches the broker in its time. With WithTLS the client trusts the broker.
func (b *Broker) Options() []fitz.Option {
	options := []fitz.Option{fitz.WithDialer(b.Dial), fitz.WithClock(b.Clock())}
	if s := b.options.secure; s != nil {
		options = append(options, fitz.WithTLSConfig(s.client()))
	}
	return options
}

// Connect connects a client through the network, with more options than Options, until the test ends.
func (b *Broker) Connect(more ...fitz.Option) *fitz.Client {
	b.tb.Helper()
	return b.ConnectTo(b.URL(), more...)
}

// ConnectTo is Connect to another address of the broker, such as TokenURL.
func (b *Broker) ConnectTo(url string, more ...fitz.Option) *fitz.Client {
	b.tb.Helper()
	c, err := fitz.Connect(b.tb.Context(), url, append(b.Options(), more...)...)
	if err != nil {
		b.tb.Fatalf("fitztest: connect: %v", err)
	}
	b.tb.Cleanup(func() { _ = c.Close() })
	return c
}
