package doctest

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Link is a link of a document to a place of the tree.
type Link struct {
	Line   int
	Target string // path relative to the document; "" when it is the document itself
	Anchor string // without #; "" when there is none
}

var (
	linkTarget  = regexp.MustCompile(`\]\(([^()\s]+)(?: "[^"]*")?\)`)
	htmlTarget  = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	htmlAnchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	linkScheme  = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)
	linkText    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	headingLine = regexp.MustCompile(`^#{1,6} +(.*?)(?: +#+)?$`)
	spanOfCode  = regexp.MustCompile("(`+)[^`].*?(`+)")
)

// prose are the lines of a document with nothing in the place of fenced blocks, so that what looks like Markdown in code is none.
func prose(text string) []string {
	lines := strings.Split(text, "\n")
	inside := false
	for i, line := range lines {
		isFence := strings.HasPrefix(strings.TrimSpace(line), fence)
		if isFence {
			inside = !inside
		}
		if isFence || inside {
			lines[i] = ""
		}
	}
	return lines
}

// Links takes the links to places of the tree out of a document. Links with a scheme lead elsewhere and are left out.
func Links(text string) []Link {
	var links []Link
	for i, line := range prose(text) {
		line = spanOfCode.ReplaceAllString(line, "")
		for _, match := range append(linkTarget.FindAllStringSubmatch(line, -1), htmlTarget.FindAllStringSubmatch(line, -1)...) {
			if linkScheme.MatchString(match[1]) {
				continue
			}
			target, anchor, _ := strings.Cut(match[1], "#")
			links = append(links, Link{i + 1, target, anchor})
		}
	}
	return links
}

// Anchors are the names of the places of a document that a link can name: those of its headings, as the usual renderers of Markdown make
// them, and explicit ones.
func Anchors(text string) map[string]bool {
	anchors := map[string]bool{}
	for _, line := range prose(text) {
		for _, match := range htmlAnchor.FindAllStringSubmatch(line, -1) {
			anchors[match[1]] = true
		}
		match := headingLine.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		name := anchorOf(match[1])
		for n := 1; anchors[name]; n++ {
			name = anchorOf(match[1]) + "-" + strconv.Itoa(n)
		}
		anchors[name] = true
	}
	return anchors
}

// anchorOf is the name of a heading: letters, digits, hyphens and underscores in small letters, a hyphen for each space, and nothing else.
func anchorOf(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(heading))
}
