package proxy

import (
	"context"
	"net"
	"time"
)

// door is a listening socket whose address outlives it: it can be closed, so that the system refuses connections, and opened again.
type door struct {
	address  string
	listener net.Listener
	guard    guard // keeps the port while the door is closed
}

func openDoor() (*door, error) {
	d := &door{}
	address, err := d.guard.keep()
	if err != nil {
		return nil, err
	}
	d.address = address
	if err := d.open(); err != nil {
		d.guard.drop()
		return nil, err
	}
	d.address = d.listener.Addr().String()
	return d, nil
}

// shut closes the listening socket and keeps its port.
func (d *door) shut() {
	if d.listener != nil {
		_ = d.listener.Close()
		d.listener = nil
	}
}

// open listens, again on the same address.
func (d *door) open() error {
	if d.listener != nil {
		return nil
	}
	config := net.ListenConfig{Control: shared}
	l, err := config.Listen(context.Background(), "tcp", d.address)
	if err != nil {
		return err
	}
	d.listener = l
	return nil
}

func (d *door) close() {
	d.shut()
	d.guard.drop()
}

// reset ends a connection with RST: what was not sent is lost, and the other side is told that it is.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// dial connects to a broker. The buffer for what the broker sends is small, so that a client that does not read is soon felt by the broker.
func dial(ctx context.Context, address string, readBuffer int) (*net.TCPConn, error) {
	dialer := net.Dialer{KeepAlive: -1, Timeout: dialTimeout}
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	far := c.(*net.TCPConn)
	if err := far.SetReadBuffer(readBuffer); err != nil {
		_ = far.Close()
		return nil, err
	}
	return far, nil
}

// dialTimeout bounds a dial to an address from which nothing comes back.
const dialTimeout = 10 * time.Second
