package codec

import (
	"unicode/utf8"
)

// MaxRecordValue is the largest value that the length of a record can tell, in bytes (W-02).
const MaxRecordValue = 1<<16 - 1

// Writer appends the fields of one record value in wire order and checks them as the Reader of the other side will. It is sticky:
// generated code writes straight on and asks once at the end.
type Writer struct {
	mistakes

	buf   []byte
	start int // where the value begins in buf
	at    int // where the field written last begins in buf
}

// NewWriter appends to dst. Structural mistakes carry code.
func NewWriter(dst []byte, code uint32) Writer {
	return Writer{mistakes: mistakes{code: code}, buf: dst, start: len(dst)}
}

// Finish returns the destination with the value, or the destination as it was and the mistake that decides; the type of the error is
// *Error. The field names the message.
func (w *Writer) Finish(message *Field) ([]byte, error) {
	if len(w.buf)-w.start > MaxRecordValue {
		w.oversize(OverBound, 0, message)
	}
	if err := w.err(); err != nil {
		return w.buf[:w.start], err
	}
	return w.buf, nil
}

// Offset returns the number of bytes of the value written so far.
func (w *Writer) Offset() int { return len(w.buf) - w.start }

// U8 writes one byte.
func (w *Writer) U8(v uint8) {
	w.at = len(w.buf)
	w.buf = append(w.buf, v)
}

// U16 writes two bytes.
func (w *Writer) U16(v uint16) {
	w.at = len(w.buf)
	w.buf = AppendU16(w.buf, v)
}

// U32 writes four bytes.
func (w *Writer) U32(v uint32) {
	w.at = len(w.buf)
	w.buf = AppendU32(w.buf, v)
}

// U64 writes eight bytes.
func (w *Writer) U64(v uint64) {
	w.at = len(w.buf)
	w.buf = AppendU64(w.buf, v)
}

// Bool writes a bool8 or a presence byte.
func (w *Writer) Bool(v bool) {
	w.at = len(w.buf)
	w.buf = AppendBool(w.buf, v)
}

// UUID writes sixteen bytes.
func (w *Writer) UUID(id [16]byte) {
	w.at = len(w.buf)
	w.buf = append(w.buf, id[:]...)
}

// String writes a length and UTF-8, at most the bound most.
func (w *Writer) String(f *Field, text string, most int) {
	w.at = len(w.buf)
	if !w.fits(f, len(text), most) {
		return
	}
	w.buf = AppendString(w.buf, text)
	w.checkUTF8(f, text)
}

// Cut writes a length and as many whole characters of text as the bound most allows.
func (w *Writer) Cut(f *Field, text string, most int) {
	w.at = len(w.buf)
	text = CutText(text, most)
	w.buf = AppendString(w.buf, text)
	w.checkUTF8(f, text)
}

// Bytes writes a length and bytes, at most the bound most.
func (w *Writer) Bytes(f *Field, b []byte, most int) {
	w.at = len(w.buf)
	if w.fits(f, len(b), most) {
		w.buf = AppendBytes(w.buf, b)
	}
}

// Route writes the text of a route or selector.
func (w *Writer) Route(f *Field, text string, most int) {
	w.at = len(w.buf)
	if len(text) > most || !utf8.ValidString(text) {
		w.oversize(RouteText, w.at-w.start, f)
		return
	}
	w.buf = AppendString(w.buf, text)
}

// RestString writes UTF-8 without a length, at most the bound most.
func (w *Writer) RestString(f *Field, text string, most int) {
	w.at = len(w.buf)
	if !w.fits(f, len(text), most) {
		return
	}
	w.buf = append(w.buf, text...)
	w.checkUTF8(f, text)
}

// RestBytes writes bytes without a length, at most the bound most.
func (w *Writer) RestBytes(f *Field, b []byte, most int) {
	w.at = len(w.buf)
	if w.fits(f, len(b), most) {
		w.buf = append(w.buf, b...)
	}
}

// Enter leaves room for the length of a part, width bytes wide. Leave fills it in.
func (w *Writer) Enter(width int) (start int) {
	w.at = len(w.buf)
	w.number(0, width)
	return len(w.buf)
}

// Leave fills in the length of the part that began at start.
func (w *Writer) Leave(f *Field, start, width, most int) {
	n := len(w.buf) - start
	w.at = start - width
	w.AtMost(f, n, most)
	for i := range width {
		w.buf[start-1-i] = byte(n >> (8 * i))
	}
}

// number writes an integer of that many bytes.
func (w *Writer) number(n uint64, width int) {
	for i := range width {
		w.buf = append(w.buf, byte(n>>(8*(width-1-i))))
	}
}

// fits checks a length or count before so much is written.
func (w *Writer) fits(f *Field, size, most int) bool {
	w.AtMost(f, size, most)
	return size <= most
}

// checkUTF8 checks the text that was written last.
func (w *Writer) checkUTF8(f *Field, text string) {
	if !utf8.ValidString(text) {
		w.malformed(BadUTF8, w.Offset()-len(text)+invalidOffset([]byte(text)), f)
	}
}

// AtMost checks a length, count or size of the field written last.
func (w *Writer) AtMost(f *Field, size, most int) {
	if size > most {
		w.oversize(OverBound, w.at-w.start, f)
	}
}

// SizeAtMost checks the size of a list that began with the count at offset start.
func (w *Writer) SizeAtMost(f *Field, start, size, most int) {
	if size > most {
		w.oversize(OverBound, start, f)
	}
}

// Range checks the number written last.
func (w *Writer) Range(f *Field, number, least, most uint64) {
	if number < least || number > most {
		w.oversize(OutOfRange, w.at-w.start, f)
	}
}

// NonZero checks the number written last.
func (w *Writer) NonZero(f *Field, number uint64) {
	if number == 0 {
		w.malformed(Zero, w.at-w.start, f)
	}
}

// Known checks the number of a closed enumeration written last.
func (w *Writer) Known(f *Field, known bool) {
	if !known {
		w.malformed(BadEnum, w.at-w.start, f)
	}
}
