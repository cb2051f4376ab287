package broker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/fitzwire/fitz/broker/admin"
	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/adminapi"
	"github.com/fitzwire/fitz/generated/go/pattern"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// described is the description of the admin interface for tools.
type described struct {
	t        *testing.T
	compiler *jsonschema.Compiler
	document struct {
		OpenAPI string `json:"openapi"`
		Info    struct{ Description string }
		Paths   map[string]map[string]struct {
			Responses map[string]struct {
				Description string
				Content     map[string]struct{ Example any }
			}
			Parameters []struct {
				Name     string
				Required bool
				Example  any
			}
			Security []any
		}
	}
	seen map[string]bool // path, space, status
}

const descriptionURL = "https://fitz.invalid/openapi.json"

func readDescription(t *testing.T) *described {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "generated", "docs", "openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	d := &described{t: t, compiler: jsonschema.NewCompiler(), seen: map[string]bool{}}
	d.compiler.Draft = jsonschema.Draft2020 // what OpenAPI 3.1 says
	d.compiler.LoadURL = func(url string) (io.ReadCloser, error) { return nil, fmt.Errorf("nothing is fetched: %s", url) }
	if err := d.compiler.AddResource(descriptionURL, bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d.document); err != nil {
		t.Fatal(err)
	}
	return d
}

// schema is that of one answer.
func (d *described) schema(path, status, media string) *jsonschema.Schema {
	d.t.Helper()
	escape := strings.NewReplacer("~", "~0", "/", "~1").Replace
	s, err := d.compiler.Compile(descriptionURL + "#/paths/" + escape(path) + "/get/responses/" + status + "/content/" + escape(media) + "/schema")
	if err != nil {
		d.t.Fatalf("%s %s: %v", path, status, err)
	}
	return s
}

// check compares one answer of a running broker with the description. exact says that the example is the answer, letter by letter.
func (d *described) check(path string, response *http.Response, exact bool) {
	d.t.Helper()
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	status := fmt.Sprint(response.StatusCode)
	media, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if err != nil {
		d.t.Fatalf("%s %s: %v", path, status, err)
	}
	content, ok := d.document.Paths[path]["get"].Responses[status].Content[media]
	if !ok {
		d.t.Errorf("%s answers %s as %s, which is not described: %s", path, status, media, body)
		return
	}
	d.seen[path+" "+status] = true
	got := any(string(body))
	if media == "application/json" {
		if err := json.Unmarshal(body, &got); err != nil {
			d.t.Fatalf("%s %s: %v in %s", path, status, err, body)
		}
	}
	schema := d.schema(path, status, media)
	for what, value := range map[string]any{"answer": got, "example": content.Example} {
		if err := schema.Validate(value); err != nil {
			d.t.Errorf("%s of %s %s: %v", what, path, status, err)
		}
	}
	if exact && !reflect.DeepEqual(got, content.Example) {
		d.t.Errorf("the example of %s %s is no answer: %v, not %v", path, status, content.Example, got)
	}
	if want, have := keysOf(content.Example), keysOf(got); !exact && media == "application/json" && !slices.Equal(want, have) {
		d.t.Errorf("the example of %s %s has the members %v, the answer %v", path, status, want, have)
	}
}

// keysOf is the members of all objects within a value, each once.
func keysOf(v any) []string {
	found := map[string]bool{}
	var visit func(at string, v any)
	visit = func(at string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, member := range v {
				found[at+"/"+k] = true
				visit(at+"/"+k, member)
			}
		case []any:
			for _, item := range v {
				visit(at, item)
			}
		}
	}
	visit("", v)
	return slices.Sorted(maps.Keys(found))
}

// asked sends a request to a running admin interface. An empty host is that of the address.
func asked(t *testing.T, address, path, host string) *http.Response {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = host
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// The description of the admin interface is what a running broker does: its paths, each status, each answer; and its examples are answers.
func TestOpenAPI(t *testing.T) {
	d := readDescription(t)
	if d.document.OpenAPI != "3.1.0" {
		t.Errorf("OpenAPI %s", d.document.OpenAPI)
	}
	if want, got := slices.Sorted(slices.Values(admin.Paths())), slices.Sorted(maps.Keys(d.document.Paths)); !slices.Equal(want, got) {
		t.Fatalf("described are %v, served are %v", got, want)
	}
	b := start(t)
	at := b.Addresses()[settings.ListenerAdmin.Name]
	client := rawclient.Dial(t, rawclient.TCP, address(b, rawclient.TCP))
	client.Connect()
	client.Negotiate()
	for i := range 3 {
		client.Request(1, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: fmt.Sprintf("lease://r/a/%d", i), OwnerID: "w", TTL: 60})
		expectGrant(t, client, 1, wire.LeaseGrantKindAcquired)
	}
	d.check(settings.AdminPathHealthz, asked(t, at, settings.AdminPathHealthz, ""), true)
	d.check(settings.AdminPathReadyz, asked(t, at, settings.AdminPathReadyz, ""), true)
	d.check(settings.AdminPathStatus, asked(t, at, settings.AdminPathStatus, ""), false)
	d.checkMetrics(at)
	d.checkLeases(at)
	for _, path := range admin.Paths() {
		d.check(path, asked(t, at, path, "fitz.example:4192"), true) // 403
	}
	d.checkElsewhere(at)
	d.checkDraining(b.Shutdown, at, client)
	d.checkAlone()
	for path, operations := range d.document.Paths {
		if len(operations) != 1 {
			t.Errorf("%s: only GET is served", path)
		}
		for status := range operations["get"].Responses {
			if !d.seen[path+" "+status] {
				t.Errorf("%s never answered %s", path, status)
			}
		}
	}
}

// checkMetrics expects the lines of the example, in their order, among those of a broker with three leases.
func (d *described) checkMetrics(at string) {
	d.t.Helper()
	example, _ := d.document.Paths[settings.AdminPathMetrics]["get"].Responses["200"].Content["text/plain"].Example.(string)
	response := asked(d.t, at, settings.AdminPathMetrics, "")
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || example == "" || !strings.Contains(string(body), example) {
		d.t.Errorf("the example %q is no part of the metrics, %v", example, err)
	}
	d.check(settings.AdminPathMetrics, asked(d.t, at, settings.AdminPathMetrics, ""), false)
}

// checkLeases asks for listings with the parameters that are described, and with mistakes.
func (d *described) checkLeases(at string) {
	d.t.Helper()
	path := settings.AdminPathLeases
	query, required := []string{}, 0
	for _, p := range d.document.Paths[path]["get"].Parameters {
		query = append(query, fmt.Sprintf("%s=%v", p.Name, p.Example))
		if p.Required {
			required++
		}
	}
	if len(query) != 3 || required != 2 {
		d.t.Errorf("parameters %v, %d required", query, required)
	}
	response := asked(d.t, at, path+"?"+strings.Join(query, "&"), "") // the examples are parameters that work
	if _ = response.Body.Close(); response.StatusCode != http.StatusOK {
		d.t.Errorf("%v: %d", query, response.StatusCode)
	}
	d.check(path, asked(d.t, at, path+"?family=1&selector=lease://r/**", ""), false)
	d.check(path, asked(d.t, at, path+"?family=1&selector=lease://r/**&limit=2", ""), false)
	d.check(path, asked(d.t, at, path, ""), true)
	for _, mistake := range []string{"family=1&selector=lease://r", "family=1&selector=lease://**&limit=0"} {
		response := asked(d.t, at, path+"?"+mistake, "")
		var failure adminapi.Failure
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err := errors.Join(err, json.Unmarshal(body, &failure)); err != nil || response.StatusCode != http.StatusBadRequest || failure.Error.Code == "" {
			d.t.Errorf("%s: %d %s, %v", mistake, response.StatusCode, body, err)
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		if err := d.schema(path, "400", "application/json").Validate(decoded(d.t, body)); err != nil {
			d.t.Errorf("%s: %v", mistake, err)
		}
	}
}

// checkElsewhere asks for what belongs to no path of the description: paths that are not there, and methods that no path has.
func (d *described) checkElsewhere(at string) {
	d.t.Helper()
	failure, err := d.compiler.Compile(descriptionURL + "#/components/schemas/failure")
	if err != nil {
		d.t.Fatal(err)
	}
	check := func(method, path string, status int, code string) {
		d.t.Helper()
		request, err := http.NewRequest(method, "http://"+at+path, nil)
		if err != nil {
			d.t.Fatal(err)
		}
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err != nil {
			d.t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != status || response.Header.Get("Content-Type") != "application/json" {
			d.t.Fatalf("%s %s: %d as %s: %s, %v", method, path, response.StatusCode, response.Header.Get("Content-Type"), body, err)
		}
		if allowed := response.Header.Get("Allow"); (status == http.StatusMethodNotAllowed) != (allowed == "GET, HEAD") {
			d.t.Errorf("%s %s: %d allows %q", method, path, status, allowed)
		}
		if err := failure.Validate(decoded(d.t, body)); err != nil || !strings.Contains(string(body), `"`+code+`"`) {
			d.t.Errorf("%s %s: %s is no failure with %s: %v", method, path, body, code, err)
		}
		if !strings.Contains(d.document.Info.Description, fmt.Sprintf("%d, %s", status, code)) {
			d.t.Errorf("%d with %s is not described", status, code)
		}
	}
	for _, path := range []string{"/", "/nothing", settings.AdminPathStatus + "/", "/" + settings.AdminPathMetrics, settings.AdminPathHealthz + "/../metrics"} {
		check(http.MethodGet, path, http.StatusNotFound, "path.unknown")
	}
	for _, path := range admin.Paths() {
		for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodOptions} {
			check(method, path, http.StatusMethodNotAllowed, "method.invalid")
		}
	}
}

func decoded(t *testing.T, body []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// checkDraining asks while a session keeps the broker from ending.
func (d *described) checkDraining(shutdown func(context.Context), at string, client *rawclient.Client) {
	d.t.Helper()
	ctx, hurry := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		shutdown(ctx)
	}()
	client.Expect(0, wire.TypeGoaway)
	d.check(settings.AdminPathReadyz, asked(d.t, at, settings.AdminPathReadyz, ""), true)
	d.check(settings.AdminPathHealthz, asked(d.t, at, settings.AdminPathHealthz, ""), true)
	var status adminapi.Status
	response := asked(d.t, at, settings.AdminPathStatus, "")
	err := json.NewDecoder(response.Body).Decode(&status)
	_ = response.Body.Close()
	if err != nil || status.State != adminapi.StatusStateDraining || status.Sessions.TCP != 1 || status.Leases.Held != 3 || status.Families[0].Held != 3 {
		d.t.Errorf("%+v, %v", status, err)
	}
	hurry()
	<-ended
}

// checkAlone looks at what a broker that runs does not do by itself: an inventory that fails, and an admin token.
func (d *described) checkAlone() {
	d.t.Helper()
	fails := func(context.Context, uint32, pattern.Selector, func(adminapi.Lease) bool) error {
		return errors.New("down")
	}
	record := func(o admin.Options, path string) *http.Response {
		o.Inventory, o.Port, o.Metrics = fails, 4192, scrapeNothing{}
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.Host = "localhost:4192"
		recorder := httptest.NewRecorder()
		admin.Handler(o).ServeHTTP(recorder, request)
		return recorder.Result()
	}
	d.check(settings.AdminPathLeases, record(admin.Options{}, settings.AdminPathLeases+"?family=1&selector=lease://**"), true)
	for path, operations := range d.document.Paths {
		if len(operations["get"].Security) == 0 {
			continue // asks for no token
		}
		d.check(path, record(admin.Options{Token: func() string { return "right" }}, path), true)
	}
}

// scrapeNothing has no metrics.
type scrapeNothing struct{}

func (scrapeNothing) Gather() ([]*dto.MetricFamily, error) { return nil, nil }
