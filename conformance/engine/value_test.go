package engine

import (
	"os"
	"testing"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/scenario"
)

// TestCodesHaveNames shows that matchers may write the code of a frame by its name.
func TestCodesHaveNames(t *testing.T) {
	spec, err := oracle.Load(os.DirFS("../../spec"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		message string
		form    oracle.Form
		value   oracle.Value
		want    any
	}{
		{"lease.acquire", oracle.Refusal, oracle.Value{"code": uint64(5001), "message": "held"}, "LEASE_HELD"},
		{"lease.acquire", oracle.Refusal, oracle.Value{"code": uint64(5999), "message": "new"}, 5999},
		{"session.sub_ended", oracle.Push,
			oracle.Value{"domain": uint64(4), "subscription_id": uint64(5), "code": uint64(9101), "dropped": uint64(3), "reason": "slow"}, "SUB_SLOW_CONSUMER"},
	} {
		record, err := spec.EncodeAny(row.message, row.form, row.value)
		if err != nil {
			t.Fatal(err)
		}
		r, fault := spec.Decode(oracle.Down, record)
		if fault != nil {
			t.Fatal(fault)
		}
		r.Bytes = record
		got := decoded(spec, oracle.Down, r)["code"]
		if !scenario.Equal(row.want, got) || !scenario.Equal(row.value["code"], got) {
			t.Errorf("%s: the code is %v, want %v", row.message, scenario.Show(got), row.want)
		}
	}
}
