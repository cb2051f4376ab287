// Package clienttest holds the test in which the Go client meets every golden vector that a broker can send. It has no code of its own.
package clienttest
