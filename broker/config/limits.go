package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/broker/transport"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
)

func normalizeOrigin(text string) (string, error) { return transport.NormalizeOrigin(text) }

// parseHello reads the setting `hello` (compat.md section 2).
func parseHello(text string) (session.Hello, error) {
	switch text {
	case "immediate":
		return session.Hello{Mode: session.HelloImmediate}, nil
	case "off":
		return session.Hello{Mode: session.HelloOff}, nil
	}
	number, isDelayed := strings.CutPrefix(text, "delayed(")
	number, closed := strings.CutSuffix(number, ")")
	if !isDelayed || !closed {
		return session.Hello{}, fmt.Errorf("hello %q is not immediate, delayed(ms) or off", text)
	}
	ms, err := decimal(number)
	if err != nil || ms < settings.HelloDelayMinMs || ms > settings.HelloDelayMaxMs {
		return session.Hello{}, fmt.Errorf("hello %q: the delay is not a number from %d to %d", text, settings.HelloDelayMinMs, settings.HelloDelayMaxMs)
	}
	return session.Hello{Mode: session.HelloDelayed, Delay: time.Duration(ms) * time.Millisecond}, nil
}

// decimal reads a number without sign, leading zeros or separators, so that 010 and 1_000 are mistakes and not other numbers.
func decimal(text string) (int64, error) {
	if len(text) > 1 && text[0] == '0' {
		return 0, fmt.Errorf("%q has a leading zero", text)
	}
	for _, r := range text {
		if r < '0' || r > '9' {
			return 0, fmt.Errorf("%q is not a whole number", text)
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number that fits", text)
	}
	return n, nil
}

// limits applies the bounds that the operator changes, weakest source first, and checks them against each other.
func (b *builder) limits() {
	set := map[string]string{} // name to place
	apply := func(name, value, from string) {
		n, err := decimal(value)
		switch {
		case err != nil:
			err = fmt.Errorf("limit %s: %w", name, err)
		case strings.HasSuffix(name, "_ms") && n > longestMs:
			err = fmt.Errorf("limit %s: %d is too long", name, n)
		default:
			err = b.config.Limits.Set(name, n)
		}
		if err != nil {
			b.problem(from, "%v", err)
			return
		}
		set[name] = from
	}
	for _, l := range b.file.limits {
		apply(l.name, l.value.text, l.value.from)
	}
	s := settings.SettingLimits
	b.pairs(splitList(b.env(s.Env)), s.Env, apply)
	b.pairs(b.flags.values[s.Flag], "--"+s.Flag, apply)
	b.checkLimits(set)
}

// longestMs is the longest time that fits a time.Duration.
const longestMs = math.MaxInt64 / int64(time.Millisecond)

// pairs applies NAME=VALUE items.
func (b *builder) pairs(items []string, from string, apply func(name, value, from string)) {
	for _, item := range items {
		name, value, ok := strings.Cut(item, "=")
		if !ok {
			b.problem(from, "%q is not NAME=VALUE", item)
			continue
		}
		apply(strings.TrimSpace(name), strings.TrimSpace(value), from)
	}
}

// checkLimits refuses combinations that would cut peers which keep to the protocol.
func (b *builder) checkLimits(set map[string]string) {
	l := &b.config.Limits
	if _, ok := set["session_idle_ms"]; !ok {
		if _, changed := set["heartbeat_ms"]; changed {
			l.SessionIdleMs = idleHeartbeats * l.HeartbeatMs // W-66: the idle timeout follows the announced heartbeat
		}
	}
	below := func(low, high string) {
		a, _ := l.Get(low)
		z, _ := l.Get(high)
		if a >= z {
			b.problem(orPlace(orPlace(set[low], set[high]), "limits"), "limit %s %d must be below %s %d", low, a, high, z)
		}
	}
	below("session_read_pause_frames", "session_answer_frames_max") // W-81: a client that reads never meets the answers limit
	below("session_read_pause_bytes", "session_answer_bytes_max")
	// A client gives up a peer that is silent, and what it holds there, after a peer timeout, which follows the heartbeat. Were the broker the
	// first to do so, others could be granted what the client still believes to hold (W-66, L-96).
	if silence := l.HeartbeatMs * bounds.SDKPeerTimeoutMs / bounds.HeartbeatMs; l.SessionIdleMs <= silence {
		b.problem(orPlace(orPlace(set["session_idle_ms"], set["heartbeat_ms"]), "limits"),
			"limit session_idle_ms %d must be above %d, which is how long clients bear silence with heartbeat_ms %d", l.SessionIdleMs, silence, l.HeartbeatMs)
	}
	below("frame_recv_max", "inbound_total_bytes_max")
	if l.FrameRecvMax > math.MaxInt32 || l.HeartbeatMs > math.MaxUint32 || l.DrainGraceMs > math.MaxUint32 {
		b.problem("limits", "frame_recv_max, heartbeat_ms and drain_grace_ms must fit the 32 bits that they have on the wire")
	}
}

// idleHeartbeats is the idle timeout in heartbeats (W-66).
const idleHeartbeats = bounds.SessionIdleMs / bounds.HeartbeatMs
