package main

import (
	"fmt"
	"os"
	"time"

	"github.com/fitzwire/fitz/codegen/emit"
)

// output is where generated files go and what runtimes are copied from.
type output struct {
	Out       string `help:"Folder of the generated files." default:"generated" placeholder:"DIR" short:"o"`
	Templates string `help:"Folder of templates and runtimes." default:"sdk-templates" placeholder:"DIR"`
}

// genCmd generates everything. A specification with findings writes nothing.
type genCmd struct {
	output
}

// Run implements the command.
func (c *genCmd) Run(a *app) error {
	start := time.Now()
	files, err := c.generate(a)
	if err != nil {
		return err
	}
	report, err := emit.Write(c.Out, files)
	if err != nil {
		return err
	}
	for _, name := range report.Written {
		fmt.Fprintln(a.out, "written:", name)
	}
	for _, name := range report.Removed {
		fmt.Fprintln(a.out, "removed:", name)
	}
	fmt.Fprintf(a.log, "%s: %d files, %d written, %d removed in %v\n", c.Out, len(files), len(report.Written), len(report.Removed),
		time.Since(start).Round(time.Millisecond))
	accepted, rejected := emit.CountVectors(files)
	fmt.Fprintf(a.log, "golden vectors: %d accepted, %d rejected\n", accepted, rejected)
	return nil
}

// generate checks the specification and makes all files in memory.
func (o *output) generate(a *app) ([]emit.File, error) {
	spec, list, err := a.checked()
	if err != nil {
		return nil, err
	}
	if len(list) > 0 {
		return nil, a.refuse(list)
	}
	return emit.Generate(spec, os.DirFS(o.Templates))
}
