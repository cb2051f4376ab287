package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/vectors"
	"github.com/fitzwire/fitz/fitztest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../../"

// patience ends a test whose broker does not answer; no test waits for it.
const patience = 20 * time.Second

// wire is one raw session with a broker over WebSocket, where the reason of a close can be seen.
type wire struct {
	t    *testing.T
	s    *oracle.Spec
	conn *websocket.Conn
	ctx  context.Context
}

func dial(t *testing.T, s *oracle.Spec, b *fitztest.Broker) *wire {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	transport := &http.Transport{DialContext: b.DialDirect, DisableKeepAlives: true}
	conn, _, err := websocket.Dial(ctx, b.URL(), &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(s.Bound("frame_recv_max"))
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &wire{t, s, conn, ctx}
}

func (w *wire) send(message []byte) {
	w.t.Helper()
	if err := w.conn.Write(w.ctx, websocket.MessageBinary, message); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) record(name string, v oracle.Value) []byte {
	w.t.Helper()
	record, err := w.s.Encode(name, oracle.Control, v)
	if err != nil {
		w.t.Fatal(err)
	}
	return record
}

// read is the records of the next transport message, or the close.
func (w *wire) read() ([]oracle.Record, *websocket.CloseError) {
	w.t.Helper()
	_, message, err := w.conn.Read(w.ctx)
	var closed websocket.CloseError
	if errors.As(err, &closed) {
		return nil, &closed
	}
	if err != nil {
		w.t.Fatal(err)
	}
	records, fault := w.s.SplitMessage(oracle.Down, message)
	if fault != nil {
		w.t.Errorf("the broker sent %x: %v", message, fault)
	}
	return records, nil
}

// open negotiates a session as far as the vector leaves that to others.
func (w *wire) open(first, hello bool) {
	w.t.Helper()
	if !first {
		return
	}
	w.send(w.record("session.connect", oracle.Value{"token": ""}))
	if records, closed := w.read(); closed != nil || records[0].Message != "session.server_hello" {
		w.t.Fatalf("%v, %v", records, closed)
	}
	if hello {
		bits, _ := w.s.Capability("lifecycle")
		w.send(w.record("session.client_hello", oracle.Value{"capabilities": bits, "sdk_name": "vectors", "sdk_version": "1", "spec_fingerprint": 0}))
	}
}

// barrier is the nonce of the PING that shows that everything in front of it was handled.
const barrier = uint64(0x62617272)

// outcome is what the broker did with a message: what it sent before the answer to a PING, or how it closed.
func (w *wire) outcome(ping bool) (records []oracle.Record, closed *websocket.CloseError) {
	w.t.Helper()
	if ping {
		message := w.record("session.ping", oracle.Value{"nonce": barrier})
		if err := w.conn.Write(w.ctx, websocket.MessageBinary, message); err != nil && w.ctx.Err() != nil {
			w.t.Fatal(err) // a closed session is told by the read
		}
	}
	for {
		got, end := w.read()
		if end != nil {
			return records, end
		}
		if len(got) == 1 && got[0].Message == "session.pong" && got[0].Value["nonce"] == barrier {
			return records, nil
		}
		records = append(records, got...)
	}
}

// closeText is the text of a close reason, or how it begins.
func closeText(name string) string {
	switch name {
	case "connect_failed":
		return "connect failed: "
	}
	return strings.ReplaceAll(name, "_", " ")
}

// A broker does with every vector that a client can send what the vector says: it answers with the code, closes with the reason, drops, or goes on.
// Clauses: W-01, W-03 to W-07, W-30, W-50, W-52, W-62, D-1 to D-6, E-01, R-01 to, L-20, L-40, L-56.
func TestBroker(t *testing.T) {
	s, err := oracle.Load(os.DirFS(root + "spec"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := vectors.All(os.DirFS(root + "generated/vectors"))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	b := fitztest.Start(t, fitztest.WithWebSocket())
	for _, v := range all {
		if v.Dir != oracle.Up {
			continue
		}
		t.Run(v.ID, func(t *testing.T) {
			w := dial(t, s, b)
			counts[v.Verdict+" "+string(v.Reaction)]++
			check(w, v)
		})
	}
	t.Log(counts)
	for _, kind := range []string{"accept ", "reject refuse", "reject close", "reject drop"} {
		if counts[kind] == 0 {
			t.Errorf("no vector is %s", kind)
		}
	}
}

// check sends one vector in a session of its own.
func check(w *wire, v vectors.Vector) {
	t := w.t
	t.Helper()
	isConnect, isHello := v.Message == "session.connect", v.Message == "session.client_hello"
	w.open(!isConnect, !isHello)
	message := []byte(v.Bytes)
	if v.Message == "session.correlate" && v.Verdict == oracle.Accept {
		message = append(bytes.Clone(message), w.record("session.ping", oracle.Value{"nonce": 1})...) // a label in front of nothing is a mistake of its own
	}
	w.send(message)
	if isConnect && v.Verdict == oracle.Accept {
		w.outcomeOfConnect()
		return
	}
	records, closed := w.outcome(v.Reaction != oracle.Close)
	switch {
	case v.Reaction == oracle.Close:
		if closed == nil || !strings.HasPrefix(closed.Reason, closeText(v.Name)) || closeText(v.Name) == closed.Reason && strings.HasSuffix(closed.Reason, " ") {
			t.Errorf("records %v, closed %v, want %q", records, closed, closeText(v.Name))
		}
	case closed != nil:
		if !isHelloWithoutLifecycle(w.s, v) || closed.Reason != closeText("bad_control_record") {
			t.Errorf("closed %v", closed)
		}
	case v.Reaction == oracle.Refuse:
		if !refused(records, v) {
			t.Errorf("got %s, want code %d", said(records), v.Code)
		}
	case v.Reaction == oracle.Drop && len(records) > 0:
		t.Errorf("answered %s", said(records))
	case v.Verdict == oracle.Accept:
		if text := malformed(records, v); text != "" {
			t.Errorf("got %s", text)
		}
	}
}

// outcomeOfConnect expects the hello.
func (w *wire) outcomeOfConnect() {
	w.t.Helper()
	if records, closed := w.read(); closed != nil || len(records) != 1 || records[0].Message != "session.server_hello" {
		w.t.Errorf("%v, %v", records, closed)
	}
}

// isHelloWithoutLifecycle reports whether the session may not send PING, so that the barrier closes it (W-62).
func isHelloWithoutLifecycle(s *oracle.Spec, v vectors.Vector) bool {
	bit, _ := s.Capability("lifecycle")
	text := fmt.Sprint(v.Value["capabilities"])
	var bits uint64
	_, err := fmt.Sscan(text, &bits)
	return v.Message == "session.client_hello" && v.Verdict == oracle.Accept && err == nil && bits&bit == 0
}

// refused reports whether one of the records is the refusal that a vector asks for.
func refused(records []oracle.Record, v vectors.Vector) bool {
	for _, rec := range records {
		if rec.Form == oracle.Refusal && rec.Value["code"] == uint64(v.Code) {
			text, _ := rec.Value["message"].(string)
			return (v.Reason == "" || strings.HasPrefix(text, v.Reason) || v.Reason == "adjacent_double_star" && strings.HasPrefix(text, "adjacent ** segments")) &&
				(v.Text == "" || text == v.Text)
		}
	}
	return false
}

// malformed is the refusal that calls an accepted vector malformed, "" when there is none. Refusals for other reasons, such as a lease that is
// not held, belong to the domain.
func malformed(records []oracle.Record, v vectors.Vector) string {
	for _, rec := range records {
		code, _ := rec.Value["code"].(uint64)
		if rec.Form == oracle.Refusal && (code == 5008 || code == 5010 || code == 5012) {
			return said(records)
		}
	}
	if v.Form == oracle.Request && len(records) == 0 {
		return "no answer"
	}
	return ""
}

func said(records []oracle.Record) string {
	var out []string
	for _, rec := range records {
		out = append(out, fmt.Sprintf("%s %s %v", rec.Message, rec.Form, rec.Value))
	}
	return strings.Join(out, "; ")
}
