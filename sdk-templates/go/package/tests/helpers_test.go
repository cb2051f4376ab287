// Package tests shows that the generated Go SDK works, against the broker in memory of fitztest and against peers whose answers a test writes.
package tests

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const route = "lease://r/a/k"

// variants runs a test over both transports, with and without a hello (AC-X02, C-60).
func variants(t *testing.T, test func(t *testing.T, options ...fitztest.Option)) {
	for hello, options := range map[string][]fitztest.Option{"hello": nil, "no hello": {fitztest.WithoutHello()}} {
		t.Run(hello+"/tcp", func(t *testing.T) { test(t, options...) })
		t.Run(hello+"/websocket", func(t *testing.T) { test(t, append(options, fitztest.WithWebSocket())...) })
	}
}

// each runs a test in every variant, in a bubble.
func each(t *testing.T, test func(t *testing.T, b *fitztest.Broker)) {
	variants(t, func(t *testing.T, options ...fitztest.Option) {
		synctest.Test(t, func(t *testing.T) { test(t, fitztest.Start(t, options...)) })
	})
}

// place is where a client connects to: a broker or a peer.
type place interface {
	URL() string
	Options() []fitz.Option
}

// connect opens a client of the test. Its delays are three quarters of the nominal ones.
func connect(t testing.TB, at place, more ...fitz.Option) *fitz.Client {
	t.Helper()
	options := append(at.Options(), fitz.WithLimits(fitz.Limits{Settle: 50 * time.Millisecond}), fitz.WithRandom(func() float64 { return 0.5 }))
	c, err := fitz.Connect(t.Context(), at.URL(), append(options, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func acquire(t testing.TB, c *fitz.Client, route string, ttl time.Duration) *fitz.Lease {
	t.Helper()
	lease, err := c.Lease().Acquire(t.Context(), route, ttl, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func wantCode(t testing.TB, err error, sentinel error) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("%v, want %v", err, sentinel)
	}
}
