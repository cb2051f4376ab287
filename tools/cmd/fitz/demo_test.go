//go:build unix

package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/fleet"
)

// quick are arguments of a demo whose rounds are short. The ttl is not, so that a busy machine costs no worker its leases.
func quick(url string, more ...string) []string {
	return append([]string{"demo", "--url", url, "--round", "100ms", "--ttl", "30s", "--resources", "6"}, more...)
}

// settled reads the output up to the line of a fleet that has settled like this. How many moves that took depends on how fast the machine is here;
// the tests of package fleet count them in virtual time.
func (p *process) settled(spread string) {
	p.t.Helper()
	for line := ""; !strings.HasSuffix(line, ", settled"); {
		line = p.line("spread " + spread)
	}
}

// free waits until nobody holds any of the routes: a worker that could not release something in time leaves that to the end of its session, which
// the broker notices after the process has ended.
func free(t *testing.T, c *fitz.LeaseClient, routes ...string) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for _, route := range routes {
		for ; query(t, c, route).Held; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is held after the end of its worker", route)
			}
		}
	}
}

// Workers of one program and one in a process of its own share the resources. When that is killed with SIGKILL, its resources go to the
// others, and the demo goes on.
func TestDemoSurvivesKilledWorker(t *testing.T) {
	t.Parallel() // it mostly waits
	eachTransport(t, func(t *testing.T, url string) {
		demo := runFitz(t, "", quick(url, "--workers", "2", "--churn", "0")...)
		demo.settled("2 workers, 6 of 6 held, 3 to 3 each, max/mean 1.00, ")
		worker := runFitz(t, "", quick(url, "--worker", "--name", "ada")...)
		if line := worker.line("worker ada is process "); !strings.HasSuffix(line, " "+strconv.Itoa(worker.cmd.Process.Pid)) {
			t.Error(line)
		}
		demo.line("joined ada")
		demo.settled("3 workers, 6 of 6 held, 2 to 2 each, max/mean 1.00, ")
		worker.signal(syscall.SIGKILL)
		demo.settled("2 workers, 6 of 6 held, 3 to 3 each")
		demo.signal(os.Interrupt)
		demo.expectExit(exitOK)
		free(t, other(t, url), append(fleet.Catalogue(6), fleet.PresenceRoute("ada"))...)
	})
}

// Workers come, go and are killed all the time, and the fleet goes on.
func TestDemoChurns(t *testing.T) {
	t.Parallel() // it mostly waits
	demo := runFitz(t, "", quick(tcpURL(startBroker(t)), "--workers", "3", "--churn", "150ms")...)
	for _, action := range []string{"demo   adds ", "demo   removes ", "demo   kills "} {
		found := false
		for !found && demo.stdout.Scan() {
			found = strings.HasPrefix(demo.stdout.Text(), action)
		}
		if !found {
			t.Fatalf("the output ended before %q: %s", action, demo.errors())
		}
	}
	demo.signal(syscall.SIGTERM)
	demo.expectExit(exitOK)
}

// A worker that is interrupted leaves in order.
func TestDemoWorkerLeaves(t *testing.T) {
	url := tcpURL(startBroker(t))
	worker := runFitz(t, "", quick(url, "--worker", "--name", "ada")...)
	worker.line("worker ada")
	second := runFitz(t, "", quick(url, "--worker", "--name", "ada")...)
	second.expectExit(exitFailure)
	if !strings.Contains(second.errors(), "there is a worker ada already") {
		t.Error(second.errors())
	}
	worker.signal(os.Interrupt)
	worker.expectExit(exitOK)
	free(t, other(t, url), fleet.PresenceRoute("ada"))
}

// Programs get one object on each line.
func TestDemoJSON(t *testing.T) {
	demo := runFitz(t, "", append(quick(tcpURL(startBroker(t)), "--workers", "1", "--churn", "0"), "--json")...)
	moved := 0
	for demo.stdout.Scan() {
		var object struct {
			Event, Route, To string
			Settled          bool
		}
		if err := json.Unmarshal(demo.stdout.Bytes(), &object); err != nil {
			t.Fatalf("%s: %v", demo.stdout.Text(), err)
		}
		if object.Event == string(fleet.Taken) && strings.HasPrefix(object.Route, "lease://demo/fleet/") && object.To != "" {
			moved++
		}
		if object.Event == "spread" && object.Settled {
			break
		}
	}
	if moved != 6 {
		t.Errorf("%d resources were taken", moved)
	}
	demo.signal(os.Interrupt)
	demo.expectExit(exitOK)
}

func TestDemoUsage(t *testing.T) {
	url := tcpURL(startBroker(t))
	for name, args := range map[string][]string{
		"workers": {"--workers", "1001"}, "resources": {"--resources", "0"}, "round": {"--round", "1ms"}, "churn": {"--churn=-1s"},
		"ttl": {"--ttl", "1500ms"}, "name without worker": {"--name", "x"}, "name": {"--worker", "--name", "a/b"},
	} {
		t.Run(name, func(t *testing.T) {
			p := runFitz(t, "", append([]string{"demo", "--url", url}, args...)...)
			p.expectExit(exitUsage)
		})
	}
	runFitz(t, "", "demo", "--url", "fitz://127.0.0.1:1").expectExit(exitUnavailable)
}

// The demo does not touch what others hold.
func TestDemoLeavesStrangersAlone(t *testing.T) {
	t.Parallel() // it mostly waits
	url := tcpURL(startBroker(t))
	c := other(t, url)
	taken := fleet.Catalogue(6)[0]
	lease := take(t, c, taken, "stranger")
	demo := runFitz(t, "", quick(url, "--workers", "2", "--churn", "0")...)
	demo.settled("2 workers, 5 of 5 held, 2 to 3 each")
	if got := query(t, c, taken); got.OwnerID != "stranger" {
		t.Errorf("held by %q", got.OwnerID)
	}
	give(t, lease)
	demo.settled("2 workers, 6 of 6 held, 3 to 3 each")
	demo.signal(os.Interrupt)
	demo.expectExit(exitOK)
}
