package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/fitzwire/fitz/conformance/coverage"
)

// errCoverage says that something has no case, or that a reason is stale. The exit code is exitTool.
var errCoverage = errors.New("the coverage is not complete")

// coverageCommand shows that every rule and every error code has a case in which it is kept and one in which its violation is noticed.
type coverageCommand struct {
	All  bool   `help:"Print every rule with its cases before the table."`
	JSON string `help:"Write everything that was found out to this file; - is the output." placeholder:"FILE" name:"json"`
}

// coverageJSON is the file that --json writes.
type coverageJSON struct {
	*coverage.Report
	OK     bool             `json:"ok"`
	Totals []coverage.Total `json:"totals"`
}

func (c *coverageCommand) run(root string, stdout io.Writer) error {
	tree, err := open(root)
	if err != nil {
		return err
	}
	input, err := coverage.Read(tree)
	if err != nil {
		return err
	}
	report := coverage.Map(input)
	if c.JSON != "-" {
		if err := report.Write(stdout, c.All); err != nil {
			return err
		}
	}
	if err := c.write(report, stdout); err != nil {
		return err
	}
	if !report.OK() {
		return errors.Join(errCoverage, mistakes(tree))
	}
	return mistakes(tree)
}

func (c *coverageCommand) write(report *coverage.Report, stdout io.Writer) error {
	if c.JSON == "" {
		return nil
	}
	text, err := json.MarshalIndent(coverageJSON{report, report.OK(), report.Totals()}, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if c.JSON == "-" {
		_, err = stdout.Write(text)
		return err
	}
	return os.WriteFile(c.JSON, text, 0o644)
}
