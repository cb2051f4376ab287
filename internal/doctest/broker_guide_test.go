package doctest

import (
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/conformance/brokerproc"
)

const brokerGuide = "docs/guides/test-your-own-broker.md"

// A broker at an address, and one that another command starts, get the verdicts that the guide names.
func TestBrokerGuide(t *testing.T) {
	c := newConformance(t)
	rows := verdicts(t, brokerGuide)
	var chosen []string
	for _, r := range rows {
		chosen = append(chosen, r.patterns...)
	}
	scenarios := strings.Join(chosen, ",")
	fitzd := c.broker[1]
	b, err := brokerproc.Start(t.Context(), brokerproc.Options{Command: []string{fitzd}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	addresses := "tcp://" + b.Address(brokerproc.TCP) + ",ws://" + b.Address(brokerproc.HTTP)

	code, _, found := c.run(t.TempDir(), "--no-driver", "--auth", "anonymous", "--broker", addresses, "--scenario", scenarios)
	if code != runnerFailed {
		t.Errorf("exit code %d", code)
	}
	for _, problem := range compare(rows, found) {
		t.Error(problem)
	}

	// The same broker behind a command that the runner does not know: it can be restarted, and takes no settings.
	command := fitzd + " --tcp {tcp} --http {http} --admin {admin}"
	code, printed, found := c.run(t.TempDir(), "--no-driver", "--auth", "anonymous", "--broker", command, "--scenario", "LEASE-GRANT,LEASE-RESTART")
	if code != 0 || len(found.Cases) == 0 {
		t.Errorf("exit code %d\n%s", code, printed)
	}
	if _, _, found = c.run(t.TempDir(), "--no-driver", "--auth", "anonymous", "--broker", command, "--scenario", "LEASE-LIMIT"); len(found.Cases) == 0 || found.Cases[0].Reason != "no_broker_process" {
		t.Errorf("%+v", found.Cases)
	}
	// A name of a reason in the guide is one that a run can give.
	if !slices.Contains(chosen, "LEASE-GRANT") {
		t.Error("the guide shows no pass")
	}
}
