package session_test

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// only returns the only session of the hub.
func only(t *testing.T, w *world) *session.Session {
	t.Helper()
	var found *session.Session
	w.hub.Each(func(s *session.Session) { found = s })
	if found == nil || w.hub.Len() != 1 {
		t.Fatalf("%d sessions", w.hub.Len())
	}
	return found
}

func seconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

// notification is a push of exactly n value bytes.
func notification(n int) []byte { return make([]byte, n) }

// W-81: a client that sends and does not read is not read from any more, is not cut, and gets every reply once it reads.
func TestReadPause(t *testing.T) {
	const pause, sent = 10, 200
	run(t, func(l *bounds.Limits) { l.SessionReadPauseFrames = pause }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		go func() {
			client.Send(repeat(query(t), sent/2)...) // inside one message
			for range sent / 2 {
				client.Send(query(t)) // and in many
			}
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		w.domain.mu.Lock()
		calls := w.domain.calls
		w.domain.mu.Unlock()
		if calls < pause || calls > pause+2 {
			t.Errorf("%d requests were executed for a client that does not read", calls)
		}
		for range sent {
			client.Expect(0, wire.TypeLeaseQuery)
		}
		if n := testutil.ToFloat64(w.metrics.ReadPausesTotal); n == 0 {
			t.Error("no pause was counted")
		}
	})
}

// W-81 counts bytes too.
func TestReadPauseBytes(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.SessionReadPauseBytes = 2000 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		w.domain.reply = make([]byte, 1000)
		client := dial()
		go client.Send(repeat(query(t), 50)...)
		time.Sleep(time.Second)
		synctest.Wait()
		w.domain.mu.Lock()
		calls := w.domain.calls
		w.domain.mu.Unlock()
		if calls < 2 || calls > 4 {
			t.Errorf("%d requests were executed", calls)
		}
		for range 50 {
			client.Expect(0, wire.TypeLeaseQuery)
		}
	})
}

// W-23: pongs count as answers, and while they pause reading, further pings are not read.
func TestPongsPauseReading(t *testing.T) {
	const pause = 5
	limits := func(l *bounds.Limits) { l.SessionReadPauseFrames = pause }
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, limits)
		defer w.close()
		client := w.dial(rawclient.WebSocket)
		var written atomic.Int64
		go func() {
			for range 100 {
				if client.TryRaw(rawclient.Frame(rawclient.OpPing, true, []byte("abc"))) != nil {
					return
				}
				written.Add(1)
			}
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := written.Load(); n > 60 { // what the parser reads ahead included
			t.Errorf("%d pings were read from a client that does not read", n)
		}
		for range 100 {
			if opcode, payload, err := client.ReadFrame(); err != nil || opcode != rawclient.OpPong || string(payload) != "abc" {
				t.Fatalf("frame %#x %q, %v", opcode, payload, err)
			}
		}
	})
}

// W-80, W-82: answers beyond their budget close with `slow consumer`.
func TestAnswersBudget(t *testing.T) {
	for _, by := range []struct {
		name  string
		limit func(*bounds.Limits)
	}{
		{"frames", func(l *bounds.Limits) { l.SessionAnswerFramesMax = 20 }},
		{"bytes", func(l *bounds.Limits) { l.SessionAnswerBytesMax = 21 * 14 }},
	} {
		t.Run(by.name, func(t *testing.T) {
			run(t, by.limit, func(t *testing.T, w *world, dial func() *rawclient.Client) {
				enqueued := 0
				w.domain.onQuery = func(s peer.Session, call peer.Call) {
					for s.Reply(call, []byte{0, 0, 0, 0, 0, 0}) {
						enqueued++
					}
				}
				client := dial()
				client.Send(query(t))
				expectCloseAfterReplies(t, client, wire.CloseSlowConsumer)
				if enqueued < 19 || enqueued > 24 {
					t.Errorf("%d answers were enqueued", enqueued)
				}
			})
		})
	}
}

// W-83: a push beyond the budget is not enqueued, what is queued stays, and SUB_ENDED comes behind it in a negotiated session.
// Clauses: W-68.
func TestNotifyBudget(t *testing.T) {
	for _, by := range []struct {
		name  string
		limit func(*bounds.Limits)
	}{
		{"frames", func(l *bounds.Limits) { l.SessionNotifyFramesMax = 8 }},
		{"bytes", func(l *bounds.Limits) { l.SessionNotifyBytesMax = 8 * 110 }},
	} {
		t.Run(by.name, func(t *testing.T) {
			run(t, by.limit, func(t *testing.T, w *world, dial func() *rawclient.Client) {
				client := dial()
				client.Connect()
				client.Negotiate()
				client.Sync(1)
				s := only(t, w)
				enqueued := 0
				for s.Notify(wire.TypeLeaseNotify, notification(100)) == peer.Enqueued {
					enqueued++
				}
				if enqueued != 8 {
					t.Errorf("%d notifications were enqueued, want 8", enqueued)
				}
				s.EndRegistration(4, 5, wire.CodeSubSlowConsumer, 3, "slow")
				for range enqueued {
					client.Expect(0, wire.TypeLeaseNotify)
				}
				client.ExpectHex("f4 001d 04 0000000000000005 0000238d 0000000000000003 00000004 736c6f77") // V-07
				if got := s.Notify(wire.TypeLeaseNotify, notification(100)); got != peer.Enqueued {
					t.Errorf("notification after the queue was read: %v", got)
				}
				client.Expect(0, wire.TypeLeaseNotify)
			})
		})
	}
}

// W-80: deferred replies and SUB_ENDED are outside every budget.
func TestDeferredRepliesHaveNoBudget(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.SessionAnswerFramesMax, l.SessionNotifyFramesMax = 4, 1 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Negotiate()
		client.Sync(1)
		s := only(t, w)
		call := peer.Call{Type: wire.TypeLeaseAcquire}
		for n := range 100 {
			if !s.Settle(call, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, byte(n)}) {
				t.Fatal("a deferred reply was not enqueued")
			}
			s.EndRegistration(4, uint64(n), wire.CodeSubSlowConsumer, 0, "")
		}
		for range 100 {
			client.Expect(0, wire.TypeLeaseAcquire)
			client.Expect(0, wire.TypeSubEnded)
		}
	})
}

// W-68: a session that is not negotiated gets no SUB_ENDED.
// Clauses: W-62.
func TestNoSubEndedWithoutNegotiation(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		only(t, w).EndRegistration(4, 1, wire.CodeSubSlowConsumer, 0, "")
		client.Send(query(t))
		client.Expect(0, wire.TypeLeaseQuery)
	})
}

// W-82: a frame that cannot be written closes with `write timeout`.
func TestWriteTimeout(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Send(query(t))
		start := time.Now()
		w.group.Wait()
		if d, want := time.Since(start), seconds(w.limits.SessionWriteTimeoutMs); d < want || d > want+2*time.Second {
			t.Errorf("closed after %v, want %v", d, want)
		}
		if n := testutil.ToFloat64(w.metrics.ClosesTotal.WithLabelValues(wire.CloseWriteTimeout.Name)); n != 1 {
			t.Errorf("%v sessions closed by the write timeout", n)
		}
		client.ExpectGone()
	})
}

// W-82: a client that takes every frame late, but in time, is not closed although a whole queue takes much longer.
func TestSlowReaderIsNotCut(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		s := only(t, w)
		for range 20 {
			s.Notify(wire.TypeLeaseNotify, notification(60))
		}
		buf := make([]byte, 64)
		for range 20 {
			time.Sleep(seconds(w.limits.SessionWriteTimeoutMs) / 4)
			_ = client.Conn.SetDeadline(time.Now().Add(time.Hour))
			if _, err := client.Conn.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
		if w.hub.Len() != 1 {
			t.Error("a client that reads was closed")
		}
	})
}

// W-82: that also holds for what is written at the end of a session, within the time that is granted then; and nothing of it is counted
// in the queues afterwards, however it ended.
func TestSlowReaderAtTheEnd(t *testing.T) {
	const replies, size, chunk = 4, 100, 150 // a chunk is more than a frame
	for _, chunks := range []int{replies, 1} {
		run(t, func(l *bounds.Limits) { l.SessionWriteTimeoutMs = 300 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
			w.domain.reply = make([]byte, size)
			client := dial()
			client.Send(append(repeat(query(t), replies), rawclient.Record(99, nil))...)
			taken, buf := 0, make([]byte, chunk)
			for range chunks {
				time.Sleep(200 * time.Millisecond)
				_ = client.Conn.SetDeadline(time.Now().Add(time.Hour))
				n, err := client.Conn.Read(buf)
				if taken += n; err != nil {
					break
				}
			}
			if chunks == replies && taken < replies*size {
				t.Errorf("%d bytes came", taken)
			}
			w.group.Wait()
			if n := testutil.ToFloat64(w.metrics.OutboundQueueBytes); n != 0 {
				t.Errorf("%v bytes are counted in the queues of sessions that ended", n)
			}
		})
	}
}

// W-84: a session whose socket takes nothing holds up neither those who enqueue nor its own reading, so that it can renew.
func TestSlowSessionStillReads(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		s := only(t, w)
		start := time.Now()
		for range 1000 {
			s.Notify(wire.TypeLeaseNotify, notification(100))
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("enqueueing took %v", d)
		}
		for range 10 {
			client.Send(query(t)) // returns when the broker has read it
		}
		time.Sleep(time.Second)
		w.domain.mu.Lock()
		defer w.domain.mu.Unlock()
		if w.domain.calls != 10 {
			t.Errorf("%d of 10 requests were executed while the socket was full", w.domain.calls)
		}
	})
}

// W-82: above the total, the session with the largest backlog is closed and the others stay.
func TestOutboundTotal(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.OutboundTotalBytesMax = 300_000 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		large := dial()
		large.Connect()
		s := only(t, w)
		small := dial()
		small.Connect()
		var other *session.Session
		w.hub.Each(func(o *session.Session) {
			if o != s {
				other = o
			}
		})
		for range 10 {
			other.Notify(wire.TypeLeaseNotify, notification(1000))
		}
		for s.Notify(wire.TypeLeaseNotify, notification(1000)) == peer.Enqueued {
		}
		expectCloseAfterReplies(t, large, wire.CloseSlowConsumer)
		for range 10 {
			small.Expect(0, wire.TypeLeaseNotify)
		}
		small.Send(query(t))
		small.Expect(0, wire.TypeLeaseQuery)
		synctest.Wait()
		if n := testutil.ToFloat64(w.metrics.OutboundQueueBytes); n != 0 {
			t.Errorf("%v bytes are counted in empty queues", n)
		}
	})
}

// W-82: a session that is closing already is not chosen again, although its last frame still counts.
func TestOutboundTotalSkipsClosing(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.OutboundTotalBytesMax = 3000 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		first, second := dial(), dial()
		first.Connect()
		second.Connect()
		synctest.Wait()
		var both []*session.Session
		w.hub.Each(func(s *session.Session) { both = append(both, s) })
		for _, s := range both {
			s.Notify(wire.TypeLeaseNotify, notification(2000)) // fits, and stays in the socket
		}
		synctest.Wait()
		for _, s := range both {
			s.Notify(wire.TypeLeaseNotify, notification(2000))
		}
		w.group.Wait()
		if n := testutil.ToFloat64(w.metrics.ClosesTotal.WithLabelValues(wire.CloseSlowConsumer.Name)); n != 2 {
			t.Errorf("%v sessions were closed", n)
		}
		_, _ = first.Conn.Close(), second.Conn.Close()
	})
}

// W-66, W-30: time in which the broker itself paused reading does not count for the peer.
func TestPausedTimeDoesNotCount(t *testing.T) {
	run(t, func(l *bounds.Limits) {
		l.SessionReadPauseFrames, l.SessionIdleMs, l.HeartbeatMs = 10, 5000, 1000
		l.SessionWriteTimeoutMs = 1_000_000
	}, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		client.Negotiate()
		client.Sync(1)
		const pings = 60
		go client.Send(repeat(rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: 2}), pings)...)
		time.Sleep(100 * time.Second)
		if w.hub.Len() != 1 {
			t.Fatal("closed while the broker did not read")
		}
		start := time.Now()
		for range pings {
			client.Expect(0, wire.TypePong)
		}
		client.ExpectClose(wire.CloseIdle)
		if d := time.Since(start); d < 4*time.Second || d > 6*time.Second {
			t.Errorf("closed %v after the pause", d)
		}
	})
}

// inbound_total_bytes_max: the largest partial messages are not read on, small messages are, and nobody is cut.
// Clauses: W-81.
func TestInboundTotal(t *testing.T) {
	const frame, total, clients = 64 << 10, 320 << 10, 12
	run(t, func(l *bounds.Limits) { l.FrameRecvMax, l.InboundTotalBytesMax = frame, total }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		malformed := rawclient.Record(wire.TypeLeaseQuery, bytes.Repeat([]byte{0xFF}, 60_000))
		var all []*rawclient.Client
		for range clients {
			client := dial()
			all = append(all, client)
			client.Send(query(t))
			client.Expect(0, wire.TypeLeaseQuery)
		}
		for _, client := range all {
			go client.Raw(client.Framed(malformed)[:50_000])
		}
		time.Sleep(time.Second)
		if used := w.inbound.Used(); used > total || used < total/2 {
			t.Errorf("%d bytes in receive buffers, at most %d", used, total)
		}
		if n := testutil.ToFloat64(w.metrics.ReadPausesTotal); n == 0 {
			t.Error("no pause was counted")
		}
		other := dial()
		other.Send(query(t))
		other.Expect(0, wire.TypeLeaseQuery)

		// All of them end when they go on, although not all fit at a time.
		done := make(chan struct{})
		for _, client := range all {
			go func() {
				rest := client.Framed(malformed)[50_000:]
				client.Raw(rest)
				client.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest)
				done <- struct{}{}
			}()
		}
		for range all {
			<-done
		}
		synctest.Wait()
		if used := w.inbound.Used(); used != 0 {
			t.Errorf("%d bytes are counted in idle sessions", used)
		}
	})
}

// W-13: the largest reply fits one transport message, labelled too.
func TestLargestReply(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		w.domain.reply = make([]byte, bounds.ReplyValueMax)
		client := dial()
		client.Connect()
		client.Send(rawclient.Labelled(1, query(t)))
		if payload := client.Next(); len(payload) > bounds.FrameSendMax {
			t.Errorf("transport message of %d bytes", len(payload))
		}
	})
}

// Invariant 12: a session that negotiates nothing keeps no label table, no cancel memory and no buffers, and neither does a
// negotiated one that labels nothing that waits.
func TestNothingIsKeptWithoutNegotiation(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		for n := range 1000 {
			record := query(t)
			switch n % 3 {
			case 1:
				record = rawclient.Labelled(uint64(n), record)
			case 2:
				record = rawclient.Labelled(uint64(n), acquire(t, "now"))
			}
			client.Send(record)
			client.Receive()
		}
		synctest.Wait()
		if got := only(t, w).Capacities(); got != (session.Capacities{}) {
			t.Errorf("capacities %+v, want none", got)
		}
	})
}

// A malicious sequence of transport messages never stops the record loop from ending in order.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{1, 0, 0})
	f.Add(append([]byte{1, 0, 0}, query(f)...))
	f.Add(append(append([]byte{1, 0, 0}, clientHello(uint32(wire.CapLifecycle))(f)...), rawclient.Labelled(7, acquire(f, "wait"))...))
	f.Add(append(append(append([]byte{1, 0, 0}, clientHello(uint32(wire.CapLifecycle))(f)...), rawclient.Labelled(7, acquire(f, "wait"))...), cancel(f, 7)...))
	f.Add([]byte{0xff, 0, 0xfe, 0, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		if len(payload) == 0 || len(payload) > bounds.FrameRecvMax {
			return
		}
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, nil)
			defer w.close()
			client := w.dial(rawclient.TCP)
			go func() { _ = client.TryRaw(client.Framed(payload)) }()
			leave := time.AfterFunc(time.Second, func() { _ = client.Conn.Close() })
			defer leave.Stop()
			replies := 0
			for {
				message, err := client.Read()
				if err != nil {
					break
				}
				if _, err := rawclient.Split(message); err != nil {
					t.Fatal(err) // W-12
				}
				replies++
			}
			// Each record is answered at most twice.
			if records := countRecords(payload); replies > 2*records {
				t.Fatalf("%d frames for %d records", replies, records)
			}
		})
	})
}

func countRecords(payload []byte) int {
	n := 0
	for len(payload) > 0 {
		_, rest, err := codec.NextRecord(payload)
		if err != nil {
			return n
		}
		payload = rest
		n++
	}
	return n
}
