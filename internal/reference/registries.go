package reference

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Limit is one row of limits.md.
type Limit struct {
	Source
	Name     string
	Settable bool     // marked *: the operator or the application may change it
	Default  string   // as written
	Value    int64    // the number in Default
	Minus    []string // lengths that Default subtracts from Value: R = bytes of the route, K = bytes of the key
	Unit     string
	Scope    string
	PickedBy string // "peer" or "local"
	Beyond   string // what happens beyond it, "—" if nothing
}

// Numeric reports whether the default is a plain number.
func (l Limit) Numeric() bool { return len(l.Minus) == 0 }

// Limits returns the table of bounds.
func (d *Docs) Limits() ([]Limit, error) {
	t, err := d.Table("limits.md", "", "name", "default", "unit", "scope", "picked by", "beyond it")
	return load(t, err, func(row Row) (v Limit, err error) {
		v = Limit{Source: row.Source, Default: row.Cells[1], Unit: row.Cells[2], Scope: row.Cells[3], PickedBy: row.Cells[4], Beyond: row.Cells[5]}
		v.Name, v.Settable = strings.CutSuffix(row.ID(), " *")
		if !limitName.MatchString(v.Name) {
			return v, fmt.Errorf("name %q", v.Name)
		}
		if v.PickedBy != "peer" && v.PickedBy != "local" {
			return v, fmt.Errorf("picked by %q", v.PickedBy)
		}
		terms := strings.Split(v.Default, " − ")
		v.Minus = terms[1:]
		for _, term := range v.Minus {
			if term != "R" && term != "K" {
				return v, fmt.Errorf("default %q", v.Default)
			}
		}
		v.Value, err = strconv.ParseInt(strings.ReplaceAll(terms[0], ",", ""), 10, 64)
		return v, err
	})
}

var limitName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// Code is one row of the error registry (errors.md sections 3 and 4).
type Code struct {
	Source
	First, Last uint32 // equal, except for a range of reserved codes
	Name        string // "reserved" for a range
	Domain      string // section 3: the domain
	CarriedBy   string // section 4: the message that carries it
	Retry       string // retry class
	Outcome     string // "rejected", "unknown" or "—"
	Meaning     string
}

// Extension reports whether the code is of the extension range.
func (c Code) Extension() bool { return c.CarriedBy != "" }

// Codes returns the error registry: the public ranges, then the extension range.
func (d *Docs) Codes() ([]Code, error) {
	t, err := d.Table("errors.md", "3", "code", "NAME", "domain", "retry", "outcome", "meaning")
	public, err := load(t, err, func(row Row) (Code, error) {
		v, err := readCode(row)
		v.Domain = row.Cells[2]
		return v, err
	})
	if err != nil {
		return nil, err
	}
	t, err = d.Table("errors.md", "4", "code", "NAME", "carried by", "retry", "outcome", "meaning")
	extension, err := load(t, err, func(row Row) (Code, error) {
		v, err := readCode(row)
		v.CarriedBy = row.Cells[2]
		return v, err
	})
	return append(public, extension...), err
}

func readCode(row Row) (v Code, err error) {
	v = Code{Source: row.Source, Name: row.Cells[1], Retry: row.Cells[3], Outcome: row.Cells[4], Meaning: row.Cells[5]}
	v.First, v.Last, err = numbers(row.ID())
	return v, err
}

// numbers reads "17" or "17–19".
func numbers(cell string) (first, last uint32, err error) {
	low, high, isRange := strings.Cut(cell, "–")
	if !isRange {
		high = low
	}
	a, err := strconv.ParseUint(low, 10, 32)
	if err != nil {
		return 0, 0, err
	}
	b, err := strconv.ParseUint(high, 10, 32)
	if err == nil && b < a {
		err = fmt.Errorf("range %q", cell)
	}
	return uint32(a), uint32(b), err
}

// Condition is one row of the SDK-local conditions (errors.md section 4), which are never on the wire.
type Condition struct {
	Source
	Names   []string // such as "config.invalid"; one row may hold several
	Retry   string
	Outcome string
	When    string
}

// Conditions returns the SDK-local conditions.
func (d *Docs) Conditions() ([]Condition, error) {
	t, err := d.Table("errors.md", "4", "name", "retry", "outcome", "when")
	return load(t, err, func(row Row) (Condition, error) {
		return Condition{row.Source, strings.Split(row.ID(), ", "), row.Cells[1], row.Cells[2], row.Cells[3]}, nil
	})
}

// Message is one row of the message registry (wire.md section 11).
type Message struct {
	Source
	First, Last uint32 // equal, except for a range of reserved numbers
	Name        string // such as "LEASE_RENEW"; of a reserved range, the capability that it is reserved for
	Alias       string // a second name: "extend" of LEASE_RENEW
	Reserved    bool
	Direction   string // "C→S", "S→C" or "both"
	Class       string // "request", "reply", "push" or "control"
	AnsweredBy  string // as written, "—" if by nothing
	Where       string // a file of the reference, or a section number of wire.md
}

// Messages returns the message registry. A number that both sides send has one row for each direction.
func (d *Docs) Messages() ([]Message, error) {
	t, err := d.Table("wire.md", "11", "type", "name", "dir", "class", "answered by", "file")
	return load(t, err, func(row Row) (v Message, err error) {
		v = Message{Source: row.Source, Direction: row.Cells[2], Class: row.Cells[3], AnsweredBy: row.Cells[4], Where: row.Cells[5]}
		v.Name, v.Reserved = strings.CutPrefix(row.Cells[1], "reserved, ")
		if name, alias, found := strings.Cut(v.Name, " ("); found {
			v.Name, v.Alias = name, strings.TrimSuffix(alias, ")")
		}
		if v.Reserved != (v.Class == "") || v.Reserved != (v.Direction == "") {
			return v, fmt.Errorf("message %q has the direction %q and the class %q", v.Name, v.Direction, v.Class)
		}
		v.First, v.Last, err = numbers(row.ID())
		return v, err
	})
}

// CursorMisuse is one row of the LC table (lease.md section 8.4).
type CursorMisuse struct {
	Source
	ID     string
	Misuse string
	Reason string // fixed text after "InvalidListCursor: "
}

// CursorMisuses returns the LC table in the order of the checks.
func (d *Docs) CursorMisuses() ([]CursorMisuse, error) {
	t, err := d.Table("lease.md", "8.4", "id", "misuse", "reason")
	return load(t, err, func(row Row) (v CursorMisuse, err error) {
		v = CursorMisuse{Source: row.Source, ID: row.ID(), Misuse: row.Cells[1]}
		spans, err := codeSpans(row.Cells[2])
		if err == nil && len(spans) != 1 {
			err = fmt.Errorf("%q does not hold one reason", row.Cells[2])
		}
		if err != nil {
			return v, err
		}
		v.Reason = spans[0]
		return v, nil
	})
}

// Vector is one row of a vector table: records or transport messages, byte for byte.
type Vector struct {
	Source
	ID    string
	What  string
	Hex   []string // as written, with spaces between the fields
	Bytes [][]byte // the same, decoded
}

// WireVectors returns the V table (wire.md section 12).
func (d *Docs) WireVectors() ([]Vector, error) { return d.vectors("wire.md", "12") }

// LeaseVectors returns the LV table (lease.md section 14).
func (d *Docs) LeaseVectors() ([]Vector, error) { return d.vectors("lease.md", "14") }

func (d *Docs) vectors(file, section string) ([]Vector, error) {
	t, err := d.Table(file, section, "id", "what", "hex")
	return load(t, err, func(row Row) (v Vector, err error) {
		v = Vector{Source: row.Source, ID: row.ID(), What: row.Cells[1]}
		for part := range strings.SplitSeq(row.Cells[2], ", ") {
			text, err := code(part)
			if err != nil {
				return v, err
			}
			raw, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
			if err != nil {
				return v, err
			}
			v.Hex = append(v.Hex, text)
			v.Bytes = append(v.Bytes, raw)
		}
		return v, nil
	})
}

// Rule is one rule of the reference: a table row whose first cell is a rule id such as "L-26", "AC-P01" or "OBS-001".
type Rule struct {
	Source
	ID      string
	Section string   // number of the section, "" in a file without sections
	Cells   []string // the other cells
}

// Prefix returns the id up to its last dash: "L" of "L-26".
func (r Rule) Prefix() string { return r.ID[:strings.LastIndexByte(r.ID, '-')] }

var ruleID = regexp.MustCompile(`^[A-Z][A-Z0-9]*-[A-Z]?[0-9]+$`)

// Rules returns every rule of every file, in the order of the files and lines. An id that is defined twice is an error.
func (d *Docs) Rules() ([]Rule, error) {
	files, err := d.Files()
	if err != nil {
		return nil, err
	}
	var out []Rule
	seen := make(map[string]Source)
	for _, file := range files {
		tables, err := d.Tables(file)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			for _, row := range t.Rows {
				if !ruleID.MatchString(row.ID()) {
					continue
				}
				if first, twice := seen[row.ID()]; twice {
					return nil, row.errorf("%s is also defined at %s", row.ID(), first)
				}
				seen[row.ID()] = row.Source
				out = append(out, Rule{row.Source, row.ID(), t.Section, row.Cells[1:]})
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s defines no rule", Dir)
	}
	return out, nil
}
