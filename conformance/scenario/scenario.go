// Package scenario reads the scenarios of the conformance suite: YAML files that say in a language-neutral way what is done to a broker
// and its clients and what must be seen. The package knows the format (types, JSON schema, loader, variables, matchers) and nothing of
// how a scenario is run. conformance/scenarios/README.md is the reference of the format for people who write scenarios.
package scenario

import (
	"fmt"
	"time"
)

// Subject says what a scenario judges.
type Subject string

// The subjects.
const (
	Client Subject = "client" // a client behind a driver
	Broker Subject = "broker" // a broker, asked by raw peers only; any broker address can be judged
)

// Clock says which clock a scenario runs under.
type Clock string

// The clocks.
const (
	Virtual Clock = "virtual" // broker and driver run on a clock that only the scenario moves
	Real    Clock = "real"
)

// Values of the axes of the matrix.
const (
	TCP       = "tcp"
	WebSocket = "ws"
	LabelsOn  = "on"
	LabelsOff = "off"
	Anonymous = "anonymous"
	Token     = "token" // clients and peers connect to listeners that want a token, with one
)

// DefaultBroker is the name of the broker that every scenario has without asking for it.
const DefaultBroker = "b1"

// DefaultBudget is the real time that a scenario may take when it does not say otherwise. Every wait of a scenario ends with it.
const DefaultBudget = 10 * time.Second

// Pos is a place in a scenario file. Line and Col count from 1.
type Pos struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Col  int    `json:"col"`
}

// String is file:line:col.
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, max(p.Line, 1), max(p.Col, 1)) }

// Scenario is one file.
type Scenario struct {
	ID    string
	Title string
	File  string // path below the folder of scenarios, with slashes

	Proves  []string // clauses that are shown to hold by something that is accepted
	Refuses []string // clauses that are shown to hold by something that is refused
	Codes   []string // error codes that are seen, by name

	Subject    Subject
	Time       Clock
	Needs      []string // features that the driver must have
	Transports []string
	Labels     []string
	Auth       []string
	AuthReason string        // why the scenario runs in one of the columns only
	Budget     time.Duration // real time
	Exclusive  bool          // gets broker and driver processes of its own

	Brokers map[string]map[string]any // settings by name of the broker; DefaultBroker is always in it
	Vars    map[string]any
	Steps   []Step
	Always  []Step // checked over the whole case when its steps have passed
}

// Clauses returns every clause that the scenario names, in the order of the file.
func (s *Scenario) Clauses() []string {
	return append(append([]string(nil), s.Proves...), s.Refuses...)
}

// Step is one member of a list of steps. The schema has checked the type of every parameter.
type Step struct {
	Pos    Pos
	Index  string // place in its scenario, "4" or "6.2" for the second step inside of the sixth
	Action string // the key that says what is done: "connect", "await"
	Name   string // value of that key when it is a name

	params map[string]any
	at     map[string]Pos
	Steps  []Step // of repeat, each, eventually, background
}

// Has tells whether a parameter was given.
func (s *Step) Has(key string) bool { _, ok := s.params[key]; return ok }

// Params returns the names of the parameters that were given, sorted.
func (s *Step) Params() []string { return keys(s.params) }

// Value is a parameter as it was written, variables not replaced; nil when it was not given.
func (s *Step) Value(key string) any { return s.params[key] }

// Text is a parameter that is a word; "" when it was not given.
func (s *Step) Text(key string) string { text, _ := s.params[key].(string); return text }

// Flag is a parameter that is true or false.
func (s *Step) Flag(key string) bool { b, _ := s.params[key].(bool); return b }

// Map is a parameter that is a mapping; nil when it was not given.
func (s *Step) Map(key string) map[string]any { m, _ := s.params[key].(map[string]any); return m }

// List is a parameter that is a list; nil when it was not given.
func (s *Step) List(key string) []any { l, _ := s.params[key].([]any); return l }

// At is the place of a parameter, of the step when it was not given.
func (s *Step) At(key string) Pos {
	if pos, ok := s.at[key]; ok {
		return pos
	}
	return s.Pos
}

// Line is the step in one line, for a message: its action and what it is about.
func (s *Step) Line() string {
	text := s.Action
	if s.Name != "" {
		text += " " + s.Name
	}
	for _, key := range []string{"on", "of", "through", "link", "peer", "fake", "dir", "message", "form", "ev", "call"} {
		if word := s.Text(key); word != "" && word != s.Name {
			text += " " + key + "=" + word
		}
	}
	return text
}

// Finding is one mistake in a scenario file.
type Finding struct {
	Pos     Pos
	Rule    string // upper case with underscores: SCHEMA, UNKNOWN_CLAUSE
	Problem string
	Mend    string
}

// String is file:line:col: RULE: what is wrong; how to mend it.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %s; %s", f.Pos, f.Rule, f.Problem, f.Mend)
}
