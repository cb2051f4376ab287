package driver_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/fitz/cmd/fitz-driver/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test.
const patience = 2 * time.Minute

type object = map[string]any

// runner is the other side of a driver that runs in this process.
type runner struct {
	t    *testing.T
	in   *io.PipeWriter
	exit chan int
	log  bytes.Buffer

	mu     sync.Mutex
	last   uint64
	lines  []object
	seen   int // lines that event has gone past
	change chan struct{}
	closed bool
}

func newRunner(t *testing.T) *runner {
	t.Helper()
	in, toDriver := io.Pipe()
	fromDriver, out := io.Pipe()
	r := &runner{t: t, in: toDriver, exit: make(chan int, 1), change: make(chan struct{})}
	go func() {
		r.exit <- driver.Run(in, out, &r.log)
		_ = in.Close()
		_ = out.Close()
	}()
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.read(fromDriver)
	}()
	t.Cleanup(func() {
		_ = toDriver.Close()
		<-read
	})
	if hello := r.next(func(o object) bool { return true }); hello["ev"] != "hello" || hello["protocol"] != json.Number("1") || hello["language"] != "go" {
		t.Fatalf("hello: %v", hello)
	}
	return r
}

func (r *runner) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var o object
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.UseNumber()
		if err := d.Decode(&o); err != nil {
			r.t.Errorf("the driver said %q: %v", lines.Text(), err)
			continue
		}
		r.mu.Lock()
		r.lines = append(r.lines, o)
		close(r.change)
		r.change = make(chan struct{})
		r.mu.Unlock()
	}
	r.mu.Lock()
	r.closed = true
	close(r.change)
	r.change = make(chan struct{})
	r.mu.Unlock()
}

// await waits until look finds a line from the given index on.
func (r *runner) await(from int, what string, look func(object) bool) (int, object) {
	r.t.Helper()
	late := time.After(patience)
	for {
		r.mu.Lock()
		for i := from; i < len(r.lines); i++ {
			if look(r.lines[i]) {
				line := r.lines[i]
				r.mu.Unlock()
				return i, line
			}
		}
		change, closed := r.change, r.closed
		r.mu.Unlock()
		if closed {
			r.t.Fatalf("the driver ended before %s", what)
		}
		select {
		case <-change:
		case <-late:
			r.t.Fatalf("never: %s", what)
		}
	}
}

// next is the next line that look wants, behind the one that next found before.
func (r *runner) next(look func(object) bool) object {
	r.t.Helper()
	r.mu.Lock()
	from := r.seen
	r.mu.Unlock()
	at, line := r.await(from, "a line", look)
	r.mu.Lock()
	r.seen = at + 1
	r.mu.Unlock()
	return line
}

// event waits for the next event of a handle with these fields.
func (r *runner) event(of, ev string, fields object) object {
	r.t.Helper()
	return r.next(func(o object) bool {
		return o["ev"] == ev && o["of"] == of && holds(o, fields)
	})
}

func holds(o, fields object) bool {
	for key, want := range fields {
		if fmt.Sprint(o[key]) != fmt.Sprint(want) {
			return false
		}
	}
	return true
}

// start sends a command and returns its id. fields are those of the command beside id and cmd; args stand under "args".
func (r *runner) start(cmd string, fields object) uint64 {
	r.t.Helper()
	r.mu.Lock()
	r.last++
	id := r.last
	r.mu.Unlock()
	line := object{"id": id, "cmd": cmd}
	for key, value := range fields {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.in.Write(append(text, '\n')); err != nil {
		r.t.Fatal(err)
	}
	return id
}

// join waits for the answer of a command.
func (r *runner) join(id uint64) object {
	r.t.Helper()
	_, line := r.await(0, fmt.Sprintf("an answer to %d", id), func(o object) bool { return o["id"] == json.Number(fmt.Sprint(id)) })
	return line
}

// answered reports whether a command has been answered.
func (r *runner) answered(id uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.lines {
		if o["id"] == json.Number(fmt.Sprint(id)) {
			return true
		}
	}
	return false
}

// ok does a command that must succeed.
func (r *runner) ok(cmd string, fields object) object {
	r.t.Helper()
	line := r.join(r.start(cmd, fields))
	ok, is := line["ok"].(object)
	if !is {
		r.t.Fatalf("%s %v: %v", cmd, fields, line)
	}
	return ok
}

// refused does a command that must fail with that class.
func (r *runner) refused(class, cmd string, fields object) object {
	r.t.Helper()
	line := r.join(r.start(cmd, fields))
	err, is := line["err"].(object)
	if !is || err["class"] != class {
		r.t.Fatalf("%s %v: %v, want %s", cmd, fields, line, class)
	}
	return err
}

// end ends the input and returns the exit code.
func (r *runner) end() int {
	r.t.Helper()
	_ = r.in.Close()
	select {
	case code := <-r.exit:
		return code
	case <-time.After(patience):
		r.t.Fatal("the driver does not end")
		return -1
	}
}

// lastLine is the last line of a driver that has ended.
func (r *runner) lastLine() object {
	r.t.Helper()
	for {
		r.mu.Lock()
		closed, change := r.closed, r.change
		var last object
		if len(r.lines) > 0 {
			last = r.lines[len(r.lines)-1]
		}
		r.mu.Unlock()
		if closed {
			return last
		}
		<-change
	}
}

// serving is a broker with its URLs.
func serving(t *testing.T, args ...string) (tcp, ws string) {
	t.Helper()
	c, _, err := config.Load(append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "off"}, args...),
		func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return "tcp://" + b.Addresses()["tcp"], "ws://" + b.Addresses()["http"] + "/ws"
}

// connected is a driver with a client c1 of a broker.
func connected(t *testing.T, more object) (*runner, string) {
	t.Helper()
	tcp, _ := serving(t)
	r := newRunner(t)
	args := object{"url": tcp, "owner_id": "w1"}
	for key, value := range more {
		args[key] = value
	}
	r.ok("client.connect", object{"as": "c1", "args": args})
	return r, tcp
}

func routes(items any) string {
	var out []string
	list, _ := items.([]any)
	for _, item := range list {
		if o, ok := item.(object); ok {
			item = o["route"]
		}
		out = append(out, strings.TrimPrefix(fmt.Sprint(item), "lease://acme/r/"))
	}
	return strings.Join(out, " ")
}
