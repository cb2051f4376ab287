// Package fitz holds the templates of the typed shell of the Go SDK: Go text in which the specification fills codes, words, comments and
// plain operations. NAME.go.tmpl makes NAME.go of the SDK.
package fitz

import "embed"

// Templates are the templates by file name.
//
//go:embed *.go.tmpl
var Templates embed.FS
