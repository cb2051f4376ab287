// Package dispatchtest tests the generated package dispatch from outside: which step answers a request, and what reaches the domain. It holds no
// code but tests, because generated packages hold none that were written by hand.
package dispatchtest
