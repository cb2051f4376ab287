//go:build unix

package proxy

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// guard is a socket that is bound to a port and does not listen. While nothing else listens there the system refuses connections to the port,
// and it gives the port to nobody else at any time.
type guard struct{ fd int }

// keep binds the guard to a free port of the loopback and returns its address.
func (g *guard) keep() (address string, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return "", fmt.Errorf("guard of a port: %w", err)
	}
	unix.CloseOnExec(fd)
	port, err := bind(fd)
	if err != nil {
		_ = unix.Close(fd)
		return "", fmt.Errorf("guard of a port: %w", err)
	}
	g.fd = fd
	return fmt.Sprintf("127.0.0.1:%d", port), nil
}

func bind(fd int) (port int, err error) {
	if err := share(fd); err != nil {
		return 0, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	return bound.(*unix.SockaddrInet4).Port, nil
}

// share lets a listening socket have the port of its guard.
func share(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) }

// shared is share for a socket that net makes.
func shared(_, _ string, c syscall.RawConn) error {
	var err error
	if control := c.Control(func(fd uintptr) { err = share(int(fd)) }); control != nil {
		return control
	}
	return err
}

func (g *guard) drop() {
	if g.fd > 0 {
		_ = unix.Close(g.fd)
	}
	g.fd = 0
}
