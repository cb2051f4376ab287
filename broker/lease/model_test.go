package lease

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/broker/clock"
)

// model is the reference: every route on its own, applied lazily, with everything that is enqueued. It knows no index, wheel or
// queue structure.
type model struct {
	now    clock.Instant
	routes map[string]*modelLease
	token  uint64
	out    []string
}

type modelLease struct {
	by       *fakeSession
	owner    string
	token    uint64
	deadline clock.Instant
	line     []*modelWaiter
}

type modelWaiter struct {
	by         *fakeSession
	owner      string
	ttl, token uint64
	deadline   clock.Instant
	labels     []uint64
	unlabelled bool
}

func (m *model) say(to *fakeSession, format string, args ...any) {
	if !to.closing {
		m.out = append(m.out, to.name+": "+fmt.Sprintf(format, args...))
	}
}

func (m *model) answer(w *modelWaiter, format string, args ...any) {
	for _, label := range w.labels {
		m.say(w.by, "400* "+format+fmt.Sprintf(" #%d", label), args...)
	}
	if w.unlabelled {
		m.say(w.by, "400* "+format, args...)
	}
}

func (m *model) notify(path string) { m.out = append(m.out, "s: 409 1 "+path) }

// grant gives a free route and reports whether the holder can be told; the caller has enqueued the reply.
func (m *model) grant(path string, l *modelLease) bool {
	m.notify(path)
	if l.by.closing {
		m.notify(path)
		return false
	}
	m.routes[path] = l
	return true
}

func (m *model) end(path string) {
	line := m.routes[path].line
	delete(m.routes, path)
	m.notify(path)
	for i, w := range line {
		if w.deadline <= m.now {
			m.answer(w, "5006 Timeout")
			continue
		}
		m.answer(w, "kind 0 token %d", w.token)
		if m.grant(path, &modelLease{w.by, w.owner, w.token, m.now.Add(seconds(w.ttl)), line[i+1:]}) {
			return
		}
	}
}

func (m *model) settle(path string) (expired bool) {
	for l := m.routes[path]; l != nil && l.deadline <= m.now; l = m.routes[path] {
		m.end(path)
		expired = true
	}
	if l := m.routes[path]; l != nil {
		l.line = slices.DeleteFunc(slices.Clone(l.line), func(w *modelWaiter) bool {
			if w.deadline > m.now {
				return false
			}
			m.answer(w, "5006 Timeout")
			return true
		})
	}
	return expired
}

func (m *model) acquire(s *fakeSession, path, owner string, ttl uint64, wait uint32, label uint64) {
	m.settle(path)
	l := m.routes[path]
	end := ""
	if label != 0 {
		end = fmt.Sprintf(" #%d", label)
	}
	switch {
	case l == nil:
		m.token++
		m.say(s, "400 kind 0 token %d%s", m.token, end)
		m.grant(path, &modelLease{s, owner, m.token, m.now.Add(seconds(ttl)), nil})
	case l.by == s && l.owner == owner:
		m.say(s, "400 kind 1 token %d%s", l.token, end)
	case wait == 0:
		m.say(s, "400 5001 HeldByOther: %s%s", l.owner, end)
	default:
		m.enqueue(s, l, owner, ttl, wait, label, end)
	}
}

func (m *model) enqueue(s *fakeSession, l *modelLease, owner string, ttl uint64, wait uint32, label uint64, end string) {
	at := slices.IndexFunc(l.line, func(w *modelWaiter) bool { return w.by == s && w.owner == owner })
	kind := 3
	if at < 0 {
		kind = 2
		m.token++
		at = len(l.line)
		l.line = append(slices.Clip(l.line), &modelWaiter{by: s, owner: owner, ttl: ttl, token: m.token, deadline: m.now.Add(seconds(uint64(wait)))})
	}
	w := l.line[at]
	if label != 0 {
		w.labels = append(w.labels, label)
	} else {
		w.unlabelled = true
	}
	m.say(s, "400 kind %d token %d%s", kind, w.token, end)
	if s.closing {
		l.line = slices.Delete(slices.Clone(l.line), at, at+1)
	}
}

func (m *model) renew(s *fakeSession, path, owner string, token, ttl uint64) {
	expired := m.settle(path)
	switch l := m.routes[path]; {
	case expired:
		m.say(s, "401 5003 Expired")
	case l == nil || l.by != s || l.owner != owner:
		m.say(s, "401 5004 NotHeld")
	case l.token != token:
		m.say(s, "401 5002 Fenced")
	default:
		l.deadline = m.now.Add(seconds(ttl))
		m.say(s, "401 token %d", token)
	}
}

func (m *model) release(s *fakeSession, path, owner string, token uint64) {
	expired := m.settle(path)
	switch l := m.routes[path]; {
	case expired || l == nil:
		m.say(s, "402 ok")
	case l.by != s || l.owner != owner:
		m.say(s, "402 5004 NotHeld")
	case l.token != token:
		m.say(s, "402 5002 Fenced")
	default:
		m.say(s, "402 ok")
		m.end(path)
	}
}

func (m *model) query(s *fakeSession, path string) {
	m.settle(path)
	if l := m.routes[path]; l != nil {
		m.say(s, "403 held by %q for %d, %d waiting", l.owner, wholeSeconds(l.deadline.Sub(m.now)), len(l.line))
		return
	}
	m.say(s, "403 free, 0 waiting")
}

func (m *model) cancel(s *fakeSession, label uint64) {
	for _, path := range m.paths() {
		find := func() (int, int) {
			if l := m.routes[path]; l != nil {
				for i, w := range l.line {
					if at := slices.Index(w.labels, label); at >= 0 && w.by == s {
						return i, at
					}
				}
			}
			return -1, -1
		}
		if i, _ := find(); i < 0 {
			continue
		}
		m.settle(path)
		i, at := find()
		if i < 0 {
			return
		}
		l := m.routes[path]
		w := l.line[i]
		w.labels = slices.Delete(slices.Clone(w.labels), at, at+1)
		if len(w.labels) == 0 && !w.unlabelled {
			l.line = slices.Delete(slices.Clone(l.line), i, i+1)
		}
		m.say(s, "400* 9001 cancelled #%d", label)
		m.say(s, "246 %d outcome 0", label)
		return
	}
}

func (m *model) close(s *fakeSession) {
	for _, l := range m.routes {
		l.line = slices.DeleteFunc(slices.Clone(l.line), func(w *modelWaiter) bool { return w.by == s })
	}
	for _, path := range m.paths() {
		if m.routes[path].by == s {
			m.end(path)
		}
	}
}

func (m *model) paths() []string {
	var all []string
	for path := range m.routes {
		all = append(all, path)
	}
	slices.Sort(all)
	return all
}

// pass serves everything due, event by event, until d has passed.
func (m *model) pass(d time.Duration) {
	for end := m.now.Add(d); ; {
		for _, path := range m.paths() {
			m.settle(path)
		}
		next := end
		for _, l := range m.routes {
			next = min(next, l.deadline)
			for _, w := range l.line {
				next = min(next, w.deadline)
			}
		}
		if m.now == end {
			return
		}
		m.now = next
	}
}

// The family agrees with the model in everything that it enqueues, in order, under every sequence of commands, time, cancels,
// session ends and sessions that cannot be told any more (L-20 to L-49, L-80 to L-82, W-45, W-70, W-71).
func TestFamilyAgreesWithTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHarness(t)
		m := &model{routes: map[string]*modelLease{}}
		h.session("s").subscribe("**")
		sessions := []*fakeSession{h.session("a"), h.session("b"), h.session("c")}
		renewed, label := 0, uint64(0)
		h.drain()

		who := func() *fakeSession { return rapid.SampledFrom(sessions).Draw(rt, "session") }
		path := func() string { return rapid.SampledFrom([]string{"r/a/1", "r/a/2", "r/b/1"}).Draw(rt, "route") }
		owner := func() string { return rapid.SampledFrom([]string{"x", "y"}).Draw(rt, "owner") }
		ttl := func() uint64 { return rapid.Uint64Range(1, 6).Draw(rt, "ttl") }
		token := func(path string) uint64 {
			if l := m.routes[path]; l != nil && rapid.IntRange(0, 4).Draw(rt, "wrong") > 0 {
				return l.token
			}
			return rapid.Uint64Range(1, m.token+1).Draw(rt, "token")
		}
		span := func() time.Duration {
			return time.Duration(rapid.IntRange(1, 50).Draw(rt, "span")) * 100 * time.Millisecond
		}
		same := func(sorted bool) {
			got := h.drain()
			if sorted { // the order among routes that are due at one instant is open
				slices.Sort(got)
				slices.Sort(m.out)
			}
			if !slices.Equal(got, m.out) && len(got)+len(m.out) > 0 {
				rt.Fatalf("enqueued\n  %s\nmodel says\n  %s", strings.Join(got, "\n  "), strings.Join(m.out, "\n  "))
			}
			m.out = nil
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { h.family(1).verify(t) },
			"acquire": func(*rapid.T) {
				s, path, owner, ttl := who(), path(), owner(), ttl()
				wait := rapid.SampledFrom([]uint32{0, 1, 3, 5}).Draw(rt, "wait")
				use := uint64(0)
				if rapid.Bool().Draw(rt, "labelled") {
					label++
					use = label
				}
				if l := m.routes[path]; l != nil {
					for _, w := range l.line {
						if w.by == s && w.owner == owner && len(w.labels) == 8 {
							return // lease_waiter_labels_max is tested elsewhere
						}
					}
				}
				m.acquire(s, path, owner, ttl, wait, use)
				s.acquire(path, owner, ttl, wait, use)
				same(false)
			},
			"renew": func(*rapid.T) {
				s, path, owner, ttl := who(), path(), owner(), ttl()
				tok := token(path)
				m.renew(s, path, owner, tok, ttl)
				s.renew(path, owner, tok, ttl)
				same(false)
			},
			"release": func(*rapid.T) {
				s, path, owner := who(), path(), owner()
				tok := token(path)
				m.release(s, path, owner, tok)
				s.release(path, owner, tok)
				same(false)
			},
			"query": func(*rapid.T) {
				s, path := who(), path()
				m.query(s, path)
				s.query(path)
				same(false)
			},
			"list": func(*rapid.T) {
				var want []string
				for _, path := range m.paths() {
					if m.routes[path].deadline > m.now {
						want = append(want, path)
					}
				}
				if got := h.session("l").collect("**", 1); !slices.Equal(got, want) {
					rt.Fatalf("LIST shows %v, model %v", got, want)
				}
			},
			"cancel": func(*rapid.T) {
				s, l := who(), rapid.Uint64Range(1, label+1).Draw(rt, "label")
				m.cancel(s, l)
				s.cancel(l)
				same(false)
			},
			"time without a sweep": func(*rapid.T) {
				d := span()
				m.now = m.now.Add(d)
				h.clock.Advance(d)
				same(false)
			},
			"time": func(*rapid.T) {
				d := span()
				m.pass(d)
				h.pass(d)
				same(true)
			},
			"break": func(*rapid.T) { // the session is closing, the domain was not told yet
				if rapid.IntRange(0, 3).Draw(rt, "often") == 0 {
					who().closing = true
				}
			},
			"close": func(*rapid.T) {
				i := rapid.IntRange(0, len(sessions)-1).Draw(rt, "session")
				s := sessions[i]
				s.closing = true
				m.close(s)
				s.close()
				same(false)
				// A command that was on its way leaves nothing behind.
				path, wait := path(), rapid.SampledFrom([]uint32{0, 5}).Draw(rt, "wait")
				m.acquire(s, path, "x", 3, wait, 0)
				s.acquire(path, "x", 3, wait)
				s.subscribe("**")
				same(false)
				if h.family(1).sessions[s.number] != nil {
					rt.Fatal("a closed session is remembered")
				}
				renewed++
				sessions[i] = h.session(fmt.Sprintf("%c%d", 'a'+i, renewed))
			},
		})
	})
}

// Paging under churn: whatever happens between the pages, a listing returns exactly the leases that matched at its capture, each
// once, in the same order as every other listing of that selector over that snapshot (L-51, L-53).
// AC-I07.
func TestPagingUnderChurn(t *testing.T) {
	segment := rapid.SampledFrom([]string{"a", "b", "c"})
	pathOf := func(rt *rapid.T) string {
		return segment.Draw(rt, "realm") + "/" + segment.Draw(rt, "area") + "/" + segment.Draw(rt, "resource")
	}
	selectors := rapid.SampledFrom([]string{"**", "a/**", "a/b/*", "*/b/*", "*/b/c", "*/*/c", "a/*/c", "**/a/**", "**/a/**/b/**", "a/**/b"})
	type listing struct {
		selector string
		want     []string
		got      []string
		last     wireListReply
	}
	rapid.Check(t, func(rt *rapid.T) {
		h := newHarness(t)
		h.domain.limits.LeaseListExaminedMax = rapid.Int64Range(1, 8).Draw(rt, "examined")
		reader := h.session("reader")
		held := map[string]clock.Instant{}
		owner := h.session("w")
		var open []*listing
		members := func(selector string) []string {
			var all []string
			sel := mustSelector(t, "lease://"+selector)
			for path, deadline := range held {
				if deadline > h.clock.Now() && sel.Matches(mustRoute(t, "lease://"+path)) {
					all = append(all, path)
				}
			}
			slices.Sort(all)
			return all
		}
		take := func(l *listing, reply wireListReply) bool {
			for _, item := range reply.Items {
				l.got = append(l.got, strings.TrimPrefix(item.Route, "lease://"))
			}
			l.last = reply
			if reply.HasNext {
				return false
			}
			slices.Sort(l.got)
			if !slices.Equal(l.got, l.want) {
				rt.Fatalf("%s: %v, want %v", l.selector, l.got, l.want)
			}
			return true
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { h.drain() },
			"grant": func(rt *rapid.T) {
				path, ttl := pathOf(rt), rapid.Uint64Range(1, 9).Draw(rt, "ttl")
				if held[path] <= h.clock.Now() {
					owner.acquire(path, "w", ttl, 0)
					held[path] = h.clock.Now().Add(seconds(ttl))
				}
			},
			"release": func(rt *rapid.T) {
				path := pathOf(rt)
				if l := h.family(1).leases["lease://"+path]; l != nil {
					owner.release(path, "w", l.token)
					delete(held, path)
				}
			},
			"renew": func(rt *rapid.T) {
				path, ttl := pathOf(rt), rapid.Uint64Range(1, 9).Draw(rt, "ttl")
				if l := h.family(1).leases["lease://"+path]; l != nil && held[path] > h.clock.Now() {
					owner.renew(path, "w", l.token, ttl)
					held[path] = h.clock.Now().Add(seconds(ttl))
				}
			},
			"time": func(rt *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 30).Draw(rt, "span")) * 100 * time.Millisecond
				if rapid.Bool().Draw(rt, "swept") {
					h.pass(d)
				} else {
					h.clock.Advance(d)
				}
			},
			"close": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "often") == 0 {
					owner.close()
					owner = h.session("w")
					clear(held)
				}
			},
			"open": func(rt *rapid.T) {
				if len(open) == 8 {
					return
				}
				l := &listing{selector: selectors.Draw(rt, "selector")}
				l.want = members(l.selector)
				reply, refused := reader.page(l.selector, rapid.Uint32Range(1, 4).Draw(rt, "limit"), nil)
				if refused != "" {
					rt.Fatal(refused)
				}
				if !take(l, reply) {
					open = append(open, l)
				}
			},
			"next": func(rt *rapid.T) {
				if len(open) == 0 {
					return
				}
				i := rapid.IntRange(0, len(open)-1).Draw(rt, "listing")
				l := open[i]
				reply, refused := reader.page(l.selector, rapid.Uint32Range(1, 4).Draw(rt, "limit"), &l.last)
				if refused != "" {
					rt.Fatal(refused)
				}
				if reply.HasNext && reply.Next.Offset <= l.last.Next.Offset {
					rt.Fatalf("L-63: offset %d after %d", reply.Next.Offset, l.last.Next.Offset)
				}
				if take(l, reply) {
					open = slices.Delete(open, i, i+1)
				}
			},
		})
	})
}
