// Package driver holds the templates of the conformance driver of the Go SDK: Go text in which the specification fills the table of
// operations. main.go.tmpl makes the command, NAME.go.tmpl makes NAME.go of the package that the command runs.
package driver

import "embed"

// Templates are the templates by file name.
//
//go:embed *.go.tmpl
var Templates embed.FS
