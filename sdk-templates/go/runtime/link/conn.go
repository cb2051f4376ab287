package link

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// Options says how to open a session. The zero value is usable.
type Options struct {
	Token  string // sent when the session is opened; empty means anonymous
	Limits Limits // fields that are not positive are taken from the protocol

	// OnPush receives every record of class Push in the order of arrival, on the goroutine that reads, so it must return at once and
	// must not call methods of the Conn that wait. The value is only valid during the call. An error ends the session as a violation.
	OnPush func(typ uint16, value []byte) error
	// OnLate receives the last reply of a request that was given up, so that a grant nobody wants can be released (L-73). It runs on
	// the goroutine that reads, under the same rules as OnPush.
	OnLate func(request Request, reply []byte)
	// Greeting returns records to be sent as soon as the hello of the peer arrived, after the answer to it; nil for none. It sees the
	// capabilities that count in the session, and must not wait. Nil means none.
	Greeting func(Hello) []byte
	// Clock measures every time of the session; nil means that of the Go runtime.
	Clock Clock
	// Dial opens network connections; nil means a net.Dialer, which tries every address of a name.
	Dial DialFunc
	// TLS secures the connections to addresses with TLS. For others it must be empty.
	TLS TLS
}

// Stats is what a session is at work on, and what it met and did not act upon.
type Stats struct {
	Sent           int    // requests whose last reply has not arrived, the given-up ones included
	Queued         int    // requests that wait to be sent
	GivenUp        int    // requests that nobody waits for and whose last reply has not arrived
	UnknownRecords uint64 // records of an unknown number (W-05)
	LateReplies    uint64 // replies of requests that were given up (W-58)
}

// Conn is one open session. All methods may be called from any goroutine.
type Conn struct {
	protocol  *Protocol
	limits    Limits
	options   Options
	transport transport
	clock     Clock
	received  *atomic.Int64 // when bytes last arrived: a time.Duration of the clock

	wake    chan struct{} // something to write
	room    chan struct{} // something was written
	rearm   chan struct{} // the keeper must look at its deadlines again
	opened  chan struct{} // the hello arrived
	done    chan struct{} // the session ended
	running sync.WaitGroup

	mu         sync.Mutex
	ended      error
	unsent     error // why the first record could not be sent
	hello      *Hello
	settled    bool // Dial came to an end; a hello is late from now on
	labels     bool
	negotiated bool
	calls      callTable
	out        [][]byte
	spare      [][]byte
	lastSent   time.Duration // of the clock
	answered   time.Duration // when the latest message was sent that the peer has surely received, because it has answered it
	lastPing   time.Duration
	pinged     bool          // there was one
	writeDue   time.Duration // when what is being written must be through
	writing    bool          // something is
	nonce      uint64
	stats      Stats
}

// Dial opens a session. It returns as soon as the hello of the peer arrived, or as soon as the peer was silent for the settle time,
// which means a session without capabilities (C-60). The error is that of ctx when ctx ended, else an *Error: Invalid for the
// address, the token or the files of TLS, Refused when no address of the host could be reached in time or TLS was not agreed upon, Rejected
// when the peer ended the connection instead of opening the session.
func Dial(ctx context.Context, address string, p *Protocol, o Options) (*Conn, error) {
	target, err := parseTarget(address, p)
	if err != nil {
		return nil, err
	}
	first, err := p.AppendConnect(nil, o.Token)
	if err != nil {
		return nil, &Error{Kind: Invalid, Reason: "token", Err: err}
	}
	if o.TLS.given() && !target.secure {
		return nil, invalid("address %q: there are options of TLS, and the address is one without", HideAddress(address))
	}
	o.Limits = o.Limits.WithDefaults(p.Limits)
	if o.Clock == nil {
		o.Clock = machine{}
	}
	timed, cancel := withTimeout(ctx, o.Clock, o.Limits.Connect)
	defer cancel()
	c, err := connect(timed, target, p, o)
	if err == nil {
		err = c.open(timed, first)
	}
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if timed.Err() != nil {
		return nil, &Error{Kind: Refused, Reason: "no session within the connect timeout", Err: errTimeout}
	}
	return nil, withoutToken(err, o.Token)
}

// connect opens the transport and starts the goroutines of a Conn.
func connect(ctx context.Context, target target, p *Protocol, o Options) (*Conn, error) {
	c := &Conn{
		protocol: p,
		limits:   o.Limits,
		options:  o,
		received: new(atomic.Int64),
		clock:    o.Clock,
		wake:     make(chan struct{}, 1),
		room:     make(chan struct{}, 1),
		rearm:    make(chan struct{}, 1),
		opened:   make(chan struct{}),
		done:     make(chan struct{}),
	}
	c.lastSent = c.clock.Now()
	c.answered = c.lastSent // the hello answers what comes first
	c.received.Store(int64(c.lastSent))
	c.calls.init()
	var secure *tls.Config
	if target.secure {
		var err error
		if secure, err = o.TLS.config(target); err != nil {
			return nil, err
		}
	}
	if err := c.connectTransport(ctx, target, secure); err != nil {
		return nil, &Error{Kind: Refused, Reason: target.hostPort, Err: err}
	}
	c.running.Add(3)
	go c.readLoop()
	go c.writeLoop()
	go c.keepLoop()
	return c, nil
}

func (c *Conn) connectTransport(ctx context.Context, target target, secure *tls.Config) error {
	d := &dialling{conn: c, secure: secure}
	if target.websocket {
		t, err := dialWebSocket(ctx, target.url, d.open, c.limits, c.clock)
		if err != nil {
			d.giveUp()
			return err
		}
		t.raw = d.lowest()
		c.transport = t
		return nil
	}
	conn, err := d.open(ctx, "tcp", target.hostPort)
	if err != nil {
		return err
	}
	c.transport = newTCPTransport(conn, d.lowest(), c.limits, c.clock)
	return nil
}

// open sends the first record and waits for the hello or for the settle time. On an error nothing of the Conn is left.
func (c *Conn) open(ctx context.Context, first []byte) error {
	c.mu.Lock()
	c.enqueue(c.protocol.AppendRecord(nil, c.protocol.Types.Connect, first))
	c.mu.Unlock()

	wait := c.limits.Settle
	if mutant.On("sdk.settle-skipped") {
		wait = 0
	}
	settle := newAlarm(c.clock, wait)
	defer settle.stop()
	select {
	case <-c.opened:
	case <-settle.rings:
	case <-c.done:
	case <-ctx.Done():
		c.end(&Error{Kind: Lost, Err: errTimeout}, false)
	}
	c.mu.Lock()
	c.settled = true
	unsent := c.unsent
	c.mu.Unlock()
	if unsent != nil { // the peer said nothing that explains it
		c.end(unsent, false)
	}
	err := c.Err()
	if err == nil {
		return nil
	}
	_ = c.Close() // the reason is in err already
	return openError(err)
}

// openError turns the end of a session that was never open into the error of Dial.
func openError(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Kind == Lost {
		return &Error{Kind: Refused, Reason: e.Reason, Err: e.Err}
	}
	return err
}

// Hello returns the hello of the peer. False: none has arrived so far.
func (c *Conn) Hello() (Hello, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hello == nil {
		return Hello{}, false
	}
	return *c.hello, true
}

// Stats returns what the session is at work on and its counters.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, t := c.stats, &c.calls
	s.Sent, s.Queued, s.GivenUp = len(t.labelled)+len(t.slots), len(t.queue), t.abandoned
	return s
}

// Done returns a channel that is closed when the session has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns why the session ended, an *Error, or nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended
}

// Fail ends the session because the layer above found that the peer broke the protocol.
func (c *Conn) Fail(reason string, cause error) { c.end(violation(reason, cause), false) }

// Close ends the session and waits until its goroutines have ended, at most for the close timeout: an *Error of kind Timeout then
// says that a callback does not return. It is idempotent. Requests that are waiting fail with Closed.
func (c *Conn) Close() error {
	c.end(&Error{Kind: Closed}, true)
	finished := make(chan struct{})
	go func() {
		c.running.Wait()
		close(finished)
	}()
	timer := newAlarm(c.clock, c.limits.CloseTimeout)
	defer timer.stop()
	select {
	case <-finished:
		return nil
	case <-timer.rings:
		return &Error{Kind: Timeout, Reason: "the session did not end in time"}
	}
}

// end ends the session once; the first reason stays.
func (c *Conn) end(reason error, graceful bool) {
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return
	}
	reason = withoutToken(reason, c.options.Token)
	c.ended = reason
	c.out = nil
	unanswered := c.calls.failAll(reason)
	close(c.done)
	c.mu.Unlock()
	for _, call := range unanswered {
		c.tellLate(call, nil)
	}
	c.transport.close(graceful, c.limits.CloseTimeout/2)
}

// signal wakes whoever waits on the channel, without waiting for it.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
