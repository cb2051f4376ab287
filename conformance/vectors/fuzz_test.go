package vectors

import (
	"os"
	"slices"
	"testing"

	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/generated/go/route"
)

// FuzzAgree changes golden vectors at random: whatever comes out, the Go codec and the oracle give the same answer, as a record and as a
// transport message, and the oracle names every byte of it.
func FuzzAgree(f *testing.F) {
	s := spec(f)
	for _, v := range all(f) {
		if len(v.Bytes) <= allPrefixes {
			f.Add(v.Dir == oracle.Up, []byte(v.Bytes))
		}
	}
	f.Fuzz(func(t *testing.T, up bool, data []byte) {
		dir := oracle.Down
		if up {
			dir = oracle.Up
		}
		if len(data) > 1<<16 {
			return
		}
		compare(t, s, Vector{oracle.Vector{ID: "record", Dir: dir}, ""}, data)
		cutTo(t, s, Vector{oracle.Vector{ID: "message", Dir: dir, Bytes: data}, ""}, len(data))
		checkSpans(t, s, dir, data)
	})
}

// checkSpans checks that every byte of a record is named once.
func checkSpans(t *testing.T, s *oracle.Spec, dir oracle.Direction, record []byte) {
	end := 0
	for _, span := range s.Annotate(dir, record) {
		if span.Offset != end || span.Len <= 0 {
			t.Errorf("span %+v behind byte %d of %x", span, end, record)
		}
		end = span.Offset + span.Len
	}
	if end != len(record) {
		t.Errorf("%d of %d bytes are named: %x", end, len(record), record)
	}
}

// FuzzRoutes reads texts of any scheme: the Go grammar and the oracle give the same reason, masks, matches and containments.
func FuzzRoutes(f *testing.F) {
	s := spec(f)
	file, err := Routes(os.DirFS(*vectorDir))
	if err != nil {
		f.Fatal(err)
	}
	schemes := s.Schemes()
	for i, v := range file.Texts {
		if len(v.Text) <= allPrefixes {
			f.Add(uint8(slices.Index(schemes, v.Scheme)), string(v.Text), string(file.Texts[(i*7)%len(file.Texts)].Text))
		}
	}
	for _, v := range file.Containment {
		f.Add(uint8(slices.Index(schemes, v.Scheme)), v.Grant, v.Request)
	}
	f.Fuzz(func(t *testing.T, which uint8, first, second string) {
		scheme := schemes[int(which)%len(schemes)]
		g := route.ByScheme[scheme]
		a, aReason := s.Classify(scheme, first, true)
		b, bReason := s.Classify(scheme, second, true)
		goA, err := g.ParseSelector(first)
		if reasonOf(err) != aReason {
			t.Errorf("%s %q: %v, the oracle says %q", scheme, first, err, aReason)
		}
		goB, err := g.ParseSelector(second)
		if reasonOf(err) != bReason {
			t.Errorf("%s %q: %v, the oracle says %q", scheme, second, err, bReason)
		}
		r, rReason := s.Classify(scheme, second, false)
		goR, err := g.ParseRoute(second)
		if reasonOf(err) != rReason {
			t.Errorf("%s %q as a route: %v, the oracle says %q", scheme, second, err, rReason)
		}
		if aReason == "" && bReason == "" && goA.Contains(goB) != s.Contains(a, b) {
			t.Errorf("%q contains %q: %v", first, second, goA.Contains(goB))
		}
		if aReason == "" && rReason == "" && goA.Matches(goR) != s.Matches(a, r) {
			t.Errorf("%q matches %q: %v", first, second, goA.Matches(goR))
		}
	})
}
