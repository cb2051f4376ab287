package admin_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fitzwire/fitz/broker/admin"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// ask sends a request to an interface with the token "right", which can change while it runs.
func ask(o admin.Options, host, path string, authorization ...string) *httptest.ResponseRecorder {
	o.Ready, o.Metrics, o.Inventory = func() bool { return true }, prometheus.NewRegistry(), inventory(0, nil)
	request := httptest.NewRequest(http.MethodGet, path, nil)
	request.Host = host
	request.Header["Authorization"] = authorization
	recorder := httptest.NewRecorder()
	admin.Handler(o).ServeHTTP(recorder, request)
	return recorder
}

func TestToken(t *testing.T) {
	token := "right"
	guarded := admin.Options{Port: 4192, Token: func() string { return token }}
	for _, c := range []struct {
		name          string
		path          string
		authorization []string
		want          int
	}{
		{"right", settings.AdminPathMetrics, []string{"Bearer right"}, http.StatusOK},
		{"scheme in other letters", settings.AdminPathMetrics, []string{"bearer right"}, http.StatusOK},
		{"inventory", query, []string{"Bearer right"}, http.StatusOK},
		{"health", settings.AdminPathHealthz, nil, http.StatusOK},
		{"readiness", settings.AdminPathReadyz, nil, http.StatusOK},
		{"none", settings.AdminPathMetrics, nil, http.StatusUnauthorized},
		{"none for the inventory", query, nil, http.StatusUnauthorized},
		{"none for what is not there", "/nothing", nil, http.StatusUnauthorized},
		{"health by a longer way", settings.AdminPathHealthz + "/../metrics", nil, http.StatusUnauthorized},
		{"wrong", settings.AdminPathMetrics, []string{"Bearer wrong"}, http.StatusUnauthorized},
		{"beginning of it", settings.AdminPathMetrics, []string{"Bearer righ"}, http.StatusUnauthorized},
		{"more than it", settings.AdminPathMetrics, []string{"Bearer rightt"}, http.StatusUnauthorized},
		{"empty", settings.AdminPathMetrics, []string{"Bearer "}, http.StatusUnauthorized},
		{"other scheme", settings.AdminPathMetrics, []string{"Basic right"}, http.StatusUnauthorized},
		{"no scheme", settings.AdminPathMetrics, []string{"right"}, http.StatusUnauthorized},
		{"two", settings.AdminPathMetrics, []string{"Bearer wrong", "Bearer right"}, http.StatusUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := ask(guarded, "localhost:4192", c.path, c.authorization...)
			if answer.Code != c.want {
				t.Fatalf("%d, want %d", answer.Code, c.want)
			}
			asked := strings.HasPrefix(answer.Header().Get("WWW-Authenticate"), "Bearer ")
			if refused := c.want == http.StatusUnauthorized; asked != refused || refused != strings.Contains(answer.Body.String(), "token.invalid") {
				t.Errorf("challenge %v, body %s", asked, answer.Body)
			}
			if strings.Contains(answer.Body.String(), "right") {
				t.Errorf("the answer holds the token: %s", answer.Body)
			}
		})
	}
	token = "newer"
	if old, now := ask(guarded, "localhost:4192", query, "Bearer right"), ask(guarded, "localhost:4192", query, "Bearer newer"); old.Code != http.StatusUnauthorized || now.Code != http.StatusOK {
		t.Errorf("after a change: %d for the old token, %d for the new one", old.Code, now.Code)
	}
}

// On loopback the Host header is looked at with a token too; a listener on the network does not know its names.
func TestTokenAndHost(t *testing.T) {
	token := func() string { return "right" }
	for _, c := range []struct {
		name    string
		options admin.Options
		host    string
		want    int
	}{
		{"loopback", admin.Options{Port: 4192, Token: token}, "localhost:4192", http.StatusOK},
		{"foreign name on loopback", admin.Options{Port: 4192, Token: token}, "evil.example:4192", http.StatusForbidden},
		{"bound address", admin.Options{Port: 4192, Token: token, AnyHost: true}, "192.0.2.1:4192", http.StatusOK},
		{"name on the network", admin.Options{Port: 4192, Token: token, AnyHost: true}, "broker.example", http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			if answer := ask(c.options, c.host, query, "Bearer right"); answer.Code != c.want {
				t.Errorf("%d, want %d", answer.Code, c.want)
			}
		})
	}
}
