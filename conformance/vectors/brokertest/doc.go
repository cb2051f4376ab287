// Package brokertest holds the test in which a running broker meets every golden vector that a client can send. It has no code of its own.
package brokertest
