// Package layout holds what the folder of the Go SDK has beside its code: the README and the examples of its documentation.
package layout

import "embed"

// Readme is the template of README.md. Beside its own fields it needs the template "boundary" of the documents and the function default,
// which writes a default of the SDKs by name.
//
//go:embed README.md.tmpl
var Readme embed.FS

// Examples are test files that stand beside the SDK, so that its documentation shows them.
//
//go:embed examples/*_test.go
var Examples embed.FS
