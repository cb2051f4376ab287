package session_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// endKeys are what the line about the end of a session says, in this order. Readers of logs depend on them.
var endKeys = []string{"reason", "detail", "listener", "transport", "remote", "family", "seconds", "records", "bytes_in", "bytes_out"}

// ends is a log that keeps the lines about ended sessions.
type ends struct {
	slog.Handler // what else is logged
	mu           sync.Mutex
	lines        []map[string]slog.Value
	keys         [][]string
}

func newEnds() *ends {
	e := &ends{Handler: slog.DiscardHandler}
	if logging != nil {
		e.Handler = logging.Handler()
	}
	return e
}

func (e *ends) Enabled(context.Context, slog.Level) bool { return true }

func (e *ends) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "session ended" {
		line, keys := map[string]slog.Value{}, []string(nil)
		r.Attrs(func(a slog.Attr) bool {
			line[a.Key], keys = a.Value, append(keys, a.Key)
			return true
		})
		e.mu.Lock()
		e.lines, e.keys = append(e.lines, line), append(e.keys, keys)
		e.mu.Unlock()
	}
	if e.Handler.Enabled(ctx, r.Level) {
		return e.Handler.Handle(ctx, r)
	}
	return nil
}

// check looks at the lines of a world that has ended: one for each session, complete, with a reason that metrics know, too. Every test
// of this package ends with it, so that it sees each way in which a session can end.
func (e *ends) check(t *testing.T, sessions int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.lines) != sessions {
		t.Errorf("%d sessions, %d lines about their ends", sessions, len(e.lines))
	}
	for i, line := range e.lines {
		if !slices.Equal(e.keys[i], endKeys) {
			t.Errorf("keys %v", e.keys[i])
		}
		known := slices.ContainsFunc(wire.CloseReasons, func(r wire.CloseReason) bool { return r.Name == line["reason"].String() })
		if reason := line["reason"].String(); !known && reason != "peer_closed" && reason != "connection_lost" {
			t.Errorf("reason %q", reason)
		}
	}
}

// The line about the end of a session says what it did, in numbers.
func TestLineOfAnEnd(t *testing.T) {
	run(t, func(l *bounds.Limits) { l.SessionMalformedMax = 1 }, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Connect()
		time.Sleep(90 * time.Second)
		client.Send(query(t), query(t))
		client.Expect(0, wire.TypeLeaseQuery)
		client.Expect(0, wire.TypeLeaseQuery)
		client.Send(rawclient.Record(wire.TypeLeaseQuery, nil)) // malformed
		expectCloseAfterReplies(t, client, wire.CloseTooManyMalformedRequests)
		w.group.Wait()
		w.ends.mu.Lock()
		defer w.ends.mu.Unlock()
		if len(w.ends.lines) != 1 {
			t.Fatalf("%d lines", len(w.ends.lines))
		}
		line := w.ends.lines[0]
		in, out := line["bytes_in"].Int64(), line["bytes_out"].Int64()
		malformed := rawclient.Record(wire.TypeLeaseQuery, nil)
		messages := map[string]int64{rawclient.TCP: 4, rawclient.WebSocket: 2}[line["transport"].String()] * 3 // headers of three messages
		sent := messages + int64(len(rawclient.Record(wire.TypeConnect, []byte{}))+2*len(query(t))+len(malformed))
		if line["reason"].String() != wire.CloseTooManyMalformedRequests.Name || line["records"].Uint64() != 4 || line["family"].Uint64() != 1 ||
			line["seconds"].Float64() < 90 || line["seconds"].Float64() > 91 || in != sent || out < 40 || out > 200 {
			t.Errorf("%v, sent %d", line, sent)
		}
	})
}
