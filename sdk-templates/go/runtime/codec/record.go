package codec

import (
	"encoding/binary"
	"errors"
)

// The two ways in which the records of a transport message can be broken.
var (
	ErrBadRecord = errors.New("bad record") // a small type in the long form (W-01)
	ErrBadFrame  = errors.New("bad frame")  // empty, cut off, or too many records (W-03)
)

const (
	escape       = 0xff // first byte of a type that takes three bytes
	shortHeader  = 3
	longHeader   = 5
	lengthOfSize = 2
)

// Record is one record of a transport message. Value aliases the message.
type Record struct {
	Type  uint16
	Value []byte
}

// RecordHeaderSize returns the size of the header of a record of that type: 3 or 5 bytes (W-01, W-02).
func RecordHeaderSize(typ uint16) int {
	if typ < escape {
		return shortHeader
	}
	return longHeader
}

// AppendRecordHeader appends the header of a record of that type with a value of valueLen bytes (W-01, W-02). It panics when
// valueLen is above MaxRecordValue, which no Writer lets happen.
func AppendRecordHeader(dst []byte, typ uint16, valueLen int) []byte {
	if valueLen < 0 || valueLen > MaxRecordValue {
		panic("codec: a record value of that length cannot be encoded")
	}
	if typ < escape {
		dst = append(dst, byte(typ))
	} else {
		dst = AppendU16(append(dst, escape), typ)
	}
	return AppendU16(dst, uint16(valueLen))
}

// AppendRecord appends a whole record. It panics as AppendRecordHeader does.
func AppendRecord(dst []byte, typ uint16, value []byte) []byte {
	return append(AppendRecordHeader(dst, typ, len(value)), value...)
}

// NextRecord splits the first record off payload. The error is ErrBadRecord or ErrBadFrame.
func NextRecord(payload []byte) (rec Record, rest []byte, err error) {
	if len(payload) == 0 {
		return Record{}, nil, ErrBadFrame
	}
	rec.Type, rest = uint16(payload[0]), payload[1:]
	if rec.Type == escape {
		if len(rest) < lengthOfSize {
			return Record{}, nil, ErrBadFrame
		}
		rec.Type, rest = binary.BigEndian.Uint16(rest), rest[2:]
		if rec.Type < escape {
			return Record{}, nil, ErrBadRecord
		}
	}
	if len(rest) < lengthOfSize {
		return Record{}, nil, ErrBadFrame
	}
	n := int(binary.BigEndian.Uint16(rest))
	rest = rest[lengthOfSize:]
	if len(rest) < n {
		return Record{}, nil, ErrBadFrame
	}
	rec.Value = rest[:n:n]
	return rec, rest[n:], nil
}

// CheckRecords checks the boundaries and the number, 1 to most, of all records of a transport message before the first of them is
// executed (W-03). The error is ErrBadRecord or ErrBadFrame.
func CheckRecords(payload []byte, most int) error {
	for count := 1; ; count++ {
		_, rest, err := NextRecord(payload)
		if err != nil {
			return err
		}
		if count > most {
			return ErrBadFrame
		}
		if len(rest) == 0 {
			return nil
		}
		payload = rest
	}
}
