package vectors

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Where the vectors and their specification are; the test of the specification with all domains names other folders.
var (
	vectorDir = flag.String("vectors", "../../generated/vectors", "folder of the golden vectors")
	specDir   = flag.String("spec", "../../spec", "folder of their specification")
)

func all(t testing.TB) []Vector {
	t.Helper()
	vectors, err := All(os.DirFS(*vectorDir))
	if err != nil {
		t.Fatal(err)
	}
	return vectors
}

func spec(t testing.TB) *oracle.Spec {
	t.Helper()
	s, err := oracle.Load(os.DirFS(*specDir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The Go codec agrees with the oracle about every vector: verdict, class, offset, code, reason, and every field of the value.
func TestGoDecodes(t *testing.T) {
	for _, v := range all(t) {
		a := goAnswer(t, v)
		if a.Code == nil && v.Class == oracle.BadRoute && v.Code != 0 {
			code := v.Code // the codec leaves the grammar to dispatch, which TestDispatch asks
			a.Code = &code
		}
		if err := Check(v, a); err != nil {
			t.Errorf("%v\n%x", err, v.Bytes)
		}
	}
}

// What is decoded is encoded to the same bytes when they are canonical, and otherwise to bytes that mean the same.
func TestGoEncodes(t *testing.T) {
	encoded := 0
	for _, v := range all(t) {
		if v.Verdict != oracle.Accept || v.Unit != "record" || v.Form == oracle.Refusal {
			continue
		}
		rec, _, err := codec.NextRecord(v.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		layout, _ := goLayout(wire.MessageType(rec.Type), v.Dir)
		first, second := layout.New(), layout.New()
		if err := first.DecodeValue(rec.Value); err != nil {
			t.Errorf("%s: %v", v.ID, err)
			continue
		}
		value, err := first.AppendValue(nil)
		if err != nil {
			if !v.Canonical && codec.AsError(err).Kind == codec.OverBound {
				continue // larger than a sender may make it (W-13)
			}
			t.Errorf("%s: %v", v.ID, err)
			continue
		}
		if v.Canonical {
			encoded++
			if err := CheckBytes(v, codec.AppendRecord(nil, rec.Type, value)); err != nil {
				t.Error(err)
			}
			continue
		}
		if err := second.DecodeValue(value); err != nil || !reflect.DeepEqual(first, second) {
			t.Errorf("%s: %v became %v: %v", v.ID, first, second, err)
		}
	}
	if encoded == 0 {
		t.Error("no vector is canonical")
	}
}

// Sizes up to which every prefix of a vector is tried; of longer ones those around every named part at both ends.
const (
	allPrefixes  = 1024
	somePrefixes = 100
)

// prefixes are the lengths at which a vector is cut.
func prefixes(size int) []int {
	var out []int
	for n := range size {
		if size <= allPrefixes || n < somePrefixes || n > size-somePrefixes {
			out = append(out, n)
		}
	}
	return out
}

// A vector that is cut anywhere gets the answer that the oracle gives: as a record whose length is right, and as one that ends too early. Only
// before a field at the end can a value be cut and stay one.
func TestGoCut(t *testing.T) {
	s := spec(t)
	cuts, accepted := 0, 0
	for _, v := range all(t) {
		if v.Unit == "message" {
			cuts += cutMessage(t, s, v)
			continue
		}
		rec, _, err := codec.NextRecord(v.Bytes)
		if err != nil {
			continue // the header is the mistake
		}
		header := codec.RecordHeaderSize(rec.Type)
		for _, n := range prefixes(len(rec.Value)) {
			record := codec.AppendRecord(nil, rec.Type, rec.Value[:n])
			cuts++
			if compare(t, s, v, record) {
				accepted++
			}
			if a, _ := goRecord(t, v.Dir, v.Bytes[:header+n]); a.Class != oracle.BadFrame {
				t.Errorf("%s cut to %d bytes: %s", v.ID, header+n, a.Class)
			}
		}
	}
	t.Logf("%d prefixes, %d of them are values", cuts, accepted)
	if cuts == 0 || accepted == 0 {
		t.Error("nothing was cut")
	}
}

// compare compares the answers of the Go codec and of the oracle and tells whether a record is accepted.
func compare(t testing.TB, s *oracle.Spec, v Vector, record []byte) bool {
	rec, fault := s.Decode(v.Dir, record)
	want := Vector{oracle.Vector{ID: fmt.Sprintf("%s as %d bytes", v.ID, len(record)), Dir: v.Dir, Unit: "record", Message: rec.Message, Form: rec.Form, Bytes: record, Verdict: oracle.Accept}, ""}
	a, _ := goRecord(t, v.Dir, record)
	if fault != nil {
		want.Verdict, want.Class, want.Offset, want.Code, want.Reason = oracle.Reject, fault.Class, &fault.Offset, fault.Code, fault.Reason
		if fault.Class == oracle.BadRoute {
			want.Code = 0 // see TestGoDecodes
		}
	} else if !a.Ignored {
		want.Value, _ = unfoldObject(normal(s.RecordValue(rec)))
	} else if rec.Message == "" {
		return true
	}
	if err := Check(want, a); err != nil {
		t.Errorf("%v\n%x", err, record)
	}
	return fault == nil
}

// cutMessage cuts a transport message at every place.
func cutMessage(t *testing.T, s *oracle.Spec, v Vector) int {
	at := prefixes(len(v.Bytes))
	for _, n := range at {
		cutTo(t, s, v, n)
	}
	return len(at)
}

// Of two mistakes in a transport message, and of a label in front of either, Go and the oracle name the same one first. Every kind of record meets
// every other in both directions.
func TestGoPairs(t *testing.T) {
	const small = 200 // larger ones show nothing else about order
	s := spec(t)
	kinds := map[string]bool{}
	var chosen []Vector
	for _, v := range all(t) {
		kind := fmt.Sprint(v.Dir, v.Message, v.Form, v.Class)
		if len(v.Bytes) <= small && !kinds[kind] {
			kinds[kind] = true
			chosen = append(chosen, v)
		}
	}
	labels := map[oracle.Direction][]byte{oracle.Up: goLabel(t, wire.TypeCorrelate, &wire.Correlate{ID: 9}), oracle.Down: goLabel(t, wire.TypeCorrelated, &wire.Correlated{ID: 9})}
	messages := 0
	for _, first := range chosen {
		for _, second := range chosen {
			for _, dir := range []oracle.Direction{oracle.Up, oracle.Down} {
				for _, before := range [][2][]byte{{nil, nil}, {labels[dir], nil}, {nil, labels[dir]}, {labels[dir], labels[dir]}} {
					message := slices.Concat(before[0], first.Bytes, before[1], second.Bytes)
					cutTo(t, s, Vector{oracle.Vector{ID: first.ID + " and " + second.ID, Dir: dir, Bytes: message}, ""}, len(message))
					messages++
				}
			}
			if t.Failed() {
				return // thousands of others would say the same
			}
		}
	}
	t.Logf("%d kinds of records, %d messages", len(chosen), messages)
	if messages == 0 {
		t.Error("nothing was compared")
	}
}

// goLabel is a record that labels the next one.
func goLabel(t *testing.T, typ wire.MessageType, m wire.Value) []byte {
	t.Helper()
	value, err := m.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	return codec.AppendRecord(nil, uint16(typ), value)
}

// cutTo compares the answers to the beginning of a transport message.
func cutTo(t *testing.T, s *oracle.Spec, v Vector, n int) {
	records, fault := s.SplitMessage(v.Dir, v.Bytes[:n])
	a := goMessage(t, v.Dir, v.Bytes[:n])
	switch {
	case (fault == nil) != (a.Verdict == oracle.Accept):
		t.Errorf("%s as %d bytes: %v %s, the oracle says %v\n%x", v.ID, n, a.Verdict, a.Class, fault, v.Bytes[:n])
	case fault != nil && (a.Class != fault.Class || *a.Offset != fault.Offset):
		t.Errorf("%s as %d bytes: %s at %d, the oracle says %v\n%x", v.ID, n, a.Class, *a.Offset, fault, v.Bytes[:n])
	case fault == nil && len(records) != len(a.Records):
		t.Errorf("%s as %d bytes: %d records, the oracle says %d\n%x", v.ID, n, len(a.Records), len(records), v.Bytes[:n])
	}
}

// The route grammar of Go agrees with the oracle about every text, match and containment.
func TestGoRoutes(t *testing.T) {
	file, err := Routes(os.DirFS(*vectorDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range file.Texts {
		g := route.ByScheme[v.Scheme]
		if v.Use == "route" {
			_, err := g.ParseRoute(string(v.Text))
			if reason := reasonOf(err); reason != v.Reason {
				t.Errorf("%s: %q, want %q", v.ID, reason, v.Reason)
			}
			continue
		}
		sel, err := g.ParseSelector(string(v.Text))
		if reason := reasonOf(err); reason != v.Reason {
			t.Errorf("%s: %q, want %q", v.ID, reason, v.Reason)
			continue
		}
		if err == nil {
			checkSelector(t, v, sel)
		}
	}
	for _, v := range file.Matches {
		g := route.ByScheme[v.Scheme]
		sel, selErr := g.ParseSelector(v.Pattern)
		r, routeErr := g.ParseRoute(v.Route)
		if selErr != nil || routeErr != nil || sel.Matches(r) != v.Matches {
			t.Errorf("%s: %s matches %s: %v, %v %v", v.ID, v.Pattern, v.Route, sel.Matches(r), selErr, routeErr)
		}
	}
	for _, v := range file.Containment {
		g := route.ByScheme[v.Scheme]
		grant, grantErr := g.ParseGrant(v.Grant)
		request, requestErr := g.ParseSelector(v.Request)
		if grantErr != nil || requestErr != nil || grant.Contains(request) != v.Contained {
			t.Errorf("%s: %s contains %s: %v, %v %v", v.ID, v.Grant, v.Request, grant.Contains(request), grantErr, requestErr)
		}
	}
}

// Counts prints how many vectors there are of each kind. Each class of mistakes that a specification can have is there.
func TestCounts(t *testing.T) {
	byFile, byClass, verdicts := map[string]int{}, map[oracle.Class]int{}, map[string]int{}
	for _, v := range all(t) {
		byFile[v.File]++
		verdicts[v.Verdict]++
		if v.Class != "" {
			byClass[v.Class]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byFile)) {
		t.Logf("%-14s %5d", name, byFile[name])
	}
	t.Logf("accept         %5d", verdicts[oracle.Accept])
	t.Logf("reject         %5d", verdicts[oracle.Reject])
	for _, class := range []oracle.Class{oracle.BadFrame, oracle.BadRecord, oracle.UnknownType, oracle.BadLabel, oracle.BadEnvelope, oracle.Truncated, oracle.Trailing,
		oracle.BadFlag, oracle.BadUTF8, oracle.BadEnum, oracle.BadCount, oracle.BadConstant, oracle.Zero, oracle.BadRoute, oracle.OverBound, oracle.OutOfRange} {
		t.Logf("  %-13s%5d", class, byClass[class])
		if byClass[class] == 0 {
			t.Errorf("no vector shows %s", class)
		}
	}
	file, err := Routes(os.DirFS(*vectorDir))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("route texts    %5d", len(file.Texts))
	t.Logf("matches        %5d", len(file.Matches))
	t.Logf("containment    %5d", len(file.Containment))
}
