package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/dispatch"
	"github.com/fitzwire/fitz/generated/go/metrics"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/route"
	"github.com/fitzwire/fitz/generated/go/wire"
)

var (
	lifetime  = [16]byte{0xab, 0xcd, 0xef, 1, 2, 3}
	wallStart = time.Date(2030, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
)

// tick is how late a deadline may be served by the harness.
const tick = wheelTick

// harness is a domain behind the generated dispatch with a manual clock and sessions that record what is enqueued.
type harness struct {
	testing.TB
	clock   *clock.Manual
	domain  *Domain
	table   *dispatch.Table
	metrics *metrics.Lease
	mu      sync.Mutex
	log     []frame // of all sessions, in the order of enqueueing
	serial  uint64
}

type frame struct {
	to   *fakeSession
	text string
}

func newHarness(t testing.TB, change ...func(*bounds.Limits)) *harness {
	limits := bounds.Default()
	for _, c := range change {
		c(&limits)
	}
	h := &harness{TB: t, clock: clock.NewManual(wallStart), metrics: metrics.NewLease(nil)}
	h.domain = New(Options{Limits: limits, Clock: h.clock, Lifetime: lifetime, Metrics: h.metrics})
	h.table = dispatch.New(limits, h.domain)
	return h
}

// pass lets time pass; everything due is served, one wake-up after the other, as Run does.
func (h *harness) pass(d time.Duration) {
	h.serve()
	end := h.clock.Now().Add(d)
	for {
		next, ok := h.clock.Next()
		if !ok || h.clock.Now().Add(next) > end {
			break
		}
		h.clock.Advance(next)
		h.serve()
	}
	h.clock.Advance(end.Sub(h.clock.Now()))
	h.serve()
}

func (h *harness) serve() {
	for h.domain.serveTurn() {
	}
}

func (h *harness) family(number uint32) *family { return h.domain.mailbox(number).family }

// drain returns and forgets everything that was enqueued, as "session: frame", in order.
func (h *harness) drain() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []string{}
	for _, f := range h.log {
		out = append(out, f.to.name+": "+f.text)
	}
	h.log = nil
	return out
}

// expect compares everything that was enqueued since the last call.
func (h *harness) expect(want ...string) {
	h.Helper()
	if got := h.drain(); !slices.Equal(got, want) {
		h.Fatalf("enqueued\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// fakeSession records frames. A frame is rendered as "type[*] content[ #label]", with * for a deferred reply.
type fakeSession struct {
	h          *harness
	name       string
	number     uint64
	family     uint32
	negotiated bool

	mu       sync.Mutex
	closing  bool
	room     int // frames that still can be enqueued before the session starts closing; negative = any number
	notifies int // NOTIFY frames that still fit; negative = any number
	labels   int // labels that still can wait; negative = any number
	closed   []string
	observe  func(text string) // sees every frame, may be nil
}

func (h *harness) session(name string) *fakeSession { return h.sessionIn(name, 1) }

func (h *harness) sessionIn(name string, family uint32) *fakeSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serial++
	return &fakeSession{h: h, name: name, number: h.serial, family: family, negotiated: true, room: -1, notifies: -1, labels: -1}
}

func (s *fakeSession) Number() uint64                                      { return s.number }
func (s *fakeSession) Incarnation() uint64                                 { return s.number * 0x9e3779b97f4a7c15 }
func (s *fakeSession) Family() uint32                                      { return s.family }
func (s *fakeSession) Negotiated() bool                                    { return s.negotiated }
func (s *fakeSession) Authorize(wire.AccessLevel, pattern.Selector) bool   { return true }
func (s *fakeSession) AuthorizeRoute(wire.AccessLevel, pattern.Route) bool { return true }
func (s *fakeSession) Reply(c peer.Call, value []byte) bool                { return s.put(render(c, "", value)) }
func (s *fakeSession) Settle(c peer.Call, value []byte) bool               { return s.put(render(c, "*", value)) }
func (s *fakeSession) Refuse(c peer.Call, code wire.Code, text string) bool {
	return s.put(refusal(c, "", code, text))
}
func (s *fakeSession) SettleRefusal(c peer.Call, code wire.Code, text string) bool {
	return s.put(refusal(c, "*", code, text))
}

func (s *fakeSession) Wait(peer.Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.labels == 0 {
		s.closing = true
		return false
	}
	s.labels--
	return true
}

func (s *fakeSession) Notify(typ wire.MessageType, value []byte) peer.NotifyResult {
	var v wire.LeaseNotify
	if err := v.DecodeValue(value); err != nil || typ != wire.TypeLeaseNotify {
		s.h.Errorf("push %v: %v", typ, err)
	}
	s.mu.Lock()
	full := s.notifies == 0
	if s.notifies > 0 {
		s.notifies--
	}
	s.mu.Unlock()
	if full {
		return peer.Full
	}
	if !s.put(fmt.Sprintf("%d %d %s", typ, v.SubscriptionID, strings.TrimPrefix(v.Route, "lease://"))) {
		return peer.Closing
	}
	return peer.Enqueued
}

func (s *fakeSession) EndRegistration(domain uint8, id uint64, code wire.Code, dropped uint64, reason string) {
	if s.negotiated {
		s.put(fmt.Sprintf("244 %d %d %d dropped %d %s", domain, id, uint32(code), dropped, reason))
	}
}

func (s *fakeSession) Close(reason wire.CloseReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	s.closed = append(s.closed, reason.Text)
}

func (s *fakeSession) put(text string) bool {
	s.mu.Lock()
	if s.closing || s.room == 0 {
		s.closing = true
		s.mu.Unlock()
		return false
	}
	s.room--
	observe := s.observe
	s.mu.Unlock()
	if observe != nil {
		observe(text)
		return true
	}
	s.h.mu.Lock()
	s.h.log = append(s.h.log, frame{s, text})
	s.h.mu.Unlock()
	return true
}

func labelOf(c peer.Call) string {
	if c.Label == 0 {
		return ""
	}
	return fmt.Sprintf(" #%d", c.Label)
}

func refusal(c peer.Call, mark string, code wire.Code, text string) string {
	return fmt.Sprintf("%d%s %d %s%s", c.Type, mark, uint32(code), text, labelOf(c))
}

func render(c peer.Call, mark string, value []byte) string {
	var content string
	decode := func(v interface{ DecodeValue([]byte) error }) {
		if err := v.DecodeValue(value); err != nil {
			content = "malformed: " + err.Error()
		}
	}
	switch c.Type {
	case wire.TypeLeaseAcquire:
		var v wire.LeaseAcquireReply
		decode(&v)
		content += fmt.Sprintf("kind %d token %d", v.Kind, v.FencingToken)
	case wire.TypeLeaseRenew:
		var v wire.LeaseRenewReply
		decode(&v)
		content += fmt.Sprintf("token %d", v.FencingToken)
	case wire.TypeLeaseRelease:
		var v wire.LeaseReleaseReply
		decode(&v)
		content += "ok"
	case wire.TypeLeaseQuery:
		var v wire.LeaseQueryReply
		decode(&v)
		content += fmt.Sprintf("free, %d waiting", v.PendingWaiters)
		if v.Held {
			content = fmt.Sprintf("held by %q for %d, %d waiting", v.OwnerID, v.TTLRemaining, v.PendingWaiters)
		}
	case wire.TypeLeaseSubscribe:
		var v wire.LeaseSubscribeReply
		decode(&v)
		content += fmt.Sprintf("id %d", v.SubscriptionID)
	case wire.TypeLeaseUnsubscribe:
		var v wire.LeaseUnsubscribeReply
		decode(&v)
		content += "ok"
	case wire.TypeLeaseList:
		var v wire.LeaseListReply
		decode(&v)
		for i, item := range v.Items {
			if i > 0 {
				content += ","
			}
			content += strings.TrimPrefix(item.Route, "lease://")
		}
		if v.HasNext {
			content += fmt.Sprintf(" next %x/%d", v.Next.SnapshotID, v.Next.Offset)
		}
	}
	return fmt.Sprintf("%d%s %s%s", c.Type, mark, content, labelOf(c))
}

// do sends one request through dispatch and overwrites the receive buffer when it returns, as the session layer may (D-8).
func (s *fakeSession) do(typ wire.MessageType, label uint64, request value) {
	encoded, err := request.AppendValue(nil)
	if err != nil {
		s.h.Fatal(err)
	}
	s.raw(typ, label, encoded)
}

func (s *fakeSession) raw(typ wire.MessageType, label uint64, encoded []byte) {
	if got := s.h.table.Dispatch(s, peer.Call{Type: typ, Label: label}, encoded); got != dispatch.Done {
		s.h.Errorf("dispatch of %v: outcome %d", typ, got)
	}
	for i := range encoded {
		encoded[i] = 0xA5
	}
}

func (s *fakeSession) acquire(path, owner string, ttl uint64, wait uint32, label ...uint64) {
	s.do(wire.TypeLeaseAcquire, cmp.Or(append(label, 0)...), &wire.LeaseAcquireRequest{Route: "lease://" + path, OwnerID: owner, TTL: ttl, Wait: wait})
}

func (s *fakeSession) renew(path, owner string, token, ttl uint64) {
	s.do(wire.TypeLeaseRenew, 0, &wire.LeaseRenewRequest{Route: "lease://" + path, OwnerID: owner, FencingToken: token, TTL: ttl})
}

func (s *fakeSession) release(path, owner string, token uint64) {
	s.do(wire.TypeLeaseRelease, 0, &wire.LeaseReleaseRequest{Route: "lease://" + path, OwnerID: owner, FencingToken: token})
}

func (s *fakeSession) query(path string) {
	s.do(wire.TypeLeaseQuery, 0, &wire.LeaseQueryRequest{Route: "lease://" + path})
}

func (s *fakeSession) subscribe(path string) {
	s.do(wire.TypeLeaseSubscribe, 0, &wire.LeaseSubscribeRequest{Selector: "lease://" + path})
}

func (s *fakeSession) unsubscribe(path string) {
	s.do(wire.TypeLeaseUnsubscribe, 0, &wire.LeaseUnsubscribeRequest{Selector: "lease://" + path})
}

func (s *fakeSession) list(path string, limit uint32) {
	s.do(wire.TypeLeaseList, 0, &wire.LeaseListRequest{Selector: "lease://" + path, Limit: limit})
}

func (s *fakeSession) listFrom(path string, limit uint32, c wire.LeaseCursor) {
	s.do(wire.TypeLeaseList, 0, &wire.LeaseListRequest{Selector: "lease://" + path, Limit: limit, Cursor: c, HasCursor: true})
}

// cancel is what the session layer does for CANCEL: the domain first, then the outcome (wire.md section 8).
func (s *fakeSession) cancel(label uint64) bool {
	done := s.h.table.Cancel(s, peer.Call{Type: wire.TypeLeaseAcquire, Label: label})
	if done {
		s.put(fmt.Sprintf("246 %d outcome 0", label))
	}
	return done
}

// close is what the session layer does at the end of a session: nothing is enqueued any more, then the domain is told.
func (s *fakeSession) close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.h.domain.CloseSession(s)
}

// page requests one page and returns it decoded.
func (s *fakeSession) page(path string, limit uint32, from *wire.LeaseListReply) (reply wire.LeaseListReply, refused string) {
	s.h.Helper()
	req := wire.LeaseListRequest{Selector: "lease://" + path, Limit: limit}
	if from != nil {
		req.Cursor, req.HasCursor = from.Next, true
	}
	encoded, err := req.AppendValue(nil)
	if err != nil {
		s.h.Fatal(err)
	}
	catch := &pageCatcher{fakeSession: s}
	s.h.table.Dispatch(catch, peer.Call{Type: wire.TypeLeaseList}, encoded)
	if catch.refused != "" {
		return reply, catch.refused
	}
	if err := reply.DecodeValue(catch.value); err != nil {
		s.h.Fatalf("page: %v", err)
	}
	return reply, ""
}

// pageCatcher keeps the value of a LIST reply instead of rendering it.
type pageCatcher struct {
	*fakeSession
	value   []byte
	refused string
}

func (p *pageCatcher) Reply(_ peer.Call, value []byte) bool {
	p.value = append([]byte(nil), value...)
	return true
}

func (p *pageCatcher) Refuse(_ peer.Call, code wire.Code, text string) bool {
	p.refused = fmt.Sprintf("%d %s", uint32(code), text)
	return true
}

// collect follows a listing to its end and returns the routes in order.
func (s *fakeSession) collect(path string, limit uint32) []string {
	s.h.Helper()
	var routes []string
	var last *wire.LeaseListReply
	for {
		reply, refused := s.page(path, limit, last)
		if refused != "" {
			s.h.Fatalf("LIST %s: %s", path, refused)
		}
		for _, item := range reply.Items {
			routes = append(routes, strings.TrimPrefix(item.Route, "lease://"))
		}
		if !reply.HasNext {
			return routes
		}
		if last != nil && (reply.Next.SnapshotID != last.Next.SnapshotID || reply.Next.Offset <= last.Next.Offset) {
			s.h.Fatalf("L-63: cursor %+v after %+v", reply.Next, last.Next)
		}
		last = &reply
	}
}

func mustSelector(t testing.TB, text string) pattern.Selector {
	t.Helper()
	s, err := route.Lease.ParseSelector(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

// verify checks the books of a family against its state: every counter, list and table agrees (invariant 13).
func (f *family) verify(t testing.TB) {
	t.Helper()
	var bytes int64
	held, waiting := 0, 0
	for number, s := range f.sessions {
		var sessionBytes int64
		leases, waiters, labels, wildcards := 0, 0, 0, 0
		for l := s.leases; l != nil; l = l.nextOfSession {
			leases++
			sessionBytes += l.charge()
			if l.holder != s.holder || f.leases[l.text] != l || l.ended.Load() != 0 || l.slot == 0 {
				t.Fatalf("lease %s of session %d is not in order", l.text, number)
			}
		}
		for w := s.waiters; w != nil; w = w.nextOfSession {
			waiters++
			labels += len(w.labels)
			sessionBytes += w.charge()
			if w.session != s || w.queue == nil || w.queue.lease == nil || w.queue.lease.queue != w.queue || w.slot == 0 {
				t.Fatalf("waiter %q of session %d is not in order", w.owner, number)
			}
			if w.queue.earliest > w.deadline {
				t.Fatalf("queue thinks its first deadline is %d, a waiter has %d", w.queue.earliest, w.deadline)
			}
		}
		for text, r := range s.subscriptions {
			sessionBytes += registrationCharge(r.Selector)
			if r.Selector.Wildcard() {
				wildcards++
			}
			if r.Selector.Text() != text || r.Value != s {
				t.Fatalf("registration %s of session %d is not in order", text, number)
			}
		}
		if leases != s.held || waiters != s.waiting || labels != len(s.labels) || wildcards != s.wildcards || sessionBytes != s.bytes {
			t.Fatalf("session %d counts %d leases, %d waiters, %d labels, %d wildcards, %d bytes; has %d, %d, %d, %d, %d",
				number, s.held, s.waiting, len(s.labels), s.wildcards, s.bytes, leases, waiters, labels, wildcards, sessionBytes)
		}
		held += leases
		waiting += waiters
		bytes += sessionBytes
	}
	doomed := 0
	for text, l := range f.leases {
		if l.text != text {
			t.Fatalf("lease %s under %s", l.text, text)
		}
		if l.closed() {
			doomed++
		}
		if l.queue != nil && (l.queue.count == 0 || l.queue.lease != l) {
			t.Fatalf("queue of %s is not in order", text)
		}
	}
	if held != f.held || len(f.leases) != f.held+doomed || waiting != f.waiting || bytes != f.bytes || f.expiries.count != len(f.leases) {
		t.Fatalf("family counts %d leases, %d waiters, %d bytes, %d deadlines; has %d (+%d doomed), %d, %d, %d",
			f.held, f.waiting, f.bytes, f.expiries.count, held, doomed, waiting, bytes, len(f.leases))
	}
	for i, tree := range f.tree {
		if tree.Len() != len(f.leases) {
			t.Fatalf("map %d has %d leases, want %d", i, tree.Len(), len(f.leases))
		}
	}
	if f.timeouts != nil && f.timeouts.count != f.waiting {
		t.Fatalf("%d waiter deadlines, %d waiters", f.timeouts.count, f.waiting)
	}
}

// silent accepts everything and records nothing.
type silent struct{ *fakeSession }

func (*silent) Reply(peer.Call, []byte) bool             { return true }
func (*silent) Refuse(peer.Call, wire.Code, string) bool { return true }
func (*silent) Settle(peer.Call, []byte) bool            { return true }
func (*silent) Notify(wire.MessageType, []byte) peer.NotifyResult {
	return peer.Enqueued
}

var renewCall = peer.Call{Type: wire.TypeLeaseRenew}

func mustRoute(t testing.TB, text string) pattern.Route {
	t.Helper()
	r, err := route.Lease.ParseRoute(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

type wireListReply = wire.LeaseListReply

func newHarnessMetrics() *metrics.Lease { return metrics.NewLease(nil) }

func (s *fakeSession) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}
