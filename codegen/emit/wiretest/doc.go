// Package wiretest tests the generated package wire from outside: against the vectors of the protocol reference, with random and with
// damaged values. It holds no code but tests, because generated packages hold none that were written by hand.
package wiretest
