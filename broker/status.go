package broker

import (
	"encoding/hex"
	"time"

	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/version"
)

// programName is the program that this package is the inside of.
const programName = "fitzd"

// milliTime is RFC 3339 with milliseconds, for UTC.
const milliTime = "2006-01-02T15:04:05.000Z"

// Status looks at the broker. The numbers are those of one look at each part, not of one instant.
func (b *Broker) Status() adminapi.Status {
	built := version.Of(programName, wire.SpecVersion, wire.SpecFingerprint)
	census := b.hub.Census()
	s := adminapi.Status{
		Program: built.Program, Version: built.Version, Commit: built.Commit, SpecFingerprint: built.Fingerprint,
		Lifetime:      hex.EncodeToString(b.lifetime[:]),
		StartedAt:     b.startedAt.UTC().Format(milliTime),
		UptimeSeconds: b.clock.Now().Sub(b.started).Round(time.Millisecond).Seconds(),
		State:         adminapi.StatusStateDraining,
		Sessions: adminapi.Sessions{
			TCP: uint64(census.TCP), Websocket: uint64(census.WebSocket), Preauth: uint64(b.preauth.Len()), Paused: uint64(census.Paused)},
		Listeners: make([]adminapi.Listener, 0, len(b.doors)),
		Families:  []adminapi.Family{},
		Bounds:    b.boundsInUse(census.OutboundBytes),
	}
	if b.ready.Load() {
		s.State = adminapi.StatusStateReady
	}
	for _, d := range b.doors {
		s.Listeners = append(s.Listeners, adminapi.Listener{
			Name: d.config.Name, Transport: d.config.Transport, Address: d.socket.Addr().String(), Auth: b.asks(d.config), Tls: d.config.TLS != nil})
	}
	for _, f := range b.lease.Families() {
		s.Families = append(s.Families, adminapi.Family{
			Family: f.Number, Sessions: uint64(f.Sessions), Held: uint64(f.Leases), Waiters: uint64(f.Waiters),
			Subscriptions: uint64(f.Registrations), ChargedBytes: uint64(f.ChargedBytes)})
		s.Leases.Held += uint64(f.Leases)
		s.Leases.Waiters += uint64(f.Waiters)
		s.Leases.Subscriptions += uint64(f.Registrations)
	}
	s.Leases.Snapshots = uint64(b.lease.Snapshots())
	return s
}

// asks tells whether clients of a listener must show a token.
func (b *Broker) asks(l config.Listener) string {
	if l.Auth == config.AuthToken || l.Transport == config.TransportAdmin && b.keys.adminToken != nil {
		return adminapi.ListenerAuthToken
	}
	return adminapi.ListenerAuthAnonymous
}

// boundsInUse is how much is in use of the bounds that concern the whole process.
func (b *Broker) boundsInUse(outbound int64) []adminapi.BoundUse {
	limits := &b.config.Limits
	use := func(name string, used, limit int64) adminapi.BoundUse {
		return adminapi.BoundUse{Name: name, Used: uint64(used), Limit: uint64(limit)}
	}
	return []adminapi.BoundUse{
		use("connections_max", int64(b.slots.Used()), limits.ConnectionsMax),
		use("preauth_sessions_max", int64(b.preauth.Len()), limits.PreauthSessionsMax),
		use("inbound_total_bytes_max", b.inbound.Used(), limits.InboundTotalBytesMax),
		use("outbound_total_bytes_max", outbound, limits.OutboundTotalBytesMax),
		use("lease_snapshots_max", int64(b.lease.Snapshots()), limits.LeaseSnapshotsMax),
	}
}
