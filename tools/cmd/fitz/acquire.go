package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/job"
)

type acquireCmd struct {
	Route     string         `arg:"" help:"lease://realm/area/resource"`
	Command   []string       `arg:"" optional:"" completes:"commands" help:"Command to run while the lease is held, behind --."`
	TTL       time.Duration  `name:"ttl" default:"${acquire_ttl}" placeholder:"DURATION" help:"Life of the lease without renewal, in whole seconds (default ${acquire_ttl})."`
	Wait      time.Duration  `name:"wait" placeholder:"1m" help:"Wait so long, in whole seconds, when another owner holds. A wait above ${longest_turn} is asked for in turns, each of which joins the tail of the line."`
	Owner     string         `name:"owner" placeholder:"ID" help:"Logical owner (default HOST-PID-RANDOM)."`
	KillAfter *time.Duration `name:"kill-after" placeholder:"DURATION" help:"When the lease is being lost, the command gets SIGTERM, and SIGKILL so much later (default ${kill_after}, less for a short ttl)."`
}

// Help is the long help text.
func (*acquireCmd) Help() string {
	return `The lease is renewed while the command runs, and released when it has ended. The command finds FITZ_ROUTE, FITZ_FENCING_TOKEN and
FITZ_OWNER_ID in its environment. INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to its process group.

When the lease cannot be renewed, the process group gets SIGTERM --kill-after before the local deadline and SIGKILL at the deadline.
When the connection ends, the broker frees the lease at once: SIGTERM follows immediately. The exit status is 75 then.

` + survival + `
While fitz is stopped (SIGSTOP, a debugger), it ends nothing: a command that is not stopped with it goes on. As soon as fitz is continued after
the deadline, the process group gets SIGKILL, one that is still stopped without running again.` + suspension + `

Without a command the lease is held until the program is interrupted.`
}

// survival says what happens to the command when this program is killed.
var survival = func() string {
	if job.KilledWithParent {
		return "When fitz itself is killed, the command (not what it started) gets SIGKILL."
	}
	return "When fitz itself is killed, the command goes on on this platform although the lease is not renewed any more."
}()

// suspension says what the deadline does while the machine sleeps, where that matters (L-103): the SDK has a clock that counts it on Linux.
var suspension = func() string {
	if runtime.GOOS == "linux" {
		return ""
	}
	return "\nThe local deadline does not count time in which the machine is suspended: this platform has no clock for it."
}()

// Run holds the lease.
func (c *acquireCmd) Run(a *app) error {
	terms, err := c.terms()
	if err != nil {
		return err
	}
	command, err := resolveCommand(c.Command)
	if err != nil {
		return err
	}
	h := &holding{app: a, terms: terms, command: command}
	return h.run()
}

// terms is what to hold and for how long. ttl and wait are whole seconds (L-102).
type terms struct {
	route, owner string
	ttl, wait    time.Duration
	lead         time.Duration // how long before the deadline a lease that was not renewed counts as lost, so that there is time to end the command
}

// grace is how long a command may take to end when so much time is left until the deadline of a lease that is being lost.
func (t *terms) grace(left time.Duration) time.Duration { return max(min(t.lead, left), 0) }

// terms checks everything that was asked for and that the SDK does not check before it connects.
func (c *acquireCmd) terms() (terms, error) {
	t := terms{route: c.Route, owner: c.Owner, ttl: c.TTL, wait: c.Wait}
	if err := checkRoute(c.Route); err != nil {
		return t, err
	}
	if err := checkTTL(c.TTL); err != nil {
		return t, err
	}
	if err := checkSeconds("--wait", c.Wait, 0, maxWait); err != nil {
		return t, err
	}
	if t.owner == "" {
		t.owner = defaultOwner()
	}
	longest := longestLead(c.TTL)
	t.lead = min(fitz.DefaultKillAfter, longest)
	if c.KillAfter == nil {
		return t, nil
	}
	if *c.KillAfter < 0 || *c.KillAfter > longest {
		return t, usage("--kill-after must be 0 to %v with this ttl, so that there is time to renew", longest.Truncate(time.Millisecond))
	}
	t.lead = *c.KillAfter
	return t, nil
}

// maxWait is far beyond every useful wait and within what a duration can count.
const maxWait = bounds.LeaseTTLSecsMax * time.Second

// longestLead is the largest lead that leaves time to renew: half of what lies between the latest regular renewal (L-96) and the deadline
// (L-95).
func longestLead(ttl time.Duration) time.Duration {
	margin := min(max(ttl/fitz.DefaultLostMarginFraction, fitz.DefaultLostMarginMin), fitz.DefaultLostMarginMax)
	renewal := time.Duration(float64(ttl) / fitz.DefaultRenewFraction * (1 + fitz.DefaultRenewJitter))
	return (ttl - margin - renewal) / 2
}

// checkTTL reports why a duration cannot be the life of a lease.
func checkTTL(ttl time.Duration) error {
	return checkSeconds("--ttl", ttl, time.Second, bounds.LeaseTTLSecsMax*time.Second)
}

// checkSeconds reports why a duration cannot be a ttl or a wait: only whole seconds can (L-102).
func checkSeconds(name string, d, least, most time.Duration) error {
	if d%time.Second != 0 {
		return usage("%s must be whole seconds, not %v", name, d)
	}
	if d < least || d > most {
		return usage("%s must be %v to %v, not %v", name, least, most, d)
	}
	return nil
}

// defaultOwner tells people where the holder runs, and is different for every run (L-10).
func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return ownerOn(host, bounds.LeaseOwnerBytesMax)
}

// ownerOn makes an owner id of at most so many bytes. It is the name of the host that gives way.
func ownerOn(host string, most int) string {
	var unique [4]byte
	_, _ = rand.Read(unique[:]) // never fails
	rest := fmt.Sprintf("-%d-%s", os.Getpid(), hex.EncodeToString(unique[:]))
	return strings.ToValidUTF8(host[:min(len(host), max(most-len(rest), 0))], "?") + rest
}

// resolveCommand finds the program before a lease is taken for it.
func resolveCommand(argv []string) ([]string, error) {
	if len(argv) == 0 {
		return nil, nil
	}
	path, err := exec.LookPath(argv[0])
	if err == nil {
		return append([]string{path}, argv[1:]...), nil
	}
	code := exitNotFound
	if errors.Is(err, os.ErrPermission) {
		code = exitNotRunnable
	}
	return nil, &failure{code: code, err: err}
}
