//go:build linux

package realtime

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

// L-95, L-96, L-97: a broker whose every answer takes longer than a third of the ttl loses nothing, because deadlines count from when requests
// are sent; one answer that comes past the deadline loses the lease in time. The broker is slow from the start, so that the client goes on without
// what it would announce (C-60), or from the grant on.
func TestSlowBroker(t *testing.T) {
	t.Parallel()
	const (
		// Two slow answers, one after the other, leave time before the deadline: a fifth of the ttl, which is what a busy machine may take.
		long    = 9 * time.Second
		slowest = long/3 + 150*time.Millisecond
	)
	delay := func() time.Duration { return long/3 + 1 + rand.N(slowest-long/3) }
	for name, fromStart := range map[string]bool{"from the start": true, "from the grant on": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := startFitzd(t)
			p := startProxy(t, at["tcp"])
			if fromStart {
				p.slow(delay)
			}
			w := startWorker(t, order{url: p.url(), route: route, ttl: long})
			first := w.await(wordGranted, 1)
			p.slow(delay)
			r := joinLine(t, at.tcp(), route)
			const renewals = 3
			if last := w.await(wordRenewed, renewals); last.at-first.at < renewals*long/3 {
				t.Errorf("%d slow renewals took %v only", renewals, last.at-first.at)
			}
			for _, e := range w.history() {
				if e.word == wordLost || e.word == wordSignal {
					t.Fatalf("lost, although every answer came in time: %+v", e)
				}
			}
			p.slow(func() time.Duration { return long + slowest })
			p.linger()
			granted := r.grant()
			w.neverAfter(granted, 0) // as above
			w.signalledBefore(granted, fitz.LeaseLostExpired)
		})
	}
}
