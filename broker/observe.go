package broker

import (
	"errors"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/fitzwire/fitz/broker/admin"
	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/reload"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/version"
)

// observed are the metrics of a broker: every group of metrics.yaml, and what Go and the system say about the process.
type observed struct {
	registry *prometheus.Registry
	broker   *metrics.Broker
	session  *metrics.Session
	lease    *metrics.Lease
	auth     *metrics.Auth
	reload   *metrics.Reload
	tls      *metrics.Tls
}

func newObserved() *observed {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o := &observed{
		registry: r, broker: metrics.NewBroker(r), session: metrics.NewSession(r), lease: metrics.NewLease(r),
		auth: metrics.NewAuth(r), reload: metrics.NewReload(r), tls: metrics.NewTls(r),
	}
	built := version.Of(programName, wire.SpecVersion, wire.SpecFingerprint)
	o.broker.BuildInfo.WithLabelValues(built.Version, built.Commit, built.Fingerprint).Set(1)
	for _, bound := range []string{transport.BoundPreauth, transport.BoundPerAddress} {
		o.broker.PreauthEvictionsTotal.WithLabelValues(bound)
	}
	for _, reason := range []string{upgradeOrigin, upgradeHandshake} {
		o.broker.UpgradeRefusalsTotal.WithLabelValues(reason)
	}
	for _, reason := range []string{admin.RefusedHost, admin.RefusedToken} {
		o.broker.AdminRefusalsTotal.WithLabelValues(reason)
	}
	for _, reason := range auth.Reasons {
		o.auth.RefusalsTotal.WithLabelValues(string(reason))
	}
	for _, result := range []string{auth.RefreshDone, auth.RefreshFailed} {
		o.auth.JwksRefreshesTotal.WithLabelValues(result)
	}
	for _, kind := range reload.Kinds {
		o.reload.FailuresTotal.WithLabelValues(kind)
	}
	return o
}

// Reasons for which a request at a WebSocket listener becomes no session.
const (
	upgradeOrigin    = "origin"
	upgradeHandshake = "handshake"
)

// scrape is the Gatherer of a broker: it looks at what is not counted while it happens, and gathers.
type scrape struct {
	b  *Broker
	mu sync.Mutex // one look at a time, so that an answer holds numbers of one look
}

// Gather is part of prometheus.Gatherer.
func (s *scrape) Gather() ([]*dto.MetricFamily, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.sample()
	return s.b.observed.registry.Gather()
}

// sample brings the metrics up to date that are looked at when somebody asks.
func (b *Broker) sample() {
	m := b.observed.broker
	m.Ready.Set(0)
	if b.ready.Load() {
		m.Ready.Set(1)
	}
	m.Connections.Set(float64(b.slots.Used()))
	b.hub.Sample()
	b.lease.Sample()
}

// watchAdmission counts what the bounds of connections do.
func (b *Broker) watchAdmission() {
	m := b.observed.broker
	m.StartTimeSeconds.Set(float64(b.startedAt.UnixMilli()) / 1000)
	m.ConnectionsLimit.Set(float64(b.config.Limits.ConnectionsMax))
	b.slots.Full = m.AcceptPausesTotal.Inc
	b.preauth.Evicted = func(bound string) { m.PreauthEvictionsTotal.WithLabelValues(bound).Inc() }
}

// acceptFailed returns what a listener calls when the system gives it no connection.
func (b *Broker) acceptFailed(name string) func(error) {
	failures := b.observed.broker.AcceptFailuresTotal.WithLabelValues(name)
	return func(err error) {
		failures.Inc()
		b.log.Warn("accept failed", "listener", name, "error", err)
	}
}

// upgradeRefused notes a request that became no session. What the peer sent does not stand in the log: it may be anything.
func (b *Broker) upgradeRefused(r *http.Request, err error) {
	reason := upgradeHandshake
	if errors.Is(err, transport.ErrOrigin) {
		reason = upgradeOrigin
	}
	b.observed.broker.UpgradeRefusalsTotal.WithLabelValues(reason).Inc()
	b.log.Info("upgrade refused", "reason", reason, "remote", r.RemoteAddr)
}

// adminRefused counts a request that the admin interface refused.
func (b *Broker) adminRefused(reason string) {
	b.observed.broker.AdminRefusalsTotal.WithLabelValues(reason).Inc()
}

// Registry returns the metrics of the broker.
func (b *Broker) Registry() prometheus.Gatherer { return b.scraper }
