package doctest

import (
	"slices"
	"strings"
	"testing"
)

func TestBlocks(t *testing.T) {
	text := "a\n```go run\nx := 1\n```\n\n```sh\n./task\n\n./task up\n```\n"
	got, err := Blocks("f.md", text)
	want := []Block{{"f.md", 3, "go run", "x := 1\n"}, {"f.md", 7, "sh", "./task\n\n./task up\n"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if !got[0].Runs() || got[1].Runs() || got[1].Language() != "sh" {
		t.Errorf("%q", got)
	}
}

func TestBlocksRefused(t *testing.T) {
	for _, text := range []string{"```go\nx\n", "```go rum\nx\n```\n", "```go run twice\nx\n```\n"} {
		if _, err := Blocks("f.md", text); err == nil || !strings.HasPrefix(err.Error(), "f.md:2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, test := range []struct {
		text string
		form Form
		want string
	}{
		{"package main\n\nfunc main() {}\n", Program, "//line f.md:9\npackage main\n\nfunc main() {}\n"},
		{"func TestX(t *testing.T) {}\n", Declarations, "package p\nimport \"testing\"\n//line f.md:9\nfunc TestX(t *testing.T) {}\n"},
		{"lease, err := errors.New(\"\"), 1\n", Body, "package p\nimport \"context\"\nimport \"errors\"\nimport \"github.com/fitzwire/fitz/generated/go/fitz\"\n" + bodyHead + "//line f.md:9\nlease, err := errors.New(\"\"), 1\n}\nreturn nil\n}\n"},
	} {
		got, err := Wrap(Block{File: "f.md", Line: 9, Info: "go", Text: test.text}, "p")
		if err != nil || got.Form != test.form || got.Text != test.want {
			t.Errorf("%q: %v, %d\n%s", test.text, err, got.Form, got.Text)
		}
	}
	if _, err := Wrap(Block{File: "f.md", Line: 9, Info: "go", Text: "if {\n"}, "p"); err == nil || !strings.HasPrefix(err.Error(), "f.md:9") {
		t.Errorf("%v", err)
	}
}

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"":                       nil,
		"  # only a comment":     nil,
		"a 'b  c' \"#\" d#e # f": {"a", "b  c", "#", "d#e"},
		"a ''":                   {"a", ""},
	} {
		if got, err := Split(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", line, got, err)
		}
	}
	for _, line := range []string{"a 'b", "a | b", "a; b", "a && b", "a > b", "a $(b)", "a `b`", "a \\"} {
		if got, err := Split(line); err == nil {
			t.Errorf("%q: %q", line, got)
		}
	}
}

func TestSpans(t *testing.T) {
	got, err := Spans("f.md", "x\n`fitzd --help` and `fitzwire`, `bin/fitz lease ls 'a b'`; `./task` | `fitz.yaml`\n")
	want := [][]string{{"fitzd", "--help"}, {"bin/fitz", "lease", "ls", "a b"}, {"./task"}}
	if err != nil || !slices.EqualFunc(got, want, func(c Command, words []string) bool { return c.Line == 2 && slices.Equal(c.Words, words) }) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestShared(t *testing.T) {
	before, shared, after, err := Shared("a\n<!-- boundary: begin; b -->\nc\n<!-- boundary: end -->\nd\n")
	if err != nil || before != "a\n<!-- boundary: begin; b -->\n" || shared != "c\n" || after != "<!-- boundary: end -->\nd\n" {
		t.Errorf("%q %q %q %v", before, shared, after, err)
	}
	for _, text := range []string{"", "<!-- boundary: begin -->\nc\n", "<!-- boundary: end -->", strings.Repeat("<!-- boundary: begin -->\nc\n<!-- boundary: end -->\n", 2)} {
		if _, _, _, err := Shared(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
