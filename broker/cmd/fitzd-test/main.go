//go:build testclock

// Command fitzd-test is fitzd with a clock that stands still until it is told to move, for tests of the protocol. Besides the flags and
// settings of fitzd it has:
//
//	--control ADDRESS   loopback address of the control port, default 127.0.0.1:0; its address stands in the addresses file as "control"
//	--seed NUMBER       seed of the lifetime id and of the incarnation key, default a random one
//	--wall TIME         time of day at the start, RFC 3339, default 2030-01-01T00:00:00Z
//
// After a second signal its clock follows the real time, so that the end is bounded. Package broker/internal/control describes the port.
package main

import (
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/internal/control"
	"github.com/fitzwire/fitz/broker/internal/program"
)

func main() {
	program.IgnoreHangup()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, program.Signals()...)
	os.Exit(run(os.Args[1:], os.Getenv, os.Stdout, os.Stderr, signals))
}

// own are the flags that fitzd does not have.
type own struct {
	control string
	seed    uint64
	wall    time.Time
}

// run is fitzd-test without its process: it returns the exit code.
func run(args []string, env func(string) string, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	p := program.Program{Name: "fitzd-test"}
	flags, rest, err := parse(args)
	if err != nil {
		p.Complain(stderr, err)
		return program.ExitConfig
	}
	manual := clock.NewManual(flags.wall)
	port, err := control.Listen(flags.control, manual, flags.seed)
	if err != nil {
		p.Complain(stderr, fmt.Errorf("--control: %w", err))
		return program.ExitConfig
	}
	defer port.Close()
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], flags.seed)
	p.Options = []broker.Option{
		broker.WithClock(manual), broker.WithRandom(rand.NewChaCha8(key)), broker.WithAddress("control", port.Address())}
	p.Started = func(b *broker.Broker) func() {
		port.Serve(b)
		return port.Close
	}
	p.Hurried = func() func() { return follow(manual) }
	return p.Run(rest, env, stdout, stderr, signals)
}

// parse takes the own flags out of a command line.
func parse(args []string) (own, []string, error) {
	flags := own{control: "127.0.0.1:0", wall: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	var drawn [8]byte
	if _, err := crand.Read(drawn[:]); err != nil {
		return flags, nil, err
	}
	flags.seed = binary.BigEndian.Uint64(drawn[:])
	var rest []string
	for len(args) > 0 {
		name, value, joined := strings.Cut(args[0], "=")
		set := flags.setter(name)
		if set == nil {
			rest = append(rest, args[0])
			args = args[1:]
			continue
		}
		args = args[1:]
		if !joined {
			if len(args) == 0 {
				return flags, nil, fmt.Errorf("%s needs a value", name)
			}
			value, args = args[0], args[1:]
		}
		if err := set(value); err != nil {
			return flags, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return flags, rest, nil
}

// setter returns what sets a flag, nil for one of fitzd.
func (o *own) setter(name string) func(string) error {
	switch name {
	case "--control":
		return func(text string) error { o.control = text; return nil }
	case "--seed":
		return func(text string) (err error) { o.seed, err = strconv.ParseUint(text, 10, 64); return err }
	case "--wall":
		return func(text string) (err error) { o.wall, err = time.Parse(time.RFC3339Nano, text); return err }
	}
	return nil
}

// step is how often the clock is moved when it follows the real time.
const step = 5 * time.Millisecond

// follow makes the clock follow the real time until what it returns is called.
func follow(manual *clock.Manual) (end func()) {
	ticker := time.NewTicker(step)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				manual.Advance(step)
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(stop)
		<-done
	}
}
