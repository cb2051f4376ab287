package codec

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

var (
	whole = Field{Name: "toy"}
	one   = Field{Name: "toy.one", Bound: "one_max", Code: 11, Text: "one is wrong"}
	two   = Field{Name: "toy.two", Bound: "two_max"}
)

const malformedCode = 7

func reader(b ...byte) Reader { return NewReader(b, malformedCode) }

// Every kind: what it is called, where it shows and which code answers it.
func TestReaderMistakes(t *testing.T) {
	cases := []struct {
		name   string
		value  []byte
		read   func(*Reader)
		kind   Kind
		offset int
		code   uint32
	}{
		{"D-1 number cut off", []byte{1, 2, 3}, func(r *Reader) { r.U8(&one); r.U32(&one) }, Truncated, 1, malformedCode},
		{"D-1 length cut off", []byte{0, 0, 0}, func(r *Reader) { r.String(&one, 9) }, Truncated, 0, malformedCode},
		{"D-1 text cut off", []byte{0, 0, 0, 2, 'a'}, func(r *Reader) { r.String(&one, 9) }, Truncated, 0, malformedCode},
		{"D-1 text longer than all memory", []byte{0xff, 0xff, 0xff, 0xff}, func(r *Reader) { r.String(&one, math.MaxInt) }, Truncated, 0, malformedCode},
		{"uuid cut off", make([]byte, 15), func(r *Reader) { r.UUID(&one) }, Truncated, 0, malformedCode},
		{"D-4 left over", []byte{1, 2}, func(r *Reader) { r.U8(&one) }, Trailing, 1, malformedCode},
		{"flag", []byte{2}, func(r *Reader) { r.Bool(&one) }, BadFlag, 0, malformedCode},
		{"D-3 text", []byte{0, 0, 0, 2, 'a', 0xff}, func(r *Reader) { r.String(&one, 9) }, BadUTF8, 5, malformedCode},
		{"D-3 surrogate", []byte{0, 0, 0, 3, 0xed, 0xa0, 0x80}, func(r *Reader) { r.String(&one, 9) }, BadUTF8, 4, malformedCode},
		{"D-3 rest", []byte{'a', 0xc3}, func(r *Reader) { r.RestString(&one, 9) }, BadUTF8, 1, malformedCode},
		{"D-6 number with a code of its own", []byte{9}, func(r *Reader) { r.U8(&one); r.Known(&one, false) }, BadEnum, 0, 11},
		{"D-6 number without one", []byte{9}, func(r *Reader) { r.U8(&two); r.Known(&two, false) }, BadEnum, 0, malformedCode},
		{"constant", []byte{9}, func(r *Reader) { r.Const(&one, uint64(r.U8(&one)), 8) }, BadConst, 0, malformedCode},
		{"zero", []byte{5, 0}, func(r *Reader) { r.U8(&two); r.NonZero(&one, uint64(r.U8(&one))) }, Zero, 1, malformedCode},
		{"over its bound", []byte{0, 0, 0, 3, 'a', 'b', 'c'}, func(r *Reader) { r.String(&one, 2) }, OverBound, 0, 11},
		{"bytes over their bound", []byte{0, 0, 0, 1, 0xff}, func(r *Reader) { r.Bytes(&two, 0) }, OverBound, 0, malformedCode},
		{"rest over its bound", []byte{1, 2, 3}, func(r *Reader) { r.RestBytes(&two, 2) }, OverBound, 0, malformedCode},
		{"above its range", []byte{9}, func(r *Reader) { r.Range(&one, uint64(r.U8(&one)), 1, 8) }, OutOfRange, 0, 11},
		{"below its range", []byte{0}, func(r *Reader) { r.Range(&one, uint64(r.U8(&one)), 1, 8) }, OutOfRange, 0, 11},
		{"D-3 route too long", []byte{0, 0, 0, 1, 'a'}, func(r *Reader) { r.Route(&one, 0) }, RouteText, 0, 11},
		{"D-3 route not UTF-8", []byte{0, 0, 0, 1, 0xff}, func(r *Reader) { r.Route(&one, 9) }, RouteText, 0, 11},
		{"D-1 part cut off", []byte{0, 2, 1}, func(r *Reader) { r.Enter(&two, 2, 9) }, Truncated, 0, malformedCode},
		{"part over its bound", []byte{0, 2, 1, 1}, func(r *Reader) { p := r.Enter(&two, 2, 1); r.U16(&two); r.Leave(&two, p) }, OverBound, 0, malformedCode},
		{"D-4 left over in a part", []byte{0, 2, 1, 1}, func(r *Reader) { p := r.Enter(&two, 2, 9); r.U8(&two); r.Leave(&two, p) }, Trailing, 3, malformedCode},
		{"field beyond its part", []byte{0, 1, 1, 1}, func(r *Reader) { p := r.Enter(&two, 2, 9); r.U16(&two); r.Leave(&two, p) }, Truncated, 2, malformedCode},
		{"mistake in a part with a code", []byte{0, 0, 0, 1, 2}, func(r *Reader) { p := r.Enter(&one, 4, 9); r.Bool(&two); r.Leave(&one, p) }, BadFlag, 4, 11},
		{"mistake after such a part", []byte{0, 0, 0, 1, 1, 2}, func(r *Reader) { p := r.Enter(&one, 4, 9); r.Bool(&two); r.Leave(&one, p); r.Bool(&two) }, BadFlag, 5, malformedCode},
		{"D-3 malformed wins over size before it", []byte{0, 0, 0, 1, 'a', 2}, func(r *Reader) { r.String(&one, 0); r.Bool(&two) }, BadFlag, 5, malformedCode},
		{"first malformed field wins", []byte{2, 3}, func(r *Reader) { r.Bool(&two); r.Bool(&one) }, BadFlag, 0, malformedCode},
		{"first mistake of size wins", []byte{9, 9}, func(r *Reader) {
			r.Range(&one, uint64(r.U8(&one)), 0, 1)
			r.Range(&two, uint64(r.U8(&two)), 0, 1)
		}, OutOfRange, 0, 11},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := NewReader(c.value, malformedCode)
			c.read(&r)
			err := AsError(r.Finish(&whole))
			if err == nil || err.Kind != c.kind || err.Offset != c.offset || err.Code() != c.code {
				t.Fatalf("got %v with code %d, not %v at %d with %d", err, err.Code(), c.kind, c.offset, c.code)
			}
		})
	}
}

// What is well-formed is read, and nothing else is reported.
func TestReaderReads(t *testing.T) {
	r := reader(1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 2, 'h', 'i', 0, 0, 0, 1, 0xff, 'r', 0xff)
	if r.U8(&one) != 1 || r.U16(&one) != 2 || r.U32(&one) != 3 || r.U64(&one) != 4 || !r.Bool(&one) {
		t.Error("numbers")
	}
	if string(r.String(&one, 2)) != "hi" || string(r.Bytes(&one, 1)) != "\xff" {
		t.Error("text")
	}
	if !r.More() || r.Offset() != 27 || string(r.RestBytes(&one, 2)) != "r\xff" || r.More() {
		t.Error("rest")
	}
	if err := r.Finish(&whole); err != nil {
		t.Error(err)
	}
	open := reader(1, 2)
	open.U8(&one)
	if err := open.FinishOpen(); err != nil {
		t.Error(err)
	}
	part := reader(0, 3, 1, 9, 9, 5)
	outer := part.Enter(&one, 2, 9)
	part.U8(&one)
	part.LeaveOpen(outer)
	if part.U8(&one) != 5 || part.Finish(&whole) != nil {
		t.Error("what follows a part whose later bytes are ignored")
	}
}

// After a mistake every read gives nothing and none goes on reading.
func TestReaderIsSticky(t *testing.T) {
	r := reader(2, 1, 1, 1, 1, 1, 1, 1, 1)
	r.Bool(&one)
	if !r.Failed() || r.U64(&two) != 0 || r.More() || len(r.RestBytes(&two, 99)) != 0 || r.Bool(&two) || r.Since(0) != nil {
		t.Error("a read after a mistake gave something")
	}
	walk := r.List(&two, 1, ListShape{Most: 9, MostBytes: 9})
	if walk.Next(&r) {
		t.Error("a list goes on after a mistake")
	}
	if err := AsError(r.Finish(&whole)); err.Kind != BadFlag || err.Offset != 0 {
		t.Error(err)
	}
}

// D-2 and the bounds of lists in each form.
func TestLists(t *testing.T) {
	cases := []struct {
		name   string
		value  []byte
		shape  ListShape
		kind   Kind
		offset int
		len    int
	}{
		{"counted", []byte{9, 0, 0, 0, 2, 1, 2}, ListShape{Most: 2, MostBytes: 2}, 0, 0, 2},
		{"narrow count", []byte{9, 2, 1, 2}, ListShape{CountWidth: 1, Most: 2, MostBytes: 2}, 0, 0, 2},
		{"D-2 count", []byte{9, 0, 0, 0, 3, 1, 2}, ListShape{Most: 9, MostBytes: 9}, BadCount, 1, 0},
		{"D-2 count beyond all memory", []byte{9, 0xff, 0xff, 0xff, 0xff}, ListShape{Most: math.MaxInt, MostBytes: 9}, BadCount, 1, 0},
		{"count over its bound", []byte{9, 0, 0, 0, 2, 1, 2}, ListShape{Most: 1, MostBytes: 9}, OverBound, 1, 2},
		{"bytes over their bound", []byte{9, 0, 0, 0, 2, 1, 2}, ListShape{Most: 9, MostBytes: 1}, OverBound, 1, 2},
		{"flagged", []byte{9, 1, 7, 1, 8, 0}, ListShape{Form: ListFlagged, Most: 2, MostBytes: 5}, 0, 0, 2},
		{"flagged, bad flag", []byte{9, 1, 7, 2}, ListShape{Form: ListFlagged, Most: 2, MostBytes: 5}, BadFlag, 3, 0},
		{"flagged, cut off", []byte{9, 1, 7}, ListShape{Form: ListFlagged, Most: 2, MostBytes: 5}, Truncated, 3, 0},
		{"flagged over its bound", []byte{9, 1, 7, 1, 8, 0}, ListShape{Form: ListFlagged, Most: 1, MostBytes: 5}, OverBound, 1, 2},
		{"until the end", []byte{9, 7, 8}, ListShape{Form: ListUntilEnd, Most: 2, MostBytes: 2}, 0, 0, 2},
		{"until the end, empty", []byte{9}, ListShape{Form: ListUntilEnd, Most: 2, MostBytes: 2}, 0, 0, 0},
		{"until the end over its bound", []byte{9, 7, 8}, ListShape{Form: ListUntilEnd, Most: 1, MostBytes: 9}, OverBound, 1, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := NewReader(c.value, malformedCode)
			r.U8(&one)
			var items []byte
			walk := r.List(&two, 1, c.shape)
			for walk.Next(&r) {
				items = append(items, r.U8(&two))
			}
			list := walk.End(&r)
			err := AsError(r.Finish(&whole))
			if (err == nil) != (c.kind == 0) || err != nil && (err.Kind != c.kind || err.Offset != c.offset) {
				t.Fatalf("got %v", err)
			}
			if err != nil && err.Kind.Malformed() {
				return
			}
			if list.Len() != c.len || !bytes.Equal(walked(list), items) {
				t.Errorf("%d elements %x, walked %x", list.Len(), items, walked(list))
			}
			if c.kind == 0 && !bytes.Equal(written(t, c.shape, items), c.value[1:]) {
				t.Errorf("written as %x", written(t, c.shape, items))
			}
		})
	}
}

func walked(l List) []byte {
	var items []byte
	r, walk := l.Walk()
	for walk.Next(&r) {
		items = append(items, r.U8(Unnamed))
	}
	return items
}

func written(t *testing.T, shape ListShape, items []byte) []byte {
	t.Helper()
	w := NewWriter(nil, malformedCode)
	if w.ListStart(&two, len(items), shape) {
		for _, item := range items {
			w.ListItem(shape)
			w.U8(item)
		}
		w.ListEnd(&two, 0, shape)
	}
	out, err := w.Finish(&whole)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A writer refuses what the reader of the other side would refuse, at the same place, and leaves its destination as it was.
func TestWriterMistakes(t *testing.T) {
	cases := []struct {
		name   string
		write  func(*Writer)
		kind   Kind
		offset int
	}{
		{"text over its bound", func(w *Writer) { w.U8(1); w.String(&one, "abc", 2) }, OverBound, 1},
		{"text not UTF-8", func(w *Writer) { w.U8(1); w.String(&one, "ab\xff", 9) }, BadUTF8, 7},
		{"cut text not UTF-8", func(w *Writer) { w.Cut(&one, "\xff", 9) }, BadUTF8, 4},
		{"bytes over their bound", func(w *Writer) { w.Bytes(&one, make([]byte, 3), 2) }, OverBound, 0},
		{"route over its bound", func(w *Writer) { w.U16(1); w.Route(&one, "abc", 2) }, RouteText, 2},
		{"route not UTF-8", func(w *Writer) { w.Route(&one, "\xff", 2) }, RouteText, 0},
		{"rest over its bound", func(w *Writer) { w.RestString(&one, "abc", 2) }, OverBound, 0},
		{"rest not UTF-8", func(w *Writer) { w.U8(0); w.RestString(&one, "a\xff", 2) }, BadUTF8, 2},
		{"rest bytes over their bound", func(w *Writer) { w.RestBytes(&one, []byte("abc"), 2) }, OverBound, 0},
		{"zero", func(w *Writer) { w.U64(0); w.NonZero(&one, 0) }, Zero, 0},
		{"range", func(w *Writer) { w.U8(1); w.U32(5); w.Range(&one, 5, 0, 4) }, OutOfRange, 1},
		{"unknown number", func(w *Writer) { w.U8(5); w.Known(&one, false) }, BadEnum, 0},
		{"count over its bound", func(w *Writer) { w.U8(1); w.ListStart(&one, 3, ListShape{Most: 2}) }, OverBound, 1},
		{"part over its bound", func(w *Writer) { w.U8(1); s := w.Enter(2); w.U32(1); w.Leave(&one, s, 2, 3) }, OverBound, 1},
		{"malformed wins over size before it", func(w *Writer) { w.Bytes(&one, make([]byte, 3), 2); w.U8(5); w.Known(&two, false) }, BadEnum, 0},
		{"value longer than a record", func(w *Writer) { w.RestBytes(&one, make([]byte, MaxRecordValue+1), math.MaxInt) }, OverBound, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := NewWriter([]byte("kept"), malformedCode)
			c.write(&w)
			dst, failure := w.Finish(&whole)
			err := AsError(failure)
			if string(dst) != "kept" || err == nil || err.Kind != c.kind || err.Offset != c.offset {
				t.Fatalf("%q, %v", dst, err)
			}
		})
	}
}

// What a writer writes a reader reads.
func TestWriterRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, flag := rapid.Uint64().Draw(t, "n"), rapid.Bool().Draw(t, "flag")
		text, raw := rapid.StringN(0, -1, 40).Draw(t, "text"), rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "raw")
		w := NewWriter(nil, 0)
		w.U8(uint8(n))
		w.U16(uint16(n))
		w.U32(uint32(n))
		w.U64(n)
		w.Bool(flag)
		w.UUID([16]byte{15: uint8(n)})
		w.String(&one, text, 40)
		start := w.Enter(3)
		w.Bytes(&one, raw, 40)
		w.Leave(&one, start, 3, 44)
		w.Cut(&one, text, 40)
		w.Route(&one, text, 40)
		w.RestBytes(&one, raw, 40)
		b, err := w.Finish(&whole)
		if err != nil {
			t.Fatal(err)
		}
		r := NewReader(b, 0)
		if r.U8(&one) != uint8(n) || r.U16(&one) != uint16(n) || r.U32(&one) != uint32(n) || r.U64(&one) != n || r.Bool(&one) != flag || r.UUID(&one)[15] != uint8(n) {
			t.Fatal("numbers differ")
		}
		if string(r.String(&one, 40)) != text {
			t.Fatal("text differs")
		}
		outer := r.Enter(&one, 3, 44)
		if !bytes.Equal(r.Bytes(&one, 40), raw) {
			t.Fatal("bytes differ")
		}
		r.Leave(&one, outer)
		if string(r.String(&one, 40)) != text || string(r.Route(&one, 40)) != text || !bytes.Equal(r.RestBytes(&one, 40), raw) {
			t.Fatal("text differs")
		}
		if err := r.Finish(&whole); err != nil {
			t.Fatal(err)
		}
	})
}

// E-03: text is cut at a character boundary and loses no more than it must.
func TestCutText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, most := rapid.String().Draw(t, "text"), rapid.IntRange(0, 40).Draw(t, "most")
		got := CutText(text, most)
		if !strings.HasPrefix(text, got) || len(got) > most || !utf8.ValidString(got) {
			t.Fatalf("%q was cut to %q", text, got)
		}
		if len(got) == len(text) {
			return
		}
		_, size := utf8.DecodeRuneInString(text[len(got):])
		if len(got)+size <= most {
			t.Fatalf("%q was cut to %q, although a character more fits into %d", text, got, most)
		}
	})
	if CutText("abc", -1) != "" {
		t.Error("a negative bound")
	}
}

// Words of errors: nothing of the value is in them, a prescribed text is used for mistakes of size only.
func TestErrorTexts(t *testing.T) {
	r := reader(9)
	r.Range(&one, uint64(r.U8(&one)), 0, 1)
	size := AsError(r.Finish(&whole))
	if size.Text() != "one is wrong" || size.Error() != "toy.one at byte 0: out of range, see one_max" || size.Kind.Malformed() {
		t.Errorf("%q, %q", size.Text(), size.Error())
	}
	r = reader(9)
	r.Bool(&one)
	if err := AsError(r.Finish(&whole)); err.Text() != "toy.one at byte 0: bad flag" || !Malformed(err) {
		t.Errorf("%q", err.Text())
	}
	if AsError(nil) != nil || Malformed(nil) {
		t.Error("no error is an error")
	}
	for k := Truncated; k < kindEnd; k++ {
		if k.String() == "" || strings.HasPrefix(k.String(), "kind(") {
			t.Errorf("kind %d has no name", k)
		}
	}
	if Kind(0).String() != "kind(0)" || kindEnd.String() != "kind(12)" || Kind(0).Malformed() {
		t.Error("numbers that are no kinds")
	}
}

// Alias shares memory and takes nothing.
func TestAlias(t *testing.T) {
	b := []byte("abc")
	s := Alias(b)
	b[0] = 'x'
	if s != "xbc" || Alias(nil) != "" {
		t.Errorf("%q", s)
	}
	if n := testing.AllocsPerRun(100, func() { _ = Alias(b) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
