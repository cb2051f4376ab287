package wiretest

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/reference"
)

// said is what one record of a vector says. Exactly one of value, refusal and raw is set.
type said struct {
	typ     wire.MessageType
	value   wire.Value
	refusal *wire.Refusal
	form    func(dst []byte, r wire.Refusal) []byte // of refusal
	raw     []byte                                  // of types that this specification does not define
}

func coded(dst []byte, r wire.Refusal) []byte { return wire.AppendCoded(dst, r.Code, r.Message) }
func plain(dst []byte, r wire.Refusal) []byte { return wire.AppendPlain(dst, r.Message) }
func streamCoded(dst []byte, r wire.Refusal) []byte {
	return wire.AppendStreamCoded(dst, r.Code, r.Message)
}

func refused(typ wire.MessageType, form func([]byte, wire.Refusal) []byte, r wire.Refusal) said {
	return said{typ: typ, refusal: &r, form: form}
}

const (
	lifetime    = "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
	fingerprint = 0xa0a1a2a3a4a5a6a7
	publicBits  = wire.CapCorrelation | wire.CapSessionMetadata | wire.CapKVScanExclusive | wire.CapRPCCancellation
	aRoute      = "lease://r/a/k"
	aSelector   = "lease://r/a/*"
)

// vectors says what every vector of the reference means: for each of its byte strings, the records in it.
var vectors = map[string][][]said{
	"V-01": {{{typ: wire.TypeConnect, value: &wire.Connect{}}}},
	"V-02": {{{typ: wire.TypeServerHello, value: &wire.ServerHello{Version: 1, Capabilities: publicBits}}}},
	"V-03": {{{typ: wire.TypeServerHello, value: &wire.ServerHello{Version: 1, Capabilities: publicBits | wire.CapLifecycle, Lifecycle: wire.LifecycleHello{
		BrokerLifetimeID: [16]byte([]byte(lifetime)), SessionIncarnation: 0x1122334455667788, MaxFrameBytes: 1 << 20, HeartbeatMs: 10000, SpecFingerprint: fingerprint}}}}},
	"V-04": {{{typ: wire.TypeClientHello, value: &wire.ClientHello{Capabilities: wire.CapLifecycle, SDKName: "go", SDKVersion: "1.0.0", SpecFingerprint: fingerprint}}}},
	"V-05": {{{typ: wire.TypePing, value: &wire.Ping{Nonce: 1}}}, {{typ: wire.TypePong, value: &wire.Pong{Nonce: 1}}}},
	"V-06": {{{typ: wire.TypeGoaway, value: &wire.Goaway{GraceMs: 25000, Code: wire.CodeGoawayShutdown, Reason: "stop"}}}},
	"V-07": {{{typ: wire.TypeSubEnded, value: &wire.SubEnded{Domain: 4, SubscriptionID: 5, Code: wire.CodeSubSlowConsumer, Dropped: 3, Reason: "slow"}}}},
	"V-08": {{{typ: wire.TypeCancel, value: &wire.Cancel{CorrelationID: 7}}}, {{typ: wire.TypeCancelled, value: &wire.Cancelled{CorrelationID: 7, Outcome: wire.CancelOutcomeCancelled}}}},
	"V-09": {{{typ: wire.TypeCorrelate, value: &wire.Correlate{ID: 9}}, {typ: wire.TypeLeaseQuery, value: &wire.LeaseQueryRequest{Route: aRoute}}}},
	"V-10": {{{typ: wire.TypeCorrelated, value: &wire.Correlated{ID: 9}}, {typ: wire.TypeLeaseQuery, value: &wire.LeaseQueryReply{}}}},
	"V-11": {{{typ: 100, raw: []byte("\x00\x00\x00\x0akv://r/a/k\x01\x00")}}},
	"V-12": {{refused(100, coded, wire.Refusal{Code: wire.CodeKVIsolationConflict, Message: "busy", HasCode: true})}},
	"V-13": {{{typ: 501, raw: []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 5}}}},
	"V-14": {{{typ: 255, raw: []byte{}}}},
	"V-15": {{refused(204, plain, wire.Refusal{Message: "NotFound"})}},
	"V-16": {{refused(602, streamCoded, wire.Refusal{Code: wire.CodeStreamSessionNotFound, Message: "x", HasCode: true})}},

	"LV-01": {{{typ: wire.TypeLeaseAcquire, value: &wire.LeaseAcquireRequest{Route: aRoute, OwnerID: "w1", TTL: 30, Wait: 5}}}},
	"LV-02": {{{typ: wire.TypeLeaseAcquire, value: &wire.LeaseAcquireRequest{Route: aRoute, OwnerID: "w1", TTL: 30}}}},
	"LV-03": {{{typ: wire.TypeLeaseAcquire, value: &wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindAcquired, FencingToken: 41}}}},
	"LV-04": {{{typ: wire.TypeLeaseAcquire, value: &wire.LeaseAcquireReply{Kind: wire.LeaseGrantKindQueued, FencingToken: 42}}}},
	"LV-05": {{refused(wire.TypeLeaseAcquire, coded, wire.Refusal{Code: wire.CodeRequestCancelled, Message: wire.TextCancelled, HasCode: true})}},
	"LV-06": {{{typ: wire.TypeLeaseRenew, value: &wire.LeaseRenewRequest{Route: aRoute, OwnerID: "w1", FencingToken: 41, TTL: 30}}}},
	"LV-07": {{{typ: wire.TypeLeaseRenew, value: &wire.LeaseRenewReply{FencingToken: 41}}}},
	"LV-08": {{{typ: wire.TypeLeaseRelease, value: &wire.LeaseReleaseRequest{Route: aRoute, OwnerID: "w1", FencingToken: 41}}}},
	"LV-09": {{{typ: wire.TypeLeaseQuery, value: &wire.LeaseQueryReply{Held: true, OwnerID: "w1", TTLRemaining: 29, PendingWaiters: 1}}}},
	"LV-10": {{{typ: wire.TypeLeaseSubscribe, value: &wire.LeaseSubscribeRequest{Selector: aSelector}}}, {{typ: wire.TypeLeaseSubscribe, value: &wire.LeaseSubscribeReply{SubscriptionID: 5}}}},
	"LV-11": {{{typ: wire.TypeLeaseNotify, value: &wire.LeaseNotify{SubscriptionID: 5, Route: aRoute}}}},
	"LV-12": {{{typ: wire.TypeLeaseList, value: &wire.LeaseListRequest{Selector: aSelector}}}},
	"LV-13": {{{typ: wire.TypeLeaseList, value: &wire.LeaseListRequest{Selector: aSelector, Cursor: wire.LeaseCursor{SnapshotID: 0xabcdef0000000001, Offset: 1}, HasCursor: true}}}},
	"LV-14": {{{typ: wire.TypeLeaseList, value: &wire.LeaseListReply{
		Items: []wire.LeaseItem{{Route: aRoute, OwnerID: "w1", HolderIncarnation: 0x1122334455667788, AcquiredAt: "2030-01-02T03:04:05.678Z", ExpiresIn: 29, Renewals: 2}},
		Next:  wire.LeaseCursor{SnapshotID: 0xabcdef0000000001, Offset: 1}, HasNext: true}}}},
	"LV-15": {{{typ: wire.TypeLeaseList, value: &wire.LeaseListReply{}}}},
	"LV-16": {{refused(wire.TypeLeaseList, coded, wire.Refusal{Code: wire.CodeLeaseInvalidListCursor,
		Message: wire.TextInvalidListCursor(wire.LeaseCursorMisuseOffsetTooLow.String()), HasCode: true})}},
}

// referenceVectors are the V and LV tables.
func referenceVectors(t *testing.T) []reference.Vector {
	t.Helper()
	return append(reference.Rows(t, (*reference.Docs).WireVectors), reference.Rows(t, (*reference.Docs).LeaseVectors)...)
}

// payload is a byte string of a vector without the length of the transport message.
func payload(t *testing.T, v reference.Vector, raw []byte) []byte {
	t.Helper()
	if !strings.Contains(v.What, "TCP message") {
		return raw
	}
	if n := binary.BigEndian.Uint32(raw); int(n) != len(raw)-4 {
		t.Fatalf("the length is %d", n)
	}
	return raw[4:]
}

// Every vector is decoded to what it means and encoded to the same bytes.
// Clauses: V-01 to V-16.
func TestVectors(t *testing.T) {
	rows := referenceVectors(t)
	if len(rows) != len(vectors) {
		t.Errorf("the reference has %d vectors, %d are known here", len(rows), len(vectors))
	}
	for _, v := range rows {
		t.Run(v.ID, func(t *testing.T) {
			meaning := vectors[v.ID]
			if len(meaning) != len(v.Bytes) {
				t.Fatalf("%d byte strings, %d meanings", len(v.Bytes), len(meaning))
			}
			for i, raw := range v.Bytes {
				checkVector(t, payload(t, v, raw), meaning[i])
			}
		})
	}
}

func checkVector(t *testing.T, payload []byte, records []said) {
	t.Helper()
	if err := codec.CheckRecords(payload, bounds.RecordsPerFrameMax); err != nil {
		t.Fatal(err)
	}
	rest := payload
	var built []byte
	for _, want := range records {
		rec, after, err := codec.NextRecord(rest)
		if err != nil {
			t.Fatal(err)
		}
		rest = after
		if wire.MessageType(rec.Type) != want.typ {
			t.Fatalf("type %d, not %d", rec.Type, want.typ)
		}
		value := checkRecord(t, rec.Value, want)
		built = codec.AppendRecord(built, rec.Type, value)
	}
	if len(rest) > 0 || !bytes.Equal(built, payload) {
		t.Fatalf("encoded  %x\nreference %x", built, payload)
	}
}

// checkRecord decodes a value and returns what its meaning is encoded to.
func checkRecord(t *testing.T, value []byte, want said) []byte {
	t.Helper()
	switch {
	case want.refusal != nil:
		got, ok := wire.DecodeRefusal(value)
		if !ok || got != *want.refusal {
			t.Fatalf("refusal %+v, %v", got, ok)
		}
		return want.form(nil, got)
	case want.raw != nil:
		if _, known := wire.LookupMessage(want.typ); known || !bytes.Equal(value, want.raw) {
			t.Fatalf("value %x, type known: %v", value, known)
		}
		return value
	}
	got := reflect.New(reflect.TypeOf(want.value).Elem()).Interface().(wire.Value)
	if err := got.DecodeValue(value); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want.value) {
		t.Fatalf("decoded %+v, not %+v", got, want.value)
	}
	encoded, err := want.value.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// Each byte of each vector is named once, by the annotator.
func TestVectorsAreAnnotated(t *testing.T) {
	for _, v := range referenceVectors(t) {
		for i, raw := range v.Bytes {
			rest := payload(t, v, raw)
			for _, want := range vectors[v.ID][i] {
				rec, after, err := codec.NextRecord(rest)
				if err != nil {
					t.Fatal(err)
				}
				rest = after
				if layout := layoutOf(want); layout != nil {
					checkAnnotated(t, v.ID, layout, rec.Value)
				}
			}
		}
	}
}

func checkAnnotated(t *testing.T, id string, layout *codec.Layout, value []byte) {
	t.Helper()
	spans, err := codec.Annotate(layout, value)
	named := 0
	for _, s := range spans {
		named += s.Len
	}
	if err != nil || named != len(value) {
		t.Errorf("%s: %d of %d bytes are named: %v", id, named, len(value), err)
	}
}

func layoutOf(s said) *codec.Layout {
	for _, m := range wire.Messages {
		if s.value != nil && reflect.TypeOf(m.New()) == reflect.TypeOf(s.value) {
			return m.Layout
		}
	}
	if s.refusal != nil {
		return wire.Envelopes[map[byte]int{1: 0, 0: 1, 2: 2}[envelopeIndex(s)]]
	}
	return nil
}

// envelopeIndex is the status of the form; 0 stands for the plain form.
func envelopeIndex(s said) byte {
	if !s.refusal.HasCode {
		return 0
	}
	return s.form(nil, *s.refusal)[0]
}
