package cliref

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// fishFrame is the part that is the same for every program: %[1]s is its name, %[2]s the stem of the functions, %[3]s every place of a flag
// that takes a value, %[4]s every path of commands, each a quoted word.
const fishFrame = `# fish completion for %[1]s

# Prints the command that the words before the cursor have come to, or nothing behind --.
function %[2]s_path
    set -l valued %[3]s
    set -l paths %[4]s
    set -l path %[1]s
    set -l words (commandline -opc)
    set -l skip 0
    for word in $words[2..-1]
        if test $skip = 1
            set skip 0
            continue
        end
        if test "$word" = --
            return
        else if contains -- "$path $word" $valued
            set skip 1
        else if contains -- "$path $word" $paths
            set path "$path $word"
        end
    end
    echo $path
end

function %[2]s_at
    test "$(%[2]s_path)" = "$argv[1]"
end

# Completes what stands behind -- as a command line of its own.
function %[2]s_rest
    set -l words (commandline -opc) (commandline -ct)
    set -l at (contains -i -- -- $words)
    __fish_complete_subcommand --commandline $words[(math $at + 1)..-1]
end

complete -c %[1]s -e
complete -c %[1]s -f
`

func fish(program *kong.Application) string {
	all := commandsOf(program)
	stem := "_" + all[0].identifier()
	var flags, paths []string
	var b strings.Builder
	for _, c := range all {
		paths = append(paths, fishQuoted(c.path))
		for _, s := range c.spellings(true) {
			flags = append(flags, fishQuoted(c.path+" "+s))
		}
		fmt.Fprintf(&b, "\n# %s\n", c.path)
		begin := fmt.Sprintf("complete -c %s -n %s", program.Name, fishQuoted(stem+"_at "+fishQuoted(c.path)))
		for _, child := range c.visible() {
			fmt.Fprintf(&b, "%s -a %s -d %s\n", begin, fishQuoted(child.Name), fishQuoted(firstSentence(child.Help)))
		}
		for _, argument := range c.Positional {
			if offer := fishOffer(argument); offer != "" {
				fmt.Fprintf(&b, "%s%s -d %s\n", begin, offer, fishQuoted(firstSentence(argument.Help)))
			}
			if completes(argument) == CompletesCommands {
				fmt.Fprintf(&b, "complete -c %s -n 'contains -- -- (commandline -opc)' -a '(%s_rest)'\n", program.Name, stem)
			}
		}
		for _, f := range c.flags {
			b.WriteString(begin + fishFlag(f) + "\n")
		}
	}
	return fmt.Sprintf(fishFrame, program.Name, stem, strings.Join(flags, " "), strings.Join(paths, " ")) + b.String()
}

func fishFlag(f *kong.Flag) string {
	var b strings.Builder
	for _, s := range spellings(f) {
		if name, long := strings.CutPrefix(s, "--"); long {
			b.WriteString(" -l " + name)
		} else {
			b.WriteString(" -s " + strings.TrimPrefix(s, "-"))
		}
	}
	if valued(f) {
		if offer := fishOffer(f.Value); offer != "" {
			b.WriteString(" -r" + offer)
		} else {
			b.WriteString(" -x")
		}
	}
	return b.String() + " -d " + fishQuoted(firstSentence(f.Help))
}

// fishOffer are the arguments of complete that offer what a value can be.
func fishOffer(v *kong.Value) string {
	if values := valuesOf(v); values != nil {
		return " -f -a " + fishQuoted(strings.Join(values, " "))
	}
	if completes(v) == CompletesFiles {
		return " -F"
	}
	return ""
}

// fishQuoted is a text as one word of fish.
func fishQuoted(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(text) + "'"
}
