package scenario

import (
	"fmt"
	"strings"
	"testing"
)

const good = `id: X-1
title: t
proves: [OB-10]
subject: client
time: virtual
steps:
  - peer: p1
  - connect: c1
`

// Every mistake is found at its place with its rule. The text is put behind the good head; lines count from 9.
func TestMistakes(t *testing.T) {
	catalog := specCatalog(t)
	for _, c := range []struct{ name, steps, want string }{
		{"unknown action", "  - jump: p1\n", `9:5: SCHEMA: the step has no action`},
		{"two actions", "  - {cut: c1, reset: c1}\n", `9:5: SCHEMA: the keys cut and reset stand together`},
		{"unknown key", "  - {do: lease.query, on: p1, argz: {}}\n", `9:31: SCHEMA: the key "argz" is not known here; known are do, when, on`},
		{"unknown key in a body", "  - await: {link: c1, mesage: lease.query}\n", `9:23: SCHEMA: the key "mesage" is not known here`},
		{"missing key", "  - start: lease.query\n", `9:5: SCHEMA: the key "call" is missing`},
		{"missing key in a body", "  - hold: {dir: down}\n", `9:11: SCHEMA: the key "link" is missing`},
		{"neither link nor peer", "  - await: {message: lease.query}\n", `SCHEMA: none of the keys link, peer`},
		{"both link and peer", "  - await: {link: c1, peer: p1}\n", `the keys link and peer stand together`},
		{"two ends", "  - {do: lease.query, on: p1, ok: {}, err: LEASE_HELD}\n", `9:5: SCHEMA: two ways to end stand together`},
		{"wrong type", "  - await: {link: c1, n: many}\n", `9:26: SCHEMA: the value is not allowed here`},
		{"zero", "  - await: {link: c1, n: 0}\n", `9:26: SCHEMA`},
		{"wrong word", "  - await: {link: c1, dir: left}\n", `9:28: SCHEMA: "left" is not one of the possible values; use one of up, down`},
		{"no hex", "  - {send: p1, hex: 0g}\n", `SCHEMA: "0g" does not have the form`},
		{"bad name", "  - {mark: a-b}\n", `SCHEMA: "a-b" does not have the form`},
		{"empty steps", "  - repeat: {times: 1, steps: []}\n", `SCHEMA: nothing is in it`},
		{"unknown peer", "  - {do: lease.query, on: p9}\n", `9:27: UNKNOWN_NAME: no client or peer "p9" was made before`},
		{"unknown link", "  - {cut: c9}\n", `9:5: UNKNOWN_NAME: no link "c9"`},
		{"unknown handle", "  - {do: obs.ready, of: o9}\n", `UNKNOWN_NAME: no handle or client "o9"`},
		{"unknown call", "  - {join: q}\n", `UNKNOWN_NAME: no running command "q"`},
		{"unknown rule", "  - {release: q}\n", `UNKNOWN_NAME: no rule or fault "q"`},
		{"unknown mark", "  - count: {link: c1, is: 0, since: q}\n", `9:37: UNKNOWN_NAME: no mark "q"`},
		{"unknown broker", "  - {restart_broker: b9}\n", `UNKNOWN_NAME: no broker "b9"`},
		{"unknown fake", "  - {act: f9, actions: [{reset: true}]}\n", `UNKNOWN_NAME: no fake broker "f9"`},
		{"unknown background", "  - {end: q}\n", `UNKNOWN_NAME: no background "q"`},
		{"unknown variable", "  - {do: lease.query, on: p1, args: {route: $Q}}\n", `9:37: UNKNOWN_VARIABLE: the variable "Q" is not set before`},
		{"unknown bound", "  - check: {value: $bound.nothing_max, is: 1}\n", `UNKNOWN_BOUND: there is no bound "nothing_max"`},
		{"unknown message", "  - await: {link: c1, message: lease.teleport}\n", `9:32: UNKNOWN_MESSAGE: there is no message "lease.teleport"`},
		{"unknown message in an order", "  - order: {link: c1, frames: [{message: lease.query}, {message: lease.no}]}\n", `UNKNOWN_MESSAGE: there is no message "lease.no"`},
		{"unknown operation", "  - {do: lease.notify, on: p1}\n", `UNKNOWN_COMMAND: "lease.notify" is no operation`},
		{"handle of a peer", "  - {do: lease.query, on: p1, as: x}\n", `PEER: a peer has no handles`},
		{"unknown code", "  - {do: lease.query, on: p1, err: LEASE_NONE}\n", `9:36: UNKNOWN_CODE: there is no error code "LEASE_NONE"`},
		{"unknown operator", "  - check: {value: 1, is: {$near: 1}}\n", `9:27: UNKNOWN_OPERATOR: there is no operator "$near"`},
		{"bad pattern", "  - check: {value: 1, is: {$re: \"(\"}}\n", `PATTERN: error parsing regexp`},
		{"count without a number", "  - count: {link: c1}\n", `COUNT: it takes either is, or min and max`},
		{"count with too many", "  - count: {link: c1, is: 1, max: 2}\n", `COUNT: it takes either is, or min and max`},
		{"always that acts", "always:\n  - {cut: c1}\n", `10:5: ALWAYS: cut cannot be checked over a whole case`},
		{"octal", "  - advance: {ms: 010}\n", `9:19: YAML: 010 can be read as different numbers`},
		{"twice", "  - {cut: c1, cut: c1}\n", `9:15: YAML: the key "cut" stands on line 9 already`},
		{"no value", "  - {cut: }\n", `YAML: a key without a value`},
		{"anchor", "  - {cut: &a c1}\n", `YAML: an anchor or alias`},
		{"alias", "  - {cut: *a}\n", `YAML: unknown anchor`},
		{"unknown clause", "refuses: [ZZ-99]\n", `9:11: UNKNOWN_CLAUSE: there is no clause "ZZ-99"`},
		{"unknown code in the head", "codes: [LEASE_NONE]\n", `9:9: UNKNOWN_CODE`},
		{"unknown setting", "broker: {settings: {colour: red}}\n", `UNKNOWN_SETTING: there is no setting "colour"`},
		{"unknown limit", "brokers: {b2: {settings: {limits: {lease_acquired_at_bytes_max: 1}}}}\n", `UNKNOWN_LIMIT: "lease_acquired_at_bytes_max" is no bound that an operator may change`},
		{"unknown key of the head", "colour: red\n", `9:1: SCHEMA: the key "colour" is not known here`},
		{"second document", "---\nid: X-2\n", `YAML: a second document`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, mistakes := Parse("X-1.yaml", []byte(good+c.steps), catalog)
			text := ""
			for _, m := range mistakes {
				text += m.String() + "\n"
			}
			if s != nil || !strings.Contains(text, c.want) {
				t.Errorf("got %v\n%swant %s", s != nil, text, c.want)
			}
		})
	}
}

// All mistakes are told at once.
func TestAllMistakesAtOnce(t *testing.T) {
	_, mistakes := Parse("X-1.yaml", []byte(good+"  - {cut: c8}\n  - {cut: c9}\n  - {join: q}\nrefuses: [ZZ-1, ZZ-2]\n"), specCatalog(t))
	if len(mistakes) != 5 {
		t.Errorf("%d mistakes: %v", len(mistakes), mistakes)
	}
	_, mistakes = Parse("X-1.yaml", []byte("id: x\ncolour: red\nsteps: [{jump: a}, {await: {n: 0}}]\n"), nil)
	if len(mistakes) < 6 {
		t.Errorf("%d mistakes: %v", len(mistakes), mistakes)
	}
}

func TestHeadMistakes(t *testing.T) {
	for text, want := range map[string]string{
		strings.Replace(good, "X-1", "X-2", 1):                         "1:5: ID: the id is X-2 and the file is named X-1",
		strings.Replace(good, "proves: [OB-10]\n", "", 1):              "CLAUSES: the scenario shows no clause",
		strings.Replace(good, "subject: client", "subject: broker", 1): "SUBJECT: a scenario about a broker has no driver",
		strings.Replace(good, "client", "broker\nneeds: [obs]", 1):     "NEEDS: a scenario about a broker has no driver",
		"":                         "YAML: EOF",
		"[]":                       "the file is not a mapping",
		"a: [":                     "YAML:",
		strings.Repeat("[", 10000): "YAML",
	} {
		s, mistakes := Parse("X-1.yaml", []byte(text), specCatalog(t))
		if got := fmt.Sprint(mistakes); s != nil || !strings.Contains(got, want) {
			t.Errorf("%.40q: %s\nwant %s", text, got, want)
		}
	}
}

// A file that is right has its parts where the engine looks for them.
func TestParse(t *testing.T) {
	s, mistakes := Parse("a/X-1.yaml", []byte(good+"  - repeat:\n      times: 3\n      var: i\n      steps:\n        - {do: lease.query, on: p1, args: {route: \"w$i\", big: 18446744073709551615}}\nlabels: [on, off]\nbudget_ms: 5\n"), specCatalog(t))
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	inner := s.Steps[2].Steps[0]
	args := inner.Map("args")
	if inner.Index != "3.1" || inner.Action != "do" || inner.Name != "lease.query" || args["route"] != "w$i" || args["big"] != uint64(1<<64-1) {
		t.Errorf("%+v", inner)
	}
	if inner.At("args").Line != 13 || inner.Line() != "do lease.query on=p1" {
		t.Errorf("%v %q", inner.At("args"), inner.Line())
	}
	if len(s.Labels) != 2 || len(s.Transports) != 2 || s.Auth[0] != Anonymous || s.Budget.Milliseconds() != 5 || s.Brokers[DefaultBroker] == nil {
		t.Errorf("%+v", s)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("id: [\n"))
	f.Add([]byte(good + "  - order: {link: c1, frames: [{}, {dir: up}]}\nalways: [{check: {value: $bound, is: {$re: 1}}}]\n"))
	catalog, err := LoadCatalog(specFiles)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, mistakes := Parse("X-1.yaml", text, catalog)
		if (s == nil) != (len(mistakes) > 0) {
			t.Fatalf("%v %v", s, mistakes)
		}
	})
}
