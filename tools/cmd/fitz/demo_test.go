//go:build unix

package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fitzwire/fitz/tools/internal/fleet"
)

// quick are arguments of a demo whose rounds are short.
func quick(url string, more ...string) []string {
	return append([]string{"demo", "--url", url, "--round", "100ms", "--ttl", "2s", "--resources", "6"}, more...)
}

// Workers of one program and one in a process of its own share the resources. When that is killed with SIGKILL, its resources go to the
// others, and the demo goes on.
func TestDemoSurvivesKilledWorker(t *testing.T) {
	t.Parallel() // it mostly waits
	eachTransport(t, func(t *testing.T, url string) {
		demo := runFitz(t, "", quick(url, "--workers", "2", "--churn", "0")...)
		demo.line("spread 2 workers, 6 of 6 held, 3 to 3 each, max/mean 1.00, 0 moves, settled")
		worker := runFitz(t, "", quick(url, "--worker", "--name", "ada")...)
		if line := worker.line("worker ada is process "); !strings.HasSuffix(line, " "+strconv.Itoa(worker.cmd.Process.Pid)) {
			t.Error(line)
		}
		demo.line("joined ada")
		demo.line("spread 3 workers, 6 of 6 held, 2 to 2 each, max/mean 1.00, 2 moves, settled")
		worker.signal(syscall.SIGKILL)
		demo.line("spread 2 workers, 6 of 6 held, 3 to 3 each")
		demo.signal(os.Interrupt)
		demo.expectExit(exitOK)
		c := other(t, url)
		for _, r := range append(fleet.Catalogue(6), fleet.PresenceRoute("ada")) {
			if query(t, c, r).Held {
				t.Errorf("%s is held after the end of the demo", r)
			}
		}
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
	if query(t, other(t, url), fleet.PresenceRoute("ada")).Held {
		t.Error("the presence outlived the worker")
	}
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
	demo.line("spread 2 workers, 5 of 5 held, 2 to 3 each")
	if got := query(t, c, taken); got.OwnerID != "stranger" {
		t.Errorf("held by %q", got.OwnerID)
	}
	give(t, lease)
	demo.line("spread 2 workers, 6 of 6 held, 3 to 3 each")
	demo.signal(os.Interrupt)
	demo.expectExit(exitOK)
}
