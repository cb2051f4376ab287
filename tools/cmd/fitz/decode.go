package main

import (
	"io"
	"strings"

	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/tools/internal/decode"
)

type decodeCmd struct {
	Hex  []string `arg:"" name:"hex" help:"Hexadecimal digits of one message, or - to read them from standard input."`
	From string   `enum:"client,broker,auto" default:"auto" help:"Who sent it: client, broker or auto."`
}

// Help is the long help text.
func (*decodeCmd) Help() string {
	return `The bytes are one record, several, or a whole TCP message with its length in front. A number can stand for a request and for its
reply: without --from both are tried, and the last line says which fits. A mistake is shown with its place, the code that answers it
or what else happens, and the rule; the exit code is 100 then.`
}

// inputMax bounds what is read from standard input: the digits of the largest message with generous space between them.
const inputMax = 8 * bounds.FrameRecvMax

// Run decodes one message.
func (c *decodeCmd) Run(a *app) error {
	text := strings.Join(c.Hex, " ")
	if text == "-" {
		input, err := io.ReadAll(io.LimitReader(a.stdin, inputMax))
		if err != nil {
			return err
		}
		text = string(input)
	}
	data, err := decode.Hex(text)
	if err != nil {
		return usage("%w", err)
	}
	from := decode.Side(c.From)
	if c.From == "auto" {
		from = decode.Either
	}
	report := decode.Message(data, from)
	if err := a.showReport(report); err != nil {
		return err
	}
	if report.Problem != nil {
		return ended(exitFindings)
	}
	return nil
}

func (a *app) showReport(report decode.Report) error {
	if a.json {
		return a.printJSON(a.stdout, report)
	}
	return a.print(strings.Join(report.Lines(), "\n"))
}
