package config_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/broker/session"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
)

// environment returns a look-up in a map.
func environment(values map[string]string) func(string) string {
	return func(name string) string { return values[name] }
}

// written writes a configuration file and returns its path.
func written(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fitzd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t testing.TB, args []string, env map[string]string) *config.Config {
	t.Helper()
	c, _, err := config.Load(args, environment(env), io.Discard)
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return c
}

// problems loads a configuration that must be refused and returns its lines.
func problems(t testing.TB, args []string, env map[string]string) []string {
	t.Helper()
	c, _, err := config.Load(args, environment(env), io.Discard)
	var found config.Problems
	if !errors.As(err, &found) || c != nil {
		t.Fatalf("%v %v: %v, want problems", args, env, err)
	}
	return strings.Split(err.Error(), "\n")
}

func address(c *config.Config, name string) string {
	for _, l := range c.Listeners {
		if l.Name == name {
			return l.Address()
		}
	}
	return ""
}

func TestDefaults(t *testing.T) {
	c := load(t, nil, nil)
	for _, l := range settings.Listeners {
		if got := address(c, l.Name); got != l.Address {
			t.Errorf("%s at %q, want %q", l.Name, got, l.Address)
		}
	}
	if c.Limits != bounds.Default() || c.InsecureAnonymous || c.AddressesFile != "" || len(c.Warnings) != 0 || len(c.Origins) != 0 {
		t.Errorf("%+v", c)
	}
}

// A flag beats the environment, which beats the file, which beats the default; an empty variable counts as not set.
func TestPrecedence(t *testing.T) {
	file := written(t, "tcp: localhost:1000\nhttp: localhost:1001\nlog_level: warn\nlimits:\n  heartbeat_ms: 2000\n  connect_wait_ms: 3000\n  token_bytes_max: 9\n")
	env := map[string]string{"FITZ_CONFIG": file, "FITZ_TCP": "localhost:2000", "FITZ_HTTP": "", "FITZ_LOG_LEVEL": "error",
		"FITZ_LIMITS": "heartbeat_ms=4000, connect_wait_ms=5000"}
	c := load(t, []string{"--tcp", "localhost:3000", "--limit", "heartbeat_ms=6000"}, env)
	if got := address(c, "tcp"); got != "localhost:3000" {
		t.Errorf("flag: %s", got)
	}
	if got := address(c, "http"); got != "localhost:1001" {
		t.Errorf("file: %s", got)
	}
	if c.LogLevel.String() != "ERROR" {
		t.Errorf("environment: %v", c.LogLevel)
	}
	if l := c.Limits; l.HeartbeatMs != 6000 || l.ConnectWaitMs != 5000 || l.TokenBytesMax != 9 {
		t.Errorf("limits %d %d %d", l.HeartbeatMs, l.ConnectWaitMs, l.TokenBytesMax)
	}
	if c.Limits.SessionIdleMs != 18000 { // W-66: three heartbeats unless told otherwise
		t.Errorf("idle %d", c.Limits.SessionIdleMs)
	}
	if c := load(t, []string{"--tcp", "localhost:3000"}, env); address(c, "tcp") != "localhost:3000" {
		t.Error("the flag does not beat the environment")
	}
	if c := load(t, nil, env); address(c, "tcp") != "localhost:2000" {
		t.Error("the environment does not beat the file")
	}
}

// compat.md section 6: the environment names of the public broker.
func TestAliases(t *testing.T) {
	c := load(t, []string{"--insecure-anonymous"}, map[string]string{
		"FITZ_BIND_ADDR": "0.0.0.0", "FITZ_HTTP_PORT": "4090", "FITZ_TCP_PORT": "4091", "FITZ_WS_ALLOWED_ORIGINS": "https://A.example, http://b.example:80",
		"FITZ_ASSUME_LOCAL_LOOPBACK_EDGE": "1", "FITZ_ADMIN_AUTH_MODE": "none", "FITZ_AUTH_REQUIRED": "false", "FITZ_STORAGE_MODE": "memory", "FITZ_JWT_HMAC_SECRET": "hush"})
	for name, want := range map[string]string{"http": "0.0.0.0:4090", "tcp": "0.0.0.0:4091", "admin": settings.ListenerAdmin.Address} {
		if got := address(c, name); got != want {
			t.Errorf("%s at %s, want %s", name, got, want)
		}
	}
	if want := []string{"https://a.example", "http://b.example"}; !slices.Equal(c.Origins, want) {
		t.Errorf("origins %v", c.Origins)
	}
	warnings := strings.Join(c.Warnings, "\n")
	for _, name := range []string{"FITZ_STORAGE_MODE", "FITZ_JWT_HMAC_SECRET has no effect: no listener asks for tokens"} {
		if !strings.Contains(warnings, name) {
			t.Errorf("no warning about %s: %s", name, warnings)
		}
	}
	if strings.Contains(warnings, "LOOPBACK_EDGE") || strings.Contains(warnings, "hush") {
		t.Errorf("warnings: %s", warnings)
	}
	// An address that was given keeps its host.
	c = load(t, []string{"--tcp", "127.0.0.1:1"}, map[string]string{"FITZ_BIND_ADDR": "::1", "FITZ_TCP_PORT": "2"})
	if address(c, "tcp") != "127.0.0.1:1" || address(c, "http") != "[::1]:4190" {
		t.Errorf("tcp %s, http %s", address(c, "tcp"), address(c, "http"))
	}
}

func TestHello(t *testing.T) {
	for text, want := range map[string]session.Hello{
		"immediate":      {},
		"off":            {Mode: session.HelloOff},
		"delayed(150)":   {Mode: session.HelloDelayed, Delay: 150 * time.Millisecond},
		"delayed(1)":     {Mode: session.HelloDelayed, Delay: time.Millisecond},
		"delayed(10000)": {Mode: session.HelloDelayed, Delay: 10 * time.Second},
	} {
		c := load(t, []string{"--hello", text}, nil)
		for _, l := range c.Listeners {
			if l.Hello != want {
				t.Errorf("%s: %+v", text, l.Hello)
			}
		}
	}
	for _, text := range []string{"", "soon", "delayed", "delayed()", "delayed(0)", "delayed(10001)", "delayed(1", "delayed(-1)", "delayed(010)", "delayed(1_0)", "delayed(99999999999999999999)"} {
		if got := problems(t, []string{"--hello=" + text}, nil); len(got) != 1 {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// The listener list of the file, and switching a default one off.
func TestListenerList(t *testing.T) {
	file := written(t, `
http: off
hello: delayed(150)
listeners:
  - {transport: tcp, address: "127.0.0.1:5001"}
  - {transport: websocket, address: "localhost:5002", auth: anonymous, hello: off}
`)
	c := load(t, []string{"--config", file}, nil)
	if address(c, "http") != "" || address(c, "listeners[0]") != "127.0.0.1:5001" || address(c, "listeners[1]") != "localhost:5002" {
		t.Errorf("%+v", c.Listeners)
	}
	for _, l := range c.Listeners {
		want := session.HelloDelayed
		if l.Name == "listeners[1]" {
			want = session.HelloOff
		}
		if l.Hello.Mode != want {
			t.Errorf("%s: hello %v", l.Name, l.Hello)
		}
	}
}

// Every mistake is one line with its place, and all are found in one run.
func TestMistakesInFile(t *testing.T) {
	file := written(t, `tcp: 4191
http: "somewhere"
unknown: 1
log_level: loud
log_level: info
insecure_anonymous: "yes"
websocket_origins: https://a.example
limits:
  heartbeat_ms: 010
  session_idle_ms: 1_000
  no_such_limit: 5
  record_value_max: 5
  connections_max: 0
  connections_max: 1
  frame_recv_max: "7"
config: other.yaml
listeners:
  - {transport: udp, address: "localhost:1"}
  - {transport: tcp}
  - {transport: tcp, address: "localhost:2", auth: token}
  - {transport: tcp, address: "localhost:3", tls: {cert: a}}
  - {transport: tcp, address: "localhost:4", auth: maybe, hello: later, extra: 1}
  - text
admin: &anchor "localhost:9"
addresses_file:
`)
	found := problems(t, []string{"--config", file}, nil)
	for _, want := range []string{
		":1: tcp must be text",
		`:2: address "somewhere" is not HOST:PORT`,
		":3: unknown key unknown",
		`:4: log_level "loud" is not one of debug, info, warn, error`,
		":5: log_level stands here again, first in line 4",
		":6: insecure_anonymous must be true or false",
		":7: websocket_origins must be a list",
		":9: limit heartbeat_ms",
		":10: limit session_idle_ms",
		":11: limit",
		":12: limit",
		":13: limit",
		":14: connections_max stands here again, first in line 13",
		":15: frame_recv_max must be a whole number",
		":16: unknown key config",
		`:18: transport "udp" is not tcp, websocket or admin`,
		":19: listener without an address",
		":20: a token listener needs an entry in hmac_secret, hmac_secret_file or jwks",
		":20: a token listener needs an entry in family_map",
		":21: TLS needs both cert and key",
		`:22: auth "maybe" is not anonymous or token`,
		`:22: hello "later" is not`,
		":22: unknown key extra",
		":23: listeners[5] must be a mapping",
		":24: admin: anchors and aliases are not supported",
		":25: addresses_file must be text",
	} {
		if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, file+want) }) {
			t.Errorf("no line with %q", want)
		}
	}
	if t.Failed() {
		t.Log(strings.Join(found, "\n"))
	}
	if len(found) != 26 {
		t.Errorf("%d lines:\n%s", len(found), strings.Join(found, "\n"))
	}
}

func TestMistakes(t *testing.T) {
	syntax := written(t, "tcp: [\n")
	empty := written(t, "")
	list := written(t, "- a\n")
	noListeners := written(t, "listeners: []\n")
	twice := written(t, "tcp: localhost:1\n---\nhttp: localhost:2\n")
	for _, c := range []struct {
		name string
		args []string
		env  map[string]string
		want string
	}{
		{"unknown flag", []string{"--nothing"}, nil, "unknown flag --nothing"},
		{"argument", []string{"start"}, nil, "start"},
		{"flag without a value", []string{"--tcp"}, nil, "--tcp"},
		{"missing file", []string{"--config", "/does/not/exist"}, nil, "/does/not/exist: cannot be read"},
		{"folder as file", []string{"--config", os.TempDir()}, nil, "cannot be read"},
		{"syntax", []string{"--config", syntax}, nil, syntax + ":"},
		{"no mapping", []string{"--config", list}, nil, list + ":1: the file must be a mapping"},
		{"two documents", []string{"--config", twice}, nil, twice + ":2: a second document"},
		{"empty list", []string{"--config", noListeners}, nil, noListeners + ":1: listeners is empty"},
		{"open anonymous listener", []string{"--tcp", "0.0.0.0:1"}, nil, "--tcp: anonymous listener 0.0.0.0:1 can be reached from other machines"},
		{"all interfaces", nil, map[string]string{"FITZ_HTTP": ":1"}, "FITZ_HTTP: anonymous listener :1"},
		{"open admin", []string{"--admin", "0.0.0.0:1", "--insecure-anonymous"}, nil, "--admin: the admin listener 0.0.0.0:1 can be reached from other machines; use a loopback address or admin_token_file"},
		{"name", []string{"--tcp", "example.com:1"}, nil, `host "example.com" is not localhost or an IP address`},
		{"port", []string{"--tcp", "localhost:65536"}, nil, `port "65536"`},
		{"same address", []string{"--tcp", "localhost:7", "--http", "localhost:7"}, nil, "address localhost:7 is also that of listener tcp"},
		{"all off", []string{"--tcp", "off", "--http", "off"}, nil, "no listener for clients"},
		{"origin", []string{"--websocket-origin", "https://a.example/path"}, nil, "--websocket-origin"},
		{"limit without value", []string{"--limit", "heartbeat_ms"}, nil, "is not NAME=VALUE"},
		{"negative limit", []string{"--limit", "heartbeat_ms=-1"}, nil, "heartbeat_ms"},
		{"endless limit", []string{"--limit", "drain_grace_ms=9223372036854775807"}, nil, "drain_grace_ms"},
		{"limit of the environment", nil, map[string]string{"FITZ_LIMITS": "nothing=1"}, "FITZ_LIMITS"},
		{"pause above the budget", []string{"--limit", "session_read_pause_frames=512"}, nil, "session_read_pause_frames 512 must be below session_answer_frames_max 512"},
		{"idle time as long as clients bear silence", []string{"--limit", "heartbeat_ms=12000", "--limit", "session_idle_ms=30000"}, nil, "session_idle_ms 30000 must be above 30000"},
		{"bool of the environment", nil, map[string]string{"FITZ_INSECURE_ANONYMOUS": "maybe"}, `FITZ_INSECURE_ANONYMOUS: insecure_anonymous "maybe" is not true or false`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := problems(t, c.args, c.env)
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("%q, want one line with %q", got, c.want)
			}
		})
	}
	load(t, []string{"--config", empty}, nil)
	load(t, []string{"--limit", "heartbeat_ms=12000", "--limit", "session_idle_ms=30001"}, nil)
	load(t, []string{"--insecure-anonymous=false"}, map[string]string{"FITZ_INSECURE_ANONYMOUS": "true"})
}

// Mistakes of all sources are found together.
func TestAllMistakesInOneRun(t *testing.T) {
	file := written(t, "log_format: xml\n")
	got := problems(t, []string{"--config", file, "--tcp", "x", "--limit", "a=1", "--limit", "b=2"}, map[string]string{"FITZ_HTTP": "y"})
	if len(got) != 5 {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

func TestActions(t *testing.T) {
	for _, c := range []struct {
		args []string
		want config.Action
	}{
		{nil, config.Serve}, {[]string{"version"}, config.Version}, {[]string{"--version"}, config.Version},
		{[]string{"--check-config"}, config.Check}, {[]string{"--print-config"}, config.Print}, {[]string{"--help"}, config.Help},
	} {
		var out bytes.Buffer
		_, got, err := config.Load(c.args, environment(nil), &out)
		if err != nil || got != c.want {
			t.Errorf("%v: %v, %v", c.args, got, err)
		}
		if c.want == config.Help && !strings.Contains(out.String(), "--tcp") {
			t.Errorf("help: %s", out.String())
		}
	}
}

// What is printed is a configuration file that means the same, and shows no secret.
func TestPrintIsAConfiguration(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		args := []string{
			"--tcp", rapid.SampledFrom([]string{"127.0.0.1:0", "localhost:7001", "[::1]:7001"}).Draw(rt, "tcp"),
			"--http", rapid.SampledFrom([]string{"off", "localhost:7002"}).Draw(rt, "http"),
			"--hello", rapid.SampledFrom([]string{"immediate", "off", "delayed(150)"}).Draw(rt, "hello"),
			"--log-level", rapid.SampledFrom(settings.SettingLogLevel.Values).Draw(rt, "level"),
			"--limit", "connections_max=" + rapid.StringMatching("[1-9][0-9]{0,5}").Draw(rt, "limit"),
		}
		for range rapid.IntRange(0, 2).Draw(rt, "origins") {
			args = append(args, "--websocket-origin", rapid.SampledFrom([]string{"https://a.example", "http://b:81"}).Draw(rt, "origin"))
		}
		env := map[string]string{"FITZ_JWT_HMAC_SECRET": "hush-hush"}
		if rapid.Bool().Draw(rt, "list") {
			env["FITZ_CONFIG"] = written(t, "listeners:\n  - {transport: websocket, address: \"127.0.0.1:7003\", hello: \"delayed(7)\"}\n")
		}
		c := load(t, args, env)
		var out bytes.Buffer
		if err := c.Print(&out); err != nil {
			rt.Fatal(err)
		}
		if strings.Contains(out.String(), "hush") || !strings.Contains(out.String(), "# hmac_secret: (redacted) # FITZ_JWT_HMAC_SECRET\n") {
			rt.Fatalf("printed:\n%s", out.String())
		}
		again := load(t, []string{"--config", written(t, out.String())}, nil)
		var second bytes.Buffer
		if err := again.Print(&second); err != nil {
			rt.Fatal(err)
		}
		strip := func(text string) string {
			var kept []string
			for line := range strings.Lines(text) {
				if !strings.HasPrefix(line, "#") {
					kept = append(kept, line)
				}
			}
			return strings.Join(kept, "")
		}
		if strip(out.String()) != strip(second.String()) {
			rt.Fatalf("printed\n%s\nand read\n%s", out.String(), second.String())
		}
	})
}

// Whatever the file holds, it is a configuration or a list of problems with places.
func FuzzFile(f *testing.F) {
	f.Add("tcp: localhost:1\nlimits: {heartbeat_ms: 5}\n")
	f.Add("listeners:\n  - {transport: tcp, address: x}\n")
	f.Add("a: &b 1\nc: *b\n<<: {d: 1}\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := written(t, text)
		_, _, err := config.Load([]string{"--config", path}, environment(nil), io.Discard)
		var found config.Problems
		if err != nil && (!errors.As(err, &found) || len(found) == 0) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
