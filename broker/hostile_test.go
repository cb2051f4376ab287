package broker_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// childEnv makes the test binary a hostile client: it holds the address, and childEnv_WHAT what to do.
const childEnv = "FITZ_TEST_HOSTILE"

// Number of hostile connections. Their announced messages are 10 GiB.
const hostilePeers = 10_000

// What each of them may cost in bytes: as much as an idle session is meant to.
var hostileBudget = map[string]int64{rawclient.TCP: 6 << 10, rawclient.WebSocket: 8 << 10}

// What all of them may cost together, over either transport. Under the race detector, which makes everything larger, only the
// budget of each counts.
const hostileCeiling = 64 << 20

// What a hostile client does on each of its connections before it falls silent.
var attacks = map[string]func(nc net.Conn) error{
	"announce": func(nc net.Conn) error { // the largest message, and nothing of it
		_, err := nc.Write([]byte{0, 0x10, 0, 0})
		return err
	},
	"websocket-announce": func(nc net.Conn) error {
		return afterUpgrade(nc, []byte{0x82, 0x80 | 127, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 2, 3, 4})
	},
	"idle": func(nc net.Conn) error { // a session that said hello
		_, err := nc.Write([]byte{0, 0, 0, 3, 1, 0, 0})
		return err
	},
	"websocket-idle": func(nc net.Conn) error {
		return afterUpgrade(nc, rawclient.Frame(rawclient.OpBinary, true, []byte{1, 0, 0}))
	},
}

// afterUpgrade makes a WebSocket and sends bytes through it.
func afterUpgrade(nc net.Conn, raw []byte) error {
	_, err := io.WriteString(nc, "GET /ws HTTP/1.1\r\nHost: b\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(nc, 512)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if line == "\r\n" {
			break
		}
	}
	_, err = nc.Write(raw)
	return err
}

// child opens the connections of an attack, says so, and holds them until its input ends. It returns the exit code.
func child(address, what string) int {
	conns := make([]net.Conn, 0, hostilePeers)
	for range hostilePeers {
		nc, err := net.Dial("tcp", address)
		if err == nil {
			err = attacks[what](nc)
		}
		if err != nil {
			fmt.Println("failed:", err)
			return 1
		}
		conns = append(conns, nc)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, nc := range conns {
		_ = nc.Close()
	}
	return 0
}

// used returns the memory that the process uses for heap and stacks, after garbage is gone.
func used() int64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// attack runs a hostile client in its own process, whose descriptors do not count for this one, and returns what its connections
// cost.
func attack(tb testing.TB, b *broker.Broker, transport, what string, sessions func() int) (cost int64) {
	tb.Helper()
	return attackDuring(tb, b, transport, what, sessions, func() {})
}

// attackDuring is attack that calls during while the connections are there.
func attackDuring(tb testing.TB, b *broker.Broker, transport, what string, sessions func() int, during func()) (cost int64) {
	tb.Helper()
	before := used()
	defer hold(tb, address(b, transport), what)()
	for sessions() < hostilePeers {
		time.Sleep(10 * time.Millisecond)
	}
	cost = used() - before
	during()
	return cost
}

// hold runs a hostile client in its own process and returns when its connections are there. What it returns ends them.
func hold(tb testing.TB, address, what string) (leave func()) {
	tb.Helper()
	command := exec.Command(os.Args[0], "-test.run=^$")
	command.Env = append(os.Environ(), childEnv+"="+address, childEnv+"_WHAT="+what)
	input, err := command.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := command.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = command.Process.Kill() }) // when the test ends early
	leave = func() {
		_ = input.Close()
		if err := command.Wait(); err != nil {
			tb.Error(err)
		}
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "ready" {
		leave()
		tb.Fatalf("hostile client: %q, %v", line, err)
	}
	return leave
}

// enough lets that many connections in.
var enough = []string{"--limit", "connections_max=10100", "--limit", "preauth_sessions_max=10100", "--limit", "preauth_per_address_max=10100",
	"--limit", "connect_wait_ms=600000", "--limit", "session_read_timeout_ms=600000"}

// D-1, invariant 13: ten thousand peers that announce the largest message and send nothing more cost no more than as
// many idle sessions.
func TestAnnouncedMessagesCostNothing(t *testing.T) {
	for _, c := range []struct{ transport, what string }{
		{rawclient.TCP, "announce"},
		{rawclient.WebSocket, "websocket-announce"},
	} {
		t.Run(c.transport, func(t *testing.T) {
			b := start(t, enough...)
			cost := attack(t, b, c.transport, c.what, func() int { return sessions(t, b) })
			t.Logf("%d bytes for each of %d peers", cost/hostilePeers, hostilePeers)
			if cost > memoryFactor*hostilePeers*hostileBudget[c.transport] {
				t.Errorf("%d peers cost %d bytes", hostilePeers, cost)
			}
			if memoryFactor == 1 && cost >= hostileCeiling {
				t.Errorf("%d peers cost %d bytes, which is not below %d", hostilePeers, cost, hostileCeiling)
			}
			// Everybody else is still served.
			client := rawclient.Dial(t, c.transport, address(b, c.transport))
			client.Connect()
		})
	}
}

// sessions reads the number of open sessions from the metrics.
func sessions(tb testing.TB, b *broker.Broker) int {
	tb.Helper()
	return int(metric(tb, b, "fitz_sessions"))
}

// W-10: a length above the bound closes before the payload is read, zero closes, and the bound itself is read.
func TestTCPLengths(t *testing.T) {
	b := start(t)
	dial := func() *rawclient.Client { return rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP)) }
	for _, c := range []struct {
		prefix string
		want   wire.CloseReason
	}{
		{"00000000", wire.CloseBadFrame},
		{"00100001", wire.CloseFrameTooLarge},
		{"ffffffff", wire.CloseFrameTooLarge},
		{"80000000", wire.CloseFrameTooLarge},
	} {
		client := dial()
		client.Hex(c.prefix)
		client.ExpectClose(c.want)
		awaitCloses(t, b, c.want, 1)
	}
}

// awaitCloses waits until at least so many sessions were closed for a reason, which is counted after their connections have ended, and returns
// how many were.
func awaitCloses(tb testing.TB, b *broker.Broker, reason wire.CloseReason, n int) (counted int) {
	tb.Helper()
	eventually(tb, fmt.Sprintf("not %d closes with %s were counted", n, reason.Name), func() bool {
		counted = int(metric(tb, b, "fitz_session_closes_total", reason.Name))
		return counted >= n
	})
	return counted
}

// A message of exactly frame_recv_max bytes with as many records as fit is executed, over both transports.
// Clauses: W-02, W-10.
func TestLargestMessage(t *testing.T) {
	each(t, func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client) {
		c := dial()
		var payload []byte
		// Malformed queries of the largest size, and one that fills the rest.
		for len(payload)+5+bounds.RecordValueMax <= bounds.FrameRecvMax {
			payload = append(payload, rawclient.Record(wire.TypeLeaseQuery, make([]byte, bounds.RecordValueMax))...)
		}
		payload = append(payload, rawclient.Record(wire.TypeLeaseQuery, make([]byte, bounds.FrameRecvMax-len(payload)-5))...)
		if len(payload) != bounds.FrameRecvMax {
			t.Fatalf("payload of %d bytes", len(payload))
		}
		go c.Raw(c.Framed(payload))
		for range bounds.FrameRecvMax/(5+bounds.RecordValueMax) + 1 {
			c.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest)
		}
		go func() { _ = c.TryRaw(c.Framed(append(payload, 0))) }()
		c.ExpectClose(wire.CloseFrameTooLarge)
	})
}

// A flood of CONNECT on new connections, half frames and slow bytes leaves nothing behind.
func TestFloods(t *testing.T) {
	each(t, func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client) {
		before := used()
		for range 300 {
			c := dial()
			c.Send(rawclient.Record(wire.TypeConnect, nil), rawclient.Record(wire.TypeConnect, nil))
			c.Next()
			c.ExpectClose(wire.CloseUnexpectedConnect)
			half := dial()
			half.Raw(half.Framed(rawclient.Record(wire.TypeConnect, make([]byte, 3000)))[:2000])
			_ = half.Conn.Close()
		}
		eventually(t, "sessions are left", func() bool { return sessions(t, b) == 0 })
		if cost := used() - before; cost > memoryFactor*8<<20 {
			t.Errorf("%d bytes are left", cost)
		}
	})
}
