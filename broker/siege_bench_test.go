package broker_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// BenchmarkSiege is the latency of a client that behaves, an ACQUIRE and a RELEASE, while ten thousand peers that have not said who they
// are hold on to a broker, as a ratio to its latency without them; what all of them cost, and how long after their end they are gone.
func BenchmarkSiege(b *testing.B) {
	const operations = 5000
	for _, c := range []struct{ transport, what string }{
		{rawclient.TCP, "announce"}, {rawclient.WebSocket, "websocket-announce"}, {rawclient.TCP, "idle"}, {rawclient.WebSocket, "websocket-idle"},
	} {
		b.Run(c.what, func(b *testing.B) {
			for b.Loop() {
				broker := start(b, enough...)
				client := rawclient.Dial(b, c.transport, address(broker, c.transport))
				client.Connect()
				latencies(b, client, operations) // warms up
				calm := latencies(b, client, operations)
				var besieged []time.Duration
				var over time.Time
				cost := attackDuring(b, broker, c.transport, c.what, func() int { return sessions(b, broker) }, func() {
					besieged = latencies(b, client, operations)
					over = time.Now()
				})
				for sessions(b, broker) > 1 {
					time.Sleep(time.Millisecond)
				}
				b.ReportMetric(float64(time.Since(over).Milliseconds()), "ms-until-gone")
				b.ReportMetric(float64(cost)/(1<<20), "MiB")
				for _, p := range []struct {
					name string
					at   int
				}{{"p50", 50}, {"p99", 99}} {
					before, with := calm[len(calm)*p.at/100], besieged[len(besieged)*p.at/100]
					b.ReportMetric(float64(with)/float64(before), p.name+"-ratio")
					b.ReportMetric(float64(with.Microseconds()), p.name+"-µs")
				}
				broker.Close()
			}
		})
	}
}

// latencies returns how long n pairs of ACQUIRE and RELEASE took, sorted.
func latencies(tb testing.TB, c *rawclient.Client, n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		began := time.Now()
		c.Request(1, wire.TypeLeaseAcquire, acquire("w", 0))
		grant := expectGrant(tb, c, 1, wire.LeaseGrantKindAcquired)
		c.Request(2, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "w", FencingToken: grant.FencingToken})
		c.Expect(2, wire.TypeLeaseRelease)
		all[i] = time.Since(began)
	}
	slices.Sort(all)
	return all
}
