package broker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/lease"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// siege is a broker, whose time stands still until the test moves it, under attack.
type siege struct {
	*testing.T
	*broker.Broker
	clock     *clock.Manual
	transport string
	token     []byte // of the client that behaves
	mu        sync.Mutex
	conns     []net.Conn
	group     sync.WaitGroup
}

// besieged are the bounds of a broker under siege, small enough to be reached.
var besieged = []string{
	"--limit", "session_read_pause_bytes=65536", "--limit", "session_answer_bytes_max=262144", "--limit", "session_notify_bytes_max=16384",
	"--limit", "frame_recv_max=65551", "--limit", "inbound_total_bytes_max=1048576", "--limit", "outbound_total_bytes_max=4194304",
	"--limit", "correlation_table_max=64", "--limit", "lease_waiters_per_session_max=128", "--limit", "leases_per_session_max=1000",
}

func besiege(t *testing.T, transport string, args ...string) *siege {
	t.Helper()
	return besiegeWith(t, transport, load(t, append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "off"}, args...)...))
}

func besiegeWith(t *testing.T, transport string, c *config.Config) *siege {
	t.Helper()
	s := &siege{T: t, clock: clock.NewManual(time.Now()), transport: transport}
	b, err := broker.Start(t.Context(), c, broker.WithClock(s.clock))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	s.Broker = b
	t.Cleanup(s.lift)
	return s
}

// hostile is one connection of an attacker. Its methods return what the socket says, which is no failure of the test: the broker may
// have closed it.
type hostile struct {
	net.Conn
	siege     *siege
	websocket bool
	number    int
	random    *rand.Rand
}

// enemy opens a connection of an attacker; upgraded says whether a WebSocket is made of it.
func (s *siege) enemy(number int, upgraded bool) (*hostile, error) {
	nc, err := net.Dial("tcp", address(s.Broker, s.transport))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.conns = append(s.conns, nc)
	s.mu.Unlock()
	h := &hostile{Conn: nc, siege: s, number: number, random: rand.New(rand.NewPCG(uint64(number), 7))}
	if s.transport == rawclient.WebSocket && upgraded {
		h.websocket = true
		err = afterUpgrade(nc, nil)
	}
	return h, err
}

// lift ends the siege: it closes the connections of all attackers and waits for them.
func (s *siege) lift() {
	s.mu.Lock()
	for _, nc := range s.conns {
		_ = nc.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	s.group.Wait()
}

func (h *hostile) framed(records ...[]byte) []byte {
	payload := bytes.Join(records, nil)
	if h.websocket {
		return rawclient.Frame(rawclient.OpBinary, true, payload)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), payload...)
}

func (h *hostile) raw(p []byte) error {
	_, err := h.Write(p)
	return err
}

func (h *hostile) send(records ...[]byte) error { return h.raw(h.framed(records...)) }

func (h *hostile) record(typ wire.MessageType, m rawclient.Encoder) []byte {
	return rawclient.Encode(h.siege, typ, m)
}

// hello opens a session, and negotiates.
func (h *hostile) hello() error {
	return errors.Join(h.send(rawclient.Record(wire.TypeConnect, nil)), h.send(h.record(wire.TypeClientHello, &wire.ClientHello{
		Capabilities: wire.CapLifecycle, SDKName: "h", SDKVersion: "1"})))
}

// flood sends the same bytes until the connection ends, and reads nothing.
func (h *hostile) flood(p []byte) error {
	for {
		if err := h.raw(p); err != nil {
			return err
		}
	}
}

// gone reads until the connection ends.
func (h *hostile) gone() { _, _ = io.Copy(io.Discard, h) }

const (
	siegeRoute    = "lease://siege/all/one"
	siegeSelector = "lease://**"
)

// assault is what each attacker of one kind does.
type assault struct {
	name string
	only string // transport
	bare bool   // the attacker speaks before any upgrade
	do   func(h *hostile) error
	few  bool // a few of them are as good as many
	// silent says that no complete record comes.
	silent bool
	// wait is time that passes when all have done that.
	wait time.Duration
	// ends is the reason with which the broker closes every one of them; empty: they stay until they are closed.
	ends wire.CloseReason
	// until is asked until it is true before the siege is lifted.
	until func(s *siege) bool
}

// paused says that the broker has stopped reading from somebody.
func paused(s *siege) bool { return metric(s, s.Broker, "fitz_read_pauses_total") > 0 }

var defaults = bounds.Default()

var assaults = []assault{
	{name: "silence", silent: true, do: func(*hostile) error { return nil }, wait: milliseconds(defaults.ConnectWaitMs), ends: wire.CloseConnectTimeout},
	{name: "half a first message", silent: true, do: func(h *hostile) error { return h.raw(h.framed(make([]byte, 60_000))[:30_000]) },
		wait: milliseconds(defaults.ConnectWaitMs), ends: wire.CloseConnectTimeout},
	{name: "half a message", do: func(h *hostile) error { return errors.Join(h.hello(), h.raw(h.framed(make([]byte, 60_000))[:30_000])) },
		wait: milliseconds(defaults.SessionReadTimeoutMs), ends: wire.CloseIdle},
	{name: "a byte at a time", do: func(h *hostile) error {
		err := h.send(rawclient.Record(wire.TypeConnect, nil))
		for _, b := range h.framed(make([]byte, 200))[:100] {
			err = errors.Join(err, h.raw([]byte{b}))
		}
		return err
	}, wait: milliseconds(defaults.SessionReadTimeoutMs), ends: wire.CloseIdle},
	{name: "CONNECT twice", do: func(h *hostile) error {
		return h.send(rawclient.Record(wire.TypeConnect, nil), rawclient.Record(wire.TypeConnect, nil))
	}, ends: wire.CloseUnexpectedConnect},
	{name: "a giant message", only: rawclient.TCP, do: func(h *hostile) error { return h.raw([]byte{0xFF, 0xFF, 0xFF, 0xFF}) }, ends: wire.CloseFrameTooLarge},
	{name: "a giant message", only: rawclient.WebSocket, do: func(h *hostile) error {
		return h.raw([]byte{0x82, 0xFF, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF})
	}, ends: wire.CloseFrameTooLarge},
	{name: "an empty message", do: func(h *hostile) error { return h.send() }, ends: wire.CloseBadFrame},
	{name: "too many records", do: func(h *hostile) error {
		return h.send(bytes.Repeat(rawclient.Record(wire.TypeLeaseQuery, nil), bounds.RecordsPerFrameMax+1))
	}, ends: wire.CloseBadFrame},
	{name: "malformed requests", do: func(h *hostile) error {
		return h.send(bytes.Repeat(rawclient.Record(wire.TypeLeaseQuery, nil), int(defaults.SessionMalformedMax)))
	}, ends: wire.CloseTooManyMalformedRequests},
	{name: "labels", do: func(h *hostile) error {
		request := wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://labels/all/%d", h.number), OwnerID: "h", TTL: 30}
		err := errors.Join(h.hello(), h.send(h.record(wire.TypeLeaseAcquire, &request)))
		request.Wait = 30
		for n := range uint64(65) {
			request.OwnerID = fmt.Sprint(n)
			err = errors.Join(err, h.send(rawclient.Labelled(n+1, h.record(wire.TypeLeaseAcquire, &request))))
		}
		return err
	}, ends: wire.CloseTooManyLabels},
	{name: "a label twice", do: func(h *hostile) error {
		request := h.record(wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://twice/all/%d", h.number), OwnerID: "a", TTL: 30, Wait: 30})
		other := h.record(wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://twice/all/%d", h.number), OwnerID: "b", TTL: 30, Wait: 30})
		return errors.Join(h.hello(), h.send(rawclient.Labelled(1, request)), h.send(rawclient.Labelled(2, other), rawclient.Labelled(2, other)))
	}, ends: wire.CloseDuplicateCorrelationID},
	{name: "waiters", do: func(h *hostile) error {
		err := h.hello()
		for n := range uint64(40) {
			request := &wire.LeaseAcquireRequest{Route: siegeRoute, OwnerID: fmt.Sprint(h.number, n), TTL: 30, Wait: 30}
			err = errors.Join(err, h.send(rawclient.Labelled(n+1, h.record(wire.TypeLeaseAcquire, request))))
		}
		return err
	}, until: func(s *siege) bool { return s.Load().Lease.Waiters == int(defaults.LeaseWaitersPerKeyMax) }},
	{name: "LIST", few: true, do: func(h *hostile) error {
		list := h.record(wire.TypeLeaseList, &wire.LeaseListRequest{Selector: siegeSelector, Limit: 500})
		return errors.Join(h.hello(), h.flood(bytes.Repeat(h.framed(list), 50)))
	}, until: paused},
	{name: "SUBSCRIBE", few: true, do: func(h *hostile) error {
		err := h.hello()
		for n := range 200 {
			err = errors.Join(err, h.send(h.record(wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: fmt.Sprintf("lease://*/r%d/*", n)})))
		}
		return errors.Join(err, h.flood(bytes.Repeat(h.framed(h.record(wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: siegeSelector})), 50)))
	}, until: paused},
	{name: "CANCEL", few: true, do: func(h *hostile) error {
		cancel := h.record(wire.TypeCancel, &wire.Cancel{CorrelationID: 7})
		return errors.Join(h.hello(), h.flood(bytes.Repeat(h.framed(cancel), 50)))
	}, until: paused},
	{name: "PING", few: true, do: func(h *hostile) error {
		return errors.Join(h.hello(), h.flood(bytes.Repeat(h.framed(h.record(wire.TypePing, &wire.Ping{Nonce: 7})), 50)))
	}, until: paused},
	{name: "pings of the WebSocket", only: rawclient.WebSocket, few: true, do: func(h *hostile) error {
		return h.flood(bytes.Repeat(rawclient.Frame(rawclient.OpPing, true, make([]byte, 125)), 50))
	}, until: paused},
	{name: "fragments of a byte", only: rawclient.WebSocket, do: func(h *hostile) error {
		first := rawclient.Frame(rawclient.OpBinary, false, []byte{1})
		return errors.Join(h.hello(), h.raw(append(first, bytes.Repeat(rawclient.Frame(rawclient.OpContinuation, false, []byte{1}), 20_000)...)))
	}, wait: milliseconds(defaults.SessionReadTimeoutMs), ends: wire.CloseIdle},
	{name: "empty fragments", only: rawclient.WebSocket, do: func(h *hostile) error {
		first := rawclient.Frame(rawclient.OpBinary, false, nil)
		return errors.Join(h.hello(), h.raw(append(first, bytes.Repeat(rawclient.Frame(rawclient.OpContinuation, false, nil), 20_000)...)))
	}, wait: milliseconds(defaults.SessionReadTimeoutMs), ends: wire.CloseIdle},
	{name: "bytes at random", do: func(h *hostile) error {
		p := make([]byte, 1+h.random.IntN(3000))
		for i := range p {
			p[i] = byte(h.random.Uint32())
		}
		return h.raw(p)
	}},
	{name: "records at random", do: func(h *hostile) error {
		err := h.hello()
		for range 50 {
			value := make([]byte, h.random.IntN(60))
			for i := range value {
				value[i] = byte(h.random.Uint32N(4))
			}
			err = errors.Join(err, h.send(rawclient.Record(wire.MessageType(h.random.IntN(1000)), value)))
		}
		return err
	}},
	{name: "HTTP that is no WebSocket", only: rawclient.WebSocket, bare: true, silent: true, do: func(h *hostile) error {
		requests := []string{"GET / HTTP/1.1\r\nHost: b\r\n\r\n", "POST /ws HTTP/1.1\r\nHost: b\r\nContent-Length: 1000000000\r\n\r\nx",
			"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "GET /ws HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n"}
		return h.raw([]byte(requests[h.number%len(requests)]))
	}, until: func(s *siege) bool { // most are answered, the others run out of time
		s.clock.Advance(milliseconds(defaults.ConnectWaitMs))
		return s.Load().Preauth == 0
	}},
	{name: "an upgrade that never ends", only: rawclient.WebSocket, bare: true, silent: true, do: func(h *hostile) error {
		return h.raw([]byte("GET /ws HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nX: "))
	}, wait: milliseconds(defaults.ConnectWaitMs)},
	{name: "a head without end", only: rawclient.WebSocket, few: true, bare: true, silent: true, do: func(h *hostile) error {
		return h.flood([]byte("GET /ws HTTP/1.1\r\nHost: b\r\nX: " + string(bytes.Repeat([]byte("x"), 20_000))))
	}},
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// number is how many attackers of the kind there are.
func (a *assault) number() int {
	switch {
	case a.few && hurried():
		return 1
	case a.few:
		return 2
	case hurried():
		return 3
	}
	return 10
}

// hurried says that there is not the time, or with the race detector not the machine, for large numbers.
func hurried() bool { return testing.Short() || memoryFactor > 1 }

// Each kind of attack, over each transport it is meant for: a client that behaves is served throughout, no bound is passed, the broker
// ends what it has to end for the right reason, and nothing of the attackers is left (W-10, W-23, W-30, W-38, W-56, W-81 to W-84, D-1).
func TestSiege(t *testing.T) {
	for _, transport := range rawclient.Transports {
		for _, a := range assaults {
			if a.only != "" && a.only != transport {
				continue
			}
			t.Run(transport+"/"+a.name, func(t *testing.T) {
				a.endure(besiege(t, transport, besieged...))
			})
		}
	}
}

// endure is a siege by attackers of that kind, from beginning to end.
func (a *assault) endure(s *siege) {
	s.Helper()
	g := s.welcome()
	s.attack(a.number(), *a)
	g.work(20)
	s.check()
	if a.until != nil {
		eventually(s, a.name, func() bool { g.work(1); return a.until(s) })
	}
	if a.wait > 0 {
		eventually(s, "every attacker to be there", func() bool {
			load := s.Load()
			return load.Session.Sessions+load.Preauth > a.number() && (load.Preauth == 0) != a.silent
		})
		s.clock.Advance(a.wait - 1)
		g.work(1)
	}
	if a.ends.Name != "" {
		eventually(s, "the end of every attacker", func() bool {
			if a.wait > 0 { // what comes in parts may begin only now
				s.clock.Advance(a.wait)
			}
			return g.alone()
		})
		if n := awaitCloses(s, s.Broker, a.ends, a.number()); n != a.number() {
			s.Errorf("%d sessions were closed with %s, want %d", n, a.ends.Name, a.number())
		}
	}
	g.work(5)
	s.lift()
	g.bury()
}

// All kinds of attackers at once, so many that the bounds of sessions without a first record are reached: the same holds.
func TestSiegeOfEveryKind(t *testing.T) {
	if hurried() {
		t.Skip("takes its time")
	}
	for _, transport := range rawclient.Transports {
		t.Run(transport, func(t *testing.T) {
			s := besiege(t, transport, append([]string{"--limit", "preauth_per_address_max=60", "--limit", "preauth_sessions_max=50"}, besieged...)...)
			g := s.welcome()
			for _, a := range assaults {
				if a.only == "" || a.only == transport {
					s.attack(a.number(), a)
					s.check()
				}
			}
			g.work(20)
			for range 20 { // others come and are served
				s.newcomer()
			}
			s.clock.Advance(milliseconds(defaults.SessionReadTimeoutMs))
			g.work(20)
			s.check()
			s.lift()
			g.bury()
		})
	}
}

// What attackers do to a listener that asks for tokens.
var tokenAssaults = []assault{
	{name: "no CONNECT", do: func(h *hostile) error { return h.send(rawclient.Record(wire.TypeLeaseQuery, nil)) }, ends: wire.CloseConnectRequired},
	{name: "no token", do: func(h *hostile) error { return h.send(rawclient.Record(wire.TypeConnect, nil)) }, ends: wire.CloseConnectFailed},
	{name: "a token at random", do: func(h *hostile) error {
		token := make([]byte, 1000)
		for i := range token {
			token[i] = "eyJ.-_0"[h.random.IntN(7)]
		}
		return h.send(rawclient.Record(wire.TypeConnect, token))
	}, ends: wire.CloseConnectFailed},
	{name: "a changed token", do: func(h *hostile) error {
		token := bytes.Clone(h.siege.token)
		token[len(token)-5-h.number] ^= 1
		return h.send(rawclient.Record(wire.TypeConnect, token))
	}, ends: wire.CloseConnectFailed},
	{name: "a long token", do: func(h *hostile) error {
		return h.send(rawclient.Record(wire.TypeConnect, make([]byte, defaults.TokenBytesMax+1)))
	}, ends: wire.CloseConnectFailed},
	{name: "a large first message", do: func(h *hostile) error { return h.raw(h.framed(make([]byte, bounds.PreauthFrameMax+1))[:14]) }, ends: wire.CloseFrameTooLarge},
	{name: "a good token twice", do: func(h *hostile) error {
		connect := rawclient.Record(wire.TypeConnect, h.siege.token)
		return h.send(connect, connect)
	}, ends: wire.CloseUnexpectedConnect},
	{name: "half a token", silent: true, do: func(h *hostile) error {
		frame := h.framed(rawclient.Record(wire.TypeConnect, h.siege.token))
		return h.raw(frame[:len(frame)/2])
	}, wait: milliseconds(defaults.ConnectWaitMs), ends: wire.CloseConnectTimeout},
}

// A-02, W-10, W-31, W-32: the same for what comes before a token was accepted.
func TestSiegeOfTokens(t *testing.T) {
	environment := map[string]string{"FITZ_JWT_HMAC_SECRET": tokenSecret, "FITZ_ROUTE_FAMILY_MAP": "dev=1"}
	for _, transport := range rawclient.Transports {
		for _, a := range tokenAssaults {
			t.Run(transport+"/"+a.name, func(t *testing.T) {
				c, _, err := config.Load([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "off", "--auth", "token"},
					func(name string) string { return environment[name] }, io.Discard)
				if err != nil {
					t.Fatal(err)
				}
				s := besiegeWith(t, transport, c)
				s.token = mint(t, "dev", "lease://**#*")
				a.endure(s)
			})
		}
	}
}

// attack lets n attackers of a kind come at once. It returns when each is connected.
func (s *siege) attack(n int, a assault) {
	s.Helper()
	var arrived sync.WaitGroup
	for i := range n {
		arrived.Add(1)
		s.group.Go(func() {
			h, err := s.enemy(i, !a.bare)
			arrived.Done()
			if err == nil {
				_ = a.do(h) // the broker may have closed
			}
			if a.ends.Name != "" && err == nil {
				h.gone()
				_ = h.Close()
			}
		})
	}
	arrived.Wait()
}

// check compares what the broker holds with its bounds.
func (s *siege) check() {
	s.Helper()
	for gauge, most := range map[string]float64{
		"fitz_receive_buffer_bytes": metric(s, s.Broker, "fitz_receive_buffer_limit_bytes"),
		"fitz_connections":          metric(s, s.Broker, "fitz_connections_limit"),
	} {
		if got := metric(s, s.Broker, gauge); got > most {
			s.Errorf("%s is %v, at most %v", gauge, got, most)
		}
	}
	// Beyond the bound the largest backlog is closed at once; what is being written of it is freed when the write ends.
	if got, most := metric(s, s.Broker, "fitz_outbound_queue_bytes"), metric(s, s.Broker, "fitz_outbound_queue_limit_bytes"); got > 2*most {
		s.Errorf("%v bytes are queued, at most %v", got, most)
	}
}

// newcomer is a client that comes while the siege goes on, connects and asks. It may have to give way before the broker has read what it
// sent, and then comes again.
func (s *siege) newcomer() {
	s.Helper()
	eventually(s, "a newcomer to be served", func() bool {
		h, err := s.enemy(0, true)
		if err != nil {
			return false
		}
		defer func() { _ = h.Close() }()
		query := h.record(wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: route})
		if h.send(query) != nil {
			return false
		}
		reply := make([]byte, 5)
		_, err = io.ReadFull(h, reply)
		return err == nil
	})
}

// good is a client that behaves, on both sides of the siege.
type good struct {
	*siege
	client     *rawclient.Client
	done       int
	goroutines int
	heap       int64
}

// welcome connects the client that behaves, which holds the route that attackers want and enough others for large pages.
func (s *siege) welcome() *good {
	s.Helper()
	g := &good{siege: s, client: rawclient.Dial(s, s.transport, address(s.Broker, s.transport))}
	g.client.Patience = time.Minute
	g.client.Send(rawclient.Record(wire.TypeConnect, s.token))
	g.client.Expect(0, wire.TypeServerHello)
	for n := range 300 {
		route := siegeRoute
		if n > 0 {
			route = fmt.Sprintf("lease://siege/all/%d%s", n, bytes.Repeat([]byte("x"), 100))
		}
		g.client.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: route, OwnerID: "good", TTL: 1_000_000})
		expectGrant(s, g.client, 1, wire.LeaseGrantKindAcquired)
	}
	g.goroutines, g.heap = runtime.NumGoroutine(), alive()
	return g
}

// work takes, looks at and gives back n leases, each with the answer that it must have.
func (g *good) work(n int) {
	g.Helper()
	for range n {
		g.done++
		route := fmt.Sprintf("lease://good/work/%d", g.done)
		g.client.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: route, OwnerID: "good", TTL: 60})
		grant := expectGrant(g, g.client, 1, wire.LeaseGrantKindAcquired)
		g.client.Request(2, wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://good/**"})
		var page wire.LeaseListReply
		if err := page.DecodeValue(g.client.Expect(2, wire.TypeLeaseList)); err != nil || len(page.Items) != 1 || page.Items[0].Route != route {
			g.Fatalf("page %+v, %v", page, err)
		}
		g.client.Request(3, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "good", FencingToken: grant.FencingToken})
		if value := g.client.Expect(3, wire.TypeLeaseRelease); !bytes.Equal(value, []byte{0}) {
			g.Fatalf("release: %x", value)
		}
	}
}

// alone says that the broker serves nobody else.
func (g *good) alone() bool {
	load := g.Load()
	return load.Session.Sessions+load.Session.Lingering == 1 && load.Preauth == 0
}

// bury waits until nothing of the attackers is left, and compares with the time before them.
func (g *good) bury() {
	g.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	eventually(g, "nothing to be left", func() bool {
		g.clock.Advance(time.Second) // what the broker grants to connections that end
		return g.alone() && metric(g, g.Broker, "fitz_connections") == 1
	})
	if err := g.Settle(ctx); err != nil {
		g.Fatal(err)
	}
	g.work(1)
	eventually(g, "empty queues", func() bool { return g.Load().Session.OutboundBytes == 0 })
	if got, want := g.Load().Lease, (lease.Load{Sessions: 1, Leases: 300}); got != want {
		g.Errorf("the lease domain holds %+v, want %+v", got, want)
	}
	if got := metric(g, g.Broker, "fitz_receive_buffer_bytes"); got != 0 {
		g.Errorf("%v bytes in receive buffers", got)
	}
	eventually(g, "no goroutine to be left", func() bool { return runtime.NumGoroutine() <= g.goroutines })
	if cost := alive() - g.heap; cost > memoryFactor*siegeLeft {
		g.Errorf("%d bytes are left", cost)
	}
}

// siegeLeft bounds what may be in use after a siege beyond what was before: stacks that are kept, tables that do not shrink.
const siegeLeft = 4 << 20

// alive returns the bytes of everything that can be reached, and of stacks. Free buffers in pools are gone after the second collection.
func alive() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
