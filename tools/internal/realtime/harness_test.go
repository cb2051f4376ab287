//go:build linux

package realtime

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/client"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/tools/internal/boot"
)

// addresses are those of a broker, by listener.
type addresses map[string]string

func (a addresses) tcp() string       { return "fitz://" + a["tcp"] }
func (a addresses) webSocket() string { return "ws://" + a["http"] + "/ws" }

// scratch is a directory that is removed after all tests; TestMain makes it.
var scratch string

// fitzd builds the broker once.
var fitzd = sync.OnceValues(func() (string, error) {
	bin := filepath.Join(scratch, "fitzd")
	text, err := exec.Command("go", "build", "-o", bin, "github.com/fitzwire/fitz/broker/cmd/fitzd").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build fitzd: %w: %s", err, text)
	}
	return bin, err
})

// startFitzd runs a broker on free ports until the test ends.
func startFitzd(tb testing.TB) addresses {
	tb.Helper()
	bin, err := fitzd()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(bin, "--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json")
	log, err := cmd.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	found := make(chan addresses, 1)
	var reading sync.WaitGroup
	reading.Go(func() { readLog(log, found) })
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		reading.Wait()
		_ = cmd.Wait()
	})
	select {
	case a, ok := <-found:
		if !ok {
			tb.Fatal("fitzd ended before it listened")
		}
		return a
	case <-time.After(startPatience):
		tb.Fatal("fitzd does not say that it listens")
	}
	return nil
}

// startPatience is far more than a broker needs to start.
const startPatience = time.Minute

// readLog sends the addresses once all are known, and reads to the end.
func readLog(log io.Reader, found chan<- addresses) {
	defer close(found)
	a := addresses{}
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct{ Msg, Listener, Address string }
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Msg != "listening" {
			continue
		}
		a[line.Listener] = line.Address
		if len(a) == len(settings.Listeners) {
			found <- a
			a = addresses{} // the reader owns the other one
		}
	}
}

// event is a line of a worker.
type event struct {
	word string
	at   time.Duration
	more string
}

// worker is a worker process and what it has said so far.
type worker struct {
	tb  testing.TB
	cmd *exec.Cmd

	mu      sync.Mutex
	changed sync.Cond
	said    []event
	ended   bool
}

func startWorker(tb testing.TB, o order) *worker {
	tb.Helper()
	w := &worker{tb: tb, cmd: exec.Command(os.Args[0])}
	w.changed.L = &w.mu
	w.cmd.Env = append(os.Environ(), workerEnv+"="+o.String())
	w.cmd.Stderr = os.Stderr
	in, err := w.cmd.StdinPipe() // its end tells an orphan to end
	if err != nil {
		tb.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { w.read(out) })
	tb.Cleanup(func() {
		if tb.Failed() {
			w.tell()
		}
		_ = w.cmd.Process.Kill() // which ends a stopped process, too
		_ = in.Close()
		reading.Wait()
		_ = w.cmd.Wait()
	})
	return w
}

func (w *worker) read(out io.Reader) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e event
		var nanoseconds int64
		if n, err := fmt.Sscan(lines.Text(), &e.word, &nanoseconds, &e.more); n != 3 {
			w.tb.Errorf("a worker said %q: %v", lines.Text(), err)
		}
		e.at = time.Duration(nanoseconds)
		w.mu.Lock()
		w.said = append(w.said, e)
		w.changed.Broadcast()
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.changed.Broadcast()
}

// soon fails a test that hangs. It is far more than a busy machine needs.
const soon = 2 * time.Minute

// awaitMatch waits until so many events have been chosen, and returns the last of them. what says what is awaited.
func (w *worker) awaitMatch(what string, count int, chosen func(event) bool) event {
	w.tb.Helper()
	over := false
	timer := time.AfterFunc(soon, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		over = true
		w.changed.Broadcast()
	})
	defer timer.Stop()
	w.mu.Lock()
	for seen := 0; ; w.changed.Wait() {
		for ; seen < len(w.said); seen++ {
			if !chosen(w.said[seen]) {
				continue
			}
			if count--; count == 0 {
				defer w.mu.Unlock()
				return w.said[seen]
			}
		}
		if w.ended || over {
			defer w.mu.Unlock()
			w.tb.Fatalf("no %s from the worker (ended: %v)", what, w.ended)
		}
	}
}

// await waits for so many events of a word.
func (w *worker) await(word string, count int) event {
	w.tb.Helper()
	return w.awaitMatch(word, count, func(e event) bool { return e.word == word })
}

// tell logs what the worker has said, without the ticks that say the same as the one before.
func (w *worker) tell() {
	before := ""
	for _, e := range w.history() {
		if e.word != before {
			w.tb.Logf("%v %s %s", e.at, e.word, e.more)
		}
		before = e.word
	}
}

func (w *worker) history() []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]event{}, w.said...)
}

func (w *worker) signal(s syscall.Signal) {
	w.tb.Helper()
	if err := w.cmd.Process.Signal(s); err != nil {
		w.tb.Fatal(err)
	}
}

// rival is another client, which waits in line and reaches the broker whatever happens to the worker.
type rival struct {
	tb      testing.TB
	granted chan time.Duration // when it was known that the lease is its own: at the moment of the grant or later
	err     error              // valid after granted is closed
}

// joinLine returns when the broker has said that the rival waits.
func joinLine(tb testing.TB, url, route string) *rival {
	tb.Helper()
	c, err := client.Dial(tb.Context(), url, client.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	r := &rival{tb: tb, granted: make(chan time.Duration, 1)}
	waits := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		defer close(r.granted)
		request := wire.LeaseAcquireRequest{Route: route, OwnerID: "rival", TTL: 60, Wait: bounds.LeaseWaitSecsMax}
		if _, r.err = c.LeaseAcquireWaiting(tb.Context(), &request, func(wire.LeaseAcquireReply) { close(waits) }); r.err == nil {
			r.granted <- boot.System()
		}
	})
	tb.Cleanup(func() {
		_ = c.Close()
		asking.Wait()
	})
	select {
	case <-waits:
	case <-r.granted:
		tb.Fatalf("the rival does not wait: %v", r.err)
	}
	return r
}

// grant waits for the grant.
func (r *rival) grant() time.Duration {
	r.tb.Helper()
	at, ok := <-r.granted
	if !ok {
		r.tb.Fatalf("the rival was refused: %v", r.err)
	}
	return at
}

// neverAfter checks L-95, L-96 and L-104: whatever the worker asked its handle, it was told held only while the broker could not have granted
// the lease to the rival. A grant that comes because the ttl is over comes at least a margin after the end of the handle; both count the same time,
// so that no allowance is made for slow processes. From the grant on there must be ticks, and all of them lost.
func (w *worker) neverAfter(granted, margin time.Duration) {
	w.tb.Helper()
	for _, m := range members { // each has been asked since
		w.awaitMatch("tick by "+m.name, 1, func(e event) bool { return e.more == m.name && e.at > granted })
	}
	held, lost, late := 0, 0, event{}
	for _, e := range w.history() {
		switch {
		case e.word == wordHeld && e.at > granted-margin:
			late = e
		case e.word == wordHeld:
			held++
		case e.word == wordLost:
			lost++
		}
	}
	if late.word != "" {
		w.tb.Errorf("%s: held %v before the rival was told of its grant, want more than %v", late.more, granted-late.at, margin)
	}
	if held == 0 || lost < len(members) {
		w.tb.Errorf("%d ticks with the lease, %d without", held, lost)
	}
}

// signalledBefore checks L-96: who only waits for the signal has it before the grant, without any I/O.
func (w *worker) signalledBefore(granted time.Duration, want fitz.LeaseLostReason) {
	w.tb.Helper()
	signal := w.await(wordSignal, 1)
	if signal.at >= granted || signal.more != string(want) {
		w.tb.Errorf("the signal came %v after the grant to the rival, for the reason %s", signal.at-granted, signal.more)
	}
}

// Directions of a proxy.
const (
	toBroker = iota
	toWorker
)

// proxy stands between a worker and the broker. It can be slow, and stop forwarding while its connections stay open.
type proxy struct {
	listener net.Listener
	target   string
	frozen   [2]atomic.Bool
	delay    [2]atomic.Pointer[func() time.Duration] // nil: none
	ending   chan struct{}
	running  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func startProxy(tb testing.TB, target string) *proxy {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &proxy{listener: listener, target: target, ending: make(chan struct{})}
	p.running.Go(p.accept)
	tb.Cleanup(p.end)
	return p
}

func (p *proxy) url() string { return "fitz://" + p.listener.Addr().String() }

// slow delays what the broker sends.
func (p *proxy) slow(delay func() time.Duration) { p.delay[toWorker].Store(&delay) }

// linger delays what the worker sends from now on by far more than a goroutine needs that was told of a loss: the RELEASE that follows frees the lease,
// and would race with it to the clock.
func (p *proxy) linger() {
	delay := func() time.Duration { return time.Second }
	p.delay[toBroker].Store(&delay)
}

func (p *proxy) end() {
	close(p.ending)
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		if !p.keep(near, far) {
			return
		}
		p.forward(far, near, toBroker)
		p.forward(near, far, toWorker)
	}
}

// keep remembers connections, to close them at the end. False: that has come.
func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conns...)
	select {
	case <-p.ending:
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	default:
		return true
	}
}

// chunk is bytes and when they may go on.
type chunk struct {
	bytes []byte
	due   time.Time
}

// forward passes on one direction of a connection, in order.
func (p *proxy) forward(to, from net.Conn, direction int) {
	const most = 1024 // chunks on their way
	way := make(chan chunk, most)
	p.running.Go(func() {
		defer close(way)
		for {
			buffer := make([]byte, 4096)
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			c := chunk{buffer[:n], time.Now()}
			if delay := p.delay[direction].Load(); delay != nil {
				c.due = c.due.Add((*delay)())
			}
			way <- c
		}
	})
	p.running.Go(func() {
		defer func() { _ = to.Close() }()
		for c := range way {
			if p.wait(c.due) && !p.frozen[direction].Load() {
				_, _ = to.Write(c.bytes)
			}
		}
	})
}

// wait waits until something is due. False: the end came first.
func (p *proxy) wait(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ending:
		return false
	}
}
