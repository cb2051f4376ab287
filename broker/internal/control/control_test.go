package control_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/internal/control"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a broker whose time a control port moves.
type world struct {
	t      *testing.T
	broker *broker.Broker
	port   *control.Server
	nc     net.Conn
	in     *bufio.Scanner
}

func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	c, _, err := config.Load(append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "off"}, args...),
		func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	manual := clock.NewManual(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	port, err := control.Listen("127.0.0.1:0", manual, 7)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(t.Context(), c, broker.WithClock(manual))
	if err != nil {
		t.Fatal(err)
	}
	port.Serve(b)
	t.Cleanup(func() {
		b.Close()
		port.Close()
		port.Close() // once more does no harm
	})
	w := &world{t: t, broker: b, port: port}
	w.nc, w.in = w.open()
	return w
}

func (w *world) open() (net.Conn, *bufio.Scanner) {
	w.t.Helper()
	nc, err := net.Dial("tcp", w.port.Address())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = nc.Close() })
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	in := bufio.NewScanner(nc)
	in.Buffer(nil, 1<<20)
	return nc, in
}

type said struct {
	ID    uint64
	OK    json.RawMessage
	Error string
}

// say sends a line and returns the answer.
func (w *world) say(line string) said {
	w.t.Helper()
	if _, err := fmt.Fprintln(w.nc, line); err != nil {
		w.t.Fatal(err)
	}
	if !w.in.Scan() {
		w.t.Fatalf("%s: no answer: %v", line, w.in.Err())
	}
	var s said
	if err := json.Unmarshal(w.in.Bytes(), &s); err != nil {
		w.t.Fatalf("%s: %v", w.in.Bytes(), err)
	}
	return s
}

// get sends a command that must succeed.
func (w *world) get(result any, line string, args ...any) {
	w.t.Helper()
	s := w.say(fmt.Sprintf(line, args...))
	if s.Error != "" {
		w.t.Fatalf("%s: %s", line, s.Error)
	}
	if err := json.Unmarshal(s.OK, result); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) advance(d time.Duration) control.Now {
	w.t.Helper()
	var now control.Now
	w.get(&now, `{"do":"advance","ms":%d}`, d.Milliseconds())
	return now
}

func (w *world) stats() control.Stats {
	w.t.Helper()
	var stats control.Stats
	w.get(&stats, `{"do":"stats"}`)
	return stats
}

// dial opens a connection and makes sure that the broker has accepted it.
func (w *world) dial(transport string) *rawclient.Client {
	w.t.Helper()
	name := "tcp"
	if transport == rawclient.WebSocket {
		name = "http"
	}
	return rawclient.Dial(w.t, transport, w.broker.Addresses()[name])
}

// until waits for a state of the broker that a peer has brought about.
func (w *world) until(what string, reached func(control.Stats) bool) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !reached(w.stats()); {
		if time.Now().After(deadline) {
			w.t.Fatalf("never %s: %+v", what, w.stats())
		}
	}
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// Every deadline of a session runs by the clock that is moved, on both transports: one millisecond before it nothing happens, and when
// the answer to the last millisecond is here, the close was sent.
// Clauses: W-30, W-66, W-33.
func TestEveryDeadlineOfASessionFollowsTheClock(t *testing.T) {
	limits := bounds.Default()
	for _, transport := range rawclient.Transports {
		for _, c := range []struct {
			name   string
			after  int64
			reason wire.CloseReason
			begin  func(c *rawclient.Client)
		}{
			{"first record", limits.ConnectWaitMs, wire.CloseConnectTimeout, func(*rawclient.Client) {}},
			{"half a message", limits.SessionReadTimeoutMs, wire.CloseIdle, func(c *rawclient.Client) {
				c.Connect()
				c.Negotiate()
				frame := c.Framed(rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: 1}))
				c.Raw(append(frame, frame[:len(frame)-1]...)) // one read takes both
				c.Expect(0, wire.TypePong)
			}},
			{"silence", limits.SessionIdleMs, wire.CloseIdle, func(c *rawclient.Client) {
				c.Connect()
				c.Negotiate()
				c.Sync(1)
			}},
		} {
			t.Run(transport+" "+c.name, func(t *testing.T) {
				w := newWorld(t)
				client := w.dial(transport)
				c.begin(client)
				w.until("there", func(s control.Stats) bool { return s.Sessions == 1 })
				w.get(new(control.Now), `{"do":"settle"}`)
				w.advance(ms(c.after - 1))
				if s := w.stats(); s.Sessions != 1 {
					t.Fatalf("too early: %+v", s)
				}
				w.advance(time.Millisecond)
				if s := w.stats(); s.Sessions != 0 {
					t.Fatalf("not closed: %+v", s)
				}
				client.ExpectClose(c.reason)
			})
		}
	}
}

func (w *world) nextIn() time.Duration {
	w.t.Helper()
	var next control.Next
	w.get(&next, `{"do":"next"}`)
	if next.NextNs == nil {
		return 1 << 62
	}
	return time.Duration(*next.NextNs)
}

// W-30: a WebSocket that never asks for its upgrade is closed by the same clock.
func TestAnUpgradeThatNeverComesFollowsTheClock(t *testing.T) {
	w := newWorld(t)
	nc, err := net.Dial("tcp", w.broker.Addresses()["http"])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	w.until("accepted", func(s control.Stats) bool { return s.Preauth == 1 && s.Timers == 1 })
	limits := bounds.Default()
	w.advance(ms(limits.ConnectWaitMs - 1))
	if s := w.stats(); s.Preauth != 1 {
		t.Fatalf("too early: %+v", s)
	}
	w.advance(time.Millisecond)
	if s := w.stats(); s.Preauth != 0 {
		t.Fatalf("not closed: %+v", s)
	}
	_ = nc.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := nc.Read(make([]byte, 1)); err == nil {
		t.Error("still open")
	}
}

// A delayed hello comes with its instant, not before.
func TestADelayedHelloFollowsTheClock(t *testing.T) {
	w := newWorld(t, "--hello", "delayed(150)")
	client := w.dial(rawclient.TCP)
	client.Send(rawclient.Encode(t, wire.TypeConnect, &wire.Connect{}))
	w.until("armed", func(control.Stats) bool { return w.nextIn() == ms(150) })
	w.advance(ms(149))
	if s := w.nextIn(); s != ms(1) {
		t.Errorf("the hello is due in %v", s)
	}
	w.advance(ms(1))
	client.Expect(0, wire.TypeServerHello)
}

// W-82: a peer that takes nothing stalls its session, which counts as settled, and is closed when the time to write is over.
func TestTheTimeToWriteFollowsTheClock(t *testing.T) {
	limits := bounds.Default()
	for _, transport := range rawclient.Transports {
		t.Run(transport, func(t *testing.T) {
			w := newWorld(t)
			client := w.dial(transport)
			client.Connect()
			for i := range 100 {
				client.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{
					Route: fmt.Sprintf("lease://r/a/k%d", i), OwnerID: strings.Repeat("o", bounds.LeaseOwnerBytesMax), TTL: 3600})
				client.Expect(1, wire.TypeLeaseAcquire)
			}
			request := client.Framed(rawclient.Encode(t, wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://r/a/*", Limit: 100}))
			_ = client.Conn.SetDeadline(time.Time{})
			sent := make(chan struct{})
			go func() { // until the broker reads no more because its answers are not taken
				defer close(sent)
				for many := []byte(strings.Repeat(string(request), 500)); ; {
					if _, err := client.Conn.Write(many); err != nil {
						return
					}
				}
			}()
			defer func() {
				_ = client.Conn.Close()
				<-sent
			}()
			w.until("stalled", func(s control.Stats) bool { return s.Stalled == 1 })
			w.get(new(control.Now), `{"do":"settle"}`)
			w.advance(ms(limits.SessionWriteTimeoutMs - 1))
			if s := w.stats(); s.Sessions != 1 {
				t.Fatalf("too early: %+v", s)
			}
			w.advance(time.Millisecond)
			for range 5 { // the system may have taken some more in between, which gives the peer more time
				if w.stats().Sessions > 0 {
					w.advance(ms(limits.SessionWriteTimeoutMs))
				}
			}
			if s := w.stats(); s.Sessions != 0 || s.OutboundBytes != 0 {
				t.Fatalf("not closed: %+v", s)
			}
		})
	}
}

// Everything that an instant brings about is complete when the next one begins, and was sent when advance answers: a lease passes
// through a line of waiters, one instant each, and a watcher is told of each.
// Clauses: L-17, L-31, L-32, L-36.
func TestAdvanceExecutesInstantByInstant(t *testing.T) {
	const waiters = 20
	w := newWorld(t)
	watcher := w.dial(rawclient.TCP)
	watcher.Connect()
	watcher.Request(1, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://r/a/*"})
	watcher.Expect(1, wire.TypeLeaseSubscribe)
	var line []*rawclient.Client
	for i := range waiters {
		c := w.dial(rawclient.TCP)
		c.Connect()
		c.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/k", OwnerID: fmt.Sprint(i), TTL: 1, Wait: bounds.LeaseWaitSecsMax})
		c.Expect(1, wire.TypeLeaseAcquire)
		line = append(line, c)
	}
	watcher.Expect(0, wire.TypeLeaseNotify)
	now := w.advance(waiters * time.Second)
	if now.Fired < waiters || now.NowNs != int64(waiters*time.Second) {
		t.Errorf("%+v", now)
	}
	if s := w.stats(); s.Leases != 0 || s.Waiters != 0 || s.OutboundBytes != 0 || s.Registrations != 1 {
		t.Errorf("%+v", s)
	}
	for _, c := range line[1:] {
		c.Expect(1, wire.TypeLeaseAcquire)
	}
	for range 2*waiters - 1 { // the first grant was read above; each of the others is two changes, and the last end is one
		watcher.Expect(0, wire.TypeLeaseNotify)
	}
}

// L-65: a snapshot that nobody uses ends by the clock.
func TestSnapshotsFollowTheClock(t *testing.T) {
	limits := bounds.Default()
	w := newWorld(t)
	client := w.dial(rawclient.TCP)
	client.Connect()
	for i := range 3 {
		client.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://r/a/k%d", i), OwnerID: "o", TTL: 3600})
		client.Expect(1, wire.TypeLeaseAcquire)
	}
	client.Request(1, wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://r/a/*", Limit: 1})
	client.Expect(1, wire.TypeLeaseList)
	w.advance(ms(limits.LeaseSnapshotIdleMs))
	if s := w.stats(); s.Snapshots != 1 {
		t.Fatalf("too early: %+v", s)
	}
	w.advance(time.Millisecond)
	if s := w.stats(); s.Snapshots != 0 {
		t.Fatalf("kept: %+v", s)
	}
}

// W-37: the grace of a drain is one of the clock.
func TestTheGraceFollowsTheClock(t *testing.T) {
	limits := bounds.Default()
	w := newWorld(t)
	client := w.dial(rawclient.TCP)
	client.Connect()
	client.Negotiate()
	client.Sync(1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.broker.Shutdown(t.Context())
	}()
	client.Expect(0, wire.TypeGoaway)
	w.until("draining", func(s control.Stats) bool { return s.Timers >= 2 })
	grace := ms(limits.DrainGraceMs)
	for step := ms(limits.SessionIdleMs) / 2; grace > step; grace -= step { // the session must not end by its silence
		w.advance(step)
		client.Sync(2)
	}
	w.advance(grace - time.Millisecond)
	select {
	case <-ended:
		t.Fatal("too early")
	default:
	}
	w.advance(time.Millisecond)
	client.ExpectClose(wire.CloseGoingAway)
	_ = client.Conn.Close()
	<-ended
}

// L-14: the time of day is for people.
func TestTheTimeOfDayChangesNothing(t *testing.T) {
	w := newWorld(t)
	client := w.dial(rawclient.TCP)
	client.Connect()
	client.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/k", OwnerID: "o", TTL: 30})
	client.Expect(1, wire.TypeLeaseAcquire)
	before := w.nextIn()
	for _, line := range []string{`{"do":"wall","shift_ms":86400000}`, `{"do":"wall","set":"1999-01-01T00:00:00Z"}`} {
		var now control.Now
		w.get(&now, "%s", line)
		if now.NowNs != 0 || w.nextIn() != before || w.stats().Leases != 1 {
			t.Errorf("%s: %+v", line, now)
		}
	}
	var held control.Held
	w.get(&held, `{"do":"held","selector":"lease://r/*/k","family":1}`)
	if len(held.Leases) != 1 || held.More || held.Leases[0].Route != "lease://r/a/k" || held.Leases[0].OwnerID != "o" ||
		held.Leases[0].ExpiresIn != 30 || !strings.HasPrefix(held.Leases[0].AcquiredAt, "2030-01-01") {
		t.Errorf("%+v", held)
	}
	w.get(&held, `{"do":"held","family":9}`)
	if len(held.Leases) != 0 {
		t.Errorf("another family: %+v", held)
	}
}

func TestCommandsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	for line, says := range map[string]string{
		`{"id":4,"do":"turn"}`:                         `unknown command "turn"`,
		`{"id":4}`:                                     `unknown command ""`,
		`{"id":4,"do":"advance"}`:                      "advance needs ms",
		`{"id":4,"do":"advance","ms":-1}`:              "advance needs ms",
		`{"id":4,"do":"advance","ms":999999999999999}`: "advance needs ms",
		`{"id":4,"do":"wall"}`:                         "either set or shift_ms",
		`{"id":4,"do":"wall","set":"x","shift_ms":1}`:  "either set or shift_ms",
		`{"id":4,"do":"wall","set":"yesterday"}`:       "cannot parse",
		`{"id":4,"do":"held","selector":"kv://x"}`:     "",
		`nonsense`:   "not a command",
		`{"id":"x"}`: "not a command",
		`[]`:         "not a command",
	} {
		s := w.say(line)
		if s.Error == "" || !strings.Contains(s.Error, says) || s.OK != nil {
			t.Errorf("%s: %+v", line, s)
		}
		if strings.HasPrefix(line, `{"id":4`) && s.ID != 4 {
			t.Errorf("%s: answer %d", line, s.ID)
		}
	}
	var seed struct{ Seed string }
	if w.get(&seed, `{"do":"seed"}`); seed.Seed != "7" {
		t.Errorf("seed %q", seed.Seed)
	}
}

// A line without an end is not read for ever, and ends only its own connection.
func TestALineThatIsTooLong(t *testing.T) {
	w := newWorld(t)
	nc, in := w.open()
	if _, err := nc.Write([]byte(strings.Repeat("x", 65<<10))); err != nil {
		t.Fatal(err)
	}
	if !in.Scan() || !strings.Contains(in.Text(), "at most 65536 bytes") {
		t.Errorf("answer %q %v", in.Text(), in.Err())
	}
	if in.Scan() {
		t.Errorf("another answer %q", in.Text())
	}
	w.get(new(control.Now), `{"do":"now"}`)
}

func TestTheControlPortIsForThisMachineOnly(t *testing.T) {
	for _, address := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.com:0", "nothing"} {
		if s, err := control.Listen(address, nil, 0); err == nil {
			s.Close()
			t.Errorf("%s was opened", address)
		}
	}
	for _, address := range []string{"localhost:0", "127.0.0.1:0"} {
		s, err := control.Listen(address, clock.NewManual(time.Unix(0, 0)), 0)
		if err != nil {
			t.Error(err)
			continue
		}
		s.Close()
	}
}
