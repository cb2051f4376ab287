//go:build unix

package transport

import (
	"net"
	"syscall"
	"testing"

	"github.com/fitzwire/fitz/broker/clock"
)

// slow accepts connections that wait to fill segments, and nobody asks whether their peers live.
type slow struct{ net.Listener }

func (s slow) Accept() (net.Conn, error) {
	nc, err := s.Listener.Accept()
	if tcp, ok := nc.(*net.TCPConn); ok && err == nil {
		_ = tcp.SetNoDelay(false)
	}
	return nc, err
}

// W-11: TCP_NODELAY and SO_KEEPALIVE are on, whatever the system or the listener defaults to.
func TestSocketOptions(t *testing.T) {
	inner, err := (&net.ListenConfig{KeepAlive: -1}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(slow{inner}, NewSlots(1), NewPreauth(clock.System(), 1, 1, nil), nil)
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	raw, err := nc.(*Accepted).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for name, option := range map[string][2]int{
		"TCP_NODELAY":  {syscall.IPPROTO_TCP, syscall.TCP_NODELAY},
		"SO_KEEPALIVE": {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
	} {
		var value int
		var failed error
		if err := raw.Control(func(fd uintptr) { value, failed = syscall.GetsockoptInt(int(fd), option[0], option[1]) }); err != nil || failed != nil {
			t.Fatalf("%s: %v, %v", name, err, failed)
		}
		if value == 0 {
			t.Errorf("%s is off", name)
		}
	}
}
