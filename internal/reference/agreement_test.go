package reference_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/reference"
)

// The tests of this file compare what the generator made with the reference (README section 9): a number that is changed in one
// place only fails here.

func TestBoundsAgreeWithLimits(t *testing.T) {
	lengths := map[string]string{"R": "route", "K": "key"}
	rows := reference.Rows(t, (*reference.Docs).Limits)
	if len(rows) != len(bounds.All) {
		t.Errorf("limits.md has %d rows, the specification %d bounds", len(rows), len(bounds.All))
	}
	for i, row := range rows {
		if i >= len(bounds.All) {
			break
		}
		var minus []string
		for _, letter := range row.Minus {
			minus = append(minus, lengths[letter])
		}
		got := bounds.All[i]
		want := bounds.Bound{
			Name: row.Name, Default: row.Value, Minus: minus, Unit: row.Unit, Scope: row.Scope, ChosenBy: got.ChosenBy,
			OperatorMayChange: row.Settable, Reaction: got.Reaction, Beyond: row.Beyond, Because: got.Because,
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s:%d:\n  reference     %+v\n  specification %+v", row.File, row.Line, want, got)
		}
		if fmt.Sprint(got.ChosenBy) != row.PickedBy {
			t.Errorf("%s:%d: %s is picked by %s, in the specification by %v", row.File, row.Line, row.Name, row.PickedBy, got.ChosenBy)
		}
	}
}

func TestCodesAgreeWithRegistry(t *testing.T) {
	known := map[uint32]wire.CodeInfo{}
	for _, info := range wire.Codes {
		known[uint32(info.Code)] = info
	}
	rows := 0
	for _, row := range reference.Rows(t, (*reference.Docs).Codes) {
		if row.First != row.Last {
			continue // a reserved range
		}
		rows++
		got, ok := known[row.First]
		if !ok {
			t.Errorf("%s:%d: %d %s is not in the specification", row.File, row.Line, row.First, row.Name)
			continue
		}
		domain, outcome := row.Domain, row.Outcome
		if row.Extension() {
			domain = "session"
		}
		if outcome == "—" {
			outcome = ""
		}
		want := wire.CodeInfo{
			Code: wire.Code(row.First), Name: row.Name, Text: got.Text, Domain: domain, Retry: wire.Retry(row.Retry),
			Outcome: wire.Outcome(outcome), Class: got.Class, Doc: row.Meaning,
		}
		if got != want {
			t.Errorf("%s:%d:\n  reference     %+v\n  specification %+v", row.File, row.Line, want, got)
		}
	}
	if rows != len(wire.Codes) {
		t.Errorf("errors.md has %d codes, the specification %d", rows, len(wire.Codes))
	}
}

// TestMessagesAgreeWithRegistry compares numbers, names and directions of what is built; the other domains wait for their issue.
func TestMessagesAgreeWithRegistry(t *testing.T) {
	built := []string{"session", "lease"}
	seen := 0
	for _, row := range reference.Rows(t, (*reference.Docs).Messages) {
		for number := row.First; number <= row.Last; number++ {
			info, ok := wire.LookupMessage(wire.MessageType(number))
			if row.Reserved {
				if !ok || !info.Reserved {
					t.Errorf("%s:%d: %d is reserved for %s, not in the specification", row.File, row.Line, number, row.Name)
				}
				continue
			}
			if !ok || info.Reserved {
				if domain, _, _ := strings.Cut(strings.ToLower(row.Name), "_"); slices.Contains(built, domain) && row.Where != "lease-ext.md" {
					t.Errorf("%s:%d: %d %s is not in the specification", row.File, row.Line, number, row.Name)
				}
				continue
			}
			seen++
			name := strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(info.Name, "session."), ".", "_"))
			if name != row.Name {
				t.Errorf("%s:%d: %d is %s, in the specification %s", row.File, row.Line, number, row.Name, name)
			}
			toBroker := row.Direction == "C→S" || row.Direction == "both"
			toClient := row.Direction == "S→C" || row.Direction == "both" || row.Class == "request"
			if info.ToBroker != toBroker || info.ToClient != toClient {
				t.Errorf("%s:%d: %s goes %s, in the specification to broker %t, to client %t", row.File, row.Line, row.Name, row.Direction, info.ToBroker, info.ToClient)
			}
			if class := fmt.Sprint(info.Class); class != row.Class {
				t.Errorf("%s:%d: %s is a %s, in the specification a %s", row.File, row.Line, row.Name, row.Class, class)
			}
		}
	}
	if seen < 12+8 {
		t.Errorf("only %d messages compared, session and lease have 20", seen)
	}
}

// Clauses: R-40.
func TestGrammarsAgreeWithDepths(t *testing.T) {
	for _, row := range reference.Rows(t, (*reference.Docs).Domains) {
		grammar, ok := route.ByScheme[row.Name]
		if !ok {
			t.Errorf("%s:%d: no grammar for %s", row.File, row.Line, row.Name)
			continue
		}
		if grammar.Depth != row.Depth {
			t.Errorf("%s:%d: depth of %s is %d, in the specification %d", row.File, row.Line, row.Name, row.Depth, grammar.Depth)
		}
		if err := grammar.Validate(); err != nil {
			t.Errorf("%s: %v", row.Name, err)
		}
	}
}
