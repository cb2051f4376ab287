package fakebroker

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// Codec is the part of *oracle.Spec that a scripted broker needs.
type Codec interface {
	trace.Codec
	Error(nameOrNumber any) (oracle.ErrorRow, bool)
	Messages() []oracle.MessageInfo
}

// Script says what a scripted broker does. It is data, so that a scenario can hold it.
type Script struct {
	// Hello is sent when CONNECT arrives, unless a rule takes CONNECT. Nil is the usual hello.
	Hello *Hello `yaml:"hello,omitempty" json:"hello,omitempty"`
	// Rules are asked in order; the first one that wants what happened is followed.
	Rules []Rule `yaml:"rules,omitempty" json:"rules,omitempty"`
	// Mute leaves PING, and ping of WebSocket, without an answer.
	Mute bool `yaml:"mute,omitempty" json:"mute,omitempty"`
}

// Hello is a SERVER_HELLO. What is not said is as a broker with all capabilities that are built announces it.
type Hello struct {
	Off          bool     `yaml:"off,omitempty" json:"off,omitempty"` // none is sent
	Version      *uint64  `yaml:"version,omitempty" json:"version,omitempty"`
	Capabilities []string `yaml:"capabilities,omitempty" json:"capabilities,omitempty"` // names of spec/wire.yaml; [] is none
	Bits         *uint64  `yaml:"bits,omitempty" json:"bits,omitempty"`                 // instead of names
	Lifetime     string   `yaml:"lifetime,omitempty" json:"lifetime,omitempty"`         // 16 bytes in hexadecimal digits
	Incarnation  uint64   `yaml:"incarnation,omitempty" json:"incarnation,omitempty"`
	MaxFrame     *uint64  `yaml:"max_frame_bytes,omitempty" json:"max_frame_bytes,omitempty"`
	HeartbeatMs  *uint64  `yaml:"heartbeat_ms,omitempty" json:"heartbeat_ms,omitempty"`
	Fingerprint  uint64   `yaml:"spec_fingerprint,omitempty" json:"spec_fingerprint,omitempty"`
	Hex          string   `yaml:"hex,omitempty" json:"hex,omitempty"` // the whole record instead
}

// Rule is what is done when something happens.
type Rule struct {
	Name string   `yaml:"name,omitempty" json:"name,omitempty"`
	On   On       `yaml:"on" json:"on"`
	Do   []Action `yaml:"do" json:"do"` // nothing: no answer
}

// On chooses what happens. What is not said is not looked at.
type On struct {
	Opened  bool           `yaml:"opened,omitempty" json:"opened,omitempty"`   // a connection was opened, instead of a frame
	Message string         `yaml:"message,omitempty" json:"message,omitempty"` // a frame of this message arrived
	Conn    int            `yaml:"conn,omitempty" json:"conn,omitempty"`       // on this connection, from 1
	Where   map[string]any `yaml:"where,omitempty" json:"where,omitempty"`     // its fields have these values
	Nth     int            `yaml:"nth,omitempty" json:"nth,omitempty"`         // from the nth on that is chosen, from 1
	Count   int            `yaml:"count,omitempty" json:"count,omitempty"`     // so many times; 0: always
}

// Action is one thing that is done. Exactly one of its parts is set, besides Times and Chunk.
type Action struct {
	// Reply sends a record with the label of the frame that is answered, if that had one.
	Reply *Record `yaml:"reply,omitempty" json:"reply,omitempty"`
	// Send sends a record with the label that it names, or none.
	Send *Record `yaml:"send,omitempty" json:"send,omitempty"`
	// Together sends records in one transport message.
	Together []Record `yaml:"together,omitempty" json:"together,omitempty"`
	// Message sends a transport message whose bytes are given in hexadecimal digits.
	Message *string `yaml:"message,omitempty" json:"message,omitempty"`
	// Raw writes bytes into the stream as they are, in hexadecimal digits, Chunk of them at a time.
	Raw *string `yaml:"raw,omitempty" json:"raw,omitempty"`
	// Declare sends a record in a transport message that declares so many bytes.
	Declare *Declared `yaml:"declare,omitempty" json:"declare,omitempty"`
	// Hello sends a hello, or another one.
	Hello *Hello `yaml:"send_hello,omitempty" json:"send_hello,omitempty"`
	// Wait goes on when Broker.Release has named it. Frames that arrive meanwhile are answered.
	Wait string `yaml:"wait,omitempty" json:"wait,omitempty"`
	// Close ends the connection: a WebSocket with a close frame, then with FIN.
	Close *Closing `yaml:"close,omitempty" json:"close,omitempty"`
	// Reset ends the connection with RST.
	Reset bool `yaml:"reset,omitempty" json:"reset,omitempty"`

	Times int `yaml:"times,omitempty" json:"times,omitempty"` // how often; 0 is 1
	Chunk int `yaml:"chunk,omitempty" json:"chunk,omitempty"` // of Raw; 0 is all at once
}

// Record is a record to be sent.
type Record struct {
	Message string `yaml:"message,omitempty" json:"message,omitempty"`
	Form    string `yaml:"form,omitempty" json:"form,omitempty"` // "": refusal when Value has a code, else the only one that goes to clients
	// Value is its fields, whatever bounds they break. A text "$request.selector" is replaced by that field of the frame that is answered. A code may be
	// its name.
	Value map[string]any `yaml:"value,omitempty" json:"value,omitempty"`
	Hex   string         `yaml:"hex,omitempty" json:"hex,omitempty"` // the whole record instead
	Label *uint64        `yaml:"label,omitempty" json:"label,omitempty"`
	// NoLabel leaves out the label that a reply would have.
	NoLabel bool `yaml:"no_label,omitempty" json:"no_label,omitempty"`
	// Set puts other bytes at offsets of the record, Cut takes so many bytes off its end, Append adds bytes there, in this order. The length in the header
	// stays as it was, unless Fit says that it must be right again.
	Set    map[int]string `yaml:"set,omitempty" json:"set,omitempty"`
	Cut    int            `yaml:"cut,omitempty" json:"cut,omitempty"`
	Append string         `yaml:"append,omitempty" json:"append,omitempty"`
	Fit    bool           `yaml:"fit,omitempty" json:"fit,omitempty"`
}

// Declared is a record in a transport message of another size than it says.
type Declared struct {
	Record Record `yaml:"record" json:"record"`
	Size   uint64 `yaml:"size" json:"size"`
}

// Closing is the end of a connection.
type Closing struct {
	Code uint16 `yaml:"code,omitempty" json:"code,omitempty"` // 0: a WebSocket ends without a close frame
	Text string `yaml:"text,omitempty" json:"text,omitempty"`
}

// Check returns what is wrong with the script, as far as that can be said before it runs.
func (s *Script) Check(codec Codec) error {
	c := &composer{codec: codec}
	var problems []error
	if s.Hello != nil && !s.Hello.Off {
		if _, err := c.hello(s.Hello); err != nil {
			problems = append(problems, fmt.Errorf("hello: %w", err))
		}
	}
	for i, rule := range s.Rules {
		if err := rule.check(c); err != nil {
			problems = append(problems, fmt.Errorf("rule %d %s: %w", i+1, rule.Name, err))
		}
	}
	return errors.Join(problems...)
}

func (r Rule) check(c *composer) error {
	known := func(m oracle.MessageInfo) bool { return m.Name == r.On.Message && m.Up }
	switch {
	case r.On.Opened == (r.On.Message != ""):
		return errors.New("on: exactly one of opened and message")
	case r.On.Message != "" && !slices.ContainsFunc(c.codec.Messages(), known):
		return fmt.Errorf("on: clients send no message %q", r.On.Message)
	}
	for i, a := range r.Do {
		if err := a.check(c); err != nil {
			return fmt.Errorf("do %d: %w", i+1, err)
		}
	}
	return nil
}

func (a Action) check(c *composer) error {
	parts := 0
	for _, set := range []bool{
		a.Reply != nil, a.Send != nil, len(a.Together) > 0, a.Message != nil, a.Raw != nil, a.Declare != nil, a.Hello != nil, a.Wait != "", a.Close != nil, a.Reset,
	} {
		if set {
			parts++
		}
	}
	if parts != 1 {
		return fmt.Errorf("%d things to do instead of one", parts)
	}
	records := slices.Clone(a.Together)
	for _, rec := range []*Record{a.Reply, a.Send} {
		if rec != nil {
			records = append(records, *rec)
		}
	}
	if a.Declare != nil {
		records = append(records, a.Declare.Record)
	}
	for _, rec := range records {
		if err := rec.check(c); err != nil {
			return err
		}
	}
	for _, text := range []*string{a.Message, a.Raw} {
		if text == nil {
			continue
		}
		if _, err := unhex(*text); err != nil {
			return err
		}
	}
	if a.Hello != nil {
		_, err := c.hello(a.Hello)
		return err
	}
	return nil
}

// check encodes the record. One that takes fields of a request can be encoded only then; of it the message is looked at.
func (r Record) check(c *composer) error {
	if !refers(r.Value) {
		_, err := c.record(&r, nil, 0)
		return err
	}
	_, err := c.form(&r)
	return err
}

// refers reports whether a value takes something of a request.
func refers(v any) bool {
	switch inner := v.(type) {
	case string:
		return strings.HasPrefix(inner, requestPrefix)
	case map[string]any:
		for _, member := range inner {
			if refers(member) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(inner, refers)
	}
	return false
}

// unhex reads hexadecimal digits; white space between them is allowed.
func unhex(text string) ([]byte, error) {
	return hex.DecodeString(strings.Join(strings.Fields(text), ""))
}
