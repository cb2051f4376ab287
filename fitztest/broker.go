package fitztest

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/client"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Option changes what Start starts.
type Option func(*options)

type options struct {
	limits bounds.Limits
	hello  session.Hello
	manual *clock.Manual
	ws     bool
	tokens bool
	secure *secure // nil: without TLS
}

// WithLimits changes the bounds of the broker.
func WithLimits(change func(*bounds.Limits)) Option {
	return func(o *options) { change(&o.limits) }
}

// WithoutHello makes a broker that says nothing about itself, so that clients have no capabilities: no labels, no heartbeat, no lifetime
// (compat.md, C-60).
func WithoutHello() Option {
	return func(o *options) { o.hello = session.Hello{Mode: session.HelloOff} }
}

// WithWebSocket makes a broker that is reached through WebSocket. Every fault of Network applies to its connections as it does over TCP.
func WithWebSocket() Option {
	return func(o *options) { o.ws = true }
}

// WithManualClock makes a broker whose time moves only in Broker.Advance. Its time of day begins at wall. Such a broker asks for no
// heartbeat and closes no idle session, because clients live in another time.
func WithManualClock(wall time.Time) Option {
	return func(o *options) {
		o.manual = clock.NewManual(wall)
		o.limits.HeartbeatMs = 0
		o.limits.SessionIdleMs = never.Milliseconds()
	}
}

// never is longer than any test.
const never = 100 * 365 * 24 * time.Hour

// Broker is a running broker in memory.
type Broker struct {
	tb      testing.TB
	options options
	network *Network
	clock   clock.Clock // of every life of the broker
	doors   []door

	mu        sync.Mutex
	running   *broker.Broker
	listeners map[string]*listener // by address; nil while nothing is running
}

// Start starts a broker that ends with the test.
func Start(tb testing.TB, change ...Option) *Broker {
	tb.Helper()
	b := &Broker{tb: tb, options: options{limits: bounds.Default()}}
	for _, f := range change {
		f(&b.options)
	}
	b.network = newNetwork(tb)
	b.doors = b.options.doors()
	if b.options.secure != nil {
		b.options.secure.open(tb, b.doors)
	}
	b.clock = elapsed{time.Now()}
	if b.options.manual != nil {
		b.clock = b.options.manual
	}
	b.start()
	tb.Cleanup(b.Stop)
	return b
}

// elapsed is the clock of a broker that follows package time, which in a bubble is the time of the bubble.
type elapsed struct{ birth time.Time }

func (c elapsed) Now() clock.Instant { return clock.Instant(1 + time.Since(c.birth)) }
func (c elapsed) Wall() time.Time    { return time.Now() }
func (c elapsed) AfterFunc(d time.Duration, f func()) clock.Timer {
	return time.AfterFunc(d, f)
}

func (b *Broker) start() {
	b.tb.Helper()
	listeners := map[string]*listener{}
	options := []broker.Option{broker.WithClock(b.clock)}
	for _, d := range b.doors {
		listeners[d.address] = newListener()
		options = append(options, broker.WithListener(d.config, listeners[d.address]))
	}
	running, err := broker.Start(context.Background(), &config.Config{Limits: b.options.limits, Auth: b.options.authority()}, options...)
	if err != nil {
		b.tb.Fatalf("fitztest: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running, b.listeners = running, listeners
}

// URL is the address that clients are given, together with Dial. Its listener takes anybody.
func (b *Broker) URL() string { return b.doors[mainDoor].url }

// Dial connects to the broker through its Network. It is the dial function that clients are given; of an address that is none of the broker's it
// connects to that of URL.
func (b *Broker) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	if err := b.network.admit(); err != nil {
		return nil, err
	}
	return b.dial(ctx, b.network, address)
}

// DialDirect connects to the broker past its Network.
func (b *Broker) DialDirect(ctx context.Context, _, address string) (net.Conn, error) {
	return b.dial(ctx, nil, address)
}

// errDown is what Dial returns while no broker is running.
var errDown = errors.New("fitztest: connection refused")

func (b *Broker) dial(ctx context.Context, n *Network, address string) (net.Conn, error) {
	d := b.door(address)
	b.mu.Lock()
	l := b.listeners[d.address]
	b.mu.Unlock()
	if l == nil {
		return nil, errDown
	}
	near, far := connect(n, d.carries)
	if err := l.offer(ctx, far); err != nil {
		_ = near.Close()
		_ = far.Close()
		return nil, err
	}
	return near, nil
}

// Network returns what stands between Dial and the broker.
func (b *Broker) Network() *Network { return b.network }

// Holder connects a client that no fault reaches, until the test ends.
func (b *Broker) Holder() *client.Client {
	b.tb.Helper()
	c, err := client.Dial(b.tb.Context(), b.plainURL(), client.Options{Dial: b.DialDirect})
	if err != nil {
		b.tb.Fatalf("fitztest: holder: %v", err)
	}
	b.tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Held returns what the broker lists for a selector.
func (b *Broker) Held(selector string) []wire.LeaseItem {
	b.tb.Helper()
	c, err := client.Dial(context.Background(), b.plainURL(), client.Options{Dial: b.DialDirect})
	if err != nil {
		b.tb.Fatalf("fitztest: %v", err)
	}
	defer func() { _ = c.Close() }()
	var all []wire.LeaseItem
	request := wire.LeaseListRequest{Selector: selector, Limit: bounds.LeaseListPageMax}
	for {
		page, err := c.LeaseList(context.Background(), &request)
		if err != nil {
			b.tb.Fatalf("fitztest: LIST %s: %v", selector, err)
		}
		all = append(all, page.Items...)
		if !page.HasNext {
			return all
		}
		request.Cursor, request.HasCursor = page.Next, true
	}
}

// Advance moves the time of a broker that was started WithManualClock: leases expire, waiters time out.
func (b *Broker) Advance(d time.Duration) {
	b.tb.Helper()
	if b.options.manual == nil {
		b.tb.Fatal("fitztest: Advance needs WithManualClock")
	}
	b.options.manual.Advance(d)
}

// SetWall sets the time of day of a broker that was started WithManualClock. No deadline notices (L-14).
func (b *Broker) SetWall(wall time.Time) {
	b.tb.Helper()
	if b.options.manual == nil {
		b.tb.Fatal("fitztest: SetWall needs WithManualClock")
	}
	b.options.manual.SetWall(wall)
}

// Stop ends the broker without a grace: its connections are closed, and what was held is gone. It is idempotent.
func (b *Broker) Stop() {
	b.mu.Lock()
	running := b.running
	b.running, b.listeners = nil, nil
	b.mu.Unlock()
	if running == nil {
		return
	}
	running.Close()
}

// Shutdown ends the broker in order: sessions are told and have the grace of the broker to leave, at most until ctx ends (W-37).
func (b *Broker) Shutdown(ctx context.Context) {
	b.mu.Lock()
	running := b.running
	b.mu.Unlock()
	if running != nil {
		running.Shutdown(ctx)
	}
	b.Stop()
}

// Restart ends the broker and starts another one at the same address, with another lifetime and nothing held.
func (b *Broker) Restart() {
	b.tb.Helper()
	b.Stop()
	b.start()
}
