package link

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// webSocketTransport carries each transport message as one binary message.
type webSocketTransport struct {
	conn  *websocket.Conn
	below *endingConn // what conn reads from
	raw   net.Conn    // closing it unblocks everything at once
	buf   []byte
	clock Clock
	once  sync.Once
}

// dialWebSocket upgrades a connection, which dial has secured for an address with TLS. Redirects, proxies, compression and subprotocols are not
// used (W-21). After an error the connection is the caller's to close.
func dialWebSocket(ctx context.Context, url string, dial DialFunc, limits Limits, clock Clock) (*webSocketTransport, error) {
	var below atomic.Pointer[endingConn]
	watched := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		ending := &endingConn{Conn: conn}
		below.Store(ending)
		return ending, nil
	}
	client := &http.Transport{
		DialContext:            watched,
		DialTLSContext:         watched,
		MaxResponseHeaderBytes: limits.HTTPHeader,
		DisableKeepAlives:      false, // the upgrade needs the connection header
	}
	defer client.CloseIdleConnections()
	conn, response, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient: &http.Client{
			Transport:     client,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if response != nil && response.Body != nil {
			_ = response.Body.Close()
		}
		return nil, err
	}
	conn.SetReadLimit(limits.FrameBytes)
	return &webSocketTransport{conn: conn, below: below.Load(), clock: clock}, nil
}

// endingConn remembers that nothing more can be read. The WebSocket library reports the end of a connection inside a message as it reports
// the end of a message.
type endingConn struct {
	net.Conn
	ended atomic.Pointer[error] // of a read that returned nothing
}

// Read returns an error only without bytes, so that an end that is known is one behind everything that came.
func (c *endingConn) Read(p []byte) (int, error) {
	if ended := c.ended.Load(); ended != nil {
		return 0, *ended
	}
	n, err := c.Conn.Read(p)
	if err != nil && n == 0 {
		c.ended.Store(&err)
	}
	if n > 0 {
		err = nil // it comes again with the next read
	}
	return n, err
}

func (t *webSocketTransport) read() ([]byte, error) {
	kind, reader, err := t.conn.Reader(context.Background())
	if err != nil {
		return nil, webSocketError(err)
	}
	if kind != websocket.MessageBinary {
		return nil, violation("text message", nil)
	}
	return t.body(reader)
}

// body reads one message into a buffer that grows with what arrived (D-1).
func (t *webSocketTransport) body(reader io.Reader) ([]byte, error) {
	if t.buf == nil || cap(t.buf) > retainBytes {
		t.buf = make([]byte, firstChunk)
	}
	length := 0
	for {
		if length == len(t.buf) {
			t.buf = grow(t.buf, 2*length)
		}
		n, err := reader.Read(t.buf[length:])
		length += n
		switch {
		case errors.Is(err, io.EOF) && t.below.ended.Load() != nil:
			return nil, io.ErrUnexpectedEOF // the connection ended inside the message
		case errors.Is(err, io.EOF):
			return t.buf[:length], nil
		}
		if err != nil {
			return nil, webSocketError(err)
		}
	}
}

// webSocketError tells a peer that breaks RFC 6455 (W-23) from a connection that ended. A close frame and everything that the network
// reports is an end; what remains is what the WebSocket library refused.
func webSocketError(err error) error {
	var network net.Error
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig):
		return violation("transport message too large", nil)
	case websocket.CloseStatus(err) >= 0,
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, net.ErrClosed), errors.Is(err, context.Canceled), errors.As(err, &network):
		return err
	}
	return violation("WebSocket", err)
}

func (t *webSocketTransport) write(messages [][]byte) error {
	for _, message := range messages {
		if err := t.conn.Write(context.Background(), websocket.MessageBinary, message); err != nil {
			return err
		}
	}
	return nil
}

func (t *webSocketTransport) probe(ctx context.Context) error { return t.conn.Ping(ctx) }

func (t *webSocketTransport) close(graceful bool, wait time.Duration) {
	t.once.Do(func() {
		if !graceful {
			_ = t.raw.Close()
			_ = t.conn.CloseNow()
			return
		}
		stop := t.clock.AfterFunc(wait, func() { _ = t.raw.Close() })
		defer stop()
		_ = t.conn.Close(websocket.StatusNormalClosure, "")
	})
}

func (t *webSocketTransport) orderly(err error) bool {
	return websocket.CloseStatus(err) == websocket.StatusPolicyViolation
}
