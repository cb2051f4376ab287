package supervise

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
	"github.com/fitzwire/fitz/sdk-templates/go/runtime/port"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests speak a small protocol of their own, which shows that the package knows none: records are u8 type, u16 length, value.
const (
	toyConnect uint16 = iota + 1
	toyHello          // lifetime, empty when the peer does not say
	toyLabel
	toyLabelled
	toyEcho
	toySubscribe   // answered with an id
	toyUnsubscribe // answered with nothing
	toyNotify      // id, text
	toyEnded       // id
	toyGoaway      // seconds of grace
	toyUnused
)

var errToy = errors.New("toy")

func toyAppend(dst []byte, typ uint16, value []byte) []byte {
	dst = append(dst, byte(typ))
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(value))), value...)
}

func toyNext(b []byte) (uint16, []byte, []byte, error) {
	if len(b) < 3 || len(b) < 3+int(binary.BigEndian.Uint16(b[1:])) {
		return 0, nil, nil, errToy
	}
	n := 3 + int(binary.BigEndian.Uint16(b[1:]))
	return uint16(b[0]), b[3:n], b[n:], nil
}

func toyU64(dst []byte, v uint64) ([]byte, error) { return binary.BigEndian.AppendUint64(dst, v), nil }

func toyReadU64(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, errToy
	}
	return binary.BigEndian.Uint64(b), nil
}

var toyProtocol = &link.Protocol{
	Scheme: "toy", TCPPort: "7", WebSocketPort: "8", WebSocketPath: "/",
	Types: link.Types{
		Connect: toyConnect, Hello: toyHello, LabelRequest: toyLabel, LabelReply: toyLabelled,
		ClientHello: toyUnused, Ping: toyUnused + 1, Pong: toyUnused + 2, Cancel: toyUnused + 3, Cancelled: toyUnused + 4,
	},
	Capabilities: link.Capabilities{Labels: 1, Lifecycle: 2, Late: 1},
	Limits: link.Limits{
		FrameBytes: 1 << 16, RecordValue: 1 << 15, InFlight: 8, Labels: 64, Queue: 4, QueueBytes: 64, Abandoned: 8, HTTPHeader: 4 << 10,
		Connect: 10 * time.Second, Settle: time.Second, Request: 10 * time.Second, Heartbeat: time.Hour, PeerSilence: 2 * time.Hour,
		CloseTimeout: 5 * time.Second,
	},
	AppendRecord: toyAppend,
	CheckRecords: func([]byte) error { return nil },
	NextRecord:   toyNext,
	Class: func(typ uint16) link.Class {
		switch typ {
		case toyHello, toyLabelled:
			return link.Control
		case toyEcho, toySubscribe, toyUnsubscribe:
			return link.Reply
		case toyNotify, toyEnded, toyGoaway:
			return link.Push
		}
		return link.Unknown
	},
	Final:             func(uint16, []byte) bool { return true },
	AppendConnect:     func(dst []byte, token string) ([]byte, error) { return append(dst, token...), nil },
	DecodeHello:       func(b []byte) (link.Hello, error) { return link.Hello{Capabilities: 1, Detail: string(b)}, nil },
	AppendClientHello: func(dst []byte, _ uint32) ([]byte, error) { return dst, nil },
	AppendLabel:       toyU64, DecodeLabel: toyReadU64, AppendNonce: toyU64, DecodeNonce: toyReadU64, AppendCancel: toyU64, DecodeCancelled: toyReadU64,
}

// bubbleClock is the clock of the bubble.
type bubbleClock struct{ birth time.Time }

func (c bubbleClock) Now() time.Duration                             { return time.Since(c.birth) }
func (c bubbleClock) AfterFunc(d time.Duration, f func()) port.Timer { return time.AfterFunc(d, f) }

// toyPeer is the other end of all connections of a test.
type toyPeer struct {
	t        *testing.T
	lifetime string
	refuse   bool
	judge    func(token string) bool // nil: every token is good
	ids      uint64
	same     bool          // the next SUBSCRIBE gets the id of the one before
	hold     chan struct{} // nil, or nothing is answered until it is closed

	mu     sync.Mutex
	conn   net.Conn
	log    []string
	tokens []string // of CONNECTs
	tasks  sync.WaitGroup
}

func (p *toyPeer) dial(context.Context, string, string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		return nil, errToy
	}
	near, far := net.Pipe()
	p.conn = far
	hello := p.lifetime
	p.tasks.Go(func() {
		defer far.Close()
		for {
			message, err := readMessage(far)
			if err != nil {
				return
			}
			p.answer(far, message, hello)
		}
	})
	return near, nil
}

func readMessage(r io.Reader) ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

func writeMessage(w io.Writer, records ...[]byte) {
	var message []byte
	for _, r := range records {
		message = append(message, r...)
	}
	_, _ = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...))
}

func (p *toyPeer) answer(conn net.Conn, message []byte, hello string) {
	typ, value, rest, err := toyNext(message)
	if err != nil {
		p.t.Error(err)
		return
	}
	if typ == toyConnect {
		p.mu.Lock()
		p.tokens = append(p.tokens, string(value))
		judge := p.judge
		p.mu.Unlock()
		if judge != nil && !judge(string(value)) {
			_ = conn.Close()
			return
		}
		writeMessage(conn, toyAppend(nil, toyHello, []byte(hello)))
		return
	}
	label := toyAppend(nil, toyLabelled, value)
	typ, value, _, _ = toyNext(rest)
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch typ {
	case toyEcho:
		p.log = append(p.log, "echo "+string(value))
		writeMessage(conn, label, toyAppend(nil, toyEcho, value))
	case toySubscribe:
		p.log = append(p.log, "subscribe "+string(value))
		if !p.same || p.ids == 4 {
			p.ids++
		}
		id, _ := toyU64(nil, p.ids)
		writeMessage(conn, label, toyAppend(nil, toySubscribe, id))
	case toyUnsubscribe:
		p.log = append(p.log, "unsubscribe "+string(value))
		writeMessage(conn, label, toyAppend(nil, toyUnsubscribe, nil))
	}
}

func (p *toyPeer) push(typ uint16, value []byte) {
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	writeMessage(conn, toyAppend(nil, typ, value))
	synctest.Wait()
}

func (p *toyPeer) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.conn.Close()
}

func (p *toyPeer) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *toyPeer) sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.log
	p.log = nil
	return out
}

func (p *toyPeer) options() Options {
	return Options{
		Address: "toy://host", Protocol: toyProtocol, Dial: p.dial, Clock: bubbleClock{time.Now()}, Rand: func() float64 { return 0.5 },
		Backoff: link.Backoff{First: 100 * time.Millisecond, Cap: time.Second, Factor: 2}, ResetAfter: 30 * time.Second, StatusEvents: 8,
		Classify: func(typ uint16, value []byte) Push {
			switch typ {
			case toyNotify:
				if len(value) < 8 {
					return Push{Kind: PushNotify, Err: errToy}
				}
				n := Push{Kind: PushNotify, ID: binary.BigEndian.Uint64(value)}
				if len(value) == 8 {
					n.Err = errToy
				}
				return n
			case toyEnded:
				n, err := toyReadU64(value)
				return Push{Kind: PushEnded, ID: n, Dropped: 3, Err: err}
			}
			return Push{Kind: PushGoaway, Grace: time.Duration(value[0]) * time.Second}
		},
		Lifetime: func(h link.Hello) (l Lifetime, ok bool) {
			text := h.Detail.(string)
			copy(l.ID[:], text)
			return l, text != ""
		},
	}
}

// bubble runs a test with a client that is connected to a toy peer.
func bubble(t *testing.T, f func(t *testing.T, c *Core, p *toyPeer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &toyPeer{t: t, lifetime: "a"}
		c, err := Connect(t.Context(), p.options())
		if err != nil {
			t.Fatal(err)
		}
		f(t, c, p)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		p.tasks.Wait()
	})
}
