package coverage

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/conformance/kit"
)

// complete is an input in which nothing is missing: three rules, a row of an acceptance table, a rule that waits, and two codes.
func complete() Input {
	return Input{
		Clauses: []Clause{
			{ID: "X-01", File: "x.md", Tests: []string{"pkg TestOne"}},
			{ID: "X-02", File: "x.md", Tests: []string{"pkg TestTwo"}},
			{ID: "X-03", File: "x.md", Tests: []string{"pkg TestThree"}},
			{ID: "ROW-001", File: "x.md"},
			{ID: "Y-01", File: "y.md", Later: "the other part"},
		},
		Codes: []Code{{"X_HELD", "x"}, {"conn.lost", Local}},
		Scenarios: []Scenario{
			{ID: "A", Proves: []string{"X-01", "ROW-001"}},
			{ID: "B", Proves: []string{"X-02"}, Refuses: []string{"X-02"}},
			{ID: "C", Refuses: []string{"X-01"}, Codes: []string{"X_HELD", "conn.lost", "Y_OF_ANOTHER_PART"}},
		},
		Vectors: []Vector{
			{ID: "x/right", Accept: true, Clauses: []string{"X-01"}},
			{ID: "x/wrong", Clauses: []string{"X-02"}, Code: "X_HELD"},
		},
		Mutants: []Mutant{{ID: "x.fault", Breaks: []string{"X-01"}, KilledBy: []string{"A"}}},
		Exempt: Exemptions{
			Rows:     []string{"ROW-*"},
			Inside:   []Inside{{Clauses: []string{"X-03"}, Reason: "memory"}},
			NoMutant: []Reason{{Clauses: []string{"X-02"}, Reason: "the decoder refuses it"}},
		},
		HasTest: func(test string) bool { return strings.HasPrefix(test, "pkg Test") },
	}
}

func problems(r *Report) string {
	var lines []string
	for _, p := range r.Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

func TestComplete(t *testing.T) {
	r := Map(complete())
	if !r.OK() {
		t.Fatalf("problems:\n%s", problems(r))
	}
	rows := map[string]*Row{}
	for _, row := range r.Rows {
		rows[row.ID] = row
	}
	for _, c := range []struct {
		id                 string
		accepted, rejected []string
	}{
		{"X-01", []string{"A", "vector x/right"}, []string{"C", "mutant x.fault"}},
		{"X-02", []string{"B"}, []string{"B", "vector x/wrong"}},
		{"ROW-001", []string{"A"}, []string{"mutant x.fault"}}, // the fault breaks another rule, and the scenario of the row notices it
		{"X_HELD", []string{"A"}, []string{"C", "vector x/wrong"}},
		{"conn.lost", []string{"A"}, []string{"C"}},
		{"X-03", nil, nil},
	} {
		if row := rows[c.id]; !slices.Equal(row.Accepted, c.accepted) || !slices.Equal(row.Rejected, c.rejected) {
			t.Errorf("%s: accepted by %v, rejected by %v", c.id, row.Accepted, row.Rejected)
		}
	}
	if got := rows["X-03"].Tests; !slices.Equal(got, []string{"pkg TestThree"}) {
		t.Errorf("the tests of the rule are not those of its line: %v", got)
	}
	want := []Total{
		{Group: "x.md", All: 4, Accepted: 3, Rejected: 3, Mutants: 2, Inside: 1},
		{Group: "y.md", All: 1, Later: 1},
		{Group: "errors: x", All: 1, Accepted: 1, Rejected: 1},
		{Group: "errors: local", All: 1, Accepted: 1, Rejected: 1},
	}
	if got := r.Totals(); !slices.Equal(got, want) {
		t.Errorf("totals %+v", got)
	}
}

// Each change takes something away or says something that is not so, and is noticed by exactly these lines.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Input)
		want   string
	}{
		{"no accepting case", func(in *Input) { in.Scenarios[1].Proves = nil; in.Exempt.NoMutant = nil }, "X-02: no accepting case"},
		{"no rejecting case", func(in *Input) { in.Scenarios[1].Refuses = nil; in.Vectors = in.Vectors[:1] }, "X-02: no rejecting case"},
		{"no case of a code", func(in *Input) { in.Scenarios[2].Codes = in.Scenarios[2].Codes[:1] },
			"conn.lost: no accepting case\nconn.lost: no rejecting case"},
		{"no reason", func(in *Input) { in.Exempt.Inside = nil }, "X-03: no accepting case\nX-03: no rejecting case"},
		{"no fault", func(in *Input) { in.Mutants[0].Breaks = []string{"X-03"}; in.Exempt.Inside = nil },
			"X-01: no mutant: no seeded fault breaks it and is killed by A\nX-03: no accepting case\nX-03: no rejecting case"},
		{"a fault that another scenario kills", func(in *Input) { in.Mutants[0].KilledBy = []string{"B"} },
			"X-01: no mutant: no seeded fault breaks it and is killed by A\nROW-001: no rejecting case\nROW-001: no mutant: no seeded fault breaks it and is killed by A"},
		{"a row that a scenario has its name of", func(in *Input) {
			in.Scenarios[0].Proves = []string{"X-01"}
			in.Scenarios = append(in.Scenarios, Scenario{ID: "ROW-001-AGAIN"}, Scenario{ID: "ROW-0012"})
			in.Mutants[0].KilledBy = append(in.Mutants[0].KilledBy, "ROW-001-AGAIN")
		}, ""},
		{"a rule that is no row has no name of a scenario", func(in *Input) { in.Scenarios = append(in.Scenarios, Scenario{ID: "X-03"}) }, ""},
		{"a row of parts", func(in *Input) {
			in.Scenarios[0].Proves = []string{"X-01"}
			in.Exempt.Parts = map[string][]string{"ROW-001": {"X-01"}}
		}, ""},
		{"a row of parts of which one lacks", func(in *Input) {
			in.Scenarios[0].Proves = []string{"X-01"}
			in.Exempt.Parts = map[string][]string{"ROW-001": {"X-01", "X-03"}}
		}, "ROW-001: no accepting case\nROW-001: no rejecting case"},
		{"a row without a fault", func(in *Input) { in.Exempt.Rows = nil },
			"ROW-001: no rejecting case\nROW-001: no mutant: no seeded fault breaks it and is killed by A"},
		{"a reason for no fault that is not needed", func(in *Input) {
			in.Exempt.NoMutant = append(in.Exempt.NoMutant, Reason{[]string{"X-01"}, "r"})
		}, "X-01: coverage.yaml says why no fault is seeded for it, and none is needed (x.fault is one)"},
		{"a reason for no fault of a rule without a scenario", func(in *Input) {
			in.Exempt.NoMutant = append(in.Exempt.NoMutant, Reason{[]string{"X-03"}, "r"})
		}, "X-03: coverage.yaml says why no fault is seeded for it, and none is needed (no scenario proves it)"},
		{"inside and covered", func(in *Input) { in.Vectors[0].Clauses = []string{"X-03"} },
			"X-03: coverage.yaml says that it has no accepting case, and vector x/right is one"},
		{"one side inside", func(in *Input) {
			in.Vectors[0].Clauses = []string{"X-03"}
			in.Exempt.Inside[0].Lacks = []Side{Rejecting}
		}, ""},
		{"the other side inside", func(in *Input) { in.Exempt.Inside[0].Lacks = []Side{Rejecting} }, "X-03: no accepting case"},
		{"no test instead", func(in *Input) { in.Clauses[2].Tests = nil },
			"X-03: coverage.yaml says that it cannot be seen from outside, and no Go test is named for it"},
		{"no test needed beside a scenario", func(in *Input) {
			in.Clauses[2].Tests = nil
			in.Scenarios[0].Proves = append(in.Scenarios[0].Proves, "X-03")
			in.Exempt.Inside[0].Lacks = []Side{Rejecting}
		}, ""},
		{"a test that does not exist", func(in *Input) { in.Exempt.Inside[0].Tests = []string{"other TestX"} },
			"other TestX: coverage.yaml names it as a proof, and there is no such test"},
		{"inside twice", func(in *Input) { in.Exempt.Inside = append(in.Exempt.Inside, in.Exempt.Inside[0]) },
			"X-03: stands twice under inside in coverage.yaml"},
		{"no fault twice", func(in *Input) { in.Exempt.NoMutant = append(in.Exempt.NoMutant, in.Exempt.NoMutant[0]) },
			"X-02: stands twice under no_mutant in coverage.yaml"},
		{"a pattern that matches nothing", func(in *Input) { in.Exempt.Rows = append(in.Exempt.Rows, "Z-*") },
			"Z-*: coverage.yaml names it under rows, and no rule or code has that id"},
		{"a reason for a rule that waits", func(in *Input) {
			in.Exempt.Inside[0].Clauses = []string{"X-03", "Y-01"}
			in.Clauses[4].Tests = []string{"pkg TestY"}
		},
			"Y-01: coverage.yaml has a reason for it, and it waits for the other part anyway"},
		{"a scenario for a rule that waits", func(in *Input) { in.Scenarios[0].Proves = append(in.Scenarios[0].Proves, "Y-01") },
			"Y-01: spec/clauses.yaml says that it waits for the other part, and A proves it"},
		{"a vector for a rule that waits", func(in *Input) { in.Vectors[0].Clauses = []string{"Y-01"} }, ""},
		{"unknown ids", func(in *Input) {
			in.Scenarios[0].Proves = append(in.Scenarios[0].Proves, "Q-1")
			in.Scenarios[0].Refuses = []string{"Q-2"}
			in.Vectors[0].Clauses = []string{"Q-3"}
			in.Mutants[0].Breaks = append(in.Mutants[0].Breaks, "Q-4")
			in.Mutants[0].KilledBy = append(in.Mutants[0].KilledBy, "NOBODY")
		}, "A: names Q-1, which is neither a rule nor a code in reach\nA: names Q-2, which is neither a rule nor a code in reach\n" +
			"vector x/right: names Q-3, which is neither a rule nor a code in reach\nmutant x.fault: is killed by NOBODY, which is no scenario\n" +
			"mutant x.fault: names Q-4, which is neither a rule nor a code in reach"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := complete()
			c.change(&in)
			if got := problems(Map(in)); got != c.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}

func TestParseExemptions(t *testing.T) {
	e, err := ParseExemptions([]byte("rows: [\"AC-*\"]\ninside:\n- {clauses: [D-2], lacks: [rejecting], reason: memory, tests: [pkg TestX]}\nno_mutant:\n- {clauses: [L-01], reason: a word}\n"))
	if err != nil || len(e.Inside) != 1 || len(e.NoMutant) != 1 || !slices.Equal(e.Inside[0].sides(), []Side{Rejecting}) {
		t.Errorf("%+v: %v", e, err)
	}
	for text, want := range map[string]string{
		"inside:\n- {clauses: [D-2]}\n":                               "no reason",
		"inside:\n- {reason: r}\n":                                    "no clauses",
		"no_mutant:\n- {clauses: [D-2]}\n":                            "no reason",
		"inside:\n- {clauses: [D-2], lacks: [both], reason: r}\n":     `lacks "both"`,
		"rows: [\"[\"]\n":                                             "syntax error in pattern",
		"inside:\n- {clauses: [D-2], reason: r, test: [pkg TestX]}\n": "field test not found",
		"rows: 7\n": "cannot unmarshal",
		"":          "EOF",
	} {
		if _, err := ParseExemptions([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestWrite(t *testing.T) {
	in := complete()
	in.Exempt.Inside = nil
	r := Map(in)
	var out bytes.Buffer
	if err := r.Write(&out, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"X-01 (x.md)", "accepted by  A, vector x/right", "not built: y.md waits for the other part: Y-01", "X-03: no rejecting case", "coverage: 2 problems"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	text, err := json.Marshal(r)
	if err != nil || !bytes.Contains(text, []byte(`"missing":["accepting case","rejecting case"]`)) {
		t.Errorf("%v: %s", err, text)
	}
}

// The source tree is read: every rule of the reference, the codes of the parts that are built, and every kind of case.
func TestRead(t *testing.T) {
	tree, err := kit.Open("../..")
	if err != nil {
		t.Fatal(err)
	}
	in, err := Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range in.Codes {
		if c.Group != Local && !slices.Contains(Domains, c.Group) {
			t.Errorf("%s of %s is not of a part that is built", c.Name, c.Group)
		}
	}
	carried := slices.ContainsFunc(in.Vectors, func(v Vector) bool { return v.Accept && v.Code == "LEASE_HELD" })
	answered := slices.ContainsFunc(in.Vectors, func(v Vector) bool { return !v.Accept && v.Code == "LEASE_BAD_REQUEST" })
	route := slices.ContainsFunc(in.Vectors, func(v Vector) bool { return strings.HasPrefix(v.ID, "lease.selector/") })
	if len(in.Clauses) < 500 || len(in.Codes) == 0 || len(in.Scenarios) == 0 || len(in.Mutants) == 0 || !carried || !answered || !route {
		t.Errorf("%d rules, %d codes, %d scenarios, %d faults, carried %v, answered %v, route %v",
			len(in.Clauses), len(in.Codes), len(in.Scenarios), len(in.Mutants), carried, answered, route)
	}
	if !in.HasTest("conformance/coverage TestRead") || in.HasTest("conformance/coverage TestNothing") || in.HasTest("no/folder TestRead") {
		t.Error("tests are not found as they are")
	}
	if _, err := os.Stat("../../" + File); err != nil {
		t.Error(err)
	}
}
