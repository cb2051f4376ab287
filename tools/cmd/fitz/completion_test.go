//go:build unix

package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// names walks a grammar and returns its commands and flags as they are written.
func names(grammar reflect.Type) (commands, flags []string) {
	for i := range grammar.NumField() {
		field := grammar.Field(i)
		if _, command := field.Tag.Lookup("cmd"); command {
			below, more := names(field.Type)
			commands = append(append(commands, strings.ToLower(field.Name)), below...)
			flags = append(flags, more...)
			continue
		}
		if _, embedded := field.Tag.Lookup("embed"); embedded {
			_, more := names(field.Type)
			flags = append(flags, more...)
			continue
		}
		if _, argument := field.Tag.Lookup("arg"); !argument && field.Tag != "" {
			flags = append(flags, "--"+cmp.Or(field.Tag.Get("name"), strings.ToLower(field.Name)))
		}
	}
	return commands, flags
}

// Every flag and command stands in each completion script and in the manual.
func TestEveryFlagIsCompletedAndDescribed(t *testing.T) {
	commands, flags := names(reflect.TypeFor[grammar]())
	if !slices.Contains(commands, "acquire") || !slices.Contains(flags, "--kill-after") {
		t.Fatalf("the grammar was not walked: %q, %q", commands, flags)
	}
	for _, args := range [][]string{{"completion", "bash"}, {"completion", "zsh"}, {"completion", "fish"}, {"man"}} {
		code, out, errs := inProcess(args...)
		if code != exitOK || errs != "" {
			t.Fatalf("%v: exit %d: %s", args, code, errs)
		}
		for _, name := range append(slices.Clone(commands), flags...) {
			written := name
			switch {
			case args[0] == "man":
				written = strings.ReplaceAll(name, "-", `\-`)
			case args[1] == "fish" && strings.HasPrefix(name, "--"):
				written = "-l " + name[2:]
			}
			if !strings.Contains(out, written) {
				t.Errorf("%v does not name %s", args, name)
			}
		}
	}
	if code, _, errs := inProcess("completion", "ksh"); code != exitUsage || !strings.Contains(errs, "ksh") {
		t.Errorf("ksh: exit %d: %s", code, errs)
	}
}

// bash completes the program from its own script.
func TestBashCompletesFitz(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed: its completion is not run here")
	}
	_, script, _ := inProcess("completion", "bash")
	path := filepath.Join(t.TempDir(), "fitz.bash")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string][]string{
		"fitz lease ''":                    {"acquire", "ls", "query", "watch"},
		"fitz lease acquire --kill":        {"--kill-after"},
		"fitz --url decode lease l":        {"ls"},
		"fitz decode --from ''":            {"auto", "broker", "client"},
		"fitz decode --from = c":           {"client"},
		"fitz completion ''":               {"bash", "fish", "zsh"},
		"fitz lease acquire r -- /bin/ech": {"/bin/echo"},
	} {
		ask := `source "$1"; COMP_WORDS=(` + line + `); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _fitz; printf '%s\n' "${COMPREPLY[@]}"`
		out, err := exec.CommandContext(t.Context(), bash, "--norc", "-c", ask, "bash", path).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		got := strings.Fields(string(out))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
