package doctest

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Command is a command of a document.
type Command struct {
	File  string
	Line  int
	Words []string // the program first
}

// String is where the command stands, and the command.
func (c Command) String() string { return fmt.Sprintf("%s:%d: %q", c.File, c.Line, c.Words) }

// Commands takes the commands out of a block of shell, one on each line. Pipes, lists and redirections are errors: a command that is not looked
// at would not be checked.
func Commands(b Block) ([]Command, error) {
	var commands []Command
	for i, line := range strings.Split(b.Text, "\n") {
		words, err := Split(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", b.File, b.Line+i, err)
		}
		if len(words) > 0 {
			commands = append(commands, Command{b.File, b.Line + i, words})
		}
	}
	return commands, nil
}

var errQuote = errors.New("a quote is not closed")

// Split splits one line of shell into words. It knows quotes and comments and no more.
func Split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, inside := rune(0), false
	end := func() {
		if inside {
			words = append(words, word.String())
		}
		word.Reset()
		inside = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inside = r, true
		case r == ' ' || r == '\t':
			end()
		case r == '#' && !inside:
			return words, nil
		case strings.ContainsRune("|;&<>`\\$(", r):
			return nil, fmt.Errorf("%q is not understood", r)
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quote != 0 {
		return nil, errQuote
	}
	end()
	return words, nil
}

// span is a code span that begins with a program of this module.
var span = regexp.MustCompile("`((?:(?:bin/)?(?:fitz|fitzd|fitzgen|fitz-conformance)|\\./task)(?: [^`]*)?)`")

// Spans takes the commands out of the code spans of a document.
func Spans(file, text string) ([]Command, error) {
	var commands []Command
	for i, line := range strings.Split(text, "\n") {
		for _, match := range span.FindAllStringSubmatch(line, -1) {
			words, err := Split(match[1])
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
			}
			commands = append(commands, Command{file, i + 1, words})
		}
	}
	return commands, nil
}

// Marks around a text that two documents share. What follows the word begin belongs to the mark.
const (
	sharedBegin = "<!-- boundary: begin"
	sharedEnd   = "<!-- boundary: end -->"
)

// Shared returns what stands in front of, between and behind the marks of the shared text.
func Shared(text string) (before, shared, after string, err error) {
	before, rest, found := strings.Cut(text, sharedBegin)
	mark, rest, closed := strings.Cut(rest, "-->\n")
	shared, after, ended := strings.Cut(rest, sharedEnd)
	if !found || !closed || !ended || strings.Contains(after, sharedBegin) {
		return "", "", "", errors.New("the marks of the shared text do not stand there exactly once")
	}
	return before + sharedBegin + mark + "-->\n", shared, sharedEnd + after, nil
}
