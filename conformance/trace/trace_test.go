package trace_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/conformance/internal/wiretest"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIndependence(t *testing.T) {
	wiretest.Independent(t, "github.com/fitzwire/fitz/conformance/trace")
}

// ticker is a clock that moves a millisecond each time it is read.
func ticker() func() time.Time {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return func() time.Time { now = now.Add(time.Millisecond); return now }
}

func encode(t testing.TB, dir oracle.Direction, recs ...oracle.Record) []byte {
	t.Helper()
	var out []byte
	for _, rec := range recs {
		b, err := trace.Encode(wiretest.Spec(t), dir, rec)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

func query(route string, label uint64) oracle.Record {
	return oracle.Record{Message: "lease.query", Form: oracle.Request, Value: oracle.Value{"route": route}, Label: label}
}

func TestSplit(t *testing.T) {
	spec := wiretest.Spec(t)
	plain, labelled := encode(t, oracle.Up, query("lease://r/a/k", 0)), encode(t, oracle.Up, query("lease://r/a/k", 9))
	label := labelled[:len(labelled)-len(plain)]
	type part struct {
		kind  trace.Kind
		size  int
		label uint64
		fault bool
	}
	tests := []struct {
		name string
		in   []byte
		want []part
	}{
		{"one", plain, []part{{trace.Frame, len(plain), 0, false}}},
		{"labelled", labelled, []part{{trace.Frame, len(labelled), 9, false}}},
		{"several", bytes.Join([][]byte{labelled, plain, labelled}, nil),
			[]part{{trace.Frame, len(labelled), 9, false}, {trace.Frame, len(plain), 0, false}, {trace.Frame, len(labelled), 9, false}}},
		{"W-03 empty", nil, []part{{trace.Bytes, 0, 0, true}}},
		{"W-03 cut off", plain[:len(plain)-1], []part{{trace.Bytes, len(plain) - 1, 0, true}}},
		{"W-50 label at the end", append(bytes.Clone(plain), label...), []part{{trace.Frame, len(plain), 0, false}, {trace.Bytes, len(label), 0, true}}},
		{"W-50 label alone", label, []part{{trace.Bytes, len(label), 0, true}}},
		{"W-50 two labels", append(bytes.Clone(label), labelled...), []part{{trace.Frame, len(label) + len(labelled), 9, true}}},
		{"W-05 unknown", []byte{0xC9, 0, 1, 7}, []part{{trace.Frame, 4, 0, true}}},
		{"W-06 malformed", append([]byte{0xFF, 0x01, 0x93, 0, 1}, 7), []part{{trace.Frame, 6, 0, true}}},
	}
	for _, test := range tests {
		var all []byte
		entries := trace.Split(spec, oracle.Up, test.in)
		if len(entries) != len(test.want) {
			t.Errorf("%s: %d entries", test.name, len(entries))
			continue
		}
		for i, e := range entries {
			all = append(all, e.Bytes...)
			got := part{e.Kind, len(e.Bytes), e.Label, e.Fault != nil}
			if got != test.want[i] {
				t.Errorf("%s: %+v instead of %+v", test.name, got, test.want[i])
			}
			if e.Kind == trace.Frame && !bytes.HasSuffix(e.Bytes, e.Record) {
				t.Errorf("%s: record %x of %x", test.name, e.Record, e.Bytes)
			}
		}
		if !bytes.Equal(all, test.in) {
			t.Errorf("%s: %x", test.name, all)
		}
	}
}

func TestMoments(t *testing.T) {
	spec := wiretest.Spec(t)
	l := trace.New("c1", spec, trace.DefaultLimits, ticker())
	add := func(route string) trace.Ref {
		e := trace.Split(spec, oracle.Up, encode(t, oracle.Up, query(route, 1)))[0]
		e.Conn, e.Fate = 1, trace.Waiting
		return l.Add(e)
	}
	a, b, c := add("lease://r/a/a"), add("lease://r/a/b"), add("lease://r/a/c")
	read, written := trace.Filter{At: trace.Read}, trace.Filter{}
	expect := func(f trace.Filter, want ...string) {
		t.Helper()
		found, err := l.Find(f)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range found {
			got = append(got, strings.TrimPrefix(e.Value()["route"].(string), "lease://r/a/"))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v instead of %v", f, got, want)
		}
	}
	expect(read, "a", "b", "c")
	expect(written)
	l.Deliver(b, nil)
	mark := l.Mark()
	l.Settle(c, trace.Held, "hold h")
	l.Touch(c, "hold h")
	l.Touch(c, "edit")
	l.Deliver(a, encode(t, oracle.Up, query("lease://r/a/z", 1)))
	expect(written, "b", "a")
	expect(trace.Filter{Since: mark}, "a")
	expect(trace.Filter{At: trace.Read, Since: mark})
	e := l.Get(c)
	if e.Fate != trace.Held || e.Rule != "hold h, edit" || e.Seq != 3 {
		t.Errorf("%+v", e)
	}
	if e := l.Get(a); e.Delivered <= e.At || len(e.SentSpans()) == 0 || l.Get(b).SentSpans() != nil {
		t.Errorf("%+v", e)
	}
	// A write that failed was no delivery.
	l.Settle(b, trace.Lost, "")
	expect(written, "a")
	// What was made on the way was not read.
	again := l.Get(a)
	again.Inserted, again.Fate = true, trace.Delivered
	l.Add(again)
	expect(read, "a", "b", "c")
	expect(written, "a", "a")
	for f, want := range map[*trace.Filter]int{
		{Dir: oracle.Down}: 0, {Message: "lease.query"}: 2, {Message: "lease.list"}: 0, {Form: oracle.Reply}: 0, {Conn: 2}: 0, {Kind: trace.Event}: 0,
		{Where: func(e trace.Entry) bool { return e.Seq == 1 }}: 1,
	} {
		if n, err := l.Count(*f); err != nil || n != want {
			t.Errorf("%s: %d instead of %d, %v", f, n, want, err)
		}
	}
}

func TestAwait(t *testing.T) {
	spec := wiretest.Spec(t)
	l := trace.New("c1", spec, trace.DefaultLimits, nil)
	ctx := wiretest.Context(t)
	e := trace.Split(spec, oracle.Up, encode(t, oracle.Up, query("lease://r/a/k", 0)))[0]
	e.Fate = trace.Waiting
	done := make(chan trace.Entry, 1)
	go func() {
		found, err := l.Await(ctx, trace.Filter{Message: "lease.query", Where: func(e trace.Entry) bool { return e.Conn > 1 }}, 2)
		if err != nil {
			t.Error(err)
		}
		done <- found
	}()
	var refs []trace.Ref
	for conn := range 4 {
		e.Conn = conn
		refs = append(refs, l.Add(e))
	}
	for _, r := range refs {
		l.Deliver(r, nil)
	}
	if found := <-done; found.Conn != 3 {
		t.Errorf("%+v", found)
	}
	if found, err := l.Await(ctx, trace.Filter{At: trace.Read}, 0); err != nil || found.Conn != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	ended, cancel := context.WithCancelCause(ctx)
	why := errors.New("the budget of the case is used up")
	cancel(why)
	if _, err := l.Await(ended, trace.Filter{Dir: oracle.Down, Message: "lease.list", Form: oracle.Reply}, 2); !errors.Is(err, why) ||
		err.Error() != "0 of 2: frame down lease.list reply: the budget of the case is used up" {
		t.Errorf("%v", err)
	}
}

// A log is bounded, tells what it left out, and does not answer questions about that.
func TestLimits(t *testing.T) {
	spec := wiretest.Spec(t)
	for name, limits := range map[string]trace.Limits{"entries": {Entries: 64, Bytes: 1 << 20}, "bytes": {Entries: 1 << 20, Bytes: 4096}} {
		l := trace.New("c1", spec, limits, ticker())
		e := trace.Entry{Kind: trace.Bytes, Bytes: make([]byte, 64), Fate: trace.Waiting}
		first := l.Add(e)
		mark := uint64(0)
		for i := range 1000 {
			if i == 995 {
				mark = l.Mark()
			}
			e.Fate = trace.Delivered
			l.Add(e)
		}
		entries, left := l.Entries(), l.Left()
		total := 0
		for _, e := range entries {
			total += len(e.Bytes)
		}
		if len(entries) > limits.Entries || total > limits.Bytes || len(entries)+left.Entries != 1001 || entries[0].Seq != 1 || entries[len(entries)-1].Seq != 1001 {
			t.Errorf("%s: %d entries, %d bytes, left out %+v", name, len(entries), total, left)
		}
		gaps := 0
		for i := 1; i < len(entries); i++ {
			if entries[i].Seq != entries[i-1].Seq+1 {
				gaps++
				if entries[i-1].Seq != left.After || entries[i].Seq != left.After+left.Entries+1 {
					t.Errorf("%s: a gap behind %d: %+v", name, entries[i-1].Seq, left)
				}
			}
		}
		if gaps != 1 {
			t.Errorf("%s: %d gaps", name, gaps)
		}
		if _, err := l.Count(trace.Filter{Kind: trace.Bytes}); !errors.Is(err, trace.ErrLeftOut) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := l.Await(wiretest.Context(t), trace.Filter{Kind: trace.Bytes}, 2000); !errors.Is(err, trace.ErrLeftOut) {
			t.Errorf("%s: %v", name, err)
		}
		if n, err := l.Count(trace.Filter{Kind: trace.Bytes, Since: mark}); err != nil || n != 5 {
			t.Errorf("%s: %d since the mark, %v", name, n, err)
		}
		l.Deliver(first, nil)
	}
}

// What was left out before it was delivered makes questions about later moments unanswerable too.
func TestLeftOutBeforeDelivery(t *testing.T) {
	l := trace.New("c1", wiretest.Spec(t), trace.Limits{Entries: 8, Bytes: 1 << 20}, ticker())
	var refs []trace.Ref
	for range 100 {
		refs = append(refs, l.Add(trace.Entry{Kind: trace.Bytes, Fate: trace.Waiting}))
	}
	mark := l.Mark()
	if _, err := l.Count(trace.Filter{Kind: trace.Bytes, Since: mark}); err != nil {
		t.Error(err)
	}
	l.Deliver(refs[50], nil)
	if _, err := l.Count(trace.Filter{Kind: trace.Bytes, Since: mark}); !errors.Is(err, trace.ErrLeftOut) {
		t.Errorf("%v", err)
	}
}

func TestJSON(t *testing.T) {
	spec := wiretest.Spec(t)
	l := trace.New("c1", spec, trace.DefaultLimits, ticker())
	frames := trace.Split(spec, oracle.Up, encode(t, oracle.Up,
		oracle.Record{Message: "session.connect", Form: oracle.Control, Value: oracle.Value{"token": "hush"}}, query("lease://r/a/k", 1<<63)))
	for _, e := range frames {
		e.Conn, e.Group, e.Fate = 1, l.Group(), trace.Waiting
		ref := l.Add(e)
		if e.Message == "lease.query" {
			l.Touch(ref, "edit")
			l.Deliver(ref, encode(t, oracle.Up, query("lease://r/a/other", 1<<63)))
		}
	}
	l.Add(trace.Entry{Kind: trace.Event, Message: "closed", Note: "bye", Fate: trace.Delivered})
	raw, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	if hush := hex.EncodeToString([]byte("hush")); bytes.Contains(raw, []byte("hush")) || bytes.Contains(raw, []byte(hush)) {
		t.Errorf("A-03: the token is shown: %s", raw)
	}
	var got struct {
		Name    string
		Started time.Time
		Entries []struct {
			N, Conn      int
			At_us        int64
			Delivered_us *int64
			Dir, Message string
			Label, Text  string
			Bytes, Sent  string
			Spans        []struct{ Offset, Len int }
			Sent_spans   []struct{ Offset, Len int }
			Kind, Fate   string
			Rule, Note   string
			Form, Fault  string
			Group        int
			Type         *uint16
		}
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.Name != "c1" || got.Started.Year() != 2030 || len(got.Entries) != 3 {
		t.Fatalf("%+v", got)
	}
	q := got.Entries[1]
	if q.Label != "9223372036854775808" || q.Text != `route="lease://r/a/k"` || *q.Type != 403 || q.Form != "request" || q.Fate != "delivered" || *q.Delivered_us <= q.At_us || q.Rule != "edit" {
		t.Errorf("%+v", q)
	}
	for _, spans := range [][]struct{ Offset, Len int }{q.Spans, q.Sent_spans} {
		at := 0
		for _, s := range spans {
			if s.Offset != at || s.Len <= 0 {
				t.Errorf("span %+v at %d", s, at)
			}
			at = s.Offset + s.Len
		}
		if at != len(q.Bytes)/2 && at != len(q.Sent)/2 {
			t.Errorf("%d bytes are named", at)
		}
	}
	if e := got.Entries[2]; e.Text != "bye" || e.Type != nil || e.Bytes != "" {
		t.Errorf("%+v", e)
	}
	for _, e := range l.Entries() {
		if line := e.String(); !strings.Contains(line, e.Message) || strings.Contains(line, "hush") {
			t.Errorf("%s", line)
		}
	}
}

// The bytes of the entries are the message, whatever it is.
func FuzzSplit(f *testing.F) {
	spec := wiretest.Spec(f)
	f.Add(true, encode(f, oracle.Up, query("lease://r/a/k", 9), query("lease://r/a/k", 0)))
	f.Add(false, encode(f, oracle.Down, oracle.Record{Message: "lease.notify", Form: oracle.Push, Value: oracle.Value{"subscription_id": 1, "route": "lease://r/a/k"}}))
	f.Add(true, []byte{2, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0})
	f.Add(false, []byte{3, 0, 1, 7, 3, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0xC9, 0, 0})
	f.Fuzz(func(t *testing.T, up bool, message []byte) {
		dir := oracle.Down
		if up {
			dir = oracle.Up
		}
		l := trace.New("x", spec, trace.DefaultLimits, ticker())
		var all []byte
		for _, e := range trace.Split(spec, dir, message) {
			all = append(all, e.Bytes...)
			stored := l.Get(l.Add(e))
			named := 0
			for _, s := range stored.Spans() {
				named += s.Len
			}
			if stored.Kind == trace.Frame && named != len(e.Bytes) {
				t.Fatalf("%d of %d bytes are named", named, len(e.Bytes))
			}
			if _, err := json.Marshal(stored); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(all, message) {
			t.Fatalf("%x became %x", message, all)
		}
	})
}
