package wiretest

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/reference"
)

// The generated registry of codes is that of the reference.
func TestCodes(t *testing.T) {
	seen := 0
	for _, row := range reference.Rows(t, (*reference.Docs).Codes) {
		if row.Name == "reserved" {
			continue
		}
		seen++
		info, known := wire.Code(row.First).Info()
		outcome := strings.TrimSuffix(row.Outcome, "—")
		if !known || info.Name != row.Name || string(info.Retry) != row.Retry || string(info.Outcome) != outcome {
			t.Errorf("%s: code %d is %+v", row.Source, row.First, info)
		}
		if wire.Code(row.First).String() != row.Name || info.Text != strings.Replace(strings.ToLower(row.Name), "_", ".", 1) {
			t.Errorf("%s: texts %s, %s", row.Source, wire.Code(row.First), info.Text)
		}
	}
	if seen != len(wire.Codes) {
		t.Errorf("%d codes are generated, the reference has %d", len(wire.Codes), seen)
	}
	if info, known := wire.Code(4242).Info(); known || info.Retry != wire.RetryNever || wire.Code(4242).String() != "code 4242" {
		t.Errorf("an unknown code is %+v (E-04)", info)
	}
}

// The generated table of bounds is that of the reference.
func TestBoundsTable(t *testing.T) {
	rows := reference.Rows(t, (*reference.Docs).Limits)
	if len(rows) != len(bounds.All) {
		t.Fatalf("%d bounds are generated, the reference has %d", len(bounds.All), len(rows))
	}
	limits := bounds.Default()
	for i, row := range rows {
		b := bounds.All[i]
		if b.Name != row.Name || b.Default != row.Value || b.OperatorMayChange != row.Settable || string(b.ChosenBy) != row.PickedBy {
			t.Errorf("%s: %+v", row.Source, b)
		}
		if got, ok := limits.Get(b.Name); !ok || got != b.Default {
			t.Errorf("%s: the default is %d", b.Name, got)
		}
	}
}

// An operator may set what is marked so, to at least 1, and nothing else.
func TestSetLimits(t *testing.T) {
	for _, b := range bounds.All {
		limits := bounds.Default()
		err := limits.Set(b.Name, b.Default+1)
		got, _ := limits.Get(b.Name)
		if b.OperatorMayChange && (err != nil || got != b.Default+1) || !b.OperatorMayChange && (err == nil || got != b.Default) {
			t.Errorf("%s: %d, %v", b.Name, got, err)
		}
		if err := limits.Set(b.Name, 0); err == nil {
			t.Errorf("%s: 0 was accepted", b.Name)
		}
	}
	limits := bounds.Default()
	if err := limits.Set("no_such_bound", 1); err == nil {
		t.Error("an unknown name was accepted")
	}
	if _, ok := limits.Get("no_such_bound"); ok {
		t.Error("an unknown name was found")
	}
}

// The generated registry of messages is that of the reference, for the domains that the specification has.
func TestMessages(t *testing.T) {
	directions := map[string][2]bool{"C→S": {true, false}, "S→C": {false, true}, "both": {true, true}}
	seen := map[wire.MessageType]bool{}
	for _, row := range reference.Rows(t, (*reference.Docs).Messages) {
		info, known := wire.LookupMessage(wire.MessageType(row.First))
		if row.Reserved {
			last, ok := wire.LookupMessage(wire.MessageType(row.Last))
			if !known || !ok || !info.Reserved || !last.Reserved {
				t.Errorf("%s: %d to %d is not reserved", row.Source, row.First, row.Last)
			}
			continue
		}
		if !known || info.Reserved {
			continue
		}
		seen[info.Type] = true
		want := directions[row.Direction]
		if info.Class == wire.Request {
			want[1] = true // the reply has the same number
		}
		name := strings.TrimPrefix(strings.ReplaceAll(info.Name, ".", "_"), "session_")
		if strings.ToUpper(name) != row.Name || info.Class.String() != row.Class || info.ToBroker != want[0] || info.ToClient != want[1] {
			t.Errorf("%s: %+v", row.Source, info)
		}
	}
	for _, m := range wire.Messages {
		if !seen[m.Type] {
			t.Errorf("%v is not in the reference", m.Type)
		}
	}
	for _, n := range []wire.MessageType{0, 201, 205, 404, 405, 406, 411, 65535} {
		if info, known := wire.LookupMessage(n); known {
			t.Errorf("%d is %+v", n, info)
		}
	}
}

// The reasons of 5011 stand in check order with their fixed texts.
func TestCursorMisuse(t *testing.T) {
	var texts []string
	for _, row := range reference.Rows(t, (*reference.Docs).CursorMisuses) {
		if !slices.Contains(texts, row.Reason) {
			texts = append(texts, row.Reason)
		}
	}
	for i, want := range texts {
		if got := wire.LeaseCursorMisuse(i + 1).String(); got != want {
			t.Errorf("reason %d is %q, not %q", i+1, got, want)
		}
	}
	if got := wire.LeaseCursorMisuse(len(texts) + 1).String(); !strings.HasPrefix(got, "unknown") {
		t.Errorf("there is a further reason %q", got)
	}
}

// Every generated grammar is one that package pattern works with.
func TestGrammars(t *testing.T) {
	for scheme, g := range route.ByScheme {
		if g.Scheme != scheme {
			t.Errorf("%s has the scheme %s", scheme, g.Scheme)
		}
		if err := g.Validate(); err != nil {
			t.Error(err)
		}
	}
	if len(route.ByScheme) != 7 {
		t.Errorf("%d schemes", len(route.ByScheme))
	}
}

// Capabilities: what is announced, names of known and unknown bits.
// Clauses: D-6.
func TestCapabilities(t *testing.T) {
	c := wire.AnnouncedCapabilities | 1<<19
	if got := strings.Join(c.Names(), " "); got != "correlation session_metadata lifecycle bit 19" {
		t.Error(got)
	}
	if !c.Has(wire.CapLifecycle|wire.CapCorrelation) || c.Has(wire.CapLifecycle|wire.CapLeaseExt) {
		t.Error("Has does not ask for all bits")
	}
}

// E-02: which form a refusal has; E-03: messages are cut at a character boundary; E-05: a plain one has no code.
// Clauses: D-6, E-04.
func TestRefusals(t *testing.T) {
	longest := strings.Repeat("é", bounds.ErrorMessageMax/2)
	cases := []struct {
		name  string
		value []byte
		want  wire.Refusal
		ok    bool
	}{
		{"coded", wire.AppendCoded(nil, wire.CodeLeaseHeld, "busy"), wire.Refusal{Code: wire.CodeLeaseHeld, Message: "busy", HasCode: true}, true},
		{"plain", wire.AppendPlain(nil, "busy"), wire.Refusal{Message: "busy"}, true},
		{"stream", wire.AppendStreamCoded(nil, wire.CodeStreamBusy, ""), wire.Refusal{Code: wire.CodeStreamBusy, HasCode: true}, true},
		{"empty plain", wire.AppendPlain(nil, ""), wire.Refusal{}, true},
		{"unknown code", wire.AppendCoded(nil, 4242, "x"), wire.Refusal{Code: 4242, Message: "x", HasCode: true}, true},
		{"E-03 cut when sent", wire.AppendPlain(nil, longest+"é"), wire.Refusal{Message: longest}, true},
		{"E-03 cut at a character", wire.AppendPlain(nil, "x"+longest), wire.Refusal{Message: "x" + longest[:bounds.ErrorMessageMax-2]}, true},
		{"E-03 cut when received", append([]byte{1, 0, 0, 4, 0}, long(1024)...), wire.Refusal{Message: long(bounds.ErrorMessageMax)}, true},
		{"no UTF-8 when sent", wire.AppendPlain(nil, "a\xffb"), wire.Refusal{Message: "a?b"}, true},
		{"no UTF-8 when received", []byte{1, 0, 0, 0, 1, 0xff}, wire.Refusal{}, false},
		{"both forms hold: coded", []byte{1, 0, 0, 0, 4, 0, 0, 0, 0}, wire.Refusal{Code: 4, HasCode: true}, true},
		{"success", []byte{0, 0, 0, 0, 0}, wire.Refusal{}, false},
		{"other status", []byte{3, 0, 0, 0, 0}, wire.Refusal{}, false},
		{"E-01 bytes left over", append(wire.AppendPlain(nil, "busy"), 0), wire.Refusal{}, false},
		{"cut off", wire.AppendCoded(nil, 1, "busy")[:8], wire.Refusal{}, false},
		{"empty", nil, wire.Refusal{}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, ok := wire.DecodeRefusal(c.value)
			if got != c.want || ok != c.ok || !utf8.ValidString(got.Message) {
				t.Errorf("%+v, %v", got, ok)
			}
		})
	}
}

// A success of any operation is no refusal, and the other way round.
// Clauses: E-01.
func TestSuccessIsNoRefusal(t *testing.T) {
	refusal := wire.AppendCoded(nil, wire.CodeLeaseHeld, "busy")
	for _, m := range wire.Messages {
		if m.Part != wire.Success {
			continue
		}
		b := example(newBuilder(nil), m, 1)
		if r, ok := wire.DecodeRefusal(b); ok {
			t.Errorf("%s: a success is the refusal %+v", m.Name, r)
		}
		if err := codec.AsError(m.NewView().DecodeValue(refusal)); err == nil || err.Kind != codec.BadConst || err.Offset != 0 {
			t.Errorf("%s: a refusal was read: %v", m.Name, err)
		}
	}
}

// Texts with placeholders.
// Clauses: W-93.
func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		wire.TextHeldByOther("w1"): "HeldByOther: w1",
		wire.TextQueueFull(100):    "QueueFull: 100 pending",
		wire.TextWildcardSubscriptionLimit(bounds.WildcardSubsPerSessionMax): "wildcard subscription limit exceeded (128 per session)",
		wire.TextTotalSubscriptionLimit(bounds.SubsPerSessionMax):            "total subscription limit exceeded (1024 per session)",
	} {
		if got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
