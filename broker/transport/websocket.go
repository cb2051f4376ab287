package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// First bytes of the frames that the broker sends: final, opcode; never masked (RFC 6455 section 5.2).
const (
	binaryFrame = 0x80 | 0x2
	closeFrame  = 0x80 | 0x8
	pongFrame   = 0x80 | 0xA
)

// Sizes of the buffers between the socket and the library. What is read from the socket for its frame parser goes through the
// first, and large payloads past it straight into the receive buffer. The two that the library asks for are as small as they can
// be: one holds the rest of a frame header, and nothing is ever written through the other.
const (
	aheadBuffer  = 256
	parserBuffer = 16
)

// wsConn is a connection whose messages are binary WebSocket messages. The library accepts the handshake and reads: it checks
// frames, removes masks and joins fragments. Everything that is sent is built here, so that frames of several messages leave in
// one write, pongs stand in the outbound queue, and a close carries the code and the text of the protocol; what the library
// itself writes is dropped.
type wsConn struct {
	socket
	ws     *websocket.Conn
	parser *bufio.Reader // of the library, to know whether bytes of the next frame are here
	ahead  []byte        // received and not given to the parser yet
	space  [aheadBuffer]byte
	heads  heads // of the frames that the parser has been given
	hooks  Hooks
	buf    growing
	probe  [1]byte
	// begun says that bytes arrived that belong to no finished message or control frame.
	begun   bool
	inside  bool  // a data frame was begun
	failed  error // of the last read from the socket
	refused error // what the head violates that stands behind everything the parser has been given
}

// Upgrader accepts WebSocket handshakes (W-20, W-21, W-24).
type Upgrader struct {
	// Origins that may connect, as NormalizeOrigin returns them.
	Origins []string
	// MaxMessage is frame_recv_max, or preauth_frame_max where SetMaxMessage raises it later.
	MaxMessage int
	Inbound    *Inbound
}

// ErrOrigin is returned for an upgrade from an origin that is not configured (W-24).
var ErrOrigin = errors.New("origin not allowed")

// Upgrade takes the handshake over. When it returns an error, the request has been answered: 403 and ErrOrigin for an origin that is
// not configured, 400 for every other mistake.
func (u *Upgrader) Upgrade(w http.ResponseWriter, r *http.Request) (Conn, error) {
	conn, err := u.upgrade(w, r)
	if err != nil {
		// A body that was announced is not waited for. It fails only on a connection that is gone.
		_ = http.NewResponseController(w).SetReadDeadline(longAgo)
		return nil, err
	}
	return conn, nil
}

func (u *Upgrader) upgrade(w http.ResponseWriter, r *http.Request) (*wsConn, error) {
	if !u.allowed(r) {
		http.Error(w, "origin not allowed", http.StatusForbidden)
		return nil, ErrOrigin
	}
	c := &wsConn{heads: heads{max: u.MaxMessage}}
	c.buf.claim.in = u.Inbound
	ws, err := websocket.Accept(&handshake{ResponseWriter: w, conn: c}, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // decided above
		CompressionMode:    websocket.CompressionDisabled,
		OnPingReceived: func(_ context.Context, payload []byte) bool {
			c.controlEnds()
			c.hooks.Ping(payload)
			return false
		},
		OnPongReceived: func(context.Context, []byte) { c.controlEnds() },
	})
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(-1) // heads has the bound, and join
	c.ws = ws
	return c, nil
}

// allowed is rule W-24.
func (u *Upgrader) allowed(r *http.Request) bool {
	origins, present := r.Header["Origin"]
	if !present {
		return true
	}
	if len(origins) != 1 {
		return false
	}
	for _, allowed := range u.Origins {
		if origins[0] == allowed {
			return true
		}
	}
	return false
}

// NormalizeOrigin brings a configured origin to the form that browsers send: lower case, without the default port (W-24).
func NormalizeOrigin(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("origin %q is not a URL", text)
	case u.Scheme == "" || u.Host == "" || u.Hostname() == "":
		return "", fmt.Errorf("origin %q needs a scheme and a host, such as https://example.com", text)
	case u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(text, "#"):
		return "", fmt.Errorf("origin %q must be scheme, host and port only", text)
	case strings.Contains(text, "*"):
		return "", fmt.Errorf("origin %q must not contain *", text)
	}
	scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()
	if strings.HasSuffix(u.Host, ":") {
		return "", fmt.Errorf("origin %q has an empty port", text)
	}
	if strings.ContainsFunc(host, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return "", fmt.Errorf("origin %q: browsers send the host in the form xn--", text)
	}
	if strings.Contains(host, ":") {
		ip, err := netip.ParseAddr(host)
		if err != nil || ip.Zone() != "" {
			return "", fmt.Errorf("origin %q: the host is no address", text)
		}
		host = "[" + ip.String() + "]" // browsers leave zeros away
	}
	if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0 || port[0] == '0') {
		return "", fmt.Errorf("origin %q: the port is not a number from 1 to 65535", text)
	}
	if port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return scheme + "://" + host, nil
	}
	return scheme + "://" + host + ":" + port, nil
}

// handshake is the response writer that the library sees. Refusals become 400 (W-20), and hijacking hands out the connection
// that reads through c.
type handshake struct {
	http.ResponseWriter
	conn *wsConn
}

func (h *handshake) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		status = http.StatusBadRequest
	}
	h.ResponseWriter.WriteHeader(status)
}

func (h *handshake) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	nc, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, _ := rw.Reader.Peek(rw.Reader.Buffered())
	if accepted, ok := nc.(*Accepted); ok {
		accepted.upgraded()
	}
	h.conn.nc = nc
	h.conn.ahead = bytes.Clone(early)
	h.conn.begun = len(early) > 0
	h.conn.parser = bufio.NewReaderSize(muted{h.conn}, parserBuffer)
	return muted{h.conn}, bufio.NewReadWriter(h.conn.parser, bufio.NewWriterSize(muted{h.conn}, parserBuffer)), nil
}

// muted is the connection as the library sees it: it reads, what it writes is dropped, and its end only ends reading.
type muted struct{ c *wsConn }

func (m muted) Read(p []byte) (int, error)       { return m.c.receive(p) }
func (m muted) Write(p []byte) (int, error)      { return len(p), nil }
func (m muted) Close() error                     { m.c.stop(); return nil }
func (m muted) LocalAddr() net.Addr              { return m.c.nc.LocalAddr() }
func (m muted) RemoteAddr() net.Addr             { return m.c.nc.RemoteAddr() }
func (m muted) SetDeadline(time.Time) error      { return nil }
func (m muted) SetReadDeadline(time.Time) error  { return nil }
func (m muted) SetWriteDeadline(time.Time) error { return nil }

func (c *wsConn) Transport() string { return WebSocket }
func (c *wsConn) Bind(h Hooks)      { c.hooks = h }

// SetMaxMessage is part of Conn.
func (c *wsConn) SetMaxMessage(n int) { c.heads.max = n }

// receive reads for the frame parser, up to a head that it must not see.
func (c *wsConn) receive(p []byte) (int, error) {
	if c.refused != nil {
		c.failed = c.refused
		return 0, c.refused
	}
	n, err := c.received(p)
	pass, violation := c.heads.follow(p[:n])
	if violation == nil {
		return n, err
	}
	c.refused = violation
	if pass == 0 {
		c.failed = violation
		return 0, violation
	}
	return pass, nil
}

// received returns what is here already, else what comes from the socket.
func (c *wsConn) received(p []byte) (int, error) {
	if len(c.ahead) == 0 {
		if len(p) >= aheadBuffer {
			return c.take(p)
		}
		n, err := c.take(c.space[:])
		if n == 0 {
			return 0, err
		}
		c.ahead = c.space[:n]
	}
	n := copy(p, c.ahead)
	c.ahead = c.ahead[n:]
	return n, nil
}

// take reads from the socket.
func (c *wsConn) take(p []byte) (int, error) {
	if c.readEnds.Load() {
		c.failed = ErrInterrupted
		return 0, c.failed
	}
	c.hooks.Waiting(c.begun)
	n, err := c.read(p)
	if n > 0 {
		c.begun = true
		c.hooks.Received()
		return n, nil
	}
	if err != nil {
		c.failed = err
	}
	return n, err
}

// await waits for the head of the next frame and, where the frame has a payload, for the first byte of it. It could be left to the
// parser, but a session spends most of its life here, and a hostile one all of it; this way both wait with the smallest stack.
func (c *wsConn) await() error {
	if c.parser.Buffered() > 0 || c.refused != nil {
		return nil
	}
	for !frameBegun(c.ahead) {
		if violation := c.heads.mistake(c.ahead); violation != nil {
			return violation
		}
		here := copy(c.space[:], c.ahead)
		n, err := c.take(c.space[here:])
		c.ahead = c.space[:here+n]
		if n == 0 {
			return c.why(err)
		}
	}
	return nil
}

// frameBegun reports whether b is worth a look of the parser: it holds the head of a frame and, when that is a masked binary frame
// with a payload, a byte of it (RFC 6455 section 5.2). All other heads are left to the parser, which judges them.
func frameBegun(b []byte) bool {
	if len(b) < 2 {
		return false
	}
	if b[0]&(reserved|opcodeBits) != opBinary || b[1]&maskBit == 0 {
		return true
	}
	head := 2 + maskSize
	switch b[1] & lengthBits {
	case 0:
		return len(b) >= head
	case length16:
		head += 2
	case length64:
		head += 8
	}
	return len(b) > head
}

// waiting reports whether received bytes are here that belong to nothing that was read.
func (c *wsConn) waiting() bool { return len(c.ahead) > 0 || c.parser.Buffered() > 0 }

// stop is what remains of the library closing the connection: it does so when a control frame does not arrive in time, and
// after it has read a close frame.
func (c *wsConn) stop() {
	_ = c.nc.SetReadDeadline(longAgo)
}

// controlEnds notes that a control frame was read completely.
func (c *wsConn) controlEnds() { c.begun = c.inside || c.waiting() }

// EndRead is part of Conn.
func (c *wsConn) EndRead() { c.buf.release() }

// ReadMessage is part of Conn.
func (c *wsConn) ReadMessage() ([]byte, error) {
	c.buf.release()
	if err := c.await(); err != nil {
		return nil, err
	}
	kind, message, err := c.ws.Reader(context.Background())
	if err != nil {
		return nil, c.why(err)
	}
	if kind != websocket.MessageBinary {
		return nil, &Violation{wire.CloseTextMessage}
	}
	c.inside = true
	payload, err := c.join(message)
	if err != nil {
		c.buf.release()
		return nil, err
	}
	c.inside = false
	c.begun = c.waiting()
	return payload, nil
}

// join reads the message to its end into the receive buffer.
func (c *wsConn) join(message io.Reader) ([]byte, error) {
	length := 0
	for {
		space := c.buf.bytes()[length:min(len(c.buf.bytes()), c.heads.max)]
		if len(space) == 0 {
			space = c.probe[:]
		}
		n, err := message.Read(space)
		if n > 0 && &space[0] == &c.probe[0] {
			if length == c.heads.max {
				return nil, &Violation{wire.CloseFrameTooLarge}
			}
			if !c.buf.grow(length, c.heads.max, c.hooks) {
				return nil, ErrInterrupted
			}
			c.buf.bytes()[length] = c.probe[0]
		}
		length += n
		if err == io.EOF && c.failed == nil { // the library takes the end of the connection for that of the message
			return c.buf.bytes()[:length:length], nil
		}
		if err != nil {
			return nil, c.why(err)
		}
	}
}

// why tells from an error of the library what happened.
func (c *wsConn) why(err error) error {
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed):
		if !utf8.ValidString(closed.Reason) {
			return &Violation{wire.CloseBadFrame}
		}
		return ErrPeerClosed
	case c.readEnds.Load():
		return ErrInterrupted
	case errors.Is(c.failed, ErrInterrupted) || errors.Is(err, context.DeadlineExceeded):
		// Nobody interrupted: the library did, because a control frame was begun and not finished.
		return &Violation{wire.CloseIdle}
	case c.failed != nil:
		return c.failed
	default:
		return &Violation{wire.CloseBadFrame}
	}
}

func (c *wsConn) InterruptRead() {
	c.interruptRead()
	c.buf.claim.abort()
}

// Linger is part of Conn.
func (c *wsConn) Linger(timeout time.Duration, bytes int) {
	c.forget()
	c.socket.Linger(timeout, bytes)
}

// Abort is part of Conn.
func (c *wsConn) Abort() {
	c.socket.Abort()
	c.forget()
}

// forget lets the library release what it holds. It writes nothing and closes nothing.
func (c *wsConn) forget() {
	if c.ws != nil {
		_ = c.ws.CloseNow()
	}
}

func (c *wsConn) HeaderSize(payload int) int {
	switch {
	case payload <= 125:
		return 2
	case payload <= 0xFFFF:
		return 4
	default:
		return 10
	}
}

func (c *wsConn) AppendHeader(dst []byte, payload int) []byte {
	switch {
	case payload <= 125:
		return append(dst, binaryFrame, byte(payload))
	case payload <= 0xFFFF:
		return binary.BigEndian.AppendUint16(append(dst, binaryFrame, 126), uint16(payload))
	default:
		return binary.BigEndian.AppendUint64(append(dst, binaryFrame, 127), uint64(payload))
	}
}

func (c *wsConn) AppendPong(dst, payload []byte) []byte {
	return append(append(dst, pongFrame, byte(len(payload))), payload...)
}

func (c *wsConn) AppendClose(dst []byte, code uint16, text string) []byte {
	text = codec.CutText(text, bounds.CloseReasonMax)
	dst = append(dst, closeFrame, byte(2+len(text)))
	dst = binary.BigEndian.AppendUint16(dst, code)
	return append(dst, text...)
}

// headSlack is what net/http reads beyond the head size that it is told.
const headSlack = 4096

// MaxHeaderBytes returns what an http.Server must be told to refuse heads of more than limit bytes with 431
// (http_header_bytes_max).
func MaxHeaderBytes(limit int64) int { return max(int(limit)-headSlack, 1) }
