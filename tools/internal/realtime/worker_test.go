//go:build linux

package realtime

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/boot"
)

// The test binary is a worker when this is set to the words of an order.
const workerEnv = "FITZ_REALTIME_WORKER"

func TestMain(m *testing.M) {
	if order := os.Getenv(workerEnv); order != "" {
		if err := work(parseOrder(order)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Tests wait for time to pass, not for a processor.
	_ = flag.Set("test.parallel", "16")
	var err error
	if scratch, err = os.MkdirTemp("", "fitz-realtime-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(scratch)
		os.Exit(code)
	}))
}

// order says what a worker does.
type order struct {
	url    string
	route  string
	ttl    time.Duration
	manual bool // the lease is not renewed
	idle   bool // no lease, no ticks
	watch  bool // an observer, no ticks
}

func (o order) String() string {
	return fmt.Sprint(o.url, " ", o.route, " ", int64(o.ttl), " ", o.manual, " ", o.idle, " ", o.watch)
}

func parseOrder(text string) (o order) {
	words := strings.Fields(text)
	o.url, o.route = words[0], words[1]
	nanoseconds, _ := strconv.ParseInt(words[2], 10, 64)
	o.ttl, o.manual, o.idle, o.watch = time.Duration(nanoseconds), words[3] == "true", words[4] == "true", words[5] == "true"
	return o
}

// Lines of a worker are a word, the time of its clock before whatever the line tells of, and one more word.
const (
	wordHeld    = "held"    // tick: a member of the handle says that the lease is held; which one
	wordLost    = "lost"    // tick: it says that the lease is not held any more
	wordGranted = "granted" // the lease was acquired
	wordRenewed = "renewed" // a renewal succeeded
	wordSignal  = "signal"  // a goroutine that did nothing but wait for Done was told; why
	wordReady   = "ready"   // there is nothing to wait for any more
)

// tickEvery is how often a worker asks its handle whether it holds.
const tickEvery = 2 * time.Millisecond

func say(word string, at time.Duration, more any) { fmt.Println(word, int64(at), more) }

// work acquires the lease and asks the handle at every tick whether it is held, until the standard input ends.
func work(o order) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	client, err := fitz.Connect(ctx, o.url, fitz.WithHooks(fitz.Hooks{Event: func(e fitz.Event) {
		if e.Name == fitz.EventLeaseRenewed {
			say(wordRenewed, boot.System(), "-")
		}
	}}))
	if err != nil {
		return err
	}
	defer client.Close()
	if o.watch {
		if err := observe(ctx, client, o.route); err != nil {
			return err
		}
	}
	if !o.idle {
		lease, err := client.Lease().Acquire(ctx, o.route, o.ttl, &fitz.AcquireOptions{ManualRenew: o.manual})
		if err != nil {
			return err
		}
		say(wordGranted, boot.System(), "-")
		if !o.watch {
			tick(ctx, lease)
			return nil
		}
	}
	say(wordReady, boot.System(), "-")
	<-ctx.Done()
	return nil
}

func observe(ctx context.Context, client *fitz.Client, selector string) error {
	observer, err := client.Lease().Observe(selector, nil)
	if err != nil {
		return err
	}
	return observer.Ready(ctx)
}

// members are the ways to ask a handle whether it holds.
var members = []struct {
	name string
	held func(*fitz.Lease) bool
}{
	{"err", func(x *fitz.Lease) bool { return x.Err() == nil }},
	{"done", func(x *fitz.Lease) bool {
		select {
		case <-x.Done():
			return false
		default:
			return true
		}
	}},
	{"context", func(x *fitz.Lease) bool {
		ctx, cancel := x.Context(context.Background())
		defer cancel()
		return ctx.Err() == nil
	}},
}

func tick(ctx context.Context, lease *fitz.Lease) {
	done := lease.Done()
	told := make(chan struct{})
	go func() {
		defer close(told)
		select {
		case <-done:
			at := boot.System()
			say(wordSignal, at, reason(lease.Err()))
		case <-ctx.Done():
		}
	}()
	ticks := time.NewTicker(tickEvery)
	defer ticks.Stop()
	for i := 0; ctx.Err() == nil; i++ {
		m := members[i%len(members)]
		at := boot.System()
		word := wordLost
		if m.held(lease) {
			word = wordHeld
		}
		say(word, at, m.name)
		<-ticks.C
	}
	<-told
}

func reason(err error) string {
	var lost *fitz.LeaseLost
	if errors.As(err, &lost) {
		return string(lost.Reason)
	}
	return fmt.Sprint(err)
}
