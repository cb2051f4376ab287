package doctest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// What the migration guide says of a broker that closes the session when it is asked to list: the observer stays in starting, tries again
// with growing delays and shows nothing, a listing fails with conn.lost, and when the broker lists the observer gets ready by itself.
func TestBrokerWithoutList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := fitztest.Start(t)
		network := broker.Network()
		closing := network.Drop(fitztest.Filter{Direction: fitztest.ToBroker, Type: wire.TypeLeaseList, Match: func(fitztest.Frame) bool {
			go network.Cut()
			return true
		}})
		client := broker.Connect()
		observer, err := client.Lease().Observe("lease://acme/renderers/*", nil)
		if err != nil {
			t.Fatal(err)
		}
		before := client.Status().Sessions
		wait(t, observer, context.DeadlineExceeded)
		if s := observer.Status(); s.State != fitz.ObserverStarting || !errors.Is(s.LastError, fitz.ErrConnLost) {
			t.Errorf("%+v", s)
		}
		if _, synced := observer.Snapshot(); synced {
			t.Error("there is a snapshot")
		}
		if again := client.Status().Sessions - before; again < 2 || again > 40 {
			t.Errorf("%d sessions in a minute", again)
		}
		for _, err := range client.Lease().List("lease://acme/renderers/*", nil).All(t.Context()) {
			if !errors.Is(err, fitz.ErrConnLost) {
				t.Errorf("%v", err)
			}
		}
		closing.Remove()
		wait(t, observer, nil)
	})
}

func wait(t *testing.T, observer *fitz.InventoryObserver, want error) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := observer.Ready(ctx); err != want {
		t.Errorf("%v, want %v", err, want)
	}
}
