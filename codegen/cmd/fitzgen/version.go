package main

import (
	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/internal/version"
)

// versionCmd is `fitzgen version`. The generator imports nothing that it generates, so version and fingerprint are read from the
// specification.
type versionCmd struct {
	JSON bool `name:"json" help:"Print one JSON object."`
}

// Run prints the information.
func (c *versionCmd) Run(a *app) error {
	spec, list, err := load.Load(a.Spec)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		return a.refuse(list)
	}
	return version.Of("fitzgen", spec.Version, spec.Fingerprint).Write(a.out, c.JSON)
}
