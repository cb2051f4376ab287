package link

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// The tests speak a small protocol of their own, which shows that the package knows none: records are u8 type, u16 length, value.
const (
	toyConnect uint16 = iota + 1
	toyHello
	toyClientHello
	toyLabel
	toyLabelled
	toyPing
	toyPong
	toyCancel
	toyCancelled
)

const (
	toyEcho uint16 = 20 + iota
	toyWait        // its first reply may be "q", then a second one follows
	toyPush
)

const (
	bitLabels    = 1
	bitLifecycle = 2
)

var errToy = errors.New("toy: bad record")

func toyAppend(dst []byte, typ uint16, value []byte) []byte {
	dst = append(dst, byte(typ))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(value)))
	return append(dst, value...)
}

func toyNext(payload []byte) (uint16, []byte, []byte, error) {
	if len(payload) < 3 {
		return 0, nil, nil, errToy
	}
	n := 3 + int(binary.BigEndian.Uint16(payload[1:]))
	if n > len(payload) {
		return 0, nil, nil, errToy
	}
	return uint16(payload[0]), payload[3:n], payload[n:], nil
}

func toyCheck(payload []byte) error {
	if len(payload) == 0 {
		return errToy
	}
	for len(payload) > 0 {
		var err error
		if _, _, payload, err = toyNext(payload); err != nil {
			return err
		}
	}
	return nil
}

func toyU64(dst []byte, v uint64) ([]byte, error) { return binary.BigEndian.AppendUint64(dst, v), nil }

func toyReadU64(value []byte) (uint64, error) {
	if len(value) != 8 {
		return 0, errToy
	}
	return binary.BigEndian.Uint64(value), nil
}

func u64(v uint64) []byte { b, _ := toyU64(nil, v); return b }

// hello value: u8 capabilities, u32 largest frame, u32 heartbeat in ms.
func toyHelloValue(caps byte, maxFrame, heartbeatMs uint32) []byte {
	b := binary.BigEndian.AppendUint32([]byte{caps}, maxFrame)
	return binary.BigEndian.AppendUint32(b, heartbeatMs)
}

func toyProtocol() *Protocol {
	return &Protocol{
		Scheme: "toy", TCPPort: "7", WebSocketPort: "8", WebSocketPath: "/toy",
		Types: Types{
			Connect: toyConnect, Hello: toyHello, ClientHello: toyClientHello, LabelRequest: toyLabel, LabelReply: toyLabelled,
			Ping: toyPing, Pong: toyPong, Cancel: toyCancel, Cancelled: toyCancelled,
		},
		Capabilities: Capabilities{Labels: bitLabels, Lifecycle: bitLifecycle, Late: bitLabels},
		Limits: Limits{
			FrameBytes: 1 << 16, RecordValue: 1 << 15, InFlight: 4, Labels: 16, Queue: 4, QueueBytes: 1 << 10, Abandoned: 2,
			HTTPHeader: 4 << 10, Connect: 10 * time.Second, Settle: time.Second, Request: 10 * time.Second,
			Heartbeat: 10 * time.Second, PeerSilence: 25 * time.Second, CloseTimeout: 5 * time.Second,
		},
		AppendRecord: toyAppend, CheckRecords: toyCheck, NextRecord: toyNext,
		Class: func(typ uint16) Class {
			switch {
			case typ >= toyConnect && typ <= toyCancelled:
				return Control
			case typ == toyEcho || typ == toyWait:
				return Reply
			case typ == toyPush:
				return Push
			}
			return Unknown
		},
		Final:         func(typ uint16, value []byte) bool { return typ != toyWait || string(value) != "q" },
		AppendConnect: func(dst []byte, token string) ([]byte, error) { return toyToken(dst, token) },
		DecodeHello: func(value []byte) (Hello, error) {
			if len(value) != 9 {
				return Hello{}, errToy
			}
			return Hello{
				Capabilities: uint32(value[0]), MaxFrame: int64(binary.BigEndian.Uint32(value[1:])),
				Heartbeat: time.Duration(binary.BigEndian.Uint32(value[5:])) * time.Millisecond,
			}, nil
		},
		AppendClientHello: func(dst []byte, announced uint32) ([]byte, error) { return append(dst, byte(announced)), nil },
		AppendLabel:       toyU64, DecodeLabel: toyReadU64, AppendNonce: toyU64, DecodeNonce: toyReadU64,
		AppendCancel: toyU64, DecodeCancelled: toyReadU64,
	}
}

func toyToken(dst []byte, token string) ([]byte, error) {
	if len(token) > 100 {
		return nil, errToy
	}
	return append(dst, token...), nil
}

// remote is the other end of a connection, driven by a test.
type remote struct {
	t      testing.TB
	conn   net.Conn
	reader *messageReader
}

func newRemote(t testing.TB, conn net.Conn) *remote {
	return &remote{t: t, conn: conn, reader: newMessageReader(conn, 1<<20)}
}

// expect reads one transport message and checks that it holds exactly these records.
func (r *remote) expect(records ...[]byte) {
	r.t.Helper()
	got, err := r.reader.next()
	if err != nil {
		r.t.Fatalf("reading: %v", err)
	}
	if want := bytes.Join(records, nil); !bytes.Equal(got, want) {
		r.t.Fatalf("got message %x, want %x", got, want)
	}
}

func (r *remote) send(records ...[]byte) {
	r.t.Helper()
	message := bytes.Join(records, nil)
	if _, err := r.conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)); err != nil {
		r.t.Fatalf("writing: %v", err)
	}
}

// drain reads and forgets everything from now on.
func (r *remote) drain() { go func() { _, _ = io.Copy(io.Discard, r.conn) }() }

func rec(typ uint16, value []byte) []byte { return toyAppend(nil, typ, value) }

func text(typ uint16, s string) []byte { return toyAppend(nil, typ, []byte(s)) }

// labelled is a reply with its label, or a request with its label.
func labelled(front uint16, label uint64, record []byte) []byte {
	return append(rec(front, u64(label)), record...)
}

// session is a Conn in a bubble with its other end.
type session struct {
	*Conn
	remote *remote
}

type config struct {
	caps        byte
	maxFrame    uint32
	heartbeatMs uint32
	noHello     bool
	options     Options
}

// open opens a session over a pipe. In a bubble every wait is exact, and a goroutine that outlives the test fails it.
func open(t *testing.T, cfg config) session {
	t.Helper()
	near, far := net.Pipe()
	cfg.options.Dial = func(context.Context, string, string) (net.Conn, error) { return near, nil }
	r := newRemote(t, far)
	result := make(chan dialled, 1)
	go func() {
		c, err := Dial(t.Context(), "toy://host", toyProtocol(), cfg.options)
		result <- dialled{c, err}
	}()
	r.expect(text(toyConnect, cfg.options.Token))
	if !cfg.noHello {
		r.send(rec(toyHello, toyHelloValue(cfg.caps, cfg.maxFrame, cfg.heartbeatMs)))
		if cfg.caps&bitLifecycle != 0 {
			r.expect(rec(toyClientHello, []byte{cfg.caps}))
		}
	}
	d := <-result
	if d.err != nil {
		t.Fatalf("dial: %v", d.err)
	}
	t.Cleanup(func() { _ = far.Close() })
	return session{d.conn, r}
}

type dialled struct {
	conn *Conn
	err  error
}

type outcome struct {
	reply []byte
	err   error
}

// start calls in a goroutine.
func (s session) start(ctx context.Context, request Request) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		reply, err := s.Call(ctx, request)
		done <- outcome{reply, err}
	}()
	return done
}

func (o outcome) want(t *testing.T, reply string) {
	t.Helper()
	if o.err != nil || string(o.reply) != reply {
		t.Fatalf("got %q, %v; want %q", o.reply, o.err, reply)
	}
}

func (o outcome) wantKind(t *testing.T, kind Kind, wasSent bool) {
	t.Helper()
	var e *Error
	if !errors.As(o.err, &e) || e.Kind != kind || e.Sent != wasSent {
		t.Fatalf("got %v (%+v), want kind %v, sent %v", o.err, e, kind, wasSent)
	}
}

func (s session) wantEnd(t *testing.T, kind Kind) {
	t.Helper()
	<-s.Done()
	if !IsKind(s.Err(), kind) {
		t.Fatalf("session ended with %v, want kind %v", s.Err(), kind)
	}
}

func (s session) close(t *testing.T) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

// bubble runs a test on virtual time.
func bubble(t *testing.T, f func(*testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func echo(s string) Request { return Request{Type: toyEcho, Value: []byte(s)} }

func waitRequest(s string) Request {
	return Request{Type: toyWait, Value: []byte(s), Wait: 30 * time.Second, Cancellable: true}
}
