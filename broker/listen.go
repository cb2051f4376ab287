package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/fitzwire/fitz/broker/config"
)

// Addresses of the name localhost, in the order in which they are bound.
var loopbacks = []string{"127.0.0.1", "::1"}

// portAttempts is how often a free port is looked for that both addresses of localhost have.
const portAttempts = 16

// listen opens the sockets of a listener: one, or for localhost one for each loopback address that this machine has, with the
// same port.
func listen(ctx context.Context, l config.Listener) ([]net.Listener, error) {
	if l.Host != "localhost" {
		socket, err := open(ctx, l.Host, l.Port)
		if err != nil {
			return nil, bindError(l, err)
		}
		return []net.Listener{socket}, nil
	}
	for attempt := 1; ; attempt++ {
		sockets, err := listenLoopback(ctx, l.Port)
		if err == nil {
			return sockets, nil
		}
		if l.Port != 0 || attempt == portAttempts || !errors.Is(err, syscall.EADDRINUSE) {
			return nil, bindError(l, err)
		}
	}
}

// listenLoopback opens a port at every loopback address. With port 0 the first address picks it.
func listenLoopback(ctx context.Context, port uint16) ([]net.Listener, error) {
	var sockets []net.Listener
	var missing error
	for _, host := range loopbacks {
		socket, err := open(ctx, host, port)
		if isMissing(err) {
			missing = err
			continue
		}
		if err != nil {
			for _, s := range sockets {
				_ = s.Close() // nothing was accepted
			}
			return nil, err
		}
		sockets = append(sockets, socket)
		port = socket.Addr().(*net.TCPAddr).AddrPort().Port()
	}
	if len(sockets) == 0 {
		return nil, missing
	}
	return sockets, nil
}

// isMissing reports whether the machine does not have the address.
func isMissing(err error) bool {
	return errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}

func open(ctx context.Context, host string, port uint16) (net.Listener, error) {
	var config net.ListenConfig
	return config.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
}

// bindError is one line that says what is in the way and how to change it.
func bindError(l config.Listener, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: address %s is in use; choose another with %s (port 0 picks a free one)", l.From, l.Address(), l.Change)
	}
	return fmt.Errorf("%s: cannot listen at %s: %w", l.From, l.Address(), err)
}
