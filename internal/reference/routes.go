package reference

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const routesFile = "routes.md"

// Domain is the grammar of one domain (routes.md section 1).
type Domain struct {
	Source
	Name     string
	Depth    int      // segments of a concrete route; 0 = flexible
	Segments []string // names of the segments, nil when flexible
}

// Domains returns the domains in the order of the table.
func (d *Docs) Domains() ([]Domain, error) {
	t, err := d.Table(routesFile, "1", "domain", "concrete depth", "segments")
	groups, err := load(t, err, func(row Row) ([]Domain, error) {
		var out []Domain
		depth, err := strconv.Atoi(row.Cells[1])
		segments := strings.Split(row.Cells[2], " / ")
		switch {
		case strings.Contains(row.Cells[1], "–"):
			depth, segments = 0, nil
		case err != nil:
			return nil, err
		case depth != len(segments):
			return nil, fmt.Errorf("depth %d, but segments %q", depth, segments)
		}
		for name := range strings.SplitSeq(row.Cells[0], ", ") {
			out = append(out, Domain{row.Source, name, depth, segments})
		}
		return out, nil
	})
	return slices.Concat(groups...), err
}

// ReasonWord is one reason word of a route or selector text that is refused (routes.md section 3).
type ReasonWord struct {
	Source
	Step int
	Word string
}

// ReasonWords returns the reason words in the order of the checks.
func (d *Docs) ReasonWords() ([]ReasonWord, error) {
	t, err := d.Table(routesFile, "3", "step", "reason word", "check")
	groups, err := load(t, err, func(row Row) ([]ReasonWord, error) {
		step, err := strconv.Atoi(row.Cells[0])
		if err != nil {
			return nil, err
		}
		words, err := codeSpans(row.Cells[1])
		if err == nil && len(words) == 0 {
			err = fmt.Errorf("no reason word in %q", row.Cells[1])
		}
		var out []ReasonWord
		for _, word := range words {
			out = append(out, ReasonWord{row.Source, step, word})
		}
		return out, err
	})
	return slices.Concat(groups...), err
}

// Use says how the text of a test case is read.
type Use string

// The two uses.
const (
	Concrete Use = "concrete" // as a concrete route
	Pattern  Use = "pattern"  // as a selector
)

func readUse(cell string) (Use, error) {
	if u := Use(cell); u == Concrete || u == Pattern {
		return u, nil
	}
	return "", fmt.Errorf("use %q", cell)
}

// ValidRoute is one row of the RV table (routes.md section 7.1). Exactly one of Exact, Flexible and Masks is set.
type ValidRoute struct {
	Source
	ID       string
	Domain   string
	Use      Use
	Text     string
	Exact    bool     // a concrete route or exact selector
	Flexible bool     // a selector with wildcards of a domain of flexible depth
	Masks    []string // the canonical masks, each a path
}

// ValidRoutes returns the RV table.
func (d *Docs) ValidRoutes() ([]ValidRoute, error) {
	t, err := d.Table(routesFile, "7.1", "id", "domain", "use", "text", "result")
	return load(t, err, func(row Row) (v ValidRoute, err error) {
		v = ValidRoute{Source: row.Source, ID: row.ID(), Domain: row.Cells[1]}
		if v.Use, err = readUse(row.Cells[2]); err != nil {
			return v, err
		}
		if v.Text, err = code(row.Cells[3]); err != nil {
			return v, err
		}
		switch result := row.Cells[4]; result {
		case "exact":
			v.Exact = true
		case "flexible":
			v.Flexible = true
		default:
			v.Masks, err = readMasks(result)
		}
		return v, err
	})
}

// readMasks reads a cell of the form `a` · `b`.
func readMasks(cell string) ([]string, error) {
	var masks []string
	for part := range strings.SplitSeq(cell, " · ") {
		mask, err := code(part)
		if err != nil {
			return nil, err
		}
		masks = append(masks, mask)
	}
	return masks, nil
}

// InvalidRoute is one row of the RI table (routes.md section 7.2). Text is expanded and may be invalid UTF-8.
type InvalidRoute struct {
	Source
	ID     string
	Domain string
	Use    Use
	Text   string
	Reason string // reason word
}

// InvalidRoutes returns the RI table.
func (d *Docs) InvalidRoutes() ([]InvalidRoute, error) {
	t, err := d.Table(routesFile, "7.2", "id", "domain", "use", "text", "reason")
	return load(t, err, func(row Row) (v InvalidRoute, err error) {
		v = InvalidRoute{Source: row.Source, ID: row.ID(), Domain: row.Cells[1]}
		if v.Use, err = readUse(row.Cells[2]); err != nil {
			return v, err
		}
		if v.Text, err = expandText(row.Cells[3]); err != nil {
			return v, err
		}
		v.Reason, err = code(row.Cells[4])
		return v, err
	})
}

var (
	repeated = regexp.MustCompile("^`([^`]+)` followed by ([0-9,]+) times `([^`]+)` \\(([0-9,]+) bytes\\)$")
	joined   = regexp.MustCompile("^`([^`]+)` followed by ([0-9,]+) segments `([^`]+)` joined by `([^`]+)`$")
	rawByte  = regexp.MustCompile("^`([^`]+)` followed by byte 0x([0-9A-F]{2})$")
	symbols  = strings.NewReplacer("␀", "\x00", "␊", "\n")
)

// expandText returns the text that a cell of the RI table describes. A description that it does not know is an error.
func expandText(cell string) (string, error) {
	if m := repeated.FindStringSubmatch(cell); m != nil {
		return expandRepeated(m)
	}
	if m := joined.FindStringSubmatch(cell); m != nil {
		count, err := integer(m[2])
		if err != nil || count < 1 {
			return "", fmt.Errorf("count %q", m[2])
		}
		return m[1] + strings.Repeat(m[3]+m[4], int(count)-1) + m[3], nil
	}
	if m := rawByte.FindStringSubmatch(cell); m != nil {
		b, err := strconv.ParseUint(m[2], 16, 8)
		return m[1] + string([]byte{byte(b)}), err
	}
	text, err := code(cell)
	return symbols.Replace(text), err
}

func expandRepeated(m []string) (string, error) {
	count, err := integer(m[2])
	if err != nil {
		return "", err
	}
	size, err := integer(m[4])
	if err != nil {
		return "", err
	}
	if int64(len(m[1]))+count*int64(len(m[3])) != size {
		return "", fmt.Errorf("%q describes a text of another size than %d bytes", m[0], size)
	}
	return m[1] + strings.Repeat(m[3], int(count)), nil
}

// integer reads a decimal number whose groups of three digits may be separated by commas.
func integer(text string) (int64, error) {
	return strconv.ParseInt(strings.ReplaceAll(text, ",", ""), 10, 32)
}

var boundary = regexp.MustCompile(`(?m)^Boundary: (.+ bytes\)) and ([0-9]+) (\w+) segments are valid\.$`)

// Boundary returns the two longest valid texts: the longest lease route in bytes and the longest notice route in segments
// (routes.md section 7.2, last line). Their ids are "boundary bytes" and "boundary segments".
func (d *Docs) Boundary() ([]ValidRoute, error) {
	text, err := d.Section(routesFile, "7.2")
	if err != nil {
		return nil, err
	}
	m := boundary.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("%s/%s: section 7.2 has no line that begins with Boundary", Dir, routesFile)
	}
	long, err := expandText(m[1])
	if err != nil {
		return nil, err
	}
	deep, err := expandText(fmt.Sprintf("`%s://` followed by %s segments `x` joined by `/`", m[3], m[2]))
	if err != nil {
		return nil, err
	}
	scheme, _, _ := strings.Cut(long, "://")
	source := Source{File: routesFile}
	return []ValidRoute{
		{Source: source, ID: "boundary bytes", Domain: scheme, Use: Concrete, Text: long, Exact: true},
		{Source: source, ID: "boundary segments", Domain: m[3], Use: Concrete, Text: deep, Exact: true},
	}, nil
}

// Containment is one row of the RC table (routes.md section 7.3).
type Containment struct {
	Source
	ID             string
	Grant, Request string
	Contained      bool
}

// Containments returns the RC table.
func (d *Docs) Containments() ([]Containment, error) {
	t, err := d.Table(routesFile, "7.3", "id", "grant", "request", "contained")
	return load(t, err, func(row Row) (v Containment, err error) {
		v = Containment{Source: row.Source, ID: row.ID()}
		if v.Grant, err = code(row.Cells[1]); err != nil {
			return v, err
		}
		if v.Request, err = code(row.Cells[2]); err != nil {
			return v, err
		}
		v.Contained, err = yesNo(row.Cells[3])
		return v, err
	})
}

func yesNo(cell string) (bool, error) {
	if cell != "yes" && cell != "no" {
		return false, fmt.Errorf("%q is neither yes nor no", cell)
	}
	return cell == "yes", nil
}

// Match is one row of the RM table (routes.md section 7.4).
type Match struct {
	Source
	ID             string
	Pattern, Route string
	Matches        bool
	Once           bool // the row stresses that a registration is reported once (W-94)
}

// Matches returns the RM table.
func (d *Docs) Matches() ([]Match, error) {
	t, err := d.Table(routesFile, "7.4", "id", "pattern", "route", "match")
	return load(t, err, func(row Row) (v Match, err error) {
		v = Match{Source: row.Source, ID: row.ID()}
		if v.Pattern, err = code(row.Cells[1]); err != nil {
			return v, err
		}
		if v.Route, err = code(row.Cells[2]); err != nil {
			return v, err
		}
		answer, once := strings.CutSuffix(row.Cells[3], ", once (W-94)")
		v.Once = once
		v.Matches, err = yesNo(answer)
		return v, err
	})
}

// Masks is one row of the C3 table (routes.md section 4): the canonical masks of a path at depth 3.
type Masks struct {
	Source
	ID    string
	Path  string
	Masks []string
}

// CanonicalMasks returns the C3 table.
func (d *Docs) CanonicalMasks() ([]Masks, error) {
	t, err := d.Table(routesFile, "4", "id", "path", "canonical masks")
	return load(t, err, func(row Row) (v Masks, err error) {
		v = Masks{Source: row.Source, ID: row.ID()}
		if v.Path, err = code(row.Cells[1]); err != nil {
			return v, err
		}
		v.Masks, err = readMasks(row.Cells[2])
		return v, err
	})
}
