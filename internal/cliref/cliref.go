// Package cliref writes what a command line has beside its help: completion scripts for shells and manual pages. It takes them from the model
// that parses the command line, so that they name every flag and command, and none that does not exist.
package cliref

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are the shells that Completion knows, as a kong enumeration.
const Shells = "bash,zsh,fish"

// Tags of flags and arguments, for grammars whose values kong does not check itself.
const (
	// TagValues lists the values that are offered, separated by commas. A kong enumeration needs it not.
	TagValues = "values"
	// TagCompletes says what is offered instead: CompletesFiles or CompletesCommands.
	TagCompletes = "completes"
)

// What TagCompletes can say.
const (
	CompletesFiles    = "files"
	CompletesCommands = "commands" // programs and what they take, behind --
)

// Completion writes the completion script of a program for a shell of Shells.
func Completion(w io.Writer, program *kong.Application, shell string) error {
	var text string
	switch shell {
	case "bash":
		text = bash(program)
	case "zsh":
		text = zsh(program)
	case "fish":
		text = fish(program)
	default:
		return fmt.Errorf("shell %q is not one of %s", shell, strings.ReplaceAll(Shells, ",", ", "))
	}
	_, err := io.WriteString(w, text)
	return err
}

// command is a program, or one of its commands, with everything that may stand behind it.
type command struct {
	*kong.Node
	path  string       // program and commands, separated by blanks
	flags []*kong.Flag // its own and those of all above, in this order
}

// commandsOf returns a program and all its commands, parents first. Hidden ones are left out.
func commandsOf(program *kong.Application) []command {
	return descend(command{Node: program.Node, path: program.Name}, nil)
}

func descend(c command, inherited []*kong.Flag) []command {
	for _, f := range c.Flags {
		if !f.Hidden {
			c.flags = append(c.flags, f)
		}
	}
	c.flags = append(c.flags, inherited...)
	all := []command{c}
	for _, child := range c.visible() {
		all = append(all, descend(command{Node: child, path: c.path + " " + child.Name}, c.flags)...)
	}
	return all
}

// visible are the commands directly below.
func (c command) visible() []*kong.Node {
	return slices.DeleteFunc(slices.Clone(c.Children), func(n *kong.Node) bool { return n.Hidden })
}

// identifier is the path as the name of a shell function.
func (c command) identifier() string {
	return "_" + strings.NewReplacer(" ", "__", "-", "_", ".", "_").Replace(c.path)
}

// spellings are the ways to write a flag.
func spellings(f *kong.Flag) []string {
	all := []string{"--" + f.Name}
	for _, alias := range f.Aliases {
		all = append(all, "--"+alias)
	}
	if f.Short != 0 {
		all = append(all, "-"+string(f.Short))
	}
	switch f.Tag.Negatable {
	case "":
	case "_": // kong's mark for the usual prefix
		all = append(all, "--no-"+f.Name)
	default:
		all = append(all, "--"+f.Tag.Negatable)
	}
	return all
}

// valued reports whether a flag takes a value.
func valued(f *kong.Flag) bool { return !f.IsBool() && !f.IsCounter() }

// valuesOf are the values that a flag or argument can have, nil when there is no list of them.
func valuesOf(v *kong.Value) []string {
	list := v.Tag.Get(TagValues)
	if v.Enum != "" {
		list = v.Enum
	}
	var values []string
	for _, value := range strings.Split(list, ",") {
		if value = strings.TrimSpace(value); value != "" {
			values = append(values, value)
		}
	}
	return values
}

// completes is what is offered for a value that has no list: CompletesFiles, CompletesCommands, or nothing.
func completes(v *kong.Value) string {
	switch v.Tag.Type {
	case "path", "existingfile", "existingdir", "existingpath":
		return CompletesFiles
	}
	return v.Tag.Get(TagCompletes)
}

// firstSentence is the part of a help text that a shell shows beside a word.
func firstSentence(help string) string {
	line, _, _ := strings.Cut(help, "\n")
	if sentence, _, more := strings.Cut(line, ". "); more {
		line = sentence
	}
	return strings.TrimSuffix(strings.TrimSpace(line), ".")
}
