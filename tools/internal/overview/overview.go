// Package overview shows the state of a broker as text.
package overview

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/tools/internal/display"
)

// Lines is the state in lines for people. What the broker sent is shown so that a terminal does not act on it.
func Lines(s *adminapi.Status) []string {
	lines := []string{
		fmt.Sprintf("%s %s (commit %s, spec %s)", display.Text(s.Program), display.Text(s.Version), display.Text(s.Commit), display.Text(s.SpecFingerprint)),
		fmt.Sprintf("%s for %s, since %s, lifetime %s", display.Text(s.State), uptime(s.UptimeSeconds), display.Text(s.StartedAt), display.Text(s.Lifetime)),
		fmt.Sprintf("sessions  %d tcp, %d websocket, %d without a first record, %d paused", s.Sessions.TCP, s.Sessions.Websocket, s.Sessions.Preauth, s.Sessions.Paused),
		fmt.Sprintf("leases    %d held, %d waiting, %d subscriptions, %d snapshots", s.Leases.Held, s.Leases.Waiters, s.Leases.Subscriptions, s.Leases.Snapshots),
		"",
	}
	rows := [][]string{{"LISTENER", "TRANSPORT", "ADDRESS", "AUTH", "TLS"}}
	for _, l := range s.Listeners {
		rows = append(rows, []string{display.Text(l.Name), display.Text(l.Transport), display.Text(l.Address), display.Text(l.Auth), yes(l.Tls)})
	}
	lines = append(lines, append(table(rows), "")...)
	if len(s.Families) > 0 {
		rows = [][]string{{"FAMILY", "SESSIONS", "HELD", "WAITING", "SUBSCRIPTIONS", "CHARGED"}}
		for _, f := range s.Families {
			rows = append(rows, []string{number(uint64(f.Family)), number(f.Sessions), number(f.Held), number(f.Waiters), number(f.Subscriptions), size(f.ChargedBytes)})
		}
		lines = append(lines, append(table(rows), "")...)
	}
	rows = [][]string{{"BOUND", "USED", "LIMIT", "SHARE"}}
	for _, b := range s.Bounds {
		used, limit := number(b.Used), number(b.Limit)
		if strings.HasSuffix(b.Name, "_bytes_max") {
			used, limit = size(b.Used), size(b.Limit)
		}
		rows = append(rows, []string{display.Text(b.Name), used, limit, share(b.Used, b.Limit)})
	}
	return append(lines, table(rows)...)
}

// table aligns columns.
func table(rows [][]string) []string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // writes into memory
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// units of sizes, each 1024 times the one before.
var units = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// size is a number of bytes, with one decimal above the smallest unit.
func size(n uint64) string {
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return number(n) + " B"
	}
	return strconv.FormatFloat(value, 'f', 1, 64) + " " + units[unit]
}

func share(used, limit uint64) string {
	if limit == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(used)/float64(limit), 'f', 1, 64) + " %"
}

// uptime is a time in days and what remains.
func uptime(seconds float64) string {
	const day = 24 * time.Hour
	d := time.Duration(seconds * float64(time.Second)).Truncate(time.Second)
	if d < day {
		return d.String()
	}
	return fmt.Sprintf("%dd%s", d/day, d%day)
}
