package broker_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/broker/reload"
	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Text that peers send in every place that takes text, and secrets of the broker. None of it may come out where it does not belong.
const (
	markRoute    = "zqroute"
	markOwner    = "zqowner"
	markSelector = "zqselector"
	markService  = "zqservice"
	markOrigin   = "zqorigin"
	markPath     = "zqpath"
	markSecret   = "zqsecret-of-more-than-thirty-two-bytes"
	markAdmin    = "zqadmin"
	markFence    = 7_394_857_394_857_394_857
)

// output is a log that several goroutines write.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startMarked runs a broker that logs everything, with secrets that can be looked for.
func startMarked(t *testing.T, args ...string) (*broker.Broker, *output) {
	t.Helper()
	environment := map[string]string{
		"FITZ_JWT_HMAC_SECRET": markSecret, "FITZ_ROUTE_FAMILY_MAP": "dev=1,ops=2", "FITZ_FAMILIES": "2", settings.SettingAdminToken.Env: markAdmin}
	c, _, err := config.Load(append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...),
		func(name string) string { return environment[name] }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	log := &output{}
	b, err := broker.Start(context.Background(), c, broker.WithLog(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, log
}

// askAdmin sends a request with the admin token.
func askAdmin(t *testing.T, b *broker.Broker, path string) (int, string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+b.Addresses()[settings.ListenerAdmin.Name]+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+markAdmin)
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// fleet does everything that a peer can do with text of its own, well and badly. open opens a session.
func fleet(t *testing.T, b *broker.Broker, open func(c *rawclient.Client)) {
	t.Helper()
	for _, transport := range rawclient.Transports {
		holder, other := rawclient.Dial(t, transport, address(b, transport)), rawclient.Dial(t, transport, address(b, transport))
		open(holder)
		open(other)
		lease := "lease://" + markRoute + "/" + transport + "/k"
		owner := &wire.LeaseAcquireRequest{Route: lease, OwnerID: markOwner, TTL: 60}
		other.Request(1, wire.TypeLeaseSubscribe, &wire.LeaseSubscribeRequest{Selector: "lease://" + markSelector + "/**"})
		other.Expect(1, wire.TypeLeaseSubscribe)
		holder.Request(1, wire.TypeLeaseAcquire, owner)
		expectGrant(t, holder, 1, wire.LeaseGrantKindAcquired)
		other.Request(2, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: lease, OwnerID: markOwner + "2", TTL: 60})
		other.ExpectRefusal(2, wire.TypeLeaseAcquire, wire.CodeLeaseHeld)
		holder.Request(2, wire.TypeLeaseRenew, &wire.LeaseRenewRequest{Route: lease, OwnerID: markOwner, FencingToken: markFence, TTL: 60})
		holder.ExpectRefusal(2, wire.TypeLeaseRenew, wire.CodeLeaseInvalidFence)
		holder.Request(3, wire.TypeLeaseList, &wire.LeaseListRequest{Selector: "lease://" + markRoute + "/**", Limit: 1})
		holder.Expect(3, wire.TypeLeaseList)
		holder.Request(4, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: "lease://" + markRoute + "/*/*"})
		holder.Expect(4, wire.TypeLeaseQuery)
		holder.Send(rawclient.Encode(t, wire.TypeSessionMetadata, &wire.SessionMetadata{ServiceName: markService}))
		holder.Send(rawclient.Encode(t, wire.TypeSessionMetadata, &wire.SessionMetadata{ServiceName: markService + "\x01"}))
		holder.Sync(5)
		// Sessions that end badly, with text in what ends them.
		for _, payload := range [][]byte{
			rawclient.Record(wire.TypeConnect, append([]byte{0, 200}, markOwner...)),
			rawclient.Record(9999, []byte(markRoute)),
			append([]byte{0xff, 0xff}, markRoute...),
		} {
			bad := rawclient.Dial(t, transport, address(b, transport))
			bad.Send(payload)
			bad.ExpectGone()
		}
	}
	for _, header := range []string{"Origin: https://" + markOrigin + ".example", "Upgrade: " + markOrigin, "X-" + markOrigin + ": 1"} {
		conn := rawclient.Dial(t, rawclient.TCP, b.Addresses()[settings.ListenerHTTP.Name])
		conn.Raw([]byte("GET /" + markPath + " HTTP/1.1\r\nHost: b\r\n" + header + "\r\n\r\n"))
		if answer, err := io.ReadAll(conn.Conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 4") {
			t.Errorf("%s: %q, %v", header, answer, err)
		}
	}
	for _, query := range []string{"family=" + markPath, "family=1&selector=lease://" + markSelector + "/**/**", "family=1&selector=" + markSelector} {
		if status, _ := askAdmin(t, b, settings.AdminPathLeases+"?"+query); status != http.StatusBadRequest {
			t.Errorf("%s: %d", query, status)
		}
	}
}

// lease.md section 13, A-44: what peers say and what is secret stays where it belongs. Routes and owners stand in the inventory and
// nowhere else; tokens, secrets and fencing tokens stand nowhere, whatever the level of the log.
func TestNothingLeaks(t *testing.T) {
	var token []byte
	for name, c := range map[string]struct {
		args []string
		open func(c *rawclient.Client)
	}{
		"anonymous": {nil, func(c *rawclient.Client) { c.Connect(); c.Negotiate() }},
		"token": {[]string{"--auth", "token"}, func(c *rawclient.Client) {
			c.Send(rawclient.Record(wire.TypeConnect, token))
			c.Expect(0, wire.TypeServerHello)
			c.Negotiate()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			token = mintWith(t, markSecret, "dev", "lease://**")
			b, log := startMarked(t, c.args...)
			fleet(t, b, c.open)
			refused := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
			refused.Send(rawclient.Record(wire.TypeConnect, append(bytes.Clone(token), "zqwrong"...)))
			if name == "token" {
				refused.ExpectGone()
			} else {
				refused.Expect(0, wire.TypeServerHello) // nobody looks at the token
			}
			_, inventory := askAdmin(t, b, settings.AdminPathLeases+"?family=1&selector=lease://**")
			_, scraped := askAdmin(t, b, settings.AdminPathMetrics)
			_, status := askAdmin(t, b, settings.AdminPathStatus)
			b.Close()
			// One line about each session that was opened: by two transports two that work and three that do not, and the last one.
			if lines, counted := strings.Count(log.String(), `"msg":"session ended"`), sum(t, b, "fitz_session_closes_total"); lines != 11 || counted != 11 {
				t.Errorf("%d lines about ends, %v counted, want 11", lines, counted)
			}
			secrets := []string{markSecret, markAdmin, string(token), "zqwrong", fmt.Sprint(uint64(markFence)), fmt.Sprintf("%x", uint64(markFence)), "fencing_token", "eyJ"}
			secrets = append(secrets, strings.Split(string(token), ".")...)
			said := []string{markRoute, markOwner, markSelector, markService, markOrigin, markPath, "someone"}
			for where, text := range map[string]string{"metrics": scraped, "log": log.String(), "status": status, "inventory": inventory} {
				if len(text) < 100 {
					t.Errorf("%s holds only %q", where, text)
				}
				for _, mark := range secrets {
					if strings.Contains(text, mark) {
						t.Errorf("%s holds %q", where, mark)
					}
				}
				for _, mark := range said {
					if where != "inventory" && strings.Contains(text, mark) {
						t.Errorf("%s holds %q: %s", where, mark, around(text, mark))
					}
				}
			}
			if !strings.Contains(inventory, markRoute) || !strings.Contains(inventory, markOwner) {
				t.Errorf("the inventory lacks what is held: %s", inventory)
			}
		})
	}
}

// sum is that of all series of a metric.
func sum(t *testing.T, b *broker.Broker, name string) float64 {
	t.Helper()
	families, err := b.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}

// The bounds of connections show in the metrics when they are reached.
func TestAdmissionIsCounted(t *testing.T) {
	full := start(t, "--limit", "connections_max=1")
	rawclient.Dial(t, rawclient.TCP, address(full, rawclient.TCP)).Connect()
	if pauses, used, limit := sum(t, full, "fitz_accept_pauses_total"), sum(t, full, "fitz_connections"), sum(t, full, "fitz_connections_limit"); pauses != 1 || used != 1 || limit != 1 {
		t.Errorf("%v pauses, %v of %v connections", pauses, used, limit)
	}
	crowded := start(t, "--limit", "preauth_per_address_max=1")
	first := rawclient.Dial(t, rawclient.TCP, address(crowded, rawclient.TCP))
	rawclient.Dial(t, rawclient.TCP, address(crowded, rawclient.TCP))
	first.ExpectGone()
	if n := sum(t, crowded, "fitz_preauth_evictions_total"); n != 1 {
		t.Errorf("%v evictions", n)
	}
	if ready := sum(t, crowded, "fitz_ready"); ready != 1 {
		t.Errorf("ready %v", ready)
	}
	crowded.Close()
	if ready := sum(t, crowded, "fitz_ready"); ready != 0 {
		t.Errorf("ready %v after the end", ready)
	}
}

// around is the line of a text that holds a mark.
func around(text, mark string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, mark) {
			return line
		}
	}
	return ""
}

// Every metric keeps the conventions of Prometheus, and a scrape holds no more series than the spec and the listeners explain.
func TestMetricsKeepConventions(t *testing.T) {
	b, _ := startMarked(t)
	fleet(t, b, func(c *rawclient.Client) { c.Connect(); c.Negotiate() })
	status, text := askAdmin(t, b, settings.AdminPathMetrics)
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"fitz_build_info", "fitz_start_time_seconds", "fitz_ready", "fitz_connections", "fitz_lease_held", "fitz_lease_families",
		"fitz_lease_mailbox_commands", "fitz_lease_fanout_jobs", "fitz_outbound_queue_largest_bytes", "fitz_session_closes_total",
		"fitz_preauth_evictions_total", "fitz_upgrade_refusals_total", "fitz_read_pauses_total", "go_goroutines"} {
		if families[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
	for name, family := range families {
		if len(family.GetMetric()) > 50 {
			t.Errorf("%s has %d series", name, len(family.GetMetric()))
		}
		if strings.HasPrefix(name, "fitz_") && !regexp.MustCompile(`^[A-Z0-9].*[.]$`).MatchString(family.GetHelp()) {
			t.Errorf("%s: help %q is no sentence", name, family.GetHelp())
		}
	}
	for name, want := range map[string]int{ // from the beginning: increase() does not see the event that makes a series appear
		"fitz_session_closes_total": len(wire.CloseReasons) + 2, "fitz_reload_failures_total": len(reload.Kinds), "fitz_auth_refusals_total": len(auth.Reasons),
		"fitz_jwks_refreshes_total": 2, "fitz_preauth_evictions_total": 2, "fitz_upgrade_refusals_total": 2, "fitz_admin_refusals_total": 2,
		"fitz_accept_failures_total": 3, "fitz_received_bytes_total": 2, "fitz_sessions": 2, "fitz_lease_requests_total": 7,
	} {
		if n := len(families[name].GetMetric()); n != want {
			t.Errorf("%s has %d series, want %d", name, n, want)
		}
	}
	if refused := families["fitz_upgrade_refusals_total"].GetMetric(); !slices.ContainsFunc(refused, func(m *dto.Metric) bool { return m.GetCounter().GetValue() > 0 }) {
		t.Errorf("no refused upgrade was counted: %v", refused)
	}
}

// The admin interface may be asked from the moment on at which its address accepts, while other listeners are not served yet. It is the race
// detector that this is for.
func TestStatusWhileStarting(t *testing.T) {
	const others = 100
	door := func(name, transport string) (broker.Option, net.Listener) {
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return broker.WithListener(config.Listener{Name: name, Transport: transport, Host: "127.0.0.1", Auth: config.AuthAnonymous}, socket), socket
	}
	first, socket := door("first", config.TransportAdmin)
	options := []broker.Option{first}
	for range others {
		option, _ := door("other", config.TransportTCP)
		options = append(options, option)
	}
	// The request waits in the backlog until the first listener is served.
	nc, err := net.Dial("tcp", socket.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nc.Close() }()
	if _, err := fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", settings.AdminPathStatus, socket.Addr()); err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(t.Context(), load(t, "--tcp", "off", "--http", "127.0.0.1:0", "--admin", "off"), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	response, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var status adminapi.Status
	if err := json.NewDecoder(response.Body).Decode(&status); err != nil || len(status.Listeners) != others+2 {
		t.Errorf("%d listeners, %v", len(status.Listeners), err)
	}
}
