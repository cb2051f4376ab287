package lease

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// W-46, W-97: the SUBSCRIBE reply stands before every NOTIFY that carries its id, also when the held set changes all the time, and
// changes from before the registration are not told.
func TestSubscribeReplyComesFirst(t *testing.T) {
	h := newHarness(t)
	a := h.session("a")
	a.acquire(key, "w", 30, 0)
	s := h.session("s")
	s.subscribe("**")
	h.expect("a: 400 kind 0 token 1", "s: 407 id 1") // nothing is replayed
	s.unsubscribe("**")
	a.release(key, "w", 1)
	h.drain()

	done := make(chan struct{})
	var churn sync.WaitGroup
	churn.Go(func() {
		c := h.session("c")
		for token := uint64(2); ; token++ {
			select {
			case <-done:
				return
			default:
				c.acquire(key, "w", 30, 0)
				c.release(key, "w", token)
			}
		}
	})
	first := make([]string, 200)
	for i := range first {
		s := h.session(fmt.Sprint(i))
		var mu sync.Mutex
		told := make(chan struct{})
		var once sync.Once
		s.observe = func(text string) {
			mu.Lock()
			defer mu.Unlock()
			if first[i] == "" {
				first[i] = text
				return
			}
			once.Do(func() { close(told) })
		}
		s.subscribe("**")
		<-told // a NOTIFY came behind the first frame
		s.close()
	}
	close(done)
	churn.Wait()
	for i, text := range first {
		if !strings.HasPrefix(text, "407 id ") {
			t.Fatalf("session %d: the first frame is %q", i, text)
		}
	}
}

// E-03: the text of a refusal holds no fencing token, neither that of the holder nor the one that was sent.
func TestRefusalsShowNoToken(t *testing.T) {
	const held, sent = 7_700_770_077, 5_500_550_055
	h := newHarness(t)
	a, b := h.session("a"), h.session("b")
	h.domain.tokens.Store(held - 1)
	a.acquire(key, "w1", 30, 0)
	h.expect(fmt.Sprintf("a: 400 kind 0 token %d", held))
	b.acquire(key, "w2", 30, 0)
	a.renew(key, "w1", sent, 30)
	b.renew(key, "w2", sent, 30)
	a.release(key, "w1", sent)
	b.acquire(key, "w2", 30, 1)
	b.acquire(key, "w2", 30, 0)
	h.pass(2_000_000_000)
	refused := 0
	for _, f := range h.drain() {
		if strings.Contains(f, "kind") || strings.HasPrefix(f, "b: 402 ok") {
			continue
		}
		refused++
		if strings.Contains(f, fmt.Sprint(held)) || strings.Contains(f, fmt.Sprint(held+1)) || strings.Contains(f, fmt.Sprint(sent)) {
			t.Errorf("a token in %s", f)
		}
	}
	if refused < 5 {
		t.Errorf("%d refusals", refused)
	}
}
