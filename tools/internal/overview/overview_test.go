package overview

import (
	"strings"
	"testing"

	"github.com/fitzwire/fitz/generated/go/adminapi"
)

func TestLines(t *testing.T) {
	s := &adminapi.Status{
		Program: "fitzd", Version: "1.2.3", Commit: "abc", SpecFingerprint: "0123456789abcdef", Lifetime: "00ff", StartedAt: "2026-01-02T03:04:05.678Z",
		UptimeSeconds: 2*86400 + 3*3600 + 61.5, State: "draining",
		Listeners: []adminapi.Listener{
			{Name: "tcp", Transport: "tcp", Address: "127.0.0.1:4191", Auth: "token", Tls: true},
			{Name: "a long\x1b[2J name", Transport: "admin", Address: "[::1]:4192", Auth: "anonymous"}},
		Sessions: adminapi.Sessions{TCP: 1, Websocket: 2, Preauth: 3, Paused: 4},
		Leases:   adminapi.Counts{Held: 5, Waiters: 6, Subscriptions: 7, Snapshots: 8},
		Families: []adminapi.Family{{Family: 1, Sessions: 2, Held: 3, Waiters: 4, Subscriptions: 5, ChargedBytes: 1023}, {Family: 4294967295, ChargedBytes: 1536}},
		Bounds:   []adminapi.BoundUse{{Name: "connections_max", Used: 1, Limit: 3}, {Name: "x_bytes_max", Used: 0, Limit: 1 << 40}, {Name: "none", Limit: 0}},
	}
	want := `fitzd 1.2.3 (commit abc, spec 0123456789abcdef)
draining for 2d3h1m1s, since 2026-01-02T03:04:05.678Z, lifetime 00ff
sessions  1 tcp, 2 websocket, 3 without a first record, 4 paused
leases    5 held, 6 waiting, 7 subscriptions, 8 snapshots

LISTENER              TRANSPORT  ADDRESS         AUTH       TLS
tcp                   tcp        127.0.0.1:4191  token      yes
a long\u001b[2J name  admin      [::1]:4192      anonymous  no

FAMILY      SESSIONS  HELD  WAITING  SUBSCRIPTIONS  CHARGED
1           2         3     4        5              1023 B
4294967295  0         0     0        0              1.5 KiB

BOUND            USED  LIMIT    SHARE
connections_max  1     3        33.3 %
x_bytes_max      0 B   1.0 TiB  0.0 %
none             0     0        -`
	if got := strings.Join(Lines(s), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.Families = nil
	if got := strings.Join(Lines(s), "\n"); strings.Contains(got, "FAMILY") {
		t.Errorf("a table without rows:\n%s", got)
	}
}
