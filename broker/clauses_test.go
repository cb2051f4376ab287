package broker_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// W-20: an upgrade is taken at any path that the HTTP side does not serve, as it is written.
func TestUpgradeAtAnyPath(t *testing.T) {
	b := start(t)
	for _, path := range []string{"/ws", "/", "/ws/", "/a/b/c?x=y", "/healthz/", "/metrics", "//ws", "/a/../ws", "/a//b", "/./", "/%2e%2e/x"} {
		t.Run(path, func(t *testing.T) {
			c := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.WebSocket))
			c.Raw([]byte("GET " + path + " HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
				"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"))
			if got := c.Response().StatusCode; got != http.StatusSwitchingProtocols {
				t.Errorf("status %d", got)
			}
		})
	}
	for _, request := range []string{"GET /other HTTP/1.1\r\nHost: b\r\n\r\n", "POST /ws HTTP/1.1\r\nHost: b\r\nContent-Length: 0\r\n\r\n",
		"GET //ws HTTP/1.1\r\nHost: b\r\n\r\n", "GET /ws HTTP/1.0\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"} {
		c := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.WebSocket))
		c.Raw([]byte(request))
		if got := c.Response().StatusCode; got != http.StatusBadRequest {
			t.Errorf("%.20q: status %d", request, got)
		}
	}
}

// W-40, W-41: unlabelled requests of one session, pipelined in one message and over several, are executed and answered in the order
// received: each lease gets the next fencing token, and requests that name one route take effect one after the other.
func TestPipelinedRequestsKeepTheirOrder(t *testing.T) {
	const n = 200
	each(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		c := dial()
		go func() {
			var records [][]byte
			for i := range n {
				records = append(records, rawclient.Encode(t, wire.TypeLeaseAcquire,
					&wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://r/a/%d", i), OwnerID: "w1", TTL: 30}))
				if i%3 == 0 {
					c.Send(records...)
					records = nil
				}
			}
			c.Send(records...)
			c.Send(rawclient.Encode(t, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/a/7"}),
				rawclient.Encode(t, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: "lease://r/a/7", OwnerID: "w1", FencingToken: 8}),
				rawclient.Encode(t, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/a/7"}))
		}()
		for i := range n {
			if reply := expectGrant(t, c, 0, wire.LeaseGrantKindAcquired); reply.FencingToken != uint64(i+1) {
				t.Fatalf("reply %d has token %d", i, reply.FencingToken)
			}
		}
		for _, held := range []bool{true, false} {
			var reply wire.LeaseQueryReply
			if err := reply.DecodeValue(c.Expect(0, wire.TypeLeaseQuery)); err != nil || reply.Held != held {
				t.Errorf("%+v, %v; want held %v", reply, err, held)
			}
			if held {
				c.Expect(0, wire.TypeLeaseRelease)
			}
		}
	})
}

// on an anonymous listener a session with any token has family 1 and may do everything.
func TestAnyTokenIsAnonymous(t *testing.T) {
	each(t, func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client) {
		for i, token := range []string{"", "placeholder", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", strings.Repeat("t", 8000)} {
			c := dial()
			c.Send(rawclient.Record(wire.TypeConnect, []byte(token)))
			c.Expect(0, wire.TypeServerHello)
			// Only what this session does: the one before may still be ending.
			c.Request(0, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: fmt.Sprintf("lease://realm%d/**", i)})
			c.Expect(0, wire.TypeLeaseSubscribe)
			c.Request(0, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://realm%d/a/k", i), OwnerID: "w", TTL: 30})
			expectGrant(t, c, 0, wire.LeaseGrantKindAcquired)
			c.Expect(0, wire.TypeLeaseNotify)
			at := b.Addresses()[settings.ListenerAdmin.Name]
			if _, body := get(t, at, "/v1/leases?family=1&selector=lease://**", ""); !strings.Contains(body, fmt.Sprintf("lease://realm%d/a/k", i)) {
				t.Errorf("token %.20q: family 1 has %s", token, body)
			}
			_ = c.Conn.Close()
		}
	})
}

// W-24: there is one Origin, and it is one that is configured.
func TestOriginIsOne(t *testing.T) {
	b := start(t, "--websocket-origin", "https://app.example.com")
	for origins, want := range map[string]int{
		"":                                    http.StatusSwitchingProtocols,
		"Origin: https://app.example.com\r\n": http.StatusSwitchingProtocols,
		"Origin:\r\n":                         http.StatusForbidden,
		"Origin: null\r\n":                    http.StatusForbidden,
		"Origin: HTTPS://app.example.com\r\n": http.StatusForbidden,
		"Origin: https://app.example.com\r\nOrigin: https://evil.example.com\r\n": http.StatusForbidden,
		"Origin: https://app.example.com, https://evil.example.com\r\n":           http.StatusForbidden,
		"Origin: https://app.example.com.evil.example.com\r\n":                    http.StatusForbidden,
	} {
		c := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.WebSocket))
		c.Raw([]byte("GET /ws HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + origins +
			"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"))
		if got := c.Response().StatusCode; got != want {
			t.Errorf("%q: status %d, want %d", origins, got, want)
		}
	}
}
