package observer

import (
	"context"
	"errors"
	"testing"
)

func consumerOf(buffer int) (*Observer[int], *Consumer[int]) {
	o := &Observer[int]{options: Options{ChangeBuffer: buffer}}
	o.consumers.limit = 1
	o.published.Store(&published[int]{})
	c, _ := o.Consume()
	return o, c
}

func (o *Observer[int]) show(sequence, version uint64, stale bool) {
	o.published.Store(&published[int]{sequence: sequence, snapshot: &Snapshot[int]{Version: version, Stale: stale},
		status: Status{Reason: Disconnected}})
}

func next(t *testing.T, c *Consumer[int]) Event[int] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // whatever is there is read, and nothing is waited for
	e, ok := c.take()
	if !ok {
		_, _, err := c.Next(ctx)
		t.Fatalf("nothing to read: %v", err)
	}
	return e
}

// A reset stands for everything that was published before it: what leads there is not told again, whenever it is handed out (OB-54).
func TestResetReplacesWhatItContains(t *testing.T) {
	o, c := consumerOf(4)
	defer c.Close()
	o.show(7, 3, false) // published, but not told yet
	if e := next(t, c); e.Kind != Reset || e.Snapshot.Version != 3 {
		t.Fatalf("%+v", e)
	}
	if lost := o.consumers.tell(7, []Event[int]{{Kind: Added, After: 1}}); lost != 0 {
		t.Errorf("lost %d", lost)
	}
	o.consumers.tell(8, []Event[int]{{Kind: Added, After: 2}})
	if e := next(t, c); e.Kind != Added || e.After != 2 {
		t.Errorf("told again: %+v", e)
	}
}

// OB-56: a full buffer is lost as a whole, counted, and replaced by one reset with the snapshot of the time of the read.
func TestOverflow(t *testing.T) {
	o, c := consumerOf(2)
	defer c.Close()
	o.show(1, 1, false)
	next(t, c)
	lost := uint64(0)
	for i := range uint64(5) {
		o.show(2+i, 2+i, true)
		lost += o.consumers.tell(2+i, []Event[int]{{Kind: Added}})
	}
	if lost != 5 {
		t.Errorf("lost %d of 5", lost)
	}
	if e := next(t, c); e.Kind != BecameStale || e.Reason != Disconnected {
		t.Errorf("%+v", e)
	}
	if e := next(t, c); e.Kind != Reset || e.Snapshot.Version != 6 {
		t.Errorf("%+v", e)
	}
}

// OB-55: a read that is cancelled consumes nothing, and what was told before the end can still be read.
func TestCancelledReadConsumesNothing(t *testing.T) {
	o, c := consumerOf(4)
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, ok, err := c.Next(ctx); ok || !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, %v", ok, err)
	}
	o.show(1, 1, false)
	o.consumers.tell(1, nil)
	cause := errors.New("cause")
	o.consumers.end(cause)
	if e, ok, err := c.Next(ctx); !ok || e.Kind != Reset {
		t.Errorf("%+v, %v", e, err)
	}
	if _, ok, err := c.Next(context.Background()); ok || err != cause {
		t.Errorf("%v, %v", ok, err)
	}
	if _, err := o.Consume(); err != nil {
		t.Errorf("a consumer after the end: %v", err)
	}
}

// OB-55: the number of consumers is bounded.
func TestConsumersAreBounded(t *testing.T) {
	o, c := consumerOf(1)
	if _, err := o.Consume(); !errors.Is(err, ErrConsumers) {
		t.Errorf("a second one: %v", err)
	}
	c.Close()
	if _, err := o.Consume(); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}
