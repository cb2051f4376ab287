package trace

import (
	"bytes"
	"encoding/binary"

	"github.com/fitzwire/fitz/conformance/oracle"
)

// Split takes a transport message apart into one entry for each record together with the label in front of it. What has no right boundaries, and
// a label in front of nothing, is an entry of the kind Bytes. The bytes of the entries, one after the other, are the message.
func Split(codec Codec, dir oracle.Direction, message []byte) []Entry {
	records, fault := codec.SplitMessage(dir, message)
	if len(records) == 0 {
		return []Entry{{Kind: Bytes, Dir: dir, Bytes: message, Fault: fault}}
	}
	entries := make([]Entry, 0, len(records))
	at := 0
	for _, r := range records {
		start := at
		for at < len(message) && !bytes.HasPrefix(message[at:], r.Bytes) {
			at += labelSize(message[at:])
		}
		end := min(at+len(r.Bytes), len(message))
		e := Entry{Kind: Frame, Dir: dir, Message: r.Message, Form: r.Form, Type: r.Type, Label: r.Label, Bytes: message[start:end:end], Record: message[at:end:end]}
		if fault != nil { // in this record, in the label in front of it, or in that there is one
			_, e.Fault = codec.SplitMessage(dir, e.Bytes)
		}
		entries = append(entries, e)
		at = end
	}
	if at < len(message) {
		entries = append(entries, Entry{Kind: Bytes, Dir: dir, Bytes: message[at:], Fault: fault})
	}
	return entries
}

// labelSize is the size of the label record at the start of b: only those stand between the records that SplitMessage returns, and their type is
// a small one, so that the length is at its second byte (W-01, W-02).
func labelSize(b []byte) int {
	const header = 3
	if len(b) < header {
		return len(b)
	}
	return min(header+int(binary.BigEndian.Uint16(b[1:])), len(b))
}

// Encode makes the bytes of a record with the label in front of it that it names: of its value by its message and form, or its bytes as they are when it
// has no value. Bounds and ranges are not checked, so that a peer can break them.
func Encode(codec Codec, dir oracle.Direction, rec oracle.Record) ([]byte, error) {
	record := rec.Bytes
	if rec.Value != nil || len(record) == 0 {
		var err error
		if record, err = codec.EncodeAny(rec.Message, rec.Form, rec.Value); err != nil {
			return nil, err
		}
	}
	if rec.Label == 0 {
		return record, nil
	}
	return codec.Label(dir, rec.Label, record), nil
}
