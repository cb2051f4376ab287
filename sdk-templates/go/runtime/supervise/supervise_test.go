package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/sdk-templates/go/runtime/link"
)

func topicOf(text string) Topic {
	return Topic{Text: text, Subscribe: toySubscribe, Unsubscribe: toyUnsubscribe, Request: []byte(text), ID: toyReadU64}
}

// recorder is a sink that notes what it gets.
type recorder struct{ got []string }

func (r *recorder) sink() Sink {
	return Sink{
		Push:  func(value []byte) { r.got = append(r.got, string(value[8:])) },
		Ended: func(e End) { r.got = append(r.got, fmt.Sprint("end ", e.Reason, " ", e.Dropped)) },
	}
}

func notify(id byte, text string) []byte { return append([]byte{0, 0, 0, 0, 0, 0, 0, id}, text...) }

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// C-61, OB-30: sessions are numbered, and a peer that says another lifetime, or none, may be another process. A listener that comes later
// first hears of the session that there is; one that has stopped hears nothing.
func TestSessionEvents(t *testing.T) {
	bubble(t, func(t *testing.T, c *Core, p *toyPeer) {
		var mu sync.Mutex
		var got []string
		events := func() []string { mu.Lock(); defer mu.Unlock(); out := got; got = nil; return out }
		listen := func() func() {
			return c.OnSession(func(e SessionEvent) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprint(e.Opened, e.Generation, e.Known, e.Restarted))
			})
		}
		stop := listen()
		again := func(lifetime string) {
			p.set(func() { p.lifetime = lifetime })
			p.cut()
			time.Sleep(time.Second)
		}
		again("a")
		again("b")
		again("")
		again("")
		want(t, "events", events(), "true 1 true false", "false 1 false false", "true 2 true false", "false 2 false false", "true 3 true true",
			"false 3 false false", "true 4 false true", "false 4 false false", "true 5 false true")
		stop()
		stop = listen()
		want(t, "a later listener", events(), "true 5 false false")
		stop()
		again("a")
		want(t, "a stopped listener", events())
	})
}

// A request that was not sent when its session ended goes to the next session; one that was sent fails.
func TestCallAcrossSessions(t *testing.T) {
	bubble(t, func(t *testing.T, c *Core, p *toyPeer) {
		p.set(func() { p.refuse = true })
		p.cut()
		synctest.Wait()
		replies := make(chan string, 8)
		for i := range 4 {
			go func() {
				reply, err := c.Call(context.Background(), link.Request{Type: toyEcho, Value: []byte{byte('a' + i)}})
				replies <- fmt.Sprint(string(reply), err)
			}()
		}
		synctest.Wait()
		if _, err := c.Call(t.Context(), link.Request{Type: toyEcho}); !link.IsKind(err, link.Overload) {
			t.Errorf("beyond the queue: %v", err)
		}
		p.set(func() { p.refuse = false })
		var got []string
		for range 4 {
			got = append(got, <-replies)
		}
		slices.Sort(got)
		want(t, "replies", got, "a<nil>", "b<nil>", "c<nil>", "d<nil>")

		p.set(func() { p.refuse = true })
		p.cut()
		synctest.Wait()
		if _, err := c.Call(t.Context(), link.Request{Type: toyEcho, Value: make([]byte, 65)}); !link.IsKind(err, link.Overload) {
			t.Errorf("beyond the bytes of the queue: %v", err)
		}
		began := time.Now()
		if _, err := c.Call(t.Context(), link.Request{Type: toyEcho}); !errors.Is(err, ErrAway) || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		lates := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Call(ctx, link.Request{Type: toyEcho, Late: func([]byte) { lates++ }}); err != context.DeadlineExceeded || lates != 1 {
			t.Errorf("%v, %d", err, lates)
		}
		p.set(func() { p.refuse = false })
		old, err := c.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.cut()
		synctest.Wait()
		if _, err := old.Call(t.Context(), link.Request{Type: toyEcho}); err != ErrStale {
			t.Errorf("a call of an earlier session: %v", err)
		}
		if _, err := old.Subscribe(t.Context(), topicOf("x"), Sink{}); err != ErrStale {
			t.Errorf("a registration in an earlier session: %v", err)
		}
	})
}

// OB-18, W-91: users of one text send their own SUBSCRIBE and share what comes; the last one removes the registration.
func TestRegistrations(t *testing.T) {
	bubble(t, func(t *testing.T, c *Core, p *toyPeer) {
		p.set(func() { p.ids = 4 })
		var a, b, other recorder
		open := func(text string, r *recorder) *Subscription {
			t.Helper()
			sub, err := c.Subscribe(t.Context(), topicOf(text), r.sink())
			if err != nil {
				t.Fatal(err)
			}
			return sub
		}
		first := open("x", &a)
		p.set(func() { p.ids = 4 }) // the same text is answered with the same id
		second := open("x", &b)
		open("y", &other)
		want(t, "requests", p.sent(), "subscribe x", "subscribe x", "subscribe y")
		p.push(toyNotify, notify(5, "one"))
		p.push(toyNotify, notify(9, "nobody"))
		p.push(toyNotify, notify(6, "other"))
		if err := first.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, "after the first Close", p.sent())
		p.push(toyNotify, notify(5, "two"))
		want(t, "the first user", a.got, "one")
		for range 2 {
			if err := second.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "after the last Close", p.sent(), "unsubscribe x")
		p.push(toyNotify, notify(5, "three"))
		want(t, "the second user", b.got, "one", "two")
		want(t, "the other text", other.got, "other")

		third := open("x", &a) // id 7
		p.push(toyNotify, notify(7, ""))
		want(t, "undecodable", a.got, "one", fmt.Sprint("end ", EndUndecodable, " 0"))
		want(t, "what is removed", p.sent(), "subscribe x", "unsubscribe x")
		if err := third.Close(t.Context()); err != nil {
			t.Error(err)
		}
		open("x", &b) // id 8
		p.push(toyEnded, notify(8, ""))
		want(t, "ended by the peer", b.got, "one", "two", fmt.Sprint("end ", EndedByPeer, " 3"))
		open("x", &b) // id 9
		want(t, "no UNSUBSCRIBE of what is gone", p.sent(), "subscribe x", "subscribe x")
		p.push(toyNotify, []byte{1}) // not even an id: all end
		want(t, "without an id", other.got, "other", fmt.Sprint("end ", EndUndecodable, " 0"))
		var last recorder
		open("z", &last)
		p.cut()
		synctest.Wait()
		want(t, "the end of the session", last.got, fmt.Sprint("end ", EndDisconnected, " 0"))
	})
}

// A Subscribe that is given up leaves no registration behind, and does not end the one of the next user of the text.
func TestSubscribeGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, c *Core, p *toyPeer) {
		hold := make(chan struct{})
		p.set(func() { p.hold = hold })
		give := func() {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := c.Subscribe(ctx, topicOf("x"), Sink{})
				done <- err
			}()
			synctest.Wait()
			cancel()
			if err := <-done; err != context.Canceled {
				t.Errorf("%v", err)
			}
		}
		give()
		var r recorder
		next := make(chan error, 1)
		go func() {
			_, err := c.Subscribe(context.Background(), topicOf("x"), r.sink())
			next <- err
		}()
		synctest.Wait()
		p.set(func() { p.ids, p.same = 4, true })
		close(hold)
		if err := <-next; err != nil {
			t.Fatal(err)
		}
		want(t, "requests", p.sent(), "subscribe x", "subscribe x")
		p.push(toyNotify, notify(5, "one"))
		want(t, "the next user", r.got, "one")

		p.set(func() { p.hold = make(chan struct{}); hold = p.hold })
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Subscribe(ctx, topicOf("before"), Sink{}); err != context.Canceled {
			t.Error(err)
		}
		ctx, cancel = context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := c.Subscribe(ctx, topicOf("y"), Sink{})
			done <- err
		}()
		synctest.Wait()
		cancel()
		<-done
		close(hold)
		synctest.Wait()
		want(t, "nobody wants it", p.sent(), "subscribe y", "unsubscribe y")
		s, err := c.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.texts) != 1 || len(s.ids) != 1 {
			t.Errorf("%v, %v are left", s.texts, s.ids)
		}
	})
}

// Close ends what waits, is idempotent, and nothing works afterwards.
func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, c *Core, p *toyPeer) {
		var r recorder
		if _, err := c.Subscribe(t.Context(), topicOf("x"), r.sink()); err != nil {
			t.Fatal(err)
		}
		var events []string
		c.OnSession(func(e SessionEvent) {
			events = append(events, fmt.Sprint(e.Opened, link.IsKind(e.Reason, link.Closed)))
		})
		for range 2 {
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "events", events, "true false", "false true")
		want(t, "the registration", r.got, fmt.Sprint("end ", EndClosed, " 0"))
		if _, err := c.Call(t.Context(), link.Request{Type: toyEcho}); !link.IsKind(err, link.Closed) || !link.IsKind(c.Err(), link.Closed) {
			t.Error(err)
		}
		<-c.Done()
		c.Background(func(context.Context) { t.Error("a task after Close") })
		if st := c.Status(); st.State != Closed {
			t.Errorf("%+v", st)
		}
	})
}

// Close while there is no session, and while the network swallows everything, is bounded.
func TestCloseWhileAway(t *testing.T) {
	bubble(t, func(t *testing.T, c *Core, p *toyPeer) {
		p.set(func() { p.refuse = true })
		p.cut()
		time.Sleep(10 * time.Second)
		failed := make(chan error)
		go func() {
			_, err := c.Call(context.Background(), link.Request{Type: toyEcho})
			failed <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; !link.IsKind(err, link.Closed) {
			t.Error(err)
		}
	})
}
