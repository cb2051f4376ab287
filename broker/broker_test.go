package broker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/reference"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childEnv); address != "" {
		os.Exit(child(address, os.Getenv(childEnv+"_WHAT")))
	}
	if addresses := os.Getenv(besiegedEnv); addresses != "" {
		os.Exit(besiegedBroker(addresses, os.Getenv(besiegedEnv+"_ARGS")))
	}
	goleak.VerifyTestMain(m)
}

// load returns the configuration of a command line.
func load(tb testing.TB, args ...string) *config.Config {
	tb.Helper()
	c, _, err := config.Load(args, func(string) string { return "" }, io.Discard)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// start runs a broker on free ports until the test ends.
func start(tb testing.TB, args ...string) *broker.Broker {
	tb.Helper()
	c := load(tb, append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	b, err := broker.Start(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

// address is that of the listener for a transport.
func address(b *broker.Broker, transport string) string {
	if transport == rawclient.WebSocket {
		return b.Addresses()[settings.ListenerHTTP.Name]
	}
	return b.Addresses()[settings.ListenerTCP.Name]
}

// each runs a test with a broker over each transport.
func each(t *testing.T, test func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client), args ...string) {
	for _, transport := range rawclient.Transports {
		t.Run(transport, func(t *testing.T) {
			b := start(t, args...)
			test(t, b, func() *rawclient.Client { return rawclient.Dial(t, transport, address(b, transport)) })
		})
	}
}

const route = "lease://r/a/k"

func acquire(owner string, wait uint32) *wire.LeaseAcquireRequest {
	return &wire.LeaseAcquireRequest{Route: route, OwnerID: owner, TTL: 30, Wait: wait}
}

func expectGrant(t testing.TB, c *rawclient.Client, label uint64, kind wire.LeaseGrantKind) wire.LeaseAcquireReply {
	t.Helper()
	var reply wire.LeaseAcquireReply
	value := c.Expect(label, wire.TypeLeaseAcquire)
	if err := reply.DecodeValue(value); err != nil || reply.Kind != kind {
		t.Fatalf("reply %x: %+v, %v; want kind %v", value, reply, err, kind)
	}
	return reply
}

// L-20, L-26, L-32, L-71: a lease is taken, waited for, and granted when its holder leaves.
func TestLeaseLife(t *testing.T) {
	each(t, func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client) {
		holder, waiter, observer := dial(), dial(), dial()
		for _, c := range []*rawclient.Client{holder, waiter, observer} {
			c.Connect()
		}
		observer.Request(1, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://r/**"})
		observer.Expect(1, wire.TypeLeaseSubscribe)
		holder.Request(1, wire.TypeLeaseAcquire, acquire("w1", 0))
		first := expectGrant(t, holder, 1, wire.LeaseGrantKindAcquired)
		observer.Expect(0, wire.TypeLeaseNotify)

		waiter.Request(9, wire.TypeLeaseAcquire, acquire("w2", 0))
		if text := waiter.ExpectRefusal(9, wire.TypeLeaseAcquire, wire.CodeLeaseHeld); text != wire.TextHeldByOther("w1") {
			t.Errorf("text %q", text)
		}
		waiter.Request(9, wire.TypeLeaseAcquire, acquire("w2", 30))
		queued := expectGrant(t, waiter, 9, wire.LeaseGrantKindQueued)

		_ = holder.Conn.Close() // no farewell
		granted := expectGrant(t, waiter, 9, wire.LeaseGrantKindAcquired)
		if granted.FencingToken != queued.FencingToken || granted.FencingToken <= first.FencingToken {
			t.Errorf("tokens %d, queued %d, granted %d", first.FencingToken, queued.FencingToken, granted.FencingToken)
		}
		observer.Expect(0, wire.TypeLeaseNotify) // removal
		observer.Expect(0, wire.TypeLeaseNotify) // grant

		waiter.Request(10, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "w2", FencingToken: granted.FencingToken})
		waiter.Expect(10, wire.TypeLeaseRelease)
		observer.Expect(0, wire.TypeLeaseNotify)
	})
}

// L-31, L-81: a grant that cannot be delivered, because its session ends at that moment, goes to the next in line.
func TestUndeliverableGrant(t *testing.T) {
	each(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		for range 30 {
			holder, doomed, next := dial(), dial(), dial()
			holder.Request(0, wire.TypeLeaseAcquire, acquire("holder", 0))
			held := expectGrant(t, holder, 0, wire.LeaseGrantKindAcquired)
			doomed.Request(0, wire.TypeLeaseAcquire, acquire("doomed", 30))
			expectGrant(t, doomed, 0, wire.LeaseGrantKindQueued)
			next.Request(0, wire.TypeLeaseAcquire, acquire("next", 30))
			expectGrant(t, next, 0, wire.LeaseGrantKindQueued)

			gone := make(chan struct{})
			go func() {
				_ = doomed.Conn.Close()
				close(gone)
			}()
			holder.Request(0, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "holder", FencingToken: held.FencingToken})
			granted := expectGrant(t, next, 0, wire.LeaseGrantKindAcquired)
			<-gone
			next.Request(0, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "next", FencingToken: granted.FencingToken})
			next.Expect(0, wire.TypeLeaseRelease)
			_ = holder.Conn.Close()
			_ = next.Conn.Close()
		}
	})
}

// W-71: CANCEL over a real socket with the real domain.
func TestCancelWaitingAcquire(t *testing.T) {
	each(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		holder, waiter := dial(), dial()
		holder.Request(0, wire.TypeLeaseAcquire, acquire("w1", 0))
		expectGrant(t, holder, 0, wire.LeaseGrantKindAcquired)
		waiter.Connect()
		waiter.Negotiate()
		for range 3 {
			waiter.Request(7, wire.TypeLeaseAcquire, acquire("w2", 30))
			expectGrant(t, waiter, 7, wire.LeaseGrantKindQueued)
			waiter.Request(0, wire.TypeCancel, &wire.Cancel{CorrelationID: 7})
			if text := waiter.ExpectRefusal(7, wire.TypeLeaseAcquire, wire.CodeRequestCancelled); text != wire.TextCancelled {
				t.Errorf("text %q", text)
			}
			waiter.ExpectHex("f6 0009 0000000000000007 00")
		}
	})
}

// vectors returns the V table by id.
func vectors(t testing.TB) map[string][][]byte {
	byID := map[string][][]byte{}
	for _, v := range reference.Rows(t, (*reference.Docs).WireVectors) {
		byID[v.ID] = v.Bytes
	}
	return byID
}

// The vectors of wire.md section 12 that a session can show, sent and expected exactly as they are written.
func TestWireVectors(t *testing.T) {
	v := vectors(t)
	each(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		c := dial()
		c.Raw(c.Framed(v["V-01"][0][4:])) // without the TCP prefix, which Framed adds where it belongs
		hello := c.Next()
		var got, want wire.ServerHello
		if err := got.DecodeValue(hello[3:]); err != nil {
			t.Fatal(err)
		}
		if err := want.DecodeValue(v["V-03"][0][7:]); err != nil {
			t.Fatal(err)
		}
		if len(hello) != len(v["V-03"][0])-4 || !bytes.Equal(hello[:3], v["V-03"][0][4:7]) || got.Version != want.Version || !got.Capabilities.Has(wire.CapLifecycle|wire.CapCorrelation) {
			t.Errorf("hello %x does not have the form of V-03", hello)
		}
		c.Raw(c.Framed(v["V-09"][0][4:]))
		if reply := c.Next(); !bytes.Equal(reply, v["V-10"][0][4:]) {
			t.Errorf("reply %x, want V-10 %x", reply, v["V-10"][0])
		}
		c.Raw(c.Framed(v["V-04"][0]))
		c.Raw(c.Framed(v["V-05"][0]))
		if pong := c.Next(); !bytes.Equal(pong, v["V-05"][1]) {
			t.Errorf("pong %x, want V-05 %x", pong, v["V-05"][1])
		}
		c.Raw(c.Framed(v["V-08"][0]))
		cancelled := bytes.Clone(v["V-08"][1])
		cancelled[len(cancelled)-1] = byte(wire.CancelOutcomeUnknown) // nothing waits here
		if got := c.Next(); !bytes.Equal(got, cancelled) {
			t.Errorf("cancelled %x, want %x", got, cancelled)
		}
		c.Raw(c.Framed(v["V-14"][0]))
		c.ExpectClose(wire.CloseUnsupportedMessageType)
	})
}

// V-01 and V-09 as whole TCP messages, and the reply with its prefix, byte for byte.
func TestTCPMessageVectors(t *testing.T) {
	v := vectors(t)
	b := start(t)
	c := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
	c.Raw(append(bytes.Clone(v["V-01"][0]), v["V-09"][0]...))
	c.Next() // hello
	if reply := c.Next(); !bytes.Equal(append(binary.BigEndian.AppendUint32(nil, uint32(len(reply))), reply...), v["V-10"][0]) {
		t.Errorf("reply %x", reply)
	}
}

// LV-01 to LV-10 with the tokens of a fresh broker.
func TestLeaseVectors(t *testing.T) {
	lv := map[string][][]byte{}
	for _, v := range reference.Rows(t, (*reference.Docs).LeaseVectors) {
		lv[v.ID] = v.Bytes
	}
	withNumber := func(record []byte, n uint64) []byte { // the last 8 bytes are the number
		return binary.BigEndian.AppendUint64(bytes.Clone(record[:len(record)-8]), n)
	}
	each(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		c := dial()
		exchange := func(request, reply []byte) {
			t.Helper()
			c.Raw(c.Framed(request))
			if got := c.Next(); !bytes.Equal(got, reply) {
				t.Fatalf("request %x\n got %x\nwant %x", request, got, reply)
			}
		}
		exchange(lv["LV-10"][0], withNumber(lv["LV-10"][1], 1))
		exchange(lv["LV-01"][0], withNumber(lv["LV-03"][0], 1))
		c.Expect(0, wire.TypeLeaseNotify)
		renew := bytes.Clone(lv["LV-06"][0])
		binary.BigEndian.PutUint64(renew[len(renew)-16:], 1)
		exchange(renew, withNumber(lv["LV-07"][0], 1))
		exchange(withNumber(lv["LV-08"][0], 1), rawclient.Record(wire.TypeLeaseRelease, []byte{0}))
	})
}

// W-20, W-21, W-24, http_header_bytes_max: what becomes of upgrades.
func TestUpgrades(t *testing.T) {
	b := start(t, "--websocket-origin", "https://APP.example.com:443", "--limit", "http_header_bytes_max=8192")
	dial := func() *rawclient.Client { return rawclient.Dial(t, rawclient.TCP, address(b, rawclient.WebSocket)) }
	long := func(total int) []byte {
		head := "GET /ws HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nX: "
		return []byte(head + strings.Repeat("x", total-len(head)-4) + "\r\n\r\n")
	}
	for _, c := range []struct {
		name   string
		header []string
		want   int
	}{
		{"plain", nil, http.StatusSwitchingProtocols},
		{"subprotocol is ignored", []string{"Sec-WebSocket-Protocol: fitz"}, http.StatusSwitchingProtocols},
		{"compression is declined", []string{"Sec-WebSocket-Extensions: permessage-deflate"}, http.StatusSwitchingProtocols},
		{"configured origin", []string{"Origin: https://app.example.com"}, http.StatusSwitchingProtocols},
		{"other origin", []string{"Origin: https://evil.example.com"}, http.StatusForbidden},
		{"origin with another port", []string{"Origin: https://app.example.com:444"}, http.StatusForbidden},
		{"origin equal to the host", []string{"Host: app.example.com", "Origin: http://app.example.com"}, http.StatusForbidden},
		{"no upgrade", []string{"Upgrade:", "Connection:"}, http.StatusBadRequest},
		{"other version", []string{"Sec-WebSocket-Version: 8"}, http.StatusBadRequest},
		{"no key", []string{"Sec-WebSocket-Key:"}, http.StatusBadRequest},
		{"bad key", []string{"Sec-WebSocket-Key: short"}, http.StatusBadRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			response := dial().Handshake(c.header...)
			if response.StatusCode != c.want {
				t.Errorf("status %d, want %d", response.StatusCode, c.want)
			}
			if got := response.Header.Get("Sec-WebSocket-Protocol") + response.Header.Get("Sec-WebSocket-Extensions"); got != "" {
				t.Errorf("negotiated %q", got)
			}
		})
	}
	t.Run("head at the bound", func(t *testing.T) {
		c := dial()
		c.Raw(long(8192))
		if got := c.Response().StatusCode; got != http.StatusSwitchingProtocols {
			t.Errorf("status %d", got)
		}
	})
	t.Run("head above the bound", func(t *testing.T) {
		c := dial()
		_ = c.TryRaw(long(8193))
		if got := c.Response().StatusCode; got != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("status %d", got)
		}
	})
	t.Run("healthz", func(t *testing.T) {
		if status, body := get(t, address(b, rawclient.WebSocket), "/healthz", ""); status != http.StatusOK || body != "ok\n" {
			t.Errorf("%d %q", status, body)
		}
	})
}

// get asks an HTTP listener; an empty host is the address.
func get(t testing.TB, address, path, host string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// The admin interface: health, metrics and the inventory, which never shows a fencing token.
func TestAdmin(t *testing.T) {
	b := start(t)
	at := b.Addresses()[settings.ListenerAdmin.Name]
	c := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
	hello := c.Connect()
	for _, name := range []string{"a", "b", "c"} {
		c.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/x/" + name, OwnerID: "owner \"<\x01>", TTL: 60})
		expectGrant(t, c, 1, wire.LeaseGrantKindAcquired)
	}
	status, body := get(t, at, "/v1/leases?family=1&selector=lease://r/x/*", "")
	var listing struct{ Leases []map[string]any }
	if err := json.Unmarshal([]byte(body), &listing); err != nil || status != http.StatusOK || len(listing.Leases) != 3 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	item := listing.Leases[0]
	if item["route"] != "lease://r/x/a" || item["owner_id"] != "owner \"<\x01>" || item["renewals"] != 0.0 {
		t.Errorf("item %v", item)
	}
	if want := strconv.FormatUint(hello.Lifecycle.SessionIncarnation, 16); strings.TrimLeft(item["holder_incarnation"].(string), "0") != want {
		t.Errorf("incarnation %v, want %s", item["holder_incarnation"], want)
	}
	if strings.Contains(body, "token") {
		t.Errorf("the inventory mentions a token: %s", body)
	}
	if status, body = get(t, at, "/v1/leases?family=2&selector=lease://**", ""); status != http.StatusOK || body != "{\"leases\":[],\"truncated\":false}\n" {
		t.Errorf("other family: %d %q", status, body)
	}

	_, port, _ := net.SplitHostPort(at)
	for _, c := range []struct {
		path, host string
		status     int
		contains   string
	}{
		{"/healthz", "", 200, "ok"},
		{"/readyz", "", 200, "ready"},
		{"/metrics", "", 200, "fitz_lease_held 3"},
		{"/metrics", "", 200, "go_goroutines"},
		{"/v1/leases?family=1&selector=lease://r/*", "", 400, `"code":"selector.invalid","reason":"depth"`},
		{"/v1/leases?family=1&selector=kv://a/b/c", "", 400, `"reason":"wrong_scheme"`},
		{"/v1/leases?family=1", "", 400, `"code":"selector.invalid"`},
		{"/v1/leases?selector=lease://**", "", 400, `"code":"family.invalid"`},
		{"/v1/leases?family=x&selector=lease://**", "", 400, `"code":"family.invalid"`},
		{"/v1/leases?family=0&selector=lease://**", "", 400, `"code":"family.invalid"`},
		{"/v1/leases?family=4294967296&selector=lease://**", "", 400, `"code":"family.invalid"`},
		{"/nothing", "", 404, ""},
		{"/healthz", "localhost:" + port, 200, "ok"},
		{"/healthz", "[::1]:" + port, 200, "ok"},
		{"/healthz", "evil.example.com:" + port, 403, "host.invalid"},
		{"/healthz", "localhost", 403, "host.invalid"},
		{"/healthz", "localhost:1", 403, "host.invalid"},
		{"/healthz", "127.0.0.1.evil.com:" + port, 403, "host.invalid"},
	} {
		if status, body := get(t, at, c.path, c.host); status != c.status || !strings.Contains(body, c.contains) {
			t.Errorf("%s (host %q): %d %q, want %d with %q", c.path, c.host, status, body, c.status, c.contains)
		}
	}
}

// W-37: while it drains the broker accepts nobody, is not ready and healthy, and warns negotiated sessions; the end of the grace
// closes the rest.
func TestShutdown(t *testing.T) {
	each(t, func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client) {
		at := b.Addresses()[settings.ListenerAdmin.Name]
		c := dial()
		c.Connect()
		c.Negotiate()
		c.Sync(1)
		grace, end := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.Shutdown(grace)
		}()
		var goaway wire.Goaway
		if err := goaway.DecodeValue(c.Expect(0, wire.TypeGoaway)); err != nil || goaway.Code != wire.CodeGoawayShutdown {
			t.Errorf("GOAWAY %+v, %v", goaway, err)
		}
		for _, name := range []string{settings.ListenerTCP.Name, settings.ListenerHTTP.Name} {
			if nc, err := net.Dial("tcp", b.Addresses()[name]); err == nil {
				_ = nc.Close()
				t.Errorf("%s still listens", name)
			}
		}
		if status, _ := get(t, at, "/readyz", ""); status != http.StatusServiceUnavailable {
			t.Errorf("readyz %d", status)
		}
		if status, _ := get(t, at, "/healthz", ""); status != http.StatusOK {
			t.Errorf("healthz %d", status)
		}
		c.Request(1, wire.TypeLeaseAcquire, acquire("w1", 0)) // still works (W-67)
		expectGrant(t, c, 1, wire.LeaseGrantKindAcquired)
		end() // the second signal
		c.ExpectClose(wire.CloseGoingAway)
		<-done
	})
}

// W-38: at connections_max the next connection waits unserved, and is served when another ends; it is never closed.
func TestConnectionsMax(t *testing.T) {
	each(t, func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client) {
		first := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
		first.Connect()
		second := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
		second.Connect()
		served := make(chan *rawclient.Client)
		go func() {
			c := dial()
			c.Connect()
			served <- c
		}()
		for range 100 { // as long as a hundred round trips take, nobody serves the third
			first.Request(0, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: route})
			first.Expect(0, wire.TypeLeaseQuery)
		}
		select {
		case <-served:
			t.Fatal("a third connection was served")
		default:
		}
		if n := sessions(t, b); n != 2 {
			t.Errorf("%d sessions", n)
		}
		_ = first.Conn.Close()
		c := <-served
		c.Request(0, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: route})
		c.Expect(0, wire.TypeLeaseQuery)
	}, "--limit", "connections_max=2")
}

// preauth_sessions_max, preauth_per_address_max (W-38): the oldest silent connection gives way, before and after its upgrade; those
// that said something stay.
func TestPreauthLimits(t *testing.T) {
	for _, limit := range []string{"preauth_per_address_max=3", "preauth_sessions_max=3"} {
		t.Run(limit, func(t *testing.T) {
			each(t, func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client) {
				speaker := dial()
				speaker.Connect()
				oldest := dial() // silent, and for WebSocket already upgraded
				for sessions(t, b) < 2 {
					time.Sleep(time.Millisecond) // the handler of the upgrade goes on after its response
				}
				half := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.WebSocket))
				half.Raw([]byte("GET /ws HTTP/1.1\r\n"))
				// Two listeners accept in no order, and who came first gives way.
				eventually(t, "the oldest two do not count", func() bool { return b.Load().Preauth == 2 })
				dial()
				dial()
				oldest.ExpectClose(wire.CloseConnectTimeout)
				dial()
				half.ExpectGone()
				speaker.Request(0, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: route})
				speaker.Expect(0, wire.TypeLeaseQuery)
			}, "--limit", limit)
		})
	}
}

// The addresses file appears complete once everything accepts, and localhost listens at both families with one port.
func TestAddressesFileAndLocalhost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "addresses.json")
	c := load(t, "--tcp", "localhost:0", "--http", "127.0.0.1:0", "--admin", "off", "--addresses-file", path)
	b, err := broker.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var addresses map[string]string
	if err := json.Unmarshal(text, &addresses); err != nil || len(addresses) != 2 {
		t.Fatalf("%s: %v", text, err)
	}
	_, port, err := net.SplitHostPort(addresses["tcp"])
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"127.0.0.1"}
	if probe, err := net.Listen("tcp", "[::1]:0"); err == nil {
		_ = probe.Close()
		hosts = append(hosts, "::1")
	}
	for _, host := range hosts {
		rawclient.Dial(t, rawclient.TCP, net.JoinHostPort(host, port)).Connect()
	}
}

// A port in use is one line that names the flag; nothing is left running.
func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	c := load(t, "--tcp", taken.Addr().String(), "--http", "127.0.0.1:0", "--admin", "off")
	_, err = broker.Start(t.Context(), c)
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "--tcp") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("error %v", err)
	}
}
