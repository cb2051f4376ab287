// Package engine runs scenarios of the conformance suite against brokers and drivers and gives each case of the matrix a verdict. It owns
// everything that takes part: broker processes, drivers, proxies, raw peers, scripted brokers and the time of all of them, and it leaves
// nothing of them behind.
package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Verdict is what became of a case. Only Pass is a pass.
type Verdict string

// The verdicts.
const (
	Pass        Verdict = "pass"
	Fail        Verdict = "fail"
	Unsupported Verdict = "unsupported"   // the subject says that it cannot do this
	CouldNotRun Verdict = "could-not-run" // the surroundings cannot do this
)

// Reasons of verdicts, beside the names of the faults of drivers. They never change.
const (
	ReasonExpectation = "expectation"          // something was not as the scenario says
	ReasonMissing     = "missing"              // something did not come, and everybody is quiet and answers
	ReasonDeadline    = "deadline"             // something did not happen within the budget of the scenario
	ReasonBrokerCrash = "broker.crash"         // a broker ended without being asked
	ReasonBrokerLeft  = "broker.left"          // a broker holds something when everybody has gone
	ReasonBrokerStart = "broker.start"         // a broker did not start
	ReasonClosed      = "connection.closed"    // a connection ended that the scenario needs
	ReasonRefused     = "connection.refused"   // a connection could not be opened
	ReasonRule        = "scenario.rule"        // a rule of a proxy or a script could not do what it was made for
	ReasonScenario    = "scenario.value"       // the scenario asks for something that cannot be, as a value that cannot be encoded
	ReasonFeature     = "feature"              // the driver lacks a feature that the scenario needs
	ReasonCommand     = "command"              // the driver does not know a command of the scenario
	ReasonNoDriver    = "no_driver"            // the scenario needs a driver and there is none
	ReasonNoVirtual   = "no_virtual_time"      // broker or driver has no virtual clock
	ReasonNoTokens    = "no_token_listener"    // the broker has no listener that wants tokens
	ReasonNoTransport = "no_transport"         // the broker does not serve the transport
	ReasonNoProcess   = "no_broker_process"    // the broker was not started here, so that it cannot be stopped or configured
	ReasonKnownPasses = "known_failure_passes" // a known failure passes
	ReasonKnownOther  = "known_failure_differs"
)

// Info names a subject or a broker.
type Info struct {
	Command  string   `json:"command,omitempty"` // command line, or address of a broker
	Name     string   `json:"name,omitempty"`
	Version  string   `json:"version,omitempty"`
	Language string   `json:"language,omitempty"`
	Features []string `json:"features,omitempty"`
}

// Run is everything that one run found out: the one model of all reports.
type Run struct {
	Started  time.Time     `json:"started"`
	Duration time.Duration `json:"duration_ns"`
	Seed     uint64        `json:"seed,string"`
	Slots    int           `json:"slots"`
	Filtered bool          `json:"filtered"` // a part of the matrix was left out on purpose
	Subject  Info          `json:"subject"`
	Broker   Info          `json:"broker"`
	Cases    []Case        `json:"cases"`
	Vectors  *Vectors      `json:"vectors,omitempty"`
	Budgets  []Budget      `json:"budgets,omitempty"`
	Known    []KnownState  `json:"known_failures,omitempty"`
	Left     []string      `json:"left,omitempty"` // what the run left behind: processes, goroutines, files; a fault of the run
}

// Vectors is what became of the golden vectors that were given to the driver.
type Vectors struct {
	Verdict  Verdict       `json:"verdict"`
	Reason   string        `json:"reason,omitempty"`
	Checked  int           `json:"checked"`
	Wrong    []string      `json:"wrong,omitempty"` // a line each, the first hundred
	WrongAll int           `json:"wrong_all"`
	Duration time.Duration `json:"duration_ns"`
}

// Budget is a time that a part of a run may take on two cores. One that is exceeded by half fails the run.
type Budget struct {
	Name  string        `json:"name"`
	Limit time.Duration `json:"limit_ns"`
	Took  time.Duration `json:"took_ns"`
}

// Exceeded tells whether the budget is exceeded by more than half.
func (b Budget) Exceeded() bool { return b.Took > b.Limit+b.Limit/2 }

// KnownState is one line of the file of known failures and what became of it.
type KnownState struct {
	Known
	State string `json:"state"` // fails: as listed; passes, differs, stale: faults of the run
}

// Cell is one cell of the matrix: a scenario under a transport, with labels or without, in an auth mode.
type Cell struct {
	Scenario  *scenario.Scenario
	Transport string
	Labels    string
	Auth      string
}

// Name is ID/transport/labels/auth: OBS-003/tcp/on/anonymous. It never changes while the id does not.
func (c Cell) Name() string {
	return strings.Join([]string{c.Scenario.ID, c.Transport, c.Labels, c.Auth}, "/")
}

// Case is what became of one cell.
type Case struct {
	Name      string         `json:"name"`
	ID        string         `json:"id"`
	Title     string         `json:"title"`
	File      string         `json:"file"`
	Subject   string         `json:"subject"`
	Transport string         `json:"transport"`
	Labels    string         `json:"labels"`
	Auth      string         `json:"auth"`
	Time      string         `json:"time"`
	Proves    []string       `json:"proves,omitempty"`
	Refuses   []string       `json:"refuses,omitempty"`
	Codes     []string       `json:"codes,omitempty"`
	Seed      uint64         `json:"seed,string"`
	Verdict   Verdict        `json:"verdict"`
	Reason    string         `json:"reason,omitempty"`
	Message   string         `json:"message,omitempty"`
	Step      string         `json:"step,omitempty"`      // number of the step, "4" or "6.2"
	StepText  string         `json:"step_text,omitempty"` // the step in one line
	Pos       *scenario.Pos  `json:"pos,omitempty"`
	Known     string         `json:"known,omitempty"` // reason of the known failure that this is
	Started   time.Duration  `json:"started_ns"`      // since the start of the run
	Duration  time.Duration  `json:"duration_ns"`
	Links     []trace.Dump   `json:"links,omitempty"`  // of cases that did not pass, and with Config.Traces of all
	Events    []driver.Event `json:"events,omitempty"` // of cases that did not pass, and with Config.Traces of all
	Steps     []StepLog      `json:"steps,omitempty"`  // of cases that did not pass, and with Config.Traces of all
	Stderr    string         `json:"stderr,omitempty"` // last part of what the driver wrote
	BrokerLog string         `json:"broker_log,omitempty"`
	Replay    string         `json:"replay"`
}

// StepLog is one step that was done.
type StepLog struct {
	Step string        `json:"step"`
	Text string        `json:"text"`
	At   time.Duration `json:"at_ns"` // since the start of the case
	Took time.Duration `json:"took_ns"`
}

// OK tells whether a run is a success: every case passes or fails as it is known to, no budget is exceeded, nothing is left.
func (r *Run) OK() bool { return len(r.Complaints()) == 0 }

// Complaints says in a line each why a run is no success, cases first.
func (r *Run) Complaints() []string {
	var out []string
	for i := range r.Cases {
		if c := &r.Cases[i]; c.Verdict != Pass && c.Known == "" {
			out = append(out, c.Name+": "+string(c.Verdict)+": "+c.Reason)
		}
	}
	if len(r.Cases) == 0 && r.Vectors == nil {
		out = append(out, "no case was chosen")
	}
	if v := r.Vectors; v != nil && v.Verdict != Pass {
		out = append(out, "vectors: "+string(v.Verdict)+": "+v.Reason)
	}
	for _, k := range r.Known {
		if k.State != KnownFails {
			out = append(out, "known failure "+k.Case+": "+k.State)
		}
	}
	for _, b := range r.Budgets {
		if b.Exceeded() {
			out = append(out, "budget "+b.Name+": "+b.Took.Round(time.Millisecond).String()+" of "+b.Limit.String())
		}
	}
	for _, left := range r.Left {
		out = append(out, "left behind: "+left)
	}
	return out
}

// Count returns how many cases have a verdict; known failures are counted by their verdict too.
func (r *Run) Count(v Verdict) int {
	n := 0
	for i := range r.Cases {
		if r.Cases[i].Verdict == v {
			n++
		}
	}
	return n
}

// Describe is everything that a person needs of a case that did not pass: where, why, and how to run it again.
func (c *Case) Describe() string {
	text := c.Name + ": " + string(c.Verdict) + ": " + c.Reason
	if c.Pos != nil {
		text += fmt.Sprintf("\nat conformance/scenarios/%s, step %s (%s)", c.Pos, c.Step, c.StepText)
	}
	if c.Message != "" {
		text += "\n" + c.Message
	}
	return text + "\nagain: " + c.Replay
}
