//go:build unix

package brokerproc_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/fitzwire/fitz/conformance/brokerproc"
)

// A command that is given up while the broker works at it spoils nothing: the next one gets its own answer. Who waits for a broker in a
// watcher that is ended must not make it look as if the broker had crashed.
func TestControlGivenUp(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	ctx, giveUp := context.WithCancel(soon(t))
	served := make(chan error, 1)
	go func() { // a broker that works at the second command until the third has come
		nc, err := listener.Accept()
		if err != nil {
			served <- err
			return
		}
		in := bufio.NewScanner(nc)
		in.Scan()
		_, err = io.WriteString(nc, `{"id":1,"ok":{"now_ns":0}}`+"\n")
		in.Scan()
		giveUp()
		in.Scan()
		_, err2 := io.WriteString(nc, `{"id":2,"ok":{"now_ns":2}}`+"\n"+`{"id":3,"ok":{"seed":"7"}}`+"\n")
		served <- errors.Join(err, err2, nc.Close())
	}()
	c, err := brokerproc.Dial(soon(t), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Settle(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if seed, err := c.Seed(soon(t)); seed != "7" || err != nil {
		t.Fatalf("seed %q, %v", seed, err) // the end of the connection ends the other side too
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := c.Settle(soon(t)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind the end of the connection: %v", err)
		}
	}
}

// An answer to a command that was never given, or none that can be read, is an error and not taken for another.
func TestControlWrongAnswer(t *testing.T) {
	for _, line := range []string{`{"id":3,"ok":{}}`, `{"id":"x"}`, `{"id":0,"error":"not a command"}`, `x`} {
		t.Run(line, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = listener.Close() }()
			served := make(chan error, 1)
			go func() {
				nc, err := listener.Accept()
				if err != nil {
					served <- err
					return
				}
				in := bufio.NewScanner(nc)
				in.Scan()
				_, err = fmt.Fprintln(nc, line)
				in.Scan() // until the other side ends
				served <- errors.Join(err, nc.Close())
			}()
			if c, err := brokerproc.Dial(soon(t), listener.Addr().String()); err == nil {
				c.Close()
				t.Error("it was taken for an answer")
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}
