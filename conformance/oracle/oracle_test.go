package oracle

import (
	"encoding/binary"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/fitzwire/fitz/internal/reference"
)

const specDir = "../../spec"

// project is the specification of the project.
func project(t testing.TB) *Spec {
	t.Helper()
	return loaded(t, os.DirFS(specDir))
}

// allDomains is the specification with a sketch of every other domain.
func allDomains(t testing.TB) *Spec {
	t.Helper()
	files := fstest.MapFS{}
	for _, dir := range []string{specDir, specDir + "/fixtures/other-domains"} {
		from := os.DirFS(dir)
		err := fs.WalkDir(from, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(name) != ".yaml" {
				return err
			}
			content, err := fs.ReadFile(from, name)
			files[name] = &fstest.MapFile{Data: content}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return loaded(t, files)
}

func loaded(t testing.TB, files fs.FS) *Spec {
	t.Helper()
	s, err := Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The oracle shares no code with what it judges.
func TestIndependence(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const module = "github.com/fitzwire/fitz/"
	for _, dep := range strings.Fields(string(out)) {
		if own, ours := strings.CutPrefix(dep, module); ours && own != "conformance/oracle" {
			t.Errorf("the oracle imports %s", dep)
		}
	}
	if !strings.Contains(string(out), module+"conformance/oracle") {
		t.Errorf("go list does not name the package itself:\n%s", out)
	}
}

type said struct {
	dir   Direction
	name  string
	form  Form
	value Value
	label uint64
}

func item(fields ...any) Value {
	v := Value{}
	for i := 0; i < len(fields); i += 2 {
		v[fields[i].(string)] = fields[i+1]
	}
	return v
}

func raw16(from byte) []byte {
	id := make([]byte, 16)
	for i := range id {
		id[i] = from + byte(i)
	}
	return id
}

const (
	aRoute      = "lease://r/a/k"
	aSelector   = "lease://r/a/*"
	fingerprint = uint64(0xa0a1a2a3a4a5a6a7)
)

// meanings says what the vectors of the reference mean: one for each of their byte strings.
var meanings = map[string][]said{
	"V-01": {{Up, "session.connect", Control, item("token", ""), 0}},
	"V-02": {{Down, "session.server_hello", Control, item("version", uint64(1), "capabilities", uint64(15)), 0}},
	"V-03": {{Down, "session.server_hello", Control, item("version", uint64(1), "capabilities", uint64(0x1000f), "lifecycle", item("broker_lifetime_id", raw16(0),
		"session_incarnation", uint64(0x1122334455667788), "max_frame_bytes", uint64(1<<20), "heartbeat_ms", uint64(10000), "spec_fingerprint", fingerprint)), 0}},
	"V-04": {{Up, "session.client_hello", Control, item("capabilities", uint64(1<<16), "sdk_name", "go", "sdk_version", "1.0.0", "spec_fingerprint", fingerprint), 0}},
	"V-05": {{Up, "session.ping", Control, item("nonce", uint64(1)), 0}, {Down, "session.pong", Control, item("nonce", uint64(1)), 0}},
	"V-06": {{Down, "session.goaway", Control, item("grace_ms", uint64(25000), "code", uint64(9201), "reason", "stop"), 0}},
	"V-07": {{Down, "session.sub_ended", Push, item("domain", uint64(4), "subscription_id", uint64(5), "code", uint64(9101), "dropped", uint64(3), "reason", "slow"), 0}},
	"V-08": {{Up, "session.cancel", Control, item("correlation_id", uint64(7)), 0}, {Down, "session.cancelled", Control, item("correlation_id", uint64(7), "outcome", uint64(0)), 0}},
	"V-09": {{Up, "lease.query", Request, item("route", aRoute), 9}},
	"V-10": {{Down, "lease.query", Reply, item("held", false, "pending_waiters", uint64(0)), 9}},
	"V-11": {{Up, "kv.begin", Request, item("route", "kv://r/a/k", "mode", uint64(1), "persistence", uint64(0)), 0}},
	"V-12": {{Down, "kv.begin", Refusal, item(Envelope, "coded", "code", uint64(1004), "message", "busy"), 0}},
	"V-13": {{Down, "notice.subscribe", Reply, item("form", uint64(1), "subscription_id", uint64(5)), 0}},
	"V-14": {{Down, "", "", nil, 0}},
	"V-15": {{Down, "queue.complete", Refusal, item(Envelope, "plain", "message", "NotFound"), 0}},
	"V-16": {{Down, "stream.commit", Refusal, item(Envelope, "stream_coded", "code", uint64(2003), "message", "x"), 0}},

	"LV-01": {{Up, "lease.acquire", Request, item("route", aRoute, "owner_id", "w1", "ttl", uint64(30), "wait", uint64(5)), 0}},
	"LV-02": {{Up, "lease.acquire", Request, item("route", aRoute, "owner_id", "w1", "ttl", uint64(30)), 0}},
	"LV-03": {{Down, "lease.acquire", Reply, item("kind", uint64(0), "fencing_token", uint64(41)), 0}},
	"LV-04": {{Down, "lease.acquire", Reply, item("kind", uint64(2), "fencing_token", uint64(42)), 0}},
	"LV-05": {{Down, "lease.acquire", Refusal, item(Envelope, "coded", "code", uint64(9001), "message", "cancelled"), 0}},
	"LV-06": {{Up, "lease.renew", Request, item("route", aRoute, "owner_id", "w1", "fencing_token", uint64(41), "ttl", uint64(30)), 0}},
	"LV-07": {{Down, "lease.renew", Reply, item("fencing_token", uint64(41)), 0}},
	"LV-08": {{Up, "lease.release", Request, item("route", aRoute, "owner_id", "w1", "fencing_token", uint64(41)), 0}},
	"LV-09": {{Down, "lease.query", Reply, item("held", true, "owner_id", "w1", "ttl_remaining", uint64(29), "pending_waiters", uint64(1)), 0}},
	"LV-10": {{Up, "lease.subscribe", Request, item("selector", aSelector), 0}, {Down, "lease.subscribe", Reply, item("subscription_id", uint64(5)), 0}},
	"LV-11": {{Down, "lease.notify", Push, item("subscription_id", uint64(5), "route", aRoute, "payload_length", uint64(0)), 0}},
	"LV-12": {{Up, "lease.list", Request, item("selector", aSelector, "limit", uint64(0)), 0}},
	"LV-13": {{Up, "lease.list", Request, item("selector", aSelector, "cursor", item("snapshot_id", uint64(0xabcdef0000000001), "offset", uint64(1)), "limit", uint64(0)), 0}},
	"LV-14": {{Down, "lease.list", Reply, item("items", []any{item("route", aRoute, "owner_id", "w1", "holder_incarnation", uint64(0x1122334455667788),
		"acquired_at", "2030-01-02T03:04:05.678Z", "expires_in", uint64(29), "renewals", uint64(2))}, "next", item("snapshot_id", uint64(0xabcdef0000000001), "offset", uint64(1))), 0}},
	"LV-15": {{Down, "lease.list", Reply, item("items", []any{}), 0}},
	"LV-16": {{Down, "lease.list", Refusal, item(Envelope, "coded", "code", uint64(5011), "message", "InvalidListCursor: offset too low"), 0}},
}

// The vectors of the reference, made by hand, check the oracle: it reads them as they are meant and writes the same bytes, and names each byte once.
// Clauses: V-01 to V-16, LV-01 to LV-16.
func TestReferenceVectors(t *testing.T) {
	s := allDomains(t)
	rows := append(reference.Rows(t, (*reference.Docs).WireVectors), reference.Rows(t, (*reference.Docs).LeaseVectors)...)
	if len(rows) != len(meanings) {
		t.Errorf("the reference has %d vectors, %d meanings are known", len(rows), len(meanings))
	}
	for _, v := range rows {
		if len(meanings[v.ID]) != len(v.Bytes) {
			t.Fatalf("%s: %d byte strings, %d meanings", v.ID, len(v.Bytes), len(meanings[v.ID]))
		}
		for i, message := range v.Bytes {
			if strings.Contains(v.What, "TCP message") {
				if int(binary.BigEndian.Uint32(message)) != len(message)-4 {
					t.Errorf("%s: wrong length", v.ID)
				}
				message = message[4:]
			}
			checkMeaning(t, s, v.ID, message, meanings[v.ID][i])
		}
	}
}

func checkMeaning(t *testing.T, s *Spec, id string, message []byte, want said) {
	t.Helper()
	records, fault := s.SplitMessage(want.dir, message)
	if fault != nil || len(records) != 1 {
		t.Fatalf("%s: %v, %d records", id, fault, len(records))
	}
	got := records[0]
	if got.Message != want.name || got.Form != want.form || got.Label != want.label || !reflect.DeepEqual(got.Value, want.value) {
		t.Errorf("%s: got %+v, want %+v", id, got, want)
	}
	covered(t, s.Annotate(want.dir, got.Bytes), len(got.Bytes))
	if want.name == "" {
		return
	}
	encoded, err := s.Encode(want.name, want.form, want.value)
	if err != nil {
		t.Fatalf("%s: %v", id, err)
	}
	if want.label != 0 {
		encoded = s.Label(want.dir, want.label, encoded)
	}
	if id == "V-11" { // the last byte is the default, which the canonical form leaves out
		message = append([]byte{0x64, 0, 15}, message[3:len(message)-1]...)
	}
	if !slices.Equal(encoded, message) {
		t.Errorf("%s: encoded %x, want %x", id, encoded, message)
	}
}

// covered checks that spans name every byte once.
func covered(t *testing.T, spans []Span, size int) {
	t.Helper()
	end := 0
	for _, span := range spans {
		if span.Offset != end || span.Len <= 0 || span.Path == "" || span.Type == "" {
			t.Errorf("span %+v after byte %d", span, end)
		}
		end += span.Len
	}
	if end != size {
		t.Errorf("%d of %d bytes are named", end, size)
	}
}

// The tables of routes.md check the grammar of the oracle.
// Clauses, RV, RI, RC, RM, C3.
func TestRouteTables(t *testing.T) {
	s := project(t)
	valid := append(reference.Rows(t, (*reference.Docs).ValidRoutes), reference.Rows(t, (*reference.Docs).Boundary)...)
	for _, row := range valid {
		got, reason := s.Classify(row.Domain, row.Text, row.Use == reference.Pattern)
		if reason != "" || got.Exact != row.Exact || !row.Exact && got.Flexible != row.Flexible {
			t.Errorf("%s %s: %+v %s", row.ID, row.Text, got, reason)
		}
		if len(row.Masks) > 0 {
			sameMasks(t, row.ID, got.Masks, row.Masks)
		}
	}
	for _, row := range reference.Rows(t, (*reference.Docs).InvalidRoutes) {
		if _, reason := s.Classify(row.Domain, row.Text, row.Use == reference.Pattern); reason != row.Reason {
			t.Errorf("%s %q: %q, want %q", row.ID, row.Text, reason, row.Reason)
		}
	}
	for _, row := range reference.Rows(t, (*reference.Docs).CanonicalMasks) {
		got, reason := s.Classify("lease", "lease://"+row.Path, true)
		if reason != "" {
			t.Errorf("%s: %s", row.ID, reason)
		}
		sameMasks(t, row.ID, got.Masks, row.Masks)
	}
	classified := func(text string, pattern bool) Selector {
		scheme, _, _ := strings.Cut(text, "://")
		out, reason := s.Classify(scheme, text, pattern)
		if reason != "" && reason != "depth" {
			t.Errorf("%s: %s", text, reason)
		}
		return out
	}
	for _, row := range reference.Rows(t, (*reference.Docs).Containments) {
		if got := s.Contains(classified(row.Grant, true), classified(row.Request, true)); got != row.Contained {
			t.Errorf("%s: %s contains %s: %v", row.ID, row.Grant, row.Request, got)
		}
	}
	for _, row := range reference.Rows(t, (*reference.Docs).Matches) {
		if got := s.Matches(classified(row.Pattern, true), classified(row.Route, false)); got != row.Matches {
			t.Errorf("%s: %s matches %s: %v", row.ID, row.Pattern, row.Route, got)
		}
	}
}

func sameMasks(t *testing.T, id string, got [][]string, want []string) {
	t.Helper()
	var texts []string
	for _, m := range got {
		texts = append(texts, strings.Join(m, "/"))
	}
	slices.Sort(texts)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(texts, want) {
		t.Errorf("%s: masks %v, want %v", id, texts, want)
	}
}

// Scheme-less texts are routes of KV only, and never selectors.
func TestSchemeless(t *testing.T) {
	s := project(t)
	for _, c := range []struct {
		scheme, text string
		pattern      bool
		reason       string
	}{
		{"kv", "r/a/k", false, ""}, {"kv", "r/a/k", true, "missing_scheme"}, {"kv", "r/a", false, "depth"}, {"lease", "r/a/k", false, "missing_scheme"},
		{"kv", "r/a/" + strings.Repeat("x", 4087), false, ""}, {"kv", "r/a/" + strings.Repeat("x", 4088), false, "too_long"},
	} {
		if _, reason := s.Classify(c.scheme, c.text, c.pattern); reason != c.reason {
			t.Errorf("%.20s: %q, want %q", c.text, reason, c.reason)
		}
	}
}

// The bounds and codes are those of the reference.
func TestRegistries(t *testing.T) {
	s := project(t)
	for _, row := range reference.Rows(t, (*reference.Docs).Limits) {
		if got := s.Bound(row.Name); got != row.Value {
			t.Errorf("%s: %d, want %d", row.Name, got, row.Value)
		}
	}
	for _, row := range reference.Rows(t, (*reference.Docs).Codes) {
		if row.Name == "reserved" {
			continue
		}
		byName, found := s.Error(row.Name)
		byNumber, _ := s.Error(row.First)
		if !found || byName != byNumber || int64(byName.Number) != int64(row.First) || byName.Retry != row.Retry {
			t.Errorf("%s: %+v, %+v", row.Name, byName, byNumber)
		}
	}
	if _, found := s.Error(uint64(4242)); found {
		t.Error("a code that is not in the registry was found")
	}
}
