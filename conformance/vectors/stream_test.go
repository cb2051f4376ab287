package vectors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/generated/go/bounds"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hooks listens to nothing.
type hooks struct{}

func (hooks) Received()    {}
func (hooks) Waiting(bool) {}
func (hooks) Pause()       {}
func (hooks) Resume()      {}
func (hooks) Ping([]byte)  {}

// perByte is the size from which bytes go in pieces instead of one by one: nothing is read differently in the middle of one long text.
const perByte = 4096

// pieces writes data byte by byte at both ends.
func pieces(w io.WriteCloser, data []byte) error {
	for at := 0; at < len(data); {
		n := 1
		if at > perByte && len(data)-at > perByte {
			n = min(997, len(data)-at-perByte)
		}
		if _, err := w.Write(data[at : at+n]); err != nil {
			return err
		}
		at += n
	}
	return w.Close()
}

// The reader of TCP messages gives what was sent, whole and byte by byte, and what is read from it gets the same answer.
// Clauses: W-10, D-1.
func TestGoByteByByte(t *testing.T) {
	in := transport.NewInbound(bounds.InboundTotalBytesMax, bounds.FrameRecvMax, func(int64) {})
	for _, v := range all(t) {
		if len(v.Bytes) == 0 {
			continue // a length of zero is a mistake of the transport (W-10)
		}
		stream := append(binary.BigEndian.AppendUint32(nil, uint32(len(v.Bytes))), v.Bytes...)
		near, far := net.Pipe()
		conn := transport.NewTCP(far, bounds.FrameRecvMax, in)
		conn.Bind(hooks{})
		written := make(chan error, 1)
		go func() { written <- pieces(near, stream) }()
		message, err := conn.ReadMessage()
		if err != nil || !bytes.Equal(message, v.Bytes) {
			t.Errorf("%s: %d bytes, %v", v.ID, len(message), err)
		}
		again := v
		again.Bytes = bytes.Clone(message)
		if a, b := goAnswer(t, v), goAnswer(t, again); a.Verdict != b.Verdict || a.Class != b.Class {
			t.Errorf("%s: %s %s, and %s %s when it came in pieces", v.ID, a.Verdict, a.Class, b.Verdict, b.Class)
		}
		if _, err := conn.ReadMessage(); !errors.Is(err, transport.ErrPeerClosed) {
			t.Errorf("%s: %v behind it", v.ID, err)
		}
		if err := <-written; err != nil {
			t.Errorf("%s: %v", v.ID, err)
		}
		conn.Abort()
	}
	if in.Used() != 0 {
		t.Errorf("%d bytes are still counted", in.Used())
	}
}

// A stream that ends inside of a message is no message, wherever it ends.
func TestGoStreamCut(t *testing.T) {
	in := transport.NewInbound(bounds.InboundTotalBytesMax, bounds.FrameRecvMax, func(int64) {})
	for _, v := range all(t) {
		if v.Unit != "message" || v.Dir != oracle.Up || len(v.Bytes) == 0 || len(v.Bytes) > allPrefixes {
			continue
		}
		stream := append(binary.BigEndian.AppendUint32(nil, uint32(len(v.Bytes))), v.Bytes...)
		for n := range stream {
			near, far := net.Pipe()
			conn := transport.NewTCP(far, bounds.FrameRecvMax, in)
			conn.Bind(hooks{})
			done := make(chan struct{})
			go func() {
				_, _ = near.Write(stream[:n])
				_ = near.Close()
				close(done)
			}()
			if message, err := conn.ReadMessage(); err == nil || message != nil {
				t.Fatalf("%s cut to %d bytes: a message of %d bytes", v.ID, n, len(message))
			}
			conn.Abort()
			<-done
		}
	}
	if in.Used() != 0 {
		t.Errorf("%d bytes are still counted", in.Used())
	}
}
