package reference

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// The smallest sizes of the tables. A table may grow; a row that gets lost must not go unnoticed.
const (
	leastRV, leastRI, leastRC, leastRM, leastC3 = 44, 45, 39, 15, 35
	leastLC, leastV, leastLV                    = 11, 16, 16
	leastLimits, leastCodes, leastConditions    = 171, 86, 12
	leastMessages, leastRules                   = 76, 825
)

func docs(t *testing.T) *Docs {
	t.Helper()
	d, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// series checks that ids are prefix-01, prefix-02, ... without a gap, and at least least of them.
func series[T any](t *testing.T, prefix string, least int, rows []T, id func(T) string) {
	t.Helper()
	if len(rows) < least {
		t.Errorf("%s: %d rows, want at least %d", prefix, len(rows), least)
	}
	for i, row := range rows {
		if want := fmt.Sprintf("%s-%02d", prefix, i+1); id(row) != want {
			t.Errorf("row %d has the id %q, want %q", i, id(row), want)
		}
	}
}

func TestTablesAreComplete(t *testing.T) {
	series(t, "RV", leastRV, Rows(t, (*Docs).ValidRoutes), func(r ValidRoute) string { return r.ID })
	series(t, "RI", leastRI, Rows(t, (*Docs).InvalidRoutes), func(r InvalidRoute) string { return r.ID })
	series(t, "RC", leastRC, Rows(t, (*Docs).Containments), func(r Containment) string { return r.ID })
	series(t, "RM", leastRM, Rows(t, (*Docs).Matches), func(r Match) string { return r.ID })
	series(t, "C3", leastC3, Rows(t, (*Docs).CanonicalMasks), func(r Masks) string { return r.ID })
	series(t, "LC", leastLC, Rows(t, (*Docs).CursorMisuses), func(r CursorMisuse) string { return r.ID })
	series(t, "V", leastV, Rows(t, (*Docs).WireVectors), func(r Vector) string { return r.ID })
	series(t, "LV", leastLV, Rows(t, (*Docs).LeaseVectors), func(r Vector) string { return r.ID })
	for name, size := range map[string][2]int{
		"limits":     {len(Rows(t, (*Docs).Limits)), leastLimits},
		"codes":      {len(Rows(t, (*Docs).Codes)), leastCodes},
		"conditions": {len(Rows(t, (*Docs).Conditions)), leastConditions},
		"messages":   {len(Rows(t, (*Docs).Messages)), leastMessages},
		"rules":      {len(Rows(t, (*Docs).Rules)), leastRules},
		"domains":    {len(Rows(t, (*Docs).Domains)), 7},
		"reasons":    {len(Rows(t, (*Docs).ReasonWords)), 14},
	} {
		if size[0] < size[1] {
			t.Errorf("%s: %d rows, want at least %d", name, size[0], size[1])
		}
	}
}

// The loader of rule ids must find every prefix that the index of the reference lists.
func TestRulesCoverThePrefixesOfTheIndex(t *testing.T) {
	counts := make(map[string]int)
	for _, r := range Rows(t, (*Docs).Rules) {
		counts[r.Prefix()]++
		if r.Line == 0 || r.File == "" || len(r.Cells) == 0 {
			t.Errorf("incomplete rule %+v", r)
		}
	}
	index, err := docs(t).Table("README.md", "1", "file", "content", "rule ids")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range index.Rows {
		for prefix := range strings.SplitSeq(row.Cells[2], ", ") {
			if prefix != "names" && counts[prefix] == 0 {
				t.Errorf("%s: no rule %s-…", row, prefix)
			}
		}
	}
	for prefix, least := range map[string]int{
		"D": 8, "W": 76, "A": 35, "R": 27, "E": 8, "L": 88, "LX": 18, "OB": 58, "OBS": 71, "N": 9, "Q": 20, "K": 20, "P": 31,
		"S": 31, "H": 11, "C": 56, "AC": 37, "RV": leastRV, "RI": leastRI, "RC": leastRC, "RM": leastRM, "C3": leastC3,
		"LC": leastLC, "V": leastV, "LV": leastLV,
	} {
		if counts[prefix] < least {
			t.Errorf("%d rules %s-…, want at least %d", counts[prefix], prefix, least)
		}
	}
}

func TestRulesHavePlaces(t *testing.T) {
	d := docs(t)
	lines := make(map[string][]string)
	for _, r := range Rows(t, (*Docs).Rules) {
		if lines[r.File] == nil {
			text, err := d.files.(interface{ ReadFile(string) ([]byte, error) }).ReadFile(r.File)
			if err != nil {
				t.Fatal(err)
			}
			lines[r.File] = strings.Split(string(text), "\n")
		}
		if got := lines[r.File][r.Line-1]; !strings.HasPrefix(got, "| "+r.ID+" |") {
			t.Errorf("%s: %q is not the row of %s", r.Source, got, r.ID)
		}
	}
}

func TestInvalidRoutesAreExpanded(t *testing.T) {
	want := map[string]string{
		"RI-22": "lease://a/b\x00/c",
		"RI-23": "lease://a/b/c\n",
		"RI-42": "lease://a/b/" + strings.Repeat("x", 4085),
		"RI-43": "notice://" + strings.Repeat("x/", 64) + "x",
		"RI-44": "lease://a/b/\xff",
	}
	for _, r := range Rows(t, (*Docs).InvalidRoutes) {
		if text, special := want[r.ID]; special && r.Text != text {
			t.Errorf("%s: text %q", r.ID, r.Text)
		}
		if strings.ContainsAny(r.Text, "`␀␊") || r.Reason == "" {
			t.Errorf("%s: %q, reason %q", r.ID, r.Text, r.Reason)
		}
	}
	if b := Rows(t, (*Docs).Boundary); len(b) != 2 || len(b[0].Text) != 4096 || b[0].Domain != "lease" ||
		strings.Count(b[1].Text, "x") != 64 || b[1].Domain != "notice" {
		t.Errorf("boundary: %+v", b)
	}
}

func TestResultsOfValidRoutes(t *testing.T) {
	for _, r := range Rows(t, (*Docs).ValidRoutes) {
		set := 0
		for _, is := range []bool{r.Exact, r.Flexible, len(r.Masks) > 0} {
			if is {
				set++
			}
		}
		if set != 1 {
			t.Errorf("%s has %d results", r.ID, set)
		}
		if want := 3; r.ID == "RV-16" && len(r.Masks) != want {
			t.Errorf("RV-16: masks %q", r.Masks)
		}
	}
}

func TestAnswersHaveBothValues(t *testing.T) {
	yes, no := 0, 0
	for _, r := range Rows(t, (*Docs).Containments) {
		if r.Contained {
			yes++
		} else {
			no++
		}
	}
	if yes == 0 || no == 0 {
		t.Errorf("RC: %d yes, %d no", yes, no)
	}
	once := 0
	for _, r := range Rows(t, (*Docs).Matches) {
		if r.Once && r.Matches {
			once++
		}
	}
	if once != 1 {
		t.Errorf("RM: %d rows with once", once)
	}
}

func TestDomains(t *testing.T) {
	depths := make(map[string]int)
	for _, d := range Rows(t, (*Docs).Domains) {
		depths[d.Name] = d.Depth
	}
	want := map[string]int{"kv": 3, "queue": 3, "lease": 3, "stream": 3, "schedule": 4, "notice": 0, "rpc": 0}
	if len(depths) != len(want) {
		t.Errorf("domains: %v", depths)
	}
	for name, depth := range want {
		if got, ok := depths[name]; !ok || got != depth {
			t.Errorf("%s has depth %d", name, got)
		}
	}
}

func TestLimits(t *testing.T) {
	limits := make(map[string]Limit)
	for _, l := range Rows(t, (*Docs).Limits) {
		if _, twice := limits[l.Name]; twice {
			t.Errorf("%s: %s twice", l.Source, l.Name)
		}
		limits[l.Name] = l
		if l.Unit == "" || l.Scope == "" || l.Beyond == "" {
			t.Errorf("incomplete limit %+v", l)
		}
	}
	if l := limits["frame_recv_max"]; l.Value != 1048576 || !l.Settable || !l.Numeric() || l.PickedBy != "peer" {
		t.Errorf("frame_recv_max: %+v", l)
	}
	if l := limits["kv_value_bytes_max"]; l.Value != 65515 || l.Settable || l.Numeric() || strings.Join(l.Minus, "") != "RK" {
		t.Errorf("kv_value_bytes_max: %+v", l)
	}
}

func TestCodes(t *testing.T) {
	codes := make(map[uint32]Code)
	for _, c := range Rows(t, (*Docs).Codes) {
		if _, twice := codes[c.First]; twice {
			t.Errorf("%s: %d twice", c.Source, c.First)
		}
		codes[c.First] = c
		if c.Name == "" || c.Retry == "" || c.Outcome == "" || (c.Domain == "") == (c.CarriedBy == "") {
			t.Errorf("incomplete code %+v", c)
		}
	}
	if c := codes[5001]; c.Name != "LEASE_HELD" || c.Domain != "lease" || c.Retry != "backoff" || c.Outcome != "rejected" || c.Extension() {
		t.Errorf("5001: %+v", c)
	}
	if c := codes[9203]; c.Last != 9299 || c.Name != "reserved" || !c.Extension() {
		t.Errorf("9203: %+v", c)
	}
}

func TestMessages(t *testing.T) {
	seen := make(map[string]Message)
	for _, m := range Rows(t, (*Docs).Messages) {
		key := fmt.Sprintf("%d %s", m.First, m.Direction)
		if _, twice := seen[key]; twice {
			t.Errorf("%s: %s twice", m.Source, key)
		}
		seen[key] = m
	}
	if m := seen["401 C→S"]; m.Name != "LEASE_RENEW" || m.Alias != "extend" || m.Class != "request" || m.Where != "lease.md" {
		t.Errorf("401: %+v", m)
	}
	if m := seen["250 "]; !m.Reserved || m.Last != 254 || m.Name != "TRANSFER" {
		t.Errorf("250: %+v", m)
	}
	if m := seen["302 S→C"]; m.Class != "push" {
		t.Errorf("302: %+v", m)
	}
}

func TestVectors(t *testing.T) {
	for _, v := range append(Rows(t, (*Docs).WireVectors), Rows(t, (*Docs).LeaseVectors)...) {
		if v.What == "" || len(v.Bytes) == 0 || len(v.Hex) != len(v.Bytes) {
			t.Errorf("incomplete vector %+v", v)
		}
		for _, b := range v.Bytes {
			if len(b) < 3 {
				t.Errorf("%s: %x is shorter than a record header", v.ID, b)
			}
		}
		if v.ID == "LV-10" && len(v.Bytes) != 2 {
			t.Errorf("LV-10 has %d values", len(v.Bytes))
		}
	}
}

func TestCursorMisuseReasons(t *testing.T) {
	for _, c := range Rows(t, (*Docs).CursorMisuses) {
		if c.Misuse == "" || c.Reason == "" || strings.ContainsAny(c.Reason, "`,") {
			t.Errorf("%+v", c)
		}
	}
}

// Nothing in a broken reference may be read as a smaller, valid one.
func TestBrokenTablesAreErrors(t *testing.T) {
	const ok = "## 7.3 x\n\n| id | grant | request | contained |\n|---|---|---|---|\n| RC-01 | `a` | `b` | yes |\n"
	for name, text := range map[string]string{
		"no table":         "## 7.3 x\n\ntext\n",
		"other section":    strings.Replace(ok, "7.3", "7.5", 1),
		"other columns":    strings.Replace(ok, "grant", "granted", 1),
		"no rows":          strings.Join(strings.SplitAfter(ok, "\n")[:4], ""),
		"no rows, more":    strings.Join(strings.SplitAfter(ok, "\n")[:4], "") + "\ntext\n",
		"no delimiter":     strings.Replace(ok, "|---|---|---|---|\n", "", 1),
		"two delimiters":   strings.Replace(ok, "|---|---|---|---|\n", "|---|---|---|---|\n|---|---|---|---|\n", 1),
		"cell too few":     strings.Replace(ok, "| `b` ", "", 1),
		"cell too many":    strings.Replace(ok, "| `b` ", "| `b` | `c` ", 1),
		"no closing pipe":  strings.Replace(ok, "yes |", "yes", 1),
		"no code span":     strings.Replace(ok, "`b`", "b", 1),
		"answer":           strings.Replace(ok, "yes", "perhaps", 1),
		"open code block":  ok + "\n```\n",
		"within code only": "## 7.3 x\n```\n" + ok[9:] + "```\n",
	} {
		d := New(fstest.MapFS{routesFile: {Data: []byte(text)}})
		if rows, err := d.Containments(); err == nil {
			t.Errorf("%s: read as %+v", name, rows)
		}
	}
	d := New(fstest.MapFS{routesFile: {Data: []byte(ok)}})
	if rows, err := d.Containments(); err != nil || len(rows) != 1 || rows[0].Line != 5 {
		t.Errorf("the unbroken table: %+v, %v", rows, err)
	}
	if _, err := New(fstest.MapFS{}).Rules(); err == nil {
		t.Error("no files: no error")
	}
	twice := New(fstest.MapFS{"a.md": {Data: []byte(ok)}, "b.md": {Data: []byte(ok)}})
	if _, err := twice.Rules(); err == nil || !strings.Contains(err.Error(), "a.md:5") {
		t.Errorf("an id defined twice: %v", err)
	}
	if _, err := New(fstest.MapFS{"a.md": {Data: []byte(strings.ReplaceAll(ok, "RC-01", "none"))}}).Rules(); err == nil {
		t.Error("no rule ids: no error")
	}
}

func TestUnreadableCellsAreErrors(t *testing.T) {
	for _, cell := range []string{"", "`", "``", "text", "`a` `b`", "`a` followed by 3 times `x` (5 bytes)", "`a` followed by nothing", "`a` followed by byte 0xG0"} {
		if text, err := expandText(cell); err == nil {
			t.Errorf("%q is read as %q", cell, text)
		}
	}
	for _, cell := range []string{"", "x", "5–4", "–", "1-2"} {
		if a, b, err := numbers(cell); err == nil {
			t.Errorf("%q is read as %d to %d", cell, a, b)
		}
	}
	if cells, err := splitCells(`| a \| b | c |`); err != nil || len(cells) != 2 || cells[0] != "a | b" {
		t.Errorf("escaped pipe: %q, %v", cells, err)
	}
	for _, line := range []string{"|", "| a", `| a \|`} {
		if cells, err := splitCells(line); err == nil {
			t.Errorf("%q is read as %q", line, cells)
		}
	}
}
