package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// besiegedEnv makes the test binary a broker that runs until its input ends: it holds the path of the addresses file, and
// besiegedEnv_ARGS further arguments with spaces between them.
const besiegedEnv = "FITZ_TEST_BESIEGED"

// What the broker under a memory limit may use, and what attackers want it to use.
const (
	dataLimit    = 256 << 20 // of the system, for everything that the process can write to
	partialPeers = 800
	partialBytes = 700 << 10 // that each of them sends of the largest message
)

// besiegedBroker runs the broker and returns the exit code.
func besiegedBroker(addresses, args string) int {
	c, _, err := config.Load(append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--addresses-file", addresses},
		strings.Fields(args)...), func(string) string { return "" }, io.Discard)
	if err == nil {
		var b *broker.Broker
		if b, err = broker.Start(context.Background(), c); err == nil {
			_, _ = io.Copy(io.Discard, os.Stdin)
			b.Close()
			return 0
		}
	}
	fmt.Println(err)
	return 1
}

// process is a broker in a process of its own.
type process struct {
	*testing.T
	addresses map[string]string
	input     io.Closer
	ended     chan error
	said      bytes.Buffer
}

// inProcess starts a broker in a process of its own: the test binary, which command runs.
func inProcess(t *testing.T, command *exec.Cmd, args ...string) *process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "addresses.json")
	command.Env = append(os.Environ(), besiegedEnv+"="+path, besiegedEnv+"_ARGS="+strings.Join(args, " "))
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{T: t, input: input, ended: make(chan error, 1)}
	command.Stdout, command.Stderr = &p.said, &p.said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- command.Wait() }()
	t.Cleanup(func() { _ = command.Process.Kill() })
	eventually(t, "the broker does not start", func() bool {
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, &p.addresses) == nil
	})
	return p
}

// at is the address for clients of a transport.
func (p *process) at(transport string) string {
	if transport == rawclient.WebSocket {
		return p.addresses[settings.ListenerHTTP.Name]
	}
	return p.addresses[settings.ListenerTCP.Name]
}

// gauge reads a metric, the sum of its lines. -1: there is no such line.
func (p *process) gauge(name string) float64 {
	p.Helper()
	_, page := get(p, p.addresses[settings.ListenerAdmin.Name], settings.AdminPathMetrics, "")
	lines := regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(page, -1)
	if len(lines) == 0 {
		return -1
	}
	sum := 0.0
	for _, line := range lines {
		value, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			p.Fatal(err)
		}
		sum += value
	}
	return sum
}

// end ends the process, which must not have ended by itself.
func (p *process) end() {
	p.Helper()
	_ = p.input.Close()
	if err := <-p.ended; err != nil {
		p.Errorf("the broker ended: %v\n%s", err, p.said.String())
	}
}

// D-1, invariant 13: a broker that the system allows a quarter of a gigabyte survives peers that send more than twice as much in messages
// which never end, and goes on serving others; without its bounds it would end.
func TestSiegeUnderMemoryLimit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the limit on data is one of Linux")
	}
	if memoryFactor > 1 {
		t.Skip("the race detector needs more memory than that")
	}
	b := inProcess(t, exec.Command("/bin/sh", "-c", fmt.Sprintf(`ulimit -d %d && exec "$0" -test.run='^$'`, dataLimit>>10), os.Args[0]),
		"--limit", "inbound_total_bytes_max=33554432", "--limit", "outbound_total_bytes_max=33554432", "--limit", "preauth_per_address_max=2000")
	good := rawclient.Dial(t, rawclient.TCP, b.at(rawclient.TCP))
	good.Connect()
	var group sync.WaitGroup
	var conns []net.Conn
	partial := append([]byte{0, 0, 0, 3, 1, 0, 0, 0, 0x0F, 0xFF, 0xFF}, make([]byte, partialBytes)...)
	for range partialPeers {
		nc, err := net.Dial("tcp", b.at(rawclient.TCP))
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, nc)
		group.Go(func() { _, _ = nc.Write(partial) }) // it ends when the connection is closed: the broker does not read all of it
	}
	defer group.Wait()
	eventually(t, "they do not reach the bound", func() bool {
		return b.gauge("fitz_read_pauses_total") >= partialPeers/2
	})
	if got, most := b.gauge("fitz_receive_buffer_bytes"), b.gauge("fitz_receive_buffer_limit_bytes"); got > most || got < most/4 {
		t.Errorf("%v bytes in receive buffers, at most %v", got, most)
	}
	for range 100 {
		good.Request(1, wire.TypeLeaseAcquire, acquire("w", 0))
		grant := expectGrant(t, good, 1, wire.LeaseGrantKindAcquired)
		good.Request(2, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "w", FencingToken: grant.FencingToken})
		good.Expect(2, wire.TypeLeaseRelease)
	}
	for _, nc := range conns {
		_ = nc.Close()
	}
	eventually(t, "something is left", func() bool {
		return b.gauge("fitz_receive_buffer_bytes") == 0 && b.gauge("fitz_connections") == 1
	})
	b.end()
}
