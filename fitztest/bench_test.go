package fitztest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// dialer opens connections to one broker.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// rawSession is a session of prepared frames: nothing is encoded, labelled, timed or watched over.
type rawSession struct {
	tb               testing.TB
	conn             net.Conn
	acquire, release []byte
	buffer           []byte
}

// tokenBytes is the size of a fencing token, which ends a RELEASE and the reply of an ACQUIRE.
const tokenBytes = 8

func dialRaw(tb testing.TB, dial dialer, route string) *rawSession {
	tb.Helper()
	conn, err := dial(tb.Context(), "tcp", "")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	r := &rawSession{tb: tb, conn: conn, buffer: make([]byte, bounds.RecordValueMax)}
	r.acquire = framed(tb, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: route, OwnerID: "raw", TTL: 30})
	r.release = framed(tb, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "raw"})
	if _, err := conn.Write(framed(tb, wire.TypeConnect, &wire.Connect{})); err != nil {
		tb.Fatal(err)
	}
	return r
}

// framed returns a message of one record as it stands on TCP.
func framed(tb testing.TB, typ wire.MessageType, m interface {
	AppendValue([]byte) ([]byte, error)
}) []byte {
	tb.Helper()
	value, err := m.AppendValue(nil)
	if err != nil {
		tb.Fatal(err)
	}
	record := codec.AppendRecord(nil, uint16(typ), value)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(record))), record...)
}

// exchange sends a request and returns the value of its reply, past what the broker says by itself.
func (r *rawSession) exchange(request []byte, typ wire.MessageType) []byte {
	if _, err := r.conn.Write(request); err != nil {
		r.tb.Fatal(err)
	}
	for {
		if _, err := io.ReadFull(r.conn, r.buffer[:4]); err != nil {
			r.tb.Fatal(err)
		}
		payload := r.buffer[:binary.BigEndian.Uint32(r.buffer)]
		if _, err := io.ReadFull(r.conn, payload); err != nil {
			r.tb.Fatal(err)
		}
		record, _, err := codec.NextRecord(payload)
		if err != nil {
			r.tb.Fatal(err)
		}
		if wire.MessageType(record.Type) == typ {
			return record.Value
		}
	}
}

// cycle is one ACQUIRE and the RELEASE of what it gave.
func (r *rawSession) cycle() {
	granted := r.exchange(r.acquire, wire.TypeLeaseAcquire)
	copy(r.release[len(r.release)-tokenBytes:], granted[len(granted)-tokenBytes:])
	if released := r.exchange(r.release, wire.TypeLeaseRelease); !bytes.Equal(released, []byte{0}) {
		r.tb.Fatalf("release refused: %x", released)
	}
}

// BenchmarkAcquireRelease is an acquire and a release through the SDK, beside the raw frames of the same exchanges in the same run: each
// iteration does both, so that a busy machine slows both. ns/op is that of the SDK, whose deadline, timer, label and bookkeeping make the difference.
func BenchmarkAcquireRelease(b *testing.B) {
	memory := func(b *testing.B) dialer { return fitztest.Start(b).DialDirect }
	for _, c := range []struct {
		transport string
		start     func(*testing.B) dialer
	}{{"memory", memory}, {"tcp", startTCP}} {
		b.Run(c.transport, func(b *testing.B) {
			dial := c.start(b)
			raw := dialRaw(b, dial, "lease://acme/raw/1")
			client, err := fitz.Connect(b.Context(), "fitz://broker.test", fitz.WithDialer(dial))
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			throughSDK := func() {
				lease, err := client.Lease().Acquire(b.Context(), "lease://acme/sdk/1", 30*time.Second, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := lease.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			raw.cycle()
			throughSDK()
			var inRaw, inSDK time.Duration
			b.ReportAllocs()
			for b.Loop() {
				began := time.Now()
				raw.cycle()
				between := time.Now()
				throughSDK()
				inRaw, inSDK = inRaw+between.Sub(began), inSDK+time.Since(between)
			}
			b.ReportMetric(float64(inSDK)/float64(b.N), "ns/op")
			b.ReportMetric(float64(inRaw)/float64(b.N), "raw-ns/op")
			b.ReportMetric(float64(inSDK)/float64(inRaw), "sdk/raw")
		})
	}
}

// startTCP runs a broker on a socket.
func startTCP(b *testing.B) dialer {
	b.Helper()
	c, _, err := config.Load([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, func(string) string { return "" }, io.Discard)
	if err != nil {
		b.Fatal(err)
	}
	running, err := broker.Start(context.Background(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(running.Close)
	address := running.Addresses()[settings.ListenerTCP.Name]
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}

// wakeUps counts the calls that a clock makes.
type wakeUps struct {
	fitz.Clock
	count atomic.Int64
}

// AfterFunc is part of fitz.Clock.
func (w *wakeUps) AfterFunc(d time.Duration, f func()) fitz.Timer {
	return w.Clock.AfterFunc(d, func() {
		w.count.Add(1)
		f()
	})
}

// What an idle client costs is bounded by heartbeats, renewals and passes, whatever time goes by: so many frames, and so many timers that wake it.
func TestIdleClient(t *testing.T) {
	const (
		ttl       = 30 * time.Second
		hours     = 10
		heartbeat = bounds.HeartbeatMs * time.Millisecond
	)
	per := func(d time.Duration) float64 { return float64(time.Minute) / float64(d) }
	pings := per(heartbeat)
	renewals := per(ttl/fitz.DefaultRenewFraction) / (1 - fitz.DefaultRenewJitter)
	passes := per(fitz.DefaultReconcileMin) / (1 - fitz.DefaultReconcileJitter)
	for name, c := range map[string]struct {
		lease, observer bool
		requests        float64 // each has one answer
	}{
		"nothing":            {false, false, pings},
		"a lease":            {true, false, pings + renewals},
		"an observer":        {false, true, pings + passes},
		"observer and lease": {true, true, pings + renewals + passes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := fitztest.Start(t)
				clock := &wakeUps{Clock: b.Clock()}
				client := b.Connect(fitz.WithClock(clock))
				if c.lease {
					if _, err := client.Lease().Acquire(t.Context(), at("a"), ttl, nil); err != nil {
						t.Fatal(err)
					}
				}
				if c.observer {
					o, err := client.Lease().Observe(selector, nil)
					if err != nil {
						t.Fatal(err)
					}
					if err := o.Ready(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				synctest.Wait()
				wakes, frames := clock.count.Load(), allFrames(b.Network())
				time.Sleep(hours * time.Hour)
				synctest.Wait()
				const minutes = 60 * hours
				wakesPerMinute := float64(clock.count.Load()-wakes) / minutes
				framesPerMinute := float64(allFrames(b.Network())-frames) / minutes
				t.Logf("%.1f timers and %.1f frames in a minute", wakesPerMinute, framesPerMinute)
				if most := c.requests + pings; wakesPerMinute > most { // a heartbeat that other traffic postpones looks once more
					t.Errorf("%.1f timers in a minute, want %.1f at most", wakesPerMinute, most)
				}
				if most := 2 * c.requests; framesPerMinute > most {
					t.Errorf("%.1f frames in a minute, want %.1f at most", framesPerMinute, most)
				}
				if framesPerMinute < 2 {
					t.Errorf("%.1f frames in a minute: nobody watches over the session", framesPerMinute)
				}
			})
		})
	}
}

// allFrames returns how many frames were delivered in both directions.
func allFrames(n *fitztest.Network) int {
	count := 0
	for typ := range 1 << 16 {
		for _, d := range []fitztest.Direction{fitztest.ToBroker, fitztest.ToClient} {
			count += n.Passed(d, wire.MessageType(typ))
		}
	}
	return count
}
