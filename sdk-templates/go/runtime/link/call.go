package link

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// Request is one request of a session.
type Request struct {
	Type  uint16
	Value []byte // must not be changed after Call was called
	// Wait is how long the peer may hold back the last reply after a first one said that another follows. It is added to the request
	// timeout.
	Wait time.Duration
	// Timeout replaces the request timeout of the session; 0 does not.
	Timeout time.Duration
	// Cancellable says that the peer can be asked to give the request up while it waits.
	Cancellable bool
	// Waiting, if set, receives the first of two replies, on the goroutine that reads and under the rules of Options.OnPush.
	Waiting func(reply []byte)
	// Arrived, if set, receives the last reply of a request that was not given up, before anything that the peer sent after it is looked at
	// and before Call returns. It runs under the rules of Options.OnPush.
	Arrived func(reply []byte)
	// Late, if set, is called exactly once when Call returns the error of its context or Timeout, and never otherwise: with the last reply
	// as soon as it comes, or with nil when none will. It may be called before Call returns, and runs under the rules of Options.OnPush.
	Late func(reply []byte)
}

type callState uint8

const (
	queued  callState = iota // not sent
	sent                     // no reply yet
	waiting                  // a first reply said that another follows
	over                     // the last reply arrived, or none will
)

// call is one request from Call until its last reply, which may be later than the return of Call.
type call struct {
	Request
	label     uint64 // 0: not labelled
	state     callState
	sentAt    time.Duration
	abandoned bool
	arriving  bool          // Arrived is running: the call can no longer be given up
	overdue   time.Duration // of an abandoned unlabelled call: when its slot costs the session (W-59)
	finished  chan struct{} // closed when state becomes over
	cancelled chan struct{} // closed when the CANCEL was answered; nil when none was sent
	reply     []byte
	err       error
}

// callTable holds the calls of a session. Every part of it is bounded by Limits.
type callTable struct {
	queue      []*call // to be sent, in order
	queueBytes int64
	inFlight   int // sent and not abandoned: without first reply when labelled, without last reply when not
	abandoned  int
	nextLabel  uint64
	labelled   map[uint64]*call // sent with a label and not over
	slots      map[uint16]*call // sent without a label and not over: one of each type (W-57)
	cancels    map[uint64]*call // CANCEL sent and not answered
}

func (t *callTable) init() {
	t.labelled = map[uint64]*call{}
	t.slots = map[uint16]*call{}
	t.cancels = map[uint64]*call{}
}

// Call sends a request and returns the value of its last reply, a refusal included: the package does not look into replies.
//
// When ctx ends first, Call returns its error; a deadline of ctx is one of the machine, whatever Options.Clock is. The request is then given up: one that was not sent never is; one that can be
// cancelled is cancelled, and Call returns only when the peer said what became of it (W-70 to W-78); the last reply of any other
// arrives later. In every case a reply that nobody waits for goes to Options.OnLate (L-73).
//
// Other errors are an *Error: Invalid, Overload, Timeout, or the reason why the session ended. Its Sent says whether the outcome of
// the request is unknown.
func (c *Conn) Call(ctx context.Context, request Request) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		request.late(nil)
		return nil, err
	}
	call := &call{Request: request, finished: make(chan struct{})}
	if err := c.submit(call); err != nil {
		return nil, err
	}
	timer := newAlarm(c.clock, cmp.Or(request.Timeout, c.limits.Request))
	defer func() { timer.stop() }()
	line := request.Wait // time left to wait in line
	for {
		select {
		case <-call.finished:
			return call.reply, call.err
		case <-ctx.Done():
			return c.giveUp(call, ctx.Err(), true)
		case <-timer.rings:
			if line > 0 && c.inLine(call) {
				timer.set(line)
				line = 0
				continue
			}
			return c.giveUp(call, &Error{Kind: Timeout, Sent: true}, false)
		}
	}
}

// inLine reports whether the call waits in line at the peer.
func (c *Conn) inLine(call *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return call.state == waiting
}

// submit sends the call or queues it.
func (c *Conn) submit(call *call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	if err := c.fits(call); err != nil {
		return err
	}
	size := int64(len(call.Value))
	t := &c.calls
	t.queue = append(t.queue, call)
	t.queueBytes += size
	c.pump()
	full := len(t.queue) > c.limits.Queue || t.queueBytes > c.limits.QueueBytes
	if call.state == queued && full && !mutant.On("sdk.queue-unbounded") {
		t.unqueue(call)
		return &Error{Kind: Overload}
	}
	return nil
}

// headersMax is more than the headers and the label of a request take.
const headersMax = 64

// fits checks the request against what a record can hold and what the peer accepts. c.mu is held.
func (c *Conn) fits(call *call) error {
	if len(call.Value) > c.limits.RecordValue {
		return invalid("a request of %d bytes does not fit into a record", len(call.Value))
	}
	if c.hello == nil || c.hello.MaxFrame == 0 || int64(len(call.Value))+headersMax <= c.hello.MaxFrame {
		return nil
	}
	if size := int64(len(c.protocol.AppendRecord(c.labelRecord(nil, 1), call.Type, call.Value))); size > c.hello.MaxFrame {
		return invalid("a request of %d bytes is larger than the peer accepts", size)
	}
	return nil
}

// pump sends queued calls while there is room. Calls of one type are sent in their order. c.mu is held.
func (c *Conn) pump() {
	if c.ended != nil {
		return
	}
	t := &c.calls
	kept := t.queue[:0]
	for _, call := range t.queue {
		if !c.mayNow(call) {
			kept = append(kept, call)
			continue
		}
		t.queueBytes -= int64(len(call.Value))
		c.send(call)
	}
	clear(t.queue[len(kept):])
	t.queue = kept
}

// mayNow reports whether the call can be sent now (W-57). c.mu is held.
func (c *Conn) mayNow(call *call) bool {
	t := &c.calls
	if t.inFlight >= c.limits.InFlight && !mutant.On("sdk.in-flight-unbounded") {
		return false
	}
	if c.labels {
		return len(t.labelled)+len(t.cancels) < c.limits.Labels
	}
	return t.slots[call.Type] == nil || mutant.On("sdk.unlabelled-pipelined")
}

// send hands a call to the writer, labelled when the peer announced labels. c.mu is held.
func (c *Conn) send(call *call) {
	t := &c.calls
	var message []byte
	if c.labels {
		if t.nextLabel == 0 || !mutant.On("sdk.label-in-flight-reused") {
			t.nextLabel++
		}
		call.label = t.nextLabel
		t.labelled[call.label] = call
		message = c.labelRecord(message, call.label)
	} else {
		t.slots[call.Type] = call
	}
	call.state, call.sentAt = sent, c.clock.Now()
	t.inFlight++
	c.enqueue(c.protocol.AppendRecord(message, call.Type, call.Value))
}

// labelRecord appends the record that labels the next one. c.mu is held.
func (c *Conn) labelRecord(dst []byte, label uint64) []byte {
	if !c.labels {
		return dst
	}
	value, err := c.protocol.AppendLabel(nil, label)
	if err != nil {
		return dst // a non-zero label can always be written
	}
	return c.protocol.AppendRecord(dst, c.protocol.Types.LabelRequest, value)
}

// handleReply matches a reply with its request: by label, or by order of its type (W-41, W-44).
func (c *Conn) handleReply(label uint64, typ uint16, value []byte) error {
	c.mu.Lock()
	call, err := c.pending(label, typ)
	if call == nil {
		c.mu.Unlock()
		return err
	}
	c.answered = max(c.answered, call.sentAt)
	if !c.protocol.Final(typ, value) {
		err := c.firstReply(call)
		tell := call.Waiting
		c.mu.Unlock()
		if err == nil && tell != nil {
			tell(value)
		}
		return err
	}
	late := call.abandoned
	if late {
		c.stats.LateReplies++
	} else {
		call.reply = slices.Clone(value)
	}
	arrived := call.Arrived
	if late || arrived == nil {
		c.calls.finish(call, nil)
		c.pump()
		c.mu.Unlock()
		c.tellLate(call, value)
		return nil
	}
	// The caller must not go on before Arrived has returned, and Arrived must not run under the lock.
	call.arriving = true
	c.mu.Unlock()
	arrived(value)
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.state != over { // the session may have ended meanwhile
		c.calls.finish(call, nil)
		c.pump()
	}
	return nil
}

// tellLate hands the last reply of a given-up call on, if it is one.
func (c *Conn) tellLate(call *call, value []byte) {
	if !call.abandoned {
		return
	}
	if c.options.OnLate != nil && value != nil {
		c.options.OnLate(call.Request, value)
	}
	call.late(value)
}

func (r *Request) late(reply []byte) {
	if r.Late != nil {
		r.Late(reply)
	}
}

// pending finds the call that a reply answers. No call and no error: a late reply of a request that is not known any more, which is
// counted (W-58). c.mu is held.
func (c *Conn) pending(label uint64, typ uint16) (*call, error) {
	if label == 0 {
		if call := c.calls.slots[typ]; call != nil {
			return call, nil
		}
		return nil, violation("a reply without a request", nil)
	}
	call := c.calls.labelled[label]
	if mutant.On("sdk.replies-by-order") {
		call = c.calls.oldest(typ)
	}
	if call == nil {
		c.stats.LateReplies++
		return nil, nil
	}
	if call.Type != typ {
		return nil, violation("a reply of another type than its request", nil)
	}
	return call, nil
}

// oldest is what a reply would answer whose label is not looked at: the first labelled call of the type.
func (t *callTable) oldest(typ uint16) (first *call) {
	for _, call := range t.labelled {
		if call.Type == typ && (first == nil || call.label < first.label) {
			first = call
		}
	}
	return first
}

// firstReply notes that the last reply of the call comes later. Without labels its slot stays taken, so that waiting requests of a
// type follow each other (C-60). c.mu is held.
func (c *Conn) firstReply(call *call) error {
	if call.state != sent {
		return violation("a third reply", nil)
	}
	call.state = waiting
	if call.label != 0 && !call.abandoned {
		c.calls.inFlight--
		c.pump()
	}
	return nil
}

// handleCancelled ends what is left of a cancelled call: no frame of its label follows (W-77).
func (c *Conn) handleCancelled(value []byte) error {
	label, err := c.protocol.DecodeCancelled(value)
	if err != nil {
		return violation("cancelled", err)
	}
	c.mu.Lock()
	call := c.calls.cancels[label]
	if call == nil {
		c.mu.Unlock()
		return violation("an answer to a cancellation that was not sent", nil)
	}
	delete(c.calls.cancels, label)
	unanswered := call.state != over
	if unanswered {
		c.calls.finish(call, &Error{Kind: Lost, Sent: true, Reason: "cancelled without a reply"})
	}
	c.pump()
	c.mu.Unlock()
	if unanswered {
		c.tellLate(call, nil)
	}
	close(call.cancelled)
	return nil
}

// giveUp returns to the caller of a call that is not over. If the call can be cancelled, it is; with await set giveUp then waits
// for the answer, at most for the request timeout.
func (c *Conn) giveUp(call *call, cause error, await bool) ([]byte, error) {
	c.mu.Lock()
	if call.state == over || call.arriving { // the reply was faster
		c.mu.Unlock()
		<-call.finished
		return call.reply, call.err
	}
	if call.state == queued {
		c.calls.unqueue(call)
		c.pump()
		c.mu.Unlock()
		call.late(nil)
		return nil, notSent(cause)
	}
	tooMany := c.abandon(call)
	c.cancel(call)
	c.mu.Unlock()
	if tooMany {
		c.end(&Error{Kind: Lost, Reason: "too many given-up requests are not answered"}, false)
	}
	if call.cancelled == nil || !await {
		return nil, cause
	}
	timer := newAlarm(c.clock, c.limits.Request)
	defer timer.stop()
	select {
	case <-call.cancelled:
	case <-c.done:
	case <-timer.rings:
	}
	return nil, cause
}

// notSent corrects a timeout of a request that never left the queue: it was not applied.
func notSent(cause error) error {
	if e, ok := cause.(*Error); ok {
		corrected := *e
		corrected.Sent = false
		return &corrected
	}
	return cause
}

// abandon keeps the call in its place for its last reply. It reports whether too many such calls are kept (W-58). c.mu is held.
func (c *Conn) abandon(call *call) bool {
	t := &c.calls
	call.abandoned = true
	t.abandoned++
	if call.label == 0 {
		call.overdue = c.clock.Now() + c.limits.Request + call.Wait
		signal(c.rearm)
	} else if call.state == sent {
		t.inFlight--
		c.pump()
	}
	return t.abandoned > c.limits.Abandoned && !mutant.On("sdk.given-up-unbounded")
}

// cancel asks the peer to give the call up, if it can be asked. c.mu is held.
func (c *Conn) cancel(call *call) {
	if !call.Cancellable || call.label == 0 || !c.negotiated || c.ended != nil || mutant.On("sdk.cancel-not-sent") {
		return
	}
	value, err := c.protocol.AppendCancel(nil, call.label)
	if err != nil {
		return // the label of a call can always be written
	}
	call.cancelled = make(chan struct{})
	c.calls.cancels[call.label] = call
	c.enqueue(c.protocol.AppendRecord(nil, c.protocol.Types.Cancel, value))
}

// unqueue takes a call out of the queue. It was never sent.
func (t *callTable) unqueue(call *call) {
	i := slices.Index(t.queue, call)
	if i < 0 {
		return
	}
	t.queue = slices.Delete(t.queue, i, i+1)
	t.queueBytes -= int64(len(call.Value))
	t.settle(call, nil)
}

// finish takes a sent call out of the table.
func (t *callTable) finish(call *call, err error) {
	switch {
	case call.abandoned:
		t.abandoned--
		if call.label == 0 {
			t.inFlight--
		}
	case call.state == sent || call.label == 0:
		t.inFlight--
	}
	if call.label != 0 {
		delete(t.labelled, call.label)
	} else {
		delete(t.slots, call.Type)
	}
	t.settle(call, err)
}

func (t *callTable) settle(call *call, err error) {
	call.err = err
	call.state = over
	close(call.finished)
}

// failAll ends every call because the session ended. It returns the given-up ones whose last reply will not come.
func (t *callTable) failAll(reason error) (unanswered []*call) {
	for _, sent := range []iter.Seq[*call]{maps.Values(t.labelled), maps.Values(t.slots)} {
		for call := range sent {
			if call.abandoned {
				unanswered = append(unanswered, call)
			}
		}
	}
	for _, call := range t.queue {
		t.settle(call, withSent(reason, false))
	}
	for _, call := range t.labelled {
		t.settle(call, withSent(reason, true))
	}
	for _, call := range t.slots {
		t.settle(call, withSent(reason, true))
	}
	*t = callTable{}
	t.init()
	return unanswered
}

// withSent says in a copy of the reason whether the request may have reached the peer.
func withSent(reason error, wasSent bool) error {
	e, ok := reason.(*Error)
	if !ok {
		return reason
	}
	copied := *e
	copied.Sent = wasSent
	return &copied
}

// overdue returns the earliest instant at which a given-up unlabelled call costs the session.
func (t *callTable) overdue() (first time.Duration, waiting bool) {
	for _, call := range t.slots {
		if call.abandoned && !mutant.On("sdk.silent-slot-kept") && (!waiting || call.overdue < first) {
			first, waiting = call.overdue, true
		}
	}
	return first, waiting
}
