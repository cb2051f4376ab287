package fitztest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// observing starts an observer and waits until it is ready.
func observing(t *testing.T, c *fitz.Client) *fitz.InventoryObserver {
	t.Helper()
	o, err := c.Lease().Observe(selector, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

// rotating is a source of tokens that a test changes while a client runs.
type rotating struct {
	mu    sync.Mutex
	token string
	err   error
	asked int
}

func (r *rotating) set(token string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.token, r.err = token, nil
}

func (r *rotating) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *rotating) get(context.Context) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	return r.token, r.err
}

// tokenWorld runs a test against a broker that asks for tokens: over both transports, with a hello and without one.
func tokenWorld(t *testing.T, test func(t *testing.T, b *fitztest.Broker, url string)) {
	for _, hello := range []bool{true, false} {
		for _, ws := range []bool{false, true} {
			t.Run(fmt.Sprintf("hello=%v,websocket=%v", hello, ws), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					options := []fitztest.Option{fitztest.WithTokens()}
					if !hello {
						options = append(options, fitztest.WithoutHello())
					}
					b := fitztest.Start(t, options...)
					url := b.TokenURL()
					if ws {
						url = b.TokenWebSocketURL()
					}
					test(t, b, url)
				})
			})
		}
	}
}

// connects counts what was sent to open sessions.
func connects(b *fitztest.Broker) int {
	return b.Network().Written(fitztest.ToBroker, wire.TypeConnect)
}

// A token that is good opens a session, one that is not ends Connect with auth.rejected and is sent once; nothing else than the token decides
//
func TestTokenAtConnect(t *testing.T) {
	tokenWorld(t, func(t *testing.T, b *fitztest.Broker, url string) {
		for name, token := range map[string]string{
			"none": "", "nonsense": "nonsense", "expired": b.Mint(fitztest.Claims{Expires: -time.Second}), "unknown family": b.Mint(fitztest.Claims{Family: "nobody"}),
			"malformed permission": b.Token("lease://**#drive"),
		} {
			before := connects(b)
			c, err := fitz.Connect(t.Context(), url, append(b.Options(), fitz.WithToken(token))...)
			if err == nil {
				_ = c.Close()
			}
			if !errors.Is(err, fitz.ErrAuthRejected) || fitz.ClassOf(err) != fitz.ClassAuthError || fitz.RetryOf(err) != fitz.RetryReauth || connects(b)-before != 1 {
				t.Errorf("%s: %v after %d CONNECT", name, err, connects(b)-before)
			}
		}
		c := b.ConnectTo(url, fitz.WithToken(b.Token()))
		if _, err := c.Lease().Acquire(t.Context(), at("a"), time.Minute, nil); err != nil {
			t.Error(err)
		}
		anonymous := b.Connect()
		if info, err := anonymous.Lease().Query(t.Context(), at("a")); err != nil || !info.Held {
			t.Errorf("family dev is that of clients without a token: %+v, %v", info, err)
		}
	})
}

// A token that has expired when the client comes back: leases are lost with their session, observers fail with the refusal and keep their view
// (OB-37), calls that wait fail with it, later ones at once, nothing hangs and Close works. The token is sent once.
func TestTokenExpiredAtReconnect(t *testing.T) {
	tokenWorld(t, func(t *testing.T, b *fitztest.Broker, url string) {
		token := b.Mint(fitztest.Claims{Expires: time.Minute})
		c := b.ConnectTo(url, fitz.WithToken(token))
		lease, err := c.Lease().Acquire(t.Context(), at("a"), time.Hour, nil)
		if err != nil {
			t.Fatal(err)
		}
		o := observing(t, c)
		sub, err := c.Lease().Subscribe(t.Context(), selector, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if lease.Err() != nil {
			t.Fatalf("a session outlives its token: %v", lease.Err())
		}
		before := connects(b)
		b.Network().Cut()
		<-lease.Done()
		var lost *fitz.LeaseLost
		if !errors.As(lease.Err(), &lost) || lost.Reason != fitz.LeaseLostDisconnected {
			t.Errorf("the lease: %v", lease.Err())
		}
		if _, err := c.Lease().Query(t.Context(), at("a")); !errors.Is(err, fitz.ErrAuthRejected) {
			t.Errorf("a call that waits: %v", err)
		}
		var ended *fitz.SubscriptionLost
		if _, err := sub.Next(t.Context()); !errors.As(err, &ended) || ended.Reason != fitz.SubscriptionLostDisconnected {
			t.Errorf("the subscription: %v", err)
		}
		for _, err := range o.Changes(t.Context()) {
			if err != nil && !errors.Is(err, fitz.ErrAuthRejected) {
				t.Errorf("the changes end with %v", err)
			}
		}
		s := o.Status()
		if view, ok := o.Snapshot(); s.State != fitz.ObserverFailed || !errors.Is(s.LastError, fitz.ErrAuthRejected) || !ok || !view.Stale || view.Len() != 1 {
			t.Errorf("the observer: %+v", s)
		}
		if st := c.Status(); st.State != fitz.ConnClosed || !errors.Is(st.Reason, fitz.ErrAuthRejected) {
			t.Errorf("the client: %+v", st)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Errorf("Release of a lease that has ended: %v", err)
		}
		later := map[string]error{"Ready": o.Ready(t.Context()), "Refresh": o.Refresh(t.Context())}
		_, later["Acquire"] = c.Lease().Acquire(t.Context(), at("b"), time.Minute, nil)
		_, later["Subscribe"] = c.Lease().Subscribe(t.Context(), selector, nil)
		_, later["List"] = collect(t.Context(), c)
		for what, err := range later {
			if !errors.Is(err, fitz.ErrAuthRejected) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := c.Lease().Observe(selector, nil); !errors.Is(err, fitz.ErrAuthRejected) {
			t.Errorf("Observe: %v", err)
		}
		time.Sleep(time.Hour)
		if n := connects(b) - before; n != 1 {
			t.Errorf("the token was sent %d times", n)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func collect(ctx context.Context, c *fitz.Client) (routes []string, err error) {
	for entry, err := range c.Lease().List(selector, nil).All(ctx) {
		if err != nil {
			return routes, err
		}
		routes = append(routes, entry.Route)
	}
	return routes, nil
}

// A source that has another token when one was refused keeps the client alive; one that fails for a while only delays it.
func TestTokenSourceAtReconnect(t *testing.T) {
	tokenWorld(t, func(t *testing.T, b *fitztest.Broker, url string) {
		source := &rotating{token: b.Mint(fitztest.Claims{Expires: time.Minute})}
		c := b.ConnectTo(url, fitz.WithTokenSource(source.get))
		o := observing(t, c)
		time.Sleep(time.Minute)
		source.fail(errors.New("the identity provider is away"))
		b.Network().Cut()
		time.Sleep(30 * time.Second)
		st := c.Status()
		if st.State != fitz.ConnReconnecting || !errors.Is(st.Reason, fitz.ErrConnRefused) || !strings.Contains(st.Reason.Error(), "identity provider") {
			t.Errorf("while the source fails: %+v", st)
		}
		if s := o.Status(); s.State != fitz.ObserverStale {
			t.Errorf("the observer: %+v", s)
		}
		source.set(b.Token())
		if _, err := c.Lease().Query(t.Context(), at("a")); err != nil {
			t.Error(err)
		}
		if err := o.Refresh(t.Context()); err != nil || c.Status().State != fitz.ConnReady {
			t.Errorf("%v, %+v", err, c.Status())
		}
	})
}

// OBS-080: a permission that is missing at the reconnect ends the observer, whose last view is kept and flagged, and what is subscribed again gets
// the denial, of class never. Nothing is tried again and again, and what is still allowed works.
func TestPermissionMissingAtReconnect(t *testing.T) {
	tokenWorld(t, func(t *testing.T, b *fitztest.Broker, url string) {
		source := &rotating{token: b.Token()}
		c := b.ConnectTo(url, fitz.WithTokenSource(source.get))
		if _, err := b.Connect().Lease().Acquire(t.Context(), at("a"), time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		o := observing(t, c)
		sub, err := c.Lease().Subscribe(t.Context(), selector, nil)
		if err != nil {
			t.Fatal(err)
		}
		source.set(b.Token("lease://acme/renderers/a#read"))
		sent := b.Network().Written(fitztest.ToBroker, wire.TypeLeaseSubscribe)
		b.Network().Cut()
		if _, err := sub.Next(t.Context()); !errors.Is(err, fitz.ErrSubLost) {
			t.Errorf("the subscription: %v", err)
		}
		time.Sleep(time.Hour)
		s := o.Status()
		if view, ok := o.Snapshot(); s.State != fitz.ObserverFailed || !errors.Is(s.LastError, fitz.ErrLeaseUnauthorized) || !ok || !view.Stale || view.Len() == 0 {
			t.Errorf("the observer: %+v", s)
		}
		if n := b.Network().Written(fitztest.ToBroker, wire.TypeLeaseSubscribe) - sent; n != 1 {
			t.Errorf("%d SUBSCRIBE since", n)
		}
		_, err = c.Lease().Subscribe(t.Context(), selector, nil)
		if !errors.Is(err, fitz.ErrLeaseUnauthorized) || fitz.RetryOf(err) != fitz.RetryNever {
			t.Errorf("subscribed again: %v", err)
		}
		if _, err := c.Lease().Query(t.Context(), at("a")); err != nil || c.Status().State != fitz.ConnReady {
			t.Errorf("what is allowed: %v, %+v", err, c.Status())
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
}

// OBS-091, LC-04, A-24: two families with equal routes see each only its own, in views, queries and listings, and no cursor leads from one to the
// other.
func TestFamiliesNeverMeet(t *testing.T) {
	tokenWorld(t, func(t *testing.T, b *fitztest.Broker, url string) {
		dev := b.ConnectTo(url, fitz.WithToken(b.Token()), fitz.WithOwnerID("dev"))
		ops := b.ConnectTo(url, fitz.WithToken(b.Mint(fitztest.Claims{Family: fitztest.FamilyOps})), fitz.WithOwnerID("ops"))
		views := map[string]*fitz.InventoryObserver{"dev": observing(t, dev), "ops": observing(t, ops)}
		take := func(c *fitz.Client, name string) {
			t.Helper()
			if _, err := c.Lease().Acquire(t.Context(), at(name), time.Hour, nil); err != nil {
				t.Fatal(err)
			}
		}
		take(dev, "a")
		take(dev, "b")
		take(ops, "a") // held by nobody of this family
		take(ops, "c")
		time.Sleep(time.Second)
		for owner, want := range map[string][]string{"dev": {at("a"), at("b")}, "ops": {at("a"), at("c")}} {
			snapshot, _ := views[owner].Snapshot()
			var got []string
			for entry := range snapshot.All() {
				got = append(got, entry.Route)
				if entry.OwnerID != owner {
					t.Errorf("%s sees %s of %s", owner, entry.Route, entry.OwnerID)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s sees %q, want %q", owner, got, want)
			}
			if s := views[owner].Status(); s.Notifications != 2 || s.DriftFound != 0 {
				t.Errorf("%s: %+v", owner, s)
			}
		}
		if info, err := dev.Lease().Query(t.Context(), at("c")); err != nil || info.Held {
			t.Errorf("%+v, %v", info, err)
		}
		for page, err := range dev.Lease().List(selector, &fitz.ListOptions{PageSize: 1}).Pages(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range ops.Lease().List(selector, &fitz.ListOptions{PageSize: 1, Cursor: page.Cursor}).All(t.Context()) {
				if !errors.Is(err, fitz.ErrLeaseInvalidListCursor) || !strings.Contains(err.Error(), "unknown snapshot") {
					t.Errorf("the cursor of another family: %v", err)
				}
			}
			break
		}
	})
}

// OBS-092, A-40, A-42: a grant whose realm is a wildcard sees every realm and takes nothing; a narrower one is refused the wider selector.
func TestWildcardRealms(t *testing.T) {
	tokenWorld(t, func(t *testing.T, b *fitztest.Broker, url string) {
		const wide = "lease://*/renderers/*"
		holder := b.Connect()
		for _, realm := range []string{"acme", "umbrella"} {
			if _, err := holder.Lease().Acquire(t.Context(), "lease://"+realm+"/renderers/a", time.Hour, nil); err != nil {
				t.Fatal(err)
			}
		}
		c := b.ConnectTo(url, fitz.WithToken(b.Token(wide+"#read")))
		o, err := c.Lease().Observe(wide, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if view, _ := o.Snapshot(); view.Len() != 2 {
			t.Errorf("%d leases", view.Len())
		}
		if _, err := c.Lease().Acquire(t.Context(), at("b"), time.Minute, nil); !errors.Is(err, fitz.ErrLeaseUnauthorized) {
			t.Errorf("Acquire: %v", err)
		}
		narrow := b.ConnectTo(url, fitz.WithToken(b.Token("lease://acme/renderers/*#read", "lease://umbrella/renderers/*#read")))
		refused, err := narrow.Lease().Observe(wide, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := refused.Ready(t.Context()); !errors.Is(err, fitz.ErrLeaseUnauthorized) {
			t.Errorf("a narrower grant: %v", err)
		}
		if s := refused.Status(); s.State != fitz.ObserverFailed {
			t.Errorf("%+v", s)
		}
		var e *fitz.Error
		for _, err := range narrow.Lease().List(wide, nil).All(t.Context()) {
			if !errors.As(err, &e) || e.Number != uint32(wire.CodeLeaseUnauthorized) || !e.FromBroker() {
				t.Errorf("LIST: %v", err)
			}
		}
		allowed, err := narrow.Lease().Observe(selector, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := allowed.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Nothing that a client says shows a token: not its log at the lowest level, not its events, not its states, not its errors, whatever becomes of
// the token, and not what is printed of it. Every token has a mark in its subject that is looked for in each of its parts.
func TestTokensAreNeverShown(t *testing.T) {
	tokenWorld(t, func(t *testing.T, b *fitztest.Broker, url string) {
		var said bytes.Buffer
		var saying sync.Mutex
		say := func(values ...any) {
			saying.Lock()
			defer saying.Unlock()
			for _, v := range values {
				fmt.Fprintf(&said, "%v %+v %#v\n", v, v, v)
			}
		}
		var everything error
		note := func(err error) {
			everything = errors.Join(everything, err)
			for ; err != nil; err = errors.Unwrap(err) {
				say(err.Error(), err)
			}
		}
		log := slog.New(slog.NewJSONHandler(writer(func(p []byte) { say(string(p)) }), &slog.HandlerOptions{Level: slog.LevelDebug - 100, AddSource: true}))
		hooks := fitz.Hooks{
			Event: func(e fitz.Event) { say(e) },
			Begin: func(ctx context.Context, o fitz.Operation) (context.Context, func(error)) {
				say(o)
				return ctx, func(err error) { say(err) }
			},
		}
		var tokens []string
		mint := func(c fitztest.Claims) string {
			tokens = append(tokens, b.Mint(c))
			return tokens[len(tokens)-1]
		}
		connect := func(source func(context.Context) (string, error)) *fitz.Client {
			options := append(b.Options(), fitz.WithTokenSource(source), fitz.WithLogger(log), fitz.WithHooks(hooks))
			c, err := fitz.Connect(t.Context(), url, options...)
			note(err)
			say(options)
			return c
		}
		expired := mint(fitztest.Claims{Expires: -time.Second, Subject: "expired"})
		if c := connect(func(context.Context) (string, error) { return expired, nil }); c != nil {
			t.Fatal("an expired token opened a session")
		}
		connect(func(context.Context) (string, error) { return "", fmt.Errorf("cannot renew %s", expired) })
		long := strings.Repeat(mint(fitztest.Claims{Subject: "long"}), 100)
		connect(func(context.Context) (string, error) { return long, nil })
		connect(func(context.Context) (string, error) { return expired + "\x00\xff", nil })

		source := &rotating{token: mint(fitztest.Claims{Expires: time.Minute})}
		c := connect(source.get)
		lease, err := c.Lease().Acquire(t.Context(), at("a"), time.Hour, nil)
		note(err)
		o, err := c.Lease().Observe(selector, nil)
		note(err)
		note(o.Ready(t.Context()))
		_, err = c.Lease().Acquire(t.Context(), "lease://", time.Hour, nil)
		note(err)
		log.Info("values", "lease", lease, "observer", o)
		say(c.Stats(), c.Status(), o.Status())
		time.Sleep(time.Minute)
		source.fail(errors.New(tokens[len(tokens)-1] + " is old, and so is opaque-" + expired))
		b.Network().Cut()
		time.Sleep(time.Minute)
		note(c.Status().Reason)
		source.set(mint(fitztest.Claims{Expires: -time.Second}))
		<-lease.Done()
		note(lease.Err())
		_, err = c.Lease().Query(t.Context(), at("a"))
		note(err)
		note(o.Ready(t.Context()))
		say(c.Status(), o.Status())
		note(c.Close())
		if !errors.Is(everything, fitz.ErrAuthRejected) || !errors.Is(everything, fitz.ErrConfigInvalid) || !errors.Is(everything, fitz.ErrConnRefused) {
			t.Errorf("the ways of a token to fail were not all taken: %v", everything)
		}
		saying.Lock()
		defer saying.Unlock()
		if said.Len() < 1000 {
			t.Errorf("only %d bytes were said", said.Len())
		}
		for _, token := range tokens {
			for part := range strings.SplitSeq(token, ".") {
				if i := strings.Index(said.String(), part); i >= 0 {
					t.Errorf("a part of a token is shown: %s", said.String()[max(0, i-200):min(said.Len(), i+50)])
					break
				}
			}
		}
	})
}

// writer is a function that is given every line.
type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }
