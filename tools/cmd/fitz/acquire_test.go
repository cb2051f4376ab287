//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/job"
)

const leased = "lease://r/a/k"

// command is the command line of a command that fitz runs.
func command(url string, flags ...string) []string {
	args := append([]string{"lease", "acquire", leased, "--url", url}, flags...)
	return append(args, "--", os.Args[0], "--flag-of-the-command")
}

// The command runs while the lease is held, finds it in its environment, and its exit status is that of fitz.
func TestAcquireRunsACommand(t *testing.T) {
	eachTransport(t, func(t *testing.T, url string) {
		p := runFitz(t, "env", command(url, "--ttl", "30s", "--owner", "me")...)
		p.line("FITZ_ROUTE " + leased)
		p.line("FITZ_FENCING_TOKEN 1")
		p.line("FITZ_OWNER_ID me")
		p.expectExit(0)

		c := other(t, url)
		p = runFitz(t, "wait", command(url, "--ttl", "30s", "--owner", "me")...)
		p.line("ready")
		if got := query(t, c, leased); !got.Held || got.OwnerID != "me" {
			t.Fatalf("%+v", got)
		}
		p.signal(unix.SIGTERM)
		p.expectExit(128 + int(unix.SIGTERM))
		if got := query(t, c, leased); got.Held { // released, not only dropped
			t.Fatalf("%+v", got)
		}
	})
}

func TestExitStatusOfTheCommand(t *testing.T) {
	url := tcpURL(startBroker(t))
	for _, code := range []int{0, 1, 2, 75, 255} {
		runFitz(t, fmt.Sprint("exit:", code), command(url, "--ttl", "30s")...).expectExit(code)
	}
	args := []string{"lease", "acquire", leased, "--url", url, "--ttl", "30s", "--"}
	runFitz(t, "", append(args, "no-such-command-anywhere")...).expectExit(exitNotFound)
	runFitz(t, "", append(args, "/dev/null")...).expectExit(exitNotRunnable)
}

// Without --wait a lease that somebody else holds is a failure; with it fitz waits for its turn.
func TestAcquireContended(t *testing.T) {
	eachTransport(t, func(t *testing.T, url string) {
		c := other(t, url)
		taken := take(t, c, leased, "evil\x1b[2J")
		p := runFitz(t, "exit:0", command(url)...)
		p.expectExit(exitFailure)
		if got := p.errors(); !strings.Contains(got, `lease.held (5001)`) || !strings.Contains(got, `evil\u001b[2J`) || strings.Count(got, "\n") != 1 {
			t.Fatalf("stderr %q", got)
		}
		p = runFitz(t, "env", command(url, "--ttl", "30s", "--wait", "90s")...)
		awaitWaiters(t, c, 1)
		give(t, taken)
		p.line("FITZ_FENCING_TOKEN")
		p.expectExit(0)
		if got := p.errors(); got != "fitz: waiting for "+leased+"\n" {
			t.Fatalf("stderr %q", got)
		}
	})
}

// A refusal that no waiting mends is not waited out: here the line is full.
func TestRefusedWhileWaiting(t *testing.T) {
	url := tcpURL(startBroker(t, "--limit", "lease_waiters_per_key_max=1"))
	c := other(t, url)
	take(t, c, leased, "x")
	first := runFitz(t, "exit:0", command(url, "--ttl", "30s", "--wait", "90s")...)
	awaitWaiters(t, c, 1)
	second := runFitz(t, "exit:0", command(url, "--ttl", "30s", "--wait", "90s")...)
	second.expectExit(exitFailure)
	if got := second.errors(); !strings.Contains(got, "lease.queue_full") {
		t.Errorf("stderr %q", got)
	}
	first.signal(unix.SIGTERM)
	first.expectExit(128 + int(unix.SIGTERM))
}

// awaitWaiters asks until so many requests wait for the lease.
func awaitWaiters(t *testing.T, c *fitz.LeaseClient, n uint32) {
	t.Helper()
	for deadline := time.Now().Add(soon); query(t, c, leased).PendingWaiters != n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never %d waiters", n)
		}
	}
}

// An interrupted wait is cancelled: nobody waits any more, and nobody is granted anything.
func TestInterruptedWait(t *testing.T) {
	url := tcpURL(startBroker(t))
	c := other(t, url)
	taken := take(t, c, leased, "x")
	p := runFitz(t, "exit:0", command(url, "--ttl", "30s", "--wait", "30s")...)
	awaitWaiters(t, c, 1)
	p.signal(unix.SIGINT)
	p.expectExit(128 + int(unix.SIGINT))
	if got := query(t, c, leased); got.PendingWaiters != 0 {
		t.Fatalf("%+v", got)
	}
	give(t, taken)
	if got := query(t, c, leased); got.Held {
		t.Fatalf("%+v", got)
	}
}

// L-95, L-96: when renewals get no answer, the group gets SIGTERM before the local deadline and SIGKILL at it; nothing of it is left
// when another owner could hold the lease.
func TestLostAtTheDeadline(t *testing.T) {
	t.Parallel() // it mostly waits
	// The margin grows with the ttl, and it is all that a busy machine has to end the processes and to tell this test. The lead is the time in
	// which they can say that they got the first signal.
	const ttl, lead = 12 * time.Second, 3 * time.Second
	b := startBroker(t)
	p := startProxy(t, b.Addresses()["tcp"])
	f := runFitz(t, "stubborn", command(p.url(), "--ttl", ttl.String(), "--kill-after", lead.String())...)
	f.line("listening")
	f.line("listening") // the child of the command, too
	p.freeze()
	froze := time.Now() // the last renewal was sent before
	f.line("got 15")
	f.line("got 15")
	f.expectExit(exitLost) // the output ended, so every process of the group is gone
	if took := time.Since(froze); took >= ttl {
		t.Errorf("gone %v after the last renewal", took)
	}
	if got := f.errors(); !strings.Contains(got, "fitz: lost "+leased+": expired\n") {
		t.Errorf("stderr %q", got)
	}
}

// A fitz that is stopped ends nothing, so that the command goes on without a lease: only the fencing token tells the resource. As soon as
// fitz is continued, the group gets SIGKILL; nothing else comes before.
func TestStoppedBeyondTheTTL(t *testing.T) {
	t.Parallel() // it mostly waits
	url := tcpURL(startBroker(t))
	c := other(t, url)
	f := runFitz(t, "signals", command(url, "--ttl", "2s")...)
	var pid int
	_, _ = fmt.Sscanf(f.line("ready"), "ready %d", &pid)
	f.line("listening")
	f.signal(unix.SIGSTOP)
	if token := take(t, c, leased, "next").FencingToken(); token != 2 { // as soon as the ttl is over
		t.Errorf("fencing token %d", token)
	}
	if err := unix.Kill(pid, unix.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	f.line(fmt.Sprint("got ", int(unix.SIGUSR1)))
	f.signal(unix.SIGCONT)
	if rest := f.rest(); len(rest) > 0 {
		t.Errorf("the command wrote %q after fitz was continued", rest)
	}
	f.expectExit(exitLost)
	if got := f.errors(); got != "fitz: lost "+leased+": expired\n" {
		t.Errorf("stderr %q", got)
	}
	if got := query(t, c, leased); got.OwnerID != "next" {
		t.Errorf("%+v", got)
	}
}

// W-35: when the connection ends, the broker frees the lease at once, so the command must not go on until the deadline.
func TestLostWithTheConnection(t *testing.T) {
	t.Parallel() // it mostly waits: for as long as the command has to say that it got the first signal
	b := startBroker(t)
	p := startProxy(t, b.Addresses()["tcp"])
	f := runFitz(t, "stubborn", command(p.url(), "--ttl", "1h", "--kill-after", "5s")...)
	f.line("listening")
	f.line("listening")
	p.cut()
	f.line("got 15")
	f.expectExit(exitLost)
	if got := f.errors(); !strings.Contains(got, "lost "+leased+": disconnected") {
		t.Errorf("stderr %q", got)
	}
}

// The lease is kept beyond its ttl by renewals.
func TestRenewals(t *testing.T) {
	t.Parallel() // it mostly waits
	url := tcpURL(startBroker(t))
	c := other(t, url)
	f := runFitz(t, "wait", command(url, "--ttl", "6s")...)
	f.line("ready")
	for renewals := uint32(0); renewals < 4; time.Sleep(10 * time.Millisecond) {
		held := false
		for entry, err := range c.List(leased, nil).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			held, renewals = true, entry.Renewals
		}
		if !held {
			t.Fatalf("lost after %d renewals", renewals)
		}
	}
	f.signal(unix.SIGTERM)
	f.expectExit(128 + int(unix.SIGTERM))
}

// W-67, W-37: a broker that ends says so first; the lease is lost with the session.
func TestBrokerGoesAway(t *testing.T) {
	b := startBroker(t, "--limit", "drain_grace_ms=200")
	f := runFitz(t, "wait", command(tcpURL(b), "--ttl", "30s")...)
	f.line("ready")
	b.Shutdown(t.Context())
	f.expectExit(exitLost)
	if got := f.errors(); !strings.Contains(got, "fitz: the broker is going away: ") || !strings.Contains(got, ": broker_restarted\n") {
		t.Errorf("stderr %q", got)
	}
}

// Every signal reaches the command.
func TestSignalsArePassedOn(t *testing.T) {
	url := tcpURL(startBroker(t))
	f := runFitz(t, "signals", command(url, "--ttl", "30s")...)
	f.line("listening")
	for _, s := range job.Forwarded {
		f.signal(s)
		f.line(fmt.Sprint("got ", job.SignalNumber(s)))
	}
}

// kill -9 of fitz takes the command with it on Linux, and frees the lease everywhere.
func TestFitzIsKilled(t *testing.T) {
	url := tcpURL(startBroker(t))
	c := other(t, url)
	f := runFitz(t, "wait", command(url, "--ttl", "1h")...)
	var pid int
	_, _ = fmt.Sscanf(f.line("ready"), "ready %d", &pid)
	f.signal(unix.SIGKILL)
	if runtime.GOOS == "linux" {
		f.wait() // the output ends only when the command, which has it open, is gone
	} else {
		_ = unix.Kill(pid, unix.SIGKILL)
		f.wait()
	}
	take(t, c, leased, "next") // long before the ttl
}

// Without a command the lease is held until interrupted, and released then.
func TestHoldUntilInterrupted(t *testing.T) {
	eachTransport(t, func(t *testing.T, url string) {
		c := other(t, url)
		f := runFitz(t, "", "lease", "acquire", leased, "--url", url, "--ttl", "30s", "--owner", "me")
		f.line("acquired " + leased + " as me, fencing token 1")
		if got := query(t, c, leased); !got.Held {
			t.Fatalf("%+v", got)
		}
		f.signal(unix.SIGINT)
		f.expectExit(0)
		if got := query(t, c, leased); got.Held {
			t.Fatalf("%+v", got)
		}
	})
}

func TestHoldLost(t *testing.T) {
	b := startBroker(t)
	p := startProxy(t, b.Addresses()["tcp"])
	f := runFitz(t, "", "lease", "acquire", leased, "--url", p.url(), "--ttl", "1h")
	f.line("acquired")
	p.cut()
	f.expectExit(exitLost)
}

func TestAcquireJSON(t *testing.T) {
	url := tcpURL(startBroker(t))
	owner := "line\u2028<b>"
	f := runFitz(t, "", "--json", "lease", "acquire", leased, "--url", url, "--ttl", "30s", "--owner", owner)
	for _, want := range []string{"acquired", "released"} {
		var got event
		if err := json.Unmarshal([]byte(f.line("{")), &got); err != nil || got.Event != want || got.OwnerID != owner || got.Route != leased {
			t.Fatalf("%+v, %v", got, err)
		}
		if want == "acquired" {
			f.signal(unix.SIGINT)
		}
	}
	f.expectExit(0)
}

func TestNobodyListens(t *testing.T) {
	p := startProxy(t, "127.0.0.1:1")
	_ = p.listener.Close()
	runFitz(t, "exit:0", command(p.url(), "--ttl", "30s")...).expectExit(exitUnavailable)
}

// L-102 and everything else that is wrong is found before a connection is opened.
func TestUsageIsCheckedFirst(t *testing.T) {
	p := startProxy(t, "127.0.0.1:1")
	for _, args := range [][]string{
		{"lease", "acquire"},
		{"lease", "acquire", leased, "--ttl", "1500ms"},
		{"lease", "acquire", leased, "--ttl", "0s"},
		{"lease", "acquire", leased, "--ttl", "9000h"},
		{"lease", "acquire", leased, "--ttl", "30s", "--wait", "100ms"},
		{"lease", "acquire", leased, "--ttl", "30s", "--wait", "-1s"},
		{"lease", "acquire", leased, "--ttl", "1s", "--kill-after", "2s"},
		{"lease", "acquire", leased, "--ttl", "30s", "--owner", strings.Repeat("x", 513)},
		{"lease", "acquire", "lease://r/a/*", "--ttl", "30s"},
		{"lease", "query", "lease://r/a"},
		{"lease", "ls", "lease://r//x"},
		{"lease", "watch", "queue://r/a/k"},
		{"lease", "ls", "lease://**", "--url", "http://localhost"},
		{"lease", "watch", "lease://**", "--url", "fitz://localhost:0"},
		{"decode", "zz"}, {"decode", "abc"}, {"decode"}, {"nonsense"}, {"lease", "ls"}, {},
	} {
		if !slices.Contains(args, "--url") && len(args) > 0 && args[0] == "lease" {
			args = append(args, "--url", p.url())
		}
		f := runFitz(t, "exit:0", args...)
		f.expectExit(exitUsage)
		if got := f.errors(); strings.Count(got, "\n") != 1 {
			t.Errorf("%v: stderr %q", args, got)
		}
	}
	f := runFitz(t, "exit:0", "lease", "ls", "lease://r/a/x*", "--url", p.url())
	f.expectExit(exitUsage)
	if got := f.errors(); !strings.HasPrefix(got, "fitz: selector: partial_wildcard: ") {
		t.Errorf("stderr %q", got)
	}
	if n := p.connections(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// L-10: owners that fitz makes up are different and tell where it runs; C-40: none begins as those of old brokers do.
func TestDefaultOwner(t *testing.T) {
	a, b := defaultOwner(), defaultOwner()
	if a == b || !strings.Contains(a, fmt.Sprint(os.Getpid())) || strings.HasPrefix(a, "session:") {
		t.Fatalf("%q, %q", a, b)
	}
	for _, most := range []int{bounds.LeaseOwnerBytesMax, 60, 30} { // the specification may be changed
		for _, host := range []string{"h", strings.Repeat("h", 600), strings.Repeat("\u00e4", 300)} {
			if got := ownerOn(host, most); len(got) > most || !utf8.ValidString(got) {
				t.Errorf("%d bytes: %q", most, got)
			}
		}
	}
}

// The default of --kill-after fits every ttl.
func TestDefaultKillAfter(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second, time.Hour} {
		terms, err := (&acquireCmd{Route: leased, TTL: ttl}).terms()
		if err != nil || terms.lead <= 0 || terms.lead > longestLead(ttl) || terms.lead > fitz.DefaultKillAfter {
			t.Errorf("%v: %v, %v", ttl, terms.lead, err)
		}
	}
}

// L-95, L-96: whatever the ttl is, the longest lead leaves time between the latest regular renewal and the loss.
func TestLongestLead(t *testing.T) {
	for ttl := time.Second; ttl < time.Hour; ttl += time.Second {
		margin := min(max(ttl/10, 250*time.Millisecond), 5*time.Second)
		latest := time.Duration(float64(ttl) / 3 * 1.1)
		if left := ttl - margin - longestLead(ttl) - latest; left <= 0 || longestLead(ttl) <= 0 {
			t.Fatalf("%v: %v left, lead %v", ttl, left, longestLead(ttl))
		}
	}
}

// A command has the lead to end, never more than what is left until the deadline (L-95), and nothing after it.
func TestGrace(t *testing.T) {
	terms := terms{lead: 2 * time.Second}
	for left, want := range map[time.Duration]time.Duration{
		time.Hour: 2 * time.Second, 2 * time.Second: 2 * time.Second, 1500 * time.Millisecond: 1500 * time.Millisecond, 0: 0, -time.Second: 0,
	} {
		if got := terms.grace(left); got != want {
			t.Errorf("%v left: %v, want %v", left, got, want)
		}
	}
}

// L-102: only whole seconds within the bounds.
func TestCheckSeconds(t *testing.T) {
	for d, ok := range map[time.Duration]bool{
		time.Second: true, 30 * time.Second: true, 0: false, 1500 * time.Millisecond: false, -time.Second: false, 31 * time.Second: false,
	} {
		if err := checkSeconds("ttl", d, time.Second, 30*time.Second); (err == nil) != ok {
			t.Errorf("%v: %v", d, err)
		}
	}
}
