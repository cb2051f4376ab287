package link

import (
	"errors"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// readLoop takes transport messages until the session ends.
func (c *Conn) readLoop() {
	defer c.running.Done()
	for c.awaitRoom() {
		message, err := c.transport.read()
		if err == nil {
			err = c.handleMessage(message)
		}
		if err != nil {
			c.end(c.readError(err), false)
			return
		}
	}
}

// readError says what a failed read or a record that cannot be means for the session.
func (c *Conn) readError(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	c.mu.Lock()
	opening := !c.settled && c.hello == nil
	c.mu.Unlock()
	if opening && c.refusal(err) {
		return &Error{Kind: Rejected, Reason: c.refused(), Err: err}
	}
	return &Error{Kind: Lost, Err: err}
}

// refusal reports whether a read error while the session is being opened is the peer's refusal.
func (c *Conn) refusal(err error) bool {
	if _, tcp := c.transport.(*tcpTransport); tcp && mutant.On("sdk.orderly-close-lost") {
		return false
	}
	return c.transport.orderly(err) || mutant.On("sdk.cut-is-refusal")
}

// refused says for people what a refusal looks like: a peer that expects TLS closes a connection without it in the same way.
func (c *Conn) refused() string {
	const text = "the peer closed the connection instead of opening the session"
	if t, tcp := c.transport.(*tcpTransport); tcp && t.conn == t.raw {
		return text + ": it refuses the token, or expects TLS"
	}
	return text
}

// handleMessage acts on every record of one transport message, after all their boundaries were checked (W-03, W-14).
func (c *Conn) handleMessage(message []byte) error {
	if err := c.protocol.CheckRecords(message); err != nil {
		return violation("transport message", err)
	}
	for rest := message; len(rest) > 0; {
		var err error
		if rest, err = c.handleRecord(rest); err != nil {
			return err
		}
	}
	return nil
}

// handleRecord acts on the first record of rest, together with the label in front of it if there is one.
func (c *Conn) handleRecord(rest []byte) ([]byte, error) {
	typ, value, rest, err := c.protocol.NextRecord(rest)
	if err != nil {
		return nil, violation("record", err)
	}
	if typ != c.protocol.Types.LabelReply {
		return rest, c.handle(0, typ, value)
	}
	label, err := c.protocol.DecodeLabel(value)
	if err != nil {
		return nil, violation("label", err)
	}
	if len(rest) == 0 {
		return nil, violation("a label stands at the end of a transport message", nil)
	}
	typ, value, rest, err = c.protocol.NextRecord(rest)
	if err != nil {
		return nil, violation("record", err)
	}
	if class := c.protocol.Class(typ); class == Push || class == Control {
		return nil, violation("a label in front of a record that is no reply", nil)
	}
	return rest, c.handle(label, typ, value)
}

func (c *Conn) handle(label uint64, typ uint16, value []byte) error {
	switch c.protocol.Class(typ) {
	case Push:
		return c.handlePush(typ, value)
	case Reply:
		return c.handleReply(label, typ, value)
	case Control:
		return c.handleControl(typ, value)
	}
	c.mu.Lock()
	c.stats.UnknownRecords++
	c.mu.Unlock()
	return nil
}

func (c *Conn) handlePush(typ uint16, value []byte) error {
	if c.options.OnPush == nil {
		return nil
	}
	if err := c.options.OnPush(typ, value); err != nil {
		return violation("push", err)
	}
	return nil
}

func (c *Conn) handleControl(typ uint16, value []byte) error {
	types := &c.protocol.Types
	switch typ {
	case types.Hello:
		return c.handleHello(value)
	case types.Ping:
		return c.handlePing(value)
	case types.Pong:
		return c.handlePong(value)
	case types.Cancelled:
		return c.handleCancelled(value)
	}
	return violation("a control record that only the other side may send", nil)
}

// handleHello opens the session. A hello after the settle time counts for few capabilities and is not answered (C-60).
func (c *Conn) handleHello(value []byte) error {
	hello, err := c.protocol.DecodeHello(value)
	if err != nil {
		return violation("hello", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hello != nil {
		return violation("a second hello", nil)
	}
	if c.unsent != nil {
		return c.unsent
	}
	if c.settled {
		hello.Capabilities &= c.protocol.Capabilities.Late
		hello.Heartbeat = 0
	}
	bits := c.protocol.Capabilities
	if hello.Capabilities&bits.Lifecycle != 0 && !mutant.On("sdk.hello-not-answered") {
		answer, err := c.protocol.AppendClientHello(nil, hello.Capabilities)
		if err != nil {
			return violation("hello", err)
		}
		c.enqueue(c.protocol.AppendRecord(nil, c.protocol.Types.ClientHello, answer))
		c.negotiated = true
	}
	if c.options.Greeting != nil {
		if records := c.options.Greeting(hello); len(records) > 0 {
			c.enqueue(records)
		}
	}
	c.labels = hello.Capabilities&bits.Labels != 0
	c.hello = &hello
	close(c.opened)
	signal(c.rearm)
	c.pump()
	return nil
}

// handlePong notes what the peer has received. An unknown nonce is ignored (W-65); that bytes arrived was noted when they were read.
func (c *Conn) handlePong(value []byte) error {
	nonce, err := c.protocol.DecodeNonce(value)
	if err != nil {
		return violation("pong", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pinged && nonce == c.nonce {
		c.answered = max(c.answered, c.lastPing)
	}
	return nil
}

// handlePing answers with the same nonce, in receive order (W-65).
func (c *Conn) handlePing(value []byte) error {
	nonce, err := c.protocol.DecodeNonce(value)
	if err != nil {
		return violation("ping", err)
	}
	if mutant.On("sdk.pong-of-another-nonce") {
		nonce++
	}
	answer, err := c.protocol.AppendNonce(nil, nonce)
	if err != nil {
		return violation("ping", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.negotiated {
		return violation("a ping in a session that did not ask for it", nil)
	}
	c.enqueue(c.protocol.AppendRecord(nil, c.protocol.Types.Pong, answer))
	return nil
}
