// Package schema holds the JSON Schemas of the specification language, one per kind of file. Their descriptions are the manual of the
// language; editors find them through the first line of each spec file, and the loader checks every file with them.
package schema

import "embed"

// Files is the schemas, KIND.schema.json each, and common.schema.json with what several of them share.
//
//go:embed *.schema.json
var Files embed.FS

// Base is the address below which the schemas refer to each other.
const Base = "https://github.com/fitzwire/fitz/spec/schema/"
