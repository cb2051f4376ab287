package fitztest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// A peer answers what its script says, and its network has every fault.
func TestPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan int, 10)
		p := fitztest.NewPeer(t, fitztest.Script{
			Answer: func(s *fitztest.Session, f fitztest.Frame) {
				switch f.Type {
				case wire.TypeLeaseQuery:
					s.Reply(f, &wire.LeaseQueryReply{Held: true, OwnerID: fmt.Sprint("session ", s.Number, " token ", s.Token())})
				case wire.TypeLeaseAcquire:
					s.Refuse(f, wire.CodeLeaseHeld, "never")
				}
			},
			Ended: func(s *fitztest.Session) { ended <- s.Number },
		})
		c := p.Connect(fitz.WithToken("t"))
		owner := func() string {
			info, err := c.Lease().Query(t.Context(), at("a"))
			if err != nil {
				t.Error(err)
			}
			return info.OwnerID
		}
		if got := owner(); got != "session 0 token t" || c.Status().BrokerLifetime == "" {
			t.Errorf("%q, %+v", got, c.Status())
		}
		if _, _, err := c.Lease().TryAcquire(t.Context(), at("a"), time.Second, nil); err != nil {
			t.Errorf("lease.held is no error of TryAcquire: %v", err)
		}
		rule := p.Network().Edit(once(toClient(wire.TypeLeaseQuery)), refusal(wire.CodeLeaseUnauthorized))
		if _, err := c.Lease().Query(t.Context(), at("a")); !isCode(err, fitz.CodeLeaseUnauthorized) {
			t.Error(err)
		}
		rule.Remove()
		p.Network().Cut()
		if n := <-ended; n != 0 {
			t.Errorf("session %d ended", n)
		}
		if got := owner(); got != "session 1 token t" || p.Last().Number != 1 {
			t.Errorf("%q", got)
		}
		time.Sleep(time.Minute) // heartbeats are answered
		if s := c.Status(); s.Sessions != 2 {
			t.Errorf("%+v", s)
		}
		p.Close()
		p.Close()
		if n := <-ended; n != 1 {
			t.Errorf("session %d ended", n)
		}
		if _, err := p.Dial(t.Context(), "", ""); err == nil {
			t.Error("connected to a peer that was closed")
		}
	})
}

// A session can be refused, or greeted with nothing.
func TestPeerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fitztest.NewPeer(t, fitztest.Script{
			Hello:  func(*fitztest.Session) *wire.ServerHello { return nil },
			Refuse: func(s *fitztest.Session) bool { return s.Token() == "bad" },
		})
		if p.Last() != nil {
			t.Error("a session without a client")
		}
		if _, err := fitz.Connect(t.Context(), p.URL(), append(p.Options(), fitz.WithToken("bad"))...); !isCode(err, fitz.CodeAuthRejected) {
			t.Error(err)
		}
		if s := p.Connect(fitz.WithToken("good")).Status(); s.State != fitz.ConnReady || s.BrokerLifetime != "" {
			t.Errorf("%+v", s)
		}
		p.Network().Refuse(true)
		if _, err := p.Dial(t.Context(), "", ""); err == nil || p.Network().Dials() != 3 {
			t.Errorf("%v, %d calls", err, p.Network().Dials())
		}
		p.Network().Refuse(false)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Dial(ctx, "", ""); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// What is sent as bytes arrives as it is and at once, also when it is no message.
func TestPeerSendsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fitztest.NewPeer(t, fitztest.Script{})
		c, err := p.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		rule := p.Network().Drop(toClient(wire.TypeLeaseNotify))
		p.Last().Push(wire.TypeLeaseNotify, &wire.LeaseNotify{SubscriptionID: 1, Route: at("a")})
		p.Last().SendMessage([]byte("m"))
		p.Last().SendBytes([]byte{0, 0})
		p.Last().SendBytes([]byte("x"))
		p.Last().Close()
		got, err := io.ReadAll(c)
		if err != nil || string(got) != "\x00\x00\x00\x01m\x00\x00x" || rule.Hits() != 1 {
			t.Errorf("%q, %v, %d dropped", got, err, rule.Hits())
		}
		p.Last().SendBytes([]byte("late")) // lost
		_ = c.Close()
	})
}

// complaints is a testing.TB that keeps what it is told.
type complaints struct {
	testing.TB
	mu   sync.Mutex
	told []string
}

func (c *complaints) Error(args ...any) { c.Errorf("%s", fmt.Sprint(args...)) }

func (c *complaints) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, fmt.Sprintf(format, args...))
}

// What no client may send, and what no record holds, fails the test; nothing panics.
func TestPeerComplains(t *testing.T) {
	long := make([]byte, codec.MaxRecordValue+1)
	for want, do := range map[string]func(p *fitztest.Peer, write func(string)){
		"too long":         func(_ *fitztest.Peer, write func(string)) { write("\xff\xff\xff\xff") },
		"holds no records": func(_ *fitztest.Peer, write func(string)) { write("\x00\x00\x00\x01\x00") },
		"nothing is sent":  func(p *fitztest.Peer, _ func(string)) { p.Last().SendValue(1, wire.TypePong, long) },
		"stays as it was": func(p *fitztest.Peer, _ func(string)) {
			p.Network().Edit(toClient(wire.TypePong), func([]byte) []byte { return long })
			p.Last().SendValue(0, wire.TypePong, nil)
		},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &complaints{TB: t}
				p := fitztest.NewPeer(c, fitztest.Script{})
				conn, err := p.Dial(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				do(p, func(text string) { _, _ = conn.Write([]byte(text)) })
				synctest.Wait()
				_ = conn.Close()
				p.Close()
				if len(c.told) != 1 || !strings.Contains(c.told[0], want) {
					t.Errorf("told %q", c.told)
				}
			})
		})
	}
}
