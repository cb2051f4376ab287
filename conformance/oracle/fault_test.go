package oracle

import (
	"encoding/hex"
	"strings"
	"testing"
)

// Each class of mistake is found where the reference says, with the answer that it says.
// Clauses: D-1 to D-6, W-01, W-03, W-05, W-07, W-50, W-52, E-01, E-02, R-01.
func TestFaults(t *testing.T) {
	s := allDomains(t)
	long := strings.Repeat("78", 513)
	const acquire, route = "ff0190", "0000000d6c656173653a2f2f722f612f6b"
	cases := []struct {
		name     string
		dir      Direction
		message  string // records; LL stands for the length of the last value
		class    Class
		offset   int
		reaction Reaction
		code     string
		field    string
	}{
		{"empty message", Up, "", BadFrame, 0, Close, "bad_frame", ""},
		{"header cut off", Up, "f100", BadFrame, 0, Close, "bad_frame", ""},
		{"value cut off", Up, "f10008 0000000000000001 f10008 00", BadFrame, 11, Close, "bad_frame", ""},
		{"small type in the long form", Up, "ff00f10008 0000000000000001", BadRecord, 0, Close, "bad_record", ""},
		{"unassigned type", Up, "ff00ff0000", UnknownType, 0, Close, "unsupported_message_type", ""},
		{"reserved type", Up, "fa0000", UnknownType, 0, Close, "unsupported_message_type", ""},
		{"wrong direction", Up, "f30000", UnknownType, 0, Close, "unsupported_message_type", ""},
		{"label at the end", Up, "020008 0000000000000001", BadLabel, 0, Close, "bad_control_record", ""},
		{"label before a label", Up, "020008 0000000000000001 020008 0000000000000002 f10008 0000000000000001", BadLabel, 0, Close, "bad_control_record", ""},
		{"label zero", Up, "020008 0000000000000000 f10008 0000000000000001", Zero, 3, Close, "bad_control_record", "id"},
		{"label of a push", Down, "030008 0000000000000001 ff0199001d 0000000000000005" + route + "00000000", BadLabel, 0, Violate, "protocol.violation", ""},
		{"length beyond the value", Up, acquire + "LL 0000000e6c656173653a2f2f722f612f6b", Truncated, 5, Refuse, "LEASE_BAD_REQUEST", "route"},
		{"part of a tail", Up, acquire + "LL" + route + "000000027731 000000000000001e 0000", Truncated, 36, Refuse, "LEASE_BAD_REQUEST", "wait"},
		{"left over", Up, acquire + "LL" + route + "000000027731 000000000000001e 00000005 00", Trailing, 40, Refuse, "LEASE_BAD_REQUEST", ""},
		{"owner not UTF-8", Up, acquire + "LL" + route + "0000000277ff 000000000000001e", BadUTF8, 27, Refuse, "LEASE_BAD_REQUEST", "owner_id"},
		{"owner too long", Up, acquire + "LL" + route + "00000201" + long + "000000000000001e", OverBound, 22, Refuse, "LEASE_BAD_REQUEST", "owner_id"},
		{"owner too long and cut off", Up, acquire + "LL" + route + "00000201" + long + "0000", Truncated, 539, Refuse, "LEASE_BAD_REQUEST", "ttl"},
		{"owner too long and a bad route", Up, acquire + "LL 0000000d6c656173653a2f2f722f612f2a 00000201" + long + "000000000000001e", BadRoute, 5, Refuse, "LEASE_BAD_REQUEST", "route"},
		{"ttl zero", Up, acquire + "LL" + route + "000000027731 0000000000000000", OutOfRange, 28, Refuse, "LEASE_BAD_REQUEST", "ttl"},
		{"selector", Up, "ff019aLL 0000000b 6c656173653a2f2f722f2f 00 00000000", BadRoute, 5, Refuse, "LEASE_INVALID_LIST_PATTERN", "selector"},
		{"flag", Up, "ff019aLL 0000000d6c656173653a2f2f722f612f2a 02 00000000", BadFlag, 22, Refuse, "LEASE_BAD_REQUEST", "cursor"},
		{"count", Down, "ff019aLL 00 00000001 00", BadCount, 6, Violate, "protocol.violation", "items"},
		{"kind", Down, "ff0190LL 00 04 0000000000000029", BadEnum, 6, Violate, "protocol.violation", "kind"},
		{"constant", Down, "ff0199LL 0000000000000005" + route + "00000001", BadConstant, 30, Violate, "protocol.violation", "payload_length"},
		{"no envelope", Down, "ff0190LL 03 00 0000000000000029", BadEnvelope, 5, Violate, "protocol.violation", "status"},
		{"refusal cut off", Down, "ff0190LL 01 00002329 00000009 63616e63", BadEnvelope, 5, Violate, "protocol.violation", "status"},
		{"extension too short", Down, "04LL 0001 00010000 0002 0001", Truncated, 11, Violate, "protocol.violation", "lifecycle.broker_lifetime_id"},
		{"metadata too long is dropped", Up, "05LL 00000081" + strings.Repeat("78", 129), OverBound, 3, Drop, "", "service_name"},
		{"metadata malformed is dropped", Up, "05LL 00", Truncated, 3, Drop, "", "service_name"},
		{"mode with a code of its own", Up, "64LL 0000000a 6b763a2f2f722f612f6b 02", BadEnum, 17, Refuse, "KV_INVALID_MODE", "mode"},
		{"filter with a code of its own", Up, "ff025cLL 0000000e 73747265616d3a2f2f722f612f6b 0000000000000000 0000000000000001 00 01 00000002 00f0", BadConstant, 46, Refuse, "STREAM_FILTER_INVALID_PAYLOAD", "filter.marker"},
		{"no such condition", Up, "ff025cLL 0000000e 73747265616d3a2f2f722f612f6b 0000000000000000 0000000000000001 00 01 0000000b 00f1 00000001 01 00000000", BadEnum, 51, Refuse, "STREAM_FILTER_INVALID_PAYLOAD", "filter.conditions[0]"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, fault := s.SplitMessage(c.dir, unhex(t, c.message))
			if fault == nil {
				t.Fatal("accepted")
			}
			if fault.Class != c.class || fault.Offset != c.offset || fault.Reaction != c.reaction || fault.CodeName != c.code || fault.Field != c.field {
				t.Errorf("got %+v", *fault)
			}
			row, known := s.Error(c.code)
			if known && row.Number != fault.Code || !known && fault.Code != 0 || fault.Clause == "" {
				t.Errorf("got code %d, clause %q", fault.Code, fault.Clause)
			}
		})
	}
}

// unhex reads hex with spaces, in which LL stands for the length of the rest.
func unhex(t *testing.T, text string) []byte {
	t.Helper()
	head, rest, sized := strings.Cut(strings.ReplaceAll(text, " ", ""), "LL")
	if sized {
		n := len(rest) / 2
		head += hex.EncodeToString([]byte{byte(n >> 8), byte(n)})
	}
	out, err := hex.DecodeString(head + rest)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A value that only breaks a bound is shown whole; one that is malformed is not (D-5).
func TestValueBesideFault(t *testing.T) {
	s := project(t)
	record, err := s.EncodeAny("lease.acquire", Request, item("route", aRoute, "owner_id", "w1", "ttl", 0))
	if err != nil {
		t.Fatal(err)
	}
	rec, fault := s.Decode(Up, record)
	if fault == nil || rec.Value["owner_id"] != "w1" || fault.Text != "ttl out of range" {
		t.Errorf("%+v, %v", rec, fault)
	}
	if _, err := s.Encode("lease.acquire", Request, item("route", aRoute, "owner_id", "w1", "ttl", 0)); err == nil {
		t.Error("Encode made a record that a reader refuses")
	}
	rec, fault = s.Decode(Up, append(record[:3:3], append([]byte{0, byte(len(record) - 6)}, record[5:len(record)-1]...)...))
	if fault == nil || !fault.Structural() || rec.Value != nil {
		t.Errorf("%+v, %v", rec, fault)
	}
}

// Encode takes what scenarios and driver answers hold and refuses what no message has.
func TestEncodeForms(t *testing.T) {
	s := allDomains(t)
	want, err := s.Encode("lease.acquire", Reply, item("kind", uint64(2), "fencing_token", uint64(42)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Encode("lease.acquire", Reply, item("kind", "queued", "fencing_token", "42"))
	if err != nil || string(got) != string(want) {
		t.Errorf("%x, %v", got, err)
	}
	if short, err := s.Encode("lease.acquire", Request, item("route", aRoute, "owner_id", "w", "ttl", 1, "wait", 0)); err != nil || len(short) != 5+17+5+8 {
		t.Errorf("a default at the end is on the wire: %x, %v", short, err)
	}
	for name, v := range map[string]Value{
		"missing":   item("route", aRoute),
		"strange":   item("route", aRoute, "owner_id", "w", "ttl", 1, "colour", 1),
		"type":      item("route", aRoute, "owner_id", 7, "ttl", 1),
		"too large": item("route", aRoute, "owner_id", "w", "ttl", 1, "wait", uint64(1)<<32),
		"negative":  item("route", aRoute, "owner_id", "w", "ttl", -1),
	} {
		if record, err := s.EncodeAny("lease.acquire", Request, v); err == nil {
			t.Errorf("%s: %x", name, record)
		}
	}
	if _, err := s.Encode("lease.nothing", Request, Value{}); err == nil {
		t.Error("an unknown message was encoded")
	}
}
