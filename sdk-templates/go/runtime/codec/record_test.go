package codec

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// W-01, W-02: the header takes 3 bytes up to type 254 and 5 from 255 on.
func TestRecordHeader(t *testing.T) {
	for typ, want := range map[uint16][]byte{
		0:      {0, 0, 2},
		254:    {254, 0, 2},
		255:    {255, 0, 255, 0, 2},
		256:    {255, 1, 0, 0, 2},
		0xffff: {255, 0xff, 0xff, 0, 2},
	} {
		got := AppendRecordHeader([]byte("x"), typ, 2)
		if !bytes.Equal(got, append([]byte("x"), want...)) || RecordHeaderSize(typ) != len(want) {
			t.Errorf("type %d: %x, size %d", typ, got, RecordHeaderSize(typ))
		}
	}
}

// A value that the length cannot tell is the mistake of a caller.
// Clauses: W-02.
func TestRecordHeaderRefusesLongValues(t *testing.T) {
	for _, n := range []int{-1, MaxRecordValue + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a value of %d bytes got a header", n)
				}
			}()
			AppendRecordHeader(nil, 1, n)
		}()
	}
}

// W-01, W-03: what is wrong with a transport message.
func TestCheckRecords(t *testing.T) {
	small := []byte{1, 0, 1, 9}
	cases := []struct {
		name    string
		payload []byte
		most    int
		want    error
	}{
		{"W-03 empty", nil, 4, ErrBadFrame},
		{"one", small, 4, nil},
		{"W-03 as many as allowed", bytes.Repeat(small, 4), 4, nil},
		{"W-03 too many", bytes.Repeat(small, 5), 4, ErrBadFrame},
		{"W-03 length cut off", []byte{1, 0}, 4, ErrBadFrame},
		{"W-03 value cut off", []byte{1, 0, 2, 9}, 4, ErrBadFrame},
		{"W-03 type cut off", []byte{255, 1}, 4, ErrBadFrame},
		{"W-03 second record cut off", append(bytes.Clone(small), 1), 4, ErrBadFrame},
		{"W-01 long form of a small type", []byte{255, 0, 254, 0, 0}, 4, ErrBadRecord},
		{"W-01 smallest type of the long form", []byte{255, 0, 255, 0, 0}, 4, nil},
		{"first mistake decides", append([]byte{255, 0, 1, 0, 0}, 1), 4, ErrBadRecord},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if err := CheckRecords(c.payload, c.most); !errors.Is(err, c.want) {
				t.Errorf("got %v, not %v", err, c.want)
			}
		})
	}
}

// Records that were appended come back, one by one, and alias the message.
func TestRecordsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var payload []byte
		var want []Record
		for range rapid.IntRange(1, 5).Draw(t, "records") {
			r := Record{rapid.Uint16().Draw(t, "type"), rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "value")}
			want = append(want, r)
			payload = AppendRecord(payload, r.Type, r.Value)
		}
		if err := CheckRecords(payload, len(want)); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			var got Record
			var err error
			if got, payload, err = NextRecord(payload); err != nil || got.Type != w.Type || !bytes.Equal(got.Value, w.Value) {
				t.Fatalf("%+v, %v", got, err)
			}
			if cap(got.Value) != len(got.Value) {
				t.Fatal("appending to a value would write into the next record")
			}
		}
		if len(payload) > 0 {
			t.Fatalf("%x is left over", payload)
		}
	})
}

// Any bytes are either refused or split into records that make the same bytes again.
func FuzzRecords(f *testing.F) {
	f.Add([]byte{1, 0, 1, 9})
	f.Add([]byte{255, 1, 144, 0, 0})
	f.Add([]byte{255, 0, 254, 0, 0})
	f.Fuzz(func(t *testing.T, payload []byte) {
		if CheckRecords(payload, 16) != nil {
			return
		}
		var again []byte
		for rest := payload; len(rest) > 0; {
			r, after, err := NextRecord(rest)
			if err != nil {
				t.Fatalf("a message that was checked is refused: %v", err)
			}
			again, rest = AppendRecord(again, r.Type, r.Value), after
		}
		if !bytes.Equal(again, payload) {
			t.Fatalf("%x became %x", payload, again)
		}
	})
}

func TestRecordsAllocateNothing(t *testing.T) {
	payload := bytes.Repeat([]byte{255, 1, 144, 0, 1, 7}, 50)
	dst := make([]byte, 0, 16)
	if n := testing.AllocsPerRun(100, func() {
		if CheckRecords(payload, 50) != nil {
			t.Fatal("refused")
		}
		dst = AppendRecord(dst[:0], 400, payload[:4])
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
