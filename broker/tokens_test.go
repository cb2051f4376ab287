package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/devtoken"
)

const tokenSecret = "a secret of more than thirty-two bytes"

// guarded runs a broker whose listeners ask for tokens, over each transport. It knows the families dev and ops.
func guarded(t *testing.T, test func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client)) {
	for _, transport := range rawclient.Transports {
		t.Run(transport, func(t *testing.T) {
			b := startGuarded(t, "dev=1,ops=2")
			test(t, b, func() *rawclient.Client { return rawclient.Dial(t, transport, address(b, transport)) })
		})
	}
}

// startGuarded runs a broker with a map of families, as the environment holds it.
func startGuarded(t *testing.T, families string, args ...string) *broker.Broker {
	t.Helper()
	environment := map[string]string{
		"FITZ_JWT_HMAC_SECRET": tokenSecret, "FITZ_ROUTE_FAMILY_MAP": families, "FITZ_FAMILIES": fmt.Sprint(strings.Count(families, "="))}
	c, _, err := config.Load(append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--auth", "token"}, args...),
		func(name string) string { return environment[name] }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func mint(t testing.TB, family string, permissions ...string) []byte {
	t.Helper()
	return mintWith(t, tokenSecret, family, permissions...)
}

func mintWith(t testing.TB, secret, family string, permissions ...string) []byte {
	t.Helper()
	token, err := devtoken.Mint([]byte(secret), devtoken.Claims{
		Subject: "someone", Audience: []string{"fitz"}, Expires: time.Now().Add(time.Hour), Family: family, Permissions: permissions})
	if err != nil {
		t.Fatal(err)
	}
	return []byte(token)
}

// enter opens a session with a token and negotiates.
func enter(t testing.TB, c *rawclient.Client, family string, permissions ...string) wire.ServerHello {
	t.Helper()
	c.Send(rawclient.Record(wire.TypeConnect, mint(t, family, permissions...)))
	var hello wire.ServerHello
	if err := hello.DecodeValue(c.Expect(0, wire.TypeServerHello)); err != nil {
		t.Fatal(err)
	}
	c.Negotiate()
	return hello
}

// A-24, L-02, AC-P05: families with equal routes, owners and selectors never meet.
func TestFamiliesNeverMeet(t *testing.T) {
	guarded(t, func(t *testing.T, b *broker.Broker, dial func() *rawclient.Client) {
		families := []string{"dev", "ops"}
		holders, observers := map[string]*rawclient.Client{}, map[string]*rawclient.Client{}
		incarnations, tokens := map[string]uint64{}, map[string]uint64{}
		for _, family := range families {
			holders[family], observers[family] = dial(), dial()
			incarnations[family] = enter(t, holders[family], family, "lease://**").Lifecycle.SessionIncarnation
			enter(t, observers[family], family, "lease://**")
			observers[family].Request(1, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://**"})
			observers[family].Expect(1, wire.TypeLeaseSubscribe)
		}
		// Each acquires the same route for the same owner, and only observers of its own family are told.
		for i, family := range families {
			holders[family].Request(1, wire.TypeLeaseAcquire, acquire("o", 0))
			tokens[family] = expectGrant(t, holders[family], 1, wire.LeaseGrantKindAcquired).FencingToken
			observers[family].Expect(0, wire.TypeLeaseNotify)
			for _, other := range families {
				observers[other].Sync(uint64(i + 1)) // nothing else was on its way
			}
		}
		// LIST and QUERY show the own lease only.
		for _, family := range families {
			page := list(t, observers[family], wire.LeaseListRequest{Selector: "lease://**"})
			if len(page.Items) != 1 || page.HasNext || page.Items[0].HolderIncarnation != incarnations[family] {
				t.Errorf("%s: %+v", family, page)
			}
		}
		// A waiter of one family neither shows up in the other nor gets what that one gives back.
		waiter := dial()
		enter(t, waiter, "ops", "lease://**")
		waiter.Request(1, wire.TypeLeaseAcquire, acquire("w", 30))
		expectGrant(t, waiter, 1, wire.LeaseGrantKindQueued)
		for family, waiting := range map[string]uint32{"dev": 0, "ops": 1} {
			var state wire.LeaseQueryReply
			observers[family].Request(2, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: route})
			if err := state.DecodeValue(observers[family].Expect(2, wire.TypeLeaseQuery)); err != nil || state.PendingWaiters != waiting {
				t.Errorf("%s: %+v, %v", family, state, err)
			}
		}
		// Owner and fencing token of one family help nobody in the other.
		stranger := dial()
		enter(t, stranger, "ops", "lease://**")
		stranger.Request(3, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "o", FencingToken: tokens["dev"]})
		stranger.ExpectRefusal(3, wire.TypeLeaseRelease, wire.CodeLeaseNotFound)
		holders["dev"].Request(4, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "o", FencingToken: tokens["dev"]})
		holders["dev"].Expect(4, wire.TypeLeaseRelease)
		observers["dev"].Expect(0, wire.TypeLeaseNotify)
		observers["ops"].Sync(9)
		waiter.Sync(9) // not granted
		if page := list(t, observers["ops"], wire.LeaseListRequest{Selector: "lease://**"}); len(page.Items) != 1 {
			t.Errorf("ops after the release of dev: %+v", page)
		}
		holders["ops"].Request(5, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "o", FencingToken: tokens["ops"]})
		holders["ops"].Expect(5, wire.TypeLeaseRelease)
		expectGrant(t, waiter, 1, wire.LeaseGrantKindAcquired)
		observers["ops"].Expect(0, wire.TypeLeaseNotify) // the release
		observers["ops"].Expect(0, wire.TypeLeaseNotify) // the grant
		// The end of a session frees nothing elsewhere.
		_ = holders["dev"].Conn.Close()
		holders["ops"].Sync(10)
		if load := b.Load(); load.Session.Sessions == 0 {
			t.Errorf("load %+v", load)
		}
		if page := list(t, observers["ops"], wire.LeaseListRequest{Selector: "lease://**"}); len(page.Items) != 1 || page.Items[0].OwnerID != "w" {
			t.Errorf("ops at the end: %+v", page)
		}
	})
}

// LC-04, LC-05: a cursor is of no use in another family, which does not even learn that there is such a snapshot.
func TestCursorsBelongToTheirFamily(t *testing.T) {
	guarded(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		owner, sibling, stranger := dial(), dial(), dial()
		enter(t, owner, "dev", "lease://**")
		enter(t, sibling, "dev", "lease://**")
		enter(t, stranger, "ops", "lease://**")
		for i, c := range []*rawclient.Client{owner, owner, stranger, stranger} {
			c.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://r/a/k%d", i%2), OwnerID: "o", TTL: 600})
			expectGrant(t, c, 1, wire.LeaseGrantKindAcquired)
		}
		page := list(t, owner, wire.LeaseListRequest{Selector: "lease://**", Limit: 1})
		if !page.HasNext {
			t.Fatalf("page %+v", page)
		}
		next := wire.LeaseListRequest{Selector: "lease://**", Limit: 1, Cursor: page.Next, HasCursor: true}
		for c, want := range map[*rawclient.Client]wire.LeaseCursorMisuse{
			stranger: wire.LeaseCursorMisuseUnknownSnapshot, sibling: wire.LeaseCursorMisuseOtherSession,
		} {
			c.Request(2, wire.TypeLeaseList, &next)
			if text := c.ExpectRefusal(2, wire.TypeLeaseList, wire.CodeLeaseInvalidListCursor); text != wire.TextInvalidListCursor(want.String()) {
				t.Errorf("text %q, want %v", text, want)
			}
		}
		if rest := list(t, owner, next); len(rest.Items) != 1 || rest.HasNext {
			t.Errorf("the cursor does not work any more: %+v", rest)
		}
	})
}

// AC-P06: a grant across realms lets look at them and nothing else, and gives no ownership.
func TestCrossRealmGrant(t *testing.T) {
	guarded(t, func(t *testing.T, _ *broker.Broker, dial func() *rawclient.Client) {
		holder, observer := dial(), dial()
		incarnation := enter(t, holder, "dev", "lease://**").Lifecycle.SessionIncarnation
		enter(t, observer, "dev", "lease://*/renderers/*#read")
		for _, path := range []string{"a/renderers/1", "b/renderers/1", "a/encoders/1"} {
			holder.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://" + path, OwnerID: "o", TTL: 600})
			expectGrant(t, holder, 1, wire.LeaseGrantKindAcquired)
		}
		page := list(t, observer, wire.LeaseListRequest{Selector: "lease://*/renderers/*"})
		var routes []string
		for _, item := range page.Items {
			if item.OwnerID != "o" || item.HolderIncarnation != incarnation || item.AcquiredAt == "" || item.ExpiresIn == 0 {
				t.Errorf("item %+v", item)
			}
			routes = append(routes, item.Route)
		}
		slices.Sort(routes)
		if !slices.Equal(routes, []string{"lease://a/renderers/1", "lease://b/renderers/1"}) {
			t.Errorf("routes %v", routes)
		}
		observer.Request(2, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://b/renderers/*"})
		observer.Expect(2, wire.TypeLeaseSubscribe)
		for _, selector := range []string{"lease://**", "lease://a/**", "lease://*/*/1", "lease://a/encoders/*"} {
			observer.Request(3, wire.TypeLeaseList, &wire.LeaseListRequest{Selector: selector})
			observer.ExpectRefusal(3, wire.TypeLeaseList, wire.CodeLeaseUnauthorized)
			observer.Request(4, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: selector})
			observer.ExpectRefusal(4, wire.TypeLeaseSubscribe, wire.CodeLeaseUnauthorized)
		}
		observer.Request(5, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://a/renderers/2", OwnerID: "o", TTL: 600})
		if text := observer.ExpectRefusal(5, wire.TypeLeaseAcquire, wire.CodeLeaseUnauthorized); text != wire.TextPermissionDenied {
			t.Errorf("text %q", text)
		}
	})
}

// the broker reads off what was sent behind a refused CONNECT, so that the close arrives as the end of the stream and not as a
// reset, which clients take for a broken network.
func TestRefusalIsAnOrderlyClose(t *testing.T) {
	b := startGuarded(t, "dev=1")
	const refusals = 5
	for range refusals {
		c := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
		// All of it in one write, so that it is on its way before the broker has refused.
		sent := c.Framed(rawclient.Record(wire.TypeConnect, []byte("no token")))
		for range 2 {
			sent = append(sent, c.Framed(rawclient.Record(wire.TypeLeaseQuery, make([]byte, 60_000)))...)
		}
		c.Raw(sent)
		if n, err := c.Conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes, %v", n, err)
		}
		_ = c.Conn.Close()
	}
	awaitCloses(t, b, wire.CloseConnectFailed, refusals) // counted when the session has lingered
}

// listeners with and without tokens stand side by side; the anonymous ones live in family 1.
func TestAnonymousAndTokenListenersSideBySide(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fitzd.yaml")
	if err := os.WriteFile(file, []byte("listeners:\n  - {transport: tcp, address: \"127.0.0.1:0\", auth: anonymous}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startGuarded(t, "dev=1,ops=2", "--config", file)
	open := rawclient.Dial(t, rawclient.TCP, b.Addresses()["listeners[0]"])
	dev, ops := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP)), rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
	open.Connect()
	enter(t, dev, "dev", "lease://**")
	enter(t, ops, "ops", "lease://**")
	open.Request(1, wire.TypeLeaseAcquire, acquire("o", 0))
	expectGrant(t, open, 1, wire.LeaseGrantKindAcquired)
	dev.Request(1, wire.TypeLeaseAcquire, acquire("o", 0))
	dev.ExpectRefusal(1, wire.TypeLeaseAcquire, wire.CodeLeaseHeld)
	ops.Request(1, wire.TypeLeaseAcquire, acquire("o", 0))
	expectGrant(t, ops, 1, wire.LeaseGrantKindAcquired)
	// An anonymous client with a token of ops stays anonymous.
	disguised := rawclient.Dial(t, rawclient.TCP, b.Addresses()["listeners[0]"])
	disguised.Send(rawclient.Record(wire.TypeConnect, mint(t, "ops", "lease://**")))
	disguised.Expect(0, wire.TypeServerHello)
	disguised.Request(1, wire.TypeLeaseAcquire, acquire("o", 0))
	disguised.ExpectRefusal(1, wire.TypeLeaseAcquire, wire.CodeLeaseHeld)
}

// families_max: the highest family works like the first, and each of the ones looked at holds the same route for itself.
func TestMostFamilies(t *testing.T) {
	most := bounds.FamiliesMax
	var identities []string
	for n := 1; n <= most; n++ {
		identities = append(identities, fmt.Sprintf("id%d=%d", n, n))
	}
	b := startGuarded(t, strings.Join(identities, ","))
	for _, n := range []int{1, 2, most / 2, most - 1, most} {
		c := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
		enter(t, c, fmt.Sprintf("id%d", n), "lease://**")
		c.Request(1, wire.TypeLeaseAcquire, acquire("o", 0))
		expectGrant(t, c, 1, wire.LeaseGrantKindAcquired)
		if page := list(t, c, wire.LeaseListRequest{Selector: "lease://**"}); len(page.Items) != 1 {
			t.Errorf("family %d: %+v", n, page)
		}
	}
	// The admin interface shows one family at a time.
	_, body := get(t, b.Addresses()[settings.ListenerAdmin.Name], fmt.Sprintf("%s?family=%d&selector=lease://**", settings.AdminPathLeases, most), "")
	if strings.Count(body, route) != 1 {
		t.Errorf("inventory of the last family: %s", body)
	}
}
