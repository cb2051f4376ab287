// Package broker assembles the broker: listeners, sessions, dispatch, domains and the admin interface. Layers know only what is
// below them: transport, session, generated dispatch, domains.
package broker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/admin"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/lease"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// Option changes what a broker is made of. The defaults are those of fitzd.
type Option func(*Broker)

// WithClock sets the source of time.
func WithClock(c clock.Clock) Option { return func(b *Broker) { b.clock = c } }

// WithLog sets where the broker logs to; without it the broker is silent.
func WithLog(log *slog.Logger) Option { return func(b *Broker) { b.log = log } }

// WithRandom sets the source of the lifetime id and of the incarnation key (L-13).
func WithRandom(r io.Reader) Option { return func(b *Broker) { b.random = r } }

// WithListener serves connections that an open listener accepts, besides those of the configuration. The broker closes it. Connections
// in memory, as in tests, come through here.
func WithListener(l config.Listener, socket net.Listener) Option {
	return func(b *Broker) { b.doors = append(b.doors, door{l, socket}) }
}

// WithAddress makes the addresses file and Addresses name an address that something else than the broker serves.
func WithAddress(name, address string) Option { return func(b *Broker) { b.addresses[name] = address } }

// Broker is a running broker.
type Broker struct {
	config *config.Config
	clock  clock.Clock
	log    *slog.Logger
	random io.Reader

	keys      keys
	observed  *observed
	scraper   *scrape
	hub       *session.Hub
	lease     *lease.Domain
	inbound   *transport.Inbound
	slots     *transport.Slots
	preauth   *transport.Preauth
	doors     []door
	servers   []*http.Server // of WebSocket listeners
	admins    []*http.Server
	addresses map[string]string

	stopDomain context.CancelFunc
	lifetime   [16]byte // broker_lifetime_id
	started    clock.Instant
	startedAt  time.Time
	accepting  sync.WaitGroup // accept loops, HTTP servers and the domain
	serving    gate           // sessions
	ready      atomic.Bool
	drained    sync.Once
	closed     sync.Once
}

// door is one open socket that clients come through.
type door struct {
	config config.Listener
	socket net.Listener
}

// Start binds every listener of the configuration and serves them. When it returns an error, nothing is left running. ctx bounds
// the start only; Shutdown or Close end the broker.
func Start(ctx context.Context, c *config.Config, options ...Option) (*Broker, error) {
	b := prepare(c, options)
	if err := b.openKeys(); err != nil {
		b.unbind()
		return nil, err
	}
	if err := b.bind(ctx); err != nil {
		return nil, err
	}
	if err := b.assemble(); err != nil {
		b.unbind()
		return nil, err
	}
	b.serve()
	if c.AddressesFile != "" {
		if err := writeAddresses(c.AddressesFile, b.addresses); err != nil {
			b.Close()
			return nil, err
		}
	}
	return b, nil
}

// prepare makes a broker that does nothing yet.
func prepare(c *config.Config, options []Option) *Broker {
	b := &Broker{
		config: c, clock: clock.System(), log: slog.New(slog.DiscardHandler), random: rand.Reader, addresses: map[string]string{},
		observed: newObserved(),
	}
	for _, option := range options {
		option(b)
	}
	return b
}

// bind opens all sockets, before anything is served.
func (b *Broker) bind(ctx context.Context) error {
	var problems []error
	for _, l := range b.config.Listeners {
		sockets, err := listen(ctx, l)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		for _, socket := range sockets {
			b.doors = append(b.doors, door{l, socket})
		}
		b.addresses[l.Name] = sockets[0].Addr().String()
	}
	if len(problems) > 0 {
		b.unbind()
	}
	return errors.Join(problems...)
}

func (b *Broker) unbind() {
	for _, d := range b.doors {
		_ = d.socket.Close() // nothing was accepted
	}
}

// assemble makes the layers.
func (b *Broker) assemble() error {
	limits := b.config.Limits
	options := session.Options{Limits: limits, Clock: b.clock, Family: settings.AnonymousFamily, Log: b.log}
	for _, secret := range [][]byte{options.Lifetime[:], options.IncarnationKey[:]} {
		if _, err := io.ReadFull(b.random, secret); err != nil {
			return fmt.Errorf("random numbers: %w", err)
		}
	}
	b.lifetime, b.started, b.startedAt = options.Lifetime, b.clock.Now(), b.clock.Wall()
	b.scraper = &scrape{b: b}
	options.Metrics = b.observed.session
	options.Auth = b.observed.auth
	b.lease = lease.New(lease.Options{
		Limits: limits, Clock: b.clock, Lifetime: options.Lifetime, Metrics: b.observed.lease, Log: b.log})
	options.Domains = domains{dispatch.New(limits, b.lease), b.lease}
	b.hub = session.NewHub(options)
	b.inbound = transport.NewInbound(limits.InboundTotalBytesMax, limits.FrameRecvMax, func(n int64) { options.Metrics.ReceiveBufferBytes.Set(float64(n)) })
	b.slots = transport.NewSlots(int(limits.ConnectionsMax))
	b.preauth = transport.NewPreauth(b.clock, int(limits.PreauthSessionsMax), int(limits.PreauthPerAddressMax), func(n int) { options.Metrics.SessionsPreauth.Set(float64(n)) })
	b.watchAdmission()
	return nil
}

// domains joins the generated dispatch and what ends with a session, in the order of W-36.
type domains struct {
	*dispatch.Table
	lease *lease.Domain
}

// CloseSession is part of session.Domains.
func (d domains) CloseSession(s peer.Session) { d.lease.CloseSession(s) }

// serve starts the goroutines of the broker.
func (b *Broker) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	b.stopDomain = cancel
	b.accepting.Go(func() {
		if err := b.lease.Run(ctx); err != nil {
			b.log.Error("lease domain failed", "error", err)
			b.lease.Stop()
		}
	})
	if b.keys.authority != nil {
		b.accepting.Go(func() {
			if err := b.keys.authority.Run(ctx); err != nil {
				b.log.Error("key sets are not refreshed any more", "error", err)
			}
		})
	}
	listeners := b.secureDoors()
	for i, d := range b.doors {
		listener := listeners[i]
		door := session.Door{Hello: d.config.Hello, Name: d.config.Name}
		if d.config.Auth == config.AuthToken {
			door.Authority = b.keys.authority
		}
		switch d.config.Transport {
		case config.TransportTCP:
			b.accepting.Go(func() { b.acceptTCP(listener, door) })
		case config.TransportWebSocket:
			b.servers = append(b.servers, b.serveHTTP(listener, b.webSocket(door)))
		case config.TransportAdmin:
			port := d.socket.Addr().(*net.TCPAddr).AddrPort().Port()
			b.admins = append(b.admins, b.serveHTTP(listener, admin.Handler(admin.Options{
				Ready: b.ready.Load, Metrics: b.scraper, Inventory: b.inventory, Port: port,
				Token: b.keys.adminToken, AnyHost: !d.config.Loopback(), Status: b.Status, Refused: b.adminRefused})))
		}
	}
	b.ready.Store(true)
	for _, d := range b.doors {
		b.log.Info("listening", "listener", d.config.Name, "transport", d.config.Transport, "address", d.socket.Addr().String(),
			"auth", b.asks(d.config), "tls", d.config.TLS != nil)
	}
}

// secureDoors puts admission and TLS before every open socket. It is done before the first of them is served, because the admin interface
// looks at all of them (Status).
func (b *Broker) secureDoors() []*transport.Listener {
	each := int(b.config.Limits.PreauthPerAddressMax)
	adminSlots := transport.NewSlots(each)
	listeners := make([]*transport.Listener, len(b.doors))
	for i := range b.doors {
		d := &b.doors[i]
		slots, preauth := b.slots, b.preauth
		if d.config.Transport == config.TransportAdmin {
			slots, preauth = adminSlots, transport.NewPreauth(b.clock, each, each, nil)
		}
		listeners[i] = transport.Listen(d.socket, slots, preauth, b.acceptFailed(d.config.Name))
		b.guard(listeners[i], d.config)
		d.socket = listeners[i]
	}
	return listeners
}

func (b *Broker) acceptTCP(listener *transport.Listener, door session.Door) {
	for {
		nc, err := listener.Accept()
		if err != nil {
			return // closed
		}
		accepted := nc.(*transport.Accepted)
		conn := transport.NewTCP(accepted, int(b.config.Limits.FrameRecvMax), b.inbound)
		b.session(conn, accepted.Entry, door)
	}
}

// session serves a new connection in its own goroutine.
func (b *Broker) session(conn transport.Conn, entry *transport.Entry, door session.Door) {
	if !b.serving.enter() {
		conn.Abort() // the broker has ended
		return
	}
	s := b.hub.Open(conn, entry, door)
	go func() {
		s.Run()
		b.serving.leave()
	}()
}

// gate counts goroutines that may still come while others wait for their end.
type gate struct {
	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

// enter counts one. False: the gate is closed.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.group.Add(1)
	return true
}

func (g *gate) leave() { g.group.Done() }

// close lets nobody in any more and waits until all have left.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.group.Wait()
}

// acceptedKey is the context key of the accepted connection behind an HTTP request.
type acceptedKey struct{}

// webSocket answers health checks and makes sessions of upgrades, at every other path (W-20). Paths are compared as they are: a
// multiplexer would redirect those that it can shorten.
func (b *Broker) webSocket(door session.Door) http.Handler {
	upgrader := &transport.Upgrader{Origins: b.config.Origins, MaxMessage: int(b.config.Limits.FrameRecvMax), Inbound: b.inbound}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == settings.AdminPathHealthz {
			_, _ = io.WriteString(w, "ok\n") // the client may be gone
			return
		}
		conn, err := upgrader.Upgrade(w, r)
		if err != nil {
			b.upgradeRefused(r, err)
			return // answered
		}
		accepted := r.Context().Value(acceptedKey{}).(*transport.Accepted)
		b.session(conn, accepted.Entry, door)
	})
}

// serveHTTP serves a listener until its server is closed.
func (b *Broker) serveHTTP(listener net.Listener, handler http.Handler) *http.Server {
	wait := milliseconds(b.config.Limits.ConnectWaitMs)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Context().Value(acceptedKey{}).(*transport.Accepted).Unlimit()
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: wait,
		ReadTimeout:       wait,
		WriteTimeout:      milliseconds(b.config.Limits.SessionWriteTimeoutMs),
		MaxHeaderBytes:    transport.MaxHeaderBytes(b.config.Limits.HTTPHeaderBytesMax),
		ErrorLog:          slog.NewLogLogger(b.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
			// The time of the server is real; this one is that of the broker, which bounds how long a request may take to come (W-30).
			nc.(*transport.Accepted).Limit(wait)
			return context.WithValue(ctx, acceptedKey{}, nc)
		},
		ConnState: func(nc net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				nc.(*transport.Accepted).Unlimit()
			}
		},
	}
	// A connection that only asked something would count as one without a first record for as long as it stays.
	server.SetKeepAlivesEnabled(false)
	b.accepting.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			b.log.Error("HTTP server failed", "error", err)
		}
	})
	return server
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// inventory is what the admin interface shows of the lease domain.
func (b *Broker) inventory(ctx context.Context, family uint32, selector pattern.Selector, yield func(adminapi.Lease) bool) error {
	return b.lease.Inventory(ctx, family, selector, func(item lease.Item) bool {
		return yield(adminapi.Lease{
			Route: item.Route, OwnerID: item.OwnerID, HolderIncarnation: fmt.Sprintf("%016x", item.Incarnation),
			AcquiredAt: item.AcquiredAt, ExpiresInSeconds: item.ExpiresIn, Renewals: item.Renewals,
		})
	})
}

// Load is what a broker holds at one moment.
type Load struct {
	Session session.Load
	Lease   lease.Load
	// Preauth counts connections without a complete first record.
	Preauth int
}

// Load looks at everything that the broker holds.
func (b *Broker) Load() Load {
	load, _, _ := b.look()
	return load
}

func (b *Broker) look() (load Load, mark uint64, quiet bool) {
	var sessions, domain uint64
	var idle bool
	load.Session, sessions, quiet = b.hub.Look()
	load.Lease, domain, idle = b.lease.Look()
	load.Preauth = b.preauth.Len()
	return load, sessions + domain, quiet && idle
}

// settlePause is how long Settle waits between two looks.
const settlePause = 50 * time.Microsecond

// Settle waits until the broker has nothing to do: every record that it has read is executed, every deadline that has passed is dealt
// with, every frame is handed to its socket, unless the peer keeps the socket from taking it. Bytes on their way to the broker do
// not count: a peer that wants its request to be included waits for the answer first. The error is that of ctx.
func (b *Broker) Settle(ctx context.Context) error {
	last, settled := uint64(0), false
	for {
		_, mark, quiet := b.look()
		if quiet && settled && mark == last {
			return nil
		}
		last, settled = mark, quiet
		if quiet {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settlePause):
		}
	}
}

// Held yields the leases of a family that match the selector, held at one instant, until yield returns false. The error is that of
// ctx or lease.ErrStopped.
func (b *Broker) Held(ctx context.Context, family uint32, selector pattern.Selector, yield func(lease.Item) bool) error {
	return b.lease.Inventory(ctx, family, selector, yield)
}

// Addresses returns the bound address of every listener by its name. A listener at localhost has two, of which the first counts.
// Addresses of WithAddress are among them.
func (b *Broker) Addresses() map[string]string { return b.addresses }

// Shutdown ends the broker in order (W-37): it stops listening and is not ready any more, tells negotiated sessions, waits until
// they have left, drain_grace_ms have passed or ctx ends, and closes the rest. The admin interface ends last.
func (b *Broker) Shutdown(ctx context.Context) { b.shutdown(ctx, session.Shutdown) }

// Replace is Shutdown of a broker that another one replaces: GOAWAY says so (W-37).
func (b *Broker) Replace(ctx context.Context) { b.shutdown(ctx, session.Replacement) }

func (b *Broker) shutdown(ctx context.Context, why session.Farewell) {
	b.drained.Do(func() {
		b.ready.Store(false)
		for _, d := range b.doors {
			if d.config.Transport != config.TransportAdmin {
				_ = d.socket.Close() // accepting ends either way
			}
		}
		b.log.Info("draining", "sessions", b.hub.Len())
		b.hub.Drain(ctx, why)
	})
	b.finish()
}

// Close ends the broker without a grace.
func (b *Broker) Close() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.Shutdown(ctx)
}

// finish closes every session and waits for everything to end.
func (b *Broker) finish() {
	b.closed.Do(func() {
		for _, server := range b.servers {
			_ = server.Close() // connections before their upgrade
		}
		b.hub.Close()
		b.serving.close()
		b.stopDomain()
		for _, server := range b.admins {
			_ = server.Close()
		}
		b.accepting.Wait()
		b.log.Info("stopped")
	})
}

// writeAddresses writes the bound addresses as JSON, so that a reader sees all of it or nothing.
func writeAddresses(path string, addresses map[string]string) error {
	text, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("--%s: %w", settings.SettingAddressesFile.Flag, err)
	}
	_, err = temporary.Write(append(text, '\n'))
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return fmt.Errorf("--%s: %w", settings.SettingAddressesFile.Flag, err)
	}
	return nil
}
