// Package pattern classifies concrete routes and selectors, and decides matching and containment on the classified values. It
// is the only implementation of the route grammar: listing, registration, removal, permission entries and cursors exchange the
// values of this package and never their texts.
//
// The package knows no scheme and no limit by name. A [Grammar] describes the routes of one domain; the Fitz grammars are
// generated from the spec.
//
// # Forms
//
// A route text is scheme "://" segment *( "/" segment ). A selector text may also use the whole segments "*" (exactly one
// segment) and "**" (zero or more segments). A grammar of fixed depth D turns every selector into its canonical set of masks,
// D-tuples of literals and "*"; matching and containment then compare tuples. A grammar of flexible depth keeps
// the segments and uses a finite automaton.
package pattern
