package proxy

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/conformance/fakebroker"
	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/internal/wiretest"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/rawpeer"
	"github.com/fitzwire/fitz/conformance/trace"
)

// writes remembers the size of each write.
type writes struct {
	sizes []int
	all   bytes.Buffer
}

func (w *writes) Write(b []byte) (int, error) {
	if len(w.sizes) == 100 {
		return 0, errors.New("full")
	}
	w.sizes = append(w.sizes, len(b))
	return w.all.Write(b)
}

func TestWritesOfOneByte(t *testing.T) {
	for chunk, want := range map[int][]int{0: {5}, 1: {1, 1, 1, 1, 1}, 2: {2, 2, 1}, 9: {5}} {
		var w writes
		if err := inChunks(&w, []byte("abcde"), chunk); err != nil || w.all.String() != "abcde" || !equal(w.sizes, want) {
			t.Errorf("chunk %d: %v, %q, %v", chunk, w.sizes, w.all.String(), err)
		}
	}
	if err := inChunks(&writes{}, make([]byte, 200), 1); err == nil {
		t.Error("an error of the writer is lost")
	}
}

func equal(a, b []int) bool { return bytes.Equal(tiny(a), tiny(b)) }

func tiny(a []int) []byte {
	var out []byte
	for _, n := range a {
		out = append(out, byte(n))
	}
	return out
}

// Messages that are coalesced are one write and several messages; joined ones are one message.
func TestComposition(t *testing.T) {
	for _, transport := range stream.Transports {
		for _, dir := range []oracle.Direction{oracle.Up, oracle.Down} {
			f := &flow{conn: &conn{transport: transport}, dir: dir}
			batch := func() []*item { return []*item{{payload: []byte("one")}, {payload: []byte("two!")}} }
			up := dir == oracle.Up
			want := stream.AppendMessage(stream.AppendMessage(nil, transport, up, []byte("one")), transport, up, []byte("two!"))
			if got := f.compose(batch()); !bytes.Equal(got, want) {
				t.Errorf("%s %s: %x", transport, dir, got)
			}
			joined := batch()
			joined[0].merges = true
			if got := f.compose(joined); !bytes.Equal(got, stream.AppendMessage(nil, transport, up, []byte("onetwo!"))) {
				t.Errorf("%s %s: %x", transport, dir, got)
			}
		}
	}
}

// What is held is bounded: beyond session_notify_bytes_max the sender is not read any more, and nothing is lost.
func TestHeldIsBounded(t *testing.T) {
	wiretest.Transports(t, func(t *testing.T, transport string) {
		ctx, spec := wiretest.Context(t), wiretest.Spec(t)
		const frames = 200
		route := "lease://r/a/" + strings.Repeat("k", 3000)
		fake, err := fakebroker.Start(spec, fakebroker.Script{Rules: []fakebroker.Rule{{
			On: fakebroker.On{Message: "lease.query"},
			Do: []fakebroker.Action{{
				Together: []fakebroker.Record{
					{Message: "lease.notify", Value: map[string]any{"subscription_id": 1, "route": route}},
					{Message: "lease.notify", Value: map[string]any{"subscription_id": 2, "route": route}},
					{Message: "lease.notify", Value: map[string]any{"subscription_id": 3, "route": route}},
					{Message: "lease.notify", Value: map[string]any{"subscription_id": 4, "route": route}},
				},
				Times: frames,
			}},
		}}}, fakebroker.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(fake.Close)
		p, err := Start(spec, fake.Address, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		p.mu.Lock()
		p.queueMax = 1 << 20
		p.mu.Unlock()
		peer, err := rawpeer.Dial(ctx, spec, rawpeer.Options{Transport: transport, Address: p.Address(transport)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(peer.Close)
		rule := p.Hold(Filter{Dir: oracle.Down, Message: "lease.notify", Count: 1})
		if _, err := peer.Start(ctx, "lease.query", oracle.Value{"route": "lease://r/a/k"}); err != nil {
			t.Fatal(err)
		}
		down := func() int { return p.conns[1].down.bytes }
		if err := p.await(ctx, "a full queue", func() bool { return down() > p.queueMax }); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		if most := p.queueMax + 2*int(spec.Bound("frame_send_max")) + 4*4096; down() > most {
			t.Errorf("%d bytes wait, more than %d", down(), most)
		}
		p.mu.Unlock()
		rule.Release()
		for range 4 * frames {
			if _, err := peer.Next(ctx, rawpeer.Filter{Message: "lease.notify"}); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := p.Trace().Count(trace.Filter{Dir: oracle.Down, Message: "lease.notify"}); err != nil || n != 4*frames {
			t.Errorf("%d frames, %v", n, err)
		}
	})
}
