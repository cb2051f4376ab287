package main

import (
	"github.com/alecthomas/kong"

	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/cliref"
)

type completionCmd struct {
	Shell string `arg:"" enum:"${shells}" help:"The shell."`
}

// Help is the long help text.
func (*completionCmd) Help() string {
	return `bash: source <(fitz completion bash), or write it to a folder that the package bash-completion reads.

zsh: write it to a file _fitz in a folder of $fpath.

fish: write it to ~/.config/fish/completions/fitz.fish.`
}

// Run prints the script.
func (c *completionCmd) Run(a *app, parser *kong.Kong) error {
	return cliref.Completion(a.stdout, parser.Model, c.Shell)
}

type manCmd struct{}

// Run prints the manual page.
func (*manCmd) Run(a *app, parser *kong.Kong) error {
	page := cliref.Page{Name: "fitz", Section: 1, Title: "Fitz", Version: "Fitz " + wire.SpecVersion,
		Summary: "hold leases while commands run, and see who holds what", See: []string{"fitzd(8)"},
		Parts: append(cliref.CommandParts(parser.Model), cliref.Part{Heading: "EXAMPLES",
			Text: "Run a command while a lease is held:\n\n\tfitz lease acquire lease://acme/renderers/1 -- sleep 5\n\n" +
				"Keep a live table of the leases of a fleet:\n\n\tfitz lease watch 'lease://acme/renderers/*'"})}
	return page.Write(a.stdout)
}
