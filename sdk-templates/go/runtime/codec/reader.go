package codec

import (
	"encoding/binary"
	"unicode/utf8"
)

// Reader reads the fields of one record value in wire order. It is sticky: after a structural mistake every read returns a zero
// value, so generated code reads straight on and asks once at the end. Byte slices that it returns alias the value.
type Reader struct {
	mistakes

	value []byte // up to the end of the part that is being read
	off   int    // first byte not read yet
	at    int    // first byte of the field read last
}

// NewReader reads value. Structural mistakes are answered with code.
func NewReader(value []byte, code uint32) Reader {
	return Reader{mistakes: mistakes{code: code}, value: value}
}

// Finish checks that nothing is left over (D-4) and returns the mistake that decides; the type is *Error. The field names the
// message.
func (r *Reader) Finish(message *Field) error {
	if r.off < len(r.value) {
		r.fail(Trailing, r.off, message)
	}
	return r.FinishOpen()
}

// FinishOpen is Finish for messages whose later bytes are ignored.
func (r *Reader) FinishOpen() error {
	if err := r.err(); err != nil {
		return err
	}
	return nil
}

// Failed reports whether a structural mistake was met.
func (r *Reader) Failed() bool { return r.hard.Kind != 0 }

// Offset returns the offset of the first byte that was not read yet.
func (r *Reader) Offset() int { return r.off }

// More reports whether bytes remain: the presence of a tail field.
func (r *Reader) More() bool { return r.off < len(r.value) }

// Since returns the bytes read since offset start, nil after a structural mistake.
func (r *Reader) Since(start int) []byte {
	if r.Failed() {
		return nil
	}
	return r.value[start:r.off:r.off]
}

// fail notes a structural mistake and takes all bytes away from later reads.
func (r *Reader) fail(kind Kind, offset int, f *Field) {
	r.malformed(kind, offset, f)
	r.value, r.off = nil, 0
}

// take returns the next n bytes, nil when fewer are left.
func (r *Reader) take(f *Field, n int) []byte {
	r.at = r.off
	if len(r.value)-r.off < n {
		r.fail(Truncated, r.at, f)
		return nil
	}
	r.off += n
	return r.value[r.at:r.off:r.off]
}

// U8 reads one byte.
func (r *Reader) U8(f *Field) uint8 {
	b := r.take(f, 1)
	if b == nil {
		return 0
	}
	return b[0]
}

// U16 reads two bytes.
func (r *Reader) U16(f *Field) uint16 {
	b := r.take(f, 2)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// U32 reads four bytes.
func (r *Reader) U32(f *Field) uint32 {
	b := r.take(f, 4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// U64 reads eight bytes.
func (r *Reader) U64(f *Field) uint64 {
	b := r.take(f, 8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

// Bool reads a bool8 or a presence byte.
func (r *Reader) Bool(f *Field) bool {
	b := r.U8(f)
	if b > 1 {
		r.fail(BadFlag, r.at, f)
	}
	return b == 1
}

// UUID reads sixteen bytes.
func (r *Reader) UUID(f *Field) (id [16]byte) {
	copy(id[:], r.take(f, len(id)))
	return id
}

// String reads a length and so many bytes of UTF-8, at most the bound most.
func (r *Reader) String(f *Field, most int) []byte {
	text := r.Bytes(f, most)
	r.checkUTF8(f, text)
	return text
}

// Bytes reads a length and so many bytes, at most the bound most.
func (r *Reader) Bytes(f *Field, most int) []byte {
	b := r.sized(f)
	r.AtMost(f, len(b), most)
	return b
}

// Route reads the text of a route or selector. That it is too long or not UTF-8 is for the grammar to tell (D-3).
func (r *Reader) Route(f *Field, most int) []byte {
	text := r.sized(f)
	if len(text) > most || !utf8.Valid(text) {
		r.oversize(RouteText, r.at, f)
	}
	return text
}

// RestString reads all bytes left as UTF-8, at most the bound most.
func (r *Reader) RestString(f *Field, most int) []byte {
	text := r.RestBytes(f, most)
	r.checkUTF8(f, text)
	return text
}

// RestBytes reads all bytes left, at most the bound most.
func (r *Reader) RestBytes(f *Field, most int) []byte {
	b := r.take(f, len(r.value)-r.off)
	r.AtMost(f, len(b), most)
	return b
}

// number reads an integer of that many bytes.
func (r *Reader) number(f *Field, width int) uint64 {
	n := uint64(0)
	for _, b := range r.take(f, width) {
		n = n<<8 | uint64(b)
	}
	return n
}

// sized reads a length and so many bytes. The length is compared with the bytes that remain first (D-1).
func (r *Reader) sized(f *Field) []byte {
	n, at := r.U32(f), r.at
	if uint64(n) > uint64(len(r.value)-r.off) {
		r.fail(Truncated, at, f)
		return nil
	}
	b := r.take(f, int(n))
	r.at = at
	return b
}

// checkUTF8 checks the text that was read last.
func (r *Reader) checkUTF8(f *Field, text []byte) {
	if !utf8.Valid(text) {
		r.fail(BadUTF8, r.off-len(text)+invalidOffset(text), f)
	}
}

// Part is what a Reader returns to after a part with a length.
type Part struct {
	value []byte
	code  uint32
}

// Enter reads the length of a part, width bytes wide, and confines the reader to the part. Mistakes inside are answered with the code of the
// field when it has one. Leave or LeaveOpen ends the part.
func (r *Reader) Enter(f *Field, width, most int) (outer Part) {
	n := r.number(f, width)
	if n > uint64(len(r.value)-r.off) {
		r.fail(Truncated, r.at, f)
		return Part{}
	}
	r.AtMost(f, int(n), most)
	outer = Part{r.value, r.code}
	r.value = r.value[:r.off+int(n)]
	if f.Code != 0 {
		r.code = f.Code
	}
	return outer
}

// Leave checks that nothing of the part is left over (D-4) and gives the reader the rest of the value back.
func (r *Reader) Leave(f *Field, outer Part) {
	if r.off < len(r.value) {
		r.fail(Trailing, r.off, f)
	}
	r.LeaveOpen(outer)
}

// LeaveOpen is Leave for parts to which later versions may append fields: what is left is skipped.
func (r *Reader) LeaveOpen(outer Part) {
	if r.Failed() {
		return
	}
	r.off = len(r.value)
	r.value, r.code = outer.value, outer.code
}

// AtMost checks a length, count or size of the field read last.
func (r *Reader) AtMost(f *Field, size, most int) {
	if size > most {
		r.oversize(OverBound, r.at, f)
	}
}

// SizeAtMost checks the size of a list that began with the count at offset start.
func (r *Reader) SizeAtMost(f *Field, start, size, most int) {
	if size > most {
		r.oversize(OverBound, start, f)
	}
}

// Range checks the number read last.
func (r *Reader) Range(f *Field, number, least, most uint64) {
	if number < least || number > most {
		r.oversize(OutOfRange, r.at, f)
	}
}

// NonZero checks the number read last.
func (r *Reader) NonZero(f *Field, number uint64) {
	if number == 0 {
		r.fail(Zero, r.at, f)
	}
}

// Const checks the number read last.
func (r *Reader) Const(f *Field, number, want uint64) {
	if number != want {
		r.fail(BadConst, r.at, f)
	}
}

// Known checks the number of a closed enumeration read last.
func (r *Reader) Known(f *Field, known bool) {
	if !known {
		r.fail(BadEnum, r.at, f)
	}
}

// invalidOffset returns the offset of the first byte that does not continue valid UTF-8, the length of the text when it is valid.
func invalidOffset(text []byte) int {
	at := 0
	for at < len(text) {
		char, size := utf8.DecodeRune(text[at:])
		if char == utf8.RuneError && size == 1 {
			break
		}
		at += size
	}
	return at
}
