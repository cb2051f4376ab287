package dispatchtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/wire"
)

const (
	aRoute    = "lease://r/a/k"
	aSelector = "lease://r/a/*"
)

// long is text of n bytes.
func long(n int) string { return strings.Repeat("x", n) }

// session notes what dispatch does with it. Methods that dispatch must not call are those of the nil interface.
type session struct {
	peer.Session
	deny bool
	log  []string
}

func (s *session) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func (s *session) Authorize(level wire.AccessLevel, sel pattern.Selector) bool {
	s.note("authorize %v %s", level, sel.Text())
	return !s.deny
}

func (s *session) AuthorizeRoute(level wire.AccessLevel, r pattern.Route) bool {
	s.note("authorize %v %s", level, r.Text())
	return !s.deny
}

func (s *session) Refuse(call peer.Call, code wire.Code, message string) bool {
	s.note("refuse %d %d %s", call.Label, code, message)
	return true
}

// domain notes what reaches it.
type domain struct {
	waits   bool
	refused []wire.Code // of the requests that did not reach it
}

func (d *domain) note(s peer.Session, name string, target fmt.Stringer, req any) {
	s.(*session).note("%s %s %+v", name, target, req)
}

func (d *domain) Acquire(s peer.Session, _ peer.Call, r pattern.Route, req wire.LeaseAcquireRequestView) {
	d.note(s, "acquire", r, req.Owned())
}

func (d *domain) Renew(s peer.Session, _ peer.Call, r pattern.Route, req wire.LeaseRenewRequestView) {
	d.note(s, "renew", r, req.Owned())
}

func (d *domain) Release(s peer.Session, _ peer.Call, r pattern.Route, req wire.LeaseReleaseRequestView) {
	d.note(s, "release", r, req.Owned())
}

func (d *domain) Query(s peer.Session, _ peer.Call, r pattern.Route, req wire.LeaseQueryRequestView) {
	d.note(s, "query", r, req.Owned())
}

func (d *domain) Subscribe(s peer.Session, _ peer.Call, sel pattern.Selector, req wire.LeaseSubscribeRequestView) {
	d.note(s, "subscribe", sel, req.Owned())
}

func (d *domain) Unsubscribe(s peer.Session, _ peer.Call, sel pattern.Selector, req wire.LeaseUnsubscribeRequestView) {
	d.note(s, "unsubscribe", sel, req.Owned())
}

func (d *domain) List(s peer.Session, _ peer.Call, sel pattern.Selector, req wire.LeaseListRequestView) {
	d.note(s, "list", sel, req.Owned())
}

func (d *domain) Refused(_ peer.Call, code wire.Code) { d.refused = append(d.refused, code) }

func (d *domain) Cancel(peer.Session, peer.Call) bool { return d.waits }

func encoded(t *testing.T, m wire.Value) []byte {
	t.Helper()
	b, err := m.AppendValue(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The steps of auth.md section 5 in their order: decode, grammar, permission, bounds, handler. The first that fails answers and nothing after it
// happens.
func TestDispatchOrder(t *testing.T) {
	wide := bounds.Default()
	wide.LeaseTTLSecsMax = 1 << 40
	tooLong := wire.LeaseAcquireRequest{Route: aRoute, OwnerID: "w1", TTL: bounds.LeaseTTLSecsMax + 1}
	late, err := tooLong.AppendValueWithin(nil, &wide)
	if err != nil {
		t.Fatal(err)
	}
	badRoute := codec.AppendU64(codec.AppendString(codec.AppendString(nil, "lease://r/a"), long(bounds.LeaseOwnerBytesMax+1)), 0)
	cases := []struct {
		name    string
		typ     wire.MessageType
		value   []byte
		deny    bool
		outcome dispatch.Outcome
		log     string
	}{
		{"acquire", wire.TypeLeaseAcquire, encoded(t, &wire.LeaseAcquireRequest{Route: aRoute, OwnerID: "w1", TTL: 30, Wait: 5}), false, dispatch.Done,
			"authorize write lease://r/a/k; acquire lease://r/a/k {Route:lease://r/a/k OwnerID:w1 TTL:30 Wait:5}"},
		{"renew", wire.TypeLeaseRenew, encoded(t, &wire.LeaseRenewRequest{Route: aRoute, OwnerID: "w1", FencingToken: 2, TTL: 30}), false, dispatch.Done,
			"authorize write lease://r/a/k; renew lease://r/a/k {Route:lease://r/a/k OwnerID:w1 FencingToken:2 TTL:30}"},
		{"release", wire.TypeLeaseRelease, encoded(t, &wire.LeaseReleaseRequest{Route: aRoute, OwnerID: "w1", FencingToken: 2}), false, dispatch.Done,
			"authorize write lease://r/a/k; release lease://r/a/k {Route:lease://r/a/k OwnerID:w1 FencingToken:2}"},
		{"query", wire.TypeLeaseQuery, encoded(t, &wire.LeaseQueryRequest{Route: aRoute}), false, dispatch.Done,
			"authorize read lease://r/a/k; query lease://r/a/k {Route:lease://r/a/k}"},
		{"subscribe", wire.TypeLeaseSubscribe, encoded(t, &wire.LeaseSubscribeRequest{Selector: aSelector}), false, dispatch.Done,
			"authorize read lease://r/a/*; subscribe lease://r/a/* {Selector:lease://r/a/*}"},
		{"unsubscribe", wire.TypeLeaseUnsubscribe, encoded(t, &wire.LeaseUnsubscribeRequest{Selector: aSelector}), false, dispatch.Done,
			"authorize read lease://r/a/*; unsubscribe lease://r/a/* {Selector:lease://r/a/*}"},
		{"list", wire.TypeLeaseList, encoded(t, &wire.LeaseListRequest{Selector: aSelector, Limit: 7}), false, dispatch.Done,
			"authorize read lease://r/a/*; list lease://r/a/* {Selector:lease://r/a/* Cursor:{SnapshotID:0 Offset:0} HasCursor:false Limit:7}"},
		{"clamped limits pass", wire.TypeLeaseList, encoded(t, &wire.LeaseListRequest{Selector: aSelector, Limit: 1 << 30}), false, dispatch.Done,
			"authorize read lease://r/a/*; list lease://r/a/* {Selector:lease://r/a/* Cursor:{SnapshotID:0 Offset:0} HasCursor:false Limit:1073741824}"},
		{"W-06 malformed", wire.TypeLeaseQuery, []byte{0}, true, dispatch.Malformed,
			"refuse 9 5008 lease.query.route at byte 0: truncated"},
		{"W-06 malformed before grammar", wire.TypeLeaseAcquire, badRoute[:len(badRoute)-1], true, dispatch.Malformed,
			fmt.Sprintf("refuse 9 5008 lease.acquire.ttl at byte %d: truncated", len(badRoute)-8)},
		{"grammar before permission and bounds", wire.TypeLeaseAcquire, badRoute, true, dispatch.Done,
			"refuse 9 5008 depth: "},
		{"route that is no text", wire.TypeLeaseQuery, codec.AppendString(nil, "lease://r/a/\xff"), true, dispatch.Done,
			"refuse 9 5008 invalid_utf8: "},
		{"route that is too long", wire.TypeLeaseQuery, codec.AppendString(nil, "lease://r/a/"+long(bounds.RouteBytesMax)), true, dispatch.Done,
			"refuse 9 5008 too_long: "},
		{"L-20 wildcard in a route", wire.TypeLeaseQuery, codec.AppendString(nil, aSelector), false, dispatch.Done,
			"refuse 9 5008 wildcard_not_allowed: "},
		{"selector of subscribe", wire.TypeLeaseSubscribe, codec.AppendString(nil, "lease://r"), false, dispatch.Done,
			"refuse 9 5010 depth: "},
		{"selector of list", wire.TypeLeaseList, append(codec.AppendString(nil, "kv://r/a/k"), 0, 0, 0, 0, 0), false, dispatch.Done,
			"refuse 9 5012 wrong_scheme: "},
		{"permission before bounds", wire.TypeLeaseAcquire, late, true, dispatch.Done,
			"authorize write lease://r/a/k; refuse 9 5009 " + wire.TextPermissionDenied},
		{"bounds before the domain", wire.TypeLeaseAcquire, late, false, dispatch.Done,
			"authorize write lease://r/a/k; refuse 9 5008 ttl out of range"},
		{"W-05 a number of no request", wire.TypePing, encoded(t, &wire.Ping{}), false, dispatch.Unknown, ""},
		{"W-05 an unassigned number", 404, nil, false, dispatch.Unknown, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, d := &session{deny: c.deny}, &domain{}
			outcome := dispatch.New(bounds.Default(), d).Dispatch(s, peer.Call{Type: c.typ, Label: 9}, c.value)
			got := strings.Join(s.log, "; ")
			if outcome != c.outcome || got != c.log && (!strings.HasSuffix(c.log, ": ") || !strings.HasPrefix(got, c.log)) {
				t.Errorf("outcome %d\n%s\nnot\n%s", outcome, got, c.log)
			}
			var counted string
			for _, code := range d.refused {
				counted += fmt.Sprintf("refuse 9 %d ", code)
			}
			if _, refusal, found := strings.Cut(got, "refuse "); !strings.HasPrefix("refuse "+refusal, counted) || found != (len(d.refused) == 1) {
				t.Errorf("%s: the domain counted %v", got, d.refused)
			}
		})
	}
}

// The limits of the operator decide, not their defaults.
func TestDispatchUsesLimits(t *testing.T) {
	limits := bounds.Default()
	limits.LeaseTTLSecsMax = 10
	s := &session{}
	dispatch.New(limits, &domain{}).Dispatch(s, peer.Call{Type: wire.TypeLeaseAcquire}, encoded(t, &wire.LeaseAcquireRequest{Route: aRoute, TTL: 11}))
	if got := s.log[len(s.log)-1]; got != "refuse 0 5008 ttl out of range" {
		t.Error(got)
	}
}

// CANCEL reaches the domain for requests that can wait, and no other.
func TestDispatchCancel(t *testing.T) {
	table := dispatch.New(bounds.Default(), &domain{waits: true})
	for typ, want := range map[wire.MessageType]bool{wire.TypeLeaseAcquire: true, wire.TypeLeaseRenew: false, wire.TypeLeaseList: false, 404: false} {
		if got := table.Cancel(&session{}, peer.Call{Type: typ}); got != want {
			t.Errorf("%v: %v", typ, got)
		}
	}
}

// quiet is a session and a domain that do nothing.
type quiet struct{ peer.Session }

func (quiet) AuthorizeRoute(wire.AccessLevel, pattern.Route) bool { return true }

type nothing struct{ dispatch.LeaseHandler }

func (nothing) Acquire(peer.Session, peer.Call, pattern.Route, wire.LeaseAcquireRequestView) {}

func BenchmarkDispatch(b *testing.B) {
	value, err := (&wire.LeaseAcquireRequest{Route: aRoute, OwnerID: "w1", TTL: 30}).AppendValue(nil)
	if err != nil {
		b.Fatal(err)
	}
	table := dispatch.New(bounds.Default(), nothing{})
	var s peer.Session = quiet{}
	b.ReportAllocs()
	for b.Loop() {
		table.Dispatch(s, peer.Call{Type: wire.TypeLeaseAcquire, Label: 1}, value)
	}
}
