package lease

import (
	"testing"
	"time"
)

// A wheel that was idle for a while files a lease into a slot that has begun already. That is work at once: nobody waits for the clock to move.
func TestAgedDomainComesToRest(t *testing.T) {
	for _, idle := range []time.Duration{time.Second, time.Minute, 100 * time.Second, time.Hour, 25 * time.Hour} {
		h := newHarness(t)
		a := h.session("a")
		a.acquire("r/a/far", "w", 30*24*3600, 0) // its slot is a coarse one
		h.clock.Advance(idle)
		h.serve()
		for ttl := uint64(1); ttl < 200; ttl += 7 {
			a.acquire("r/a/near", "w", ttl, 0)
			h.serve()
			if _, _, quiet := h.domain.Look(); !quiet {
				t.Fatalf("idle for %v: something is due at once after a lease of %d s", idle, ttl)
			}
			h.pass(time.Duration(ttl)*time.Second + tick)
		}
	}
}
