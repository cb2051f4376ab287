//go:build unix

package fleet_test

import (
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/fitzwire/fitz/tools/internal/fleet"
)

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// L-104: one worker process is stopped for longer than the ttl, and another one is killed meanwhile; the rest of the fleet takes over what both
// held. When the stopped one goes on, it knows of every lease that it lost before it takes anything, and has its share again.
func TestStoppedAndKilledProcess(t *testing.T) {
	w := newCrew(t)
	stopped, killed, _ := w.start("stopped"), w.start("killed"), w.start("third")
	w.settles(3)
	held := map[string]bool{}
	stopped.hears(held, w.holds("stopped"))
	before := maps.Clone(held)
	stopped.signal(syscall.SIGSTOP)
	w.settles(2)
	killed.signal(syscall.SIGKILL)
	w.settles(1)
	stopped.signal(syscall.SIGCONT)
	w.settles(2)
	lost, taken := 0, 0
	for _, said := range stopped.hears(held, w.holds("stopped")) {
		switch {
		case said[0] == saidTaken:
			taken++
		case said[0] == saidGiven: // to another one
		case !before[said[1]] || !strings.Contains(said[2], "expired"):
			t.Errorf("%v, which it did not hold", said)
		case taken > 0:
			t.Errorf("%v, after it has taken something", said)
		default:
			lost++
		}
	}
	// A share of three workers and the presence; then a share of two and the presence.
	if lost != quickResources/3+1 || taken < quickResources/2 || !before[fleet.PresenceRoute("stopped")] {
		t.Errorf("after it was stopped it lost %d and took %d", lost, taken)
	}
}
