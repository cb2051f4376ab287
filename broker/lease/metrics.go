package lease

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fitzwire/fitz/broker/subscription"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// operations are the requests of the domain.
var operations = []wire.MessageType{
	wire.TypeLeaseAcquire, wire.TypeLeaseRenew, wire.TypeLeaseRelease, wire.TypeLeaseQuery,
	wire.TypeLeaseSubscribe, wire.TypeLeaseUnsubscribe, wire.TypeLeaseList,
}

// instruments are the metrics of the domain with the children of their labels looked up beforehand (lease.md section 13). Labels
// hold no routes and no owners.
type instruments struct {
	m        *metrics.Lease
	requests [operationCount]prometheus.Counter // by message type
	latency  [operationCount]prometheus.Observer
	failures [operationCount]atomic.Pointer[map[wire.Code]prometheus.Counter] // replaced when an operation meets a code for the first time
	cutShort map[string]prometheus.Counter                                    // by the bound
	exact    prometheus.Gauge
	wildcard prometheus.Gauge
}

// operationCount is the room that message types of operations need, counted from the first.
const operationCount = wire.TypeLeaseList - wire.TypeLeaseAcquire + 1

func newInstruments(m *metrics.Lease) *instruments {
	i := &instruments{
		m:        m,
		cutShort: map[string]prometheus.Counter{},
		exact:    m.Subscriptions.WithLabelValues("exact"),
		wildcard: m.Subscriptions.WithLabelValues("wildcard"),
	}
	for _, t := range operations {
		i.requests[t-wire.TypeLeaseAcquire] = m.RequestsTotal.WithLabelValues(operationName(t))
		i.latency[t-wire.TypeLeaseAcquire] = m.LatencySeconds.WithLabelValues(operationName(t))
		i.failures[t-wire.TypeLeaseAcquire].Store(&map[wire.Code]prometheus.Counter{})
	}
	for misuse := wire.LeaseCursorMisuseExactSelector; misuse <= wire.LeaseCursorMisuseOffsetTooHigh; misuse++ {
		m.ListCursorMismatchesTotal.WithLabelValues(misuse.String())
	}
	for _, bound := range []string{boundExamined, boundSlice, boundPageBytes} {
		i.cutShort[bound] = m.ListBudgetExhaustedTotal.WithLabelValues(bound)
	}
	return i
}

func operationName(t wire.MessageType) string { return strings.TrimPrefix(t.String(), "lease.") }

func (i *instruments) requested(t wire.MessageType) { i.requests[t-wire.TypeLeaseAcquire].Inc() }

func (i *instruments) answered(t wire.MessageType, took time.Duration) {
	i.latency[t-wire.TypeLeaseAcquire].Observe(took.Seconds())
}

// failed counts a refusal. Pairs of operation and code are looked up once, since a busy route is refused as often as it is asked for.
func (i *instruments) failed(t wire.MessageType, code wire.Code) {
	known := &i.failures[t-wire.TypeLeaseAcquire]
	counter := (*known.Load())[code]
	for counter == nil {
		before := known.Load()
		after := make(map[wire.Code]prometheus.Counter, len(*before)+1)
		maps.Copy(after, *before)
		after[code] = i.m.FailuresTotal.WithLabelValues(operationName(t), code.String())
		known.CompareAndSwap(before, &after)
		counter = (*known.Load())[code]
	}
	counter.Inc()
}

func (i *instruments) registered(sel pattern.Selector, delta float64) {
	if sel.Wildcard() {
		i.wildcard.Add(delta)
		return
	}
	i.exact.Add(delta)
}

func (i *instruments) expired(lag time.Duration) {
	i.m.ExpiredTotal.Inc()
	i.m.ExpiryLagSeconds.Observe(lag.Seconds())
}

func (i *instruments) matched(before, after subscription.Work) {
	i.m.MatchPatternsExaminedTotal.Add(float64(after.Probes - before.Probes + after.Examined - before.Examined))
}

func (i *instruments) paged(p *page) {
	i.m.ListIdentitiesExaminedTotal.Add(float64(p.examined))
	i.m.ListItemsTotal.Add(float64(p.items))
	if p.endedBy != "" {
		i.cutShort[p.endedBy].Inc()
	}
}

// FamilyLoad is what one family holds at one moment.
type FamilyLoad struct {
	Load
	Number       uint32
	ChargedBytes int64 // for lease_family_bytes_max
}

// Families returns what each family holds that has been used, by number. A stopped domain has none. The loads have no snapshots, which
// are not kept by family.
func (d *Domain) Families() []FamilyLoad {
	known := *d.mailboxes.Load()
	all := make([]FamilyLoad, 0, len(known))
	for number, b := range known {
		load := FamilyLoad{Number: number}
		b.look(&load.Load)
		b.mu.Lock()
		if b.family != nil {
			load.ChargedBytes = b.family.bytes
			all = append(all, load)
		}
		b.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b FamilyLoad) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// Snapshots returns how many snapshots are kept for listings.
func (d *Domain) Snapshots() int {
	d.snapshots.mu.Lock()
	defer d.snapshots.mu.Unlock()
	return len(d.snapshots.kept)
}

// Sample brings the metrics up to date that are looked at when somebody asks, because counting them would cost every command.
func (d *Domain) Sample() {
	known := *d.mailboxes.Load()
	var commands, bytes, charged int64
	jobs := 0
	for _, b := range known {
		commands += b.waiting.Load()
		bytes += b.waitingBytes.Load()
		b.mu.Lock()
		if f := b.family; f != nil {
			charged += f.bytes
			jobs += f.fanout.len()
		}
		b.mu.Unlock()
	}
	m := d.metrics.m
	m.Families.Set(float64(len(known)))
	m.ChargedBytes.Set(float64(charged))
	m.MailboxCommands.Set(float64(commands))
	m.MailboxBytes.Set(float64(bytes))
	m.FanoutJobs.Set(float64(jobs))
}
