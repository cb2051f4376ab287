//go:build unix

package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/fitzwire/fitz/broker/internal/program"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// W-37: SIGUSR1 drains for a replacement, which GOAWAY says with 9202; any second signal ends the grace.
func TestReplacementSignal(t *testing.T) {
	var stderr output
	signals := make(chan os.Signal, 2)
	addresses, ended := serving(t, &stderr, signals)
	c := rawclient.Dial(t, rawclient.TCP, addresses["tcp"])
	c.Connect()
	c.Negotiate()
	c.Sync(1)
	signals <- syscall.SIGUSR1
	var goaway wire.Goaway
	if err := goaway.DecodeValue(c.Expect(0, wire.TypeGoaway)); err != nil || goaway.Code != wire.CodeGoawayDrain {
		t.Errorf("GOAWAY %+v, %v", goaway, err)
	}
	signals <- syscall.SIGTERM
	c.ExpectClose(wire.CloseGoingAway)
	if code := <-ended; code != program.ExitDone {
		t.Errorf("exit %d", code)
	}
}
