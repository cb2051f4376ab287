// Package mutant names the faults that can be seeded into the broker on purpose, so that the conformance suite can show that it
// notices each of them. They exist only in builds with the tag "mutants": in every other build On is the constant false and the
// compiler removes what depends on it. conformance/mutants.yaml lists them with what must notice them; a test compares the two.
package mutant
