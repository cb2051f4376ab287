package clienttest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/vectors"
	"github.com/fitzwire/fitz/generated/go/client"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../../"

// patience ends a test whose client does not answer; no test waits for it.
const patience = 20 * time.Second

// byBytes is the size up to which messages are written byte by byte.
const byBytes = 1024

// server is the other end of one connection of the client under test.
type server struct {
	t    *testing.T
	s    *oracle.Spec
	conn net.Conn
}

// read is the next transport message of the client, false when it closed the connection.
func (w *server) read() ([]oracle.Record, bool) {
	var prefix [4]byte
	if _, err := io.ReadFull(w.conn, prefix[:]); err != nil {
		return nil, false
	}
	message := make([]byte, binary.BigEndian.Uint32(prefix[:]))
	if _, err := io.ReadFull(w.conn, message); err != nil {
		return nil, false
	}
	records, fault := w.s.SplitMessage(oracle.Up, message)
	if fault != nil {
		w.t.Errorf("the client sent %x: %v", message, fault)
	}
	return records, true
}

// write sends a transport message in pieces of one byte, larger ones for long messages; false when the client closed the connection.
func (w *server) write(message []byte) bool {
	stream := append(binary.BigEndian.AppendUint32(nil, uint32(len(message))), message...)
	piece := 1
	if len(stream) > byBytes {
		piece = 1021
	}
	for at := 0; at < len(stream); at += piece {
		if _, err := w.conn.Write(stream[at:min(at+piece, len(stream))]); err != nil {
			return false
		}
	}
	return true
}

func (w *server) control(name string, v oracle.Value) []byte {
	record, err := w.s.Encode(name, oracle.Control, v)
	if err != nil {
		w.t.Error(err)
	}
	return record
}

const nonce = uint64(0x62617272)

// hello is what an ordinary broker says first.
func (w *server) hello() []byte {
	labels, _ := w.s.Capability("correlation")
	lifecycle, _ := w.s.Capability("lifecycle")
	return w.control("session.server_hello", oracle.Value{"version": 1, "capabilities": labels | lifecycle, "lifecycle": oracle.Value{
		"broker_lifetime_id": make([]byte, 16), "session_incarnation": 1, "max_frame_bytes": 1 << 20, "heartbeat_ms": 0, "spec_fingerprint": 0}})
}

// alive sends PING and reports whether the client answers it, which it does when it took everything in front of it.
func (w *server) alive() bool {
	if !w.write(w.control("session.ping", oracle.Value{"nonce": nonce})) {
		return false
	}
	for {
		records, open := w.read()
		if !open {
			return false
		}
		for _, rec := range records {
			if rec.Message == "session.pong" && rec.Value["nonce"] == nonce {
				return true
			}
		}
	}
}

// session is what one vector did to a client.
type session struct {
	dial  error // of opening
	call  error // of the request that the vector answers
	ended error // of the session when it was not alive any more
	alive bool
}

// run lets a client meet one vector. Replies answer a request, a hello opens the session, everything else comes by itself.
func run(t *testing.T, s *oracle.Spec, v vectors.Vector, request wire.Value) (out session) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	near, far := net.Pipe()
	w := &server{t, s, far}
	_ = far.SetDeadline(time.Now().Add(patience))
	isHello := v.Message == "session.server_hello"
	opened := make(chan bool, 1)
	go func() {
		w.read() // CONNECT
		if isHello {
			opened <- w.write(v.Bytes)
			return
		}
		ok := w.write(w.hello())
		_, greeted := w.read() // CLIENT_HELLO
		opened <- ok && greeted
	}()
	options := client.Options{Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil },
		OnGoaway: func(wire.Goaway) {}, OnSubEnded: func(wire.SubEnded) {}, OnLeaseNotify: func(wire.LeaseNotify) {}}
	c, err := client.Dial(ctx, "fitz://vectors.test:1", options)
	if err != nil {
		_ = far.Close()
		<-opened
		return session{dial: err}
	}
	if isHello {
		<-opened
		_ = far.Close()
		_ = c.Close()
		return session{alive: true}
	}
	if !<-opened {
		t.Error("the session did not open")
	}
	called := make(chan error, 1)
	message := []byte(v.Bytes)
	if request != nil {
		go func() { called <- call(ctx, c, request) }()
		records, _ := w.read()
		if len(records) != 1 {
			t.Errorf("the request is %v", records)
			records = []oracle.Record{{}}
		}
		message = s.Label(oracle.Down, records[0].Label, message)
	}
	written := w.write(message)
	refused := request != nil && v.Verdict == oracle.Reject
	if refused { // the caller finds what is wrong with a reply, beside the goroutine that answers PING
		out.call = <-called
	}
	out.alive = written && w.alive()
	_ = far.Close()
	if !out.alive {
		<-c.Done()
		out.ended = c.Err()
	}
	if request != nil && !refused {
		out.call = <-called
	}
	_ = c.Close()
	return out
}

// call calls the method for a request: LeaseAcquire for a *wire.LeaseAcquireRequest.
func call(ctx context.Context, c *client.Client, request wire.Value) error {
	name := strings.TrimSuffix(reflect.TypeOf(request).Elem().Name(), "Request")
	results := reflect.ValueOf(c).MethodByName(name).Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(request)})
	err, _ := results[len(results)-1].Interface().(error)
	return err
}

// requests are a valid request of each operation by the name of its message, out of the vectors.
func requests(t *testing.T, all []vectors.Vector) map[string]wire.Value {
	t.Helper()
	out := map[string]wire.Value{}
	for _, v := range all {
		if v.Form != oracle.Request || v.Verdict != oracle.Accept || out[v.Message] != nil {
			continue
		}
		rec, _, err := codec.NextRecord(v.Bytes)
		layout, found := wire.FindLayout(wire.MessageType(rec.Type), wire.Ask)
		if err != nil || !found {
			t.Fatalf("%s: %v", v.ID, err)
		}
		value := layout.New()
		if err := value.DecodeValue(rec.Value); err != nil {
			t.Fatalf("%s: %v", v.ID, err)
		}
		out[v.Message] = value
	}
	return out
}

// unasked are accepted vectors that a client refuses all the same, because nothing asked for them: an answer to no CANCEL, a label without a
// reply, replies without a request.
func unasked(v vectors.Vector) bool {
	for _, rec := range v.Records {
		if rec.Message != "" {
			return true
		}
	}
	return v.Message == "session.cancelled" || v.Message == "session.correlated"
}

// A client does with every vector that a broker can send what the vector says: it goes on, returns the refusal, or ends with protocol.violation.
// Clauses: W-01, W-03, W-05, W-14, W-50 to W-52, W-65, W-67, D-1 to D-6, E-01, E-02, E-04.
func TestClient(t *testing.T) {
	s, err := oracle.Load(os.DirFS(root + "spec"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := vectors.All(os.DirFS(root + "generated/vectors"))
	if err != nil {
		t.Fatal(err)
	}
	asks := requests(t, all)
	counts := map[string]int{}
	for _, v := range all {
		if v.Dir != oracle.Down || v.Verdict == oracle.Accept && unasked(v) {
			continue
		}
		t.Run(v.ID, func(t *testing.T) {
			var request wire.Value
			if v.Form == oracle.Reply || v.Form == oracle.Refusal {
				request = asks[v.Message]
			}
			counts[v.Verdict+" "+string(v.Form)]++
			check(t, v, run(t, s, v, request))
		})
	}
	t.Log(counts)
	for _, kind := range []string{"accept reply", "accept refusal", "accept push", "accept control", "reject reply", "reject refusal", "reject push", "reject control", "reject "} {
		if counts[kind] == 0 {
			t.Errorf("no vector is %s", kind)
		}
	}
}

func check(t *testing.T, v vectors.Vector, got session) {
	t.Helper()
	violated := client.Is(got.dial, client.NameProtocolViolation) || client.Is(got.call, client.NameProtocolViolation) || client.Is(got.ended, client.NameProtocolViolation)
	switch {
	case v.Verdict == oracle.Reject:
		if got.alive && v.Message != "session.server_hello" || !violated {
			t.Errorf("alive %v; dial %v, call %v, end %v; want protocol.violation", got.alive, got.dial, got.call, got.ended)
		}
	case !got.alive || violated:
		t.Errorf("dial %v, call %v, end %v; want to go on", got.dial, got.call, got.ended)
	case v.Form == oracle.Refusal:
		code, _ := v.Value["code"].(interface{ Int64() (int64, error) })
		want := int64(0)
		if code != nil {
			want, _ = code.Int64()
		}
		if got.call == nil || int64(client.CodeOf(got.call)) != want {
			t.Errorf("got %v, want code %d", got.call, want)
		}
	}
}
