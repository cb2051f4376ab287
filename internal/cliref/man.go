package cliref

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Page is a manual page.
type Page struct {
	Name    string // of the program or file
	Section int    // 1 programs, 5 files, 8 services
	Title   string // of the manual, which stands at the top
	Version string // which stands at the bottom
	Summary string // one line, for apropos
	See     []string
	// Parts are the sections between the summary and the list of further pages.
	Parts []Part
}

// Part is a section of a page.
type Part struct {
	Heading string
	Lines   []string // stand as they are
	// Text are paragraphs, separated by empty lines. Lines that begin with a tab stand as they are, indented.
	Text  string
	Items []Item
	Parts []Part // of which only the heading is smaller
}

// Item is a term and what it means.
type Item struct {
	Term string // in bold
	Of   string // behind the term, in italics
	Text string // paragraphs
}

// CommandParts describe a program by its model: synopsis, description, flags, commands and environment.
func CommandParts(program *kong.Application) []Part {
	all := commandsOf(program)
	root := all[0]
	synopsis := Part{Heading: "SYNOPSIS"}
	commands := Part{Heading: "COMMANDS"}
	for _, c := range all {
		if len(c.visible()) == 0 || c.DefaultCmd != nil {
			synopsis.Lines = append(synopsis.Lines, c.synopsis())
		}
		if c.Node != root.Node && len(c.visible()) == 0 {
			commands.Parts = append(commands.Parts, c.part())
		}
	}
	parts := []Part{synopsis, {Heading: "DESCRIPTION", Text: root.Help}, {Heading: "OPTIONS", Items: flagItems(root.Flags)}}
	if len(commands.Parts) > 0 {
		parts = append(parts, commands)
	}
	if items := environment(all); len(items) > 0 {
		parts = append(parts, Part{Heading: "ENVIRONMENT", Items: items})
	}
	return parts
}

// synopsis is a command with its arguments on one line.
func (c command) synopsis() string {
	line := c.path
	if len(c.flags) > 0 {
		line += " [flags]"
	}
	for _, argument := range c.Positional {
		if completes(argument) == CompletesCommands {
			line += " [-- command [argument ...]]"
			continue
		}
		line += " " + argument.Summary()
	}
	return line
}

// part describes a command below the program.
func (c command) part() Part {
	part := Part{Heading: c.synopsis(), Text: strings.TrimSpace(c.Help + "\n\n" + c.Detail)}
	for _, argument := range c.Positional {
		part.Items = append(part.Items, Item{Of: argument.Name, Text: withValues(argument, argument.Help)})
	}
	part.Items = append(part.Items, flagItems(c.Node.Flags)...)
	return part
}

func flagItems(flags []*kong.Flag) []Item {
	var items []Item
	for _, f := range flags {
		if f.Hidden {
			continue
		}
		item := Item{Term: strings.Join(spellings(f), ", "), Text: withValues(f.Value, f.Help)}
		if valued(f) {
			item.Term += "="
			item.Of = f.FormatPlaceHolder()
		}
		items = append(items, item)
	}
	return items
}

// withValues adds the list of values to a help text that does not name them all.
func withValues(v *kong.Value, help string) string {
	for _, value := range valuesOf(v) {
		if !strings.Contains(help, value) {
			return help + " One of " + strings.Join(valuesOf(v), ", ") + "."
		}
	}
	return help
}

// environment are the variables that kong reads for flags.
func environment(all []command) []Item {
	var items []Item
	for _, c := range all {
		for _, f := range c.Node.Flags {
			for _, name := range f.Envs {
				item := Item{Term: name, Text: "Stands for --" + f.Name + " where that is not given."}
				if !f.Hidden && !slices.Contains(items, item) {
					items = append(items, item)
				}
			}
		}
	}
	return items
}

// Write writes the page in the man macros of roff.
func (p Page) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Made from the command line that the program parses.\n.TH %s %d \"\" %s %s\n", strings.ToUpper(roffWord(p.Name)), p.Section,
		roffWord(p.Version), roffWord(p.Title))
	// No hyphens at the ends of lines, so that words can be copied; no stretched lines.
	b.WriteString(".nh\n.ad l\n")
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roffText(p.Name), roffText(p.Summary))
	for _, part := range p.Parts {
		part.write(&b, ".SH")
	}
	if len(p.See) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", roffText(strings.Join(p.See, ", ")))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Part) write(b *strings.Builder, macro string) {
	fmt.Fprintf(b, "%s %s\n", macro, roffWord(p.Heading))
	if len(p.Lines) > 0 {
		b.WriteString(".nf\n")
		for _, line := range p.Lines {
			b.WriteString(roffText(line) + "\n")
		}
		b.WriteString(".fi\n")
	}
	writeText(b, p.Text, ".PP")
	for _, item := range p.Items {
		b.WriteString(".TP\n")
		if item.Term != "" {
			b.WriteString(`\fB` + roffText(item.Term) + `\fR`)
		}
		if item.Of != "" {
			b.WriteString(`\fI` + roffText(item.Of) + `\fR`)
		}
		b.WriteString("\n")
		writeText(b, item.Text, ".IP")
	}
	for _, part := range p.Parts {
		part.write(b, ".SS")
	}
}

// writeText writes paragraphs; between is the macro that begins a further one.
func writeText(b *strings.Builder, text, between string) {
	verbatim, first := false, true
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		line = strings.TrimRight(line, "\n")
		content, tabbed := strings.CutPrefix(line, "\t")
		if tabbed != verbatim {
			b.WriteString(map[bool]string{true: beginVerbatim, false: endVerbatim}[tabbed])
			verbatim = tabbed
		}
		switch {
		case strings.TrimSpace(content) == "" && first:
		case strings.TrimSpace(content) == "":
			b.WriteString(between + "\n")
		default:
			b.WriteString(roffText(content) + "\n")
		}
		first = false
	}
	if verbatim {
		b.WriteString(endVerbatim)
	}
}

// Around indented lines that stand as they are.
const (
	beginVerbatim = ".RS 4\n.nf\n"
	endVerbatim   = ".fi\n.RE\n"
)

// roffText escapes what roff would read as more than text: backslashes, the hyphens that it would make typographic, quotes that it would
// bend, and a control character at the beginning of a line.
func roffText(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// roffWord is a text as one argument of a macro.
func roffWord(text string) string { return `"` + strings.ReplaceAll(roffText(text), `"`, `\(dq`) + `"` }
