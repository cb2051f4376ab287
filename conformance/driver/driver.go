package driver

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// Limits bound what a driver may do.
type Limits struct {
	Hello  time.Duration // from the start to its hello
	Bye    time.Duration // from the end of its input to the end of its process
	Answer time.Duration // for a command that must be answered at once, and to take a command
	Line   int           // bytes of a line
	Stderr int           // bytes of stderr in one case
	Events int           // events in one case
}

// DefaultLimits are the limits of a run that sets no others.
var DefaultLimits = Limits{
	Hello: 10 * time.Second, Bye: 2 * time.Second, Answer: 2 * time.Second,
	Line: 4 << 20, Stderr: 1 << 20, Events: 1 << 16,
}

// stderrTail is how many of the last bytes of stderr are kept for a report.
const stderrTail = 32 << 10

// Driver is one running driver. Its methods may be called from any goroutine.
type Driver struct {
	limits Limits
	ends   ends
	done   chan struct{} // closed when all goroutines of the driver have ended
	gone   chan struct{} // closed when its process has ended

	writing sync.Mutex // held while a command is written; taken before mu

	mu      sync.Mutex
	hello   *Hello
	greeted chan struct{} // closed with the hello or the fault
	failed  chan struct{} // closed with the fault
	fault   *Fault
	closing bool // its input was ended
	bye     bool
	exit    int // -1 while it runs
	nextID  uint64
	calls   map[uint64]*Call
	handles map[string]uint64
	events  []Event
	seen    uint64 // events so far
	bell    chan struct{}
	stderr  []byte
	noise   int
}

// ends is the runner's ends of the pipes of a driver, and its process.
type ends struct {
	in     *os.File
	out    *os.File
	err    *os.File
	exited <-chan int    // gets the exit code once
	kill   func()        // ends it and everything that it started
	orphan func() bool   // whether processes of its group are left after its exit
	wait   func()        // waits for what kill cannot end at once
	pid    int           // of the process, 0 within this one
	grace  time.Duration // for the rest of its output after its exit
}

// Call is a command that was sent.
type Call struct {
	Command Command
	reply   Reply
	done    chan struct{}
}

// begin takes over a driver and waits for its hello.
func begin(ctx context.Context, e ends, limits Limits) (*Driver, error) {
	d := &Driver{
		limits: limits, ends: e, done: make(chan struct{}), gone: make(chan struct{}), greeted: make(chan struct{}), failed: make(chan struct{}), exit: -1,
		calls: map[uint64]*Call{}, handles: map[string]uint64{}, bell: make(chan struct{}),
	}
	var readers sync.WaitGroup
	readers.Go(d.readOut)
	readers.Go(d.readErr)
	go func() {
		defer close(d.done)
		d.watch(&readers)
	}()
	timer := time.NewTimer(limits.Hello)
	defer timer.Stop()
	select {
	case <-d.greeted:
	case <-timer.C:
		d.fail(fault(FaultNoHello, "no hello within %v", limits.Hello))
	case <-ctx.Done():
		d.fail(fault(FaultNoHello, "%v", context.Cause(ctx)))
	}
	if f := d.Fault(); f != nil {
		d.Kill()
		return nil, d.Fault()
	}
	return d, nil
}

// Hello is what the driver says of itself.
func (d *Driver) Hello() Hello {
	d.mu.Lock()
	defer d.mu.Unlock()
	return *d.hello
}

// Has tells whether the driver announces a feature.
func (d *Driver) Has(feature string) bool { return slices.Contains(d.Hello().Features, feature) }

// Fault is what the driver did wrong, nil when nothing.
func (d *Driver) Fault() *Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault
}

// Failed is closed when the driver has done something wrong.
func (d *Driver) Failed() <-chan struct{} { return d.failed }

// Exit is the exit code of its process, -1 while it runs.
func (d *Driver) Exit() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.exit
}

// Stderr is the last part of what the driver wrote to stderr.
func (d *Driver) Stderr() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.stderr)
}

// Renew begins a new case: bounds count from zero and the events of the case before are forgotten. Handles keep their counters.
func (d *Driver) Renew() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events, d.noise, d.stderr = nil, 0, nil
}

// fail notes the first fault. The exit code stands in it when the process has ended.
func (d *Driver) fail(f *Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failLocked(f)
}

func (d *Driver) failLocked(f *Fault) {
	if d.fault != nil {
		return
	}
	f.Exit = d.exit
	d.fault = f
	close(d.failed)
	if d.hello == nil {
		close(d.greeted)
	}
}

// Fail notes a fault that only the runner can see, as a false feature.
func (d *Driver) Fail(name, format string, args ...any) *Fault {
	d.fail(fault(name, format, args...))
	return d.Fault()
}

// Send gives the driver a command. Its id is chosen here. The error is a *Fault.
func (d *Driver) Send(c Command) (*Call, error) {
	d.writing.Lock()
	defer d.writing.Unlock()
	call, line, err := d.enter(c)
	if err != nil {
		return nil, err
	}
	if err := d.ends.in.SetWriteDeadline(time.Now().Add(d.limits.Answer)); err != nil {
		d.fail(fault(FaultCrash, "its input: %v", err))
		return nil, d.Fault()
	}
	if _, err := d.ends.in.Write(line); err != nil {
		d.refused(err)
		return nil, d.Fault()
	}
	return call, nil
}

// refused finds the fault of a command that could not be written. A driver that has ended is given the time to say how.
func (d *Driver) refused(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		d.fail(fault(FaultDeaf, "it did not take a command within %v", d.limits.Answer))
		return
	}
	timer := time.NewTimer(d.limits.Answer)
	defer timer.Stop()
	select {
	case <-d.failed:
	case <-timer.C:
		d.fail(fault(FaultCrash, "its input is closed: %v", err))
	}
}

func (d *Driver) enter(c Command) (*Call, []byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		return nil, nil, d.fault
	}
	if d.closing {
		return nil, nil, errors.New("driver: closed")
	}
	d.nextID++
	c.ID = d.nextID
	line, err := json.Marshal(c)
	if err != nil {
		return nil, nil, fmt.Errorf("driver: %w", err)
	}
	call := &Call{Command: c, done: make(chan struct{})}
	d.calls[c.ID] = call
	if c.As != "" {
		d.handles[c.As] += 0
	}
	return call, append(line, '\n'), nil
}

// Done is closed when the answer has come.
func (c *Call) Done() <-chan struct{} { return c.done }

// Wait waits for the answer to a command. The error is a *Fault, or of the context.
func (d *Driver) Wait(ctx context.Context, c *Call) (Reply, error) {
	select {
	case <-c.done:
		return c.reply, nil
	default:
	}
	select {
	case <-c.done:
		return c.reply, nil
	case <-d.failed:
		return Reply{}, d.Fault()
	case <-ctx.Done():
		return Reply{}, context.Cause(ctx)
	}
}

// Do is Send and Wait.
func (d *Driver) Do(ctx context.Context, c Command) (Reply, error) {
	call, err := d.Send(c)
	if err != nil {
		return Reply{}, err
	}
	return d.Wait(ctx, call)
}

// Alive asks the driver for its hello again, which needs no client. A driver that does not answer at all hangs, which is a fault.
func (d *Driver) Alive() *Fault {
	ctx, cancel := context.WithTimeout(context.Background(), d.limits.Answer)
	defer cancel()
	if _, err := d.Do(ctx, Command{Cmd: "hello"}); err != nil {
		d.fail(fault(FaultHang, "it answers nothing within %v", d.limits.Answer))
	}
	return d.Fault()
}

// Seen is a mark: events with a larger Seq come after it.
func (d *Driver) Seen() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.seen
}

// Events returns the events of the case so far that the filter chooses.
func (d *Driver) Events(filter func(Event) bool) []Event {
	d.mu.Lock()
	events := slices.Clone(d.events)
	d.mu.Unlock()
	return slices.DeleteFunc(events, func(e Event) bool { return filter != nil && !filter(e) })
}

// AwaitEvent waits for the first event with a Seq larger than after that the filter chooses.
func (d *Driver) AwaitEvent(ctx context.Context, after uint64, filter func(Event) bool) (Event, error) {
	for {
		d.mu.Lock()
		bell := d.bell
		events := d.events
		d.mu.Unlock()
		from, _ := slices.BinarySearchFunc(events, after+1, func(e Event, seq uint64) int { return cmp.Compare(e.Seq, seq) })
		for _, e := range events[from:] {
			if filter(e) {
				return e, nil
			}
			after = e.Seq
		}
		select {
		case <-bell:
		case <-d.failed:
			return Event{}, d.Fault()
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		}
	}
}

// readOut reads lines until the output ends or a fault.
func (d *Driver) readOut() {
	defer func() { _ = d.ends.out.Close() }()
	r := bufio.NewReaderSize(d.ends.out, 64<<10)
	for {
		line, err := readLine(r, d.limits.Line)
		switch {
		case err == nil:
			if f := d.take(line); f != nil {
				d.fail(f)
				return
			}
		case errors.Is(err, errGiant):
			d.fail(fault(FaultGiantLine, "a line is longer than %d bytes: %q", d.limits.Line, excerpt(line)))
			return
		default:
			d.ended(line)
			return
		}
	}
}

// ended says what the end of the output means. A process that goes on without an output is of no use.
func (d *Driver) ended(rest []byte) {
	if len(rest) > 0 {
		d.fail(fault(FaultHalfLine, "its output ended within a line: %q", excerpt(rest)))
		return
	}
	timer := time.NewTimer(d.limits.Bye)
	defer timer.Stop()
	select {
	case <-d.gone:
	case <-d.failed:
	case <-timer.C:
		d.fail(fault(FaultCrash, "it closed its output and goes on"))
	}
}

var errGiant = errors.New("line too long")

// readLine reads a line and takes its end off. With an error the line is what was read of it.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > most+1 {
			return line, errGiant
		}
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

func (d *Driver) take(line []byte) *Fault {
	m, f := parse(line)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.bye:
		return fault(FaultAfterBye, "output after the bye: %q", excerpt(line))
	case d.hello == nil && (f != nil && f.Name != FaultBadHello || f == nil && m.hello == nil):
		return fault(FaultNoHello, "the first line is no hello: %q", excerpt(line))
	case f != nil:
		return f
	case m.hello != nil && d.hello != nil:
		return fault(FaultSecondHello, "%q", excerpt(line))
	case m.hello != nil:
		d.hello = m.hello
		close(d.greeted)
	case m.bye:
		d.bye = true
	case m.reply != nil:
		return d.answer(m.reply)
	default:
		return d.happened(m.event)
	}
	return nil
}

func (d *Driver) answer(r *Reply) *Fault {
	call := d.calls[r.ID]
	switch {
	case call == nil && r.ID > 0 && r.ID <= d.nextID: // ids are given in order, so that an older one was answered
		return fault(FaultDuplicate, "command %d was answered before", r.ID)
	case call == nil:
		return fault(FaultWrongID, "a reply to command %d, which was never given", r.ID)
	}
	delete(d.calls, r.ID)
	call.reply = *r
	close(call.done)
	return nil
}

func (d *Driver) happened(e *Event) *Fault {
	last, known := d.handles[e.Of]
	switch {
	case !known:
		return fault(FaultUnknownHandle, "an event %s of %q, which nobody named", e.Kind, e.Of)
	case e.N != last+1:
		return fault(FaultEventGap, "event %d of %q came after event %d", e.N, e.Of, last)
	case len(d.events) >= d.limits.Events:
		return fault(FaultEventFlood, "more than %d events", d.limits.Events)
	}
	d.handles[e.Of] = e.N
	d.seen++
	e.Seq, e.At = d.seen, time.Now()
	d.events = append(d.events, *e)
	close(d.bell)
	d.bell = make(chan struct{})
	return nil
}

// readErr keeps the end of stderr and counts it. It reads on after a flood, so that the driver does not stand still before it is killed.
func (d *Driver) readErr() {
	defer func() { _ = d.ends.err.Close() }()
	buf := make([]byte, 16<<10)
	for {
		n, err := d.ends.err.Read(buf)
		d.log(buf[:n])
		if err != nil {
			return
		}
	}
}

func (d *Driver) log(text []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noise += len(text)
	d.stderr = append(d.stderr, text...)
	if over := len(d.stderr) - stderrTail; over > 0 {
		d.stderr = slices.Clone(d.stderr[over:])
	}
	if d.noise > d.limits.Stderr {
		d.failLocked(fault(FaultStderrFlood, "more than %d bytes of stderr in one case", d.limits.Stderr))
	}
}

// watch waits for the end of the process, then for the rest of its output, and says whether it was a good end.
func (d *Driver) watch(readers *sync.WaitGroup) {
	code := <-d.ends.exited
	d.mu.Lock()
	d.exit = code
	d.mu.Unlock()
	close(d.gone)
	orphans := d.ends.orphan()
	d.ends.kill()
	// What a process wrote before its end is in the pipe; only one that left its group could keep the pipe open.
	deadline := time.Now().Add(d.ends.grace)
	_ = d.ends.out.SetReadDeadline(deadline)
	_ = d.ends.err.SetReadDeadline(deadline)
	readers.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.hello == nil:
		d.failLocked(fault(FaultNoHello, "its process ended with code %d before a hello", code))
	case !d.closing && d.bye:
		d.failLocked(fault(FaultCrash, "it said bye before its input ended"))
	case !d.closing:
		d.failLocked(fault(FaultCrash, "its process ended with code %d", code))
	case !d.bye:
		d.failLocked(fault(FaultNoBye, "its process ended with code %d and without a bye", code))
	case code != 0:
		d.failLocked(fault(FaultExitCode, "it ended with code %d", code))
	case orphans:
		d.failLocked(fault(FaultOrphan, "processes that it started outlived it; they were killed"))
	}
}

// Close ends the input of the driver and waits for its bye and its end. It returns what was wrong, nil when nothing was.
func (d *Driver) Close() *Fault {
	d.mu.Lock()
	d.closing = true
	d.mu.Unlock()
	_ = d.ends.in.Close()
	timer := time.NewTimer(d.limits.Bye)
	defer timer.Stop()
	select {
	case <-d.done:
	case <-d.failed:
	case <-timer.C:
		d.fail(fault(FaultSlowExit, "it did not end within %v after its input ended", d.limits.Bye))
	}
	d.Kill()
	return d.Fault()
}

// Kill ends the driver and everything that it started and waits for that.
func (d *Driver) Kill() {
	_ = d.ends.in.Close()
	d.ends.kill()
	d.ends.wait()
	<-d.done
}

// Open returns the commands that have no answer, by id.
func (d *Driver) Open() []Command {
	d.mu.Lock()
	defer d.mu.Unlock()
	var open []Command
	for _, id := range slices.Sorted(maps.Keys(d.calls)) {
		open = append(open, d.calls[id].Command)
	}
	return open
}

// pipes makes the three pipes of a driver; theirs are the ends of the driver.
func pipes() (ours, theirs [3]*os.File, err error) {
	for i := range ours {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(ours[:i], theirs[:i])
			return ours, theirs, err
		}
		if i == 0 {
			ours[i], theirs[i] = w, r
		} else {
			ours[i], theirs[i] = r, w
		}
	}
	return ours, theirs, nil
}

func closeAll(lists ...[]*os.File) {
	for _, list := range lists {
		for _, f := range list {
			_ = f.Close()
		}
	}
}
