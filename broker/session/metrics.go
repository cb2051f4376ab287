package session

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// instruments are the metrics of the layer with the children of their labels looked up beforehand, so that counting allocates nothing.
type instruments struct {
	m         *metrics.Session
	tcp       traffic
	webSocket traffic
}

// traffic is what is counted by transport.
type traffic struct {
	sessions prometheus.Gauge
	received prometheus.Counter
	sent     prometheus.Counter
}

// newInstruments makes every series that can be known beforehand exist from the beginning. A nil m is replaced.
func newInstruments(m *metrics.Session, limits *bounds.Limits) *instruments {
	if m == nil {
		m = metrics.NewSession(nil)
	}
	for _, name := range endings() {
		m.ClosesTotal.WithLabelValues(name)
	}
	m.ReceiveBufferLimitBytes.Set(float64(limits.InboundTotalBytesMax))
	m.OutboundQueueLimitBytes.Set(float64(limits.OutboundTotalBytesMax))
	of := func(transport string) traffic {
		return traffic{m.Sessions.WithLabelValues(transport), m.ReceivedBytesTotal.WithLabelValues(transport), m.SentBytesTotal.WithLabelValues(transport)}
	}
	return &instruments{m: m, tcp: of(transport.TCP), webSocket: of(transport.WebSocket)}
}

// endings are the names of all reasons for which a session ends.
func endings() []string {
	names := []string{left.name, lost.name}
	for _, reason := range wire.CloseReasons {
		names = append(names, reason.Name)
	}
	return names
}

// of returns what is counted for the transport of conn.
func (i *instruments) of(conn transport.Conn) *traffic {
	if conn.Transport() == transport.TCP {
		return &i.tcp
	}
	return &i.webSocket
}

// Census is what the sessions of a hub are at one moment.
type Census struct {
	TCP, WebSocket int
	Paused         int   // from which nothing is read because their answers wait
	OutboundBytes  int64 // in the queues of all
	LargestBytes   int64 // in the largest queue
}

// Census counts the sessions.
func (h *Hub) Census() Census {
	c := Census{OutboundBytes: h.outbound.Load()}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.sessions {
		if s.conn.Transport() == transport.TCP {
			c.TCP++
		} else {
			c.WebSocket++
		}
		if s.paused.Load() {
			c.Paused++
		}
		c.LargestBytes = max(c.LargestBytes, s.backlog.Load())
	}
	return c
}

// Sample brings the metrics up to date that are looked at when somebody asks, because counting them would cost every request.
func (h *Hub) Sample() {
	c := h.Census()
	h.metrics.m.OutboundQueueLargestBytes.Set(float64(c.LargestBytes))
	h.metrics.m.SessionsPaused.Set(float64(c.Paused))
}
