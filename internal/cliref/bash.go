package cliref

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// bashFrame is the part of the script that is the same for every program; %[1]s is its name, %[2]s that of the function, %[3]s the table. It
// works without the package bash-completion, and with bash 3.2, which macOS has: no associative arrays, no mapfile. A line is walked from
// the left: path is the command so far, flag one that waits for its value. Readline splits words at "=", so that one stands alone.
const bashFrame = `# bash completion for %[1]s

%[2]s() {
    local path=%[1]s flag= rest= cur=${COMP_WORDS[COMP_CWORD]} word i
    local commands flags valued values files
    COMPREPLY=()
    for ((i = 1; i <= COMP_CWORD; i++)); do
        %[2]s_table
        if ((i == COMP_CWORD)); then break; fi
        word=${COMP_WORDS[i]}
        if [[ -n $flag ]]; then
            if [[ $word != = ]]; then flag=; fi
            continue
        fi
        if [[ $word == -- ]]; then
            rest=$((i + 1))
            break
        fi
        case $word in
        -*) if [[ $valued == *" $word "* ]]; then flag=$word; fi ;;
        *) if [[ $commands == *" $word "* ]]; then path="$path $word"; fi ;;
        esac
    done
    if [[ $cur == = ]]; then cur=; fi
    values= files=
    if [[ -n $rest ]]; then
        %[2]s_rest
        return
    fi
    if [[ -z $flag && $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$flags" -- "$cur"))
        return
    fi
    %[2]s_values
    if [[ -z $flag ]]; then values="$commands$values"; fi
    if [[ -n $files ]]; then
        %[2]s_list -f
    elif [[ -n ${values// /} ]]; then
        COMPREPLY=($(compgen -W "$values" -- "$cur"))
    fi
}

# Names with blanks in them are one word each.
%[2]s_list() {
    local name
    compopt -o filenames 2>/dev/null
    while IFS= read -r name; do COMPREPLY+=("$name"); done < <(compgen "$1" -- "$cur")
}

# What may stand behind --: a program first, then whatever it takes.
%[2]s_rest() {
    case $path in
%[5]s    *) return ;;
    esac
    if ((COMP_CWORD == rest)) && [[ $cur != */* ]]; then %[2]s_list -c; else %[2]s_list -f; fi
}

# Commands, flags and those of them that take a value, at a path.
%[2]s_table() {
    case $path in
%[3]s    esac
}

# What is offered for the value of a flag, or for an argument.
%[2]s_values() {
    case "$path $flag" in
%[4]s    esac
}

complete -F %[2]s %[1]s
`

func bash(program *kong.Application) string {
	var table, values, rest strings.Builder
	all := commandsOf(program)
	for _, c := range all {
		fmt.Fprintf(&table, "    %s)\n        commands=%s\n        flags=%s\n        valued=%s ;;\n", quoted(c.path), quoted(spaced(c.names())),
			quoted(spaced(c.spellings(false))), quoted(spaced(c.spellings(true))))
		for _, f := range c.flags {
			if offer := bashOffer(f.Value); offer != "" && valued(f) {
				var places []string
				for _, s := range spellings(f) {
					places = append(places, quoted(c.path+" "+s))
				}
				fmt.Fprintf(&values, "    %s) %s ;;\n", strings.Join(places, "|"), offer)
			}
		}
		for _, argument := range c.Positional {
			if completes(argument) == CompletesCommands {
				fmt.Fprintf(&rest, "    %s) ;;\n", quoted(c.path))
			} else if offer := bashOffer(argument); offer != "" {
				fmt.Fprintf(&values, "    %s) %s ;;\n", quoted(c.path+" "), offer)
			}
		}
	}
	return fmt.Sprintf(bashFrame, program.Name, all[0].identifier(), table.String(), values.String(), rest.String())
}

// bashOffer is the assignment that offers what a value can be.
func bashOffer(v *kong.Value) string {
	if values := valuesOf(v); values != nil {
		return "values=" + quoted(spaced(values))
	}
	if completes(v) == CompletesFiles {
		return "files=1"
	}
	return ""
}

// names are the commands directly below.
func (c command) names() []string {
	var names []string
	for _, child := range c.visible() {
		names = append(names, child.Name)
	}
	return names
}

// spellings are those of all flags, or only of those that take a value.
func (c command) spellings(onlyValued bool) []string {
	var all []string
	for _, f := range c.flags {
		if !onlyValued || valued(f) {
			all = append(all, spellings(f)...)
		}
	}
	return all
}

// spaced has a blank before and behind each word, so that a word can be looked for together with its blanks.
func spaced(words []string) string { return " " + strings.Join(append(words, ""), " ") }

// quoted is a text as one word of bash and zsh.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
