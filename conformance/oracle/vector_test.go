package oracle

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// made are all vectors of a specification by file.
func made(t *testing.T, s *Spec) map[string]VectorFile {
	t.Helper()
	files, err := s.Vectors("00")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]VectorFile{}
	for name, content := range files {
		if name == "routes.json" {
			continue
		}
		var file VectorFile
		if err := json.Unmarshal(content, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out[name] = file
	}
	return out
}

// The same specification gives the same bytes.
func TestVectorsAreDeterministic(t *testing.T) {
	first, err := allDomains(t).Vectors("00")
	if err != nil {
		t.Fatal(err)
	}
	second, err := allDomains(t).Vectors("00")
	if err != nil {
		t.Fatal(err)
	}
	for name := range first {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("%s differs", name)
		}
	}
	if len(first) != len(second) || len(first) != 10 {
		t.Errorf("%d and %d files", len(first), len(second))
	}
}

// Every vector has an id of its own, a clause, and bytes that the decoder judges as it says; none is there twice.
func TestVectorsAreWhole(t *testing.T) {
	s := allDomains(t)
	ids, contents := map[string]bool{}, map[string]string{}
	for name, file := range made(t, s) {
		if file.Comment != Marker || file.Version != s.Version || file.Fingerprint != "00" || file.Domain+".json" != name {
			t.Errorf("%s begins with %q %q %q %q", name, file.Comment, file.Version, file.Fingerprint, file.Domain)
		}
		for _, v := range file.Vectors {
			content := string(v.Form) + string(v.Dir) + v.Unit + string(v.Bytes)
			if ids[v.ID] || contents[content] != "" {
				t.Errorf("%s is there twice, also as %s", v.ID, contents[content])
			}
			ids[v.ID], contents[content] = true, v.ID
			if len(v.Clauses) == 0 || (v.Verdict == Reject) != (v.Class != "" && v.Offset != nil) || strings.ContainsAny(v.ID, " []") {
				t.Errorf("%s: %+v", v.ID, v)
			}
		}
	}
}

// Every field of every message that can be cut off, be too large, be out of range, unknown, or not UTF-8, is so in one vector; every optional field is
// there and is not.
func TestEveryFieldIsShown(t *testing.T) {
	s := allDomains(t)
	files := made(t, s)
	for _, m := range s.messages {
		vectors := files[m.domain.name+".json"].Vectors
		for _, f := range m.layout.fields {
			shown := func(class Class) bool {
				return slices.ContainsFunc(vectors, func(v Vector) bool {
					path := strings.FieldsFunc(v.Field, func(r rune) bool { return r == '.' || r == '[' })
					return v.Message == m.name && v.Form == m.form && v.Class == class && len(path) > 0 && path[0] == f.name
				})
			}
			for class, possible := range possibleMistakes(f, m) {
				if possible && !shown(class) {
					t.Errorf("%s %s: no vector shows %s of %s", m.name, m.form, class, f.name)
				}
			}
			if f.presence == always || f.presence == rest {
				continue
			}
			present := func(want bool) bool {
				return slices.ContainsFunc(vectors, func(v Vector) bool {
					_, there := v.Value[f.name]
					return v.Message == m.name && v.Form == m.form && v.Verdict == Accept && there == want
				})
			}
			if !present(true) || !present(false) {
				t.Errorf("%s %s: %s is not shown with and without", m.name, m.form, f.name)
			}
		}
	}
}

// possibleMistakes are the mistakes that a field can have, seen without the code that makes vectors.
func possibleMistakes(f *field, m *message) map[Class]bool {
	oneByteTail := (f.presence == tail || f.presence == tailFlagged) && f.kind == boolKind
	return map[Class]bool{
		Truncated:   f.presence != rest && !oneByteTail && f.width != 1 || f.kind == textKind && f.presence != rest,
		BadFlag:     f.presence == flagged || f.presence == tailFlagged || f.kind == boolKind,
		BadUTF8:     f.kind == textKind,
		BadEnum:     f.enum != nil && f.enum.closed,
		BadConstant: f.fixed,
		Zero:        f.nonzero,
		OutOfRange:  f.ranged,
		BadCount:    f.kind == listKind && f.form == counted,
		BadRoute:    f.kind == routeKind && m.domain.scheme != nil,
		OverBound:   f.kind == textKind && f.bound != nil,
	}
}

// Every combination of optional fields is one vector.
func TestEveryPresence(t *testing.T) {
	files := made(t, allDomains(t))
	for id, want := range map[string]int{
		"lease.acquire.request": 3,             // without wait, with its default, with another
		"lease.list.request":    2,             // cursor
		"lease.list.reply":      2,             // next
		"session.server_hello":  2,             // lifecycle
		"kv.scan.request":       2 * 2 * 2 * 3, // start, end, limit; start_exclusive as wait above
		"queue.enqueue.request": 3,             // delay: nothing, 0, 1 and the delay
		"stream.read.request":   2 * 2 * 7,     // max_bytes, filter; fingerprint and watermark: nothing, 0 or 1, and then the same again
	} {
		domain, _, _ := strings.Cut(id, ".")
		got := 0
		for _, v := range files[domain+".json"].Vectors {
			if own, name, _ := strings.Cut(v.ID, "/"); own == id && (name == "without-optional" || strings.HasPrefix(name, "with-")) {
				got++
			}
		}
		if got != want {
			t.Errorf("%s: %d combinations, want %d", id, got, want)
		}
	}
}

// Long bytes are folded, and unfolding gives them back.
func TestBytesFold(t *testing.T) {
	for _, b := range []Bytes{{}, {1}, bytes.Repeat([]byte{7}, 95), bytes.Repeat([]byte{7}, 96), append(bytes.Repeat([]byte("abc"), 4000), 1, 2, 3),
		slices.Concat([]byte("head"), bytes.Repeat([]byte{0}, 500), []byte("middle"), bytes.Repeat([]byte("xy"), 500))} {
		text, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var again Bytes
		if err := json.Unmarshal(text, &again); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x became %s, then %x: %v", b, text, again, err)
		}
		if len(text) > 300 {
			t.Errorf("%d bytes are %d characters", len(b), len(text))
		}
	}
	var b Bytes
	for _, bad := range []string{`"0"`, `"zz"`, `[{"hex": "00", "times": 1048577}]`, `[{"hex": "00", "times": -1}]`, `7`} {
		if err := json.Unmarshal([]byte(bad), &b); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

func BenchmarkVectors(b *testing.B) {
	s := project(b)
	for b.Loop() {
		if _, err := s.Vectors("0"); err != nil {
			b.Fatal(err)
		}
	}
}
