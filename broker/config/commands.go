package config

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/settings"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/cliref"
)

// programName stands in help, completion scripts and manual pages.
const programName = "fitzd"

// commandsField is the field of a command line that holds the commands.
const commandsField = "Commands"

// commands are the commands of fitzd. Flags may stand before and behind them.
type commands struct {
	Serve       struct{}          `cmd:"" default:"1" help:"Run the broker. This is what happens without a command."`
	Version     struct{}          `cmd:"" help:"Print version, commit and fingerprint of the specification."`
	Healthcheck struct{}          `cmd:"" help:"Ask the broker that runs with this configuration for its health. Exit status 0: it answers; 1: it does not."`
	Completion  completionCommand `cmd:"" help:"Print the completion script of a shell."`
	Man         manCommand        `cmd:"" help:"Print a manual page."`
}

type completionCommand struct {
	Shell string `arg:"" enum:"${shells}" help:"The shell."`
}

type manCommand struct {
	Section string `arg:"" optional:"" enum:"8,5" default:"8" help:"8 is fitzd itself, 5 its configuration file."`
}

// perform prints what a command prints that needs no configuration, and tells what is left to do.
func (c *commands) perform(parser *kong.Kong, chosen string, out io.Writer) (Action, error) {
	name, _, _ := strings.Cut(chosen, " ")
	switch name {
	case "version":
		return Version, nil
	case "healthcheck":
		return Health, nil
	case "completion":
		return Help, cliref.Completion(out, parser.Model, c.Completion.Shell)
	case "man":
		return Help, manual(parser.Model, c.Man.Section).Write(out)
	}
	return Serve, nil
}

// completing are the tags that tell shells what to offer for a setting.
func completing(s settings.Setting) string {
	switch s.Type {
	case "enum":
		return fmt.Sprintf("%s:%q", cliref.TagValues, strings.Join(s.Values, ","))
	case "path":
		return fmt.Sprintf("%s:%q", cliref.TagCompletes, cliref.CompletesFiles)
	}
	return ""
}

// manual is the manual page of a section.
func manual(program *kong.Application, section string) cliref.Page {
	page := cliref.Page{Name: programName, Section: 8, Title: "Fitz", Version: "Fitz " + wire.SpecVersion,
		Summary: "lease broker", See: []string{"fitz(1)", "fitzd.yaml(5)"}}
	if section == "5" {
		page.Name, page.Section, page.Summary, page.See = programName+".yaml", 5, "configuration of the lease broker", []string{"fitzd(8)"}
		page.Parts = fileParts()
		return page
	}
	page.Parts = append(cliref.CommandParts(program), environmentPart(), cliref.Part{Heading: "SIGNALS", Items: []cliref.Item{
		{Term: "SIGTERM, SIGINT", Text: "The broker takes no new sessions, tells negotiated ones to move, and ends when they are gone or when drain_grace_ms is over. " +
			"A second signal ends the grace at once."},
		{Term: "SIGUSR1", Text: "The same for a broker whose place another one takes, where the system has this signal."}}},
		cliref.Part{Heading: "EXIT STATUS", Items: []cliref.Item{
			{Term: "0", Text: "The broker ended after a signal, or the command is done."},
			{Term: "1", Text: "Something could not be done; of healthcheck: the broker does not answer."},
			{Term: "2", Text: "The command line or the configuration has a mistake, or an address cannot be listened at. One line names each place."}}})
	return page
}

func environmentPart() cliref.Part {
	part := cliref.Part{Heading: "ENVIRONMENT", Text: "A flag beats the environment, the environment beats the file, the file beats the default."}
	for _, l := range settings.Listeners {
		part.Items = append(part.Items, cliref.Item{Term: l.Env, Text: "As --" + l.Flag + "."})
	}
	for _, s := range settings.All {
		text := "As --" + s.Flag + "."
		if s.Flag == "" {
			text = s.Doc + " There is no flag for it, because others can see command lines."
		}
		for _, alias := range s.Aliases {
			text += " Also " + alias + "."
		}
		part.Items = append(part.Items, cliref.Item{Term: s.Env, Text: text})
	}
	return part
}

// fileParts are the sections about the configuration file.
func fileParts() []cliref.Part {
	keys := cliref.Part{Heading: "KEYS", Text: "An unknown key, a wrong type and a wrong value are reported with file and line, all of them in one run, " +
		"and the broker does not start."}
	for _, l := range settings.Listeners {
		keys.Items = append(keys.Items, cliref.Item{Term: l.Name, Of: " HOST:PORT",
			Text: fmt.Sprintf("%s Default: %s; %s for none. Flag --%s, environment %s.", l.Doc, l.Address, AddressOff, l.Flag, l.Env)})
	}
	for _, s := range settings.All {
		if s.Name != settings.SettingConfig.Name {
			keys.Items = append(keys.Items, settingItem(s))
		}
	}
	limits := cliref.Part{Heading: "LIMITS", Text: "Keys below " + settings.SettingLimits.Name + ", each a whole number."}
	defaults := bounds.Default()
	for _, b := range bounds.All {
		if n, ok := defaults.Get(b.Name); ok && b.OperatorMayChange {
			limits.Items = append(limits.Items, cliref.Item{Term: b.Name,
				Text: fmt.Sprintf("Default: %d %s for each %s. Beyond it: %s.", n, b.Unit, b.Scope, b.Beyond)})
		}
	}
	synopsis := cliref.Part{Heading: "SYNOPSIS", Lines: []string{"fitzd --config FILE"}}
	description := cliref.Part{Heading: "DESCRIPTION", Text: "The configuration file of fitzd(8) is YAML. \"fitzd --check-config\" looks at it without starting the " +
		"broker, \"fitzd --print-config\" prints what is in force, from all sources, as such a file, without secrets."}
	return []cliref.Part{synopsis, description, keys, listenersPart(), limits}
}

// listenersExample is checked by a test.
const listenersExample = `listeners:
  - {transport: tcp, address: "localhost:4193"}
  - transport: websocket
    address: "localhost:4194"
    hello: delayed(150)
`

func listenersPart() cliref.Part {
	part := cliref.Part{Heading: "LISTENERS", Text: "The key " + keyListeners + " is a list of listeners beside the ones above:\n"}
	for line := range strings.Lines(listenersExample) {
		part.Text += "\n\t" + strings.TrimSuffix(line, "\n")
	}
	part.Items = []cliref.Item{
		{Term: "transport", Text: strings.Join([]string{TransportTCP, TransportWebSocket, TransportAdmin}, ", ") + "."},
		{Term: "address", Of: " HOST:PORT", Text: "Port 0 picks a free one."},
		{Term: "auth", Text: strings.Join(settings.SettingAuth.Values, " or ") + "; without it as the key " + settings.SettingAuth.Name + " says."},
		{Term: "hello", Text: "Without it as the key " + settings.SettingHello.Name + " says."},
	}
	return part
}

func settingItem(s settings.Setting) cliref.Item {
	item := cliref.Item{Term: s.Name, Of: " " + s.Type, Text: s.Doc}
	if len(s.Values) > 0 {
		item.Text += " One of " + strings.Join(s.Values, ", ") + "."
	}
	if s.Default != "" {
		item.Text += " Default: " + s.Default + "."
	}
	if s.Flag != "" {
		item.Text += " Flag --" + s.Flag + ", environment " + s.Env + "."
	} else {
		item.Text += " Environment " + s.Env + "."
	}
	return item
}
