// Package docs holds the templates of the reference documents. Functions of the templates: md escapes text, code makes a code span.
package docs

import "embed"

// Templates are the templates by file name; NAME.md.tmpl makes NAME.md.
//
//go:embed *.md.tmpl
var Templates embed.FS

// Boundary defines the template "boundary": the text about deployment, disclosure and views that the README of every SDK and the guide of the
// broker share (L-02, A-40 to A-44, OB-70 to OB-75). It needs the function default, which writes a default of the SDKs by name.
//
//go:embed boundary.tmpl
var Boundary string
