package codec

import (
	"encoding/binary"
	"unicode/utf8"
	"unsafe"
)

// AppendU8 appends one byte.
func AppendU8(dst []byte, v uint8) []byte { return append(dst, v) }

// AppendU16 appends two bytes.
func AppendU16(dst []byte, v uint16) []byte { return binary.BigEndian.AppendUint16(dst, v) }

// AppendU32 appends four bytes.
func AppendU32(dst []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(dst, v) }

// AppendU64 appends eight bytes.
func AppendU64(dst []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(dst, v) }

// AppendBool appends a bool8.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendString appends the length of text, four bytes, and text.
func AppendString(dst []byte, text string) []byte {
	return append(AppendU32(dst, uint32(len(text))), text...)
}

// AppendBytes appends the length of b, four bytes, and b.
func AppendBytes(dst, b []byte) []byte {
	return append(AppendU32(dst, uint32(len(b))), b...)
}

// CutText returns as many whole characters of text as fit into most bytes (E-03).
func CutText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := max(most, 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// Alias returns b as a string that shares its memory: it is valid only as long as b is not written to. Use it to look at a received
// text and clone what is kept (D-8).
func Alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
