package driver_test

import "testing"

// The scoped form releases only when its body has ended, also when it is cancelled (L-105), and the command ends with what the scoped form
// returns (L-106).
func TestScopedForm(t *testing.T) {
	r, _ := connected(t, nil)
	terms := object{"route": route + "a", "ttl_ms": 30000}
	held := func(want bool) {
		t.Helper()
		if q := r.ok("lease.query", object{"client": "c1", "args": object{"route": route + "a"}}); q["held"] != want {
			t.Errorf("held: %v, want %v", q, want)
		}
	}
	run := r.start("lease.run", object{"client": "c1", "as": "l1", "args": terms})
	r.event("l1", "lease.body", object{"route": route + "a", "owner_id": "w1"})
	r.refused("DriverError", "lease.run", object{"client": "c1", "as": "l1", "args": terms})
	r.ok("cancel", object{"args": object{"id": run}})
	held(true)
	if r.answered(run) {
		t.Error("the form has ended before its body")
	}
	r.ok("lease.finish", object{"of": "l1", "args": object{"fail": "its own"}})
	if err, _ := r.join(run)["err"].(object); err["code"] != "native" || err["message"] != "its own" {
		t.Errorf("the error of the body: %v", err)
	}
	held(false)

	terms["heed"] = true
	run = r.start("lease.run", object{"client": "c1", "as": "l2", "args": terms})
	r.event("l2", "lease.body", nil)
	r.ok("cancel", object{"args": object{"id": run}})
	if end := r.join(run); end["cancelled"] != true {
		t.Errorf("a body that heeds its end: %v", end)
	}
	held(false)

	delete(terms, "heed")
	r.ok("lease.acquire", object{"client": "c1", "as": "l3", "args": terms})
	r.refused("DriverError", "lease.finish", object{"of": "l3"})
	r.end()
}
