package report

import (
	"io/fs"
	"regexp"
	"strings"
)

// clauseRow is a row of a table of rules: | L-20 | condition | effect |.
var clauseRow = regexp.MustCompile(`^\| ([A-Z]{1,4}-[A-Z]{0,2}[0-9]+[a-z]?) \| (.*) \|$`)

// LoadClauses reads the texts of clauses out of the tables of the protocol reference: Markdown files, whose other content it passes over.
func LoadClauses(docs fs.FS) (map[string]string, error) {
	names, err := fs.Glob(docs, "*.md")
	if err != nil {
		return nil, err
	}
	clauses := map[string]string{}
	for _, name := range names {
		text, err := fs.ReadFile(docs, name)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if row := clauseRow.FindStringSubmatch(strings.TrimSpace(line)); row != nil && clauses[row[1]] == "" {
				clauses[row[1]] = strings.ReplaceAll(strings.ReplaceAll(row[2], " | ", " — "), "`", "")
			}
		}
	}
	return clauses, nil
}
