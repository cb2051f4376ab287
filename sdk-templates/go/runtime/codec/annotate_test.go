package codec

import (
	"fmt"
	"strings"
	"testing"
)

// toy is a layout with every form that a table can have.
var toy = Layout{
	Name:  "toy",
	Code:  malformedCode,
	Value: &whole,
	Fields: []LayoutField{
		{Name: "status", Field: &one, Type: TypeU8, Fixed: true, Const: 3},
		{Name: "bits", Field: &one, Type: TypeU16, Flags: []Name{{1, "first"}}},
		{Name: "kind", Field: &one, Type: TypeU8, Closed: true, Names: []Name{{0, "none"}, {1, "some"}}},
		{Name: "secret", Field: &one, Type: TypeString, MaxBytes: 4, Secret: true},
		{Name: "raw", Field: &two, Type: TypeBytes, MaxBytes: 6, Minus: []int{3}},
		{Name: "wait", Field: &two, Type: TypeU8, Unit: "s", Presence: PresentWhen, When: 1, Bits: 2, Ranged: true, Least: 1, Most: 5},
		{Name: "maybe", Field: &two, Type: TypeU8, Presence: Flagged, NonZero: true},
		{Name: "ext", Field: &two, Type: TypePart, Length: 1, MaxBytes: 4, Open: true, Part: &Layout{Fields: []LayoutField{{Name: "n", Field: &one, Type: TypeU8}}}},
		{Name: "items", Field: &two, Type: TypeList, List: ListShape{Form: ListFlagged, Most: 2, MostBytes: 9}, Elem: &LayoutField{Name: "items", Field: &two, Type: TypeU8}},
		{Name: "choice", Field: &two, Type: TypeChoice, Width: 1, Choice: &one, Forms: []Form{
			{4, &Layout{Name: "toy.four", Fields: []LayoutField{{Name: "id", Field: &one, Type: TypeUUID}}}},
			{5, &Layout{Name: "toy.five", Fields: []LayoutField{{Name: "yes", Field: &one, Type: TypeBool}}}},
		}},
		{Name: "late", Field: &two, Type: TypeU8, Presence: TailFlagged},
	},
}

// summary is spans in one line each: offset, length, name, type, value.
func summary(spans []Span) string {
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%d+%d %s %s %s\n", s.Offset, s.Len, s.Name, s.Type, s.Value)
	}
	return b.String()
}

var toyValue = []byte{
	3, 0, 3, 1, 0, 0, 0, 2, 'h', 'i', 0, 0, 0, 1, 0xff, 4, 1, 9, 2, 7, 8, 1, 5, 0, 5, 1, 1, 6,
}

// Every byte is named once: with its number, name, bits, unit, text or as bytes; secrets are not shown.
func TestAnnotateNamesEveryByte(t *testing.T) {
	spans, err := Annotate(&toy, toyValue)
	if err != nil {
		t.Fatal(err)
	}
	want := `0+1 status u8 3
1+2 bits u16 0x3 first, bit 1
3+1 kind u8 1 some
4+4 secret length u32 2
8+2 secret str (not shown)
10+4 raw length u32 1
14+1 raw bytes ff
15+1 wait u8 4 s
16+1 maybe present bool8 true
17+1 maybe u8 9
18+1 ext length u8 2
19+1 ext.n u8 7
20+1 ext later bytes rest 08
21+1 items more bool8 true
22+1 items[0] u8 5
23+1 items more bool8 false
24+1 choice kind u8 5 toy.five
25+1 choice.yes bool8 true
26+1 late present bool8 true
27+1 late u8 6
`
	if got := summary(spans); got != want {
		t.Errorf("got\n%s", got)
	}
}

// Each mistake stops the naming at the field to blame; a mistake of size does not stop it.
func TestAnnotateMistakes(t *testing.T) {
	cases := []struct {
		name   string
		at     int
		to     byte
		kind   Kind
		offset int
		code   uint32
		named  int
	}{
		{"constant", 0, 4, BadConst, 0, malformedCode, 0},
		{"number with a code of its own", 3, 9, BadEnum, 3, 11, 3},
		{"length", 7, 99, Truncated, 4, malformedCode, 4},
		{"text", 9, 0xff, BadUTF8, 9, malformedCode, 4},
		{"range", 15, 6, OutOfRange, 15, malformedCode, len(toyValue)},
		{"flag", 16, 2, BadFlag, 16, malformedCode, 16},
		{"zero", 17, 0, Zero, 17, malformedCode, 17},
		{"part cut off", 18, 99, Truncated, 18, malformedCode, 18},
		{"flag of a list", 23, 2, BadFlag, 23, malformedCode, 23},
		{"choice", 24, 6, BadEnum, 24, 11, 24},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			value := append([]byte{}, toyValue...)
			value[c.at] = c.to
			spans, err := Annotate(&toy, value)
			end := 0
			for _, s := range spans {
				end += s.Len
			}
			if err == nil || err.Kind != c.kind || err.Offset != c.offset || err.Code() != c.code || end != c.named {
				t.Errorf("got %v with code %d, %d bytes named\n%s", err, err.Code(), end, summary(spans))
			}
		})
	}
}

// A value may end before tails; bytes after the last field are a mistake, or named as ignored.
func TestAnnotateEnds(t *testing.T) {
	if spans, err := Annotate(&toy, toyValue[:26]); err != nil || len(spans) != 18 {
		t.Errorf("%d spans, %v", len(spans), err)
	}
	longer := append(append([]byte{}, toyValue...), 1, 2)
	if _, err := Annotate(&toy, longer); err == nil || err.Kind != Trailing || err.Offset != len(toyValue) || err.Field != &whole {
		t.Errorf("got %v", err)
	}
	open := toy
	open.Open = true
	spans, err := Annotate(&open, longer)
	if last := spans[len(spans)-1]; err != nil || last.Name != "later bytes" || last.Offset != len(toyValue) || last.Len != 2 {
		t.Errorf("got %+v, %v", last, err)
	}
}

func TestTypeNames(t *testing.T) {
	for typ := TypeU8; typ < typeEnd; typ++ {
		if typ.String() == "" || typ.String() == "none" {
			t.Errorf("type %d has no name", typ)
		}
	}
	if Type(0).String() != "none" || typeEnd.String() != "none" {
		t.Error("numbers that are no types")
	}
}

// No bytes make the annotator panic, hang, or name a byte twice.
func FuzzAnnotate(f *testing.F) {
	f.Add(toyValue)
	f.Add(toyValue[:20])
	f.Fuzz(func(t *testing.T, value []byte) {
		spans, err := Annotate(&toy, value)
		end := 0
		for _, s := range spans {
			if s.Offset != end || s.Len <= 0 {
				t.Fatalf("span %+v does not begin at %d", s, end)
			}
			end += s.Len
		}
		if (err == nil || !err.Kind.Malformed()) && end != len(value) {
			t.Fatalf("%d of %d bytes are named: %v", end, len(value), err)
		}
	})
}
