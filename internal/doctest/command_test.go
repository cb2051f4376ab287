package doctest

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/fitzwire/fitz/broker/config"
)

// programs checks commands: each against what the program itself says that it takes.
type programs struct {
	dir   string            // of the built programs
	help  map[string]string // by command line
	tasks map[string]any
}

func newPrograms(t testing.TB) *programs {
	t.Helper()
	p := &programs{dir: t.TempDir(), help: map[string]string{}}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", p.dir, "./tools/cmd/fitz", "./codegen/cmd/fitzgen", runnerPackage)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var file struct{ Tasks map[string]any }
	if err := yaml.Unmarshal([]byte(read(t, "Taskfile.yml")), &file); err != nil || len(file.Tasks) == 0 {
		t.Fatalf("no tasks: %v", err)
	}
	p.tasks = file.Tasks
	return p
}

// check returns what is wrong with a command, or nothing.
func (p *programs) check(t testing.TB, words []string) string {
	args := words[1:]
	switch program := strings.TrimPrefix(words[0], "bin/"); program {
	case "./task":
		return p.task(args)
	case "fitzd":
		if i := slices.Index(args, "--config"); i >= 0 && i+1 < len(args) {
			args = slices.Delete(slices.Clone(args), i, i+2) // a file of the reader
		}
		return broken(args)
	case "fitz", "fitzgen", "fitz-conformance":
		return p.flags(t, program, args)
	case "grep": // harmless, and it has to find something
		grep := exec.CommandContext(t.Context(), "grep", args...)
		grep.Dir = root
		if err := grep.Run(); err != nil {
			return err.Error()
		}
		return ""
	case "go":
		return goCommand(t, args)
	default:
		return "no program that is known"
	}
}

// goCommand takes go get of the SDK, and go test of one package with tests and benchmarks that are there.
func goCommand(t testing.TB, args []string) string {
	if len(args) == 2 && args[0] == "get" && args[1] == Imports["fitz"] {
		return ""
	}
	if len(args) < 2 || args[0] != "test" {
		return "only go get of the SDK and go test are known"
	}
	folder, names := args[len(args)-1], map[string]bool{}
	if err := addTestNames(os.DirFS(filepath.Join(root, folder)), names); err != nil {
		t.Fatal(err)
	}
	for i, kind := range map[int]string{slices.Index(args, "-run"): "Test", slices.Index(args, "-bench"): "Benchmark"} {
		if i < 0 || args[i+1] == "^$" {
			continue
		}
		pattern, err := regexp.Compile(args[i+1])
		if err != nil {
			return err.Error()
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(names)), func(name string) bool { return strings.HasPrefix(name, kind) && pattern.MatchString(name) }) {
			return fmt.Sprintf("%s has no %s of %s", folder, kind, pattern)
		}
	}
	return ""
}

func (p *programs) task(args []string) string {
	if len(args) == 0 {
		return ""
	}
	if p.tasks[args[0]] == nil {
		return "there is no such task"
	}
	rest := args[1:]
	if len(rest) == 0 {
		return ""
	}
	if definition, err := yaml.Marshal(p.tasks[args[0]]); err != nil || rest[0] != "--" || !strings.Contains(string(definition), "{{.CLI_ARGS") {
		return "it takes no arguments, or they stand behind --"
	}
	if args[0] == "up" {
		return broken(rest[1:])
	}
	return ""
}

// broken is why fitzd would not start with args.
func broken(args []string) string {
	_, _, err := config.Load(append(slices.Clone(args), "--check-config"), func(string) string { return "" }, io.Discard)
	if err != nil {
		return err.Error()
	}
	return ""
}

var (
	commandName = regexp.MustCompile(`(?m)^  ([a-z]+(?: [a-z]+)*)(?: +[A-Z]| [\[<])`)
	flagName    = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// flags looks for the command and each of its flags in the help of a program.
func (p *programs) flags(t testing.TB, program string, args []string) string {
	if len(args) == 0 || args[0] == "--help" {
		return ""
	}
	_, list, found := strings.Cut(p.helpOf(t, program), "\nCommands:\n")
	if !found {
		t.Fatalf("the help of %s has no commands", program)
	}
	command := ""
	for _, match := range commandName.FindAllStringSubmatch(list, -1) {
		if name := match[1]; strings.HasPrefix(strings.Join(args, " ")+" ", name+" ") {
			command = name
		}
	}
	if command == "" {
		return "there is no such command"
	}
	_, known, _ := strings.Cut(p.helpOf(t, program, strings.Fields(command)...), "\nFlags:\n")
	for _, arg := range args {
		if arg == "--" {
			break
		}
		if name := flagName.FindString(arg); strings.HasPrefix(arg, "--") && !slices.Contains(flagName.FindAllString(known, -1), name) {
			return "there is no flag " + name
		}
	}
	return ""
}

func (p *programs) helpOf(t testing.TB, program string, command ...string) string {
	key := strings.Join(append([]string{program}, command...), " ")
	if p.help[key] == "" {
		out, err := exec.CommandContext(t.Context(), filepath.Join(p.dir, program), append(command, "--help")...).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "Usage: "+key+" ") {
			t.Fatalf("help of %s: %v\n%s", key, err, out)
		}
		p.help[key] = string(out)
	}
	return p.help[key]
}

// Every command of the documents, in blocks of shell and in code spans, exists with all its flags.
func TestCommands(t *testing.T) {
	p := newPrograms(t)
	var commands []Command
	for _, b := range blocks(t, "sh") {
		found, err := Commands(b)
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, found...)
	}
	for _, name := range documents(t) {
		found, err := Spans(name, read(t, name))
		if err != nil {
			t.Fatal(err)
		}
		commands = append(commands, found...)
	}
	for _, c := range commands {
		if problem := p.check(t, c.Words); problem != "" {
			t.Errorf("%v: %s", c, problem)
		}
	}
	for _, wrong := range []string{
		"bin/fitz lease acquire lease://a/b/c --tll 3s", "fitz lease steal lease://a/b/c", "fitzd --tcpp localhost:1", "fitzd --limit no_such_bound=1", "fitzgen bake", "bin/fitz-conformance run --drivers x", "fitz-conformance judge",
		"./task upp", "./task up -- --no-such-flag", "./task test -- -v", "grep -rn no_such_word_in_it spec", "rm -r spec", "go get example.org/other",
		"go test -run TestNoSuch ./internal/doctest", "go test -bench BenchmarkNoSuch ./broker/lease", "go vet ./internal/doctest",
	} {
		words, err := Split(wrong)
		if err != nil {
			t.Fatal(err)
		}
		if p.check(t, words) == "" {
			t.Errorf("%s is taken for right", wrong)
		}
	}
}

// Every configuration file of the documents is one that the broker starts with.
func TestConfigurationBlocks(t *testing.T) {
	checked := 0
	for _, b := range blocks(t, "yaml") {
		if !strings.HasPrefix(b.Text, "# fitzd --config ") {
			continue
		}
		checked++
		file := filepath.Join(t.TempDir(), "fitz.yaml")
		if err := os.WriteFile(file, []byte(b.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		if problem := broken([]string{"--config", file}); problem != "" {
			t.Errorf("%v: %s", b, problem)
		}
	}
	if checked == 0 {
		t.Error("no configuration files")
	}
}
