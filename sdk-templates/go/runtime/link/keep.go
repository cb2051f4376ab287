package link

import (
	"context"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/mutant"
)

// keepLoop sends heartbeats, notices a silent peer or one that takes nothing, and gives a session up whose given-up requests are never
// answered (W-59, W-66).
func (c *Conn) keepLoop() {
	defer c.running.Done()
	timer := newAlarm(c.clock, c.limits.Heartbeat)
	defer func() { timer.stop() }()
	for {
		now := c.clock.Now()
		next, err := c.upkeep(now)
		if err != nil {
			c.end(err, false)
			return
		}
		// A write that begins meanwhile is seen before it is due, because the next look comes before that.
		wait := min(next, now+c.limits.PeerSilence) - c.clock.Now()
		if wait <= 0 { // the clock went on meanwhile
			continue
		}
		timer.set(wait)
		select {
		case <-timer.rings:
		case <-c.rearm:
		case <-c.done:
			return
		}
	}
}

// upkeep does what is due at now and returns when to look again.
func (c *Conn) upkeep(now time.Duration) (time.Duration, error) {
	heard := time.Duration(c.received.Load())
	c.mu.Lock()
	overdue, waiting := c.calls.overdue()
	writing, writeDue := c.writing, c.writeDue
	heartbeat := c.heartbeat()
	c.mu.Unlock()
	switch {
	case waiting && now >= overdue:
		return now, &Error{Kind: Lost, Reason: "a given-up request was not answered"}
	case writing && now >= writeDue:
		return now, &Error{Kind: Lost, Reason: "the peer takes nothing"}
	}
	next, err := now, error(nil)
	if heartbeat > 0 {
		next, err = c.beat(now, heard, heartbeat)
	} else {
		next, err = c.probe(now, heard)
	}
	if waiting {
		next = min(next, overdue)
	}
	if writing {
		next = min(next, writeDue)
	}
	return next, err
}

// heartbeat returns the announced heartbeat of a negotiated session, or 0. c.mu is held.
func (c *Conn) heartbeat() time.Duration {
	if !c.negotiated {
		return 0
	}
	return c.hello.Heartbeat
}

// silence returns how long nothing may come in a session with that heartbeat.
func (c *Conn) silence(heartbeat time.Duration) time.Duration {
	return time.Duration(float64(heartbeat) * float64(c.limits.PeerSilence) / float64(c.limits.Heartbeat))
}

// KeptFor returns how long the peer surely keeps the session from now on, whatever becomes of the connection; 0 or less: it may have ended it.
// A peer that announced a heartbeat ends a session in which it has heard nothing for some of them, and what it has heard is only known
// from its answers: that it still talks says nothing. False: the peer waits without end, or the session has ended, which Done tells.
func (c *Conn) KeptFor() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	heartbeat := c.heartbeat()
	if heartbeat == 0 || c.ended != nil || mutant.On("sdk.unheard-kept") {
		return 0, false
	}
	return c.answered + c.silence(heartbeat) - c.clock.Now(), true
}

// beat sends PING when nothing was sent, nothing of it was answered or nothing arrived for a heartbeat, at most one per heartbeat (W-66).
func (c *Conn) beat(now, heard, heartbeat time.Duration) (time.Duration, error) {
	silence := c.silence(heartbeat)
	if mutant.On("sdk.silent-peer-kept") {
		silence *= 1000
	}
	if now-heard >= silence {
		return now, &Error{Kind: Lost, Reason: "the peer is silent"}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	due := c.pingDue(heard, heartbeat)
	if now >= due {
		if err := c.ping(); err != nil {
			return now, err
		}
		c.lastPing, c.pinged = now, true
		due = c.pingDue(heard, heartbeat)
	}
	return min(due, heard+silence), nil
}

// pingDue returns when the next PING is due. c.mu is held.
func (c *Conn) pingDue(heard, heartbeat time.Duration) time.Duration {
	due := min(heard, c.lastSent, c.answered) + heartbeat
	if mutant.On("sdk.no-heartbeat") {
		due *= 1000
	}
	if c.pinged {
		return max(due, c.lastPing+heartbeat)
	}
	return due
}

// ping enqueues a PING. c.mu is held.
func (c *Conn) ping() error {
	c.nonce++
	value, err := c.protocol.AppendNonce(nil, c.nonce)
	if err != nil {
		return &Error{Kind: Invalid, Reason: "ping", Err: err}
	}
	c.enqueue(c.protocol.AppendRecord(nil, c.protocol.Types.Ping, value))
	return nil
}

// probe watches over a session without heartbeat through its transport (C-61).
func (c *Conn) probe(now, heard time.Duration) (time.Duration, error) {
	if now-heard < c.limits.Heartbeat {
		return heard + c.limits.Heartbeat, nil
	}
	ctx, cancel := withTimeout(context.Background(), c.clock, max(c.limits.PeerSilence-c.limits.Heartbeat, c.limits.Heartbeat))
	defer cancel()
	if err := c.transport.probe(ctx); err != nil {
		return now, &Error{Kind: Lost, Reason: "the peer is silent"}
	}
	return c.clock.Now() + c.limits.Heartbeat, nil
}
