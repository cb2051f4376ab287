package codec

// ListForm says how the end of a list is known.
type ListForm uint8

// The forms of lists.
const (
	ListCounted  ListForm = iota // a count stands in front
	ListFlagged                  // a bool8 stands in front of each element; 0 ends the list
	ListUntilEnd                 // the elements take all bytes that remain
)

// ListShape is the form of a list and its bounds.
type ListShape struct {
	Form        ListForm
	CountWidth  int // bytes of the count; 0 means 4
	Most        int // elements
	MostBytes   int // bytes of all elements
	MostElement int // bytes of one element that is text or bytes
}

func (s ListShape) countWidth() int {
	if s.CountWidth == 0 {
		return 4
	}
	return s.CountWidth
}

// List is the encoded form of a list that was checked when it was read.
type List struct {
	form    ListForm
	count   int
	encoded []byte // the elements, with their flags
}

// Len returns the number of elements.
func (l List) Len() int { return l.count }

// Bytes returns the encoded elements. They alias the value that the list was read from.
func (l List) Bytes() []byte { return l.encoded }

// Walk starts to read the elements once more.
func (l List) Walk() (Reader, ListWalk) {
	return NewReader(l.encoded, 0), ListWalk{field: Unnamed, shape: ListShape{Form: l.form}, left: l.count}
}

// ListWalk leads a Reader over the elements of a list. Its use is
//
//	walk := r.List(field, smallest, shape)
//	for walk.Next(&r) {
//		// read one element
//	}
//	list := walk.End(&r)
type ListWalk struct {
	field *Field
	shape ListShape
	start int // offset of the list
	items int // offset of the first element
	left  int // elements of a counted list that were not read yet
	count int // elements read
}

// Unnamed stands for the field of a list that is read again: it was checked, so no error can name it.
var Unnamed = &Field{}

// List begins a list whose elements take at least smallest bytes each (D-2).
func (r *Reader) List(f *Field, smallest int, shape ListShape) ListWalk {
	walk := ListWalk{field: f, shape: shape, start: r.off}
	if shape.Form == ListCounted {
		walk.left = r.count(f, smallest, shape.countWidth())
	}
	walk.items = r.off
	return walk
}

// count reads a count and compares it with the bytes that remain (D-2).
func (r *Reader) count(f *Field, smallest, width int) int {
	n := r.number(f, width)
	if n > uint64((len(r.value)-r.off)/smallest) {
		r.fail(BadCount, r.at, f)
		return 0
	}
	return int(n)
}

// Next tells whether an element follows.
func (w *ListWalk) Next(r *Reader) bool {
	if r.Failed() || !w.more(r) {
		return false
	}
	w.count++
	return true
}

func (w *ListWalk) more(r *Reader) bool {
	switch w.shape.Form {
	case ListFlagged:
		return r.Bool(w.field)
	case ListUntilEnd:
		return r.More()
	}
	w.left--
	return w.left >= 0
}

// End checks the bounds of the list and returns it.
func (w *ListWalk) End(r *Reader) List {
	encoded := r.Since(w.items)
	r.SizeAtMost(w.field, w.start, w.count, w.shape.Most)
	r.SizeAtMost(w.field, w.start, len(encoded), w.shape.MostBytes)
	return List{form: w.shape.Form, count: w.count, encoded: encoded}
}

// ListStart begins a list of n elements and reports whether they may follow.
func (w *Writer) ListStart(f *Field, n int, shape ListShape) bool {
	w.at = len(w.buf)
	if !w.fits(f, n, shape.Most) {
		return false
	}
	if shape.Form == ListCounted {
		w.number(uint64(n), shape.countWidth())
	}
	return true
}

// ListItem stands in front of every element.
func (w *Writer) ListItem(shape ListShape) {
	if shape.Form == ListFlagged {
		w.Bool(true)
	}
}

// ListEnd ends the list that began at offset start.
func (w *Writer) ListEnd(f *Field, start int, shape ListShape) {
	if shape.Form == ListFlagged {
		w.Bool(false)
	}
	size := w.Offset() - start
	if shape.Form == ListCounted {
		size -= shape.countWidth()
	}
	w.SizeAtMost(f, start, size, shape.MostBytes)
}
