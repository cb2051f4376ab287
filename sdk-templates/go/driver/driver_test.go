package driver_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/fitz/cmd/fitz-driver/driver"
	"github.com/fitzwire/fitz/generated/go/wire"
)

const route = "lease://acme/r/"

func TestEveryLineOfALease(t *testing.T) {
	tcp, ws := serving(t)
	for _, url := range []string{tcp, ws} {
		r := newRunner(t)
		c := r.ok("client.connect", object{"as": "c1", "args": object{"url": url, "owner_id": "w1"}})
		if c["state"] != "ready" || len(fmt.Sprint(c["lifetime"])) != 32 {
			t.Errorf("connected: %v", c)
		}
		r.event("c1", "client.state", object{"n": 1, "state": "ready"})
		r.ok("client.connect", object{"as": "c2", "args": object{"url": url, "owner_id": "w2"}})
		l := r.ok("lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 30000, "wait_ms": 1000}})
		if l["route"] != route+"a" || l["owner_id"] != "w1" {
			t.Errorf("acquired: %v", l)
		}
		if _, isText := l["fencing_token"].(string); !isText {
			t.Errorf("a token is decimal text, not %T", l["fencing_token"])
		}
		q := r.ok("lease.query", object{"client": "c2", "args": object{"route": route + "a"}})
		if q["held"] != true || q["owner_id"] != "w1" || fmt.Sprint(q["pending_waiters"]) != "0" {
			t.Errorf("query: %v", q)
		}
		if ms, err := q["ttl_remaining_ms"].(json.Number).Int64(); err != nil || ms < 20000 || ms > 30000 {
			t.Errorf("ttl_remaining_ms: %v", q)
		}
		if q := r.ok("lease.query", object{"client": "c2", "args": object{"route": route + "free"}}); q["held"] != false || q["owner_id"] != nil {
			t.Errorf("query of a free route: %v", q)
		}
		if x := r.ok("lease.try_acquire", object{"client": "c2", "as": "l2", "args": object{"route": route + "a", "ttl_ms": 30000}}); x["acquired"] != false {
			t.Errorf("try: %v", x)
		}
		if x := r.ok("lease.try_acquire", object{"client": "c2", "as": "l2", "args": object{"route": route + "b", "ttl_ms": 30000}}); x["acquired"] != true {
			t.Errorf("try: %v", x)
		}
		if x := r.ok("lease.extend", object{"of": "l1", "args": object{"ttl_ms": 60000}}); x["fencing_token"] != l["fencing_token"] {
			t.Errorf("extended: %v", x)
		}
		if s := r.ok("lease.status", object{"of": "l1"}); s["state"] != "held" {
			t.Errorf("status: %v", s)
		}
		held := r.refused("LeaseTimeout", "lease.acquire", object{"client": "c2", "as": "l3", "args": object{"route": route + "a", "ttl_ms": 30000, "wait_ms": 1000}})
		if held["wire"] != true || held["code"] != "lease.timeout" || held["outcome"] != "rejected" || fmt.Sprint(held["number"]) != fmt.Sprint(uint32(wire.CodeLeaseTimeout)) {
			t.Errorf("refused: %v", held)
		}
		r.ok("lease.release", object{"of": "l1"})
		r.ok("lease.release", object{"of": "l1"}) // once more is no mistake
		if s := r.ok("lease.status", object{"of": "l1"}); s["state"] != "released" {
			t.Errorf("status: %v", s)
		}
		r.ok("client.close", object{"client": "c1"})
		r.event("c1", "client.state", object{"state": "closed"})
		if s := r.ok("client.status", object{"client": "c1"}); s["state"] != "closed" {
			t.Errorf("status: %v", s)
		}
		r.refused("ConnectionClosed", "lease.query", object{"client": "c1", "args": object{"route": route + "a"}})
		r.ok("client.close", object{"client": "c2"})
		r.event("l2", "lease.lost", object{"n": 1, "class": "LeaseLost", "reason": "client_closed"})
		if s := r.ok("lease.status", object{"of": "l2"}); s["state"] != "lost" {
			t.Errorf("status: %v", s)
		}
		if code := r.end(); code != 0 {
			t.Errorf("exit %d", code)
		}
		if last := r.lastLine(); last["ev"] != "bye" {
			t.Errorf("the last line is %v", last)
		}
	}
}

// A listing is read page by page or as a whole, and goes on where another one stopped.
func TestLists(t *testing.T) {
	r, _ := connected(t, nil)
	for _, leaf := range []string{"a", "b", "c"} {
		r.ok("lease.acquire", object{"client": "c1", "as": "l" + leaf, "args": object{"route": route + leaf, "ttl_ms": 30000}})
	}
	r.ok("list.open", object{"client": "c1", "as": "p1", "args": object{"selector": route + "*", "page_size": 2}})
	page := r.ok("list.next_page", object{"of": "p1"})
	if routes(page["items"]) != "a b" || page["has_next"] != true {
		t.Errorf("first page: %v", page)
	}
	item := page["items"].([]any)[0].(object)
	for _, key := range []string{"route", "owner_id", "holder_incarnation", "acquired_at", "expires_in_ms", "renewals"} {
		if item[key] == nil {
			t.Errorf("an entry has no %s: %v", key, item)
		}
	}
	r.ok("list.open", object{"client": "c1", "as": "p2", "args": object{"selector": route + "*", "cursor_of": "p1"}})
	if page := r.ok("list.next_page", object{"of": "p2"}); routes(page["items"]) != "c" || page["has_next"] != false {
		t.Errorf("resumed: %v", page)
	}
	r.refused("CursorInvalid", "list.next_page", object{"of": "p1"}) // its snapshot has ended with the page above
	if all := r.ok("list.collect", object{"of": "p1"}); routes(all["items"]) != "a b c" {
		t.Errorf("collected: %v", all)
	}
	r.ok("list.open", object{"client": "c1", "as": "p3", "args": object{"selector": route + "*"}})
	if page := r.ok("list.next_page", object{"of": "p3"}); routes(page["items"]) != "a b c" || page["has_next"] != false {
		t.Errorf("one page: %v", page)
	}
	if page := r.ok("list.next_page", object{"of": "p3"}); page["ended"] != true {
		t.Errorf("behind the last page: %v", page)
	}
	r.refused("DriverError", "list.open", object{"client": "c1", "as": "p4", "args": object{"selector": route + "*", "cursor_of": "p3"}})
	r.refused("DriverError", "list.open", object{"client": "c1", "as": "p4", "args": object{"selector": route + "*", "cursor_of": "p9"}})
	r.ok("list.open", object{"client": "c1", "as": "bad", "args": object{"selector": "nonsense"}})
	r.refused("ConfigError", "list.collect", object{"of": "bad"})
	r.refused("ConfigError", "list.next_page", object{"of": "bad"})
	for _, of := range []string{"p1", "p2", "p3", "bad"} {
		r.ok("list.close", object{"of": of})
	}
	r.ok("list.open", object{"client": "c1", "as": "p1", "args": object{"selector": route + "*"}}) // the name is free again
	r.end()
}

// A paused subscription does not call next: what its buffer cannot hold ends it, behind what was kept.
func TestSubscriptions(t *testing.T) {
	r, _ := connected(t, nil)
	r.ok("sub.open", object{"client": "c1", "as": "s1", "args": object{"selector": route + "*"}})
	r.ok("sub.open", object{"client": "c1", "as": "s2", "args": object{"selector": route + "*", "buffer": 4}})
	r.ok("sub.pause", object{"of": "s2"})
	r.ok("sub.pause", object{"of": "s2"})
	for i := range 6 {
		r.ok("lease.acquire", object{"client": "c1", "as": fmt.Sprint("l", i), "args": object{"route": fmt.Sprint(route, i), "ttl_ms": 30000}})
	}
	if got := r.ok("sub.read", object{"of": "s1", "args": object{"n": 6}}); routes(got["items"]) != "0 1 2 3 4 5" {
		t.Errorf("read: %v", got)
	}
	if got := r.ok("sub.read", object{"of": "s1", "args": object{"n": 0}}); routes(got["items"]) != "" {
		t.Errorf("read what is there: %v", got)
	}
	r.ok("sub.resume", object{"of": "s2"})
	if got := r.ok("sub.read", object{"of": "s2", "args": object{"n": 4}}); routes(got["items"]) != "0 1 2 3" {
		t.Errorf("read after the pause: %v", got)
	}
	lost := r.refused("SubscriptionLost", "sub.read", object{"of": "s2"})
	if lost["reason"] != "overflow" || lost["dropped"] == "0" || lost["code"] != "sub.lost" || lost["retry"] == "" {
		t.Errorf("lost: %v", lost)
	}
	r.event("s2", "sub.ended", object{"n": 1, "class": "SubscriptionLost", "reason": "overflow"})
	r.ok("sub.pause", object{"of": "s2"}) // of one that has ended: there is nothing to stop
	reading := r.start("sub.read", object{"of": "s1"})
	r.ok("cancel", object{"args": object{"id": reading}})
	if line := r.join(reading); line["cancelled"] != true {
		t.Errorf("cancelled: %v", line)
	}
	r.ok("sub.open", object{"client": "c1", "as": "s3", "args": object{"selector": route + "*", "paused": true}})
	r.ok("lease.release", object{"of": "l0"})
	r.ok("sub.resume", object{"of": "s3"})
	r.ok("sub.resume", object{"of": "s3"})
	if got := r.ok("sub.read", object{"of": "s3"}); routes(got["items"]) != "0" {
		t.Errorf("read: %v", got)
	}
	r.ok("sub.close", object{"of": "s1"})
	r.ok("sub.close", object{"of": "s1"})
	r.refused("ConfigError", "sub.open", object{"client": "c1", "as": "s4", "args": object{"selector": "nonsense"}})
	r.refused("ConfigError", "sub.open", object{"client": "c1", "as": "s4", "args": object{"selector": route + "*", "buffer": -1}})
	r.end()
}

// Every state of an observer is an event, also when two of them watch the same selector.
func TestObservers(t *testing.T) {
	r, _ := connected(t, nil)
	r.ok("lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 30000}})
	for _, o := range []string{"o1", "o2"} {
		r.ok("obs.open", object{"client": "c1", "as": o, "args": object{"selector": route + "*", "expected_ttl_ms": 30000, "coalesce_ms": 0}})
		r.ok("obs.ready", object{"of": o})
		r.event(o, "observer.state", object{"n": 1, "state": "syncing"})
		r.event(o, "observer.state", object{"n": 2, "state": "ready"})
	}
	r.ok("obs.changes.open", object{"of": "o1", "as": "ch1"})
	first := r.ok("obs.changes.read", object{"of": "ch1"})["changes"].([]any)[0].(object)
	if first["kind"] != "reset" || routes(first["snapshot"].(object)["routes"]) != "a" {
		t.Errorf("first change: %v", first)
	}
	r.ok("lease.acquire", object{"client": "c1", "as": "l2", "args": object{"route": route + "b", "ttl_ms": 30000}})
	r.ok("lease.release", object{"of": "l1"})
	changes := r.ok("obs.changes.read", object{"of": "ch1", "args": object{"n": 2}})["changes"].([]any)
	kinds := map[string]any{} // one reading finds both, or each has its own
	for _, change := range changes {
		kinds[fmt.Sprint(change.(object)["kind"])] = change.(object)["route"]
	}
	if kinds["added"] != route+"b" || kinds["removed"] != route+"a" {
		t.Errorf("changes: %v", changes)
	}
	snapshot := r.ok("obs.snapshot", object{"of": "o1"})
	if snapshot["synced"] != true || routes(snapshot["routes"]) != "b" || routes(snapshot["items"]) != "b" || snapshot["stale"] != false {
		t.Errorf("snapshot: %v", snapshot)
	}
	if _, isText := snapshot["version"].(string); !isText {
		t.Errorf("a version is decimal text, not %T", snapshot["version"])
	}
	r.ok("obs.refresh", object{"of": "o1"})
	status := r.ok("obs.status", object{"of": "o1"})
	if status["state"] != "ready" || status["synced"] != true || status["reason"] != nil || fmt.Sprint(status["passes"]) != "2" {
		t.Errorf("status: %v", status)
	}
	r.ok("obs.changes.close", object{"of": "ch1"})
	r.ok("obs.close", object{"of": "o1"})
	r.event("o1", "observer.state", object{"n": 3, "state": "closed", "reason": "closed"})
	if s := r.ok("obs.snapshot", object{"of": "o1"}); s["synced"] != true { // the last inventory can still be read
		t.Errorf("snapshot of a closed observer: %v", s)
	}
	r.refused("ConnectionClosed", "obs.ready", object{"of": "o1"})
	r.refused("ConnectionClosed", "obs.refresh", object{"of": "o1"})
	r.ok("obs.changes.open", object{"of": "o2", "as": "ch2"})
	r.ok("obs.changes.read", object{"of": "ch2"})
	r.ok("client.close", object{"client": "c1"})
	r.event("o2", "observer.state", object{"n": 3, "state": "closed"})
	if line := r.join(r.start("obs.changes.read", object{"of": "ch2"})); line["cancelled"] == true {
		t.Errorf("a loop that ended: %v", line)
	}
	r.refused("DriverError", "obs.open", object{"client": "c9", "as": "o3", "args": object{"selector": route + "*"}})
	r.end()
}

func TestObserversThatFail(t *testing.T) {
	r, _ := connected(t, nil)
	r.refused("ConfigError", "obs.open", object{"client": "c1", "as": "o1", "args": object{"selector": "nonsense"}})
	r.refused("ConfigError", "obs.open", object{"client": "c1", "as": "o1", "args": object{"selector": route + "*", "page_size": -1}})
	for _, leaf := range []string{"a", "b"} {
		r.ok("lease.acquire", object{"client": "c1", "as": "l" + leaf, "args": object{"route": route + leaf, "ttl_ms": 30000}})
	}
	r.ok("obs.open", object{"client": "c1", "as": "o1", "args": object{"selector": route + "*", "max_items": 1}})
	r.refused("InventoryTooLarge", "obs.ready", object{"of": "o1"})
	r.event("o1", "observer.state", object{"state": "failed", "reason": "failed"})
	status := r.ok("obs.status", object{"of": "o1"})
	if last, ok := status["last_error"].(object); !ok || last["class"] != "InventoryTooLarge" || last["wire"] != false {
		t.Errorf("status: %v", status)
	}
	if s := r.ok("obs.snapshot", object{"of": "o1"}); s["synced"] != false || s["version"] != nil {
		t.Errorf("snapshot without one: %v", s)
	}
	r.end()
}

// A command that is cancelled ends the way Go ends it, and what it asked for is not held afterwards.
func TestCancel(t *testing.T) {
	r, url := connected(t, nil)
	r.ok("client.connect", object{"as": "c2", "args": object{"url": url, "owner_id": "w2"}})
	r.ok("lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 30000}})
	waiting := r.start("lease.acquire", object{"client": "c2", "as": "l2", "args": object{"route": route + "a", "ttl_ms": 30000, "wait_ms": 30000}})
	for fmt.Sprint(r.ok("lease.query", object{"client": "c1", "args": object{"route": route + "a"}})["pending_waiters"]) != "1" {
		continue // it is not in line yet
	}
	if got := r.ok("cancel", object{"args": object{"id": waiting}}); got["found"] != true {
		t.Errorf("cancel: %v", got)
	}
	if line := r.join(waiting); line["cancelled"] != true || line["err"] != nil {
		t.Errorf("cancelled: %v", line)
	}
	if got := r.ok("cancel", object{"args": object{"id": waiting}}); got["found"] != false {
		t.Errorf("cancel of what has ended: %v", got)
	}
	r.ok("lease.release", object{"of": "l1"})
	if q := r.ok("lease.query", object{"client": "c1", "args": object{"route": route + "a"}}); q["held"] != false {
		t.Errorf("query: %v", q)
	}
	r.end()
}

// A client that drains gives its leases back and ends.
func TestDrain(t *testing.T) {
	r, url := connected(t, nil)
	r.ok("client.connect", object{"as": "c2", "args": object{"url": url}})
	r.ok("lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 30000}})
	r.ok("client.drain", object{"client": "c1"})
	r.event("c1", "client.state", object{"state": "closed"})
	if q := r.ok("lease.query", object{"client": "c2", "args": object{"route": route + "a"}}); q["held"] != false {
		t.Errorf("query: %v", q)
	}
	r.end()
}

// A step across many renewals loses nothing, however large it is: the answer to each renewal is waited for.
func TestALongStepRenews(t *testing.T) {
	tcp, _ := serving(t)
	r := newRunner(t)
	r.ok("clock.set", object{"args": object{"mode": "virtual"}})
	r.ok("client.connect", object{"as": "c1", "args": object{"url": tcp, "owner_id": "w1"}})
	r.ok("lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 30000}})
	r.ok("clock.advance", object{"args": object{"ms": 600000}})
	if s := r.ok("lease.status", object{"of": "l1"}); s["state"] != "held" {
		t.Errorf("status: %v", s)
	}
	if s := r.ok("stats", nil); fmt.Sprint(s["leases"]) != "1" || fmt.Sprint(s["pending"]) != "0" {
		t.Errorf("stats: %v", s)
	}
	r.end()
}

// Commands of one lane run one after the other, others beside each other.
func TestLanes(t *testing.T) {
	r, url := connected(t, nil)
	r.ok("client.connect", object{"as": "c2", "args": object{"url": url, "owner_id": "w2"}})
	r.ok("lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 30000}})
	first := r.start("lease.acquire", object{"client": "c2", "as": "l2", "seq": "k", "args": object{"route": route + "a", "ttl_ms": 30000}})
	second := r.start("lease.release", object{"of": "l2", "seq": "k"})
	r.ok("lease.query", object{"client": "c1", "args": object{"route": route + "a"}})
	if r.answered(first) || r.answered(second) {
		t.Error("a lane went on")
	}
	r.ok("lease.release", object{"of": "l1"})
	if line := r.join(second); line["ok"] == nil {
		t.Errorf("second of the lane: %v", line)
	}
	if !r.answered(first) {
		t.Error("the lane turned round")
	}
	r.end()
}

// Time stands until it is moved, and what is lost by time is told.
func TestVirtualTime(t *testing.T) {
	tcp, _ := serving(t)
	r := newRunner(t)
	if now := r.ok("clock.set", object{"args": object{"mode": "virtual"}}); now["mode"] != "virtual" || fmt.Sprint(now["virtual_ms"]) != "0" {
		t.Errorf("clock: %v", now)
	}
	r.ok("rng.seed", object{"args": object{"seed": "18446744073709551615"}})
	r.ok("client.connect", object{"as": "c1", "args": object{"url": tcp, "owner_id": "w1"}})
	r.ok("lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 30000, "manual_renew": true}})
	for _, shift := range []int{86400000, -2 * 86400000} { // L-14
		r.ok("clock.set", object{"args": object{"wall_shift_ms": shift}})
	}
	r.ok("clock.advance", object{"args": object{"ms": 26000}})
	if s := r.ok("lease.status", object{"of": "l1"}); s["state"] != "held" {
		t.Errorf("before the deadline: %v", s)
	}
	now := r.ok("clock.advance", object{"args": object{"ms": 1000}}) // ttl less the margin of a tenth
	if fmt.Sprint(now["virtual_ms"]) != "27000" {
		t.Errorf("clock: %v", now)
	}
	r.event("l1", "lease.lost", object{"n": 1, "reason": "expired", "code": "lease.lost"})
	r.ok("clock.settle", nil)
	r.ok("client.close", object{"client": "c1"})
	for {
		r.ok("clock.settle", nil)
		if holds(r.ok("stats", nil), object{"tasks": 0, "timers": 0, "sockets": 0, "pending": 0, "buffered": 0, "commands": 0}) {
			break
		}
	}
	r.refused("DriverError", "clock.set", object{"args": object{"mode": "lunar"}})
	r.refused("DriverError", "clock.advance", object{"args": object{"ms": -1}})
	r.refused("DriverError", "client.connect", object{"as": "c2", "args": object{"url": tcp, "mode": "lunar"}})
	r.ok("clock.set", object{"args": object{"mode": "real"}})
	r.ok("client.connect", object{"as": "c2", "args": object{"url": tcp, "mode": "virtual", "request_timeout_ms": 5000}})
	r.end()
}

// Connections that fail are told as the SDK tells them.
func TestConnectionsThatFail(t *testing.T) {
	r := newRunner(t)
	refused := r.refused("ConnectionRefused", "client.connect", object{"as": "c1", "args": object{"url": "tcp://127.0.0.1:1"}})
	if refused["code"] != "conn.refused" || refused["wire"] != false || refused["retry"] == nil || refused["outcome"] == nil {
		t.Errorf("refused: %v", refused)
	}
	r.refused("ConfigError", "client.connect", object{"as": "c1", "args": object{"url": "gopher://x"}})
	r.refused("ConfigError", "client.connect", object{"as": "c1", "args": object{"url": "tcp://127.0.0.1:1", "in_flight": -1}})
	r.refused("ConfigError", "client.connect", object{"as": "c1", "args": object{"url": "tcp://127.0.0.1:1", "owner_id": "session:x"}})
	r.end()
}

// A mistake of the runner is told as such; nothing is guessed.
func TestMistakesOfTheRunner(t *testing.T) {
	r, url := connected(t, nil)
	for _, c := range []struct {
		cmd    string
		fields object
	}{
		{"client.connect", object{"as": "c1", "args": object{"url": url}}}, // the name is in use
		{"client.connect", object{"args": object{"url": url}}},
		{"client.connect", object{"as": "c2", "args": object{"url": url, "ulr": 1}}},
		{"client.connect", object{"as": "c2", "args": object{"url": 7}}},
		{"client.connect", object{"as": "c2", "args": object{"url": url, "in_flight": "many"}}},
		{"client.status", object{"client": "c9"}},
		{"client.status", object{"client": "c1", "args": object{"x": 1}}},
		{"client.close", object{}},
		{"lease.acquire", object{"client": "c1", "args": object{"route": route + "a", "ttl_ms": 30000}}},
		{"lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl": 30}}},
		{"lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 1.5}}},
		{"lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": "9223372036854775807"}}},
		{"lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 1000, "manual_renew": "yes"}}},
		{"lease.extend", object{"of": "l9", "args": object{"ttl_ms": 1000}}},
		{"lease.release", object{"of": "c1"}}, // of another kind
		{"lease.status", object{"of": "l9"}},
		{"lease.query", object{"client": "c1", "args": object{}, "of": "x", "as": "y", "seq": "z"}},
		{"list.next_page", object{"of": "p9"}},
		{"list.collect", object{"of": "p9"}},
		{"list.close", object{"of": "p9"}},
		{"sub.read", object{"of": "s9"}},
		{"sub.read", object{"of": "s9", "args": object{"n": -1}}},
		{"sub.pause", object{"of": "s9"}},
		{"sub.resume", object{"of": "s9"}},
		{"sub.close", object{"of": "s9"}},
		{"obs.ready", object{"of": "o9"}},
		{"obs.status", object{"of": "o9"}},
		{"obs.snapshot", object{"of": "o9"}},
		{"obs.refresh", object{"of": "o9"}},
		{"obs.close", object{"of": "o9"}},
		{"obs.open", object{"client": "c1", "as": "o1", "args": object{"selector": route + "*", "reconcile_jitter": "half"}}},
		{"obs.changes.open", object{"of": "o9", "as": "ch"}},
		{"obs.changes.read", object{"of": "ch9"}},
		{"obs.changes.close", object{"of": "ch9"}},
		{"cancel", object{"args": object{"id": "x"}}},
		{"rng.seed", object{"args": object{"seed": -1}}},
		{"clock.settle", object{"args": object{"x": 1}}},
		{"example.run", object{"args": object{"name": "nothing"}}},
	} {
		class := "DriverError"
		if c.cmd == "lease.query" {
			class = "ConfigError" // an empty route is a matter of the SDK
		}
		r.refused(class, c.cmd, c.fields)
	}
	r.refused("DriverError", "client.drain", object{"client": "c9"})
	r.refused("Unsupported", "nothing.at_all", nil)
	if hello := r.ok("hello", nil); hello["name"] != "fitz-go" {
		t.Errorf("hello: %v", hello)
	}
	r.end()
}

func TestIdsAreUsedOnce(t *testing.T) {
	r, _ := connected(t, nil)
	r.ok("sub.open", object{"client": "c1", "as": "s1", "args": object{"selector": route + "*"}})
	reading := r.start("sub.read", object{"of": "s1"})
	r.mu.Lock()
	r.last--
	r.mu.Unlock()
	if again := r.start("stats", nil); again != reading {
		t.Fatal("not the same id")
	}
	if line := r.join(reading); line["err"] == nil {
		t.Errorf("an id that is in use: %v", line)
	}
	r.end()
}

// What is no command ends the driver at once, and says so.
func TestALineThatIsNoCommand(t *testing.T) {
	r, _ := connected(t, nil)
	if _, err := r.in.Write([]byte("nonsense\n")); err != nil {
		t.Fatal(err)
	}
	r.next(func(o object) bool { return o["ev"] == "fatal" })
	if code := <-r.exit; code != 1 {
		t.Errorf("exit %d", code)
	}
}

// The end of the input ends everything within its time, also what a standing clock would keep.
func TestTheEndOfTheInputIsBounded(t *testing.T) {
	r, url := connected(t, object{"mode": "virtual"})
	r.ok("client.connect", object{"as": "c2", "args": object{"url": url}})
	r.ok("lease.acquire", object{"client": "c1", "as": "l1", "args": object{"route": route + "a", "ttl_ms": 30000}})
	r.ok("sub.open", object{"client": "c1", "as": "s1", "args": object{"selector": route + "*"}})
	r.ok("obs.open", object{"client": "c2", "as": "o1", "args": object{"selector": route + "*"}})
	r.ok("obs.changes.open", object{"of": "o1", "as": "ch1"})
	waiting := r.start("lease.acquire", object{"client": "c2", "as": "l2", "args": object{"route": route + "a", "ttl_ms": 30000}})
	reading := r.start("sub.read", object{"of": "s1", "args": object{"n": 100}})
	if code := r.end(); code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, id := range []uint64{waiting, reading} {
		if line := r.join(id); line["cancelled"] != true && line["err"] == nil {
			t.Errorf("at the end: %v", line)
		}
	}
}

func TestExamples(t *testing.T) {
	tcp, _ := serving(t)
	r := newRunner(t)
	if out := r.ok("example.run", object{"args": object{"name": "hold", "url": tcp, "realm": "acme"}}); out["output"] != "lease://acme/examples/hold" {
		t.Errorf("hold: %v", out)
	}
	if out := r.ok("example.run", object{"args": object{"name": "watch", "url": tcp, "realm": "acme"}}); out["output"] != "0" {
		t.Errorf("watch: %v", out)
	}
	r.refused("ConnectionRefused", "example.run", object{"args": object{"name": "hold", "url": "tcp://127.0.0.1:1", "realm": "acme"}})
	r.refused("ConfigError", "example.run", object{"args": object{"name": "watch", "url": tcp, "realm": ""}})
	r.end()
}

// record is a record in hex.
func record(t *testing.T, typ wire.MessageType, value wire.Value) string {
	t.Helper()
	raw, err := value.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(codec.AppendRecord(nil, uint16(typ), raw))
}

// Every message that a broker sends is read into a value, and that value is written into the same bytes.
func TestVectorsOfEveryMessage(t *testing.T) {
	r := newRunner(t)
	samples := map[wire.MessageType]wire.Value{
		wire.TypeServerHello: &wire.ServerHello{Version: 1, Capabilities: wire.AnnouncedCapabilities,
			Lifecycle: wire.LifecycleHello{BrokerLifetimeID: [16]byte{1, 2, 3}, SessionIncarnation: 1 << 63, MaxFrameBytes: 1 << 20, HeartbeatMs: 10000}},
		wire.TypeLeaseAcquire:     &wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindQueued, FencingToken: 1<<64 - 1},
		wire.TypeLeaseQuery:       &wire.LeaseQueryReply{Held: true, OwnerID: "w1", TTLRemaining: 29, PendingWaiters: 3},
		wire.TypeLeaseSubscribe:   &wire.LeaseSubscribeReply{SubscriptionID: 5},
		wire.TypeLeaseUnsubscribe: &wire.LeaseUnsubscribeReply{},
		wire.TypeLeaseNotify:      &wire.LeaseNotify{SubscriptionID: 5, Route: route + "a"},
		wire.TypeLeaseList: &wire.LeaseListReply{Items: []wire.LeaseItem{{Route: route + "a", OwnerID: "w1", AcquiredAt: "2030-01-02T03:04:05.678Z"}},
			Next: wire.LeaseCursor{SnapshotID: 7, Offset: 1}, HasNext: true},
		wire.TypePong:     &wire.Pong{Nonce: 1},
		wire.TypeSubEnded: &wire.SubEnded{Domain: 4, SubscriptionID: 5, Dropped: 1, Reason: "slow"},
	}
	for typ, sample := range samples {
		hexed := record(t, typ, sample)
		got := r.ok("vector.decode", object{"args": object{"message": typ.String(), "dir": "down", "unit": "record", "bytes": hexed}})
		value, ok := got["value"].(object)
		if !ok || got["message"] != typ.String() {
			t.Errorf("%s: %v", typ, got)
			continue
		}
		back := r.ok("vector.encode", object{"args": object{"message": typ.String(), "form": got["form"], "value": value}})
		if back["bytes"] != hexed {
			t.Errorf("%s: %v, want %s from %v", typ, back, hexed, value)
		}
	}
	list := r.ok("vector.decode", object{"args": object{"dir": "down", "bytes": record(t, wire.TypeLeaseList, &wire.LeaseListReply{})}})
	if _, has := list["value"].(object)["next"]; has {
		t.Errorf("a field that is not on the wire has a key: %v", list)
	}
	for _, envelope := range []string{"plain", "coded", "stream_coded"} {
		value := object{"envelope": envelope, "message": "no"}
		if envelope != "plain" {
			value["code"] = uint32(wire.CodeLeaseHeld)
		}
		raw := r.ok("vector.encode", object{"args": object{"message": "lease.query", "form": "refusal", "value": value}})
		got := r.ok("vector.decode", object{"args": object{"dir": "down", "bytes": raw["bytes"]}})
		if got["form"] != "refusal" || !holds(got["value"].(object), value) {
			t.Errorf("%s: %v", envelope, got)
		}
	}
	r.end()
}

func TestVectorsThatAreRejected(t *testing.T) {
	r := newRunner(t)
	whole := record(t, wire.TypePong, &wire.Pong{Nonce: 1})
	refusal := hex.EncodeToString(codec.AppendRecord(nil, uint16(wire.TypeLeaseQuery), wire.AppendCoded(nil, wire.CodeLeaseBadRequest, "no")))
	if got := r.ok("vector.decode", object{"args": object{"dir": "down", "bytes": refusal}}); got["form"] != "refusal" ||
		fmt.Sprint(got["value"].(object)["code"]) != fmt.Sprint(uint32(wire.CodeLeaseBadRequest)) || got["value"].(object)["message"] != "no" {
		t.Errorf("refusal: %v", got)
	}
	ask := record(t, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: route + "a"})
	for _, c := range []struct {
		dir, unit, text, class string
		offset                 int
	}{
		{"down", "record", "", "bad_frame", 0},
		{"down", "record", whole[:len(whole)-2], "bad_frame", 0},
		{"down", "record", whole + "00", "bad_frame", 0},
		{"down", "record", "fe000100", "", 0}, // no such message: a client ignores it
		{"up", "record", "fe000100", "unknown_type", 0},
		{"down", "record", "f3000100", "truncated", 3},
		{"down", "record", "ff0193000105", "bad_envelope", 5},
		{"down", "record", "ff01930002" + "0002", "bad_flag", 6},
		{"down", "record", "ff0005" + "0000", "bad_record", 0},
		{"up", "record", ask, "", 0},
		{"up", "record", ask[:len(ask)-2] + "2f", "bad_route", 5},
		{"up", "message", "020008" + "0000000000000009" + ask, "", 0},
		{"up", "message", "020008" + "0000000000000009", "bad_label", 0},
		{"up", "message", ask + ask[:20], "bad_frame", len(ask) / 2},
	} {
		got := r.ok("vector.decode", object{"args": object{"dir": c.dir, "unit": c.unit, "bytes": c.text}})
		if c.class == "" {
			if got["verdict"] != "accept" {
				t.Errorf("%+v: %v", c, got)
			}
			continue
		}
		if got["verdict"] != "reject" || got["class"] != c.class || fmt.Sprint(got["offset"]) != fmt.Sprint(c.offset) {
			t.Errorf("%+v: %v", c, got)
		}
	}
	for _, args := range []object{
		{"dir": "down", "bytes": "xx"},
		{"dir": "sideways", "bytes": whole},
		{"dir": "down", "unit": "heap", "bytes": whole},
	} {
		r.refused("DriverError", "vector.decode", object{"args": args})
	}
	for _, args := range []object{
		{"message": "lease.nothing", "form": "request"},
		{"message": "lease.query", "form": "refusal", "value": object{"envelope": "brown"}},
		{"message": "lease.nothing", "form": "refusal", "value": object{"envelope": "plain"}},
		{"message": "lease.query", "form": "request", "value": object{"roote": "x"}},
		{"message": "lease.query", "form": "request", "value": object{"route": true}},
		{"message": "lease.acquire", "form": "request", "value": object{"ttl": "-1"}},
		{"message": "lease.list", "form": "reply", "value": object{"items": "none"}},
		{"message": "lease.list", "form": "reply", "value": object{"items": []any{1}}},
		{"message": "session.server_hello", "value": object{"lifecycle": object{"broker_lifetime_id": "AAA="}}},
	} {
		r.refused("DriverError", "vector.encode", object{"args": args})
	}
	long := r.ok("vector.encode", object{"args": object{"message": "lease.acquire", "form": "request",
		"value": object{"route": route + "a", "owner_id": "w1", "ttl": "0"}}})
	if long["class"] != "out_of_range" || fmt.Sprint(long["code"]) != fmt.Sprint(uint32(wire.CodeLeaseBadRequest)) {
		t.Errorf("a ttl of 0: %v", long)
	}
	r.end()
}

// Whatever comes in, what goes out is one JSON object in a line, and the driver ends.
func FuzzCommands(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"cmd":"hello"}`, `{"id":1,"cmd":"vector.decode","args":{"dir":"up","unit":"message","bytes":"020008000000000000000901"}}`,
		`{"id":2,"cmd":"vector.encode","args":{"message":"lease.list","form":"reply","value":{"items":[{"route":"x"}]}}}`,
		`{"id":3,"cmd":"clock.advance","args":{"ms":1}}`, `{"id":4,"cmd":"cancel","args":{"id":4}}`, `{"id":5,"seq":"k","cmd":"stats"}`, `[]`, "x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "connect") || strings.Contains(line, "example") || strings.Contains(line, `\u`) {
			return // no look at addresses that chance makes up, however the command is spelt
		}
		var out, log bytes.Buffer
		code := driver.Run(strings.NewReader(line+"\n"), &out, &log)
		last := object{}
		for text := range strings.Lines(out.String()) {
			last = object{}
			if err := json.Unmarshal([]byte(text), &last); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
		}
		if code == 0 != (last["ev"] == "bye") {
			t.Errorf("exit %d after %v", code, last)
		}
	})
}

// The reference names every command, and no other.
func TestTheReferenceNamesEveryCommand(t *testing.T) {
	text, err := os.ReadFile("../../../docs/development/driver-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)`[^|]*\\| [^|]*\\| [^|]*\\|$|^\\| `([a-z_.]+)`[^|]*\\| ?\\|.*$").FindAllStringSubmatch(string(text), -1) {
		described = append(described, row[1]+row[2])
	}
	r := newRunner(t)
	var known []string
	for _, name := range r.ok("hello", nil)["commands"].([]any) {
		known = append(known, fmt.Sprint(name))
	}
	slices.Sort(described)
	if !slices.Equal(described, known) {
		t.Errorf("described: %v\nknown: %v", described, known)
	}
	r.end()
}
