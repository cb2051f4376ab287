package link

// outMax is the number of queued transport messages from which on the reader waits for the writer. Requests are bounded by
// Limits.InFlight and Limits.Labels; what this bounds are answers to the peer, so that a peer that asks and never reads is not read
// any more.
const outMax = 1024

// enqueue hands one transport message to the writer. c.mu is held.
func (c *Conn) enqueue(message []byte) {
	if c.ended != nil {
		return
	}
	c.out = append(c.out, message)
	signal(c.wake)
}

// writeLoop writes what was enqueued, as much as there is at a time.
func (c *Conn) writeLoop() {
	defer c.running.Done()
	for {
		select {
		case <-c.wake:
		case <-c.done:
			return
		}
		messages := c.takeOut()
		if len(messages) == 0 {
			continue
		}
		if err := c.transport.write(messages); err != nil {
			c.unwritten(&Error{Kind: Lost, Reason: "write", Err: err})
			return
		}
		c.wrote(messages)
	}
}

// unwritten ends a session that nothing can be sent in. While it is being opened the reader is given the time to find out why: the peer may have
// said so before it closed the connection.
func (c *Conn) unwritten(reason error) {
	c.mu.Lock()
	opening := !c.settled && c.hello == nil
	if opening {
		c.unsent = reason
	}
	c.mu.Unlock()
	if !opening {
		c.end(reason, false)
	}
}

func (c *Conn) takeOut() [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	messages := c.out
	c.out, c.spare = c.spare, nil
	if len(messages) > 0 {
		c.writing, c.writeDue = true, c.clock.Now()+c.limits.PeerSilence
	}
	return messages
}

func (c *Conn) wrote(messages [][]byte) {
	clear(messages)
	c.mu.Lock()
	c.lastSent, c.writing = c.clock.Now(), false
	c.spare = messages[:0]
	c.mu.Unlock()
	signal(c.room)
}

// awaitRoom waits until the peer has taken what was answered so far. False: the session ended.
func (c *Conn) awaitRoom() bool {
	for {
		c.mu.Lock()
		full := len(c.out) >= outMax
		c.mu.Unlock()
		if !full {
			return true
		}
		select {
		case <-c.room:
		case <-c.done:
			return false
		}
	}
}
