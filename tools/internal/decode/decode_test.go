package decode

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/reference"
)

// covers checks that the spans name each byte once, in order, up to end.
func covers(t interface{ Fatalf(string, ...any) }, data []byte, r Report) {
	at := 0
	for _, s := range r.Spans {
		raw, err := hex.DecodeString(s.Hex)
		if s.Offset != at || err != nil || len(raw) == 0 || string(raw) != string(data[at:at+len(raw)]) || s.Name == "" || s.Type == "" {
			t.Fatalf("span %+v, expected at %d", s, at)
		}
		at += len(raw)
	}
	if r.Problem == nil && at != len(data) {
		t.Fatalf("%d of %d bytes named", at, len(data))
	}
	if r.Problem != nil && r.Problem.Offset > len(data) {
		t.Fatalf("problem outside: %+v", r.Problem)
	}
}

// Every byte of every vector of the reference has a name; vectors of domains that are not built are reported as such.
func TestVectors(t *testing.T) {
	vectors := slices.Concat(reference.Rows(t, (*reference.Docs).WireVectors), reference.Rows(t, (*reference.Docs).LeaseVectors))
	built := 0
	for _, v := range vectors {
		for _, data := range v.Bytes {
			r := Message(data, Either)
			covers(t, data, r)
			if r.Problem == nil {
				built++
				continue
			}
			if !strings.Contains(r.Problem.Text, "is no message of the protocol") {
				t.Errorf("%s: %+v", v.ID, r.Problem)
			}
		}
	}
	if built < 25 {
		t.Errorf("only %d vectors are of messages that are built", built)
	}
}

// The side is found out where it matters, and --from decides where both could be meant.
func TestSides(t *testing.T) {
	for name, want := range map[string]Side{
		"ff0192 001f 0000000d 6c656173653a2f2f722f612f6b 00000002 7731 0000000000000029": FromClient,
		"ff0192 0001 00": FromBroker,
		"ff0190 0012 01 00002329 00000009 63616e63656c6c6564":          FromBroker,
		"f1 0008 0000000000000001":                                     Either,
		"01 0000":                                                      FromClient,
		"f3 0010 000061a8 000023f1 00000004 73746f70":                  FromBroker,
		"00000016 03 0008 0000000000000009 ff0193 0006 00 00 00000000": FromBroker,
		"00000021 02 0008 0000000000000009 ff0193 0011 0000000d 6c656173653a2f2f722f612f6b": FromClient,
	} {
		data, err := Hex(name)
		if err != nil {
			t.Fatal(err)
		}
		if r := Message(data, Either); r.Problem != nil || r.From != want {
			t.Errorf("%s: from %q, %+v; want %q", name, r.From, r.Problem, want)
		}
	}
	data, _ := Hex("ff0192 0001 00")
	if r := Message(data, FromClient); r.Problem == nil || r.From != FromClient {
		t.Errorf("%+v", r)
	}
}

func TestProblems(t *testing.T) {
	for name, test := range map[string]struct {
		hex    string
		from   Side
		offset int
		code   wire.Code
		effect string
		clause string
	}{
		"truncated field":           {"ff0190 0006 0000000d 6c65", FromClient, 5, wire.CodeLeaseBadRequest, "", ""},
		"cut-off record":            {"ff0190 0023 0000", FromClient, 0, 0, wire.CloseBadFrame.Text, "W-03"},
		"long form of a small type": {"ff0001 0000", FromClient, 0, 0, wire.CloseBadRecord.Text, "W-01"},
		"unknown type":              {"77 0001 aa", FromClient, 0, 0, wire.CloseUnsupportedMessageType.Text, "W-05"},
		"reserved type":             {"fa 0000", FromClient, 0, 0, wire.CloseUnsupportedMessageType.Text, "W-05"},
		"wrong side":                {"f3 0010 000061a8 000023f1 00000004 73746f70", FromClient, 0, 0, wire.CloseUnsupportedMessageType.Text, "W-05"},
		"second record is bad":      {"f1 0008 0000000000000001 f2 0001 00", FromClient, 14, 0, wire.CloseBadControlRecord.Text, ""},
		"length that does not fit":  {"00000009 01 0000", FromClient, 0, 0, "", "W-10"},
		"empty message":             {"00000000", FromClient, 0, 0, wire.CloseBadFrame.Text, "W-10"},
		"length above the bound":    {"00ffffff 01 0000", FromClient, 0, 0, wire.CloseFrameTooLarge.Text, "W-10"},
		"wildcard in a route":       {"ff0193 0011 0000000d 6c656173653a2f2f722f612f2a", FromClient, 21, wire.CodeLeaseBadRequest, "", ""},
		"bad selector":              {"ff0197 0011 0000000d 6c656173653a2f2f722f2f6b6b", FromClient, 19, wire.CodeLeaseInvalidSubscriptionRoute, "", ""},
		"bad reply":                 {"ff0192 0001 07", FromBroker, 5, 0, "protocol.violation", ""},
	} {
		data, err := Hex(test.hex)
		if err != nil {
			t.Fatal(err)
		}
		r := Message(data, test.from)
		covers(t, data, r)
		p := r.Problem
		if p == nil || p.Offset != test.offset || p.Code != test.code || p.Effect != test.effect || test.clause != "" && p.Clause != test.clause {
			t.Errorf("%s: %+v, want %+v", name, p, test)
		}
	}
}

func TestTooManyRecords(t *testing.T) {
	record, _ := Hex("f1 0008 0000000000000001")
	data := slices.Repeat(record, bounds.RecordsPerFrameMax+1)
	if r := Message(data, Either); r.Problem == nil || r.Problem.Effect != wire.CloseBadFrame.Text {
		t.Fatalf("%+v", r.Problem)
	}
	if r := Message(data[len(record):], Either); r.Problem != nil {
		t.Fatalf("%+v", r.Problem)
	}
}

// What this package accepts, the strict decoder accepts, and the other way round.
func TestAgreesWithTheDecoder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		layout := rapid.SampledFrom(wire.Messages).Draw(t, "message")
		value := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "value")
		from := FromClient
		info, _ := wire.LookupMessage(layout.Type)
		if layout.Part == wire.Success || !info.ToBroker {
			from = FromBroker
		}
		data := codec.AppendRecord(nil, uint16(layout.Type), value)
		r := Message(data, from)
		covers(t, data, r)
		_, refused := wire.DecodeRefusal(value)
		strict := layout.NewView().DecodeValue(value) == nil || refused && layout.Part == wire.Success
		if !strict && r.Problem == nil {
			t.Fatalf("%s: the decoder refuses %x", layout.Name, value)
		}
		if strict && r.Problem != nil && !strings.Contains(r.Problem.Text, "oute") && !strings.Contains(r.Problem.Text, "elector") {
			t.Fatalf("%s: the decoder accepts %x: %+v", layout.Name, value, r.Problem)
		}
	})
}

func TestLines(t *testing.T) {
	data, _ := Hex("ff0193 0011 0000000d 6c656173653a2f2f722f612f6b")
	want := `0000  ff 01 93                 record type    u8 u16  403 lease.query
0003  00 11                    record length  u16     17 bytes
0005  00 00 00 0d              route length   u32     13
0009  6c 65 61 73 65 3a 2f 2f  route          route   "lease://r/a/k"
0011  72 2f 61 2f 6b
from client`
	if got := strings.Join(Message(data, Either).Lines(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	bad, _ := Hex("ff0193 0001 00")
	lines := Message(bad, FromClient).Lines()
	if got := lines[2]; !strings.HasPrefix(got, "0005  lease.query.route at byte 0: truncated -> 5008 LEASE_BAD_REQUEST") {
		t.Errorf("got %s", got)
	}
}

func TestHex(t *testing.T) {
	for text, want := range map[string]string{"ff": "ff", " 0xFF 01\n": "ff01", "f f\t0 1": "ff01"} {
		if got, err := Hex(text); err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%q: %x, %v", text, got, err)
		}
	}
	for _, text := range []string{"", " ", "f", "fg", "0x", "\x10\x11", "ff:01"} {
		if got, err := Hex(text); err == nil {
			t.Errorf("%q: %x", text, got)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, text := range []string{"ff0190 0023 0000000d", "00000003 01 0000", "03 0008 0000000000000009 ff0193 0006 00 00 00000000"} {
		data, _ := Hex(text)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, from := range []Side{Either, FromClient, FromBroker} {
			r := Message(data, from)
			covers(t, data, r)
			r.Lines()
		}
	})
}

func FuzzHex(f *testing.F) {
	f.Add("0xff 01")
	f.Fuzz(func(t *testing.T, text string) {
		data, err := Hex(text)
		if err == nil && !strings.EqualFold(hex.EncodeToString(data), strings.TrimPrefix(strings.Join(strings.Fields(text), ""), "0x")) {
			t.Fatalf("%q gives %x", text, data)
		}
	})
}

// D-9: in a request the grammar of the route decides, whatever else is beyond its bound.
func TestGrammarBeforeBounds(t *testing.T) {
	data, err := Hex("ff0190 001f 0000000d 6c656173653a2f2f722f612f2a 00000002 7731 0000000000000000") // lease://r/a/*, ttl 0
	if err != nil {
		t.Fatal(err)
	}
	report := Message(data, FromClient)
	if p := report.Problem; p == nil || p.Offset != 0x15 || !strings.Contains(p.Text, "wildcard_not_allowed") {
		t.Errorf("problem %+v", p)
	}
}
