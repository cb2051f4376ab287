package coverage

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Total is the counts of one group of rows: of one file of the reference, or of the codes of one domain.
type Total struct {
	Group    string `json:"group"`
	All      int    `json:"all"`
	Later    int    `json:"later"`    // waits for a part that is not built
	Accepted int    `json:"accepted"` // has an accepting case
	Rejected int    `json:"rejected"` // has a rejecting case
	Mutants  int    `json:"mutants"`  // has a seeded fault that a scenario of the rule kills
	Inside   int    `json:"inside"`   // of which a side is shown by Go tests instead
	Missing  int    `json:"missing"`
}

// Totals counts the rows of each group, in the order of the rows.
func (r *Report) Totals() []Total {
	var out []Total
	at := map[string]int{}
	count := func(into *int, yes bool) {
		if yes {
			*into++
		}
	}
	for _, row := range r.Rows {
		i, ok := at[row.Group]
		if !ok {
			i = len(out)
			at[row.Group] = i
			out = append(out, Total{Group: row.Group})
		}
		t := &out[i]
		t.All++
		count(&t.Later, row.Later != "")
		if row.Later != "" {
			continue
		}
		count(&t.Accepted, len(row.Accepted) > 0)
		count(&t.Rejected, len(row.Rejected) > 0)
		count(&t.Mutants, len(row.Mutants) > 0)
		count(&t.Inside, row.Inside != "")
		count(&t.Missing, len(row.Missing) > 0)
	}
	return out
}

// Write prints the table of the groups, what waits for parts that are not built, and every problem. With all it prints every row before.
func (r *Report) Write(w io.Writer, all bool) error {
	var b strings.Builder
	if all {
		r.writeRows(&b)
	}
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "rules\tlater\taccepted by\trejected by\tmutants\tby Go tests\tmissing\t\tof")
	var sum Total
	line := func(t Total) {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t\t%s\n", t.All, t.Later, t.Accepted, t.Rejected, t.Mutants, t.Inside, t.Missing, t.Group)
	}
	for _, t := range r.Totals() {
		line(t)
		sum.All, sum.Later, sum.Accepted, sum.Rejected = sum.All+t.All, sum.Later+t.Later, sum.Accepted+t.Accepted, sum.Rejected+t.Rejected
		sum.Mutants, sum.Inside, sum.Missing = sum.Mutants+t.Mutants, sum.Inside+t.Inside, sum.Missing+t.Missing
	}
	sum.Group = "all"
	line(sum)
	if err := table.Flush(); err != nil {
		return err
	}
	r.writeLater(&b)
	for _, p := range r.Problems {
		fmt.Fprintf(&b, "not right: %s\n", p)
	}
	if r.OK() {
		fmt.Fprintln(&b, "coverage: complete")
	} else {
		fmt.Fprintf(&b, "coverage: %d problems\n", len(r.Problems))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeLater prints how many rules of each file wait for which part.
func (r *Report) writeLater(b *strings.Builder) {
	var order []string
	waiting := map[string][]string{}
	for _, row := range r.Rows {
		if row.Later == "" {
			continue
		}
		key := row.Group + " waits for " + row.Later
		if waiting[key] == nil {
			order = append(order, key)
		}
		waiting[key] = append(waiting[key], row.ID)
	}
	for _, key := range order {
		ids := waiting[key]
		if len(ids) > 8 {
			fmt.Fprintf(b, "not built: %s: %s to %s, %d rules\n", key, ids[0], ids[len(ids)-1], len(ids))
			continue
		}
		fmt.Fprintf(b, "not built: %s: %s\n", key, strings.Join(ids, ", "))
	}
}

func (r *Report) writeRows(b *strings.Builder) {
	for _, row := range r.Rows {
		if row.Later != "" {
			continue
		}
		fmt.Fprintf(b, "%s (%s)\n", row.ID, row.Group)
		for _, part := range []struct {
			name string
			list []string
		}{{"accepted by", row.Accepted}, {"rejected by", row.Rejected}, {"missing", row.Missing}} {
			if len(part.list) > 0 {
				fmt.Fprintf(b, "    %-12s %s\n", part.name, some(part.list, ", "))
			}
		}
		if row.Inside != "" {
			fmt.Fprintf(b, "    %-12s %s (%s)\n", "inside", row.Inside, some(row.Tests, ", "))
		}
		if row.NoMutant != "" {
			fmt.Fprintf(b, "    %-12s %s\n", "no mutant", row.NoMutant)
		}
	}
}
