// Package driver is the side of the runner in the driver protocol: a driver is a small program around one client library that acts and
// reports; it decides nothing. One JSON object a line goes each way. The package starts a driver, bounds everything that it may do (length
// of a line, bytes of stderr, number of events, time to say hello and bye) and gives each misbehaviour a name, so that no run can hang on
// one and no mistake of a driver can look like a result.
package driver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// ProtocolVersion is the version of the protocol that a driver must speak.
const ProtocolVersion = 1

// Command is what a driver is told to do.
type Command struct {
	ID     uint64         `json:"id"`
	Cmd    string         `json:"cmd"`
	Client string         `json:"client,omitempty"` // handle of the client that does it
	Of     string         `json:"of,omitempty"`     // handle that it is done to
	As     string         `json:"as,omitempty"`     // name of the handle that it makes
	Seq    string         `json:"seq,omitempty"`    // commands of one lane run one after the other
	Args   map[string]any `json:"args,omitempty"`
}

// Reply is the answer to a command. Exactly one of OK, Err and Cancelled is set.
type Reply struct {
	ID        uint64
	OK        map[string]any // not nil for a success
	Err       map[string]any // class, code, number, retry, outcome, wire, message
	Cancelled bool
}

// Class is the class of a failure, "" for other replies.
func (r Reply) Class() string { class, _ := r.Err["class"].(string); return class }

// Unsupported tells whether the driver says that it does not know the command.
func (r Reply) Unsupported() bool { return r.Class() == ClassUnsupported }

// ClassUnsupported is the class of the failure that answers an unknown command.
const ClassUnsupported = "Unsupported"

// Event is something that a driver reports by itself.
type Event struct {
	Kind   string         `json:"ev"`
	Of     string         `json:"of,omitempty"` // handle that it is about
	N      uint64         `json:"n,omitempty"`  // counts the events of the handle from 1
	Seq    uint64         `json:"seq"`          // counts all events of the driver, by the runner
	At     time.Time      `json:"at"`           // when the runner read it
	Fields map[string]any `json:"fields"`       // everything of the line
}

// Hello is the first line of a driver.
type Hello struct {
	Protocol int      `json:"protocol"`
	Name     string   `json:"name"`
	Version  string   `json:"version"`
	Language string   `json:"language"`
	Features []string `json:"features"`
}

// Names of the faults of a driver. They are verdicts and never change.
const (
	FaultStart         = "driver.start"            // it cannot be started
	FaultNoHello       = "driver.no_hello"         // no hello in time, or another line first
	FaultBadHello      = "driver.bad_hello"        // a hello without name, or of another version
	FaultSecondHello   = "driver.second_hello"     // hello twice
	FaultCrash         = "driver.crash"            // its process or its output ended while it was needed
	FaultHang          = "driver.hang"             // it answers nothing any more
	FaultDeaf          = "driver.deaf"             // it does not read its input
	FaultHalfLine      = "driver.half_line"        // its output ended within a line
	FaultGiantLine     = "driver.giant_line"       // a line longer than the bound
	FaultNotUTF8       = "driver.not_utf8"         // bytes that are no UTF-8
	FaultStray         = "driver.stray_output"     // output that is no JSON object, as of a forgotten print
	FaultNotJSON       = "driver.not_json"         // looks like an object and does not parse
	FaultBadMessage    = "driver.bad_message"      // an object that is neither reply nor event, or both ok and err
	FaultWrongID       = "driver.wrong_id"         // a reply to a command that was never sent
	FaultDuplicate     = "driver.duplicate_answer" // a second reply to one command
	FaultEventGap      = "driver.event_gap"        // the counter of the events of a handle is not the next one
	FaultUnknownHandle = "driver.unknown_handle"   // an event of a handle that the runner never named
	FaultEventFlood    = "driver.event_flood"      // more events than the bound
	FaultStderrFlood   = "driver.stderr_flood"     // more bytes of stderr than the bound
	FaultFatal         = "driver.fatal"            // it reports that it cannot go on
	FaultNoBye         = "driver.no_bye"           // it ended without a bye
	FaultSlowExit      = "driver.slow_exit"        // it did not end in time after its input ended
	FaultAfterBye      = "driver.after_bye"        // output after the bye
	FaultExitCode      = "driver.exit_code"        // it said bye and ended with another code than 0
	FaultOrphan        = "driver.orphan"           // processes that it started outlive it
	FaultFalseFeature  = "driver.false_feature"    // it announces a feature and answers Unsupported to a command of it
	FaultUnsupported   = "driver.unsupported_everything"
	FaultNeverRefuses  = "driver.never_unsupported" // it does not answer Unsupported to a command that does not exist
	FaultDirty         = "driver.dirty"             // something of a client is left when all are closed
)

// ExitUnsupported is the exit code by which a program says that it is no driver for this at all.
const ExitUnsupported = 127

// Fault is one misbehaviour of a driver. After a fault the driver is of no use any more.
type Fault struct {
	Name   string `json:"name"`
	Detail string `json:"detail"`
	Exit   int    `json:"exit"` // exit code when the process has ended, -1 otherwise
}

// Error is name: detail.
func (f *Fault) Error() string { return f.Name + ": " + f.Detail }

func fault(name, format string, args ...any) *Fault {
	return &Fault{Name: name, Detail: fmt.Sprintf(format, args...), Exit: -1}
}

// message is one line of a driver, understood.
type message struct {
	reply *Reply
	event *Event
	hello *Hello
	bye   bool
}

// parse understands one line without its end.
func parse(line []byte) (message, *Fault) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	trimmed := bytes.TrimLeft(line, " \t")
	switch {
	case !utf8.Valid(line):
		return message{}, fault(FaultNotUTF8, "a line is no UTF-8: %q", excerpt(line))
	case len(trimmed) == 0 || trimmed[0] != '{':
		return message{}, fault(FaultStray, "a line of output is no JSON object: %q", excerpt(line))
	}
	object, err := decode(line)
	if err != nil {
		return message{}, fault(FaultNotJSON, "%v in %q", err, excerpt(line))
	}
	_, isEvent := object["ev"]
	_, isReply := object["id"]
	switch {
	case isEvent && !isReply:
		return parseEvent(object, line)
	case isReply && !isEvent:
		return parseReply(object, line)
	}
	return message{}, fault(FaultBadMessage, "a line is neither a reply (id) nor an event (ev): %q", excerpt(line))
}

// decode reads one JSON object without anything behind it. Members that are null are left out, numbers stay as they are written.
func decode(line []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the object does not end")
		}
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the object")
	}
	return withoutNulls(object), nil
}

func withoutNulls(object map[string]any) map[string]any {
	for key, v := range object {
		switch v := v.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			withoutNulls(v)
		case []any:
			listWithoutNulls(v)
		}
	}
	return object
}

func listWithoutNulls(list []any) {
	for _, member := range list {
		switch member := member.(type) {
		case map[string]any:
			withoutNulls(member)
		case []any:
			listWithoutNulls(member)
		}
	}
}

func parseReply(object map[string]any, line []byte) (message, *Fault) {
	id, ok := unsigned(object["id"])
	if !ok {
		return message{}, fault(FaultBadMessage, "the id of a reply is no number: %q", excerpt(line))
	}
	r := &Reply{ID: id}
	success, isOK := object["ok"]
	failure, isErr := object["err"]
	if cancelled, given := object["cancelled"]; given {
		r.Cancelled, _ = cancelled.(bool)
	}
	if count(isOK, isErr, r.Cancelled) != 1 {
		return message{}, fault(FaultBadMessage, "a reply needs exactly one of ok, err and cancelled: %q", excerpt(line))
	}
	if r.OK, ok = success.(map[string]any); isOK && !ok {
		return message{}, fault(FaultBadMessage, "ok is no object: %q", excerpt(line))
	}
	if r.Err, ok = failure.(map[string]any); isErr && (!ok || r.Class() == "") {
		return message{}, fault(FaultBadMessage, "err is no object with a class: %q", excerpt(line))
	}
	return message{reply: r}, nil
}

func count(conditions ...bool) int {
	n := 0
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

func parseEvent(object map[string]any, line []byte) (message, *Fault) {
	kind, _ := object["ev"].(string)
	switch kind {
	case "":
		return message{}, fault(FaultBadMessage, "ev is no text: %q", excerpt(line))
	case "bye":
		return message{bye: true}, nil
	case "fatal":
		return message{}, fault(FaultFatal, "%q", excerpt(line))
	case "hello":
		h := &Hello{}
		if err := json.Unmarshal(line, h); err != nil {
			return message{}, fault(FaultBadHello, "%v in %q", err, excerpt(line))
		}
		if h.Protocol != ProtocolVersion || h.Name == "" {
			return message{}, fault(FaultBadHello, "hello needs protocol %d and a name: %q", ProtocolVersion, excerpt(line))
		}
		return message{hello: h}, nil
	}
	of, _ := object["of"].(string)
	n, ok := unsigned(object["n"])
	if of == "" || !ok {
		return message{}, fault(FaultBadMessage, "an event needs of and n: %q", excerpt(line))
	}
	return message{event: &Event{Kind: kind, Of: of, N: n, Fields: object}}, nil
}

// unsigned is a JSON number, or text of decimal digits as u64 are written, as u64.
func unsigned(v any) (uint64, bool) {
	var n uint64
	var err error
	switch v := v.(type) {
	case json.Number:
		err = json.Unmarshal([]byte(v), &n)
	case string:
		err = json.Unmarshal([]byte(v), &n)
	default:
		return 0, false
	}
	return n, err == nil
}

// excerptMax is how much of a line stands in the detail of a fault.
const excerptMax = 200

func excerpt(line []byte) string {
	if len(line) > excerptMax {
		return fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(string(line[:excerptMax]), ""), len(line))
	}
	return string(line)
}
