package link

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// resetConn is a connection that ends with a reset instead of an end.
type resetConn struct{ net.Conn }

func (c resetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		err = &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	}
	return n, err
}

// A-06 on TCP: without a hello a close within the settle time is a refusal when it is orderly and a failure when it is not; the same close later,
// or after a hello, is a connection that was lost. A hello confirms at once, silence after the settle time.
func TestRefusalOnTCP(t *testing.T) {
	const settle = time.Second // of the protocol
	for name, test := range map[string]struct {
		reset bool
		hello bool
		after time.Duration
		kind  Kind // 0: the session was opened
	}{
		"at once":                    {kind: Rejected},
		"at the end of the settling": {after: settle - 1, kind: Rejected},
		"after it":                   {after: settle + 1},
		"reset at once":              {reset: true, kind: Refused},
		"reset before the end of it": {reset: true, after: settle - 1, kind: Refused},
		"reset after it":             {reset: true, after: settle + 1},
		"after a hello":              {hello: true},
		"reset after a hello":        {hello: true, reset: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				near, far := net.Pipe()
				r := newRemote(t, far)
				var conn net.Conn = near
				if test.reset {
					conn = resetConn{near}
				}
				began := time.Now()
				result := make(chan dialled, 1)
				go func() {
					c, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: pipe(conn), Token: "t"})
					result <- dialled{c, err}
				}()
				r.expect(text(toyConnect, "t"))
				if test.hello {
					r.send(rec(toyHello, toyHelloValue(bitLabels, 0, 0)))
					synctest.Wait()
				}
				time.Sleep(test.after)
				_ = far.Close()
				d := <-result
				if test.kind != 0 {
					if !IsKind(d.err, test.kind) {
						t.Errorf("got %v", d.err)
					}
					return
				}
				if d.err != nil {
					t.Fatal(d.err)
				}
				<-d.conn.Done()
				if !IsKind(d.conn.Err(), Lost) || test.hello && time.Since(began) != 0 {
					t.Errorf("ended with %v after %v", d.conn.Err(), time.Since(began))
				}
				session{d.conn, r}.close(t)
			})
		})
	}
}

// A-06 on WebSocket: of all codes only 1008 is a refusal, and a connection that ends without a code is none.
func TestRefusalOnWebSocket(t *testing.T) {
	for code, kind := range map[websocket.StatusCode]Kind{
		websocket.StatusPolicyViolation: Rejected, websocket.StatusNormalClosure: Refused, websocket.StatusGoingAway: Refused,
		websocket.StatusInternalError: Refused, websocket.StatusTryAgainLater: Refused, 3000: Refused, 0: Refused,
	} {
		address := webSocketPeer(t, func(_ context.Context, c *websocket.Conn) {
			if code == 0 {
				_ = c.CloseNow()
				return
			}
			_ = c.Close(code, "connect failed: x")
		})
		if _, err := Dial(t.Context(), address, toyProtocol(), Options{}); !IsKind(err, kind) {
			t.Errorf("%v: %v", code, err)
		}
	}
}

// brokenConn cannot be written to; what the peer had said before can be read.
type brokenConn struct {
	net.Conn
	said chan error
}

func (c brokenConn) Write([]byte) (int, error) { return 0, syscall.EPIPE }
func (c brokenConn) Read([]byte) (int, error)  { return 0, <-c.said }
func (c brokenConn) Close() error {
	select {
	case c.said <- net.ErrClosed:
	default:
	}
	return nil
}

// When the first record cannot be sent, what the peer has said decides why; a peer that says nothing has opened no session.
func TestFirstRecordCannotBeSent(t *testing.T) {
	for _, says := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			conn := brokenConn{said: make(chan error, 1)}
			if says {
				conn.said <- errToy
			}
			began := time.Now()
			_, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: pipe(conn)})
			want := syscall.EPIPE
			if says && !errors.Is(err, errToy) || !says && !errors.Is(err, want) || !IsKind(err, Refused) || says != (time.Since(began) == 0) {
				t.Errorf("says %v: %v after %v", says, err, time.Since(began))
			}
		})
	}
}
