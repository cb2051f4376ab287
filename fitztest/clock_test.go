package fitztest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

// The tests of the clock use sockets and brokers of the machine, as somebody does who has no broker of this package.

// listen opens a port of the machine until the test ends.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// waitFor lets other goroutines run until a number of calls is pending.
func waitFor(clock *fitztest.Clock, pending int) {
	for clock.Pending() < pending {
		runtime.Gosched()
	}
}

// advanceUntil moves the clock on step by step until something happens, and returns how far it was moved.
func advanceUntil[T any](clock *fitztest.Clock, step time.Duration, happened <-chan T) (T, time.Duration) {
	for moved := time.Duration(0); ; moved += step {
		select {
		case result := <-happened:
			return result, moved
		default:
			runtime.Gosched()
			clock.Advance(step)
		}
	}
}

// A client with a clock of its own connects, waits and gives up in that time, against a peer that takes everything and says nothing.
func TestClockMovesEverythingOfAClient(t *testing.T) {
	l := listen(t)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	clock := fitztest.NewClock()
	clients := make(chan *fitz.Client, 1)
	go func() {
		c, err := fitz.Connect(t.Context(), "tcp://"+l.Addr().String(), fitz.WithClock(clock))
		if err != nil {
			t.Error(err)
		}
		clients <- c
	}()
	waitFor(clock, 2) // connect timeout, settle or keeper
	c, _ := advanceUntil(clock, 100*time.Millisecond, clients)
	if c == nil {
		return
	}
	results := make(chan error, 1)
	before := clock.Pending()
	go func() {
		_, err := c.Lease().Query(t.Context(), "lease://acme/renderers/a")
		results <- err
	}()
	waitFor(clock, before+1)
	select {
	case err := <-results:
		t.Fatalf("%v without time", err)
	default:
	}
	if err, _ := advanceUntil(clock, time.Second, results); !errors.Is(err, fitz.ErrRequestTimeout) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A lease of a real broker ends in the time of the client's clock, and a step of the time of day changes nothing (L-14).
func TestClockMovesLeases(t *testing.T) {
	l := listen(t)
	running, err := broker.Start(context.Background(), &config.Config{Limits: bounds.Default()},
		broker.WithListener(config.Listener{Name: "test", Transport: config.TransportTCP}, l))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	const ttl = 20 * time.Second // over before the broker, which does not answer within an Advance, is silent for too long
	clock := fitztest.NewClock()
	wall := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	clock.SetWall(wall)
	c, err := fitz.Connect(t.Context(), "tcp://"+l.Addr().String(), fitz.WithClock(clock))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	lease, err := c.Lease().Acquire(t.Context(), "lease://acme/renderers/a", ttl, &fitz.AcquireOptions{ManualRenew: true})
	if err != nil {
		t.Fatal(err)
	}
	left := lease.Deadline().Sub(wall)
	if want := ttl - ttl/fitz.DefaultLostMarginFraction; left != want {
		t.Errorf("the lease ends in %v, want %v", left, want)
	}
	clock.SetWall(wall.AddDate(1, 0, 0))
	clock.Advance(left - 1)
	if err := lease.Err(); err != nil {
		t.Fatal(err)
	}
	clock.Advance(1)
	var lost *fitz.LeaseLost
	if <-lease.Done(); !errors.As(lease.Err(), &lost) || lost.Reason != fitz.LeaseLostExpired {
		t.Error(lease.Err())
	}
}

// Calls come in the order of their instants, each at its own.
func TestClockCallsInOrder(t *testing.T) {
	clock := fitztest.NewClock()
	var got []time.Duration
	note := func() { got = append(got, clock.Now()) }
	clock.AfterFunc(3*time.Second, note)
	clock.AfterFunc(time.Second, func() { note(); clock.AfterFunc(time.Second, note) })
	stopped := clock.AfterFunc(time.Second, note)
	if !stopped.Stop() || clock.Pending() != 2 {
		t.Error(clock.Pending())
	}
	if next, ok := clock.Next(); !ok || next != time.Second {
		t.Error(next, ok)
	}
	clock.Advance(time.Minute)
	if len(got) != 3 || got[0] != time.Second || got[1] != 2*time.Second || got[2] != 3*time.Second || clock.Now() != time.Minute {
		t.Error(got, clock.Now())
	}
}
