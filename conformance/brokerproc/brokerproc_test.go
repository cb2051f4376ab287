//go:build unix

package brokerproc_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/brokerproc"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/devtoken"
)

var fitzdTest string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "fitz-brokerproc-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if fitzdTest, err = brokerproc.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// soon bounds everything that a test waits for. It is far more than a busy machine needs.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, args ...string) *brokerproc.Broker {
	t.Helper()
	b, err := brokerproc.Start(soon(t), brokerproc.Options{Command: []string{fitzdTest}, Args: args, Control: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// connect returns a client of b that lives until the test has ended.
func connect(t *testing.T, b *brokerproc.Broker) *fitz.Client {
	t.Helper()
	c, err := fitz.Connect(soon(t), "tcp://"+b.Address(brokerproc.TCP))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The listeners that want a token stand beside the others, at addresses that a restart keeps.
func TestTokenListeners(t *testing.T) {
	ctx := soon(t)
	b, err := brokerproc.Start(ctx, brokerproc.Options{
		Command: []string{fitzdTest}, Control: true, Tokens: "hmac_secret: secret\nfamily_map: {dev: 1}\n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	connect(t, b)
	token, err := devtoken.Mint([]byte("secret"), devtoken.Claims{
		Subject: "w", Audience: []string{"fitz"}, Family: "dev", Expires: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), Permissions: []string{"lease://**"}})
	if err != nil {
		t.Fatal(err)
	}
	before := b.Address(brokerproc.TokenTCP)
	for range 2 {
		for _, url := range []string{"tcp://" + b.Address(brokerproc.TokenTCP), "ws://" + b.Address(brokerproc.TokenHTTP) + "/ws"} {
			if c, err := fitz.Connect(ctx, url); fitz.CodeOf(err) != "auth.rejected" {
				t.Fatalf("%s without a token: %v %v", url, c, err)
			}
			c, err := fitz.Connect(ctx, url, fitz.WithToken(token))
			if err != nil {
				t.Fatalf("%s: %v", url, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := b.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if after := b.Address(brokerproc.TokenTCP); after != before || before == "" || b.Address("listeners[0]") != "" {
		t.Errorf("%q, then %q", before, after)
	}
	if without := start(t); without.Address(brokerproc.TokenTCP) != "" {
		t.Error("a broker without tokens has a listener for them")
	}
}

func TestTimeStandsUntilItIsMoved(t *testing.T) {
	ctx := soon(t)
	b := start(t, "--seed", "7")
	control := b.Control()
	holder := connect(t, b)
	if _, err := holder.Lease().Acquire(ctx, "lease://acme/renderers/a", 30*time.Second, &fitz.AcquireOptions{OwnerID: "w1"}); err != nil {
		t.Fatal(err)
	}
	before, err := control.Held(ctx, "lease://acme/*/*", 0)
	if err != nil || len(before) != 1 || before[0].OwnerID != "w1" || before[0].ExpiresIn != 30 || before[0].AcquiredAt != "2030-01-01T00:00:00.000Z" {
		t.Fatalf("%+v %v", before, err)
	}
	for _, shift := range []time.Duration{24 * time.Hour, -48 * time.Hour} { // L-14
		if err := control.ShiftWall(ctx, shift); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := control.Advance(ctx, 29_999*time.Millisecond); err != nil || now.Elapsed != 29_999*time.Millisecond {
		t.Fatalf("%+v %v", now, err)
	}
	if held, err := control.Held(ctx, "lease://**", 0); err != nil || len(held) != 1 {
		t.Fatalf("one millisecond before the end: %+v %v", held, err)
	}
	now, err := control.Advance(ctx, time.Millisecond)
	if err != nil || now.Fired == 0 || !now.Wall.Equal(time.Date(2029, 12, 31, 0, 0, 30, 0, time.UTC)) {
		t.Fatalf("%+v %v", now, err)
	}
	if held, err := control.Held(ctx, "lease://**", 0); err != nil || len(held) != 0 {
		t.Fatalf("at the end: %+v %v", held, err)
	}
	if seed, err := control.Seed(ctx); err != nil || seed != "7" {
		t.Errorf("seed %q %v", seed, err)
	}
}

// What the control port says of a broker whose clients have gone is that nothing is left.
func TestNothingIsLeft(t *testing.T) {
	ctx := soon(t)
	b := start(t)
	c := connect(t, b)
	if _, err := c.Lease().Acquire(ctx, "lease://acme/renderers/a", 30*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Lease().Subscribe(ctx, "lease://acme/*/*", nil); err != nil {
		t.Fatal(err)
	}
	stats, err := b.Control().Stats(ctx)
	if err != nil || stats.Sessions != 1 || stats.Leases != 1 || stats.Registrations != 1 || stats.Left() == "" {
		t.Fatalf("%+v %v", stats, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for stats.Left() != "" && ctx.Err() == nil && err == nil { // the broker has to see the end of the connection
		if err = b.Control().Settle(ctx); err == nil {
			stats, err = b.Control().Stats(ctx)
		}
	}
	if err != nil || stats.Left() != "" {
		t.Errorf("left: %s %v", stats.Left(), err)
	}
}

func TestRestartIsAnotherLifetimeAtTheSameAddresses(t *testing.T) {
	ctx := soon(t)
	b := start(t)
	for range 3 {
		tcp, http := b.Address(brokerproc.TCP), b.Address(brokerproc.HTTP)
		c := connect(t, b)
		if _, err := c.Lease().Acquire(ctx, "lease://acme/renderers/a", 30*time.Second, nil); err != nil {
			t.Fatal(err)
		}
		lifetime := c.Status().BrokerLifetime
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		exited := b.Exited()
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
		<-exited
		if b.Control() != nil || b.Exited() != nil || b.Kill() != brokerproc.ErrNotRunning {
			t.Error("something of a killed broker is left")
		}
		if err := b.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		if b.Address(brokerproc.TCP) != tcp || b.Address(brokerproc.HTTP) != http {
			t.Error("the addresses changed")
		}
		if after := connect(t, b).Status().BrokerLifetime; after == lifetime {
			t.Error("the lifetime did not change")
		}
	}
	t.Logf("start: %v", b.StartTime())
	if b.Starts() != 4 {
		t.Errorf("%d starts", b.Starts())
	}
}

// Brokers with one seed have one lifetime id, so that a run can be repeated to the byte.
func TestSeedMakesTheLifetime(t *testing.T) {
	var lifetimes []string
	for _, seed := range []string{"1", "1", "2"} {
		b := start(t, "--seed", seed, "--wall", "2031-02-03T04:05:06Z")
		now, err := b.Control().Now(soon(t))
		if err != nil || !now.Wall.Equal(time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)) {
			t.Errorf("%+v %v", now, err)
		}
		lifetimes = append(lifetimes, connect(t, b).Status().BrokerLifetime)
	}
	if lifetimes[0] != lifetimes[1] || lifetimes[0] == lifetimes[2] || lifetimes[0] == "" {
		t.Errorf("lifetimes %v", lifetimes)
	}
}

func TestStopIsOrderly(t *testing.T) {
	ctx := soon(t)
	b := start(t)
	if orderly, err := b.Stop(ctx); !orderly || err != nil {
		t.Errorf("%v %v\n%s", orderly, err, b.Output())
	}
	if !strings.Contains(b.Output(), "stopped") {
		t.Errorf("output %q", b.Output())
	}
	if _, err := b.Stop(ctx); err != brokerproc.ErrNotRunning {
		t.Errorf("second stop: %v", err)
	}
}

// A broker whose grace stands still with its clock is hurried by the second signal.
func TestStopEndsAGraceThatStandsStill(t *testing.T) {
	b, err := brokerproc.Start(soon(t), brokerproc.Options{Command: []string{fitzdTest}, Control: true, StopTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	nc, err := net.Dial("tcp", b.Address(brokerproc.TCP))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	if _, err := nc.Write(connectFrame(t)); err != nil {
		t.Fatal(err)
	}
	var b1 [1]byte
	if _, err := nc.Read(b1[:]); err != nil { // SERVER_HELLO
		t.Fatal(err)
	}
	if orderly, err := b.Stop(soon(t)); !orderly || err != nil {
		t.Errorf("%v %v\n%s", orderly, err, b.Output())
	}
}

// connectFrame is a CONNECT without a token, as it stands on TCP.
func connectFrame(t *testing.T) []byte {
	t.Helper()
	value, err := (&wire.Connect{}).AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	record := append(codec.AppendRecordHeader(nil, uint16(wire.TypeConnect), len(value)), value...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(record))), record...)
}

// A paused broker keeps its connections and answers when it goes on; it can be stopped while it is paused.
func TestPause(t *testing.T) {
	ctx := soon(t)
	b := start(t)
	c := connect(t, b)
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Lease().Query(ctx, "lease://acme/renderers/a")
		answered <- err
	}()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := b.Control().Now(short); err == nil {
		t.Error("a paused broker answers")
	}
	select {
	case err := <-answered:
		t.Errorf("a paused broker answers: %v", err)
	default:
	}
	if err := b.Continue(); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if orderly, err := b.Stop(ctx); !orderly || err != nil {
		t.Errorf("%v %v\n%s", orderly, err, b.Output())
	}
}

func TestWhatDoesNotStartLeavesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		options brokerproc.Options
		says    string
	}{
		"no command":      {brokerproc.Options{}, "no command"},
		"no such program": {brokerproc.Options{Command: []string{"/nowhere/at/all"}}, "no such file"},
		"bad setting":     {brokerproc.Options{Command: []string{fitzdTest}, Args: []string{"--nothing"}}, "unknown flag --nothing"},
		"open control":    {brokerproc.Options{Command: []string{fitzdTest}, Args: []string{"--control", "0.0.0.0:0"}}, "--control: \"0.0.0.0\" is not a loopback"},
		"bad seed":        {brokerproc.Options{Command: []string{fitzdTest}, Args: []string{"--seed=-1"}}, "--seed: "},
		"bad time":        {brokerproc.Options{Command: []string{fitzdTest}, Args: []string{"--wall", "noon"}}, "--wall: "},
		"no value":        {brokerproc.Options{Command: []string{fitzdTest}, Args: []string{"--seed"}}, "--seed needs a value"},
		"ends at once":    {brokerproc.Options{Command: []string{"/bin/sh", "-c", "echo sad >&2; exit 3"}}, "exit status 3"},
		"never accepts": {brokerproc.Options{Command: []string{"/bin/sh", "-c", "sleep 1000"}, StartTimeout: 100 * time.Millisecond},
			"deadline exceeded"},
		"half a file": {brokerproc.Options{Command: []string{"/bin/sh", "-c", "echo '{' >{addresses}; sleep 1000"}}, "addresses file"},
		"no control":  {brokerproc.Options{Command: []string{"/bin/sh", "-c", `echo '{"tcp":"127.0.0.1:1","control":"127.0.0.1:1"}' >{addresses}; sleep 1000`}, Control: true}, "control port"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			b, err := brokerproc.Start(soon(t), c.options)
			if err == nil {
				b.Close()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v\nwant %q", err, c.says)
			}
			left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left %v %v", left, err)
			}
		})
	}
}

// Children of the command end with it.
func TestKillEndsTheWholeGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pid")
	script := fmt.Sprintf(`sleep 1000 & echo $! >%s; exec "$0" "$@"`, pids)
	b, err := brokerproc.Start(soon(t), brokerproc.Options{Command: []string{"/bin/sh", "-c", script, fitzdTest}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscan(string(text), &pid); err != nil {
		t.Fatal(err)
	}
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	for ctx := soon(t); syscall.Kill(pid, 0) == nil && !zombie(pid); {
		if ctx.Err() != nil {
			t.Fatal("a child is left")
		}
	}
}

// zombie reports whether a process has ended and nobody has asked for its exit code.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

func TestPlaceholders(t *testing.T) {
	b, err := brokerproc.Start(soon(t), brokerproc.Options{Command: []string{fitzdTest, "--tcp={tcp}", "--http", "{http}", "--admin", "off"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	connect(t, b)
	if b.Control() != nil {
		t.Error("a control port that nobody asked for")
	}
}

// A broker serves the addresses that its command names, has started when it accepts at all of them, and must name one.
func TestNamedAddresses(t *testing.T) {
	b, err := brokerproc.Start(soon(t), brokerproc.Options{Command: []string{fitzdTest, "--tcp={tcp}", "--http", "off", "--admin", "off"}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if b.Address(brokerproc.TCP) == "" || b.Address(brokerproc.HTTP) != "" {
		t.Errorf("tcp %q, http %q", b.Address(brokerproc.TCP), b.Address(brokerproc.HTTP))
	}
	deaf := []string{"/bin/sh", "-c", `exec "$0" --tcp "$1" --http off --admin off`, fitzdTest, "{tcp}", "{http}"}
	if b, err := brokerproc.Start(soon(t), brokerproc.Options{Command: deaf, StartTimeout: time.Second}); err == nil {
		b.Close()
		t.Error("a broker that does not accept at {http} has started")
	}
	_, err = brokerproc.Start(soon(t), brokerproc.Options{Command: []string{"sleep", "60", "{admin}"}})
	if err == nil || !strings.Contains(err.Error(), "neither {tcp}") {
		t.Errorf("a broker without addresses: %v", err)
	}
}

func TestAttach(t *testing.T) {
	own := start(t)
	b := brokerproc.Attach(map[string]string{brokerproc.TCP: own.Address(brokerproc.TCP)})
	connect(t, b)
	if _, err := b.Stop(soon(t)); err != brokerproc.ErrAttached {
		t.Error(err)
	}
	if b.Kill() != brokerproc.ErrAttached || b.Pause() != brokerproc.ErrAttached || b.Restart(soon(t)) != brokerproc.ErrAttached {
		t.Error("an attached broker cannot be ended")
	}
	if b.Control() != nil || b.Exited() != nil || b.Address(brokerproc.HTTP) != "" || b.Output() != "" {
		t.Error("an attached broker has no process")
	}
	b.Close()
	connect(t, own)
}

// Only the last bytes of the output are kept.
func TestOutputIsBounded(t *testing.T) {
	b, err := brokerproc.Start(soon(t), brokerproc.Options{
		Command: []string{"/bin/sh", "-c", `head -c 1000000 /dev/zero | tr '\0' x >&2; echo; echo the end; exec "$0" "$@"`, fitzdTest},
		Args:    []string{"--log-level", "error"}, OutputMax: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if orderly, err := b.Stop(soon(t)); !orderly || err != nil {
		t.Fatal(orderly, err)
	}
	if text := b.Output(); len(text) > 1100 || !strings.Contains(text, "bytes before]") || !strings.Contains(text, "the end") {
		t.Errorf("%d bytes: %.200q", len(text), text)
	}
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		broker, err := brokerproc.Start(context.Background(), brokerproc.Options{Command: []string{fitzdTest}, Control: true})
		if err != nil {
			b.Fatal(err)
		}
		broker.Close()
	}
}
