package tests

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
)

// lonely is a connection whose other end can go without a word: nothing arrives there any more, and nothing comes back, not even its end.
type lonely struct {
	net.Conn
	unheard, deaf *atomic.Bool
	closed        chan struct{}
	once          sync.Once
}

func (c *lonely) Write(p []byte) (int, error) {
	if c.unheard.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *lonely) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.deaf.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *lonely) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// L-95, L-96, W-66: the broker gives a route on when it has heard nothing of the session of its holder for three heartbeats, however much is left of
// the ttl. The holder knows before that, also when it went on to hear the broker, which told it of other routes, after its own last word
// arrived there.
func TestLostBeforeTheBrokerIsTiredOfWaiting(t *testing.T) {
	for name, deafToo := range map[string]bool{"nothing arrives": true, "only requests do not arrive": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fitztest.Start(t)
				var unheard, deaf atomic.Bool
				c := connect(t, b, fitz.WithDialer(func(ctx context.Context, network, address string) (net.Conn, error) {
					conn, err := b.Dial(ctx, network, address)
					if err != nil {
						return nil, err
					}
					return &lonely{Conn: conn, unheard: &unheard, deaf: &deaf, closed: make(chan struct{})}, nil
				}))
				if _, err := c.Lease().Subscribe(t.Context(), "lease://r/others/*", nil); err != nil {
					t.Fatal(err)
				}
				held := acquire(t, c, route, time.Hour)
				others := b.Connect()
				for range bounds.HeartbeatMs/1000 - 1 { // it hears, and has nothing to say
					time.Sleep(time.Second)
					if err := acquire(t, others, "lease://r/others/1", time.Minute).Release(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				unheard.Store(true)
				deaf.Store(deafToo)
				granted := make(chan time.Time, 1)
				go func() {
					if _, err := others.Lease().Acquire(t.Context(), route, time.Minute, &fitz.AcquireOptions{Wait: time.Minute, OwnerID: "other"}); err != nil {
						t.Error(err)
					}
					granted <- time.Now()
				}()
				select {
				case <-held.Done():
				case <-granted:
					t.Fatal("somebody else was granted the route while the handle looked held")
				}
				lost := time.Now()
				if at := <-granted; !at.After(lost) {
					t.Errorf("lost at %v, and granted to somebody else at %v", lost, at)
				}
				unheard.Store(false)
				deaf.Store(false)
			})
		})
	}
}
