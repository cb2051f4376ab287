package cliref

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// zsh writes one function for each command. A command with commands below hands over to the function of the one that was chosen, where
// _arguments sees only the words from there on.
func zsh(program *kong.Application) string {
	all := commandsOf(program)
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n# zsh completion for %s\n", program.Name, program.Name)
	for _, c := range all {
		b.WriteString(c.zsh())
	}
	// Loaded from $fpath the file is the body of the function; sourced it must register itself.
	fmt.Fprintf(&b, "\nif [[ $funcstack[1] == %[1]s ]]; then\n    %[1]s \"$@\"\nelif (( $+functions[compdef] )); then\n    compdef %[1]s %[2]s\nfi\n",
		all[0].identifier(), program.Name)
	return b.String()
}

func (c command) zsh() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s() {\n", c.identifier())
	below := c.visible()
	if len(below) > 0 {
		b.WriteString("    local curcontext=$curcontext context state state_descr line ret=1\n    typeset -A opt_args\n    _arguments -C")
	} else {
		b.WriteString("    _arguments -S")
	}
	for _, f := range c.flags {
		fmt.Fprintf(&b, " \\\n        %s", zshFlag(f))
	}
	for _, argument := range c.Positional {
		fmt.Fprintf(&b, " \\\n        %s", zshArgument(argument))
	}
	if len(below) == 0 {
		b.WriteString("\n}\n")
		return b.String()
	}
	b.WriteString(" \\\n        '1: :->command' \\\n        '*:: :->rest' && ret=0\n    case $state in\n    command)\n        local -a commands=(\n")
	for _, child := range below {
		fmt.Fprintf(&b, "            %s\n", quoted(child.Name+":"+firstSentence(child.Help)))
	}
	fmt.Fprintf(&b, "        )\n        _describe -t commands %s commands && ret=0\n        ;;\n    rest)\n        case $line[1] in\n",
		quoted(c.path+" command"))
	for _, child := range below {
		fmt.Fprintf(&b, "        %s) %s && ret=0 ;;\n", child.Name, command{path: c.path + " " + child.Name}.identifier())
	}
	b.WriteString("        esac\n        ;;\n    esac\n    return ret\n}\n")
	return b.String()
}

// zshFlag is the specification of a flag for _arguments. All spellings exclude each other unless the flag may be repeated.
func zshFlag(f *kong.Flag) string {
	names := spellings(f)
	tail := "[" + zshText(firstSentence(f.Help)) + "]"
	if valued(f) {
		tail = "=" + tail + ":" + zshText(strings.ToLower(f.FormatPlaceHolder())) + ":" + zshAction(f.Value)
	}
	exclusive := quoted("(" + strings.Join(names, " ") + ")")
	if f.Value.IsCumulative() {
		exclusive = "'*'"
	}
	if len(names) == 1 {
		return exclusive + quoted(names[0]+tail)
	}
	return exclusive + "{" + strings.Join(names, ",") + "}" + quoted(tail)
}

func zshArgument(v *kong.Value) string {
	text := zshText(v.Name)
	switch {
	case completes(v) == CompletesCommands: // three colons: completed as if nothing stood before it
		return quoted("*:::" + text + ":_normal")
	case v.IsCumulative():
		return quoted("*:" + text + ":" + zshAction(v))
	case !v.Required:
		return quoted("::" + text + ":" + zshAction(v))
	}
	return quoted(":" + text + ":" + zshAction(v))
}

func zshAction(v *kong.Value) string {
	if values := valuesOf(v); values != nil {
		return "(" + strings.Join(values, " ") + ")"
	}
	if completes(v) == CompletesFiles {
		return "_files"
	}
	return " " // an action that offers nothing
}

// zshText escapes what ends a description.
func zshText(text string) string {
	return strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`).Replace(text)
}
