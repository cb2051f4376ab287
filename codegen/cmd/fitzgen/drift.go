package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/fitzwire/fitz/codegen/emit"
)

// driftCmd generates into an empty folder and compares it with the output folder: changed, missing and extra files.
type driftCmd struct {
	output
}

// Run implements the command.
func (c *driftCmd) Run(a *app) (err error) {
	files, err := c.generate(a)
	if err != nil {
		return err
	}
	fresh, err := os.MkdirTemp("", "fitzgen-drift-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(fresh)) }()
	if _, err := emit.Write(fresh, files); err != nil {
		return err
	}
	differences, err := emit.Compare(os.DirFS(fresh), os.DirFS(c.Out))
	if err != nil {
		return err
	}
	for _, d := range differences {
		fmt.Fprintln(a.out, d)
	}
	if len(differences) > 0 {
		fmt.Fprintf(a.log, "%s: %d files differ from what %s says; run fitzgen gen\n", c.Out, len(differences), a.Spec)
		return &outcome{code: exitDrift}
	}
	fmt.Fprintf(a.log, "%s: %d files as %s says\n", c.Out, len(files), a.Spec)
	return nil
}
