package wiretest

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
	"pgregory.net/rapid"
)

// What is decoded and encoded again is the same value, byte for byte, and both kinds of decoders see the same.
func TestRoundTrip(t *testing.T) {
	forEach(t, func(t *testing.T, m wire.MessageLayout) {
		rapid.Check(t, func(t *rapid.T) {
			b := valid(t, m)
			owned := m.New()
			if err := owned.DecodeValue(b); err != nil {
				t.Fatalf("decoding %x: %v", b, err)
			}
			if err := m.NewView().DecodeValue(b); err != nil {
				t.Fatalf("view of %x: %v", b, err)
			}
			prefix := []byte("in front")
			again, err := owned.AppendValue(prefix)
			if err != nil {
				t.Fatalf("encoding %+v: %v", owned, err)
			}
			if !bytes.Equal(again, append([]byte("in front"), b...)) {
				t.Fatalf("%x became %x", b, again[len(prefix):])
			}
			if len(b) < m.MinSize || len(b) > m.MaxSize {
				t.Fatalf("%d bytes, not %d to %d", len(b), m.MinSize, m.MaxSize)
			}
		})
	})
}

// A decoded value shares nothing with the bytes that it was read from (D-8).
func TestOwnedIsACopy(t *testing.T) {
	forEach(t, func(t *testing.T, m wire.MessageLayout) {
		rapid.Check(t, func(t *rapid.T) {
			b := valid(t, m)
			first, second := m.New(), m.New()
			if first.DecodeValue(b) != nil || second.DecodeValue(bytes.Clone(b)) != nil {
				t.Fatal("a valid value was refused")
			}
			for i := range b {
				b[i] = 0xff
			}
			if !reflect.DeepEqual(first, second) {
				t.Fatalf("%+v changed with its bytes", first)
			}
		})
	})
}

// The annotator, the view and the owned decoder agree on verdict, kind, offset, field and code for any bytes at all; spans name every byte
// once, up to the field to blame.
// Clauses: D-7.
func TestAnnotateAgreesWithDecoders(t *testing.T) {
	forEach(t, func(t *testing.T, m wire.MessageLayout) {
		rapid.Check(t, func(t *rapid.T) {
			b := damaged(t, m)
			spans, annotated := codec.Annotate(m.Layout, b)
			viewed := codec.AsError(m.NewView().DecodeValue(b))
			owned := codec.AsError(m.New().DecodeValue(b))
			if !reflect.DeepEqual(annotated, viewed) || !reflect.DeepEqual(owned, viewed) {
				t.Fatalf("value %x\nview      %v\nowned     %v\nannotator %v", b, viewed, owned, annotated)
			}
			checkSpans(t, b, spans, annotated)
		})
	})
}

func checkSpans(t *rapid.T, b []byte, spans []codec.Span, err *codec.Error) {
	end := 0
	for _, s := range spans {
		if s.Offset != end || s.Len <= 0 || s.Name == "" || s.Type == "" {
			t.Fatalf("span %+v does not begin at %d", s, end)
		}
		end += s.Len
	}
	malformed := err != nil && err.Kind.Malformed()
	switch {
	case !malformed && end != len(b):
		t.Fatalf("%d of %d bytes are named", end, len(b))
	case malformed && err.Kind == codec.BadUTF8 && end > err.Offset:
		t.Fatalf("bytes after the mistake at %d are named up to %d", err.Offset, end)
	case malformed && err.Kind != codec.BadUTF8 && end != err.Offset:
		t.Fatalf("bytes are named up to %d, the mistake is at %d: %v", end, err.Offset, err)
	}
}

// A value that is cut off is refused where the field begins that is not whole, unless what is left is a value too: optional fields at the
// end may be missing.
func TestTruncation(t *testing.T) {
	forEach(t, func(t *testing.T, m wire.MessageLayout) {
		rapid.Check(t, func(t *rapid.T) {
			b := valid(t, m)
			spans, _ := codec.Annotate(m.Layout, b)
			starts := map[int]bool{}
			for _, s := range spans {
				starts[s.Offset] = true
			}
			for n := range b {
				err := codec.AsError(m.NewView().DecodeValue(b[:n]))
				if err == nil {
					mayEnd(t, m, b, n)
					continue
				}
				if err.Kind != codec.Truncated && err.Kind != codec.BadCount && err.Kind != codec.BadUTF8 {
					t.Fatalf("%d of %x: %v", n, b, err)
				}
				if err.Offset > n || err.Kind != codec.BadUTF8 && !starts[err.Offset] {
					t.Fatalf("%d of %x: the offset %d begins no field", n, b, err.Offset)
				}
			}
		})
	})
}

// mayEnd checks that a value may end after n bytes: a tail begins there, or the last field has no length.
func mayEnd(t *rapid.T, m wire.MessageLayout, b []byte, n int) {
	if takesRest(m) {
		return
	}
	again, err := roundTrip(m, b[:n])
	if !optionalEnd(m) || err != nil || !bytes.Equal(again, b[:n]) {
		t.Fatalf("%x was accepted after %d of %d bytes", b[:n], n, len(b))
	}
}

// lastPresence is how the presence of the last field is known.
func lastPresence(m wire.MessageLayout) codec.Presence {
	if n := len(m.Layout.Fields); n > 0 {
		return m.Layout.Fields[n-1].Presence
	}
	return codec.Always
}

// takesRest tells whether the last field takes all bytes that remain.
func takesRest(m wire.MessageLayout) bool { return lastPresence(m) == codec.Rest }

// optionalEnd tells whether a value may end before its last field.
func optionalEnd(m wire.MessageLayout) bool {
	return lastPresence(m) == codec.Tail || lastPresence(m) == codec.TailFlagged
}

func roundTrip(m wire.MessageLayout, b []byte) ([]byte, error) {
	v := m.New()
	if err := v.DecodeValue(b); err != nil {
		return nil, err
	}
	return v.AppendValue(nil)
}

// Bytes after the last field are a mistake at the first of them (D-4), unless the message says that they are ignored or takes them all.
func TestExtension(t *testing.T) {
	forEach(t, func(t *testing.T, m wire.MessageLayout) {
		rapid.Check(t, func(t *rapid.T) {
			b := valid(t, m)
			longer := append(bytes.Clone(b), rapid.SliceOfN(rapid.Byte(), 1, 3).Draw(t, "more")...)
			err := codec.AsError(m.NewView().DecodeValue(longer))
			switch {
			case m.Layout.Open:
				if err != nil {
					t.Fatalf("later bytes were refused: %v", err)
				}
			case takesRest(m):
				if err != nil && err.Kind != codec.BadUTF8 {
					t.Fatalf("%v", err)
				}
			case optionalEnd(m): // the bytes may be taken for the field that was left out
				if err != nil && err.Offset < len(b) {
					t.Fatalf("%x after %d bytes: %v", longer, len(b), err)
				}
			case err == nil || err.Offset != len(b) || err.Kind != codec.Trailing && err.Kind != codec.Truncated:
				t.Fatalf("%x after %d bytes: %v", longer, len(b), err)
			}
		})
	})
}

// paths are the paths of all fields that are present in a value, with their layouts.
func paths(l *codec.Layout, prefix string, visit func(path string, f *codec.LayoutField)) {
	for i := range l.Fields {
		f := &l.Fields[i]
		visit(prefix+f.Name, f)
		if f.Type == codec.TypePart {
			paths(f.Part, prefix+f.Name+".", visit)
		}
	}
}

// Every bound of every field: the largest value passes both ways, one more is refused both ways at the same place, with the code and text
// that the specification gives it, and the view is whole nevertheless (D-3).
// Clauses: D-6.
func TestBounds(t *testing.T) {
	tested := 0
	forEach(t, func(t *testing.T, m wire.MessageLayout) {
		paths(m.Layout, "", func(path string, f *codec.LayoutField) {
			for _, c := range boundCases(f) {
				tested++
				t.Run(path+"/"+c.name, func(t *testing.T) { checkBound(t, m, path, c) })
			}
		})
	})
	if tested < 30 {
		t.Fatalf("only %d bounds were tested", tested)
	}
}

type boundCase struct {
	name string
	raw  []byte
	kind codec.Kind // 0: accepted
}

func boundCases(f *codec.LayoutField) []boundCase {
	const wholeRecord = codec.MaxRecordValue / 2
	switch {
	case f.MaxBytes > wholeRecord: // what such a field may hold depends on the fields beside it
		return nil
	case f.Type == codec.TypeRoute, f.Type == codec.TypeSelector:
		return []boundCase{{"largest", []byte(long(f.MaxBytes)), 0}, {"above", []byte(long(f.MaxBytes + 1)), codec.RouteText},
			{"not UTF-8", []byte("a\xff"), codec.RouteText}}
	case f.Type == codec.TypeString:
		return []boundCase{{"largest", []byte(long(f.MaxBytes)), 0}, {"above", []byte(long(f.MaxBytes + 1)), codec.OverBound},
			{"not UTF-8", []byte("a\xff"), codec.BadUTF8}}
	case f.Type == codec.TypeBytes:
		return []boundCase{{"largest", []byte(long(f.MaxBytes)), 0}, {"above", []byte(long(f.MaxBytes + 1)), codec.OverBound}}
	case f.Fixed:
		return []boundCase{{"other constant", number(f, f.Const+1), codec.BadConst}}
	case f.Closed:
		return []boundCase{{"unknown", number(f, 0xee), codec.BadEnum}}
	case f.Type == codec.TypeBool:
		return []boundCase{{"two", []byte{2}, codec.BadFlag}}
	case f.NonZero:
		return []boundCase{{"zero", number(f, 0), codec.Zero}, {"one", number(f, 1), 0}}
	case f.Ranged:
		cases := []boundCase{{"least", number(f, max(f.Least, 1)), 0}, {"most", number(f, f.Most), 0}, {"above", number(f, f.Most+1), codec.OutOfRange}}
		if f.Least > 0 {
			cases = append(cases, boundCase{"below", number(f, f.Least-1), codec.OutOfRange})
		}
		return cases
	}
	return nil
}

func checkBound(t *testing.T, m wire.MessageLayout, path string, c boundCase) {
	var b []byte
	var at int
	for seed := 0; ; seed++ {
		if seed == 200 {
			t.Fatal("no value has this field")
		}
		build := newBuilder(nil)
		found := false
		build.choose = func(p string, f *codec.LayoutField) []byte {
			found = found || p == path
			if p != path {
				return nil
			}
			return c.raw
		}
		b = example(build, m, seed)
		if at = build.at[path]; found {
			break
		}
	}
	view := codec.AsError(m.NewView().DecodeValue(b))
	owned := m.New()
	decoded := codec.AsError(owned.DecodeValue(b))
	if !reflect.DeepEqual(view, decoded) {
		t.Fatalf("view %v, owned %v", view, decoded)
	}
	if c.kind == 0 {
		if view != nil {
			t.Fatalf("refused: %v", view)
		}
		if again, err := owned.AppendValue(nil); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("encoded to %d bytes, %v", len(again), err)
		}
		return
	}
	if view == nil || view.Kind != c.kind || !strings.HasSuffix(view.Field.Name, path[strings.LastIndexByte(path, '.')+1:]) {
		t.Fatalf("got %v, not %v", view, c.kind)
	}
	if c.kind != codec.BadUTF8 && view.Offset != at && view.Offset != at+1 { // a flag may stand in front
		t.Fatalf("offset %d, the field begins at %d", view.Offset, at)
	}
}

// The codes and texts that the specification gives to mistakes of size.
func TestRefusalsOfAcquire(t *testing.T) {
	good := wire.LeaseAcquireRequest{Route: "lease://r/a/k", OwnerID: "w1", TTL: 30, Wait: 5}
	cases := []struct {
		name   string
		change func(*wire.LeaseAcquireRequest)
		kind   codec.Kind
		offset int
		text   string
	}{
		{"L-20 owner", func(m *wire.LeaseAcquireRequest) { m.OwnerID = long(bounds.LeaseOwnerBytesMax + 1) }, codec.OverBound, 17, "owner id too long"},
		{"L-20 ttl 0", func(m *wire.LeaseAcquireRequest) { m.TTL = 0 }, codec.OutOfRange, 23, "ttl out of range"},
		{"L-20 ttl large", func(m *wire.LeaseAcquireRequest) { m.TTL = bounds.LeaseTTLSecsMax + 1 }, codec.OutOfRange, 23, "ttl out of range"},
		{"L-20 wait", func(m *wire.LeaseAcquireRequest) { m.Wait = bounds.LeaseWaitSecsMax + 1 }, codec.OutOfRange, 31, "wait out of range"},
		{"first mistake wins", func(m *wire.LeaseAcquireRequest) { m.TTL, m.Wait = 0, math.MaxUint32 }, codec.OutOfRange, 23, "ttl out of range"},
		{"D-3 malformed wins", func(m *wire.LeaseAcquireRequest) { m.TTL, m.OwnerID = 0, "\xff" }, codec.BadUTF8, 21, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := good
			c.change(&m)
			dst, err := m.AppendValue([]byte("kept"))
			mistake := codec.AsError(err)
			if string(dst) != "kept" || mistake == nil || mistake.Kind != c.kind || mistake.Offset != c.offset || mistake.Code() != uint32(wire.CodeLeaseBadRequest) {
				t.Fatalf("%q, %v, code %d", dst, err, mistake.Code())
			}
			if c.text != "" && mistake.Text() != c.text {
				t.Fatalf("text %q, not %q", mistake.Text(), c.text)
			}
		})
	}
}

// What answers a malformed request, and a route that is no text, depends on the operation (errors.md section 5).
// Clauses: W-06.
func TestCodesOfOperations(t *testing.T) {
	cases := []struct {
		view      wire.View
		malformed wire.Code
		route     wire.Code
	}{
		{new(wire.LeaseAcquireRequestView), wire.CodeLeaseBadRequest, wire.CodeLeaseBadRequest},
		{new(wire.LeaseRenewRequestView), wire.CodeLeaseBadRequest, wire.CodeLeaseBadRequest},
		{new(wire.LeaseReleaseRequestView), wire.CodeLeaseBadRequest, wire.CodeLeaseBadRequest},
		{new(wire.LeaseQueryRequestView), wire.CodeLeaseBadRequest, wire.CodeLeaseBadRequest},
		{new(wire.LeaseSubscribeRequestView), wire.CodeLeaseInvalidSubscriptionRoute, wire.CodeLeaseInvalidSubscriptionRoute},
		{new(wire.LeaseUnsubscribeRequestView), wire.CodeLeaseInvalidSubscriptionRoute, wire.CodeLeaseInvalidSubscriptionRoute},
		{new(wire.LeaseListRequestView), wire.CodeLeaseBadRequest, wire.CodeLeaseInvalidListPattern},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%T", c.view), func(t *testing.T) {
			if got := codec.AsError(c.view.DecodeValue([]byte{1})); got == nil || got.Code() != uint32(c.malformed) {
				t.Errorf("malformed: %v, code %d, not %d", got, got.Code(), c.malformed)
			}
			rest := make([]byte, 64)
			for n := range rest {
				value := append([]byte{0, 0, 0, 1, 0xff}, rest[:n]...)
				got := codec.AsError(c.view.DecodeValue(value))
				if got == nil || got.Kind.Malformed() || got.Kind != codec.RouteText {
					continue
				}
				if got.Code() != uint32(c.route) {
					t.Errorf("route: code %d, not %d", got.Code(), c.route)
				}
				return
			}
			t.Error("no value reaches the check of the route")
		})
	}
}

// The view is whole when the mistake is one of size only (D-3).
func TestViewIsWholeAfterMistakeOfSize(t *testing.T) {
	wide := bounds.Default()
	wide.LeaseTTLSecsMax = math.MaxInt64
	m := wire.LeaseAcquireRequest{Route: "lease://r/a/k", OwnerID: "w1", TTL: bounds.LeaseTTLSecsMax + 1, Wait: 5}
	b, err := m.AppendValueWithin(nil, &wide)
	if err != nil {
		t.Fatal(err)
	}
	var v wire.LeaseAcquireRequestView
	if err := v.DecodeValue(b); codec.AsError(err) == nil || codec.Malformed(err) {
		t.Fatalf("got %v", err)
	}
	if v.Owned() != m {
		t.Fatalf("%+v is not %+v", v.Owned(), m)
	}
	if err := v.DecodeValueWithin(b, &wide); err != nil {
		t.Fatalf("the limit of the operator does not count: %v", err)
	}
	narrow := bounds.Default()
	narrow.LeaseTTLSecsMax = 10
	m.TTL = 11
	if _, err := m.AppendValueWithin(nil, &narrow); err == nil {
		t.Fatal("the limit of the operator does not count when encoding")
	}
}

// A view that was used before shows nothing of its former value.
// Clauses: D-7.
func TestViewIsReset(t *testing.T) {
	full := wire.LeaseListRequest{Selector: "lease://r/a/*", Cursor: wire.LeaseCursor{SnapshotID: 1, Offset: 2}, HasCursor: true, Limit: 3}
	bare := wire.LeaseListRequest{Selector: "lease://r/a/*"}
	var v wire.LeaseListRequestView
	for _, m := range []wire.LeaseListRequest{full, bare} {
		b, err := m.AppendValue(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.DecodeValue(b); err != nil || v.Owned() != m {
			t.Fatalf("%+v, %v", v.Owned(), err)
		}
	}
}

// L-56: 0 is the default, more than the largest page is the largest page.
func TestEffectiveLimit(t *testing.T) {
	for limit, want := range map[uint32]uint32{0: bounds.LeaseListPageDefault, 1: 1, bounds.LeaseListPageMax: bounds.LeaseListPageMax,
		bounds.LeaseListPageMax + 1: bounds.LeaseListPageMax, math.MaxUint32: bounds.LeaseListPageMax} {
		m := wire.LeaseListRequest{Selector: "lease://r/a/*", Limit: limit}
		b, err := m.AppendValue(nil)
		if err != nil {
			t.Fatal(err)
		}
		var v wire.LeaseListRequestView
		if err := v.DecodeValue(b); err != nil || v.EffectiveLimit() != want || m.EffectiveLimit() != want || v.Limit != limit {
			t.Errorf("limit %d counts as %d, not %d: %v", limit, v.EffectiveLimit(), want, err)
		}
	}
}

// The text of a reason is cut at a character boundary when it is sent; a longer one that arrives is refused (E-03).
func TestCutText(t *testing.T) {
	m := wire.Goaway{Reason: long(bounds.ReasonTextMax-1) + "é"}
	b, err := m.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got wire.Goaway
	if err := got.DecodeValue(b); err != nil || got.Reason != long(bounds.ReasonTextMax-1) {
		t.Fatalf("%d bytes, %v", len(got.Reason), err)
	}
	longer := codec.AppendString(b[:8:8], long(bounds.ReasonTextMax+1))
	if err := codec.AsError(got.DecodeValue(longer)); err == nil || err.Kind != codec.OverBound || err.Offset != 8 {
		t.Fatalf("got %v", err)
	}
}

// SERVER_HELLO: less than the known part is malformed, more is skipped, above hello_ext_max is refused; without bit 16 later bytes are ignored.
func TestHelloExtension(t *testing.T) {
	hello := wire.ServerHello{Version: wire.HelloVersion, Capabilities: wire.AnnouncedCapabilities, Lifecycle: wire.LifecycleHello{SessionIncarnation: 7}}
	b, err := hello.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	const lengthAt, known = 6, wire.LifecycleHelloMinSize
	resized := func(n int) []byte {
		out := append(bytes.Clone(b[:lengthAt]), byte(n>>8), byte(n))
		return append(out, append(bytes.Clone(b[lengthAt+2:]), make([]byte, bounds.HelloExtMax)...)[:n]...)
	}
	for n, kind := range map[int]codec.Kind{0: codec.Truncated, known - 1: codec.Truncated, known: 0, known + 1: 0, bounds.HelloExtMax: 0, bounds.HelloExtMax + 1: codec.OverBound} {
		var got wire.ServerHello
		err := codec.AsError(got.DecodeValue(resized(n)))
		if (err == nil) != (kind == 0) || err != nil && err.Kind != kind {
			t.Errorf("%d bytes: %v", n, err)
		}
		if kind == 0 && got != hello {
			t.Errorf("%d bytes: %+v", n, got)
		}
	}
	plain := wire.ServerHello{Version: wire.HelloVersion, Capabilities: wire.CapCorrelation}
	b, err = plain.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got wire.ServerHello
	if err := got.DecodeValue(append(b, 1, 2, 3)); err != nil || got != plain {
		t.Errorf("%+v, %v", got, err)
	}
}

// A count is compared with the bytes that remain before anything depends on it (D-2).
func TestCountIsNoAllocation(t *testing.T) {
	value := append([]byte{0}, 0xff, 0xff, 0xff, 0xff, 0)
	var v wire.LeaseListReplyView
	if err := codec.AsError(v.DecodeValue(value)); err == nil || err.Kind != codec.BadCount || err.Offset != 1 {
		t.Fatalf("got %v", err)
	}
}

// A list with too many elements, or with too many bytes, is refused at its count; the other side never builds one.
func TestListBounds(t *testing.T) {
	small := wire.LeaseItem{Route: "r", OwnerID: "o", AcquiredAt: "t"}
	large := wire.LeaseItem{Route: long(bounds.RouteBytesMax), OwnerID: long(bounds.LeaseOwnerRecvBytesMax)}
	cases := []struct {
		name  string
		items []wire.LeaseItem
		kind  codec.Kind
	}{
		{"most items", repeat(small, bounds.LeaseListPageMax), 0},
		{"too many items", repeat(small, bounds.LeaseListPageMax+1), codec.OverBound},
		{"too many bytes", repeat(large, 12), codec.OverBound},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := wire.LeaseListReply{Items: c.items}
			b, err := m.AppendValue(nil)
			if got := codec.AsError(err); (got == nil) != (c.kind == 0) || got != nil && (got.Kind != c.kind || got.Offset != 1 || len(b) != 0) {
				t.Fatalf("encoding: %v", err)
			}
			page := wire.AppendLeaseListReplyHead(nil, uint32(len(c.items)))
			for i := range c.items {
				if page, err = c.items[i].AppendValue(page); err != nil {
					t.Fatal(err)
				}
			}
			page = wire.AppendLeaseListReplyTail(page, wire.LeaseCursor{}, false)
			var v wire.LeaseListReplyView
			if got := codec.AsError(v.DecodeValue(page)); (got == nil) != (c.kind == 0) || got != nil && (got.Kind != c.kind || got.Offset != 1) {
				t.Fatalf("decoding: %v", got)
			}
			if v.Items.Len() != len(c.items) {
				t.Fatalf("the view has %d of %d items", v.Items.Len(), len(c.items))
			}
		})
	}
}

func repeat(item wire.LeaseItem, n int) []wire.LeaseItem {
	items := make([]wire.LeaseItem, n)
	for i := range items {
		items[i] = item
	}
	return items
}

// Values that are built of shared bytes equal those of the codec (L-61): items of early and late halves, pages of items, notifications of routes.
func TestSharedBytes(t *testing.T) {
	layout, _ := wire.FindLayout(wire.TypeLeaseList, wire.Success)
	rapid.Check(t, func(t *rapid.T) {
		var reply wire.LeaseListReply
		if err := reply.DecodeValue(valid(t, layout)); err != nil {
			t.Fatal(err)
		}
		want, err := reply.AppendValue(nil)
		if err != nil {
			t.Fatal(err)
		}
		page := wire.AppendLeaseListReplyHead(nil, 0)
		for i := range reply.Items {
			item := &reply.Items[i]
			early, err := wire.AppendLeaseItemEarly(nil, item)
			if err != nil {
				t.Fatal(err)
			}
			page = wire.AppendLeaseItemLate(append(page, early...), item.ExpiresIn, item.Renewals)
			checkNotify(t, item.Route, early)
		}
		copy(page[wire.LeaseListReplyCountOffset:], codec.AppendU32(nil, uint32(len(reply.Items))))
		page = wire.AppendLeaseListReplyTail(page, reply.Next, reply.HasNext)
		if !bytes.Equal(page, want) {
			t.Fatalf("page %x\nnot  %x", page, want)
		}
	})
}

func checkNotify(t *rapid.T, route string, early []byte) {
	m := wire.LeaseNotify{SubscriptionID: rapid.Uint64().Draw(t, "id"), Route: route}
	want, err := m.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := wire.AppendLeaseNotifyEncoded(nil, m.SubscriptionID, early[:4+len(route)]); !bytes.Equal(got, want) {
		t.Fatalf("notification %x, not %x", got, want)
	}
}

// Encoding into a buffer with room and reading views allocate nothing, also when a list is walked.
func TestAllocations(t *testing.T) {
	forEach(t, func(t *testing.T, m wire.MessageLayout) {
		b := example(newBuilder(nil), m, 3)
		owned, view := m.New(), m.NewView()
		if err := owned.DecodeValue(b); err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 0, m.MaxSize+16)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := owned.AppendValue(dst); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("encoding allocates %v times", n)
		}
		if n := testing.AllocsPerRun(100, func() {
			if err := view.DecodeValue(b); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("reading a view allocates %v times", n)
		}
	})
	t.Run("walking a page", func(t *testing.T) {
		m := wire.LeaseListReply{Items: repeat(wire.LeaseItem{Route: "lease://r/a/k", OwnerID: "w1"}, 100)}
		b, err := m.AppendValue(nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(100, func() {
			var v wire.LeaseListReplyView
			if err := v.DecodeValue(b); err != nil {
				t.Fatal(err)
			}
			for item := range v.Items.All() {
				if len(item.Route) != 13 {
					t.Fatal("wrong item")
				}
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
