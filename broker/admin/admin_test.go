package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker/admin"
	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/settings"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("down")

// inventory yields that many leases and then fails, or not.
func inventory(items int, err error) admin.Inventory {
	return func(_ context.Context, _ uint32, _ pattern.Selector, yield func(adminapi.Lease) bool) error {
		for range items {
			if !yield(adminapi.Lease{Route: "lease://r/a/k", OwnerID: "w"}) {
				return nil
			}
		}
		return err
	}
}

// serve runs the interface and returns its URL.
func serve(t *testing.T, i admin.Inventory) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	handler := admin.Handler(admin.Options{Ready: func() bool { return true }, Metrics: prometheus.NewRegistry(), Inventory: i,
		Port: listener.Addr().(*net.TCPAddr).AddrPort().Port()})
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = listener
	server.Config.SetKeepAlivesEnabled(false)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

const query = settings.AdminPathLeases + "?family=1&selector=lease://**"

// E-12: an inventory that is unavailable is never an empty answer.
func TestUnavailableInventory(t *testing.T) {
	response, err := http.Get(serve(t, inventory(0, errDown)) + query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var body struct{ Error struct{ Code string } }
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || response.StatusCode != http.StatusServiceUnavailable || body.Error.Code != "inventory.unavailable" {
		t.Errorf("%d %+v, %v", response.StatusCode, body, err)
	}
}

// A listing that fails in the middle does not look complete.
func TestInventoryFailsInTheMiddle(t *testing.T) {
	for _, items := range []int{1, 10_000} {
		response, err := http.Get(serve(t, inventory(items, errDown)) + query)
		if err != nil {
			continue // nothing arrived at all
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err == nil && json.Valid(body) {
			t.Errorf("%d items: a complete answer of %d bytes", items, len(body))
		}
	}
}

// A large listing is valid JSON with every item.
func TestLargeListing(t *testing.T) {
	response, err := http.Get(serve(t, inventory(20_000, nil)) + query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var body struct{ Leases []adminapi.Lease }
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || len(body.Leases) != 20_000 || response.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d items, %v", len(body.Leases), err)
	}
}

// A limit ends a listing, which says whether there was more.
func TestLimitedListing(t *testing.T) {
	for limit, want := range map[string]int{"1": 1, "4": 4, "5": 5, "6": 5, "4294967295": 5} {
		response, err := http.Get(serve(t, inventory(5, nil)) + query + "&limit=" + limit)
		if err != nil {
			t.Fatal(err)
		}
		var body adminapi.Leases
		err = json.NewDecoder(response.Body).Decode(&body)
		_ = response.Body.Close()
		if err != nil || len(body.Leases) != want || body.Truncated != (want < 5) {
			t.Errorf("limit %s: %d items, truncated %t, %v", limit, len(body.Leases), body.Truncated, err)
		}
	}
	for _, limit := range []string{"0", "", "-1", "x", "1.5", "4294967296"} {
		response, err := http.Get(serve(t, inventory(5, nil)) + query + "&limit=" + limit)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusBadRequest {
			t.Errorf("limit %q: %d", limit, response.StatusCode)
		}
	}
}

// Nothing can be changed here.
func TestOnlyReading(t *testing.T) {
	url := serve(t, inventory(0, nil))
	for _, path := range admin.Paths() {
		response, err := http.Post(url+path, "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, response.StatusCode)
		}
	}
}
