// Package fleet is the fleet of the demo: workers that share the resources of a catalogue by holding a lease for each, see each other
// through an inventory observer, and balance by releasing their own leases and taking free ones. Nobody leads, and nobody takes anything
// away from a holder.
package fleet

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/balance"
)

// Selector matches the resources of the catalogue and the presence of the workers. One observer sees both, so that a worker does not act
// upon workers of one moment and leases of another.
const Selector = "lease://demo/*/*"

const (
	resourcePrefix = "lease://demo/fleet/"
	presencePrefix = "lease://demo/workers/"
)

// Defaults of a fleet. A round is a third of the ttl: what takes shorter than a renewal is too quick to balance. So many resources can be shared
// among any number of workers up to thirteen so that nobody holds more than 1.1 times the mean.
const (
	DefaultWorkers     = 5
	DefaultResources   = 60
	DefaultRound       = 2 * time.Second
	DefaultTTL         = 6 * time.Second
	DefaultBandPercent = 10
)

// Catalogue returns the routes of so many resources, in order.
func Catalogue(resources int) []string {
	out := make([]string, resources)
	width := len(fmt.Sprint(max(resources-1, 0)))
	for i := range out {
		out[i] = fmt.Sprintf("%s%0*d", resourcePrefix, width, i)
	}
	return out
}

// Resource returns the short name of a resource.
func Resource(route string) string { return strings.TrimPrefix(route, resourcePrefix) }

// PresenceRoute returns the route of the lease that a worker holds as long as it is there. Without it nobody could see a worker that holds
// no resource.
func PresenceRoute(id string) string { return presencePrefix + id }

// Settings is what the workers of a fleet have in common.
type Settings struct {
	URL       string
	Options   []fitz.Option // of every client
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)
	Catalogue []string
	Round     time.Duration // how often a worker looks for something to release
	TTL       time.Duration // of every lease, in whole seconds
	Rules     balance.Rules
	Random    func() float64 // uniform in [0, 1): spreads the rounds of the workers
}
