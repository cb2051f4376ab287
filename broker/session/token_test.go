package session_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/peer"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/devtoken"
)

var secret = []byte("a secret of more than thirty-two bytes")

// withTokens is run with listeners that ask for a token.
func withTokens(t *testing.T, change func(*bounds.Limits), test func(t *testing.T, w *world, dial func() *rawclient.Client)) {
	t.Helper()
	run(t, change, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		authority, err := auth.New(auth.Options{
			Config: auth.Config{HMACSecret: secret, Families: 2, FamilyMap: map[string]uint32{"dev": 1, "ops": 2}},
			Limits: w.limits, Clock: bubbleClock{time.Now()}, Metrics: w.auth})
		if err != nil {
			t.Fatal(err)
		}
		w.authority = authority
		test(t, w, dial)
	})
}

// token is valid for a minute.
func token(t testing.TB, family string, permissions ...string) string {
	t.Helper()
	return mint(t, devtoken.Claims{Family: family, Permissions: permissions})
}

// mint completes claims and signs them.
func mint(t testing.TB, c devtoken.Claims) string {
	t.Helper()
	c.Subject, c.Audience = "someone", []string{"fitz"}
	if c.Expires.IsZero() {
		c.Expires = time.Now().Add(time.Minute)
	}
	text, err := devtoken.Mint(secret, c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// connect is the CONNECT that shows a token.
func connect(token string) []byte { return rawclient.Record(wire.TypeConnect, []byte(token)) }

// failed is the close of a token that was refused.
func failed(reason auth.Reason) wire.CloseReason {
	close := wire.CloseConnectFailed
	close.Text += string(reason)
	return close
}

func TestTokenOpensASession(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		var families []uint32
		w.domain.onQuery = func(s peer.Session, _ peer.Call) { families = append(families, s.Family()) }
		for _, family := range []string{"dev", "ops"} {
			client := dial()
			// Requests may stand behind the CONNECT in one transport message.
			client.Send(connect(token(t, family, "lease://**#*")), query(t))
			client.Expect(0, wire.TypeServerHello)
			client.Expect(0, wire.TypeLeaseQuery)
		}
		if !slices.Equal(families, []uint32{1, 2}) {
			t.Errorf("families %v", families)
		}
		if n := testutil.ToFloat64(w.auth.AcceptsTotal); n != 2 {
			t.Errorf("%v accepts counted", n)
		}
	})
}

// A-02, W-34: closed at once, without a frame, and nothing behind the CONNECT is executed.
func TestRefusedTokens(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		past := mint(t, devtoken.Claims{Family: "dev", Permissions: []string{"lease://**"}, Expires: time.Now()})
		other, err := devtoken.Mint([]byte("another secret"), devtoken.Claims{})
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			token  string
			reason auth.Reason
		}{
			{"", auth.ReasonTokenMissing},
			{"no token", auth.ReasonTokenMalformed},
			{other, auth.ReasonSignature},
			{past, auth.ReasonExpired},
			{token(t, "", "lease://**"), auth.ReasonFamily},
			{token(t, "other", "lease://**"), auth.ReasonFamily},
			{mint(t, devtoken.Claims{Family: "dev"}), auth.ReasonPermissionsMissing},
			{strings.Repeat("x", int(w.limits.TokenBytesMax)), auth.ReasonTokenMalformed},
			{strings.Repeat("x", int(w.limits.TokenBytesMax)+1), auth.ReasonTokenTooLong},
		} {
			client := dial()
			client.Send(connect(test.token), query(t))
			client.ExpectClose(failed(test.reason))
		}
		w.hubEmpty(t)
		if w.domain.calls != 0 {
			t.Errorf("%d requests were executed", w.domain.calls)
		}
	})
}

// W-31: nothing but CONNECT may be first, and nothing else is looked at.
func TestConnectIsFirst(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		for name, record := range map[string][]byte{
			"request":           query(t),
			"malformed request": rawclient.Record(wire.TypeLeaseQuery, []byte{1}),
			"labelled request":  rawclient.Labelled(1, query(t)),
			"labelled CONNECT":  rawclient.Labelled(1, connect(token(t, "dev", "lease://**"))),
			"unknown type":      rawclient.Record(999, nil),
			"client hello":      rawclient.Encode(t, wire.TypeClientHello, &wire.ClientHello{Capabilities: wire.CapLifecycle, SDKName: "x", SDKVersion: "1"}),
			"ping":              rawclient.Encode(t, wire.TypePing, &wire.Ping{Nonce: 1}),
			"push":              rawclient.Record(wire.TypeLeaseNotify, nil),
		} {
			client := dial()
			client.Send(record, connect(token(t, "dev", "lease://**")))
			payload, err := client.Read()
			if err == nil {
				t.Fatalf("%s: answered with %x", name, payload)
			}
			client.Check(err, wire.CloseConnectRequired)
		}
		w.hubEmpty(t)
		if w.domain.calls != 0 || testutil.ToFloat64(w.auth.AcceptsTotal) != 0 {
			t.Error("something was looked at")
		}
	})
}

// W-32: a session keeps the identity it began with.
func TestSecondConnectOnATokenListener(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Send(connect(token(t, "dev", "lease://**#read")))
		client.Expect(0, wire.TypeServerHello)
		client.Send(connect(token(t, "ops", "lease://**#*")))
		client.ExpectClose(wire.CloseUnexpectedConnect)
	})
}

// W-10, preauth_frame_max: until the CONNECT is accepted one record of the largest size is the most that is taken.
func TestFirstMessageIsBounded(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		// as many bytes as asked for, in whole records that nobody may send first
		filled := func(size int) []byte {
			payload := bytes.Repeat(rawclient.Record(999, make([]byte, 1000)), size/1005)
			rest := size - len(payload)
			if rest < 5 {
				t.Fatalf("%d bytes are left for a record", rest)
			}
			return append(payload, rawclient.Record(999, make([]byte, rest-5))...)
		}
		client := dial()
		client.Send(filled(bounds.PreauthFrameMax))
		client.ExpectClose(wire.CloseConnectRequired)
		client = dial()
		if err := client.TryRaw(client.Framed(filled(bounds.PreauthFrameMax + 1))); err == nil {
			client.ExpectClose(wire.CloseFrameTooLarge)
		}
		client = dial()
		client.Send(connect(token(t, "dev", "lease://**")))
		client.Expect(0, wire.TypeServerHello)
		for _, first := range []string{"answered", "answered again"} {
			client.Send(repeat(largeQuery(t), 17)...) // more than preauth_frame_max
			for range 17 {
				if text := client.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest); text == "" {
					t.Fatal(first)
				}
			}
		}
	})
}

// largeQuery is a request of about 4 KiB whose route is too long.
func largeQuery(t testing.TB) []byte {
	return rawclient.Encode(t, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/a/" + strings.Repeat("k", bounds.RouteBytesMax-len("lease://r/a/")-2) + "//"})
}

// A frame_recv_max below preauth_frame_max holds for the first message too.
func TestFirstMessageIsNeverLargerThanOthers(t *testing.T) {
	withTokens(t, func(l *bounds.Limits) { l.FrameRecvMax = 2000 }, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		if err := client.TryRaw(client.Framed(make([]byte, 2001))); err == nil {
			client.ExpectClose(wire.CloseFrameTooLarge)
		}
	})
}

func TestConnectTimeoutOnATokenListener(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		start := time.Now()
		client.ExpectClose(wire.CloseConnectTimeout)
		if d := time.Since(start); d < seconds(w.limits.ConnectWaitMs) {
			t.Errorf("closed after %v", d)
		}
	})
}

// Step 4 of auth.md section 5: denied before values are judged, and the domain is not told.
func TestDenials(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		client := dial()
		client.Send(connect(token(t, "dev", "lease://r/a/*#read", "lease://w/**#write")))
		client.Expect(0, wire.TypeServerHello)
		denied := func(typ wire.MessageType, message rawclient.Encoder) {
			t.Helper()
			client.Request(7, typ, message)
			if text := client.ExpectRefusal(7, typ, wire.CodeLeaseUnauthorized); text != wire.TextPermissionDenied {
				t.Errorf("%v: text %q", typ, text)
			}
		}
		before := w.domain.calls
		denied(wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://w/a/k"})
		denied(wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/b/k"})
		// Values that would be refused otherwise play no part yet.
		beyond := rawclient.Encode(t, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/k", OwnerID: "o", TTL: 1, Wait: 1})
		copy(beyond[len(beyond)-4-8:], "\xff\xff\xff\xff\xff\xff\xff\xff") // the ttl
		client.Send(rawclient.Labelled(7, beyond))
		client.ExpectRefusal(7, wire.TypeLeaseAcquire, wire.CodeLeaseUnauthorized)
		denied(wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://r/a/k", OwnerID: "o", TTL: 1})
		denied(wire.TypeLeaseRenew, &wire.LeaseRenewRequest{Route: "lease://r/a/k", OwnerID: "o", TTL: 1})
		denied(wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: "lease://r/a/k", OwnerID: "o"})
		denied(wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://r/**"})
		denied(wire.TypeLeaseUnsubscribe, &wire.LeaseUnsubscribeRequest{Selector: "lease://w/**"})
		denied(wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://**"})
		denied(wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://**", Cursor: wire.LeaseCursor{SnapshotID: 1}, HasCursor: true})
		if w.domain.calls != before {
			t.Error("the domain was asked")
		}
		if n := testutil.ToFloat64(w.auth.PermissionDenialsTotal.WithLabelValues("lease")); n != 10 {
			t.Errorf("%v denials counted", n)
		}
		client.Request(8, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/a/k"})
		client.Expect(8, wire.TypeLeaseQuery)
		client.Request(9, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://r/a/*"})
		client.Expect(9, wire.TypeLeaseSubscribe)
		client.Request(10, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: "lease://w/a/k", OwnerID: "o", TTL: 1})
		client.Expect(10, wire.TypeLeaseAcquire)
	})
}

// Step 3 comes before step 4: who may do nothing learns what is wrong with a route.
func TestGrammarBeforePermission(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		client := dial()
		client.Send(connect(token(t, "dev", "queue://**")))
		client.Expect(0, wire.TypeServerHello)
		client.Request(0, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/*/k"})
		client.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseBadRequest)
		client.Request(0, wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://r"})
		client.ExpectRefusal(0, wire.TypeLeaseList, wire.CodeLeaseInvalidListPattern)
		client.Request(0, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://r/a/k"})
		client.ExpectRefusal(0, wire.TypeLeaseQuery, wire.CodeLeaseUnauthorized)
	})
}

// W-39: a session outlives its token, with the permissions of the CONNECT.
func TestClauseW39(t *testing.T) {
	withTokens(t, nil, func(t *testing.T, _ *world, dial func() *rawclient.Client) {
		shown := token(t, "dev", "lease://r/**#read")
		client := dial()
		client.Send(connect(shown))
		client.Expect(0, wire.TypeServerHello)
		time.Sleep(time.Hour)
		client.Send(query(t))
		client.Expect(0, wire.TypeLeaseQuery)
		client.Send(acquire(t, "o"))
		client.ExpectRefusal(0, wire.TypeLeaseAcquire, wire.CodeLeaseUnauthorized)
		again := dial()
		again.Send(connect(shown))
		again.ExpectClose(failed(auth.ReasonExpired))
	})
}

// on an anonymous listener any token will do, also one that another listener refuses.
func TestAnonymousListenersTakeAnyToken(t *testing.T) {
	run(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		var family uint32
		w.domain.onQuery = func(s peer.Session, _ peer.Call) { family = s.Family() }
		for _, shown := range []string{"", "no token", token(t, "ops", "queue://**#read"), strings.Repeat("x", int(w.limits.TokenBytesMax))} {
			client := dial()
			client.Send(connect(shown), query(t))
			client.Expect(0, wire.TypeServerHello)
			client.Expect(0, wire.TypeLeaseQuery)
			if family != 1 {
				t.Errorf("family %d", family)
			}
		}
		if n := testutil.ToFloat64(w.auth.AcceptsTotal) + float64(testutil.CollectAndCount(w.auth.RefusalsTotal)); n != 0 {
			t.Errorf("%v tokens were examined", n)
		}
	})
}

// The line of a session that was refused says why, and no line says anything of a token.
func TestLogsHoldNoToken(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	logging = log
	defer func() { logging = nil }()
	var shown []string
	withTokens(t, nil, func(t *testing.T, w *world, dial func() *rawclient.Client) {
		shown = append(shown, token(t, "dev", "lease://hidden/**"), mint(t, devtoken.Claims{Family: "hidden"}), "hidden.hidden.hidden")
		for _, text := range shown {
			client := dial()
			client.Send(connect(text))
			_, _ = client.Read() // a hello or the end
			_ = client.Conn.Close()
		}
		w.hubEmpty(t)
	})
	text := out.String()
	if !strings.Contains(text, fmt.Sprintf("detail=%q", auth.ReasonFamily)) || !strings.Contains(text, fmt.Sprintf("detail=%q", auth.ReasonTokenMalformed)) {
		t.Errorf("no line says why:\n%s", text)
	}
	for _, hidden := range append(strings.Split(strings.Join(shown, "."), "."), "hidden", string(secret)) {
		if strings.Contains(text, hidden) {
			t.Errorf("%q is in the log:\n%s", hidden, text)
		}
	}
}
