package wiretest

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
	"pgregory.net/rapid"
)

// all are the layouts of all messages and of the parts that they share.
func all() []wire.MessageLayout {
	return append(append([]wire.MessageLayout{}, wire.Messages...), wire.Inners...)
}

// forEach runs a test for every layout.
func forEach(t *testing.T, test func(*testing.T, wire.MessageLayout)) {
	t.Helper()
	if len(wire.Messages) == 0 {
		t.Fatal("there are no messages")
	}
	for _, m := range all() {
		t.Run(m.Name, func(t *testing.T) { test(t, m) })
	}
}

// builder makes values out of layouts, field by field. Each hook may replace what a field holds; the default is drawn at random within
// the bounds of the field.
type builder struct {
	t     *rapid.T
	short bool // texts and lists stay short, so that many runs are quick

	// choose returns the bytes of a field that is present, without presence and length; nil means at random.
	choose func(path string, f *codec.LayoutField) []byte

	at map[string]int // where each field begins: its flag, length or count
}

func newBuilder(t *rapid.T) *builder { return &builder{t: t, short: true, at: map[string]int{}} }

// scope is what earlier fields of a layout hold.
type scope struct {
	numbers []uint64
	lengths []int
}

func (b *builder) layout(dst []byte, l *codec.Layout, prefix string) []byte {
	s := scope{make([]uint64, len(l.Fields)), make([]int, len(l.Fields))}
	ends := false // no field follows
	for i := range l.Fields {
		f := &l.Fields[i]
		path := prefix + f.Name
		b.at[path] = len(dst)
		switch f.Presence {
		case codec.Flagged:
			present := rapid.Bool().Draw(b.t, path+" present")
			dst = codec.AppendBool(dst, present)
			if !present {
				continue
			}
		case codec.Tail:
			ends = ends || !rapid.Bool().Draw(b.t, path+" present")
			if ends {
				continue
			}
		case codec.TailFlagged:
			ends = ends || !rapid.Bool().Draw(b.t, path+" flag present")
			if ends {
				continue
			}
			dst = codec.AppendBool(dst, true) // a flag that is 0 at the end is left out by encoders
		case codec.PresentWhen:
			if n := s.numbers[f.When]; f.Bits == 0 && n == 0 || n&f.Bits != f.Bits {
				continue
			}
		}
		dst = b.field(dst, f, path, i, &s)
	}
	return dst
}

func (b *builder) field(dst []byte, f *codec.LayoutField, path string, i int, s *scope) []byte {
	switch f.Type {
	case codec.TypeU8, codec.TypeU16, codec.TypeU32, codec.TypeU64, codec.TypeBool:
		raw := b.chosen(path, f)
		if raw == nil {
			raw = number(f, b.number(f, path))
		}
		s.numbers[i] = value(raw)
		return append(dst, raw...)
	case codec.TypeUUID:
		return append(dst, rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(b.t, path)...)
	case codec.TypeList:
		return b.list(dst, f, path)
	case codec.TypePart:
		return b.part(dst, f, path)
	case codec.TypeChoice:
		form := rapid.SampledFrom(f.Forms).Draw(b.t, path)
		return b.layout(append(dst, wide(form.Number, f.Width)...), form.Layout, path+".")
	}
	text := b.chosen(path, f)
	if text == nil {
		text = b.text(f, path, f.MaxBytes)
	}
	s.lengths[i] = len(text)
	if f.Presence != codec.Rest {
		dst = codec.AppendU32(dst, uint32(len(text)))
	}
	return append(dst, text...)
}

func (b *builder) chosen(path string, f *codec.LayoutField) []byte {
	if b.choose == nil {
		return nil
	}
	return b.choose(path, f)
}

// number draws a number that the field may hold; never 0 for a tail, because a tail that is 0 is left out.
func (b *builder) number(f *codec.LayoutField, path string) uint64 {
	switch {
	case f.Fixed:
		return f.Const
	case f.Type == codec.TypeBool && f.Presence == codec.Tail:
		return 1
	case f.Type == codec.TypeBool:
		return uint64(rapid.IntRange(0, 1).Draw(b.t, path))
	case f.Closed:
		return rapid.SampledFrom(f.Names).Draw(b.t, path).Number
	}
	least, most := uint64(0), uint64(1)<<(8*width(f.Type)-1)<<1-1
	if f.Ranged {
		least, most = max(least, f.Least), min(most, f.Most)
	}
	if f.NonZero || f.Presence == codec.Tail {
		least = max(least, 1)
	}
	if f.Flags != nil && rapid.Bool().Draw(b.t, path+" known") {
		return rapid.SampledFrom(f.Flags).Draw(b.t, path).Number
	}
	return rapid.Uint64Range(least, most).Draw(b.t, path)
}

func (b *builder) text(f *codec.LayoutField, path string, most int) []byte {
	if b.short {
		most = min(most, 12)
	}
	if f.Type == codec.TypeBytes {
		return rapid.SliceOfN(rapid.Byte(), 0, most).Draw(b.t, path)
	}
	return []byte(rapid.StringN(0, most/4, most).Draw(b.t, path))
}

func (b *builder) list(dst []byte, f *codec.LayoutField, path string) []byte {
	n := rapid.IntRange(0, min(f.List.Most, 3)).Draw(b.t, path+" count")
	if f.List.Form == codec.ListCounted {
		w := f.List.CountWidth
		if w == 0 {
			w = 4
		}
		dst = append(dst, wide(uint64(n), w)...)
	}
	for i := range n {
		if f.List.Form == codec.ListFlagged {
			dst = append(dst, 1)
		}
		elem := scope{make([]uint64, 1), make([]int, 1)}
		item := path + "[" + string(rune('0'+i)) + "]"
		b.at[item] = len(dst)
		dst = b.field(dst, f.Elem, item, 0, &elem)
	}
	if f.List.Form == codec.ListFlagged {
		dst = append(dst, 0)
	}
	return dst
}

func (b *builder) part(dst []byte, f *codec.LayoutField, path string) []byte {
	if f.Length == 0 {
		return b.layout(dst, f.Part, path+".")
	}
	start := len(dst)
	dst = b.layout(append(dst, make([]byte, f.Length)...), f.Part, path+".")
	copy(dst[start:], wide(uint64(len(dst)-start-f.Length), f.Length))
	return dst
}

func width(t codec.Type) int {
	if t == codec.TypeBool {
		return 1
	}
	return 1 << (t - codec.TypeU8)
}

func number(f *codec.LayoutField, n uint64) []byte { return wide(n, width(f.Type)) }

func wide(n uint64, width int) []byte {
	return binary.BigEndian.AppendUint64(nil, n)[8-width:]
}

func value(raw []byte) uint64 {
	n := uint64(0)
	for _, b := range raw {
		n = n<<8 | uint64(b)
	}
	return n
}

// valid draws a valid value of m.
func valid(t *rapid.T, m wire.MessageLayout) []byte {
	return newBuilder(t).layout(nil, m.Layout, "")
}

// example is the value that build makes of m with that seed.
func example(build *builder, m wire.MessageLayout, seed int) []byte {
	return rapid.Custom(func(t *rapid.T) []byte {
		rapid.Bool().Draw(t, "unused") // values without a choice are examples too
		build.t = t
		return build.layout(nil, m.Layout, "")
	}).Example(seed)
}

// damaged draws a value that was valid before bytes of it were changed, cut off, doubled or appended; or plain noise.
func damaged(t *rapid.T, m wire.MessageLayout) []byte {
	b := valid(t, m)
	if rapid.IntRange(0, 5).Draw(t, "noise") == 0 {
		return rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "value")
	}
	for range rapid.IntRange(1, 3).Draw(t, "changes") {
		b = change(t, b)
	}
	return b
}

func change(t *rapid.T, b []byte) []byte {
	at := rapid.IntRange(0, len(b)).Draw(t, "at")
	switch rapid.IntRange(0, 3).Draw(t, "change") {
	case 0:
		return b[:at]
	case 1:
		return append(b, rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "more")...)
	case 2:
		return append(b[:at:at], append(rapid.SliceOfN(rapid.Byte(), 1, 3).Draw(t, "insert"), b[at:]...)...)
	}
	if at == len(b) {
		return b
	}
	out := append([]byte{}, b...)
	out[at] = rapid.SampledFrom([]byte{0, 1, 2, 0x7f, 0x80, 0xff, b[at] + 1, b[at] ^ 0x10}).Draw(t, "byte")
	return out
}

// long is text of n bytes.
func long(n int) string { return strings.Repeat("x", n) }
