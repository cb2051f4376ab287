package fakebroker

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// composer makes the bytes that a script asks for.
type composer struct{ codec Codec }

const (
	serverHello   = "session.server_hello"
	connect       = "session.connect"
	ping          = "session.ping"
	pong          = "session.pong"
	requestPrefix = "$request."
)

// Usual values of a hello. A scripted broker asks for no heartbeat, because it answers only what it is told to.
var (
	usualCapabilities = []string{"correlation", "session_metadata", "lifecycle"}
	usualLifetime     = strings.Repeat("fb", 16)
)

const usualIncarnation = 1

// hello makes a SERVER_HELLO.
func (c *composer) hello(h *Hello) ([]byte, error) {
	if h == nil {
		h = &Hello{}
	}
	if h.Hex != "" {
		return unhex(h.Hex)
	}
	names := h.Capabilities
	if names == nil {
		names = usualCapabilities
	}
	bits := uint64(0)
	for _, name := range names {
		bit, ok := c.codec.Capability(name)
		if !ok {
			return nil, fmt.Errorf("the specification has no capability %q", name)
		}
		bits |= bit
	}
	bits = or(h.Bits, bits)
	value := oracle.Value{"version": or(h.Version, helloVersion), "capabilities": bits}
	if lifecycle, ok := c.codec.Capability("lifecycle"); ok && bits&lifecycle != 0 {
		lifetime := h.Lifetime
		if lifetime == "" {
			lifetime = usualLifetime
		}
		id, err := hex.DecodeString(lifetime)
		if err != nil {
			return nil, fmt.Errorf("lifetime: %w", err)
		}
		value["lifecycle"] = oracle.Value{
			"broker_lifetime_id": id, "session_incarnation": max(h.Incarnation, usualIncarnation),
			"max_frame_bytes": or(h.MaxFrame, uint64(c.codec.Bound("frame_recv_max"))), "heartbeat_ms": or(h.HeartbeatMs, 0), "spec_fingerprint": h.Fingerprint,
		}
	}
	return c.codec.EncodeAny(serverHello, oracle.Control, value)
}

// helloVersion is the version of SERVER_HELLO (wire.md section 5).
const helloVersion = 1

func or(v *uint64, usual uint64) uint64 {
	if v == nil {
		return usual
	}
	return *v
}

// record makes a record, with the label that it names or, when it answers, with the label of the request.
func (c *composer) record(r *Record, request oracle.Value, label uint64) ([]byte, error) {
	b, err := c.plain(r, request)
	if err != nil {
		return nil, err
	}
	if b, err = r.damage(b); err != nil {
		return nil, err
	}
	switch {
	case r.Label != nil:
		return c.codec.Label(oracle.Down, *r.Label, b), nil
	case r.NoLabel || label == 0:
		return b, nil
	}
	return c.codec.Label(oracle.Down, label, b), nil
}

// plain makes the record without damage and label.
func (c *composer) plain(r *Record, request oracle.Value) ([]byte, error) {
	if r.Hex != "" {
		return unhex(r.Hex)
	}
	form, err := c.form(r)
	if err != nil {
		return nil, err
	}
	value := oracle.Value{}
	for name, v := range r.Value {
		if value[name], err = fill(v, request); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if name, ok := value["code"].(string); ok {
		row, known := c.codec.Error(name)
		if !known {
			return nil, fmt.Errorf("the specification has no code %q", name)
		}
		value["code"] = uint64(row.Number)
	}
	return trace.Encode(c.codec, oracle.Down, oracle.Record{Message: r.Message, Form: form, Value: value})
}

// form returns the form of a record.
func (c *composer) form(r *Record) (oracle.Form, error) {
	messages := c.codec.Messages()
	at := slices.IndexFunc(messages, func(m oracle.MessageInfo) bool { return m.Name == r.Message })
	switch {
	case at < 0:
		return "", fmt.Errorf("the specification has no message %q", r.Message)
	case r.Form != "":
		return oracle.Form(r.Form), nil
	}
	if _, refused := r.Value["code"]; refused && slices.Contains(messages[at].Forms, oracle.Refusal) {
		return oracle.Refusal, nil
	}
	for _, form := range []oracle.Form{oracle.Reply, oracle.Push, oracle.Control} {
		if slices.Contains(messages[at].Forms, form) {
			return form, nil
		}
	}
	return "", fmt.Errorf("%s is not sent to clients", r.Message)
}

// fill replaces what a value takes of a request.
func fill(v any, request oracle.Value) (any, error) {
	switch inner := v.(type) {
	case string:
		if path, ok := strings.CutPrefix(inner, requestPrefix); ok {
			return lookUp(request, path)
		}
	case map[string]any:
		out := map[string]any{}
		for name, member := range inner {
			filled, err := fill(member, request)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out[name] = filled
		}
		return out, nil
	case []any:
		out := make([]any, len(inner))
		for i, member := range inner {
			filled, err := fill(member, request)
			if err != nil {
				return nil, fmt.Errorf("member %d: %w", i, err)
			}
			out[i] = filled
		}
		return out, nil
	}
	return v, nil
}

func lookUp(request oracle.Value, path string) (any, error) {
	var at any = request
	for name := range strings.SplitSeq(path, ".") {
		fields, _ := at.(oracle.Value)
		inner, ok := fields[name]
		if !ok {
			return nil, fmt.Errorf("the request has no %s", path)
		}
		at = inner
	}
	return at, nil
}

// damage changes the bytes of a record as the script says.
func (r *Record) damage(b []byte) ([]byte, error) {
	b = slices.Clone(b)
	for at, text := range r.Set {
		other, err := unhex(text)
		if err != nil {
			return nil, fmt.Errorf("set: %w", err)
		}
		if at < 0 || at+len(other) > len(b) {
			return nil, errors.New("set: outside the record")
		}
		copy(b[at:], other)
	}
	if r.Cut < 0 || r.Cut > len(b) {
		return nil, errors.New("cut: more bytes than the record has")
	}
	b = b[:len(b)-r.Cut]
	more, err := unhex(r.Append)
	if err != nil {
		return nil, fmt.Errorf("append: %w", err)
	}
	b = append(b, more...)
	if r.Fit {
		fit(b)
	}
	return b, nil
}

// fit makes the length in the header of a record fit what follows it (W-01, W-02).
func fit(record []byte) {
	const escape, small, large = 0xFF, 3, 5
	header := small
	if len(record) > 0 && record[0] == escape {
		header = large
	}
	if len(record) >= header {
		binary.BigEndian.PutUint16(record[header-2:], uint16(len(record)-header))
	}
}
