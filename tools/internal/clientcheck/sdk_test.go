package clientcheck

import (
	"testing"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

// L-95, L-100: a route that the client has lost by its own clock while the broker still holds it for the session is granted as already held
// (kind 1). Nobody knows how old that is, so that it is renewed before it is handed out.
func TestLeaseHeldAlreadyIsConfirmed(t *testing.T) {
	const route = "lease://r/a/k"
	b, clock := fitztest.Start(t), fitztest.NewClock()
	leases := b.Connect(fitz.WithClock(clock)).Lease()
	terms := &fitz.AcquireOptions{ManualRenew: true}
	first, err := leases.Acquire(t.Context(), route, 10*time.Second, terms)
	if err != nil {
		t.Fatal(err)
	}
	clock.Advance(9 * time.Second) // of the client, not of the broker
	if first.Err() == nil {
		t.Fatal("held after its deadline")
	}
	second, err := leases.Acquire(t.Context(), route, 10*time.Second, terms)
	if err != nil {
		t.Fatal(err)
	}
	held := b.Held(route)
	if len(held) != 1 || held[0].Renewals != 1 || second.FencingToken() != first.FencingToken() {
		t.Errorf("held %+v, tokens %d and %d", held, first.FencingToken(), second.FencingToken())
	}
}
