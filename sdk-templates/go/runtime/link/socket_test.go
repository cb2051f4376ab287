package link

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// webSocketPeer serves one connection without a token and returns its address.
func webSocketPeer(t *testing.T, serve func(context.Context, *websocket.Conn)) string {
	t.Helper()
	return webSocketPeerWith(t, "", serve)
}

func webSocketPeerWith(t *testing.T, token string, serve func(context.Context, *websocket.Conn)) string {
	t.Helper()
	var handlers sync.WaitGroup // the server does not wait for upgraded connections
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		defer func() { _ = conn.CloseNow() }()
		if _, message, err := conn.Read(r.Context()); err != nil || string(message) != string(text(toyConnect, token)) {
			t.Errorf("first message %x, %v", message, err)
			return
		}
		serve(r.Context(), conn)
	}))
	t.Cleanup(func() {
		server.Close()
		handlers.Wait()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http") + "/toy"
}

func sendHello(ctx context.Context, conn *websocket.Conn) {
	_ = conn.Write(ctx, websocket.MessageBinary, rec(toyHello, toyHelloValue(bitLabels, 0, 0)))
}

// opened sends the hello and waits for a first request, which shows that the session is open on the other side.
func opened(ctx context.Context, conn *websocket.Conn) {
	sendHello(ctx, conn)
	_, _, _ = conn.Read(ctx)
}

func TestWebSocketSession(t *testing.T) {
	closed := make(chan websocket.StatusCode, 1)
	address := webSocketPeer(t, func(ctx context.Context, conn *websocket.Conn) {
		sendHello(ctx, conn)
		large := make([]byte, 1<<14)
		for {
			_, message, err := conn.Read(ctx)
			if err != nil {
				closed <- websocket.CloseStatus(err)
				return
			}
			reply := append([]byte{byte(toyLabelled)}, message[1:11]...)
			_ = conn.Write(ctx, websocket.MessageBinary, append(reply, rec(toyEcho, large)...))
		}
	})
	c, err := Dial(t.Context(), address, toyProtocol(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		reply, err := c.Call(t.Context(), echo("a"))
		if err != nil || len(reply) != 1<<14 {
			t.Fatalf("%d bytes, %v", len(reply), err)
		}
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if status := <-closed; status != websocket.StatusNormalClosure {
		t.Fatalf("closed with %v", status)
	}
}

func TestWebSocketEnds(t *testing.T) {
	for name, test := range map[string]struct {
		serve  func(context.Context, *websocket.Conn)
		dialed bool
		kind   Kind
	}{
		"refused token (A-06)": {func(_ context.Context, c *websocket.Conn) {
			_ = c.Close(websocket.StatusPolicyViolation, "connect failed: x")
		}, false, Rejected},
		"going away is no refusal (A-06)": {func(_ context.Context, c *websocket.Conn) {
			_ = c.Close(websocket.StatusGoingAway, "")
		}, false, Refused},
		"text message (W-22)": {func(ctx context.Context, c *websocket.Conn) {
			opened(ctx, c)
			_ = c.Write(ctx, websocket.MessageText, []byte("x"))
			_, _, _ = c.Read(ctx)
		}, true, Violation},
		"message too large (W-23)": {func(ctx context.Context, c *websocket.Conn) {
			opened(ctx, c)
			_ = c.Write(ctx, websocket.MessageBinary, make([]byte, 1<<16+1))
			_, _, _ = c.Read(ctx)
		}, true, Violation},
		"empty message (W-03)": {func(ctx context.Context, c *websocket.Conn) {
			opened(ctx, c)
			_ = c.Write(ctx, websocket.MessageBinary, nil)
			_, _, _ = c.Read(ctx)
		}, true, Violation},
		"closed by the peer": {func(ctx context.Context, c *websocket.Conn) {
			opened(ctx, c)
			_ = c.Close(websocket.StatusTryAgainLater, "slow consumer")
		}, true, Lost},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Dial(t.Context(), webSocketPeer(t, test.serve), toyProtocol(), Options{})
			if (err == nil) != test.dialed {
				t.Fatalf("dial: %v", err)
			}
			if test.dialed {
				_, callErr := c.Call(t.Context(), echo("a"))
				if !IsKind(callErr, test.kind) {
					t.Errorf("call: %v", callErr)
				}
				<-c.Done()
				err = c.Err()
				_ = c.Close()
			}
			if !IsKind(err, test.kind) {
				t.Fatalf("got %v, want kind %v", err, test.kind)
			}
		})
	}
}

// W-23, SDK side: a peer that breaks RFC 6455 is a violation, not a lost connection.
func TestWebSocketBrokenFraming(t *testing.T) {
	open := make(chan struct{})
	address := webSocketPeer(t, func(ctx context.Context, conn *websocket.Conn) {
		close(open)
		_, _, _ = conn.Read(ctx)
	})
	hello := append([]byte{0x82, 12}, rec(toyHello, toyHelloValue(bitLabels, 0, 0))...)
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &injector{Conn: conn, hello: hello, open: open, broken: []byte{0xf2, 0x00}}, err // reserved bits set
	}
	c, err := Dial(t.Context(), address, toyProtocol(), Options{Dial: dial})
	if err == nil { // else the broken frame was there before Dial returned
		<-c.Done()
		err = c.Err()
		_ = c.Close()
	}
	if !IsKind(err, Violation) {
		t.Fatalf("got %v", err)
	}
}

// injector lets the response head of the upgrade through, then hands out a hello and, once the session is open, a broken frame.
type injector struct {
	net.Conn
	hello, broken []byte
	open          chan struct{}
	head          bool
}

func (i *injector) Read(p []byte) (int, error) {
	if !i.head {
		n, err := i.Conn.Read(p)
		i.head = strings.Contains(string(p[:n]), "\r\n\r\n")
		return n, err
	}
	if len(i.hello) == 0 {
		<-i.open
		i.hello, i.broken = i.broken, nil
	}
	if len(i.hello) == 0 {
		return i.Conn.Read(p)
	}
	n := copy(p, i.hello)
	i.hello = i.hello[n:]
	return n, nil
}

func TestWebSocketRefusedUpgrade(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http")+"/toy", toyProtocol(), Options{})
	if !IsKind(err, Refused) {
		t.Fatalf("got %v", err)
	}
}

func TestTCPSession(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := listener.Accept()
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		defer func() { _ = conn.Close() }()
		r := newRemote(t, conn)
		r.expect(text(toyConnect, ""))
		r.send(rec(toyHello, toyHelloValue(bitLabels, 0, 0)))
		r.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
		r.send(labelled(toyLabelled, 1, text(toyEcho, "A")))
		if _, err := r.reader.next(); err == nil {
			t.Error("more than one request")
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	c, err := Dial(t.Context(), "toy://localhost:"+port, toyProtocol(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := c.Call(t.Context(), echo("a"))
	if err != nil || string(reply) != "A" {
		t.Fatalf("%q, %v", reply, err)
	}
	_ = c.Close()
	<-served
	_ = listener.Close()
	if _, err := Dial(t.Context(), "toy://localhost:"+port, toyProtocol(), Options{}); !IsKind(err, Refused) {
		t.Fatalf("nobody listens: %v", err)
	}
	var e *Error
	if !errors.As(err, &e) && err != nil {
		t.Fatalf("%v is no *Error", err)
	}
}
