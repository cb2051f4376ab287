package fitz_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
)

func ExampleConnect() {
	client, err := fitz.Connect(context.Background(), "", fitz.WithOwnerID("worker-7")) // at FITZ_URL, or on this machine
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	fmt.Println(client.Status().State)
	// Output: ready
}

func ExampleLeaseClient_Acquire() {
	ctx := context.Background()
	client, err := fitz.Connect(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lease, err := client.Lease().Acquire(ctx, "lease://acme/renderers/1", 30*time.Second, &fitz.AcquireOptions{OwnerID: "worker-7"})
	if err != nil {
		log.Fatal(err)
	}
	select {
	case <-lease.Done():
		fmt.Println("lost:", lease.Err()) // stop at once
	default:
		fmt.Println(lease.OwnerID(), "holds", lease.Route())
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(errors.Is(lease.Err(), fitz.ErrReleased))
	// Output:
	// worker-7 holds lease://acme/renderers/1
	// true
}

func ExampleLeaseClient_Run() {
	ctx := context.Background()
	client, err := fitz.Connect(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	err = client.Lease().Run(ctx, "lease://acme/renderers/1", 30*time.Second, nil, func(ctx context.Context, lease *fitz.Lease) error {
		fmt.Println("working on", lease.Route()) // ctx ends when the lease does
		return nil
	})
	if errors.Is(err, fitz.ErrLeaseLost) {
		fmt.Println("somebody else may hold it now")
	}
	fmt.Println(err)
	// Output:
	// working on lease://acme/renderers/1
	// <nil>
}

func ExampleLeaseClient_List() {
	ctx := context.Background()
	client, err := fitz.Connect(ctx, "", fitz.WithOwnerID("worker-7"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for _, route := range []string{"lease://acme/renderers/1", "lease://acme/renderers/2", "lease://acme/encoders/1"} {
		if _, err := client.Lease().Acquire(ctx, route, 30*time.Second, nil); err != nil {
			log.Fatal(err)
		}
	}

	for entry, err := range client.Lease().List("lease://acme/renderers/*", nil).All(ctx) {
		if err != nil {
			log.Fatal(err) // comes once, last; a listing never starts again by itself
		}
		fmt.Println(entry.Route, entry.OwnerID)
	}
	// Output:
	// lease://acme/renderers/1 worker-7
	// lease://acme/renderers/2 worker-7
}

func ExampleLeaseClient_Observe() {
	ctx := context.Background()
	client, err := fitz.Connect(ctx, "", fitz.WithOwnerID("worker-7"))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	observer, err := client.Lease().Observe("lease://acme/renderers/*", &fitz.ObserveOptions{ExpectedTTL: 30 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer observer.Close()

	for change, err := range observer.Changes(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch change.Kind {
		case fitz.InventoryReset:
			fmt.Println("held:", change.Inventory.Len())
			if _, err := client.Lease().Acquire(ctx, "lease://acme/renderers/1", 30*time.Second, nil); err != nil {
				log.Fatal(err)
			}
		case fitz.InventoryAdded:
			fmt.Println(change.After.OwnerID, "took", change.After.Route)
			return
		}
	}
	// Output:
	// held: 0
	// worker-7 took lease://acme/renderers/1
}
