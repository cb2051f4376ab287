// Package deploy is tested only: what stands beside the programs fits them.
package deploy

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
)

const (
	root       = ".."
	sampleFile = "fitzd.yaml"
	unitFile   = "systemd/fitzd.service"

	healthcheck = "healthcheck" // the command of fitzd
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// load reads a configuration as fitzd does.
func load(args []string, env map[string]string) (*config.Config, config.Action, error) {
	return config.Load(args, func(name string) string { return env[name] }, io.Discard)
}

func TestSampleConfigurationIsRight(t *testing.T) {
	c, action, err := load([]string{"--check-config", "--config", sampleFile}, nil)
	if err != nil || action != config.Check {
		t.Fatalf("%v, %v", action, err)
	}
	for _, l := range c.Listeners {
		if !l.Loopback() {
			t.Errorf("listener %s can be reached from other machines", l.Name)
		}
	}
	if len(c.Listeners) != len(settings.Listeners) || len(c.Warnings) > 0 {
		t.Errorf("%d listeners, warnings %q", len(c.Listeners), c.Warnings)
	}
}

var commented = regexp.MustCompile(`^# ( *[a-z_]+:.*)$`)

// What the sample holds as comments is right as well: with every comment taken away that hides a key, and without the key that it replaces.
func TestCommentsOfTheSampleAreRight(t *testing.T) {
	var hidden, lines []string
	for line := range strings.Lines(read(t, sampleFile)) {
		line = strings.TrimSuffix(line, "\n")
		if m := commented.FindStringSubmatch(line); m != nil {
			line = m[1]
			hidden = append(hidden, key(line))
			lines = slices.DeleteFunc(lines, func(other string) bool { return key(other) == key(line) })
		}
		lines = append(lines, line)
	}
	for _, want := range []string{"auth", "hmac_secret_file", "tls_cert", "admin_token_file", "limits"} {
		if !slices.Contains(hidden, want) {
			t.Errorf("the sample does not show %s", want)
		}
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("a-secret-of-some-length-0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), sampleFile)
	text := regexp.MustCompile(`/run/credentials/fitzd\.service/fitz_[a-z_.]+`).ReplaceAllLiteralString(strings.Join(lines, "\n"), secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _, err := load([]string{"--config", file}, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, l := range c.Listeners {
		if l.Loopback() || l.TLS == nil && l.Transport != config.TransportAdmin || l.Auth != config.AuthToken && l.Transport != config.TransportAdmin {
			t.Errorf("listener %s: %+v", l.Name, l)
		}
	}
}

func key(line string) string {
	name, _, _ := strings.Cut(line, ":")
	return name
}

// unit reads the assignments of the unit file.
func unit(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for line := range strings.Lines(read(t, unitFile)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(name, "#") {
			all[name] = append(all[name], value)
		}
	}
	return all
}

// only is a value that must stand once.
func only(t *testing.T, values []string, what string) string {
	t.Helper()
	if len(values) != 1 {
		t.Fatalf("%s stands %d times", what, len(values))
	}
	return values[0]
}

// The limits of the unit leave room for those of the broker.
func TestUnitLeavesRoomForTheBroker(t *testing.T) {
	u, limits := unit(t), bounds.Default()
	files, err := strconv.ParseInt(only(t, u["LimitNOFILE"], "LimitNOFILE"), 10, 64)
	if most, _ := limits.Get("connections_max"); err != nil || files < most+most/10 {
		t.Errorf("LimitNOFILE %d, %v; connections_max is %d", files, err, most)
	}
	stop, err := strconv.ParseInt(only(t, u["TimeoutStopSec"], "TimeoutStopSec"), 10, 64)
	if grace, _ := limits.Get("drain_grace_ms"); err != nil || time.Duration(stop)*time.Second <= time.Duration(grace)*time.Millisecond+5*time.Second {
		t.Errorf("TimeoutStopSec %d, %v; drain_grace_ms is %d", stop, err, grace)
	}
	for name, want := range map[string]string{
		"Type": "notify", "DynamicUser": "yes", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "MemoryDenyWriteExecute": "yes",
		"CapabilityBoundingSet": "", "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX", "LoadCredential": "fitz:/etc/fitz/credentials",
	} {
		if got := only(t, u[name], name); got != want {
			t.Errorf("%s=%s, want %q", name, got, want)
		}
	}
}

// The unit starts fitzd with flags that it has.
func TestUnitStartsFitzd(t *testing.T) {
	words := strings.Fields(only(t, unit(t)["ExecStart"], "ExecStart"))
	if words[0] != "/usr/bin/fitzd" {
		t.Errorf("it starts %s", words[0])
	}
	args := slices.Clone(words[1:])
	at := slices.Index(args, "--config")
	if at < 0 || args[at+1] != "/etc/fitz/fitzd.yaml" {
		t.Fatalf("it starts %q", words)
	}
	args[at+1] = sampleFile
	if _, _, err := load(args, nil); err != nil {
		t.Error(err)
	}
}

// systemd reads the unit without a complaint and finds little that it could do.
func TestSystemdLikesTheUnit(t *testing.T) {
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: the unit is not looked at here")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "fitzd.service")
	text := strings.ReplaceAll(read(t, unitFile), "/usr/bin/fitzd", self) // verify wants a program that is there
	if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify", "--man=no", copied}, {"security", "--offline=yes", "--no-pager", "--threshold=15", copied}} {
		out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput()
		if strings.Contains(string(out), "unrecognized option") || strings.Contains(string(out), "Unknown command verb") {
			t.Skipf("this systemd-analyze is too old for %q", args)
		}
		if err != nil || args[0] == "verify" && strings.Contains(string(out), "fitzd.service") {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
}

// instruction is a line of the Dockerfile, with the lines that continue it.
type instruction struct{ word, rest string }

// dockerfile are the instructions of each stage.
func dockerfile(t *testing.T) [][]instruction {
	t.Helper()
	var stages [][]instruction
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read(t, root+"/Dockerfile"), "")
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "":
			continue
		case "FROM":
			stages = append(stages, nil)
		case "ARG", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL", "USER", "WORKDIR":
		default:
			t.Fatalf("unknown instruction %q", line)
		}
		if len(stages) == 0 {
			t.Fatalf("%q stands before FROM", line)
		}
		last := len(stages) - 1
		stages[last] = append(stages[last], instruction{word, strings.TrimSpace(rest)})
	}
	if len(stages) != 2 {
		t.Fatalf("%d stages", len(stages))
	}
	return stages
}

// the returns what stands behind the only instruction with a word.
func the(t *testing.T, stage []instruction, word string) string {
	t.Helper()
	var all []string
	for _, i := range stage {
		if i.word == word {
			all = append(all, i.rest)
		}
	}
	return only(t, all, word)
}

// The image holds nothing but what is copied, and runs as nobody in particular.
func TestImageIsSmallAndUnprivileged(t *testing.T) {
	stages := dockerfile(t)
	final := stages[1]
	if base := the(t, final, "FROM"); base != "scratch" {
		t.Errorf("it stands on %s", base)
	}
	for _, i := range final {
		if i.word == "RUN" {
			t.Errorf("there is no shell for RUN %s", i.rest)
		}
	}
	if user := the(t, final, "USER"); !regexp.MustCompile(`^[1-9][0-9]*:[1-9][0-9]*$`).MatchString(user) {
		t.Errorf("user %s is not a number above 0: scratch knows no names", user)
	}
	if signal := the(t, final, "STOPSIGNAL"); signal != "SIGTERM" {
		t.Errorf("it is stopped by %s", signal)
	}
	for _, line := range append(slices.Clone(stages[0]), final...) {
		if image, found := strings.CutPrefix(line.rest, "--platform=$BUILDPLATFORM "); line.word == "FROM" && found && strings.ContainsAny(strings.Fields(image)[0], "/@") {
			t.Errorf("image %s", image)
		}
	}
}

// version of Go in the image is one that the module can be built with.
func TestImageBuildsWithTheRightGo(t *testing.T) {
	base := the(t, dockerfile(t)[0], "FROM")
	image := regexp.MustCompile(`golang:(\d+)\.(\d+) AS build$`).FindStringSubmatch(base)
	wanted := regexp.MustCompile(`(?m)^go (\d+)\.(\d+)`).FindStringSubmatch(read(t, root+"/go.mod"))
	if image == nil || wanted == nil {
		t.Fatalf("image %q, go.mod %q", base, wanted)
	}
	number := func(s string) int {
		n, _ := strconv.Atoi(s) // matched as digits
		return n
	}
	if image[1] != wanted[1] || number(image[2]) < number(wanted[2]) {
		t.Errorf("Go %s.%s in the image, %s.%s in go.mod", image[1], image[2], wanted[1], wanted[2])
	}
}

// What is copied from the tree is there and not left out of what the engine gets; what is copied from the first stage is made there.
func TestImageCopiesWhatIsThere(t *testing.T) {
	ignored := strings.Fields(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(read(t, root+"/.dockerignore"), ""))
	for _, stage := range dockerfile(t) {
		for _, i := range stage {
			if i.word != "COPY" {
				continue
			}
			words := strings.Fields(i.rest)
			if words[0] == "--from=build" {
				for _, name := range words[1 : len(words)-1] {
					if name != "/etc/ssl/certs/ca-certificates.crt" && !isProgram(strings.TrimPrefix(name, "/out/")) {
						t.Errorf("the first stage does not make %s", name)
					}
				}
				continue
			}
			for _, name := range words[:len(words)-1] {
				if _, err := os.Stat(filepath.Join(root, name)); err != nil || slices.Contains(ignored, name) {
					t.Errorf("COPY %s: %v, ignored: %v", name, err, slices.Contains(ignored, name))
				}
			}
		}
	}
}

func isProgram(name string) bool {
	for _, dir := range []string{"broker/cmd", "tools/cmd"} {
		if info, err := os.Stat(filepath.Join(root, dir, name)); err == nil && info.IsDir() && name != "" {
			return true
		}
	}
	return false
}

// environment are the variables of the image.
func environment(t *testing.T) map[string]string {
	t.Helper()
	env := map[string]string{}
	for _, word := range strings.Fields(the(t, dockerfile(t)[1], "ENV")) {
		name, value, _ := strings.Cut(word, "=")
		env[name] = value
	}
	return env
}

// withKeys adds what an operator has to say.
func withKeys(env map[string]string) {
	env[settings.SettingHmacSecret.Env], env[settings.SettingFamilyMap.Env] = "a-secret-of-some-length-0123456789", "acme=1"
}

// The image serves clients from outside only with tokens, and its admin listener only itself.
func TestImageIsSafeUnlessToldOtherwise(t *testing.T) {
	env := environment(t)
	_, _, err := load(nil, env)
	if problems := (config.Problems)(nil); !errors.As(err, &problems) {
		t.Errorf("without a secret: %v", err)
	}
	withKeys(env)
	c, _, err := load(nil, env)
	if err != nil {
		t.Fatal(err)
	}
	exposed := strings.Fields(the(t, dockerfile(t)[1], "EXPOSE"))
	for _, l := range c.Listeners {
		_, port, err := net.SplitHostPort(l.Address())
		if err != nil {
			t.Fatal(err)
		}
		switch admin := l.Transport == config.TransportAdmin; {
		case admin != l.Loopback(), admin == slices.Contains(exposed, port):
			t.Errorf("listener %s at %s; exposed are %q", l.Name, l.Address(), exposed)
		case !admin && l.Auth != config.AuthToken:
			t.Errorf("listener %s asks for no token", l.Name)
		}
	}
	if len(c.Listeners) != len(settings.Listeners) {
		t.Errorf("%d listeners", len(c.Listeners))
	}
}

// The health check is a command of the program that runs, found where the image puts it.
func TestImageAsksForItsHealth(t *testing.T) {
	final := dockerfile(t)[1]
	_, command, found := strings.Cut(the(t, final, "HEALTHCHECK"), "CMD ")
	if !found || command != `["fitzd", "`+healthcheck+`"]` || the(t, final, "ENTRYPOINT") != `["fitzd"]` {
		t.Fatalf("HEALTHCHECK %s, ENTRYPOINT %s", command, the(t, final, "ENTRYPOINT"))
	}
	if _, action, err := load([]string{healthcheck}, environment(t)); action == config.Serve && err == nil {
		t.Errorf("%s is not a command of fitzd", healthcheck)
	}
	env := environment(t)
	withKeys(env)
	if _, action, err := load([]string{healthcheck}, env); action != config.Health || err != nil {
		t.Errorf("action %v, %v", action, err)
	}
	var places []string
	for _, i := range final {
		if words := strings.Fields(i.rest); i.word == "COPY" && slices.Contains(words, "/out/fitzd") {
			places = append(places, path.Clean(words[len(words)-1]))
		}
	}
	if place := only(t, places, "COPY fitzd"); environment(t)["PATH"] != place {
		t.Errorf("fitzd stands in %s, looked for in %s", place, environment(t)["PATH"])
	}
}

// The tasks that CONTRIBUTING.md names exist.
func TestContributingNamesTasksThatExist(t *testing.T) {
	tasks := read(t, root+"/Taskfile.yml")
	named := regexp.MustCompile(`\./task ([a-z:]+)`).FindAllStringSubmatch(read(t, root+"/CONTRIBUTING.md"), -1)
	if len(named) < 5 {
		t.Errorf("%d tasks are named", len(named))
	}
	for _, m := range named {
		if !strings.Contains(tasks, "\n  "+m[1]+":\n") {
			t.Errorf("there is no task %s", m[1])
		}
	}
}
