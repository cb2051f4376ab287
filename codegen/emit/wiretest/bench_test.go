package wiretest

import (
	"encoding/binary"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// The floor: a codec of ACQUIRE that was written by hand for this one message. It makes the same checks and says nothing about a mistake but that
// there is one.

var errFloor = errors.New("refused")

func floorEncode(dst []byte, m *wire.LeaseAcquireRequest) ([]byte, error) {
	if len(m.Route) > bounds.RouteBytesMax || !utf8.ValidString(m.Route) || len(m.OwnerID) > bounds.LeaseOwnerBytesMax || !utf8.ValidString(m.OwnerID) ||
		m.TTL < 1 || m.TTL > bounds.LeaseTTLSecsMax || m.Wait > bounds.LeaseWaitSecsMax {
		return dst, errFloor
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Route)))
	dst = append(dst, m.Route...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.OwnerID)))
	dst = append(dst, m.OwnerID...)
	dst = binary.BigEndian.AppendUint64(dst, m.TTL)
	if m.Wait != 0 {
		dst = binary.BigEndian.AppendUint32(dst, m.Wait)
	}
	return dst, nil
}

func floorText(b []byte, most int) (text, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int(binary.BigEndian.Uint32(b))
	if n > most || n > len(b)-4 {
		return nil, nil, false
	}
	text, rest = b[4:4+n], b[4+n:]
	return text, rest, utf8.Valid(text)
}

func floorView(v *wire.LeaseAcquireRequestView, b []byte) error {
	var ok bool
	if v.Route, b, ok = floorText(b, bounds.RouteBytesMax); !ok {
		return errFloor
	}
	if v.OwnerID, b, ok = floorText(b, bounds.LeaseOwnerBytesMax); !ok || len(b) != 8 && len(b) != 12 {
		return errFloor
	}
	v.TTL, v.Wait = binary.BigEndian.Uint64(b), 0
	if len(b) == 12 {
		v.Wait = binary.BigEndian.Uint32(b[8:])
	}
	if v.TTL < 1 || v.TTL > bounds.LeaseTTLSecsMax || v.Wait > bounds.LeaseWaitSecsMax {
		return errFloor
	}
	return nil
}

var benchRequest = wire.LeaseAcquireRequest{Route: "lease://realm-one/area-two/resource-three", OwnerID: "worker-17@host-4", TTL: 30, Wait: 5}

// The floor makes the same bytes and reads the same values, or the comparison would mean nothing.
func TestFloorIsTheSameCodec(t *testing.T) {
	want, err := benchRequest.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := floorEncode(nil, &benchRequest)
	if err != nil || string(got) != string(want) {
		t.Fatalf("%x, %v", got, err)
	}
	var a, b wire.LeaseAcquireRequestView
	if floorView(&a, want) != nil || b.DecodeValue(want) != nil || a.Owned() != b.Owned() {
		t.Fatalf("%+v, %+v", a, b)
	}
}

func BenchmarkAcquireEncode(b *testing.B) {
	dst := make([]byte, 0, 128)
	b.Run("floor", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = floorEncode(dst, &benchRequest)
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = benchRequest.AppendValue(dst)
		}
	})
}

func BenchmarkAcquireDecode(b *testing.B) {
	value, err := benchRequest.AppendValue(nil)
	if err != nil {
		b.Fatal(err)
	}
	var v wire.LeaseAcquireRequestView
	b.Run("floor", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = floorView(&v, value)
		}
	})
	b.Run("generated view", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = v.DecodeValue(value)
		}
	})
	b.Run("generated owned", func(b *testing.B) {
		b.ReportAllocs()
		var m wire.LeaseAcquireRequest
		for b.Loop() {
			_ = m.DecodeValue(value)
		}
	})
}

func BenchmarkListPage(b *testing.B) {
	page := wire.LeaseListReply{Items: repeat(wire.LeaseItem{Route: benchRequest.Route, OwnerID: benchRequest.OwnerID, AcquiredAt: "2030-01-02T03:04:05.678Z"}, 100)}
	value, err := page.AppendValue(nil)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]byte, 0, len(value))
	b.Run("encode 100", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = page.AppendValue(dst)
		}
	})
	b.Run("view 100", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v wire.LeaseListReplyView
			_ = v.DecodeValue(value)
		}
	})
}
