package session_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// bubbleClock is the time of a synctest bubble, from its beginning.
type bubbleClock struct{ start time.Time }

func (c bubbleClock) Now() clock.Instant { return clock.Instant(time.Since(c.start)) }
func (c bubbleClock) Wall() time.Time    { return time.Now() }
func (c bubbleClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return time.AfterFunc(d, f)
}

// domain is a lease domain for tests. ACQUIRE by the owner "wait" waits until the test settles or cancels it; everything else is
// answered at once.
type domain struct {
	mu       sync.Mutex
	waiting  []waiter
	closed   []peer.Session
	refusals []bool                               // results of replies that were tried while a session closed
	onQuery  func(s peer.Session, call peer.Call) // called before a QUERY is answered
	reply    []byte                               // value of QUERY replies
	calls    int
}

type waiter struct {
	session peer.Session
	call    peer.Call
}

func (d *domain) Acquire(s peer.Session, call peer.Call, _ pattern.Route, req wire.LeaseAcquireRequestView) {
	d.mu.Lock()
	d.calls++
	defer d.mu.Unlock()
	if string(req.OwnerID) != "wait" {
		s.Reply(call, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 1})
		return
	}
	if !s.Wait(call) {
		return
	}
	d.waiting = append(d.waiting, waiter{s, call})
	s.Reply(call, []byte{0, 2, 0, 0, 0, 0, 0, 0, 0, 2})
}

func (d *domain) Query(s peer.Session, call peer.Call, _ pattern.Route, _ wire.LeaseQueryRequestView) {
	d.mu.Lock()
	d.calls++
	onQuery, reply := d.onQuery, d.reply
	d.mu.Unlock()
	if onQuery != nil {
		onQuery(s, call)
	}
	if reply == nil {
		reply = []byte{0, 0, 0, 0, 0, 0}
	}
	done := s.Reply(call, reply)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refusals = append(d.refusals, done)
}

func (d *domain) Renew(s peer.Session, call peer.Call, _ pattern.Route, _ wire.LeaseRenewRequestView) {
	s.Refuse(call, wire.CodeLeaseNotFound, wire.TextNotHeld)
}
func (d *domain) Release(s peer.Session, call peer.Call, _ pattern.Route, _ wire.LeaseReleaseRequestView) {
	s.Reply(call, []byte{0})
}
func (d *domain) Subscribe(s peer.Session, call peer.Call, _ pattern.Selector, _ wire.LeaseSubscribeRequestView) {
	s.Reply(call, []byte{0, 0, 0, 0, 0, 0, 0, 0, 1})
}
func (d *domain) Unsubscribe(s peer.Session, call peer.Call, _ pattern.Selector, _ wire.LeaseUnsubscribeRequestView) {
	s.Reply(call, []byte{0})
}
func (d *domain) List(s peer.Session, call peer.Call, _ pattern.Selector, _ wire.LeaseListRequestView) {
	s.Reply(call, []byte{0, 0, 0, 0, 0, 0})
}

func (d *domain) Refused(peer.Call, wire.Code) {}

func (d *domain) Cancel(s peer.Session, call peer.Call) bool {
	if !d.take(s, call) {
		return false
	}
	s.SettleRefusal(call, wire.CodeRequestCancelled, wire.TextCancelled)
	return true
}

// settle grants a waiting request.
func (d *domain) settle(s peer.Session, call peer.Call) bool {
	return d.take(s, call) && s.Settle(call, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 2})
}

func (d *domain) take(s peer.Session, call peer.Call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, w := range d.waiting {
		if w.session == s && w.call == call {
			d.waiting = append(d.waiting[:i], d.waiting[i+1:]...)
			return true
		}
	}
	return false
}

func (d *domain) CloseSession(s peer.Session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = append(d.closed, s)
}

func (d *domain) closedSessions() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.closed)
}

// domains joins dispatch and the domain as the broker does.
type domains struct {
	*dispatch.Table
	*domain
}

func (d domains) Cancel(s peer.Session, call peer.Call) bool { return d.Table.Cancel(s, call) }

// world is a hub with its listeners in one bubble.
type world struct {
	t       *testing.T
	domain  *domain
	hub     *session.Hub
	metrics *metrics.Session
	ends    *ends // lines about sessions that ended
	hello   session.Hello
	auth    *metrics.Auth
	// authority, when set, makes the listeners ask for tokens.
	authority *auth.Authority
	limits    bounds.Limits
	inbound   *transport.Inbound
	preauth   *transport.Preauth
	slots     *transport.Slots
	group     sync.WaitGroup
	// upgradeAfter delays the handshake of a WebSocket.
	upgradeAfter time.Duration
}

// run calls test in a bubble for each transport, with limits that change may lower.
func run(t *testing.T, change func(*bounds.Limits), test func(t *testing.T, w *world, dial func() *rawclient.Client)) {
	t.Helper()
	for _, name := range rawclient.Transports {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, change)
				defer w.close()
				test(t, w, func() *rawclient.Client { return w.dial(name) })
			})
		})
	}
}

// logging, when set, gets what hubs log.
var logging *slog.Logger

func newWorld(t *testing.T, change func(*bounds.Limits)) *world {
	w := &world{t: t, domain: &domain{}, limits: bounds.Default(), metrics: metrics.NewSession(nil), auth: metrics.NewAuth(nil), ends: newEnds()}
	if change != nil {
		change(&w.limits)
	}
	bubble := bubbleClock{time.Now()}
	w.hub = session.NewHub(session.Options{
		Limits:         w.limits,
		Clock:          bubble,
		Domains:        domains{dispatch.New(w.limits, w.domain), w.domain},
		Lifetime:       [16]byte{1, 2, 3},
		IncarnationKey: [32]byte{4},
		Family:         1,
		Metrics:        w.metrics,
		Auth:           w.auth,
		Log:            slog.New(w.ends),
	})
	w.inbound = transport.NewInbound(w.limits.InboundTotalBytesMax, w.limits.FrameRecvMax, nil)
	w.preauth = transport.NewPreauth(bubble, int(w.limits.PreauthSessionsMax), int(w.limits.PreauthPerAddressMax), nil)
	w.slots = transport.NewSlots(int(w.limits.ConnectionsMax))
	return w
}

func (w *world) door() session.Door { return session.Door{Hello: w.hello, Authority: w.authority} }

func (w *world) close() {
	w.hub.Close()
	w.group.Wait()
	synctest.Wait()
	w.ends.check(w.t, w.domain.closedSessions())
}

// pipes is a listener whose connections are in-memory pipes.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case nc := <-p.conns:
		return nc, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// pair returns both ends of a pipe.
func pair() (client, broker net.Conn) { return net.Pipe() }

type acceptedKey struct{}

// dial opens a connection to the hub.
func (w *world) dial(name string) *rawclient.Client {
	w.t.Helper()
	client, broker := pair()
	w.t.Cleanup(func() { _ = client.Close() })
	inner := newPipes()
	listener := transport.Listen(inner, w.slots, w.preauth, nil)
	if name == rawclient.TCP {
		w.group.Go(func() {
			defer func() { _ = listener.Close() }()
			nc, err := listener.Accept()
			if err != nil {
				w.t.Error(err)
				return
			}
			a := nc.(*transport.Accepted)
			w.hub.Open(transport.NewTCP(a, int(w.limits.FrameRecvMax), w.inbound), a.Entry, w.door()).Run()
		})
		inner.conns <- broker
		c := rawclient.New(w.t, client)
		c.Patience = 24 * time.Hour
		return c
	}
	upgrader := transport.Upgrader{MaxMessage: int(w.limits.FrameRecvMax), Inbound: w.inbound}
	server := &http.Server{
		ConnContext: func(ctx context.Context, nc net.Conn) context.Context {
			return context.WithValue(ctx, acceptedKey{}, nc)
		},
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			conn, err := upgrader.Upgrade(rw, r)
			if err != nil {
				w.t.Error(err)
				return
			}
			a := r.Context().Value(acceptedKey{}).(*transport.Accepted)
			w.group.Go(w.hub.Open(conn, a.Entry, w.door()).Run)
		}),
	}
	w.group.Go(func() { _ = server.Serve(listener) })
	inner.conns <- broker
	time.Sleep(w.upgradeAfter)
	c := rawclient.Upgrade(w.t, client)
	c.Patience = 24 * time.Hour
	_ = listener.Close() // ends Serve; the connection stays
	return c
}

// query is a request that the domain answers at once.
func query(t testing.TB) []byte {
	return rawclient.Encode(t, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/a/k"})
}

// acquire is an ACQUIRE by that owner.
func acquire(t testing.TB, owner string) []byte {
	return rawclient.Encode(t, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/k", OwnerID: owner, TTL: 30, Wait: 5})
}

// repeat returns n copies of a record.
func repeat(record []byte, n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = record
	}
	return all
}
