package emit

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dave/jennifer/jen"
)

// docWidth is the width to which comments are wrapped, "// " included.
const docWidth = 120

// doc is a comment: the paragraphs are wrapped, separated by an empty line and literal, so that no text of the specification can end the
// comment or be taken for a directive.
func doc(paragraphs ...string) jen.Code {
	var lines []string
	for _, p := range paragraphs {
		words := strings.Fields(p)
		if len(words) == 0 {
			continue
		}
		if len(lines) > 0 {
			lines = append(lines, "//")
		}
		lines = append(lines, wrap(words)...)
	}
	return jen.Comment(strings.Join(lines, "\n"))
}

// remark is a comment at the end of a line, literal too.
func remark(text string) string { return "// " + strings.Join(strings.Fields(text), " ") }

// wrap joins words to comment lines.
func wrap(words []string) []string {
	var lines []string
	line := "//"
	for _, word := range words {
		if len(line)+1+len(word) > docWidth && line != "//" {
			lines = append(lines, line)
			line = "//"
		}
		line += " " + word
	}
	return append(lines, line)
}

// sentence ends text with a full stop and begins it in upper case.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	if !strings.ContainsAny(text[len(text)-1:], ".!?") {
		text += "."
	}
	return upperFirst(text)
}

// lower begins text in lower case, unless its first word is an abbreviation.
func lower(text string) string {
	text = strings.TrimSuffix(strings.TrimSpace(text), ".")
	first, size := utf8.DecodeRuneInString(text)
	second, _ := utf8.DecodeRuneInString(text[size:])
	if unicode.IsUpper(second) || second == '_' || second == '-' {
		return text
	}
	return string(unicode.ToLower(first)) + text[size:]
}

func upperFirst(text string) string {
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// clauses is the list of rule ids as a comment shows it.
func clauses(ids ...string) string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return ""
	}
	return "(" + strings.Join(ids, ", ") + ")"
}

// article is "a" or "an" for a word.
func article(word string) string {
	if word != "" && strings.ContainsAny(strings.ToLower(word[:1]), "aeio") {
		return "an"
	}
	return "a"
}
