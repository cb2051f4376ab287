package engine

import (
	"maps"
	"slices"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// wellFormed fails a case whose subject has sent a frame that the specification does not allow, whether or not a step looked at it: clients and
// brokers pass over some mistakes of the other without a word.
func (x *exec) wellFormed() error {
	if x.driver != nil {
		for _, name := range slices.Sorted(maps.Keys(x.links)) {
			if err := x.sound("client "+name, x.links[name].Trace(), oracle.Up); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.peers)) {
		if err := x.sound("broker to "+name, x.peers[name].Trace(), oracle.Down); err != nil {
			return err
		}
	}
	return nil
}

func (x *exec) sound(who string, log *trace.Log, dir oracle.Direction) error {
	for _, e := range log.Entries() {
		if e.Dir == dir && !e.Inserted && e.Fault != nil {
			return failed(ReasonExpectation, "the %s has sent a malformed frame, %s: %v", who, e.Message, e.Fault)
		}
	}
	return nil
}
