package fitztest_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fitzwire/fitz/internal/reference"
)

// interval is one row of the table of intervals, observer.md section 6.
type interval struct {
	ExpectedTTL, Min, Max, Interval time.Duration // ExpectedTTL 0: none
	Earliest, Latest                time.Duration // of the timer at jitter 0.2
}

func intervals(d *reference.Docs) ([]interval, error) {
	table, err := d.Table("observer.md", "6", "expected_ttl", "min", "max", "interval", "timer range at 0.2")
	if err != nil {
		return nil, err
	}
	var rows []interval
	for _, row := range table.Rows {
		var r interval
		earliest, latest, ok := strings.Cut(row.Cells[4], "–")
		if !ok {
			return nil, fmt.Errorf("range %q", row.Cells[4])
		}
		for _, cell := range []struct {
			to   *time.Duration
			text string
		}{{&r.ExpectedTTL, row.Cells[0]}, {&r.Min, row.Cells[1]}, {&r.Max, row.Cells[2]}, {&r.Interval, row.Cells[3]}, {&r.Earliest, earliest + " s"}, {&r.Latest, latest}} {
			if *cell.to, err = seconds(cell.text); err != nil {
				return nil, err
			}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func seconds(text string) (time.Duration, error) {
	if text == "none" {
		return 0, nil
	}
	number, ok := strings.CutSuffix(strings.ReplaceAll(text, ",", ""), " s")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return 0, fmt.Errorf("time %q", text)
	}
	return time.Duration(n) * time.Second, nil
}
