package codec

import (
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Span is a stretch of bytes of a value that means one thing.
type Span struct {
	Offset int
	Len    int    // never 0
	Name   string // path: "items[2].owner_id", "route length"
	Type   string // notation of the protocol: "u64"
	Text   string // what the bytes are
	Value  string // what they say
}

// Annotate names the bytes of a value with the help of its layout. Spans stand in byte order, touch each other and name each byte once.
// A value with a structural mistake is named up to the field to blame; with a mistake of size, as a whole. The error is the one that the
// strict decoder of the message returns: same kind, offset and field.
func Annotate(l *Layout, value []byte) ([]Span, *Error) {
	a := annotator{r: NewReader(value, l.Code)}
	a.layout(l, "")
	if l.Open && !a.r.Failed() && a.r.More() {
		a.add("later bytes", "rest", "Ignored by this version.", a.r.Offset(), len(value), hex.EncodeToString(value[a.r.Offset():]))
	}
	if l.Open {
		return a.spans, AsError(a.r.FinishOpen())
	}
	return a.spans, AsError(a.r.Finish(l.Value))
}

// annotator drives a Reader by tables and keeps what it meets.
type annotator struct {
	r     Reader
	spans []Span
}

// seen is what earlier fields of one layout said, by index.
type seen struct {
	numbers []uint64
	lengths []int
}

func (a *annotator) add(name, typ, text string, from, to int, value string) {
	if to > from {
		a.spans = append(a.spans, Span{Offset: from, Len: to - from, Name: name, Type: typ, Text: text, Value: value})
	}
}

// layout names the fields of a layout below the path prefix.
func (a *annotator) layout(l *Layout, prefix string) {
	s := seen{make([]uint64, len(l.Fields)), make([]int, len(l.Fields))}
	for i := range l.Fields {
		f := &l.Fields[i]
		if a.present(f, prefix+f.Name, &s) {
			a.field(f, prefix+f.Name, i, &s)
		}
	}
}

// present names the presence byte, when there is one, and tells whether the field is there.
func (a *annotator) present(f *LayoutField, path string, s *seen) bool {
	switch f.Presence {
	case Flagged:
		return a.flag(f.Field, path+" present", "Whether "+f.Name+" follows.")
	case TailFlagged:
		return a.r.More() && a.flag(f.Field, path+" present", "Whether "+f.Name+" follows.")
	case Tail:
		return a.r.More()
	case PresentWhen:
		number := s.numbers[f.When]
		return f.Bits == 0 && number != 0 || f.Bits != 0 && number&f.Bits == f.Bits
	}
	return true
}

// flag names a bool8 that tells something about other bytes.
func (a *annotator) flag(f *Field, name, text string) bool {
	from := a.r.Offset()
	set := a.r.Bool(f)
	if !a.r.Failed() {
		a.add(name, TypeBool.String(), text, from, from+1, strconv.FormatBool(set))
	}
	return set
}

// field names one field that is present.
func (a *annotator) field(f *LayoutField, path string, index int, s *seen) {
	from := a.r.Offset()
	switch f.Type {
	case TypeU8, TypeU16, TypeU32, TypeU64:
		s.numbers[index] = a.number(f, path)
	case TypeBool:
		if a.flag(f.Field, path, f.Doc) {
			s.numbers[index] = 1
		}
	case TypeUUID:
		id := a.r.UUID(f.Field)
		a.named(f, path, from, hex.EncodeToString(id[:]))
	case TypeList:
		a.list(f, path)
	case TypePart:
		a.part(f, path)
	case TypeChoice:
		a.choice(f, path)
	default:
		s.lengths[index] = a.sized(f, path, s)
	}
}

// named adds a span that ends where the reader stands.
func (a *annotator) named(f *LayoutField, path string, from int, value string) {
	if a.r.Failed() {
		return
	}
	if f.Secret {
		value = "(not shown)"
	}
	a.add(path, f.Type.String(), f.Doc, from, a.r.Offset(), value)
}

// number names a number and runs its checks in the order of generated decoders.
func (a *annotator) number(f *LayoutField, path string) uint64 {
	from := a.r.Offset()
	n := a.r.number(f.Field, f.Type.width())
	if f.Fixed {
		a.r.Const(f.Field, n, f.Const)
	}
	if f.Closed {
		a.r.Known(f.Field, nameOf(f.Names, n) != "")
	}
	if f.NonZero {
		a.r.NonZero(f.Field, n)
	}
	if f.Ranged {
		a.r.Range(f.Field, n, f.Least, f.Most)
	}
	a.named(f, path, from, f.numberText(n))
	return n
}

// width is the number of bytes of a number.
func (t Type) width() int { return 1 << (t - TypeU8) }

// sized names text, bytes or a route with the length in front, and returns how long it is.
func (a *annotator) sized(f *LayoutField, path string, s *seen) int {
	from := a.r.Offset()
	most := f.MaxBytes
	for _, other := range f.Minus {
		most -= s.lengths[other]
	}
	content := a.content(f, most)
	if a.r.Failed() {
		return 0
	}
	start := a.r.Offset() - len(content)
	a.add(path+" length", TypeU32.String(), "Bytes of "+f.Name+".", from, start, strconv.Itoa(len(content)))
	a.named(f, path, start, contentText(f, content))
	return len(content)
}

// content reads what a generated decoder reads for the field.
func (a *annotator) content(f *LayoutField, most int) []byte {
	rest := f.Presence == Rest
	switch {
	case f.Type == TypeRoute, f.Type == TypeSelector:
		return a.r.Route(f.Field, most)
	case f.Type == TypeString && rest:
		return a.r.RestString(f.Field, most)
	case f.Type == TypeString:
		return a.r.String(f.Field, most)
	case rest:
		return a.r.RestBytes(f.Field, most)
	}
	return a.r.Bytes(f.Field, most)
}

// part names a struct, with its length when it has one.
func (a *annotator) part(f *LayoutField, path string) {
	if f.Length == 0 {
		a.layout(f.Part, path+".")
		return
	}
	from := a.r.Offset()
	outer := a.r.Enter(f.Field, f.Length, f.MaxBytes)
	if a.r.Failed() {
		return
	}
	size := len(a.r.value) - a.r.off
	a.add(path+" length", typeOfWidth(f.Length).String(), "Bytes of "+f.Name+".", from, a.r.Offset(), strconv.Itoa(size))
	a.layout(f.Part, path+".")
	if !f.Open {
		a.r.Leave(f.Field, outer)
		return
	}
	if rest := a.r.value[a.r.off:]; len(rest) > 0 {
		a.add(path+" later bytes", "rest", "Ignored by this version.", a.r.off, len(a.r.value), hex.EncodeToString(rest))
	}
	a.r.LeaveOpen(outer)
}

// choice names the number of a choice and the fields of the form that it names.
func (a *annotator) choice(f *LayoutField, path string) {
	from := a.r.Offset()
	n := a.r.number(f.Choice, f.Width)
	var form *Layout
	for i := range f.Forms {
		if f.Forms[i].Number == n {
			form = f.Forms[i].Layout
		}
	}
	a.r.Known(f.Choice, form != nil)
	if a.r.Failed() {
		return
	}
	a.add(path+" kind", typeOfWidth(f.Width).String(), "Which form follows.", from, a.r.Offset(), strconv.FormatUint(n, 10)+" "+form.Name)
	a.layout(form, path+".")
}

// list names the count or the flags of a list and its elements.
func (a *annotator) list(f *LayoutField, path string) {
	from := a.r.Offset()
	walk := a.r.List(f.Field, f.Elem.smallest(), f.List)
	if a.r.Failed() {
		return
	}
	a.add(path+" count", typeOfWidth(f.List.countWidth()).String(), "Number of "+f.Name+".", from, a.r.Offset(), strconv.Itoa(walk.left))
	for i := 0; ; i++ {
		from = a.r.Offset()
		more := walk.Next(&a.r)
		if f.List.Form == ListFlagged && !a.r.Failed() {
			a.add(path+" more", TypeBool.String(), "Whether an element follows.", from, a.r.Offset(), strconv.FormatBool(more))
		}
		if !more {
			break
		}
		elem := seen{make([]uint64, 1), make([]int, 1)}
		a.field(f.Elem, path+"["+strconv.Itoa(i)+"]", 0, &elem)
	}
	walk.End(&a.r)
}

// smallest is the smallest size of a field that is present, in bytes.
func (f *LayoutField) smallest() int {
	switch f.Type {
	case TypeU8, TypeU16, TypeU32, TypeU64:
		return f.Type.width()
	case TypeBool:
		return 1
	case TypeUUID:
		return 16
	case TypeList:
		return f.smallestList()
	case TypePart:
		return f.Length + f.Part.smallest()
	case TypeChoice:
		return f.Width + smallestForm(f.Forms)
	}
	return 4
}

func (f *LayoutField) smallestList() int {
	switch f.List.Form {
	case ListFlagged:
		return 1
	case ListUntilEnd:
		return 0
	}
	return f.List.countWidth()
}

func smallestForm(forms []Form) int {
	least := -1
	for i := range forms {
		if n := forms[i].Layout.smallest(); least < 0 || n < least {
			least = n
		}
	}
	return max(least, 0)
}

// smallest is the smallest size of a value, in bytes.
func (l *Layout) smallest() int {
	sum := 0
	for i := range l.Fields {
		switch f := &l.Fields[i]; f.Presence {
		case Always:
			sum += f.smallest()
		case Flagged:
			sum++
		}
	}
	return sum
}

func typeOfWidth(width int) Type {
	switch width {
	case 1:
		return TypeU8
	case 2:
		return TypeU16
	case 8:
		return TypeU64
	}
	return TypeU32
}

func nameOf(names []Name, n uint64) string {
	for _, name := range names {
		if name.Number == n {
			return name.Name
		}
	}
	return ""
}

// numberText is a number with its name, the names of its bits or its unit.
func (f *LayoutField) numberText(n uint64) string {
	text := strconv.FormatUint(n, 10)
	switch {
	case f.Names != nil:
		if name := nameOf(f.Names, n); name != "" {
			return text + " " + name
		}
	case f.Flags != nil:
		return "0x" + strconv.FormatUint(n, 16) + " " + strings.Join(flagNames(f.Flags, n), ", ")
	case f.Unit != "":
		return text + " " + f.Unit
	}
	return text
}

func flagNames(flags []Name, n uint64) []string {
	names := []string{}
	for bit := range 64 {
		mask := uint64(1) << bit
		if n&mask == 0 {
			continue
		}
		name := nameOf(flags, mask)
		if name == "" {
			name = "bit " + strconv.Itoa(bit)
		}
		names = append(names, name)
	}
	return names
}

// contentText is text in quotes, or bytes in hex.
func contentText(f *LayoutField, content []byte) string {
	if f.Type == TypeBytes || !utf8.Valid(content) {
		return hex.EncodeToString(content)
	}
	return strconv.Quote(string(content))
}
