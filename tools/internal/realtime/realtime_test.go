//go:build linux

package realtime

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

const (
	route = "lease://acme/renderers/1"
	// ttl is long enough for a machine that is busy: renewals may come late by more than half of it, and who only waits for the signal has a tenth
	// of it to notice.
	ttl = 5 * time.Second
)

// L-95, L-96, L-104: a process that is stopped past the ttl finds its lease lost, whichever member it asks first, before it does anything
// else; the other client has got the lease meanwhile.
func TestStoppedProcess(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url    func(addresses) string
		manual bool
	}{
		"tcp": {url: addresses.tcp}, "websocket": {url: addresses.webSocket}, "manual renewal": {addresses.tcp, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := startFitzd(t)
			w := startWorker(t, order{url: c.url(at), route: route, ttl: ttl, manual: c.manual})
			w.await(wordHeld, len(members))
			if !c.manual {
				w.await(wordRenewed, 1)
			}
			r := joinLine(t, at.tcp(), route)
			w.signal(syscall.SIGSTOP)
			granted := r.grant()
			w.signal(syscall.SIGCONT)
			w.neverAfter(granted, fitz.DefaultLostMarginMin)
			if signal := w.await(wordSignal, 1); signal.more != string(fitz.LeaseLostExpired) {
				t.Errorf("lost for the reason %s", signal.more)
			}
		})
	}
}

// L-95, L-96: a connection that forwards nothing any more, in one direction or in both, ends with the signal in time. Nothing is closed, so
// that nobody is told.
func TestFrozenSocket(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		directions []int
		margin     time.Duration
	}{
		"both":     {[]int{toBroker, toWorker}, fitz.DefaultLostMarginMin},
		"requests": {[]int{toBroker}, fitz.DefaultLostMarginMin},
		"answers":  {[]int{toWorker}, 0}, // a RELEASE still reaches the broker, after the signal
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := startFitzd(t)
			p := startProxy(t, at["tcp"])
			w := startWorker(t, order{url: p.url(), route: route, ttl: ttl})
			w.await(wordHeld, len(members))
			w.await(wordRenewed, 1)
			r := joinLine(t, at.tcp(), route)
			p.linger()
			for _, d := range c.directions {
				p.frozen[d].Store(true)
			}
			granted := r.grant()
			w.neverAfter(granted, c.margin)
			w.signalledBefore(granted, fitz.LeaseLostExpired)
		})
	}
}

// L-95, L-96: the client hears nothing of a renewal until its deadline is past; the answer comes later and changes nothing. The broker is slow from
// the start, so that the client goes on without what it would announce (C-60), or from the grant on.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	for name, fromStart := range map[string]bool{"from the start": true, "from the grant on": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := startFitzd(t)
			p := startProxy(t, at["tcp"])
			if fromStart {
				p.slow(func() time.Duration { return ttl/3 + 1 + rand.N(ttl/6) })
			}
			w := startWorker(t, order{url: p.url(), route: route, ttl: ttl})
			w.await(wordHeld, len(members))
			r := joinLine(t, at.tcp(), route)
			p.slow(func() time.Duration { return ttl + 1 + rand.N(ttl/6) })
			p.linger()
			granted := r.grant()
			w.neverAfter(granted, 0) // a RELEASE reaches the broker, after the signal
			w.signalledBefore(granted, fitz.LeaseLostExpired)
		})
	}
}
