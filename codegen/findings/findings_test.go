package findings

import (
	"testing"

	"github.com/fitzwire/fitz/codegen/model"
)

func TestSortedKeepsEachOnce(t *testing.T) {
	var l List
	at := func(file string, line, col int) model.Pos { return model.Pos{File: file, Line: line, Col: col} }
	l.Add(at("b.yaml", 1, 1), "R", "p", "m")
	l.Add(at("a.yaml", 10, 1), "R", "p", "m")
	l.Add(at("a.yaml", 2, 7), "S", "p", "m")
	l.Add(at("a.yaml", 2, 7), "R", "q", "m")
	l.Add(at("a.yaml", 2, 7), "R", "p", "m")
	l.Add(at("b.yaml", 1, 1), "R", "p", "m")
	want := "a.yaml:2:7: R: p; m\na.yaml:2:7: R: q; m\na.yaml:2:7: S: p; m\na.yaml:10:1: R: p; m\nb.yaml:1:1: R: p; m\n"
	if got := l.Sorted().String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if !l.Has("S") || l.Has("T") {
		t.Error("Has is wrong")
	}
}

// A finding about a file as a whole still has a place that an editor can open.
func TestWholeFile(t *testing.T) {
	f := Finding{Pos: model.Pos{File: "a.yaml"}, Rule: "R", Problem: "p", Mend: "m"}
	if got := f.String(); got != "a.yaml:1:1: R: p; m" {
		t.Error(got)
	}
}
