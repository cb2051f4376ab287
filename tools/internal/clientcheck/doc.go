// Package clientcheck holds tests of the generated Go clients, whose folders hold generated files only.
package clientcheck
