package lease

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/broker/subscription"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// What is counted on the way of a request allocates nothing, also when it is refused again and again.
func TestCountingAllocatesNothing(t *testing.T) {
	i := newInstruments(metrics.NewLease(nil))
	before, after := subscription.Work{}, subscription.Work{Probes: 8, Examined: 2}
	count := func() {
		i.requested(wire.TypeLeaseAcquire)
		i.failed(wire.TypeLeaseAcquire, wire.CodeLeaseHeld)
		i.answered(wire.TypeLeaseAcquire, time.Microsecond)
		i.expired(time.Millisecond)
		i.matched(before, after)
		i.paged(&page{examined: 3, items: 2, endedBy: boundExamined})
		i.m.Held.Inc()
	}
	count() // the first refusal of its kind makes its counter
	if n := testing.AllocsPerRun(1000, count); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Refusals are counted exactly, whichever goroutine meets a code for the first time.
func TestFirstRefusalsAtOnce(t *testing.T) {
	m := metrics.NewLease(nil)
	i := newInstruments(m)
	codes := []wire.Code{wire.CodeLeaseHeld, wire.CodeLeaseNotFound, wire.CodeLeaseInvalidFence, wire.CodeLeaseQueueFull}
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			for k := range codes {
				i.failed(wire.TypeLeaseRenew, codes[(n+k)%len(codes)])
			}
		})
	}
	all.Wait()
	for _, code := range codes {
		if n := testutil.ToFloat64(m.FailuresTotal.WithLabelValues("renew", code.String())); n != 64 {
			t.Errorf("%v was counted %v times", code, n)
		}
	}
}

// lease.md section 13: what dispatch refuses is a request of its operation, too, and is counted once with the code of its answer.
func TestRefusedBeforeTheDomain(t *testing.T) {
	h := newHarness(t)
	s := h.session("a")
	h.table.Dispatch(s, peer.Call{Type: wire.TypeLeaseQuery}, []byte{0}) // malformed
	value, err := (&wire.LeaseListRequest{Selector: "lease://r"}).AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	h.table.Dispatch(s, peer.Call{Type: wire.TypeLeaseList}, value)
	s.query(key)
	for _, c := range []struct {
		operation          string
		code               wire.Code
		requests, refusals float64
	}{
		{"query", wire.CodeLeaseBadRequest, 2, 1},
		{"list", wire.CodeLeaseInvalidListPattern, 1, 1},
	} {
		requests := testutil.ToFloat64(h.metrics.RequestsTotal.WithLabelValues(c.operation))
		refusals := testutil.ToFloat64(h.metrics.FailuresTotal.WithLabelValues(c.operation, c.code.String()))
		if requests != c.requests || refusals != c.refusals {
			t.Errorf("%s: %v requests, %v refusals", c.operation, requests, refusals)
		}
	}
	if n := testutil.CollectAndCount(h.metrics.FailuresTotal); n != 2 {
		t.Errorf("%d pairs of operation and code", n)
	}
}

// The depths of queues are those of the moment of the look.
func TestSample(t *testing.T) {
	h := newHarness(t)
	m := h.domain.metrics.m
	a, b := h.session("a"), h.session("b")
	a.acquire(key, "w", 30, 0)
	box := h.domain.mailbox(1)
	unblock := h.block(box, func() { b.query(key) })
	charged := h.family(1).bytes
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.domain.Sample() // waits for the turn of the family like everybody else
	}()
	unblock()
	<-done
	h.domain.Sample()
	for name, c := range map[string]struct{ got, want float64 }{
		"families":         {testutil.ToFloat64(m.Families), 1},
		"charged bytes":    {testutil.ToFloat64(m.ChargedBytes), float64(charged)},
		"waiting commands": {testutil.ToFloat64(m.MailboxCommands), 0},
		"waiting bytes":    {testutil.ToFloat64(m.MailboxBytes), 0},
		"fan-outs":         {testutil.ToFloat64(m.FanoutJobs), 0},
	} {
		if c.got != c.want || charged == 0 {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	families := h.domain.Families()
	if len(families) != 1 || families[0].Number != 1 || families[0].Leases != 1 || families[0].ChargedBytes != charged || families[0].Sessions != 1 {
		t.Errorf("families %+v", families)
	}
}
