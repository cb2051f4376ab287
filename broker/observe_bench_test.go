package broker_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/prometheus/common/expfmt"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// holdMany runs a broker with leases, held by sessions with a thousand each.
func holdMany(b *testing.B, leases int) *broker.Broker {
	b.Helper()
	const each = 1000
	running := start(b)
	for s := range leases / each {
		c := rawclient.Dial(b, rawclient.TCP, address(running, rawclient.TCP))
		c.Connect()
		var batch bytes.Buffer
		for n := range each {
			batch.Write(c.Framed(rawclient.Encode(b, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{
				Route: fmt.Sprintf("lease://r/%d/%d", s, n), OwnerID: "w", TTL: 3600})))
		}
		sent := make(chan error, 1)
		go func() { sent <- c.TryRaw(batch.Bytes()) }()
		for range each {
			c.Expect(0, wire.TypeLeaseAcquire)
		}
		if err := <-sent; err != nil {
			b.Fatal(err)
		}
	}
	return running
}

// BenchmarkScrape is one answer of /metrics without HTTP, with and without leases: it does not grow with them. The floor is the encoding
// of metrics that were gathered before.
func BenchmarkScrape(b *testing.B) {
	for _, leases := range []int{0, 100_000} {
		running := holdMany(b, leases)
		encode := func(b *testing.B, gather bool) {
			families, err := running.Registry().Gather()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if gather {
					if families, err = running.Registry().Gather(); err != nil {
						b.Fatal(err)
					}
				}
				for _, f := range families {
					if _, err := expfmt.MetricFamilyToText(io.Discard, f); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
		b.Run(fmt.Sprintf("leases=%d/fitz", leases), func(b *testing.B) { encode(b, true) })
		b.Run(fmt.Sprintf("leases=%d/floor", leases), func(b *testing.B) { encode(b, false) })
		b.Run(fmt.Sprintf("leases=%d/status", leases), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := json.NewEncoder(io.Discard).Encode(running.Status()); err != nil {
					b.Fatal(err)
				}
			}
		})
		running.Close()
	}
}
