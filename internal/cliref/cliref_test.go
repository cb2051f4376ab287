package cliref

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample has one of everything that a command line can have.
type sample struct {
	URL    string   `name:"url" env:"SAMPLE_URL" placeholder:"URL" help:"Address: [host]'s port, \"quoted\". Second sentence."`
	Mode   string   `enum:"fast,slow" default:"fast" short:"m" help:"How to go."`
	Level  string   `values:"debug,info" help:"Not checked by kong."`
	Config string   `type:"path" help:"A file."`
	Header []string `help:"May be repeated."`
	Secret string   `hidden:"" help:"Not shown."`
	Colour bool     `negatable:"" help:"Colours or none."`

	Lease struct {
		Run struct {
			TTL     string   `name:"ttl" help:".begins with a dot \\ and a backslash"`
			Route   string   `arg:"" help:"Where."`
			Command []string `arg:"" optional:"" completes:"commands" help:"What."`
		} `cmd:"" help:"Hold it."`
		Ls struct {
			Files []string `arg:"" optional:"" completes:"files" help:"Which."`
		} `cmd:"" help:"List it."`
	} `cmd:"" help:"Leases."`
	Shell struct {
		Name string `arg:"" enum:"bash,zsh" help:"Which."`
	} `cmd:"" help:"Shells."`
	Gone struct{} `cmd:"" hidden:"" help:"Not shown."`
}

func model(t testing.TB) *kong.Application {
	t.Helper()
	parser, err := kong.New(&sample{}, kong.Name("sample"), kong.Description("Does things.\n\nMore of it."))
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model
}

// script writes a completion script into a file and returns its path. The name has to be that of the function for zsh.
func script(t testing.TB, shell string) string {
	t.Helper()
	var b bytes.Buffer
	if err := Completion(&b, model(t), shell); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "_sample")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// shell runs a shell that must be there, and skips where it is not.
func shell(t testing.TB, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: its script is not run here", name)
	}
	command := exec.CommandContext(t.Context(), path, args...)
	command.Dir = t.TempDir()
	for _, file := range []string{"a file", "other"} {
		if err := os.WriteFile(filepath.Join(command.Dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// completions are command lines that are completed at their end, and what is offered.
var completions = []struct {
	words []string // without the program; the last is the one at the cursor
	want  []string
}{
	{[]string{""}, []string{"lease", "shell"}},
	{[]string{"le"}, []string{"lease"}},
	{[]string{"lease", ""}, []string{"ls", "run"}},
	{[]string{"--url", "lease", "l"}, []string{"lease"}}, // the value of a flag is no command
	{[]string{"--colour", "sh"}, []string{"shell"}},
	{[]string{"shell", ""}, []string{"bash", "zsh"}},
	{[]string{"shell", "--mode", ""}, []string{"fast", "slow"}},
	{[]string{"--mode", "s"}, []string{"slow"}},
	{[]string{"-m", "f"}, []string{"fast"}},
	{[]string{"--level", ""}, []string{"debug", "info"}},
	{[]string{"--config", "a"}, []string{"a file"}},
	{[]string{"--url", ""}, nil},
	{[]string{"lease", "ls", "o"}, []string{"other"}},
	{[]string{"lease", "run", "--t"}, []string{"--ttl"}},
	{[]string{"lease", "run", "--mo"}, []string{"--mode"}},
	{[]string{"lease", "ls", "--t"}, nil},
	{[]string{"--se"}, nil},
	{[]string{"--no-c"}, []string{"--no-colour"}},
	{[]string{"lease", "run", "x", "--", "cat", "oth"}, []string{"other"}},
}

// split returns the lines of each answer of a shell, sorted; a line "=" ends an answer.
func split(t *testing.T, out string, answers int) [][]string {
	t.Helper()
	all := strings.SplitAfter(out, "=\n")
	if len(all) != answers+1 {
		t.Fatalf("%d answers, want %d:\n%s", len(all)-1, answers, out)
	}
	lines := make([][]string, answers)
	for i := range lines {
		for line := range strings.Lines(strings.TrimSuffix(all[i], "=\n")) {
			if line = strings.TrimSuffix(line, "\n"); line != "" {
				lines[i] = append(lines[i], line)
			}
		}
		slices.Sort(lines[i])
	}
	return lines
}

// bashAnswers completes lines as readline asks for it: the words and which of them the cursor is at.
func bashAnswers(t *testing.T, path string, lines [][]string) [][]string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "set -u; source %s; [[ $(complete -p sample) == 'complete -F _sample sample' ]] || exit\n", quoted(path))
	for _, words := range lines {
		b.WriteString("COMP_WORDS=(sample")
		for _, w := range words {
			b.WriteString(" " + quoted(w))
		}
		b.WriteString("); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _sample; printf '%s\\n' ${COMPREPLY[@]+\"${COMPREPLY[@]}\"} =\n")
	}
	return split(t, shell(t, "bash", "--norc", "-c", b.String()), len(lines))
}

func TestBashCompletes(t *testing.T) {
	lines := [][]string{
		{"--mode", "="}, {"--mode", "=", ""}, {"--mode", "=", "fast", "sh"}, // readline hands "=" over as a word
		{"lease", "run", "x", "--", "tru"},
	}
	special := len(lines)
	for _, c := range completions {
		lines = append(lines, c.words)
	}
	got := bashAnswers(t, script(t, "bash"), lines)
	for i, want := range [][]string{{"fast", "slow"}, {"fast", "slow"}, {"shell"}} {
		if !slices.Equal(got[i], want) {
			t.Errorf("%q: %q, want %q", lines[i], got[i], want)
		}
	}
	if !slices.Contains(got[special-1], "true") {
		t.Errorf("no program behind --: %q", got[special-1])
	}
	for i, c := range completions {
		if !slices.Equal(got[special+i], c.want) {
			t.Errorf("%q: %q, want %q", c.words, got[special+i], c.want)
		}
	}
}

func TestFishCompletes(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, "source %s\n", fishQuoted(script(t, "fish")))
	for _, c := range completions {
		line := "sample "
		for _, w := range c.words[:len(c.words)-1] {
			line += fishQuoted(w) + " "
		}
		fmt.Fprintf(&b, "complete -C %s | string replace -r '\\t.*' ''; echo =\n", fishQuoted(line+c.words[len(c.words)-1]))
	}
	got := split(t, shell(t, "fish", "--no-config", "-c", b.String()), len(completions))
	for i, c := range completions {
		for j := range got[i] {
			got[i][j] = strings.ReplaceAll(got[i][j], `\ `, " ")
		}
		if !slices.Equal(got[i], c.want) {
			t.Errorf("%q: %q, want %q", c.words, got[i], c.want)
		}
	}
}

// zsh completes only at a terminal, so the script is read by its completion system and no more.
func TestZshReadsItsScript(t *testing.T) {
	path := script(t, "zsh")
	shell(t, "zsh", "-f", "-n", path)
	// The completion system itself takes seconds to load; it asks no more of a script than this.
	sourced := shell(t, "zsh", "-f", "-c", `typeset -A _comps; compdef() { _comps[$2]=$1 }; source $1; print -r -- $_comps[sample] $+functions[_sample__lease__run]`, "zsh", path)
	if strings.TrimSpace(sourced) != "_sample 1" {
		t.Errorf("sourced: %q", sourced)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "#compdef sample\n") {
		t.Errorf("on the path of functions nobody finds it: %.30q, %v", text, err)
	}
}

// A command of one's own behind -- is completed as a line of its own.
func TestZshCompletesCommands(t *testing.T) {
	text, err := os.ReadFile(script(t, "zsh"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"'*:::command:_normal'", "_arguments -S", `'(--url)''--url=[Address\: \[host\]'\''s port, "quoted"]:url: '`, "'*''--header=[May",
		"'(--mode -m)'{--mode,-m}'=[How", ":(fast slow)'", ":_files'"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func TestUnknownShell(t *testing.T) {
	var b bytes.Buffer
	if err := Completion(&b, model(t), "ksh"); err == nil || b.Len() > 0 {
		t.Errorf("%v, %q", err, b.String())
	}
}

func samplePage(t testing.TB) Page {
	return Page{Name: "sample", Section: 1, Title: "Manual", Version: "Sample 1.2", Summary: "does things", See: []string{"other(8)"},
		Parts: append(CommandParts(model(t)), Part{Heading: "FILES", Text: "First.\n\n\t.verbatim  line\n\nLast.", Items: []Item{{"-x", "Y", "One.\n\nTwo."}}})}
}

// rendered is a page as a reader sees it.
func rendered(t testing.TB, p Page) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	if path, err := exec.LookPath("mandoc"); err == nil {
		lint := exec.CommandContext(t.Context(), path, "-T", "lint", "-W", "warning")
		lint.Stdin = bytes.NewReader(b.Bytes())
		out, _ := lint.CombinedOutput()
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "missing date") { // which would not be the same for the same commit
				t.Errorf("mandoc: %s", line)
			}
		}
	}
	path, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("groff is not installed: the page is not rendered here")
	}
	command := exec.CommandContext(t.Context(), path, "-man", "-Tascii", "-P-cbou", "-ww", "-rLL=200n")
	command.Stdin = &b
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("groff: %v\n%s", err, out)
	}
	return string(out)
}

func TestPageRenders(t *testing.T) {
	page := rendered(t, samplePage(t))
	for _, want := range []string{
		"SAMPLE(1)", "Sample 1.2", "sample - does things",
		"sample lease run [flags] <route> [-- command [argument ...]]",
		"--url=URL", `Address: [host]'s port, "quoted". Second sentence.`, `--mode, -m="fast"`, "One of fast, slow.", "--colour, --no-colour",
		`.begins with a dot \ and a backslash`, "SAMPLE_URL", "Stands for --url", ".verbatim  line", "-xY", "other(8)", "More of it.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not on the page:\n%s", want, page)
		}
	}
	for _, never := range []string{"secret", "gone", "warning"} {
		if strings.Contains(page, never) {
			t.Errorf("%q is on the page:\n%s", never, page)
		}
	}
}
