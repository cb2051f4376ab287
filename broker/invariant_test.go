package broker

import (
	"context"
	"io"
	"testing"

	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/lease"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Invariant 12: a thousand calls of a session that negotiated nothing leave the label table, the cancel memory, the queue, the
// snapshots and everything else that belongs to extensions at capacity zero.
func TestNothingNegotiatedNothingKept(t *testing.T) {
	for _, transport := range rawclient.Transports {
		t.Run(transport, func(t *testing.T) {
			c, _, err := config.Load([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "off"}, func(string) string { return "" }, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Start(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			name := settings.ListenerTCP.Name
			if transport == rawclient.WebSocket {
				name = settings.ListenerHTTP.Name
			}
			client := rawclient.Dial(t, transport, b.Addresses()[name])
			client.Connect()
			const route = "lease://r/a/k"
			for n := range 250 {
				label := uint64(n % 2 * (n + 1)) // every second one is labelled
				client.Request(label, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: route, OwnerID: "w1", TTL: 30, Wait: 5})
				var reply wire.LeaseAcquireReply
				if err := reply.DecodeValue(client.Expect(label, wire.TypeLeaseAcquire)); err != nil {
					t.Fatal(err)
				}
				client.Request(label, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: route})
				client.Expect(label, wire.TypeLeaseQuery)
				client.Request(label, wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://r/**"})
				client.Expect(label, wire.TypeLeaseList)
				client.Request(label, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "w1", FencingToken: reply.FencingToken})
				client.Expect(label, wire.TypeLeaseRelease)
			}
			b.hub.Each(func(s *session.Session) {
				for s.Capacities().QueueBytes != 0 { // the reader frees the buffer just after the write that the client saw
				}
				if got := s.Capacities(); got != (session.Capacities{}) {
					t.Errorf("session: %+v", got)
				}
				if got := b.lease.Capacities(s.Family(), s.Number()); got != (lease.Capacities{}) {
					t.Errorf("lease domain: %+v", got)
				}
			})
			if used := b.inbound.Used(); used != 0 {
				t.Errorf("%d bytes in receive buffers", used)
			}
		})
	}
}
